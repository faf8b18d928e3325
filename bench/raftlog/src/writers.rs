//! Task `commits`: how many commits a second, how late, at what cost?
//!
//! Groups are dealt out to writers in ranges: a Raft group has one appender. Each writer goes round its groups,
//! `groups_per_commit` of them in one commit, one entry each, and truncates a group in the commit that makes it exceed
//! `keep` by a tenth. The log is filled up to `keep` before; in the durable cells with many groups in a commit it is
//! then turned over twice, so that what is counted are files in use again and space being reclaimed, not the first
//! fill. A commit counts if it began and ended inside the measured time. Beside the writers one thread asks the engine
//! for space.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::engines::{Append, Engine};
use crate::job::{Job, JobOutput};
use crate::measure::{Counters, disk_bytes, percentile};
use crate::payload::Pool;

/// How often an engine is asked to reclaim space.
const MAINTAIN_EVERY: Duration = Duration::from_millis(500);
/// Entries of one commit while filling.
const FILL_BATCH: usize = 256;
/// How often the live entries are replaced before a batched cell.
const TURNS: u64 = 2;

/// A group as its writer sees it.
struct GroupWriter {
    id: u64,
    first: u64,
    next: u64,
}

impl GroupWriter {
    /// The next entry, and the truncation that is due with it.
    fn append(&mut self, keep: u64, payload: bytes::Bytes) -> Append {
        let slack = (keep / 10).max(1);
        let mut append = Append { group: self.id, index: self.next, payload, truncate: None };
        self.next += 1;
        if self.next - self.first > keep + slack {
            let end = self.next - keep;
            append.truncate = Some(self.first..end);
            self.first = end;
        }
        append
    }
}

/// The writers of a job: one, and round and round.
pub struct GroupsWriter<'a> {
    groups: Vec<GroupWriter>,
    turn: usize,
    n_entries: u64,
    job: &'a Job,
    pool: &'a Pool,
}

impl<'a> GroupsWriter<'a> {
    /// Writer `which` of `job.writers`, whose groups hold nothing yet.
    pub fn new(which: u64, job: &'a Job, pool: &'a Pool) -> GroupsWriter<'a> {
        let bound = |writer| job.groups * writer / job.writers;
        let groups = (bound(which)..bound(which + 1)).map(|id| GroupWriter { id: id + 1, first: 1, next: 1 }).collect();
        // Writers start apart in the pool, so that they do not write the same bytes at the same time.
        GroupsWriter { groups, turn: 0, n_entries: which * 977, job, pool }
    }

    /// One entry for each of the next `n` groups.
    pub fn next_batch(&mut self, n: usize) -> Vec<Append> {
        let n_groups = self.groups.len();
        (0..n.min(n_groups))
            .map(|_| {
                let group = &mut self.groups[self.turn % n_groups];
                self.turn += 1;
                self.n_entries += 1;
                group.append(self.job.keep, self.pool.get(self.n_entries))
            })
            .collect()
    }

    /// Appends to each group until it has `entries`, not durable.
    pub fn fill(&mut self, engine: &dyn Engine, entries: u64) -> Result<()> {
        let mut batch = Vec::with_capacity(FILL_BATCH);
        for _ in 0..entries {
            for group in &mut self.groups {
                self.n_entries += 1;
                batch.push(group.append(u64::MAX / 2, self.pool.get(self.n_entries)));
                if batch.len() == FILL_BATCH {
                    engine.load(&batch)?;
                    batch.clear();
                }
            }
        }
        if !batch.is_empty() {
            engine.load(&batch)?;
        }
        Ok(())
    }

    /// Replaces each live entry once, truncating, not durable.
    fn turn_over(&mut self, engine: &dyn Engine) -> Result<()> {
        let mut left = self.groups.len() as u64 * self.job.keep;
        while left > 0 {
            let batch = self.next_batch(self.job.groups_per_commit as usize);
            left = left.saturating_sub(batch.len() as u64);
            engine.load(&batch)?;
        }
        Ok(())
    }
}

/// Answers `commits_per_s`, `entries_per_s`, `p50_us`, `p99_us`, `p999_us`, `cpu_us_per_entry`, `bytes_per_user_byte`,
/// `device_writes_per_commit`, `device_flushes_per_commit`, `disk_over_live`, and `fsyncs_per_commit` where the engine
/// knows.
pub fn run(job: &Job, engine: &dyn Engine) -> Result<JobOutput> {
    let pool = Pool::new(job.entry_bytes);
    let mut writers: Vec<GroupsWriter<'_>> =
        (0..job.writers).map(|which| GroupsWriter::new(which, job, &pool)).collect();
    for writer in &mut writers {
        writer.fill(engine, job.keep)?;
    }
    engine.flush()?;
    if job.sync && job.groups_per_commit > 1 {
        for _ in 0..TURNS {
            for writer in &mut writers {
                writer.turn_over(engine)?;
            }
            engine.flush()?;
            engine.maintain()?;
        }
    }

    let (counting, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
    let (latencies, window, cost, syncs) = thread::scope(|scope| {
        let handles: Vec<_> = writers
            .into_iter()
            .map(|writer| scope.spawn(|| write_until(writer, engine, &counting, &stopped)))
            .collect();
        let keeper = scope.spawn(|| maintain_until(engine, &stopped));
        thread::sleep(Duration::from_secs_f64(job.seconds / 5.0));
        let (syncs, before, started) = (engine.syncs(), Counters::now(&job.dir), Instant::now());
        counting.store(true, Ordering::Relaxed);
        thread::sleep(Duration::from_secs_f64(job.seconds));
        counting.store(false, Ordering::Relaxed);
        let (window, cost) = (started.elapsed(), Counters::now(&job.dir).since(before));
        let syncs = engine.syncs().zip(syncs).map(|(after, before)| after - before);
        stopped.store(true, Ordering::Relaxed);
        let mut latencies = Vec::new();
        for handle in handles {
            latencies.extend(handle.join().map_err(|_| anyhow!("a writer panicked"))??);
        }
        keeper.join().map_err(|_| anyhow!("the collector panicked"))??;
        anyhow::Ok((latencies, window, cost, syncs))
    })?;

    let live_bytes = job.groups * job.keep * job.entry_bytes;
    let mut answer = report(job, latencies, window, cost, syncs);
    answer.set("disk_over_live", disk_bytes(&job.dir)? as f64 / live_bytes as f64);
    Ok(answer)
}

fn write_until(
    mut writer: GroupsWriter<'_>,
    engine: &dyn Engine,
    counting: &AtomicBool,
    stopped: &AtomicBool,
) -> Result<Vec<u32>> {
    let mut latencies = Vec::with_capacity(1 << 16);
    while !stopped.load(Ordering::Relaxed) {
        let batch = writer.next_batch(writer.job.groups_per_commit as usize);
        let counts = counting.load(Ordering::Relaxed);
        let started = Instant::now();
        engine.commit(&batch)?;
        let nanos = started.elapsed().as_nanos();
        if counts && counting.load(Ordering::Relaxed) {
            latencies.push(u32::try_from(nanos).unwrap_or(u32::MAX));
        }
    }
    Ok(latencies)
}

fn maintain_until(engine: &dyn Engine, stopped: &AtomicBool) -> Result<()> {
    let mut last = Instant::now();
    while !stopped.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20));
        if last.elapsed() >= MAINTAIN_EVERY {
            engine.maintain()?;
            last = Instant::now();
        }
    }
    Ok(())
}

fn report(job: &Job, mut latencies: Vec<u32>, window: Duration, cost: Counters, syncs: Option<u64>) -> JobOutput {
    latencies.sort_unstable();
    let n_commits = latencies.len() as f64;
    let per_commit = job.groups_per_commit.min(job.groups / job.writers) as f64;
    let n_entries = n_commits * per_commit;
    let mut answer = JobOutput::default();
    answer.set("commits_per_s", n_commits / window.as_secs_f64());
    answer.set("entries_per_s", n_entries / window.as_secs_f64());
    for (name, per_mille) in [("p50_us", 500), ("p99_us", 990), ("p999_us", 999)] {
        answer.set(name, percentile(&latencies, per_mille) / 1e3);
    }
    answer.set("cpu_us_per_entry", cost.cpu_s * 1e6 / n_entries);
    let written = if job.sync { cost.flushed_bytes() } else { cost.unflushed_bytes() };
    answer.set("bytes_per_user_byte", written as f64 / (n_entries * job.entry_bytes as f64));
    answer.set("device_writes_per_commit", cost.device_writes as f64 / n_commits);
    answer.set("device_flushes_per_commit", cost.device_flushes as f64 / n_commits);
    if let Some(syncs) = syncs {
        answer.set("fsyncs_per_commit", syncs as f64 / n_commits);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_keeps_about_keep_entries() {
        let mut group = GroupWriter { id: 1, first: 1, next: 1 };
        let mut live = 0;
        for _ in 0..500 {
            let append = group.append(100, bytes::Bytes::new());
            live += 1;
            live -= append.truncate.map_or(0, |range| range.end - range.start);
            assert!(live <= 110, "{live}");
        }
        assert!(live >= 100, "{live}");
    }
}
