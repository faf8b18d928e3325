//! What is said in the end: one JSON object, or a table of its figures.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use serde::Serialize;
use serde_json::Value;

use crate::reads::ReadStats;
use crate::{embedded, naive, remote};

/// What one run of the bench says.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    pub bench: &'static str,
    pub parameters: BTreeMap<&'static str, Value>,
    pub machine: Machine,
    pub figures: BTreeMap<String, Figure>,
    /// All that was measured, by backend.
    pub backends: BTreeMap<&'static str, Value>,
    /// Backends that could not be measured, and why.
    pub failures: BTreeMap<&'static str, String>,
}

/// A number and its unit.
#[derive(Debug, Serialize)]
pub struct Figure {
    pub value: f64,
    pub unit: &'static str,
}

/// Where it was measured.
#[derive(Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_mb: u64,
    pub system: String,
    pub commit: String,
}

impl Machine {
    /// As the system tells it now.
    pub fn here() -> Self {
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

impl BenchReport {
    fn figure(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        self.figures.insert(name.into(), Figure { value, unit });
    }

    /// Figures of the embedded backend.
    pub fn add_embedded(&mut self, of: &embedded::EmbeddedReport) {
        let columns = &of.reads.columns_hour.latency;
        self.figure("bloom_50k_warm_ms", "ms", of.reads.probe_all.latency.p50_ms);
        self.figure("bloom_50k_cold_ms", "ms", of.cold.total_ms);
        self.figure("bloom_2k_warm_ms", "ms", of.reads.probe_hour.latency.p50_ms);
        self.figure("block_writes_per_s", "blocks/s", of.commits_paced.blocks_per_s);
        self.figure("block_writes_p50_ms", "ms", of.commits_paced.latency.p50_ms);
        self.figure("block_writes_p99_ms", "ms", of.commits_paced.latency.p99_ms);
        self.figure("block_writes_unpaced_per_s", "blocks/s", of.commits.blocks_per_s);
        self.figure("disk_paced_p50_ms", "ms", of.fdatasync_paced.p50_ms);
        self.figure("disk_paced_p99_ms", "ms", of.fdatasync_paced.p99_ms);
        self.figure("full_blooms_blocks_per_s", "blocks/s", of.full_blooms_blocks_per_s);
        self.figure("column_metadata_p99_over_p50", "ratio", columns.p99_ms / columns.p50_ms);
        self.figure("crash_open_ms", "ms", of.crash_open_ms);
        self.figure("wide_columns_ms", "ms", of.wide_columns.latency.p50_ms);
        self.figure("embedded_disk_bytes", "bytes", of.bytes_on_disk as f64);
        self.figure("embedded_rss_bytes", "bytes", of.rss_bytes as f64);
        self.add_reads("embedded", &of.reads);
    }

    /// Figures of a backend behind a network, and how many times slower it is than the embedded one.
    pub fn add_remote(&mut self, name: &'static str, of: &remote::RemoteReport) {
        self.figure(format!("{name}_block_writes_per_s"), "blocks/s", of.commits.blocks_per_s);
        self.figure(format!("{name}_block_writes_p50_ms"), "ms", of.commits.latency.p50_ms);
        self.figure(format!("{name}_block_writes_p99_ms"), "ms", of.commits.latency.p99_ms);
        self.figure(format!("{name}_full_blooms_blocks_per_s"), "blocks/s", of.full_blooms_blocks_per_s);
        self.figure(format!("{name}_bloom_50k_cold_ms"), "ms", of.cold.total_ms);
        if let Some(bytes) = of.bytes_on_disk {
            self.figure(format!("{name}_disk_bytes"), "bytes", bytes as f64);
        }
        self.figure(format!("{name}_rss_bytes"), "bytes", of.rss_bytes as f64);
        self.add_reads(name, &of.reads);
        self.add_ratio(format!("vs_{name}"), of.reads.probe_all.latency.p50_ms);
    }

    /// Figures of the first model.
    pub fn add_naive(&mut self, of: &naive::NaiveReport) {
        self.figure("naive_postgres_hour_ms", "ms", of.latency.p50_ms);
        self.figure("naive_postgres_50k_scaled_ms", "ms", of.scaled_ms);
        self.add_ratio("vs_naive_postgres".to_owned(), of.scaled_ms);
    }

    /// How many times the embedded backend's time.
    fn add_ratio(&mut self, name: String, ms: f64) {
        if let Some(ours) = self.figures.get("bloom_50k_warm_ms").map(|figure| figure.value) {
            self.figure(name, "speed-up", ms / ours);
        }
    }

    fn add_reads(&mut self, name: &str, reads: &ReadStats) {
        for (what, latency) in [
            ("list_hour", &reads.list_hour),
            ("list_day", &reads.list_day),
            ("bloom_2k", &reads.probe_hour.latency),
            ("bloom_50k", &reads.probe_all.latency),
            ("columns_2k", &reads.columns_hour.latency),
            ("columns_50k", &reads.columns_all.latency),
            ("chunks_2k", &reads.chunks_hour.latency),
        ] {
            self.figure(format!("{name}_{what}_p50_ms"), "ms", latency.p50_ms);
            self.figure(format!("{name}_{what}_p99_ms"), "ms", latency.p99_ms);
        }
        let (bloom, columns) = (reads.probe_all.bytes_read, reads.columns_hour.bytes_read);
        self.figure(format!("{name}_bloom_50k_bytes_read"), "bytes", bloom as f64);
        self.figure(format!("{name}_columns_2k_bytes_read"), "bytes", columns as f64);
    }

    /// To read.
    pub fn table(&self) -> String {
        let Machine { cpu, cores, memory_mb, commit, .. } = &self.machine;
        let mut out = format!("metastore on {cpu} ({cores} cores, {memory_mb} MB), commit {commit}\n");
        for (name, Figure { value, unit }) in &self.figures {
            let decimals = if *unit == "bytes" || *value >= 10_000.0 { 0 } else { 3 };
            out.push_str(&format!("{name:<36} {value:>16.decimals$} {unit}\n"));
        }
        for (name, reason) in &self.failures {
            out.push_str(&format!("{name} was not measured: {reason}\n"));
        }
        out
    }
}
