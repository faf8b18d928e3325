//! Any bytes as a segment file: see `tests/any_bytes/check.rs` of `tarn-raftlog`, where the same runs in short form.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tarn-raftlog/tests/any_bytes/check.rs"]
mod check;

fuzz_target!(|input: (u16, bool, &[u8])| check::check(input.0, input.1, input.2));
