//! What does this process know of the store?
//!
//! A [`State`] as every backend has it, and beside each table where in its log that is. The store moves on without us:
//! what must be current is brought up to date first (`refresh.rs`). What is here is never wrong, only late: it is the
//! store's content at some earlier moment.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use tarn_metastore::backend::{State, StateRecord, Table};
use tarn_metastore::{BlockRef, CommitInfo, CommitKind, TableVersion};
use tarn_types::{Cursor, FileId, TableId, TableSchema, TabletId, Version};

use crate::layout::Layout;
use crate::wire::{BlockMeta, Metas};

/// Stands before the first commit of a table's log.
pub(crate) const NO_TIP: Uuid = Uuid::nil();

#[derive(Default)]
pub(crate) struct Cache {
    /// Tables that are not in `loaded` are there by name only.
    pub state: State,
    pub catalog: Catalog,
    /// Tables whose log was read, by id.
    pub loaded: HashMap<TableId, LogPosition>,
    /// Block metadata that nobody needs, to be deleted.
    pub garbage: Vec<Garbage>,
}

/// The catalog as it was last seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    /// `None`: never.
    pub seq: Option<i64>,
    /// In which schema the store is, as the catalog last said.
    pub layout: Layout,
    /// Those that are there, by id.
    pub tables: BTreeMap<TableId, CatalogTable>,
    /// Dropped, and not yet cleared away.
    pub dropped: Vec<TableId>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CatalogTable {
    /// Of its definition: another one with every change.
    pub revision: Uuid,
    /// The version that its log begins behind.
    pub first_version: Version,
    /// The cursor of that version.
    pub first_cursor: Cursor,
    /// The time of that version, Unix.
    pub created_ms: i64,
    /// It began as a copy.
    pub restoring: bool,
}

impl CatalogTable {
    /// The version before the first commit of its log, without files.
    pub fn first(&self) -> TableVersion {
        TableVersion {
            version: self.first_version,
            cursor: self.first_cursor.clone(),
            committed_ms: self.created_ms,
            ..TableVersion::default()
        }
    }
}

/// How far a table's log was followed.
#[derive(Debug, Clone)]
pub(crate) struct LogPosition {
    /// The place in the log of the last commit that was read.
    pub seq: i64,
    /// The attempt that made it: who wants to follow on it must name it.
    pub tip: Uuid,
    /// Commits up to here are in the base.
    pub oldest_seq: i64,
    /// The newest that the table's head was seen with.
    pub epoch: i32,
    /// Block metadata of the files of kept versions.
    pub files: HashMap<FileId, FileMeta>,
    /// Blocks with metadata, by hour.
    pub hours: HashMap<i64, u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct FileMeta {
    /// Of the file: with it, block metadata is found.
    pub hour: i64,
    /// The log's place of the commit that added it.
    pub seq: i64,
    /// Those with block metadata, ascending.
    pub blocks: Vec<BlockMeta>,
}

#[derive(Debug, Clone)]
pub(crate) struct Garbage {
    pub table: TableId,
    pub file: FileId,
    pub meta: FileMeta,
}

/// A commit as the log has it.
pub(crate) struct LoggedCommit {
    /// Its place in the table's log.
    pub seq: i64,
    /// Who wrote it: rows of attempts that lost are passed over.
    pub attempt: Uuid,
    pub info: Arc<CommitInfo>,
    /// What is kept of its files' blocks.
    pub metas: Metas,
    /// What it makes, when that is known.
    pub next: Option<Arc<TableVersion>>,
}

/// Where a table's log ends, and what else is decided there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogHead {
    /// The place of the last commit that is in.
    pub seq: i64,
    /// The version that it made.
    pub version: Version,
    /// The attempt that made it.
    pub tip: Uuid,
    /// The first version that is kept.
    pub oldest: Version,
    /// Commits up to here are in the base.
    pub oldest_seq: i64,
    /// Its files are still being copied from elsewhere.
    pub restoring: bool,
    /// It is gone, and its rows are not cleared away yet.
    pub dropped: bool,
    /// That under which commits must have been written.
    pub epoch: i32,
}

impl LogPosition {
    /// A table of which nothing but its base is to be read.
    pub fn new(head: &LogHead) -> Self {
        let (seq, tip, epoch) = (head.oldest_seq, NO_TIP, head.epoch);
        Self { seq, tip, oldest_seq: seq, epoch, files: HashMap::new(), hours: HashMap::new() }
    }

    /// Notes a file that a commit added.
    pub fn add(&mut self, file: FileId, meta: FileMeta) {
        *self.hours.entry(meta.hour).or_default() += meta.blocks.len() as u64;
        self.files.insert(file, meta);
    }

    fn remove(&mut self, file: FileId) -> Option<FileMeta> {
        let meta = self.files.remove(&file)?;
        if let Some(n_blocks) = self.hours.get_mut(&meta.hour) {
            *n_blocks -= meta.blocks.len() as u64;
        }
        Some(meta)
    }

    /// `None`: not in the files of kept versions under this hour.
    pub fn file(&self, hour: i64, file: FileId) -> Option<&FileMeta> {
        self.files.get(&file).filter(|meta| meta.hour == hour)
    }

    /// What is kept of a block, if this is its hour.
    pub fn block(&self, hour: i64, block: BlockRef) -> Option<&BlockMeta> {
        let blocks = &self.file(hour, block.file)?.blocks;
        let idx = blocks.binary_search_by_key(&block.row_group, |of| of.row_group).ok()?;
        Some(&blocks[idx])
    }
}

impl Cache {
    /// The catalog as it is now, with the definitions of tables whose revision is another.
    pub fn set_catalog(
        &mut self,
        catalog: Catalog,
        schemas: Vec<Arc<TableSchema>>,
        next: (TableId, TabletId),
    ) -> Result<(), String> {
        for schema in schemas {
            let id = schema.id;
            match self.state.tables.get_mut(&id) {
                Some(_) => self.state.apply(StateRecord::Alter { schema })?,
                None => {
                    let of = catalog.tables.get(&id).ok_or_else(|| format!("table {id} is not in the catalog"))?;
                    let mut table = Table::new(schema, of.first());
                    table.restoring = of.restoring;
                    self.state.tables.insert(id, table);
                }
            }
        }
        self.state.tables.retain(|id, _| catalog.tables.contains_key(id));
        for id in self.loaded.keys().copied().filter(|id| !catalog.tables.contains_key(id)).collect::<Vec<_>>() {
            self.loaded.remove(&id);
        }
        (self.state.next_table, self.state.next_tablet) = next;
        self.catalog = catalog;
        Ok(())
    }

    /// Commits that follow on what is here; those that are here already are passed over.
    pub fn append(&mut self, table: TableId, commits: Vec<LoggedCommit>) -> Result<(), String> {
        for LoggedCommit { seq, attempt, info, metas, next } in commits {
            let loaded = self.loaded.get_mut(&table).ok_or("the table is not loaded")?;
            if seq <= loaded.seq {
                continue;
            } else if seq != loaded.seq + 1 {
                return Err(format!("commit {seq} follows on {}", loaded.seq));
            }
            (loaded.seq, loaded.tip) = (seq, attempt);
            let hours: HashMap<FileId, i64> = info.added.iter().map(|file| (file.id, file.hour)).collect();
            for (file, blocks) in metas {
                let hour = *hours.get(&file).ok_or_else(|| format!("details of file {file}, which is not added"))?;
                loaded.add(file, FileMeta { hour, seq, blocks });
            }
            let restoring = self.state.table(table).map_err(|e| e.to_string())?.restoring;
            if restoring && info.kind != CommitKind::Restore {
                self.state.apply(StateRecord::Restored { table })?;
            }
            self.state.apply(StateRecord::Commit { table, commit: info, next })?;
        }
        Ok(())
    }

    /// What the head says beside the commits.
    pub fn follow(&mut self, table: TableId, head: &LogHead) -> Result<(), String> {
        let of_state = self.state.table(table).map_err(|e| e.to_string())?;
        let (restoring, oldest, latest) = (of_state.restoring, of_state.oldest.version, of_state.latest().version);
        if restoring && !head.restoring {
            self.state.apply(StateRecord::Restored { table })?;
        }
        if head.oldest > oldest && head.oldest <= latest {
            self.expire(table, head.oldest)?;
        }
        if let Some(loaded) = self.loaded.get_mut(&table) {
            loaded.oldest_seq = loaded.oldest_seq.max(head.oldest_seq);
            loaded.epoch = loaded.epoch.max(head.epoch);
        }
        Ok(())
    }

    fn expire(&mut self, table: TableId, keep: Version) -> Result<(), String> {
        self.state.settle();
        let gone = self.state.table(table).map_err(|e| e.to_string())?.gone_before(keep);
        self.state.apply(StateRecord::Expire { table, keep })?;
        let Some(loaded) = self.loaded.get_mut(&table) else { return Ok(()) };
        for file in gone {
            let empty = || FileMeta { hour: file.hour, seq: 0, blocks: Vec::new() };
            let meta = loaded.remove(file.id).unwrap_or_else(empty);
            self.garbage.push(Garbage { table, file: file.id, meta });
        }
        Ok(())
    }
}
