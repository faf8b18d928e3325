//! Any bytes as the data of a COPY in the binary format: the same rows, or the same error, wherever they are cut.
#![no_main]

// As the check names it, which is also an ordinary test of `tarn-pg`.
extern crate tarn_fuzz as tarn_pg;
extern crate tarn_fuzz as tarn_sql;

#[allow(dead_code)]
#[path = "../../crates/tarn-pg/tests/any_bytes/check.rs"]
mod check;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, &[u8])| check::copy_binary(input.0, input.1, input.2));
