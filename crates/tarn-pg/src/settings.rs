//! What can be set of the Postgres port, and what is it by default?

use tarn_types::settings::{bytes, positive_ms};

tarn_types::settings! {
    /// What the Postgres port is told.
    pub struct PgSettings {
        authentication_timeout_ms: u64 = "10s", positive_ms, "how long a client may take to introduce itself";
        message_bytes: u64 = "64MiB", bytes, "longest message of a client that is no COPY data; longer ones are refused (54000)";
    }
}
