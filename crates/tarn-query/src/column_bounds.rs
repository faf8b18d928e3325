//! Between which values does a column lie, how many of its rows are NULL, and what does it take in memory? Added up
//! over blocks.
//!
//! Invariants: a bound is exact only if a live row has it, a number of NULLs only if every block said it and no NULL is
//! dead: exact figures become answers (`min`, `max`, `count`). Dead rows widen bounds, so a block with dead rows never
//! makes one exact. What is not exact still bounds: no live row lies outside.

use std::cmp::Ordering;

use arrow::datatypes::DataType as ArrowType;
use datafusion::common::ColumnStatistics;
use datafusion::common::stats::Precision;
use datafusion::scalar::ScalarValue;
use tarn_metastore::ColumnStats;
use tarn_types::{ColumnId, DataType, Value};

use crate::values::to_scalar;

/// What each text or byte string takes beside its bytes: the view of it.
const VIEW_BYTES: u64 = 16;

/// Bytes of a text of which nothing is known, beside its view.
const UNKNOWN_TEXT_BYTES: u64 = 16;

/// One column over some rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct ColumnBounds {
    /// Of the blocks that were added, dead ones included.
    pub(crate) rows: u64,
    /// A block did not say how many NULLs it has.
    nulls_unknown: bool,
    nulls: u64,
    /// Some of `nulls` may be dead, or were guessed.
    nulls_doubted: bool,
    /// A block did not say its bounds.
    unbounded: bool,
    min: Option<ColumnBound>,
    max: Option<ColumnBound>,
    /// Of texts and byte strings: as they are stored. `None`: a block did not say.
    stored: Option<u64>,
}

#[derive(Debug, Clone)]
struct ColumnBound {
    value: ScalarValue,
    /// A live row has this value.
    attained: bool,
}

/// One column of one block.
pub(crate) struct OfBlock<'a> {
    /// Of the block, dead ones among them.
    pub n_rows: u64,
    /// Of them that are not read.
    pub dead: u64,
    /// `None`: nothing is known.
    pub stats: Option<&'a ColumnStats>,
    /// Whether the number of NULLs was counted.
    pub counted: bool,
    /// Of the values as they are stored.
    pub stored_bytes: u64,
}

impl ColumnBounds {
    pub(crate) fn new() -> Self {
        ColumnBounds { stored: Some(0), ..ColumnBounds::default() }
    }

    /// Rows of one more block.
    pub(crate) fn add(&mut self, data_type: &DataType, block: &OfBlock<'_>) {
        self.rows += block.n_rows;
        let Some(stats) = block.stats else {
            self.nulls_unknown = true;
            self.unbounded = true;
            self.stored = None;
            return;
        };
        self.stored = self.stored.map(|bytes| bytes.saturating_add(block.stored_bytes));
        self.nulls += stats.null_count;
        self.nulls_doubted |= !block.counted || block.dead > 0 && stats.null_count > 0;
        // A block of NULLs alone has no bounds to add.
        if block.counted && stats.null_count == block.n_rows {
            return;
        }
        let scalar = |value: &Option<_>| value.as_ref().and_then(|value| to_scalar(value, data_type));
        let (Some(min), Some(max)) = (scalar(&stats.min), scalar(&stats.max)) else {
            self.unbounded = true;
            return;
        };
        // Parquet leaves NaN out of a float's bounds.
        let float = matches!(data_type, DataType::Float32 | DataType::Float64);
        let attained = stats.exact && block.dead == 0 && !float;
        keep(&mut self.min, ColumnBound { value: min, attained }, Ordering::Less);
        keep(&mut self.max, ColumnBound { value: max, attained }, Ordering::Greater);
    }

    /// Rows of a file that lacks the column, which was added with this value.
    pub(crate) fn add_value(&mut self, data_type: &DataType, value: &Value, n_rows: u64) {
        // Bounds are silent about NaN.
        let is_nan =
            matches!(value, Value::Float32(v) if v.is_nan()) || matches!(value, Value::Float64(v) if v.is_nan());
        // Nor has an array, an interval or an address any.
        let has_none = |value: &Value| matches!(value, Value::Interval(_) | Value::Inet(_) | Value::Array(_));
        let bound = Some(value.clone()).filter(|value| !is_nan && !has_none(value));
        let text_bytes = match value {
            Value::Text(text) | Value::Uuid(text) | Value::Json(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Array(items) => items.len() * size_of::<u128>(),
            _ => 0,
        };
        let stored_bytes = n_rows.saturating_mul(text_bytes as u64);
        let (min, max, column) = (bound.clone(), bound, ColumnId::default());
        let stats = ColumnStats { column, min, max, exact: true, null_count: 0, bytes: stored_bytes };
        self.add(data_type, &OfBlock { n_rows, dead: 0, stats: Some(&stats), counted: true, stored_bytes });
    }

    /// Rows of a file that lacks the column.
    pub(crate) fn add_nulls(&mut self, n_rows: u64) {
        self.rows += n_rows;
        self.nulls += n_rows;
    }

    /// All rows of `other`, too.
    pub(crate) fn merge(&mut self, other: &ColumnBounds) {
        self.rows += other.rows;
        self.nulls_unknown |= other.nulls_unknown;
        self.nulls += other.nulls;
        self.nulls_doubted |= other.nulls_doubted;
        self.unbounded |= other.unbounded;
        if let Some(min) = &other.min {
            keep(&mut self.min, min.clone(), Ordering::Less);
        }
        if let Some(max) = &other.max {
            keep(&mut self.max, max.clone(), Ordering::Greater);
        }
        self.stored = self.stored.zip(other.stored).map(|(ours, theirs)| ours.saturating_add(theirs));
    }

    /// Of `live` of these rows, nobody knows which; of all, if there are so many.
    pub(crate) fn of_some(mut self, live: u64) -> Self {
        if live == self.rows {
            return self;
        }
        let share = |n: u64| (u128::from(n) * u128::from(live)).div_ceil(u128::from(self.rows.max(1))) as u64;
        self.nulls_doubted |= self.nulls > 0;
        self.nulls = share(self.nulls);
        self.stored = self.stored.map(share);
        for bound in [&mut self.min, &mut self.max].into_iter().flatten() {
            bound.attained = false;
        }
        self.rows = live;
        self
    }

    /// What `live` rows of the column take in memory.
    fn memory_bytes(&self, live: u64, arrow: &ArrowType) -> u64 {
        match (fixed_width(arrow), self.stored) {
            (None, Some(stored)) => stored.saturating_add(live.saturating_mul(VIEW_BYTES)),
            _ => usual_bytes(live, arrow),
        }
    }

    /// For the planner. `live` of the rows are read; `arrow` is the type in which they are.
    pub(crate) fn finish(self, live: u64, arrow: &ArrowType) -> ColumnStatistics {
        let byte_size = Precision::Inexact(self.memory_bytes(live, arrow) as usize);
        let precise = |bound: Option<ColumnBound>| match bound {
            Some(ColumnBound { value, attained: true }) => Precision::Exact(value),
            Some(ColumnBound { value, attained: false }) => Precision::Inexact(value),
            None => Precision::Absent,
        };
        let nulls = self.nulls as usize;
        let null_count = match (self.nulls_unknown, self.nulls_doubted) {
            (true, _) => Precision::Absent,
            (false, true) => Precision::Inexact(nulls),
            (false, false) => Precision::Exact(nulls),
        };
        let (min, max) = if self.unbounded { (None, None) } else { (self.min, self.max) };
        ColumnStatistics {
            null_count,
            min_value: precise(min),
            max_value: precise(max),
            byte_size,
            ..ColumnStatistics::new_unknown()
        }
    }
}

/// What so many values take in memory, of which nothing but the type is known.
pub(crate) fn usual_bytes(rows: u64, arrow: &ArrowType) -> u64 {
    rows.saturating_mul(fixed_width(arrow).unwrap_or(UNKNOWN_TEXT_BYTES + VIEW_BYTES))
}

/// Bytes of one value of a type whose values all take the same. A bit counts as a byte.
pub(crate) fn fixed_width(arrow: &ArrowType) -> Option<u64> {
    match arrow {
        ArrowType::Boolean => Some(1),
        other => other.primitive_width().map(|width| width as u64),
    }
}

/// Keeps the bound that lies further out; of equal ones the one that a live row has.
fn keep(so_far: &mut Option<ColumnBound>, new: ColumnBound, further: Ordering) {
    let replace = match so_far {
        None => true,
        Some(old) => match new.value.partial_cmp(&old.value) {
            Some(Ordering::Equal) => new.attained,
            Some(order) => order == further,
            None => false,
        },
    };
    if replace {
        *so_far = Some(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(min: i64, max: i64, null_count: u64) -> ColumnStats {
        let value = |value| Some(Value::Int64(value));
        ColumnStats { column: ColumnId(1), min: value(min), max: value(max), exact: true, null_count, bytes: 7 }
    }

    fn of(blocks: &[(u64, u64, Option<ColumnStats>)]) -> ColumnBounds {
        let mut bounds = ColumnBounds::new();
        for (n_rows, dead, stats) in blocks {
            let (stats, n_rows, dead) = (stats.as_ref(), *n_rows, *dead);
            bounds.add(&DataType::Int64, &OfBlock { n_rows, dead, stats, counted: true, stored_bytes: 7 });
        }
        bounds
    }

    fn finished(bounds: ColumnBounds) -> ColumnStatistics {
        let live = bounds.rows;
        bounds.finish(live, &ArrowType::Int64)
    }

    fn int(value: i64) -> ScalarValue {
        ScalarValue::Int64(Some(value))
    }

    #[test]
    fn a_bound_is_exact_only_where_a_live_row_has_it() {
        let known = finished(of(&[(10, 0, Some(stats(5, 9, 0))), (10, 1, Some(stats(3, 8, 0)))]));
        assert_eq!(known.min_value, Precision::Inexact(int(3)));
        assert_eq!(known.max_value, Precision::Exact(int(9)));
        assert_eq!(known.null_count, Precision::Exact(0));
        let known = finished(of(&[(10, 1, Some(stats(3, 8, 2))), (10, 0, Some(stats(3, 4, 0)))]));
        assert_eq!(known.min_value, Precision::Exact(int(3)), "a live row has the same");
        assert_eq!(known.null_count, Precision::Inexact(2), "the dead row may be NULL");
    }

    #[test]
    fn what_one_block_does_not_say_nobody_knows() {
        let known = finished(of(&[(10, 0, Some(stats(5, 9, 0))), (10, 0, None)]));
        assert_eq!((known.min_value, known.null_count), (Precision::Absent, Precision::Absent));
        let unbounded = ColumnStats { min: None, max: None, ..stats(0, 0, 3) };
        let known = finished(of(&[(10, 0, Some(stats(5, 9, 1))), (10, 0, Some(unbounded))]));
        assert_eq!((known.max_value, known.null_count), (Precision::Absent, Precision::Exact(4)));
        let all_null = ColumnStats { min: None, max: None, ..stats(0, 0, 10) };
        let known = finished(of(&[(10, 0, Some(stats(5, 9, 0))), (10, 0, Some(all_null))]));
        assert_eq!((known.max_value, known.null_count), (Precision::Exact(int(9)), Precision::Exact(10)));
    }

    #[test]
    fn a_count_of_nulls_that_was_guessed_is_not_exact() {
        let mut bounds = ColumnBounds::new();
        let guessed = stats(1, 2, 1);
        let block = OfBlock { n_rows: 10, dead: 0, stats: Some(&guessed), counted: false, stored_bytes: 0 };
        bounds.add(&DataType::Int64, &block);
        assert_eq!(finished(bounds).null_count, Precision::Inexact(1));
    }

    #[test]
    fn a_file_that_lacks_the_column_has_what_it_was_added_with() {
        let mut bounds = of(&[(10, 0, Some(stats(5, 9, 0)))]);
        bounds.add_value(&DataType::Int64, &Value::Int64(11), 3);
        let known = finished(bounds);
        assert_eq!((known.min_value, known.max_value), (Precision::Exact(int(5)), Precision::Exact(int(11))));
        assert_eq!(known.null_count, Precision::Exact(0));
        let mut bounds = ColumnBounds::new();
        bounds.add_value(&DataType::Float64, &Value::Float64(f64::NAN), 3);
        assert_eq!(bounds.finish(3, &ArrowType::Float64).max_value, Precision::Absent);
    }

    #[test]
    fn of_some_of_the_rows_nothing_is_exact_but_that_there_is_no_null() {
        let whole = of(&[(10, 0, Some(stats(5, 9, 4))), (10, 0, Some(stats(1, 2, 0)))]);
        assert_eq!(finished(whole.clone().of_some(20)).min_value, Precision::Exact(int(1)));
        let some = finished(whole.of_some(5));
        assert_eq!((some.min_value, some.max_value), (Precision::Inexact(int(1)), Precision::Inexact(int(9))));
        assert_eq!((some.null_count, some.byte_size), (Precision::Inexact(1), Precision::Inexact(5 * 8)));
        let without_null = finished(of(&[(10, 0, Some(stats(5, 9, 0)))]).of_some(3));
        assert_eq!(without_null.null_count, Precision::Exact(0));
    }

    #[test]
    fn sums_are_as_if_all_blocks_had_been_added_to_one() {
        let blocks = [
            (10, 0, Some(stats(5, 9, 0))),
            (4, 2, Some(stats(-3, 8, 1))),
            (6, 0, Some(stats(-3, 11, 2))),
            (6, 0, Some(ColumnStats { min: None, max: None, ..stats(0, 0, 6) })),
        ];
        for cut in 0..=blocks.len() {
            let mut merged = of(&blocks[..cut]);
            merged.merge(&of(&blocks[cut..]));
            assert_eq!(finished(merged), finished(of(&blocks)));
        }
        assert_eq!(finished(of(&blocks)).min_value, Precision::Exact(int(-3)));
    }

    #[test]
    fn texts_take_their_bytes_and_a_view_each() {
        let mut bounds = ColumnBounds::new();
        let text = |text: &str| Some(Value::Text(text.to_owned()));
        let stats = ColumnStats { min: text("a"), max: text("b"), ..stats(0, 0, 0) };
        bounds.add(
            &DataType::Text,
            &OfBlock { n_rows: 10, dead: 0, stats: Some(&stats), counted: true, stored_bytes: 120 },
        );
        assert_eq!(bounds.clone().finish(10, &ArrowType::Utf8View).byte_size, Precision::Inexact(120 + 160));
        let unknown = OfBlock { n_rows: 10, dead: 0, stats: None, counted: false, stored_bytes: 0 };
        bounds.add(&DataType::Text, &unknown);
        let bytes = 20 * (UNKNOWN_TEXT_BYTES + VIEW_BYTES);
        assert_eq!(bounds.finish(20, &ArrowType::Utf8View).byte_size, Precision::Inexact(bytes as usize));
    }
}
