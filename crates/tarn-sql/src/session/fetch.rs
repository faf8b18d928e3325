//! What do `DECLARE … CURSOR`, `FETCH` and `MOVE` do? A FETCH gives rows out as they are read: FETCH ALL of a large
//! result takes one batch.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::ParamValues;
use datafusion::logical_expr::LogicalPlan;
use futures::{StreamExt, stream};
use tarn_types::TableSchema;

use super::locking::answered;
use super::{Answer, ResultSet, Session};
use crate::cursor_sql::{DeclareCursor, Fetch};
use crate::cursors::book::{Facts, TakenCursor};
use crate::cursors::cursor::{Cursor, Run, Scroll};
use crate::cursors::kept::Room;
use crate::error::{Result, SqlError, state};
use crate::shown::shown;

impl Session {
    /// Opens a cursor of the plan of its query. Outside of a transaction it reads all of its rows now, as it would at
    /// COMMIT.
    pub(super) async fn declare(
        &self,
        declared: &DeclareCursor,
        plan: LogicalPlan,
        locked: Option<Arc<TableSchema>>,
        parameters: Option<ParamValues>,
    ) -> Result<Answer> {
        let depth = {
            let transaction = self.transaction.lock();
            transaction.is_open().then(|| transaction.depth())
        };
        if depth.is_none() && !declared.is_holdable {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(state::NO_ACTIVE_TRANSACTION, message).with_hint("BEGIN first"));
        }
        self.cursors.check_free(&declared.name)?;
        // Outside of a transaction all rows are read now.
        let volatile = depth.and_then(|_| self.volatile_in(&declared.query));
        if let Some(function) = volatile.as_ref().filter(|_| declared.is_holdable) {
            return Err(SqlError::unsupported(
                format!(
                    "a cursor WITH HOLD in a transaction that calls {function}, a VOLATILE function which reads tables"
                ),
                "ALTER FUNCTION … STABLE: it reads what is there when the cursor is declared",
            ));
        }
        let volatile = volatile.map(|function| (function, self.transaction.lock().n_changes_in_all()));
        let columns = locked.as_ref().map(|table| answered(&plan, table));
        let n_changes = locked.as_ref().map_or(0, |table| self.transaction.lock().n_changes(table.id));
        let stream = self.query.stream(self.permitted(plan)?, parameters).await?;
        let schema = columns.unwrap_or_else(|| shown(&stream.schema()));
        let scroll = match declared.scroll {
            // As in PostgreSQL: rows that are locked are not gone back to.
            _ if locked.is_some() => Scroll::No,
            Some(true) => Scroll::Yes,
            Some(false) => Scroll::No,
            None => Scroll::WhileSmall,
        };
        let disk = Arc::clone(&self.query.context().runtime_env().disk_manager);
        let (memory, files) = (Arc::clone(self.sql.held()), Arc::clone(&self.sql.cursor_files));
        let room = Room { memory, disk, files };
        let rows = stream.map(|batch| batch.map_err(SqlError::from)).boxed();
        let mut cursor = Cursor::new(rows, scroll, room);
        if depth.is_none() {
            cursor.keep_all().await?;
        }
        let facts = Facts {
            name: declared.name.clone(),
            statement: declared.text.clone(),
            schema,
            n_changes,
            volatile,
            locked,
            scroll,
            is_binary: declared.is_binary,
            is_holdable: declared.is_holdable,
            declared_ms: self.node.clock().now_ms(),
        };
        self.cursors.open(facts, cursor, depth);
        Ok(Answer::done("DECLARE CURSOR"))
    }

    /// Rows of a cursor, or how many of them were passed. An error ends the cursor.
    pub(super) async fn fetch(&self, fetch: &Fetch) -> Result<Answer> {
        let facts = self.cursors.facts(&fetch.cursor)?;
        if let Some((function, n_changes)) = &facts.volatile
            && self.transaction.lock().n_changes_in_all() != *n_changes
        {
            return Err(SqlError::unsupported(
                format!(
                    "FETCH behind a change of rows from a cursor that calls {function}, a VOLATILE function which reads tables"
                ),
                "ALTER FUNCTION … STABLE: it reads what is there when the cursor is declared",
            ));
        }
        let mut taken = self.cursors.take(&fetch.cursor)?;
        if facts.locked.is_some() {
            return Box::pin(self.fetch_locked(fetch, facts, taken)).await;
        }
        let run = taken.cursor()?.begin(fetch.step).await?;
        if fetch.is_move {
            let n_rows = taken.cursor()?.pass(run).await?;
            taken.put_back();
            return Ok(Answer::counted("MOVE", n_rows));
        }
        let batches = stream::try_unfold(Some((taken, run)), async |fetching: Option<(TakenCursor, Run)>| {
            let Some((mut taken, run)) = fetching else { return Ok(None) };
            match taken.cursor()?.next(run).await? {
                Some((batch, Run::Done)) => {
                    taken.put_back();
                    Ok(Some((batch, None)))
                }
                Some((batch, left)) => Ok(Some((batch, Some((taken, left))))),
                None => {
                    taken.put_back();
                    Ok(None)
                }
            }
        });
        let (schema, is_binary) = (facts.schema, facts.is_binary);
        Ok(Answer::Rows(ResultSet { schema, batches: batches.boxed(), command: "FETCH", is_binary }))
    }

    /// The columns of an open cursor.
    pub fn cursor_columns(&self, name: &str) -> Option<SchemaRef> {
        self.cursors.facts(name).ok().map(|facts| facts.schema)
    }

    pub(super) fn close_cursor(&self, name: Option<&str>) -> Result<Answer> {
        let tag = match name {
            None => {
                self.cursors.close_all();
                "CLOSE CURSOR ALL"
            }
            Some(name) => {
                self.cursors.close(name)?;
                "CLOSE CURSOR"
            }
        };
        Ok(Answer::done(tag))
    }

    /// Before COMMIT: the cursors that live on behind it, which have read all of their rows. One whose rows are being
    /// given out does not.
    pub(super) async fn read_held(&self) -> Result<Vec<TakenCursor>> {
        if !self.transaction.lock().is_open() {
            return Ok(vec![]);
        }
        let mut held = vec![];
        for name in self.cursors.to_hold() {
            let Ok(mut taken) = self.cursors.take(&name) else { continue };
            taken.cursor()?.keep_all().await?;
            held.push(taken);
        }
        Ok(held)
    }
}
