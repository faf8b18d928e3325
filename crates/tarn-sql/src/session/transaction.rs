//! What does BEGIN … COMMIT promise?
//!
//! One writing statement, all or nothing: its rows are computed when it runs, *held*, and committed at COMMIT; ROLLBACK
//! drops them. Several plain INSERTs (or COPYs) into one table are held together and commit as one. UPDATE and DELETE hold
//! guarded mutations: if a row changed since it was read, COMMIT fails with 40001 and nothing is written to that tablet.
//! What cannot be held honestly is refused when it is asked for: a second kind of write, or reading after a held write
//! (it would not see it).
//!
//! A table that is made in a transaction is there at once, for everybody and empty, so that rows can be written into it; what undoes the
//! transaction drops it. After a crash it is there, empty.
//!
//! Batches are held in the order in which they were written, so a *savepoint* is how many there were: going back to it drops those that
//! came after, also from a transaction that an error ended.

use std::sync::Arc;

use tarn_node::auth::Privilege;
use tarn_node::node::Node;
use tarn_types::{MutationBatch, TableId, TableSchema};

use crate::budget::{Budget, Reservation};
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};

/// Savepoints of one transaction; a client may forget to release them.
const MAX_SAVEPOINTS: usize = 10_000;

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
    Open(Open),
    /// An error happened: only ROLLBACK (or COMMIT, which then rolls back) is accepted, and ROLLBACK TO a savepoint, which goes on
    /// with what was held by then.
    Failed(Open),
}

/// A transaction that was begun.
#[derive(Debug, Default)]
pub struct Open {
    pub held: Option<PendingChanges>,
    pub read_only: bool,
    /// The oldest first. Names may repeat: the youngest is meant.
    savepoints: Vec<Savepoint>,
    /// Tables that it made, in order.
    made: Vec<Made>,
}

/// A table that a transaction made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub name: String,
    /// Another may have its name by now.
    pub id: TableId,
}

#[derive(Debug)]
struct Savepoint {
    name: String,
    held: Mark,
    n_made: usize,
    read_only: bool,
}

/// What was held at a savepoint.
#[derive(Debug, Clone, Copy)]
enum Mark {
    Nothing,
    /// So many batches; a change of the catalog has none, and nothing is held beside it.
    Batches(usize),
}

impl Open {
    pub fn new(read_only: bool) -> Open {
        Open { read_only, ..Open::default() }
    }

    fn place(&self, name: &str) -> Result<usize> {
        let place = self.savepoints.iter().rposition(|savepoint| savepoint.name == name);
        place.ok_or_else(|| {
            SqlError::new(state::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
                .with_hint("SAVEPOINT name makes one; ROLLBACK ends the whole transaction")
        })
    }

    /// Drops what is held since.
    fn go_back(&mut self, mark: Mark) {
        let n_kept = match mark {
            Mark::Nothing => return self.held = None,
            Mark::Batches(n_kept) => n_kept,
        };
        if let Some(PendingChanges::Mutations { batches, size_bytes, reservation, .. }) = &mut self.held {
            let dropped: usize = batches.drain(n_kept..).map(|batch| batch.size_bytes()).sum();
            *size_bytes -= dropped;
            // Less than before is always there.
            let _ = reservation.as_mut().is_none_or(|reservation| reservation.resize(*size_bytes as u64));
        }
    }
}

impl Transaction {
    /// Before any statement but COMMIT and ROLLBACK.
    pub fn check_usable(&self) -> Result<()> {
        match self {
            Transaction::Failed(_) => Err(SqlError::new(
                state::FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )
            .with_hint("send ROLLBACK, or ROLLBACK TO a savepoint")),
            _ => Ok(()),
        }
    }

    /// An error: nothing more is taken until it is rolled back.
    pub fn fail(&mut self) {
        *self = match std::mem::take(self) {
            // Without a savepoint nothing of it can come back.
            Transaction::Open(Open { savepoints, made, .. }) if savepoints.is_empty() => {
                Transaction::Failed(Open { made, ..Open::default() })
            }
            Transaction::Open(open) => Transaction::Failed(open),
            other => other,
        };
    }

    /// How many savepoints there are.
    pub fn depth(&self) -> usize {
        match self {
            Transaction::Idle => 0,
            Transaction::Open(open) | Transaction::Failed(open) => open.savepoints.len(),
        }
    }

    /// Remembers what is held.
    pub fn savepoint(&mut self, name: String) -> Result<()> {
        let open = self.block("SAVEPOINT")?;
        if open.savepoints.len() >= MAX_SAVEPOINTS {
            let message = format!("the transaction has {MAX_SAVEPOINTS} savepoints already");
            return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("RELEASE SAVEPOINT those that are done"));
        }
        let held = match &open.held {
            None => Mark::Nothing,
            Some(PendingChanges::Ddl(_)) => Mark::Batches(0),
            Some(PendingChanges::Mutations { batches, .. }) => Mark::Batches(batches.len()),
        };
        open.savepoints.push(Savepoint { name, held, n_made: open.made.len(), read_only: open.read_only });
        Ok(())
    }

    /// Remembers a table that it made.
    pub fn made(&mut self, made: Made) {
        if let Transaction::Open(open) = self {
            open.made.push(made);
        }
    }

    /// Whether it made the table, and nothing can bring it back but the transaction itself: it is forgotten then.
    pub fn unmake(&mut self, name: &str) -> bool {
        let Transaction::Open(Open { made, savepoints, held: None, .. }) = self else { return false };
        let n_kept = savepoints.last().map_or(0, |savepoint| savepoint.n_made);
        let Some(place) = made.iter().rposition(|made| made.name == name).filter(|place| *place >= n_kept) else {
            return false;
        };
        made.remove(place);
        true
    }

    /// The tables that it made, when it is undone.
    pub fn take_made(&mut self) -> Vec<Made> {
        match self {
            Transaction::Idle => vec![],
            Transaction::Open(open) | Transaction::Failed(open) => std::mem::take(&mut open.made),
        }
    }

    /// Forgets a savepoint and those after it; what is held stays. How many are left.
    pub fn release(&mut self, name: &str) -> Result<usize> {
        let open = self.block("RELEASE SAVEPOINT")?;
        let place = open.place(name)?;
        open.savepoints.truncate(place);
        Ok(place)
    }

    /// Drops what came after a savepoint, which stays. How many there are then, and the tables that were made since.
    pub fn roll_back_to(&mut self, name: &str) -> Result<(usize, Vec<Made>)> {
        let open = self.block("ROLLBACK TO SAVEPOINT")?;
        let n_left = open.place(name)? + 1;
        open.savepoints.truncate(n_left);
        let mut made = vec![];
        if let Some(Savepoint { held, n_made, read_only, .. }) = open.savepoints.last() {
            let (held, n_made, read_only) = (*held, *n_made, *read_only);
            open.go_back(held);
            made = open.made.split_off(n_made.min(open.made.len()));
            open.read_only = read_only;
        }
        if let Transaction::Failed(open) = self {
            *self = Transaction::Open(std::mem::take(open));
        }
        Ok((n_left, made))
    }

    fn block(&mut self, what: &str) -> Result<&mut Open> {
        match self {
            Transaction::Open(open) | Transaction::Failed(open) => Ok(open),
            Transaction::Idle => {
                let message = format!("{what} can only be used in transaction blocks");
                Err(SqlError::new(state::NO_ACTIVE_TRANSACTION, message).with_hint("BEGIN first"))
            }
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self, Transaction::Open(_))
    }

    /// Before a statement that reads tables.
    pub fn check_read(&self) -> Result<()> {
        match self {
            Transaction::Open(Open { held: Some(_), .. }) => Err(SqlError::unsupported(
                "reading after a write in the same transaction: the write is held until COMMIT and would not be seen",
                "COMMIT first, or read before the write",
            )),
            _ => Ok(()),
        }
    }

    /// Before a write. True: hold it; false: commit it at once.
    pub fn must_hold(&self) -> Result<bool> {
        match self {
            Transaction::Open(Open { read_only: true, .. }) => {
                Err(SqlError::new(state::READ_ONLY_TRANSACTION, "cannot write in a read-only transaction"))
            }
            Transaction::Open(_) => Ok(true),
            _ => Ok(false),
        }
    }

    /// Before a write that computes mutations or changes the catalog: nothing else may be held.
    pub fn check_first_write(&self) -> Result<()> {
        match self {
            Transaction::Open(Open { held: Some(_), .. }) => Err(second_write()),
            _ => Ok(()),
        }
    }

    /// Holds one write until COMMIT. `budget` is what all transactions together may hold.
    pub fn hold(&mut self, write: PendingChanges, limit_bytes: u64, budget: &Arc<Budget>) -> Result<()> {
        let Transaction::Open(Open { held, .. }) = self else {
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

/// Drops the tables that a transaction made, unless somebody else did.
pub(super) async fn drop_made(node: &Node, made: Vec<Made>) -> Result<()> {
    for Made { name, id } in made.into_iter().rev() {
        if node.catalog().schema(&name).is_ok_and(|there| there.id == id) {
            node.drop_table(&name, true).await.map_err(|error| {
                let error = SqlError::from(error);
                SqlError::new(
                    error.state(),
                    format!("table \"{name}\", which the transaction made: {}", error.message()),
                )
                .with_hint("it is there, empty: DROP TABLE it")
            })?;
        }
    }
    Ok(())
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
