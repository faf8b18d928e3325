//! Have all replicas made the same of the same entries? A digest of what was applied since a freeze, and between the
//! two before.
//!
//! A freeze stands at the same place of every replica's log. The leader puts into it what it made of the entries
//! between the two freezes before; a replica that made something else of them has other rows, and must not go on. The
//! digest so far is written with every entry, so that rows which are not those of their log are found out by the next
//! replay, too.

use tarn_types::{Audit, Entry, SeqNo};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// What one tablet's replica made of its log.
#[derive(Clone, Debug)]
pub(crate) struct Auditor {
    /// Since the last freeze.
    pub(crate) now: Audit,
    /// Between the two freezes before; None: nobody here saw all of that.
    pub(crate) before: Option<Audit>,
}

impl Auditor {
    /// Of a tablet that stands at `at`, and was frozen there.
    pub(crate) fn new(at: SeqNo) -> Self {
        Self { now: Audit { after: at, upto: at, digest: 0 }, before: None }
    }

    /// What it will be when the entry `seqno` is applied: to be written with it, and taken when that is done.
    pub(crate) fn with(&self, seqno: SeqNo, entry: &Entry) -> Self {
        let upto = Audit { upto: seqno, ..self.now };
        match entry {
            // The sum does not depend on order: parts of it can be made apart.
            Entry::Effects(effects) => self.plus(upto, effects.as_bytes()),
            Entry::Named(named) => self.plus(upto, named.as_bytes()),
            Entry::Freeze(_) => Self { before: Some(upto), ..Self::new(seqno) },
            Entry::Split(_) => Self { now: upto, before: self.before },
        }
    }

    fn plus(&self, upto: Audit, entry: &[u8]) -> Self {
        let digest = upto.digest.wrapping_add(xxh3_128_with_seed(entry, upto.upto.0));
        Self { now: Audit { digest, ..upto }, before: self.before }
    }

    /// Is this what was made of the same entries here? True if nobody here knows.
    pub(crate) fn agrees(&self, theirs: &Audit) -> bool {
        let same_entries = |ours: &&Audit| (ours.after, ours.upto) == (theirs.after, theirs.upto);
        self.before.iter().find(same_entries).is_none_or(|ours| ours.digest == theirs.digest)
    }
}

#[cfg(test)]
mod tests {
    use tarn_types::{
        Column, ColumnId, DataType, EffectsBuilder, TableId, TableOptions, TableSchema, TabletId, table_prefix,
    };

    use super::*;

    fn entry(text: &str) -> Entry {
        let id =
            Column { id: ColumnId(1), name: "id".into(), data_type: DataType::Text, nullable: false, default: None };
        let schema = TableSchema {
            id: TableId(1),
            name: "t".into(),
            columns: vec![id],
            key: Vec::new(),
            n_partition_key: 0,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        };
        let mut effects = EffectsBuilder::new(&schema);
        effects.push(&[&table_prefix(schema.id)[..], text.as_bytes()].concat(), None);
        Entry::Effects(effects.finish(None))
    }

    #[test]
    fn an_entry_that_differs_is_found_at_the_second_freeze_after_it() {
        let run = |second: &str| {
            let entries = [entry("one"), entry(second), Entry::Freeze(None), entry("four")];
            let numbered = (1..).map(SeqNo).zip(&entries);
            numbered.fold(Auditor::new(SeqNo::ZERO), |auditor, (seqno, entry)| auditor.with(seqno, entry))
        };
        let (leader, same, other) = (run("two"), run("two"), run("owt"));
        let audit = leader.before.unwrap();
        assert_eq!((audit.after, audit.upto), (SeqNo::ZERO, SeqNo(3)));
        assert!(same.agrees(&audit) && !other.agrees(&audit));
        assert!(Auditor::new(SeqNo(3)).agrees(&audit), "who came later cannot know");
    }

    #[test]
    fn the_same_bytes_at_another_place_are_another_digest() {
        let run = |first: &str, second: &str| {
            let auditor = Auditor::new(SeqNo::ZERO).with(SeqNo(1), &entry(first));
            auditor.with(SeqNo(2), &entry(second)).now.digest
        };
        assert_ne!(run("a", "b"), run("b", "a"));
    }
}
