//! What does `FOR UPDATE | SHARE [OF t] [NOWAIT | SKIP LOCKED]` behind a SELECT say?

use datafusion::sql::sqlparser::ast::{LockClause, LockType, NonBlock, Query};

use crate::error::{Result, SqlError, state};
use crate::names::table_name;

/// A SELECT that locks.
#[derive(Debug, Clone, PartialEq)]
pub struct LockRows {
    /// Without the clauses that lock.
    pub query: Box<Query>,
    /// As they were written, in their order.
    pub locks: Vec<LockClause>,
}

impl LockRows {
    /// As PostgreSQL calls it; the weaker forms are not told apart.
    pub fn what(&self) -> &'static str {
        match self.locks.first().map(|lock| &lock.lock_type) {
            Some(LockType::Share) => "FOR SHARE",
            _ => "FOR UPDATE",
        }
    }

    /// The table that is said behind `OF`.
    ///
    /// Errors: `0A000` for several.
    pub fn of(&self) -> Result<Option<String>> {
        let names = self.locks.iter().map(|lock| lock.of.as_ref().map(table_name).transpose());
        let mut names = names.collect::<Result<Vec<_>>>()?;
        names.dedup();
        match names.len() {
            0 | 1 => Ok(names.pop().flatten()),
            _ => Err(SqlError::unsupported(
                format!("{} of several tables", self.what()),
                "lock rows of one table, by a SELECT of their own",
            )),
        }
    }

    /// Errors: `0A000` for who wants to wait, or to leave out what others lock: there are no locks to see. `42P01` for
    /// a table that is not read.
    pub fn check(&self, called: &str) -> Result<()> {
        for LockClause { lock_type: _, of, nonblock } in &self.locks {
            // Nobody waits: NOWAIT is what there is.
            if matches!(nonblock, Some(NonBlock::SkipLocked)) {
                return Err(SqlError::unsupported(
                    "SKIP LOCKED",
                    "nothing is locked for others to see: take rows by \
                     UPDATE … WHERE id = (SELECT … FOR UPDATE SKIP LOCKED) RETURNING",
                ));
            }
            if let Some(of) = of
                && table_name(of)? != called
            {
                return Err(self.not_read(&of.to_string()));
            }
        }
        Ok(())
    }

    /// `42P01`: a table that is said behind `OF` is not read.
    pub fn not_read(&self, of: &str) -> SqlError {
        let message = format!("relation \"{of}\" in {} clause not found in FROM clause", self.what());
        SqlError::new(state::UNDEFINED_TABLE, message)
    }
}
