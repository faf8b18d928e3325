//! How do changes become files, exactly once?
//!
//! ```text
//! freeze ──> sort ──> Parquet files ──> ONE commit in the metastore ──> stage addresses ──> install
//!                                        (the only place where exactly-once lives)
//! ```
//!
//! A delivery moves the rows changed after the delivered cursor into new files, marks the rows they supersede dead, and
//! moves the cursor, all in one commit. What comes before the commit may be lost and done again (its files become
//! orphans); what comes after can be found out from the commit and done again (`repair`). A compaction is the same
//! without moving the cursor. The hot side is seen through [`tarn_feed::HotTable`], files through
//! [`object_store::ObjectStore`].
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use tarn_lake::{Lake, Options};
//! use tarn_metastore::Memory;
//! use tarn_types::ManualClock;
//!
//! let clock = Arc::new(ManualClock::new(0));
//! let store = Arc::new(object_store::memory::InMemory::new());
//! let metastore = Arc::new(Memory::new(clock.clone()));
//! let lake = Lake::new(store, metastore, clock, Options::default(), uuid::Uuid::from_u128(1));
//! assert_eq!(lake.options().compact_files, 8);
//! // lake.deliver(table).await?: the table is a `tarn_rows::Table` in the server.
//! # });
//! ```

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod error;
mod local;
mod options;

mod checked;
mod column_chunks;
mod fetch;
mod flaws;
mod format;
mod index;
mod merge;
mod names;
mod read;
mod sort;
mod stats;
mod stored;
mod upload;
mod writer;

pub mod attach;

mod clean;
mod compact;
mod deliver;
mod lake;
mod repair;
mod scrub;

#[cfg(test)]
mod test_data;

pub use clean::{ExpiryStats, Orphans};
pub use compact::CompactionStats;
pub use deliver::DeliveryStats;
pub use error::{Error, Result};
pub use fetch::fetch_rows;
pub use flaws::{Flaw, Flaws};
pub use lake::Lake;
pub use local::LocalStore;
pub use names::{table_folder, table_prefix};
pub use options::{Compression, Options};
pub use repair::RepairStats;
pub use scrub::{ScrubPosition, ScrubStats, Stretch};
