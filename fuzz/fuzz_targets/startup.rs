//! Any bytes as the packets that a connection begins with: errors or packets, the same ones wherever the bytes are cut.
#![no_main]

// As the check names it, which is also an ordinary test of `tarn-pg`.
extern crate tarn_fuzz as tarn_pg;
extern crate tarn_fuzz as tarn_sql;

#[allow(dead_code)]
#[path = "../../crates/tarn-pg/tests/any_bytes/check.rs"]
mod check;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| check::startup(input.1, input.0));
