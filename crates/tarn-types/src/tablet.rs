//! Which tablet is a key in? A tablet is a half-open range of engine keys; the tablets of a table have each of its keys
//! once.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::ids::{TableId, TabletId, Token};
use crate::key::{table_prefix, token_prefix};
use crate::schema::TableSchema;

/// The tablets of a table and their ranges, in the order of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletMap {
    /// Invariant: at least one, ascending by start; the first begins where the table does, each ends where the next
    /// begins.
    starts: Vec<(Vec<u8>, TabletId)>,
    /// Where the last one ends.
    end: Vec<u8>,
}

impl TabletMap {
    /// Those a table begins with: of a hashed one they have equal shares of the tokens, the lowest tokens the first
    /// tablet.
    #[must_use]
    pub fn initial(schema: &TableSchema) -> Self {
        let n = u128::from(schema.options.tablets.max(1));
        let start = |idx: usize| match idx {
            0 => table_prefix(schema.id).to_vec(),
            _ => {
                let unsigned = ((idx as u128) << 64).div_ceil(n) as u64;
                token_prefix(schema.id, Token((unsigned ^ 1 << 63) as i64)).to_vec()
            }
        };
        let starts = schema.first_tablets().enumerate().map(|(idx, tablet)| (start(idx), tablet)).collect();
        Self { starts, end: table_end(schema.id) }
    }

    /// Of tablets and their ranges, in any order.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when they do not have each key of the table once.
    pub fn of_ranges(table: TableId, ranges: impl IntoIterator<Item = (TabletId, Range<Vec<u8>>)>) -> Result<Self> {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort_by(|a, b| a.1.start.cmp(&b.1.start));
        let mut at = table_prefix(table).to_vec();
        for (tablet, range) in &ranges {
            if range.start != at || range.end <= range.start {
                let reason = format!("tablet {tablet} of table {table} does not begin where the one before it ends");
                return Err(Error::corrupt("tablets", reason));
            }
            at.clone_from(&range.end);
        }
        if at != table_end(table) {
            return Err(Error::corrupt("tablets", format!("the last one of table {table} ends before the table does")));
        }
        let starts = ranges.into_iter().map(|(tablet, range)| (range.start, tablet)).collect();
        Ok(Self { starts, end: at })
    }

    /// How many.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// In the order of keys.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = TabletId> + '_ {
        self.starts.iter().map(|(_, tablet)| *tablet)
    }

    /// The tablet of a key of the table. Cost: a binary search.
    #[must_use]
    pub fn tablet_of(&self, key: &[u8]) -> TabletId {
        let after = self.starts.partition_point(|(start, _)| start.as_slice() <= key);
        self.starts[after.saturating_sub(1)].1
    }

    /// The keys of a tablet; `None`: it is none of these.
    #[must_use]
    pub fn range(&self, tablet: TabletId) -> Option<Range<&[u8]>> {
        let at = self.starts.iter().position(|(_, id)| *id == tablet)?;
        let end = self.starts.get(at + 1).map_or(&self.end, |(start, _)| start);
        Some(&self.starts[at].0..end)
    }

    /// All keys.
    #[must_use]
    pub fn whole(&self) -> Range<&[u8]> {
        &self.starts[0].0..&self.end
    }

    /// With a new tablet that takes the keys from `at` on of the one that has them.
    ///
    /// # Errors
    /// [`Error::Usage`] when nothing would be left of that one, `at` is no key of the table, or the new one is here
    /// already.
    pub fn split(&self, at: &[u8], new: TabletId) -> Result<Self> {
        let is_inside = at > self.whole().start && at < self.whole().end;
        if !is_inside || self.starts.iter().any(|(start, id)| start == at || *id == new) {
            return Err(Error::usage(format!(
                "a split that makes tablet {new}: there is no tablet that has keys on both sides"
            )));
        }
        let mut split = self.clone();
        let after = split.starts.partition_point(|(start, _)| start.as_slice() < at);
        split.starts.insert(after, (at.to_vec(), new));
        Ok(split)
    }
}

/// The first key after all keys of a table.
fn table_end(table: TableId) -> Vec<u8> {
    table_prefix(TableId(table.0.saturating_add(1))).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Partitioning;
    use crate::test_data::orders;
    use crate::{Value, encode_key};

    #[test]
    fn tokens_are_shared_evenly() {
        let mut schema = orders();
        (schema.options.tablets, schema.options.partitioning) = (3, Partitioning::Hash);
        schema.first_tablet = TabletId(10);
        let map = TabletMap::initial(&schema);
        let of = |token| map.tablet_of(&token_prefix(schema.id, Token(token))).0;
        assert_eq!((of(i64::MIN), of(0), of(i64::MAX)), (10, 11, 12));
        let third = (u64::MAX / 3) as i64 ^ i64::MIN;
        assert_eq!((of(third), of(third + 1)), (10, 11));
        let ranges = map.ids().map(|id| {
            let range = map.range(id).unwrap();
            (id, range.start.to_vec()..range.end.to_vec())
        });
        assert_eq!(TabletMap::of_ranges(schema.id, ranges.collect::<Vec<_>>().into_iter().rev()).unwrap(), map);
    }

    #[test]
    fn a_split_parts_one_tablet_and_leaves_no_gap() {
        let schema = orders();
        let map = TabletMap::initial(&schema);
        let key = |customer| encode_key(&schema, &[Value::Int64(customer), Value::Int32(1)]).unwrap();
        let split = map.split(&key(100), TabletId(2)).unwrap().split(&key(50), TabletId(3)).unwrap();
        assert_eq!(split.ids().map(|id| id.0).collect::<Vec<_>>(), [1, 3, 2]);
        assert_eq!([1, 50, 99, 100].map(|customer| split.tablet_of(&key(customer)).0), [1, 3, 3, 2]);
        assert_eq!(split.range(TabletId(3)), Some(&key(50)[..]..&key(100)[..]));
        assert_eq!(split.whole(), map.whole());
        assert!(split.split(&key(100), TabletId(4)).is_err(), "nothing would be left");
        assert!(split.split(&key(70), TabletId(3)).is_err(), "the id is taken");
        assert!(split.split(&[0, 0, 0, 9], TabletId(4)).is_err(), "no key of the table");
    }

    #[test]
    fn ranges_with_a_gap_or_an_overlap_are_corrupt() {
        let whole = table_prefix(TableId(1)).to_vec()..table_end(TableId(1));
        let of = |ranges: Vec<(u32, Range<Vec<u8>>)>| {
            TabletMap::of_ranges(TableId(1), ranges.into_iter().map(|(id, range)| (TabletId(id), range)))
        };
        let (low, high) = (vec![0, 0, 0, 1, 7], vec![0, 0, 0, 1, 9]);
        assert!(of(vec![(1, whole.clone())]).is_ok());
        assert!(of(vec![]).is_err());
        assert!(of(vec![(1, whole.start.clone()..low.clone()), (2, high.clone()..whole.end.clone())]).is_err());
        assert!(of(vec![(1, whole.start.clone()..high.clone()), (2, low.clone()..whole.end.clone())]).is_err());
        assert!(of(vec![(2, low.clone()..whole.end.clone()), (1, whole.start..low)]).is_ok());
    }
}
