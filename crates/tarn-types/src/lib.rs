//! What do our words mean? Ids, schemas, values, and the bytes of keys, rows and mutations.
//!
//! The floor everything stands on: no files, no network, no threads, no engine. From top to bottom:
//!
//! - words: [`ids`], [`error`], [`clock`], [`cursor`], [`address`]
//! - a table: [`data_type`], [`value`], [`options`], [`schema`]

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod address;
pub mod clock;
pub mod cursor;
pub mod data_type;
pub mod error;
pub mod ids;
pub mod options;
pub mod schema;
mod text;
pub mod value;

#[cfg(test)]
mod test_data;

pub use address::{ADDRESS_BYTES, Address};
pub use clock::{Clock, ManualClock};
pub use cursor::Cursor;
pub use data_type::{DataType, arrow_field, arrow_type, data_type_of};
pub use error::{Error, Kind, Result};
pub use ids::{ColumnId, FileId, SeqNo, TableId, TabletId, Token, Version};
pub use options::TableOptions;
pub use schema::{Column, KeyPart, SEQNO_COLUMN, TableSchema, seqno_field};
pub use value::Value;
