//! What is `ok = 't'`? A text that is written out beside a `boolean` is one, as beside a value of any other type. The
//! planner knows that of numbers and times alone, and refuses it here before rules see it.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::BinaryOperator;

use crate::error::{SqlError, state};

/// Reads such texts.
#[derive(Debug)]
pub(super) struct Truths;

impl ExprPlanner for Truths {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_truth = |side: &Expr| matches!(side.get_type(schema), Ok(DataType::Boolean));
        // `'a' || true` is a text.
        if expr.op == BinaryOperator::StringConcat {
            return Ok(PlannerResult::Original(expr));
        }
        let RawBinaryExpr { op, left, right } = expr;
        let (left, right) = match (text(&left), text(&right)) {
            // It is a text with the word behind it.
            _ if op == BinaryOperator::StringConcat => (left, right),
            (Some(of), None) if is_truth(&right) => (truth(of)?, right),
            (None, Some(of)) if is_truth(&left) => (left, truth(of)?),
            _ => (left, right),
        };
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

/// A text that is written out.
fn text(side: &Expr) -> Option<&str> {
    match side {
        Expr::Literal(value, None) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// Any beginning of the words, in any case.
fn truth(text: &str) -> Result<Expr> {
    let word = text.trim().to_ascii_lowercase();
    let begins = |of: &str, n_letters: usize| word.len() >= n_letters && of.starts_with(&word);
    let value = match () {
        () if word == "1" || begins("true", 1) || begins("yes", 1) || word == "on" => true,
        () if word == "0" || begins("false", 1) || begins("no", 1) || begins("off", 2) => false,
        () => {
            let message = format!("invalid input syntax for type boolean: \"{text}\"");
            return Err(SqlError::new(state::INVALID_TEXT, message).with_hint("'t' or 'f'").into());
        }
    };
    Ok(Expr::Literal(ScalarValue::Boolean(Some(value)), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_postgresql_reads_them() {
        let of =
            |text: &str| truth(text).ok().map(|truth| truth == Expr::Literal(ScalarValue::Boolean(Some(true)), None));
        for text in ["t", "TRUE", " tr ", "y", "yes", "on", "1"] {
            assert_eq!(of(text), Some(true), "{text}");
        }
        for text in ["f", "fals", "n", "no", "of", "off", "0"] {
            assert_eq!(of(text), Some(false), "{text}");
        }
        for text in ["", "o", "maybe", "tf", "10"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
