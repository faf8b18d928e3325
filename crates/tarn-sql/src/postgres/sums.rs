//! Of which type is a sum? `sum(bigint)` is a `numeric` in PostgreSQL, for the sum of two may be no bigint; that of
//! `real` is a `real`. DataFusion's has 64 bits and wraps round.
//!
//! Here values become those of the wider type as they come, and DataFusion's own sum of that type does the rest.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::frames::{OfFrame, sum_of};
use super::interval_aggregates::INTERVAL;

/// `sum`, to be registered over DataFusion's.
pub(super) fn sum() -> AggregateUDF {
    AggregateUDF::from(WideSum { inner: Sum::new().into(), signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WideSum {
    inner: AggregateUDF,
    signature: Signature,
}

/// The type that values of a type are summed as.
fn summed_as(of: &DataType) -> DataType {
    match of {
        DataType::Int16 | DataType::Int32 => DataType::Int64,
        DataType::Int64 => DataType::Decimal128(20, 0),
        DataType::Float32 => DataType::Float64,
        other => other.clone(),
    }
}

impl WideSum {
    fn is_wide(args: &AccumulatorArgs<'_>) -> bool {
        args.expr_fields.first().is_some_and(|field| summed_as(field.data_type()) != *field.data_type())
    }

    /// Of DataFusion's sum.
    fn inner_type(&self, of: &DataType) -> Result<DataType> {
        self.inner.return_type(&[summed_as(of)])
    }

    /// What DataFusion's sum is made with, and what makes its values those that are asked for.
    fn inner_args<T>(
        &self,
        args: AccumulatorArgs<'_>,
        make: impl FnOnce(&AggregateUDF, AccumulatorArgs<'_>) -> Result<T>,
    ) -> Result<(T, SumTypes)> {
        let of = args.expr_fields[0].data_type();
        let widened = SumTypes { to: summed_as(of), told: args.return_field.data_type().clone() };
        let return_field = Arc::new(Field::new(args.name, self.inner_type(of)?, true));
        let summed = [Arc::new(Field::new(args.name, widened.to.clone(), true))];
        let inner = make(&self.inner, AccumulatorArgs { return_field, expr_fields: &summed, ..args })?;
        Ok((inner, widened))
    }
}

impl AggregateUDFImpl for WideSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [of] = types else { return plan_err!("function sum({}) does not exist", listed(types)) };
        Ok(vec![match of {
            DataType::Null => DataType::Int64,
            DataType::Int8 => DataType::Int16,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => DataType::UInt64,
            DataType::Float16 => DataType::Float32,
            DataType::Dictionary(_, value) => return self.coerce_types(&[value.as_ref().clone()]),
            of if of.is_numeric() => of.clone(),
            DataType::Duration(_) | DataType::Interval(_) | DataType::Time64(_) => of.clone(),
            _ => return plan_err!("function sum({}) does not exist", listed(types)),
        }])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match &types[0] {
            DataType::Float32 => Ok(DataType::Float32),
            // A rule puts another function into its place.
            DataType::Interval(_) | DataType::Duration(_) | DataType::Time64(_) => Ok(INTERVAL),
            of => self.inner_type(of),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let summed = self.inner_type(args.input_fields[0].data_type())?;
        let return_field = Arc::new(Field::new(args.name, summed, true));
        self.inner.state_fields(StateFieldsArgs { return_field, ..args })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if !WideSum::is_wide(&args) {
            return self.inner.accumulator(args);
        }
        let (inner, widened) = self.inner_args(args, |inner, args| inner.accumulator(args))?;
        Ok(Box::new(SumAccumulator { widened, inner }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.expr_fields.first().is_some_and(|field| field.data_type().is_floating()) && !args.is_distinct {
            return Ok(Box::new(OfFrame::new(args.return_field.data_type().clone(), sum_of)));
        }
        if !WideSum::is_wide(&args) {
            return self.inner.create_sliding_accumulator(args);
        }
        let (inner, widened) = self.inner_args(args, |inner, args| inner.create_sliding_accumulator(args))?;
        Ok(Box::new(SumAccumulator { widened, inner }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if !WideSum::is_wide(&args) {
            return self.inner.create_groups_accumulator(args);
        }
        let (inner, widened) = self.inner_args(args, |inner, args| inner.create_groups_accumulator(args))?;
        Ok(Box::new(OfGroups { widened, inner }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }
}

fn listed(types: &[DataType]) -> String {
    types.iter().map(DataType::to_string).collect::<Vec<_>>().join(", ")
}

/// From the type of the values to that which is summed, and from that to the sum's.
#[derive(Debug)]
struct SumTypes {
    to: DataType,
    told: DataType,
}

impl SumTypes {
    fn values(&self, values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        values.iter().map(|values| Ok(cast(values, &self.to)?)).collect()
    }

    fn sum(&self, sum: ScalarValue) -> Result<ScalarValue> {
        if sum.data_type() == self.told { Ok(sum) } else { sum.cast_to(&self.told) }
    }

    fn sums(&self, sums: ArrayRef) -> Result<ArrayRef> {
        if *sums.data_type() == self.told { Ok(sums) } else { Ok(cast(&sums, &self.told)?) }
    }
}

#[derive(Debug)]
struct SumAccumulator {
    widened: SumTypes,
    inner: Box<dyn Accumulator>,
}

impl Accumulator for SumAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&self.widened.values(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.widened.sum(self.inner.evaluate()?)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&self.widened.values(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

struct OfGroups {
    widened: SumTypes,
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
        self.inner.update_batch(&self.widened.values(values)?, group_indices, filter, n_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.widened.sums(self.inner.evaluate(emit_to)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], group_indices: &[usize], n_groups: usize) -> Result<()> {
        self.inner.merge_batch(states, group_indices, n_groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(&self.widened.values(values)?, filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
