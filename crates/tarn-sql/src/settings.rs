//! What can be set of SQL, and what is it by default?

use std::path::PathBuf;

use tarn_types::settings::{bytes, count, duration_ms, optional_path, positive};

tarn_types::settings! {
    /// The settings of SQL.
    pub struct SqlSettings {
        prepared_statements_limit: usize = "10000", count, "prepared statements of one connection; more are refused (53400)";
        statement_timeout_ms: u64 = "0", duration_ms, "a statement that runs longer is cancelled (57014); 0 = never; `SET statement_timeout` overrides it";
        slow_statement_ms: u64 = "0", duration_ms, "a statement that takes longer is logged (target `tarn::slow`) with its time and text, without parameters; 0 = none is";
        statement_bytes: u64 = "16MiB", bytes, "a longer text of SQL is refused (54000); rows belong into COPY";
        idle_in_transaction_timeout_ms: u64 = "0", duration_ms, "a transaction idle for longer loses its connection (25P03); 0 = never";
        transaction_bytes: u64 = "64MiB", bytes, "how much one BEGIN … COMMIT may hold back before it is refused (54000)";
        transactions_bytes: u64 = "512MiB", bytes, "how much all transactions together may hold back until COMMIT, and UPDATE and DELETE until they write (53200)";
        query_memory_bytes: u64 = "512MiB", bytes, "memory of all queries together; what needs more spills to disk or fails with 53200";
        query_partitions: usize = "0", count, "parallel partitions of a query; 0 = number of cores";
        spill_dir: Option<PathBuf> = "", optional_path, "folder of spilled query state; empty = <data_dir>/spill";
        delivery_interval_ms: u64 = "2min", duration_ms, "default of a table's delivery interval";
        delivery_bytes: u64 = "128MiB", bytes, "default of a table's delivery size: recent rows beyond it are delivered at once";
        copy_batch_rows: usize = "32768", positive, "rows of one commit of COPY FROM and of INSERT … SELECT";
    }
}
