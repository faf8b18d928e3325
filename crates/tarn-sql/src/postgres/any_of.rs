//! What is `a >= ANY ('{1,2}')`, and `a LIKE ALL (ARRAY['x%', '%y'])`? What each item is asked for, one OR or AND the
//! other. The planner asks a text as a whole, and knows no LIKE of several patterns.
//!
//! Items that are written out are asked one by one, so that a text among them is read as what stands beside it. What is
//! compared is written as often, so it must be a column or a constant; `= ANY` and `<> ALL` of texts are lists
//! (`select_list`).

use tarn_query::array_items;
use tarn_query::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator, Value,
};

use super::calls::{binary, is_named};
use crate::error::{Result, SqlError};

/// Writes out comparisons with the items of a text, and LIKE of several patterns.
///
/// Errors: `22P02` for a text that is no array; `0A000` for patterns that are not written out.
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::AnyOp { left, compare_op, right, .. } if is_comparison(compare_op) && is_repeatable(left) => {
            if let Some(items) = items_of_text(right)? {
                *expr = joined(items, BinaryOperator::Or, |item| binary(*left.clone(), compare_op.clone(), item));
            }
        }
        Expr::AllOp { left, compare_op, right } if is_comparison(compare_op) && is_repeatable(left) => {
            if let Some(items) = items_of_text(right)? {
                *expr = joined(items, BinaryOperator::And, |item| binary(*left.clone(), compare_op.clone(), item));
            }
        }
        Expr::Like { any, expr: of, pattern, .. } | Expr::ILike { any, expr: of, pattern, .. } => {
            let (op, patterns) = match (*any, all_patterns(pattern)) {
                (true, _) => (BinaryOperator::Or, pattern.as_ref()),
                (false, Some(all)) => (BinaryOperator::And, all),
                (false, None) => return Ok(()),
            };
            let items = match patterns {
                Expr::Nested(inner) => written_out(inner)?,
                patterns => written_out(patterns)?,
            };
            let Some(items) = items.filter(|_| is_repeatable(of)) else {
                return Err(SqlError::unsupported(
                    "LIKE ANY and LIKE ALL of patterns that are not written out are not supported",
                    "EXISTS (SELECT FROM unnest(patterns) p WHERE a LIKE p)",
                ));
            };
            let one = expr.clone();
            *expr = joined(items, op, |item| {
                let mut like = one.clone();
                if let Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } = &mut like {
                    (*any, **pattern) = (false, item);
                }
                like
            });
        }
        _ => {}
    }
    Ok(())
}

/// But for what is a list.
fn is_comparison(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | Gt | GtEq | Lt | LtEq | NotEq)
}

/// What may be asked for more than once.
fn is_repeatable(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::TypedString(_) => true,
        Expr::Nested(expr) | Expr::Cast { expr, .. } | Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            is_repeatable(expr)
        }
        _ => false,
    }
}

fn items_of_text(array: &Expr) -> Result<Option<Vec<Expr>>> {
    match array {
        Expr::Nested(inner) => items_of_text(inner),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => {
                let literal = |item: Option<String>| item.map_or(Value::Null, Value::SingleQuotedString);
                let items = array_items(text)?.into_iter();
                Ok(Some(items.map(|item| Expr::Value(literal(item).with_empty_span())).collect()))
            }
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

fn written_out(array: &Expr) -> Result<Option<Vec<Expr>>> {
    match array {
        Expr::Array(array) => Ok(Some(array.elem.clone())),
        array => items_of_text(array),
    }
}

/// `LIKE ALL (patterns)`, which the parser takes for a function.
fn all_patterns(pattern: &Expr) -> Option<&Expr> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), over: None, .. }) = pattern else {
        return None;
    };
    match &list.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(patterns))] if is_named(name, "all") => Some(patterns),
        _ => None,
    }
}

/// Of no items, none is, and all are.
fn joined(items: Vec<Expr>, op: BinaryOperator, one: impl Fn(Expr) -> Expr) -> Expr {
    let is_all = op == BinaryOperator::And;
    // From the leaves up: thousands are not deep.
    let mut terms: Vec<Expr> = items.into_iter().map(one).collect();
    while terms.len() > 1 {
        let mut rest = terms.into_iter();
        let mut pairs = Vec::with_capacity(rest.len().div_ceil(2));
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                None => left,
                Some(right) => binary(left, op.clone(), right),
            });
        }
        terms = pairs;
    }
    match terms.pop() {
        Some(term) => Expr::Nested(Box::new(term)),
        None => Expr::Value(Value::Boolean(is_all).with_empty_span()),
    }
}
