//! What is the least and the greatest of floats, when some are NaN or infinite? As in Postgres: NaN is the greatest,
//! all NaNs are one.
//!
//! DataFusion's `min` and `max` of groups start from the greatest finite number and compare NaN with nothing. Here
//! floats become integers of the same order, and DataFusion's own functions of integers do the rest; other types are
//! left to them as they are. And the greatest `char(5)` is one: it says how long its texts are, as what is asked does.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type, Int32Type, Int64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::scalar::ScalarValue;
use tarn_types::Length;

/// `min` and `max`, to be registered over DataFusion's.
pub(crate) fn extrema() -> [AggregateUDF; 2] {
    let plain = [AggregateUDF::from(Min::new()), AggregateUDF::from(Max::new())];
    plain.map(|inner| AggregateUDF::from(FloatExtremum { inner }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FloatExtremum {
    inner: AggregateUDF,
}

impl AggregateUDFImpl for FloatExtremum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        let field = self.inner.return_field(arg_fields)?;
        Ok(match arg_fields.first().and_then(|of| Length::of(of)) {
            Some(length @ Length::Fixed(_)) => Arc::new(length.told(field.as_ref().clone())),
            _ => field,
        })
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match OrderedFloat::of(args.return_field.data_type()) {
            None => self.inner.accumulator(args),
            Some(ordered) => {
                Ok(Box::new(ExtremumAccumulator { ordered, inner: self.inner.accumulator(ordered.args(args))? }))
            }
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match OrderedFloat::of(args.return_field.data_type()) {
            None => self.inner.create_sliding_accumulator(args),
            Some(ordered) => {
                let inner = self.inner.create_sliding_accumulator(ordered.args(args))?;
                Ok(Box::new(ExtremumAccumulator { ordered, inner }))
            }
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match OrderedFloat::of(args.return_field.data_type()) {
            None => self.inner.create_groups_accumulator(args),
            Some(ordered) => {
                let inner = self.inner.create_groups_accumulator(ordered.args(args))?;
                Ok(Box::new(OfGroups { ordered, inner }))
            }
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        // Of `min` it is `min`.
        ReversedUDAF::Identical
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    /// The bounds of floats in Parquet are silent about NaN. No scan calls them exact; nobody else is asked.
    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        if args.return_type.is_floating() {
            return None;
        }
        self.inner.value_from_stats(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }
}

/// Floats as integers: the same order, with NaN greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OrderedFloat {
    Float32,
    Float64,
}

impl OrderedFloat {
    fn of(data_type: &DataType) -> Option<OrderedFloat> {
        match data_type {
            DataType::Float32 => Some(OrderedFloat::Float32),
            DataType::Float64 => Some(OrderedFloat::Float64),
            _ => None,
        }
    }

    fn args(self, args: AccumulatorArgs<'_>) -> AccumulatorArgs<'_> {
        let integer = match self {
            OrderedFloat::Float32 => DataType::Int32,
            OrderedFloat::Float64 => DataType::Int64,
        };
        AccumulatorArgs { return_field: Arc::new(Field::new(args.name, integer, true)), ..args }
    }

    fn to_integers(self, floats: &ArrayRef) -> ArrayRef {
        match self {
            OrderedFloat::Float32 => Arc::new(floats.as_primitive::<Float32Type>().unary::<_, Int32Type>(rank_f32)),
            OrderedFloat::Float64 => Arc::new(floats.as_primitive::<Float64Type>().unary::<_, Int64Type>(rank_f64)),
        }
    }

    fn all_to_integers(self, floats: &[ArrayRef]) -> Vec<ArrayRef> {
        floats.iter().map(|floats| self.to_integers(floats)).collect()
    }

    fn to_floats(self, integers: &ArrayRef) -> ArrayRef {
        match self {
            OrderedFloat::Float32 => {
                Arc::new(integers.as_primitive::<Int32Type>().unary::<_, Float32Type>(of_rank_f32))
            }
            OrderedFloat::Float64 => {
                Arc::new(integers.as_primitive::<Int64Type>().unary::<_, Float64Type>(of_rank_f64))
            }
        }
    }

    fn to_float(self, integer: ScalarValue) -> Result<ScalarValue> {
        Ok(match (self, integer) {
            (OrderedFloat::Float32, ScalarValue::Int32(rank)) => ScalarValue::Float32(rank.map(of_rank_f32)),
            (OrderedFloat::Float64, ScalarValue::Int64(rank)) => ScalarValue::Float64(rank.map(of_rank_f64)),
            (_, other) => return exec_err!("an extreme of floats is {other:?}"),
        })
    }
}

/// Negative numbers have their bits below the sign turned round, which puts them in order below the others.
fn rank_f64(float: f64) -> i64 {
    let canonical = if float.is_nan() { f64::NAN.abs() } else { float + 0.0 };
    let bits = canonical.to_bits() as i64;
    bits ^ (bits >> 63) & i64::MAX
}

fn of_rank_f64(rank: i64) -> f64 {
    f64::from_bits((rank ^ (rank >> 63) & i64::MAX) as u64)
}

fn rank_f32(float: f32) -> i32 {
    let canonical = if float.is_nan() { f32::NAN.abs() } else { float + 0.0 };
    let bits = canonical.to_bits() as i32;
    bits ^ (bits >> 31) & i32::MAX
}

fn of_rank_f32(rank: i32) -> f32 {
    f32::from_bits((rank ^ (rank >> 31) & i32::MAX) as u32)
}

#[derive(Debug)]
struct ExtremumAccumulator {
    ordered: OrderedFloat,
    inner: Box<dyn Accumulator>,
}

impl Accumulator for ExtremumAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&self.ordered.all_to_integers(values))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.ordered.to_float(self.inner.evaluate()?)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()?.into_iter().map(|state| self.ordered.to_float(state)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(&self.ordered.all_to_integers(states))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&self.ordered.all_to_integers(values))
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

struct OfGroups {
    ordered: OrderedFloat,
    inner: Box<dyn GroupsAccumulator>,
}

impl GroupsAccumulator for OfGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        n_groups: usize,
    ) -> Result<()> {
        self.inner.update_batch(&self.ordered.all_to_integers(values), group_indices, filter, n_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.ordered.to_floats(&self.inner.evaluate(emit_to)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let states = self.inner.state(emit_to)?;
        Ok(states.iter().map(|state| self.ordered.to_floats(state)).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], group_indices: &[usize], n_groups: usize) -> Result<()> {
        self.inner.merge_batch(&self.ordered.all_to_integers(states), group_indices, n_groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let states = self.inner.convert_to_state(&self.ordered.all_to_integers(values), filter)?;
        Ok(states.iter().map(|state| self.ordered.to_floats(state)).collect())
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_in_the_order_of_their_floats() {
        let floats = [f64::NEG_INFINITY, f64::MIN, -1.5, -f64::MIN_POSITIVE, 0.0, 1e-300, 2.0, f64::MAX, f64::INFINITY];
        assert!(floats.windows(2).all(|pair| rank_f64(pair[0]) < rank_f64(pair[1])));
        assert!(floats.iter().all(|float| of_rank_f64(rank_f64(*float)) == *float));
        assert!(floats.iter().all(|float| rank_f64(*float) < rank_f64(f64::NAN)));
        assert_eq!(rank_f64(-f64::NAN), rank_f64(f64::NAN));
        assert_eq!(rank_f64(-0.0), rank_f64(0.0));
        assert!(of_rank_f64(rank_f64(-f64::NAN)).is_nan());
        assert!(rank_f32(f32::INFINITY) < rank_f32(-f32::NAN) && of_rank_f32(rank_f32(-1.5)) == -1.5);
    }
}
