//! Who gives the numbers of this server, and who changes what sequences there are?
//!
//! All sequences are one document of the metastore, which is changed as a whole if nobody else was quicker. Numbers are
//! taken from it by blocks: 32 at first, twice as many each time, so that few of them are lost by a crash and bulk
//! loads rarely wait for the disk.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_metastore::{Metastore, document, put_document};
use tarn_types::{ColumnId, TableId, TableSchema};

use super::kept::{Sequences, of_text, to_text};
use super::sequence::{Block, Owner, Sequence};
use crate::error::{Error, ErrorKind, Result};

/// The name of the document.
const DOCUMENT: &str = "sequences";

/// How often a change is tried that other servers get in the way of.
const TRIES: usize = 16;

/// Numbers of the first block, and of the largest that nobody asked for as a whole.
const FIRST_BLOCK: u64 = 32;
const LARGEST_BLOCK: u64 = 8_192;

/// Numbers that are taken at once, at most: a batch of rows has fewer.
const MOST_AT_ONCE: u64 = 1 << 20;

/// Numbers that were given, in the order in which they are to be used.
pub type SequenceValues = Vec<i64>;

/// `setval`, and `ALTER SEQUENCE … RESTART`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reset {
    /// The number that counts as given last, or is given next.
    pub last: i64,
    /// Whether the next number is the one behind.
    pub is_called: bool,
}

/// The sequences of a server. Shared by its sessions.
pub struct Directory {
    metastore: Arc<dyn Metastore>,
    /// Of sequences whose numbers were asked for. Held for moments only.
    taken: Mutex<HashMap<String, ReservedBlock>>,
    /// The names that were there when all were asked for, or changed, last. Held for moments only.
    seen: Mutex<Arc<[String]>>,
    /// One change of the document at a time.
    changing: tokio::sync::Mutex<()>,
}

/// What this server took of a sequence.
struct ReservedBlock {
    block: Block,
    /// Of the next block.
    n_next: u64,
    owner: Option<Owner>,
    maker: Option<String>,
}

impl Directory {
    /// No IO.
    pub fn new(metastore: Arc<dyn Metastore>) -> Directory {
        let (taken, seen, changing) = (Mutex::default(), Mutex::new([].into()), tokio::sync::Mutex::default());
        Directory { metastore, taken, seen, changing }
    }

    /// All there are, by name. Cost: one list of the tables.
    pub async fn all(&self) -> Result<Vec<(String, Sequence)>> {
        let all: Vec<(String, Sequence)> = read(&*self.metastore).await?.0.into_iter().collect();
        *self.seen.lock() = all.iter().map(|(name, _)| name.clone()).collect();
        Ok(all)
    }

    /// The names that there were when [`Directory::all`] told them, or one was changed, last. No IO.
    pub fn seen(&self) -> Arc<[String]> {
        Arc::clone(&self.seen.lock())
    }

    /// Cost: one list of the tables.
    ///
    /// Errors: `NoTable`, as there is none of this name.
    pub async fn get(&self, name: &str) -> Result<Sequence> {
        read(&*self.metastore).await?.0.remove(name).ok_or_else(|| missing(name))
    }

    /// `n` numbers that are in memory, if there are so many.
    pub(crate) fn take_now(&self, name: &str, n: u64) -> Option<SequenceValues> {
        let mut taken = self.taken.lock();
        let block = &mut taken.get_mut(name).filter(|taken| taken.block.n_left >= n)?.block;
        let mut numbers = SequenceValues::new();
        block.take(n, &mut numbers);
        Some(numbers)
    }

    /// `n` numbers. Cost: nothing while the block lasts; then one change of a document, which is a few lists of the
    /// tables and two durable writes.
    ///
    /// Errors: `NoTable`; `ProgramLimit` when there are not so many left; `Conflict` when others take numbers again and
    /// again. Numbers that were taken by then are a gap.
    pub(crate) async fn take(&self, name: &str, n: u64) -> Result<SequenceValues> {
        check_n(name, n)?;
        let mut numbers = SequenceValues::new();
        loop {
            let missing = n - numbers.len() as u64;
            if missing == 0 {
                return Ok(numbers);
            }
            if let Some(taken) = self.taken.lock().get_mut(name)
                && taken.block.n_left > 0
            {
                taken.block.take(missing, &mut numbers);
                continue;
            }
            self.take_block(name, missing).await?;
        }
    }

    /// One more block in memory, unless somebody else has just done that.
    async fn take_block(&self, name: &str, wanted: u64) -> Result<()> {
        let one = self.changing.lock().await;
        let n_next = match self.taken.lock().get(name) {
            Some(taken) if taken.block.n_left > 0 => return Ok(()),
            Some(taken) => taken.n_next,
            None => FIRST_BLOCK,
        };
        let take = |sequences: &mut Sequences| {
            let sequence = sequences.get_mut(name).ok_or_else(|| missing(name))?;
            let least = u64::try_from(sequence.cache).unwrap_or(1);
            let block = sequence.reserve(wanted.max(n_next).max(least)).ok_or_else(|| used_up(name, sequence))?;
            let n_next = (n_next * 2).min(LARGEST_BLOCK);
            Ok(ReservedBlock { block, n_next, owner: sequence.owner.clone(), maker: sequence.maker.clone() })
        };
        let taken = self.change_alone(&one, take).await;
        if taken.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoTable) {
            self.taken.lock().remove(name);
        }
        self.taken.lock().insert(name.to_owned(), taken?);
        Ok(())
    }

    /// Whose it is: the column that it goes with, and who made it. Cost: nothing for one whose numbers were asked for
    /// before.
    pub(crate) async fn owner(&self, name: &str) -> Result<(Option<Owner>, Option<String>)> {
        if let Some(known) = self.owner_now(name) {
            return Ok(known);
        }
        let sequence = self.get(name).await?;
        Ok((sequence.owner, sequence.maker))
    }

    /// What is known in memory of whose it is, as of [`Directory::owner`]; of those whose numbers were asked for.
    pub(crate) fn owner_now(&self, name: &str) -> Option<(Option<Owner>, Option<String>)> {
        self.taken.lock().get(name).map(|taken| (taken.owner.clone(), taken.maker.clone()))
    }

    /// Makes a sequence. False: it was there already and `if_not_exists` was said.
    pub(crate) async fn create(&self, name: &str, sequence: Sequence, if_not_exists: bool) -> Result<bool> {
        let made = |sequences: &mut Sequences| match sequences.contains_key(name) {
            true if if_not_exists => Ok(false),
            true => Err(Error::new(ErrorKind::TableExists, format!("relation \"{name}\" already exists"))
                .with_hint("use CREATE SEQUENCE IF NOT EXISTS, or DROP SEQUENCE it first")),
            false => {
                sequences.insert(name.to_owned(), sequence.clone());
                Ok(true)
            }
        };
        self.change(made).await
    }

    /// Calls a sequence otherwise.
    ///
    /// Errors: `NoTable`; `TableExists` when there is one of that name.
    pub(crate) async fn rename(&self, name: &str, to: &str) -> Result<()> {
        let renamed = |sequences: &mut Sequences| {
            if sequences.contains_key(to) {
                return Err(Error::new(ErrorKind::TableExists, format!("relation \"{to}\" already exists")));
            }
            let sequence = sequences.remove(name).ok_or_else(|| missing(name))?;
            sequences.insert(to.to_owned(), sequence);
            Ok(())
        };
        self.change(renamed).await
    }

    /// Drops a sequence. False: there is none.
    pub(crate) async fn remove(&self, name: &str) -> Result<bool> {
        self.change(|sequences| Ok(sequences.remove(name).is_some())).await
    }

    /// Drops what goes with a table's columns. Cost: one list of the tables if there is none.
    pub(crate) async fn drop_of_table(&self, table: &str, id: TableId) -> Result<()> {
        let is_owned = |owner: &Owner| owner.table_id.map_or(owner.table == table, |owner| owner == id);
        let is_of_it = |of: &Sequence| of.owner.as_ref().is_some_and(is_owned);
        if !read(&*self.metastore).await?.0.values().any(is_of_it) {
            return Ok(());
        }
        self.change(|sequences| {
            sequences.retain(|_, of| !is_of_it(of));
            Ok(())
        })
        .await
    }

    /// Before a table is called otherwise: what goes with its columns knows it by its id from then on. Cost: one list
    /// of the tables if there is nothing.
    pub(crate) async fn know_by_id(&self, table: &str, id: TableId) -> Result<()> {
        self.mark(|owner| owner.table == table, |owner| owner.table_id = Some(id)).await
    }

    /// Before columns of a table are called otherwise, or go: what goes with them knows table and column by their ids
    /// from then on. Cost: as of [`Directory::know_by_id`].
    pub(crate) async fn know_columns(&self, table: &TableSchema, columns: &[ColumnId]) -> Result<()> {
        let column = |owner: &Owner| table.column(&owner.column).map(|(_, column)| column.id);
        let is_one = |owner: &Owner| column(owner).is_none_or(|id| columns.contains(&id));
        let mark = |owner: &mut Owner| {
            owner.table_id = Some(table.id);
            owner.column_id = column(owner);
        };
        self.mark(|owner| owner.table == table.name && is_one(owner), mark).await
    }

    /// Before another table takes the place and the name of one: what goes with its columns goes by the name again.
    pub(crate) async fn know_by_name(&self, table: &str, id: TableId) -> Result<()> {
        let mark = |owner: &mut Owner| (owner.table, owner.table_id, owner.column_id) = (table.to_owned(), None, None);
        self.mark(|owner| owner.table_id == Some(id), mark).await
    }

    /// Changes how owners are known, if there are such.
    async fn mark(&self, is_its: impl Fn(&Owner) -> bool + Sync, mark: impl Fn(&mut Owner) + Sync) -> Result<()> {
        if !read(&*self.metastore).await?.0.values().any(|of| of.owner.as_ref().is_some_and(&is_its)) {
            return Ok(());
        }
        self.change(|sequences| {
            let owners = sequences.values_mut().filter_map(|of| of.owner.as_mut());
            owners.filter(|owner| is_its(owner)).for_each(&mark);
            Ok(())
        })
        .await
    }

    /// After tables were called otherwise: what was taken of sequences that go with a table is known by its old name,
    /// and forgotten. Those numbers are a gap.
    pub(crate) fn forget_owners(&self) {
        self.taken.lock().retain(|_, taken| taken.owner.is_none());
    }

    /// After columns of a table were dropped: no number is given any more that was taken of what went with them.
    pub(crate) fn forget_columns(&self, table: &TableSchema, columns: &[ColumnId]) {
        let is_gone = |owner: &Owner| {
            let column = table.column(&owner.column).is_some_and(|(_, column)| columns.contains(&column.id));
            owner.table == table.name && column
        };
        self.taken.lock().retain(|_, taken| !taken.owner.as_ref().is_some_and(is_gone));
    }

    /// `TRUNCATE … RESTART IDENTITY`: what goes with a table's columns begins anew.
    pub(crate) async fn restart_of_table(&self, table: &str) -> Result<()> {
        let restart = |sequences: &mut Sequences| {
            for of in sequences.values_mut() {
                if of.owner.as_ref().is_some_and(|owner| owner.table == table) {
                    (of.last, of.is_called) = (of.start, false);
                }
            }
            Ok(())
        };
        self.change(restart).await
    }

    /// Changes a sequence; numbers that this server has of it are dropped. Other servers notice when theirs are used
    /// up.
    pub(crate) async fn alter(&self, name: &str, change: impl Fn(&mut Sequence) -> Result<()>) -> Result<()> {
        let altered = self.change(|sequences| {
            change(sequences.get_mut(name).ok_or_else(|| missing(name))?)?;
            // Also if the document says the same already: what is left in memory is before that.
            self.taken.lock().remove(name);
            Ok(())
        });
        altered.await
    }

    /// Numbers of sequences that were changed or dropped are forgotten: before the change, so that none of them is
    /// given behind it.
    async fn change<T>(&self, change: impl Fn(&mut Sequences) -> Result<T>) -> Result<T> {
        let one = self.changing.lock().await;
        let changed = self.change_alone(&one, |sequences| {
            let before = sequences.clone();
            let done = change(sequences)?;
            self.taken.lock().retain(|name, _| before.get(name) == sequences.get(name));
            Ok(done)
        });
        changed.await
    }

    async fn change_alone<T>(
        &self,
        _one: &tokio::sync::MutexGuard<'_, ()>,
        change: impl Fn(&mut Sequences) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..TRIES {
            let (mut sequences, version) = read(&*self.metastore).await?;
            let before = sequences.clone();
            let done = change(&mut sequences)?;
            if sequences == before {
                return Ok(done);
            }
            match put_document(&*self.metastore, DOCUMENT, version, &to_text(&sequences)).await {
                Ok(_) => {
                    *self.seen.lock() = sequences.into_keys().collect();
                    return Ok(done);
                }
                Err(tarn_metastore::Error::DocumentChanged { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::new(ErrorKind::Conflict, "other servers changed sequences again and again").with_hint("try again"))
    }
}

async fn read(metastore: &dyn Metastore) -> Result<(Sequences, u64)> {
    let Some(document) = document(metastore, DOCUMENT).await? else { return Ok((Sequences::default(), 0)) };
    let mut sequences = of_text(&document.text)?;
    let owners = || sequences.values().filter_map(|of| of.owner.as_ref());
    if owners().any(|owner| owner.table_id.is_some()) {
        let tables = metastore.tables().await?;
        sequences.retain(|_, of| of.owner.as_ref().is_none_or(|owner| !is_dropped(owner, &tables)));
        for owner in sequences.values_mut().filter_map(|of| of.owner.as_mut()) {
            let now = tables.iter().find(|table| owner.table_id == Some(table.id));
            let column = now.zip(owner.column_id).and_then(|(table, id)| table.column_by_id(id));
            if let Some(column) = column {
                owner.column.clone_from(&column.name);
            }
            // Of a table that is gone, a name would be another's.
            if owner.table_id.is_some() {
                owner.table = now.map(|table| table.name.clone()).unwrap_or_default();
            }
        }
    }
    Ok((sequences, document.version))
}

/// Whether the column is gone that it went with: who dropped the column may have died before anybody wrote the
/// sequences anew.
fn is_dropped(owner: &Owner, tables: &[Arc<TableSchema>]) -> bool {
    let table = tables.iter().find(|table| owner.table_id == Some(table.id));
    table.zip(owner.column_id).is_some_and(|(table, id)| table.column_by_id(id).is_none())
}

/// `n` numbers of a sequence that somebody keeps in memory, and that is gone with it.
///
/// Errors: as of `take`.
pub fn give(sequence: &mut Sequence, name: &str, n: u64) -> Result<SequenceValues> {
    check_n(name, n)?;
    let mut numbers = SequenceValues::new();
    while (numbers.len() as u64) < n {
        let missing = n - numbers.len() as u64;
        sequence.reserve(missing).ok_or_else(|| used_up(name, sequence))?.take(missing, &mut numbers);
    }
    Ok(numbers)
}

fn check_n(name: &str, n: u64) -> Result<()> {
    if n <= MOST_AT_ONCE {
        return Ok(());
    }
    let message = format!("{n} numbers of sequence \"{name}\" at once, {MOST_AT_ONCE} is the most");
    Err(Error::new(ErrorKind::ProgramLimit, message))
}

fn missing(name: &str) -> Error {
    Error::new(ErrorKind::NoTable, format!("relation \"{name}\" does not exist"))
        .with_hint("CREATE SEQUENCE makes one; information_schema.sequences lists them")
}

fn used_up(name: &str, sequence: &Sequence) -> Error {
    let (end, limit) = if sequence.increment > 0 { ("maximum", sequence.max) } else { ("minimum", sequence.min) };
    Error::new(ErrorKind::UsedUp, format!("nextval: reached {end} value of sequence \"{name}\" ({limit})"))
}

#[cfg(test)]
mod tests {
    use tarn_metastore::Embedded;

    use super::*;
    use crate::clock::SystemClock;

    fn metastore(dir: &std::path::Path) -> Arc<dyn Metastore> {
        let (metastore, _) = Embedded::open(dir, Arc::new(SystemClock::default())).unwrap();
        Arc::new(metastore)
    }

    #[tokio::test]
    async fn servers_of_one_metastore_never_give_the_same_number() {
        let dir = tempfile::tempdir().unwrap();
        let metastore = metastore(dir.path());
        let (one, other) = (Directory::new(Arc::clone(&metastore)), Directory::new(metastore));
        assert!(one.create("s", Sequence::default(), false).await.unwrap());
        assert_eq!(one.take("s", 2).await.unwrap(), [1, 2]);
        assert_eq!(other.take("s", 1).await.unwrap(), [FIRST_BLOCK as i64 + 1]);
        assert_eq!(one.take("s", 1).await.unwrap(), [3]);
        // More than is left of the block: the rest comes from the next.
        let many = one.take("s", 100).await.unwrap();
        assert_eq!((many[0], many[28], many[29]), (4, 32, 65));
        assert!(one.take_now("s", 1_000_000).is_none());
    }

    #[tokio::test]
    async fn what_is_changed_forgets_the_numbers_that_were_taken_before() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::new(metastore(dir.path()));
        directory.create("s", Sequence { max: 100, ..Sequence::default() }, false).await.unwrap();
        assert_eq!(directory.take("s", 1).await.unwrap(), [1]);
        let reset = |sequence: &mut Sequence| {
            (sequence.last, sequence.is_called) = (99, true);
            Ok(())
        };
        directory.alter("s", reset).await.unwrap();
        assert_eq!(directory.take("s", 1).await.unwrap(), [100]);
        let error = directory.take("s", 1).await.unwrap_err();
        assert_eq!(error.message(), "nextval: reached maximum value of sequence \"s\" (100)");
        assert!(directory.remove("s").await.unwrap());
        assert_eq!(directory.take("s", 1).await.unwrap_err().kind(), ErrorKind::NoTable);
        assert!(!directory.remove("s").await.unwrap());
    }

    /// The document has the last number of the block, which was not given yet.
    #[tokio::test]
    async fn what_is_set_to_the_end_of_the_block_goes_on_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::new(metastore(dir.path()));
        directory.create("s", Sequence::default(), false).await.unwrap();
        assert_eq!(directory.take("s", 1).await.unwrap(), [1]);
        let end = FIRST_BLOCK as i64;
        let reset = |sequence: &mut Sequence| {
            (sequence.last, sequence.is_called) = (end, true);
            Ok(())
        };
        directory.alter("s", reset).await.unwrap();
        assert_eq!(directory.take("s", 1).await.unwrap(), [end + 1]);
    }

    #[tokio::test]
    async fn what_goes_with_a_table_goes() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::new(metastore(dir.path()));
        let owner =
            Owner { table: "t".into(), table_id: None, column: "id".into(), column_id: None, is_identity: false };
        directory.create("t_id_seq", Sequence { owner: Some(owner), ..Sequence::default() }, false).await.unwrap();
        directory.create("s", Sequence::default(), false).await.unwrap();
        assert!(!directory.create("s", Sequence::default(), true).await.unwrap());
        directory.drop_of_table("t", TableId(1)).await.unwrap();
        let names: Vec<String> = directory.all().await.unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["s"]);
    }
}
