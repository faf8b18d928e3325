//! Of which type is a rank? `row_number()`, `rank()` and `dense_rank()` are `bigint` in PostgreSQL, `ntile(n)` an
//! `integer`. DataFusion's are unsigned, which clients are told as `numeric`.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::functions_window::{ntile, rank, row_number};
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::window_offsets;

/// Functions to be registered over those of the same name.
pub(super) fn ranks() -> Vec<Arc<WindowUDF>> {
    let bigint = [row_number::row_number_udwf(), rank::rank_udwf(), rank::dense_rank_udwf()];
    let bigint = bigint.map(|inner| (inner, DataType::Int64));
    let all = bigint.into_iter().chain([(window_offsets::checked(ntile::ntile_udwf()), DataType::Int32)]);
    all.map(|(inner, gives)| Arc::new(WindowUDF::from(SignedRank { inner, gives }))).collect()
}

/// A function whose answers are of another type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SignedRank {
    inner: Arc<WindowUDF>,
    gives: DataType,
}

impl WindowUDFImpl for SignedRank {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(args)?;
        Ok(Box::new(SignedEvaluator { inner, gives: self.gives.clone() }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let nullable = self.inner.field(WindowUDFFieldArgs::new(args.input_fields(), args.name()))?.is_nullable();
        Ok(Arc::new(Field::new(args.name(), self.gives.clone(), nullable)))
    }

    fn sort_options(&self) -> Option<arrow::compute::SortOptions> {
        self.inner.sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.reverse_expr() {
            ReversedUDWF::Identical => ReversedUDWF::Identical,
            _ => ReversedUDWF::NotSupported,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct SignedEvaluator {
    inner: Box<dyn PartitionEvaluator>,
    gives: DataType,
}

impl PartitionEvaluator for SignedEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, idx: usize, n_rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(idx, n_rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all(values, num_rows)?, &self.gives)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.gives)
    }

    fn evaluate_all_with_rank(&self, num_rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all_with_rank(num_rows, ranks)?, &self.gives)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
