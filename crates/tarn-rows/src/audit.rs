//! Have all replicas made the same of the same entries? A digest of what was applied since a freeze, and between the two before.
//!
//! A freeze stands at the same place of every replica's log. The leader puts into it what it made of the entries between the two freezes before;
//! a replica that made something else of them has other rows, and must not go on. The digest so far is written with every entry, so
//! that rows which are not those of their log are found out by the next replay, too.

use tarn_types::{Audit, SeqNo};
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

    /// The entry `seqno` is applied. The sum does not depend on order: parts of it can be made apart.
    pub(crate) fn add(&mut self, seqno: SeqNo, entry: &[u8]) {
        self.now.upto = seqno;
        self.now.digest = self.now.digest.wrapping_add(xxh3_128_with_seed(entry, seqno.0));
    }

    /// An entry without rows is applied.
    pub(crate) fn pass(&mut self, seqno: SeqNo) {
        self.now.upto = seqno;
    }

    /// The entry `seqno` is a freeze.
    pub(crate) fn freeze(&mut self, seqno: SeqNo) {
        self.before = Some(Audit { upto: seqno, ..self.now });
        self.now = Audit { after: seqno, upto: seqno, digest: 0 };
    }

    /// Is this what was made of the same entries here? True if nobody here knows.
    pub(crate) fn agrees(&self, theirs: &Audit) -> bool {
        let same_entries = |ours: &&Audit| (ours.after, ours.upto) == (theirs.after, theirs.upto);
        self.before.iter().find(same_entries).is_none_or(|ours| ours.digest == theirs.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_differs_is_found_at_the_second_freeze_after_it() {
        let run = |entry: &[u8]| {
            let mut auditor = Auditor::new(SeqNo::ZERO);
            auditor.add(SeqNo(1), b"one");
            auditor.add(SeqNo(2), entry);
            auditor.freeze(SeqNo(3));
            auditor.add(SeqNo(4), b"four");
            auditor
        };
        let (leader, same, other) = (run(b"two"), run(b"two"), run(b"owt"));
        let audit = leader.before.unwrap();
        assert_eq!((audit.after, audit.upto), (SeqNo::ZERO, SeqNo(3)));
        assert!(same.agrees(&audit) && !other.agrees(&audit));
        assert!(Auditor::new(SeqNo(3)).agrees(&audit), "who came later cannot know");
    }

    #[test]
    fn the_same_bytes_at_another_place_are_another_digest() {
        let run = |first: &[u8], second: &[u8]| {
            let mut auditor = Auditor::new(SeqNo::ZERO);
            auditor.add(SeqNo(1), first);
            auditor.add(SeqNo(2), second);
            auditor.now.digest
        };
        assert_ne!(run(b"a", b"b"), run(b"b", b"a"));
    }
}
