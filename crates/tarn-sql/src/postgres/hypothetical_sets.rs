//! Which rank would a row have that is not there? `rank(3) WITHIN GROUP (ORDER BY x)`, and `dense_rank`, `percent_rank`
//! and `cume_dist`. DataFusion has them of windows alone.
//!
//! So they are counted: the rows that stand before it, `count(*) FILTER (WHERE x < 3) + 1`, by what each key says of
//! NULL.

use std::ops::ControlFlow;

use tarn_query::each_expr;
use tarn_query::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, OrderByExpr, SelectItem, Value, helpers::attached_token::AttachedToken,
};

use super::calls::{all_of, binary, call, is_named, number};
use crate::error::{Result, SqlError, state};

const NAMES: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

/// A column that is one is called as the function.
pub(super) fn name(item: &mut SelectItem) {
    if let SelectItem::UnnamedExpr(expr) = item
        && let Some((of, _)) = function_of(expr)
    {
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: of.into() };
    }
}

/// Writes the ranks of rows that are not there as counts.
///
/// Errors: `42883` for other numbers of values than of keys; `0A000` for a `dense_rank` by several keys, and for values
/// that are columns: which of them a row that is not there has, is not asked where rows are counted.
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    let Some((of, function)) = function_of(expr) else { return Ok(()) };
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    let values = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    });
    let values = values.collect::<Option<Vec<_>>>().filter(|values| values.len() == function.within_group.len());
    let Some(values) = values.filter(|_| list.duplicate_treatment.is_none() && list.clauses.is_empty()) else {
        let message = format!("function {of} with these arguments does not exist");
        return Err(SqlError::new(state::UNDEFINED_FUNCTION, message)
            .with_hint(format!("{of} WITHIN GROUP is of a value for each key of its ORDER BY")));
    };
    let is_column = |part: &Expr| match part {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Function(_) | Expr::Subquery(_) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    if values.iter().any(|value| each_expr(*value, is_column).is_break()) {
        return Err(SqlError::unsupported(
            format!("{of} WITHIN GROUP of what is no constant is not supported"),
            "a constant",
        ));
    }
    let keys: Vec<(&OrderByExpr, &Expr)> = function.within_group.iter().zip(values).collect();
    let condition = |condition: Expr| match &function.filter {
        Some(filter) => nested(binary(nested(*filter.clone()), BinaryOperator::And, nested(condition))),
        None => condition,
    };
    let count = |filter: Option<Expr>| {
        let mut count = call("count", vec![number(1)]);
        if let Expr::Function(function) = &mut count {
            function.filter = filter.map(Box::new);
        }
        count
    };
    let all = || count(function.filter.as_deref().cloned());
    let before = || count(Some(condition(stands_before(&keys))));
    let plus = |left: Expr, right: Expr| binary(left, BinaryOperator::Plus, right);
    let written = match of {
        "rank" => plus(before(), number(1)),
        "dense_rank" => {
            let [(key, _)] = keys[..] else {
                return Err(SqlError::unsupported(
                    "dense_rank of a row that is not there, by several keys, is not supported",
                    "count(DISTINCT (a, b)) FILTER (WHERE …)",
                ));
            };
            let mut values = call("count", vec![key.expr.clone()]);
            if let Expr::Function(Function { filter, args: FunctionArguments::List(list), .. }) = &mut values {
                *filter = Some(Box::new(condition(stands_before(&keys))));
                list.duplicate_treatment = Some(DuplicateTreatment::Distinct);
            }
            // All that are NULL are one more.
            let is_null = Expr::IsNull(Box::new(nested(key.expr.clone())));
            let nulls = count(Some(condition(binary(is_null, BinaryOperator::And, stands_before(&keys)))));
            plus(plus(values, call("least", vec![number(1), nulls])), number(1))
        }
        "percent_rank" => {
            let ratio = binary(float(before()), BinaryOperator::Divide, float(all()));
            let when = CaseWhen { condition: binary(all(), BinaryOperator::Eq, number(0)), result: float(number(0)) };
            Expr::Case {
                case_token: AttachedToken::empty(),
                end_token: AttachedToken::empty(),
                operand: None,
                conditions: vec![when],
                else_result: Some(Box::new(ratio)),
            }
        }
        _ => {
            let same = all_of(keys.iter().map(|(key, value)| same(key, value)));
            let reached = same.map_or_else(
                || stands_before(&keys),
                |same| nested(binary(stands_before(&keys), BinaryOperator::Or, nested(same))),
            );
            let reached = nested(plus(count(Some(condition(reached))), number(1)));
            binary(float(reached), BinaryOperator::Divide, float(nested(plus(all(), number(1)))))
        }
    };
    *expr = nested(written);
    Ok(())
}

fn function_of(expr: &Expr) -> Option<(&'static str, &Function)> {
    let Expr::Function(function) = expr else { return None };
    let is_set = !function.within_group.is_empty() && function.over.is_none();
    let of = NAMES.into_iter().find(|of| is_set && is_named(&function.name, of))?;
    Some((of, function))
}

/// Whether a row stands before the one that is not there: by the first key that tells them apart.
fn stands_before(keys: &[(&OrderByExpr, &Expr)]) -> Expr {
    let ways = (0..keys.len()).filter_map(|nth| {
        let as_far = keys[..nth].iter().map(|(key, value)| same(key, value));
        let (key, value) = keys[nth];
        all_of(as_far.chain([before(key, value)])).map(nested)
    });
    let any = ways.reduce(|left, right| binary(left, BinaryOperator::Or, right));
    nested(any.unwrap_or_else(|| Expr::Value(Value::Boolean(false).with_empty_span())))
}

fn before(key: &OrderByExpr, value: &Expr) -> Expr {
    let is_descending = key.options.asc == Some(false);
    let op = if is_descending { BinaryOperator::Gt } else { BinaryOperator::Lt };
    let (column, value) = (nested(key.expr.clone()), nested(value.clone()));
    let is_less = binary(column.clone(), op, value.clone());
    let (first, second) = match key.options.nulls_first.unwrap_or(is_descending) {
        true => (Expr::IsNull(Box::new(column)), Expr::IsNotNull(Box::new(value))),
        false => (Expr::IsNotNull(Box::new(column)), Expr::IsNull(Box::new(value))),
    };
    let by_null = nested(binary(first, BinaryOperator::And, second));
    nested(binary(is_less, BinaryOperator::Or, by_null))
}

fn same(key: &OrderByExpr, value: &Expr) -> Expr {
    nested(Expr::IsNotDistinctFrom(Box::new(nested(key.expr.clone())), Box::new(nested(value.clone()))))
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn float(expr: Expr) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type: DataType::DoublePrecision,
        array: false,
        format: None,
    }
}
