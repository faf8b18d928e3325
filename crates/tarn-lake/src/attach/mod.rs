//! How does an archive that somebody else wrote become a table?
//!
//! ```text
//! survey: list ──> footers of a few ──> the columns they have in common                     (once, when it is attached)
//! pass:   list ──> what is new, changed, gone ──> footers, key columns ──> commit by commit (again and again)
//! ```
//!
//! The objects are only ever listed and read. A file's path is below the archive's folder, which is the root of the
//! store that [`Attach`] is given.

mod bounds;
mod columns;
mod hour;
mod list;
mod types;

mod merge;
mod read;

mod pass;
mod survey;

pub use pass::{Attach, Progress};
pub use survey::ArchiveSurvey;
