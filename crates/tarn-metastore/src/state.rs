//! What does the metastore know, and which changes are lawful? Pure: no IO, no clock; both backends are built on it.
//!
//! A change is first *checked* into a [`Record`] (nothing happens yet), then made durable by the backend, then *applied*.
//! Applying is deterministic: a log of records replayed gives the same state.
//!
//! ```text
//! Table: oldest (a whole version) + commits after it ──> latest (a whole version)
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use roaring::RoaringBitmap;
use uuid::Uuid;

use tarn_types::{ColumnId, FileId, TableId, TableSchema, TabletId, Version};

use crate::{At, Commit, CommitInfo, Error, File, Result, Stats, TableVersion};

/// Whole versions kept beside the oldest and the latest: a reader between a commit and its installation asks for the one
/// before the latest.
const RECENT_VERSIONS: usize = 4;

/// One change, as it is logged.
#[derive(Debug, Clone)]
pub(crate) enum Record {
    Create {
        schema: Arc<TableSchema>,
        at_ms: i64,
    },
    Drop {
        table: TableId,
    },
    /// File ids below `next_file` are given out.
    Reserve {
        next_file: FileId,
    },
    Commit {
        table: TableId,
        commit: Arc<CommitInfo>,
    },
    Expire {
        table: TableId,
        keep: Version,
    },
}

/// What a checked commit turned out to be.
pub(crate) enum Checked {
    /// The same commit is already in.
    Already(Version),
    New(Version, Record),
}

#[derive(Debug)]
pub(crate) struct State {
    pub next_table: TableId,
    pub next_tablet: TabletId,
    pub next_file: FileId,
    pub tables: BTreeMap<TableId, Table>,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub schema: Arc<TableSchema>,
    pub oldest: Arc<TableVersion>,
    /// After `oldest`, without a gap.
    pub commits: VecDeque<Arc<CommitInfo>>,
    latest: Arc<TableVersion>,
    ids: HashMap<Uuid, Version>,
    /// Whole versions lately asked for or superseded. Holds no more than `RECENT_VERSIONS`.
    recent: Mutex<VecDeque<Arc<TableVersion>>>,
}

impl State {
    pub fn new() -> Self {
        Self { next_table: TableId(1), next_tablet: TabletId(1), next_file: FileId(1), tables: BTreeMap::new() }
    }

    pub fn table(&self, id: TableId) -> Result<&Table> {
        self.tables.get(&id).ok_or(Error::NoTableId { table: id })
    }

    fn named(&self, name: &str) -> Option<&Table> {
        self.tables.values().find(|table| table.schema.name == name)
    }

    pub fn schemas(&self) -> Vec<Arc<TableSchema>> {
        self.tables.values().map(|table| table.schema.clone()).collect()
    }

    /// Assigns the ids.
    pub fn check_create(&self, mut schema: TableSchema, at_ms: i64) -> Result<(Arc<TableSchema>, Record)> {
        if self.named(&schema.name).is_some() {
            return Err(Error::TableExists { name: schema.name });
        }
        schema.id = self.next_table;
        schema.first_tablet = self.next_tablet;
        for (id, column) in (1..).zip(&mut schema.columns) {
            column.id = ColumnId(id);
        }
        schema.validate().map_err(|source| Error::Schema { source })?;
        let schema = Arc::new(schema);
        Ok((schema.clone(), Record::Create { schema, at_ms }))
    }

    pub fn check_drop(&self, name: &str) -> Result<(Arc<TableSchema>, Record)> {
        let table = self.named(name).ok_or_else(|| Error::NoTable { name: name.to_owned() })?;
        Ok((table.schema.clone(), Record::Drop { table: table.schema.id }))
    }

    pub fn check_commit(&self, id: TableId, commit: Commit) -> Result<Checked> {
        let table = self.table(id)?;
        if let Some(version) = table.ids.get(&commit.id) {
            return Ok(Checked::Already(*version));
        }
        let latest = &table.latest;
        if commit.expected != latest.version {
            return Err(Error::Conflict { table: id, expected: commit.expected, current: latest.version });
        }
        self.check_files(id, latest, &commit)?;
        if let Some(cursor) = &commit.cursor
            && !cursor.covers(&latest.cursor)
        {
            let (given, current) = (cursor.to_string(), latest.cursor.to_string());
            return Err(Error::CursorBehind { table: id, given, current });
        }
        let version = latest.version.next();
        let added = commit.add.into_iter().map(|file| Arc::new(File { created_version: version, ..file })).collect();
        let commit = Arc::new(CommitInfo {
            id: commit.id,
            version,
            added,
            removed: commit.remove,
            deletion_vectors: commit.deletion_vectors.into_iter().map(|(id, dead)| (id, Arc::new(dead))).collect(),
            cursor: commit.cursor,
            kind: commit.kind,
            at_ms: commit.at_ms.max(latest.committed_ms),
        });
        Ok(Checked::New(version, Record::Commit { table: id, commit }))
    }

    fn check_files(&self, table: TableId, latest: &TableVersion, commit: &Commit) -> Result<()> {
        let invalid = |file, reason| Err(Error::InvalidFile { table, file, reason });
        let mut added = BTreeMap::new();
        for file in &commit.add {
            let blocks: u64 = file.blocks.iter().map(|block| block.n_rows).sum();
            if added.insert(file.id, file.n_rows).is_some() {
                return invalid(file.id, "is added twice");
            } else if latest.file(file.id).is_some() {
                return invalid(file.id, "is in the table already");
            } else if file.id >= self.next_file {
                return invalid(file.id, "has an id that was never allocated");
            } else if blocks != file.n_rows {
                return invalid(file.id, "has blocks that do not add up to its rows");
            }
        }
        let mut removed = BTreeSet::new();
        for file in &commit.remove {
            if latest.file(*file).is_none() {
                return invalid(*file, "is removed but not in the table");
            } else if !removed.insert(*file) {
                return invalid(*file, "is removed twice");
            }
        }
        for (file, dead) in &commit.deletion_vectors {
            let known = latest.file(*file).filter(|_| !removed.contains(file)).map(|file| file.n_rows);
            let Some(n_rows) = known.or_else(|| added.get(file).copied()) else {
                return invalid(*file, "has dead rows but is not in the new version");
            };
            if dead.max().is_some_and(|row| u64::from(row) >= n_rows) {
                return invalid(*file, "has dead rows beyond its end");
            } else if latest.deletion_vectors.get(file).is_some_and(|before| !before.is_subset(dead)) {
                return invalid(*file, "has rows that would come back to life");
            }
        }
        Ok(())
    }

    /// The record, and the files that no version needs once it is applied. `None`: there is nothing to forget.
    pub fn check_expire(&self, id: TableId, keep: Version) -> Result<Option<(Vec<Arc<File>>, Record)>> {
        let table = self.table(id)?;
        let latest = table.latest.version;
        if keep > latest {
            return Err(Error::ExpireAhead { table: id, keep, latest });
        } else if keep <= table.oldest.version {
            return Ok(None);
        }
        let forgotten = table.commits.iter().take_while(|commit| commit.version <= keep);
        let mut known: BTreeMap<FileId, Arc<File>> = table.oldest.files.iter().map(|f| (f.id, f.clone())).collect();
        let mut gone = Vec::new();
        for commit in forgotten {
            known.extend(commit.added.iter().map(|file| (file.id, file.clone())));
            gone.extend(commit.removed.iter().filter_map(|file| known.remove(file)));
        }
        Ok(Some((gone, Record::Expire { table: id, keep })))
    }

    /// The record of a change that was made before; `Err` says why it cannot follow on what is here.
    pub fn apply(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Create { schema, at_ms } => {
                self.next_table = TableId(self.next_table.0.max(schema.id.0 + 1));
                let after_tablets = schema.tablets().last().map_or(0, |tablet| tablet.0 + 1);
                self.next_tablet = TabletId(self.next_tablet.0.max(after_tablets));
                let empty = TableVersion {
                    version: Version(0),
                    cursor: Default::default(),
                    files: Vec::new(),
                    deletion_vectors: HashMap::new(),
                    committed_ms: at_ms,
                };
                self.tables.insert(schema.id, Table::new(schema, empty));
            }
            Record::Drop { table } => {
                self.tables.remove(&table).ok_or_else(|| format!("table {table} is dropped but does not exist"))?;
            }
            Record::Reserve { next_file } => self.next_file = self.next_file.max(next_file),
            Record::Commit { table, commit } => self.existing(table)?.push(commit)?,
            Record::Expire { table, keep } => self.existing(table)?.expire(keep)?,
        }
        Ok(())
    }

    fn existing(&mut self, id: TableId) -> Result<&mut Table, String> {
        self.tables.get_mut(&id).ok_or_else(|| format!("table {id} does not exist"))
    }

    /// Without the sizes of the log, which the backend knows.
    pub fn stats(&self) -> Stats {
        let latest = || self.tables.values().map(|table| &table.latest);
        Stats {
            tables: self.tables.len() as u64,
            files: latest().map(|version| version.files.len() as u64).sum(),
            blocks: latest().flat_map(|version| &version.files).map(|file| file.blocks.len() as u64).sum(),
            commits: self.tables.values().map(|table| table.commits.len() as u64).sum(),
            ..Stats::default()
        }
    }
}

impl Table {
    pub fn new(schema: Arc<TableSchema>, oldest: TableVersion) -> Self {
        let oldest = Arc::new(oldest);
        let latest = oldest.clone();
        Self { schema, oldest, latest, commits: VecDeque::new(), ids: HashMap::new(), recent: Mutex::default() }
    }

    pub fn latest(&self) -> &Arc<TableVersion> {
        &self.latest
    }

    /// Makes the commit the latest.
    pub fn push(&mut self, commit: Arc<CommitInfo>) -> Result<(), String> {
        if commit.version != self.latest.version.next() {
            return Err(format!("commit {} follows on version {}", commit.version, self.latest.version));
        }
        let next = Arc::new(advance(&self.latest, [&*commit]));
        let before = std::mem::replace(&mut self.latest, next);
        self.remember(before);
        self.ids.insert(commit.id, commit.version);
        self.commits.push_back(commit);
        Ok(())
    }

    fn expire(&mut self, keep: Version) -> Result<(), String> {
        let oldest = self.snapshot(At::Version(keep)).map_err(|e| e.to_string())?;
        while self.commits.front().is_some_and(|commit| commit.version <= keep) {
            let forgotten = self.commits.pop_front().expect("there is a front");
            self.ids.remove(&forgotten.id);
        }
        self.recent.lock().retain(|version| version.version >= keep);
        self.oldest = oldest;
        Ok(())
    }

    pub fn snapshot(&self, at: At) -> Result<Arc<TableVersion>> {
        let table = self.schema.id;
        let version = match at {
            At::Latest => return Ok(self.latest.clone()),
            At::Oldest => return Ok(self.oldest.clone()),
            At::Version(version) => version,
            At::Time(at_ms) => {
                let oldest_ms = self.oldest.committed_ms;
                if at_ms < oldest_ms {
                    return Err(Error::NoVersionAt { table, at_ms, oldest_ms });
                }
                let until = self.commits.partition_point(|commit| commit.at_ms <= at_ms);
                until.checked_sub(1).map_or(self.oldest.version, |last| self.commits[last].version)
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
        let whole = Arc::new(advance(&self.oldest, upto.map(|commit| &**commit)));
        self.remember(whole.clone());
        Ok(whole)
    }

    fn remember(&self, version: Arc<TableVersion>) {
        let mut recent = self.recent.lock();
        recent.push_front(version);
        recent.truncate(RECENT_VERSIONS);
    }

    pub fn commits_after(&self, after: Version) -> Result<Vec<Arc<CommitInfo>>> {
        let (oldest, latest) = (self.oldest.version, self.latest.version);
        if after < oldest || after > latest {
            return Err(Error::NoVersion { table: self.schema.id, version: after, oldest, latest });
        }
        Ok(self.commits.range((after.0 - oldest.0) as usize..).cloned().collect())
    }
}

/// The version after `commits`, which follow on `base` without a gap.
fn advance<'a>(base: &TableVersion, commits: impl IntoIterator<Item = &'a CommitInfo>) -> TableVersion {
    let mut next = base.clone();
    let mut removed = BTreeSet::new();
    for commit in commits {
        next.version = commit.version;
        next.committed_ms = commit.at_ms;
        if let Some(cursor) = &commit.cursor {
            next.cursor = cursor.clone();
        }
        next.files.extend(commit.added.iter().cloned());
        removed.extend(commit.removed.iter().copied());
        let dead = commit.deletion_vectors.iter().filter(|(_, dead)| !dead.is_empty());
        next.deletion_vectors.extend(dead.map(|(file, dead): (_, &Arc<RoaringBitmap>)| (*file, dead.clone())));
    }
    if !removed.is_empty() {
        next.files.retain(|file| !removed.contains(&file.id));
        next.deletion_vectors.retain(|file, _| !removed.contains(file));
    }
    next.files.sort_by_key(|file| file.id);
    next
}
