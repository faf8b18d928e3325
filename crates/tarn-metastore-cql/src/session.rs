//! How is one statement sent, and what does it mean when there is no answer?
//!
//! Statements are prepared when they are first used. Four kinds: reads and writes at quorum, which may be sent again;
//! serial reads, which see every conditional write that was ever answered; and conditional writes, which are sent once,
//! because only their sender knows what a lost answer means ([`Cas`]).

use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::response::PagingState;
use scylla::response::query_result::QueryRowsResult;
use scylla::serialize::batch::BatchValues;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchStatement, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};
use tokio::sync::OnceCell;

use tarn_metastore::{Error, Remote, Result};

use crate::patience::RetryBudget;
use crate::remote::Target;

/// The setting that a user changes when the store is elsewhere.
const SETTING: &str = "metastore";

/// A broken connection is waited for so long before a call that may be sent again fails.
const RECONNECT: Duration = Duration::from_millis(500);

/// Tables are made by all nodes together, one after the other: that takes longer than a request may.
const DEFINING: Duration = Duration::from_secs(60);

/// Rows of one answer. A partition of 2,000 blocks is one page.
const PAGE_ROWS: i32 = 5_000;

/// A connection to the store.
pub(crate) struct Store {
    session: Session,
    /// For messages.
    pub address: String,
    /// Requests of one call that are on the way at once.
    pub concurrency: usize,
    /// A request that takes longer is given up.
    pub timeout: Duration,
    consistency: Consistency,
    serial: (Consistency, SerialConsistency),
    /// Of reads; hedged, if that was asked for.
    reads: ExecutionProfileHandle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Read,
    Serial,
    Write,
    Conditional,
}

/// A statement that is prepared when it is first used.
pub(crate) struct Statement {
    sort: Sort,
    text: &'static str,
    prepared: OnceCell<PreparedStatement>,
}

impl Statement {
    /// Prepared when it is first used.
    pub const fn new(sort: Sort, text: &'static str) -> Self {
        Self { sort, text, prepared: OnceCell::const_new() }
    }
}

/// What became of a conditional write.
#[derive(Debug)]
pub(crate) enum Cas {
    Applied,
    /// The condition did not hold. Nothing was changed.
    Refused,
    /// It was never sent, or turned away before anything was done.
    Unsent(ExecutionError),
    /// It may have been applied, or be applied yet.
    Unknown(ExecutionError),
}

impl Store {
    /// The driver's tasks live on the runtime that calls.
    pub async fn connect(remote: &Remote, target: &Target) -> Result<Self> {
        let timeout = Duration::from_millis(remote.timeout_ms.max(1));
        let profile = ExecutionProfile::builder()
            .request_timeout(Some(timeout))
            .consistency(target.consistency)
            .serial_consistency(Some(target.serial().1));
        let hedge = SimpleSpeculativeExecutionPolicy {
            max_retry_count: 1,
            retry_interval: Duration::from_millis(remote.hedge_ms),
        };
        let reads = match remote.hedge_ms {
            0 => profile.clone().build(),
            _ => profile.clone().speculative_execution_policy(Some(Arc::new(hedge))).build(),
        };
        let mut builder = SessionBuilder::new()
            .known_nodes(&target.nodes)
            .connection_timeout(timeout)
            .metadata_request_clientside_timeout(timeout)
            // A connection that went silent is given up as soon as a request on it would be.
            .keepalive_interval((timeout / 2).max(Duration::from_secs(1)))
            .keepalive_timeout((timeout / 2).max(Duration::from_secs(1)))
            .default_execution_profile_handle(profile.build().into_handle())
            .keyspaces_to_fetch([&target.keyspace])
            .refresh_metadata_on_auto_schema_agreement(false)
            .schema_agreement_interval(Duration::from_millis(20));
        if let Some((user, password)) = &target.user {
            builder = builder.user(user, password);
        }
        if let Some(datacenter) = &target.datacenter {
            builder = builder.prefer_datacenter(datacenter.clone());
        }
        let address = target.address();
        let unavailable = |source: Box<dyn std::error::Error + Send + Sync>| Error::Unavailable {
            address: address.clone(),
            setting: SETTING,
            source,
        };
        let limit = timeout * 2;
        let session = match tokio::time::timeout(limit, builder.build()).await {
            Ok(Ok(session)) => session,
            Ok(Err(error)) => return Err(unavailable(Box::new(error))),
            Err(late) => return Err(unavailable(Box::new(late))),
        };
        let (consistency, serial) = (target.consistency, target.serial());
        let (concurrency, reads) = (remote.concurrency.max(1), reads.into_handle());
        Ok(Self { session, address, concurrency, timeout, consistency, serial, reads })
    }

    /// The store did not answer, and nothing was changed.
    pub fn unavailable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Unavailable { address: self.address.clone(), setting: SETTING, source: source.into() }
    }

    /// What was read is not what was written. `what`: where, in the words of the tables.
    pub fn damaged(&self, what: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Damaged { address: self.address.clone(), what: what.into(), reason: reason.into() }
    }

    async fn prepared<'a>(&self, statement: &'a Statement) -> Result<&'a PreparedStatement, ExecutionError> {
        let prepare = || async {
            let mut prepared = self.session.prepare(statement.text).await?;
            prepared.set_page_size(PAGE_ROWS);
            prepared.set_is_idempotent(statement.sort != Sort::Conditional);
            prepared.set_consistency(self.consistency);
            match statement.sort {
                Sort::Read => prepared.set_execution_profile_handle(Some(self.reads.clone())),
                Sort::Serial => prepared.set_consistency(self.serial.0),
                Sort::Write => {}
                Sort::Conditional => {
                    prepared.set_serial_consistency(Some(self.serial.1));
                    prepared.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
                }
            }
            Ok::<_, ExecutionError>(prepared)
        };
        statement.prepared.get_or_try_init(prepare).await
    }

    /// Changes tables or keyspaces, and waits until all nodes know.
    pub async fn define(&self, text: &str) -> Result<()> {
        let mut statement = scylla::statement::Statement::new(text);
        statement.set_request_timeout(Some(self.timeout.max(DEFINING)));
        self.session.query_unpaged(statement, ()).await.map(drop).map_err(|error| self.unavailable(error))
    }

    /// From here on, statements name tables of this keyspace.
    pub async fn use_keyspace(&self, keyspace: &str) -> Result<()> {
        self.session.use_keyspace(keyspace, false).await.map_err(|error| self.unavailable(error))
    }

    /// Asks the nodes which tables there are: prepared statements of ones that were made meanwhile work then.
    pub async fn refresh_metadata(&self) -> Result<()> {
        self.session.refresh_metadata().await.map_err(|error| self.unavailable(error))
    }

    /// Asks again for a moment when the connection is broken: another one is on its way, or the node is away.
    async fn connected<T, F: Future<Output = Result<T, ExecutionError>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<T, ExecutionError> {
        let mut patience = RetryBudget::new(self.timeout.min(RECONNECT));
        loop {
            match ask().await {
                Err(error) if is_disconnected(&error) && patience.again(false).await => {}
                other => return other,
            }
        }
    }

    /// Every page of the answer, in order.
    pub async fn read(
        &self,
        statement: &Statement,
        values: impl SerializeRow + Send + Sync,
        mut page: impl FnMut(&QueryRowsResult) -> Result<()> + Send,
    ) -> Result<()> {
        debug_assert!(matches!(statement.sort, Sort::Read | Sort::Serial));
        let failed = |error: ExecutionError| self.unavailable(error);
        let mut at = PagingState::start();
        loop {
            let page_at = |at: PagingState| async {
                let prepared = self.prepared(statement).await?;
                self.session.execute_single_page(prepared, &values, at).await
            };
            let (answer, next) = self.connected(|| page_at(at.clone())).await.map_err(failed)?;
            let rows = answer.into_rows_result().map_err(|error| self.unavailable(error))?;
            page(&rows)?;
            match next.into_paging_control_flow() {
                std::ops::ControlFlow::Break(()) => return Ok(()),
                std::ops::ControlFlow::Continue(next) => at = next,
            }
        }
    }

    /// One row or none.
    pub async fn read_row<R>(&self, statement: &Statement, values: impl SerializeRow + Send + Sync) -> Result<Option<R>>
    where
        R: for<'a> scylla::deserialize::row::DeserializeRow<'a, 'a> + Send,
    {
        let mut found = None;
        self.read(statement, values, |rows| {
            for row in rows.rows::<R>().map_err(|error| self.unavailable(error))? {
                found = Some(row.map_err(|error| self.unavailable(error))?);
            }
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// All rows of an answer, page after page.
    pub async fn read_rows<R>(&self, statement: &Statement, values: impl SerializeRow + Send + Sync) -> Result<Vec<R>>
    where
        R: for<'a> scylla::deserialize::row::DeserializeRow<'a, 'a> + Send,
    {
        let mut found = Vec::new();
        self.read(statement, values, |rows| {
            for row in rows.rows::<R>().map_err(|error| self.unavailable(error))? {
                found.push(row.map_err(|error| self.unavailable(error))?);
            }
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// Durable on a quorum when it returns. Writes are idempotent, so a lost answer is tried again.
    pub async fn write(&self, statement: &Statement, values: impl SerializeRow + Send + Sync) -> Result<()> {
        debug_assert_eq!(statement.sort, Sort::Write);
        let write = || async {
            let prepared = self.prepared(statement).await?;
            self.session.execute_unpaged(prepared, &values).await
        };
        self.connected(write).await.map(drop).map_err(|error| self.unavailable(error))
    }

    /// The same statement for several rows, in one message. Not atomic over several partitions.
    pub async fn write_together(
        &self,
        statement: &Statement,
        n_rows: usize,
        values: impl BatchValues + Send + Sync,
    ) -> Result<()> {
        debug_assert_eq!(statement.sort, Sort::Write);
        let write = || async {
            let prepared = self.prepared(statement).await?;
            let statements = vec![BatchStatement::from(prepared.clone()); n_rows];
            let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
            batch.set_consistency(self.consistency);
            batch.set_is_idempotent(true);
            self.session.batch(&batch, &values).await
        };
        self.connected(write).await.map(drop).map_err(|error| self.unavailable(error))
    }

    /// One row, or several together.
    pub async fn write_rows<R: SerializeRow + Send + Sync>(&self, statement: &Statement, rows: Vec<R>) -> Result<()> {
        match &rows[..] {
            [row] => self.write(statement, row).await,
            _ => self.write_together(statement, rows.len(), &rows).await,
        }
    }

    /// By which bytes a test knows a request.
    #[cfg(test)]
    pub async fn statement_id(&self, statement: &Statement) -> bytes::Bytes {
        self.prepared(statement).await.expect("a statement of ours").get_id().clone()
    }

    /// Sends a conditional statement once: after a lost answer nobody knows, and who calls has to look.
    pub async fn compare_and_set(&self, statement: &Statement, values: impl SerializeRow + Send + Sync) -> Cas {
        debug_assert_eq!(statement.sort, Sort::Conditional);
        let prepared = match self.connected(|| self.prepared(statement)).await {
            Ok(prepared) => prepared,
            Err(error) => return Cas::Unsent(error),
        };
        let mut patience = RetryBudget::new(self.timeout.min(RECONNECT));
        loop {
            match self.session.execute_unpaged(prepared, &values).await {
                Ok(answer) => return outcome(answer),
                // Nobody has seen it.
                Err(error) if is_unsent(&error) && is_disconnected(&error) && patience.again(false).await => {}
                Err(error) if is_unsent(&error) => return Cas::Unsent(error),
                Err(error) => return Cas::Unknown(error),
            }
        }
    }

    /// Conditional statements on one partition, all or none.
    pub async fn compare_and_set_all(&self, statements: &[&Statement], values: impl BatchValues + Send + Sync) -> Cas {
        let mut batch = Batch::new(BatchType::Logged);
        for statement in statements {
            match self.connected(|| self.prepared(statement)).await {
                Ok(prepared) => batch.append_statement(prepared.clone()),
                Err(error) => return Cas::Unsent(error),
            }
        }
        batch.set_consistency(self.consistency);
        batch.set_serial_consistency(Some(self.serial.1));
        batch.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
        batch.set_is_idempotent(false);
        let mut patience = RetryBudget::new(self.timeout.min(RECONNECT));
        loop {
            match self.session.batch(&batch, &values).await {
                Ok(answer) => return outcome(answer),
                Err(error) if is_unsent(&error) && is_disconnected(&error) && patience.again(false).await => {}
                Err(error) if is_unsent(&error) => return Cas::Unsent(error),
                Err(error) => return Cas::Unknown(error),
            }
        }
    }
}

/// The columns of such an answer depend on the outcome.
fn outcome(answer: scylla::response::query_result::QueryResult) -> Cas {
    let unreadable = || Cas::Unknown(ExecutionError::LastAttemptError(RequestAttemptError::NonfinishedPagingState));
    let Ok(rows) = answer.into_rows_result() else { return unreadable() };
    let Ok(Some(row)) = rows.maybe_first_row::<Row>() else { return unreadable() };
    match row.columns.first() {
        Some(Some(CqlValue::Boolean(true))) => Cas::Applied,
        Some(Some(CqlValue::Boolean(false))) => Cas::Refused,
        _ => unreadable(),
    }
}

/// Whether there was no connection, or it broke.
fn is_disconnected(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::EmptyPlan
            | ExecutionError::ConnectionPoolError(_)
            | ExecutionError::PrepareError(_)
            | ExecutionError::LastAttemptError(RequestAttemptError::BrokenConnectionError(_))
    )
}

/// Whether nothing can have happened.
fn is_unsent(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::BadQuery(_)
        | ExecutionError::EmptyPlan
        | ExecutionError::PrepareError(_)
        | ExecutionError::ConnectionPoolError(_) => true,
        ExecutionError::LastAttemptError(attempt) => matches!(
            attempt,
            RequestAttemptError::SerializationError(_)
                | RequestAttemptError::CqlRequestSerialization(_)
                | RequestAttemptError::UnableToAllocStreamId
                | RequestAttemptError::DbError(
                    DbError::SyntaxError
                        | DbError::Invalid
                        | DbError::Unauthorized
                        | DbError::AuthenticationError
                        | DbError::ConfigError
                        | DbError::IsBootstrapping,
                    _
                )
        ),
        _ => false,
    }
}
