//! All numbers by cell, engine and round, and the named figures that follow from them.
//!
//! A ratio is taken within one round, both sides a few seconds apart, and the figure is the median of the rounds.
//! `*_vs_*` of commits and reopening: how many times better Tarn is; of latencies and CPU: Tarn's over the other's, so
//! less is better.

use std::collections::BTreeMap;

use crate::cells::{SIZES, batched, shared, single};
use crate::disk::limit_name;
use crate::job::{EngineName, JobOutput};
use crate::measure::geomean;
use crate::report::{CellReport, MetricRuns};

use EngineName::{Badger, RaftEngine, RaftEnginePlain, RaftEnginePrefilled, Rocksdb, Tarn};

/// The named figures with what is asked of them (docs/benchmarks-raftlog.md).
pub const BARS: [(&str, &str); 11] = [
    ("commits_vs_raft_engine_16w", "≥ 2"),
    ("p99_vs_raft_engine_16w", "≤ 0.7"),
    ("commits_vs_raft_engine_batched", "≥ 2.2"),
    ("commit_p50_vs_rocksdb", "≤ 0.6"),
    ("single_writer_p50_over_limit", "≤ 1.15"),
    ("cpu_per_entry_vs_raft_engine", "≤ 0.5"),
    ("bytes_per_user_byte_1k", "≤ 1.10"),
    ("reopen_vs_raft_engine", "≥ 4"),
    ("log_size_us", "≤ 0.1"),
    ("space_over_live", "≤ 1.5 and 4 segments"),
    ("flipped_bytes_silent", "0"),
];

/// The numbers of one cell on one engine: by name, one value a round.
type RoundValues = BTreeMap<String, BTreeMap<usize, f64>>;

#[derive(Debug, Default)]
pub struct Results {
    cells: BTreeMap<(String, EngineName), RoundValues>,
    disk: RoundValues,
    rounds: usize,
}

impl Results {
    /// Keeps what one measurement answered.
    pub fn add(&mut self, round: usize, cell: &str, engine: EngineName, answer: &JobOutput) {
        let numbers = self.cells.entry((cell.to_owned(), engine)).or_default();
        keep(numbers, round, answer);
        self.rounds = self.rounds.max(round + 1);
    }

    /// Keeps what the disk answered.
    pub fn add_disk(&mut self, round: usize, answer: &JobOutput) {
        keep(&mut self.disk, round, answer);
        self.rounds = self.rounds.max(round + 1);
    }

    /// Every cell of every engine.
    pub fn grid(&self) -> Vec<CellReport> {
        let cell = |((cell, engine), numbers): (&(String, EngineName), &RoundValues)| CellReport {
            cell: cell.clone(),
            engine: *engine,
            figures: figures_of(numbers),
        };
        self.cells.iter().map(cell).collect()
    }

    /// The named figures; one whose cells were not measured is left out.
    pub fn figures(&self) -> BTreeMap<String, MetricRuns> {
        let mut figures = figures_of(&self.disk);
        let mut add = |name: &str, of_round: &dyn Fn(usize) -> Option<f64>| {
            let runs: Vec<f64> = (0..self.rounds).filter_map(of_round).filter(|value| value.is_finite()).collect();
            if !runs.is_empty() {
                figures.insert(name.to_owned(), MetricRuns::new(name, runs));
            }
        };
        for (suffix, other) in [
            ("raft_engine", RaftEngine),
            ("raft_engine_prefilled", RaftEnginePrefilled),
            ("raft_engine_plain", RaftEnginePlain),
            ("rocksdb", Rocksdb),
            ("badger", Badger),
        ] {
            let all = |cell: fn(u64) -> String, figure: &'static str| {
                move |round| self.over_sizes(round, cell, |name| self.ratio(round, name, figure, Tarn, other))
            };
            add(&format!("commits_vs_{suffix}_16w"), &all(shared, "commits_per_s"));
            add(&format!("p99_vs_{suffix}_16w"), &all(shared, "p99_us"));
            add(&format!("commits_vs_{suffix}_batched"), &all(batched, "commits_per_s"));
            add(&format!("single_writer_p50_vs_{suffix}"), &all(single, "p50_us"));
            let one = batched(1024);
            add(&format!("cpu_per_entry_vs_{suffix}"), &|round| {
                self.ratio(round, &one, "cpu_us_per_entry", Tarn, other)
            });
            add(&format!("commit_p50_vs_{suffix}"), &|round| self.over_synced_grid(round, other));
            let reopen = |round| self.ratio(round, "reopen/64g/1k", "open_s", other, Tarn);
            add(&format!("reopen_vs_{suffix}"), &reopen);
            let flips = |round| self.number(round, "flips/4g/64", other, "silent");
            add(&format!("flipped_bytes_silent_{suffix}"), &flips);
        }
        add("single_writer_p50_over_limit", &|round| self.worst_over_limit(round));
        add("bytes_per_user_byte_1k", &|round| self.number(round, &batched(1024), Tarn, "bytes_per_user_byte"));
        for name in ["log_size_us", "term_us", "last_index_us"] {
            add(name, &|round| self.worst_query(round, name));
        }
        add("space_over_live", &|round| self.number(round, "space/64g/4k", Tarn, "space_over_live"));
        add("space_over_bound", &|round| self.number(round, "space/64g/4k", Tarn, "space_over_bound"));
        add("space_peak_over_live", &|round| self.number(round, "space/64g/4k", Tarn, "space_peak_over_live"));
        add("flipped_bytes_silent", &|round| self.number(round, "flips/4g/64", Tarn, "silent"));
        figures
    }

    fn number(&self, round: usize, cell: &str, engine: EngineName, figure: &str) -> Option<f64> {
        self.cells.get(&(cell.to_owned(), engine))?.get(figure)?.get(&round).copied()
    }

    fn ratio(&self, round: usize, cell: &str, figure: &str, over: EngineName, under: EngineName) -> Option<f64> {
        Some(self.number(round, cell, over, figure)? / self.number(round, cell, under, figure)?)
    }

    /// The geometric mean over the three entry sizes; all must be there.
    fn over_sizes(&self, _round: usize, cell: fn(u64) -> String, ratio: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let ratios: Option<Vec<f64>> = SIZES.iter().map(|&size| ratio(&cell(size))).collect();
        Some(geomean(&ratios?))
    }

    /// The geometric mean over all synced cells that both sides have.
    fn over_synced_grid(&self, round: usize, other: EngineName) -> Option<f64> {
        let synced = self.cells.keys().filter(|(cell, engine)| *engine == Tarn && cell.starts_with("sync/"));
        let ratios: Vec<f64> = synced.filter_map(|(cell, _)| self.ratio(round, cell, "p50_us", Tarn, other)).collect();
        (!ratios.is_empty()).then(|| geomean(&ratios))
    }

    /// The worst of the three sizes: a limit holds everywhere or not.
    fn worst_over_limit(&self, round: usize) -> Option<f64> {
        let over = |size| {
            let limit = self.disk.get(&limit_name(size))?.get(&round)?;
            Some(self.number(round, &single(size), Tarn, "p50_us")? / limit)
        };
        let over: Option<Vec<f64>> = SIZES.into_iter().map(over).collect();
        over?.into_iter().reduce(f64::max)
    }

    fn worst_query(&self, round: usize, figure: &str) -> Option<f64> {
        let asked = self.cells.keys().filter(|(cell, engine)| *engine == Tarn && cell.starts_with("queries/"));
        asked.filter_map(|(cell, _)| self.number(round, cell, Tarn, figure)).reduce(f64::max)
    }
}

fn keep(numbers: &mut RoundValues, round: usize, answer: &JobOutput) {
    for (name, &value) in &answer.figures {
        numbers.entry(name.clone()).or_default().insert(round, value);
    }
}

fn figures_of(numbers: &RoundValues) -> BTreeMap<String, MetricRuns> {
    let figure = |(name, runs): (&String, &BTreeMap<usize, f64>)| {
        let runs: Vec<f64> = runs.values().copied().filter(|value| value.is_finite()).collect();
        (!runs.is_empty()).then(|| (name.clone(), MetricRuns::new(name, runs)))
    };
    numbers.iter().filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(figures: &[(&str, f64)]) -> JobOutput {
        JobOutput { figures: figures.iter().map(|&(name, value)| (name.to_owned(), value)).collect() }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mut results = Results::default();
        for round in 0..2 {
            for (at, size) in SIZES.into_iter().enumerate() {
                let ours = 10.0 * (round + 1) as f64 * (at + 1) as f64;
                results.add(round, &shared(size), Tarn, &answer(&[("commits_per_s", 2.0 * ours), ("p99_us", 1.0)]));
                results.add(round, &shared(size), RaftEngine, &answer(&[("commits_per_s", ours), ("p99_us", 2.0)]));
            }
        }
        let figures = results.figures();
        let ratio = &figures["commits_vs_raft_engine_16w"];
        assert!(ratio.runs.len() == 2 && ratio.runs.iter().all(|run| (run - 2.0).abs() < 1e-9), "{ratio:?}");
        assert!((figures["p99_vs_raft_engine_16w"].value - 0.5).abs() < 1e-9);
        assert!(!figures.contains_key("reopen_vs_raft_engine"), "not measured, so not there");
    }
}
