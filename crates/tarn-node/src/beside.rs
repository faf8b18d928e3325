//! What is a table called that is made beside another, to take its place, or to have the entries of an index? By a name
//! that nobody can give.

use tarn_types::TableId;
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};

/// What such names begin with.
const BESIDE: &str = "tarn-altered://";

/// What names of indexes' entries begin with.
const INDEX: &str = "tarn-index://";

/// A name for the entries of an index, which nothing else has: what the index is called its table says.
pub(crate) fn of_index(index: &str) -> String {
    format!("{INDEX}{index}/{}", Uuid::new_v4().simple())
}

/// The name of the one beside a table.
pub(crate) fn beside(table: TableId) -> String {
    format!("{BESIDE}{table}")
}

pub(crate) fn is_beside(name: &str) -> bool {
    name.starts_with(BESIDE)
}

/// Whether a user may call a table or view so.
///
/// Errors: `ReservedName`.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match is_beside(name) || name.starts_with(INDEX) {
        false => Ok(()),
        true => Err(Error::new(ErrorKind::ReservedName, format!("\"{name}\": names that begin so are Tarn's own"))
            .with_hint("call it otherwise")),
    }
}
