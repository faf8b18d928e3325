//! What can be set of the HTTP port, and what is it by default?

use tarn_types::settings::{positive_ms, switch, text};

tarn_types::settings! {
    /// What the HTTP port is told.
    pub struct HttpSettings {
        insecure_plain_http: bool = "false", switch, "take passwords over HTTP without TLS from beyond loopback (behind something that has TLS)";
        http_timeout_ms: u64 = "30s", positive_ms, "how long an HTTP client may take to send a request, or to read on in an answer";
        http_hosts: String = "", text, "names besides localhost by which /v1/sql may be called (Host and Origin), blanks between them";
    }
}
