//! How do the data of `COPY … (FORMAT binary)` become columns?
//!
//! ```text
//! PGCOPY\n\xff\r\n\0 | flags u32 | length of the extension i32, the extension |
//!     rows: fields i16 { length i32 (-1: NULL), value } … | -1 i16
//! ```
//!
//! Every value goes straight into its column's builder: nothing is allocated for it, and what a length announces is
//! never allocated before it has come. Of what came, only a value that is not whole waits, so a row is read field by
//! field, wherever the client cut its messages. The mark of the end may be missing, as in PostgreSQL (pgx leaves it
//! out), a row that ends early may not. Source: PostgreSQL 16, COPY, section "Binary Format".

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use tarn_types::{Column, TableSchema, arrow_field};

use crate::cells::ValueBuilder;
use crate::copy_format::{MAX_BATCH_BYTES, MAX_RECORD_BYTES, RowReader, null_in};
use crate::error::{Result, SqlError, state};

/// What the data begin with, up to the flags.
const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// The header of data that have no flags and no extension.
pub const HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// In the place of a row's number of fields: there are no more rows.
pub const END: i16 = -1;

/// Flags that a reader must know, and the only one of them that ever was: rows begin with an OID.
const CRITICAL_FLAGS: u32 = 0xFFFF_0000;
const WITH_OIDS: u32 = 1 << 16;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecoderState {
    Signature,
    Flags,
    ExtensionLength,
    Extension {
        n_left: usize,
    },
    Row,
    /// Of a row, by its place among those that are copied.
    Field(usize),
    /// Nothing may.
    End,
}

/// Reads a stream into rows of a table.
pub struct BinaryReader {
    table: Arc<TableSchema>,
    /// Position in the table of each field of a row.
    columns: Vec<usize>,
    cells: Vec<ValueBuilder>,
    n_rows: usize,
    n_bytes: usize,
    /// Rows of the last batch.
    n_taken: usize,
    /// What came and is not read.
    pending: Vec<u8>,
    next: DecoderState,
    /// Of the row that is being read, from 1.
    row: u64,
    /// Of that row.
    row_bytes: usize,
}

impl BinaryReader {
    /// Reads fields of these columns, by their places in the table, in this order.
    pub fn new(table: Arc<TableSchema>, columns: Vec<usize>) -> BinaryReader {
        let cells = columns.iter().map(|idx| ValueBuilder::new(table.columns[*idx].data_type)).collect();
        BinaryReader {
            table,
            columns,
            cells,
            n_rows: 0,
            n_bytes: 0,
            n_taken: 0,
            pending: Vec::new(),
            next: DecoderState::Signature,
            row: 0,
            row_bytes: 0,
        }
    }

    /// Reads what is whole, until a batch is full.
    fn drain(&mut self, max_rows: usize) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let mut at = 0;
        while !(self.next == DecoderState::Row && self.is_full(max_rows)) {
            match self.read(&pending[at..])? {
                Some(n_read) => at += n_read,
                None => break,
            }
        }
        pending.drain(..at);
        self.pending = pending;
        Ok(())
    }

    /// Reads one part; answers how many bytes that were, `None` if it is not whole.
    fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        match self.next {
            DecoderState::Signature => {
                let n_come = bytes.len().min(SIGNATURE.len());
                if bytes[..n_come] != SIGNATURE[..n_come] {
                    return Err(self.bad("COPY file signature not recognized".to_owned()));
                }
                if n_come < SIGNATURE.len() {
                    return Ok(None);
                }
                self.next = DecoderState::Flags;
                Ok(Some(n_come))
            }
            DecoderState::Flags => {
                let Some(flags) = bytes.first_chunk() else { return Ok(None) };
                let flags = u32::from_be_bytes(*flags);
                if flags & WITH_OIDS != 0 {
                    return Err(self.bad("invalid COPY file header (WITH OIDS)".to_owned()));
                }
                if flags & CRITICAL_FLAGS != 0 {
                    return Err(self.bad("unrecognized critical flags in COPY file header".to_owned()));
                }
                self.next = DecoderState::ExtensionLength;
                Ok(Some(4))
            }
            DecoderState::ExtensionLength => {
                let Some(length) = bytes.first_chunk() else { return Ok(None) };
                let length = usize::try_from(i32::from_be_bytes(*length));
                let n_left = length.map_err(|_| self.bad("invalid COPY file header (wrong length)".to_owned()))?;
                self.next = DecoderState::Extension { n_left };
                Ok(Some(4))
            }
            // Nobody has written one yet; what it says is skipped as it comes.
            DecoderState::Extension { n_left } => {
                let n_read = n_left.min(bytes.len());
                if n_read == 0 && n_left > 0 {
                    return Ok(None);
                }
                self.next = match n_left - n_read {
                    0 => DecoderState::Row,
                    n_left => DecoderState::Extension { n_left },
                };
                Ok(Some(n_read))
            }
            DecoderState::Row => {
                let Some(n_fields) = bytes.first_chunk() else { return Ok(None) };
                let n_fields = i16::from_be_bytes(*n_fields);
                if n_fields == END {
                    self.next = DecoderState::End;
                    return Ok(Some(2));
                }
                self.row += 1;
                self.row_bytes = 0;
                if usize::try_from(n_fields) != Ok(self.columns.len()) {
                    return Err(self.bad(format!("row field count is {n_fields}, expected {}", self.columns.len())));
                }
                self.go_on(0);
                Ok(Some(2))
            }
            DecoderState::Field(idx) => self.read_field(idx, bytes),
            DecoderState::End if bytes.is_empty() => Ok(None),
            DecoderState::End => Err(self.bad("received copy data after EOF marker".to_owned())),
        }
    }

    fn read_field(&mut self, idx: usize, bytes: &[u8]) -> Result<Option<usize>> {
        let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let length = i32::from_be_bytes(*length);
        let column = &self.table.columns[self.columns[idx]];
        let value = match usize::try_from(length) {
            Ok(length) if length > MAX_RECORD_BYTES - self.row_bytes => {
                let message = format!("the row is longer than {MAX_RECORD_BYTES} bytes");
                return Err(self.bad_value(column, SqlError::new(state::BAD_COPY_FORMAT, message)));
            }
            Ok(length) => match rest.get(..length) {
                Some(value) => Some(value),
                None => return Ok(None),
            },
            Err(_) if length == -1 => None,
            Err(_) => {
                return Err(self.bad_value(column, SqlError::new(state::BAD_COPY_FORMAT, "invalid field size")));
            }
        };
        let n_kept = match value {
            Some(value) => match self.cells[idx].append_binary(value) {
                Ok(n_kept) => n_kept,
                Err(error) => return Err(self.bad_value(column, error)),
            },
            None if column.nullable => self.cells[idx].append_null(),
            None => return Err(null_in(&self.table, column, self.row)),
        };
        let length = value.map_or(0, <[u8]>::len);
        self.n_bytes += n_kept;
        self.row_bytes += length;
        self.go_on(idx + 1);
        Ok(Some(4 + length))
    }

    /// On to this field of the row, or behind the row.
    fn go_on(&mut self, idx: usize) {
        self.next = if idx < self.columns.len() {
            DecoderState::Field(idx)
        } else {
            self.n_rows += 1;
            DecoderState::Row
        };
    }

    fn bad(&self, message: String) -> SqlError {
        let context = match self.row {
            0 => format!("COPY {}", self.table.name),
            row => format!("COPY {}, line {row}", self.table.name),
        };
        SqlError::new(state::BAD_COPY_FORMAT, message).with_context(context)
    }

    fn bad_value(&self, column: &Column, error: SqlError) -> SqlError {
        error.with_context(format!("COPY {}, line {}, column {}", self.table.name, self.row, column.name))
    }
}

impl RowReader for BinaryReader {
    fn is_full(&self, max_rows: usize) -> bool {
        self.n_rows >= max_rows || self.n_bytes >= MAX_BATCH_BYTES
    }

    fn push(&mut self, bytes: &[u8], max_rows: usize) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        self.drain(max_rows)
    }

    fn finish(&mut self, max_rows: usize) -> Result<()> {
        self.drain(max_rows)?;
        let cut_off = match self.next {
            DecoderState::Row if self.is_full(max_rows) || self.pending.is_empty() => return Ok(()),
            DecoderState::End => return Ok(()),
            DecoderState::Signature => "COPY file signature not recognized",
            DecoderState::Flags => "invalid COPY file header (missing flags)",
            DecoderState::ExtensionLength => "invalid COPY file header (missing length)",
            DecoderState::Extension { .. } => "invalid COPY file header (wrong length)",
            DecoderState::Row | DecoderState::Field(_) => "unexpected EOF in COPY data",
        };
        Err(self.bad(cut_off.to_owned()))
    }

    fn take(&mut self) -> Result<Option<RecordBatch>> {
        if self.n_rows == 0 {
            return Ok(None);
        }
        let columns = self.columns.iter().map(|idx| &self.table.columns[*idx]);
        let (arrays, fields): (Vec<_>, Vec<_>) = std::iter::zip(&mut self.cells, columns)
            .map(|(cells, column)| {
                let (array, field) = (cells.finish(), arrow_field(&column.name, &column.data_type, true));
                let field = field.with_data_type(array.data_type().clone());
                (array, field)
            })
            .unzip();
        (self.n_taken, self.n_rows, self.n_bytes) = (self.n_rows, 0, 0);
        Ok(Some(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?))
    }

    /// A batch is taken before the row behind it is begun.
    fn take_lines(&mut self) -> Vec<u64> {
        let n_taken = std::mem::take(&mut self.n_taken) as u64;
        (self.row - n_taken + 1..=self.row).collect()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int32Type;
    use bytes::BufMut;
    use proptest::prelude::*;
    use tarn_types::{ColumnId, DataType, KeyPart, TableId, TableOptions, TabletId};

    use super::*;

    fn table() -> Arc<TableSchema> {
        let column = |id: u32, name: &str, data_type, nullable| Column {
            id: ColumnId(id),
            name: name.into(),
            data_type,
            nullable,
            default: None,
        };
        Arc::new(TableSchema {
            id: TableId(1),
            name: "t".into(),
            columns: vec![column(1, "a", DataType::Int32, false), column(2, "b", DataType::Text, true)],
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        })
    }

    fn row(a: i32, b: Option<&str>) -> Vec<u8> {
        let mut out = vec![];
        out.put_i16(2);
        out.put_i32(4);
        out.put_i32(a);
        out.put_i32(b.map_or(-1, |b| b.len() as i32));
        out.put_slice(b.unwrap_or_default().as_bytes());
        out
    }

    fn data(rows: &[Vec<u8>]) -> Vec<u8> {
        [HEADER.to_vec(), rows.concat(), END.to_be_bytes().to_vec()].concat()
    }

    fn read(data: &[u8], piece: usize, max_rows: usize) -> Result<Vec<(i32, Option<String>)>> {
        fn rows(batch: RecordBatch) -> Vec<(i32, Option<String>)> {
            let (a, b) = (batch.column(0).as_primitive::<Int32Type>().clone(), batch.column(1).clone());
            let texts = b.as_string::<i32>().iter().map(|text| text.map(str::to_owned));
            std::iter::zip(a.values().to_vec(), texts).collect()
        }
        let mut reader = BinaryReader::new(table(), vec![0, 1]);
        let mut out = Vec::new();
        for bytes in data.chunks(piece.max(1)) {
            reader.push(bytes, max_rows)?;
            while reader.is_full(max_rows) {
                out.extend(reader.take()?.map_or(vec![], rows));
                reader.push(b"", max_rows)?;
            }
        }
        reader.finish(max_rows)?;
        while let Some(batch) = reader.take()? {
            out.extend(rows(batch));
            reader.finish(max_rows)?;
        }
        Ok(out)
    }

    #[test]
    fn the_mark_of_the_end_may_be_missing_and_an_extension_is_skipped() {
        let rows = [row(1, Some("x")), row(2, None), row(3, Some(""))];
        let want = [(1, Some("x".to_owned())), (2, None), (3, Some(String::new()))];
        let extended = [&HEADER[..15], &5_i32.to_be_bytes(), b"hello", &rows.concat()].concat();
        for data in [data(&rows), [HEADER.to_vec(), rows.concat()].concat(), extended] {
            for piece in [1, 2, 3, 1_000] {
                assert_eq!(read(&data, piece, 2).unwrap(), want, "pieces of {piece}");
            }
        }
        assert_eq!(read(&data(&[]), 4, 2).unwrap(), []);
    }

    /// What PostgreSQL 15 says of the same bytes.
    #[test]
    fn damage_is_told_with_row_and_column() {
        let with = |head: &[u8], rows: &[&[u8]]| [head, &rows.concat()].concat();
        let one = row(1, Some("x"));
        let mut critical = HEADER.to_vec();
        critical[12] = 2;
        let mut oids = HEADER.to_vec();
        oids[12] = 1;
        let negative = [&HEADER[..15], &(-1_i32).to_be_bytes()].concat();
        let at = |row: &str| format!("COPY t, line {row}");
        let huge = [&2_i16.to_be_bytes()[..], &i32::MAX.to_be_bytes()].concat();
        let cases: [(Vec<u8>, &str, &str, String); 16] = [
            (b"1\tx\n".to_vec(), "22P04", "COPY file signature not recognized", "COPY t".into()),
            (b"PGCOPY\n".to_vec(), "22P04", "COPY file signature not recognized", "COPY t".into()),
            (HEADER[..13].to_vec(), "22P04", "invalid COPY file header (missing flags)", "COPY t".into()),
            (HEADER[..17].to_vec(), "22P04", "invalid COPY file header (missing length)", "COPY t".into()),
            (negative, "22P04", "invalid COPY file header (wrong length)", "COPY t".into()),
            (critical, "22P04", "unrecognized critical flags in COPY file header", "COPY t".into()),
            (oids, "22P04", "invalid COPY file header (WITH OIDS)", "COPY t".into()),
            (with(HEADER, &[&one, &one[..7]]), "22P04", "unexpected EOF in COPY data", at("2")),
            (with(HEADER, &[&one, &[0]]), "22P04", "unexpected EOF in COPY data", at("1")),
            (with(HEADER, &[&one, &[0, 3]]), "22P04", "row field count is 3, expected 2", at("2")),
            (with(HEADER, &[&[0, 2, 0xff, 0xff, 0xff, 0xfe]]), "22P04", "invalid field size", at("1, column a")),
            (with(&data(&[]), &[b"x"]), "22P04", "received copy data after EOF marker", "COPY t".into()),
            (with(HEADER, &[&[0, 2, 0, 0, 0, 2, 0, 1]]), "22P03", "incorrect binary data format", at("1, column a")),
            (with(HEADER, &[&[0, 2, 0xff, 0xff, 0xff, 0xff]]), "23502", "null value", at("1, column a: null input")),
            (with(HEADER, &[&one, &one[..10], &[0, 0, 0, 1, 0xe9]]), "22021", "invalid byte", at("2, column b")),
            (with(HEADER, &[&huge]), "22P04", "the row is longer than 67108864 bytes", at("1, column a")),
        ];
        for (data, state, message, context) in cases {
            for piece in [1, 1_000] {
                let error = read(&data, piece, 10).unwrap_err();
                assert_eq!((error.state(), error.context()), (state, Some(context.as_str())), "{error}");
                assert!(error.message().starts_with(message), "{error}");
            }
        }
    }

    #[test]
    fn a_long_value_waits_once() {
        let mut reader = BinaryReader::new(table(), vec![0, 1]);
        let long = "x".repeat(32 << 20);
        for bytes in data(&[row(1, Some(&long))]).chunks(1 << 10) {
            reader.push(bytes, 10).unwrap();
        }
        assert!(reader.is_full(10), "32 MiB are a batch, whatever its rows");
        assert_eq!(reader.take().unwrap().unwrap().num_rows(), 1);
    }

    proptest! {
        #[test]
        fn where_it_is_cut_makes_no_difference(
            rows in proptest::collection::vec((any::<i32>(), proptest::option::of("[a-zé]{0,12}")), 0..20),
            damaged in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
            piece in 1usize..40,
        ) {
            let mut data = data(&rows.iter().map(|(a, b)| row(*a, b.as_deref())).collect::<Vec<_>>());
            match damaged {
                None => prop_assert_eq!(read(&data, piece, 7).unwrap(), rows),
                Some((at, byte)) => {
                    let at = at.index(data.len());
                    data[at] = byte;
                    prop_assert_eq!(read(&data, piece, 7), read(&data, data.len(), 7));
                }
            }
        }
    }
}
