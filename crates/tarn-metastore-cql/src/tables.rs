//! Which tables does the store consist of, and with which statements are they read and written?
//!
//! ```text
//! catalog       one partition: ids, names, the schema version          conditional writes only
//! schemas       table, revision: the definition in parts of 1 MiB
//! head          table: where its log ends                              conditional writes only
//! commit_log    (table, bucket of 128): seq, attempt, part             the commits
//! bases         table: cursor and time of the oldest kept version
//! hours         table: hours with files, and the width of their rows    conditional writes only
//! blocks        (table, hour): file, row group                         the files of the oldest kept version
//! dead_rows     (table, hour): file, version
//! bloom_chunks  (table, hour, slot): file, row group: 32 to 256 bytes of a filter
//! columns       (table, hour, column): file, row group
//! ```
//!
//! What is written unconditionally has a time of our own, 1, and what deletes it 2: ids never come back, so a deletion
//! is the last word, however late a write arrives and whatever the clocks of the nodes say.
//!
//! Rows of `schemas`, `commit_log`, `bases` and of all below `hours` are written once and never changed, so that any
//! replica's is the right one.

use crate::session::Sort::{Conditional, Read, Serial, Write};
use crate::session::{Statement, Store};
use tarn_metastore::Result;

/// Commits of one partition of the log.
pub(crate) const BUCKET: i64 = 128;

/// Of `schemas` and `commit_log`.
pub(crate) const PART_BYTES: usize = 1 << 20;

/// The only partition of `catalog`.
pub(crate) const CATALOG: &str = "tarn";

/// In `columns`, in place of a column: which columns a block has.
pub(crate) const COLUMN_LIST: i32 = i32::MIN;

/// In `blocks`, in place of a row group: the file itself.
pub(crate) const FILE_ROW: i32 = -1;

const LZ4: &str = " WITH compression = {'class': 'LZ4Compressor'}";

/// Filters look like noise: packing them would cost time and save nothing.
const RAW: &str = " WITH compression = {'enabled': false}";

const COMMON: [&str; 8] = [
    "catalog (k text, table_id int, name text, revision uuid, dropped boolean, first_version bigint, first_cursor blob, created_ms bigint, \
     restoring boolean, seq bigint static, next_table int static, next_tablet int static, next_file bigint static, schema_version int static, \
     target_version int static, phase text static, epoch int static, PRIMARY KEY (k, table_id))",
    "schemas (table_id int, revision uuid, part int, json blob, PRIMARY KEY ((table_id), revision, part))",
    "head (table_id int PRIMARY KEY, seq bigint, version bigint, tip uuid, oldest bigint, oldest_seq bigint, restoring boolean, dropped boolean, epoch int)",
    "commit_log (table_id int, bucket bigint, seq bigint, attempt uuid, part int, n_parts int, prev uuid, payload blob, \
     PRIMARY KEY ((table_id, bucket), seq, attempt, part))",
    "bases (table_id int, version bigint, cursor blob, committed_ms bigint, n_files bigint, id_sum bigint, PRIMARY KEY ((table_id), version))",
    "blocks (table_id int, hour bigint, file_id bigint, row_group int, added bigint, removed bigint, file blob, block blob, \
     PRIMARY KEY ((table_id, hour), file_id, row_group))",
    "dead_rows (table_id int, hour bigint, file_id bigint, version bigint, bits blob, PRIMARY KEY ((table_id, hour), file_id, version))",
    "columns (table_id int, hour bigint, column_id int, file_id bigint, row_group int, record blob, \
     PRIMARY KEY ((table_id, hour, column_id), file_id, row_group))",
];

const HOURS: &str = "hours (table_id int, hour bigint, chunk_row_bytes int, PRIMARY KEY ((table_id), hour))";
const HOURS_1: &str = "hours (table_id int, hour bigint, PRIMARY KEY ((table_id), hour))";
const BLOOM_CHUNKS: &str = "bloom_chunks (table_id int, hour bigint, slot int, file_id bigint, row_group int, bits blob, \
     PRIMARY KEY ((table_id, hour, slot), file_id, row_group))";
const BLOOM_CHUNKS_1: &str = "bloom_chunks32 (table_id int, hour bigint, chunk int, file_id bigint, row_group int, bits blob, \
     PRIMARY KEY ((table_id, hour, chunk), file_id, row_group))";
const MIGRATED: &str = "migrated (table_id int, hour bigint, PRIMARY KEY ((table_id), hour))";

/// Makes all tables of a schema version, as far as they are missing. `catalog` comes last: where it is, all are.
pub(crate) async fn create(store: &Store, version: u32) -> Result<()> {
    let (hours, bloom_chunks) = if version == 1 { (HOURS_1, BLOOM_CHUNKS_1) } else { (HOURS, BLOOM_CHUNKS) };
    store.define(&format!("CREATE TABLE IF NOT EXISTS {bloom_chunks}{RAW}")).await?;
    for table in [hours].iter().chain(COMMON.iter().rev()) {
        store.define(&format!("CREATE TABLE IF NOT EXISTS {table}{LZ4}")).await?;
    }
    Ok(())
}

/// What version 2 has and version 1 has not.
pub(crate) async fn expand(store: &Store, hours_have_width: bool) -> Result<()> {
    store.define(&format!("CREATE TABLE IF NOT EXISTS {BLOOM_CHUNKS}{RAW}")).await?;
    store.define(&format!("CREATE TABLE IF NOT EXISTS {MIGRATED}{LZ4}")).await?;
    if !hours_have_width {
        store.define("ALTER TABLE hours ADD chunk_row_bytes int").await?;
    }
    Ok(())
}

/// What version 1 has and version 2 has not.
pub(crate) async fn contract(store: &Store) -> Result<()> {
    store.define("DROP TABLE IF EXISTS bloom_chunks32").await?;
    store.define("DROP TABLE IF EXISTS migrated").await
}

macro_rules! statements {
    ($($name:ident: $sort:ident $text:expr),* $(,)?) => {
        /// All statements of one connection.
        pub(crate) struct Statements { $(pub $name: Statement),* }

        impl Statements {
            /// All of them, none prepared yet.
            pub fn new() -> Self {
                Self { $($name: Statement::new($sort, $text)),* }
            }
        }
    };
}

statements! {
    keyspace: Read "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?",
    tables: Read "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?",
    columns_of: Read "SELECT column_name FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?",

    catalog: Serial "SELECT table_id, name, revision, dropped, first_version, first_cursor, created_ms, restoring FROM catalog WHERE k = ?",
    catalog_head: Serial "SELECT seq, next_table, next_tablet, next_file, schema_version, target_version, phase, epoch FROM catalog WHERE k = ? LIMIT 1",
    catalog_init: Conditional "UPDATE catalog SET seq = 0, next_table = 1, next_tablet = 1, next_file = 1, schema_version = ?, phase = '', epoch = 0 \
        WHERE k = ? IF seq = null",
    catalog_next: Conditional "UPDATE catalog SET seq = ?, next_table = ?, next_tablet = ? WHERE k = ? IF seq = ?",
    catalog_table: Conditional "INSERT INTO catalog (k, table_id, name, revision, dropped, first_version, first_cursor, created_ms, restoring) \
        VALUES (?, ?, ?, ?, false, ?, ?, ?, ?)",
    catalog_revision: Conditional "UPDATE catalog SET name = ?, revision = ? WHERE k = ? AND table_id = ?",
    catalog_drop: Conditional "UPDATE catalog SET dropped = true WHERE k = ? AND table_id = ?",
    catalog_forget: Conditional "DELETE FROM catalog WHERE k = ? AND table_id = ?",
    catalog_files: Conditional "UPDATE catalog SET next_file = ? WHERE k = ? IF next_file = ?",
    catalog_phase: Conditional "UPDATE catalog SET seq = ?, schema_version = ?, target_version = ?, phase = ?, epoch = ? WHERE k = ? IF seq = ?",

    schema: Read "SELECT json FROM schemas WHERE table_id = ? AND revision = ?",
    schema_put: Write "INSERT INTO schemas (table_id, revision, part, json) VALUES (?, ?, ?, ?) USING TIMESTAMP 1",
    schema_forget: Write "DELETE FROM schemas USING TIMESTAMP 2 WHERE table_id = ?",

    head: Serial "SELECT seq, version, tip, oldest, oldest_seq, restoring, dropped, epoch FROM head WHERE table_id = ?",
    head_seen: Read "SELECT seq, version, tip, oldest, oldest_seq, restoring, dropped, epoch FROM head WHERE table_id = ?",
    head_new: Conditional "INSERT INTO head (table_id, seq, version, tip, oldest, oldest_seq, restoring, dropped, epoch) \
        VALUES (?, 0, ?, ?, ?, 0, ?, false, ?) IF NOT EXISTS",
    head_commit: Conditional "UPDATE head SET seq = ?, version = ?, tip = ? WHERE table_id = ? IF seq = ? AND tip = ? AND epoch = ? AND restoring = ? AND dropped = false",
    head_restored: Conditional "UPDATE head SET restoring = false WHERE table_id = ? IF seq = ? AND tip = ? AND restoring = true AND dropped = false",
    head_oldest: Conditional "UPDATE head SET oldest = ?, oldest_seq = ? WHERE table_id = ? IF oldest = ? AND oldest_seq = ? AND dropped = false",
    head_epoch: Conditional "UPDATE head SET epoch = ? WHERE table_id = ? IF epoch = ? AND dropped = false",
    head_drop: Conditional "UPDATE head SET dropped = true WHERE table_id = ? IF EXISTS",

    log: Read "SELECT seq, attempt, part, n_parts, prev, payload FROM commit_log WHERE table_id = ? AND bucket = ? AND seq > ? AND seq <= ?",
    log_put: Write "INSERT INTO commit_log (table_id, bucket, seq, attempt, part, n_parts, prev, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP 1",
    log_forget: Write "DELETE FROM commit_log USING TIMESTAMP 2 WHERE table_id = ? AND bucket = ? AND seq <= ?",

    base: Read "SELECT cursor, committed_ms, n_files, id_sum FROM bases WHERE table_id = ? AND version = ?",
    base_put: Write "INSERT INTO bases (table_id, version, cursor, committed_ms, n_files, id_sum) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP 1",
    bases_forget: Write "DELETE FROM bases USING TIMESTAMP 2 WHERE table_id = ? AND version < ?",

    hours: Serial "SELECT hour FROM hours WHERE table_id = ?",
    hour_put: Conditional "INSERT INTO hours (table_id, hour) VALUES (?, ?) IF NOT EXISTS",
    hour_width: Read "SELECT chunk_row_bytes FROM hours WHERE table_id = ? AND hour = ?",
    hour_width_seen: Serial "SELECT chunk_row_bytes FROM hours WHERE table_id = ? AND hour = ?",
    hour_width_put: Conditional "UPDATE hours SET chunk_row_bytes = ? WHERE table_id = ? AND hour = ? IF chunk_row_bytes = null",

    blocks: Read "SELECT file_id, row_group, added, removed, file, block FROM blocks WHERE table_id = ? AND hour = ?",
    file_put: Write "INSERT INTO blocks (table_id, hour, file_id, row_group, added, file) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP 1",
    block_put: Write "INSERT INTO blocks (table_id, hour, file_id, row_group, added, block) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP 1",
    file_removed: Write "UPDATE blocks USING TIMESTAMP 1 SET removed = ? WHERE table_id = ? AND hour = ? AND file_id = ? AND row_group = ?",
    file_forget: Write "DELETE FROM blocks USING TIMESTAMP 2 WHERE table_id = ? AND hour = ? AND file_id = ?",
    blocks_forget: Write "DELETE FROM blocks USING TIMESTAMP 2 WHERE table_id = ? AND hour = ?",
    dead_all_forget: Write "DELETE FROM dead_rows USING TIMESTAMP 2 WHERE table_id = ? AND hour = ?",
    dead: Read "SELECT file_id, version, bits FROM dead_rows WHERE table_id = ? AND hour = ?",
    dead_put: Write "INSERT INTO dead_rows (table_id, hour, file_id, version, bits) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP 1",
    dead_forget: Write "DELETE FROM dead_rows USING TIMESTAMP 2 WHERE table_id = ? AND hour = ? AND file_id = ?",

    chunks: Read "SELECT file_id, row_group, bits FROM bloom_chunks WHERE table_id = ? AND hour = ? AND slot = ?",
    chunks_some: Read "SELECT file_id, row_group, bits FROM bloom_chunks WHERE table_id = ? AND hour = ? AND slot = ? AND (file_id, row_group) IN ?",
    chunk_put: Write "INSERT INTO bloom_chunks (table_id, hour, slot, file_id, row_group, bits) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP 1",
    chunks_forget: Write "DELETE FROM bloom_chunks USING TIMESTAMP 2 WHERE table_id = ? AND hour = ? AND slot = ? AND file_id = ?",
    chunks_1: Read "SELECT file_id, row_group, bits FROM bloom_chunks32 WHERE table_id = ? AND hour = ? AND chunk = ?",
    chunks_1_some: Read "SELECT file_id, row_group, bits FROM bloom_chunks32 WHERE table_id = ? AND hour = ? AND chunk = ? AND (file_id, row_group) IN ?",
    chunk_1_put: Write "INSERT INTO bloom_chunks32 (table_id, hour, chunk, file_id, row_group, bits) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP 1",
    chunks_1_forget: Write "DELETE FROM bloom_chunks32 USING TIMESTAMP 2 WHERE table_id = ? AND hour = ? AND chunk = ? AND file_id = ?",

    column: Read "SELECT file_id, row_group, record FROM columns WHERE table_id = ? AND hour = ? AND column_id = ?",
    column_some: Read "SELECT file_id, row_group, record FROM columns WHERE table_id = ? AND hour = ? AND column_id = ? AND (file_id, row_group) IN ?",
    column_put: Write "INSERT INTO columns (table_id, hour, column_id, file_id, row_group, record) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP 1",
    column_forget: Write "DELETE FROM columns USING TIMESTAMP 2 WHERE table_id = ? AND hour = ? AND column_id = ? AND file_id = ?",

    migrated: Read "SELECT hour FROM migrated WHERE table_id = ?",
    migrated_put: Write "INSERT INTO migrated (table_id, hour) VALUES (?, ?) USING TIMESTAMP 1",
}
