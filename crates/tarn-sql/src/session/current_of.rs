//! Which row is `UPDATE t … WHERE CURRENT OF c` about? That on which the cursor stands: the row of the table with its
//! key.
//!
//! Only a cursor that is declared FOR UPDATE or FOR SHARE knows the rows of its table beside what it answers. FETCH
//! holds each as it is (`locking.rs`), so who changes one meanwhile makes COMMIT fail, and keeps the last that it gave.
//! Rows that the transaction itself changed or deleted since the cursor was declared are passed over, as in PostgreSQL:
//! what it would give is not the row any more. The condition becomes one about the key whenever the statement runs:
//! `WHERE CURRENT OF c` is `WHERE city = 'Bern' AND at = '…'`.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::sql::sqlparser::ast::{
    self, AssignmentTarget, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Statement,
};
use futures::{StreamExt, stream};
use tarn_node::auth::Privilege;
use tarn_node::own::OwnWrites;
use tarn_node::threads::blocking;
use tarn_query::locking::split;
use tarn_query::parser::CURRENT_OF;
use tarn_types::{TableSchema, Value, encode_keys};

use super::locking::{MAX_BYTES, as_they_are, too_many};
use super::prepare::write_target;
use super::{Answer, PendingChanges, ResultSet, Session};
use crate::cursor_sql::Fetch;
use crate::cursors::book::{Facts, TakenCursor};
use crate::cursors::cursor::Run;
use crate::error::{Result, SqlError, state};
use crate::postgres::all_of;
use crate::statement::ParsedSql;
use crate::transaction::HeldEffect;

impl Session {
    /// The statement about the row on which its cursor stands. `None`: it is about no cursor.
    ///
    /// Errors: `34000`, `24000`; `0A000` for cursors that do not lock, tables without a key, other tables beside, and
    /// changes of the key itself.
    pub(super) fn at_cursor(&self, statement: &Statement) -> Result<Option<Statement>> {
        let Some(cursor) = cursor_of(statement) else { return Ok(None) };
        let facts = self.cursors.facts(cursor)?;
        let Some(locked) = &facts.locked else {
            let message = format!("WHERE CURRENT OF a cursor that locks no rows: \"{cursor}\"");
            return Err(SqlError::unsupported(message, "DECLARE it FOR SELECT … FOR UPDATE"));
        };
        let name = write_target(statement)?;
        let handle = self.table(&name)?;
        let table = handle.schema();
        if table.id != locked.id {
            let message = format!("cursor \"{cursor}\" does not have a FOR UPDATE/SHARE reference to table \"{name}\"");
            return Err(SqlError::new(state::INVALID_CURSOR_STATE, message));
        }
        let row = self.cursors.current(cursor)?.ok_or_else(|| {
            let message = format!("cursor \"{cursor}\" is not positioned on a row");
            SqlError::new(state::INVALID_CURSOR_STATE, message).with_hint("FETCH a row before")
        })?;
        check(statement, table)?;
        let condition = condition(table, &row)?;
        let mut statement = statement.clone();
        if let Some(selection) = selection_mut(&mut statement) {
            *selection = Some(condition);
        }
        Ok(Some(statement))
    }

    /// Rows of a cursor that locks, which are held as they are.
    pub(super) async fn fetch_locked(&self, fetch: &Fetch, facts: Facts, mut taken: TakenCursor) -> Result<Answer> {
        let Some(table) = facts.locked else {
            return Err(SqlError::new(state::INTERNAL, "a cursor that locks knows its table"));
        };
        let handle = self.table(&table.name)?;
        let mut run = taken.cursor()?.begin(fetch.step).await?;
        let (mut answers, mut n_bytes, mut n_rows, mut last) = (vec![], 0, 0, None);
        let last = loop {
            let Some((batch, left)) = taken.cursor()?.next(run).await? else {
                // It stands behind the last row, or before the first.
                break None;
            };
            let (answered, rows) = split(&batch, &table)?;
            let (n_read, own) = (rows.num_rows(), self.transaction.lock().own_of(table.id));
            let (answered, rows) = match own {
                Some(own) => as_declared(&table, &own, facts.n_changes, answered, rows)?,
                None => (answered, rows),
            };
            let left = left.and((n_read - rows.num_rows()) as u64);
            n_bytes += answered.get_array_memory_size();
            if n_bytes > MAX_BYTES {
                return Err(too_many());
            }
            n_rows += rows.num_rows() as u64;
            last = rows.num_rows().checked_sub(1).map(|at| rows.slice(at, 1)).or(last);
            answers.push(answered);
            let of = Arc::clone(&table);
            let (batch, _met) = blocking(move || Ok(as_they_are(&of, &rows, HashSet::new()))).await??;
            let batches = vec![batch];
            let held = PendingChanges { table: Arc::clone(&handle), privilege: Privilege::Update, batches };
            self.hold_as(held, HeldEffect::Locks).await?;
            run = left;
            if run == Run::Done {
                break last;
            }
        };
        taken.stands_on(last);
        taken.put_back();
        if fetch.is_move {
            return Ok(Answer::counted("MOVE", n_rows));
        }
        let batches = stream::iter(answers.into_iter().map(Ok)).boxed();
        Ok(Answer::Rows(ResultSet { schema: facts.schema, batches, command: "FETCH", is_binary: facts.is_binary }))
    }
}

/// What a cursor answers, and the rows that it is of, without those that the transaction changed behind its first
/// `n_changes` batches.
fn as_declared(
    table: &TableSchema,
    own: &OwnWrites,
    n_changes: u64,
    answered: RecordBatch,
    rows: RecordBatch,
) -> Result<(RecordBatch, RecordBatch)> {
    if own.n_changes() == n_changes {
        return Ok((answered, rows));
    }
    let keys = encode_keys(table, &rows)?;
    let is_same: BooleanArray = keys.iter().map(|key| Some(!own.is_changed_since(key, n_changes))).collect();
    Ok((filter_record_batch(&answered, &is_same)?, filter_record_batch(&rows, &is_same)?))
}

/// Whether a statement is about the row on which a cursor stands: then it is another one each time it runs.
pub(super) fn is_at_cursor(parsed: &ParsedSql) -> bool {
    matches!(parsed, ParsedSql::Sql(statement) if cursor_of(statement).is_some())
}

/// As [`is_at_cursor`], of a part of a statement.
pub(super) fn is_about_cursor(statement: &Statement) -> bool {
    cursor_of(statement).is_some()
}

fn cursor_of(statement: &Statement) -> Option<&str> {
    let selection = match statement {
        Statement::Update(update) => update.selection.as_ref()?,
        Statement::Delete(delete) => delete.selection.as_ref()?,
        _ => return None,
    };
    let Expr::Function(function) = selection else { return None };
    let [part] = function.name.0.as_slice() else { return None };
    if part.as_ident().is_none_or(|ident| ident.value != CURRENT_OF) {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))] => match &value.value {
            ast::Value::SingleQuotedString(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

fn selection_mut(statement: &mut Statement) -> Option<&mut Option<Expr>> {
    match statement {
        Statement::Update(update) => Some(&mut update.selection),
        Statement::Delete(delete) => Some(&mut delete.selection),
        _ => None,
    }
}

/// Errors: `0A000` for what would be about other rows, too, or take the row away from the cursor.
fn check(statement: &Statement, table: &TableSchema) -> Result<()> {
    let refused = |what: &str, remedy: &str| Err(SqlError::unsupported(format!("WHERE CURRENT OF {what}"), remedy));
    if table.is_keyless() {
        return refused("a row of a table without a primary key", "a condition on its columns, or a primary key");
    }
    match statement {
        Statement::Update(update) if update.from.is_some() || !update.table.joins.is_empty() => {
            refused("with FROM", "a condition on the key")
        }
        Statement::Delete(delete) if delete.using.is_some() => refused("with USING", "a condition on the key"),
        Statement::Update(update) => {
            let is_key = |name: &str| {
                table.columns.iter().position(|column| column.name == name).is_some_and(|at| table.is_key(at))
            };
            let named = update.assignments.iter().flat_map(|assignment| match &assignment.target {
                AssignmentTarget::ColumnName(name) => std::slice::from_ref(name),
                AssignmentTarget::Tuple(names) => names.as_slice(),
            });
            let mut names = named.filter_map(|name| name.0.last()?.as_ident().map(crate::names::fold));
            match names.any(|name| is_key(&name)) {
                true => {
                    refused("where columns of the key are set", "a condition on the key: the cursor would lose its row")
                }
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// That a row has the key of this one.
fn condition(table: &TableSchema, row: &RecordBatch) -> Result<Expr> {
    let parts = table.key.iter().map(|part| {
        let column = &table.columns[part.column_idx];
        let cells: &ArrayRef = row.column(part.column_idx);
        let value = Value::from_arrow(cells.as_ref(), 0, &column.data_type)?;
        let text = ast::Value::SingleQuotedString(value.to_display(&column.data_type));
        Ok(Expr::BinaryOp {
            left: Box::new(Expr::Identifier(Ident::with_quote('"', &column.name))),
            op: BinaryOperator::Eq,
            right: Box::new(Expr::Value(text.with_empty_span())),
        })
    });
    let parts = parts.collect::<Result<Vec<Expr>>>()?;
    all_of(parts).ok_or_else(|| SqlError::new(state::INTERNAL, "a table without a key has rows with numbers"))
}
