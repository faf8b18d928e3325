//! `localtimestamp` and `localtime` are what the session's clocks show when the transaction began. The parser reads
//! calls without parentheses, which the planner takes for columns.

use tarn_query::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArguments, Ident, ObjectName, SelectItem, TimezoneInfo,
};

use super::calls::{call, is_named};

/// The word, if the expression is one of them.
fn word(expr: &Expr) -> Option<(&'static str, DataType)> {
    let Expr::Function(Function { name, args: FunctionArguments::None, .. }) = expr else { return None };
    let is_quoted = |name: &ObjectName| name.0.iter().any(|part| part.as_ident().is_some_and(is_quoted));
    let all = [
        ("localtimestamp", DataType::Timestamp(None, TimezoneInfo::None)),
        ("localtime", DataType::Time(None, TimezoneInfo::None)),
    ];
    all.into_iter().find(|(word, _)| is_named(name, word) && !is_quoted(name))
}

fn is_quoted(ident: &Ident) -> bool {
    ident.quote_style.is_some()
}

/// The word as a cast of the instant.
pub(super) fn rewrite(expr: &mut Expr) {
    if let Some((_, data_type)) = word(expr) {
        let of = Box::new(call("now", vec![]));
        *expr = Expr::Cast { kind: CastKind::DoubleColon, expr: of, data_type, array: false, format: None };
    }
}

/// A column of it is called so.
pub(super) fn name(item: &mut SelectItem) {
    if let SelectItem::UnnamedExpr(expr) = item
        && let Some((word, _)) = word(expr)
    {
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::new(word) };
    }
}
