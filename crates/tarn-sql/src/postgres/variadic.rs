//! What are the arguments of `concat(a, VARIADIC ARRAY[b, c])`? The items of the array, each of its type; of an array that is NULL the answer is NULL, but that of `format`
//! is the text. The planner knows no such argument.
//!
//! So the items of an array that is written out are written as arguments. Others are refused.

use tarn_query::parser::VARIADIC;
use tarn_query::sqlparser::ast::{
    Array, ArrayElemTypeDef, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};
use tarn_types::array_parts;

use super::calls::is_named;
use crate::error::{Result, SqlError, state};

/// Functions that take any number of arguments, behind so many.
const TAKE_ANY: [(&str, usize); 7] = [
    ("concat", 0),
    ("concat_ws", 1),
    ("format", 1),
    ("json_build_array", 0),
    ("json_build_object", 0),
    ("jsonb_build_array", 0),
    ("jsonb_build_object", 0),
];

/// Writes the arguments of a call out.
///
/// Errors: `42804` for what is no array, `42883` for a function that takes none, `0A000` for an array that is not written out.
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return Ok(()) };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(last)))) = list.args.last() else {
        return Ok(());
    };
    if !is_named(&last.name, VARIADIC) {
        return Ok(());
    }
    let FunctionArguments::List(of) = &last.args else { return Ok(()) };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(array))] = &of.args[..] else { return Ok(()) };
    if !TAKE_ANY.iter().any(|(function, n_before)| is_named(name, function) && list.args.len() == n_before + 1) {
        let message = format!("function {name} with a VARIADIC argument does not exist");
        return Err(SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("write its arguments out"));
    }
    let null = || Expr::Value(Value::Null.with_empty_span());
    let text = |text: &str| Expr::Value(Value::SingleQuotedString(text.to_owned()).with_empty_span());
    let is_format = is_named(name, "format");
    match items(array, None)? {
        Some(items) => {
            list.args.pop();
            list.args.extend(items.into_iter().map(|item| FunctionArg::Unnamed(FunctionArgExpr::Expr(item))));
            if list.args.is_empty() && is_named(name, "concat") {
                *expr = text("");
            } else if list.args.len() == 1 && is_named(name, "concat_ws") {
                list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(null())));
            }
        }
        None if is_format => drop(list.args.pop()),
        // Of a type.
        None => {
            let of = if is_named(name, "concat") || is_named(name, "concat_ws") { DataType::Text } else { json(expr) };
            *expr = cast(null(), of);
        }
    }
    Ok(())
}

/// The type that a function of JSON gives.
fn json(call: &Expr) -> DataType {
    let is_jsonb = ["jsonb_build_array", "jsonb_build_object"].iter().any(|name| super::calls::is_call(call, name));
    if is_jsonb { DataType::JSONB } else { DataType::JSON }
}

/// The items of an array that is written out, of this type if it is told. `None`: it is NULL.
fn items(array: &Expr, of: Option<&DataType>) -> Result<Option<Vec<Expr>>> {
    let typed = |item: Expr| match of {
        Some(of) => cast(item, of.clone()),
        None => item,
    };
    match array {
        Expr::Nested(array) => items(array, of),
        Expr::Cast { expr, data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)), .. } => {
            let mut item = item.as_ref();
            while let DataType::Array(ArrayElemTypeDef::SquareBracket(inner, _)) = item {
                item = inner;
            }
            items(expr, of.or(Some(item)))
        }
        Expr::Array(Array { elem, .. }) => {
            let mut all = vec![];
            for item in elem {
                match item {
                    Expr::Array(_) => all.extend(items(item, of)?.unwrap_or_default()),
                    item => all.push(typed(item.clone())),
                }
            }
            Ok(Some(all))
        }
        Expr::Value(value) => match &value.value {
            Value::Null if of.is_some() => Ok(None),
            Value::SingleQuotedString(text) if of.is_some() => {
                let parts = array_parts(text).map_err(|why| {
                    let message = format!("malformed array literal: \"{text}\"");
                    SqlError::new(state::INVALID_TEXT, message).with_detail(why.to_string())
                })?;
                let literal = |item: Option<std::borrow::Cow<'_, str>>| {
                    item.map_or(Value::Null, |item| Value::SingleQuotedString(item.into_owned())).with_empty_span()
                };
                Ok(Some(parts.items.into_iter().map(|item| typed(Expr::Value(literal(item)))).collect()))
            }
            _ => Err(SqlError::new(state::DATATYPE_MISMATCH, "VARIADIC argument must be an array")),
        },
        _ => Err(SqlError::unsupported(
            "a VARIADIC argument that is not written out is not supported",
            "array_to_string, or an array with its items",
        )),
    }
}

fn cast(of: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::DoubleColon, expr: Box::new(of), data_type, array: false, format: None }
}
