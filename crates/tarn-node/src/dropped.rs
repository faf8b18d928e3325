//! Of which dropped tables is something left? What `drops.rs` removes when nobody reads it any more.

use std::sync::Arc;

use parking_lot::Mutex;
use tarn_rows::Table;

use crate::ledger::LedgerEntry;

/// Dropped tables of which something is left.
#[derive(Default)]
pub struct Drops {
    pub(crate) left: Mutex<Vec<DroppedTable>>,
    /// One at a time.
    pub(crate) sweeping: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
pub(crate) struct DroppedTable {
    pub(crate) entry: LedgerEntry,
    /// It was open when it was dropped: somebody may still read it.
    pub(crate) table: Option<Arc<Table>>,
    /// Rows and log are gone.
    pub(crate) is_purged: bool,
    /// What was in the way the last time, not to be tried again before this time.
    pub(crate) not_before_ms: i64,
}
