//! Where in the feed are we? One sequence number per tablet: everything up to and including it has been seen.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{SeqNo, TabletId};

/// A place in the feed of one table. A tablet that is not named stands at [`SeqNo::ZERO`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(BTreeMap<TabletId, SeqNo>);

impl Cursor {
    /// Before every change.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The last position seen in the tablet; [`SeqNo::ZERO`] when none was.
    #[must_use]
    pub fn get(&self, tablet: TabletId) -> SeqNo {
        self.named(tablet).unwrap_or(SeqNo::ZERO)
    }

    /// The last position seen in the tablet, if it is named: one that came to be later is not.
    #[must_use]
    pub fn named(&self, tablet: TabletId) -> Option<SeqNo> {
        self.0.get(&tablet).copied()
    }

    /// Puts the tablet at `seqno`, forwards or backwards.
    pub fn set(&mut self, tablet: TabletId, seqno: SeqNo) {
        self.0.insert(tablet, seqno);
    }

    /// Puts the tablet at `seqno` unless it is there or beyond.
    pub fn advance(&mut self, tablet: TabletId, seqno: SeqNo) {
        let at = self.0.entry(tablet).or_default();
        *at = (*at).max(seqno);
    }

    /// Advances every tablet to where `other` stands.
    pub fn merge(&mut self, other: &Self) {
        for (tablet, seqno) in other.iter() {
            self.advance(tablet, seqno);
        }
    }

    /// Has everything that `other` has seen been seen here too? A partial order: of two cursors neither may cover the
    /// other.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.iter().all(|(tablet, seqno)| self.get(tablet) >= seqno)
    }

    /// The named tablets in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (TabletId, SeqNo)> + '_ {
        self.0.iter().map(|(tablet, seqno)| (*tablet, *seqno))
    }
}

/// Equal positions; whether a tablet at zero is named makes no difference.
impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        self.covers(other) && other.covers(self)
    }
}

impl Eq for Cursor {}

impl FromIterator<(TabletId, SeqNo)> for Cursor {
    fn from_iter<I: IntoIterator<Item = (TabletId, SeqNo)>>(positions: I) -> Self {
        Self(positions.into_iter().collect())
    }
}

/// `{1@17, 2@4}`
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (tablet, seqno)) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{tablet}@{seqno}")?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(positions: &[(u32, u64)]) -> Cursor {
        positions.iter().map(|(t, s)| (TabletId(*t), SeqNo(*s))).collect()
    }

    #[test]
    fn covers_is_a_partial_order() {
        let (a, b) = (cursor(&[(1, 5), (2, 1)]), cursor(&[(1, 4), (2, 2)]));
        assert!(!a.covers(&b) && !b.covers(&a));
        let mut both = a.clone();
        both.merge(&b);
        assert!(both.covers(&a) && both.covers(&b));
        assert_eq!(both.to_string(), "{1@5, 2@2}");
    }

    #[test]
    fn a_tablet_at_zero_is_the_same_as_none() {
        assert_eq!(cursor(&[(1, 0)]), Cursor::new());
        assert_eq!(Cursor::new().get(TabletId(9)), SeqNo::ZERO);
        assert_ne!(cursor(&[(1, 1)]), Cursor::new());
    }

    #[test]
    fn survives_json() {
        let at = cursor(&[(1, 5), (70_000, 1 << 60)]);
        let json = serde_json::to_string(&at).unwrap();
        assert_eq!(json, r#"{"1":5,"70000":1152921504606846976}"#);
        assert_eq!(serde_json::from_str::<Cursor>(&json).unwrap(), at);
    }
}
