//! Which functions give a row for each part of a text? `regexp_matches`, `regexp_split_to_table` and `string_to_table`:
//! each is `unnest` of a function that gives a list, in a select list and in FROM.

use tarn_query::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, SelectItem, TableAlias, TableFactor,
};

use super::calls::{call, is_named, take};
use super::in_from::query_of;
use super::ordinality;
use super::regular_expressions::{MATCHES, SPLIT};

/// As they are called, and what gives the list.
const SETS: [(&str, &str); 3] =
    [("regexp_matches", MATCHES), ("regexp_split_to_table", SPLIT), ("string_to_table", "string_to_array")];

fn set(name: &ObjectName) -> Option<(&'static str, &'static str)> {
    SETS.into_iter().find(|(of, _)| is_named(name, of))
}

/// Whether it is a call that gives rows.
pub(super) fn gives_rows(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function) if set(&function.name).is_some())
}

/// A call in a select list.
pub(super) fn in_select_list(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    let (Some((_, list)), FunctionArguments::List(args)) = (set(&function.name), &mut function.args) else { return };
    *expr = call("unnest", vec![listed(list, args.args.iter_mut())]);
}

fn listed<'a>(list: &str, args: impl Iterator<Item = &'a mut FunctionArg>) -> Expr {
    let args = args.filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(take(expr)),
        _ => None,
    });
    call(list, args.collect())
}

/// A call in FROM becomes a query of its rows.
pub(super) fn in_from(factor: &mut TableFactor) {
    let (name, alias, args, is_numbered) = match factor {
        TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
            (name, alias, &mut args.args, *with_ordinality)
        }
        TableFactor::Function { name, alias, args, with_ordinality, .. } => (name, alias, args, *with_ordinality),
        _ => return,
    };
    let Some((of, list)) = set(name) else { return };
    let called = alias.as_ref().map_or_else(|| Ident::new(of), |alias| alias.name.clone());
    let list = listed(list, args.iter_mut());
    let numbers = is_numbered.then(|| ordinality::numbers(list.clone()));
    let rows = SelectItem::ExprWithAlias { expr: call("unnest", vec![list]), alias: called.clone() };
    let Some(subquery) = query_of([rows].into_iter().chain(numbers).collect()) else { return };
    let alias = alias.take().unwrap_or(TableAlias { explicit: true, name: called, columns: vec![], at: None });
    *factor = TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None };
}
