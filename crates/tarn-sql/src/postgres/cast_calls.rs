//! What is `float8(x)`? PostgreSQL has a function of one argument for each of its casts, which is called as the type
//! is: `date(now())` is `now()::date`. Rows have no such functions, and only the cast itself makes a text of one: so
//! `text(x)` stays a call until it is known what `x` is.

use tarn_query::inet;
use tarn_query::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    TimezoneInfo,
};

use super::calls::{call, is_named, take};

/// Types that are cast to so. Those whose names begin a type of several words, or have modifiers, are no functions in
/// PostgreSQL's grammar either.
const TYPES: [(&str, DataType); 11] = [
    ("bool", DataType::Boolean),
    ("int2", DataType::SmallInt(None)),
    ("int4", DataType::Integer(None)),
    ("int8", DataType::BigInt(None)),
    ("float4", DataType::Real),
    ("float8", DataType::DoublePrecision),
    ("date", DataType::Date),
    ("timestamptz", DataType::Timestamp(None, TimezoneInfo::Tz)),
    ("json", DataType::JSON),
    ("jsonb", DataType::JSONB),
    ("uuid", DataType::Uuid),
];

/// A text of anything but a row.
pub(super) const TEXT: &str = "tarn_text";

/// Makes a cast of a call.
pub(super) fn as_cast(expr: &mut Expr) {
    let Expr::Function(Function {
        name,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group,
        ..
    }) = expr
    else {
        return;
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(of))] = &mut args[..] else { return };
    // A row has no cast that is a function.
    if !clauses.is_empty() || !within_group.is_empty() || is_row(of) {
        return;
    }
    if let Some((_, data_type)) = TYPES.into_iter().find(|(called, _)| is_named(name, called)) {
        let of = Box::new(take(of));
        *expr = Expr::Cast { kind: CastKind::Cast, expr: of, data_type, array: false, format: None };
    } else if is_named(name, "inet") {
        let of = Box::new(take(of));
        *expr = Expr::Cast { kind: CastKind::Cast, expr: of, data_type: inet(), array: false, format: None };
    } else if is_named(name, "text") {
        *expr = call(TEXT, vec![take(of)]);
    }
}

fn is_row(expr: &Expr) -> bool {
    match expr {
        Expr::Tuple(_) => true,
        Expr::Nested(of) => is_row(of),
        Expr::Function(Function { name, .. }) => is_named(name, "row"),
        _ => false,
    }
}
