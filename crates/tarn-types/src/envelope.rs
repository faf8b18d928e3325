//! What does every log entry begin with?
//!
//! ```text
//! envelope   kind u8 | version u8 = 1 | schema u32 LE = 0 | origin u64 LE = 0 | sequence u64 LE = 0
//! ```
//!
//! `schema` counts the changes of the table's definition; none can be made yet. `origin` and `sequence` are to name the request, so that one
//! which is made again has its first outcome; nobody sends them yet. An entry in which they are not 0 is refused, not misread.

use crate::error::Result;
use crate::wire::Reader;

const VERSION: u8 = 1;
pub(crate) const ENVELOPE_BYTES: usize = 22;

/// The first byte of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Effects = 0x01,
    Freeze = 0x10,
    Split = 0x12,
}

pub(crate) fn put_envelope(out: &mut Vec<u8>, kind: EntryKind) {
    out.extend_from_slice(&[kind as u8, VERSION]);
    out.extend_from_slice(&[0; ENVELOPE_BYTES - 2]);
}

pub(crate) fn read_envelope(reader: &mut Reader<'_>) -> Result<EntryKind> {
    let [kind, version] = reader.array()?;
    let schema = u32::from_le_bytes(reader.array()?);
    let (origin, sequence) = (u64::from_le_bytes(reader.array()?), u64::from_le_bytes(reader.array()?));
    if version != VERSION || (schema, origin, sequence) != (0, 0, 0) {
        let reason = format!(
            "version {version}, schema {schema}, request {origin}/{sequence}; this build knows {VERSION}, 0, 0/0"
        );
        return Err(reader.corrupt(reason));
    }
    match kind {
        0x01 => Ok(EntryKind::Effects),
        0x10 => Ok(EntryKind::Freeze),
        0x12 => Ok(EntryKind::Split),
        other => Err(reader.corrupt(format!("kind {other:#04x}"))),
    }
}
