//! What is kept of numbers whose average or variance is asked for? How many they are and their sum, for a variance the
//! sum of their squares, too. Of integers and decimals all exact, so that the order of rows and how they are grouped
//! changes nothing.
//!
//! Integers and decimals are added as they come, a batch at a time, and only the end of a group is a division. Decimals
//! of a column have one number of digits behind the point, which whoever finishes knows.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Decimal256Array, PrimitiveArray,
    UInt64Array,
};
use arrow::compute::{cast, prep_null_mask_filter, sum};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Field, FieldRef,
    Float64Type, Int16Type, Int32Type, Int64Type, UInt64Type, i256,
};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{exec_datafusion_err, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::division::too_long;
use crate::error::SqlError;

/// What is kept of the values of a group.
///
/// A value is a whole number: that of a decimal without its point, the bits of a float.
pub(super) trait Moments: Copy + Default + Debug + Send + Sync + 'static {
    /// Of what they come to.
    type Out: ArrowPrimitiveType;

    /// Adds a value. False: there is no room.
    #[must_use]
    fn add(&mut self, value: i128) -> bool;

    /// Takes a value out that was added before.
    fn remove(&mut self, value: i128);

    /// Adds the values of another. False: there is no room.
    #[must_use]
    fn merge(&mut self, other: &Self) -> bool;

    /// Adds the values of a column that are there; `None`: they are better added one by one.
    fn add_all(&mut self, _values: &ArrayRef) -> Option<Result<()>> {
        None
    }

    /// Adds the values of a column to their groups, if all are there, and of so few digits that there is room for any
    /// number of rows: without a look at each. False: they are better added one by one.
    fn add_each(_groups: &mut [Self], _group_indices: &[usize], _values: &ArrayRef) -> bool {
        false
    }

    /// The columns in which it travels.
    fn states() -> Vec<(&'static str, DataType)>;

    /// These columns of several groups.
    fn write(groups: &[Self]) -> Vec<ArrayRef>;

    /// Several groups of their columns.
    fn read(states: &[ArrayRef]) -> Vec<Self>;
}

/// How many values, and their sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) n: u64,
    pub(super) sum: i128,
}

/// How many values, their sum, and that of their squares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Squares {
    pub(super) n: u64,
    pub(super) sum: i128,
    /// In two parts, of which the first has room for the squares of most numbers, and is added up much faster.
    narrow: i128,
    wide: i256,
}

impl Squares {
    /// The sum of the squares.
    pub(super) fn squares(&self) -> i256 {
        self.wide.wrapping_add(i256::from_i128(self.narrow))
    }
}

/// Digits of numbers of which ten billion have room in a sum.
const FEW_DIGITS: u8 = 28;

const SUM: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);
const SQUARES: DataType = DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0);

impl Moments for Sum {
    type Out = Decimal128Type;

    fn add(&mut self, value: i128) -> bool {
        let (sum, is_over) = self.sum.overflowing_add(value);
        (self.n, self.sum) = (self.n + 1, sum);
        !is_over
    }

    fn remove(&mut self, value: i128) {
        (self.n, self.sum) = (self.n - 1, self.sum.wrapping_sub(value));
    }

    fn merge(&mut self, other: &Sum) -> bool {
        let (sum, is_over) = self.sum.overflowing_add(other.sum);
        (self.n, self.sum) = (self.n + other.n, sum);
        !is_over
    }

    fn add_all(&mut self, values: &ArrayRef) -> Option<Result<()>> {
        let n = (values.len() - values.null_count()) as u64;
        let of = match values.data_type() {
            // A batch of them has room in 64 bits.
            DataType::Int16 | DataType::Int32 => match cast(values, &DataType::Int64) {
                Ok(wide) => sum(wide.as_primitive::<Int64Type>()).unwrap_or(0).into(),
                Err(error) => return Some(Err(error.into())),
            },
            // The halves of a batch have.
            DataType::Int64 => {
                let values = values.as_primitive::<Int64Type>();
                let half = |of: PrimitiveArray<Int64Type>| i128::from(sum(&of).unwrap_or(0));
                (half(values.unary(|value| value >> 32)) << 32) + half(values.unary(|value| value & 0xFFFF_FFFF))
            }
            DataType::Decimal128(..=FEW_DIGITS, _) => sum(values.as_primitive::<Decimal128Type>()).unwrap_or(0),
            _ => return None,
        };
        Some(match self.merge(&Sum { n, sum: of }) {
            true => Ok(()),
            false => Err(too_long().into()),
        })
    }

    fn add_each(groups: &mut [Sum], group_indices: &[usize], values: &ArrayRef) -> bool {
        fn of<T>(groups: &mut [Sum], group_indices: &[usize], values: &ArrayRef) -> bool
        where
            T: ArrowPrimitiveType<Native: Into<i128>>,
        {
            for (group, value) in group_indices.iter().zip(values.as_primitive::<T>().values()) {
                let group = &mut groups[*group];
                (group.n, group.sum) = (group.n + 1, group.sum.wrapping_add((*value).into()));
            }
            true
        }
        match values.data_type() {
            _ if values.null_count() > 0 => false,
            DataType::Int16 => of::<Int16Type>(groups, group_indices, values),
            DataType::Int32 => of::<Int32Type>(groups, group_indices, values),
            DataType::Int64 => of::<Int64Type>(groups, group_indices, values),
            DataType::Decimal128(..=FEW_DIGITS, _) => of::<Decimal128Type>(groups, group_indices, values),
            _ => false,
        }
    }

    fn states() -> Vec<(&'static str, DataType)> {
        vec![("count", DataType::UInt64), ("sum", SUM)]
    }

    fn write(groups: &[Sum]) -> Vec<ArrayRef> {
        let counts: UInt64Array = groups.iter().map(|group| group.n).collect::<Vec<_>>().into();
        let sums = Decimal128Array::from_iter_values(groups.iter().map(|group| group.sum)).with_data_type(SUM);
        vec![Arc::new(counts), Arc::new(sums)]
    }

    fn read(states: &[ArrayRef]) -> Vec<Sum> {
        let counts = states[0].as_primitive::<UInt64Type>().values();
        let sums = states[1].as_primitive::<Decimal128Type>().values();
        counts.iter().zip(sums).map(|(n, sum)| Sum { n: *n, sum: *sum }).collect()
    }
}

impl Moments for Squares {
    type Out = Decimal128Type;

    fn add(&mut self, value: i128) -> bool {
        let (sum, is_over) = self.sum.overflowing_add(value);
        (self.n, self.sum) = (self.n + 1, sum);
        match value.checked_mul(value).and_then(|square| self.narrow.checked_add(square)) {
            Some(narrow) => self.narrow = narrow,
            None => {
                // At most 76 digits: only the sum of very many may have no room.
                let square = i256::from_i128(value).wrapping_mul(i256::from_i128(value));
                let Some(wide) = self.squares().checked_add(square) else { return false };
                (self.narrow, self.wide) = (0, wide);
            }
        }
        !is_over
    }

    fn remove(&mut self, value: i128) {
        let square = i256::from_i128(value).wrapping_mul(i256::from_i128(value));
        let wide = self.squares().wrapping_sub(square);
        *self = Squares { n: self.n - 1, sum: self.sum.wrapping_sub(value), narrow: 0, wide };
    }

    fn merge(&mut self, other: &Squares) -> bool {
        let (sum, is_over) = self.sum.overflowing_add(other.sum);
        let Some(wide) = self.squares().checked_add(other.squares()) else { return false };
        *self = Squares { n: self.n + other.n, sum, narrow: 0, wide };
        !is_over
    }

    fn states() -> Vec<(&'static str, DataType)> {
        vec![("count", DataType::UInt64), ("sum", SUM), ("squares", SQUARES)]
    }

    fn write(groups: &[Squares]) -> Vec<ArrayRef> {
        let sums: Vec<Sum> = groups.iter().map(|group| Sum { n: group.n, sum: group.sum }).collect();
        let squares = Decimal256Array::from_iter_values(groups.iter().map(Squares::squares)).with_data_type(SQUARES);
        let mut states = Sum::write(&sums);
        states.push(Arc::new(squares));
        states
    }

    fn read(states: &[ArrayRef]) -> Vec<Squares> {
        let squares = states[2].as_primitive::<Decimal256Type>().values();
        let sums = Sum::read(states).into_iter().zip(squares);
        sums.map(|(of, squares)| Squares { n: of.n, sum: of.sum, narrow: 0, wide: *squares }).collect()
    }
}

/// What a group comes to; `None` is NULL.
pub(super) type MomentsResult<M> =
    Arc<dyn Fn(&M) -> Result<Option<<<M as Moments>::Out as ArrowPrimitiveType>::Native>, SqlError> + Send + Sync>;

/// The columns in which what is kept of a group travels.
pub(super) fn state_fields<M: Moments>(name: &str, is_distinct: bool) -> Vec<FieldRef> {
    if is_distinct {
        let name = format_state_name(name, "distinct");
        return vec![Arc::new(Field::new_list(name, Field::new_list_field(SUM, true), false))];
    }
    let states = M::states().into_iter();
    states.map(|(of, data_type)| Arc::new(Field::new(format_state_name(name, of), data_type, false))).collect()
}

/// Looks at each value that is there, with its row.
fn each_value(values: &ArrayRef, mut look: impl FnMut(usize, i128)) -> Result<()> {
    fn of<T>(values: &ArrayRef, look: &mut impl FnMut(usize, i128))
    where
        T: ArrowPrimitiveType<Native: Into<i128>>,
    {
        let values = values.as_primitive::<T>();
        match values.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => values.values().iter().enumerate().for_each(|(row, value)| look(row, (*value).into())),
            Some(nulls) => nulls.valid_indices().for_each(|row| look(row, values.value(row).into())),
        }
    }
    match values.data_type() {
        DataType::Int16 => of::<Int16Type>(values, &mut look),
        DataType::Int32 => of::<Int32Type>(values, &mut look),
        DataType::Int64 => of::<Int64Type>(values, &mut look),
        DataType::Decimal128(..) => of::<Decimal128Type>(values, &mut look),
        DataType::Float64 => {
            let floats = values.as_primitive::<Float64Type>().iter().enumerate();
            floats.for_each(|(row, float)| {
                if let Some(float) = float {
                    look(row, float.to_bits().cast_signed().into());
                }
            });
        }
        other => return exec_err!("exact moments of {other}"),
    }
    Ok(())
}

fn room(has_room: bool) -> Result<()> {
    if has_room { Ok(()) } else { Err(too_long().into()) }
}

/// Of one group.
pub(super) struct MomentsAccumulator<M: Moments> {
    kept: M,
    finish: MomentsResult<M>,
    to: DataType,
}

/// Of groups.
pub(super) struct OfGroups<M: Moments> {
    kept: Vec<M>,
    finish: MomentsResult<M>,
    to: DataType,
}

/// Of the distinct values of one group.
pub(super) struct OfDistinct<M: Moments> {
    values: HashSet<i128>,
    finish: MomentsResult<M>,
    to: DataType,
}

impl<M: Moments> MomentsAccumulator<M> {
    pub(super) fn new(finish: MomentsResult<M>, to: DataType) -> MomentsAccumulator<M> {
        MomentsAccumulator { kept: M::default(), finish, to }
    }
}

impl<M: Moments> OfGroups<M> {
    pub(super) fn new(finish: MomentsResult<M>, to: DataType) -> OfGroups<M> {
        OfGroups { kept: vec![], finish, to }
    }
}

impl<M: Moments> OfDistinct<M> {
    pub(super) fn new(finish: MomentsResult<M>, to: DataType) -> OfDistinct<M> {
        OfDistinct { values: HashSet::new(), finish, to }
    }
}

macro_rules! debug {
    ($($name:ident),*) => { $(impl<M: Moments> Debug for $name<M> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct(stringify!($name)).field("to", &self.to).finish_non_exhaustive()
        }
    })* };
}
debug!(MomentsAccumulator, OfGroups, OfDistinct);

fn scalar<M: Moments>(kept: &M, finish: &MomentsResult<M>, to: &DataType) -> Result<ScalarValue> {
    let value = PrimitiveArray::<M::Out>::from_iter([finish(kept)?]);
    ScalarValue::try_from_array(&value.with_data_type(to.clone()), 0)
}

impl<M: Moments> Accumulator for MomentsAccumulator<M> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if let Some(added) = self.kept.add_all(&values[0]) {
            return added;
        }
        let mut has_room = true;
        each_value(&values[0], |_, value| has_room &= self.kept.add(value))?;
        room(has_room)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        scalar(&self.kept, &self.finish, &self.to)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        M::write(&[self.kept]).iter().map(|state| ScalarValue::try_from_array(state, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        room(M::read(states).iter().all(|other| self.kept.merge(other)))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        each_value(&values[0], |_, value| self.kept.remove(value))
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

impl<M: Moments> GroupsAccumulator for OfGroups<M> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        n_groups: usize,
    ) -> Result<()> {
        self.kept.resize(n_groups, M::default());
        let (kept, mut has_room) = (&mut self.kept, true);
        if filter.is_none() && M::add_each(kept, group_indices, &values[0]) {
            return Ok(());
        }
        match filter {
            None => each_value(&values[0], |row, value| has_room &= kept[group_indices[row]].add(value))?,
            Some(filter) => each_value(&values[0], |row, value| {
                if filter.is_valid(row) && filter.value(row) {
                    has_room &= kept[group_indices[row]].add(value);
                }
            })?,
        }
        room(has_room)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let kept = emit_to.take_needed(&mut self.kept);
        let values =
            kept.iter().map(|group| (self.finish)(group)).collect::<Result<PrimitiveArray<M::Out>, SqlError>>();
        Ok(Arc::new(values?.with_data_type(self.to.clone())))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(M::write(&emit_to.take_needed(&mut self.kept)))
    }

    fn merge_batch(&mut self, states: &[ArrayRef], group_indices: &[usize], n_groups: usize) -> Result<()> {
        self.kept.resize(n_groups, M::default());
        let groups = M::read(states).into_iter().zip(group_indices);
        room(groups.fold(true, |has_room, (other, group)| self.kept[*group].merge(&other) && has_room))
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let filter = filter.map(prep_null_mask_filter);
        let (mut groups, mut has_room) = (vec![M::default(); values[0].len()], true);
        each_value(&values[0], |row, value| {
            if filter.as_ref().is_none_or(|filter| filter.value(row)) {
                has_room &= groups[row].add(value);
            }
        })?;
        room(has_room)?;
        Ok(M::write(&groups))
    }

    fn size(&self) -> usize {
        self.kept.capacity() * size_of::<M>()
    }
}

impl<M: Moments> Accumulator for OfDistinct<M> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        each_value(&values[0], |_, value| {
            self.values.insert(value);
        })
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut kept = M::default();
        room(self.values.iter().all(|value| kept.add(*value)))?;
        scalar(&kept, &self.finish, &self.to)
    }

    fn size(&self) -> usize {
        // A byte of control beside each.
        size_of_val(self) + self.values.capacity() * (size_of::<i128>() + 1)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = Decimal128Array::from_iter_values(self.values.iter().copied()).with_data_type(SUM);
        Ok(vec![SingleRowListArrayBuilder::new(Arc::new(values)).with_nullable(true).build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists = states[0].as_list_opt::<i32>().ok_or_else(|| exec_datafusion_err!("distinct values in no list"))?;
        for list in lists.iter().flatten() {
            self.update_batch(&[list])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array};

    use super::*;

    #[test]
    fn a_batch_is_added_as_its_values_are() {
        let few = DataType::Decimal128(FEW_DIGITS, 0);
        let columns: [ArrayRef; 3] = [
            Arc::new(Int32Array::from(vec![Some(i32::MAX), None, Some(i32::MAX), Some(-7)])),
            Arc::new(Int64Array::from(vec![Some(i64::MAX), Some(i64::MAX), None, Some(i64::MIN), Some(-1)])),
            Arc::new(Decimal128Array::from(vec![Some(10_i128.pow(27)), Some(-3), None]).with_data_type(few.clone())),
        ];
        for column in &columns {
            let mut one_by_one = Sum::default();
            each_value(column, |_, value| assert!(one_by_one.add(value))).unwrap();
            let decimals = cast(column, &few).unwrap();
            for column in [column, &decimals] {
                let mut at_once = Sum::default();
                if let Some(added) = at_once.add_all(column) {
                    added.unwrap();
                    assert_eq!(at_once, one_by_one, "{}", column.data_type());
                }
            }
            let there = arrow::compute::filter(column, &arrow::compute::is_not_null(column).unwrap()).unwrap();
            let mut groups = [Sum::default(); 2];
            assert!(Sum::add_each(&mut groups, &vec![1; there.len()], &there));
            assert_eq!(groups, [Sum::default(), one_by_one]);
            assert!(!Sum::add_each(&mut groups, &vec![0; column.len()], column), "one is missing");
        }
    }

    #[test]
    fn squares_have_room_and_are_taken_out_again() {
        let mut kept = Squares::default();
        let values = [10_i128.pow(37), -3, i64::MAX.into(), 10_i128.pow(37), 5];
        values.iter().for_each(|value| assert!(kept.add(*value)));
        let read = Squares::read(&Squares::write(&[kept]));
        assert_eq!((read[0].n, read[0].sum, read[0].squares()), (kept.n, kept.sum, kept.squares()));
        values[..4].iter().for_each(|value| kept.remove(*value));
        assert_eq!((kept.n, kept.sum, kept.squares()), (1, 5, i256::from_i128(25)));
        let mut full = Sum { n: 1, sum: i128::MAX };
        assert!(!full.add(1));
    }
}
