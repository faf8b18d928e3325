//! What does the ORDER BY of a subquery in FROM decide? SQL leaves it open, and programs rely on PostgreSQL, which
//! keeps it:
//!
//! - `SELECT array_agg(x) FROM (SELECT x FROM t ORDER BY y) s` has the items in the order of `y`. The subquery numbers
//!   its rows, and the aggregate is ordered by the number.
//! - `SELECT * FROM (SELECT … ORDER BY y) s LIMIT 3` are the first three. An `OFFSET 0` keeps the planner from leaving
//!   the order out.

use std::ops::ControlFlow;

pub(super) use tarn_query::PLACE;
use tarn_query::each_expr;
use tarn_query::sqlparser::ast::{
    Expr, Function, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident, LimitClause, Offset, OffsetRows,
    OrderByExpr, OrderByKind, OrderByOptions, Query, Select, SelectItem, SetExpr, TableFactor, TableWithJoins,
    WindowSpec, WindowType,
};

use super::calls::{call, each_outside_queries, is_named, number};
use super::refused::gives_rows;
use crate::names::fold;

/// Aggregates whose answer is in the order of their rows.
const ORDERED: [&str; 4] = ["array_agg", "json_agg", "jsonb_agg", "string_agg"];
/// Keeps the order of the subquery that a query reads, where it decides.
pub(super) fn keep(query: &mut Query) {
    let is_cut = query.limit_clause.is_some() && query.order_by.is_none();
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    if is_cut
        && is_plain(select)
        && let Some(inner) = inner(select)
        && inner.order_by.is_some()
        && inner.limit_clause.is_none()
    {
        let offset = Some(Offset { value: number(0), rows: OffsetRows::None });
        inner.limit_clause = Some(LimitClause::LimitOffset { limit: None, offset, limit_by: vec![] });
    }
}

/// As [`keep`], of aggregates.
pub(super) fn keep_in_aggregates(select: &mut Select) {
    let is_listed = select
        .projection
        .iter()
        .all(|item| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }));
    let mut is_asked = false;
    each_outside_queries(&mut select.projection, |expr| is_asked |= order_of(expr).is_some());
    if !is_listed || !is_asked || !inner(select).is_some_and(number_rows) {
        return;
    }
    each_outside_queries(&mut select.projection, |expr| {
        if let Some(clauses) = order_of(expr) {
            let place = Expr::Identifier(Ident::with_quote('"', PLACE));
            clauses.push(FunctionArgumentClause::OrderBy(vec![by(place)]));
        }
    });
}

/// The only subquery that a SELECT reads.
fn inner(select: &mut Select) -> Option<&mut Query> {
    match &mut select.from[..] {
        [
            TableWithJoins {
                relation: TableFactor::Derived { lateral: false, subquery, alias: Some(alias), .. },
                joins,
            },
        ] if joins.is_empty() && alias.columns.is_empty() => Some(subquery),
        _ => None,
    }
}

/// Whether rows come as they are read.
fn is_plain(select: &Select) -> bool {
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(groups, _) if groups.is_empty());
    select.distinct.is_none() && !is_grouped && select.having.is_none()
}

/// Where an aggregate's order is to be written, if it has none.
fn order_of(expr: &mut Expr) -> Option<&mut Vec<FunctionArgumentClause>> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), over: None, within_group, .. }) = expr
    else {
        return None;
    };
    let is_open = within_group.is_empty() && list.duplicate_treatment.is_none() && list.clauses.is_empty();
    (is_open && ORDERED.iter().any(|ordered| is_named(name, ordered))).then_some(&mut list.clauses)
}

pub(super) fn by(expr: Expr) -> OrderByExpr {
    OrderByExpr { expr, options: OrderByOptions { asc: None, nulls_first: None }, with_fill: None }
}

/// Numbers the rows of a query in its order, if that can be written beside its columns.
fn number_rows(query: &mut Query) -> bool {
    let Query { with: None, body, order_by: Some(order_by), limit_clause: None, fetch: None, .. } = query else {
        return false;
    };
    let (SetExpr::Select(select), OrderByKind::Expressions(keys)) = (body.as_mut(), &order_by.kind) else {
        return false;
    };
    let has_sets = select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            let of = |part: &Expr| if gives_rows(part) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            each_expr(expr, of).is_break()
        }
        _ => false,
    });
    if has_sets || !is_plain(select) {
        return false;
    }
    let Some(keys) = keys.iter().map(|key| written_out(key, &select.projection)).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let mut place = call("row_number", vec![]);
    if let Expr::Function(function) = &mut place {
        let window = WindowSpec { window_name: None, partition_by: vec![], order_by: keys, window_frame: None };
        function.over = Some(WindowType::WindowSpec(window));
    }
    let alias = Ident::with_quote('"', PLACE);
    select.projection.push(SelectItem::ExprWithAlias { expr: place, alias });
    query.order_by = None;
    true
}

/// A key of ORDER BY where columns of the list have no names. `None`: it is the place of one.
pub(super) fn written_out(key: &OrderByExpr, projection: &[SelectItem]) -> Option<OrderByExpr> {
    let named = |name: &Ident| {
        projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if fold(alias) == fold(name) => Some(expr.clone()),
            _ => None,
        })
    };
    match &key.expr {
        Expr::Value(_) => None,
        Expr::Identifier(name) => {
            Some(OrderByExpr { expr: named(name).unwrap_or_else(|| key.expr.clone()), ..key.clone() })
        }
        _ => Some(key.clone()),
    }
}
