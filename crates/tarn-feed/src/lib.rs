//! What happened after this cursor? The change log as its readers see it, subscriptions with checkpoints, and the hot
//! side of a table as the movers see it.
//!
//! This crate holds seams and plain types: who keeps the changes ([`ChangeLog`], [`HotTable`] are implemented in
//! `tarn-rows`) and who listens (lake, index, a client) are somebody else's business.
//!
//! ```
//! use tarn_feed::{ChangeLog, Checkpoints, MemoryLog, Subscription};
//! use std::sync::Arc;
//!
//! let dir = std::env::temp_dir().join(format!("tarn-feed-doc-{}", std::process::id()));
//! let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::default());
//! let mut subscription = Subscription::open(Arc::new(Checkpoints::open(&dir)?), "search-index", log)?;
//! let changes = subscription.poll(1 << 20)?; // what happened since the last checkpoint
//! assert!(changes.is_empty());
//! let at = subscription.position().clone();
//! subscription.checkpoint(&at)?; // a restart goes on from here
//! # std::fs::remove_dir_all(&dir).unwrap();
//! # Ok::<(), tarn_feed::Error>(())
//! ```
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod changes;
mod error;
mod hot;
mod subscription;

pub use changes::{Change, ChangeLog, MemoryLog};
pub use error::{Error, Result};
pub use hot::{DeliveryBacklog, FrozenRows, HotTable, PlacedRows, Stage, StagedAddresses};
pub use subscription::{Checkpoints, Checkpoints as CheckpointStore, Subscription};
