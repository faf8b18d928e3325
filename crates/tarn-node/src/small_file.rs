//! How is a small file of the data folder kept? Written whole in the place of the one before, with its format and a
//! checksum at its head.
//!
//! ```text
//! format u8 | crc32c u32 LE of the rest | the rest
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The format, and the checksum of what is behind it.
const HEAD_BYTES: usize = 5;

/// The bytes of a file whose content `write` appends.
pub(crate) fn sealed(format: u8, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![format; HEAD_BYTES];
    write(&mut bytes);
    let crc = crc32c::crc32c(&bytes[HEAD_BYTES..]);
    bytes[1..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The content of a file of this format.
///
/// Errors: why it is none.
pub(crate) fn unsealed(known: u8, bytes: &[u8]) -> Result<&[u8], String> {
    let Some(([format, crc @ ..], rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Err(format!("{} bytes are too few: it was cut short", bytes.len()));
    };
    if *format != known {
        return Err(format!("format {format} is not known, this build writes {known}"));
    }
    if crc32c::crc32c(rest).to_le_bytes() != *crc {
        return Err("it does not match its checksum".to_owned());
    }
    Ok(rest)
}

/// Puts a file in the place of another, durably: whenever the process dies, one of the two is there whole.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder_of(path)
}

/// Behind a change of which files are in the folder of this one.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
