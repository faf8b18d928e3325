//! How does a statement behind a WITH that changes rows run? Part by part (`with_sql.rs` says in which order), as one
//! transaction.
//!
//! 1. All parts read what was there when the statement began, none what another wrote: a moment is kept for them.
//! 2. What they write is held. Of two changes of one row the first part's counts and the other passes over it, as in
//!    PostgreSQL; rows are inserted beside those that other parts wrote, so a key that one of them inserted is 23505,
//!    and `ON CONFLICT DO UPDATE` of it 21000.
//! 3. The rows that parts read of each other, and the answer, are in memory until all have run: an error in the last
//!    row of the answer takes everything back.
//! 4. The transaction that goes on has it all then, or the statement commits. One that commits by itself runs anew
//!    where others were first.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::{CatalogProvider, MemTable, MemorySchemaProvider, SchemaProvider};
use datafusion::common::ParamValues;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, TableSource};
use datafusion::sql::sqlparser::ast::TableAlias;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use tarn_query::dml::Dml;

use super::current_of::is_about_cursor;
use super::placeholders::DeclaredType;
use super::prepare::{PreparedPart, StatementKind, StatementPlan, WithChanges, bind, of_both};
use super::returning::{self, ReturnedRows};
use super::{Answer, Batches, Parameter, PreparedStatement, Session};
use crate::budget::Reservation;
use crate::error::{Result, SqlError, state};
use crate::names::{DATABASE, fold};
use crate::shown::shown;
use crate::transaction::no_room;
use crate::with_sql::{WITH, WithSql};

/// What parts read of each other, while they are planned.
struct WithRelations {
    catalog: Arc<dyn CatalogProvider>,
    tables: Arc<MemorySchemaProvider>,
}

impl Drop for WithRelations {
    fn drop(&mut self) {
        if let Err(error) = self.catalog.deregister_schema(WITH, true) {
            tracing::warn!(%error, "what a WITH named is left behind");
        }
    }
}

/// Rows that were computed, by the relation that they are read as.
type ComputedTables = HashMap<String, Arc<dyn TableSource>>;

/// While it is there, statements of the transaction read what was there when it was made.
struct OneMoment<'a>(&'a Session);

impl Drop for OneMoment<'_> {
    fn drop(&mut self) {
        self.0.transaction.lock().end_of_parts();
    }
}

impl Session {
    pub(super) fn prepare_with<'a>(
        &'a self,
        asked: &'a WithSql,
        declared: &'a [Option<DeclaredType>],
    ) -> BoxFuture<'a, Result<StatementPlan>> {
        self.planned_with(asked, declared).boxed()
    }

    async fn planned_with(&self, asked: &WithSql, declared: &[Option<DeclaredType>]) -> Result<StatementPlan> {
        let relations = self.relations()?;
        let (mut steps, mut parameters, mut answered) = (vec![], vec![], None);
        for step in asked.steps()? {
            if is_about_cursor(&step.statement) {
                let message = "WHERE CURRENT OF beside other changes of rows";
                return Err(SqlError::unsupported(message, "change the row by a statement of its own"));
            }
            let (kind, its, columns) = self.prepare_part(&step.statement, declared).await?;
            parameters = of_both(parameters, its);
            let is_last = step.alias.is_none();
            if is_last {
                answered = columns;
            }
            let relation = match (&step.alias, rows_of(&kind)) {
                (Some(alias), Some(plan)) => Some(relations.add(alias, plan)?),
                _ => None,
            };
            if step.runs {
                steps.push(PreparedPart { relation, is_last, kind });
            }
        }
        Ok((StatementKind::With(Box::new(WithChanges { steps })), parameters, answered))
    }

    fn relations(&self) -> Result<WithRelations> {
        let catalog = self.query.context().catalog(DATABASE);
        let catalog = catalog.ok_or_else(|| SqlError::new(state::INTERNAL, "a session has a catalog"))?;
        let tables = Arc::new(MemorySchemaProvider::new());
        catalog.register_schema(WITH, Arc::clone(&tables) as _)?;
        Ok(WithRelations { catalog, tables })
    }

    /// Runs it in the transaction that goes on, which is its own where nobody began one (`foreign.rs`).
    pub(super) async fn with_changes(
        &self,
        asked: &WithChanges,
        prepared: &PreparedStatement,
        parameters: Vec<Parameter>,
    ) -> Result<Answer> {
        let parameters = bind(&prepared.parameters, parameters)?;
        self.run_steps(asked, &parameters).await
    }

    /// Runs all parts; what they write is held.
    async fn run_steps(&self, asked: &WithChanges, parameters: &Option<ParamValues>) -> Result<Answer> {
        self.transaction.lock().begin_parts(&self.node)?;
        let _moment = OneMoment(self);
        let mut rows = ComputedTables::new();
        let mut answer = None;
        let mut kept = self.sql.held().reservation();
        for step in &asked.steps {
            self.transaction.lock().begin_part();
            let done = self.run_step(&step.kind, &rows, parameters.clone(), &mut kept).await?;
            if step.is_last {
                answer = Some(done);
            } else if let (Some((name, schema)), WithResult::Rows { answers, .. }) = (&step.relation, done) {
                rows.insert(name.clone(), source(answers, schema)?);
            }
        }
        let answer = match answer {
            Some(WithResult::Rows { answers, command }) => answers.answer(command).counted_by(self.backend.rows()),
            Some(WithResult::Count { n_rows, command }) => Answer::counted(command, n_rows),
            None => return Err(SqlError::new(state::INTERNAL, "a WITH is before a statement")),
        };
        Ok(answer)
    }

    async fn run_step(
        &self,
        kind: &StatementKind,
        rows: &ComputedTables,
        parameters: Option<ParamValues>,
        kept: &mut Reservation,
    ) -> Result<WithResult> {
        match kind {
            StatementKind::Query { plan, command } => {
                let plan = self.permitted(reading(plan.as_ref().clone(), rows)?)?;
                let stream = Box::pin(self.query.stream(plan, parameters)).await?;
                let schema = shown(&stream.schema());
                let batches = stream.map(|batch| batch.map_err(SqlError::from)).boxed();
                Ok(WithResult::Rows { answers: self.collected(schema, batches, kept).await?, command })
            }
            StatementKind::Dml { dml, command, returning } => {
                let handle = self.table(&dml.table.name)?;
                let dml = dml_reading(dml, rows)?;
                let written = Box::pin(self.dml_answers(&dml, &handle, parameters, returning.as_deref())).await?;
                self.done(written, command, kept).await
            }
            StatementKind::Move { dml, rows: coming, returning } => {
                let handle = self.table(&dml.table.name)?;
                let dml = dml_reading(dml, rows)?;
                let coming = reading(coming.as_ref().clone(), rows)?;
                let moved = self.move_answers(&dml, &coming, &handle, parameters, returning.as_deref());
                let written = moved.boxed().await?;
                self.done(written, "UPDATE", kept).await
            }
            _ => Err(SqlError::new(state::INTERNAL, "a part of a statement is a query or a change of rows")),
        }
    }

    /// What a change of rows came to: how many were written, and what is asked of them.
    async fn done(
        &self,
        (n_rows, answers): (u64, Option<ReturnedRows>),
        command: &'static str,
        kept: &mut Reservation,
    ) -> Result<WithResult> {
        let Some(ReturnedRows { schema, batches }) = answers else { return Ok(WithResult::Count { n_rows, command }) };
        let batches = stream::iter(batches.into_iter().map(Ok)).boxed();
        Ok(WithResult::Rows { answers: self.collected(schema, batches, kept).await?, command })
    }

    /// All rows, counted against what statements may hold.
    ///
    /// Errors: `54000`, `53200` for more than a statement, or all of them together, may hold.
    async fn collected(&self, schema: SchemaRef, mut batches: Batches, kept: &mut Reservation) -> Result<ReturnedRows> {
        let (mut all, mut n_bytes) = (vec![], 0);
        let n_before = kept.size_bytes();
        while let Some(batch) = batches.next().await.transpose()? {
            n_bytes += batch.get_array_memory_size();
            if n_bytes > returning::MAX_BYTES {
                let limit = returning::MAX_BYTES >> 20;
                let message =
                    format!("a statement with WITH that changes rows reads more than {limit} MiB of one part");
                return Err(
                    SqlError::new(state::PROGRAM_LIMIT, message).with_hint("write in parts; nothing of it is written")
                );
            }
            if !kept.resize(n_before + n_bytes as u64) {
                return Err(no_room(self.sql.held()));
            }
            all.push(batch);
        }
        Ok(ReturnedRows { schema, batches: all })
    }
}

/// What a part came to.
enum WithResult {
    Rows { answers: ReturnedRows, command: &'static str },
    Count { n_rows: u64, command: &'static str },
}

/// The plan of what others read of a part.
fn rows_of(kind: &StatementKind) -> Option<&LogicalPlan> {
    match kind {
        StatementKind::Query { plan, .. } => Some(plan),
        StatementKind::Dml { returning, .. } | StatementKind::Move { returning, .. } => {
            returning.as_deref().map(|returning| &returning.plan)
        }
        _ => None,
    }
}

impl WithRelations {
    /// What others read of a part: its name, and columns.
    ///
    /// Errors: `42P10` for more names than there are columns.
    fn add(&self, alias: &TableAlias, plan: &LogicalPlan) -> Result<(String, SchemaRef)> {
        let (name, fields) = (fold(&alias.name), plan.schema().fields());
        let (n_there, n_said) = (fields.len(), alias.columns.len());
        if n_said > n_there {
            let message =
                format!("WITH query \"{name}\" has {n_there} columns available but {n_said} columns specified");
            return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
        }
        let fields = fields.iter().enumerate().map(|(at, field)| {
            let field = field.as_ref().clone().with_nullable(true);
            match alias.columns.get(at) {
                Some(said) => field.with_name(fold(&said.name)),
                None => field,
            }
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        let empty = Arc::new(MemTable::try_new(Arc::clone(&schema), vec![vec![]])?);
        self.tables.register_table(name.clone(), empty)?;
        Ok((name, schema))
    }
}

/// Rows as others read them.
fn source(answers: ReturnedRows, schema: &SchemaRef) -> Result<Arc<dyn TableSource>> {
    let batches = answers.batches.iter().map(|batch| {
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    });
    let batches = batches.collect::<Result<Vec<_>>>()?;
    Ok(provider_as_source(Arc::new(MemTable::try_new(Arc::clone(schema), vec![batches])?)))
}

/// The plan, which reads these rows where it reads what parts are called.
fn reading(plan: LogicalPlan, rows: &ComputedTables) -> Result<LogicalPlan> {
    let replaced = plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
        let is_one = scan.table_name.schema() == Some(WITH);
        Ok(match rows.get(scan.table_name.table()).filter(|_| is_one) {
            Some(source) => {
                scan.source = Arc::clone(source);
                Transformed::yes(LogicalPlan::TableScan(scan))
            }
            None => Transformed::no(LogicalPlan::TableScan(scan)),
        })
    })?;
    Ok(replaced.data)
}

/// As [`reading`], of all that a change of rows reads.
fn dml_reading(dml: &Dml, rows: &ComputedTables) -> Result<Dml> {
    let mut dml = dml.clone();
    dml.source = reading(dml.source, rows)?;
    dml.change = dml.change.map(|change| reading(change, rows)).transpose()?;
    Ok(dml)
}
