//! What is a JSON text, and which is the one form of those that mean the same?
//!
//! - `read`: is it JSON (RFC 8259), no deeper than [`MAX_DEPTH`], and what is in it, piece by piece
//! - `string`: texts in quotes, and what stands in them
//! - `number`: `1e2` is `100`
//! - `normal`: the text that a `jsonb` is kept as
//!
//! Nothing here recurses: a text may be as deep as the bound and the stack does not know it.

mod normal;
mod number;
mod read;
mod string;

pub use normal::normal_form;
pub use read::{JsonFault, MAX_DEPTH, check};
pub use string::{quote, unescape};
