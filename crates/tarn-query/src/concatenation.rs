//! What does `a || b` allocate? An operator is called by nobody that could be asked before: thirty names of WITH, each
//! of which is the last one twice, are 400 bytes of a statement and a text of gigabytes. So the operator becomes a
//! function, and is bounded as functions are (`bounded.rs`).

use std::sync::Arc;

use arrow::array::{ArrayRef, Datum, UInt32Array, make_array};
use arrow::compute::kernels::concat_elements::concat_elements_dyn;
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use crate::bounded::{Lengths, OPERATOR, sum_of_arguments};
use crate::operator_function::{BinaryKernel, operator_function};
use crate::rewrite::each_expression;

/// The rule; it runs when types are known.
#[derive(Debug)]
pub(crate) struct Concatenation(Arc<ScalarUDF>);

impl Concatenation {
    pub(crate) fn new(lengths: &Arc<Lengths>) -> Concatenation {
        Concatenation(Arc::new(sum_of_arguments(operator_function(ConcatKernel), lengths)))
    }
}

impl AnalyzerRule for Concatenation {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, _| {
            Ok(match expr {
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
                    let call = ScalarFunction { func: Arc::clone(&self.0), args: vec![*left, *right] };
                    Transformed::yes(Expr::ScalarFunction(call))
                }
                other => Transformed::no(other),
            })
        })
    }

    fn name(&self) -> &str {
        "bounded_concatenation"
    }
}

/// Two values of one type behind each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ConcatKernel;

impl BinaryKernel for ConcatKernel {
    fn symbol(&self) -> &'static str {
        OPERATOR
    }

    fn result(&self, left: &DataType, _: &DataType) -> Result<DataType> {
        Ok(left.clone())
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        let n_rows = match (left.get(), right.get()) {
            ((_, true), (rows, _)) => rows.len(),
            ((rows, false), _) => rows.len(),
        };
        Ok(concat_elements_dyn(&side(left, n_rows)?, &side(right, n_rows)?)?)
    }
}

/// A constant as a column of it.
fn side(of: &dyn Datum, n_rows: usize) -> Result<ArrayRef> {
    Ok(match of.get() {
        (constant, true) => take(constant, &UInt32Array::from_value(0, n_rows), None)?,
        (column, false) => make_array(column.to_data()),
    })
}
