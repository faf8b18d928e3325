//! How does bulk data get in and out?
//!
//! `COPY FROM` is a pipeline: the connection hands over bytes, one thread decodes and encodes, one task commits, with bounded
//! queues between. Every batch is one commit a tablet, all or nothing; a bad row fails its whole batch, and batches before
//! it stay, which the error says. Inside BEGIN everything is held until COMMIT.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::StreamDecoder;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::ast::{
    CopySource, CopyTarget, Expr, Ident, Query, SelectItem, Statement, WildcardAdditionalOptions,
};
use futures::StreamExt;
use tarn_query::dml::{rows_of, table_of};
use tarn_types::{MutationBatch, Op, TableSchema, batches_from_columns, conform};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::answer::Rows;
use super::{Answer, Held, Session};
use crate::catalog::TableHandle;
use crate::error::{Result, SqlError, state};
use crate::node::Node;
use crate::pg::copy_format::{Format, Kind, Splitter};
use crate::statement::{fold, shown, table_name};
use crate::write::affected;

/// Messages waiting to be decoded.
const INPUT_QUEUE: usize = 16;

/// Encoded batches waiting to be committed.
const COMMIT_QUEUE: usize = 2;

/// A batch is cut when its columns take more memory than this.
const MAX_BATCH_BYTES: usize = 32 << 20;

/// A COPY TO that is about to run.
pub struct CopyTo {
    pub rows: Rows,
    pub format: Format,
}

/// A COPY FROM that is running.
pub struct CopyFrom {
    pub format: Format,
    pub n_columns: usize,
    input: Option<mpsc::Sender<Input>>,
    task: JoinHandle<Result<Done>>,
}

enum Input {
    Data(Bytes),
    /// The client said that this was all. A queue that closes without it was aborted.
    End,
}

/// What a pipeline did.
struct Done {
    rows: u64,
    /// Inside BEGIN: what is to be held.
    held: Option<Held>,
}

/// Rows on their way to the log.
struct Encoded {
    batches: Vec<MutationBatch>,
}

impl CopyFrom {
    /// Hands over bytes; waits while the pipeline is full. An error ends the COPY.
    pub async fn push(&mut self, data: Bytes) -> Result<()> {
        let Some(input) = &self.input else { return Ok(()) };
        if input.send(Input::Data(data)).await.is_ok() {
            return Ok(());
        }
        // The pipeline ended early: it knows why.
        self.input = None;
        let ended = (&mut self.task).await.map_err(died)?;
        ended.map(|_| ())
    }

    /// All data was sent: commits what is left and answers how many rows were written.
    pub async fn finish(mut self, session: &Session) -> Result<u64> {
        if let Some(input) = self.input.take() {
            let _ = input.send(Input::End).await;
        }
        let done = self.task.await.map_err(died)??;
        if let Some(held) = done.held {
            session.hold(held)?;
        }
        Ok(done.rows)
    }

    /// The client gave up: nothing more is committed. Batches that were stay.
    pub async fn abort(mut self) {
        self.input = None;
        let _ = self.task.await;
    }
}

fn died(error: tokio::task::JoinError) -> SqlError {
    SqlError::new(state::INTERNAL, format!("the COPY pipeline died: {error}"))
}

impl Session {
    /// What is wrong with a COPY statement is said when it is prepared: some drivers lose count of messages when it is
    /// said later.
    pub(super) fn check_copy(&self, statement: &Statement) -> Result<()> {
        let Statement::Copy { source, to, target, options, legacy_options, .. } = statement else { return Ok(()) };
        check_target(target)?;
        Format::new(options, legacy_options)?;
        self.allow_copy(statement)?;
        match source {
            CopySource::Table { table_name: name, columns } if !to => {
                column_positions(self.node.catalog().require(&table_name(name)?)?.schema(), columns).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Starts a COPY statement.
    pub(super) async fn copy(&self, statement: &Statement) -> Result<Answer> {
        let Statement::Copy { source, to, options, legacy_options, .. } = statement else {
            return Err(SqlError::new(state::INTERNAL, "not a COPY"));
        };
        self.check_copy(statement)?;
        let format = Format::new(options, legacy_options)?;
        if *to {
            return self.copy_to(source, format).await;
        }
        let CopySource::Table { table_name: name, columns } = source else {
            return Err(SqlError::new(state::SYNTAX_ERROR, "COPY FROM needs a table"));
        };
        let handle = self.node.catalog().require(&table_name(name)?)?;
        let columns = column_positions(handle.schema(), columns)?;
        let hold = self.transaction.lock().must_hold()?;
        Ok(Answer::CopyFrom(Box::new(start(Arc::clone(&self.node), handle, columns, format, hold))))
    }

    async fn copy_to(&self, source: &CopySource, format: Format) -> Result<Answer> {
        let (name, columns) = match source {
            CopySource::Query(query) => return self.copy_query(query, format).await,
            CopySource::Table { table_name, columns } => (table_name, columns),
        };
        let columns = match columns.as_slice() {
            [] => vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
            columns => columns.iter().map(|column| SelectItem::UnnamedExpr(Expr::Identifier(column.clone()))).collect(),
        };
        self.copy_statement(&rows_of(columns, table_of(name.clone()), None), format).await
    }

    async fn copy_query(&self, query: &Query, format: Format) -> Result<Answer> {
        self.copy_statement(&Statement::Query(Box::new(query.clone())), format).await
    }

    async fn copy_statement(&self, statement: &Statement, format: Format) -> Result<Answer> {
        self.transaction.lock().check_read()?;
        let plan = self.permitted(self.plan(statement, &[]).await?)?;
        let stream = self.query.stream(plan, None).await?;
        let schema = shown(&stream.schema());
        let rows = Rows { schema, batches: stream.map(|batch| batch.map_err(SqlError::from)).boxed(), command: "COPY" };
        Ok(Answer::CopyTo(CopyTo { rows, format }))
    }

    pub(super) fn hold(&self, held: Held) -> Result<()> {
        self.transaction.lock().hold(held, self.node.settings().transaction_bytes)
    }
}

fn check_target(target: &CopyTarget) -> Result<()> {
    match target {
        CopyTarget::Stdin | CopyTarget::Stdout => Ok(()),
        other => Err(SqlError::unsupported(
            format!("COPY with {other}: the server reads and writes no files"),
            "use FROM STDIN or TO STDOUT (psql: \\copy), or `tarn load FILE --table t`",
        )),
    }
}

fn column_positions(schema: &TableSchema, columns: &[Ident]) -> Result<Vec<usize>> {
    if columns.is_empty() {
        return Ok((0..schema.columns.len()).collect());
    }
    let mut positions = Vec::with_capacity(columns.len());
    for column in columns {
        let name = fold(column);
        let (idx, _) = schema.column(&name).ok_or_else(|| SqlError::undefined_column(&schema.name, &name))?;
        if positions.contains(&idx) {
            return Err(SqlError::new(state::DUPLICATE_COLUMN, format!("column \"{name}\" specified more than once")));
        }
        positions.push(idx);
    }
    Ok(positions)
}

fn start(node: Arc<Node>, handle: Arc<TableHandle>, columns: Vec<usize>, format: Format, hold: bool) -> CopyFrom {
    let (input, received) = mpsc::channel(INPUT_QUEUE);
    let (encoded, to_commit) = mpsc::channel(COMMIT_QUEUE);
    let n_columns = columns.len();
    let decoder = Decoder::new(format.clone(), Arc::clone(handle.schema()), columns, node.settings().copy_batch_rows);
    tokio::task::spawn_blocking(move || decode(decoder, received, &encoded));
    let task = tokio::spawn(commit(node, handle, to_commit, hold));
    CopyFrom { format, n_columns, input: Some(input), task }
}

/// The decoding thread: ends when the input does, or when nobody commits any more.
fn decode(mut decoder: Decoder, mut received: mpsc::Receiver<Input>, encoded: &mpsc::Sender<Result<Encoded>>) {
    let step = |decoder: &mut Decoder, input: Input| -> Result<bool> {
        let is_last = matches!(input, Input::End);
        match input {
            Input::Data(data) => decoder.push(data)?,
            Input::End => decoder.end()?,
        }
        while let Some(rows) = decoder.take(is_last)? {
            let batches = batches_from_columns(&decoder.table, &rows, Op::Put).map_err(|e| decoder.place(e.into()))?;
            decoder.n_rows += rows.num_rows() as u64;
            if encoded.blocking_send(Ok(Encoded { batches })).is_err() {
                return Ok(false);
            }
        }
        Ok(!is_last)
    };
    while let Some(input) = received.blocking_recv() {
        match step(&mut decoder, input) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                let _ = encoded.blocking_send(Err(error));
                return;
            }
        }
    }
    let _ = encoded.blocking_send(Err(SqlError::new(state::QUERY_CANCELED, "COPY FROM was aborted by the client")));
}

/// The committing task.
async fn commit(
    node: Arc<Node>,
    handle: Arc<TableHandle>,
    mut encoded: mpsc::Receiver<Result<Encoded>>,
    hold: bool,
) -> Result<Done> {
    let limit = node.settings().transaction_bytes as usize;
    let (mut rows, mut kept, mut kept_bytes) = (0, Vec::new(), 0);
    while let Some(next) = encoded.recv().await {
        let step = async {
            let Encoded { batches } = next?;
            if !hold {
                return affected(&handle, &node.write(&handle, batches).await?);
            }
            let n_rows = batches.iter().map(|batch| batch.len() as u64).sum();
            kept_bytes += batches.iter().map(MutationBatch::size_bytes).sum::<usize>();
            kept.extend(batches);
            if kept_bytes > limit {
                return Err(SqlError::new(
                    state::PROGRAM_LIMIT,
                    format!("COPY inside BEGIN holds more than {limit} bytes"),
                )
                .with_hint("COPY outside a transaction (autocommit), or raise the setting transaction_bytes"));
            }
            Ok(n_rows)
        };
        rows += step.await.map_err(|error: SqlError| {
            let committed = if hold { 0 } else { rows };
            match error.detail() {
                Some(detail) => {
                    let detail = format!("{detail}; {committed} rows before it are committed");
                    error.with_detail(detail)
                }
                None => error.with_detail(format!(
                    "{committed} rows before the batch with this error are committed, none of the batch is"
                )),
            }
        })?;
    }
    let held = (hold && rows > 0).then(|| Held::new(Arc::clone(handle.schema()), kept, true));
    Ok(Done { rows, held })
}

/// Bytes to batches of the table.
struct Decoder {
    table: Arc<TableSchema>,
    input: Source,
    batch_rows: usize,
    /// Arrow batches waiting to be long enough.
    waiting: Vec<RecordBatch>,
    n_waiting: usize,
    /// Rows given out so far, for errors.
    n_rows: u64,
}

enum Source {
    Text { splitter: Splitter, last: bool },
    Arrow(Box<StreamDecoder>),
}

impl Decoder {
    fn new(format: Format, table: Arc<TableSchema>, columns: Vec<usize>, batch_rows: usize) -> Decoder {
        let input = match format.kind {
            Kind::Arrow => Source::Arrow(Box::new(StreamDecoder::new())),
            _ => Source::Text { splitter: Splitter::new(format, Arc::clone(&table), columns), last: false },
        };
        Decoder { table, input, batch_rows, waiting: Vec::new(), n_waiting: 0, n_rows: 0 }
    }

    fn push(&mut self, data: Bytes) -> Result<()> {
        match &mut self.input {
            Source::Text { splitter, .. } => splitter.push(&data, self.batch_rows),
            Source::Arrow(decoder) => {
                let mut buffer = Buffer::from(data);
                while !buffer.is_empty() {
                    let batch = decoder.decode(&mut buffer).map_err(|e| bad_stream(&e))?;
                    if let Some(batch) = batch {
                        self.n_waiting += batch.num_rows();
                        self.waiting.push(batch);
                    }
                }
                Ok(())
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        match &mut self.input {
            Source::Text { splitter, last } => {
                *last = true;
                splitter.finish(self.batch_rows)
            }
            Source::Arrow(decoder) => decoder.finish().map_err(|e| bad_stream(&e)),
        }
    }

    /// The next batch that is long enough; with `is_last` whatever there is.
    fn take(&mut self, is_last: bool) -> Result<Option<RecordBatch>> {
        match &mut self.input {
            Source::Text { splitter, last } => {
                if splitter.n_records() < self.batch_rows && !is_last {
                    return Ok(None);
                }
                let Some(batch) = splitter.take()? else { return Ok(None) };
                if *last {
                    splitter.finish(self.batch_rows)?
                } else {
                    splitter.push(&[], self.batch_rows)?
                }
                Ok(Some(conform(&batch, &self.table)?))
            }
            Source::Arrow(_) => {
                if self.n_waiting == 0 || (self.n_waiting < self.batch_rows && !is_last) {
                    return Ok(None);
                }
                let whole = match self.waiting.as_slice() {
                    [one] => one.clone(),
                    several => concat_batches(&several[0].schema(), several)?,
                };
                let n_take = whole.num_rows().min(rows_that_fit(&whole, self.batch_rows));
                let rest = whole.slice(n_take, whole.num_rows() - n_take);
                self.n_waiting = rest.num_rows();
                self.waiting.clear();
                if rest.num_rows() > 0 {
                    self.waiting.push(rest);
                }
                let taken = conform(&whole.slice(0, n_take), &self.table).map_err(|e| self.place(e.into()))?;
                Ok(Some(taken))
            }
        }
    }

    /// Rows in errors are counted from the batch's first; say where that is.
    fn place(&self, error: SqlError) -> SqlError {
        match self.input {
            Source::Arrow(_) => error.with_detail(format!("rows are counted from row {} of the data", self.n_rows)),
            Source::Text { .. } => error,
        }
    }
}

/// Rows of one commit: as many as wanted, fewer when they are wide. A little more is better than a short rest.
fn rows_that_fit(batch: &RecordBatch, wanted: usize) -> usize {
    let per_row = (batch.get_array_memory_size() / batch.num_rows().max(1)).max(1);
    let most = (MAX_BATCH_BYTES / per_row).max(1);
    if batch.num_rows() <= wanted * 2 { batch.num_rows().min(most) } else { wanted.min(most) }
}

fn bad_stream(error: &ArrowError) -> SqlError {
    SqlError::new(state::BAD_COPY_FORMAT, format!("the data is no Arrow IPC stream: {error}"))
}
