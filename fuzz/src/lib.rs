//! What reads the bytes of clients: those sources of `tarn-sql` and `tarn-pg` that need no DataFusion, under the names
//! that they have there.
#![allow(dead_code)]

extern crate self as tarn_sql;

#[path = "../../crates/tarn-sql/src/arrays.rs"]
pub mod arrays;
#[path = "../../crates/tarn-sql/src/binary.rs"]
pub mod binary;
#[path = "../../crates/tarn-sql/src/budget.rs"]
pub mod budget;
#[path = "../../crates/tarn-sql/src/cells.rs"]
pub mod cells;
#[path = "../../crates/tarn-sql/src/copy_binary.rs"]
pub mod copy_binary;
#[path = "../../crates/tarn-sql/src/copy_format.rs"]
pub mod copy_format;
#[path = "../../crates/tarn-sql/src/encoding.rs"]
pub mod encoding;
#[path = "../../crates/tarn-sql/src/error.rs"]
pub mod error;
#[path = "../../crates/tarn-pg/src/frames.rs"]
pub mod frames;
#[path = "../../crates/tarn-pg/src/params.rs"]
pub mod params;
pub mod rows;
