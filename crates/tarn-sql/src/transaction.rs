//! What does BEGIN … COMMIT promise?
//!
//! All or nothing, over all tables of the node: what statements write is *held*, seen by the later ones of the same
//! transaction and by nobody else, and COMMIT writes it as one write of the log, which others see at one moment.
//! Nothing is locked meanwhile: COMMIT fails with 40001, and writes nothing, if a row that an UPDATE or DELETE read is
//! not what it was any more, and with 23505 if somebody else inserted a key first.
//!
//! `READ COMMITTED`: each statement sees what is committed when it begins. `REPEATABLE READ`: all see what was
//! committed when the first one began. `SERIALIZABLE` is refused: what a transaction read and did not write is not
//! looked at again.
//!
//! A table that is made in a transaction is there at once, for everybody and empty, so that rows can be written into
//! it; what undoes the transaction drops it. After a crash it is there, empty. Tables that are altered are seen so by
//! its own statements (`altered.rs`), and by others when it commits, together with its writes. Tables are dropped when
//! it commits, behind its writes.
//!
//! What a session has to itself (temporary tables) is a map, and what undoes a transaction goes back to the one that
//! was there. The statements of one message are such a transaction, too, which nobody began (`session/implicit.rs`).
//!
//! Batches are held in the order in which they were written, so a *savepoint* is how many there were: going back to it
//! drops those that came after, also from a transaction that an error ended.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tarn_node::auth::{Principal, Privilege};
use tarn_node::catalog::TableHandle;
use tarn_node::edges::Edges;
use tarn_node::foreign::UncommittedWrites;
use tarn_node::functions::FunctionId;
use tarn_node::node::Node;
use tarn_node::own::OwnWrites;
use tarn_node::renames::Rename;
use tarn_node::schemas::SchemaId;
use tarn_node::transaction::{NodeSnapshot, TableWrites};
use tarn_types::{MutationBatch, Op, TableId, TableSchema, TypeId, full_name};

use crate::budget::{Budget, Reservation};
use crate::constraints_sql::{Deferral, SetConstraints};
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};
use crate::requests::{KEY_SETTING, KeyedRequest};
use crate::seen_schemas::REWRITES;
use crate::temporary::TemporaryObjects;
use crate::view_sql::ViewStatement;

/// Savepoints of one transaction; a client may forget to release them.
const MAX_SAVEPOINTS: usize = 10_000;

/// What one statement wrote into a table and what is held until COMMIT: whole rows, deletions, and rows whose keys were
/// not there.
#[derive(Clone)]
pub struct PendingChanges {
    /// The one that is written.
    pub table: Arc<TableHandle>,
    /// What the user needed for it.
    pub privilege: Privilege,
    /// In the order in which they are to be written.
    pub batches: Vec<MutationBatch>,
}

/// What becomes of rows that are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldEffect {
    /// They take the place of what is there.
    Changes,
    /// They are written as they are, so that nobody else changes them.
    Locks,
    /// They go with their parents, or are changed with them, as their table's definition says: nobody is asked for his
    /// rights.
    Follows,
}

/// What statements of a transaction see of what others commit meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolation {
    /// As `ReadCommitted`: nobody sees what is not committed.
    ReadUncommitted,
    /// What is there when each of them begins.
    #[default]
    ReadCommitted,
    /// What was there when the first of them began.
    RepeatableRead,
}

impl Isolation {
    /// As `SHOW transaction_isolation` says it.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read uncommitted",
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
        }
    }

    /// Errors: `0A000` for a level that is not kept.
    pub fn named(name: &str) -> Result<Isolation> {
        let all = [Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::RepeatableRead];
        let found = all.into_iter().find(|level| level.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            SqlError::unsupported(
                format!("isolation level {} is not supported", name.to_uppercase()),
                "REPEATABLE READ: all statements see one moment, and a row that somebody else changed meanwhile is 40001",
            )
        })
    }
}

/// Where a connection stands.
#[derive(Default)]
pub enum Transaction {
    /// Every statement commits by itself.
    #[default]
    Idle,
    /// Statements are held until it ends.
    Open(OpenTransaction),
    /// An error happened: only ROLLBACK (or COMMIT, which then rolls back) is accepted, and ROLLBACK TO a savepoint,
    /// which goes on with what was held by then.
    Failed(OpenTransaction),
}

/// A transaction that was begun.
#[derive(Default)]
pub struct OpenTransaction {
    /// Statements that write are refused (25006).
    pub read_only: bool,
    /// What was said of it. It is nothing to transactions that are not SERIALIZABLE.
    pub deferrable: bool,
    /// Nobody said BEGIN: it ends with the message that its statements came in.
    pub is_implicit: bool,
    isolation: Isolation,
    /// Whether a statement read or wrote rows: then its isolation stays as it is.
    has_begun: bool,
    /// There from the first statement on, where it is kept.
    moment: Option<Arc<NodeSnapshot>>,
    /// In order.
    writes: Vec<HeldBatch>,
    /// What `writes` come to, by table.
    own: HashMap<TableId, TableWrites>,
    size_bytes: usize,
    reservation: Option<Reservation>,
    /// Tables and views to drop, or to change, at COMMIT.
    drops: Vec<Ddl>,
    /// The oldest first. Names may repeat: the youngest is meant.
    savepoints: Vec<Savepoint>,
    /// Tables and types that it made, in order.
    made: Vec<CreatedObject>,
    /// What the session had to itself when it began.
    own_before: Option<Arc<TemporaryObjects>>,
    /// What its client called it.
    pub request: Option<KeyedRequest>,
    /// It is one statement, which commits by itself.
    is_alone: bool,
    /// What is owed to foreign keys waits for a later statement.
    pub keys_wait: bool,
    /// Which foreign keys are checked at COMMIT.
    deferral: Deferral,
    /// How many of `writes` were looked at for children of parents that went.
    n_followed: usize,
    /// Rows that got other keys: of which table, and both keys.
    moves: Vec<(TableId, Vec<u8>, Vec<u8>)>,
    /// Of the statement that runs.
    parts: Option<StatementParts>,
}

/// One batch.
struct HeldBatch {
    table: Arc<TableHandle>,
    privilege: Privilege,
    batch: MutationBatch,
    does: HeldEffect,
}

/// A table, view, index, type, schema or function that a transaction made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedObject {
    /// Of an index nothing.
    pub name: String,
    /// Another may have its name by now.
    pub what: CreatedId,
}

/// What was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreatedId {
    /// A table, view or archive.
    Relation(TableId),
    /// A table is to name it when it commits.
    Index(TableId),
    Type(TypeId),
    /// A function.
    Function(FunctionId),
    /// A schema.
    Schema(SchemaId),
}

struct Savepoint {
    name: String,
    n_writes: usize,
    n_drops: usize,
    n_made: usize,
    read_only: bool,
    deferral: Deferral,
    n_moves: usize,
    /// What the session had to itself.
    own: Arc<TemporaryObjects>,
}

/// What going back to a savepoint undid.
pub struct RollbackEffects {
    /// Savepoints that there are then.
    pub n_left: usize,
    /// Tables that were made since.
    pub made: Vec<CreatedObject>,
    /// What the session had to itself.
    pub own: Option<Arc<TemporaryObjects>>,
}

/// What a statement sees beside what is committed.
#[derive(Clone, Default)]
pub struct TransactionView {
    /// What the transaction wrote, by table.
    pub own: HashMap<TableId, Arc<OwnWrites>>,
    /// When it began, if it goes on seeing that.
    pub moment: Option<Arc<NodeSnapshot>>,
}

/// A statement of several parts, while it runs.
struct StatementParts {
    /// What was there when it began: all parts read that.
    began: TransactionView,
    /// What the transaction wrote until the part began that runs.
    before: HashMap<TableId, Arc<OwnWrites>>,
}

/// What other parts of a statement did to a table.
pub struct OtherParts {
    own: Arc<OwnWrites>,
    /// How many changes there were before the statement.
    n_before: u64,
}

impl OtherParts {
    /// Whether one of them wrote or deleted the row of this key.
    pub fn changed(&self, key: &[u8]) -> bool {
        self.own.is_changed_since(key, self.n_before)
    }
}

/// What is left to do at COMMIT.
pub struct ToCommit {
    /// By table: written together, or not at all.
    pub writes: Vec<TableWrites>,
    /// What is dropped or defined otherwise, which was put off until now.
    pub drops: Vec<Ddl>,
    /// What its client called it.
    pub request: Option<KeyedRequest>,
}

impl OpenTransaction {
    /// `own` is what the session has to itself: what undoes the transaction goes back to it.
    pub fn new(read_only: bool, isolation: Isolation, own: Arc<TemporaryObjects>) -> OpenTransaction {
        OpenTransaction { read_only, isolation, own_before: Some(own), ..OpenTransaction::default() }
    }

    /// Of the statements of one message.
    pub fn implicit(read_only: bool, isolation: Isolation, own: Arc<TemporaryObjects>) -> OpenTransaction {
        OpenTransaction { is_implicit: true, ..OpenTransaction::new(read_only, isolation, own) }
    }

    /// Of one statement, which commits by itself.
    pub fn alone(read_only: bool, isolation: Isolation, own: Arc<TemporaryObjects>) -> OpenTransaction {
        OpenTransaction { is_alone: true, ..OpenTransaction::implicit(read_only, isolation, own) }
    }

    /// Whether it is one statement, which commits by itself.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Whether it drops or changes tables and views when it commits.
    pub fn has_drops(&self) -> bool {
        !self.drops.is_empty()
    }

    /// Whether a statement behind it may as well run by itself: there is nothing to commit, and nothing that it would
    /// see otherwise.
    pub fn is_idle(&self) -> bool {
        let holds_nothing = self.writes.is_empty() && self.drops.is_empty() && self.made.is_empty();
        let is_plain = !self.read_only && self.isolation != Isolation::RepeatableRead;
        // What was answered and not run is held nowhere, and has to be ended.
        holds_nothing && is_plain && self.request.is_none()
    }

    /// Before it takes a key. Tables of the session's own do not count.
    ///
    /// Errors: `25001` where it wrote before; `0A000` where it defined something.
    pub fn check_nameable(&self, has_altered: bool) -> Result<()> {
        if self.writes.iter().any(|held| !held.table.schema().id.is_temporary()) {
            let message = format!("{KEY_SETTING} names a transaction before its first write");
            return Err(SqlError::new(state::ACTIVE_TRANSACTION, message).with_hint("set it before BEGIN"));
        }
        if has_altered || !self.drops.is_empty() || !self.made.is_empty() {
            let message = format!("{KEY_SETTING} of a transaction that defined something");
            return Err(SqlError::unsupported(message, "COMMIT the definitions first"));
        }
        Ok(())
    }

    fn place(&self, name: &str) -> Result<usize> {
        let place = self.savepoints.iter().rposition(|savepoint| savepoint.name == name);
        place.ok_or_else(|| {
            SqlError::new(state::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
                .with_hint("SAVEPOINT name makes one; ROLLBACK ends the whole transaction")
        })
    }

    /// Drops what was written since.
    fn go_back(&mut self, n_writes: usize) -> Result<()> {
        if n_writes >= self.writes.len() {
            return Ok(());
        }
        self.writes.truncate(n_writes);
        self.n_followed = self.n_followed.min(n_writes);
        self.own.clear();
        for held in &self.writes {
            add(&mut self.own, held)?;
        }
        self.size_bytes = self.writes.iter().map(|held| held.batch.size_bytes()).sum();
        // Less than before is always there.
        let size_bytes = self.size_bytes as u64;
        let _ = self.reservation.as_mut().is_none_or(|reservation| reservation.resize(size_bytes));
        Ok(())
    }

    /// What SHOW says of the transaction.
    pub fn setting(&self, name: &str) -> Option<&'static str> {
        match name {
            "transaction_deferrable" => Some(if self.deferrable { "on" } else { "off" }),
            "transaction_isolation" => Some(self.isolation.name()),
            "transaction_read_only" => Some(if self.read_only { "on" } else { "off" }),
            _ => None,
        }
    }

    /// Errors: `25001` behind a statement that read or wrote.
    pub fn set_isolation(&mut self, isolation: Isolation) -> Result<()> {
        if self.has_begun && isolation != self.isolation {
            let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
            return Err(SqlError::new(state::ACTIVE_TRANSACTION, message).with_hint("BEGIN ISOLATION LEVEL …"));
        }
        self.isolation = isolation;
        Ok(())
    }

    /// Errors: `25001` for writing behind a statement that read or wrote, or behind a savepoint of a transaction that
    /// only reads.
    pub fn set_read_only(&mut self, read_only: bool) -> Result<()> {
        let is_inside = self.savepoints.last().is_some_and(|before| before.read_only);
        if self.read_only && !read_only && (is_inside || self.has_begun) {
            let message = match is_inside {
                true => "cannot set transaction read-write mode inside a read-only transaction",
                false => "transaction read-write mode must be set before any query",
            };
            return Err(SqlError::new(state::ACTIVE_TRANSACTION, message).with_hint("BEGIN READ WRITE"));
        }
        self.read_only = read_only;
        Ok(())
    }

    /// Errors: `25001` behind a statement that read or wrote, or behind a savepoint.
    pub fn set_deferrable(&mut self, deferrable: bool) -> Result<()> {
        let message = match (self.savepoints.is_empty(), self.has_begun) {
            (true, false) => {
                self.deferrable = deferrable;
                return Ok(());
            }
            (false, _) => "SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction",
            (true, true) => "SET TRANSACTION [NOT] DEFERRABLE must be called before any query",
        };
        Err(SqlError::new(state::ACTIVE_TRANSACTION, message).with_hint("BEGIN [NOT] DEFERRABLE"))
    }

    /// Whether it only reads.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What is left to do when it commits.
    pub fn into_commit(self) -> ToCommit {
        let mut drops: Vec<Ddl> = Vec::with_capacity(self.drops.len());
        for ddl in self.drops {
            match (drops.last_mut(), ddl) {
                (Some(Ddl::Rename(before)), Ddl::Rename(more)) => before.extend(more),
                (_, ddl) => drops.push(ddl),
            }
        }
        ToCommit { writes: self.own.into_values().collect(), drops, request: self.request }
    }
}

fn add(own: &mut HashMap<TableId, TableWrites>, held: &HeldBatch) -> Result<()> {
    let HeldBatch { table, privilege, batch, does } = held;
    let of_table = own.entry(table.schema().id).or_insert_with(|| TableWrites {
        table: Arc::clone(table),
        privileges: BTreeSet::new(),
        own: Arc::new(OwnWrites::new(Arc::clone(table.schema()))),
    });
    if *does != HeldEffect::Follows {
        of_table.privileges.insert(*privilege);
    }
    // A result that is still being read keeps what it saw.
    let own = Arc::make_mut(&mut of_table.own);
    Ok(match does {
        HeldEffect::Changes | HeldEffect::Follows => own.add(batch),
        HeldEffect::Locks => own.lock(batch),
    }?)
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

    /// An error: nothing more is taken until it is rolled back. One that nobody began is over: the tables that it made,
    /// and what the session had to itself before.
    pub fn fail(&mut self) -> (Vec<CreatedObject>, Option<Arc<TemporaryObjects>>) {
        let mut undone = (vec![], None);
        *self = match std::mem::take(self) {
            Transaction::Open(OpenTransaction { is_implicit: true, made, own_before, .. }) => {
                undone = (made, own_before);
                Transaction::Idle
            }
            // Without a savepoint nothing of it can come back.
            Transaction::Open(OpenTransaction {
                savepoints,
                made,
                read_only,
                deferrable,
                isolation,
                own_before,
                ..
            }) if savepoints.is_empty() => Transaction::Failed(OpenTransaction {
                made,
                read_only,
                deferrable,
                isolation,
                own_before,
                ..OpenTransaction::default()
            }),
            Transaction::Open(open) => Transaction::Failed(open),
            other => other,
        };
        undone
    }

    /// The transaction that a message of several statements is.
    pub fn implicit(&self) -> Option<&OpenTransaction> {
        match self {
            Transaction::Open(open) if open.is_implicit => Some(open),
            _ => None,
        }
    }

    /// Before COMMIT or ROLLBACK: whether what AND CHAIN begins behind it is read-only, its isolation, and whether it
    /// is deferrable.
    ///
    /// Errors: `25P01` where nobody began one.
    pub fn chained(&mut self, what: &str) -> Result<(bool, Isolation, bool)> {
        let open = self.block(&format!("{what} AND CHAIN"))?;
        Ok((open.read_only, open.isolation, open.deferrable))
    }

    /// How many savepoints there are.
    pub fn depth(&self) -> usize {
        match self {
            Transaction::Idle => 0,
            Transaction::Open(open) | Transaction::Failed(open) => open.savepoints.len(),
        }
    }

    /// Remembers what is held, and what the session has to itself.
    pub fn savepoint(&mut self, name: String, own: Arc<TemporaryObjects>) -> Result<()> {
        let open = self.block("SAVEPOINT")?;
        if open.savepoints.len() >= MAX_SAVEPOINTS {
            let message = format!("the transaction has {MAX_SAVEPOINTS} savepoints already");
            return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("RELEASE SAVEPOINT those that are done"));
        }
        let (n_writes, n_drops, n_made) = (open.writes.len(), open.drops.len(), open.made.len());
        let (deferral, n_moves, read_only) = (open.deferral.clone(), open.moves.len(), open.read_only);
        open.savepoints.push(Savepoint { name, n_writes, n_drops, n_made, read_only, deferral, n_moves, own });
        Ok(())
    }

    /// Remembers a table that it made.
    pub fn made(&mut self, made: CreatedObject) {
        if let Transaction::Open(open) = self {
            open.made.push(made);
        }
    }

    /// The table, if it made it, and nothing can bring it back but the transaction itself: it is forgotten then, and
    /// what was written into it.
    pub fn unmake(&mut self, name: &str) -> Option<TableId> {
        let Transaction::Open(OpenTransaction { made, savepoints, writes, own, .. }) = self else { return None };
        let n_kept = savepoints.last().map_or(0, |savepoint| savepoint.n_made);
        let is_it = |made: &CreatedObject| made.name == name && matches!(made.what, CreatedId::Relation(_));
        let place = made.iter().rposition(is_it).filter(|place| *place >= n_kept)?;
        let CreatedId::Relation(id) = made.remove(place).what else { return None };
        // Written only since it was made, so no savepoint counts these.
        let is_its = |held: &&HeldBatch| held.table.schema().id == id;
        let uniques = writes.iter().filter(is_its).flat_map(|held| &held.table.schema().options.rules.uniques);
        let ids: BTreeSet<TableId> = uniques.map(|unique| unique.index).chain([id]).collect();
        writes.retain(|held| !ids.contains(&held.table.schema().id));
        own.retain(|table, _| !ids.contains(table));
        Some(id)
    }

    /// The tables that it made, when it is undone.
    pub fn take_made(&mut self) -> Vec<CreatedObject> {
        match self {
            Transaction::Idle => vec![],
            Transaction::Open(open) | Transaction::Failed(open) => std::mem::take(&mut open.made),
        }
    }

    /// What the session had to itself when it began, when it is undone. `None`: there is none.
    pub fn take_own(&mut self) -> Option<Arc<TemporaryObjects>> {
        match self {
            Transaction::Idle => None,
            Transaction::Open(open) | Transaction::Failed(open) => open.own_before.take(),
        }
    }

    /// Forgets a savepoint and those after it; what is held stays. How many are left.
    pub fn release(&mut self, name: &str) -> Result<usize> {
        let open = self.block("RELEASE SAVEPOINT")?;
        let place = open.place(name)?;
        // READ ONLY that was set behind the savepoint ends with it, as in PostgreSQL; what SET LOCAL set there stays.
        open.read_only = open.savepoints[place].read_only;
        open.savepoints.truncate(place);
        Ok(place)
    }

    /// Drops what came after a savepoint, which stays.
    pub fn roll_back_to(&mut self, name: &str) -> Result<RollbackEffects> {
        let open = self.block("ROLLBACK TO SAVEPOINT")?;
        let n_left = open.place(name)? + 1;
        open.savepoints.truncate(n_left);
        let (mut made, mut own) = (vec![], None);
        if let Some(savepoint) = open.savepoints.last() {
            let Savepoint { n_writes, n_drops, n_made, read_only, deferral, n_moves, own: then, .. } = savepoint;
            own = Some(Arc::clone(then));
            open.deferral.clone_from(deferral);
            open.moves.truncate(*n_moves);
            open.keys_wait = false;
            let (n_writes, n_drops, n_made, read_only) = (*n_writes, *n_drops, *n_made, *read_only);
            open.go_back(n_writes)?;
            open.drops.truncate(n_drops);
            made = open.made.split_off(n_made.min(open.made.len()));
            open.read_only = read_only;
        }
        if let Transaction::Failed(open) = self {
            *self = Transaction::Open(std::mem::take(open));
        }
        Ok(RollbackEffects { n_left, made, own })
    }

    fn block(&mut self, what: &str) -> Result<&mut OpenTransaction> {
        match self {
            Transaction::Open(open) | Transaction::Failed(open) if !open.is_implicit => Ok(open),
            _ => {
                let message = format!("{what} can only be used in transaction blocks");
                Err(SqlError::new(state::NO_ACTIVE_TRANSACTION, message).with_hint("BEGIN first"))
            }
        }
    }

    /// How often the transaction changed rows of a table.
    pub fn n_changes(&self, table: TableId) -> u64 {
        self.own_of(table).map_or(0, |own| own.n_changes())
    }

    /// How often the transaction changed rows of any table.
    pub fn n_changes_in_all(&self) -> u64 {
        let Transaction::Open(open) = self else { return 0 };
        open.own.values().map(|writes| writes.own.n_changes()).sum()
    }

    /// What the transaction wrote into a table.
    pub fn own_of(&self, table: TableId) -> Option<Arc<OwnWrites>> {
        let Transaction::Open(open) = self else { return None };
        open.own.get(&table).map(|writes| Arc::clone(&writes.own))
    }

    /// Whether its client called it something.
    pub fn is_named(&self) -> bool {
        matches!(self, Transaction::Open(OpenTransaction { request: Some(_), .. }))
    }

    /// How many batches were looked at for children of parents that went.
    pub fn n_followed(&self) -> usize {
        if let Transaction::Open(open) = self { open.n_followed } else { 0 }
    }

    /// How many batches are held.
    pub fn n_writes(&self) -> usize {
        if let Transaction::Open(open) = self { open.writes.len() } else { 0 }
    }

    /// All batches were looked at.
    pub fn followed(&mut self) {
        if let Transaction::Open(open) = self {
            open.n_followed = open.writes.len();
        }
    }

    /// What is owed to foreign keys waits, or does not any more.
    pub fn keys_wait(&mut self, waits: bool) {
        if let Transaction::Open(open) = self {
            open.keys_wait = waits;
        }
    }

    /// All that the transaction wrote, and which keys behind the first `from` batches: those that foreign keys are
    /// about.
    pub fn wrote_since(&self, from: usize, edges: &Edges) -> UncommittedWrites {
        let Transaction::Open(open) = self else { return UncommittedWrites::default() };
        let asked: BTreeSet<TableId> =
            edges.all.iter().flat_map(|edge| [edge.serving.index, edge.referenced.keys]).collect();
        let mut keys: HashMap<TableId, BTreeSet<Vec<u8>>> = HashMap::new();
        for held in open.writes.iter().skip(from).filter(|held| held.does != HeldEffect::Locks) {
            let id = held.table.schema().id;
            if asked.contains(&id) {
                keys.entry(id).or_default().extend(held.batch.iter().map(|mutation| mutation.key.to_vec()));
            }
        }
        UncommittedWrites { own: self.own_writes(), keys: Some(keys) }
    }

    /// What the transaction wrote, by table.
    pub fn own_writes(&self) -> HashMap<TableId, Arc<OwnWrites>> {
        let Transaction::Open(open) = self else { return HashMap::new() };
        open.own.iter().map(|(id, writes)| (*id, Arc::clone(&writes.own))).collect()
    }

    /// Keys of rows that were deleted behind the first `from` batches, and of their entries; not of those that got
    /// other values.
    pub fn deleted_since(&self, from: usize) -> HashSet<(TableId, Vec<u8>)> {
        let Transaction::Open(open) = self else { return HashSet::new() };
        let deletes = open.writes.iter().skip(from).filter(|held| held.privilege == Privilege::Delete);
        let keys = deletes.flat_map(|held| {
            held.batch.iter().map(|mutation| (held.table.schema().id, mutation.key.to_vec())).collect::<Vec<_>>()
        });
        keys.collect()
    }

    /// The cells of a row or entry among the first `n` batches, as the last of them that wrote it did.
    pub fn held_before(&self, n: usize, table: TableId, key: &[u8]) -> Option<Vec<u8>> {
        let Transaction::Open(open) = self else { return None };
        let batches = open.writes.iter().take(n).rev().filter(|held| held.table.schema().id == table);
        let mut found = batches.filter_map(|held| {
            let its = held.batch.iter().filter(|mutation| mutation.key == key && mutation.op != Op::Delete);
            its.last().map(|mutation| mutation.cells.to_vec())
        });
        found.next()
    }

    /// Rows of a table got other keys.
    pub fn moved(&mut self, table: TableId, moves: Vec<(Vec<u8>, Vec<u8>)>) {
        if let Transaction::Open(open) = self {
            open.moves.extend(moves.into_iter().map(|(from, to)| (table, from, to)));
        }
    }

    /// The key that a row got last which had this one.
    pub fn moved_to(&self, table: TableId, key: &[u8]) -> Option<Vec<u8>> {
        let Transaction::Open(open) = self else { return None };
        let found = open.moves.iter().rev().find(|(of, from, _)| *of == table && from == key);
        found.map(|(_, _, to)| to.clone())
    }

    /// Which foreign keys are checked at COMMIT.
    pub fn deferral(&self) -> Deferral {
        if let Transaction::Open(open) = self { open.deferral.clone() } else { Deferral::default() }
    }

    /// `SET CONSTRAINTS`. False: there is no transaction.
    pub fn defer(&mut self, said: &SetConstraints) -> bool {
        match self {
            Transaction::Open(open) if !open.is_alone => {
                open.deferral.say(said);
                true
            }
            _ => false,
        }
    }

    /// A failed one is not.
    pub fn is_open(&self) -> bool {
        matches!(self, Transaction::Open(_))
    }

    /// What a statement that begins now sees beside what is committed.
    ///
    /// Errors: as of [`tarn_node::tables::TableService::moment`].
    pub fn sees(&mut self, node: &Node) -> tarn_node::error::Result<TransactionView> {
        let Transaction::Open(open) = self else { return Ok(TransactionView::default()) };
        open.has_begun = true;
        if open.isolation == Isolation::RepeatableRead && open.moment.is_none() {
            open.moment = Some(Arc::new(node.tables().moment()?));
        }
        let own = open.own.iter().map(|(id, writes)| (*id, Arc::clone(&writes.own)));
        Ok(TransactionView { own: own.collect(), moment: open.moment.clone() })
    }

    /// What a query that begins now reads beside what is committed: what the statement sees that it is a part of.
    ///
    /// Errors: as of [`Transaction::sees`].
    pub fn reads(&mut self, node: &Node) -> tarn_node::error::Result<TransactionView> {
        match self {
            Transaction::Open(OpenTransaction { parts: Some(parts), .. }) => Ok(parts.began.clone()),
            other => other.sees(node),
        }
    }

    /// A statement of several parts begins: all of them read what is there now.
    ///
    /// Errors: as of [`Transaction::sees`].
    pub fn begin_parts(&mut self, node: &Node) -> tarn_node::error::Result<()> {
        let mut began = self.sees(node)?;
        if began.moment.is_none() {
            began.moment = Some(Arc::new(node.tables().moment()?));
        }
        if let Transaction::Open(open) = self {
            open.parts = Some(StatementParts { began, before: HashMap::new() });
        }
        Ok(())
    }

    /// The next of them begins.
    pub fn begin_part(&mut self) {
        if let Transaction::Open(OpenTransaction { parts: Some(parts), own, .. }) = self {
            parts.before = own.iter().map(|(id, writes)| (*id, Arc::clone(&writes.own))).collect();
        }
    }

    /// All of them ran, or one failed.
    pub fn end_of_parts(&mut self) {
        if let Transaction::Open(open) = self {
            open.parts = None;
        }
    }

    /// Whether a statement of several parts runs: they read what was there when it began.
    pub fn is_in_parts(&self) -> bool {
        matches!(self, Transaction::Open(OpenTransaction { parts: Some(_), .. }))
    }

    /// What the parts of the statement before the one that runs did to a table.
    pub fn other_parts(&self, table: TableId) -> Option<OtherParts> {
        let Transaction::Open(OpenTransaction { parts: Some(parts), .. }) = self else { return None };
        let own = Arc::clone(parts.before.get(&table)?);
        let n_before = parts.began.own.get(&table).map_or(0, |own| own.n_changes());
        Some(OtherParts { own, n_before })
    }

    /// Whether a statement that begins now sees nothing but what is committed: no transaction wrote anything, or goes
    /// on seeing what was.
    pub fn sees_committed(&mut self) -> bool {
        let Transaction::Open(open) = self else { return true };
        open.has_begun = true;
        open.own.is_empty() && open.drops.is_empty() && open.isolation != Isolation::RepeatableRead
    }

    /// Whether names of tables and views are taken or given when it commits, behind all else.
    pub fn changes_names(&self) -> bool {
        let Transaction::Open(open) = self else { return false };
        open.drops.iter().any(|ddl| match ddl {
            Ddl::Drop { .. } | Ddl::DropSchemas { .. } | Ddl::Rename(_) | Ddl::Views(ViewStatement::Drop { .. }) => {
                true
            }
            Ddl::Create { .. }
            | Ddl::DropTypes(_)
            | Ddl::DropFunctions(_)
            | Ddl::Views(ViewStatement::Create { .. } | ViewStatement::Comment(_)) => false,
        })
    }

    /// What tables and views will be called when it commits, each with what it is called now.
    pub fn names_at_commit(&self, now: Vec<String>) -> BTreeMap<String, String> {
        let mut names: BTreeMap<String, String> = now.into_iter().map(|name| (name.clone(), name)).collect();
        let Transaction::Open(open) = self else { return names };
        for ddl in &open.drops {
            match ddl {
                Ddl::Drop { names: gone, .. } | Ddl::Views(ViewStatement::Drop { names: gone, .. }) => {
                    gone.iter().for_each(|name| drop(names.remove(name)));
                }
                Ddl::Rename(renames) => {
                    for Rename { from, to } in renames {
                        if let Some(now) = names.remove(from) {
                            names.insert(to.clone(), now);
                        }
                    }
                }
                Ddl::DropSchemas { names: gone, .. } => names.retain(|name, _| !is_in(gone, name)),
                Ddl::Create { .. } | Ddl::DropTypes(_) | Ddl::DropFunctions(_) | Ddl::Views(_) => {}
            }
        }
        names
    }

    /// Errors: `42P01` for a name that the transaction takes away when it commits, `0A000` for one that it gives then.
    pub fn check_named(&self, name: &str) -> Result<()> {
        let Transaction::Open(open) = self else { return Ok(()) };
        let mut renames = open.drops.iter().filter_map(|ddl| if let Ddl::Rename(of) = ddl { Some(of) } else { None });
        if renames.clone().flatten().any(|rename| rename.to == name) {
            let message = format!("reading or changing \"{name}\", which this transaction calls so when it commits");
            return Err(SqlError::unsupported(message, "COMMIT first"));
        }
        match renames.any(|of| of.iter().any(|rename| rename.from == name)) {
            true => Err(SqlError::undefined_table(name).with_detail("this transaction renames it")),
            false => Ok(()),
        }
    }

    /// Before a statement that names a table or view.
    ///
    /// Errors: as of [`Transaction::check_named`]; `42P01` for one that the transaction drops when it commits, `0A000`
    /// for a view that gets another query then.
    pub fn check_there(&self, name: &str) -> Result<()> {
        let Transaction::Open(open) = self else { return Ok(()) };
        self.check_named(name)?;
        let is_dropped = |ddl: &Ddl| match ddl {
            Ddl::Drop { names, .. } | Ddl::Views(ViewStatement::Drop { names, .. }) => {
                names.iter().any(|other| other == name)
            }
            Ddl::DropSchemas { names, .. } => is_in(names, name),
            _ => false,
        };
        let is_replaced =
            |ddl: &Ddl| matches!(ddl, Ddl::Views(ViewStatement::Create { schema, .. }) if schema.name == name);
        if open.drops.iter().any(is_replaced) {
            return Err(SqlError::unsupported(
                format!("reading view \"{name}\", which this transaction gave another query"),
                "COMMIT first",
            ));
        }
        match open.drops.iter().any(is_dropped) {
            true => Err(SqlError::undefined_table(name).with_detail("this transaction drops it")),
            false => Ok(()),
        }
    }

    /// As [`Transaction::check_there`], of a table that is known: one of the session's own is not the one of its name
    /// that is dropped.
    pub fn check_table(&self, table: &TableSchema) -> Result<()> {
        if table.id.is_temporary() { Ok(()) } else { self.check_there(&table.name) }
    }

    /// Before a write. True: hold it; false: commit it at once.
    pub fn must_hold(&self) -> Result<bool> {
        match self {
            Transaction::Open(OpenTransaction { read_only: true, .. }) => {
                Err(SqlError::new(state::READ_ONLY_TRANSACTION, "cannot write in a read-only transaction"))
            }
            Transaction::Open(_) => Ok(true),
            _ => Ok(false),
        }
    }

    fn writable(&mut self) -> Result<&mut OpenTransaction> {
        match self {
            Transaction::Open(open) => Ok(open),
            _ => Err(SqlError::new(state::NO_ACTIVE_TRANSACTION, "there is no transaction in progress")),
        }
    }

    /// Whether it drops a type at COMMIT.
    pub fn drops_type(&self, id: TypeId) -> bool {
        match self {
            Transaction::Open(open) => {
                open.drops.iter().any(|ddl| matches!(ddl, Ddl::DropTypes(ids) if ids.contains(&id)))
            }
            _ => false,
        }
    }

    /// Whether it drops a function at COMMIT.
    pub fn drops_function(&self, id: FunctionId) -> bool {
        match self {
            Transaction::Open(open) => {
                open.drops.iter().any(|ddl| matches!(ddl, Ddl::DropFunctions(ids) if ids.contains(&id)))
            }
            _ => false,
        }
    }

    /// Whether it drops a schema at COMMIT.
    pub fn drops_schema(&self, id: SchemaId) -> bool {
        match self {
            Transaction::Open(open) => {
                open.drops.iter().any(|ddl| matches!(ddl, Ddl::DropSchemas { ids, .. } if ids.contains(&id)))
            }
            _ => false,
        }
    }

    /// Drops tables, or changes views, when it commits.
    pub fn drop_later(&mut self, ddl: Ddl) -> Result<()> {
        self.writable()?.drops.push(ddl);
        Ok(())
    }

    /// Holds what a statement wrote until COMMIT. `budget` is what all transactions together may hold.
    pub fn hold(
        &mut self,
        changes: PendingChanges,
        does: HeldEffect,
        limit_bytes: u64,
        budget: &Arc<Budget>,
    ) -> Result<()> {
        let PendingChanges { table, privilege, batches } = changes;
        self.check_table(table.schema())?;
        let open = self.writable()?;
        open.has_begun = true;
        for batch in batches.into_iter().filter(|batch| !batch.is_empty()) {
            open.size_bytes += batch.size_bytes();
            let size_bytes = open.size_bytes as u64;
            if size_bytes > limit_bytes {
                let message = format!("the transaction holds {size_bytes} bytes, the limit is {limit_bytes}");
                return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint(match open.is_alone {
                    true => HINT_ALONE,
                    false => "load outside BEGIN, by a message of one statement (autocommit), or raise the setting transaction_bytes",
                }));
            }
            if !open.reservation.get_or_insert_with(|| budget.reservation()).resize(size_bytes) {
                return Err(no_room(budget));
            }
            let held = HeldBatch { table: Arc::clone(&table), privilege, batch, does };
            add(&mut open.own, &held)?;
            open.writes.push(held);
        }
        Ok(())
    }
}

/// What to do about a statement that is held because of foreign keys, and is too large for that.
const HINT_ALONE: &str = "a statement that writes a table with foreign keys, or one that others refer to, is held whole: write fewer \
                          rows at once, ADD FOREIGN KEY behind the load, or raise the setting transaction_bytes";

/// Whether a full name is in one of these schemas.
fn is_in(schemas: &[String], name: &str) -> bool {
    schemas.iter().any(|schema| schema == full_name::schema_of(name))
}

/// Drops the tables, types, schemas and functions that a transaction made, unless somebody else did, and indexes that
/// no table names. The node does so itself: whoever made them may not be let in any more, or have given them away.
pub async fn drop_made(node: &Arc<Node>, made: Vec<CreatedObject>) -> Result<()> {
    let who = &Principal::Node;
    for CreatedObject { name, what } in made.into_iter().rev() {
        let id = match what {
            CreatedId::Relation(id) => id,
            CreatedId::Index(id) => {
                node.drop_unnamed_index(who, id).await?;
                continue;
            }
            CreatedId::Function(id) => {
                node.drop_functions(who, &[id]).await.map_err(|error| {
                    let error = SqlError::from(error);
                    let message = format!("function \"{name}\", which the transaction made: {}", error.message());
                    SqlError::new(error.state(), message).with_hint("it is there: DROP FUNCTION it")
                })?;
                continue;
            }
            CreatedId::Schema(id) => {
                node.drop_schema(who, id, false, REWRITES).await.map_err(|error| {
                    let error = SqlError::from(error);
                    let message = format!("schema \"{name}\", which the transaction made: {}", error.message());
                    SqlError::new(error.state(), message).with_hint("it is there: DROP SCHEMA it")
                })?;
                continue;
            }
            CreatedId::Type(id) => {
                node.drop_type(who, id).await.map_err(|error| {
                    let error = SqlError::from(error);
                    let message = format!("type \"{name}\", which the transaction made: {}", error.message());
                    SqlError::new(error.state(), message).with_hint("it is there: DROP TYPE it")
                })?;
                continue;
            }
        };
        if node.catalog().schema(&name).is_ok_and(|there| there.id == id) {
            node.drop_table(who, &name, true).await.map_err(|error| {
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
pub fn no_room(budget: &Budget) -> SqlError {
    let limit = budget.limit();
    let message =
        format!("what transactions hold until COMMIT, and UPDATE and DELETE until they write, is {limit} bytes");
    SqlError::new(state::OUT_OF_MEMORY, message)
        .with_hint("COMMIT earlier or use autocommit, change fewer rows at once, try again later, or raise the setting transactions_bytes")
}
