//! How do CSV and Postgres' text format become columns, and back?
//!
//! [`Splitter`] cuts the byte stream into records and fields wherever the client cut its messages; [`Splitter::take`] turns
//! what has gathered into one [`RecordBatch`] of the table. An error names the line and the column; a batch with a bad line
//! is never half returned. Formats: `COPY` of PostgreSQL 16, sections "Text Format" and "CSV Format".

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder,
    Int16Builder, Int32Builder, Int64Builder, RecordBatch, StringBuilder, Time64MicrosecondBuilder,
    TimestampMicrosecondBuilder,
};
use datafusion::arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption};
use tarn_types::{DataType, TableSchema, Value, arrow_field, arrow_type};

use crate::error::{Result, SqlError, state};

/// A record longer than this is refused: a quote that never closes must not fill memory.
const MAX_RECORD_BYTES: usize = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Csv,
    Arrow,
}

/// The options of one COPY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    pub kind: Kind,
    pub delimiter: u8,
    pub null: String,
    pub header: bool,
    pub quote: u8,
    pub escape: u8,
}

impl Format {
    /// Reads `WITH (…)` and the old spelling `CSV HEADER DELIMITER ','`.
    pub fn new(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<Format> {
        let kind = kind(options, legacy)?;
        let csv = kind == Kind::Csv;
        let mut format = Format {
            kind,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".to_owned() },
            header: false,
            quote: b'"',
            escape: b'"',
        };
        let mut escape = None;
        for option in options {
            match option {
                CopyOption::Format(_) | CopyOption::Freeze(_) => {}
                CopyOption::Delimiter(c) => format.delimiter = byte("DELIMITER", *c)?,
                CopyOption::Null(text) => format.null = text.clone(),
                CopyOption::Header(header) => format.header = *header,
                CopyOption::Quote(c) => format.quote = byte("QUOTE", *c)?,
                CopyOption::Escape(c) => escape = Some(byte("ESCAPE", *c)?),
                CopyOption::Encoding(name)
                    if name.eq_ignore_ascii_case("utf8") || name.eq_ignore_ascii_case("utf-8") => {}
                other => return Err(SqlError::unsupported(format!("COPY option {other}"), OPTIONS)),
            }
        }
        for option in legacy {
            match option {
                CopyLegacyOption::Csv(csv) => {
                    for option in csv {
                        match option {
                            CopyLegacyCsvOption::Header => format.header = true,
                            CopyLegacyCsvOption::Quote(c) => format.quote = byte("QUOTE", *c)?,
                            CopyLegacyCsvOption::Escape(c) => escape = Some(byte("ESCAPE", *c)?),
                            other => return Err(SqlError::unsupported(format!("COPY option {other}"), OPTIONS)),
                        }
                    }
                }
                CopyLegacyOption::Delimiter(c) => format.delimiter = byte("DELIMITER", *c)?,
                CopyLegacyOption::Null(text) => format.null = text.clone(),
                CopyLegacyOption::Header => format.header = true,
                other => return Err(SqlError::unsupported(format!("COPY option {other}"), OPTIONS)),
            }
        }
        format.escape = escape.unwrap_or(format.quote);
        Ok(format)
    }
}

const OPTIONS: &str = "COPY takes FORMAT text | csv | arrow, HEADER, DELIMITER, NULL, QUOTE, ESCAPE, ENCODING 'utf8'";

fn kind(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<Kind> {
    for option in options {
        if let CopyOption::Format(name) = option {
            return match name.value.to_ascii_lowercase().as_str() {
                "text" => Ok(Kind::Text),
                "csv" => Ok(Kind::Csv),
                "arrow" => Ok(Kind::Arrow),
                _ => Err(SqlError::unsupported(format!("COPY format \"{name}\""), OPTIONS)),
            };
        }
    }
    if legacy.iter().any(|option| matches!(option, CopyLegacyOption::Binary)) {
        return Err(SqlError::unsupported("COPY format \"binary\"", OPTIONS));
    }
    Ok(if legacy.iter().any(|option| matches!(option, CopyLegacyOption::Csv(_))) { Kind::Csv } else { Kind::Text })
}

fn byte(option: &str, c: char) -> Result<u8> {
    match u8::try_from(c) {
        Ok(byte) if byte.is_ascii() && byte != b'\n' && byte != b'\r' => Ok(byte),
        _ => Err(SqlError::new(state::INVALID_PARAMETER_VALUE, format!("COPY {option} must be one ASCII character"))),
    }
}

/// The fields of one column, back to back.
#[derive(Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    /// End of each field in `bytes`.
    ends: Vec<usize>,
    nulls: Vec<bool>,
}

impl Texts {
    fn push(&mut self, field: &[u8], null: bool) {
        self.bytes.extend_from_slice(field);
        self.ends.push(self.bytes.len());
        self.nulls.push(null);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.nulls.clear();
    }
}

/// Cuts a stream into records of a table.
pub struct Splitter {
    format: Format,
    table: Arc<TableSchema>,
    /// Position in the table of each field of a record.
    columns: Vec<usize>,
    fields: Vec<Texts>,
    /// Line on which each gathered record begins, from 1.
    lines: Vec<u64>,
    pending: Vec<u8>,
    line: u64,
    skip_header: bool,
    ended: bool,
}

enum Cut {
    /// A record and the bytes it took, its line end included.
    Record(usize),
    Incomplete,
    /// `\.` on a line of its own.
    End,
}

impl Splitter {
    pub fn new(format: Format, table: Arc<TableSchema>, columns: Vec<usize>) -> Splitter {
        let skip_header = format.header;
        let fields = columns.iter().map(|_| Texts::default()).collect();
        Splitter {
            format,
            table,
            columns,
            fields,
            lines: Vec::new(),
            pending: Vec::new(),
            line: 1,
            skip_header,
            ended: false,
        }
    }

    /// Records gathered and not yet taken.
    pub fn n_records(&self) -> usize {
        self.lines.len()
    }

    /// Adds bytes as they came. Stops early once `max_records` have gathered: call again with no bytes after
    /// [`Splitter::take`] until [`Splitter::n_records`] is below the maximum.
    pub fn push(&mut self, bytes: &[u8], max_records: usize) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        self.drain(max_records, false)
    }

    /// No more bytes come: the last line may lack its line end.
    pub fn finish(&mut self, max_records: usize) -> Result<()> {
        self.drain(max_records, true)
    }

    fn drain(&mut self, max_records: usize, last: bool) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let mut at = 0;
        let mut record = Record::default();
        while at < pending.len() && self.lines.len() < max_records && !self.ended {
            record.clear();
            match self.cut(&pending[at..], last, &mut record)? {
                Cut::Incomplete => break,
                Cut::End => self.ended = true,
                Cut::Record(length) => {
                    let begun = self.line;
                    self.line += record.n_line_ends;
                    at += length;
                    if std::mem::take(&mut self.skip_header) {
                        continue;
                    }
                    self.keep(&record, begun)?;
                }
            }
        }
        if !self.ended {
            self.pending = pending;
            self.pending.drain(..at);
        }
        if self.pending.len() > MAX_RECORD_BYTES && self.lines.len() < max_records {
            return Err(self
                .bad(self.line, None, format!("the record is longer than {MAX_RECORD_BYTES} bytes"))
                .with_hint("an opening quote may lack its closing one"));
        }
        Ok(())
    }

    fn cut(&self, bytes: &[u8], last: bool, record: &mut Record) -> Result<Cut> {
        match self.format.kind {
            Kind::Csv => self.cut_csv(bytes, last, record),
            _ => self.cut_text(bytes, last, record),
        }
    }

    fn cut_text(&self, bytes: &[u8], last: bool, record: &mut Record) -> Result<Cut> {
        let Some((line, length)) = line(bytes, last) else { return Ok(Cut::Incomplete) };
        record.n_line_ends = 1;
        if line == b"\\." {
            return Ok(Cut::End);
        }
        let mut rest = line;
        loop {
            // The delimiter may be escaped by a backslash.
            let end = unescaped(rest, self.format.delimiter);
            let raw = &rest[..end];
            if raw == self.format.null.as_bytes() {
                record.push(b"", true);
            } else {
                unescape(raw, &mut record.bytes);
                record.end(false);
            }
            if end == rest.len() {
                return Ok(Cut::Record(length));
            }
            rest = &rest[end + 1..];
        }
    }

    fn cut_csv(&self, bytes: &[u8], last: bool, record: &mut Record) -> Result<Cut> {
        let Format { delimiter, quote, escape, null, .. } = &self.format;
        let mut at = 0;
        loop {
            let mut quoted = false;
            let start = record.bytes.len();
            loop {
                match bytes.get(at) {
                    None if last => break,
                    None => return Ok(Cut::Incomplete),
                    Some(b) if b == quote && !quoted && record.bytes.len() == start => {
                        quoted = true;
                        at += 1;
                        // To the closing quote; a line end inside belongs to the field.
                        loop {
                            match bytes.get(at) {
                                None if last => {
                                    return Err(self.bad(self.line, None, "a quoted field is not closed".to_owned()));
                                }
                                None => return Ok(Cut::Incomplete),
                                Some(b)
                                    if b == escape
                                        && matches!(bytes.get(at + 1), Some(n) if n == quote || n == escape) =>
                                {
                                    record.bytes.push(bytes[at + 1]);
                                    at += 2;
                                }
                                Some(b) if b == quote && at + 1 == bytes.len() && !last => return Ok(Cut::Incomplete),
                                Some(b) if b == quote => {
                                    at += 1;
                                    break;
                                }
                                Some(b) => {
                                    record.n_line_ends += u64::from(*b == b'\n');
                                    record.bytes.push(*b);
                                    at += 1;
                                }
                            }
                        }
                    }
                    Some(b) if b == delimiter || *b == b'\n' || *b == b'\r' => break,
                    Some(b) => {
                        record.bytes.push(*b);
                        at += 1;
                    }
                }
            }
            let is_null = !quoted && &record.bytes[start..] == null.as_bytes();
            if !quoted && record.ends.is_empty() && &record.bytes[start..] == b"\\." && bytes.get(at) != Some(delimiter)
            {
                return Ok(Cut::End);
            }
            if is_null {
                record.bytes.truncate(start);
            }
            record.end(is_null);
            match bytes.get(at) {
                Some(b) if b == delimiter => at += 1,
                Some(b'\r') if at + 1 == bytes.len() && !last => return Ok(Cut::Incomplete),
                Some(b'\r') if bytes.get(at + 1) == Some(&b'\n') => {
                    record.n_line_ends += 1;
                    return Ok(Cut::Record(at + 2));
                }
                Some(_) => {
                    record.n_line_ends += 1;
                    return Ok(Cut::Record(at + 1));
                }
                None => return Ok(Cut::Record(at)),
            }
        }
    }

    fn keep(&mut self, record: &Record, line: u64) -> Result<()> {
        if record.ends.len() != self.columns.len() {
            let (got, want) = (record.ends.len(), self.columns.len());
            // An empty line is one empty field.
            let message = if got < want {
                format!("missing data for column \"{}\"", self.name(got.min(want - 1)))
            } else {
                format!("extra data after last expected column ({got} fields, want {want})")
            };
            return Err(self.bad(line, None, message));
        }
        let mut start = 0;
        for (idx, (end, null)) in record.ends.iter().zip(&record.nulls).enumerate() {
            self.fields[idx].push(&record.bytes[start..*end], *null);
            start = *end;
        }
        self.lines.push(line);
        Ok(())
    }

    /// What has gathered as a batch of the given columns in storage types; `None` when nothing has.
    pub fn take(&mut self) -> Result<Option<RecordBatch>> {
        if self.lines.is_empty() {
            return Ok(None);
        }
        let mut arrays = Vec::with_capacity(self.columns.len());
        let mut fields = Vec::with_capacity(self.columns.len());
        for (idx, texts) in self.fields.iter().enumerate() {
            let column = &self.table.columns[self.columns[idx]];
            let array = array(texts, &column.data_type).map_err(|(row, message)| {
                self.bad(self.lines[row], Some(&column.name), message).with_state(state::INVALID_TEXT)
            })?;
            if !column.nullable
                && let Some(row) = texts.nulls.iter().position(|null| *null)
            {
                let message = "null value in a NOT NULL column".to_owned();
                return Err(self
                    .bad(self.lines[row], Some(&column.name), message)
                    .with_state(state::NOT_NULL_VIOLATION));
            }
            arrays.push(array);
            fields.push(arrow_field(&column.name, &column.data_type, true));
        }
        for texts in &mut self.fields {
            texts.clear();
        }
        self.lines.clear();
        Ok(Some(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?))
    }

    fn name(&self, field: usize) -> &str {
        &self.table.columns[self.columns[field]].name
    }

    fn bad(&self, line: u64, column: Option<&str>, message: String) -> SqlError {
        let place = match column {
            Some(column) => format!("COPY {}, line {line}, column {column}: {message}", self.table.name),
            None => format!("COPY {}, line {line}: {message}", self.table.name),
        };
        SqlError::new(state::BAD_COPY_FORMAT, place)
    }
}

#[derive(Default)]
struct Record {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    nulls: Vec<bool>,
    n_line_ends: u64,
}

impl Record {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.nulls.clear();
        self.n_line_ends = 0;
    }

    fn push(&mut self, field: &[u8], null: bool) {
        self.bytes.extend_from_slice(field);
        self.end(null);
    }

    fn end(&mut self, null: bool) {
        self.ends.push(self.bytes.len());
        self.nulls.push(null);
    }
}

/// The first line without its end, and the bytes it takes with it.
fn line(bytes: &[u8], last: bool) -> Option<(&[u8], usize)> {
    match bytes.iter().position(|b| *b == b'\n') {
        Some(end) => {
            let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
            Some((line, end + 1))
        }
        None if last => Some((bytes.strip_suffix(b"\r").unwrap_or(bytes), bytes.len())),
        None => None,
    }
}

/// Position of the first `delimiter` that no backslash precedes, or the end.
fn unescaped(bytes: &[u8], delimiter: u8) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b if b == delimiter => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Postgres' backslash sequences.
fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while at < raw.len() {
        if raw[at] != b'\\' || at + 1 == raw.len() {
            out.push(raw[at]);
            at += 1;
            continue;
        }
        let c = raw[at + 1];
        at += 2;
        match c {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                let mut code = u32::from(c - b'0');
                for _ in 0..2 {
                    match raw.get(at) {
                        Some(digit @ b'0'..=b'7') => code = code * 8 + u32::from(digit - b'0'),
                        _ => break,
                    }
                    at += 1;
                }
                out.push(code as u8);
            }
            b'x' if raw.get(at).is_some_and(u8::is_ascii_hexdigit) => {
                let mut code = 0;
                for _ in 0..2 {
                    match raw.get(at).and_then(|b| char::from(*b).to_digit(16)) {
                        Some(digit) => code = code * 16 + digit,
                        None => break,
                    }
                    at += 1;
                }
                out.push(code as u8);
            }
            other => out.push(other),
        }
    }
}

/// One column's fields as an array of its storage type; an error is the row (of the batch) and what is wrong there.
fn array(texts: &Texts, data_type: &DataType) -> Result<ArrayRef, (usize, String)> {
    let n_rows = texts.ends.len();
    let mut start = 0;
    let cells = texts.ends.iter().zip(&texts.nulls).enumerate().map(move |(row, (end, null))| {
        let cell = &texts.bytes[start..*end];
        start = *end;
        if *null {
            return Ok((row, None));
        }
        match std::str::from_utf8(cell) {
            Ok(text) => Ok((row, Some(text))),
            Err(_) => Err((row, "invalid UTF-8".to_owned())),
        }
    });
    macro_rules! build {
        ($builder:expr, $parse:expr) => {{
            let mut builder = $builder;
            for cell in cells {
                let (row, text) = cell?;
                match text {
                    None => builder.append_null(),
                    Some(text) => builder.append_value($parse(text).map_err(|message: String| (row, message))?),
                }
            }
            Arc::new(builder.finish()) as ArrayRef
        }};
    }
    macro_rules! parsed {
        ($builder:expr, $variant:ident) => {
            build!($builder, |text: &str| match Value::parse(data_type, text) {
                Ok(Value::$variant(value)) => Ok(value),
                Ok(_) => Err(format!("{text:?} is not a valid {data_type}")),
                Err(error) => Err(error.to_string()),
            })
        };
    }
    let number = |text: &str| format!("{:?} is not a valid {data_type}", text.chars().take(100).collect::<String>());
    Ok(match data_type {
        DataType::Text => {
            build!(StringBuilder::with_capacity(n_rows, texts.bytes.len()), |text: &'_ str| Ok::<String, String>(
                text.to_owned()
            ))
        }
        DataType::Int16 => build!(Int16Builder::with_capacity(n_rows), |text: &str| text
            .trim()
            .parse::<i16>()
            .map_err(|_| number(text))),
        DataType::Int32 => build!(Int32Builder::with_capacity(n_rows), |text: &str| text
            .trim()
            .parse::<i32>()
            .map_err(|_| number(text))),
        DataType::Int64 => build!(Int64Builder::with_capacity(n_rows), |text: &str| text
            .trim()
            .parse::<i64>()
            .map_err(|_| number(text))),
        DataType::Bool => parsed!(BooleanBuilder::with_capacity(n_rows), Bool),
        DataType::Float32 => parsed!(Float32Builder::with_capacity(n_rows), Float32),
        DataType::Float64 => parsed!(Float64Builder::with_capacity(n_rows), Float64),
        DataType::Decimal { .. } => {
            parsed!(Decimal128Builder::with_capacity(n_rows).with_data_type(arrow_type(data_type)), Decimal)
        }
        DataType::Bytes => parsed!(BinaryBuilder::with_capacity(n_rows, texts.bytes.len()), Bytes),
        DataType::Date => parsed!(Date32Builder::with_capacity(n_rows), Date),
        DataType::Time => parsed!(Time64MicrosecondBuilder::with_capacity(n_rows), Time),
        DataType::Timestamp | DataType::TimestampTz => {
            parsed!(TimestampMicrosecondBuilder::with_capacity(n_rows).with_data_type(arrow_type(data_type)), Timestamp)
        }
        DataType::Uuid => parsed!(StringBuilder::with_capacity(n_rows, texts.bytes.len()), Uuid),
        DataType::Json => parsed!(StringBuilder::with_capacity(n_rows, texts.bytes.len()), Json),
    })
}

/// Appends one cell in the format; `None` is NULL.
pub fn write_cell(out: &mut BytesMut, format: &Format, cell: Option<&[u8]>) {
    let Some(cell) = cell else { return out.put_slice(format.null.as_bytes()) };
    match format.kind {
        Kind::Csv => {
            let special = |b: &u8| *b == format.delimiter || *b == format.quote || *b == b'\n' || *b == b'\r';
            if cell != format.null.as_bytes() && cell != b"\\." && !cell.iter().any(special) {
                return out.put_slice(cell);
            }
            out.put_u8(format.quote);
            for b in cell {
                if *b == format.quote || *b == format.escape {
                    out.put_u8(format.escape);
                }
                out.put_u8(*b);
            }
            out.put_u8(format.quote);
        }
        _ => {
            for b in cell {
                match b {
                    b'\n' => out.put_slice(b"\\n"),
                    b'\r' => out.put_slice(b"\\r"),
                    b'\t' => out.put_slice(b"\\t"),
                    8 => out.put_slice(b"\\b"),
                    11 => out.put_slice(b"\\v"),
                    12 => out.put_slice(b"\\f"),
                    b'\\' => out.put_slice(b"\\\\"),
                    b if *b == format.delimiter => out.put_slice(&[b'\\', *b]),
                    b => out.put_u8(*b),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int32Type;
    use proptest::prelude::*;
    use tarn_types::{Column, ColumnId, KeyPart, TableId, TableOptions, TabletId};

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

    fn format(kind: Kind) -> Format {
        let name = if kind == Kind::Csv { "csv" } else { "text" };
        Format::new(&[CopyOption::Format(name.into())], &[]).unwrap()
    }

    fn read(format: Format, input: &[u8], chunk: usize) -> Result<Vec<(i32, Option<String>)>> {
        let mut splitter = Splitter::new(format, table(), vec![0, 1]);
        for bytes in input.chunks(chunk.max(1)) {
            splitter.push(bytes, usize::MAX)?;
        }
        splitter.finish(usize::MAX)?;
        let Some(batch) = splitter.take()? else { return Ok(Vec::new()) };
        let (a, b) = (batch.column(0).as_primitive::<Int32Type>(), batch.column(1).as_string::<i32>());
        Ok((0..batch.num_rows()).map(|row| (a.value(row), b.iter().nth(row).unwrap().map(str::to_owned))).collect())
    }

    #[test]
    fn csv_quotes_nulls_and_line_ends() {
        let input = b"1,x\r\n2,\n3,\"\"\n4,\"a,\"\"b\"\"\nc\"\n5,last";
        for chunk in [1, 2, 3, 1000] {
            let rows = read(format(Kind::Csv), input, chunk).unwrap();
            let texts: Vec<Option<&str>> = rows.iter().map(|(_, b)| b.as_deref()).collect();
            assert_eq!(texts, [Some("x"), None, Some(""), Some("a,\"b\"\nc"), Some("last")], "chunks of {chunk}");
        }
    }

    #[test]
    fn text_escapes_and_end_mark() {
        let rows = read(format(Kind::Text), b"1\ta\\tb\\\\\n2\t\\N\n3\t\\101\\x42\n\\.\nnonsense", 7).unwrap();
        assert_eq!(rows, [(1, Some("a\tb\\".into())), (2, None), (3, Some("AB".into()))]);
    }

    #[test]
    fn errors_name_line_and_column() {
        let cases = [
            ("1,x\n\"2\n\",y\nz,y\n", "line 4, column a: \"z\" is not a valid"),
            ("1,x\n2\n", "line 2: missing data for column \"b\""),
            ("1,x,y\n", "line 1: extra data"),
            ("1,x\n,y\n", "line 2, column a: null value"),
            ("1,\"open", "line 1: a quoted field is not closed"),
        ];
        for (input, want) in cases {
            let message = read(format(Kind::Csv), input.as_bytes(), 4).unwrap_err().to_string();
            assert!(message.contains(want), "{message}");
        }
    }

    #[test]
    fn a_maximum_of_records_leaves_the_rest_for_later() {
        let mut splitter = Splitter::new(format(Kind::Csv), table(), vec![0, 1]);
        splitter.push(b"1,a\n2,b\n3,c\n", 2).unwrap();
        assert_eq!(splitter.take().unwrap().unwrap().num_rows(), 2);
        splitter.push(b"", 2).unwrap();
        assert_eq!(splitter.take().unwrap().unwrap().num_rows(), 1);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(rows in proptest::collection::vec((any::<i32>(), proptest::option::of("[ -~\\n\\r\\t\\\\\",é]{0,12}")), 1..20), csv: bool, chunk in 1usize..40) {
            let format = format(if csv { Kind::Csv } else { Kind::Text });
            let mut out = BytesMut::new();
            for (a, b) in &rows {
                write_cell(&mut out, &format, Some(a.to_string().as_bytes()));
                out.put_u8(format.delimiter);
                write_cell(&mut out, &format, b.as_ref().map(|b| b.as_bytes()));
                out.put_u8(b'\n');
            }
            prop_assert_eq!(read(format, &out, chunk).unwrap(), rows);
        }

        #[test]
        fn no_input_panics(input in proptest::collection::vec(any::<u8>(), 0..200), csv: bool) {
            let _ = read(format(if csv { Kind::Csv } else { Kind::Text }), &input, 16);
        }
    }
}
