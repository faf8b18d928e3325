//! Which blocks can hold the answer, at which version?
//!
//! The metastore keeps what object storage cannot answer fast: which files a table has at each version, their blocks
//! with bounds, their dead rows, the cursor up to which changes are in them, and per block a bloom filter and the
//! metadata of its columns. A version comes to be by one [`Commit`]: compare-and-set on the version before it (or
//! rebased by the store, when it only adds files), idempotent by id, durable when answered. A search asks in two steps:
//! [`prune`] by bounds in memory, then [`Metastore::probe`] by keys where the blooms are. It does not read Parquet and
//! does not know who writes or asks.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use tarn_metastore::{Memory, Metastore, VersionSelector};
//! use tarn_types::TableId;
//!
//! let metastore = Memory::new(std::sync::Arc::new(tarn_types::ManualClock::new(0)));
//! assert!(metastore.tables().await?.is_empty());
//! assert!(metastore.snapshot(TableId(1), VersionSelector::Latest).await.is_err());
//! # Ok::<(), tarn_metastore::Error>(())
//! # }).unwrap();
//! ```

#![warn(missing_docs)]
#![cfg_attr(any(test, feature = "contract"), allow(clippy::unwrap_used))]

mod error;
mod metastore;
mod model;

mod checksums;
mod file;
mod files;
mod order;
pub mod prune;
mod rebase;

mod block_metadata;
mod bloom;
mod probe;
mod tokens;

mod check;
mod codec;
mod commits;
mod define;
mod ids;
mod state;
mod wire;

mod checkpoint;
mod log;
mod pack;
mod record;

mod embedded;
mod memory;
mod remote;

mod copy;
mod document;

pub mod backend;
#[cfg(any(test, feature = "contract"))]
pub mod contract;

pub use block_metadata::{
    BlockMetadata, BlockMetadataRequest, BlockRef, ColumnChunk, ColumnMetadata, HourBlocks, MetadataByColumn,
    hour_blocks,
};
pub use bloom::{Bloom, BloomBuilder, CHUNK_BYTES, DEFAULT_CHUNKS, Hash, MAX_CHUNKS, chunks_for, false_positive_rate};
pub use checksums::{ChecksumVerifier, Checksums, Damage, PIECE_BYTES, Plan, Summing};
pub use copy::{CopyStats, TableSum, copy, extent, sums};
pub use document::{Document, MAX_DOCUMENT_BYTES, document, is_document, put_document};
pub use embedded::{Embedded, Recovery};
pub use error::{Error, Result};
pub use file::{Block, ColumnStats, File, Note};
pub use files::{FileRun, Files};
pub use memory::Memory;
pub use metastore::{Metastore, MetastoreExt};
pub use model::{
    Alteration, Commit, CommitInfo, CommitKind, Definition, ExpectedVersion, MaintenanceReport, Stats, TableVersion,
    VersionSelector,
};
pub use order::compare;
pub use probe::{AllOf, Probe, ProbeResult};
pub use remote::Remote;
pub use tokens::{MAX_TOKEN_BYTES, Tokens, token_hash, tokens, value_hash};
