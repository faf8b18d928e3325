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
use crate::comment_sql::CommentTarget;
use crate::error::{Result, SqlError, state};
use crate::function_sql::FunctionSql;
use crate::requests::KEY_SETTING;
use crate::schema_sql::SchemaSql;
use crate::statement::ParsedSql;
use crate::transaction::{Isolation, OpenTransaction, Transaction};
use crate::type_sql::TypeSql;

/// What a statement is to the others of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementRole {
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

impl StatementRole {
    fn of(parsed: &ParsedSql) -> StatementRole {
        let statement = match parsed {
            ParsedSql::Sql(statement) => statement.as_ref(),
            ParsedSql::Admin { .. }
            | ParsedSql::Attach(_)
            | ParsedSql::Detach { .. }
            | ParsedSql::Access(_)
            | ParsedSql::Sequence(_) => return StatementRole::AtOnce,
            ParsedSql::Copy { .. } | ParsedSql::With(_) => return StatementRole::Writes,
            ParsedSql::CreateLike(_) | ParsedSql::CreateView(_) => return StatementRole::Makes,
            ParsedSql::Comment(comment) if comment.on == CommentTarget::Type => return StatementRole::AtOnce,
            ParsedSql::Type(statement) if matches!(**statement, TypeSql::Alter { .. }) => return StatementRole::AtOnce,
            ParsedSql::Function(statement)
                if matches!(**statement, FunctionSql::Alter { .. } | FunctionSql::Comment { .. }) =>
            {
                return StatementRole::AtOnce;
            }
            ParsedSql::Schema(statement) if matches!(**statement, SchemaSql::Alter { .. }) => {
                return StatementRole::AtOnce;
            }
            ParsedSql::Alter(alter) if alter.acts_at_once() => return StatementRole::AtOnce,
            ParsedSql::CacheTable(_)
            | ParsedSql::DropCache(_)
            | ParsedSql::Alter(_)
            | ParsedSql::Comment(_)
            | ParsedSql::Type(_)
            | ParsedSql::Function(_)
            | ParsedSql::Schema(_)
            | ParsedSql::Declare(_)
            | ParsedSql::Lock(_)
            | ParsedSql::Constraints(_)
            | ParsedSql::Fetch(_) => return StatementRole::Other,
            ParsedSql::Vacuum(vacuum) => {
                return if vacuum.vacuums { StatementRole::AtOnce } else { StatementRole::Other };
            }
        };
        match statement {
            Statement::StartTransaction { .. } | Statement::Commit { .. } | Statement::Rollback { .. } => {
                StatementRole::Control
            }
            Statement::Call(_) => StatementRole::AtOnce,
            Statement::Truncate(truncate) if matches!(truncate.identity, Some(TruncateIdentityOption::Restart)) => {
                StatementRole::AtOnce
            }
            Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Merge(_)
            | Statement::Copy { .. }
            | Statement::Truncate(_) => StatementRole::Writes,
            Statement::CreateTable(_) => StatementRole::Makes,
            _ => StatementRole::Other,
        }
    }
}

impl Session {
    /// Whether a statement may stand beside others of its message.
    ///
    /// Errors: `25001` for `VACUUM`, which may not: a transaction is around them.
    pub fn check_beside(&self, parsed: &ParsedSql) -> Result<()> {
        match parsed {
            ParsedSql::Vacuum(vacuum) if vacuum.vacuums => {
                let message = "VACUUM cannot run inside a transaction block";
                Err(SqlError::new(state::ACTIVE_TRANSACTION, message).with_hint("send it by itself"))
            }
            _ => Ok(()),
        }
    }

    /// Before a statement of a message that has several; `is_last`: nothing of the message follows.
    ///
    /// Errors: as of COMMIT, where what was before it ends.
    pub fn begin_part<'a>(&'a self, parsed: &'a ParsedSql, is_last: bool) -> BoxFuture<'a, Result<()>> {
        self.begin_as(StatementRole::of(parsed), is_last).boxed()
    }

    async fn begin_as(&self, part: StatementRole, is_last: bool) -> Result<()> {
        let takes_name = part == StatementRole::Makes && self.temporary.has_renamed();
        let ends = |open: &OpenTransaction| {
            part == StatementRole::AtOnce || takes_name || (part != StatementRole::Control && open.has_drops())
        };
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
        let is_alone = is_last && matches!(part, StatementRole::Writes | StatementRole::Makes) && !has_cursors;
        match &*transaction {
            Transaction::Idle if matches!(part, StatementRole::Control | StatementRole::AtOnce) || is_alone => {}
            Transaction::Idle => {
                let mut open = OpenTransaction::implicit(read_only, isolation, self.temporary.now());
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
