//! What do our words mean? Ids, schemas, values, and the bytes of keys, rows and mutations.
//!
//! The floor everything stands on: no files, no network, no threads, no engine. From top to bottom:
//!
//! - words: [`ids`], [`error`], [`clock`], [`cursor`], [`address`]
//! - a table: [`data_type`], [`value`], [`options`], [`schema`], and other people's batches made to fit it: [`conform()`]
//! - its bytes: [`key`] and [`token`], [`row`], [`decode`] back into Arrow, [`mutation`]

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod address;
mod cell;
pub mod clock;
mod conform;
pub mod cursor;
pub mod data_type;
pub mod decode;
pub mod error;
pub mod ids;
pub mod key;
pub mod mutation;
pub mod options;
pub mod row;
pub mod schema;
mod text;
pub mod token;
pub mod value;
mod wire;

#[cfg(test)]
mod test_data;

pub use address::{ADDRESS_BYTES, Address};
pub use clock::{Clock, ManualClock};
pub use conform::conform;
pub use cursor::Cursor;
pub use data_type::{DataType, arrow_field, arrow_type, data_type_of};
pub use decode::{RowDecoder, decode_row, projected_schema};
pub use error::{Error, Kind, Result};
pub use ids::{ColumnId, FileId, SeqNo, TableId, TabletId, Token, Version};
pub use key::{
    KEY_PREFIX_BYTES, Keys, decode_key, encode_key, encode_keys, encode_partition_prefix, key_tablet, key_token,
    prefix_end, tablet_prefix, token_of,
};
pub use mutation::{BatchBuilder, Mutation, MutationBatch, Op, batches_from_columns};
pub use options::TableOptions;
pub use row::{
    Cells, RowKind, StoredRow, encode_cells, encode_cells_columnar, encode_patch, encode_stored, patch_cells,
};
pub use schema::{Column, KeyPart, SEQNO_COLUMN, TableSchema, seqno_field};
pub use value::Value;
