//! How does raft-engine 0.4.2 do the jobs?
//!
//! As TiKV configures it: batches are compressed from 4 KiB on (TiKV sets 4 KiB instead of the crate's 8 KiB when its
//! write pool is on, "better performance"), files are recycled, the entry is raft-rs' protobuf. `purge_threshold` is
//! 512 MiB instead of 10 GB, or no run of this length would ever reach a purge. The prefilled form writes its log files
//! ahead when it opens (`prefill-for-recycle`, off by default): commits then overwrite blocks that exist, as ours do.
//! The buffer of a batch is kept from commit to commit.

use std::cell::RefCell;
use std::ops::Range;

use anyhow::{Context, Result};
use bytes::Bytes;
use raft_engine::{Command, Config, LogBatch, MessageExt, ReadableSize};
use raft_proto::eraftpb::Entry;

use super::{Append, Engine, OpenedEngine, TERM};
use crate::job::Job;

/// The size of its log files; also the least that purging may be set to.
const FILE_BYTES: u64 = 128 << 20;
const PURGE_THRESHOLD_BYTES: u64 = 512 << 20;
const COMPRESS_FROM_BYTES: u64 = 4 << 10;

#[derive(Clone)]
struct RaftEntry;

impl MessageExt for RaftEntry {
    type Entry = Entry;

    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

struct RaftEngine {
    engine: raft_engine::Engine,
    sync: bool,
}

thread_local! {
    static BATCH: RefCell<LogBatch> = RefCell::new(LogBatch::with_capacity(64));
}

/// How it is configured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    AsTikv,
    /// Log files are written ahead.
    Prefilled,
    /// Batches are not compressed.
    Plain,
}

pub fn open(job: &Job, variant: Variant) -> Result<OpenedEngine> {
    let config = Config {
        dir: job.dir.to_string_lossy().into_owned(),
        batch_compression_threshold: ReadableSize(if variant == Variant::Plain { 0 } else { COMPRESS_FROM_BYTES }),
        target_file_size: ReadableSize(FILE_BYTES),
        purge_threshold: ReadableSize(PURGE_THRESHOLD_BYTES),
        enable_log_recycle: true,
        prefill_for_recycle: variant == Variant::Prefilled,
        ..Config::default()
    };
    Ok(OpenedEngine {
        engine: Box::new(RaftEngine { engine: raft_engine::Engine::open(config)?, sync: job.sync }),
        reported: None,
    })
}

/// The entry TiKV would store.
pub fn entry(append: &Append) -> Entry {
    Entry { term: TERM, index: append.index, data: append.payload.clone(), ..Entry::default() }
}

impl RaftEngine {
    fn write(&self, appends: &[Append], sync: bool) -> Result<()> {
        BATCH.with_borrow_mut(|batch| {
            for append in appends {
                batch.add_entries::<RaftEntry>(append.group, &[entry(append)])?;
                if let Some(range) = &append.truncate {
                    batch.add_command(append.group, Command::Compact { index: range.end });
                }
            }
            self.engine.write(batch, sync)?;
            Ok(())
        })
    }

    fn entries(&self, group: u64, range: Range<u64>) -> Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity((range.end - range.start) as usize);
        self.engine.fetch_entries_to::<RaftEntry>(group, range.start, range.end, None, &mut entries)?;
        Ok(entries)
    }
}

impl Engine for RaftEngine {
    fn commit(&self, appends: &[Append]) -> Result<()> {
        self.write(appends, self.sync)
    }

    fn load(&self, appends: &[Append]) -> Result<()> {
        self.write(appends, false)
    }

    fn flush(&self) -> Result<()> {
        // An empty batch is not written at all, so the crate's own `sync` would do nothing.
        let mut batch = LogBatch::default();
        batch.put(u64::MAX, b"flush".to_vec(), vec![1])?;
        self.engine.write(&mut batch, true)?;
        Ok(())
    }

    fn last_index(&self, group: u64) -> Result<u64> {
        Ok(self.engine.last_index(group).unwrap_or(0))
    }

    fn term(&self, group: u64, index: u64) -> Result<u64> {
        Ok(self.engine.get_entry::<RaftEntry>(group, index)?.context("no such entry")?.term)
    }

    fn log_bytes(&self, group: u64, range: Range<u64>) -> Result<u64> {
        Ok(self.entries(group, range)?.iter().map(|entry| entry.data.len() as u64).sum())
    }

    fn read(&self, group: u64, range: Range<u64>) -> Result<Vec<Bytes>> {
        Ok(self.entries(group, range)?.into_iter().map(|entry| entry.data).collect())
    }

    fn maintain(&self) -> Result<()> {
        self.engine.purge_expired_files()?;
        Ok(())
    }

    fn syncs(&self) -> Option<u64> {
        let families = prometheus::gather();
        let family = families.iter().find(|family| family.get_name() == "raft_engine_sync_log_duration_seconds")?;
        Some(family.get_metric().iter().map(|metric| metric.get_histogram().get_sample_count()).sum())
    }
}
