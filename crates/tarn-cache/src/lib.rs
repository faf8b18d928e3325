//! Do I have it near? Parquet metadata in memory, and the seam where pages of objects will be kept.
//!
//! - [`FooterCache`] keeps parsed [`ParquetMetaData`](parquet::file::metadata::ParquetMetaData) (page index included), bounded by bytes.
//! - [`ProjectedCache`] keeps metadata of a few columns of a file, as it is put together from what the metastore says of them.
//! - [`CachedStore`] wraps an [`object_store::ObjectStore`]: it passes every call through and counts what was asked of the store.
//!
//! Invariant: no answer depends on a cache. A key holds everything that could make a value stale (path, ETag or size), so a
//! lookup gives either what the store would give, or a miss. This crate never knows what a plan means.
//!
//! ```
//! use std::sync::Arc;
//! use tarn_cache::{CachedStore, FooterCache};
//!
//! let footers = FooterCache::new(64 << 20);
//! let store = CachedStore::new(Arc::new(object_store::memory::InMemory::new()));
//! assert_eq!(footers.stats().entries, 0);
//! assert_eq!(store.stats().reads, 0);
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod error;
mod footer;
mod lru;
mod projected;
mod stats;
mod store;

pub use error::{Error, Result};
pub use footer::{FooterCache, FooterKey};
pub use projected::{Projected, ProjectedCache, ProjectedColumn, ProjectedKey, Projection};
pub use stats::CacheStats;
pub use store::{CachedStore, StoreStats};
