//! What does one measuring process do, and what does it answer?
//!
//! Each measurement runs in a process of its own, so that its CPU time, its bytes written and its memory are those of
//! one engine and one cell. The job is one JSON object in the last argument; the answer is one JSON object on the last
//! line of stdout. The Go program in `bench/badger` takes the same jobs: a field changed here changes there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The engines, in the order of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum EngineName {
    /// tarn-raftlog
    Tarn,
    /// tarn-raftlog with LZ4 for appends of 4 KiB and more
    TarnLz4,
    /// raft-engine 0.4.2 as TiKV configures it
    RaftEngine,
    /// raft-engine 0.4.2, with log files written ahead (`prefill-for-recycle`)
    RaftEnginePrefilled,
    /// raft-engine 0.4.2, not compressing
    RaftEnginePlain,
    /// RocksDB as TiKV's raftdb
    Rocksdb,
    /// Badger v4, a Go program of its own
    Badger,
}

impl EngineName {
    /// The name in the JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            EngineName::Tarn => "tarn",
            EngineName::TarnLz4 => "tarn-lz4",
            EngineName::RaftEngine => "raft-engine",
            EngineName::RaftEnginePrefilled => "raft-engine-prefilled",
            EngineName::RaftEnginePlain => "raft-engine-plain",
            EngineName::Rocksdb => "rocksdb",
            EngineName::Badger => "badger",
        }
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Writers that append and truncate, for a time.
    Commits,
    /// A log of `entries` per group, durable; the process then ends without closing the engine.
    Fill,
    /// Open and ask every group for its last index.
    Open,
    /// Term, last index, log size, ranges of 100 entries from warm memory. The log is there.
    Queries,
    /// Ranges of 100 entries after the files left the page cache. The log is there.
    ColdRanges,
    /// Write `rewrites` times what lives, truncating; how much disk is left in use?
    Overwrite,
    /// `entries` commits per group, each acknowledged as durable; the process then ends without closing the engine.
    Acknowledge,
    /// Open and compare with what `Acknowledge` wrote.
    Check,
}

/// One measurement. Every task reads the fields it needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    pub engine: EngineName,
    pub task: Task,
    /// The engine's folder; made if absent.
    pub dir: PathBuf,
    /// Whether a commit returns when it is on the device (else: when the operating system has it).
    pub sync: bool,
    pub groups: u64,
    pub writers: u64,
    /// Groups that get one entry each in one commit.
    pub groups_per_commit: u64,
    pub entry_bytes: u64,
    /// Live entries per group, about: beyond it the oldest are truncated.
    pub keep: u64,
    /// Entries per group that `fill`, `acknowledge` and `check` are about.
    pub entries: u64,
    pub rewrites: u64,
    pub seconds: f64,
}

/// Named numbers; what a task answers is listed at its code.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct JobOutput {
    pub figures: BTreeMap<String, f64>,
}

impl JobOutput {
    /// Adds one number, if it is one: a median of nothing is left out.
    pub fn set(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.figures.insert(name.to_owned(), value);
        }
    }
}
