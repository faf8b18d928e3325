//! How is the data folder kept for one process and one user?

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};

/// Of the data folder: nobody else sees what is in it.
const PRIVATE: u32 = 0o700;

/// Makes the data folder, for this user alone. One that is there and open to others is narrowed: rows, log and Parquet
/// could be read past the server.
fn keep_private(dir: &Path) -> Result<()> {
    let making = DirBuilder::new().recursive(true).mode(PRIVATE).create(dir);
    making.map_err(|error| io_error("make", dir, &error))?;
    let found = std::fs::metadata(dir).map_err(|error| io_error("look at", dir, &error))?.permissions().mode() & 0o777;
    if found & !PRIVATE == 0 {
        return Ok(());
    }
    match std::fs::set_permissions(dir, Permissions::from_mode(found & PRIVATE)) {
        Ok(()) => {
            tracing::warn!(dir = %dir.display(), "the data folder was open to others (mode {found:o}): it is this user's alone now")
        }
        Err(error) => {
            tracing::warn!(dir = %dir.display(), %error, "the data folder is open to others (mode {found:o}): chmod 700 it")
        }
    }
    Ok(())
}

/// Makes and locks it. The lock ends with the file.
///
/// Errors: `InUse` by another process.
pub(crate) fn lock_folder(dir: &Path) -> Result<File> {
    keep_private(dir)?;
    let path = dir.join("LOCK");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|e| io_error("open", &path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::new(
            ErrorKind::InUse,
            format!("the data folder {} is in use by another tarn process", dir.display()),
        )
        .with_hint("stop it, or choose another folder with --data-dir")),
        Err(TryLockError::Error(error)) => Err(io_error("lock", &path, &error)),
    }
}

pub(crate) fn io_error(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what} {}: {error}", path.display()))
}
