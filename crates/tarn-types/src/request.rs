//! What is a request called, and what came of it? By its name one that is made again is known, and has its first
//! outcome.
//!
//! ```text
//! outcome    varint n | n × statement
//! statement  digest u64 LE | varint rows
//! named      envelope of kind 02, with origin and sequence | outcome | effects, a whole entry of kind 01
//! ```
//!
//! What a request does is decided once, and its outcome is in the same entry of the log: there is no moment at which
//! one is known and the other not. `docs/formats/entry.md` has an example.

use bytes::Bytes;

use crate::effects::Effects;
use crate::envelope::{EntryKind, put_named_envelope, read_envelope};
use crate::error::Result;
use crate::ids::RequestId;
use crate::wire::{Reader, put_varint};

/// Statements of one request, at most: their outcomes are kept with each of its tablets.
pub const MAX_REQUEST_STATEMENTS: usize = 1_000;

/// What one statement of a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatementOutcome {
    /// Of the statement, its parameters and its data: another one has another.
    pub digest: u64,
    /// The rows that its command tag names.
    pub rows: u64,
}

/// A request that was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// What its statements came to, in order.
    pub statements: Vec<StatementOutcome>,
}

/// Effects that a request names. Its bytes are the log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEffects {
    request: Request,
    effects: Effects,
    bytes: Bytes,
}

impl NamedEffects {
    /// The effects of a request, which may be none.
    ///
    /// Panics for a request without a name, or with more than [`MAX_REQUEST_STATEMENTS`] statements.
    #[must_use]
    pub fn new(request: Request, effects: Effects) -> Self {
        let RequestId { origin, sequence } = request.id;
        assert!((origin, sequence) != (0, 0), "a request without a name");
        assert!(request.statements.len() <= MAX_REQUEST_STATEMENTS, "a request of too many statements");
        let mut out = Vec::with_capacity(64 + request.statements.len() * 12 + effects.size_bytes());
        put_named_envelope(&mut out, request.id);
        put_statements(&mut out, &request.statements);
        out.extend_from_slice(effects.as_bytes());
        Self { request, effects, bytes: out.into() }
    }

    /// Reads a log entry and checks it whole.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`].
    pub fn from_bytes(bytes: Bytes) -> Result<Self> {
        let mut reader = Reader::new("named effects", &bytes);
        let (kind, id) = read_envelope(&mut reader)?;
        let Some(id) = id.filter(|_| kind == EntryKind::Named) else {
            return Err(reader.corrupt(format!("an entry of kind {kind:?}")));
        };
        let statements = read_statements(&mut reader)?;
        let effects = Effects::from_bytes(bytes.slice_ref(reader.rest()))?;
        Ok(Self { request: Request { id, statements }, effects, bytes })
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// What it did in this tablet.
    #[must_use]
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// The log entry.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// Appends an outcome.
pub fn put_statements(out: &mut Vec<u8>, statements: &[StatementOutcome]) {
    put_varint(out, statements.len() as u64);
    for StatementOutcome { digest, rows } in statements {
        out.extend_from_slice(&digest.to_le_bytes());
        put_varint(out, *rows);
    }
}

/// Reads what [`put_statements`] wrote: all of `bytes`.
///
/// # Errors
/// [`crate::Error::Corrupt`].
pub fn statements_of(bytes: &[u8]) -> Result<Vec<StatementOutcome>> {
    let mut reader = Reader::new("outcome of a request", bytes);
    let statements = read_statements(&mut reader)?;
    reader.finish()?;
    Ok(statements)
}

fn read_statements(reader: &mut Reader<'_>) -> Result<Vec<StatementOutcome>> {
    let n = reader.varint()?;
    if n > MAX_REQUEST_STATEMENTS as u64 {
        return Err(reader.corrupt(format!("{n} statements, want {MAX_REQUEST_STATEMENTS} at most")));
    }
    (0..n)
        .map(|_| Ok(StatementOutcome { digest: u64::from_le_bytes(reader.array()?), rows: reader.varint()? }))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_data::{documented, hex, orders};
    use crate::{EffectsBuilder, TableId};

    fn effects() -> Effects {
        EffectsBuilder::new(&orders()).finish(None)
    }

    #[test]
    fn documented_example() {
        let page = include_str!("../../../docs/formats/entry.md");
        let statements = vec![StatementOutcome { digest: 0xd1, rows: 300 }];
        let request = Request { id: RequestId { origin: 0xab, sequence: 0xcd }, statements };
        let named = NamedEffects::new(request, effects());
        assert_eq!(named.effects().table(), TableId(1));
        assert!(documented(page, &hex(named.as_bytes())), "{}", hex(named.as_bytes()));
        assert_eq!(NamedEffects::from_bytes(named.as_bytes().clone()).unwrap(), named);
    }

    proptest! {
        #[test]
        fn requests_come_back_and_cut_ones_do_not(
            origin in 1u64.., sequence: u64, outcomes in proptest::collection::vec(any::<(u64, u64)>(), 0..20), cut in 0usize..400,
        ) {
            let statements = outcomes.into_iter().map(|(digest, rows)| StatementOutcome { digest, rows }).collect();
            let named = NamedEffects::new(Request { id: RequestId { origin, sequence }, statements }, effects());
            let bytes = named.as_bytes().clone();
            prop_assert_eq!(&NamedEffects::from_bytes(bytes.clone()).unwrap(), &named);
            prop_assert!(NamedEffects::from_bytes(bytes.slice(..cut % bytes.len())).is_err());
            let mut alone = Vec::new();
            put_statements(&mut alone, &named.request().statements);
            prop_assert_eq!(&statements_of(&alone).unwrap(), &named.request().statements);
            alone.push(0);
            prop_assert!(statements_of(&alone).is_err());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
            let _ = NamedEffects::from_bytes(bytes.clone().into());
            let _ = statements_of(&bytes);
        }
    }
}
