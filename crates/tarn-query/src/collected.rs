//! How large are the values of a window that collects? `string_agg(v, ',') OVER (ORDER BY id)` is a longer text in each row: 9,000 rows of
//! twenty bytes are half a gigabyte, of which no operator knows.
//!
//! So what `string_agg` and `array_agg` give more than once, each to another row, is counted in the memory of queries, as long as the
//! accumulator lives, which is as long as its partition is computed.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

/// What one accumulator gives uncounted, so that windows of a few rows need no memory.
const FREE_BYTES: usize = 256 << 10;

const COLLECT: [&str; 2] = ["string_agg", "array_agg"];

/// Puts the count around those functions of a session that collect.
pub(crate) fn counted(context: &SessionContext, pool: &Arc<dyn MemoryPool>) {
    let functions = context.state().aggregate_functions().clone();
    for name in COLLECT {
        let Some(inner) = functions.get(name) else { continue };
        let (inner, pool) = (Arc::clone(inner.inner()), Arc::clone(pool));
        context.register_udaf(AggregateUDF::new_from_shared_impl(Arc::new(Collecting { inner, pool })));
    }
}

#[derive(Debug)]
struct Collecting {
    inner: Arc<dyn AggregateUDFImpl>,
    pool: Arc<dyn MemoryPool>,
}

impl PartialEq for Collecting {
    fn eq(&self, other: &Self) -> bool {
        *self.inner == *other.inner
    }
}

impl Eq for Collecting {}

impl std::hash::Hash for Collecting {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.inner.name().hash(state);
    }
}

impl Collecting {
    fn around(&self, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        let reservation = MemoryConsumer::new(format!("{}()", self.inner.name())).register(&self.pool);
        Box::new(Given { inner, reservation, n_values: 0, bytes: 0 })
    }

    fn with(&self, inner: Arc<dyn AggregateUDFImpl>) -> Arc<dyn AggregateUDFImpl> {
        Arc::new(Collecting { inner, pool: Arc::clone(&self.pool) })
    }
}

#[deny(clippy::missing_trait_methods)]
impl AggregateUDFImpl for Collecting {
    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.around(self.inner.accumulator(args)?))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.around(self.inner.create_sliding_accumulator(args)?))
    }

    fn with_beneficial_ordering(self: Arc<Self>, is_beneficial: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = Arc::clone(&self.inner).with_beneficial_ordering(is_beneficial)?;
        Ok(inner.map(|inner| self.with(inner)))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_expr() {
            ReversedUDAF::Reversed(reversed) => ReversedUDAF::Reversed(Arc::new(AggregateUDF::new_from_shared_impl(
                self.with(Arc::clone(reversed.inner())),
            ))),
            other => other,
        }
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner.return_field(arg_fields)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        arg: &Expr,
        op: Operator,
        literal: &Expr,
        is_left: bool,
    ) -> Result<Option<Expr>> {
        self.inner.simplify_expr_op_literal(function, arg, op, literal, is_left)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(data_type)
    }
}

/// An accumulator, and what it gave.
#[derive(Debug)]
struct Given {
    inner: Box<dyn Accumulator>,
    reservation: MemoryReservation,
    n_values: usize,
    bytes: usize,
}

#[deny(clippy::missing_trait_methods)]
impl Accumulator for Given {
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.inner.evaluate()?;
        self.n_values += 1;
        self.bytes = self.bytes.saturating_add(value.size());
        // One value is the aggregate's own, which whoever asks for it counts.
        if self.n_values > 1 && self.bytes > FREE_BYTES {
            self.reservation.try_resize(self.bytes)?;
        }
        Ok(value)
    }

    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
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
