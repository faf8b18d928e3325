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

    /// Errors: `0A000` for who wants to wait, or to leave out what others lock: there are no locks to see. `42P01` for
    /// a table that is not read.
    pub fn check(&self, called: &str) -> Result<()> {
        for LockClause { lock_type: _, of, nonblock } in &self.locks {
            // Nobody waits: NOWAIT is what there is.
            if matches!(nonblock, Some(NonBlock::SkipLocked)) {
                return Err(SqlError::unsupported(
                    "SKIP LOCKED",
                    "nothing is locked for others to see: take rows by DELETE … RETURNING or UPDATE … RETURNING",
                ));
            }
            let Some(of) = of else { continue };
            if table_name(of)? != called {
                let message = format!("relation \"{of}\" in {} clause not found in FROM clause", self.what());
                return Err(SqlError::new(state::UNDEFINED_TABLE, message));
            }
        }
        Ok(())
    }
}
