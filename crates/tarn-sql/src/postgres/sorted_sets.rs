//! `SELECT unnest(tags) FROM t ORDER BY k`: rows of a set in a select list, in the order of what is not in the list.
//! The planner makes the rows above what it reads, and knows no other columns there. So the keys are columns beside
//! the others, in a query of which the list is taken:
//!
//! ```text
//! SELECT c0 AS unnest FROM (SELECT unnest(tags), k FROM t) AS tarn_sorted (c0, by0) ORDER BY by0, row_number() OVER ()
//! ```
//!
//! The last key keeps the items of one row in their order: PostgreSQL sorts before it makes rows of them, unless it is
//! by the items.

use std::ops::ControlFlow;

use tarn_query::each_expr;
use tarn_query::sqlparser::ast::{
    Expr, Ident, OrderByExpr, OrderByKind, OrderByOptions, Query, Select, SelectItem, SetExpr, TableAlias,
    TableAliasColumnDef, Value, WindowSpec, WindowType,
};

use super::calls::{call, each_outside_queries, take};
use super::in_from::{over, query_of};
use super::refused::gives_rows;
use crate::names::fold;
use crate::shown::shown_as;

/// What the query is called of which the list is taken.
pub(super) const ALIAS: &str = "tarn_sorted";

/// Takes the list of what is sorted by more than the rows of sets.
pub(super) fn keep(query: &mut Query) {
    let has_ties = query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties);
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let Some(OrderByKind::Expressions(keys)) = query.order_by.as_mut().map(|order| &mut order.kind) else { return };
    if select.distinct.is_some() || select.into.is_some() || !has_sets(select) {
        return;
    }
    let names: Option<Vec<Ident>> = select.projection.iter().map(name_of).collect();
    let Some(names) = names else { return };
    let in_list = |key: &Expr| {
        let by_name = match key {
            Expr::Identifier(name) => names.iter().position(|of| fold(of) == fold(name)),
            _ => None,
        };
        let is_item = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr == key,
            _ => false,
        };
        by_name.or_else(|| select.projection.iter().position(is_item))
    };
    let ordinal = |key: &Expr| match key {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse::<usize>().ok(),
            _ => None,
        },
        _ => None,
    };
    let places: Vec<Option<usize>> = keys.iter().map(|key| in_list(&key.expr)).collect();
    let in_all = keys.iter().zip(&places).all(|(key, place)| place.is_some() || ordinal(&key.expr).is_some());
    let is_set = |at: usize| select.projection.get(at).is_some_and(is_set);
    let is_by_sets = keys
        .iter()
        .zip(&places)
        .any(|(key, place)| place.or_else(|| ordinal(&key.expr)?.checked_sub(1)).is_some_and(is_set));
    // Another key would be none of ties.
    let is_numbered = !is_by_sets && !has_ties;
    if in_all && !is_numbered {
        return;
    }
    let column = |at: usize| Ident::with_quote('"', format!("c{at}"));
    let mut columns: Vec<Ident> = (0..names.len()).map(column).collect();
    let mut hidden = vec![];
    for (key, place) in keys.iter_mut().zip(places).filter(|(key, _)| ordinal(&key.expr).is_none()) {
        let by = match place {
            Some(at) => column(at),
            None => {
                let by = Ident::with_quote('"', format!("by{}", hidden.len()));
                hidden.push(SelectItem::ExprWithAlias { expr: take(&mut key.expr), alias: by.clone() });
                columns.push(by.clone());
                by
            }
        };
        key.expr = Expr::Identifier(by);
    }
    if is_numbered {
        let mut expr = call("row_number", vec![]);
        if let Expr::Function(function) = &mut expr {
            let window = WindowSpec { window_name: None, partition_by: vec![], order_by: vec![], window_frame: None };
            function.over = Some(WindowType::WindowSpec(window));
        }
        let options = OrderByOptions { asc: None, nulls_first: None };
        keys.push(OrderByExpr { expr, options, with_fill: None });
    }
    let shown = names.into_iter().enumerate();
    let shown = shown.map(|(at, alias)| SelectItem::ExprWithAlias { expr: Expr::Identifier(column(at)), alias });
    select.projection.extend(hidden);
    let Some(mut read) = query_of(vec![]) else { return };
    std::mem::swap(&mut read.body, &mut query.body);
    let columns = columns.into_iter().map(|name| TableAliasColumnDef { name, data_type: None }).collect();
    over(&mut read, shown.collect(), TableAlias { explicit: true, name: Ident::new(ALIAS), columns, at: None });
    query.body = read.body;
}

/// Whether its list gives rows of sets.
fn has_sets(select: &mut Select) -> bool {
    let mut has = false;
    each_outside_queries(&mut select.projection, |expr| has |= gives_rows(expr));
    has
}

/// Whether an item of a list is one of a set in each row.
pub(super) fn is_set(item: &SelectItem) -> bool {
    let of = |part: &Expr| if gives_rows(part) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => each_expr(expr, of).is_break(),
        _ => false,
    }
}

/// What the column of an item is called. `None`: it is several.
pub(super) fn name_of(item: &SelectItem) -> Option<Ident> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(Ident::with_quote('"', shown_as(expr))),
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        _ => None,
    }
}
