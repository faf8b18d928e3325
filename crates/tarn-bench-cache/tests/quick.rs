//! Does the bench run? How fast, `make bench-cache` says.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use serde_json::Value;

#[test]
fn the_short_form_measures_all_three_parts() {
    let output = Command::new(env!("CARGO_BIN_EXE_tarn-bench-cache")).args(["--quick", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = report["figures"].as_object().unwrap();
    for part in ["plain", "cold_", "shared_", "hot_pages_left"] {
        assert!(figures.keys().any(|name| name.starts_with(part)), "no figure of {part}: {figures:#?}");
    }
    for (name, figure) in figures {
        assert!(figure["value"].as_f64().is_some_and(|value| value >= 0.0), "{name}: {figure}");
    }
}
