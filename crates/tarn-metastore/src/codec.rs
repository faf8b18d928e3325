//! How do the metastore's records look as bytes? (docs/formats/metastore.md)
//!
//! Integers are LEB128 varints (signed ones zigzagged), floats their eight or four bytes, texts and byte strings
//! length-prefixed. Numbers come back bit for bit: a bound that is off in its last digit would prune a matching row.
//! Decoding never panics and never allocates more than the input could hold.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use roaring::RoaringBitmap;
use uuid::Uuid;

use tarn_types::{ColumnId, Cursor, FileId, SeqNo, TableId, TableSchema, TabletId, Value, Version};

use crate::state::{Record, State, Table};
use crate::{Block, ColumnStats, CommitInfo, CommitKind, File, TableVersion};

/// Why bytes are not a record.
#[derive(Debug)]
pub(crate) struct Malformed(pub String);

type Decoded<T> = Result<T, Malformed>;

fn malformed<T>(reason: impl Into<String>) -> Decoded<T> {
    Err(Malformed(reason.into()))
}

const CREATE: u8 = 1;
const DROP: u8 = 2;
const RESERVE: u8 = 3;
const COMMIT: u8 = 4;
const EXPIRE: u8 = 5;

pub(crate) fn encode_record(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    match record {
        Record::Create { schema, at_ms } => {
            out.push(CREATE);
            put_schema(&mut out, schema);
            put_i64(&mut out, *at_ms);
        }
        Record::Drop { table } => {
            out.push(DROP);
            put_u64(&mut out, table.0.into());
        }
        Record::Reserve { next_file } => {
            out.push(RESERVE);
            put_u64(&mut out, next_file.0);
        }
        Record::Commit { table, commit } => {
            out.push(COMMIT);
            put_u64(&mut out, table.0.into());
            put_commit(&mut out, commit);
        }
        Record::Expire { table, keep } => {
            out.push(EXPIRE);
            put_u64(&mut out, table.0.into());
            put_u64(&mut out, keep.0);
        }
    }
    out
}

pub(crate) fn decode_record(bytes: &[u8]) -> Decoded<Record> {
    let mut reader = Reader(bytes);
    let record = match reader.byte()? {
        CREATE => Record::Create { schema: Arc::new(reader.schema()?), at_ms: reader.i64()? },
        DROP => Record::Drop { table: TableId(reader.u32()?) },
        RESERVE => Record::Reserve { next_file: FileId(reader.u64()?) },
        COMMIT => Record::Commit { table: TableId(reader.u32()?), commit: Arc::new(reader.commit()?) },
        EXPIRE => Record::Expire { table: TableId(reader.u32()?), keep: Version(reader.u64()?) },
        kind => return malformed(format!("record kind {kind} is not known")),
    };
    reader.end()?;
    Ok(record)
}

pub(crate) fn encode_state(state: &State) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, state.next_table.0.into());
    put_u64(&mut out, state.next_tablet.0.into());
    put_u64(&mut out, state.next_file.0);
    put_len(&mut out, state.tables.len());
    for table in state.tables.values() {
        put_schema(&mut out, &table.schema);
        put_version(&mut out, &table.oldest);
        put_len(&mut out, table.commits.len());
        for commit in &table.commits {
            put_commit(&mut out, commit);
        }
    }
    out
}

pub(crate) fn decode_state(bytes: &[u8]) -> Decoded<State> {
    let mut reader = Reader(bytes);
    let mut state = State {
        next_table: TableId(reader.u32()?),
        next_tablet: TabletId(reader.u32()?),
        next_file: FileId(reader.u64()?),
        tables: BTreeMap::new(),
    };
    for _ in 0..reader.len()? {
        let schema = Arc::new(reader.schema()?);
        let id = schema.id;
        let mut table = Table::new(schema, reader.version()?);
        for _ in 0..reader.len()? {
            let commit = reader.commit()?;
            table.push(Arc::new(commit)).map_err(Malformed)?;
        }
        state.tables.insert(id, table);
    }
    reader.end()?;
    Ok(state)
}

fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(out, ((value << 1) ^ (value >> 63)) as u64);
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    put_u64(out, len as u64);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// The definition as JSON: small, rare, and it grows by named fields.
fn put_schema(out: &mut Vec<u8>, schema: &TableSchema) {
    put_bytes(out, &serde_json::to_vec(schema).expect("a table definition has a JSON form"));
}

fn put_option(out: &mut Vec<u8>, value: Option<&Value>) {
    match value {
        None => out.push(u8::MAX),
        Some(value) => put_value(out, value),
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0),
        Value::Bool(v) => out.extend_from_slice(&[1, u8::from(*v)]),
        Value::Int16(v) => {
            out.push(2);
            put_i64(out, i64::from(*v));
        }
        Value::Int32(v) => {
            out.push(3);
            put_i64(out, i64::from(*v));
        }
        Value::Int64(v) => {
            out.push(4);
            put_i64(out, *v);
        }
        Value::Float32(v) => {
            out.push(5);
            out.extend_from_slice(&v.to_bits().to_le_bytes());
        }
        Value::Float64(v) => {
            out.push(6);
            out.extend_from_slice(&v.to_bits().to_le_bytes());
        }
        Value::Decimal(v) => {
            out.push(7);
            out.extend_from_slice(&v.to_le_bytes());
        }
        Value::Text(v) => {
            out.push(8);
            put_bytes(out, v.as_bytes());
        }
        Value::Bytes(v) => {
            out.push(9);
            put_bytes(out, v);
        }
        Value::Date(v) => {
            out.push(10);
            put_i64(out, i64::from(*v));
        }
        Value::Time(v) => {
            out.push(11);
            put_i64(out, *v);
        }
        Value::Timestamp(v) => {
            out.push(12);
            put_i64(out, *v);
        }
        Value::Uuid(v) => {
            out.push(13);
            put_bytes(out, v.as_bytes());
        }
        Value::Json(v) => {
            out.push(14);
            put_bytes(out, v.as_bytes());
        }
    }
}

fn put_cursor(out: &mut Vec<u8>, cursor: &Cursor) {
    put_len(out, cursor.iter().count());
    for (tablet, seqno) in cursor.iter() {
        put_u64(out, tablet.0.into());
        put_u64(out, seqno.0);
    }
}

fn put_bitmap(out: &mut Vec<u8>, bitmap: &RoaringBitmap) {
    put_len(out, bitmap.serialized_size());
    bitmap.serialize_into(out).expect("memory takes every write");
}

fn put_file(out: &mut Vec<u8>, file: &File) {
    put_u64(out, file.id.0);
    put_bytes(out, file.path.as_bytes());
    put_u64(out, file.size_bytes);
    put_u64(out, file.n_rows);
    put_i64(out, file.hour);
    match &file.etag {
        None => out.push(0),
        Some(etag) => {
            out.push(1);
            put_bytes(out, etag.as_bytes());
        }
    }
    put_u64(out, file.created_version.0);
    out.push(u8::from(file.sorted_by_key));
    put_len(out, file.blocks.len());
    for block in &file.blocks {
        put_u64(out, block.row_group.into());
        put_u64(out, block.first_row);
        put_u64(out, block.n_rows);
        put_u64(out, block.bytes);
        put_len(out, block.columns.len());
        for stats in &block.columns {
            put_u64(out, stats.column.0.into());
            out.push(u8::from(stats.exact));
            put_u64(out, stats.null_count);
            put_u64(out, stats.bytes);
            put_option(out, stats.min.as_ref());
            put_option(out, stats.max.as_ref());
        }
    }
}

fn put_commit(out: &mut Vec<u8>, commit: &CommitInfo) {
    out.extend_from_slice(commit.id.as_bytes());
    put_u64(out, commit.version.0);
    out.push(match commit.kind {
        CommitKind::Delivery => 1,
        CommitKind::Compaction => 2,
    });
    put_i64(out, commit.at_ms);
    match &commit.cursor {
        None => out.push(0),
        Some(cursor) => {
            out.push(1);
            put_cursor(out, cursor);
        }
    }
    put_len(out, commit.added.len());
    for file in &commit.added {
        put_file(out, file);
    }
    put_len(out, commit.removed.len());
    for file in &commit.removed {
        put_u64(out, file.0);
    }
    put_len(out, commit.deletion_vectors.len());
    for (file, dead) in &commit.deletion_vectors {
        put_u64(out, file.0);
        put_bitmap(out, dead);
    }
}

fn put_version(out: &mut Vec<u8>, version: &TableVersion) {
    put_u64(out, version.version.0);
    put_i64(out, version.committed_ms);
    put_cursor(out, &version.cursor);
    put_len(out, version.files.len());
    for file in &version.files {
        put_file(out, file);
    }
    let mut dead: Vec<_> = version.deletion_vectors.iter().collect();
    dead.sort_unstable_by_key(|(file, _)| **file);
    put_len(out, dead.len());
    for (file, dead) in dead {
        put_u64(out, file.0);
        put_bitmap(out, dead);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Decoded<&'a [u8]> {
        match self.0.split_at_checked(n) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => malformed(format!("record ends {} bytes early", n - self.0.len())),
        }
    }

    fn end(&self) -> Decoded<()> {
        if self.0.is_empty() { Ok(()) } else { malformed(format!("{} bytes after the record's end", self.0.len())) }
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("take answers as many bytes as asked"))
    }

    fn byte(&mut self) -> Decoded<u8> {
        Ok(self.take(1)?[0])
    }

    fn bool(&mut self) -> Decoded<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => malformed(format!("flag is {other}")),
        }
    }

    fn u64(&mut self) -> Decoded<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        malformed("integer has more than 64 bits")
    }

    fn i64(&mut self) -> Decoded<i64> {
        let value = self.u64()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn u32(&mut self) -> Decoded<u32> {
        let value = self.u64()?;
        u32::try_from(value).or_else(|_| malformed(format!("{value} does not fit 32 bits")))
    }

    /// A count of things of at least one byte each: more than what is left cannot be.
    fn len(&mut self) -> Decoded<usize> {
        let len = self.u64()?;
        match usize::try_from(len) {
            Ok(len) if len <= self.0.len() => Ok(len),
            _ => malformed(format!("count {len} exceeds the {} bytes left", self.0.len())),
        }
    }

    fn bytes(&mut self) -> Decoded<&'a [u8]> {
        let len = self.len()?;
        self.take(len)
    }

    fn text(&mut self) -> Decoded<String> {
        String::from_utf8(self.bytes()?.to_vec()).or_else(|_| malformed("text is not UTF-8"))
    }

    fn schema(&mut self) -> Decoded<TableSchema> {
        serde_json::from_slice(self.bytes()?).map_err(|e| Malformed(format!("table definition: {e}")))
    }

    fn option(&mut self) -> Decoded<Option<Value>> {
        if self.0.first() == Some(&u8::MAX) {
            self.byte()?;
            return Ok(None);
        }
        self.value().map(Some)
    }

    fn value(&mut self) -> Decoded<Value> {
        let narrow = |value: i64| Malformed(format!("{value} is out of its type's range"));
        Ok(match self.byte()? {
            0 => Value::Null,
            1 => Value::Bool(self.bool()?),
            2 => {
                let value = self.i64()?;
                Value::Int16(value.try_into().map_err(|_| narrow(value))?)
            }
            3 => {
                let value = self.i64()?;
                Value::Int32(value.try_into().map_err(|_| narrow(value))?)
            }
            4 => Value::Int64(self.i64()?),
            5 => Value::Float32(f32::from_bits(u32::from_le_bytes(self.array()?))),
            6 => Value::Float64(f64::from_bits(u64::from_le_bytes(self.array()?))),
            7 => Value::Decimal(i128::from_le_bytes(self.array()?)),
            8 => Value::Text(self.text()?),
            9 => Value::Bytes(self.bytes()?.to_vec()),
            10 => {
                let value = self.i64()?;
                Value::Date(value.try_into().map_err(|_| narrow(value))?)
            }
            11 => Value::Time(self.i64()?),
            12 => Value::Timestamp(self.i64()?),
            13 => Value::Uuid(self.text()?),
            14 => Value::Json(self.text()?),
            kind => return malformed(format!("value kind {kind} is not known")),
        })
    }

    fn cursor(&mut self) -> Decoded<Cursor> {
        let mut cursor = Cursor::default();
        for _ in 0..self.len()? {
            let tablet = TabletId(self.u32()?);
            cursor.set(tablet, SeqNo(self.u64()?));
        }
        Ok(cursor)
    }

    fn bitmap(&mut self) -> Decoded<RoaringBitmap> {
        let bytes = self.bytes()?;
        RoaringBitmap::deserialize_from(bytes).map_err(|e| Malformed(format!("deletion vector: {e}")))
    }

    fn dead(&mut self) -> Decoded<BTreeMap<FileId, Arc<RoaringBitmap>>> {
        let mut dead = BTreeMap::new();
        for _ in 0..self.len()? {
            let file = FileId(self.u64()?);
            dead.insert(file, Arc::new(self.bitmap()?));
        }
        Ok(dead)
    }

    fn files(&mut self) -> Decoded<Vec<Arc<File>>> {
        (0..self.len()?).map(|_| self.file().map(Arc::new)).collect()
    }

    fn file(&mut self) -> Decoded<File> {
        Ok(File {
            id: FileId(self.u64()?),
            path: self.text()?,
            size_bytes: self.u64()?,
            n_rows: self.u64()?,
            hour: self.i64()?,
            etag: if self.bool()? { Some(self.text()?) } else { None },
            created_version: Version(self.u64()?),
            sorted_by_key: self.bool()?,
            blocks: (0..self.len()?).map(|_| self.block()).collect::<Decoded<_>>()?,
        })
    }

    fn block(&mut self) -> Decoded<Block> {
        Ok(Block {
            row_group: self.u32()?,
            first_row: self.u64()?,
            n_rows: self.u64()?,
            bytes: self.u64()?,
            columns: (0..self.len()?).map(|_| self.column_stats()).collect::<Decoded<_>>()?,
        })
    }

    fn column_stats(&mut self) -> Decoded<ColumnStats> {
        Ok(ColumnStats {
            column: ColumnId(self.u32()?),
            exact: self.bool()?,
            null_count: self.u64()?,
            bytes: self.u64()?,
            min: self.option()?,
            max: self.option()?,
        })
    }

    fn commit(&mut self) -> Decoded<CommitInfo> {
        Ok(CommitInfo {
            id: Uuid::from_bytes(self.array()?),
            version: Version(self.u64()?),
            kind: match self.byte()? {
                1 => CommitKind::Delivery,
                2 => CommitKind::Compaction,
                kind => return malformed(format!("commit kind {kind} is not known")),
            },
            at_ms: self.i64()?,
            cursor: if self.bool()? { Some(self.cursor()?) } else { None },
            added: self.files()?,
            removed: (0..self.len()?).map(|_| self.u64().map(FileId)).collect::<Decoded<_>>()?,
            deletion_vectors: self.dead()?,
        })
    }

    fn version(&mut self) -> Decoded<TableVersion> {
        Ok(TableVersion {
            version: Version(self.u64()?),
            committed_ms: self.i64()?,
            cursor: self.cursor()?,
            files: self.files()?,
            deletion_vectors: self.dead()?.into_iter().collect::<HashMap<_, _>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::contract::{any_value, sample_schema};

    proptest! {
        #[test]
        fn values_come_back_bit_for_bit(value in any_value()) {
            let mut out = Vec::new();
            put_option(&mut out, Some(&value));
            put_option(&mut out, None);
            let mut reader = Reader(&out);
            let back = reader.option().unwrap().unwrap();
            let same = match (&value, &back) {
                (Value::Float32(a), Value::Float32(b)) => a.to_bits() == b.to_bits(),
                (Value::Float64(a), Value::Float64(b)) => a.to_bits() == b.to_bits(),
                (a, b) => a == b,
            };
            prop_assert!(same, "{value:?} came back as {back:?}");
            prop_assert!(reader.option().unwrap().is_none());
            prop_assert!(reader.end().is_ok());
        }

        #[test]
        fn integers_come_back(unsigned: u64, signed: i64) {
            let mut out = Vec::new();
            put_u64(&mut out, unsigned);
            put_i64(&mut out, signed);
            let mut reader = Reader(&out);
            prop_assert_eq!(reader.u64().unwrap(), unsigned);
            prop_assert_eq!(reader.i64().unwrap(), signed);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_record(&bytes);
            let _ = decode_state(&bytes);
        }
    }

    #[test]
    fn a_definition_keeps_defaults_that_json_has_no_word_for() {
        let mut schema = sample_schema("t");
        schema.columns[1].default = Some(Value::Float64(f64::NEG_INFINITY));
        let bytes = encode_record(&Record::Create { schema: Arc::new(schema.clone()), at_ms: -1 });
        let Record::Create { schema: back, at_ms } = decode_record(&bytes).unwrap() else { panic!("another kind") };
        assert_eq!((back.columns[1].default.clone(), at_ms), (schema.columns[1].default.clone(), -1));
        assert_eq!(back.name, "t");
    }
}
