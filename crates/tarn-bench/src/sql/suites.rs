//! What do the suites beside PostgreSQL, and the clients, say?
//!
//! They are programs of their own (`tests/postgres`, `tests/generated`, `tests/clients`) that say what they found on
//! stderr and write their counts as JSON. That a suite fails is what is measured: only one that writes no counts is an
//! error.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::options::SqlOptions;
use crate::report::Report;

/// One suite: its folder below `tests`, its arguments, and the counts that become figures, with their units.
struct Suite {
    folder: &'static str,
    arguments: Vec<String>,
    figures: &'static [(&'static str, &'static str)],
}

/// `regress_wrong` of `regress_compared`, `regress_same` as a share of them.
pub fn regress(options: &SqlOptions, scratch: &Path, report: &mut Report) -> Result<()> {
    let figures = &[
        ("regress_compared", "count"),
        ("regress_same", "share"),
        ("regress_wrong", "count"),
        ("regress_missing", "count"),
        ("regress_other_state", "count"),
    ];
    let arguments = ["--set", "core"].map(str::to_owned).to_vec();
    run(options, scratch, &Suite { folder: "postgres", arguments, figures }, report)
}

/// `generated_wrong` and `generated_refused`, the second as a share of all.
pub fn generated(options: &SqlOptions, scratch: &Path, report: &mut Report) -> Result<()> {
    let figures = &[
        ("generated", "count"),
        ("generated_wrong", "count"),
        ("generated_refused", "share"),
        ("signatures", "count"),
        ("signatures_missing", "count"),
        ("signatures_left_out", "count"),
    ];
    let arguments =
        vec!["--count".to_owned(), options.count.to_string(), "--seed".to_owned(), options.seed.to_string()];
    run(options, scratch, &Suite { folder: "generated", arguments, figures }, report)
}

/// `clients_passing` of `clients_total`.
pub fn clients(options: &SqlOptions, scratch: &Path, report: &mut Report) -> Result<()> {
    let figures = &[("clients_total", "count"), ("clients_passing", "count"), ("clients_skipped", "count")];
    run(options, scratch, &Suite { folder: "clients", arguments: Vec::new(), figures }, report)
}

fn run(options: &SqlOptions, scratch: &Path, suite: &Suite, report: &mut Report) -> Result<()> {
    let program = options.tests.join(suite.folder).join("run.py");
    ensure!(program.is_file(), "{} is not there: --tests names the folder `tests` of a checkout", program.display());
    let counts_path: PathBuf = scratch.join(format!("{}.json", suite.folder));
    let mut command = Command::new(&options.python);
    command.arg(&program).arg("--tarn").arg(options.tarn()?).args(&suite.arguments);
    command.arg("--json").arg(&counts_path);
    // What it says is progress: figures alone go to standard output.
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {} {}", options.python.display(), program.display()))?;
    if let Some(mut said) = child.stdout.take() {
        std::io::copy(&mut said, &mut std::io::stderr())?;
    }
    let status = child.wait()?;
    let counts = std::fs::read_to_string(&counts_path)
        .with_context(|| format!("{} has counted nothing ({status})", program.display()))?;
    let counts: Value = serde_json::from_str(&counts)?;
    for (name, unit) in suite.figures {
        let value = counts[*name].as_f64().with_context(|| format!("{} has no {name}", counts_path.display()))?;
        report.figure(name, unit, vec![value]);
    }
    Ok(())
}
