//! What do the runs say? Figures for the JSON, and a table to read.

use std::collections::BTreeMap;

use anyhow::Result;

use super::options::TpchOptions;
use super::queries::{AGGREGATES, JOINS, SCANS};
use super::way::{Run, RunMode};
use crate::report::{Report, median};

/// What all runs said.
#[derive(Default)]
pub struct Summary {
    runs: BTreeMap<(u8, RunMode), Vec<Run>>,
    rivals: BTreeMap<(u8, &'static str), Vec<f64>>,
    n_rows: BTreeMap<u8, usize>,
}

impl Summary {
    /// A run of Tarn.
    pub fn add(&mut self, query: u8, way: RunMode, run: Run) {
        self.runs.entry((query, way)).or_default().push(run);
    }

    /// A run of another engine, on the same files.
    pub fn add_rival(&mut self, query: u8, name: &'static str, ms: f64) {
        self.rivals.entry((query, name)).or_default().push(ms);
    }

    /// Rows of the query's answer, which are those of its first run.
    pub fn expect_rows(&mut self, query: u8, n_rows: usize) -> usize {
        *self.n_rows.entry(query).or_insert(n_rows)
    }

    /// `None`: no run of it has ended.
    pub fn n_rows(&self, query: u8) -> Option<usize> {
        self.n_rows.get(&query).copied()
    }

    fn of(&self, query: u8, way: RunMode, value: fn(&Run) -> f64) -> Option<f64> {
        let runs = self.runs.get(&(query, way))?;
        Some(median(&runs.iter().map(value).collect::<Vec<_>>()))
    }

    fn ms(&self, query: u8, way: RunMode) -> Option<f64> {
        self.of(query, way, |run| run.ms)
    }

    fn rival(&self, query: u8, name: &'static str) -> Option<f64> {
        self.rivals.get(&(query, name)).map(|runs| median(runs))
    }

    /// Caches off over warm.
    fn speedup(&self, query: u8) -> Option<f64> {
        Some(self.ms(query, RunMode::FarOff)? / self.ms(query, RunMode::Warm)?)
    }

    /// Over all queries that were measured so.
    fn sum(&self, way: RunMode) -> Option<f64> {
        let mut of_way = self.n_rows.keys().map(|query| self.ms(*query, way));
        of_way.try_fold(0.0, |sum, ms| Some(sum + ms?))
    }

    /// Puts everything into the report, and prints the table: on stdout, or on stderr beside JSON.
    pub fn report(&self, options: &TpchOptions, report: &mut Report) -> Result<()> {
        for ((query, way), runs) in &self.runs {
            let name = format!("q{query:02}_{}", way.name());
            let values = |value: fn(&Run) -> f64| runs.iter().map(value).collect::<Vec<_>>();
            report.record(&format!("{name}_ms"), "ms", values(|run| run.ms));
            report.record(&format!("{name}_cpu_s"), "s", values(|run| run.cpu_s));
            if way.is_far() {
                report.record(&format!("{name}_requests"), "requests", values(|run| run.asked.requests() as f64));
                report.record(&format!("{name}_bytes"), "bytes", values(|run| run.asked.bytes as f64));
            }
        }
        for ((query, rival), runs) in &self.rivals {
            report.record(&format!("q{query:02}_{rival}_ms"), "ms", runs.clone());
        }
        let table = self.table();
        if options.json {
            eprintln!("{table}");
        } else {
            println!("{table}");
        }
        for way in RunMode::ALL {
            if let Some(ms) = self.sum(way) {
                report.figure(&format!("total_{}_ms", way.name()), "ms", vec![ms]);
            }
        }
        for (name, queries) in
            [("scan_queries_warm_speedup_min", &SCANS[..]), ("join_queries_warm_speedup_min", &JOINS)]
        {
            let speedups = queries.iter().filter_map(|query| self.speedup(*query));
            if let Some(least) = speedups.min_by(f64::total_cmp) {
                report.figure(name, "times", vec![least]);
            }
        }
        if let (Some(warm), Some(local)) = (self.sum(RunMode::Warm), self.sum(RunMode::LocalOff)) {
            report.figure("warm_over_local", "ratio", vec![warm / local]);
        }
        let repeated = if self.sum(RunMode::Warm).is_some() { RunMode::Warm } else { RunMode::LocalWarm };
        let slowest = AGGREGATES.iter().filter_map(|query| self.ms(*query, repeated)).max_by(f64::total_cmp);
        if let Some(slowest) = slowest {
            report.figure("repeat_aggregate_ms", "ms", vec![slowest]);
        }
        if self.sum(RunMode::Warm).is_some() {
            let warm = self.runs.iter().filter(|((_, way), _)| *way == RunMode::Warm).flat_map(|(_, runs)| runs);
            report.figure("list_requests_warm", "requests", vec![warm.map(|run| run.asked.lists as f64).sum()]);
        }
        Ok(())
    }

    /// Milliseconds, a line for each query; then what each run cost besides.
    fn table(&self) -> String {
        let mut lines = Vec::new();
        let mut heading = format!("{:>5}", "ms");
        RunMode::ALL.iter().for_each(|way| heading += &format!(" {:>13}", way.name()));
        lines.push(heading + &format!(" {:>9} {:>10}  {:<10} {}", "duckdb", "clickhouse", "wins", "wins with caches"));
        for query in self.n_rows.keys() {
            let mut line = format!("{:>5}", format!("q{query:02}"));
            RunMode::ALL.iter().for_each(|way| line += &format!(" {:>13}", shown(self.ms(*query, *way))));
            let rivals = ["duckdb", "clickhouse"].map(|name| (name, self.rival(*query, name)));
            line += &format!(" {:>9} {:>10}", shown(rivals[0].1), shown(rivals[1].1));
            let cached = self.ms(*query, RunMode::Warm).or_else(|| self.ms(*query, RunMode::LocalWarm));
            let [plain, cached] = [self.ms(*query, RunMode::LocalOff), cached].map(|ours| winner(ours, &rivals));
            lines.push(line + &format!("  {plain:<10} {cached}"));
        }
        lines.push(String::new());
        lines.push("CPU seconds of the server / requests to the store / megabytes from it".to_owned());
        for query in self.n_rows.keys() {
            let mut line = format!("{:>5}", format!("q{query:02}"));
            for way in RunMode::ALL {
                let Some(cpu_s) = self.of(*query, way, |run| run.cpu_s) else { continue };
                line += &format!("  {} {cpu_s:.2}", way.name());
                if let Some(requests) = self.of(*query, way, |run| run.asked.requests() as f64).filter(|_| way.is_far())
                {
                    let mb = self.of(*query, way, |run| run.asked.bytes as f64 / 1e6).unwrap_or_default();
                    line += &format!("/{requests:.0}/{mb:.1}");
                }
            }
            lines.push(line);
        }
        lines.join("\n")
    }
}

fn shown(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"))
}

fn winner(ours: Option<f64>, rivals: &[(&'static str, Option<f64>)]) -> &'static str {
    let all = rivals.iter().copied().chain([("tarn", ours)]);
    let timed = all.filter_map(|(name, ms)| Some((name, ms?)));
    timed.min_by(|one, other| one.1.total_cmp(&other.1)).map_or("-", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ms: f64) -> Run {
        Run { ms, cpu_s: ms / 1e3, asked: Default::default() }
    }

    #[test]
    fn the_least_speedup_and_the_sums_are_told() {
        let mut summary = Summary::default();
        for (query, off, warm, local) in [(1, 1000.0, 10.0, 30.0), (6, 400.0, 20.0, 10.0), (5, 90.0, 30.0, 20.0)] {
            summary.expect_rows(query, 1);
            summary.add(query, RunMode::FarOff, run(off));
            [warm, warm, 9.0 * warm].into_iter().for_each(|ms| summary.add(query, RunMode::Warm, run(ms)));
            summary.add(query, RunMode::LocalOff, run(local));
        }
        assert_eq!(summary.speedup(6), Some(20.0));
        assert_eq!((summary.sum(RunMode::Warm), summary.sum(RunMode::LocalOff)), (Some(60.0), Some(60.0)));
        assert_eq!(summary.sum(RunMode::Pages), None);
        summary.add_rival(5, "duckdb", 10.0);
        let table = summary.table();
        assert!(table.contains("q05") && table.lines().any(|line| line.ends_with("duckdb     duckdb")), "{table}");
        assert!(table.contains("far_warm 0.03/0/0.0"), "{table}");
    }
}
