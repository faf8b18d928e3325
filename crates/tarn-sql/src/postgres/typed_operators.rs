//! Which operators have another type, or value, than DataFusion gives them? Quotients of numerics (`division`), and
//! long products (`products`), shifts (`shifts`), `~` (`pattern_operators`), LIKE of some patterns (`like_patterns`),
//! and `= ANY` of an array (`in_array`). One rule looks at all of them, from the inner ones to the outer ones: a
//! product of quotients has no type before these have theirs.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::{datafusion, each_expression};

use super::like_patterns::LikePatterns;
use super::pattern_operators::PatternOperators;
use super::shifts::OfBits;
use super::{division, in_array, products};

/// The rule; it runs before types are made one.
#[derive(Debug)]
pub(super) struct TypedOperators {
    quotient: Arc<ScalarUDF>,
    product: Arc<ScalarUDF>,
    bits: OfBits,
    patterns: PatternOperators,
    likes: LikePatterns,
    in_array: Arc<ScalarUDF>,
}

impl TypedOperators {
    pub(super) fn new() -> TypedOperators {
        let (quotient, product) = (division::function(), products::function());
        let (bits, patterns) = (OfBits::new(), PatternOperators::new());
        TypedOperators { quotient, product, bits, patterns, likes: LikePatterns::new(), in_array: in_array::function() }
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
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match self.bits.of(op, &left, &right, schema) {
                Some(function) => {
                    let call = ScalarFunction::new_udf(Arc::clone(function), vec![*left, *right]);
                    Transformed::yes(Expr::ScalarFunction(call))
                }
                None => self.patterns.rewritten(Expr::BinaryExpr(BinaryExpr { left, op, right }), schema)?,
            },
            Expr::ScalarFunction(call) if call.func.name() == in_array::NAME && call.func != self.in_array => {
                let call = ScalarFunction::new_udf(Arc::clone(&self.in_array), call.args);
                Transformed::yes(Expr::ScalarFunction(call))
            }
            Expr::Like(like) => self.likes.rewritten(like, schema)?,
            other => Transformed::no(other),
        })
    }
}

impl AnalyzerRule for TypedOperators {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| self.rewritten(expr, schema))
    }

    fn name(&self) -> &str {
        "typed_operators"
    }
}
