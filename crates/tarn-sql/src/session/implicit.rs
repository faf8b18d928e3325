//! Which statements of a message are one transaction?
//!
//! All of them, as in PostgreSQL (manual, 55.2.2.1 and 55.2.4): a simple query of several statements, and what a client
//! sends by the extended protocol until Sync, take effect together or not at all. BEGIN makes what was before it a part
//! of its own transaction; COMMIT and ROLLBACK end what was before them, and the next statement begins anew. A message
//! of one statement is none of this: it commits by itself, as large as it is.
//!
//! What cannot be held back ends what is before it, which commits then. PostgreSQL holds all of it back, and scripts
//! that say `DROP TABLE t; CREATE TABLE t …; GRANT …` rely on each statement seeing those before it:
//!
//! | statement | |
//! |---|---|
//! | `ALTER TABLE … ADD PRIMARY KEY` and `… TYPE`, `ALTER TYPE`, `ALTER FUNCTION`, `ALTER SCHEMA`, statements about sequences, users and rights, `CALL`, `DELIVER TABLE` and its kin, `ATTACH`, `DETACH`, `TRUNCATE … RESTART IDENTITY` | acts at once: what is before it commits first |
//! | `VACUUM` beside other statements of its message | refused, as in PostgreSQL (25001) |
//! | any but BEGIN, COMMIT and ROLLBACK behind `DROP`, `ALTER VIEW … RENAME TO`, `CREATE OR REPLACE VIEW`, `COMMENT` | these act at COMMIT: they commit with what is before them |
//! | `CREATE TABLE`, `CREATE VIEW` behind `ALTER TABLE … RENAME TO` | the name that it takes may be free at COMMIT alone |

use std::pin::pin;

use datafusion::sql::sqlparser::ast::{Statement, TruncateIdentityOption};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::Session;
use super::set_back::Settable;
use crate::comment_sql::Commented;
use crate::error::{Result, SqlError, state};
use crate::function_sql::FunctionSql;
use crate::requests::KEY_SETTING;
use crate::schema_sql::SchemaSql;
use crate::statement::Parsed;
use crate::transaction::{Isolation, Open, Transaction};
use crate::type_sql::TypeSql;

/// What a statement is to the others of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It begins or ends a transaction itself.
    Control,
    /// It acts at once, and is not taken back.
    AtOnce,
    /// It writes rows, and reads none of a cursor.
    Writes,
    /// It makes a table or view, and writes rows into it.
    Makes,
    Other,
}

impl Part {
    fn of(parsed: &Parsed) -> Part {
        let statement = match parsed {
            Parsed::Sql(statement) => statement.as_ref(),
            Parsed::Admin { .. }
            | Parsed::Attach(_)
            | Parsed::Detach { .. }
            | Parsed::Access(_)
            | Parsed::Sequence(_) => return Part::AtOnce,
            Parsed::Copy { .. } | Parsed::With(_) => return Part::Writes,
            Parsed::CreateLike(_) | Parsed::CreateView(_) => return Part::Makes,
            Parsed::Comment(comment) if comment.on == Commented::Type => return Part::AtOnce,
            Parsed::Type(statement) if matches!(**statement, TypeSql::Alter { .. }) => return Part::AtOnce,
            Parsed::Function(statement)
                if matches!(**statement, FunctionSql::Alter { .. } | FunctionSql::Comment { .. }) =>
            {
                return Part::AtOnce;
            }
            Parsed::Schema(statement) if matches!(**statement, SchemaSql::Alter { .. }) => return Part::AtOnce,
            Parsed::Alter(alter) if alter.acts_at_once() => return Part::AtOnce,
            Parsed::CacheTable(_)
            | Parsed::DropCache(_)
            | Parsed::Alter(_)
            | Parsed::Comment(_)
            | Parsed::Type(_)
            | Parsed::Function(_)
            | Parsed::Schema(_)
            | Parsed::Declare(_)
            | Parsed::Lock(_)
            | Parsed::Constraints(_)
            | Parsed::Fetch(_) => return Part::Other,
            Parsed::Vacuum(vacuum) => return if vacuum.vacuums { Part::AtOnce } else { Part::Other },
        };
        match statement {
            Statement::StartTransaction { .. } | Statement::Commit { .. } | Statement::Rollback { .. } => Part::Control,
            Statement::Call(_) => Part::AtOnce,
            Statement::Truncate(truncate) if matches!(truncate.identity, Some(TruncateIdentityOption::Restart)) => {
                Part::AtOnce
            }
            Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Merge(_)
            | Statement::Copy { .. }
            | Statement::Truncate(_) => Part::Writes,
            Statement::CreateTable(_) => Part::Makes,
            _ => Part::Other,
        }
    }
}

impl Session {
    /// Whether a statement may stand beside others of its message.
    ///
    /// Errors: `25001` for `VACUUM`, which may not: a transaction is around them.
    pub fn check_beside(&self, parsed: &Parsed) -> Result<()> {
        match parsed {
            Parsed::Vacuum(vacuum) if vacuum.vacuums => {
                let message = "VACUUM cannot run inside a transaction block";
                Err(SqlError::new(state::ACTIVE_TRANSACTION, message).with_hint("send it by itself"))
            }
            _ => Ok(()),
        }
    }

    /// Before a statement of a message that has several; `is_last`: nothing of the message follows.
    ///
    /// Errors: as of COMMIT, where what was before it ends.
    pub fn begin_part<'a>(&'a self, parsed: &'a Parsed, is_last: bool) -> BoxFuture<'a, Result<()>> {
        self.begin_as(Part::of(parsed), is_last).boxed()
    }

    async fn begin_as(&self, part: Part, is_last: bool) -> Result<()> {
        let takes_name = part == Part::Makes && self.temporary.has_renamed();
        let ends = |open: &Open| part == Part::AtOnce || takes_name || (part != Part::Control && open.has_drops());
        let ending = self.transaction.lock().implicit().filter(|open| ends(open)).map(|open| open.request.is_some());
        if ending == Some(true) {
            let message =
                format!("a statement that acts at once, behind writes of its message that {KEY_SETTING} names");
            return Err(SqlError::unsupported(message, "send it by itself"));
        }
        if ending.is_some() {
            self.commit().await?;
        }
        let (read_only, isolation) = self.transaction_defaults()?;
        let deferrable = self.vars.lock().is_on("default_transaction_deferrable");
        let (has_cursors, has_altered) = (!self.cursors.is_empty(), self.temporary.has_altered());
        let mut transaction = self.transaction.lock();
        // The last one commits by itself if nothing is held: so it may be as large as one that is alone.
        let is_alone = is_last && matches!(part, Part::Writes | Part::Makes) && !has_cursors;
        match &*transaction {
            Transaction::Idle if matches!(part, Part::Control | Part::AtOnce) || is_alone => {}
            Transaction::Idle => {
                let mut open = Open::implicit(read_only, isolation, self.temporary.now());
                open.deferrable = deferrable;
                *transaction = Transaction::Open(open);
                self.query.begin();
            }
            Transaction::Open(open) if open.is_implicit && open.is_idle() && is_alone && !has_altered => {
                *transaction = Transaction::Idle;
                self.query.end();
            }
            Transaction::Open(_) | Transaction::Failed(_) => {}
        }
        Ok(())
    }

    /// Whether the statements of a message are one transaction now, which ends with it.
    pub fn is_implicit(&self) -> bool {
        self.transaction.lock().implicit().is_some()
    }

    /// At the end of a message: commits what its statements wrote, unless a transaction goes on that was begun by name.
    ///
    /// Errors: as of COMMIT; nothing is written then.
    pub fn end_implicit(&self) -> BoxFuture<'_, Result<()>> {
        if self.is_implicit() {
            return async { self.interrupt.run(pin!(self.commit())).await.map(drop) }.boxed();
        }
        // The last one committed by itself: what LOCAL changed before it ends with it. No future of a commit is made
        // for that: it is large, and this comes behind each statement.
        if !self.transaction.lock().is_open() {
            self.settings_end(Settable::commit);
        }
        ready(Ok(())).boxed()
    }

    /// Of a transaction that is begun without a word about them.
    pub(super) fn transaction_defaults(&self) -> Result<(bool, Isolation)> {
        let vars = self.vars.lock();
        let isolation = Isolation::named(&vars.get("default_transaction_isolation")?)?;
        Ok((vars.is_on("default_transaction_read_only"), isolation))
    }
}
