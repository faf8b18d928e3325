//! Which keys and bytes does a tablet keep in the engine, beside its rows?
//!
//! ```text
//! rows       engine key                        -> stored row (tarn-types)
//! addresses  engine key                        -> address (tarn-types)
//!            0 u32 | table u32 BE | tablet u32 BE -> marker: 1 u8 | version u64 LE | seqno u64 LE
//! meta       'a' | tablet u32 BE               -> applied: 1 u8 | seqno u64 LE | after u64 LE | digest u128 LE
//!            'f' | tablet u32 BE               -> audit: 1 u8 | after u64 LE | upto u64 LE | digest u128 LE
//!            't' | table u32 BE | tablet u32 BE -> tablet: 1 u8 | n u32 LE, first key | n u32 LE, end | parent u32 LE | born u64 LE
//!            'e' | tablet u32 BE               -> 1 u8, there once a live row was evicted
//!            'd' | origin u64 BE | sequence u64 BE | tablet u32 BE -> outcome: 1 u8 | seqno u64 LE | statements (tarn-types)
//!            'q' | tablet u32 BE | seqno u64 BE -> request: 1 u8 | origin u64 LE | sequence u64 LE
//!            'o'                               -> owner: 1 u8 | id of the data folder, 16 bytes
//! ```
//!
//! Engine keys begin with their table, big-endian; tables begin at 1, so markers share the space with nobody. The
//! layout is described in `docs/formats/rows.md`.

use std::ops::Range;

use tarn_types::{
    Audit, RequestId, SeqNo, StatementOutcome, TableId, TabletId, Version, put_statements, statements_of, table_prefix,
};

use crate::error::{Error, Result};

const FORMAT: u8 = 1;

/// Where the rows of a tablet come from, beside its own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TabletOrigin {
    /// The tablet that was split.
    pub(crate) parent: TabletId,
    /// The entry that split it: what came before it is in the parent's log.
    pub(crate) at: SeqNo,
}

/// What a tablet is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TabletRecord {
    pub(crate) range: Range<Vec<u8>>,
    /// None of those that the table began with.
    pub(crate) born: Option<TabletOrigin>,
}

/// Where a tablet's marker lies in the addresses space.
pub(crate) fn marker_key(table: TableId, tablet: TabletId) -> [u8; 12] {
    let mut key = [0; 12];
    key[4..8].copy_from_slice(&table.0.to_be_bytes());
    key[8..].copy_from_slice(&tablet.0.to_be_bytes());
    key
}

pub(crate) fn encode_marker(version: Version, installed: SeqNo) -> [u8; 17] {
    let mut bytes = [FORMAT; 17];
    bytes[1..9].copy_from_slice(&version.0.to_le_bytes());
    bytes[9..].copy_from_slice(&installed.0.to_le_bytes());
    bytes
}

pub(crate) fn decode_marker(key: &[u8], bytes: &[u8]) -> Result<(Version, SeqNo)> {
    let mut reader = ValueReader::new("marker", key, bytes)?;
    let marker = (Version(reader.u64()?), SeqNo(reader.u64()?));
    reader.finish(marker)
}

/// Where a tablet's applied seqno lies in the meta space.
pub(crate) fn applied_key(tablet: TabletId) -> [u8; 5] {
    tagged(b'a', tablet.0)
}

/// The last applied entry, and the digest of those since a freeze: `of.upto` is the entry.
pub(crate) fn encode_applied(of: &Audit) -> [u8; 33] {
    let mut bytes = [FORMAT; 33];
    bytes[1..9].copy_from_slice(&of.upto.0.to_le_bytes());
    bytes[9..17].copy_from_slice(&of.after.0.to_le_bytes());
    bytes[17..].copy_from_slice(&of.digest.to_le_bytes());
    bytes
}

pub(crate) fn decode_applied(key: &[u8], bytes: &[u8]) -> Result<Audit> {
    let mut reader = ValueReader::new("applied seqno", key, bytes)?;
    let (upto, after) = (SeqNo(reader.u64()?), SeqNo(reader.u64()?));
    let digest = u128::from_le_bytes(reader.array()?);
    reader.finish(Audit { after, upto, digest })
}

/// Where the digest of the entries between the last two freezes lies in the meta space; its value is as
/// [`encode_applied`]'s.
pub(crate) fn audit_key(tablet: TabletId) -> [u8; 5] {
    tagged(b'f', tablet.0)
}

/// Where a tablet remembers, in the meta space, that live rows were evicted.
pub(crate) fn evicted_key(tablet: TabletId) -> [u8; 5] {
    tagged(b'e', tablet.0)
}

pub(crate) const EVICTED: [u8; 1] = [FORMAT];

/// Where a tablet's record lies in the meta space.
pub(crate) fn tablet_key(table: TableId, tablet: TabletId) -> [u8; 9] {
    let mut key = [b't'; 9];
    key[1..5].copy_from_slice(&table.0.to_be_bytes());
    key[5..].copy_from_slice(&tablet.0.to_be_bytes());
    key
}

/// The keys of the records of all tablets of a table; of all tables, for None.
pub(crate) fn tablet_keys(table: Option<TableId>) -> Range<Vec<u8>> {
    let Some(table) = table else { return vec![b't']..vec![b't' + 1] };
    let of = |table: u32| [&[b't'][..], &table.to_be_bytes()].concat();
    of(table.0)..of(table.0.saturating_add(1))
}

/// The table and the tablet of such a key.
pub(crate) fn of_tablet_key(key: &[u8]) -> Option<(TableId, TabletId)> {
    let (table, tablet) = key.strip_prefix(b"t")?.split_first_chunk()?;
    Some((TableId(u32::from_be_bytes(*table)), TabletId(u32::from_be_bytes(tablet.try_into().ok()?))))
}

pub(crate) fn encode_tablet(record: &TabletRecord) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    for end in [&record.range.start, &record.range.end] {
        bytes.extend_from_slice(&(end.len() as u32).to_le_bytes());
        bytes.extend_from_slice(end);
    }
    let (parent, at) = record.born.map_or((0, 0), |born| (born.parent.0, born.at.0));
    bytes.extend_from_slice(&parent.to_le_bytes());
    bytes.extend_from_slice(&at.to_le_bytes());
    bytes
}

pub(crate) fn decode_tablet(key: &[u8], bytes: &[u8]) -> Result<TabletRecord> {
    let mut reader = ValueReader::new("tablet", key, bytes)?;
    let (start, end) = (reader.bytes()?, reader.bytes()?);
    let (parent, at) = (TabletId(u32::from_le_bytes(reader.array()?)), SeqNo(reader.u64()?));
    // Tablets count from 1.
    let born = (parent.0 > 0).then_some(TabletOrigin { parent, at });
    reader.finish(TabletRecord { range: start..end, born })
}

/// Where a tablet keeps what a request came to, in the meta space.
pub(crate) fn outcome_key(id: RequestId, tablet: TabletId) -> [u8; 21] {
    let mut key = [b'd'; 21];
    key[1..9].copy_from_slice(&id.origin.to_be_bytes());
    key[9..17].copy_from_slice(&id.sequence.to_be_bytes());
    key[17..].copy_from_slice(&tablet.0.to_be_bytes());
    key
}

/// The keys of what all tablets keep of a request.
pub(crate) fn outcomes_of(id: RequestId) -> Range<Vec<u8>> {
    let first = outcome_key(id, TabletId(0));
    let last = outcome_key(id, TabletId(u32::MAX));
    first.to_vec()..[&last[..], &[0]].concat()
}

/// The tablet of such a key.
pub(crate) fn tablet_of_outcome(key: &[u8]) -> Option<TabletId> {
    let (_, tablet) = key.split_last_chunk()?;
    Some(TabletId(u32::from_be_bytes(*tablet)))
}

/// The entry that a request was, and what its statements came to.
pub(crate) fn encode_outcome(seqno: SeqNo, statements: &[StatementOutcome]) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    bytes.extend_from_slice(&seqno.0.to_le_bytes());
    put_statements(&mut bytes, statements);
    bytes
}

pub(crate) fn decode_outcome(key: &[u8], bytes: &[u8]) -> Result<(SeqNo, Vec<StatementOutcome>)> {
    let mut reader = ValueReader::new("outcome of a request", key, bytes)?;
    let seqno = SeqNo(reader.u64()?);
    Ok((seqno, statements_of(reader.rest)?))
}

/// Where a tablet has the name of the request that an entry was, in the meta space: in the order of entries.
pub(crate) fn by_age_key(tablet: TabletId, seqno: SeqNo) -> [u8; 13] {
    let mut key = [b'q'; 13];
    key[1..5].copy_from_slice(&tablet.0.to_be_bytes());
    key[5..].copy_from_slice(&seqno.0.to_be_bytes());
    key
}

/// The keys of a tablet's requests that were entries from `oldest` on.
pub(crate) fn requests_of(tablet: TabletId, oldest: SeqNo) -> Range<Vec<u8>> {
    let last = by_age_key(tablet, SeqNo(u64::MAX));
    by_age_key(tablet, oldest).to_vec()..[&last[..], &[0]].concat()
}

pub(crate) fn encode_by_age(id: RequestId) -> [u8; 17] {
    let mut bytes = [FORMAT; 17];
    bytes[1..9].copy_from_slice(&id.origin.to_le_bytes());
    bytes[9..].copy_from_slice(&id.sequence.to_le_bytes());
    bytes
}

/// The entry that such a key names, and the request that it was.
pub(crate) fn decode_by_age(key: &[u8], bytes: &[u8]) -> Result<(SeqNo, RequestId)> {
    let mut reader = ValueReader::new("name of a request", key, bytes)?;
    let id = RequestId { origin: reader.u64()?, sequence: reader.u64()? };
    let no_entry = || Error::corrupt("name of a request", key, "its key names no entry");
    let (_, seqno) = key.split_last_chunk().ok_or_else(no_entry)?;
    reader.finish((SeqNo(u64::from_be_bytes(*seqno)), id))
}

/// Where the engine remembers, in the meta space, whose it is.
pub(crate) const OWNER_KEY: [u8; 1] = [b'o'];

pub(crate) fn encode_owner(id: [u8; 16]) -> [u8; 17] {
    let mut bytes = [FORMAT; 17];
    bytes[1..].copy_from_slice(&id);
    bytes
}

pub(crate) fn decode_owner(key: &[u8], bytes: &[u8]) -> Result<[u8; 16]> {
    let mut reader = ValueReader::new("owner", key, bytes)?;
    let id = reader.array()?;
    reader.finish(id)
}

/// All engine keys of a table.
pub(crate) fn table_range(table: TableId) -> Range<Vec<u8>> {
    table_prefix(table).to_vec()..table_prefix(TableId(table.0.saturating_add(1))).to_vec()
}

fn tagged(tag: u8, id: u32) -> [u8; 5] {
    let mut key = [tag; 5];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

/// Reads a value that begins with [`FORMAT`].
struct ValueReader<'a> {
    what: &'static str,
    key: &'a [u8],
    rest: &'a [u8],
}

impl<'a> ValueReader<'a> {
    fn new(what: &'static str, key: &'a [u8], bytes: &'a [u8]) -> Result<Self> {
        match bytes.split_first() {
            Some((&FORMAT, rest)) => Ok(Self { what, key, rest }),
            first => {
                Err(Error::corrupt(what, key, format!("format {:?}, want {FORMAT}", first.map(|(first, _)| first))))
            }
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let short = || Error::corrupt(self.what, self.key, "it ends early");
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or_else(short)?;
        self.rest = tail;
        Ok(*head)
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Result<Vec<u8>> {
        let n = u32::from_le_bytes(self.array()?) as usize;
        let short = || Error::corrupt(self.what, self.key, "it ends early");
        let (head, tail) = self.rest.split_at_checked(n).ok_or_else(short)?;
        self.rest = tail;
        Ok(head.to_vec())
    }

    fn finish<T>(self, read: T) -> Result<T> {
        if self.rest.is_empty() {
            return Ok(read);
        }
        Err(Error::corrupt(self.what, self.key, format!("{} bytes too many", self.rest.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The examples of `docs/formats/rows.md`.
    #[test]
    fn the_documented_bytes() {
        let page = include_str!("../../../docs/formats/rows.md").replace([' ', '\n'], "");
        let documented = |bytes: &[u8]| {
            let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            assert!(page.contains(&hex), "{hex}");
        };
        documented(&marker_key(TableId(3), TabletId(5)));
        documented(&encode_marker(Version(2), SeqNo(257)));
        documented(&applied_key(TabletId(5)));
        documented(&encode_applied(&Audit { after: SeqNo(257), upto: SeqNo(258), digest: 0xab }));
        documented(&tablet_key(TableId(3), TabletId(6)));
        let range = vec![0, 0, 0, 3, 0x80]..vec![0, 0, 0, 4];
        documented(&encode_tablet(&TabletRecord {
            range,
            born: Some(TabletOrigin { parent: TabletId(5), at: SeqNo(258) }),
        }));
        documented(&evicted_key(TabletId(5)));
        let id = RequestId { origin: 0xab, sequence: 0xcd };
        documented(&outcome_key(id, TabletId(5)));
        documented(&encode_outcome(SeqNo(258), &[StatementOutcome { digest: 0xd1, rows: 300 }]));
        documented(&by_age_key(TabletId(5), SeqNo(258)));
        documented(&encode_by_age(id));
    }

    proptest! {
        #[test]
        fn values_survive_and_cut_ones_are_corrupt(
            numbers: (u64, u64, u128), start: Vec<u8>, end: Vec<u8>, born: Option<(u32, u64)>, cut in 0usize..200,
        ) {
            let marker = encode_marker(Version(numbers.0), SeqNo(numbers.1));
            prop_assert_eq!(decode_marker(b"k", &marker).unwrap(), (Version(numbers.0), SeqNo(numbers.1)));
            let audit = Audit { after: SeqNo(numbers.0), upto: SeqNo(numbers.1), digest: numbers.2 };
            let applied = encode_applied(&audit);
            prop_assert_eq!(decode_applied(b"k", &applied).unwrap(), audit);
            let born = born.map(|(parent, at)| TabletOrigin { parent: TabletId(parent.max(1)), at: SeqNo(at) });
            let record = TabletRecord { range: start..end, born };
            let tablet = encode_tablet(&record);
            prop_assert_eq!(decode_tablet(b"k", &tablet).unwrap(), record);
            let (id, seqno) = (RequestId { origin: numbers.0, sequence: numbers.1 }, SeqNo(numbers.1));
            let statements = vec![StatementOutcome { digest: numbers.0, rows: numbers.1 }];
            let outcome = encode_outcome(seqno, &statements);
            prop_assert_eq!(decode_outcome(b"k", &outcome).unwrap(), (seqno, statements));
            let (by_age_key, by_age) = (by_age_key(TabletId(7), seqno), encode_by_age(id));
            prop_assert_eq!(decode_by_age(&by_age_key, &by_age).unwrap(), (seqno, id));
            prop_assert!(requests_of(TabletId(7), seqno).contains(&by_age_key.to_vec()));
            prop_assert!(outcomes_of(id).contains(&outcome_key(id, TabletId(7)).to_vec()));
            prop_assert_eq!(tablet_of_outcome(&outcome_key(id, TabletId(7))), Some(TabletId(7)));
            prop_assert!(decode_outcome(b"k", &outcome[..cut % outcome.len()]).is_err());
            prop_assert!(decode_by_age(&by_age_key, &by_age[..cut % by_age.len()]).is_err());
            prop_assert!(decode_marker(b"k", &marker[..cut % marker.len()]).is_err());
            prop_assert!(decode_applied(b"k", &applied[..cut % applied.len()]).is_err());
            prop_assert!(decode_tablet(b"k", &tablet[..cut % tablet.len()]).is_err());
        }
    }
}
