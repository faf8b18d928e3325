//! Where is the metadata of which blocks?
//!
//! ```text
//! (table, hour) ──> loose   blocks whose metadata is where the commit put it: a frame of the log
//!               └─> packs   files with the metadata of many blocks, transposed (docs/formats/pack.md)
//! ```
//!
//! Pure: what is in the log says where things are; nothing here reads or writes. Block metadata of an hour begins
//! loose, becomes packs, and packs become fewer, by records that say which come and which go.
//!
//! Invariants: a block whose metadata is kept is loose or in a pack of its hour; where it is in several places, the
//! first in this order counts: loose, packs from the newest. A file in `gone` is in no kept version, and may still have
//! slots in the packs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tarn_types::{FileId, TableId};

use crate::log::LogFile;
use crate::{BlockRef, File, Stats};

/// Cloning shares the hours.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockMetadataIndex {
    tables: BTreeMap<TableId, BTreeMap<i64, Arc<Hour>>>,
    /// The number of the next pack; numbers are not used twice while the store is open.
    next_pack: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Hour {
    /// Ascending by number.
    pub packs: Vec<Arc<PackFile>>,
    pub loose: BTreeMap<BlockRef, Arc<LooseMetadata>>,
    /// Files whose metadata is wanted no more, and how many blocks of each the packs may still have.
    pub gone: BTreeMap<FileId, u32>,
}

/// A pack, as the log names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackFile {
    pub table: TableId,
    pub hour: i64,
    /// Part of its name; higher ones are newer.
    pub number: u64,
    pub n_slots: u32,
    /// Of each filter; 0: these blocks have none.
    pub n_chunks: u32,
    pub size_bytes: u64,
    pub column_bytes: u64,
}

/// Block metadata where a commit put it.
#[derive(Debug)]
pub(super) struct LooseMetadata {
    pub log: Arc<LogFile>,
    /// Of the frame.
    pub offset: u64,
    pub payload_bytes: u32,
    pub n_chunks: u32,
    /// In the payload.
    pub bloom_at: u32,
    pub columns_at: u32,
    pub column_bytes: u32,
    /// Whether this process saw the frame whole: then parts of it are read without the rest.
    pub is_checked: AtomicBool,
}

/// What becomes of an hour: the metadata of these blocks and packs is in those packs now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackChange {
    /// Whose hour it is.
    pub table: TableId,
    pub hour: i64,
    /// The packs that come.
    pub add: Vec<PackFile>,
    /// Packs that go, by number.
    pub remove: Vec<u64>,
    /// Blocks that are loose no more.
    pub loose: Vec<BlockRef>,
    /// Files whose blocks were left out.
    pub gone: Vec<FileId>,
}

impl PackFile {
    /// Its file, in the store's folder.
    pub fn path(&self, dir: &Path) -> PathBuf {
        folder(dir, self.table).join(format!("{}-{}.pack", self.hour, self.number))
    }

    /// What the filters of all its slots take.
    pub fn bloom_bytes(&self) -> u64 {
        u64::from(self.n_slots) * u64::from(self.n_chunks) * crate::CHUNK_BYTES as u64
    }
}

/// Where the packs of a table are.
pub(super) fn folder(dir: &Path, table: TableId) -> PathBuf {
    dir.join("packs").join(table.0.to_string())
}

impl Hour {
    /// Of all packs, slots that nobody asks for any more among them.
    pub fn n_slots(&self) -> u64 {
        self.packs.iter().map(|pack| u64::from(pack.n_slots)).sum()
    }

    /// Slots that nobody asks for any more; an upper bound.
    pub fn n_gone(&self) -> u64 {
        self.gone.values().map(|n_blocks| u64::from(*n_blocks)).sum()
    }

    fn is_empty(&self) -> bool {
        self.packs.is_empty() && self.loose.is_empty()
    }

    fn forget(&mut self, file: &File) {
        let mut n_packed = 0;
        for block in &file.blocks {
            let block = BlockRef { file: file.id, row_group: block.row_group };
            n_packed += u32::from(self.loose.remove(&block).is_none());
        }
        if n_packed > 0 && !self.packs.is_empty() {
            self.gone.insert(file.id, n_packed);
        }
    }

    /// Answers the packs that went.
    fn install(&mut self, packed: &PackChange) -> Result<Vec<Arc<PackFile>>, String> {
        for block in &packed.loose {
            // What is no longer loose went while its pack was being written, and has a slot there.
            if self.loose.remove(block).is_none() {
                *self.gone.entry(block.file).or_default() += 1;
            }
        }
        let mut removed = Vec::with_capacity(packed.remove.len());
        for number in &packed.remove {
            let at = self.packs.iter().position(|pack| pack.number == *number);
            removed.push(self.packs.remove(at.ok_or_else(|| format!("pack {number} goes but is not there"))?));
        }
        if self.packs.is_empty() {
            self.gone.retain(|file, _| !packed.gone.contains(file));
        }
        self.packs.extend(packed.add.iter().cloned().map(Arc::new));
        if self.packs.is_empty() {
            self.gone.clear();
        }
        Ok(removed)
    }
}

impl BlockMetadataIndex {
    /// By hour.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &BTreeMap<i64, Arc<Hour>>)> {
        self.tables.iter().map(|(table, hours)| (*table, hours))
    }

    /// What is known of an hour; `None` when there is no metadata of its blocks.
    pub fn hour(&self, table: TableId, hour: i64) -> Option<&Arc<Hour>> {
        self.tables.get(&table)?.get(&hour)
    }

    /// The hours of a table that have metadata, ascending.
    pub fn hours_of(&self, table: TableId) -> Option<&BTreeMap<i64, Arc<Hour>>> {
        self.tables.get(&table)
    }

    /// Of all tables.
    pub fn hours(&self) -> impl Iterator<Item = &Arc<Hour>> {
        self.tables.values().flat_map(BTreeMap::values)
    }

    /// The number of the next pack that is made.
    pub fn next_pack(&self) -> u64 {
        self.next_pack
    }

    /// Puts an hour where none is.
    pub fn insert(&mut self, table: TableId, hour: i64, of_hour: Hour) {
        let after = of_hour.packs.iter().map(|pack| pack.number + 1).max().unwrap_or(0);
        self.next_pack = self.next_pack.max(after);
        self.tables.entry(table).or_default().insert(hour, Arc::new(of_hour));
    }

    /// The metadata of a block came, with the commit that added its file.
    pub fn add_loose(&mut self, table: TableId, hour: i64, block: BlockRef, loose: LooseMetadata) {
        let of_hour = Arc::make_mut(self.tables.entry(table).or_default().entry(hour).or_default());
        of_hour.gone.remove(&block.file);
        of_hour.loose.insert(block, Arc::new(loose));
    }

    /// No kept version has these files.
    pub fn forget<'a>(&mut self, table: TableId, files: impl IntoIterator<Item = &'a Arc<File>>) {
        let Some(hours) = self.tables.get_mut(&table) else { return };
        for file in files {
            let Some(of_hour) = hours.get_mut(&file.hour) else { continue };
            Arc::make_mut(of_hour).forget(file);
            if of_hour.is_empty() {
                hours.remove(&file.hour);
            }
        }
    }

    /// The packs of the table, which are named by nothing now.
    pub fn drop_table(&mut self, table: TableId) -> Vec<Arc<PackFile>> {
        let hours = self.tables.remove(&table).unwrap_or_default();
        hours.values().flat_map(|of_hour| of_hour.packs.iter().cloned()).collect()
    }

    /// The packs that went.
    pub fn install(&mut self, packed: &PackChange) -> Result<Vec<Arc<PackFile>>, String> {
        let hours = self.tables.get_mut(&packed.table);
        let Some(of_hour) = hours.and_then(|hours| hours.get_mut(&packed.hour)) else {
            // All that was loose went meanwhile.
            let of_hour = Hour { packs: packed.add.iter().cloned().map(Arc::new).collect(), ..Hour::default() };
            let gone = packed.loose.iter().fold(BTreeMap::<_, u32>::new(), |mut gone, block| {
                *gone.entry(block.file).or_default() += 1;
                gone
            });
            if !packed.remove.is_empty() {
                return Err(format!("packs go from hour {}, which has none", packed.hour));
            } else if !of_hour.packs.is_empty() {
                self.insert(packed.table, packed.hour, Hour { gone, ..of_hour });
            }
            return Ok(Vec::new());
        };
        let of_hour = Arc::make_mut(of_hour);
        let removed = of_hour.install(packed)?;
        let is_empty = of_hour.is_empty();
        let after = packed.add.iter().map(|pack| pack.number + 1).max().unwrap_or(0);
        self.next_pack = self.next_pack.max(after);
        if is_empty && let Some(hours) = self.tables.get_mut(&packed.table) {
            hours.remove(&packed.hour);
        }
        Ok(removed)
    }

    /// Of all hours and tables.
    pub fn packs(&self) -> impl Iterator<Item = &Arc<PackFile>> {
        self.hours().flat_map(|of_hour| &of_hour.packs)
    }

    /// The counts of block metadata; those of tables and files are the state's.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for of_hour in self.hours() {
            for loose in of_hour.loose.values() {
                stats.bloom_bytes += u64::from(loose.n_chunks) * crate::CHUNK_BYTES as u64;
                stats.column_bytes += u64::from(loose.column_bytes);
            }
            stats.bloom_bytes += of_hour.packs.iter().map(|pack| pack.bloom_bytes()).sum::<u64>();
            stats.column_bytes += of_hour.packs.iter().map(|pack| pack.column_bytes).sum::<u64>();
            stats.loose_blocks += of_hour.loose.len() as u64;
            stats.packs += of_hour.packs.len() as u64;
        }
        stats
    }
}
