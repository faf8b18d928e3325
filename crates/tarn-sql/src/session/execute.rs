//! How does a prepared statement run? By its kind; planned anew first when the catalog moved, or the session's time
//! zone.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::Statement;
use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_node::auth::Privilege;
use tarn_node::catalog::TableHandle;
use tarn_node::jobs::{JobReport, Work};
use tarn_node::write::{WriteOutcome, all_written};
use tarn_query::AccessPath;
use tarn_types::{MutationBatch, Opaque, TableSchema};
use tracing::Instrument;

use super::current_of::is_at_cursor;
use super::prepare::{StatementKind, bind};
use super::{Answer, Parameter, PreparedStatement, Session};
use crate::access_sql::tag;
use crate::duplicate::{duplicate, violated};
use crate::error::{Result, SqlError, state};
use crate::statement::{ParsedSql, work_tag};

/// An error about a value, with the column it was meant for if that can be told.
fn named(error: SqlError, parsed: &ParsedSql, table: &TableSchema) -> SqlError {
    let about_value =
        [state::INVALID_TEXT, state::INVALID_PARAMETER_VALUE, state::NUMERIC_OUT_OF_RANGE, state::INTERNAL]
            .contains(&error.state());
    match parsed {
        ParsedSql::Sql(statement) if about_value => super::literals::misfit(statement, table).unwrap_or(error),
        _ => error,
    }
}

/// Runs a change of the catalog to its end, also when the client goes away: half of one is none.
pub(super) async fn to_its_end<T, E>(change: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T>
where
    T: Send + 'static,
    E: Send + 'static,
    SqlError: From<E>,
{
    let running = tokio::spawn(change);
    let done =
        running.await.map_err(|e| SqlError::new(state::INTERNAL, format!("a change of the catalog died: {e}")))?;
    Ok(done?)
}

impl Session {
    /// Runs a statement. Rows are read as they are polled; writes are committed (or held) when this returns.
    ///
    /// Errors: `0A000` when tables changed so much that it would answer other columns than it was prepared with:
    /// whoever prepared it was told those, and reads its rows by them.
    pub fn execute<'a>(
        &'a self,
        prepared: &'a Arc<PreparedStatement>,
        parameters: Vec<Parameter>,
    ) -> BoxFuture<'a, Result<Answer>> {
        self.backend.shows(&prepared.text);
        let executing = async move {
            let answer = self.execute_prepared(prepared, parameters).await;
            self.settle();
            answer
        };
        executing.instrument(self.backend.span()).boxed()
    }

    /// As [`Session::execute`], as a part of the statement that others see.
    pub(super) async fn execute_prepared(
        &self,
        prepared: &Arc<PreparedStatement>,
        parameters: Vec<Parameter>,
    ) -> Result<Answer> {
        self.node.metrics().statements.inc();
        if self.is_current(prepared) {
            return self.run_prepared(prepared, parameters).await;
        }
        Box::pin(self.execute_anew(prepared, parameters)).await
    }

    /// The catalog or the session's time zone is another than when it was prepared.
    async fn execute_anew(&self, prepared: &PreparedStatement, parameters: Vec<Parameter>) -> Result<Answer> {
        let fresh = self.prepare(Opaque::new(prepared.parsed.clone()), &prepared.declared).await?;
        if !prepared.answers_as(&fresh) {
            return Err(SqlError::unsupported(
                "cached plan must not change result type",
                "prepare the statement again",
            )
            .with_detail("a table that it reads has other columns, or other types, than when it was prepared"));
        }
        self.run_prepared(&fresh, parameters).await
    }

    /// As [`Session::execute`], for a statement of which nobody was told anything.
    pub(super) async fn execute_once(&self, parsed: Opaque<ParsedSql>) -> Result<Answer> {
        let answer = self.prepare_and_execute(parsed).instrument(self.backend.span()).await;
        self.settle();
        answer
    }

    async fn prepare_and_execute(&self, parsed: Opaque<ParsedSql>) -> Result<Answer> {
        let prepared = self.prepare(parsed, &[]).await?;
        self.node.metrics().statements.inc();
        if self.is_current(&prepared) {
            return self.run_prepared(&prepared, Vec::new()).await;
        }
        Box::pin(self.execute_anew(&prepared, Vec::new())).await
    }

    fn is_current(&self, prepared: &PreparedStatement) -> bool {
        // A name may be that of something in another schema by now.
        let is_moved = prepared.path.is_some() && prepared.generation != self.generation();
        if is_moved || prepared.path != self.path() {
            return false;
        }
        match &*prepared.kind {
            StatementKind::Keyed { .. } | StatementKind::Dml { .. } if is_at_cursor(prepared.parsed()) => false,
            StatementKind::Keyed { .. }
            | StatementKind::Query { .. }
            | StatementKind::Dml { .. }
            | StatementKind::Merge(_)
            | StatementKind::Move { .. }
            | StatementKind::With(_)
            | StatementKind::Declare { .. }
            | StatementKind::Lock(_)
            | StatementKind::Explain(_) => {
                prepared.generation == self.generation() && prepared.style == *self.vars.lock().style()
            }
            StatementKind::Utility(_)
            | StatementKind::Copy { .. }
            | StatementKind::Admin { .. }
            | StatementKind::Attach(_)
            | StatementKind::Detach { .. }
            | StatementKind::CacheTable(_)
            | StatementKind::DropCache(_)
            | StatementKind::Access(_)
            | StatementKind::CreateView(_)
            | StatementKind::Comment(_)
            | StatementKind::Sequence(_)
            | StatementKind::Type(_)
            | StatementKind::Function(_)
            | StatementKind::Schema(_)
            | StatementKind::CreateLike(_)
            | StatementKind::Alter(_)
            | StatementKind::Constraints(_)
            | StatementKind::Fetch(_)
            | StatementKind::Vacuum(_) => true,
        }
    }

    pub(super) async fn run_prepared(
        &self,
        prepared: &PreparedStatement,
        parameters: Vec<Parameter>,
    ) -> Result<Answer> {
        self.backend.goes(prepared.way());
        let answer = match self.allow(prepared) {
            Ok(()) => self.run_allowed(prepared, parameters).await,
            Err(denied) => Err(denied),
        };
        self.audit(prepared, answer.as_ref().err());
        answer
    }

    async fn run_allowed(&self, prepared: &PreparedStatement, parameters: Vec<Parameter>) -> Result<Answer> {
        match self.is_named() {
            false => match self.is_transaction(prepared) {
                false => self.run_by_kind(prepared, parameters).await,
                true => self.run_by_itself(prepared, parameters).await,
            },
            true => self.run_named(prepared, parameters).await,
        }
    }

    pub(super) async fn run_by_kind(&self, prepared: &PreparedStatement, parameters: Vec<Parameter>) -> Result<Answer> {
        match &*prepared.kind {
            StatementKind::Keyed { plan, table, exact } => {
                self.transaction.lock().check_usable()?;
                if prepared.columns.is_some() && self.is_forced() {
                    return Box::pin(self.forced(prepared, parameters)).await;
                }
                self.node.metrics().keyed_statements.inc();
                let handle = self.table(&table.name)?;
                let value = |(place, parameter): (usize, Parameter)| match exact.iter().find(|(at, _)| *at == place) {
                    Some((_, column)) => parameter.into_exactly(column),
                    None => parameter.into_value(),
                };
                let values = parameters.into_iter().enumerate().map(value).collect::<Result<Vec<_>>>()?;
                self.keyed(plan, &handle, prepared.columns.as_ref(), &values).await
            }
            // The future of a statement about a key is small: it is moved for each of them.
            _ => Box::pin(self.run_other(prepared, parameters)).await,
        }
    }

    /// What is not about keys. Each kind has a box: a statement that runs another one (TRUNCATE, EXECUTE) is here
    /// twice, and a frame with room for all kinds at once fills the stack.
    async fn run_other(&self, prepared: &PreparedStatement, parameters: Vec<Parameter>) -> Result<Answer> {
        match &*prepared.kind {
            StatementKind::Keyed { .. } => {
                Err(SqlError::new(state::INTERNAL, "a statement about keys has a way of its own"))
            }
            StatementKind::Query { plan, command } => {
                self.transaction.lock().check_usable()?;
                let parameters = bind(&prepared.parameters, parameters)?;
                let plan = self.permitted(plan.as_ref().clone())?;
                let stream = Box::pin(self.query.stream(plan, parameters)).await?;
                Ok(Answer::stream(stream, command).counted_by(self.backend.rows()))
            }
            StatementKind::Dml { dml, command, returning } => {
                self.transaction.lock().check_usable()?;
                let handle = self.table(&dml.table.name)?;
                let parameters = bind(&prepared.parameters, parameters)?;
                let done = Box::pin(self.dml(dml, command, &handle, parameters, returning.as_deref())).await;
                done.map_err(|error| named(error, &prepared.parsed, &dml.table))
            }
            StatementKind::Merge(merge) => {
                self.transaction.lock().check_usable()?;
                let handle = self.table(&merge.table.name)?;
                let parameters = bind(&prepared.parameters, parameters)?;
                Box::pin(self.merge(merge, &handle, parameters)).await
            }
            StatementKind::Move { dml, rows, returning } => {
                self.transaction.lock().check_usable()?;
                let handle = self.table(&dml.table.name)?;
                let parameters = bind(&prepared.parameters, parameters)?;
                let done = self.move_rows(dml, rows, &handle, parameters, returning.as_deref()).boxed().await;
                done.map_err(|error| named(error, &prepared.parsed, &dml.table))
            }
            StatementKind::With(asked) => {
                self.transaction.lock().check_usable()?;
                Box::pin(self.with_changes(asked, prepared, parameters)).await
            }
            // Counts what it gives out itself.
            StatementKind::Utility(statement) if matches!(**statement, Statement::Execute { .. }) => {
                Box::pin(self.utility(statement)).await
            }
            StatementKind::Utility(statement) => {
                Ok(Box::pin(self.utility(statement)).await?.counted_by(self.backend.rows()))
            }
            StatementKind::Copy { statement, on_key } => {
                self.transaction.lock().check_usable()?;
                Ok(Box::pin(self.copy(statement, Some(*on_key))).await?.counted_by(self.backend.rows()))
            }
            StatementKind::Admin { work, table } => {
                self.transaction.lock().check_usable()?;
                self.admin(*work, table).await?;
                Ok(Answer::done(work_tag(*work)))
            }
            StatementKind::Attach(request) => {
                self.outside_transaction("ATTACH")?;
                let who = self.principal();
                self.node.may_attach_place(&who, &request.url)?;
                let (node, name) = (Arc::clone(&self.node), request.name.clone());
                // It was free before: an archive of this name is this one.
                self.node.check_free(&name)?;
                self.interrupt.leaves(move || {
                    node.catalog().external_table(&name)?;
                    Some(format!("the table is there with what was read until now; CALL tarn.attach('{name}') goes on"))
                });
                let progress = Box::pin(self.node.attach(&who, request)).await?;
                Ok(Answer::counted("ATTACH", progress.attached))
            }
            StatementKind::Detach { table, if_exists } => {
                self.outside_transaction("DETACH TABLE")?;
                let (node, who, table) = (Arc::clone(&self.node), self.principal(), table.clone());
                let if_exists = *if_exists;
                let detached = to_its_end(async move { node.detach(&who, &table, if_exists).await });
                self.interrupt.submit(detached, |_| 0).await?;
                Ok(Answer::done("DETACH TABLE"))
            }
            StatementKind::CacheTable(asked) => {
                self.transaction.lock().check_usable()?;
                Box::pin(self.cache_table(asked)).await
            }
            StatementKind::DropCache(asked) => {
                self.transaction.lock().check_usable()?;
                Box::pin(self.drop_cache(asked)).await
            }
            StatementKind::CreateView(view) => {
                self.transaction.lock().check_usable()?;
                Box::pin(self.create_view(view)).await
            }
            StatementKind::Comment(comment) => {
                self.transaction.lock().check_usable()?;
                Box::pin(self.comment(comment)).await
            }
            StatementKind::Sequence(statement) => {
                self.outside_transaction(statement.tag())?;
                Box::pin(self.sequence(statement)).await
            }
            StatementKind::Schema(statement) => {
                self.transaction.lock().check_usable()?;
                Box::pin(self.schema(statement)).await
            }
            StatementKind::Type(statement) => {
                self.transaction.lock().check_usable()?;
                Box::pin(self.user_type(statement)).await
            }
            StatementKind::Function(statement) => {
                self.transaction.lock().check_usable()?;
                Box::pin(self.user_function(statement)).await
            }
            StatementKind::CreateLike(like) => {
                self.transaction.lock().check_usable()?;
                Box::pin(self.create_like(like)).await
            }
            StatementKind::Alter(alter) => {
                self.transaction.lock().check_usable()?;
                Box::pin(self.alter(alter)).await
            }
            StatementKind::Declare { declared, locked, plan } => {
                self.transaction.lock().check_usable()?;
                let parameters = bind(&prepared.parameters, parameters)?;
                Box::pin(self.declare(declared, plan.as_ref().clone(), locked.clone(), parameters)).await
            }
            StatementKind::Explain(asked) => {
                self.transaction.lock().check_usable()?;
                let parameters = bind(&prepared.parameters, parameters)?;
                Box::pin(self.explain(asked, parameters)).await
            }
            StatementKind::Lock(asked) => {
                self.transaction.lock().check_usable()?;
                let parameters = bind(&prepared.parameters, parameters)?;
                Ok(Box::pin(self.lock_rows(asked, parameters)).await?.counted_by(self.backend.rows()))
            }
            StatementKind::Constraints(asked) => {
                self.transaction.lock().check_usable()?;
                Box::pin(self.set_constraints(asked)).await
            }
            StatementKind::Vacuum(asked) => Box::pin(self.vacuum(asked)).await,
            StatementKind::Fetch(fetch) => {
                self.transaction.lock().check_usable()?;
                Ok(Box::pin(self.fetch(fetch)).await?.counted_by(self.backend.rows()))
            }
            StatementKind::Access(access) => {
                self.outside_transaction(tag(access))?;
                Box::pin(self.access(access)).await
            }
        }
    }

    /// A keyed SELECT when the session forces an access path or a version: that is the planner's business.
    async fn forced(&self, prepared: &PreparedStatement, parameters: Vec<Parameter>) -> Result<Answer> {
        let named = self.in_schemas(&prepared.parsed, prepared.path.as_ref()).await?;
        let ParsedSql::Sql(statement) = named.as_ref().unwrap_or(&prepared.parsed) else {
            return Err(SqlError::new(state::INTERNAL, "a statement about keys has no text"));
        };
        let plan = self.plan(statement, &prepared.declared).await?;
        let parameters = bind(&super::placeholders::parameter_fields(&plan)?, parameters)?;
        let stream = self.query.stream(plan, parameters).await?;
        Ok(Answer::stream(stream, "SELECT").counted_by(self.backend.rows()))
    }

    pub(super) fn is_forced(&self) -> bool {
        let settings = self.query.settings();
        settings.access_path != AccessPath::Auto || settings.as_of.is_some()
    }

    /// What commits by itself cannot be part of a transaction.
    pub(super) fn outside_transaction(&self, what: &str) -> Result<()> {
        let transaction = self.transaction.lock();
        transaction.check_usable()?;
        if transaction.is_open() {
            return Err(SqlError::new(
                state::ACTIVE_TRANSACTION,
                format!("{what} cannot run inside a transaction block"),
            ));
        }
        Ok(())
    }

    pub(super) async fn admin(&self, work: Work, table: &str) -> Result<JobReport> {
        self.refuse_own(work_tag(work), table)?;
        let handle = self.node.catalog().require(table)?;
        Ok(self.node.work(&self.principal(), &handle, work).await?)
    }

    /// Commits batches. Whoever stops the statement meanwhile waits for what becomes of them.
    pub(super) async fn write(
        &self,
        handle: &Arc<TableHandle>,
        privilege: Privilege,
        batches: Vec<MutationBatch>,
    ) -> Result<Vec<WriteOutcome>> {
        let who = self.principal();
        Ok(self.node.tables().write(&who, handle, privilege, batches, &*self.interrupt).await?)
    }

    /// What the node said: moments in it as this session's clocks show them.
    pub(super) fn told(&self, error: tarn_node::error::Error) -> SqlError {
        match (error.existing(), error.violation()) {
            (Some(existing), _) => duplicate(existing, &self.zone()),
            (None, Some(violation)) => violated(violation, &self.zone()),
            (None, None) => error.into(),
        }
    }

    /// As [`Session::write`]; how many rows were written, or a conflict.
    pub(super) async fn write_all(
        &self,
        handle: &Arc<TableHandle>,
        privilege: Privilege,
        batches: Vec<MutationBatch>,
    ) -> Result<u64> {
        all_written(handle, &self.write(handle, privilege, batches).await?).map_err(|error| self.told(error))
    }

    /// As [`Session::write_all`] of one batch, of which all happens or nothing, whatever tablets its keys are in.
    pub(super) async fn write_whole(
        &self,
        handle: &Arc<TableHandle>,
        privilege: Privilege,
        batch: MutationBatch,
    ) -> Result<u64> {
        let (who, tables) = (self.principal(), self.node.tables());
        let written = tables.write_whole(&who, handle, privilege, batch, &*self.interrupt).await?;
        all_written(handle, &[written]).map_err(|error| self.told(error))
    }
}
