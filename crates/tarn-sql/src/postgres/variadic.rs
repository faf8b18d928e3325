//! What is `f(a, VARIADIC list)`? The call of a function that takes any number of arguments, with the items of a list
//! as the last of them. Each such function has one that takes the list:
//!
//! | written | called |
//! |---|---|
//! | `concat(VARIADIC a)` | `tarn_concat('', a)` |
//! | `concat_ws(',', VARIADIC a)` | `tarn_concat(',', a)` |
//! | `format('%s', VARIADIC a)` | `tarn_format('%s', a)` |
//! | `json_build_array(VARIADIC a)` | `tarn_json_build_array(a)` |
//! | `jsonb_extract_path(doc, VARIADIC a)` | `doc #> a` |
//!
//! The parser gives `VARIADIC a` as an argument that is called so.

use tarn_query::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};

use super::calls::{binary, call, take};
use super::format::{CONCAT_LIST, FORMAT_LIST};
use super::json::written::document;
use super::json::{BUILD_ARRAY_OF, BUILD_OBJECT_OF};
use crate::error::{Result, SqlError, state};
use crate::names::fold;

/// Replaces the call of a function by that of one that takes a list.
///
/// Errors: `0A000` for a function that there is no such one of; `42883` for one that has other arguments before the
/// list.
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return Ok(()) };
    let Some(FunctionArg::Named { name: called, arg: FunctionArgExpr::Expr(items), .. }) = list.args.last_mut() else {
        return Ok(());
    };
    if called.quote_style.is_some() || fold(called) != "variadic" {
        return Ok(());
    }
    let items = take(items);
    let function = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
    let n_before = list.args.len() - 1;
    let mut before = list.args.iter_mut().take(n_before).filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => Some(take(arg)),
        _ => None,
    });
    let text = |text: &str| Expr::Value(Value::SingleQuotedString(text.to_owned()).with_empty_span());
    let written = match (function.as_str(), before.next(), before.next()) {
        ("concat", None, None) => call(CONCAT_LIST, vec![text(""), items]),
        ("concat_ws", Some(between), None) => call(CONCAT_LIST, vec![between, items]),
        ("format", Some(template), None) => call(FORMAT_LIST, vec![template, items]),
        ("json_build_array", None, None) => call(BUILD_ARRAY_OF[0], vec![items]),
        ("jsonb_build_array", None, None) => call(BUILD_ARRAY_OF[1], vec![items]),
        ("json_build_object", None, None) => call(BUILD_OBJECT_OF[0], vec![items]),
        ("jsonb_build_object", None, None) => call(BUILD_OBJECT_OF[1], vec![items]),
        (
            "json_extract_path" | "json_extract_path_text" | "jsonb_extract_path" | "jsonb_extract_path_text",
            Some(mut doc),
            None,
        ) => {
            document(&mut doc, usize::from(function.starts_with("jsonb")));
            let is_text = function.ends_with("_text");
            let op = if is_text { BinaryOperator::HashLongArrow } else { BinaryOperator::HashArrow };
            Expr::Nested(Box::new(binary(doc, op, items)))
        }
        (
            "concat" | "concat_ws" | "format" | "json_build_array" | "jsonb_build_array" | "json_build_object"
            | "jsonb_build_object",
            ..,
        ) => {
            let message = format!("function {function} with these arguments before VARIADIC does not exist");
            return Err(SqlError::new(state::UNDEFINED_FUNCTION, message)
                .with_hint("write the items as arguments of their own"));
        }
        _ => {
            return Err(SqlError::unsupported(
                format!("VARIADIC in a call of {function} is not supported"),
                "write the items as arguments of their own",
            ));
        }
    };
    *expr = written;
    Ok(())
}
