//! How does RocksDB, as TiKV's raftdb, do the jobs?
//!
//! TiKV's defaults for `raftdb`: pipelined and concurrent memtable writes, 128 MiB write buffers, five of them, 64 KiB
//! blocks, levels of 512 MiB with dynamic sizes, no compression on the first two levels and LZ4 below (TiKV has zstd on
//! the last two; the C++ is built here with one compressor), point-in-time recovery of its write-ahead log, 512 KiB
//! between background syncs. TiKV keeps statistics; here they are off, in RocksDB's favour. Keys are TiKV's: two bytes,
//! the group, one byte, the index; truncation deletes each key.

use std::cell::RefCell;
use std::ops::Range;

use anyhow::{Context, Result};
use bytes::Bytes;
use protobuf::Message;
use raft_proto::eraftpb::Entry;
use rust_rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompactionPri, DBCompressionType, DBRawIterator, DBRecoveryMode, Options,
    ReadOptions, WriteBatch, WriteOptions,
};

use super::{Append, Engine, OpenedEngine, raft_engine};
use crate::job::Job;

/// As much as our own log may cache, twice: raftdb's share in TiKV depends on the machine's memory.
const BLOCK_CACHE_BYTES: usize = 128 << 20;

struct Rocks {
    db: DB,
    sync: bool,
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub fn open(job: &Job) -> Result<OpenedEngine> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_size(64 << 10);
    blocks.set_block_cache(&Cache::new_lru_cache(BLOCK_CACHE_BYTES));
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_max_total_wal_size(4 << 30);
    options.set_max_background_jobs(4);
    options.set_max_subcompactions(2);
    options.set_max_open_files(40960);
    options.set_enable_pipelined_write(true);
    options.set_allow_concurrent_memtable_write(true);
    options.set_bytes_per_sync(1 << 20);
    options.set_wal_bytes_per_sync(512 << 10);
    options.set_write_buffer_size(128 << 20);
    options.set_max_write_buffer_number(5);
    options.set_min_write_buffer_number_to_merge(1);
    options.set_max_bytes_for_level_base(512 << 20);
    options.set_target_file_size_base(8 << 20);
    options.set_level_zero_file_num_compaction_trigger(4);
    options.set_level_zero_slowdown_writes_trigger(20);
    options.set_level_zero_stop_writes_trigger(20);
    options.set_compaction_pri(DBCompactionPri::ByCompensatedSize);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_num_levels(7);
    let (no, lz4) = (DBCompressionType::None, DBCompressionType::Lz4);
    options.set_compression_per_level(&[no, no, lz4, lz4, lz4, lz4, lz4]);
    Ok(OpenedEngine { engine: Box::new(Rocks { db: DB::open(&options, &job.dir)?, sync: job.sync }), reported: None })
}

fn key(group: u64, index: u64) -> [u8; 19] {
    let mut key = [0; 19];
    key[..2].copy_from_slice(&[1, 2]);
    key[2..10].copy_from_slice(&group.to_be_bytes());
    key[10] = 1;
    key[11..].copy_from_slice(&index.to_be_bytes());
    key
}

impl Rocks {
    fn write(&self, appends: &[Append], sync: bool) -> Result<()> {
        let mut batch = WriteBatch::default();
        BUFFER.with_borrow_mut(|buffer| -> Result<()> {
            for append in appends {
                buffer.clear();
                raft_engine::entry(append).write_to_vec(buffer)?;
                batch.put(key(append.group, append.index), &buffer);
                for index in append.truncate.clone().into_iter().flatten() {
                    batch.delete(key(append.group, index));
                }
            }
            Ok(())
        })?;
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.db.write_opt(&batch, &options)?;
        Ok(())
    }

    /// An iterator over `range` of a group, at its first entry.
    fn scan(&self, group: u64, range: &Range<u64>) -> DBRawIterator<'_> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(key(group, range.start));
        options.set_iterate_upper_bound(key(group, range.end));
        let mut entries = self.db.raw_iterator_opt(options);
        entries.seek_to_first();
        entries
    }
}

impl Engine for Rocks {
    fn commit(&self, appends: &[Append]) -> Result<()> {
        self.write(appends, self.sync)
    }

    fn load(&self, appends: &[Append]) -> Result<()> {
        self.write(appends, false)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }

    fn last_index(&self, group: u64) -> Result<u64> {
        let mut entries = self.db.raw_iterator();
        entries.seek_for_prev(key(group, u64::MAX));
        let found = entries.key().filter(|found| found[..11] == key(group, 0)[..11]);
        Ok(found.and_then(|found| found[11..].try_into().ok()).map_or(0, u64::from_be_bytes))
    }

    fn term(&self, group: u64, index: u64) -> Result<u64> {
        let value = self.db.get_pinned(key(group, index))?.context("no such entry")?;
        Ok(Entry::parse_from_bytes(&value)?.term)
    }

    fn log_bytes(&self, group: u64, range: Range<u64>) -> Result<u64> {
        let mut bytes = 0;
        let mut entries = self.scan(group, &range);
        while let Some(value) = entries.value() {
            bytes += value.len() as u64;
            entries.next();
        }
        Ok(bytes)
    }

    fn read(&self, group: u64, range: Range<u64>) -> Result<Vec<Bytes>> {
        let mut payloads = Vec::with_capacity((range.end - range.start) as usize);
        let mut entries = self.scan(group, &range);
        while let Some(value) = entries.value() {
            payloads.push(Entry::parse_from_bytes(value)?.data);
            entries.next();
        }
        entries.status()?;
        Ok(payloads)
    }

    fn maintain(&self) -> Result<()> {
        Ok(()) // its own threads flush and compact
    }

    fn syncs(&self) -> Option<u64> {
        let stats = self.db.property_value("rocksdb.dbstats").ok()??;
        let line = stats.lines().find(|line| line.starts_with("Cumulative WAL:"))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let count = words[words.iter().position(|word| word.starts_with("syncs"))? - 1];
        // Large numbers are told in thousands.
        let (digits, unit) = match count.chars().last()? {
            'K' => (&count[..count.len() - 1], 1_000),
            'M' => (&count[..count.len() - 1], 1_000_000),
            'G' => (&count[..count.len() - 1], 1_000_000_000),
            _ => (count, 1),
        };
        Some(digits.parse::<u64>().ok()? * unit)
    }
}
