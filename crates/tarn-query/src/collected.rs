//! How large are the values of an aggregate over a window? `string_agg(v, ',') OVER (ORDER BY id)` is a longer text in
//! each row: 9,000 rows of twenty bytes are half a gigabyte; `max(v) OVER ()` is one text in all rows.
//!
//! So what an aggregate whose values have no fixed size gives to the rows of a window is counted as in that window
//! (`in_windows.rs`). Aggregates of groups give one value each, which whoever asks for it counts.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use crate::in_windows::{give, is_small};
use crate::moving_frames::moving;

const COLLECT: [&str; 7] = ["string_agg", "array_agg", "min", "max", "first_value", "last_value", "nth_value"];

/// Off which nothing can be taken when it leaves a frame; see `moving_frames.rs`.
const ANEW: [&str; 17] = [
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "covar_pop",
    "covar_samp",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
];

/// Puts the count around those functions of a session whose values may be large, and frames that move around those that
/// have none.
pub(crate) fn counted(context: &SessionContext) {
    let functions = context.state().aggregate_functions().clone();
    for name in COLLECT.into_iter().chain(ANEW) {
        let Some(inner) = functions.get(name) else { continue };
        context
            .register_udaf(AggregateUDF::new_from_shared_impl(Arc::new(MeteredAggregate(Arc::clone(inner.inner())))));
    }
}

#[derive(Debug)]
struct MeteredAggregate(Arc<dyn AggregateUDFImpl>);

impl PartialEq for MeteredAggregate {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl Eq for MeteredAggregate {}

impl std::hash::Hash for MeteredAggregate {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
    }
}

fn around(inner: Box<dyn Accumulator>, args: &AccumulatorArgs) -> Box<dyn Accumulator> {
    if is_small(args.return_field.data_type()) {
        return inner;
    }
    Box::new(CountedAccumulator { inner, n_rows: 0, bytes: 0, counted: 0 })
}

#[deny(clippy::missing_trait_methods)]
impl AggregateUDFImpl for MeteredAggregate {
    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(around(self.0.accumulator(args.clone())?, &args))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(around(moving(&self.0, args.clone())?, &args))
    }

    fn with_beneficial_ordering(self: Arc<Self>, is_beneficial: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = Arc::clone(&self.0).with_beneficial_ordering(is_beneficial)?;
        Ok(inner.map(|inner| Arc::new(MeteredAggregate(inner)) as _))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        // Of DISTINCT values their accumulators forget that they are reversed, and answer them in the other order.
        // They sort what does not come in theirs.
        if matches!(self.name(), "array_agg" | "string_agg") {
            return ReversedUDAF::NotSupported;
        }
        match self.0.reverse_expr() {
            ReversedUDAF::Reversed(reversed) => ReversedUDAF::Reversed(Arc::new(AggregateUDF::new_from_shared_impl(
                Arc::new(MeteredAggregate(Arc::clone(reversed.inner()))),
            ))),
            other => other,
        }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.0.window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.0.window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.0.return_type(arg_types)
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        self.0.return_field(arg_fields)
    }

    fn is_nullable(&self) -> bool {
        self.0.is_nullable()
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.0.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        self.0.create_groups_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.0.simplify()
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        arg: &Expr,
        op: Operator,
        literal: &Expr,
        is_left: bool,
    ) -> Result<Option<Expr>> {
        self.0.simplify_expr_op_literal(function, arg, op, literal, is_left)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.0.coerce_types(arg_types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.0.is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.0.value_from_stats(args)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.0.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.0.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.0.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.0.set_monotonicity(data_type)
    }
}

/// An accumulator, and what it gave.
#[derive(Debug)]
struct CountedAccumulator {
    inner: Box<dyn Accumulator>,
    /// That it was given, before it gave the first value.
    n_rows: usize,
    /// Of its values.
    bytes: usize,
    counted: usize,
}

#[deny(clippy::missing_trait_methods)]
impl Accumulator for CountedAccumulator {
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.inner.evaluate()?;
        // The first may be for all the rows that there are, or for its peers.
        let n_rows = std::mem::take(&mut self.n_rows).max(1);
        self.bytes = self.bytes.saturating_add(value.size());
        let bytes = self.bytes.max(if self.counted == 0 { value.size().saturating_mul(n_rows) } else { 0 });
        if bytes > self.counted {
            give(bytes - self.counted)?;
            self.counted = bytes;
        }
        Ok(value)
    }

    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.n_rows += values.first().map_or(0, |values| values.len());
        self.inner.update_batch(values)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}
