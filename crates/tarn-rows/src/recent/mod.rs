//! What of a tablet changed after the delivered cursor? Rows kept columnar in memory beside the engine, as generations:
//! the active one, and one more for each freeze whose changes are not installed.
//!
//! ```text
//! Generation          index: key -> arrival                 (the writer's, under the apply lock)
//!                     KeyLog: arrival -> key                (shared with snapshots that resolve addresses)
//!                     slots: arrival -> latest row or none
//! Rows of it          [RowSet + bitmap of live rows] …       (what a snapshot clones: two references per row set)
//! ```

mod generation;
mod key_log;
mod live;
mod row_set;

pub(crate) use generation::{Generation, RowsView, ViewChanges, contains};
pub(crate) use key_log::KeyLog;
pub(crate) use live::LiveBitmap;
pub(crate) use row_set::{RowSet, RowSetView};
