//! What does `~` match? What PostgreSQL's patterns mean: `.` a newline, too, `\m` the beginning of a word, `a{` itself.
//! DataFusion takes them for patterns of the engine, and what is none is no error of the statement there. So `a ~ b` is
//! `regexp_like(a, b)`.
//!
//! A pattern that is written out, and means the same to both, stays an operator: DataFusion looks for the texts in it,
//! and leaves out blocks.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, ScalarUDF, lit};
use tarn_query::datafusion;

use super::regular_expressions::like;

/// What stands for the operators; `typed_operators` asks it.
#[derive(Debug)]
pub(super) struct PatternOperators(Arc<ScalarUDF>);

impl PatternOperators {
    pub(super) fn new() -> PatternOperators {
        PatternOperators(like())
    }

    pub(super) fn rewritten(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return Ok(Transformed::no(expr)) };
        let (ignores_case, is_not) = match op {
            Operator::RegexMatch => (false, false),
            Operator::RegexIMatch => (true, false),
            Operator::RegexNotMatch => (false, true),
            Operator::RegexNotIMatch => (true, true),
            _ => return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
        };
        let is_text = |of: &Expr| of.get_type(schema).is_ok_and(|of| of.is_string() || of == DataType::Null);
        let pattern = right.as_literal().and_then(|pattern| pattern.try_as_str().flatten());
        if pattern.is_some_and(is_alike) || !is_text(&left) || !is_text(&right) {
            return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
        }
        let mut args = vec![*left, *right];
        args.extend(ignores_case.then(|| lit("i")));
        let call = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&self.0), args));
        Ok(Transformed::yes(if is_not { Expr::Not(Box::new(call)) } else { call }))
    }
}

/// Whether a pattern is made of letters, alternatives and ends alone.
fn is_alike(pattern: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || " _-/:,;=@#%&<>!'\"~^$|()".contains(c);
    pattern.chars().all(is_plain) && !pattern.contains("()") && regex::Regex::new(pattern).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_patterns_are_told() {
        assert!(["", "abc", "^abc$", "^(a|b c)$", "ä-1"].into_iter().all(is_alike));
        assert!(!["a.c", "(", "{", "a\\mb", "[a]", "a*", "()", "(?i)a", "***=a"].into_iter().any(is_alike));
    }
}
