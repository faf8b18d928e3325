//! What was measured, where, and how often? One JSON object of the same form as the other benches of Tarn, plus the
//! grid.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::job::EngineName;
use crate::measure::median;

/// The whole answer of the bench.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    pub bench: String,
    pub parameters: BTreeMap<String, serde_json::Value>,
    pub machine: HostInfo,
    /// The named figures.
    pub figures: BTreeMap<String, MetricRuns>,
    /// Every cell of every engine.
    pub grid: Vec<CellReport>,
    /// Measurements that did not come about, and why.
    pub failures: Vec<String>,
}

/// The median of its runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct MetricRuns {
    pub value: f64,
    pub unit: String,
    pub runs: Vec<f64>,
}

/// One workload on one engine.
#[derive(Debug, Serialize, Deserialize)]
pub struct CellReport {
    pub cell: String,
    pub engine: EngineName,
    pub figures: BTreeMap<String, MetricRuns>,
}

/// Where it was measured, and what else the machine was doing.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostInfo {
    pub cpu: String,
    pub cores: usize,
    pub memory_mb: u64,
    pub system: String,
    pub commit: String,
    /// The load averages when the bench began.
    pub load_before: String,
    /// The niceness of the bench.
    pub nice: i64,
    /// The file system under the scratch folder.
    pub file_system: String,
}

impl Report {
    /// Adds the rounds of a later run of the same bench: each figure becomes the median of all runs. Where and on what
    /// it was measured stays as this report says.
    pub fn add_rounds(&mut self, other: Report) {
        merge(&mut self.figures, other.figures);
        for row in other.grid {
            match self.grid.iter_mut().find(|ours| (&ours.cell, ours.engine) == (&row.cell, row.engine)) {
                Some(ours) => merge(&mut ours.figures, row.figures),
                None => self.grid.push(row),
            }
        }
        self.failures.extend(other.failures);
    }
}

fn merge(ours: &mut BTreeMap<String, MetricRuns>, others: BTreeMap<String, MetricRuns>) {
    for (name, other) in others {
        let mut runs = ours.remove(&name).map_or_else(Vec::new, |figure| figure.runs);
        runs.extend(other.runs);
        ours.insert(name.clone(), MetricRuns::new(&name, runs));
    }
}

impl MetricRuns {
    /// The median of `runs`; the unit follows from the name.
    pub fn new(name: &str, runs: Vec<f64>) -> MetricRuns {
        MetricRuns { value: median(&runs), unit: unit(name).into(), runs }
    }

    /// The least and the greatest run.
    pub fn spread(&self) -> (f64, f64) {
        self.runs.iter().fold((f64::MAX, f64::MIN), |(low, high), &run| (low.min(run), high.max(run)))
    }
}

fn unit(name: &str) -> &'static str {
    match name {
        _ if name.ends_with("_us") || name.ends_with("_us_per_entry") => "us",
        _ if name.ends_with("mb_s") => "MB/s",
        _ if name.ends_with("_per_s") => "1/s",
        _ if name.ends_with("_s") => "s",
        _ if name.starts_with("flipped") => "count",
        _ => "ratio",
    }
}

impl HostInfo {
    /// This machine, and the file system of `scratch`.
    pub fn here(scratch: &std::path::Path) -> HostInfo {
        let first = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let output = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).stderr(Stdio::null()).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
        };
        let memory_kb = first("/proc/meminfo", "MemTotal");
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // After the parenthesis that ends the program's name, niceness is the 17th field.
        let nice = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(16)?.parse().ok());
        HostInfo {
            cpu: first("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_mb: memory_kb.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or_default()
                / 1024,
            system: output("uname", &["-sr"]),
            commit: output("git", &["describe", "--always", "--dirty"]),
            load_before: fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned(),
            nice: nice.unwrap_or_default(),
            file_system: output("stat", &["-f", "-c", "%T", &scratch.to_string_lossy()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_from_names() {
        let units = [
            "p50_us",
            "cpu_us_per_entry",
            "commits_per_s",
            "open_s",
            "sequential_direct_mb_s",
            "commits_vs_raft_engine_16w",
        ];
        assert_eq!(units.map(unit), ["us", "us", "1/s", "s", "MB/s", "ratio"]);
    }

    #[test]
    fn rounds_of_two_runs_become_one() {
        let figures = |runs: &[f64]| BTreeMap::from([("p50_us".to_owned(), MetricRuns::new("p50_us", runs.to_vec()))]);
        let report = |cell: &str, runs: &[f64]| Report {
            bench: "raftlog".into(),
            parameters: BTreeMap::new(),
            machine: HostInfo::here(std::path::Path::new(".")),
            figures: figures(runs),
            grid: vec![CellReport { cell: cell.into(), engine: EngineName::Tarn, figures: figures(runs) }],
            failures: vec![],
        };
        let mut all = report("sync/1g/1w/1k", &[1.0, 5.0]);
        all.add_rounds(report("sync/1g/1w/1k", &[3.0]));
        all.add_rounds(report("os/1g/1w/1k", &[9.0]));
        assert_eq!((all.figures["p50_us"].value, all.grid.len()), (4.0, 2));
        assert_eq!(all.grid[0].figures["p50_us"].runs, [1.0, 5.0, 3.0]);
    }

    #[test]
    fn a_figure_is_the_median_of_its_runs() {
        let figure = MetricRuns::new("p50_us", vec![3.0, 1.0, 2.0]);
        assert_eq!((figure.value, figure.spread()), (2.0, (1.0, 3.0)));
    }
}
