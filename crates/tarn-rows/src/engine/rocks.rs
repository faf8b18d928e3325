//! The row engine on disk: RocksDB without its own log.
//!
//! One column family per space, atomic flush over all of them, the WAL off: what a flush wrote is one consistent cut, and what no
//! flush wrote comes back from the tablet's log. Atomic flush excludes pipelined and unordered writes; a batch of many rows amortises
//! what they would save. Staged files lie in `staged/` until they are linked in; what a crash left there is removed at open.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBPinnableBatch, DBRawIterator, ErrorKind, FlushOptions, IngestExternalFileOptions, Options, ReadOptions, Snapshot,
    SstFileWriter, WriteOptions, properties,
};
use self_cell::self_cell;

use super::{Engine, EngineSnapshot, EngineStats, RowIter, Space, StagedFile, WriteBatch};
use crate::error::{Error, Result};

/// Memtables of the rows space: one is written, the others are being flushed.
const N_MEMTABLES: i32 = 3;
const MAX_MEMTABLE_BYTES: usize = 64 << 20;
const MIN_MEMTABLE_BYTES: usize = 1 << 20;
/// Bits of bloom filter per key: one absent key in a hundred costs a block read.
const BLOOM_BITS: f64 = 10.0;
const BLOCK_BYTES: usize = 16 << 10;
const SCAN_READAHEAD_BYTES: usize = 2 << 20;

/// How much the engine may take.
#[derive(Clone, Debug)]
pub struct RocksOptions {
    /// Memory for memtables (up to half, at most 3 × 64 MiB) and cached blocks (the rest).
    pub memory_budget_bytes: usize,
    /// Threads for flush and compaction.
    pub background_jobs: usize,
    /// Write the memtables out when the engine is dropped. Off in crash tests only.
    pub flush_on_close: bool,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self { memory_budget_bytes: 512 << 20, background_jobs: 2, flush_on_close: true }
    }
}

/// See the module.
pub struct RocksEngine {
    db: Arc<DB>,
    cache: Cache,
    staged_dir: PathBuf,
    next_staged: AtomicU64,
}

fn engine_error(context: &'static str) -> impl FnOnce(rust_rocksdb::Error) -> Error {
    move |source| {
        let corrupt = source.kind() == ErrorKind::Corruption;
        Error::Engine { context, corrupt, source: Box::new(source) }
    }
}

fn io_error(context: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { context, path, source }
}

impl RocksEngine {
    /// Opens the engine in a folder, making it if it is not there. The folder is the engine's alone.
    pub fn open(dir: &Path, options: &RocksOptions) -> Result<Self> {
        fs::create_dir_all(dir).map_err(io_error("create", dir))?;
        let staged_dir = dir.join("staged");
        if staged_dir.exists() {
            fs::remove_dir_all(&staged_dir).map_err(io_error("clean", &staged_dir))?;
        }
        fs::create_dir(&staged_dir).map_err(io_error("create", &staged_dir))?;

        let memtable_bytes =
            (options.memory_budget_bytes / 2 / N_MEMTABLES as usize).clamp(MIN_MEMTABLE_BYTES, MAX_MEMTABLE_BYTES);
        let cache_bytes =
            options.memory_budget_bytes.saturating_sub(memtable_bytes * N_MEMTABLES as usize).max(1 << 20);
        let cache = Cache::new_lru_cache(cache_bytes);
        let mut db_options = Options::default();
        db_options.create_if_missing(true);
        db_options.create_missing_column_families(true);
        db_options.set_atomic_flush(true);
        db_options.set_max_background_jobs(i32::try_from(options.background_jobs).unwrap_or(2).max(1));
        db_options.set_max_open_files(-1);
        db_options.set_bytes_per_sync(1 << 20);
        db_options.set_stats_dump_period_sec(0);
        db_options.set_keep_log_file_num(4);
        db_options.set_max_log_file_size(8 << 20);
        db_options.set_avoid_flush_during_shutdown(!options.flush_on_close);
        let descriptors = Space::ALL.map(|space| {
            let memtable = if space == Space::Rows { memtable_bytes } else { memtable_bytes.min(16 << 20) };
            ColumnFamilyDescriptor::new(space.name(), family_options(&cache, memtable))
        });
        let db = DB::open_cf_descriptors(&db_options, dir.join("db"), descriptors)
            .map_err(engine_error("open the row engine"))?;
        Ok(Self { db: Arc::new(db), cache, staged_dir, next_staged: AtomicU64::new(0) })
    }
}

fn family_options(cache: &Cache, memtable_bytes: usize) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(BLOOM_BITS, false);
    table.set_block_cache(cache);
    table.set_block_size(BLOCK_BYTES);
    // An ingested file has millions of keys: its filter in one piece would not fit a shard of the cache, and be read for every lookup.
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(BLOCK_BYTES);
    table.set_pin_top_level_index_and_filter(true);
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(memtable_bytes);
    options.set_max_write_buffer_number(N_MEMTABLES);
    options.set_target_file_size_base(64 << 20);
    options.set_max_bytes_for_level_base(256 << 20);
    options.set_level_compaction_dynamic_level_bytes(true);
    options
}

fn family(db: &DB, space: Space) -> &ColumnFamily {
    db.cf_handle(space.name()).expect("every space is a column family since open")
}

fn without_log() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    options
}

fn ascending(keys: &[&[u8]]) -> bool {
    keys.windows(2).all(|pair| pair[0] <= pair[1])
}

fn copy_values(batch: &DBPinnableBatch<'_>) -> Result<Vec<Option<Bytes>>> {
    let copy = |value: Result<Option<&[u8]>, rust_rocksdb::Error>| {
        value.map(|bytes| bytes.map(Bytes::copy_from_slice)).map_err(engine_error("read keys"))
    };
    batch.iter().map(copy).collect()
}

impl Engine for RocksEngine {
    fn write(&self, batch: &WriteBatch) -> Result<()> {
        let families = Space::ALL.map(|space| family(&self.db, space));
        let mut native = rust_rocksdb::WriteBatch::with_capacity_bytes(batch.size_bytes() + batch.len() * 8 + 16);
        for (space, key, value) in batch.iter() {
            let family = families[space as usize];
            match value {
                Some(value) => native.put_cf(family, key, value),
                None => native.delete_cf(family, key),
            }
        }
        self.db.write_opt(&native, &without_log()).map_err(engine_error("write rows"))
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.db.get_cf(family(&self.db, space), key).map_err(engine_error("read a key"))?;
        Ok(value.map(Bytes::from))
    }

    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let family = family(&self.db, space);
        let batch = self.db.batched_multi_get_pinned_batch_cf(family, keys, ascending(keys));
        copy_values(&batch.map_err(engine_error("read keys"))?)
    }

    fn snapshot(&self) -> Arc<dyn EngineSnapshot> {
        Arc::new(RocksSnapshot { cell: SnapshotCell::new(Arc::clone(&self.db), |db| db.snapshot()) })
    }

    fn stage<'a>(
        &self,
        space: Space,
        entries: &mut dyn Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<StagedFile> {
        let number = self.next_staged.fetch_add(1, Ordering::Relaxed);
        let path = StagedPath(self.staged_dir.join(format!("{number}.sst")));
        let options = family_options(&self.cache, MIN_MEMTABLE_BYTES);
        let mut writer = SstFileWriter::create(&options);
        writer.open(&path.0).map_err(engine_error("open a staged file"))?;
        let mut n_entries = 0;
        for (key, value) in entries {
            let written = match value {
                Some(value) => writer.put(key, value),
                None => writer.delete(key),
            };
            written.map_err(engine_error("write a staged file"))?;
            n_entries += 1;
        }
        if n_entries > 0 {
            writer.finish().map_err(engine_error("finish a staged file"))?;
        }
        Ok(StagedFile { space, n_entries, payload: Box::new(path) })
    }

    fn ingest(&self, files: Vec<StagedFile>) -> Result<()> {
        let mut paths = Vec::new();
        let mut space = Space::Addresses;
        for file in &files {
            let foreign = Error::Unsupported { engine: "rocksdb", operation: "ingest a foreign file" };
            let path = file.payload.downcast_ref::<StagedPath>().ok_or(foreign)?;
            space = file.space;
            if file.n_entries > 0 {
                paths.push(&path.0);
            }
        }
        if files.iter().any(|file| file.space != space) {
            return Err(Error::Unsupported { engine: "rocksdb", operation: "ingest files of several spaces at once" });
        }
        if paths.is_empty() {
            return Ok(());
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let family = family(&self.db, space);
        self.db.ingest_external_file_cf_opts(family, &options, paths).map_err(engine_error("ingest staged files"))
    }

    fn flush(&self) -> Result<()> {
        let families = Space::ALL.map(|space| family(&self.db, space));
        self.db.flush_cfs_opt(&families, &FlushOptions::default()).map_err(engine_error("flush"))
    }

    fn delete_range(&self, space: Space, range: Range<&[u8]>) -> Result<()> {
        let family = family(&self.db, space);
        let deleted = self.db.delete_range_cf_opt(family, range.start, range.end, &without_log());
        deleted.map_err(engine_error("delete a range"))
    }

    fn checkpoint(&self, dir: &Path) -> Result<()> {
        fs::create_dir(dir).map_err(io_error("create", dir))?;
        self.flush()?;
        let checkpoint = Checkpoint::new(&self.db).map_err(engine_error("begin a checkpoint"))?;
        checkpoint.create_checkpoint(dir.join("db")).map_err(engine_error("write a checkpoint"))
    }

    fn stats(&self) -> Result<EngineStats> {
        let read = |space, property| {
            let value = self.db.property_int_value_cf(family(&self.db, space), property);
            value.map(|n| n.unwrap_or(0)).map_err(engine_error("read engine statistics"))
        };
        let mut stats = EngineStats { cache_bytes: self.cache.get_usage() as u64, ..EngineStats::default() };
        for space in Space::ALL {
            stats.n_keys[space as usize] = read(space, properties::ESTIMATE_NUM_KEYS)?;
            stats.disk_bytes += read(space, properties::TOTAL_SST_FILES_SIZE)?;
            stats.memtable_bytes += read(space, properties::CUR_SIZE_ALL_MEM_TABLES)?;
            stats.compaction_pending_bytes += read(space, properties::ESTIMATE_PENDING_COMPACTION_BYTES)?;
        }
        Ok(stats)
    }
}

/// A staged file's place; the file goes when this does (the engine holds a link of its own once it is ingested).
struct StagedPath(PathBuf);

impl Drop for StagedPath {
    fn drop(&mut self) {
        // A file that stays is removed at the next open.
        let _ = fs::remove_file(&self.0);
    }
}

self_cell!(
    struct SnapshotCell {
        owner: Arc<DB>,
        #[covariant]
        dependent: Snapshot,
    }
);

struct RocksSnapshot {
    cell: SnapshotCell,
}

impl EngineSnapshot for RocksSnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        let family = family(self.cell.borrow_owner(), space);
        let value = self.cell.borrow_dependent().get_cf(family, key).map_err(engine_error("read a key"))?;
        Ok(value.map(Bytes::from))
    }

    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let db = self.cell.borrow_owner();
        let mut options = ReadOptions::default();
        options.set_snapshot(self.cell.borrow_dependent());
        let batch = db.batched_multi_get_pinned_batch_cf_opt(family(db, space), keys, ascending(keys), &options);
        copy_values(&batch.map_err(engine_error("read keys"))?)
    }

    fn scan(&self, space: Space, range: Range<Vec<u8>>) -> Box<dyn RowIter + '_> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(range.end);
        options.set_readahead_size(SCAN_READAHEAD_BYTES);
        // A scan of everything must not push the hot blocks out.
        options.fill_cache(false);
        let family = family(self.cell.borrow_owner(), space);
        let mut iter = self.cell.borrow_dependent().raw_iterator_cf_opt(family, options);
        iter.seek(&range.start);
        Box::new(RocksScan { iter, started: false })
    }
}

struct RocksScan<'a> {
    iter: DBRawIterator<'a>,
    /// Does the iterator stand on an entry that was lent?
    started: bool,
}

impl RowIter for RocksScan<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.started {
            self.iter.next();
        }
        self.started = true;
        if !self.iter.valid() {
            self.iter.status().map_err(engine_error("scan rows"))?;
            return Ok(None);
        }
        Ok(self.iter.item())
    }
}
