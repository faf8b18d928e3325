//! `tarn-bench metastore`: the metastore's backends on one workload, and what an archive's reader sees of it.
//!
//! The backends are asked in a program of their own (`tarn-bench-metastore`), because this one must not know the
//! inside; this hands it the arguments, asks the archive (`archive.rs`) too, and prints both as one.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::archive;

#[derive(Args, Debug, Clone)]
pub struct MetastoreOptions {
    #[command(flatten)]
    archive: archive::ArchiveOptions,
    /// Blocks in all, 2,000 an hour [default: 50,000]
    #[arg(long)]
    blocks: Option<u64>,
    /// Chunks of each filter [default: 8,192]
    #[arg(long)]
    chunks: Option<u32>,
    /// Which are measured: embedded, cassandra, postgres
    #[arg(long, default_value = "embedded", value_name = "NAME,…")]
    backend: String,
    /// A Postgres that runs already [default: one is started by scripts/services]
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// A Cassandra that runs already [default: one is started by scripts/services]
    #[arg(long, value_name = "URL")]
    cassandra: Option<String>,
    /// Leave the archive out
    #[arg(long)]
    no_archive: bool,
}

/// Runs the bench of the metastore as a program of its own, then the archive, and puts both into one report.
pub async fn run(options: &MetastoreOptions) -> Result<()> {
    let mut report = stores(options)?;
    if !options.no_archive {
        let archive = serde_json::to_value(archive::run(&options.archive).await?)?;
        for part in ["parameters", "figures"] {
            let (Some(all), Some(more)) = (report[part].as_object_mut(), archive[part].as_object()) else { continue };
            all.extend(more.clone());
        }
    }
    let mut out = std::io::stdout().lock();
    if options.archive.json {
        writeln!(out, "{report}")?;
    } else {
        write!(out, "{}", table(&report))?;
    }
    let failures = &report["failures"];
    ensure!(failures.as_object().is_none_or(serde_json::Map::is_empty), "not measured: {failures}");
    Ok(())
}

/// What the program beside this one measures of the stores.
fn stores(options: &MetastoreOptions) -> Result<Value> {
    let program = std::env::current_exe()?.with_file_name("tarn-bench-metastore");
    let mut command = Command::new(&program);
    command.args(["--json", "--backend", &options.backend]).stdout(Stdio::piped());
    if options.archive.quick {
        command.arg("--quick");
    }
    let numbers = [("--blocks", options.blocks), ("--chunks", options.chunks.map(u64::from))];
    numbers.iter().filter_map(|(name, n)| Some((name, (*n)?))).for_each(|(name, n)| {
        command.arg(name).arg(n.to_string());
    });
    for (name, url) in [("--postgres", &options.postgres), ("--cassandra", &options.cassandra)] {
        if let Some(url) = url {
            command.arg(name).arg(url);
        }
    }
    if let Some(dir) = &options.archive.scratch {
        command.arg("--scratch").arg(dir);
    }
    let missing = || format!("start {} (make build builds it)", program.display());
    let out = command.spawn().and_then(std::process::Child::wait_with_output).with_context(missing)?;
    // With failures it ends so, and says in its report what it did measure.
    let report = serde_json::from_slice(&out.stdout);
    report.with_context(|| format!("{}: {}", program.display(), out.status))
}

fn table(report: &Value) -> String {
    let machine = &report["machine"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut out = format!("metastore on {}, commit {}\n", text(&machine["cpu"]), text(&machine["commit"]));
    for (name, figure) in report["figures"].as_object().unwrap_or(&serde_json::Map::new()) {
        let value = figure["value"].as_f64().unwrap_or(f64::NAN);
        let decimals = if value.abs() >= 10_000.0 { 0 } else { 3 };
        out.push_str(&format!("{name:<40} {value:>16.decimals$} {}\n", text(&figure["unit"])));
    }
    if let Some(failures) = report["failures"].as_object().filter(|failures| !failures.is_empty()) {
        out.push_str(&format!("not measured: {}\n", json!(failures)));
    }
    out
}
