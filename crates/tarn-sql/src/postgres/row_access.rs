//! What is `(v).a`? The field `a` of a row, which is a function of the row and of the name. The planner knows names
//! behind a point as those of tables alone.

use tarn_query::ALL_COLUMNS;
use tarn_query::sqlparser::ast::{AccessExpr, Expr, Ident, SelectItem, Value};

use super::calls::{call, take};
use crate::names::fold;

/// The function that is called: a row, and the name of a field.
pub(super) const FIELD: &str = "tarn_row_field";

/// Fields of what stands in parentheses, and of items of it: `(v).a.b`, `(list)[1].a`. Without them a name behind a
/// point is that of a table's column.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else { return };
    let is_field = |access: &AccessExpr| field(access).is_some_and(|name| !is_all(name));
    if matches!(root.as_ref(), Expr::Identifier(_) | Expr::CompoundIdentifier(_)) || !access_chain.iter().any(is_field)
    {
        return;
    }
    let (mut row, mut rest) = (take(root), vec![]);
    for access in std::mem::take(access_chain) {
        match field(&access).filter(|name| !is_all(name)) {
            Some(name) => row = field_of(with(row, std::mem::take(&mut rest)), &fold(name)),
            None => rest.push(access),
        }
    }
    *expr = with(row, rest);
}

fn with(root: Expr, access_chain: Vec<AccessExpr>) -> Expr {
    match access_chain.is_empty() {
        true => root,
        false => Expr::CompoundFieldAccess { root: Box::new(root), access_chain },
    }
}

/// The field of a row that is called so.
pub(crate) fn field_of(row: Expr, name: &str) -> Expr {
    call(FIELD, vec![row, Expr::Value(Value::SingleQuotedString(name.to_owned()).with_empty_span())])
}

/// The row of which all fields are asked for, `(v).*`.
pub(crate) fn row_of_all(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::CompoundFieldAccess { root, access_chain } => match &access_chain[..] {
            [access] if field(access).is_some_and(is_all) => Some(root),
            _ => None,
        },
        _ => None,
    }
}

/// As the parser is told of it: no column is called so.
fn is_all(name: &Ident) -> bool {
    name.value == ALL_COLUMNS && name.quote_style.is_some()
}

fn field(access: &AccessExpr) -> Option<&Ident> {
    match access {
        AccessExpr::Dot(Expr::Identifier(name)) => Some(name),
        _ => None,
    }
}

/// A column that is a field is called as that is, also in a subquery.
pub(super) fn name(item: &mut SelectItem) {
    if let SelectItem::UnnamedExpr(expr @ Expr::CompoundFieldAccess { .. }) = item
        && let Expr::CompoundFieldAccess { access_chain, .. } = &*expr
        && let Some(alias) = access_chain.iter().rev().find_map(field).filter(|name| !is_all(name)).cloned()
    {
        *item = SelectItem::ExprWithAlias { expr: take(expr), alias };
    }
}
