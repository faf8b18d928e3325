//! How does bulk data get in?
//!
//! `COPY FROM` is a pipeline: the connection hands over bytes, one task decodes and encodes, one commits, with bounded
//! queues between. A thread is taken for each step, none while the client is silent. Every batch is one commit a
//! tablet, all or nothing; a bad row fails its whole batch, and batches before it stay, which the error says. Inside
//! BEGIN everything is held until COMMIT. What becomes of rows whose key is there `on_conflict` says: a row that may
//! not be there is named by its line.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::StreamDecoder;
use datafusion::arrow::record_batch::RecordBatch;
use tarn_node::auth::{Principal, Privilege};
use tarn_node::catalog::TableHandle;
use tarn_node::write::{Waiter, all_written};
use tarn_query::OnKey;
use tarn_types::{MutationBatch, Op, TableSchema, Zone, batch_from_columns, conform};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::compiled_rules::{DefaultFiller, RowRules};
use super::gather::RowGatherer;
use super::interrupt::{Interruptible, part_of_it, unless};
use super::on_key::op_of;
use crate::copy_binary::BinaryReader;
use crate::copy_format::{CopyFormat, Format, RowReader, Splitter};
use crate::duplicate::duplicate;
use crate::error::{Result, SqlError, state};
use crate::requests::Digest;
use crate::service::Sql;
use crate::transaction::{PendingChanges, no_room};
use crate::{encoding, quiet};

/// Messages waiting to be decoded.
const INPUT_QUEUE: usize = 16;

/// Bytes that are decoded at once, on a thread.
const STEP_BYTES: usize = 256 << 10;

/// Encoded batches waiting to be committed.
const COMMIT_QUEUE: usize = 2;

/// A COPY FROM that is running.
pub struct CopyFrom {
    /// Of the data that come.
    pub format: Format,
    /// Fields of each row.
    pub n_columns: usize,
    /// Closed when the data has ended, or the pipeline.
    input: Option<mpsc::Sender<CopyMessage>>,
    /// None when it is known how it ended.
    task: Option<JoinHandle<PipelineResult>>,
    /// Nothing more is committed.
    stop: CancellationToken,
    /// Of the statement and all data, where the client named the request.
    digest: Option<Digest>,
}

enum CopyMessage {
    Data(Bytes),
    /// The client said that this was all. A queue that closes without it was aborted.
    End,
}

/// What a pipeline did.
#[derive(Default)]
struct PipelineResult {
    /// Rows that are committed, or held.
    rows: u64,
    /// Inside BEGIN, and of a table with foreign keys: what is to be held.
    held: Option<PendingChanges>,
    error: Option<SqlError>,
}

impl CopyFrom {
    /// Hands over bytes; waits while the pipeline is full. An error ends the COPY.
    pub async fn push(&mut self, data: Bytes) -> Result<()> {
        if let Some(digest) = &mut self.digest {
            digest.and(&data);
        }
        let Some(input) = &self.input else { return Ok(()) };
        if input.send(CopyMessage::Data(data)).await.is_ok() {
            return Ok(());
        }
        // The pipeline ended early: it knows why.
        let error = self.ended().await.error;
        Err(error.unwrap_or_else(|| SqlError::new(state::INTERNAL, "the COPY pipeline ended before its data")))
    }

    /// Has a digest made of all that comes, behind what `begun` is of.
    pub(super) fn digests(&mut self, begun: Digest) {
        self.digest = Some(begun);
    }

    /// Takes all data and writes none of it: the request was made before.
    pub(super) fn writes_nothing(&mut self) {
        self.stop.cancel();
        (self.input, self.task) = (None, None);
    }

    /// The digest of the statement and all data.
    pub(super) fn digest(&self) -> Option<u64> {
        self.digest.as_ref().map(Digest::number)
    }

    /// Returns when the pipeline has failed, though the client is silent: it waits for the error.
    pub async fn failed(&mut self) -> SqlError {
        if let Some(input) = &self.input {
            input.closed().await;
        }
        if self.task.is_none() {
            return std::future::pending().await;
        }
        let error = self.ended().await.error;
        error.unwrap_or_else(|| SqlError::new(state::INTERNAL, "the COPY pipeline ended before its data"))
    }

    /// All data was sent: commits what is left. Answers how many rows were written and, inside BEGIN, what is to be
    /// held.
    pub(super) async fn finish(&mut self) -> Result<(u64, Option<PendingChanges>)> {
        if let Some(input) = &self.input {
            let _ = input.send(CopyMessage::End).await;
        }
        let done = self.ended().await;
        match done.error {
            Some(error) => Err(error),
            None => Ok((done.rows, done.held)),
        }
    }

    /// Ends it before its data did: nothing more is committed. Batches that were stay, which the error says that
    /// `reason` becomes.
    pub async fn abort(&mut self, reason: SqlError) -> SqlError {
        self.stop.cancel();
        let done = self.ended().await;
        let committed = if done.held.is_some() { 0 } else { done.rows };
        // A write that failed just now may have happened: that is worse than being stopped.
        match done.error.filter(|error| error.state() == state::COMPLETION_UNKNOWN) {
            Some(error) => error,
            None => part_of_it(reason, committed),
        }
    }

    /// Waits for the pipeline. Asked once; later it did nothing.
    async fn ended(&mut self) -> PipelineResult {
        self.input = None;
        let Some(task) = &mut self.task else { return PipelineResult::default() };
        // Whoever is stopped while it waits here may ask again.
        let done = task.await;
        self.task = None;
        done.unwrap_or_else(|died| {
            let error = SqlError::new(state::COMPLETION_UNKNOWN, format!("the COPY pipeline died: {died}"));
            PipelineResult { error: Some(error), ..PipelineResult::default() }
        })
    }
}

impl Drop for CopyFrom {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Starts the pipeline of a COPY FROM into `columns` of a table; with `hold` its rows wait for COMMIT.
pub(super) fn start(
    sql: &Arc<Sql>,
    who: Principal,
    handle: Arc<TableHandle>,
    columns: Vec<usize>,
    format: Format,
    writing: Writing,
) -> CopyFrom {
    let (input, received) = mpsc::channel(INPUT_QUEUE);
    let (encoded, to_commit) = mpsc::channel(COMMIT_QUEUE);
    let n_columns = columns.len();
    let Writing { rules, on_key, hold } = writing;
    let schema = Arc::clone(handle.schema());
    let batch_rows = sql.settings().copy_batch_rows;
    let decoder = Decoder::new(format.clone(), schema, columns, batch_rows, rules, op_of(on_key));
    let zone = format.style.zone.clone();
    let stop = CancellationToken::new();
    tokio::spawn(decode(decoder, received, encoded));
    let writer = CopyWriter { who, stop: stop.clone(), is_submitted: AtomicBool::new(false) };
    let task = tokio::spawn(commit(Arc::clone(sql), handle, to_commit, hold, zone, writer));
    CopyFrom { format, n_columns, input: Some(input), task: Some(task), stop, digest: None }
}

/// The decoding task: ends when the input does, or when nobody commits any more.
async fn decode(
    mut decoder: Decoder,
    mut received: mpsc::Receiver<CopyMessage>,
    encoded: mpsc::Sender<Result<PlacedBatch>>,
) {
    let (mut waiting, mut n_waiting) = (Vec::new(), 0);
    while let Some(input) = received.recv().await {
        let is_last = matches!(input, CopyMessage::End);
        if let CopyMessage::Data(data) = input {
            n_waiting += data.len();
            waiting.push(data);
            if n_waiting < STEP_BYTES {
                continue;
            }
        }
        n_waiting = 0;
        let data = std::mem::take(&mut waiting);
        let stepped = tokio::task::spawn_blocking(move || {
            let (batches, error) = decoder.step(data, is_last);
            (decoder, batches, error)
        });
        let (back, batches, error) = match stepped.await {
            Ok(stepped) => stepped,
            Err(died) => {
                let error = SqlError::new(state::INTERNAL, format!("decoding the data of COPY died: {died}"));
                let _ = encoded.send(Err(error)).await;
                return;
            }
        };
        decoder = back;
        for next in batches.into_iter().map(Ok).chain(error.map(Err)) {
            let is_error = next.is_err();
            if encoded.send(next).await.is_err() || is_error {
                return;
            }
        }
        if is_last {
            return;
        }
    }
}

/// Who writes, and may be stopped.
struct CopyWriter {
    who: Principal,
    stop: CancellationToken,
    is_submitted: AtomicBool,
}

impl Waiter for CopyWriter {
    fn submits(&self) -> bool {
        let goes_on = !self.stop.is_cancelled();
        self.is_submitted.store(goes_on, Ordering::Release);
        goes_on
    }

    fn decided(&self, _: u64) {
        self.is_submitted.store(false, Ordering::Release);
    }
}

/// The committing task.
async fn commit(
    sql: Arc<Sql>,
    handle: Arc<TableHandle>,
    mut encoded: mpsc::Receiver<Result<PlacedBatch>>,
    hold: bool,
    zone: Zone,
    writer: CopyWriter,
) -> PipelineResult {
    let (tables, budget) = (sql.node().tables(), sql.held());
    let limit = sql.settings().transaction_bytes as usize;
    let (mut rows, mut kept, mut kept_bytes) = (0, Vec::new(), 0);
    // Until the session holds it, which counts it anew.
    let mut reservation = budget.reservation();
    let mut failed = None;
    loop {
        let step = async {
            let Some(next) = encoded.recv().await else { return Ok(None) };
            let PlacedBatch { batch, places } = next?;
            if !hold {
                let asked = vec![batch.clone()];
                let written = tables.write(&writer.who, &handle, Privilege::Insert, asked, &writer).await?;
                return match all_written(&handle, &written) {
                    Ok(n_rows) => Ok(Some(n_rows)),
                    Err(error) => Err(placed(error, &batch, &places, &zone)),
                };
            }
            let n_rows = batch.len() as u64;
            kept_bytes += batch.size_bytes();
            kept.push(batch);
            if kept_bytes > limit {
                return Err(SqlError::new(
                    state::PROGRAM_LIMIT,
                    format!("COPY holds more than {limit} bytes until COMMIT"),
                )
                .with_hint(
                    "COPY outside a transaction (autocommit), without tarn.idempotency_key and before ADD FOREIGN KEY, or in parts, or \
                     raise the setting transaction_bytes",
                ));
            }
            if !reservation.resize(kept_bytes as u64) {
                return Err(no_room(budget));
            }
            Ok(Some(n_rows))
        };
        let is_submitted = || writer.is_submitted.load(Ordering::Acquire);
        let (done, is_last) = match unless(writer.stop.cancelled(), pin!(step), is_submitted).await {
            Interruptible::Done(done) => (done, false),
            Interruptible::DoneAllTheSame(done, ()) => (done, true),
            Interruptible::Stopped(()) => break,
        };
        match done {
            Ok(None) => break,
            Ok(Some(n_rows)) => rows += n_rows,
            // Not wanted any more: whoever stopped it says why.
            Err(error) if is_last && error.state() == state::QUERY_CANCELED => break,
            Err(error) => {
                failed = Some(with_committed(error, if hold { 0 } else { rows }));
                break;
            }
        }
        if is_last {
            break;
        }
    }
    let held =
        (hold && rows > 0).then_some(PendingChanges { table: handle, privilege: Privilege::Insert, batches: kept });
    PipelineResult { rows, held, error: failed }
}

/// What stays of a COPY that failed.
fn with_committed(error: SqlError, committed: u64) -> SqlError {
    let told = match error.detail() {
        Some(detail) => format!("{}; {committed} rows before it are committed", detail.trim_end_matches('.')),
        None => format!("{committed} rows before the batch with this error are committed, none of the batch is"),
    };
    error.with_detail(told)
}

/// Rows that may be committed, and where they are from.
struct PlacedBatch {
    batch: MutationBatch,
    places: RowPositions,
}

/// Where the rows of a batch stand in the data.
enum RowPositions {
    /// The line of each.
    Lines(Vec<u64>),
    /// They follow so many others.
    Behind(u64),
}

/// An error of a commit: a row that was to be new is named by its place.
fn placed(error: tarn_node::error::Error, batch: &MutationBatch, places: &RowPositions, zone: &Zone) -> SqlError {
    let Some(existing) = error.existing() else { return error.into() };
    let rows = batch.iter().enumerate().filter(|(_, mutation)| mutation.key == existing.key).map(|(row, _)| row);
    let (what, numbers): (_, Vec<u64>) = match places {
        RowPositions::Lines(lines) => ("line", rows.filter_map(|row| lines.get(row).copied()).collect()),
        RowPositions::Behind(before) => ("row", rows.map(|row| before + row as u64 + 1).collect()),
    };
    let told = duplicate(existing, zone).with_hint(ON_CONFLICT_HINT);
    let table = &existing.table.name;
    match numbers[..] {
        [] => told,
        [only] => told.with_context(format!("COPY {table}, {what} {only}")),
        // It was there, or the second of them is one too many.
        [first, second, ..] => told.with_context(format!("COPY {table}, {what}s {first} and {second}")),
    }
}

const ON_CONFLICT_HINT: &str =
    "COPY … WITH (on_conflict = skip) leaves rows that are there, on_conflict = replace replaces them";

/// How rows that come are written.
pub(super) struct Writing {
    /// What the table's definition makes of rows.
    pub rules: Rules,
    /// What becomes of a row whose key is there.
    pub on_key: OnKey,
    /// Until COMMIT.
    pub hold: bool,
}

/// What the table's definition says of rows that come.
#[derive(Clone)]
pub(super) struct Rules {
    /// Defaults of columns that do not come.
    pub fills: DefaultFiller,
    /// What is computed and checked of those that are whole.
    pub row_rules: RowRules,
}

impl Rules {
    /// The rows as the table keeps them.
    fn rows(&self, rows: RecordBatch, table: &Arc<TableSchema>) -> Result<RecordBatch> {
        let rows = self.fills.fill(rows)?;
        self.row_rules.applied(conform(&rows, &table.before_generated())?)
    }
}

/// Bytes to batches of the table.
struct Decoder {
    table: Arc<TableSchema>,
    rules: Rules,
    /// Of each row.
    op: Op,
    input: CopyInput,
    batch_rows: usize,
    /// Rows given out so far, for errors.
    n_rows: u64,
}

enum CopyInput {
    Rows { reader: Box<dyn RowReader>, last: bool },
    Arrow { decoder: Box<StreamDecoder>, gathered: RowGatherer },
}

impl Decoder {
    fn new(
        format: Format,
        table: Arc<TableSchema>,
        columns: Vec<usize>,
        batch_rows: usize,
        rules: Rules,
        op: Op,
    ) -> Decoder {
        let input = match format.kind {
            CopyFormat::Arrow => {
                CopyInput::Arrow { decoder: Box::new(StreamDecoder::new()), gathered: RowGatherer::new(batch_rows) }
            }
            CopyFormat::Binary => {
                CopyInput::Rows { reader: Box::new(BinaryReader::new(Arc::clone(&table), columns)), last: false }
            }
            CopyFormat::Text | CopyFormat::Csv => {
                CopyInput::Rows { reader: Box::new(Splitter::new(format, Arc::clone(&table), columns)), last: false }
            }
        };
        Decoder { table, rules, op, input, batch_rows, n_rows: 0 }
    }

    /// Decodes some data, and all that is left behind the last. Batches that came before an error are good.
    fn step(&mut self, data: Vec<Bytes>, is_last: bool) -> (Vec<PlacedBatch>, Option<SqlError>) {
        let mut out = Vec::new();
        let decode = || -> Result<()> {
            for bytes in data {
                self.push(bytes)?;
                self.encode(false, &mut out)?;
            }
            if is_last {
                self.end()?;
                self.encode(true, &mut out)?;
            }
            Ok(())
        };
        let error = decode().err();
        (out, error)
    }

    /// Everything that is long enough, as mutations.
    fn encode(&mut self, is_last: bool, out: &mut Vec<PlacedBatch>) -> Result<()> {
        while let Some(rows) = self.take(is_last)? {
            let batch = batch_from_columns(&self.table, &rows, self.op).map_err(|e| self.place(e.into()))?;
            let places = match &mut self.input {
                CopyInput::Rows { reader, .. } => RowPositions::Lines(reader.take_lines()),
                CopyInput::Arrow { .. } => RowPositions::Behind(self.n_rows),
            };
            self.n_rows += rows.num_rows() as u64;
            out.push(PlacedBatch { batch, places });
            self.go_on()?;
        }
        Ok(())
    }

    fn push(&mut self, data: Bytes) -> Result<()> {
        match &mut self.input {
            CopyInput::Rows { reader, .. } => reader.push(&data, self.batch_rows),
            CopyInput::Arrow { decoder, gathered } => {
                let mut buffer = Buffer::from(data);
                while !buffer.is_empty() {
                    // The decoder asserts what a stream can break: offsets, lengths of buffers. What it made of them
                    // may not bear being looked at either.
                    let decode = || -> Result<_, ArrowError> {
                        decoder.decode(&mut buffer)?.into_iter().for_each(|batch| gathered.push(batch));
                        Ok(())
                    };
                    let decoded = quiet::catch(AssertUnwindSafe(decode));
                    decoded.map_err(broken_stream)?.map_err(|e| bad_stream(&e))?;
                }
                Ok(())
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        match &mut self.input {
            CopyInput::Rows { reader, last } => {
                *last = true;
                reader.finish(self.batch_rows)
            }
            CopyInput::Arrow { decoder, .. } => {
                let finished = quiet::catch(AssertUnwindSafe(|| decoder.finish()));
                finished.map_err(broken_stream)?.map_err(|e| bad_stream(&e))
            }
        }
    }

    /// The next batch that is long enough; with `is_last` whatever there is.
    fn take(&mut self, is_last: bool) -> Result<Option<RecordBatch>> {
        match &mut self.input {
            CopyInput::Rows { reader, .. } => {
                if !reader.is_full(self.batch_rows) && !is_last {
                    return Ok(None);
                }
                let Some(batch) = reader.take()? else { return Ok(None) };
                self.rules.rows(batch, &self.table).map(Some)
            }
            CopyInput::Arrow { gathered, .. } => {
                let (table, rules) = (&self.table, &self.rules);
                let take = || -> Result<Option<Result<RecordBatch>>, ArrowError> {
                    let Some(rows) = gathered.take(is_last)? else { return Ok(None) };
                    let rows = rules.rows(rows, table);
                    Ok(Some(rows.and_then(|rows| encoding::check_columns(&rows).map(|()| rows))))
                };
                let taken = quiet::catch(AssertUnwindSafe(take)).map_err(broken_stream)?;
                taken?.transpose().map_err(|error| self.place(error))
            }
        }
    }

    /// Reads on in what has come, after a batch was taken.
    fn go_on(&mut self) -> Result<()> {
        match &mut self.input {
            CopyInput::Rows { reader, last: true } => reader.finish(self.batch_rows),
            CopyInput::Rows { reader, last: false } => reader.push(&[], self.batch_rows),
            CopyInput::Arrow { .. } => Ok(()),
        }
    }

    /// Rows in errors are counted from the batch's first; say where that is.
    fn place(&self, error: SqlError) -> SqlError {
        match self.input {
            CopyInput::Arrow { .. } => {
                error.with_detail(format!("rows are counted from row {} of the data", self.n_rows))
            }
            CopyInput::Rows { .. } => error,
        }
    }
}

fn bad_stream(error: &ArrowError) -> SqlError {
    SqlError::new(state::BAD_COPY_FORMAT, format!("the data is no Arrow IPC stream: {error}"))
}

fn broken_stream(panic: String) -> SqlError {
    SqlError::new(state::BAD_COPY_FORMAT, format!("the data is no Arrow IPC stream: {panic}"))
}
