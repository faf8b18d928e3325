//! What is said in the end: one JSON object, as the other benches have it.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use serde::Serialize;
use serde_json::Value;

/// What one run of the bench says.
#[derive(Debug, Serialize)]
pub struct Report {
    bench: &'static str,
    parameters: BTreeMap<&'static str, Value>,
    machine: Machine,
    figures: BTreeMap<String, Figure>,
}

/// The median of the rounds, the least and the most.
#[derive(Debug, Serialize)]
struct Figure {
    value: f64,
    unit: &'static str,
    least: f64,
    most: f64,
}

#[derive(Debug, Serialize)]
struct Machine {
    cpu: String,
    cores: usize,
    memory_mb: u64,
    system: String,
    commit: String,
}

impl Report {
    /// Without figures; the machine is looked at now.
    pub fn new() -> Self {
        Report { bench: "cache", parameters: BTreeMap::new(), machine: Machine::here(), figures: BTreeMap::new() }
    }

    /// What it was asked to do.
    pub fn parameter(&mut self, name: &'static str, value: Value) {
        self.parameters.insert(name, value);
    }

    /// One figure of several rounds; their median is returned.
    pub fn figure(&mut self, name: String, unit: &'static str, rounds: &[f64]) -> f64 {
        let mut rounds = rounds.to_vec();
        rounds.sort_by(f64::total_cmp);
        let round = |x: f64| (x * 1000.0).round() / 1000.0;
        let Some((least, most)) = rounds.first().copied().zip(rounds.last().copied()) else { return f64::NAN };
        let value = rounds[rounds.len() / 2];
        self.figures.insert(name, Figure { value: round(value), unit, least: round(least), most: round(most) });
        value
    }
}

impl Machine {
    fn here() -> Self {
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
        Self {
            cpu: first("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_mb: memory_kb.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024,
            system: output("uname", &["-sr"]),
            commit: output("git", &["describe", "--always", "--dirty"]),
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Machine { cpu, cores, commit, .. } = &self.machine;
        writeln!(f, "page cache on {cpu}, {cores} cores, commit {commit}")?;
        for (name, Figure { value, unit, least, most }) in &self.figures {
            writeln!(f, "{name:<60} {value:>10.3} {unit:<8} {least:.3} to {most:.3}")?;
        }
        Ok(())
    }
}
