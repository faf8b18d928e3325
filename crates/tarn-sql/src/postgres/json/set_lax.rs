//! What does `jsonb_set_lax(target, path, value, creates, treatment)` do? What `jsonb_set` does, and where the value is
//! NULL, what the treatment says: sets a `null` of JSON, deletes, leaves the target as it is, or fails. It is written
//! out so.

use tarn_query::sqlparser::ast::helpers::attached_token::AttachedToken;
use tarn_query::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};

use crate::error::{Result, SqlError, state};
use crate::names::fold;
use crate::postgres::calls::{binary, call, take};
use crate::postgres::kept_as_text::JSONB;

const TREATMENTS: [&str; 4] = ["use_json_null", "delete_key", "return_target", "raise_exception"];

/// Writes out a call.
///
/// Errors: `22023` for a treatment that is none; `22004` for a NULL that is written out and must not be there; `0A000`
/// for a treatment that is computed, and for one that would have to fail row by row.
pub(super) fn write_out(expr: &mut Expr) -> Result<()> {
    let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = expr else { return Ok(()) };
    let mut treatment = None;
    let mut args = Vec::with_capacity(5);
    for arg in &mut list.args {
        match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => args.push(take(arg)),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(arg), .. }
                if fold(name) == "null_value_treatment" =>
            {
                treatment = Some(take(arg));
            }
            _ => return Ok(()),
        }
    }
    let mut args = args.into_iter();
    let (Some(target), Some(path), Some(value)) = (args.next(), args.next(), args.next()) else { return Ok(()) };
    let creates = args.next();
    let treatment = treatment_of(treatment.or_else(|| args.next()))?;
    let is_null = matches!(&value, Expr::Value(value) if value.value == Value::Null);
    if treatment == "raise_exception" {
        let error = match is_null {
            true => SqlError::new(state::NULL_VALUE_NOT_ALLOWED, "JSON value must not be null")
                .with_hint("another null_value_treatment, or a value"),
            false => SqlError::unsupported(
                "jsonb_set_lax with raise_exception is not supported",
                "jsonb_set, in a CASE that looks for NULL",
            ),
        };
        return Err(error);
    }
    let json = |of: Expr| call(JSONB, vec![of]);
    let text = |text: &str| Expr::Value(Value::SingleQuotedString(text.to_owned()).with_empty_span());
    let (target, value) = (json(target), json(value));
    let set = |value: Expr| {
        call("jsonb_set", [target.clone(), path.clone(), value].into_iter().chain(creates.clone()).collect())
    };
    let instead = match treatment {
        "use_json_null" => set(json(text("null"))),
        "delete_key" => Expr::Nested(Box::new(binary(target.clone(), BinaryOperator::HashMinus, path.clone()))),
        _ => target.clone(),
    };
    *expr = Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: Expr::IsNull(Box::new(value.clone())), result: instead }],
        else_result: Some(Box::new(set(value))),
    };
    Ok(())
}

fn treatment_of(treatment: Option<Expr>) -> Result<&'static str> {
    let Some(treatment) = treatment else { return Ok(TREATMENTS[0]) };
    let Expr::Value(value) = &treatment else {
        return Err(SqlError::unsupported(
            "jsonb_set_lax with a treatment that is computed is not supported",
            "write it out: 'delete_key'",
        ));
    };
    let named = match &value.value {
        Value::SingleQuotedString(name) => TREATMENTS.into_iter().find(|treatment| treatment == name),
        _ => None,
    };
    named.ok_or_else(|| {
        let all = TREATMENTS.map(|treatment| format!("\"{treatment}\"")).join(", ");
        SqlError::new(state::INVALID_PARAMETER_VALUE, format!("null_value_treatment must be one of {all}"))
    })
}
