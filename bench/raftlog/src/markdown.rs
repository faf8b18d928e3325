//! The tables of docs/benchmarks-raftlog.md, from one report.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use crate::job::EngineName;
use crate::report::{MetricRuns, Report};
use crate::results::BARS;

/// Tables of a cell's figures: the title, the prefix of the cells, the figures.
const TABLES: [(&str, &str, &[&str]); 6] = [
    (
        "Durable commits",
        "sync/",
        &[
            "commits_per_s",
            "p50_us",
            "p99_us",
            "p999_us",
            "cpu_us_per_entry",
            "bytes_per_user_byte",
            "fsyncs_per_commit",
        ],
    ),
    (
        "Commits to the operating system",
        "os/",
        &["commits_per_s", "p50_us", "p99_us", "p999_us", "cpu_us_per_entry", "bytes_per_user_byte"],
    ),
    (
        "Queries and ranges of 100 entries",
        "queries/",
        &["term_us", "last_index_us", "log_size_us", "range_hot_us", "range_cold_us"],
    ),
    ("Reopening after the process was killed", "reopen/", &["fill_s", "open_s", "open_cpu_s"]),
    (
        "Space after ten overwrites",
        "space/",
        &["space_over_live", "space_over_bound", "space_peak_over_live", "bytes_per_user_byte"],
    ),
    ("One flipped bit", "flips/", &["tries", "silent", "refused", "reported", "lost_entries"]),
];

/// The whole page's tables.
pub fn render(report: &Report) -> Result<String, fmt::Error> {
    let mut page = String::new();
    let machine = &report.machine;
    writeln!(
        page,
        "Machine: {}, {} cores, {} MB, {}, {}; commit `{}`; load averages before {}; niceness {}. Parameters: {}.\n",
        machine.cpu,
        machine.cores,
        machine.memory_mb,
        machine.system,
        machine.file_system,
        machine.commit,
        machine.load_before,
        machine.nice,
        report.parameters.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", "),
    )?;
    named(&mut page, &report.figures)?;
    for (title, prefix, figures) in TABLES {
        grid(&mut page, report, title, prefix, figures)?;
    }
    for failure in &report.failures {
        writeln!(page, "- not measured: {failure}")?;
    }
    Ok(page)
}

fn named(page: &mut String, figures: &BTreeMap<String, MetricRuns>) -> fmt::Result {
    writeln!(page, "| figure | value | unit | spread | bar |\n|---|--:|---|---|---|")?;
    let bars: BTreeMap<&str, &str> = BARS.into();
    let asked = BARS.iter().filter_map(|(name, _)| figures.get_key_value(*name));
    for (name, figure) in asked.chain(figures.iter().filter(|(name, _)| !bars.contains_key(name.as_str()))) {
        let (low, high) = figure.spread();
        let spread = if figure.runs.len() > 1 { format!("{} – {}", short(low), short(high)) } else { String::new() };
        let bar = bars.get(name.as_str()).unwrap_or(&"");
        writeln!(page, "| `{name}` | {} | {} | {spread} | {bar} |", short(figure.value), figure.unit)?;
    }
    Ok(())
}

fn grid(page: &mut String, report: &Report, title: &str, prefix: &str, figures: &[&str]) -> fmt::Result {
    let rows: Vec<_> = report.grid.iter().filter(|row| row.cell.starts_with(prefix)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    // A column that no row has would be an empty one.
    let present: BTreeSet<&str> = rows.iter().flat_map(|row| row.figures.keys().map(String::as_str)).collect();
    let columns: Vec<&str> = figures.iter().copied().filter(|figure| present.contains(figure)).collect();
    writeln!(page, "\n### {title}\n\n| cell | engine | {} |", columns.join(" | "))?;
    writeln!(page, "|---|---|{}", "--:|".repeat(columns.len()))?;
    for row in rows {
        let value = |column: &&str| row.figures.get(*column).map_or("–".to_owned(), |figure| short(figure.value));
        let values: Vec<String> = columns.iter().map(value).collect();
        writeln!(page, "| {} | {} | {} |", row.cell, EngineName::name(row.engine), values.join(" | "))?;
    }
    Ok(())
}

/// Three digits or whole numbers.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_asked_figures_first_and_no_empty_column() -> Result<(), fmt::Error> {
        let figure = |name: &str, runs: &[f64]| (name.to_owned(), MetricRuns::new(name, runs.to_vec()));
        let report = Report {
            bench: "raftlog".into(),
            parameters: BTreeMap::new(),
            machine: crate::report::HostInfo::here(std::path::Path::new(".")),
            figures: [figure("a_us", &[1.0]), figure("log_size_us", &[0.05, 0.07, 0.06])].into(),
            grid: vec![crate::report::CellReport {
                cell: "sync/1g/1w/1k".into(),
                engine: EngineName::Badger,
                figures: [figure("p50_us", &[812.0])].into(),
            }],
            failures: vec![],
        };
        let page = render(&report)?;
        assert!(page.contains("| `log_size_us` | 0.060 | us | 0.050 – 0.070 | ≤ 0.1 |"), "{page}");
        assert!(page.find("log_size_us") < page.find("`a_us`"), "{page}");
        assert!(
            page.contains("| cell | engine | p50_us |") && page.contains("| sync/1g/1w/1k | badger | 812 |"),
            "{page}"
        );
        Ok(())
    }
}
