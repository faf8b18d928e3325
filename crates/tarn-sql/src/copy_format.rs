//! How do CSV and Postgres' text format become columns, and back?
//!
//! [`Splitter`] cuts the byte stream into records and fields wherever the client cut its messages, and looks at every
//! byte once, however long a field is; [`RowReader::take`] turns what has gathered into one [`RecordBatch`] of the
//! table. An error names the line and the column; a batch with a bad line is never half returned. Formats: `COPY` of
//! PostgreSQL 16, sections "Text Format" and "CSV Format"; any of LF, CR LF and (CSV) CR ends a line.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder,
    Int16Builder, Int32Builder, Int64Builder, RecordBatch, StringBuilder, Time64MicrosecondBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::datatypes::Schema;
use bytes::{BufMut, BytesMut};
use tarn_types::{Column, DataType, Style, TableSchema, Value, arrow_field, arrow_type};

use crate::cells::ValueBuilder;
use crate::encoding;
use crate::error::{Result, SqlError, state};

/// A batch is cut when its cells, or its columns, take more memory than this.
pub const MAX_BATCH_BYTES: usize = 16 << 20;

/// Of a line or a value, an error shows so many characters, as Postgres does.
const SHOWN_CHARS: usize = 100;

/// A record longer than this is refused: a quote that never closes must not fill memory.
pub(crate) const MAX_RECORD_BYTES: usize = 64 << 20;

/// How rows look in the data of a COPY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFormat {
    /// PostgreSQL's: a line a row, fields apart by tabs, `\N` for NULL.
    Text,
    /// As spreadsheets write it.
    Csv,
    /// PostgreSQL's, with its signature.
    Binary,
    /// Arrow's IPC stream, as `tarn load` sends it.
    Arrow,
}

impl CopyFormat {
    /// Whether the data are no text to the client.
    pub fn is_binary(self) -> bool {
        matches!(self, CopyFormat::Binary | CopyFormat::Arrow)
    }
}

/// What the options of one COPY say (`copy_options.rs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// Which of the others below have a meaning.
    pub kind: CopyFormat,
    /// Between fields, one byte.
    pub delimiter: u8,
    /// What stands for NULL.
    pub null: String,
    /// A first line with the names of the columns.
    pub header: bool,
    /// Of CSV.
    pub quote: u8,
    /// Of CSV: before a quote that is data.
    pub escape: u8,
    /// How values are written, and texts of times are read.
    pub style: Style,
}

/// What makes rows of a table of the bytes of a COPY, wherever the client cut its messages.
pub trait RowReader: Send {
    /// Whether what has gathered is a batch: so many rows, or [`MAX_BATCH_BYTES`].
    fn is_full(&self, max_rows: usize) -> bool;

    /// Adds bytes as they came. Stops early once it [`is full`](RowReader::is_full): call again with no bytes after
    /// [`RowReader::take`] until it is not.
    ///
    /// Errors: the row that is none, with its number.
    fn push(&mut self, bytes: &[u8], max_rows: usize) -> Result<()>;

    /// No more bytes come. Stops early as [`RowReader::push`] does.
    fn finish(&mut self, max_rows: usize) -> Result<()>;

    /// What has gathered as a batch of the given columns, each in its storage type or one that becomes it; `None` when
    /// nothing has.
    fn take(&mut self) -> Result<Option<RecordBatch>>;

    /// The line, or the number, of each row of the last batch.
    fn take_lines(&mut self) -> Vec<u64>;
}

/// The fields of one column, back to back.
#[derive(Debug, Default)]
struct TextColumn {
    bytes: Vec<u8>,
    /// End of each field in `bytes`.
    ends: Vec<usize>,
    nulls: Vec<bool>,
}

impl TextColumn {
    fn push(&mut self, field: &[u8], null: bool) {
        self.bytes.extend_from_slice(field);
        self.ends.push(self.bytes.len());
        self.nulls.push(null);
    }

    fn cell(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
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
    fields: Vec<TextColumn>,
    /// Line on which each gathered record begins, from 1.
    lines: Vec<u64>,
    /// Of the rows that were taken last.
    taken: Vec<u64>,
    /// Bytes of the gathered records.
    n_bytes: usize,
    pending: Vec<u8>,
    /// Bytes of `pending` that are consumed.
    at: usize,
    /// Text format: bytes behind `at` that were searched for the end of the line.
    searched: usize,
    /// CSV: the record that is being read.
    record: CsvRecord,
    mode: Mode,
    /// CSV: the last record ended in CR: an LF that follows belongs to it.
    skip_line_feed: bool,
    line: u64,
    skip_header: bool,
    ended: bool,
}

/// Where in a CSV record the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    #[default]
    Plain,
    /// Between quotes: a line end belongs to the field.
    Quoted,
    /// Behind an escape (by default: a quote) between quotes: the next byte tells what it is.
    Escape,
}

impl Splitter {
    /// Reads fields of these columns, by their places in the table, in this order.
    pub fn new(format: Format, table: Arc<TableSchema>, columns: Vec<usize>) -> Splitter {
        let skip_header = format.header;
        let fields = columns.iter().map(|_| TextColumn::default()).collect();
        Splitter {
            format,
            table,
            columns,
            fields,
            lines: Vec::new(),
            taken: Vec::new(),
            n_bytes: 0,
            pending: Vec::new(),
            at: 0,
            searched: 0,
            record: CsvRecord::default(),
            mode: Mode::Plain,
            skip_line_feed: false,
            line: 1,
            skip_header,
            ended: false,
        }
    }

    fn drain(&mut self, max_records: usize, last: bool) -> Result<()> {
        while !self.ended && !self.is_full(max_records) {
            let is_whole = match self.format.kind {
                CopyFormat::Csv => self.cut_csv(last)?,
                _ => self.cut_text(last)?,
            };
            if !is_whole {
                break;
            }
            self.finish_record()?;
        }
        if self.ended || self.at == self.pending.len() {
            self.pending.clear();
            self.at = 0;
        } else if self.at > self.pending.len() / 2 {
            self.pending.drain(..self.at);
            self.at = 0;
        }
        let unfinished = match self.format.kind {
            CopyFormat::Csv => self.record.bytes.len(),
            _ => self.searched,
        };
        if unfinished > MAX_RECORD_BYTES {
            let message = format!("the record is longer than {MAX_RECORD_BYTES} bytes");
            return Err(self.bad(self.line, message).with_hint("an opening quote may lack its closing one"));
        }
        Ok(())
    }

    /// Keeps the record that has been read, unless it is the header or the mark of the end.
    fn finish_record(&mut self) -> Result<()> {
        let begun = self.line;
        let mut record = std::mem::take(&mut self.record);
        self.line += record.n_line_ends;
        if record.is_end_mark {
            self.ended = true;
        } else if !std::mem::take(&mut self.skip_header) {
            self.keep(&record, begun)?;
        }
        record.clear();
        self.record = record;
        Ok(())
    }

    /// Reads on in a line of text format. True: `record` has one.
    fn cut_text(&mut self, last: bool) -> Result<bool> {
        let bytes = &self.pending[self.at..];
        let mut end = self.searched;
        // A backslash takes the byte behind it along, a newline too.
        let found = loop {
            match bytes.get(end) {
                None => break false,
                Some(b'\n') => break true,
                Some(b'\\') if end + 1 == bytes.len() && !last => break false,
                Some(b'\\') => end = (end + 2).min(bytes.len()),
                Some(_) => end += 1,
            }
        };
        if !found && (!last || bytes.is_empty()) {
            self.searched = end;
            return Ok(false);
        }
        self.searched = 0;
        let line = without_carriage_return(&bytes[..end]);
        let length = end + usize::from(found);
        let record = &mut self.record;
        record.n_line_ends = 1 + line.iter().filter(|b| **b == b'\n').count() as u64;
        if line == b"\\." {
            record.is_end_mark = true;
            self.at += length;
            return Ok(true);
        }
        let mut rest = line;
        loop {
            // The delimiter may be escaped by a backslash.
            let end = unescaped(rest, self.format.delimiter);
            let raw = &rest[..end];
            if raw == self.format.null.as_bytes() {
                record.end(true);
            } else if unescape(raw, &mut record.bytes) {
                record.end(false);
            } else {
                let error = self.bad(self.line, "end-of-copy marker is not alone on its line".to_owned());
                return Err(error.with_hint("a backslash of the data is written as two"));
            }
            if end == rest.len() {
                break;
            }
            rest = &rest[end + 1..];
        }
        self.at += length;
        Ok(true)
    }

    /// Reads on in a CSV record, from where the last bytes ended. True: `record` has one.
    fn cut_csv(&mut self, last: bool) -> Result<bool> {
        let Format { delimiter, quote, escape, .. } = self.format;
        loop {
            let bytes = &self.pending[self.at..];
            let Some(&next) = bytes.first() else {
                if !last {
                    return Ok(false);
                }
                if self.mode == Mode::Escape && escape == quote {
                    self.mode = Mode::Plain;
                }
                if self.mode != Mode::Plain {
                    return Err(self.bad(self.line, "unterminated CSV quoted field".to_owned()));
                }
                if !self.record.is_begun {
                    return Ok(false);
                }
                self.record.end_csv(&self.format.null);
                self.record.mark_end();
                return Ok(true);
            };
            if std::mem::take(&mut self.skip_line_feed) && next == b'\n' {
                self.at += 1;
                continue;
            }
            let record = &mut self.record;
            record.is_begun = true;
            match self.mode {
                Mode::Plain => {
                    let special = |b: &u8| *b == delimiter || *b == quote || *b == b'\n' || *b == b'\r';
                    let n_plain = bytes.iter().position(special).unwrap_or(bytes.len());
                    record.bytes.extend_from_slice(&bytes[..n_plain]);
                    self.at += n_plain;
                    let Some(&next) = bytes.get(n_plain) else { continue };
                    self.at += 1;
                    if next == delimiter {
                        record.end_csv(&self.format.null);
                    } else if next == quote {
                        record.is_quoted = true;
                        self.mode = Mode::Quoted;
                    } else {
                        self.skip_line_feed = next == b'\r';
                        record.end_csv(&self.format.null);
                        record.n_line_ends += 1;
                        record.mark_end();
                        return Ok(true);
                    }
                }
                Mode::Quoted => {
                    let n_plain = bytes.iter().position(|b| *b == quote || *b == escape).unwrap_or(bytes.len());
                    let run = &bytes[..n_plain];
                    record.bytes.extend_from_slice(run);
                    record.n_line_ends += run.iter().filter(|b| **b == b'\n').count() as u64;
                    self.at += n_plain;
                    let Some(&next) = bytes.get(n_plain) else { continue };
                    self.at += 1;
                    self.mode = if next == escape { Mode::Escape } else { Mode::Plain };
                }
                Mode::Escape if next == quote || next == escape => {
                    record.bytes.push(next);
                    self.at += 1;
                    self.mode = Mode::Quoted;
                }
                Mode::Escape if escape == quote => self.mode = Mode::Plain,
                Mode::Escape => {
                    record.bytes.push(escape);
                    self.mode = Mode::Quoted;
                }
            }
        }
    }

    fn keep(&mut self, record: &CsvRecord, line: u64) -> Result<()> {
        if record.ends.len() != self.columns.len() {
            let (got, want) = (record.ends.len(), self.columns.len());
            // An empty line is one empty field.
            let message = if got < want {
                format!("missing data for column \"{}\"", self.name(got.min(want - 1)))
            } else {
                "extra data after last expected column".to_owned()
            };
            let shown = shown(&record.line(self.format.delimiter));
            let context = format!("COPY {}, line {line}: {shown}", self.table.name);
            return Err(SqlError::new(state::BAD_COPY_FORMAT, message).with_context(context));
        }
        let mut start = 0;
        for (idx, (end, null)) in record.ends.iter().zip(&record.nulls).enumerate() {
            self.fields[idx].push(&record.bytes[start..*end], *null);
            start = *end;
        }
        self.n_bytes += record.bytes.len();
        self.lines.push(line);
        Ok(())
    }

    fn name(&self, field: usize) -> &str {
        &self.table.columns[self.columns[field]].name
    }

    fn bad(&self, line: u64, message: String) -> SqlError {
        SqlError::new(state::BAD_COPY_FORMAT, message).with_context(format!("COPY {}, line {line}", self.table.name))
    }
}

impl RowReader for Splitter {
    fn is_full(&self, max_rows: usize) -> bool {
        self.lines.len() >= max_rows || self.n_bytes >= MAX_BATCH_BYTES
    }

    fn push(&mut self, bytes: &[u8], max_rows: usize) -> Result<()> {
        if !self.ended {
            self.pending.extend_from_slice(bytes);
        }
        self.drain(max_rows, false)
    }

    /// The last line may lack its line end.
    fn finish(&mut self, max_rows: usize) -> Result<()> {
        self.drain(max_rows, true)
    }

    fn take(&mut self) -> Result<Option<RecordBatch>> {
        if self.lines.is_empty() {
            return Ok(None);
        }
        let mut arrays = Vec::with_capacity(self.columns.len());
        let mut fields = Vec::with_capacity(self.columns.len());
        for (idx, texts) in self.fields.iter().enumerate() {
            let column = &self.table.columns[self.columns[idx]];
            let array = array(texts, &column.data_type, &self.format.style).map_err(|(row, error)| {
                let (line, value) = (self.lines[row], shown(&String::from_utf8_lossy(texts.cell(row))));
                error.with_context(format!("COPY {}, line {line}, column {}: {value}", self.table.name, column.name))
            })?;
            if !column.nullable
                && let Some(row) = texts.nulls.iter().position(|null| *null)
            {
                return Err(null_in(&self.table, column, self.lines[row]));
            }
            let field = arrow_field(&column.name, &column.data_type, true);
            fields.push(field.with_data_type(array.data_type().clone()));
            arrays.push(array);
        }
        for texts in &mut self.fields {
            texts.clear();
        }
        self.taken = std::mem::take(&mut self.lines);
        self.n_bytes = 0;
        Ok(Some(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?))
    }

    fn take_lines(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.taken)
    }
}

/// A NULL where none may be.
pub(crate) fn null_in(table: &TableSchema, column: &Column, line: u64) -> SqlError {
    let (name, of) = (&column.name, &table.name);
    let message = format!("null value in column \"{name}\" of relation \"{of}\" violates not-null constraint");
    let context = format!("COPY {of}, line {line}, column {name}: null input");
    SqlError::new(state::NOT_NULL_VIOLATION, message).with_context(context)
}

/// The beginning of a value or a line, in quotes.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("\"{}...\"", &text[..end]),
        None => format!("\"{text}\""),
    }
}

#[derive(Debug, Default)]
struct CsvRecord {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    nulls: Vec<bool>,
    n_line_ends: u64,
    /// CSV: a byte of it was seen.
    is_begun: bool,
    /// CSV: the field that is being read has quotes.
    is_quoted: bool,
    /// `\.` on a line of its own.
    is_end_mark: bool,
}

impl CsvRecord {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.nulls.clear();
        self.n_line_ends = 0;
        (self.is_begun, self.is_quoted, self.is_end_mark) = (false, false, false);
    }

    fn end(&mut self, null: bool) {
        self.ends.push(self.bytes.len());
        self.nulls.push(null);
    }

    /// Ends a field of CSV; what is in quotes is never NULL.
    fn end_csv(&mut self, null: &str) {
        let start = self.ends.last().copied().unwrap_or(0);
        let is_null = !self.is_quoted && &self.bytes[start..] == null.as_bytes();
        // The only field of its line so far, so it may be the mark; see `mark_end`.
        self.is_end_mark = !self.is_quoted && self.ends.is_empty() && self.bytes == b"\\.";
        if is_null {
            self.bytes.truncate(start);
        }
        self.end(is_null);
        self.is_quoted = false;
    }

    /// The line is over: `\.` marks the end only if it is all there is.
    fn mark_end(&mut self) {
        self.is_end_mark &= self.ends.len() == 1;
    }

    /// As it came, nearly: for errors.
    fn line(&self, delimiter: u8) -> String {
        let mut start = 0;
        let mut line = Vec::new();
        for (idx, end) in self.ends.iter().enumerate().take(SHOWN_CHARS) {
            if idx > 0 {
                line.push(delimiter);
            }
            line.extend_from_slice(&self.bytes[start..*end]);
            start = *end;
        }
        String::from_utf8_lossy(&line).into_owned()
    }
}

/// A line without the CR of its CR LF; a CR behind a backslash is data.
fn without_carriage_return(line: &[u8]) -> &[u8] {
    let Some(rest) = line.strip_suffix(b"\r") else { return line };
    let n_backslashes = rest.iter().rev().take_while(|b| **b == b'\\').count();
    if n_backslashes.is_multiple_of(2) { rest } else { line }
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

/// Postgres' backslash sequences. False: there is a `\.`, which ends the data and so cannot be in it.
fn unescape(raw: &[u8], out: &mut Vec<u8>) -> bool {
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
            b'.' => return false,
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
    true
}

/// One column's fields as an array of its storage type; an error is the row (of the batch) and what is wrong there.
fn array(texts: &TextColumn, data_type: &DataType, style: &Style) -> Result<ArrayRef, (usize, SqlError)> {
    let n_rows = texts.ends.len();
    let mut start = 0;
    let cells = texts.ends.iter().zip(&texts.nulls).enumerate().map(move |(row, (end, null))| {
        let cell = &texts.bytes[start..*end];
        start = *end;
        if *null {
            return Ok((row, None));
        }
        encoding::text(cell).map(|text| (row, Some(text))).map_err(|error| (row, error))
    });
    macro_rules! build {
        ($builder:expr, $parse:expr) => {{
            let mut builder = $builder;
            for cell in cells {
                let (row, text) = cell?;
                match text {
                    None => builder.append_null(),
                    Some(text) => builder.append_value($parse(text).map_err(|error: SqlError| (row, error))?),
                }
            }
            Arc::new(builder.finish()) as ArrayRef
        }};
    }
    macro_rules! parsed {
        ($builder:expr, $variant:ident) => {
            build!($builder, |text: &str| match Value::parse_in(data_type, text, style) {
                Ok(Value::$variant(value)) => Ok(value),
                Ok(other) => Err(SqlError::new(state::INTERNAL, format!("{other:?} is no {data_type}"))),
                Err(error) => Err(SqlError::from(error)),
            })
        };
    }
    let number = |text: &str| match Value::parse(data_type, text) {
        Ok(other) => SqlError::new(state::INTERNAL, format!("{other:?} is no {data_type}")),
        Err(error) => SqlError::from(error),
    };
    Ok(match data_type {
        DataType::Text => {
            build!(StringBuilder::with_capacity(n_rows, texts.bytes.len()), |text: &'_ str| Ok::<String, SqlError>(
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
        DataType::Json | DataType::Jsonb => parsed!(StringBuilder::with_capacity(n_rows, texts.bytes.len()), Json),
        // Of these a value is made of each cell, and put where others gather.
        DataType::Interval | DataType::Inet | DataType::Array(_) => {
            let mut gathered = ValueBuilder::new(*data_type);
            for cell in cells {
                let (row, text) = cell?;
                let value = text.map_or(Ok(Value::Null), |text| Value::parse_in(data_type, text, style));
                let appended = value.map_err(SqlError::from).and_then(|value| gathered.append_value(value));
                appended.map_err(|error| (row, error))?;
            }
            gathered.finish()
        }
    })
}

/// Appends one cell in the format; `None` is NULL.
pub fn write_cell(out: &mut BytesMut, format: &Format, cell: Option<&[u8]>) {
    let Some(cell) = cell else { return out.put_slice(format.null.as_bytes()) };
    match format.kind {
        CopyFormat::Csv => {
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
    use arrow::array::AsArray;
    use arrow::datatypes::Int32Type;
    use datafusion::sql::sqlparser::ast::CopyOption;
    use proptest::prelude::*;
    use tarn_types::{ColumnId, KeyPart, TableId, TableOptions, TabletId};

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

    fn format(kind: CopyFormat) -> Format {
        let name = if kind == CopyFormat::Csv { "csv" } else { "text" };
        Format::new(&[CopyOption::Format(name.into())], &[], Style::default()).unwrap()
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
            let rows = read(format(CopyFormat::Csv), input, chunk).unwrap();
            let texts: Vec<Option<&str>> = rows.iter().map(|(_, b)| b.as_deref()).collect();
            assert_eq!(texts, [Some("x"), None, Some(""), Some("a,\"b\"\nc"), Some("last")], "chunks of {chunk}");
        }
    }

    #[test]
    fn text_escapes_and_end_mark() {
        let rows = read(format(CopyFormat::Text), b"1\ta\\tb\\\\\n2\t\\N\n3\t\\101\\x42\n\\.\nnonsense", 7).unwrap();
        assert_eq!(rows, [(1, Some("a\tb\\".into())), (2, None), (3, Some("AB".into()))]);
    }

    #[test]
    fn errors_name_line_and_column() {
        let cases = [
            ("1,x\n\"2\n\",y\nz,y\n", "22P02", "\"z\" is not a valid", "COPY t, line 4, column a: \"z\""),
            ("1,x\n99999999999,y\n", "22003", "99999999999", "COPY t, line 2, column a: \"99999999999\""),
            ("1,x\n2\n", "22P04", "missing data for column \"b\"", "COPY t, line 2: \"2\""),
            ("1,x,y\n", "22P04", "extra data after last", "COPY t, line 1: \"1,x,y\""),
            ("1,x\n,y\n", "23502", "null value in column \"a\"", "COPY t, line 2, column a: null input"),
            ("1,\"open", "22P04", "unterminated CSV quoted field", "COPY t, line 1"),
        ];
        for (input, state, message, context) in cases {
            let error = read(format(CopyFormat::Csv), input.as_bytes(), 4).unwrap_err();
            assert_eq!((error.state(), error.context()), (state, Some(context)), "{error}");
            assert!(error.message().contains(message), "{error}");
        }
        let error = read(format(CopyFormat::Text), b"1\tcaf\xe9\n", 4).unwrap_err();
        assert_eq!((error.state(), error.context()), ("22021", Some("COPY t, line 1, column b: \"caf\u{fffd}\"")));
        assert_eq!(read(format(CopyFormat::Text), b"1\ta\\000b\n", 4).unwrap_err().state(), "22021");
    }

    #[test]
    fn csv_quotes_inside_a_field_and_text_newlines_are_those_of_postgres() {
        for chunk in [1, 2, 3, 100] {
            let rows = read(format(CopyFormat::Csv), b"1,ab\"c,d\"e\r\n2,\"a\"b\"c\"\r3,\"x\"\"\"", chunk).unwrap();
            let texts: Vec<Option<&str>> = rows.iter().map(|(_, b)| b.as_deref()).collect();
            assert_eq!(texts, [Some("abc,de"), Some("abc"), Some("x\"")], "chunks of {chunk}");
            let rows = read(format(CopyFormat::Text), b"1\ta\\\nb\r\n2\t\\\\.\n", chunk).unwrap();
            assert_eq!(rows, [(1, Some("a\nb".into())), (2, Some("\\.".into()))], "chunks of {chunk}");
        }
        assert_eq!(read(format(CopyFormat::Text), b"1\t\\.\n", 3).unwrap_err().state(), state::BAD_COPY_FORMAT);
        assert_eq!(read(format(CopyFormat::Csv), b"1,x\n\\.\nnonsense", 3).unwrap().len(), 1);
    }

    /// A scan that began anew at each message would read 512 GiB here.
    #[test]
    fn a_long_quoted_field_costs_its_length() {
        let mut splitter = Splitter::new(format(CopyFormat::Csv), table(), vec![0, 1]);
        splitter.push(b"1,\"", 10).unwrap();
        let chunk = [b'x'; 1024];
        for _ in 0..32 << 10 {
            splitter.push(&chunk, 10).unwrap();
        }
        splitter.push(b"\"\n", 10).unwrap();
        assert!(splitter.is_full(10), "32 MiB are a batch, whatever its rows");
        assert_eq!(splitter.take().unwrap().unwrap().num_rows(), 1);
    }

    #[test]
    fn a_maximum_of_records_leaves_the_rest_for_later() {
        let mut splitter = Splitter::new(format(CopyFormat::Csv), table(), vec![0, 1]);
        splitter.push(b"1,a\n2,b\n3,c\n", 2).unwrap();
        assert_eq!(splitter.take().unwrap().unwrap().num_rows(), 2);
        splitter.push(b"", 2).unwrap();
        assert_eq!(splitter.take().unwrap().unwrap().num_rows(), 1);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(rows in proptest::collection::vec((any::<i32>(), proptest::option::of("[ -~\\n\\r\\t\\\\\",é]{0,12}")), 1..20), csv: bool, chunk in 1usize..40) {
            let format = format(if csv { CopyFormat::Csv } else { CopyFormat::Text });
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
            let _ = read(format(if csv { CopyFormat::Csv } else { CopyFormat::Text }), &input, 16);
        }
    }
}
