//! What does `SELECT … FOR UPDATE` do? It writes the rows that it answers as they are, where a transaction writes: held
//! until COMMIT, and guarded by the change that each was read at.
//!
//! So nobody waits for anybody. Who changes such a row, or locks it, before the transaction commits makes its COMMIT
//! fail with 40001, and nothing of it is written: what it computed of the rows is never written over what somebody else
//! made of them. `FOR SHARE` does the same, and so of two transactions that share a row one begins again. Outside of a
//! transaction PostgreSQL's locks end with the statement: there is nothing to do then.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ParamValues;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Expr, SetExpr, Statement};
use futures::{StreamExt, TryStreamExt, stream};
use tarn_node::auth::Privilege;
use tarn_node::threads::blocking;
use tarn_query::each_expr;
use tarn_query::locking::{locked_table, locking, not_allowed, reads, split};
use tarn_types::{BatchBuilder, MutationBatch, TableSchema, encode_cells_columnar, encode_keys};

use super::in_parts::change_numbers;
use super::{Answer, PendingChanges, ResultSet, Session};
use crate::error::{Result, SqlError, state};
use crate::lock_sql::LockRows;
use crate::names::function_name;
use crate::shown::shown;
use crate::transaction::HeldEffect;

/// Rows that are answered are kept until all are held.
pub(super) const MAX_BYTES: usize = 64 << 20;

/// One that is planned.
#[derive(Debug)]
pub(super) struct LockPlan {
    /// Whose rows it locks.
    pub table: Arc<TableSchema>,
    /// Answers the rows of the table behind what was asked for.
    pub plan: LogicalPlan,
    /// Of the answer.
    pub columns: SchemaRef,
}

impl Session {
    /// As [`Session::locked`], of a cursor.
    ///
    /// Errors: as of [`Session::locked`]; `0A000` for joins, of which a cursor would hold a row each time that it is
    /// met.
    pub(super) fn locked_of_cursor(&self, asked: &LockRows) -> Result<Option<(Statement, Arc<TableSchema>)>> {
        match asked.query.body.as_ref() {
            SetExpr::Select(select) if select.from.len() > 1 || select.from.iter().any(|of| !of.joins.is_empty()) => {
                Err(not_allowed(asked.what(), "joins, of a cursor").into())
            }
            _ => self.locked(asked),
        }
    }

    /// The statement to plan, and the table whose rows it locks. `None`: it reads no table, and locks nothing.
    ///
    /// Errors: `0A000` where rows of the answer are not rows of one table, as in PostgreSQL, and where several are
    /// joined and none is said; `42P01` for one that is said and not read.
    pub(super) fn locked(&self, asked: &LockRows) -> Result<Option<(Statement, Arc<TableSchema>)>> {
        let what = asked.what();
        let reads_nothing = matches!(asked.query.body.as_ref(), SetExpr::Select(select) if select.from.is_empty());
        if reads_nothing && asked.locks.iter().all(|lock| lock.of.is_none()) {
            return Ok(None);
        }
        let of = asked.of()?;
        if let Some(of) = of.as_deref().filter(|of| !reads(&asked.query, of)) {
            return Err(asked.not_read(of));
        }
        let Some((name, called)) = locked_table(&asked.query, of.as_deref()) else {
            return Err(not_allowed(what, "anything but rows of one table").into());
        };
        asked.check(&called)?;
        if self.view_of(&name).is_some() {
            return Err(not_allowed(what, "a view").into());
        }
        if self.names_hidden(&Statement::Query(Box::new(asked.query.as_ref().clone())), &name) {
            let message = format!("{what} of \"{name}\" by its schema, while a temporary table has its name");
            return Err(SqlError::unsupported(
                message,
                "DROP the temporary table first, or lock that by its name alone",
            ));
        }
        let table = Arc::clone(self.table(&name)?.schema());
        let SetExpr::Select(select) = asked.query.body.as_ref() else {
            return Err(not_allowed(what, "UNION, INTERSECT or EXCEPT").into());
        };
        let state = self.query.context().state();
        let of_several = |expr: &Expr| match expr {
            Expr::Function(function) => {
                let is_of_several = |name: &str| {
                    state.aggregate_functions().contains_key(name) || ["unnest", "generate_series"].contains(&name)
                };
                function.over.is_some() || function_name(function).is_some_and(|name| is_of_several(&name))
            }
            _ => false,
        };
        let found = each_expr(&select.projection, |expr| match of_several(expr) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        if found.is_break() {
            return Err(not_allowed(what, "aggregates, window functions or functions of sets").into());
        }
        Ok(Some((locking(&asked.query, of.as_deref(), &table, what)?, table)))
    }

    /// Answers the rows, and holds them as they are if a transaction is open.
    pub(super) async fn lock_rows(&self, asked: &LockPlan, parameters: Option<ParamValues>) -> Result<Answer> {
        let handle = self.table(&asked.table.name)?;
        let hold = self.must_hold_for(handle.schema())?;
        let table = Arc::clone(handle.schema());
        let plan = self.permitted(asked.plan.clone())?;
        let rows = self.query.stream(plan, parameters).await?.map_err(SqlError::from);
        let mut parts = rows.and_then(move |batch| {
            let parts = split(&batch, &table).map_err(SqlError::from);
            std::future::ready(parts)
        });
        let schema = SchemaRef::clone(&asked.columns);
        if !hold {
            let batches = parts.map_ok(|(answered, _)| answered).boxed();
            return Ok(Answer::Rows(ResultSet { schema, batches, command: "SELECT", is_binary: false }));
        }
        let (mut answers, mut n_bytes, mut met) = (vec![], 0, HashSet::new());
        while let Some((answered, rows)) = parts.try_next().await? {
            n_bytes += answered.get_array_memory_size();
            if n_bytes > MAX_BYTES {
                return Err(too_many());
            }
            answers.push(answered);
            let table = Arc::clone(handle.schema());
            let (batch, all) = blocking(move || Ok(as_they_are(&table, &rows, met))).await??;
            met = all;
            if !batch.is_empty() {
                let (table, batches) = (Arc::clone(&handle), vec![batch]);
                let held = PendingChanges { table, privilege: Privilege::Update, batches };
                self.hold_as(held, HeldEffect::Locks).await?;
            }
        }
        let batches = stream::iter(answers.into_iter().map(Ok)).boxed();
        Ok(Answer::Rows(ResultSet { schema, batches, command: "SELECT", is_binary: false }))
    }
}

/// `54000`: more rows than are kept.
pub(super) fn too_many() -> SqlError {
    let message = format!("a transaction locks more than {} MiB of rows", MAX_BYTES >> 20);
    SqlError::new(state::PROGRAM_LIMIT, message).with_hint("lock the rows in parts")
}

/// Writes rows again, if they are still what was read, and were not met before, as those that are joined with several.
/// Answers the keys of all that were met, too.
pub(super) fn as_they_are(
    table: &TableSchema,
    rows: &RecordBatch,
    mut met: HashSet<Vec<u8>>,
) -> Result<(MutationBatch, HashSet<Vec<u8>>)> {
    let (keys, cells) = (encode_keys(table, rows)?, encode_cells_columnar(table, rows)?);
    let read_at = change_numbers(rows)?;
    let mut builder = BatchBuilder::new(table);
    for row in 0..rows.num_rows() {
        if met.insert(keys.get(row).to_vec()) {
            builder.put(keys.get(row), cells.get(row), Some(read_at.of(row)));
        }
    }
    Ok((builder.finish(), met))
}

/// The columns of the answer: those before the table's.
pub(super) fn answered(plan: &LogicalPlan, table: &TableSchema) -> SchemaRef {
    let all = plan.schema().as_arrow();
    let n_answered = all.fields().len() - table.columns.len() - 1;
    shown(&Arc::new(Schema::new(all.fields()[..n_answered].to_vec())))
}
