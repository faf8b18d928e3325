//! What does BEGIN … COMMIT promise?
//!
//! One writing statement, all or nothing: its rows are computed when it runs, *held*, and committed at COMMIT; ROLLBACK
//! drops them. Several plain INSERTs (or COPYs) into one table are held together and commit as one. UPDATE and DELETE hold
//! guarded mutations: if a row changed since it was read, COMMIT fails with 40001 and nothing is written to that tablet.
//! What cannot be held honestly is refused when it is asked for: a second kind of write, or reading after a held write
//! (it would not see it).

use std::sync::Arc;

use tarn_node::auth::Privilege;
use tarn_types::{MutationBatch, TableSchema};

use crate::budget::{Budget, Reservation};
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};

/// What a transaction has to do at COMMIT.
#[derive(Debug)]
pub enum PendingChanges {
    Mutations {
        table: Arc<TableSchema>,
        privilege: Privilege,
        batches: Vec<MutationBatch>,
        size_bytes: usize,
        /// Plain upserts: more of them may follow.
        is_plain: bool,
        /// Taken when it is held.
        reservation: Option<Reservation>,
    },
    Ddl(Ddl),
}

impl PendingChanges {
    pub fn new(
        table: Arc<TableSchema>,
        privilege: Privilege,
        batches: Vec<MutationBatch>,
        is_plain: bool,
    ) -> PendingChanges {
        let size_bytes = batches.iter().map(MutationBatch::size_bytes).sum();
        PendingChanges::Mutations { table, privilege, batches, size_bytes, is_plain, reservation: None }
    }
}

/// Where a connection stands.
#[derive(Debug, Default)]
pub enum Transaction {
    /// Every statement commits by itself.
    #[default]
    Idle,
    Open {
        held: Option<PendingChanges>,
        read_only: bool,
    },
    /// An error happened: only ROLLBACK (or COMMIT, which then rolls back) is accepted.
    Failed,
}

impl Transaction {
    /// Before any statement but COMMIT and ROLLBACK.
    pub fn check_usable(&self) -> Result<()> {
        match self {
            Transaction::Failed => Err(SqlError::new(
                state::FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )
            .with_hint("send ROLLBACK")),
            _ => Ok(()),
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self, Transaction::Open { .. })
    }

    /// Before a statement that reads tables.
    pub fn check_read(&self) -> Result<()> {
        match self {
            Transaction::Open { held: Some(_), .. } => Err(SqlError::unsupported(
                "reading after a write in the same transaction: the write is held until COMMIT and would not be seen",
                "COMMIT first, or read before the write",
            )),
            _ => Ok(()),
        }
    }

    /// Before a write. True: hold it; false: commit it at once.
    pub fn must_hold(&self) -> Result<bool> {
        match self {
            Transaction::Open { read_only: true, .. } => {
                Err(SqlError::new(state::READ_ONLY_TRANSACTION, "cannot write in a read-only transaction"))
            }
            Transaction::Open { .. } => Ok(true),
            _ => Ok(false),
        }
    }

    /// Before a write that computes mutations or changes the catalog: nothing else may be held.
    pub fn check_first_write(&self) -> Result<()> {
        match self {
            Transaction::Open { held: Some(_), .. } => Err(second_write()),
            _ => Ok(()),
        }
    }

    /// Holds one write until COMMIT. `budget` is what all transactions together may hold.
    pub fn hold(&mut self, write: PendingChanges, limit_bytes: u64, budget: &Arc<Budget>) -> Result<()> {
        let Transaction::Open { held, .. } = self else {
            return Err(SqlError::new(state::NO_ACTIVE_TRANSACTION, "there is no transaction in progress"));
        };
        match (held.as_mut(), write) {
            (None, write) => *held = Some(write),
            (
                Some(PendingChanges::Mutations { table, batches, size_bytes, is_plain: true, .. }),
                PendingChanges::Mutations { table: other, batches: more, size_bytes: n, is_plain: true, .. },
            ) if table.id == other.id => {
                batches.extend(more);
                *size_bytes += n;
            }
            _ => return Err(second_write()),
        }
        match held {
            Some(PendingChanges::Mutations { size_bytes, .. }) if *size_bytes as u64 > limit_bytes => {
                Err(SqlError::new(
                    state::PROGRAM_LIMIT,
                    format!("the transaction holds {size_bytes} bytes, the limit is {limit_bytes}"),
                )
                .with_hint("load outside BEGIN (autocommit), or raise the setting transaction_bytes"))
            }
            Some(PendingChanges::Mutations { size_bytes, reservation, .. }) => {
                let taken = reservation.get_or_insert_with(|| budget.reservation()).resize(*size_bytes as u64);
                if taken { Ok(()) } else { Err(no_room(budget)) }
            }
            _ => Ok(()),
        }
    }
}

/// `53200`: others hold so much.
pub(super) fn no_room(budget: &Budget) -> SqlError {
    let limit = budget.limit();
    let message =
        format!("what transactions hold until COMMIT, and UPDATE and DELETE until they write, is {limit} bytes");
    SqlError::new(state::OUT_OF_MEMORY, message)
        .with_hint("COMMIT earlier or use autocommit, change fewer rows at once, try again later, or raise the setting transactions_bytes")
}

fn second_write() -> SqlError {
    SqlError::unsupported(
        "a second writing statement in one transaction",
        "a transaction holds one writing statement, or several INSERTs into one table: COMMIT between them or use autocommit",
    )
}
