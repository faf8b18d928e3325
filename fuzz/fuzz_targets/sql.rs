//! Any text is parsed, or refused, within its bounds: no panic, no statement too deep to be copied, printed and
//! dropped.

#![no_main]

// As the parser's source names it.
extern crate sqlparser;

#[allow(dead_code, unused_imports)]
#[path = "../../crates/tarn-query/src/parser/mod.rs"]
mod parser;
#[allow(dead_code)]
#[path = "../../crates/tarn-query/src/walk.rs"]
mod walk;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // Where statements are parsed: the fuzzer's own thread has less.
    let work = || {
        if let Ok(statements) = parser::statements(text) {
            let copies = statements.clone();
            assert!(copies == statements, "a copy differs");
        }
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(parser::STACK_BYTES).spawn_scoped(scope, work);
        thread.expect("start a thread").join().expect("no text panics");
    });
});
