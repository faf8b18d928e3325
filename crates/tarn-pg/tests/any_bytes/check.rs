//! What must hold for any bytes of a client? Nothing panics, and what comes of them does not depend on where they are
//! cut.
//!
//! The fuzz targets `startup`, `messages`, `parameter`, `copy` and `copy_binary` call the same.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pgwire::api::Type;
use pgwire::messages::PgWireFrontendMessage;
use tarn_pg::frames::{Frame, Frames, Phase};
use tarn_pg::params::{BoundParameter, pg_type_of};
use tarn_sql::budget::Budget;
use tarn_sql::copy_binary::BinaryReader;
use tarn_sql::copy_format::{CopyFormat, Format, RowReader, Splitter};
use tarn_sql::error::Result;
use tarn_types::{Column, ColumnId, DataType, KeyPart, Style, TableId, TableOptions, TableSchema, TabletId, Zone};
use tokio::io::{AsyncRead, ReadBuf};

const TYPES: [DataType; 17] = [
    DataType::Bool,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Float32,
    DataType::Float64,
    DataType::Decimal { precision: 20, scale: 4 },
    DataType::Text,
    DataType::Bytes,
    DataType::Date,
    DataType::Time,
    DataType::Timestamp,
    DataType::TimestampTz,
    DataType::Interval,
    DataType::Inet,
    DataType::Uuid,
    DataType::Json,
];

/// Of a message: the smallest that can be set, so that longer ones are met.
const MESSAGE_BYTES: u64 = 10_000;

/// Rows of a batch of COPY: few, so that there are several.
const BATCH_ROWS: usize = 3;

/// Bytes that come `piece` at a time.
struct Pieces<'a> {
    rest: &'a [u8],
    piece: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let (now, rest) = self.rest.split_at(self.rest.len().min(self.piece).min(room.remaining()));
        room.put_slice(now);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("bytes in memory are there at once"),
    }
}

fn frames() -> Frames {
    Frames::new(MESSAGE_BYTES, &Budget::new(4 * MESSAGE_BYTES))
}

/// The packets that a connection begins with.
pub fn startup(bytes: &[u8], piece: u8) {
    let read = |piece| {
        let (mut frames, mut io, mut said) = (frames(), Pieces { rest: bytes, piece }, Vec::new());
        loop {
            match now(frames.opening(&mut io)) {
                Ok(Some(opening)) => said.push(format!("{opening:?}")),
                Ok(None) => return said,
                Err(error) => {
                    assert!(error.is_fatal(), "nobody knows where the next packet begins: {error}");
                    said.push(format!("{} {error}", error.state()));
                    return said;
                }
            }
        }
    };
    assert_eq!(read(usize::MAX), read(usize::from(piece).max(1)));
}

/// The messages behind them: before the client has proved who it is, or after.
pub fn messages(bytes: &[u8], piece: u8, is_known: bool) {
    let phase = if is_known { Phase::Ready } else { Phase::Authentication };
    let read = |piece| {
        let (mut frames, mut io) = (frames(), Pieces { rest: bytes, piece });
        // What there was between pieces of COPY data, and the data, whose pieces are cut as they came.
        let (mut said, mut data) = (vec![String::new()], vec![Vec::new()]);
        loop {
            match now(frames.next(&mut io, phase)) {
                Ok(Some(Frame::Message(PgWireFrontendMessage::CopyData(piece)))) => {
                    data.last_mut().expect("there is always one").extend_from_slice(&piece.data);
                    continue;
                }
                Ok(Some(Frame::Message(message))) => said.push(format!("{message:?}")),
                Ok(Some(Frame::Bad { error, is_extended })) => {
                    assert!(!error.is_fatal(), "the next message can be read: {error}");
                    said.push(format!("{} {error} {is_extended}", error.state()));
                }
                Ok(None) => return (said, data),
                Err(error) => {
                    assert!(error.is_fatal(), "nobody knows where the next message begins: {error}");
                    said.push(format!("{} {error}", error.state()));
                    return (said, data);
                }
            }
            data.push(Vec::new());
        }
    };
    assert_eq!(read(usize::MAX), read(usize::from(piece).max(1)));
}

/// By clocks with gaps and doubled hours.
fn style() -> Style {
    Style::of_zone(Zone::parse("America/New_York").expect("it is known"))
}

/// A bound parameter: sent as a value of one type, wanted as one of another.
pub fn parameter(sent: u8, wanted: u8, binary: bool, bytes: &[u8]) {
    let of = |number: u8| &TYPES[usize::from(number) % TYPES.len()];
    let pg_type = match usize::from(sent) % (TYPES.len() + 2) {
        16 => Type::OID,
        17 => Type::POINT,
        _ => pg_type_of(of(sent)),
    };
    let bound = BoundParameter { number: 1, bytes: Some(bytes), binary, pg_type: &pg_type };
    let style = style();
    let _ = bound.value(None, &style);
    if let Ok(value) = bound.value(Some(of(wanted)), &style) {
        let column = value.to_array(of(wanted), 1);
        assert!(column.is_ok(), "{value:?} was taken for a {}: {column:?}", of(wanted));
    }
    let _ = bound.elements(&pg_type, Some(of(wanted)), &style);
}

/// The data of a COPY into a table of a number and a column of any type.
pub fn copy(csv: bool, header: bool, column: u8, piece: u8, bytes: &[u8]) {
    let table = table(TYPES[usize::from(column) % TYPES.len()]);
    let format = Format {
        kind: if csv { CopyFormat::Csv } else { CopyFormat::Text },
        delimiter: if csv { b',' } else { b'\t' },
        null: if csv { String::new() } else { "\\N".to_owned() },
        header,
        quote: b'"',
        escape: b'"',
        style: style(),
    };
    cut_anywhere(piece, bytes, || Splitter::new(format.clone(), Arc::clone(&table), vec![0, 1]));
}

/// The same of `FORMAT binary`.
pub fn copy_binary(column: u8, piece: u8, bytes: &[u8]) {
    let table = table(TYPES[usize::from(column) % TYPES.len()]);
    cut_anywhere(piece, bytes, || BinaryReader::new(Arc::clone(&table), vec![0, 1]));
}

fn cut_anywhere<R: RowReader>(piece: u8, bytes: &[u8], reader: impl Fn() -> R) {
    let read = |piece: usize| -> Result<String> {
        let mut reader = reader();
        let mut said = String::new();
        for piece in bytes.chunks(piece) {
            reader.push(piece, BATCH_ROWS)?;
            while reader.is_full(BATCH_ROWS) {
                said.push_str(&format!("{:?}\n", reader.take()?));
                reader.push(b"", BATCH_ROWS)?;
            }
        }
        reader.finish(BATCH_ROWS)?;
        while let Some(batch) = reader.take()? {
            said.push_str(&format!("Some({batch:?})\n"));
            reader.finish(BATCH_ROWS)?;
        }
        Ok(said)
    };
    assert_eq!(read(bytes.len().max(1)), read(usize::from(piece).max(1)));
}

fn table(data_type: DataType) -> Arc<TableSchema> {
    let column = |id: u32, name: &str, data_type, nullable| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        data_type,
        nullable,
        default: None,
    };
    Arc::new(TableSchema {
        id: TableId(1),
        name: "t".to_owned(),
        columns: vec![column(1, "k", DataType::Int32, false), column(2, "v", data_type, true)],
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(1),
        options: TableOptions::default(),
    })
}
