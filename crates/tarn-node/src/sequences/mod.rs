//! Which number is next? Sequences of this metastore: their definitions, and the numbers that are left of them.
//!
//! ```text
//! nextval ──> numbers in memory ──> answered                      nothing durable
//!                  └ used up ──> a block more, in the metastore ──> memory      one change of a document
//! ```
//!
//! Invariant: a number is durably gone before it is given. So none is given twice, whoever dies when, and whichever
//! server of the metastore gives it; those of a block that nobody asked for by then are a gap.
//!
//! Rooms: `sequence` counts (pure), `kept` is the document's text, `directory` gives numbers and changes definitions.

mod directory;
mod kept;
mod sequence;

pub use directory::{Directory, Reset, SequenceValues, give};
pub use sequence::{Owner, Sequence, Width};
