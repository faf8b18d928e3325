//! How do answers become messages?
//!
//! Rows are written as they come, never gathered; a cancel or a timeout stops between two rows.

use std::fmt::Debug;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use bytes::{BufMut, BytesMut};
use futures::{Sink, SinkExt, Stream, StreamExt};
use pgwire::api::portal::Format as WireFormat;
use pgwire::api::results::{FieldFormat, FieldInfo, QueryResponse};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyData, CopyDone, CopyOutResponse};
use pgwire::messages::data::{DataRow, RowDescription};
use pgwire::messages::extendedquery::PortalSuspended;
use pgwire::messages::response::CommandComplete;
use tarn_sql::copy_binary;
use tarn_sql::copy_format::{CopyFormat, Format, write_cell};
use tarn_sql::error::{Result, SqlError};
use tarn_sql::rows::{RowWriter, fields};
use tarn_sql::session::{Batches, CopyTo, Interrupt, ResultSet, Tag};
use tarn_types::Style;

use crate::errors::on_wire;

/// Where messages go.
pub trait Client: Sink<PgWireBackendMessage, Error: Debug> + Unpin + Send {}
impl<C: Sink<PgWireBackendMessage, Error: Debug> + Unpin + Send> Client for C {}

/// Encodes batches row by row as they are polled.
struct RowStream {
    batches: Batches,
    fields: Arc<Vec<FieldInfo>>,
    style: Style,
    current: Option<(RowWriter, usize)>,
    buffer: BytesMut,
}

impl Stream for RowStream {
    type Item = PgWireResult<DataRow>;

    fn poll_next(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some((writer, next)) = &mut this.current {
                if *next < writer.n_rows() {
                    let row = writer.row(*next, &mut this.buffer);
                    *next += 1;
                    return Poll::Ready(Some(row.map_err(on_wire)));
                }
                this.current = None;
            }
            match this.batches.poll_next_unpin(ctx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(on_wire(error)))),
                Poll::Ready(Some(Ok(batch))) => match RowWriter::new(&batch, &this.fields, &this.style) {
                    Ok(writer) => this.current = Some((writer, 0)),
                    Err(error) => return Poll::Ready(Some(Err(on_wire(error)))),
                },
            }
        }
    }
}

/// A result set as the protocol library keeps it in a portal.
pub fn response(rows: ResultSet, format: &WireFormat, style: Style) -> Result<QueryResponse> {
    let fields = fields(&rows.schema, format)?;
    let stream = RowStream {
        batches: rows.batches,
        fields: Arc::clone(&fields),
        style,
        current: None,
        buffer: BytesMut::with_capacity(1024),
    };
    let mut response = QueryResponse::new(fields, stream);
    response.set_command_tag(rows.command);
    Ok(response)
}

/// RowDescription.
pub async fn describe<C: Client>(client: &mut C, fields: &[FieldInfo]) -> PgWireResult<()>
where
    PgWireError: From<C::Error>,
{
    let description = RowDescription::new(fields.iter().map(Into::into).collect());
    client.feed(PgWireBackendMessage::RowDescription(description)).await?;
    Ok(())
}

/// Sends up to `max_rows` rows (0: all). The tag, which is still to be sent, where the result is used up; else
/// PortalSuspended is sent.
pub async fn rows<C: Client>(
    client: &mut C,
    response: &mut QueryResponse,
    max_rows: usize,
    interrupt: &Interrupt,
) -> PgWireResult<Option<Tag>>
where
    PgWireError: From<C::Error>,
{
    let mut n_rows = 0;
    let mut stopped = pin!(interrupt.triggered());
    loop {
        if max_rows > 0 && n_rows == max_rows {
            client.feed(PgWireBackendMessage::PortalSuspended(PortalSuspended::new())).await?;
            return Ok(None);
        }
        let row = tokio::select! {
            biased;
            error = &mut stopped => return Err(on_wire(error)),
            row = response.data_rows.next() => row,
        };
        match row {
            Some(row) => client.feed(PgWireBackendMessage::DataRow(row?)).await?,
            None => break,
        }
        n_rows += 1;
    }
    Ok(Some(Tag::rows(response.command_tag(), n_rows as u64)))
}

/// CommandComplete.
pub async fn complete<C: Client>(client: &mut C, tag: &Tag) -> PgWireResult<()>
where
    PgWireError: From<C::Error>,
{
    client.feed(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag.text()))).await?;
    Ok(())
}

/// A whole COPY TO: header and data. Its tag is still to be sent.
pub async fn copy_to<C: Client>(client: &mut C, copy: CopyTo, interrupt: &Interrupt) -> PgWireResult<Tag>
where
    PgWireError: From<C::Error>,
{
    let CopyTo { mut rows, format } = copy;
    let n_columns = rows.schema.fields().len();
    let binary = i8::from(format.kind.is_binary());
    let response = CopyOutResponse::new(binary, n_columns as i16, vec![binary.into(); n_columns]);
    client.feed(PgWireBackendMessage::CopyOutResponse(response)).await?;
    let mut encoder = CopyEncoder::new(&rows, &format).map_err(on_wire)?;
    let mut n_rows = 0;
    let mut stopped = pin!(interrupt.triggered());
    loop {
        let batch = tokio::select! {
            biased;
            error = &mut stopped => return Err(on_wire(error)),
            batch = rows.batches.next() => batch,
        };
        let Some(batch) = batch else { break };
        let batch = batch.map_err(on_wire)?;
        n_rows += batch.num_rows() as u64;
        for chunk in encoder.encode(&batch).map_err(on_wire)? {
            client.feed(PgWireBackendMessage::CopyData(CopyData::new(chunk))).await?;
        }
    }
    for chunk in encoder.finish().map_err(on_wire)? {
        client.feed(PgWireBackendMessage::CopyData(CopyData::new(chunk))).await?;
    }
    client.feed(PgWireBackendMessage::CopyDone(CopyDone::new())).await?;
    Ok(Tag::rows("COPY", n_rows))
}

enum CopyEncoder {
    /// `out` holds the header until the first row, then nothing between rows.
    Lines {
        fields: Arc<Vec<FieldInfo>>,
        format: Format,
        out: BytesMut,
    },
    /// `out` holds the header until the first row, which has it in its message, as in Postgres: drivers rely on it.
    Binary {
        fields: Arc<Vec<FieldInfo>>,
        style: Style,
        out: BytesMut,
    },
    Arrow(Box<StreamWriter<Vec<u8>>>),
}

impl CopyEncoder {
    fn new(rows: &ResultSet, format: &Format) -> Result<CopyEncoder> {
        if format.kind == CopyFormat::Arrow {
            return Ok(CopyEncoder::Arrow(Box::new(StreamWriter::try_new(Vec::new(), &rows.schema)?)));
        }
        if format.kind == CopyFormat::Binary {
            let fields = fields(&rows.schema, &WireFormat::UnifiedBinary)?;
            let out = BytesMut::from(&copy_binary::HEADER[..]);
            return Ok(CopyEncoder::Binary { fields, style: format.style.clone(), out });
        }
        let fields = fields(&rows.schema, &WireFormat::UnifiedText)?;
        debug_assert!(fields.iter().all(|f| f.format() == FieldFormat::Text));
        let mut out = BytesMut::new();
        if format.header {
            for (idx, field) in fields.iter().enumerate() {
                if idx > 0 {
                    out.put_u8(format.delimiter);
                }
                write_cell(&mut out, format, Some(field.name().as_bytes()));
            }
            out.put_u8(b'\n');
        }
        Ok(CopyEncoder::Lines { fields, format: format.clone(), out })
    }

    fn encode(&mut self, batch: &RecordBatch) -> Result<Vec<bytes::Bytes>> {
        let mut chunks = Vec::new();
        match self {
            CopyEncoder::Arrow(writer) => {
                writer.write(batch)?;
                chunks.push(std::mem::take(writer.get_mut()).into());
            }
            CopyEncoder::Lines { fields, format, out } => {
                if !out.is_empty() {
                    chunks.push(out.split().freeze());
                }
                let writer = RowWriter::new(batch, fields, &format.style)?;
                let mut cell = BytesMut::new();
                for row in 0..writer.n_rows() {
                    for column in 0..fields.len() {
                        if column > 0 {
                            out.put_u8(format.delimiter);
                        }
                        cell.clear();
                        let present = writer.text(row, column, &mut cell)?;
                        write_cell(out, format, present.then_some(&cell[..]));
                    }
                    out.put_u8(b'\n');
                    // One message a row, as Postgres does: drivers rely on it.
                    chunks.push(out.split().freeze());
                }
            }
            CopyEncoder::Binary { fields, style, out } => {
                let writer = RowWriter::new(batch, fields, style)?;
                for row in 0..writer.n_rows() {
                    out.put_i16(fields.len() as i16);
                    writer.cells(row, out)?;
                    chunks.push(out.split().freeze());
                }
            }
        }
        Ok(chunks)
    }

    fn finish(self) -> Result<Vec<bytes::Bytes>> {
        let last: bytes::Bytes = match self {
            CopyEncoder::Arrow(mut writer) => {
                writer.finish()?;
                writer.into_inner().map_err(SqlError::from)?.into()
            }
            CopyEncoder::Binary { mut out, .. } => {
                out.put_i16(copy_binary::END);
                out.freeze()
            }
            CopyEncoder::Lines { out, .. } => out.freeze(),
        };
        Ok(if last.is_empty() { Vec::new() } else { vec![last] })
    }
}
