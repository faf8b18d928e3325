//! How does a primary key become bytes whose order is the order of rows?
//!
//! ```text
//! table u32 BE | token i64 BE, sign flipped (hashed tables alone) | key part | key part …
//! ```
//!
//! So a table is one range, a partition is one range of it, and its rows lie in key order. Which tablet a key is in
//! stands nowhere in it: tablets are ranges of keys ([`crate::TabletMap`]), and no key is rewritten when one is split.
//! Parts are memcomparable:
//!
//! | type | bytes |
//! |---|---|
//! | boolean | 0 or 1 |
//! | integers, date, time, timestamps, decimal (16 B) | big endian, sign bit flipped |
//! | floats | IEEE bits big endian; sign bit flipped when positive, all bits when negative; −0 is 0, one NaN |
//! | uuid | 16 bytes |
//! | text, bytes | each `00` becomes `00 FF`, then `00 01` |
//!
//! A descending part has every byte complemented. NULL has no place in a key. `docs/formats/key.md` has an example.

use arrow::array::RecordBatch;

use crate::cell::Cell;
use crate::column_cells::ColumnReader;
use crate::data_type::DataType;
use crate::error::{Error, Result};
use crate::ids::{TableId, Token};
use crate::schema::{Column, KeyPart, TableSchema};
use crate::token::{murmur3_token, push_big_integer};
use crate::value::Value;
use crate::wire::Reader;

/// What every engine key begins with: its table.
pub const TABLE_PREFIX_BYTES: usize = 4;
/// Table and token.
const HASHED_PREFIX_BYTES: usize = 12;
/// As [`TableSchema::validate`] has it.
const NO_KEY: &str = "no key column is an array, an interval or an address";

/// The token of a partition key: its parts in key order, more parts are ignored. Values must be of their column's
/// type.
///
/// # Errors
/// [`Error::Null`], [`Error::Coerce`] for a value of another type, [`Error::Usage`] for too few parts.
pub fn token_of(schema: &TableSchema, parts: &[Value]) -> Result<Token> {
    check_part_count(schema, parts.len(), schema.n_partition_key)?;
    let cells = cells_of(schema, parts)?;
    Ok(token_of_cells(schema, |i| cells[i], &mut Vec::new()))
}

/// The engine key of a row: all key parts, in key order, each of its column's type.
///
/// # Errors
/// As [`token_of`].
pub fn encode_key(schema: &TableSchema, parts: &[Value]) -> Result<Vec<u8>> {
    if parts.len() != schema.key.len() {
        return Err(Error::usage(format!("{} of {} key parts of {}", parts.len(), schema.key.len(), schema.name)));
    }
    encode_partition_prefix(schema, parts)
}

/// What every key with these leading parts begins with: at least one and, where keys are hashed, the whole partition
/// key. The rows are the half-open range from here to [`prefix_end`].
///
/// # Errors
/// As [`token_of`].
pub fn encode_partition_prefix(schema: &TableSchema, parts: &[Value]) -> Result<Vec<u8>> {
    let least = if schema.is_hashed() { schema.n_partition_key } else { 1 };
    check_part_count(schema, parts.len(), least)?;
    let cells = cells_of(schema, parts)?;
    let mut out = Vec::with_capacity(HASHED_PREFIX_BYTES + 16 * parts.len());
    push_prefix(&mut out, schema, |i| cells[i], &mut Vec::new());
    for (part, cell) in schema.key.iter().zip(cells) {
        push_part(&mut out, cell, part.descending);
    }
    Ok(out)
}

/// The first byte string after everything that begins with `prefix`; `None` when there is none (all bytes FF).
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// How many bytes stand before the parts of a key.
pub(crate) fn prefix_bytes(schema: &TableSchema) -> usize {
    if schema.is_hashed() { HASHED_PREFIX_BYTES } else { TABLE_PREFIX_BYTES }
}

/// What every key of a table begins with.
#[must_use]
pub fn table_prefix(table: TableId) -> [u8; TABLE_PREFIX_BYTES] {
    table.0.to_be_bytes()
}

/// What every key of a hashed table with this token, or a later one, is at least.
#[must_use]
pub fn token_prefix(table: TableId, token: Token) -> [u8; HASHED_PREFIX_BYTES] {
    let whole = u128::from(table.0) << 64 | u128::from(token.0 as u64 ^ 1 << 63);
    let mut out = [0; HASHED_PREFIX_BYTES];
    out.copy_from_slice(&whole.to_be_bytes()[4..]);
    out
}

/// What all keys of the partition that a key lies in begin with: of a range table they and no others, of a hashed one
/// all of its token.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn partition_prefix(schema: &TableSchema, key: &[u8]) -> Result<Vec<u8>> {
    let parts = decode_key(schema, key)?;
    if schema.is_hashed() {
        return Ok(key[..HASHED_PREFIX_BYTES].to_vec());
    }
    encode_partition_prefix(schema, &parts[..schema.n_partition_key])
}

/// The key parts of an engine key, in key order.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn decode_key(schema: &TableSchema, key: &[u8]) -> Result<Vec<Value>> {
    let mut values = Vec::with_capacity(schema.key.len());
    let mut reader = KeyReader::new(prefix_bytes(schema), key)?;
    let mut scratch = Vec::new();
    for (part, column) in schema.key.iter().zip(schema.key_columns()) {
        let cell = reader.part(&column.data_type, part.descending, &mut scratch)?;
        let value = cell.to_value(&column.data_type);
        values.push(value.ok_or_else(|| Error::corrupt("key", "a text is not UTF-8"))?);
    }
    reader.finish()?;
    Ok(values)
}

/// The keys of a batch, in one allocation.
#[derive(Clone, Debug)]
pub struct EncodedKeys {
    arena: Vec<u8>,
    /// Invariant: one more than there are keys; key i is `arena[offsets[i]..offsets[i + 1]]`.
    offsets: Vec<usize>,
}

impl EncodedKeys {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// None at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key of a row. Panics beyond the last.
    #[must_use]
    pub fn get(&self, row: usize) -> &[u8] {
        &self.arena[self.offsets[row]..self.offsets[row + 1]]
    }

    /// All keys in the order of the batch.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        self.offsets.windows(2).map(|ends| &self.arena[ends[0]..ends[1]])
    }

    /// The bytes of all keys together.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.arena.len()
    }
}

/// The keys of all rows of a batch that has the key columns by name, in storage types (views and dictionaries too).
///
/// No allocation per row: tens of nanoseconds for two integers.
///
/// # Errors
/// [`Error::Null`] names the row, [`Error::MissingColumn`] and [`Error::Type`] the column.
pub fn encode_keys(schema: &TableSchema, batch: &RecordBatch) -> Result<EncodedKeys> {
    let columns = schema.key_columns().map(|column| key_reader(schema, column, batch)).collect::<Result<Vec<_>>>()?;
    let parts: Vec<(&ColumnReader, bool)> =
        columns.iter().zip(&schema.key).map(|(column, part)| (column, part.descending)).collect();
    let n_rows = batch.num_rows();
    let mut arena = Vec::with_capacity(n_rows * (HASHED_PREFIX_BYTES + 12 * parts.len()));
    let mut offsets = Vec::with_capacity(n_rows + 1);
    offsets.push(0);
    let mut scratch = Vec::new();
    for row in 0..n_rows {
        push_prefix(&mut arena, schema, |i| columns[i].cell(row), &mut scratch);
        for (column, descending) in &parts {
            push_part(&mut arena, column.cell(row), *descending);
        }
        offsets.push(arena.len());
    }
    Ok(EncodedKeys { arena, offsets })
}

fn key_reader(schema: &TableSchema, column: &Column, batch: &RecordBatch) -> Result<ColumnReader> {
    let array = batch
        .column_by_name(&column.name)
        .ok_or_else(|| Error::MissingColumn { table: schema.name.clone(), column: column.name.clone() })?;
    let reader = ColumnReader::new(array, column)?;
    match reader.first_null() {
        Some(row) => Err(Error::Null { column: column.name.clone(), row }),
        None => Ok(reader),
    }
}

fn check_part_count(schema: &TableSchema, given: usize, least: usize) -> Result<()> {
    let most = schema.key.len();
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(Error::usage(format!("{given} key parts of {}, want {least} to {most}", schema.name)))
}

fn cells_of<'a>(schema: &TableSchema, parts: &'a [Value]) -> Result<Vec<Cell<'a>>> {
    let cell = |(column, value): (&Column, &'a Value)| {
        let null = || Error::Null { column: column.name.clone(), row: 0 };
        Cell::of(value, &column.data_type)?.ok_or_else(null)
    };
    schema.key_columns().zip(parts).map(cell).collect()
}

/// Table and, where keys are hashed, token. `scratch` is only there to be reused.
#[inline]
fn push_prefix<'a>(out: &mut Vec<u8>, schema: &TableSchema, cell: impl Fn(usize) -> Cell<'a>, scratch: &mut Vec<u8>) {
    if schema.is_hashed() {
        out.extend_from_slice(&token_prefix(schema.id, token_of_cells(schema, cell, scratch)));
    } else {
        out.extend_from_slice(&table_prefix(schema.id));
    }
}

/// `scratch` is only there to be reused.
fn token_of_cells<'a>(schema: &TableSchema, cell: impl Fn(usize) -> Cell<'a>, scratch: &mut Vec<u8>) -> Token {
    let data_type = |part: &KeyPart| &schema.columns[part.column_idx].data_type;
    scratch.clear();
    if schema.n_partition_key == 1 {
        push_serialized(scratch, cell(0), data_type(&schema.key[0]));
        return murmur3_token(scratch);
    }
    for (i, part) in schema.key[..schema.n_partition_key].iter().enumerate() {
        let start = scratch.len();
        scratch.extend_from_slice(&[0, 0]);
        push_serialized(scratch, cell(i), data_type(part));
        // Cassandra has no parts of 64 KiB; ours hash the low bits of their length.
        let length = (scratch.len() - start - 2) as u16;
        scratch[start..start + 2].copy_from_slice(&length.to_be_bytes());
        scratch.push(0);
    }
    murmur3_token(scratch)
}

/// Cassandra's serialization of one value.
fn push_serialized(out: &mut Vec<u8>, cell: Cell<'_>, data_type: &DataType) {
    match (cell, data_type) {
        (Cell::Bool(value), _) => out.push(u8::from(value)),
        (Cell::I16(value), _) => out.extend_from_slice(&value.to_be_bytes()),
        (Cell::I32(days), DataType::Date) => out.extend_from_slice(&(days as u32 ^ 1 << 31).to_be_bytes()),
        (Cell::I32(value), _) => out.extend_from_slice(&value.to_be_bytes()),
        (Cell::I64(us), DataType::Time) => out.extend_from_slice(&us.wrapping_mul(1000).to_be_bytes()),
        (Cell::I64(us), DataType::Timestamp | DataType::TimestampTz) => {
            out.extend_from_slice(&us.div_euclid(1000).to_be_bytes());
        }
        (Cell::I64(value), _) => out.extend_from_slice(&value.to_be_bytes()),
        (Cell::F32(value), _) => out.extend_from_slice(&canonical_f32(value).to_be_bytes()),
        (Cell::F64(value), _) => out.extend_from_slice(&canonical_f64(value).to_be_bytes()),
        (Cell::I128(value), data_type) => {
            let scale = if let DataType::Decimal { scale, .. } = data_type { *scale } else { 0 };
            out.extend_from_slice(&i32::from(scale).to_be_bytes());
            push_big_integer(out, value);
        }
        (Cell::Bytes(bytes), _) => out.extend_from_slice(bytes),
        (Cell::Uuid(bytes), _) => out.extend_from_slice(&bytes),
        (Cell::Interval(_) | Cell::Inet(_) | Cell::Items(..), _) => unreachable!("{NO_KEY}"),
    }
}

/// One zero and one NaN, so that equal values are equal keys.
fn canonical_f64(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() & !(1 << 63) } else { (value + 0.0).to_bits() }
}

fn canonical_f32(value: f32) -> u32 {
    if value.is_nan() { f32::NAN.to_bits() & !(1 << 31) } else { (value + 0.0).to_bits() }
}

#[inline]
fn push_part(out: &mut Vec<u8>, cell: Cell<'_>, descending: bool) {
    let start = out.len();
    match cell {
        Cell::Bool(value) => out.push(u8::from(value)),
        Cell::I16(value) => out.extend_from_slice(&(value ^ i16::MIN).to_be_bytes()),
        Cell::I32(value) => out.extend_from_slice(&(value ^ i32::MIN).to_be_bytes()),
        Cell::I64(value) => out.extend_from_slice(&(value ^ i64::MIN).to_be_bytes()),
        Cell::I128(value) => out.extend_from_slice(&(value ^ i128::MIN).to_be_bytes()),
        Cell::F32(value) => {
            let bits = canonical_f32(value);
            let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
            out.extend_from_slice(&ordered.to_be_bytes());
        }
        Cell::F64(value) => {
            let bits = canonical_f64(value);
            let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
            out.extend_from_slice(&ordered.to_be_bytes());
        }
        Cell::Uuid(bytes) => out.extend_from_slice(&bytes),
        Cell::Bytes(bytes) => push_escaped(out, bytes),
        Cell::Interval(_) | Cell::Inet(_) | Cell::Items(..) => unreachable!("{NO_KEY}"),
    }
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut pieces = bytes.split(|byte| *byte == 0);
    out.extend_from_slice(pieces.next().unwrap_or_default());
    for piece in pieces {
        out.extend_from_slice(&[0x00, 0xff]);
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(&[0x00, 0x01]);
}

/// Reads the parts of an engine key one after the other.
pub(crate) struct KeyReader<'a> {
    reader: Reader<'a>,
}

impl<'a> KeyReader<'a> {
    pub(crate) fn new(prefix_bytes: usize, key: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new("key", key);
        reader.take(prefix_bytes)?;
        Ok(Self { reader })
    }

    /// Texts and bytes are unescaped into `scratch`.
    #[inline]
    pub(crate) fn part<'s>(
        &mut self,
        data_type: &DataType,
        descending: bool,
        scratch: &'s mut Vec<u8>,
    ) -> Result<Cell<'s>> {
        Ok(match data_type {
            DataType::Bool => match self.fixed(descending)? {
                [0] => Cell::Bool(false),
                [1] => Cell::Bool(true),
                [other] => return Err(self.reader.corrupt(format!("boolean {other}"))),
            },
            DataType::Int16 => Cell::I16(i16::from_be_bytes(self.fixed(descending)?) ^ i16::MIN),
            DataType::Int32 | DataType::Date => Cell::I32(i32::from_be_bytes(self.fixed(descending)?) ^ i32::MIN),
            DataType::Int64 | DataType::Time | DataType::Timestamp | DataType::TimestampTz => {
                Cell::I64(i64::from_be_bytes(self.fixed(descending)?) ^ i64::MIN)
            }
            DataType::Float32 => {
                let bits = u32::from_be_bytes(self.fixed(descending)?);
                let value = f32::from_bits(if bits >> 31 == 1 { bits ^ 1 << 31 } else { !bits });
                self.written(canonical_f32(value) == value.to_bits())?;
                Cell::F32(value)
            }
            DataType::Float64 => {
                let bits = u64::from_be_bytes(self.fixed(descending)?);
                let value = f64::from_bits(if bits >> 63 == 1 { bits ^ 1 << 63 } else { !bits });
                self.written(canonical_f64(value) == value.to_bits())?;
                Cell::F64(value)
            }
            DataType::Decimal { .. } => Cell::I128(i128::from_be_bytes(self.fixed(descending)?) ^ i128::MIN),
            DataType::Uuid => Cell::Uuid(self.fixed(descending)?),
            DataType::Text | DataType::Bytes | DataType::Json | DataType::Jsonb => {
                scratch.clear();
                self.unescape(descending, scratch)?;
                Cell::Bytes(scratch)
            }
            DataType::Interval | DataType::Inet | DataType::Array(_) => return Err(self.reader.corrupt(NO_KEY)),
        })
    }

    /// Floats have one zero and one NaN in keys.
    fn written(&self, is_canonical: bool) -> Result<()> {
        if is_canonical { Ok(()) } else { Err(self.reader.corrupt("a float that no key has")) }
    }

    fn fixed<const N: usize>(&mut self, descending: bool) -> Result<[u8; N]> {
        let bytes = self.reader.array::<N>()?;
        Ok(if descending { bytes.map(|byte| !byte) } else { bytes })
    }

    fn unescape(&mut self, descending: bool, out: &mut Vec<u8>) -> Result<()> {
        let mask = if descending { 0xff } else { 0 };
        loop {
            let rest = self.reader.rest();
            let plain = rest.iter().position(|byte| *byte == mask).unwrap_or(rest.len());
            let start = out.len();
            out.extend_from_slice(self.reader.take(plain)?);
            if descending {
                out[start..].iter_mut().for_each(|byte| *byte = !*byte);
            }
            match self.reader.array::<2>()?[1] ^ mask {
                0x01 => return Ok(()),
                0xff => out.push(0),
                other => return Err(self.reader.corrupt(format!("escape {other:#04x}"))),
            }
        }
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.reader.finish()
    }
}

#[cfg(test)]
mod tests;
