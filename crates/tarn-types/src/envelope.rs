//! What does every log entry begin with?
//!
//! ```text
//! envelope   kind u8 | version u8 = 1 | schema u32 LE = 0 | origin u64 LE | sequence u64 LE
//! ```
//!
//! `schema` is 0: an entry says the same under each definition that its table had since. Its cells are by column ids,
//! which are given once; a row without a cell for a column that came later has that column's value for older rows, a
//! cell of a column that went is stepped over, and types only widen. What rows or keys become otherwise is another
//! table, with tablets and logs of its own. So a replay needs the newest definition alone. The field is kept for
//! readers that may have an older definition than the leader that made the entry: replicas on other nodes, which will
//! have to wait for the newer one.
//!
//! `origin` and `sequence` name the request of an entry that has a name (`request.rs`), and are 0 in all others: what a
//! reader does not know is refused, not misread.

use crate::error::Result;
use crate::ids::RequestId;
use crate::wire::Reader;

const VERSION: u8 = 1;
pub(crate) const ENVELOPE_BYTES: usize = 22;

/// The first byte of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Effects = 0x01,
    Named = 0x02,
    Freeze = 0x10,
    Split = 0x12,
}

/// Of an entry that no request names.
pub(crate) fn put_envelope(out: &mut Vec<u8>, kind: EntryKind) {
    out.extend_from_slice(&[kind as u8, VERSION]);
    out.extend_from_slice(&[0; ENVELOPE_BYTES - 2]);
}

/// Of an entry that a request names.
pub(crate) fn put_named_envelope(out: &mut Vec<u8>, id: RequestId) {
    out.extend_from_slice(&[EntryKind::Named as u8, VERSION]);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&id.origin.to_le_bytes());
    out.extend_from_slice(&id.sequence.to_le_bytes());
}

/// The kind of an entry, and of [`EntryKind::Named`] alone the name of its request.
pub(crate) fn read_envelope(reader: &mut Reader<'_>) -> Result<(EntryKind, Option<RequestId>)> {
    let [kind, version] = reader.array()?;
    let schema = u32::from_le_bytes(reader.array()?);
    let (origin, sequence) = (u64::from_le_bytes(reader.array()?), u64::from_le_bytes(reader.array()?));
    let kind = match kind {
        0x01 => EntryKind::Effects,
        0x02 => EntryKind::Named,
        0x10 => EntryKind::Freeze,
        0x12 => EntryKind::Split,
        other => return Err(reader.corrupt(format!("kind {other:#04x}"))),
    };
    let is_named = (origin, sequence) != (0, 0);
    if version != VERSION || schema != 0 || is_named != (kind == EntryKind::Named) {
        let reason = format!(
            "version {version}, schema {schema}, request {origin}/{sequence} of {kind:?}; this build knows {VERSION}, 0, and \
             requests of named effects"
        );
        return Err(reader.corrupt(reason));
    }
    Ok((kind, is_named.then_some(RequestId { origin, sequence })))
}
