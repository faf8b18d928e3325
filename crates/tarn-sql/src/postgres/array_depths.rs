//! Of how many dimensions is `'{{1,2},{3,4}}'::int[]`, or `ARRAY[[1, 2]]::text[][][]`? Of two. A type of PostgreSQL's
//! does not say how many dimensions its arrays have, and ours are arrays of arrays, whose types do.
//!
//! So a cast to an array of what is written out gets as many dimensions as that has, and is one of its items. What is
//! cast from a column has one; and a slice without a bound gets one. `unnest` gives the items of all dimensions, and
//! `array_fill(7, ARRAY[2, 3])` has two.

use tarn_query::sqlparser::ast::{
    AccessExpr, Array, ArrayElemTypeDef, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Subscript, UnaryOperator, Value,
};
use tarn_types::array_parts;

use super::calls::{call, is_named, number, take};
use super::kept_as_text::items_cast_to;

/// Dimensions that an array may have.
const MAX_DIMENSIONS: usize = 6;
/// Items that no array has.
const LAST: u64 = i32::MAX as u64;

/// Gives a cast as many dimensions as what it is of has, and slices their bounds.
pub(super) fn rewrite(expr: &mut Expr) {
    match expr {
        Expr::Cast { expr: of, data_type: data_type @ DataType::Array(_), .. } => {
            let is_kept_as_text = items_cast_to(data_type).is_some();
            if let Some(item) = item(data_type) {
                if !is_kept_as_text {
                    cast_items(of, item);
                }
                let n_dimensions = dimensions(of);
                *data_type = (0..n_dimensions)
                    .fold(item.clone(), |of, _| DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(of), None)));
            }
        }
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) if is_named(name, "unnest") => {
            if let [FunctionArg::Unnamed(FunctionArgExpr::Expr(of))] = &mut list.args[..] {
                flatten(of);
            }
        }
        // An array of several lengths is one of arrays.
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) if is_named(name, "array_fill") => {
            if let [
                FunctionArg::Unnamed(FunctionArgExpr::Expr(item)),
                FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(lengths))),
            ] = &mut list.args[..]
                && let [_, inner @ ..] = &lengths.elem[..]
                && inner.len() < MAX_DIMENSIONS
            {
                let integers = || {
                    let item = Box::new(DataType::Integer(None));
                    DataType::Array(ArrayElemTypeDef::SquareBracket(item, None))
                };
                let of =
                    |length: &Expr| cast(Expr::Array(Array { elem: vec![length.clone()], named: true }), integers());
                let filled =
                    inner.iter().rev().fold(take(item), |item, length| call("array_fill", vec![item, of(length)]));
                *item = filled;
                lengths.elem.truncate(1);
            }
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            // `(a[1:2])[1]` is of what the first gives, `a[1:2][1]` another slice: the planner sees no parentheses.
            if let Expr::Nested(inner) = root.as_ref()
                && matches!(inner.as_ref(), Expr::CompoundFieldAccess { .. })
            {
                **root = call("coalesce", vec![inner.as_ref().clone()]);
            }
            for access in access_chain {
                if let AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }) = access {
                    lower_bound.get_or_insert_with(|| number(1));
                    upper_bound.get_or_insert_with(|| number(LAST));
                }
            }
        }
        _ => {}
    }
}

/// Items that are constants are cast one by one: as `'NaN'` and 1.5 they are of no common type.
fn cast_items(array: &mut Expr, to: &DataType) {
    let Expr::Array(Array { elem, .. }) = array else { return };
    for item in elem {
        let is_constant = match &*item {
            Expr::Value(value) => !matches!(value.value, Value::Placeholder(_)),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => matches!(expr.as_ref(), Expr::Value(_)),
            _ => false,
        };
        match is_constant {
            true => *item = cast(take(item), to.clone()),
            false => cast_items(item, to),
        }
    }
}

fn cast(of: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(of), data_type, array: false, format: None }
}

/// Makes one dimension of those that an array is written with.
pub(super) fn flatten(array: &mut Expr) {
    for _ in 1..dimensions(array) {
        *array = call("flatten", vec![take(array)]);
    }
}

/// What an array of any number of dimensions has items of.
fn item(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => match item.as_ref() {
            array @ DataType::Array(_) => self::item(array),
            item => Some(item),
        },
        _ => None,
    }
}

fn dimensions(of: &Expr) -> usize {
    match of {
        Expr::Nested(of) => dimensions(of),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => array_parts(text).map_or(1, |parts| parts.dimensions.len().max(1)),
            _ => 1,
        },
        Expr::Array(Array { elem, .. }) => match elem.first() {
            Some(first @ Expr::Array(_)) => 1 + dimensions(first),
            Some(Expr::Cast { expr, data_type: DataType::Array(_), .. }) => 1 + dimensions(expr),
            _ => 1,
        },
        Expr::Cast { expr, data_type: DataType::Array(_), .. } => dimensions(expr),
        _ => 1,
    }
}
