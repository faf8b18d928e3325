//! How does tarn-raftlog do the jobs?
//!
//! Configured as it comes: 64 MiB segments, 64 MiB of cache. Truncation is a record in the commit that follows it.

use std::ops::Range;

use anyhow::{Context, Result};
use bytes::Bytes;
use tarn_raftlog::{Compression, Durability, GroupId, Index, Options, RaftLog, Term};

use super::{Append, Engine, OpenedEngine, TERM};
use crate::job::Job;

/// What one call of the collector may move.
const GC_BUDGET_BYTES: u64 = 64 << 20;

struct Tarn {
    log: RaftLog,
    sync: bool,
}

pub fn open(job: &Job, compression: Compression) -> Result<OpenedEngine> {
    let sync = if job.sync { Durability::Durable } else { Durability::Os };
    let (log, report) = RaftLog::open(Options { sync, compression, ..Options::new(&job.dir) })?;
    let reported = report.torn_tail.map(|(path, offset)| format!("{} cut at {offset}", path.display()));
    Ok(OpenedEngine { engine: Box::new(Tarn { log, sync: job.sync }), reported })
}

impl Tarn {
    fn batch(&self, appends: &[Append]) -> tarn_raftlog::Batch {
        let mut batch = self.log.batch();
        for append in appends {
            let group = GroupId(append.group);
            batch.append_bytes(group, Term(TERM), Index(append.index), [append.payload.clone()]);
            if let Some(range) = &append.truncate {
                batch.purge(group, Index(range.end - 1), Term(TERM));
            }
        }
        batch
    }
}

impl Engine for Tarn {
    fn commit(&self, appends: &[Append]) -> Result<()> {
        Ok(self.log.commit(self.batch(appends))?)
    }

    fn load(&self, appends: &[Append]) -> Result<()> {
        let _rides_along = self.log.submit(self.batch(appends))?;
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.log.sync()?)
    }

    fn last_index(&self, group: u64) -> Result<u64> {
        Ok(self.log.last_index(GroupId(group)).0)
    }

    fn term(&self, group: u64, index: u64) -> Result<u64> {
        Ok(self.log.term(GroupId(group), Index(index)).context("no such entry")?.0)
    }

    fn log_bytes(&self, group: u64, _range: Range<u64>) -> Result<u64> {
        Ok(self.log.log_bytes(GroupId(group)))
    }

    fn read(&self, group: u64, range: Range<u64>) -> Result<Vec<Bytes>> {
        let entries = self.log.entries(GroupId(group), Index(range.start)..Index(range.end), usize::MAX)?;
        Ok(entries.into_iter().map(|entry| entry.payload).collect())
    }

    fn maintain(&self) -> Result<()> {
        self.log.collect_garbage(GC_BUDGET_BYTES)?;
        Ok(())
    }

    fn syncs(&self) -> Option<u64> {
        // Each group commit is one write and, if asked for, one flush.
        Some(if self.sync { self.log.metrics().frames } else { 0 })
    }
}
