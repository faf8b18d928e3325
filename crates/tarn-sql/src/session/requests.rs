//! How does a statement run that the client gave a key? (`requests.rs`: what keys are.)
//!
//! The next write statement takes the key, whatever becomes of it: `INSERT`, `UPDATE`, `DELETE`, `MERGE`, `UPSERT` or
//! `COPY … FROM`. It is a transaction, its own or the one that it stands in, whose first write it has to be; `SELECT …
//! FOR UPDATE` in one takes the key for it, too. What the transaction writes and what its statements came to are one
//! write of the log.
//!
//! When the request was made before, its statements are not run: they answer what they came to, and COMMIT writes
//! nothing. Queries see what is there now, which has the rows of the first time, and what others wrote since.
//!
//! Refused by name (0A000) are rows that are answered (`RETURNING`), which nobody keeps, definitions, which are not
//! rows, and temporary tables, which end with the session that would ask again.

use std::pin::pin;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{CopySource, Statement};
use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_node::catalog::TableHandle;
use tarn_node::transaction::TableWrites;
use tarn_query::keyed::KeyedPlan;
use tarn_types::Opaque;

use super::in_parts::MAX_ROUNDS;
use super::prepare::StatementKind;
use super::{Answer, CopyFrom, Parameter, PreparedStatement, Session, Tag};
use crate::error::{Result, SqlError, state};
use crate::names::table_name;
use crate::requests::{Digest, KEY_SETTING, KeyedRequest, RequestCommit, id_of};
use crate::statement::ParsedSql;
use crate::transaction::{OpenTransaction, Transaction};

/// What a statement is to a key.
enum RequestRole {
    /// It writes this table, and answers so many rows behind this word.
    Writes { table: Arc<TableHandle>, command: &'static str },
    /// It locks rows of this table, which a transaction writes as they are.
    Locks { table: Arc<TableHandle> },
    /// It has nothing to do with it.
    Other,
}

impl Session {
    /// Whether a key waits for its statement, or the transaction has one.
    pub(super) fn is_named(&self) -> bool {
        self.vars.lock().has_request_key() || self.transaction.lock().is_named()
    }

    /// What of HTTP's header `Idempotency-Key` names statements that come as one text.
    ///
    /// Errors: `0A000` for several that are not one transaction.
    pub fn name_request(&self, key: &str, statements: &[Opaque<ParsedSql>]) -> Result<()> {
        if let [first, between @ .., last] = statements
            && !(is_begin(first) && is_end(last) && !between.iter().any(is_end))
        {
            return Err(SqlError::unsupported(
                "Idempotency-Key of several statements",
                "send one, or BEGIN; …; COMMIT as one text",
            ));
        }
        self.set_var(KEY_SETTING, Some(key))
    }

    /// Runs a statement while a key waits, or in a transaction that has one.
    pub(super) fn run_named<'a>(
        &'a self,
        prepared: &'a PreparedStatement,
        parameters: Vec<Parameter>,
    ) -> BoxFuture<'a, Result<Answer>> {
        self.run_part(prepared, parameters).boxed()
    }

    async fn run_part(&self, prepared: &PreparedStatement, parameters: Vec<Parameter>) -> Result<Answer> {
        let part = match self.part_of_request(prepared) {
            Ok(part) => part,
            Err(refused) => {
                self.take_key();
                return Err(refused);
            }
        };
        let is_open = {
            let transaction = self.transaction.lock();
            if !matches!(part, RequestRole::Other) {
                transaction.check_usable()?;
            }
            transaction.is_open()
        };
        match part {
            RequestRole::Other if is_open => self.run_in_transaction(prepared, parameters).await,
            RequestRole::Other => self.run_by_kind(prepared, parameters).await,
            // Locks end with the statement, and nothing is written.
            RequestRole::Locks { .. } if !is_open => self.run_by_kind(prepared, parameters).await,
            RequestRole::Locks { table } => {
                self.name_transaction(&table).await?;
                self.run_in_transaction(prepared, parameters).await
            }
            RequestRole::Writes { table, command } if is_open => {
                self.name_transaction(&table).await?;
                self.run_in_request(prepared, parameters, command).await
            }
            RequestRole::Writes { table, command } => self.run_alone(prepared, parameters, &table, command).await,
        }
    }

    /// Errors: `0A000` for what no key can name.
    fn part_of_request(&self, prepared: &PreparedStatement) -> Result<RequestRole> {
        let writes = |name: &str, command| {
            let table = self.table(name)?;
            if table.schema().id.is_temporary() {
                return Err(refused(
                    &format!("a write of temporary table \"{name}\""),
                    "the table ends with its session, and nobody could ask again",
                ));
            }
            Ok(RequestRole::Writes { table, command })
        };
        if let StatementKind::Dml { .. } | StatementKind::Merge(_) | StatementKind::Move { .. } = &*prepared.kind
            && prepared.columns.is_some()
        {
            return Err(refused("RETURNING", "read the rows by their key behind the statement"));
        }
        match &*prepared.kind {
            StatementKind::Keyed { plan, table, .. } => match plan {
                KeyedPlan::Select { .. } => Ok(RequestRole::Other),
                KeyedPlan::Insert { .. } => writes(&table.name, "INSERT"),
                KeyedPlan::Update { .. } => writes(&table.name, "UPDATE"),
                KeyedPlan::Delete { .. } => writes(&table.name, "DELETE"),
            },
            StatementKind::Dml { dml, command, .. } => writes(&dml.table.name, *command),
            StatementKind::Merge(merge) => writes(&merge.table.name, "MERGE"),
            StatementKind::Move { dml, .. } => writes(&dml.table.name, "UPDATE"),
            StatementKind::With(_) => {
                Err(refused("a WITH that changes rows", "BEGIN, a statement for each change, and COMMIT"))
            }
            StatementKind::Copy { statement, .. } => part_of_copy(statement, writes),
            StatementKind::Lock(asked) => {
                let table = self.table(&asked.table.name)?;
                Ok(if table.schema().id.is_temporary() { RequestRole::Other } else { RequestRole::Locks { table } })
            }
            StatementKind::Utility(statement) => match &**statement {
                Statement::Copy { .. } => part_of_copy(statement, writes),
                Statement::CreateTable(_) | Statement::Drop { .. } | Statement::CreateIndex(_) => Err(definition()),
                Statement::Truncate(_) => Err(refused("TRUNCATE", "DELETE FROM the table")),
                _ => Ok(RequestRole::Other),
            },
            StatementKind::Attach(_)
            | StatementKind::Detach { .. }
            | StatementKind::Access(_)
            | StatementKind::CreateView(_)
            | StatementKind::Comment(_)
            | StatementKind::Function(_)
            | StatementKind::Sequence(_)
            | StatementKind::Type(_)
            | StatementKind::Schema(_)
            | StatementKind::CreateLike(_)
            | StatementKind::Alter(_) => Err(definition()),
            StatementKind::Query { .. }
            | StatementKind::Admin { .. }
            | StatementKind::CacheTable(_)
            | StatementKind::DropCache(_)
            | StatementKind::Declare { .. }
            | StatementKind::Fetch(_)
            | StatementKind::Vacuum(_)
            | StatementKind::Constraints(_)
            | StatementKind::Explain(_) => Ok(RequestRole::Other),
        }
    }

    /// The key, which waits no longer.
    fn take_key(&self) -> Option<Arc<str>> {
        let key = self.vars.lock().get(KEY_SETTING).ok().filter(|key| !key.is_empty())?;
        self.settable.forget(KEY_SETTING);
        Some(key.into())
    }

    /// Takes the key for a request whose outcome is kept with `home`; waits for who makes it now.
    async fn begin_request(&self, key: Arc<str>, home: &Arc<TableHandle>) -> Result<KeyedRequest> {
        let (who, tables) = (self.principal(), self.node.tables());
        let id = id_of(who.name().unwrap_or_default(), &key);
        let turn = tables.begin_request(id).await;
        let first = tables.first_outcome(home, id).await?;
        if let Some(first) = &first {
            tracing::debug!(statements = first.len(), "a request was made before");
        }
        Ok(KeyedRequest::new(key, id, Arc::clone(home), first, turn))
    }

    /// The transaction takes the key that waits, before it writes anything.
    ///
    /// Errors: `25001` where it wrote before; `0A000` where it defined something.
    async fn name_transaction(&self, home: &Arc<TableHandle>) -> Result<()> {
        let has_altered = self.temporary.has_altered();
        let check = {
            let transaction = self.transaction.lock();
            match &*transaction {
                Transaction::Open(open) if open.request.is_some() => None,
                Transaction::Open(open) => Some(open.check_nameable(has_altered)),
                _ => None,
            }
        };
        let has_one = check.is_none();
        let Some(key) = self.take_key() else { return Ok(()) };
        if has_one {
            let message =
                format!("{KEY_SETTING} '{key}' names a transaction before its first write, and this one has a key");
            return Err(SqlError::new(state::ACTIVE_TRANSACTION, message).with_hint("set it before BEGIN"));
        }
        check.transpose()?;
        let named = self.begin_request(key, home).await?;
        if let Transaction::Open(open) = &mut *self.transaction.lock() {
            open.request = Some(named);
        }
        Ok(())
    }

    /// A statement that is a transaction of its own.
    async fn run_alone(
        &self,
        prepared: &PreparedStatement,
        parameters: Vec<Parameter>,
        table: &Arc<TableHandle>,
        command: &'static str,
    ) -> Result<Answer> {
        let Some(key) = self.take_key() else { return self.run_by_kind(prepared, parameters).await };
        // Where nothing may be written, nothing is.
        self.must_hold()?;
        let mut named = self.begin_request(key, table).await?.alone();
        for round in 1.. {
            let again = named.anew();
            let (read_only, isolation) = self.transaction_defaults()?;
            let mut open = OpenTransaction::implicit(read_only, isolation, self.temporary.now());
            open.request = Some(named);
            *self.transaction.lock() = Transaction::Open(open);
            self.query.begin();
            let answer = self.run_in_request(prepared, parameters.clone(), command).await;
            let answer = match answer {
                // It commits when all data came ([`Session::end_copy`]).
                Ok(Answer::CopyFrom(copy)) => return Ok(Answer::CopyFrom(copy)),
                Ok(answer) => self.commit().await.map(|_| answer),
                Err(error) => self.rollback().await.and(Err(error)),
            };
            match answer {
                // A statement that commits by itself reads again what others changed meanwhile.
                Err(error) if error.state() == state::SERIALIZATION_FAILURE && round < MAX_ROUNDS => named = again,
                answer => return answer,
            }
        }
        unreachable!("rounds end")
    }

    /// A write in a transaction that has a key.
    async fn run_in_request(
        &self,
        prepared: &PreparedStatement,
        parameters: Vec<Parameter>,
        command: &'static str,
    ) -> Result<Answer> {
        let digest = digest_of(prepared, &parameters);
        if command == "COPY" {
            let was_made = self.in_request(|named| Ok(named.was_made()))?;
            let Answer::CopyFrom(mut copy) = self.run_in_transaction(prepared, parameters).await? else {
                return Err(SqlError::new(state::INTERNAL, "COPY FROM answers that data may come"));
            };
            if was_made {
                copy.writes_nothing();
            }
            copy.digests(digest);
            return Ok(Answer::CopyFrom(copy));
        }
        let number = digest.number();
        if let Some(rows) = self.in_request(|named| named.again(number))? {
            return Ok(Answer::counted(command, rows));
        }
        let answer = self.run_in_transaction(prepared, parameters).await?;
        let Answer::Done(Tag { rows: Some(rows), .. }) = &answer else {
            return Err(SqlError::new(state::INTERNAL, format!("{command} answers how many rows it wrote")));
        };
        self.in_request(|named| named.ran(number, *rows))?;
        Ok(answer)
    }

    /// All data of a COPY came, and so many rows are held. Answers how many it wrote, which is what it did the first
    /// time.
    pub(super) fn copied(&self, copy: &CopyFrom, rows: u64) -> Result<u64> {
        let Some(digest) = copy.digest() else { return Ok(rows) };
        self.in_request(|named| match named.again(digest)? {
            Some(rows) => Ok(rows),
            None => named.ran(digest, rows).map(|()| rows),
        })
    }

    /// Behind a COPY: commits it, if it has a key of its own or its table has foreign keys, so that what the client is
    /// told is what happened.
    ///
    /// Errors: as of COMMIT.
    pub fn end_copy(&self) -> BoxFuture<'_, Result<()>> {
        let ending = async {
            let is_alone = self
                .transaction
                .lock()
                .implicit()
                .is_some_and(|open| open.is_alone() || open.request.as_ref().is_some_and(KeyedRequest::is_alone));
            match is_alone {
                true => self.interrupt.run(pin!(self.commit())).await.map(drop),
                false => Ok(()),
            }
        };
        ending.boxed()
    }

    fn in_request<T>(&self, does: impl FnOnce(&mut KeyedRequest) -> Result<T>) -> Result<T> {
        match &mut *self.transaction.lock() {
            Transaction::Open(OpenTransaction { request: Some(named), .. }) => does(named),
            _ => Err(SqlError::new(state::INTERNAL, "the request of a statement is gone")),
        }
    }

    /// Commits what a transaction held that has a key.
    pub(super) async fn commit_request(&self, named: KeyedRequest, mut writes: Vec<TableWrites>) -> Result<()> {
        let _turn = named.turn();
        match named.ends()? {
            RequestCommit::First(named) => self.commit_held_as(writes, Some(named)).await,
            RequestCommit::Again => {
                // Locks of rows, which were written as they are.
                writes.retain(|of_table| of_table.table.schema().id.is_temporary());
                self.commit_held(writes).await
            }
        }
    }
}

fn part_of_copy(
    statement: &Statement,
    writes: impl Fn(&str, &'static str) -> Result<RequestRole>,
) -> Result<RequestRole> {
    match statement {
        Statement::Copy { source: CopySource::Table { table_name: name, .. }, to: false, .. } => {
            writes(&table_name(name)?, "COPY")
        }
        _ => Ok(RequestRole::Other),
    }
}

fn is_begin(parsed: &Opaque<ParsedSql>) -> bool {
    matches!(&**parsed, ParsedSql::Sql(statement) if matches!(**statement, Statement::StartTransaction { .. }))
}

fn is_end(parsed: &Opaque<ParsedSql>) -> bool {
    let is_it = |statement: &Statement| matches!(statement, Statement::Commit { .. } | Statement::Rollback { .. });
    matches!(&**parsed, ParsedSql::Sql(statement) if is_it(statement))
}

fn digest_of(prepared: &PreparedStatement, parameters: &[Parameter]) -> Digest {
    let mut digest = match prepared.parsed() {
        ParsedSql::Sql(statement) => Digest::of(statement),
        ParsedSql::Copy { statement, on_key } => Digest::of(format_args!("{statement} {on_key:?}")),
        other => Digest::of(format_args!("{other:?}")),
    };
    for parameter in parameters {
        digest.and(&[0]);
        digest.and(format!("{parameter:?}").as_bytes());
    }
    digest
}

fn refused(what: &str, remedy: &str) -> SqlError {
    SqlError::unsupported(format!("{what} while {KEY_SETTING} names the request"), remedy)
}

fn definition() -> SqlError {
    refused("a definition", "the key names writes of rows: define first, then set it")
}
