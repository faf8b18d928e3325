//! How does a metastore get into another one, ids and all? And have two of them the same in them?
//!
//! ```text
//! for each table, ascending by id:
//!   Restore   the oldest version that the source keeps: its definition, then its files batch by batch with their metadata
//!   Restored
//!   Alter     if the source's definition went on since the copy was begun
//!   commit …  the commits after that version, as they were
//! ```
//!
//! Every step is done once however often it is sent, so a copy that was stopped goes on by being started again; what
//! the source got in the meantime comes along. Nobody else may write to the target until it is done. What is not copied
//! are ids that the source gave to tables it no longer has: they are free again, unless a later table is there.
//!
//! Invariant: no more block metadata is in memory than that of a batch, or of one file or one commit when that has
//! more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use uuid::Uuid;
use xxhash_rust::xxh64::xxh64;

use tarn_types::{FileId, TableId, TableSchema, Version};

use crate::check::advance_all;
use crate::wire::{put_cursor, put_i64, put_len, put_u64};
use crate::{
    BlockMetadata, BlockMetadataRequest, BlockRef, Commit, CommitInfo, CommitKind, Definition, Error, ExpectedVersion,
    File, Metastore, MetastoreExt, Result, TableVersion, VersionSelector, codec, hour_blocks,
};

/// Block metadata of about so many bytes is read at once.
const BATCH_BYTES: u64 = 16 << 20;

/// Blocks of the first batch, before it is known what they take; and of any.
const FIRST_BLOCKS: u64 = 64;
const MAX_BLOCKS: u64 = 16 << 10;

/// Files of one batch, which may have no blocks.
const MAX_FILES: usize = 4096;

/// How far a copy is, or how much there is to copy. What an earlier run copied counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyStats {
    /// Documents and archives among them.
    pub tables: u64,
    /// Versions that are kept.
    pub versions: u64,
    /// Files that some kept version has.
    pub files: u64,
    /// Row groups of these files.
    pub blocks: u64,
    /// Of block metadata, read from the source in this run.
    pub bytes: u64,
}

/// What is in one table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableSum {
    /// Its name.
    pub table: String,
    /// Versions that are kept.
    pub versions: u64,
    /// Files that some kept version has, and their blocks.
    pub files: u64,
    /// As `files`: those that some kept version has.
    pub blocks: u64,
    /// Live rows of the latest version.
    pub n_rows: u64,
    /// Columns of blocks and blooms of blocks of which there is block metadata.
    pub block_metadata: u64,
    /// Of everything that can be read of the table. Equal for equal content, whatever keeps it.
    pub digest: u64,
}

/// How much there is to copy. Reads no block metadata.
pub async fn extent(of: &dyn Metastore) -> Result<CopyStats> {
    let mut extent = CopyStats::default();
    for table in of.tables().await? {
        let History { oldest, commits } = history(of, table.id).await?;
        extent.tables += 1;
        extent.versions += 1 + commits.len() as u64;
        extent.add(oldest.files.iter());
        commits.iter().for_each(|commit| extent.add(commit.added.iter()));
    }
    Ok(extent)
}

impl CopyStats {
    fn add<'a>(&mut self, files: impl Iterator<Item = &'a Arc<File>>) {
        for file in files {
            self.files += 1;
            self.blocks += file.blocks.len() as u64;
        }
    }
}

/// Copies all tables of `from` with their kept versions, commits and block metadata into `to`, which is empty or what
/// an earlier copy of the same source left; ids stay. `report` is called after every step.
///
/// Errors: those of both; of kind `Invalid` if the target has something that the source has not, `NotFound` if the
/// source forgot the version with which the copy was begun: empty the target and begin anew.
pub async fn copy(from: &dyn Metastore, to: &dyn Metastore, report: &(dyn Fn(&CopyStats) + Sync)) -> Result<CopyStats> {
    let tables = from.tables().await?;
    let there = to.tables().await?;
    if let Some(other) = there.iter().find(|other| tables.iter().all(|table| table.id != other.id)) {
        return Err(another(other, "the source has no such table"));
    }
    let named_otherwise =
        |other: &&Arc<TableSchema>| tables.iter().any(|table| table.id == other.id && table.name != other.name);
    if let Some(other) = there.iter().find(named_otherwise) {
        return Err(another(other, "the source has another table of its id"));
    }
    reserve_files(from, to).await?;
    let mut copied = CopyStats::default();
    for table in &tables {
        let begun = there.iter().find(|known| known.id == table.id);
        TableCopy { from, to, table: table.id, report, copied: &mut copied }.table(table, begun).await?;
        copied.tables += 1;
        report(&copied);
    }
    Ok(copied)
}

/// Whoever goes on with the target gives out no id that the source gave out.
async fn reserve_files(from: &dyn Metastore, to: &dyn Metastore) -> Result<()> {
    let given = from.allocate_files(1).await?;
    let first = to.allocate_files(1).await?;
    if given > first {
        to.allocate_files(given.0 - first.0).await?;
    }
    Ok(())
}

/// One table on its way.
struct TableCopy<'a> {
    from: &'a dyn Metastore,
    to: &'a dyn Metastore,
    table: TableId,
    report: &'a (dyn Fn(&CopyStats) + Sync),
    copied: &'a mut CopyStats,
}

impl TableCopy<'_> {
    /// `begun`: what the target has of it.
    async fn table(&mut self, schema: &Arc<TableSchema>, begun: Option<&Arc<TableSchema>>) -> Result<()> {
        let TableCopy { from, to, table, .. } = *self;
        let at = match begun {
            None => VersionSelector::Oldest,
            Some(_) => VersionSelector::Version(to.snapshot(table, VersionSelector::Oldest).await?.version),
        };
        let base = from.snapshot(table, at).await?;
        let definition = begun.unwrap_or(schema);
        let restore = Definition::Restore {
            schema: Arc::clone(definition),
            version: base.version,
            cursor: base.cursor.clone(),
            committed_ms: base.committed_ms,
        };
        match to.define(restore).await {
            Ok(_) => {
                self.files(&base).await?;
                to.define(Definition::Restored { table }).await?;
            }
            // Its files are all in.
            Err(Error::InvalidRestore { .. }) if begun.is_some() => self.copied.add(base.files.iter()),
            Err(error) => return Err(error),
        }
        self.copied.versions += 1;
        (self.report)(self.copied);
        if definition != schema {
            let to_be = Box::new(TableSchema::clone(schema));
            to.define(Definition::Alter { from: Arc::clone(definition), to: to_be }).await?;
        }
        let arrived = to.version(table).await?;
        let commits = from.commits(table, base.version).await?;
        if begun.is_some() {
            self.same_past(schema, &commits, base.version).await?;
        }
        for commit in commits {
            if commit.version > arrived {
                self.commit(&commit).await?;
            }
            self.copied.versions += 1;
            self.copied.add(commit.added.iter());
            (self.report)(self.copied);
        }
        Ok(())
    }

    /// The commits that the target has are the first ones of the source: it is no store of somebody else.
    async fn same_past(&self, schema: &TableSchema, commits: &[Arc<CommitInfo>], base: Version) -> Result<()> {
        let there = self.to.commits(self.table, base).await?;
        let is_same =
            |(there, here): (&Arc<CommitInfo>, &Arc<CommitInfo>)| (there.version, there.id) == (here.version, here.id);
        match there.len() <= commits.len() && there.iter().zip(commits).all(is_same) {
            true => Ok(()),
            false => Err(another(schema, "it has commits that the source has not")),
        }
    }

    /// The files of the version that is being restored, except those that are there.
    async fn files(&mut self, base: &TableVersion) -> Result<()> {
        let TableCopy { from, to, table, .. } = *self;
        let there = to.snapshot(table, VersionSelector::Latest).await?;
        let is_there = |file: &Arc<File>| {
            there.file(file.id) == Some(file)
                && there.deletion_vectors.get(&file.id) == base.deletion_vectors.get(&file.id)
        };
        self.copied.add(base.files.iter().filter(|file| is_there(file)));
        let mut batches = Batches::new(base.files.iter().filter(|file| !is_there(file)));
        while let Some(batch) = batches.next() {
            let CommitMetadata { block_metadata, bytes, .. } = read(from, table, batch).await?;
            let dead = |file: &Arc<File>| Some((file.id, (**base.deletion_vectors.get(&file.id)?).clone()));
            let commit = Commit {
                id: batch_id(table, batch),
                expected: ExpectedVersion::At(base.version),
                add: batch.iter().map(|file| (**file).clone()).collect(),
                block_metadata,
                remove: vec![],
                deletion_vectors: batch.iter().filter_map(dead).collect(),
                cursor: None,
                kind: CommitKind::Restore,
                at_ms: base.committed_ms,
            };
            to.commit(table, commit).await?;
            self.copied.add(batch.iter());
            self.copied.bytes += bytes;
            batches.took(bytes);
            (self.report)(self.copied);
        }
        Ok(())
    }

    async fn commit(&mut self, info: &CommitInfo) -> Result<()> {
        let TableCopy { from, to, table, .. } = *self;
        let CommitMetadata { block_metadata, bytes, .. } = read(from, table, &info.added).await?;
        self.copied.bytes += bytes;
        let expected = Version(info.version.0 - 1);
        let same = Commit {
            id: info.id,
            expected: ExpectedVersion::At(expected),
            add: info.added.iter().map(|file| (**file).clone()).collect(),
            block_metadata,
            remove: info.removed.clone(),
            deletion_vectors: info.deletion_vectors.iter().map(|(file, dead)| (*file, (**dead).clone())).collect(),
            cursor: info.cursor.clone(),
            kind: info.kind,
            at_ms: info.at_ms,
        };
        let current = to.commit(table, same).await?;
        match current == info.version {
            true => Ok(()),
            false => Err(Error::Conflict { table, expected, current }),
        }
    }
}

fn another(schema: &TableSchema, reason: &'static str) -> Error {
    Error::InvalidRestore { name: schema.name.clone(), reason }
}

/// The same for the same files: sent again, it is the same commit; with one file more it is another.
fn batch_id(table: TableId, files: &[Arc<File>]) -> Uuid {
    let mut bytes = vec![];
    put_u64(&mut bytes, table.0.into());
    files.iter().for_each(|file| put_u64(&mut bytes, file.id.0));
    Uuid::from_u64_pair(xxh64(&bytes, 0), xxh64(&bytes, 1))
}

/// Files in the order in which their metadata is kept, some at a time.
struct Batches {
    files: Vec<Arc<File>>,
    next: usize,
    /// Blocks of the batch that is under way, and of the next.
    blocks: u64,
    blocks_next: u64,
}

impl Batches {
    fn new<'a>(files: impl Iterator<Item = &'a Arc<File>>) -> Self {
        let mut files: Vec<Arc<File>> = files.cloned().collect();
        files.sort_unstable_by_key(|file| (file.hour, file.id));
        Batches { files, next: 0, blocks: 0, blocks_next: FIRST_BLOCKS }
    }

    /// At least one file, while there are any.
    fn next(&mut self) -> Option<&[Arc<File>]> {
        let first = self.next;
        self.blocks = 0;
        for file in self.files[first..].iter().take(MAX_FILES) {
            let more = file.blocks.len() as u64;
            if self.next > first && self.blocks + more > self.blocks_next {
                break;
            }
            self.blocks += more;
            self.next += 1;
        }
        (self.next > first).then(|| &self.files[first..self.next])
    }

    /// What the block metadata of the last batch took.
    fn took(&mut self, bytes: u64) {
        if let Some(per_block) = bytes.checked_div(self.blocks) {
            self.blocks_next = (BATCH_BYTES / per_block.max(1)).clamp(1, MAX_BLOCKS);
        }
    }
}

/// Block metadata as it comes with a commit.
struct CommitMetadata {
    block_metadata: BTreeMap<FileId, Vec<BlockMetadata>>,
    /// Columns and blooms among them.
    n_records: u64,
    bytes: u64,
}

/// All that is kept of the blocks of these files.
async fn read(from: &dyn Metastore, table: TableId, files: &[Arc<File>]) -> Result<CommitMetadata> {
    let hours = hour_blocks(files);
    if hours.is_empty() {
        return Ok(CommitMetadata { block_metadata: BTreeMap::new(), n_records: 0, bytes: 0 });
    }
    let blocks: Vec<_> = hours.iter().flat_map(|of_hour| of_hour.blocks.iter().copied()).collect();
    let wanted = BlockMetadataRequest { hours, columns: None, stats: true, chunks: true, blooms: true };
    let found = from.block_metadata(table, wanted).await?;
    let mut by_block: Vec<Option<BlockMetadata>> = blocks.iter().map(|_| None).collect();
    let mut n_records = found.blooms.len();
    for column in found.columns {
        n_records += column.blocks.len();
        for ((at, stats), chunk) in column.blocks.into_iter().zip(column.stats).zip(column.chunks) {
            let block = by_block[at as usize].get_or_insert_with(|| nothing(blocks[at as usize]));
            block.columns.push((stats, chunk));
        }
    }
    for (at, bloom) in found.blooms {
        let block = by_block[at as usize].get_or_insert_with(|| nothing(blocks[at as usize]));
        block.bloom = Some(bloom);
    }
    let mut block_metadata: BTreeMap<FileId, Vec<BlockMetadata>> = BTreeMap::new();
    for (block, of_block) in blocks.iter().zip(by_block) {
        if let Some(of_block) = of_block {
            block_metadata.entry(block.file).or_default().push(of_block);
        }
    }
    Ok(CommitMetadata { block_metadata, n_records: n_records as u64, bytes: found.bytes_read })
}

fn nothing(block: BlockRef) -> BlockMetadata {
    BlockMetadata { row_group: block.row_group, columns: vec![], bloom: None }
}

/// What is kept of a table's past.
struct History {
    oldest: Arc<TableVersion>,
    commits: Vec<Arc<CommitInfo>>,
}

async fn history(of: &dyn Metastore, table: TableId) -> Result<History> {
    let oldest = of.snapshot(table, VersionSelector::Oldest).await?;
    let commits = of.commits(table, oldest.version).await?;
    Ok(History { oldest, commits })
}

/// Reads everything there is, table by table; block metadata batch by batch. Of kind `Corrupt` is an error that names
/// the first damage: bytes that are not what was written, or versions that do not follow from their commits.
pub async fn sums(of: &dyn Metastore) -> Result<Vec<TableSum>> {
    let mut sums = vec![];
    for schema in of.tables().await? {
        sums.push(sum(of, &schema).await?);
    }
    Ok(sums)
}

async fn sum(of: &dyn Metastore, schema: &TableSchema) -> Result<TableSum> {
    let History { oldest, commits } = history(of, schema.id).await?;
    let last = commits.last().map_or(oldest.version, |commit| commit.version);
    let latest = of.snapshot(schema.id, VersionSelector::Version(last)).await?;
    if advance_all(&oldest, &commits) != *latest {
        let reason = format!("version {last} is not what its commits after version {} make", oldest.version);
        return Err(Error::Inconsistent { name: schema.name.clone(), reason });
    }
    let mut sum = TableSum {
        table: schema.name.clone(),
        versions: 1 + commits.len() as u64,
        n_rows: latest.live_rows(),
        digest: digest(schema, &oldest, &commits),
        ..TableSum::default()
    };
    let added = commits.iter().flat_map(|commit| &commit.added);
    let files: HashMap<FileId, &Arc<File>> = oldest.files.iter().chain(added).map(|file| (file.id, file)).collect();
    sum.files = files.len() as u64;
    sum.blocks = files.values().map(|file| file.blocks.len() as u64).sum();
    let mut batches = Batches::new(files.into_values());
    while let Some(batch) = batches.next() {
        let CommitMetadata { block_metadata, n_records, bytes } = read(of, schema.id, batch).await?;
        sum.block_metadata += n_records;
        for file in batch {
            for of_block in block_metadata.get(&file.id).into_iter().flatten() {
                let bytes = codec::encode_block_metadata(schema.id, file.hour, file.id, of_block);
                // In whatever order they come.
                sum.digest = sum.digest.wrapping_add(xxh64(&bytes, 0));
            }
        }
        batches.took(bytes);
    }
    Ok(sum)
}

/// Of all but block metadata.
fn digest(schema: &TableSchema, oldest: &TableVersion, commits: &[Arc<CommitInfo>]) -> u64 {
    let mut bytes = vec![];
    let mut digest = 0;
    let mut seal = |bytes: &mut Vec<u8>| {
        digest = xxh64(bytes, digest);
        bytes.clear();
    };
    codec::put_schema(&mut bytes, schema);
    put_u64(&mut bytes, oldest.version.0);
    put_i64(&mut bytes, oldest.committed_ms);
    put_cursor(&mut bytes, &oldest.cursor);
    seal(&mut bytes);
    for file in &oldest.files {
        codec::put_file(&mut bytes, file);
        put_dead(&mut bytes, oldest.deletion_vectors.get(&file.id).map(AsRef::as_ref));
        seal(&mut bytes);
    }
    for commit in commits {
        // The same rows may be written in more than one way.
        let without_dead = CommitInfo { deletion_vectors: BTreeMap::new(), ..(**commit).clone() };
        codec::put_commit(&mut bytes, &without_dead);
        for (file, dead) in &commit.deletion_vectors {
            put_u64(&mut bytes, file.0);
            put_dead(&mut bytes, Some(dead));
        }
        seal(&mut bytes);
    }
    digest
}

fn put_dead(out: &mut Vec<u8>, dead: Option<&roaring::RoaringBitmap>) {
    put_len(out, dead.map_or(0, |dead| dead.len() as usize));
    dead.into_iter().flatten().for_each(|row| put_u64(out, row.into()));
}

#[cfg(test)]
#[path = "copy/tests.rs"]
mod tests;
