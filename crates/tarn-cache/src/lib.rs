//! Do I have it near? Parquet metadata, pages of objects and listings, in memory and on a local disk.
//!
//! - [`FooterCache`] keeps parsed [`ParquetMetaData`](parquet::file::metadata::ParquetMetaData) (page index included),
//!   bounded by bytes.
//! - [`FileReader`] reads one file by these, and gives nothing that is not what was written.
//! - [`ProjectedCache`] keeps metadata of a few columns of a file, as it is put together from what the metastore says
//!   of them.
//! - [`PageStore`] wraps an [`object_store::ObjectStore`]: reads go through a [`PageCache`], original bytes in memory
//!   and in a folder.
//! - [`FragmentCache`] keeps what leaves of plans gave, under keys of the query room's own making, by bytes.
//! - [`ListedStore`] wraps one too: listings of directories into which nothing comes any more are kept for a while.
//! - [`choices`] and [`place`] say which of several workers should have a part of a file near (nobody asks yet: there
//!   is one worker).
//! - [`CachedStore`] wraps one too: it passes every call through and counts what was asked of the store.
//!
//! Invariant: no answer depends on a cache. A key holds everything that could make a value stale (store, path, ETag or
//! size and time), so a lookup gives either what the store would give, or a miss; of listings alone the caller says
//! what may be old ([`ListingOptions`]). This crate never knows what a plan means. docs/caching.md describes the
//! layers, docs/rfcs/0004-caches.md how they sit together.
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
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod affinity;
mod disk_cache;
mod error;
mod file;
mod finally;
mod footer;
mod fragments;
mod listing;
mod lru;
mod pages;
mod projected;
mod read_store;
mod s3fifo;
mod stats;
mod store;
mod ttl;

pub use affinity::{Placement, RowGroupRead, choices, place};
pub use disk_cache::shortage;
pub use error::{Error, Result};
pub use file::{FileReader, FileReaders, Prepare};
pub use footer::{FooterCache, FooterKey, LAKE_STORE};
pub use fragments::{FragmentCache, FragmentKey, FragmentOptions, FragmentStats, FragmentsCleared, FragmentsHeld};
pub use listing::{ListedStore, ListingOptions, ListingStats};
pub use pages::{
    ClearStats, NotUsed, ObjectState, PageCache, PageOptions, PageStats, PageStore, PageUsage, PagesHeld, ReadRequest,
    Trust,
};
pub use projected::{ProjectedCache, ProjectedColumn, ProjectedKey, ProjectedMetadata, Projection};
pub use read_store::ReadStore;
pub use stats::CacheStats;
pub use store::{CachedStore, StoreStats};
pub use ttl::Ttl;
