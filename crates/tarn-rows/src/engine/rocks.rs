//! The row engine on disk: RocksDB without its own log.
//!
//! One column family per space, atomic flush over all of them, the WAL off: what a flush wrote is one consistent cut,
//! and what no flush wrote comes back from the tablet's log. Atomic flush excludes pipelined and unordered writes; a
//! batch of many rows amortises what they would save. Staged files lie in `staged/` until they are linked in; what a
//! crash left there is removed at open.
//!
//! A disk that fails makes the engine faulty, not dead: see `watch.rs`. [`RocksEngine::fault`] says so,
//! [`RocksEngine::heal`] tries again.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBPinnableBatch, DBRawIterator, ErrorKind, FlushOptions, IngestExternalFileOptions, Options, ReadOptions, Snapshot,
    SstFileWriter, WriteOptions, properties,
};
use self_cell::self_cell;
use tarn_types::Direction;

use super::watch::{EngineFault, Listener, Remedy, Watch};
use super::{Engine, EngineSnapshot, EngineStats, RowIter, Space, StagedFile, WriteBatch};
use crate::error::{Error, Result};

/// Memtables of the rows space that may wait to be flushed: then writers wait, too.
const N_MEMTABLES: i32 = 3;
/// When RocksDB would make them wait: never, because whoever waits there is not told of a failed flush. Writers of
/// several tables may pass ours at once.
const NEVER_REACHED_MEMTABLES: i32 = 64;
/// A flush that nothing is heard of for so long is begun again: nobody tells when one was forgotten.
const FLUSH_SILENCE: Duration = Duration::from_secs(10);
/// How often, and after how long, healing looks whether a failed flush has ended.
const HEAL_LOOKS: usize = 30;
const HEAL_PAUSE: Duration = Duration::from_millis(100);
/// A key of the meta space that no value ever has.
const NO_KEY: &[u8] = b"h";
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
    watch: Arc<Watch>,
    /// One flush at a time: none may begin behind one that fails.
    flushing: Mutex<()>,
    flush_on_close: bool,
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
        // RocksDB would wait there for a flush that failed: see `Drop`.
        db_options.set_avoid_flush_during_shutdown(true);
        let watch = Arc::new(Watch::default());
        db_options.add_event_listener(Listener(Arc::clone(&watch)));
        let descriptors = Space::ALL.map(|space| {
            let memtable = if space == Space::Rows { memtable_bytes } else { memtable_bytes.min(16 << 20) };
            ColumnFamilyDescriptor::new(space.name(), family_options(&cache, memtable))
        });
        let db = DB::open_cf_descriptors(&db_options, dir.join("db"), descriptors)
            .map_err(engine_error("open the row engine"))?;
        let flush_on_close = options.flush_on_close;
        let (next_staged, flushing) = (AtomicU64::new(0), Mutex::default());
        Ok(Self { db: Arc::new(db), cache, staged_dir, next_staged, watch, flushing, flush_on_close })
    }

    /// Why the engine should not be written to, if a flush or a change of its MANIFEST failed. Reads go on. What was
    /// written stays readable, and is as durable as before.
    #[must_use]
    pub fn fault(&self) -> Option<EngineFault> {
        self.watch.fault()
    }

    /// How often RocksDB met an error in the background, since it was opened.
    #[must_use]
    pub fn n_background_errors(&self) -> u64 {
        self.watch.n_errors()
    }

    /// Tries again what failed. Ok: the engine is well, and everything written before is durable. For whoever drives
    /// the engine, now and then while there is a [`RocksEngine::fault`]. Cost: a flush.
    pub fn heal(&self) -> Result<()> {
        let Some(fault) = self.fault() else { return Ok(()) };
        if fault.remedy != Remedy::Heal {
            return Err(Error::Faulty { reason: fault.reason });
        }
        let _one = self.flushing.lock();
        // RocksDB holds on to a flush that failed for a second. One that began behind it may never end.
        for _ in 0..HEAL_LOOKS {
            if self.property(Space::Rows, properties::NUM_RUNNING_FLUSHES)? == 0 {
                break;
            }
            self.watch.wait_past(self.watch.seen().n_events, HEAL_PAUSE);
        }
        if self.property(Space::Rows, properties::NUM_RUNNING_FLUSHES)? > 0 {
            return Err(Error::Faulty { reason: fault.reason });
        }
        if self.is_stuck()? {
            self.watch.fail(fault.reason.clone(), Remedy::Reopen);
            return Err(Error::Faulty { reason: fault.reason });
        }
        if self.watch.manifest_failed.load(Ordering::Acquire) {
            self.change_manifest()?;
        }
        self.flush_all()
    }

    /// A flush that failed last of all, when its folder was synced, keeps its memtables: the next one waits for it, and
    /// even closing RocksDB waits for that one then (RocksDB 11, `AtomicFlushMemTablesToOutputFiles`). So none is
    /// begun.
    fn is_stuck(&self) -> Result<bool> {
        for space in Space::ALL {
            let n_immutable = self.property(space, properties::NUM_IMMUTABLE_MEM_TABLE)?;
            if n_immutable > 0 && self.property(space, properties::MEM_TABLE_FLUSH_PENDING)? == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes RocksDB begin a new MANIFEST when the last one is in doubt; flushes do not even try then. It takes a
    /// change for that: a file that deletes a key that is not there.
    fn change_manifest(&self) -> Result<()> {
        let file = self.stage(Space::Meta, &mut [(NO_KEY, None)].into_iter())?;
        self.ingest(vec![file])?;
        self.watch.manifest_failed.store(false, Ordering::Release);
        Ok(())
    }

    fn property(&self, space: Space, property: &properties::PropName) -> Result<u64> {
        let value = self.db.property_int_value_cf(family(&self.db, space), property);
        value.map(|n| n.unwrap_or(0)).map_err(engine_error("read engine statistics"))
    }

    fn n_immutable(&self) -> Result<u64> {
        Space::ALL.into_iter().map(|space| self.property(space, properties::NUM_IMMUTABLE_MEM_TABLE)).sum()
    }

    fn begin_flush(&self) -> Result<()> {
        let families = Space::ALL.map(|space| family(&self.db, space));
        let mut options = FlushOptions::default();
        options.set_wait(false);
        options.set_allow_write_stall(true);
        loop {
            let n_events = self.watch.seen().n_events;
            match self.db.flush_cfs_opt(&families, &options) {
                // Writes are stopped until a compaction is done.
                Err(error) if error.kind() == ErrorKind::TryAgain && !self.compaction_fails() => {
                    self.watch.wait_past(n_events, FLUSH_SILENCE);
                }
                begun => return begun.map_err(engine_error("flush")),
            }
        }
    }

    /// `flushing` is held.
    fn flush_all(&self) -> Result<()> {
        let upto = self.db.latest_sequence_number();
        let n_failed = self.watch.seen().n_failed;
        self.begin_flush()?;
        loop {
            let seen = self.watch.seen();
            if self.n_immutable()? == 0 || seen.flushed >= upto {
                self.watch.heal(n_failed);
                return Ok(());
            }
            if let Some(fault) = seen.fault.filter(|_| seen.n_failed > n_failed) {
                return Err(Error::Faulty { reason: fault.reason });
            }
            if !self.watch.wait_past(seen.n_events, FLUSH_SILENCE) {
                self.begin_flush()?;
            }
        }
    }

    fn compaction_fails(&self) -> bool {
        self.watch.compaction_failed.load(Ordering::Acquire)
    }

    /// Before a write: there is a memtable for it. A writer waits while others are flushed, and is refused when that
    /// fails.
    fn wait_for_memtable(&self) -> Result<()> {
        if self.compaction_fails() && self.property(Space::Rows, properties::IS_WRITE_STOPPED)? > 0 {
            return Err(Error::Faulty { reason: "compactions fail, and too many files wait for one".to_owned() });
        }
        let mut has_waited = false;
        // Cleared before looking, so that what is sealed meanwhile is not missed.
        while self.watch.sealed.load(Ordering::Acquire) && self.watch.sealed.swap(false, Ordering::AcqRel) {
            let seen = self.watch.seen();
            let n_immutable = self.property(Space::Rows, properties::NUM_IMMUTABLE_MEM_TABLE)?;
            self.watch.sealed.fetch_or(n_immutable > 0, Ordering::AcqRel);
            if n_immutable < N_MEMTABLES as u64 {
                break;
            }
            if let Some(fault) = seen.fault {
                return Err(Error::Faulty { reason: fault.reason });
            }
            if !std::mem::replace(&mut has_waited, true) {
                self.watch.n_memtable_waits.fetch_add(1, Ordering::Relaxed);
            }
            if !self.watch.wait_past(seen.n_events, FLUSH_SILENCE) {
                self.begin_flush()?;
            }
        }
        Ok(())
    }
}

impl Drop for RocksEngine {
    fn drop(&mut self) {
        // What is not written comes back from the tablets' logs.
        if self.flush_on_close && self.fault().is_none() {
            let _ = self.flush();
        }
    }
}

fn family_options(cache: &Cache, memtable_bytes: usize) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(BLOOM_BITS, false);
    table.set_block_cache(cache);
    table.set_block_size(BLOCK_BYTES);
    // An ingested file has millions of keys: its filter in one piece would not fit a shard of the cache, and be read
    // for every lookup.
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
    options.set_max_write_buffer_number(NEVER_REACHED_MEMTABLES);
    // Keys of a batch ascend: each is looked for from the one before it.
    options.set_memtable_batch_lookup_optimization(true);
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
        self.wait_for_memtable()?;
        let families = Space::ALL.map(|space| family(&self.db, space));
        let mut native = rust_rocksdb::WriteBatch::with_capacity_bytes(batch.size_bytes() + batch.len() * 8 + 16);
        let mut writes: Vec<_> = batch.iter().collect();
        // In the order of keys, each finds its place from that of the one before it, and not from the memtable's head.
        // A stable order: the last write of a key stays the last.
        writes.sort_by_key(|(space, key, _)| (*space as usize, *key));
        for (space, key, value) in writes {
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
        // RocksDB would flush memtables with such keys, and wait for it: a dropped table's, at most.
        let unflushed = [properties::NUM_ENTRIES_ACTIVE_MEM_TABLE, properties::NUM_ENTRIES_IMM_MEM_TABLES];
        if space == Space::Addresses && self.property(space, unflushed[0])? + self.property(space, unflushed[1])? > 0 {
            self.flush()?;
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let family = family(&self.db, space);
        self.db.ingest_external_file_cf_opts(family, &options, paths).map_err(engine_error("ingest staged files"))
    }

    fn flush(&self) -> Result<()> {
        let _one = self.flushing.lock();
        match self.fault() {
            Some(fault) => Err(Error::Faulty { reason: fault.reason }),
            None => self.flush_all(),
        }
    }

    fn delete_range(&self, space: Space, range: Range<&[u8]>) -> Result<()> {
        let family = family(&self.db, space);
        let deleted = self.db.delete_range_cf_opt(family, range.start, range.end, &without_log());
        deleted.map_err(engine_error("delete a range"))
    }

    fn range_bytes(&self, space: Space, range: Range<&[u8]>) -> Result<u64> {
        let ranges = [rust_rocksdb::Range::new(range.start, range.end)];
        let sizes = self.db.get_approximate_sizes_cf(family(&self.db, space), &ranges);
        Ok(sizes.map_err(engine_error("estimate the size of a range"))?.iter().sum())
    }

    fn checkpoint(&self, dir: &Path) -> Result<()> {
        fs::create_dir(dir).map_err(io_error("create", dir))?;
        self.flush()?;
        let checkpoint = Checkpoint::new(&self.db).map_err(engine_error("begin a checkpoint"))?;
        checkpoint.create_checkpoint(dir.join("db")).map_err(engine_error("write a checkpoint"))
    }

    fn stats(&self) -> Result<EngineStats> {
        let read = |space, property| self.property(space, property);
        let mut stats = EngineStats {
            cache_bytes: self.cache.get_usage() as u64,
            n_memtable_waits: self.watch.n_memtable_waits.load(Ordering::Relaxed),
            n_slowdowns: self.watch.n_slowdowns.load(Ordering::Relaxed),
            n_stops: self.watch.n_stops.load(Ordering::Relaxed),
            // Those of the whole engine, whichever space is asked.
            is_stopped: read(Space::Rows, properties::IS_WRITE_STOPPED)? > 0,
            slowed_to_bytes_per_s: read(Space::Rows, properties::ACTUAL_DELAYED_WRITE_RATE)?,
            ..EngineStats::default()
        };
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

    fn scan_in(&self, space: Space, range: Range<Vec<u8>>, direction: Direction) -> Box<dyn RowIter + '_> {
        let mut options = ReadOptions::default();
        // A scan of everything must not push the hot blocks out.
        options.fill_cache(false);
        let family = family(self.cell.borrow_owner(), space);
        let open = |options| self.cell.borrow_dependent().raw_iterator_cf_opt(family, options);
        let iter = match direction {
            Direction::Ascending => {
                options.set_iterate_upper_bound(range.end);
                options.set_readahead_size(SCAN_READAHEAD_BYTES);
                let mut iter = open(options);
                iter.seek(&range.start);
                iter
            }
            // Nothing is read ahead: RocksDB would read what lies behind.
            Direction::Descending => {
                options.set_iterate_range(range);
                let mut iter = open(options);
                iter.seek_to_last();
                iter
            }
        };
        Box::new(RocksScan { iter, direction, started: false })
    }
}

struct RocksScan<'a> {
    /// On the first entry before the scan advances.
    iter: DBRawIterator<'a>,
    direction: Direction,
    started: bool,
}

impl RowIter for RocksScan<'_> {
    fn advance(&mut self) -> Result<()> {
        match (std::mem::replace(&mut self.started, true), self.direction) {
            (false, _) => {}
            (true, Direction::Ascending) => self.iter.next(),
            (true, Direction::Descending) => self.iter.prev(),
        }
        if self.iter.valid() { Ok(()) } else { self.iter.status().map_err(engine_error("scan rows")) }
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        if self.started { self.iter.item() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn engine(dir: &Path) -> RocksEngine {
        let options = RocksOptions { memory_budget_bytes: 8 << 20, background_jobs: 2, flush_on_close: false };
        RocksEngine::open(dir, &options).unwrap()
    }

    fn write(engine: &RocksEngine, key: &[u8], value: &[u8]) {
        let mut batch = WriteBatch::default();
        batch.put(Space::Rows, key, value);
        engine.write(&batch).unwrap();
    }

    #[test]
    fn a_write_that_waits_for_a_memtable_is_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine(dir.path());
        let value = vec![7; MIN_MEMTABLE_BYTES];
        assert_eq!(engine.stats().unwrap().n_memtable_waits, 0);
        engine.db.pause_background_work().unwrap();
        let n_waits = thread::scope(|scope| {
            // More than all memtables take, while none is flushed.
            scope.spawn(|| (0..12_u8).for_each(|key| write(&engine, &[key], &value)));
            while engine.stats().unwrap().n_memtable_waits == 0 {
                thread::yield_now();
            }
            let n_waits = engine.stats().unwrap().n_memtable_waits;
            engine.db.continue_background_work().unwrap();
            n_waits
        });
        assert_eq!(n_waits, 1);
        assert!(engine.get(Space::Rows, &[11]).unwrap().is_some());
    }

    #[test]
    fn slowdowns_and_stops_are_counted_and_told_while_they_last() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine(dir.path());
        let set = |name, value| engine.db.set_options_cf(family(&engine.db, Space::Rows), &[(name, value)]).unwrap();
        write(&engine, b"a", b"1");
        engine.flush().unwrap();
        assert_eq!(engine.stats().unwrap().slowed_to_bytes_per_s, 0);

        set("level0_slowdown_writes_trigger", "1");
        let slow = engine.stats().unwrap();
        assert!((slow.n_slowdowns, slow.n_stops) == (1, 0) && !slow.is_stopped, "{slow:?}");
        assert!(slow.slowed_to_bytes_per_s > 0, "{slow:?}");

        set("level0_stop_writes_trigger", "1");
        let stopped = engine.stats().unwrap();
        assert!((stopped.n_slowdowns, stopped.n_stops) == (1, 1) && stopped.is_stopped, "{stopped:?}");

        set("level0_stop_writes_trigger", "36");
        set("level0_slowdown_writes_trigger", "20");
        write(&engine, b"b", b"1");
        let over = engine.stats().unwrap();
        assert!(!over.is_stopped && over.slowed_to_bytes_per_s == 0 && over.n_stops == 1, "{over:?}");
    }
}
