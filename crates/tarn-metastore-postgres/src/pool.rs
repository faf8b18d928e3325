//! How do statements reach the server, and what does it mean when no answer comes?
//!
//! Up to eight connections, made when they are needed, each with its prepared statements. One that failed in any way is
//! closed, never used again: nobody knows what is still on its way. Statements that do not need each other's answers go
//! in one *flight*: all are sent, then all answers read, in order.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::error::Severity;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row, Statement};

use tarn_metastore::Error;

use crate::remote::Target;

/// Connections of one metastore, at most.
const CONNECTIONS: usize = 8;

/// The first pause before a change is looked for whose answer was lost; each is twice the one before it, up to the
/// time-out.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A parameter of a statement, owned by it.
pub(crate) type Param = Box<dyn ToSql + Send + Sync>;

/// The parameters of a statement.
macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$(Box::new($value) as $crate::pool::Param),*] };
}
pub(crate) use params;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// The server is away, or too slow, or went away: what was asked last may have happened.
    Lost(BoxError),
    /// The server said no: what was asked did not happen, and its transaction is void.
    Refused(tokio_postgres::Error),
    /// What is stored is not what was written.
    Damaged { place: String, reason: String },
    /// We say no.
    Ours(Error),
}

impl From<tokio_postgres::Error> for RequestFailure {
    fn from(error: tokio_postgres::Error) -> Self {
        let severity = error.as_db_error().and_then(tokio_postgres::error::DbError::parsed_severity);
        match severity {
            // After a fatal error the connection is gone, and so is the knowledge of what happened before.
            Some(Severity::Error) => Self::Refused(error),
            _ => Self::Lost(Box::new(error)),
        }
    }
}

impl From<Error> for RequestFailure {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

impl RequestFailure {
    /// A table or column that is not there (any more): the schema version changed.
    pub fn is_undefined(&self) -> bool {
        use tokio_postgres::error::SqlState;
        matches!(self, Self::Refused(e) if matches!(e.code(), Some(&SqlState::UNDEFINED_TABLE | &SqlState::UNDEFINED_COLUMN)))
    }
}

/// A statement of a flight.
pub(crate) enum FlightStatement {
    /// Without parameters and answers: `BEGIN`, `COMMIT`.
    Plain(&'static str),
    Query(&'static str, Vec<Param>),
}

pub(crate) struct Pool {
    target: Target,
    runtime: tokio::runtime::Handle,
    idle: Mutex<Vec<PoolSession>>,
    permits: Semaphore,
}

struct PoolSession {
    client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

/// A connection in use. Closed when it is dropped, unless it was given back.
pub(crate) struct Connection<'a> {
    pool: &'a Pool,
    session: Option<PoolSession>,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    /// Connects when first asked. The driver's tasks run on `runtime`.
    pub fn new(target: Target, runtime: tokio::runtime::Handle) -> Self {
        Self { target, runtime, idle: Mutex::default(), permits: Semaphore::new(CONNECTIONS) }
    }

    /// For errors: host and port, without user and password.
    pub fn address(&self) -> &str {
        &self.target.address
    }

    /// The schema of the database that has the tables.
    pub fn schema(&self) -> &str {
        &self.target.schema
    }

    /// A free connection, or a new one.
    pub async fn take(&self) -> Result<Connection<'_>, RequestFailure> {
        let permit = self.within(async { Ok(self.permits.acquire().await) }).await?;
        let permit = permit.map_err(|e| RequestFailure::Lost(Box::new(e)))?;
        let idle = std::iter::from_fn(|| self.idle.lock().pop()).find(|session| !session.client.is_closed());
        let session = match idle {
            Some(session) => session,
            None => self.connect().await?,
        };
        Ok(Connection { pool: self, session: Some(session), _permit: permit })
    }

    async fn connect(&self) -> Result<PoolSession, RequestFailure> {
        let connecting = async { Ok(self.target.config.connect(NoTls).await?) };
        let (client, connection) = self.within(connecting).await?;
        // It ends when the client is dropped; what goes wrong with it, the client says.
        self.runtime.spawn(async move { drop(connection.await) });
        Ok(PoolSession { client, statements: Mutex::default() })
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, RequestFailure>>) -> Result<T, RequestFailure> {
        match tokio::time::timeout(self.target.timeout, work).await {
            Ok(done) => done,
            Err(_) => {
                let reason = format!("no answer in {} ms", self.target.timeout.as_millis());
                Err(RequestFailure::Lost(reason.into()))
            }
        }
    }

    /// For whoever asked. Of a change: it did not happen.
    pub fn error(&self, failure: RequestFailure) -> Error {
        let unavailable = |source: BoxError| Error::Unavailable {
            address: self.target.address.clone(),
            setting: "metastore",
            source,
        };
        match failure {
            RequestFailure::Lost(source) => unavailable(source),
            RequestFailure::Refused(source) => unavailable(Box::new(source)),
            RequestFailure::Damaged { place, reason } => {
                Error::Damaged { address: self.target.address.clone(), what: place, reason }
            }
            RequestFailure::Ours(error) => error,
        }
    }

    /// Of a change that may have happened.
    pub fn unknown(&self, source: BoxError) -> Error {
        Error::Indeterminate { action: "change", place: format!("metastore at {}", self.target.address), source }
    }

    /// What becomes of a change after an attempt that failed. `None`: it is tried again, after a while.
    pub async fn after(&self, doubt: bool, n_tries: u32, failure: RequestFailure) -> Option<Error> {
        let pause = FIRST_PAUSE * 2_u32.saturating_pow(n_tries);
        match failure {
            RequestFailure::Lost(_) | RequestFailure::Refused(_) if doubt && pause <= self.target.timeout => {
                // The server may be on its way back.
                tokio::time::sleep(pause).await;
                None
            }
            RequestFailure::Lost(source) if doubt => Some(self.unknown(source)),
            RequestFailure::Refused(source) if doubt => Some(self.unknown(Box::new(source))),
            // What cannot be looked at any more, and was there when the change was made.
            failure @ (RequestFailure::Damaged { .. }
            | RequestFailure::Ours(Error::NoTableId { .. } | Error::SchemaVersion { .. }))
                if doubt =>
            {
                Some(self.unknown(Box::new(self.error(failure))))
            }
            // The connection was idle, and turned out to be gone.
            failure if failure.is_broken() && n_tries == 0 => None,
            failure => Some(self.error(failure)),
        }
    }

    /// After a loss, connections that are idle may be as dead as the one before.
    pub async fn take_for_change(&self, after_loss: bool) -> Result<Connection<'_>, RequestFailure> {
        if after_loss {
            self.idle.lock().clear();
        }
        self.take().await
    }
}

impl Connection<'_> {
    /// For the next who needs one. Only after all that was asked was answered, outside of a transaction.
    pub fn give_back(mut self) {
        self.pool.idle.lock().extend(self.session.take());
    }

    /// Ends a transaction that changed nothing.
    pub async fn roll_back(self) {
        if self.plain("ROLLBACK").await.is_ok() {
            self.give_back();
        }
    }

    /// The last steps of a transaction. `doubt` stays set when nobody knows whether they happened.
    pub async fn commit(self, mut steps: Vec<FlightStatement>, doubt: &mut bool) -> Result<(), RequestFailure> {
        steps.push(FlightStatement::Plain("COMMIT"));
        *doubt = true;
        let done = self.flight(steps).await;
        *doubt = matches!(done, Err(RequestFailure::Lost(_)));
        done?;
        self.give_back();
        Ok(())
    }

    fn session(&self) -> &PoolSession {
        self.session.as_ref().expect("a connection has a session until it is given back")
    }

    async fn statement(&self, sql: &'static str) -> Result<Statement, RequestFailure> {
        let session = self.session();
        let known = session.statements.lock().get(sql).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let prepared = session.client.prepare(sql).await?;
        session.statements.lock().insert(sql, prepared.clone());
        Ok(prepared)
    }

    /// One statement and all its rows; prepared once on each connection.
    pub async fn query(&self, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>, RequestFailure> {
        let mut answers = self.flight(vec![FlightStatement::Query(sql, params)]).await?;
        Ok(answers.pop().expect("one answer for each step"))
    }

    /// A statement without parameters and rows, not prepared: `BEGIN`, `COMMIT`.
    pub async fn plain(&self, sql: &'static str) -> Result<(), RequestFailure> {
        self.flight(vec![FlightStatement::Plain(sql)]).await.map(drop)
    }

    /// Statements with names in them: rare ones, of the schema.
    pub async fn script(&self, sql: &str) -> Result<(), RequestFailure> {
        self.pool.within(async { Ok(self.session().client.batch_execute(sql).await?) }).await
    }

    /// Sends all, then reads all answers: one for each step. The first failure counts; later steps of a transaction
    /// failed with it.
    pub async fn flight(&self, steps: Vec<FlightStatement>) -> Result<Vec<Vec<Row>>, RequestFailure> {
        self.pool.within(self.fly(steps)).await
    }

    async fn fly(&self, steps: Vec<FlightStatement>) -> Result<Vec<Vec<Row>>, RequestFailure> {
        let client = &self.session().client;
        let mut answers: Vec<ResponseFuture<'_>> = Vec::with_capacity(steps.len());
        for step in steps {
            answers.push(match step {
                FlightStatement::Plain(sql) => Box::pin(async move {
                    client.batch_execute(sql).await.map(|()| Vec::new()).map_err(RequestFailure::from)
                }),
                FlightStatement::Query(sql, params) => {
                    let statement = self.statement(sql).await?;
                    Box::pin(async move {
                        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| &**param as _).collect();
                        Ok(client.query(&statement, &params).await?)
                    })
                }
            });
        }
        in_order(answers).await
    }
}

type ResponseFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, RequestFailure>> + Send + 'a>>;

/// Each is begun before the first is answered, in this order: a statement is sent when it is first polled.
async fn in_order(mut answering: Vec<ResponseFuture<'_>>) -> Result<Vec<Vec<Row>>, RequestFailure> {
    let mut answers: Vec<Option<Result<Vec<Row>, RequestFailure>>> = answering.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let mut is_waiting = false;
        for (answering, answer) in answering.iter_mut().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
            match answering.as_mut().poll(cx) {
                Poll::Ready(answered) => *answer = Some(answered),
                Poll::Pending => is_waiting = true,
            }
        }
        if is_waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    // The first failure counts: what was refused voids its transaction, whatever became of the rest.
    let mut all = Vec::with_capacity(answers.len());
    for answer in answers {
        all.push(answer.expect("all were answered")?);
    }
    Ok(all)
}

/// Asks again, once, on a new connection when the one that was idle turned out to be gone. For questions only.
macro_rules! ask {
    ($pool:expr, $connection:ident => $question:expr) => {{
        let pool: &$crate::pool::Pool = $pool;
        let mut again = true;
        loop {
            let $connection = pool.take().await?;
            match $question.await {
                Ok(answer) => {
                    $connection.give_back();
                    break Ok::<_, $crate::pool::RequestFailure>(answer);
                }
                Err(failure) if again && failure.is_broken() => again = false,
                Err(failure) => break Err(failure),
            }
        }
    }};
}
pub(crate) use ask;

impl RequestFailure {
    /// The connection broke; a time-out is not that.
    pub fn is_broken(&self) -> bool {
        matches!(self, Self::Lost(source) if source.is::<tokio_postgres::Error>())
    }
}

/// Tries a change until it is known whether it happened. An attempt sets `doubt` while it is not
/// ([`Connection::commit`]), and finds, holding the same lock, what an earlier one did: an earlier transaction has
/// ended by then, one way or the other.
macro_rules! change {
    ($pool:expr, $doubt:ident => $attempt:expr) => {{
        let pool: &$crate::pool::Pool = $pool;
        let mut $doubt = false;
        let mut n_tries = 0;
        loop {
            match $attempt.await {
                Ok(answer) => break Ok(answer),
                Err(failure) => match pool.after($doubt, n_tries, failure).await {
                    Some(error) => break Err(error),
                    None => n_tries += 1,
                },
            }
        }
    }};
}
pub(crate) use change;

/// A column of a row.
pub(crate) fn col<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, idx: usize) -> Result<T, RequestFailure> {
    row.try_get(idx)
        .map_err(|error| RequestFailure::Damaged { place: "an answer".to_owned(), reason: error.to_string() })
}
