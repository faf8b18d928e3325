//! The Postgres wire.

#[path = "../../crates/tarn/src/pg/copy_format.rs"]
pub mod copy_format;
#[path = "../../crates/tarn/src/pg/frames.rs"]
pub mod frames;
#[path = "../../crates/tarn/src/pg/params.rs"]
pub mod params;
