//! What does the metastore know? Pure: no IO, no clock; the backends that keep all in memory are built on it.
//!
//! A change is first *checked* (`check.rs`, `define.rs`; nothing happens yet) and becomes a [`StateRecord`], then made
//! durable by the backend, then *applied*. Applying is deterministic: a log of records replayed gives the same state.
//!
//! ```text
//! Table: oldest (a whole version) + commits after it ──> latest (a whole version)
//! ```
//!
//! Where the metadata of blocks is, is each backend's business.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_types::{Cursor, FileId, TableId, TableSchema, TabletId, Version};

use crate::check::{CommitBase, CommitCheck, advance_all, check_commit};
use crate::commits::Commits;
use crate::define::{altered, number_columns};
use crate::ids::Ids;
use crate::{
    Alteration, Commit, CommitInfo, CommitKind, Definition, Error, File, Result, Stats, TableVersion, VersionSelector,
};

/// Whole versions kept beside the oldest and the latest: a reader between a commit and its installation asks for the
/// one before the latest.
const RECENT_VERSIONS: usize = 4;

/// One change, as it is logged.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "what is said of each names its fields")]
pub enum StateRecord {
    /// A table that was not there, at version 0.
    Create { schema: Arc<TableSchema>, at_ms: i64 },
    /// A table and all that is kept of it goes.
    Drop { table: TableId },
    /// File ids below `next_file` are given out.
    Reserve { next_file: FileId },
    /// A table's next version.
    Commit {
        table: TableId,
        commit: Arc<CommitInfo>,
        /// The version that it makes, when that is known already. Not logged.
        next: Option<Arc<TableVersion>>,
    },
    /// Versions below `keep` are forgotten.
    Expire { table: TableId, keep: Version },
    /// The definition of the table with this id is this one now.
    Alter { schema: Arc<TableSchema> },
    /// Several at once.
    AlterAll { schemas: Vec<Arc<TableSchema>> },
    /// A table with ids from elsewhere, at that version, without its files.
    Restore { schema: Arc<TableSchema>, version: Version, cursor: Cursor, at_ms: i64 },
    /// Its files are all in; commits of every kind are lawful from now on.
    Restored { table: TableId },
}

/// All that the store knows: ids that come next, and tables.
#[derive(Debug)]
pub struct State {
    /// Ids from here on were never given out.
    pub next_table: TableId,
    /// As `next_table`. A table takes a range of them, with room for its splits.
    pub next_tablet: TabletId,
    /// As `next_table`; what is reserved counts as given out.
    pub next_file: FileId,
    /// By id.
    pub tables: BTreeMap<TableId, Table>,
}

/// A table with the versions of it that are kept.
#[derive(Debug)]
pub struct Table {
    /// As it is now, whatever version is read.
    pub schema: Arc<TableSchema>,
    /// The first version that can still be asked for.
    pub oldest: Arc<TableVersion>,
    /// After `oldest`, without a gap.
    pub commits: Commits,
    /// Its files are still being copied from elsewhere.
    pub restoring: bool,
    latest: Arc<TableVersion>,
    /// Of `latest`: counting them takes a look at every file.
    n_blocks: u64,
    /// So many of the last commits are not in `latest`: they are being replayed.
    n_behind: usize,
    ids: Ids,
    /// Whole versions lately asked for or superseded. Holds no more than `RECENT_VERSIONS`.
    recent: Mutex<VecDeque<Arc<TableVersion>>>,
}

/// Without tables; ids begin at 1.
impl Default for State {
    fn default() -> Self {
        Self { next_table: TableId(1), next_tablet: TabletId(1), next_file: FileId(1), tables: BTreeMap::new() }
    }
}

impl State {
    /// The table, or `NoTableId`.
    pub fn table(&self, id: TableId) -> Result<&Table> {
        self.tables.get(&id).ok_or(Error::NoTableId { table: id })
    }

    fn named(&self, name: &str) -> Option<&Table> {
        self.tables.values().find(|table| table.schema.name == name)
    }

    /// Of all tables, ascending by id.
    pub fn schemas(&self) -> Vec<Arc<TableSchema>> {
        self.tables.values().map(|table| table.schema.clone()).collect()
    }

    /// The table as it will be (or was, when it is dropped), and the record. `None`: it is so already.
    pub fn check_definition(&self, change: Definition, now_ms: i64) -> Result<(Arc<TableSchema>, Option<StateRecord>)> {
        match change {
            Definition::Create(schema) => self.check_create(*schema, now_ms),
            Definition::Drop { name } => {
                let table = self.named(&name).ok_or(Error::NoTable { name })?;
                Ok((table.schema.clone(), Some(StateRecord::Drop { table: table.schema.id })))
            }
            Definition::AlterAll(changes) => self.check_alter_all(changes),
            Definition::Alter { from, to } => {
                let table = self.table(from.id)?;
                let wanted = altered(&from, *to);
                if *table.schema == *from {
                    let schema = Arc::new(wanted?);
                    if schema.name != from.name && self.named(&schema.name).is_some() {
                        return Err(Error::TableExists { name: schema.name.clone() });
                    }
                    let record = (schema != table.schema).then(|| StateRecord::Alter { schema: schema.clone() });
                    Ok((schema, record))
                } else if wanted.is_ok_and(|wanted| wanted == *table.schema) {
                    Ok((table.schema.clone(), None))
                } else {
                    Err(Error::SchemaChanged { name: table.schema.name.clone() })
                }
            }
            Definition::Restore { schema, version, cursor, committed_ms } => {
                self.check_restore(schema, version, cursor, committed_ms)
            }
            Definition::Restored { table } => {
                let (schema, restoring) = self.table(table).map(|table| (table.schema.clone(), table.restoring))?;
                Ok((schema, restoring.then_some(StateRecord::Restored { table })))
            }
        }
    }

    /// Nothing is done yet, or all of it.
    fn check_alter_all(&self, changes: Vec<Alteration>) -> Result<(Arc<TableSchema>, Option<StateRecord>)> {
        let (mut schemas, mut n_done): (Vec<Arc<TableSchema>>, usize) = (Vec::with_capacity(changes.len()), 0);
        for Alteration { from, to } in changes {
            let table = self.table(from.id)?;
            let is_twice = schemas.iter().any(|other| other.id == from.id);
            let wanted = Arc::new(altered(&from, (*to).clone())?);
            if is_twice || *wanted != *to {
                let reason = "each is altered once, and says which ids its new columns have".to_owned();
                return Err(Error::InvalidChange { name: from.name.clone(), reason });
            }
            if *table.schema == *wanted {
                n_done += 1;
            } else if *table.schema != *from {
                return Err(Error::SchemaChanged { name: table.schema.name.clone() });
            }
            schemas.push(wanted);
        }
        let Some(first) = schemas.first().cloned() else {
            let reason = "there is nothing to alter".to_owned();
            return Err(Error::InvalidChange { name: String::new(), reason });
        };
        if n_done == schemas.len() {
            return Ok((first, None));
        }
        let mut names: HashSet<&str> = HashSet::new();
        let stays = |table: &&Table| schemas.iter().all(|schema| schema.id != table.schema.id);
        let others = self.tables.values().filter(stays).map(|table| table.schema.name.as_str());
        for name in others.chain(schemas.iter().map(|schema| schema.name.as_str())) {
            if !names.insert(name) {
                return Err(Error::TableExists { name: name.to_owned() });
            }
        }
        drop(names);
        Ok((first, Some(StateRecord::AlterAll { schemas })))
    }

    /// Assigns the ids.
    fn check_create(&self, mut schema: TableSchema, at_ms: i64) -> Result<(Arc<TableSchema>, Option<StateRecord>)> {
        if self.named(&schema.name).is_some() {
            return Err(Error::TableExists { name: schema.name });
        }
        schema.id = self.next_table;
        schema.first_tablet = self.next_tablet;
        number_columns(&mut schema);
        schema.validate().map_err(|source| Error::Schema { source })?;
        let schema = Arc::new(schema);
        Ok((schema.clone(), Some(StateRecord::Create { schema, at_ms })))
    }

    fn check_restore(
        &self,
        schema: Arc<TableSchema>,
        version: Version,
        cursor: Cursor,
        at_ms: i64,
    ) -> Result<(Arc<TableSchema>, Option<StateRecord>)> {
        let invalid = |reason| Err(Error::InvalidRestore { name: schema.name.clone(), reason });
        if let Ok(table) = self.table(schema.id) {
            let begun = &table.latest;
            let is_same = table.restoring
                && table.schema == schema
                && (begun.version, &begun.cursor, begun.committed_ms) == (version, &cursor, at_ms);
            return if is_same { Ok((schema, None)) } else { invalid("its id is taken") };
        } else if self.named(&schema.name).is_some() {
            return invalid("its name is taken");
        } else if schema.id < self.next_table || schema.first_tablet < self.next_tablet {
            return invalid("its ids are below those given out already");
        }
        schema.validate().map_err(|source| Error::Schema { source })?;
        Ok((schema.clone(), Some(StateRecord::Restore { schema, version, cursor, at_ms })))
    }

    /// What this commit would make, upon the latest version. Nothing is changed.
    pub fn check_commit(&self, id: TableId, commit: Commit) -> Result<CommitCheck> {
        let table = self.table(id)?;
        check_commit(&table.standing(&table.latest, self.next_file), commit)
    }

    /// The record, and the files that no version needs once it is applied. `None`: there is nothing to forget.
    pub fn check_expire(&self, id: TableId, keep: Version) -> Result<Option<(Vec<Arc<File>>, StateRecord)>> {
        let table = self.table(id)?;
        let latest = table.latest.version;
        if keep > latest {
            return Err(Error::ExpireAhead { table: id, keep, latest });
        } else if keep <= table.oldest.version {
            return Ok(None);
        }
        Ok(Some((table.gone_before(keep), StateRecord::Expire { table: id, keep })))
    }

    /// The record of a change that was made before; `Err` says why it cannot follow on what is here.
    pub fn apply(&mut self, record: StateRecord) -> Result<(), String> {
        match record {
            StateRecord::Create { schema, at_ms } => {
                self.add_table(schema, TableVersion { committed_ms: at_ms, ..TableVersion::default() });
            }
            StateRecord::Drop { table } => {
                self.tables.remove(&table).ok_or_else(|| format!("table {table} is dropped but does not exist"))?;
            }
            StateRecord::Reserve { next_file } => self.next_file = self.next_file.max(next_file),
            StateRecord::Commit { table, commit, next } => self.existing(table)?.push(commit, next)?,
            StateRecord::Expire { table, keep } => {
                let table = self.existing(table)?;
                table.settle();
                table.expire(keep)?;
            }
            StateRecord::Alter { schema } => {
                let table = self.existing(schema.id)?;
                table.schema = schema;
            }
            StateRecord::AlterAll { schemas } => {
                for schema in schemas {
                    let table = self.existing(schema.id)?;
                    table.schema = schema;
                }
            }
            StateRecord::Restore { schema, version, cursor, at_ms } => {
                let empty = TableVersion { version, cursor, committed_ms: at_ms, ..TableVersion::default() };
                self.add_table(schema, empty).restoring = true;
            }
            StateRecord::Restored { table } => self.existing(table)?.restoring = false,
        }
        Ok(())
    }

    /// After records were replayed: makes their latest versions.
    pub fn settle(&mut self) {
        self.tables.values_mut().for_each(Table::settle);
    }

    fn add_table(&mut self, schema: Arc<TableSchema>, version: TableVersion) -> &mut Table {
        self.next_table = TableId(self.next_table.0.max(schema.id.0 + 1));
        self.next_tablet = self.next_tablet.max(schema.tablet_ids().end);
        let id = schema.id;
        self.tables.insert(id, Table::new(schema, version));
        self.tables.get_mut(&id).expect("it was inserted just now")
    }

    fn existing(&mut self, id: TableId) -> Result<&mut Table, String> {
        self.tables.get_mut(&id).ok_or_else(|| format!("table {id} does not exist"))
    }

    /// Without block metadata and the sizes of the log, which the backend knows.
    pub fn stats(&self) -> Stats {
        let latest = || self.tables.values().map(|table| &table.latest);
        Stats {
            tables: self.tables.len() as u64,
            files: latest().map(|version| version.files.len() as u64).sum(),
            blocks: self.tables.values().map(|table| table.n_blocks).sum(),
            commits: self.tables.values().map(|table| table.commits.len() as u64).sum(),
            ..Stats::default()
        }
    }
}

impl Table {
    /// A table that has this version alone.
    pub fn new(schema: Arc<TableSchema>, oldest: TableVersion) -> Self {
        let oldest = Arc::new(oldest);
        let latest = oldest.clone();
        let (commits, n_blocks, ids) = (Commits::default(), n_blocks(&latest), Ids::new());
        Self { schema, oldest, commits, restoring: false, latest, n_blocks, n_behind: 0, ids, recent: Mutex::default() }
    }

    /// The version that readers get who name none.
    pub fn latest(&self) -> &Arc<TableVersion> {
        &self.latest
    }

    /// `latest` is that of the table, or what it will be once commits before this one are in.
    pub fn standing<'a>(&'a self, latest: &'a Arc<TableVersion>, next_file: FileId) -> CommitBase<'a> {
        let Self { ids, restoring, .. } = self;
        CommitBase { table: self.schema.id, latest, ids, next_file, restoring: *restoring }
    }

    /// Makes the commit the latest. `next` is the version that it makes; `None`: commits are replayed, and `settle`
    /// makes one version of all of them.
    pub fn push(&mut self, commit: Arc<CommitInfo>, next: Option<Arc<TableVersion>>) -> Result<(), String> {
        let is_restore = commit.kind == CommitKind::Restore;
        if is_restore || next.is_some() {
            self.settle();
        }
        let latest = Version(self.latest.version.0 + self.n_behind as u64);
        let follows = if is_restore { latest } else { latest.next() };
        if commit.version != follows || is_restore != self.restoring {
            return Err(format!("commit {} follows on version {latest}", commit.version));
        }
        if is_restore {
            self.latest = next.unwrap_or_else(|| Arc::new(advance_all(&self.latest, [&commit])));
            self.n_blocks += commit.added.iter().map(|file| file.blocks.len() as u64).sum::<u64>();
            self.oldest = self.latest.clone();
            return Ok(());
        }
        match next {
            None => self.n_behind += 1,
            Some(next) => {
                let gone = commit.removed.iter().filter_map(|id| self.latest.file(*id));
                let n_gone: u64 = gone.map(|file| file.blocks.len() as u64).sum();
                let n_added: u64 = commit.added.iter().map(|file| file.blocks.len() as u64).sum();
                self.n_blocks = self.n_blocks + n_added - n_gone;
                let before = std::mem::replace(&mut self.latest, next);
                self.remember(before);
            }
        }
        self.ids.insert(commit.id, commit.version);
        self.commits.push_back(commit);
        Ok(())
    }

    /// Makes the latest version of the commits that were replayed.
    pub fn settle(&mut self) {
        let n_behind = std::mem::take(&mut self.n_behind);
        if n_behind > 0 {
            let behind = self.commits.since(self.commits.len() - n_behind);
            self.latest = Arc::new(advance_all(&self.latest, behind));
            self.n_blocks = n_blocks(&self.latest);
        }
    }

    /// The files that are in none of the versions from `keep` on, and in one before it.
    pub fn gone_before(&self, keep: Version) -> Vec<Arc<File>> {
        let forgotten = || self.commits.iter().take_while(|commit| commit.version <= keep);
        let added: HashMap<FileId, &Arc<File>> =
            forgotten().flat_map(|commit| &commit.added).map(|file| (file.id, file)).collect();
        let removed = forgotten().flat_map(|commit| &commit.removed);
        removed.filter_map(|id| added.get(id).copied().or_else(|| self.oldest.file(*id))).cloned().collect()
    }

    fn expire(&mut self, keep: Version) -> Result<(), String> {
        let oldest = self.snapshot(VersionSelector::Version(keep)).map_err(|e| e.to_string())?;
        while self.commits.front().is_some_and(|commit| commit.version <= keep) {
            let forgotten = self.commits.pop_front().expect("there is a front");
            self.ids.remove(&forgotten.id);
        }
        self.recent.lock().retain(|version| version.version >= keep);
        self.oldest = oldest;
        Ok(())
    }

    /// The version, or `NoVersion` or `NoVersionAt`. One that is neither the first, the last nor lately asked for is
    /// put together from the oldest: linear in the commits since.
    pub fn snapshot(&self, at: VersionSelector) -> Result<Arc<TableVersion>> {
        let table = self.schema.id;
        let version = match at {
            VersionSelector::Latest => return Ok(self.latest.clone()),
            VersionSelector::Oldest => return Ok(self.oldest.clone()),
            VersionSelector::Version(version) => version,
            VersionSelector::Time(at_ms) => {
                let oldest_ms = self.oldest.committed_ms;
                if at_ms < oldest_ms {
                    return Err(Error::NoVersionAt { table, at_ms, oldest_ms });
                }
                let until = self.commits.partition_point(|commit| commit.at_ms <= at_ms);
                let last = until.checked_sub(1).and_then(|last| self.commits.get(last));
                last.map_or(self.oldest.version, |commit| commit.version)
            }
        };
        let (oldest, latest) = (self.oldest.version, self.latest.version);
        if version < oldest || version > latest {
            return Err(Error::NoVersion { table, version, oldest, latest });
        } else if version == latest {
            return Ok(self.latest.clone());
        } else if version == oldest {
            return Ok(self.oldest.clone());
        } else if let Some(whole) = self.recent.lock().iter().find(|whole| whole.version == version) {
            return Ok(whole.clone());
        }
        let upto = self.commits.iter().take_while(|commit| commit.version <= version);
        let whole = Arc::new(advance_all(&self.oldest, upto));
        self.remember(whole.clone());
        Ok(whole)
    }

    fn remember(&self, version: Arc<TableVersion>) {
        let mut recent = self.recent.lock();
        recent.push_front(version);
        recent.truncate(RECENT_VERSIONS);
    }

    /// Those with higher versions, ascending; `NoVersion` when some of them are forgotten.
    pub fn commits_after(&self, after: Version) -> Result<Vec<Arc<CommitInfo>>> {
        let (oldest, latest) = (self.oldest.version, self.latest.version);
        if after < oldest || after > latest {
            return Err(Error::NoVersion { table: self.schema.id, version: after, oldest, latest });
        }
        Ok(self.commits.since((after.0 - oldest.0) as usize).cloned().collect())
    }
}

fn n_blocks(version: &TableVersion) -> u64 {
    version.files.iter().map(|file| file.blocks.len() as u64).sum()
}
