//! How does an `UPDATE` change keys? `UPDATE alembic_version SET version_num = '2' WHERE version_num = '1'`, as
//! migration tools write it.
//!
//! A row with another key lies elsewhere, perhaps in another tablet: it is deleted, and created with what it is to be.
//! Both are one transaction, the statement's own unless one goes on. All rows go before any comes, so `SET id = id + 1`
//! of rows that follow on each other is no duplicate; PostgreSQL refuses that or not by the order in which it meets
//! them.
//!
//! 1. The rows are read and deleted as by a `DELETE` with the same condition, each guarded by its change number.
//! 2. What they are to be is computed of the rows that were read, as `RETURNING` is, and what `RETURNING` asks of that.
//! 3. They are created: 23505 if a key is there.
//!
//! What it is not for (`FROM`, subqueries and `char(n)` in `SET`) is refused as before. Somebody else's
//! change of such a row meanwhile is 40001: an `UPDATE` that leaves keys alone would read it again.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::compute::concat_batches;
use datafusion::common::ParamValues;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, SelectItem, SetExpr, Statement, TableFactor, Update,
};
use futures::TryStreamExt;
use tarn_node::auth::Privilege;
use tarn_node::catalog::TableHandle;
use tarn_query::dml::Dml;
use tarn_query::has_query;
use tarn_query::parser::statements;
use tarn_types::{MutationBatch, Op, TableSchema, batch_from_columns, conform, full_name};

use super::placeholders::DeclaredType;
use super::returning::{ReturnedRows, Returning, reading};
use super::{Answer, PendingChanges, Session};
use crate::encoding;
use crate::error::{Result, SqlError, state};
use crate::names::{fold, quote};
use crate::postgres::assignments::checked;
use crate::postgres::select_list;
use crate::transaction::{OpenTransaction, Transaction};

/// The two statements that such an `UPDATE` is read as.
pub(super) struct Move {
    /// With a `RETURNING`, so that its rows are whole.
    delete: Statement,
    /// The rows as they are to be, of those that are there.
    rows: Statement,
}

/// What an `UPDATE` of keys is read as. `None`: it changes none, or says what this is not for.
pub(super) fn asked(update: &Update, table: &TableSchema) -> Result<Option<Move>> {
    let is_plain = update.from.is_none() && update.table.joins.is_empty();
    let TableFactor::Table { alias, .. } = &update.table.relation else { return Ok(None) };
    let values: Option<Vec<(usize, &Expr)>> =
        update.assignments.iter().map(|assignment| value_of(assignment, table)).collect();
    let Some(values) = values.filter(|_| is_plain && !table.options.append_only) else { return Ok(None) };
    // What is set twice is refused where all UPDATEs are planned.
    let places: HashSet<usize> = values.iter().map(|(at, _)| *at).collect();
    // A `char(n)` is kept without the blanks at its end, which a cast does not take away.
    let is_for_it = places.len() == values.len() && !places.iter().any(|at| table.is_padded(*at));
    let is_of_keys = places.iter().any(|at| table.is_key(*at));
    if !is_for_it || !is_of_keys || values.iter().any(|(_, value)| has_query(*value)) {
        return Ok(None);
    }
    let alone = || full_name::bare(&table.name).to_owned();
    let called = alias.as_ref().map_or_else(alone, |alias| fold(&alias.name));
    let of = |at: usize| quote(&table.columns[at].name);
    let items = (0..table.columns.len()).map(|at| match places.contains(&at) {
        true => format!("CAST(NULL AS {}) AS {}", table.columns[at].data_type, of(at)),
        false => format!("{}.{}", quote(&called), of(at)),
    });
    let from = format!("{} AS {}", quote(&table.name), quote(&called));
    let items = items.collect::<Vec<_>>().join(", ");
    let mut rows = one(&format!("SELECT {items} FROM {from}"))?;
    if let Statement::Query(query) = &mut rows
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        for (at, value) in values {
            if let Some(SelectItem::ExprWithAlias { expr: Expr::Cast { expr, .. }, .. }) = select.projection.get_mut(at)
            {
                **expr = value.clone();
            }
        }
    }
    select_list::rewrite(&mut rows)?;
    let mut delete = one(&format!("DELETE FROM {from} RETURNING *"))?;
    if let Statement::Delete(Delete { selection, .. }) = &mut delete {
        selection.clone_from(&update.selection);
    }
    Ok(Some(Move { delete, rows }))
}

/// The column and its new value; `None` for several columns at once.
fn value_of<'a>(assignment: &'a Assignment, table: &TableSchema) -> Option<(usize, &'a Expr)> {
    let AssignmentTarget::ColumnName(name) = &assignment.target else { return None };
    let name = name.0.last().and_then(|part| part.as_ident()).map(fold)?;
    let at = table.shown().iter().position(|column| column.name == name)?;
    Some((at, &assignment.value))
}

/// As it is written: the front end would make something else of the casts in which the values are put.
fn one(sql: &str) -> Result<Statement> {
    statements(sql)?.pop().ok_or_else(|| SqlError::new(state::INTERNAL, format!("{sql} is no statement")))
}

/// The keys that rows had, and those that they get: both are in the order in which the rows were read.
fn moves(going: &[MutationBatch], created: &[MutationBatch]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let keys = |batches: &[MutationBatch]| -> Vec<Vec<u8>> {
        batches.iter().flat_map(|batch| batch.iter().map(|of| of.key.to_vec()).collect::<Vec<_>>()).collect()
    };
    let (from, to) = (keys(going), keys(created));
    from.into_iter().zip(to).collect()
}

impl Session {
    /// What it deletes, and what those rows are to be. Values in `SET` may be marked ([`checked`]).
    pub(super) async fn prepare_move(
        &self,
        Move { delete, rows }: &Move,
        update: &Statement,
        table: &Arc<TableSchema>,
        declared: &[Option<DeclaredType>],
    ) -> Result<(Dml, LogicalPlan)> {
        self.enable_for_views(delete)?;
        let dml = self.query.dml(delete, table).await.map_err(|error| self.explain_error(update, error))?;
        let rows = self.plan(rows, declared).await?;
        Ok((dml, checked(rows, table)?))
    }

    /// Runs it, in the transaction that goes on, or as one.
    pub(super) async fn move_rows(
        &self,
        dml: &Dml,
        rows: &LogicalPlan,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
        returning: Option<&Returning>,
    ) -> Result<Answer> {
        let (n_rows, answers) = self.move_answers(dml, rows, handle, parameters, returning).await?;
        Ok(match answers {
            Some(answers) => answers.answer("UPDATE").counted_by(self.backend.rows()),
            None => Answer::counted("UPDATE", n_rows),
        })
    }

    /// How many rows were written, and what is asked of them.
    pub(super) async fn move_answers(
        &self,
        dml: &Dml,
        rows: &LogicalPlan,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
        returning: Option<&Returning>,
    ) -> Result<(u64, Option<ReturnedRows>)> {
        if self.must_hold_for(handle.schema())? {
            return self.moved(dml, rows, handle, parameters, returning).await;
        }
        let (read_only, isolation) = self.transaction_defaults()?;
        let own = OpenTransaction::implicit(read_only, isolation, self.temporary.now());
        *self.transaction.lock() = Transaction::Open(own);
        self.query.begin();
        let moved = self.moved(dml, rows, handle, parameters, returning).await;
        match moved {
            Ok(_) => self.commit().await.map(drop)?,
            Err(_) => self.rollback().await.map(drop)?,
        }
        moved
    }

    /// Holds the rows that go and those that come.
    async fn moved(
        &self,
        dml: &Dml,
        rows: &LogicalPlan,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
        returning: Option<&Returning>,
    ) -> Result<(u64, Option<ReturnedRows>)> {
        let schema = handle.schema();
        let (going, gone) = self.read_whole(dml, handle, parameters.clone()).await?;
        let Some(first) = gone.first() else {
            return Ok((0, self.answers_of(returning, Some(vec![]), dml).await?));
        };
        let gone = concat_batches(&first.schema(), &gone)?;
        let coming = self.query.stream(reading(rows.clone(), Some(&gone), dml)?, parameters).await?;
        let mut coming = std::pin::pin!(coming);
        let rules = self.row_rules(schema).await?;
        let (mut created, mut come) = (vec![], vec![]);
        while let Some(batch) = coming.try_next().await? {
            let batch = conform(&batch, &schema.before_generated())?;
            encoding::check_columns(&batch)?;
            let batch = rules.applied(batch)?;
            created.push(batch_from_columns(schema, &batch, Op::Create)?);
            come.push(batch);
        }
        let answers = self.answers_of(returning, Some(come), dml).await?;
        let moves = moves(&going, &created);
        let change = |batches| PendingChanges { table: Arc::clone(handle), privilege: Privilege::Update, batches };
        let n_rows = self.hold(change(going)).await?;
        self.hold(change(created)).await?;
        self.transaction.lock().moved(schema.id, moves);
        Ok((n_rows, answers))
    }
}
