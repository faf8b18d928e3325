//! Which operators of numerics have another type than DataFusion gives them? Quotients (`division`), and long products (`products`). One rule looks
//! at both, from the inner ones to the outer ones: a product of quotients has no type before these have theirs.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::{datafusion, each_expression};

use super::{division, products};

/// The rule; it runs before types are made one.
#[derive(Debug)]
pub(super) struct NumericOperators {
    quotient: Arc<ScalarUDF>,
    product: Arc<ScalarUDF>,
}

impl NumericOperators {
    pub(super) fn new() -> NumericOperators {
        NumericOperators { quotient: division::function(), product: products::function() }
    }

    fn rewritten(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right })
                if division::is_numeric(&left, &right, schema) =>
            {
                Transformed::yes(division::planned(&self.quotient, *left, *right))
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Multiply, right })
                if products::is_long(&left, &right, schema) =>
            {
                let call = ScalarFunction::new_udf(Arc::clone(&self.product), vec![*left, *right]);
                Transformed::yes(Expr::ScalarFunction(call))
            }
            other => Transformed::no(other),
        })
    }
}

impl AnalyzerRule for NumericOperators {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| self.rewritten(expr, schema))
    }

    fn name(&self) -> &str {
        "numeric_operators"
    }
}
