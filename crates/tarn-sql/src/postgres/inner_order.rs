//! What does the ORDER BY of a subquery in FROM decide? SQL leaves it open, and programs rely on PostgreSQL, which
//! keeps it:
//!
//! - `SELECT array_agg(x) FROM (SELECT x FROM t ORDER BY y) s` has the items in the order of `y`. The subquery numbers
//!   its rows, and the aggregate is ordered by the number. What DISTINCT, groups, sets and UNION leave is numbered by a
//!   query around it.
//! - `SELECT * FROM (SELECT … ORDER BY y) s LIMIT 3` are the first three. An `OFFSET 0` keeps the planner from leaving
//!   the order out.

pub(super) use tarn_query::PLACE;
use tarn_query::sqlparser::ast::{
    Cte, Distinct, Expr, Function, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident, LimitClause, Offset,
    OffsetRows, OrderByExpr, OrderByKind, OrderByOptions, Query, Select, SelectItem, SetExpr, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, Value, WildcardAdditionalOptions, WindowSpec, WindowType,
};

use super::calls::{call, each_outside_queries, is_named, number};
use super::in_from::{over, query_of};
use super::sorted_sets::{ALIAS, is_set, name_of};
use crate::names::fold;

/// Aggregates whose answer is in the order of their rows.
const ORDERED: [&str; 6] = ["array_agg", "json_agg", "json_object_agg", "jsonb_agg", "jsonb_object_agg", "string_agg"];
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

/// The last query of WITH stands in FROM where its order decides: it is all that is read, and read once.
pub(super) fn read_in_from(query: &mut Query, n_readings: impl Fn(&Query, &str) -> usize) {
    let is_ordered = |cte: &Cte| {
        let is_query = matches!(cte.query.body.as_ref(), SetExpr::Select(_) | SetExpr::SetOperation { .. });
        is_query && cte.query.order_by.is_some() && cte.alias.columns.is_empty()
    };
    let Some(with) = query.with.as_ref().filter(|with| !with.recursive) else { return };
    let Some(cte) = with.cte_tables.last().filter(|cte| is_ordered(cte)) else { return };
    let name = cte.alias.name.clone();
    // In the query itself, the name is another's.
    let n_readings = n_readings(query, &fold(&name)) - n_readings(&cte.query, &fold(&name));
    let is_cut = query.limit_clause.is_some() && query.order_by.is_none();
    let (Some(with), SetExpr::Select(select)) = (query.with.as_mut(), query.body.as_mut()) else { return };
    let mut is_asked = is_cut;
    each_outside_queries(&mut select.projection, |expr| is_asked |= order_of(expr).is_some());
    let [TableWithJoins { relation, joins }] = &mut select.from[..] else { return };
    let TableFactor::Table { name: read, alias, args: None, with_ordinality: false, .. } = relation else { return };
    if !is_asked || n_readings != 1 || !joins.is_empty() || !is_named(read, &fold(&name)) {
        return;
    }
    let alias = alias.take().unwrap_or(TableAlias { explicit: true, name, columns: vec![], at: None });
    let Some(cte) = with.cte_tables.pop() else { return };
    *relation = TableFactor::Derived { lateral: false, subquery: cte.query, alias: Some(alias), sample: None };
    if with.cte_tables.is_empty() {
        query.with = None;
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

/// Numbers the rows of a query in its order, if that can be written.
fn number_rows(query: &mut Query) -> bool {
    let is_plain = matches!(query.body.as_ref(), SetExpr::Select(select) if is_plain(select));
    (is_plain && number_beside(query)) || number_around(query) || number_beside(query)
}

/// As [`number_rows`], beside its columns.
fn number_beside(query: &mut Query) -> bool {
    let Query { with: None, body, order_by: Some(order_by), limit_clause: None, fetch: None, .. } = query else {
        return false;
    };
    let (SetExpr::Select(select), OrderByKind::Expressions(keys)) = (body.as_mut(), &order_by.kind) else {
        return false;
    };
    let has_sets = select.projection.iter().any(is_set);
    // Sets of groups may become several queries.
    let is_of_groups = match &select.group_by {
        GroupByExpr::Expressions(groups, modifiers) => {
            let is_set = |group: &Expr| matches!(group, Expr::GroupingSets(_) | Expr::Rollup(_) | Expr::Cube(_));
            modifiers.is_empty() && !groups.iter().any(is_set)
        }
        GroupByExpr::All(_) => false,
    };
    if has_sets || select.distinct.is_some() || !is_of_groups {
        return false;
    }
    let Some(keys) = keys.iter().map(|key| written_out(key, &select.projection)).collect::<Option<Vec<_>>>() else {
        return false;
    };
    select.projection.push(place_by(keys));
    query.order_by = None;
    true
}

/// As [`number_rows`], by its columns, in a query of which it is read.
fn number_around(query: &mut Query) -> bool {
    let Query { body, order_by: Some(order_by), limit_clause: None, fetch: None, .. } = &*query else { return false };
    let OrderByKind::Expressions(keys) = &order_by.kind else { return false };
    let Some(projection) = first_list(body) else { return false };
    let are_names = keys.iter().all(|key| matches!(key.expr, Expr::Identifier(_)));
    let column = |at: usize| Ident::with_quote('"', format!("c{at}"));
    let (mut items, columns, keys) = match projection.iter().map(name_of).collect::<Option<Vec<Ident>>>() {
        Some(names) => {
            let keys = keys.iter().map(|key| {
                let at = place_in(&key.expr, projection, &names)?;
                Some(OrderByExpr { expr: Expr::Identifier(column(at)), ..key.clone() })
            });
            let Some(keys) = keys.collect::<Option<Vec<_>>>() else { return false };
            let columns = (0..names.len()).map(|at| TableAliasColumnDef { name: column(at), data_type: None });
            let columns: Vec<TableAliasColumnDef> = columns.collect();
            let shown = names.into_iter().enumerate();
            let shown = shown
                .map(|(at, alias)| SelectItem::ExprWithAlias { expr: Expr::Identifier(column(at)), alias })
                .collect::<Vec<_>>();
            (shown, columns, keys)
        }
        None if are_names => (vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())], vec![], keys.clone()),
        None => return false,
    };
    // Which row of equal ones is left is for this order to say.
    let decides = matches!(
        body.as_ref(),
        SetExpr::Select(select) if matches!(select.distinct, Some(Distinct::On(_)))
    );
    let Some(mut read) = query_of(vec![]) else { return false };
    items.push(place_by(keys));
    std::mem::swap(&mut read.body, &mut query.body);
    read.order_by = query.order_by.take().filter(|_| decides);
    over(&mut read, items, TableAlias { explicit: true, name: Ident::new(ALIAS), columns, at: None });
    query.body = read.body;
    true
}

/// The number of a row in this order.
fn place_by(keys: Vec<OrderByExpr>) -> SelectItem {
    let mut place = call("row_number", vec![]);
    if let Expr::Function(function) = &mut place {
        let window = WindowSpec { window_name: None, partition_by: vec![], order_by: keys, window_frame: None };
        function.over = Some(WindowType::WindowSpec(window));
    }
    SelectItem::ExprWithAlias { expr: place, alias: Ident::with_quote('"', PLACE) }
}

/// The list by which the columns of a query are called.
fn first_list(body: &SetExpr) -> Option<&[SelectItem]> {
    match body {
        SetExpr::Select(select) => Some(&select.projection),
        SetExpr::SetOperation { left, .. } => first_list(left),
        _ => None,
    }
}

/// Which column of a list a key of ORDER BY is: by its place, its name, or what it is.
fn place_in(key: &Expr, projection: &[SelectItem], names: &[Ident]) -> Option<usize> {
    let by_name = match key {
        Expr::Value(value) => {
            let Value::Number(digits, _) = &value.value else { return None };
            return digits.parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < names.len());
        }
        Expr::Identifier(name) => names.iter().position(|of| fold(of) == fold(name)),
        _ => None,
    };
    let is_key = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } if expr == key);
    by_name.or_else(|| projection.iter().position(is_key))
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
