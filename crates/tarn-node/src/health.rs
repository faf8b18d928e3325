//! What does not do its work on this node? The words, and what is remembered from turn to turn; `heal.rs` asks the
//! parts.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// A part of the node that does not do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthIssue {
    /// As `/readyz` calls it: `row engine`, `log`, `metastore`.
    pub part: &'static str,
    /// For whoever operates the server.
    pub reason: String,
}

/// What cannot be asked of the parts themselves.
#[derive(Default)]
pub struct Health {
    /// Parts whose last maintenance failed, and why.
    pub(crate) failing: Mutex<BTreeMap<&'static str, String>>,
    /// What the server's log was told of.
    pub(crate) told: Mutex<BTreeMap<&'static str, String>>,
    /// Cancelled when the data folder must be opened anew, and can be.
    pub reopen: CancellationToken,
}
