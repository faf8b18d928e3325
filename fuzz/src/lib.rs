//! What reads the bytes of clients: those sources of `tarn` that need no DataFusion, under the names that they have there.
#![allow(dead_code)]

#[path = "../../crates/tarn/src/budget.rs"]
pub mod budget;
#[path = "../../crates/tarn/src/encoding.rs"]
pub mod encoding;
#[path = "../../crates/tarn/src/error.rs"]
pub mod error;
pub mod pg;
