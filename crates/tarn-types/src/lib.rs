//! What do our words mean? Ids, schemas, values, and the bytes of keys, rows and mutations.
//!
//! The floor everything stands on: no files, no network, no threads, no engine. From top to bottom:
//!
//! - words: [`ids`], [`error`], [`clock`], [`cursor`], [`address`]
//! - times as PostgreSQL reads them: [`zone`], [`parse_span`], [`Value::parse_at`]
//! - a table: [`data_type`], [`value`] (of a [`json`] and an [`inet`], too), [`options`], [`schema`], its
//!   [`full_name`], what a column of an `enumerated` type keeps, what a [`file_column`] has otherwise, and other
//!   people's batches made to fit it: [`conform()`]
//! - its bytes: [`key`] and [`token`], [`row`], [`decode`] back into Arrow, [`mutation`] and what it comes to,
//!   [`effects`], in an [`entry`] of a [`tablet`]'s log, which a [`request`] may name; and the entries by which a
//!   constraint is kept: [`unique`]
//!
//! ```
//! use tarn_types::*;
//!
//! # fn main() -> Result<()> {
//! let column = |id, name: &str, data_type, nullable| Column { id: ColumnId(id), name: name.into(), data_type, nullable, default: None };
//! let schema = TableSchema {
//!     id: TableId(1),
//!     name: "users".into(),
//!     columns: vec![column(1, "id", DataType::Int64, false), column(2, "name", DataType::Text, true)],
//!     key: vec![KeyPart { column_idx: 0, descending: false }],
//!     n_partition_key: 1,
//!     first_tablet: TabletId(1),
//!     options: TableOptions::default(),
//! };
//! schema.validate()?;
//!
//! // One row becomes a key and cells, and a mutation of its table.
//! let row = [Value::Int64(7), Value::parse(&DataType::Text, "Ada")?];
//! let key = encode_key(&schema, &row[..1])?;
//! let mut batch = BatchBuilder::new(&schema);
//! batch.put(&key, &encode_cells(&schema, &row)?, None);
//! let batch = batch.finish();
//!
//! // A log entry comes back as rows, or as columns.
//! let again = MutationBatch::from_bytes(batch.as_bytes().clone())?;
//! let mut rows = RowDecoder::new(&schema, None, true);
//! for mutation in again.iter() {
//!     assert_eq!(decode_row(&schema, mutation.key, mutation.cells)?, row);
//!     rows.push(mutation.key, mutation.cells, SeqNo(1))?;
//! }
//! let columns = rows.finish()?;
//! assert_eq!(columns.schema(), schema.arrow_with_seqno());
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod address;
mod array_text;
mod cell;
pub mod clock;
mod column_cells;
mod conform;
pub mod cursor;
pub mod data_type;
pub mod decode;
mod direction;
pub mod effects;
pub mod entry;
mod enumerated;
mod envelope;
pub mod error;
mod file_column;
pub mod foreign;
pub mod full_name;
pub mod ids;
pub mod inet;
mod infinity;
pub mod json;
pub mod key;
pub mod mutation;
mod opaque;
pub mod options;
pub mod references;
pub mod request;
pub mod row;
pub mod rules;
pub mod schema;
pub mod settings;
pub mod style;
pub mod tablet;
mod text;
mod time_text;
pub mod token;
pub mod unique;
pub mod value;
mod wire;
pub mod zone;
mod zone_abbreviations;

#[cfg(test)]
mod test_data;

pub use address::{ADDRESS_BYTES, Address};
pub use array_text::{ArrayParts, NoArray, array_items, array_parts};
pub use clock::{Clock, ManualClock};
pub use conform::conform;
pub use cursor::Cursor;
pub use data_type::{
    BARE_NUMERIC, DIGITS_METADATA, DataType, ItemType, arrow_field, arrow_type, data_type_of, file_field,
};
pub use decode::{RowDecoder, decode_row, projected_schema};
pub use direction::Direction;
pub use effects::{Effect, Effects, EffectsBuilder};
pub use entry::{Audit, Entry, Split};
pub use enumerated::Enumerated;
pub use error::{Error, Kind, Result};
pub use file_column::file_column;
pub use foreign::{ForeignNames, LeftOut};
pub use ids::{ColumnId, FileId, RequestId, SeqNo, TableId, TabletId, Token, TypeId, Version};
pub use inet::Inet;
pub use infinity::{
    INFINITE_DAY, INFINITE_US, MINUS_INFINITE_DAY, MINUS_INFINITE_US, infinite_day_text, infinite_us_text,
    is_infinite_day, is_infinite_us, midnight_us,
};
pub use key::{
    EncodedKeys, TABLE_PREFIX_BYTES, decode_key, encode_key, encode_keys, encode_partition_prefix, partition_prefix,
    prefix_end, table_prefix, token_of, token_prefix,
};
pub use mutation::{BatchBuilder, Mutation, MutationBatch, Op, batch_from_columns};
pub use opaque::Opaque;
pub use options::{Archive, Indexing, MAX_TABLETS, Partitioning, TableOptions, TokenColumns, View};
pub use references::{ReferencedKey, children, converted, is_comparable, parent_key, referenced, values_of_entry};
pub use request::{MAX_REQUEST_STATEMENTS, NamedEffects, Request, StatementOutcome, put_statements, statements_of};
pub use row::{
    EncodedCells, RowKind, StoredRow, cell_ids, check_cells, encode_cells, encode_cells_columnar, encode_patch,
    encode_stored, patch_cells,
};
pub use rules::{
    CheckRule, ColumnRules, DroppedColumn, ForeignKey, GeneratedColumn, Identity, IndexedColumn, Length, OnParent,
    Rules, Unique,
};
pub use schema::{Column, KeyPart, ROW_COLUMN, SEQNO_COLUMN, SEQNO_ID, TableSchema, seqno_field};
pub use style::{BytesForm, DateForm, DateOrder, Forms, IntervalForm, Style};
pub use tablet::TabletMap;
pub use time_text::{ParseContext, Span, SpanField, SpanFields, TimeFault, parse_span};
pub use unique::{MARK_OF_NULL, entry_cells, entry_key, index_table, place_in_index, row_of_entry, stand_in};
pub use value::{Value, is_lost_as_real};
pub use zone::Zone;
