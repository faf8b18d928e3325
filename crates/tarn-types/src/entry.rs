//! What stands at one place of a tablet's log? Effects, or what every replica must do at the same place.
//!
//! ```text
//! effects    01: table and mutations, see mutation.rs
//! named      02: effects that a request names, see request.rs
//! freeze     10: has an audit u8 | after u64 LE | upto u64 LE | digest u128 LE      (nothing after 0)
//! split      12: new tablet u32 LE | varint len, first key of it
//! ```
//!
//! Each begins with its envelope (`envelope.rs`). `docs/formats/entry.md` has examples.

use std::sync::Arc;

use bytes::Bytes;

use crate::effects::Effects;
use crate::envelope::{EntryKind, put_envelope, read_envelope};
use crate::error::Result;
use crate::ids::{SeqNo, TabletId};
use crate::request::{NamedEffects, Request};
use crate::wire::{Reader, put_varint};

/// One entry of a tablet's log. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Rows are there, or gone.
    Effects(Effects),
    /// The same, by a request that is known when it is made again.
    Named(Arc<NamedEffects>),
    /// What changed so far is a generation of its own from here on: what the next delivery takes, on every replica the
    /// same.
    Freeze(Option<Audit>),
    /// The tablet ends where another begins.
    Split(Split),
}

/// What the leader made of some entries, for others to compare: entries after `after`, up to and with `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Before the first entry.
    pub after: SeqNo,
    /// The last entry.
    pub upto: SeqNo,
    /// Of all of them; see the crate that applies entries.
    pub digest: u128,
}

/// A tablet is split: what it has from a key on is a new tablet's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The first key of the new tablet.
    pub at: Vec<u8>,
    /// Its id; it ends where its parent did.
    pub new: TabletId,
}

impl Entry {
    /// The effects of an entry that has some.
    #[must_use]
    pub fn effects(&self) -> Option<&Effects> {
        match self {
            Self::Effects(effects) => Some(effects),
            Self::Named(named) => Some(named.effects()),
            Self::Freeze(_) | Self::Split(_) => None,
        }
    }

    /// The request that names it.
    #[must_use]
    pub fn request(&self) -> Option<&Request> {
        match self {
            Self::Named(named) => Some(named.request()),
            Self::Effects(_) | Self::Freeze(_) | Self::Split(_) => None,
        }
    }

    /// Reads an entry and checks it whole.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`].
    pub fn from_bytes(bytes: Bytes) -> Result<Self> {
        let mut reader = Reader::new("log entry", &bytes);
        let (kind, _) = read_envelope(&mut reader)?;
        let entry = match kind {
            EntryKind::Effects => return Ok(Self::Effects(Effects::from_bytes(bytes)?)),
            EntryKind::Named => return Ok(Self::Named(Arc::new(NamedEffects::from_bytes(bytes)?))),
            EntryKind::Freeze => match reader.u8()? {
                0 => Self::Freeze(None),
                1 => {
                    let (after, upto) = (seqno(&mut reader)?, seqno(&mut reader)?);
                    Self::Freeze(Some(Audit { after, upto, digest: u128::from_le_bytes(reader.array()?) }))
                }
                other => return Err(reader.corrupt(format!("{other} audits"))),
            },
            EntryKind::Split => {
                let new = TabletId(u32::from_le_bytes(reader.array()?));
                Self::Split(Split { at: reader.bytes()?.to_vec(), new })
            }
        };
        reader.finish()?;
        Ok(entry)
    }

    /// The bytes of the log entry. Those of effects are shared.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Effects(effects) => return effects.as_bytes().clone(),
            Self::Named(named) => return named.as_bytes().clone(),
            Self::Freeze(audit) => {
                put_envelope(&mut out, EntryKind::Freeze);
                out.push(u8::from(audit.is_some()));
                if let Some(Audit { after, upto, digest }) = audit {
                    out.extend_from_slice(&after.0.to_le_bytes());
                    out.extend_from_slice(&upto.0.to_le_bytes());
                    out.extend_from_slice(&digest.to_le_bytes());
                }
            }
            Self::Split(Split { at, new }) => {
                put_envelope(&mut out, EntryKind::Split);
                out.extend_from_slice(&new.0.to_le_bytes());
                put_varint(&mut out, at.len() as u64);
                out.extend_from_slice(at);
            }
        }
        Bytes::from(out)
    }
}

fn seqno(reader: &mut Reader<'_>) -> Result<SeqNo> {
    Ok(SeqNo(u64::from_le_bytes(reader.array()?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::RequestId;
    use crate::test_data::{documented, hex, orders};

    #[test]
    fn documented_examples() {
        let page = include_str!("../../../docs/formats/entry.md");
        let freeze = Entry::Freeze(Some(Audit { after: SeqNo(3), upto: SeqNo(9), digest: 0xab }));
        let split = Entry::Split(Split { at: vec![0, 0, 0, 1, 0x80], new: TabletId(2) });
        for entry in [freeze, split] {
            assert!(documented(page, &hex(&entry.to_bytes())), "{}", hex(&entry.to_bytes()));
            assert_eq!(Entry::from_bytes(entry.to_bytes()).unwrap(), entry);
        }
    }

    #[test]
    fn a_named_entry_is_its_effects_with_a_request() {
        let effects = crate::EffectsBuilder::new(&orders()).finish(None);
        let request = Request { id: RequestId { origin: 7, sequence: 0 }, statements: Vec::new() };
        let entry = Entry::Named(Arc::new(NamedEffects::new(request.clone(), effects.clone())));
        let again = Entry::from_bytes(entry.to_bytes()).unwrap();
        assert_eq!((again.request(), again.effects()), (Some(&request), Some(&effects)));
        let mut nameless = entry.to_bytes().to_vec();
        nameless[6] = 0;
        assert!(Entry::from_bytes(nameless.into()).is_err());
    }

    #[test]
    fn what_this_build_does_not_know_is_refused() {
        let bytes = Entry::Freeze(None).to_bytes();
        for (at, byte) in [(0, 0x11), (1, 2), (2, 1), (6, 1), (14, 1), (22, 2)] {
            let mut other = bytes.to_vec();
            other[at] = byte;
            assert!(Entry::from_bytes(other.into()).is_err(), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn entries_come_back_and_cut_ones_do_not(
            audit: Option<(u64, u64, u128)>, at: Vec<u8>, new: u32, cut in 0usize..60,
        ) {
            let audit = audit.map(|(after, upto, digest)| Audit { after: SeqNo(after), upto: SeqNo(upto), digest });
            for entry in [Entry::Freeze(audit), Entry::Split(Split { at: at.clone(), new: TabletId(new) })] {
                let bytes = entry.to_bytes();
                prop_assert_eq!(&Entry::from_bytes(bytes.clone()).unwrap(), &entry);
                prop_assert!(Entry::from_bytes(bytes.slice(..cut % bytes.len())).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
            let _ = Entry::from_bytes(bytes.into());
        }
    }
}
