//! What does an operator make of addresses? `ip << '10.0.0.0/8'`, `ip + 1`, `ip - '10.0.0.1'`, `ip || '!'`: planned
//! here as functions, before the planner refuses them. A text that is written out beside an address is one, and a
//! parameter too; what PostgreSQL has no operator of is told (42883).

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::BinaryOperator;

use super::function::InetFunction;
use super::{as_inet, called, is_inet, no_operator};
use crate::postgres::json::is_untyped;

/// Plans the operators.
#[derive(Debug)]
pub(super) struct InetOperators;

impl ExprPlanner for InetOperators {
    fn plan_array_literal(&self, items: Vec<Expr>, schema: &DFSchema) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Original(items_as_inets(items, schema)?))
    }

    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{
            And, BitwiseAnd, BitwiseOr, Custom, Eq, Gt, GtEq, Lt, LtEq, Minus, NotEq, Or, PGBitwiseShiftLeft,
            PGBitwiseShiftRight, PGOverlap, Plus, StringConcat,
        };
        let RawBinaryExpr { op, mut left, mut right } = expr;
        let sides = (is_inet(&left, schema), is_inet(&right, schema));
        if sides == (false, false) || matches!(op, And | Or) {
            return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
        }
        let refused =
            |left: &Expr, right: &Expr| no_operator(&called(left, schema), &op.to_string(), &called(right, schema));
        // An address by now, or NULL.
        let is_known = |of: &Expr| is_inet(of, schema) || of.get_type(schema).is_ok_and(|of| of.is_null());
        let is_integer = |of: &Expr| of.get_type(schema).is_ok_and(|of| of.is_integer());
        let what = match &op {
            PGBitwiseShiftLeft => InetFunction::Within,
            PGBitwiseShiftRight => InetFunction::Contains,
            Custom(name) if name == "<<=" => InetFunction::WithinOrSame,
            Custom(name) if name == ">>=" => InetFunction::ContainsOrSame,
            PGOverlap => InetFunction::Overlaps,
            BitwiseAnd => InetFunction::And,
            BitwiseOr => InetFunction::Or,
            Plus => {
                if !sides.0 {
                    std::mem::swap(&mut left, &mut right);
                }
                if is_untyped(&right) {
                    right = as_number(right);
                }
                if !is_integer(&right) {
                    if !sides.0 {
                        std::mem::swap(&mut left, &mut right);
                    }
                    return Err(refused(&left, &right).into());
                }
                return Ok(PlannerResult::Planned(InetFunction::Plus.call(vec![left, right])));
            }
            Minus if sides.0 && is_integer(&right) => {
                return Ok(PlannerResult::Planned(InetFunction::Minus.call(vec![left, right])));
            }
            Minus => InetFunction::Between,
            // Each becomes a text as a cast makes one of it.
            StringConcat if sides != (true, true) => {
                let is_text = |of: &Expr| is_untyped(of) || of.get_type(schema).is_ok_and(|of| of.is_string());
                let other = if sides.0 { &right } else { &left };
                // An item of an array, which is put to it.
                if other.get_type(schema).is_ok_and(|of| of.is_list()) {
                    return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
                }
                if !is_text(other) {
                    return Err(refused(&left, &right).into());
                }
                let text = |of: Expr, is_inet: bool| if is_inet { cast(of, DataType::Utf8) } else { of };
                let (left, right) = (text(left, sides.0), text(right, sides.1));
                return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
            }
            Eq | NotEq | Lt | LtEq | Gt | GtEq => {
                let (left, right) = as_inets(left, right, sides)?;
                if !(is_known(&left) && is_known(&right)) {
                    return Err(refused(&left, &right).into());
                }
                return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
            }
            _ => return Err(refused(&left, &right).into()),
        };
        let (left, right) = as_inets(left, right, sides)?;
        match is_known(&left) && is_known(&right) {
            true => Ok(PlannerResult::Planned(what.call(vec![left, right]))),
            false => Err(refused(&left, &right).into()),
        }
    }
}

/// What has no type yet, among items of an array that are addresses.
fn items_as_inets(items: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
    if !items.iter().any(|item| is_inet(item, schema)) {
        return Ok(items);
    }
    items.into_iter().map(|item| if is_untyped(&item) { as_inet(item) } else { Ok(item) }).collect()
}

/// What has no type yet is of that of the other side.
fn as_inets(left: Expr, right: Expr, (is_left, is_right): (bool, bool)) -> Result<(Expr, Expr)> {
    let read = |of: Expr, is_inet: bool| match !is_inet && is_untyped(&of) {
        true => as_inet(of),
        false => Ok(of),
    };
    Ok((read(left, is_left)?, read(right, is_right)?))
}

/// What has no type yet, as a `bigint`.
fn as_number(of: Expr) -> Expr {
    match of {
        Expr::Placeholder(mut parameter) => {
            parameter.field = Some(Arc::new(Field::new("", DataType::Int64, true)));
            Expr::Placeholder(parameter)
        }
        of => cast(of, DataType::Int64),
    }
}
