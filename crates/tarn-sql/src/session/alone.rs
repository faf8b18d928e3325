//! How does a statement run that is a transaction of its own? It begins one, commits it, and runs again where others
//! were first, a bounded number of times: a `WITH` of several parts that write, a statement of tables with foreign
//! keys, and an `ALTER TABLE` that adds one.

use futures::FutureExt;
use futures::future::BoxFuture;

use super::dml::turn_of;
use super::in_parts::MAX_ROUNDS;
use super::prepare::StatementKind;
use super::{Answer, Parameter, PreparedStatement, Session};
use crate::alter_sql::{Alter, AlterAction};
use crate::error::{Result, SqlError, state};
use crate::transaction::{OpenTransaction, Transaction};

/// How often a statement of several parts runs that finds a key where it inserts.
const MAX_MOVED: usize = 4;

impl Session {
    /// Runs a statement that is a transaction, and what its foreign keys ask for: in the one that goes on, or as one of
    /// its own.
    pub(super) fn run_by_itself<'a>(
        &'a self,
        prepared: &'a PreparedStatement,
        parameters: Vec<Parameter>,
    ) -> BoxFuture<'a, Result<Answer>> {
        // On the heap, as what it runs stands on a deep stack; so is the other of this file.
        async move {
            let is_open = {
                let transaction = self.transaction.lock();
                transaction.check_usable()?;
                transaction.is_open()
            };
            if is_open {
                return self.run_in_transaction(prepared, parameters).await;
            }
            // Where nothing may be written, nothing is.
            self.must_hold()?;
            // Who takes the next rows of a table does not read them in vain.
            let table = match &*prepared.kind {
                StatementKind::Dml { dml, .. } if dml.locks.is_some() => Some(self.table(&dml.table.name)?),
                _ => None,
            };
            let _turn = self.sql.turns.wait(table.as_deref().map(turn_of).into_iter()).await;
            for round in 1.. {
                self.begin_alone()?;
                let mut is_committing = false;
                let answer = match self.run_by_kind(prepared, parameters.clone()).await {
                    // It commits when all data came ([`Session::end_copy`]).
                    Ok(Answer::CopyFrom(copy)) => return Ok(Answer::CopyFrom(copy)),
                    Ok(answer) => match self.end_of_statement().await {
                        Ok(()) => {
                            is_committing = true;
                            self.commit().await.map(|_| answer)
                        }
                        Err(error) => self.rollback().await.and(Err(error)),
                    },
                    Err(error) => self.rollback().await.and(Err(error)),
                };
                // A statement that commits by itself reads again what others changed meanwhile. What it found free and
                // is taken by now it finds taken then, perhaps by the row that it replaces; what a part of it inserts
                // may be there because somebody else moved the rows first that another part read.
                let is_anew = |error: &SqlError| match error.state() {
                    state::SERIALIZATION_FAILURE => true,
                    state::UNIQUE_VIOLATION => {
                        is_committing || (matches!(*prepared.kind, StatementKind::With(_)) && round < MAX_MOVED)
                    }
                    _ => false,
                };
                match answer {
                    Err(error) if round < MAX_ROUNDS && is_anew(&error) => {}
                    answer => return answer,
                }
            }
            unreachable!("rounds end")
        }
        .boxed()
    }

    /// A statement is a transaction of its own.
    pub(super) fn begin_alone(&self) -> Result<()> {
        let (read_only, isolation) = self.transaction_defaults()?;
        *self.transaction.lock() =
            Transaction::Open(OpenTransaction::alone(read_only, isolation, self.temporary.now()));
        self.query.begin();
        Ok(())
    }

    /// Runs an `ALTER TABLE` that adds a foreign key as a transaction of its own: nobody writes the two tables when it
    /// commits.
    pub(super) fn alter_as_one<'a>(
        &'a self,
        alter: &'a Alter,
        actions: &'a [AlterAction],
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            for round in 1.. {
                self.begin_alone()?;
                let altered = match self.alter_later(alter, actions).await {
                    Ok(()) => self.commit().await.map(drop),
                    Err(error) => self.rollback().await.and(Err(error)),
                };
                match altered {
                    Err(error) if error.state() == state::SERIALIZATION_FAILURE && round < MAX_ROUNDS => {}
                    altered => return altered,
                }
            }
            unreachable!("rounds end")
        }
        .boxed()
    }
}
