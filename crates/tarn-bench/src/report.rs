//! What was measured, on which machine, with which runs: collected here and printed once.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

/// What one run of a bench says.
#[derive(Serialize)]
pub struct Report {
    pub bench: &'static str,
    pub parameters: BTreeMap<&'static str, serde_json::Value>,
    pub machine: Machine,
    pub figures: BTreeMap<String, Figure>,
}

/// A median, and what it is of.
#[derive(Serialize)]
pub struct Figure {
    pub value: f64,
    pub unit: &'static str,
    pub runs: Vec<f64>,
}

/// Where it was measured.
#[derive(Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_mb: u64,
    pub system: String,
    pub commit: String,
}

impl Report {
    /// Without figures; the machine is looked at now.
    pub fn new(bench: &'static str) -> Report {
        Report { bench, parameters: BTreeMap::new(), machine: Machine::here(), figures: BTreeMap::new() }
    }

    /// What it was asked to do.
    pub fn parameter(&mut self, name: &'static str, value: impl Into<serde_json::Value>) {
        self.parameters.insert(name, value.into());
    }

    /// Records the median of `runs` and tells it on stderr.
    pub fn figure(&mut self, name: &str, unit: &'static str, runs: Vec<f64>) -> f64 {
        eprintln!("{name:<28} {:>14.3} {unit}", median(&runs));
        self.record(name, unit, runs)
    }

    /// Records the median of `runs`: one of many figures, which a table shows.
    pub fn record(&mut self, name: &str, unit: &'static str, runs: Vec<f64>) -> f64 {
        let value = median(&runs);
        self.figures.insert(name.to_owned(), Figure { value, unit, runs });
        value
    }

    /// One JSON object, or a table.
    pub fn print(&self, json: bool) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if json {
            serde_json::to_writer(&mut out, self)?;
            writeln!(out)?;
            return Ok(());
        }
        writeln!(
            out,
            "{} on {} ({} cores, {} MB), commit {}",
            self.bench, self.machine.cpu, self.machine.cores, self.machine.memory_mb, self.machine.commit
        )?;
        for (name, figure) in &self.figures {
            let (low, high) =
                figure.runs.iter().fold((f64::MAX, f64::MIN), |(low, high), run| (low.min(*run), high.max(*run)));
            writeln!(
                out,
                "{name:<28} {:>14.3} {:<8} {low:.3} … {high:.3}, {} runs",
                figure.value,
                figure.unit,
                figure.runs.len()
            )?;
        }
        Ok(())
    }
}

impl Machine {
    fn here() -> Machine {
        let first = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory_kb = first("/proc/meminfo", "MemTotal");
        let output = |program: &str, arguments: &[&str]| {
            let output =
                std::process::Command::new(program).args(arguments).stderr(std::process::Stdio::null()).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
        };
        Machine {
            cpu: first("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_mb: memory_kb.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or_default()
                / 1024,
            system: output("uname", &["-sr"]),
            commit: output("git", &["describe", "--always", "--dirty"]),
        }
    }
}

/// The middle value; of an even number of runs the mean of the two in the middle.
pub fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Milliseconds since `started`.
pub fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

/// The disk alone: milliseconds of one append of 4 KiB with fdatasync, to see what a commit cannot beat. Each run is a
/// median.
pub fn fdatasync_ms(folder: &Path, runs: usize) -> Result<Vec<f64>> {
    let mut file = fs::File::create(folder.join("fdatasync"))?;
    let mut medians = Vec::with_capacity(runs);
    for _ in 0..runs {
        let mut syncs = Vec::new();
        for _ in 0..50 {
            let started = Instant::now();
            file.write_all(&[7; 4096])?;
            file.sync_data()?;
            syncs.push(ms_since(started));
        }
        medians.push(median(&syncs));
    }
    Ok(medians)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_median_of_odd_and_even_runs() {
        assert_eq!(super::median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(super::median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(super::median(&[]).is_nan());
    }
}
