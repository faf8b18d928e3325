//! Does the program answer? The benches need a server and minutes; `data` is what the client tests load and compare.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::process::Command;

use parquet::file::reader::{FileReader, SerializedFileReader};

fn tarn_bench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tarn-bench"))
}

#[test]
fn data_writes_the_rows_of_its_scale_factor() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lineitem.parquet");
    let status = tarn_bench().args(["data", "--sf", "0.001", "--out"]).arg(&file).status().unwrap();
    assert!(status.success());
    let reader = SerializedFileReader::new(File::open(&file).unwrap()).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 6005);
}

#[test]
fn a_wrong_word_is_named() {
    let output = tarn_bench().arg("lod").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("'lod'"), "{output:?}");
}
