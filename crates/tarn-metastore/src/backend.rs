//! What do backends in crates of their own build on? The state, its checks and its bytes, which all backends share.
//!
//! A backend keeps a [`State`] in step with its store: it reads the records that others wrote and applies them, checks
//! a change against the state (`check_commit`, `check_definition`, `check_expire`), makes the record durable where the
//! store decides who comes first, and applies it. Versions, time travel, idempotence and what is lawful are then the
//! same everywhere. Where the block metadata of blocks lie is the backend's own business; how they look as bytes is
//! here.
//!
//! Who carries files and blocks elsewhere (`tarn-query`: the specs of scans) writes them with the same bytes.
//!
//! Not for other users of a metastore: it may change with any backend.

pub use crate::block_metadata::collect;
pub use crate::bloom::has_bits;
pub use crate::check::{CommitBase, CommitCheck, advance, check_commit};
pub use crate::codec::{
    BlockMetadataOffsets, BlockMetadataRecord, FORMAT, column_bytes, decode_block_metadata, decode_columns,
    decode_slab, encode_block_metadata, encode_slab, locate_block_metadata, put_block_metadata, put_commit, put_file,
    put_schema, put_version,
};
pub use crate::pack::test_row;
pub use crate::probe::answer;
pub use crate::record::{decode_record, encode_commit, encode_record};
pub use crate::state::{State, StateRecord, Table};
pub use crate::wire::{
    DecodeResult, Malformed, RecordReader, malformed, put_bitmap, put_bytes, put_cursor, put_i64, put_len, put_u64,
};
