//! What is left of `2.55 % 1`? 0.55. DataFusion takes a remainder by one for zero, of every type but floats, where the
//! left side is never NULL: `amount % 1 <> 0` found no row of a column that is NOT NULL.
//!
//! Remainders of numerics are those of a function, which computes as the operator does.

use std::sync::Arc;

use arrow::array::{ArrayRef, Datum};
use arrow::compute::kernels::numeric::rem;
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::{BinaryKernel, datafusion, each_expression, operator_function};

/// The rule; it runs when both sides are numerics.
#[derive(Debug)]
pub(super) struct Remainders {
    remainder: Arc<ScalarUDF>,
}

impl Remainders {
    pub(super) fn new() -> Remainders {
        Remainders { remainder: Arc::new(operator_function(Remainder)) }
    }
}

impl AnalyzerRule for Remainders {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| {
            Ok(match expr {
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::Modulo, right })
                    if left.get_type(schema)?.is_decimal() && right.get_type(schema)?.is_decimal() =>
                {
                    let call = ScalarFunction::new_udf(Arc::clone(&self.remainder), vec![*left, *right]);
                    Transformed::yes(Expr::ScalarFunction(call))
                }
                other => Transformed::no(other),
            })
        })
    }

    fn name(&self) -> &str {
        "numeric_remainders"
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Remainder;

impl BinaryKernel for Remainder {
    fn symbol(&self) -> &'static str {
        "%"
    }

    fn result(&self, left: &DataType, right: &DataType) -> Result<DataType> {
        BinaryTypeCoercer::new(left, &Operator::Modulo, right).get_result_type()
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        Ok(rem(left, right)?)
    }
}
