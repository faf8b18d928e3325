//! What is a table called that is made beside another, to take its place? By a name that nobody can give.

use tarn_types::TableId;

use crate::error::{Error, ErrorKind, Result};

/// What such names begin with.
const BESIDE: &str = "tarn-altered://";

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
    match is_beside(name) {
        false => Ok(()),
        true => Err(Error::new(ErrorKind::ReservedName, format!("\"{name}\": names that begin so are Tarn's own"))
            .with_hint("call it otherwise")),
    }
}
