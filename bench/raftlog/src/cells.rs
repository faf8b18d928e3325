//! Which workloads are there, and what are they called?
//!
//! A cell of the grid is named `sync/64g/16w/1k` (durable or `os`, groups, writers, entry size);
//! `sync/1024g/16w/1k/x32` has 32 groups in each commit. There is no cell with more writers than groups: a Raft group
//! has one appender.

use std::path::PathBuf;

use crate::job::{EngineName, Job, Task};

/// Entry sizes, in bytes.
pub const SIZES: [u64; 3] = [128, 1 << 10, 16 << 10];
const GROUPS: [u64; 3] = [1, 64, 1024];
const WRITERS: [u64; 4] = [1, 8, 16, 64];
/// Groups of one commit in the batched cells, and their groups.
const BATCH: u64 = 32;
const BATCH_GROUPS: u64 = 1024;
/// Live entries per group, fewer where they would be more than `LIVE_BYTES` together.
const KEEP: u64 = 1000;

/// How much is done: the full form or the one for CI.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub rounds: usize,
    pub seconds: f64,
    pub live_bytes: u64,
    pub query_entries: u64,
    pub reopen_bytes: u64,
    pub flips: u64,
    pub disk_writes: usize,
    full_grid: bool,
}

impl Extent {
    /// Everything the issue asks for.
    pub fn full() -> Extent {
        Extent {
            rounds: 3,
            seconds: 2.0,
            live_bytes: 128 << 20,
            query_entries: 256_000,
            reopen_bytes: 1 << 30,
            flips: 40,
            disk_writes: 2000,
            full_grid: true,
        }
    }

    /// The cells that the named figures need, in about two minutes: does it run, and is nothing far off?
    pub fn quick() -> Extent {
        Extent {
            rounds: 1,
            seconds: 0.5,
            live_bytes: 8 << 20,
            query_entries: 32_000,
            reopen_bytes: 256 << 20,
            flips: 5,
            disk_writes: 200,
            full_grid: false,
        }
    }
}

/// A workload with its name.
#[derive(Debug, Clone)]
pub struct NamedJob {
    pub name: String,
    /// The engine and the folder are filled in when it runs.
    pub job: Job,
}

/// The name of a cell of the grid.
pub fn name(sync: bool, groups: u64, writers: u64, entry_bytes: u64, groups_per_commit: u64) -> String {
    let size = if entry_bytes < 1024 { format!("{entry_bytes}") } else { format!("{}k", entry_bytes >> 10) };
    let batch = if groups_per_commit > 1 { format!("/x{groups_per_commit}") } else { String::new() };
    format!("{}/{groups}g/{writers}w/{size}{batch}", if sync { "sync" } else { "os" })
}

/// The cell of 64 groups and 16 writers that decides, for a size.
pub fn shared(entry_bytes: u64) -> String {
    name(true, 64, 16, entry_bytes, 1)
}

/// The cell of one group and one writer, for a size.
pub fn single(entry_bytes: u64) -> String {
    name(true, 1, 1, entry_bytes, 1)
}

/// The cell of 16 writers with 32 groups in each commit, for a size.
pub fn batched(entry_bytes: u64) -> String {
    name(true, BATCH_GROUPS, 16, entry_bytes, BATCH)
}

/// Whether an engine takes part: the variants only where a headline is.
pub fn takes_part(engine: EngineName, cell: &str) -> bool {
    !matches!(engine, EngineName::TarnLz4 | EngineName::RaftEnginePrefilled | EngineName::RaftEnginePlain)
        || SIZES.iter().any(|&size| cell == shared(size) || cell == batched(size) || cell == single(size))
}

/// The grid of commits.
pub fn grid(extent: &Extent) -> Vec<NamedJob> {
    let mut cells = Vec::new();
    for sync in [true, false] {
        for entry_bytes in SIZES {
            for groups in GROUPS {
                for writers in WRITERS.into_iter().filter(|&writers| writers <= groups) {
                    cells.push(cell(extent, sync, groups, writers, entry_bytes, 1));
                }
            }
            for writers in [1, 16] {
                cells.push(cell(extent, sync, BATCH_GROUPS, writers, entry_bytes, BATCH));
            }
        }
    }
    let in_quick = |cell: &NamedJob| {
        let decides = |size| [shared(size), single(size), batched(size)].contains(&cell.name);
        SIZES.into_iter().any(decides) || cell.name == name(false, 64, 16, 1024, 1)
    };
    cells.retain(|cell| extent.full_grid || in_quick(cell));
    cells
}

fn cell(extent: &Extent, sync: bool, groups: u64, writers: u64, entry_bytes: u64, groups_per_commit: u64) -> NamedJob {
    let keep = (extent.live_bytes / (groups * entry_bytes)).clamp(8, KEEP);
    let job = Job { sync, groups, writers, groups_per_commit, entry_bytes, keep, ..job(extent, Task::Commits) };
    NamedJob { name: name(sync, groups, writers, entry_bytes, groups_per_commit), job }
}

/// Logs that queries and ranges are asked of: one group, and many interleaved ones.
pub fn queries(extent: &Extent) -> Vec<NamedJob> {
    [1, 1024].map(|groups| extent_of_queries(extent, groups)).into()
}

fn extent_of_queries(extent: &Extent, groups: u64) -> NamedJob {
    // A range of 100 must fit in the smallest.
    let groups = groups.min(extent.query_entries / 125);
    let job = Job { groups, entry_bytes: 1024, entries: extent.query_entries / groups, ..job(extent, Task::Queries) };
    NamedJob { name: format!("queries/{groups}g"), job: Job { seconds: extent.seconds / 4.0, ..job } }
}

/// The log that is reopened.
pub fn reopen(extent: &Extent) -> NamedJob {
    let groups = 64;
    let entries = extent.reopen_bytes / 1024 / groups;
    NamedJob {
        name: "reopen/64g/1k".into(),
        job: Job { groups, entry_bytes: 1024, entries, ..job(extent, Task::Open) },
    }
}

/// The log that is overwritten ten times.
pub fn space(extent: &Extent) -> NamedJob {
    let (groups, entry_bytes) = (64, 4096);
    let keep = (2 * extent.live_bytes / (groups * entry_bytes)).min(KEEP);
    let job = Job { groups, entry_bytes, keep, rewrites: 10, ..job(extent, Task::Overwrite) };
    NamedJob { name: "space/64g/4k".into(), job }
}

/// The small log whose bytes are flipped.
pub fn flips(extent: &Extent) -> NamedJob {
    let job = Job { sync: true, groups: 4, entry_bytes: 64, entries: 200, ..job(extent, Task::Acknowledge) };
    NamedJob { name: "flips/4g/64".into(), job }
}

fn job(extent: &Extent, task: Task) -> Job {
    Job {
        engine: EngineName::Tarn,
        task,
        dir: PathBuf::new(),
        sync: false,
        groups: 1,
        writers: 1,
        groups_per_commit: 1,
        entry_bytes: 1024,
        keep: KEEP,
        entries: 0,
        rewrites: 0,
        seconds: extent.seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_form_has_the_cells_of_the_named_figures() {
        let names: Vec<String> = grid(&Extent::quick()).into_iter().map(|cell| cell.name).collect();
        for size in SIZES {
            for cell in [single(size), shared(size), batched(size)] {
                assert!(names.contains(&cell), "{cell} is not in {names:?}");
            }
        }
        assert!(grid(&Extent::full()).len() > 3 * names.len());
    }

    #[test]
    fn no_group_has_two_writers() {
        assert!(grid(&Extent::full()).iter().all(|cell| cell.job.writers <= cell.job.groups));
    }
}
