//! Which row groups can hold a row for which every predicate is true?
//!
//! Invariant: a block that holds such a live row is never dropped. SQL's three values: a row counts when a predicate is
//! *true*, not when it is unknown; so NULLs match `IS NULL` alone, and a comparison with NULL matches nothing. Unknown
//! bounds, bounds of another type and columns without statistics keep the block.

use std::cmp::Ordering;
use std::sync::Arc;

use roaring::RoaringBitmap;

use tarn_types::{ColumnId, Value};

use crate::order::compare;
use crate::{Block, ColumnStats, File, TableVersion};

/// How a column is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Equal to the value.
    Eq,
    /// Smaller than the value.
    Lt,
    /// The value, or smaller.
    Le,
    /// Greater than the value.
    Gt,
    /// The value, or greater.
    Ge,
    /// Equal to any of the values.
    In,
    /// NULL.
    IsNull,
    /// Any value, NaN too.
    IsNotNull,
}

/// One term of a conjunction. `values`: exactly one for comparisons, any number for `In`, none for the NULL tests.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate {
    /// The column that is looked at.
    pub column: ColumnId,
    /// How it is compared with `values`.
    pub op: Operator,
    /// Of the column's type: bounds of another one keep the block.
    pub values: Vec<Value>,
}

impl Predicate {
    /// Whether it is true of a row that has this value in the column. Of NULL only the NULL tests are.
    #[must_use]
    pub fn keeps(&self, value: &Value) -> bool {
        let any = |wanted: fn(Ordering) -> bool| self.values.iter().any(|of| compare(value, of).is_some_and(wanted));
        match self.op {
            Operator::Eq | Operator::In => any(Ordering::is_eq),
            Operator::Lt => any(Ordering::is_lt),
            Operator::Le => any(Ordering::is_le),
            Operator::Gt => any(Ordering::is_gt),
            Operator::Ge => any(Ordering::is_ge),
            Operator::IsNull => value.is_null(),
            Operator::IsNotNull => !value.is_null(),
        }
    }
}

/// A file of which something is left.
#[derive(Debug, Clone)]
pub struct PrunedFile {
    /// As the version has it.
    pub file: Arc<File>,
    /// Ascending.
    pub row_groups: Vec<u32>,
}

/// How much pruning left, for `EXPLAIN`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of the version.
    pub files_total: u64,
    /// Those with a block that is kept.
    pub files_kept: u64,
    /// Of all files of the version.
    pub blocks_total: u64,
    /// Those with a live row: the others are dropped whatever is asked.
    pub blocks_live: u64,
    /// What is to be read or probed.
    pub blocks_kept: u64,
}

/// What may hold an answer.
#[derive(Debug, Clone, Default)]
pub struct PruneResult {
    /// In the version's order.
    pub files: Vec<PrunedFile>,
    /// What was there, and what is left.
    pub counts: Counts,
}

/// The row groups that may hold a live row for which all `predicates` are true. Memory only; linear in the blocks.
pub fn prune(version: &TableVersion, predicates: &[Predicate]) -> PruneResult {
    let mut pruned = PruneResult::default();
    for file in &version.files {
        let dead = version.deletion_vectors.get(&file.id).map(|dead| &**dead);
        let live = file.blocks.iter().filter(|block| !is_dead(block, dead));
        let kept = live
            .inspect(|_| pruned.counts.blocks_live += 1)
            .filter(|block| predicates.iter().all(|predicate| may_match(block, predicate)));
        let row_groups: Vec<u32> = kept.map(|block| block.row_group).collect();
        pruned.counts.files_total += 1;
        pruned.counts.blocks_total += file.blocks.len() as u64;
        pruned.counts.blocks_kept += row_groups.len() as u64;
        if !row_groups.is_empty() {
            pruned.counts.files_kept += 1;
            pruned.files.push(PrunedFile { file: file.clone(), row_groups });
        }
    }
    pruned
}

/// Every row of the block is dead, or it has none.
fn is_dead(block: &Block, dead: Option<&RoaringBitmap>) -> bool {
    let end = block.first_row + block.n_rows;
    block.n_rows == 0
        || dead.is_some_and(|dead| {
            u32::try_from(end).is_ok_and(|end| dead.range_cardinality(block.first_row as u32..end) == block.n_rows)
        })
}

/// Whether a row of the block can make the predicate true.
pub fn may_match(block: &Block, predicate: &Predicate) -> bool {
    let Some(stats) = block.column(predicate.column) else { return true };
    let any_null = stats.null_count > 0;
    let any_value = stats.null_count < block.n_rows;
    match predicate.op {
        Operator::IsNull => any_null,
        Operator::IsNotNull => any_value,
        _ => any_value && predicate.values.iter().any(|value| value_may_match(stats, predicate.op, value)),
    }
}

/// Whether a non-null value within the bounds can stand in `op` to `value`.
fn value_may_match(stats: &ColumnStats, op: Operator, value: &Value) -> bool {
    // An unknown bound answers None, which is neither of the orders that exclude.
    let min = || stats.min.as_ref().and_then(|min| compare(min, value));
    let max = || stats.max.as_ref().and_then(|max| compare(max, value));
    match op {
        _ if value.is_null() => false,
        Operator::Eq | Operator::In => min() != Some(Ordering::Greater) && max() != Some(Ordering::Less),
        Operator::Lt => !matches!(min(), Some(Ordering::Greater | Ordering::Equal)),
        Operator::Le => min() != Some(Ordering::Greater),
        Operator::Gt => !matches!(max(), Some(Ordering::Less | Ordering::Equal)),
        Operator::Ge => max() != Some(Ordering::Less),
        Operator::IsNull | Operator::IsNotNull => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use tarn_types::{FileId, Version};

    use super::*;
    use crate::contract::sample_file;

    const COLUMN: ColumnId = ColumnId(2);

    fn stats(rows: &[Option<String>], truncate: Option<usize>, lose_min: bool, lose_max: bool) -> ColumnStats {
        let values = || rows.iter().flatten();
        let shorten = |text: &String| text.chars().take(truncate.unwrap_or(usize::MAX)).collect::<String>();
        // A shortened maximum is made greater, as Parquet writers do.
        let max = values().max().map(|max| if shorten(max) == *max { max.clone() } else { shorten(max) + "~" });
        ColumnStats {
            column: COLUMN,
            min: values().min().map(shorten).filter(|_| !lose_min).map(Value::Text),
            max: max.filter(|_| !lose_max).map(Value::Text),
            exact: truncate.is_none(),
            null_count: rows.iter().filter(|row| row.is_none()).count() as u64,
            bytes: 0,
        }
    }

    /// SQL: NULL in, unknown out.
    fn truth(row: &Option<String>, op: Operator, values: &[Value]) -> bool {
        let against = |value: &Value| match (row, value) {
            (Some(row), Value::Text(value)) => Some(row.as_str().cmp(value)),
            _ => None,
        };
        let any = |wanted: &[Ordering]| values.iter().any(|v| against(v).is_some_and(|order| wanted.contains(&order)));
        match op {
            Operator::Eq | Operator::In => any(&[Ordering::Equal]),
            Operator::Lt => any(&[Ordering::Less]),
            Operator::Le => any(&[Ordering::Less, Ordering::Equal]),
            Operator::Gt => any(&[Ordering::Greater]),
            Operator::Ge => any(&[Ordering::Greater, Ordering::Equal]),
            Operator::IsNull => row.is_none(),
            Operator::IsNotNull => row.is_some(),
        }
    }

    fn text() -> impl Strategy<Value = String> {
        "[ab]{0,3}"
    }

    fn predicate() -> impl Strategy<Value = (Operator, Vec<Value>)> {
        use Operator::*;
        let value = || prop_oneof![6 => text().prop_map(Value::Text), 1 => Just(Value::Null)];
        prop_oneof![
            (prop_oneof![Just(Eq), Just(Lt), Just(Le), Just(Gt), Just(Ge)], value()).prop_map(|(op, v)| (op, vec![v])),
            proptest::collection::vec(value(), 0..4).prop_map(|values| (In, values)),
            prop_oneof![Just(IsNull), Just(IsNotNull)].prop_map(|op| (op, vec![])),
        ]
    }

    type Rows = Vec<(Option<String>, bool)>;

    /// Per file, per block: rows (value, dead), and how the statistics are blurred.
    #[expect(clippy::type_complexity, reason = "a generated case, taken apart where it is used")]
    fn files() -> impl Strategy<Value = Vec<Vec<(Rows, Option<usize>, bool, bool)>>> {
        let rows = proptest::collection::vec((proptest::option::weighted(0.8, text()), any::<bool>()), 1..5);
        let block =
            (rows, proptest::option::of(1..3usize), proptest::bool::weighted(0.1), proptest::bool::weighted(0.1));
        proptest::collection::vec(proptest::collection::vec(block, 1..4), 1..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn no_block_with_a_matching_row_is_dropped(
            files in files(),
            predicates in proptest::collection::vec(predicate(), 0..3),
            exact_only: bool,
        ) {
            let mut version = TableVersion { version: Version(1), ..TableVersion::default() };
            let (mut added, mut dead_rows) = (vec![], std::collections::HashMap::new());
            let mut needed = vec![];
            for (id, blocks) in (1..).zip(&files) {
                let mut file = sample_file(FileId(id), 0);
                let mut dead = RoaringBitmap::new();
                file.blocks.clear();
                for (row_group, (rows, truncate, lose_min, lose_max)) in (0..).zip(blocks) {
                    let first_row = file.n_rows;
                    let matches = |row: &(Option<String>, bool)| {
                        !row.1 && predicates.iter().all(|(op, values)| truth(&row.0, *op, values))
                    };
                    if rows.iter().any(matches) {
                        needed.push((FileId(id), row_group));
                    }
                    dead.extend((first_row as u32..).zip(rows).filter(|(_, row)| row.1).map(|(at, _)| at));
                    file.n_rows += rows.len() as u64;
                    let values: Vec<_> = rows.iter().map(|row| row.0.clone()).collect();
                    let truncate = truncate.filter(|_| !exact_only);
                    file.blocks.push(Block {
                        row_group,
                        first_row,
                        n_rows: rows.len() as u64,
                        bytes: 0,
                        columns: vec![stats(&values, truncate, *lose_min, *lose_max)],
                    });
                }
                if !dead.is_empty() {
                    dead_rows.insert(FileId(id), Arc::new(dead));
                }
                // What is known of the file holds for all its rows.
                let whole = file.column_stats(COLUMN).unwrap();
                for row in blocks.iter().flat_map(|block| &block.0).filter_map(|row| row.0.clone()) {
                    let row = Value::Text(row);
                    prop_assert!(whole.min.as_ref().is_none_or(|min| compare(min, &row) != Some(Ordering::Greater)));
                    prop_assert!(whole.max.as_ref().is_none_or(|max| compare(max, &row) != Some(Ordering::Less)));
                }
                added.push(Arc::new(file));
            }
            (version.files, version.deletion_vectors) = (added.into_iter().collect(), Arc::new(dead_rows));
            let predicates: Vec<_> = predicates
                .into_iter()
                .map(|(op, values)| Predicate { column: COLUMN, op, values })
                .collect();
            let pruned = prune(&version, &predicates);
            let kept: Vec<_> = pruned.files.iter().flat_map(|f| f.row_groups.iter().map(|g| (f.file.id, *g))).collect();
            for block in needed {
                prop_assert!(kept.contains(&block), "{block:?} holds a match for {predicates:?}, kept {kept:?}");
            }
            prop_assert_eq!(pruned.counts.blocks_kept as usize, kept.len());
            prop_assert_eq!(pruned.counts.files_total as usize, files.len());
        }
    }

    fn block(min: Option<i64>, max: Option<i64>, null_count: u64, n_rows: u64) -> Block {
        let value = |v: Option<i64>| v.map(Value::Int64);
        let stats = ColumnStats { column: COLUMN, min: value(min), max: value(max), exact: true, null_count, bytes: 0 };
        Block { row_group: 0, first_row: 0, n_rows, bytes: 0, columns: vec![stats] }
    }

    fn matches(block: &Block, op: Operator, values: &[Value]) -> bool {
        may_match(block, &Predicate { column: COLUMN, op, values: values.to_vec() })
    }

    #[test]
    fn a_block_of_nulls_matches_is_null_alone() {
        let nulls = block(None, None, 3, 3);
        assert!(matches(&nulls, Operator::IsNull, &[]));
        assert!(!matches(&nulls, Operator::IsNotNull, &[]));
        assert!(!matches(&nulls, Operator::Eq, &[Value::Int64(1)]));
        assert!(!matches(&nulls, Operator::Lt, &[Value::Int64(1)]));
    }

    #[test]
    fn what_is_not_known_keeps_the_block() {
        let unknown = block(None, None, 0, 3);
        assert!(matches(&unknown, Operator::Eq, &[Value::Int64(1)]));
        let half = block(Some(5), None, 0, 3);
        assert!(matches(&half, Operator::Gt, &[Value::Int64(100)]));
        assert!(!matches(&half, Operator::Lt, &[Value::Int64(5)]));
        assert!(matches(&block(Some(1), Some(2), 0, 3), Operator::Eq, &[Value::Text("x".into())]), "another type");
        let other = Predicate { column: ColumnId(9), op: Operator::Eq, values: vec![Value::Int64(7)] };
        assert!(may_match(&half, &other), "a column without statistics");
    }

    #[test]
    fn bounds_exclude_what_they_exclude() {
        let block = block(Some(10), Some(20), 0, 3);
        let int = |v| [Value::Int64(v)];
        assert!(!matches(&block, Operator::Eq, &int(9)) && !matches(&block, Operator::Eq, &int(21)));
        assert!(matches(&block, Operator::Eq, &int(10)) && matches(&block, Operator::Eq, &int(20)));
        assert!(!matches(&block, Operator::Lt, &int(10)) && matches(&block, Operator::Le, &int(10)));
        assert!(!matches(&block, Operator::Gt, &int(20)) && matches(&block, Operator::Ge, &int(20)));
        assert!(!matches(&block, Operator::Eq, &[Value::Int32(9)]), "the column was widened, or is to be");
        assert!(!matches(&block, Operator::In, &[Value::Int64(1), Value::Null, Value::Int64(30)]));
        assert!(matches(&block, Operator::In, &[Value::Int64(1), Value::Int64(15)]));
        assert!(!matches(&block, Operator::Eq, &[Value::Null]));
        assert!(!matches(&block, Operator::IsNull, &[]) && matches(&block, Operator::IsNotNull, &[]));
    }

    #[test]
    fn nan_is_greater_than_every_float_as_in_the_filter() {
        let stats = ColumnStats {
            column: COLUMN,
            min: Some(Value::Float64(1.0)),
            max: Some(Value::Float64(f64::NAN)),
            exact: true,
            null_count: 0,
            bytes: 0,
        };
        let block = Block { row_group: 0, first_row: 0, n_rows: 2, bytes: 0, columns: vec![stats] };
        assert!(matches(&block, Operator::Gt, &[Value::Float64(1e300)]));
        assert!(matches(&block, Operator::Eq, &[Value::Float64(f64::NAN)]));
        assert!(!matches(&block, Operator::Lt, &[Value::Float64(0.5)]));
    }

    #[test]
    fn zeros_are_equal_whatever_their_sign() {
        let of = |value| ColumnStats {
            column: COLUMN,
            min: Some(Value::Float64(value)),
            max: Some(Value::Float64(value)),
            exact: true,
            null_count: 0,
            bytes: 0,
        };
        for (stored, asked) in [(-0.0, 0.0), (0.0, -0.0)] {
            let block = Block { row_group: 0, first_row: 0, n_rows: 2, bytes: 0, columns: vec![of(stored)] };
            for op in [Operator::Eq, Operator::In, Operator::Le, Operator::Ge] {
                assert!(matches(&block, op, &[Value::Float64(asked)]), "{stored} {op:?} {asked}");
            }
            assert!(!matches(&block, Operator::Lt, &[Value::Float64(asked)]));
            assert!(!matches(&block, Operator::Gt, &[Value::Float64(asked)]));
        }
    }
}
