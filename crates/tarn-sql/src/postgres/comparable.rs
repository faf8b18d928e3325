//! What may be compared with what? `1 < date '2024-01-01'` and `n = t` of a number and a text are refused in PostgreSQL
//! (42883); DataFusion casts a side, or fails inside. And with what is `at < '9999-12-31'` compared? With a
//! `timestamp`; DataFusion counts nanoseconds where a text or a date stands beside one, which end in 2262.
//!
//! `d BETWEEN '2024-01-01' AND now()` is two comparisons: the text is a date, and the date an instant for the second.
//! It runs before types are made one.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, binary_expr, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression};

use super::common_types::{Strictness, TypeClass, is_written, time_together, without_blanks_in};
use super::times::compares;
use crate::error::{SqlError, state};
use crate::rows::{long_name, pg_type};

/// The rule.
#[derive(Debug)]
pub(super) struct Comparable;

impl AnalyzerRule for Comparable {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let strictness = Strictness::of(&plan)?;
        each_expression(plan, |expr, schema| rewritten(expr, schema, strictness))
    }

    fn name(&self) -> &str {
        "comparable"
    }
}

fn rewritten(mut expr: Expr, schema: &DFSchema, strictness: Strictness) -> Result<Transformed<Expr>> {
    let is_changed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => {
            check(strictness, left.as_ref(), symbol(*op), &[right.as_ref()], schema)?;
            without_blanks_in(left.as_ref(), std::slice::from_mut(right.as_mut()), schema)
                || without_blanks_in(right.as_ref(), std::slice::from_mut(left.as_mut()), schema)
                || made_one(vec![left.as_mut(), right.as_mut()], schema)
        }
        Expr::InList(InList { expr: of, list, .. }) => {
            check(strictness, of.as_ref(), "=", &list.iter().collect::<Vec<_>>(), schema)?;
            made_one(std::iter::once(of.as_mut()).chain(list).collect(), schema)
        }
        Expr::Case(case) => match &mut case.expr {
            Some(of) => {
                let whens: Vec<&Expr> = case.when_then_expr.iter().map(|(when, _)| when.as_ref()).collect();
                check(strictness, of.as_ref(), "=", &whens, schema)?;
                let whens = case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
                made_one(std::iter::once(of.as_mut()).chain(whens).collect(), schema)
            }
            None => false,
        },
        Expr::Between(Between { expr: of, negated, low, high }) => {
            let (first, second) =
                if *negated { (Operator::Lt, Operator::Gt) } else { (Operator::GtEq, Operator::LtEq) };
            check(strictness, of.as_ref(), symbol(first), &[low.as_ref()], schema)?;
            check(strictness, of.as_ref(), symbol(second), &[high.as_ref()], schema)?;
            if are_several_times([of.as_ref(), low.as_ref(), high.as_ref()], schema) {
                let side = |op: Operator, end: &Expr| {
                    rewritten(binary_expr(of.as_ref().clone(), op, end.clone()), schema, strictness)
                };
                let (low, high) = (side(first, low.as_ref())?.data, side(second, high.as_ref())?.data);
                return Ok(Transformed::yes(if *negated { low.or(high) } else { low.and(high) }));
            }
            as_compared(of.as_ref(), [low.as_mut(), high.as_mut()], schema)
                || made_one(vec![of.as_mut(), low.as_mut(), high.as_mut()], schema)
        }
        Expr::ScalarFunction(call) if call.name() == "nullif" => match &call.args[..] {
            // It is of the type of the first, whatever both are compared as.
            [value, other] if are_several_times([value, other], schema) => {
                let none = lit(ScalarValue::try_from(&value.get_type(schema)?)?);
                let same = rewritten(value.clone().eq(other.clone()), schema, strictness)?.data;
                return Ok(Transformed::yes(when(same, none).otherwise(value.clone())?));
            }
            _ => false,
        },
        _ => false,
    };
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// As PostgreSQL names operators.
fn symbol(op: Operator) -> &'static str {
    match op {
        Operator::NotEq => "<>",
        Operator::Lt => "<",
        Operator::LtEq => "<=",
        Operator::Gt => ">",
        Operator::GtEq => ">=",
        // IS DISTINCT FROM asks it, too.
        _ => "=",
    }
}

/// Errors: `42883`, values of these types are not compared.
fn check(strictness: Strictness, of: &Expr, op: &str, others: &[&Expr], schema: &DFSchema) -> Result<()> {
    if strictness == Strictness::Lenient {
        return Ok(());
    }
    let kind = |expr: &Expr| match is_written(expr) {
        true => None,
        false => expr.to_field(schema).ok().and_then(|(_, field)| Some((TypeClass::of(&field)?, field))),
    };
    let Some((left, of)) = kind(of) else { return Ok(()) };
    for (right, other) in others.iter().copied().filter_map(kind) {
        let is_known = match (left, right) {
            // JSON, UUIDs and labels have rules of their own, and a time of day is an interval beside one.
            (TypeClass::KeptAsText(_) | TypeClass::Enumerated(_), _)
            | (_, TypeClass::KeptAsText(_) | TypeClass::Enumerated(_)) => true,
            (TypeClass::TimeOfDay, TypeClass::Interval) | (TypeClass::Interval, TypeClass::TimeOfDay) => true,
            (left, right) => left == right,
        };
        if !is_known {
            let (left, right) = (long_name(&pg_type(&of)?), long_name(&pg_type(&other)?));
            let message = format!("operator does not exist: {left} {op} {right}");
            return Err(SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("cast one of them").into());
        }
    }
    Ok(())
}

/// Casts dates, times and texts that are written out to what the times among them are together. Whether there were any.
fn made_one(all: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let types: Vec<Option<DataType>> = all.iter().map(|expr| expr.get_type(schema).ok()).collect();
    let is_known =
        |expr: &Expr, of: &Option<DataType>| !is_written(expr) && !is_null(expr) && *of != Some(DataType::Null);
    let known = all.iter().zip(&types).filter(|(expr, of)| is_known(expr, of));
    let Some(known) = known.map(|(_, of)| of.as_ref()).collect::<Option<Vec<_>>>() else { return false };
    let Some(to) = time_together(known) else { return false };
    let is_instant = |of: &DataType| matches!(of, DataType::Timestamp(_, Some(_)));
    let mut is_changed = false;
    for (expr, own) in all.into_iter().zip(&types) {
        let is_other = match own {
            Some(DataType::Date32) => true,
            Some(DataType::Timestamp(_, None)) => is_instant(&to),
            Some(of) if of.is_string() => is_written(expr),
            _ => false,
        };
        if is_other {
            *expr = Expr::Cast(Cast::new(Box::new(std::mem::take(expr)), to.clone()));
            is_changed = true;
        }
    }
    is_changed
}

/// Whether all are dates and times, or written out, and of several types.
fn are_several_times<const N: usize>(all: [&Expr; N], schema: &DFSchema) -> bool {
    let known = all.into_iter().filter(|expr| !is_written(expr) && !is_null(expr));
    let Ok(types) = known.map(|expr| expr.get_type(schema)).collect::<Result<Vec<_>>>() else { return false };
    time_together(&types).is_some() && types.iter().any(|of| *of != types[0])
}

/// Texts that are written out, as the ends of truths and arrays. Whether there were any.
fn as_compared(of: &Expr, ends: [&mut Expr; 2], schema: &DFSchema) -> bool {
    let Ok(to) = of.get_type(schema) else { return false };
    let mut is_changed = false;
    for end in ends.into_iter().filter(|end| is_written(end) && !is_null(end)) {
        if to == DataType::Boolean || to.is_list() {
            *end = Expr::Cast(Cast::new(Box::new(std::mem::take(end)), to.clone()));
            is_changed = true;
        }
    }
    is_changed
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.is_null())
}
