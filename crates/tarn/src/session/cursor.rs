//! How does `DECLARE … CURSOR` fetch? A result is kept open and read piece by piece, forward only.

use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::ast::{Declare, FetchDirection, Statement, Value as Literal};
use futures::StreamExt;

use super::{Answer, Batches, Session};
use crate::error::{Result, SqlError, state};
use crate::statement::{fold, shown};

/// An open result.
pub struct Cursor {
    schema: SchemaRef,
    batches: Batches,
    /// Read from the stream, not fetched yet.
    rest: Option<RecordBatch>,
}

impl Cursor {
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next rows, at most `n_rows`.
    async fn fetch(&mut self, n_rows: usize) -> Result<RecordBatch> {
        let mut taken = Vec::new();
        let mut missing = n_rows;
        while missing > 0 {
            let batch = match self.rest.take() {
                Some(batch) => batch,
                None => match self.batches.next().await.transpose()? {
                    Some(batch) => batch,
                    None => break,
                },
            };
            let n = batch.num_rows().min(missing);
            taken.push(batch.slice(0, n));
            if n < batch.num_rows() {
                self.rest = Some(batch.slice(n, batch.num_rows() - n));
            }
            missing -= n;
        }
        Ok(concat_batches(&self.schema, &taken)?)
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
        if self.cursors.lock().contains_key(&name) {
            return Err(SqlError::new(state::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        self.transaction.lock().check_read()?;
        let plan = self.permitted(self.plan(&Statement::Query(query.clone()), &[]).await?)?;
        let stream = self.query.stream(plan, None).await?;
        let schema = shown(&stream.schema());
        let batches = stream.map(|batch| batch.map_err(SqlError::from)).boxed();
        self.cursors.lock().insert(name, Cursor { schema, batches, rest: None });
        Ok(Answer::done("DECLARE CURSOR"))
    }

    pub(super) async fn fetch(&self, name: &str, direction: &FetchDirection) -> Result<Answer> {
        let n_rows = count(direction)?;
        let taken = self.cursors.lock().remove(name);
        let Some(mut cursor) = taken else { return Err(unknown_cursor(name)) };
        let rows = cursor.fetch(n_rows).await?;
        self.cursors.lock().insert(name.to_owned(), cursor);
        Ok(Answer::batch(rows, "FETCH"))
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
