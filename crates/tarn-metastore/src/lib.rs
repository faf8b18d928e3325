//! Which blocks can hold the answer, at which version?
//!
//! The metastore keeps what object storage cannot answer fast: which files a table has at each version, their blocks with
//! bounds, their dead rows, and the cursor up to which changes are in them. A version comes to be by one [`Commit`]:
//! compare-and-set on the version before it, idempotent by id, durable when answered. It does not read Parquet and does
//! not know who writes or asks.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use tarn_metastore::{At, Memory, Metastore};
//! use tarn_types::TableId;
//!
//! let metastore = Memory::new(std::sync::Arc::new(tarn_types::ManualClock::new(0)));
//! assert!(metastore.tables().await?.is_empty());
//! assert!(metastore.snapshot(TableId(1), At::Latest).await.is_err());
//! # Ok::<(), tarn_metastore::Error>(())
//! # }).unwrap();
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod error;
mod metastore;
mod model;
mod order;
pub mod prune;

mod codec;
mod state;

mod embedded;
mod log;
mod memory;

#[cfg(test)]
mod contract;

pub use embedded::{Embedded, Recovery};
pub use error::{Error, Result};
pub use memory::Memory;
pub use metastore::Metastore;
pub use model::{At, Block, ColumnStats, Commit, CommitInfo, CommitKind, File, Stats, TableVersion};
pub use order::compare;
