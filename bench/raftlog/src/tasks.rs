//! The other tasks of a measuring process: fill, open, queries, ranges, overwrite, acknowledge, check.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::engines::{Append, Engine, OpenedEngine, open};
use crate::job::{Job, JobOutput, Task};
use crate::measure::{Counters, disk_bytes, evict, median};
use crate::payload::{Pool, Positions, checked_payload};
use crate::writers::{self, GroupsWriter};

/// Entries of one range read.
const RANGE: u64 = 100;
/// Ranges read cold.
const COLD_RANGES: usize = 41;
/// What our log may take above 1.5 times its live bytes: four segments.
const SLACK_BYTES: f64 = (4 * (64 << 20)) as f64;
/// How long an engine may go on reclaiming after the last write of `overwrite`.
const SETTLE: Duration = Duration::from_secs(3);
/// Groups of one commit while overwriting.
const OVERWRITE_BATCH: usize = 32;

/// Does the job in this process. The engine is not closed: the process ends as if killed.
pub fn run(job: &Job) -> Result<JobOutput> {
    let (cpu, started) = (Counters::now(&job.dir), Instant::now());
    let OpenedEngine { engine, reported } = open(job)?;
    let answer = match job.task {
        Task::Commits => writers::run(job, &*engine)?,
        Task::Fill => fill(job, &*engine)?,
        Task::Open => opened(job, &*engine, cpu, started)?,
        Task::Queries => queries(job, &*engine)?,
        Task::ColdRanges => cold_ranges(job, &*engine)?,
        Task::Overwrite => overwrite(job, &*engine)?,
        Task::Acknowledge => acknowledge(job, &*engine)?,
        Task::Check => check(job, &*engine, reported.is_some())?,
    };
    std::mem::forget(engine);
    Ok(answer)
}

/// Answers `fill_s`.
fn fill(job: &Job, engine: &dyn Engine) -> Result<JobOutput> {
    let started = Instant::now();
    let pool = Pool::new(job.entry_bytes);
    GroupsWriter::new(0, job, &pool).fill(engine, job.entries)?;
    engine.flush()?;
    let mut answer = JobOutput::default();
    answer.set("fill_s", started.elapsed().as_secs_f64());
    Ok(answer)
}

/// Answers `open_s` and `open_cpu_s`: from nothing to knowing every group's last index.
fn opened(job: &Job, engine: &dyn Engine, cpu: Counters, started: Instant) -> Result<JobOutput> {
    for group in 1..=job.groups {
        let last = engine.last_index(group)?;
        ensure!(last == job.entries, "group {group} ends at {last}, want {}", job.entries);
    }
    let mut answer = JobOutput::default();
    answer.set("open_s", started.elapsed().as_secs_f64());
    answer.set("open_cpu_s", Counters::now(&job.dir).since(cpu).cpu_s);
    Ok(answer)
}

/// Answers `term_us`, `last_index_us`, `log_size_us` (a whole group's) and `range_hot_us`.
fn queries(job: &Job, engine: &dyn Engine) -> Result<JobOutput> {
    let mut at = Positions::new(1);
    let mut answer = JobOutput::default();
    let seconds = job.seconds;
    // One pass over everything, so that what can be warm is.
    for group in 1..=job.groups {
        let payloads = engine.read(group, 1..job.entries + 1)?;
        ensure!(payloads.len() as u64 == job.entries, "group {group} has {} entries", payloads.len());
    }
    let mut group = || at.below(job.groups) + 1;
    answer.set("last_index_us", time(seconds, || engine.last_index(group()))?);
    answer.set("log_size_us", time(seconds, || engine.log_bytes(group(), 1..job.entries + 1))?);
    let mut at = Positions::new(2);
    answer.set("term_us", time(seconds, || engine.term(at.below(job.groups) + 1, at.below(job.entries) + 1))?);
    answer.set("range_hot_us", time(seconds, || range(job, engine, &mut at))?);
    Ok(answer)
}

/// Answers `range_cold_us`, the median: before each range the files leave the page cache.
fn cold_ranges(job: &Job, engine: &dyn Engine) -> Result<JobOutput> {
    let mut at = Positions::new(3);
    let mut times = Vec::with_capacity(COLD_RANGES);
    for _ in 0..COLD_RANGES {
        evict(&job.dir)?;
        let started = Instant::now();
        range(job, engine, &mut at)?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    let mut answer = JobOutput::default();
    answer.set("range_cold_us", median(&times));
    Ok(answer)
}

fn range(job: &Job, engine: &dyn Engine, at: &mut Positions) -> Result<usize> {
    let (group, first) = (at.below(job.groups) + 1, at.below(job.entries - RANGE + 1) + 1);
    let payloads = engine.read(group, first..first + RANGE)?;
    ensure!(payloads.len() as u64 == RANGE, "{} entries of group {group} from {first}", payloads.len());
    Ok(payloads.iter().map(|payload| payload.len()).sum())
}

/// Microseconds a call, over at least `seconds`. The clock is read once in a growing number of calls.
fn time<T>(seconds: f64, mut call: impl FnMut() -> Result<T>) -> Result<f64> {
    let started = Instant::now();
    let (mut calls, mut step) = (0_u64, 1_u64);
    while started.elapsed().as_secs_f64() < seconds {
        for _ in 0..step {
            black_box(call()?);
        }
        calls += step;
        step = (step * 2).min(1 << 14);
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / calls as f64)
}

/// Answers `space_over_live` (disk in use when it is quiet again), `space_over_bound` (over 1.5 times live and four of
/// our segments), `space_peak_over_live` and `bytes_per_user_byte`.
fn overwrite(job: &Job, engine: &dyn Engine) -> Result<JobOutput> {
    let before = Counters::now(&job.dir);
    let pool = Pool::new(job.entry_bytes);
    let mut writer = GroupsWriter::new(0, job, &pool);
    let live_entries = job.groups * job.keep;
    let total = live_entries * job.rewrites;
    let (mut written, mut asked, mut peak) = (0, 0, 0);
    while written < total {
        let batch = writer.next_batch(OVERWRITE_BATCH);
        written += batch.len() as u64;
        engine.load(&batch)?;
        if written - asked >= live_entries / 8 {
            asked = written;
            engine.flush()?;
            engine.maintain()?;
            peak = peak.max(disk_bytes(&job.dir)?);
        }
    }
    engine.flush()?;
    let mut left = disk_bytes(&job.dir)?;
    let settle = Instant::now();
    while settle.elapsed() < SETTLE {
        engine.maintain()?;
        std::thread::sleep(Duration::from_millis(200));
        left = disk_bytes(&job.dir)?;
    }
    let cost = Counters::now(&job.dir).since(before);
    let live_bytes = (live_entries * job.entry_bytes) as f64;
    let mut answer = JobOutput::default();
    answer.set("space_over_live", left as f64 / live_bytes);
    answer.set("space_over_bound", left as f64 / (1.5 * live_bytes + SLACK_BYTES));
    answer.set("space_peak_over_live", peak.max(left) as f64 / live_bytes);
    answer.set("bytes_per_user_byte", cost.flushed_bytes() as f64 / (written * job.entry_bytes) as f64);
    Ok(answer)
}

/// Answers nothing: every commit returned, durable.
fn acknowledge(job: &Job, engine: &dyn Engine) -> Result<JobOutput> {
    for index in 1..=job.entries {
        for group in 1..=job.groups {
            let payload = checked_payload(group, index, job.entry_bytes).into();
            engine.commit(&[Append { group, index, payload, truncate: None }])?;
        }
    }
    Ok(JobOutput::default())
}

/// Answers `lost` (acknowledged entries that are not there), `wrong` (other bytes came back), `refused` (reads that
/// named the damage) and `reported` (1 if opening said that something was cut off).
fn check(job: &Job, engine: &dyn Engine, reported: bool) -> Result<JobOutput> {
    let (mut lost, mut wrong, mut refused) = (0.0, 0.0, 0.0);
    for group in 1..=job.groups {
        let last = engine.last_index(group)?;
        lost += job.entries.saturating_sub(last) as f64;
        for index in 1..=last.min(job.entries) {
            match engine.read(group, index..index + 1).as_deref() {
                Ok([]) => lost += 1.0,
                Ok([payload]) if payload[..] == checked_payload(group, index, job.entry_bytes)[..] => {}
                Ok(_) => wrong += 1.0,
                Err(_) => refused += 1.0,
            }
        }
    }
    let mut answer = JobOutput::default();
    answer.set("lost", lost);
    answer.set("wrong", wrong);
    answer.set("refused", refused);
    answer.set("reported", f64::from(u8::from(reported)));
    Ok(answer)
}
