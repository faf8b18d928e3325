//! Does the bench run? How fast, `make bench-metastore` says.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use serde_json::Value;

#[test]
fn the_short_form_measures_the_embedded_backend() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarn-bench-metastore"));
    let output = command.args(["--quick", "--json", "--backend", "embedded"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["failures"], serde_json::json!({}));
    assert!(report["backends"]["embedded"].is_object(), "{report}");
    let figures = report["figures"].as_object().unwrap();
    assert!(!figures.is_empty());
    for (name, figure) in figures {
        assert!(figure["value"].as_f64().is_some_and(|value| value >= 0.0), "{name}: {figure}");
    }
}

#[test]
fn a_store_of_no_backend_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarn-bench-metastore"));
    let output = command.args(["--cold-url", "mysql://here"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("mysql://here"), "{output:?}");
}
