//! How does `DECLARE … CURSOR` fetch? Piece by piece, forward only.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::ast::{Declare, FetchDirection, Statement, Value as Literal};
use futures::{StreamExt, stream};
use parking_lot::Mutex;

use super::cursor::Cursor;
use super::{Answer, Rows, Session};
use crate::error::{Result, SqlError, state};
use crate::names::fold;
use crate::shown::shown;

/// Open cursors of one connection.
const MAX_CURSORS: usize = 1_000;

/// What a FETCH still has to give. Nothing is gathered: FETCH ALL of a large result takes one batch.
struct Fetching {
    cursors: Arc<Mutex<HashMap<String, Cursor>>>,
    name: String,
    cursor: Cursor,
    missing: usize,
}

impl Fetching {
    /// The next batch; the cursor is back in its place when that was the last. An error ends the cursor.
    async fn step(mut self) -> Result<Option<(RecordBatch, Option<Fetching>)>> {
        let batch = self.cursor.next(self.missing).await?;
        let Some(batch) = batch else {
            self.put_back();
            return Ok(None);
        };
        self.missing -= batch.num_rows();
        if self.missing > 0 {
            return Ok(Some((batch, Some(self))));
        }
        self.put_back();
        Ok(Some((batch, None)))
    }

    fn put_back(self) {
        self.cursors.lock().insert(self.name, self.cursor);
    }
}

impl Session {
    /// `DECLARE name CURSOR FOR query`, inside BEGIN.
    pub(super) async fn declare(&self, declarations: &[Declare]) -> Result<Answer> {
        let [
            Declare {
                names,
                data_type: None,
                assignment: None,
                declare_type: _,
                binary: None | Some(false),
                // What is read is a snapshot, and FETCH says what it cannot do.
                sensitive: _,
                scroll: _,
                hold,
                for_query: Some(query),
            },
        ] = declarations
        else {
            return Err(SqlError::unsupported("this form of DECLARE", "DECLARE name CURSOR FOR SELECT …"));
        };
        let [name] = names.as_slice() else {
            return Err(SqlError::new(state::SYNTAX_ERROR, "DECLARE takes one cursor name"));
        };
        if *hold != Some(true) && !self.transaction.lock().is_open() {
            return Err(SqlError::new(
                state::NO_ACTIVE_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            )
            .with_hint("BEGIN first"));
        }
        let name = fold(name);
        if self.cursors.lock().len() >= MAX_CURSORS {
            return Err(SqlError::new(
                state::CONFIGURATION_LIMIT,
                format!("this connection has {MAX_CURSORS} open cursors already"),
            )
            .with_hint("CLOSE those that are not needed"));
        }
        if self.cursors.lock().contains_key(&name) {
            return Err(SqlError::new(state::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        let plan = self.permitted(self.plan(&Statement::Query(query.clone()), &[]).await?)?;
        let stream = self.query.stream(plan, None).await?;
        let schema = shown(&stream.schema());
        let batches = stream.map(|batch| batch.map_err(SqlError::from)).boxed();
        let depth = self.transaction.lock().depth();
        self.cursors.lock().insert(name, Cursor::new(schema, batches, depth));
        Ok(Answer::done("DECLARE CURSOR"))
    }

    pub(super) fn fetch(&self, name: &str, direction: &FetchDirection) -> Result<Answer> {
        let n_rows = count(direction)?;
        let taken = self.cursors.lock().remove(name);
        let Some(cursor) = taken else { return Err(unknown_cursor(name)) };
        let schema = SchemaRef::clone(cursor.schema());
        let fetching = Fetching { cursors: Arc::clone(&self.cursors), name: name.to_owned(), cursor, missing: n_rows };
        let batches = stream::try_unfold(Some(fetching), async |fetching| match fetching {
            Some(fetching) => fetching.step().await,
            None => Ok(None),
        });
        Ok(Answer::Rows(Rows { schema, batches: batches.boxed(), command: "FETCH" }))
    }

    /// The columns of an open cursor.
    pub fn cursor_columns(&self, name: &str) -> Option<SchemaRef> {
        self.cursors.lock().get(name).map(|cursor| SchemaRef::clone(cursor.schema()))
    }

    pub(super) fn cursor_schema(&self, name: &str) -> Result<SchemaRef> {
        self.cursor_columns(name).ok_or_else(|| unknown_cursor(name))
    }

    pub(super) fn close_cursor(&self, name: Option<&str>) -> Result<Answer> {
        match name {
            None => self.cursors.lock().clear(),
            Some(name) => {
                self.cursors.lock().remove(name).ok_or_else(|| unknown_cursor(name))?;
            }
        }
        Ok(Answer::done("CLOSE CURSOR"))
    }
}

fn unknown_cursor(name: &str) -> SqlError {
    SqlError::new(state::INVALID_CURSOR, format!("cursor \"{name}\" does not exist"))
}

fn count(direction: &FetchDirection) -> Result<usize> {
    let limited = |limit: &Literal| match limit {
        Literal::Number(text, _) => {
            text.parse().map_err(|_| SqlError::new(state::SYNTAX_ERROR, format!("FETCH {text}: want a count")))
        }
        other => Err(SqlError::new(state::SYNTAX_ERROR, format!("FETCH {other}: want a count"))),
    };
    match direction {
        FetchDirection::Next | FetchDirection::Forward { limit: None } => Ok(1),
        FetchDirection::Count { limit } => limited(&limit.value),
        FetchDirection::Forward { limit: Some(limit) } => limited(&limit.value),
        FetchDirection::All | FetchDirection::ForwardAll => Ok(usize::MAX),
        other => Err(SqlError::unsupported(
            format!("FETCH {other}"),
            "cursors read forward: FETCH n, FETCH FORWARD n, FETCH ALL",
        )),
    }
}
