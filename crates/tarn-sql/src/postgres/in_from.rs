//! What else may a query read? A function of one value, as a table of one row (`FROM current_schema()`), and a table by
//! its name alone (`TABLE t`). And `EXISTS` in a select list is a count of rows there.

use std::ops::ControlFlow;

use tarn_query::dml::{rows_of, table_of};
use tarn_query::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, GroupByExpr, Ident, ObjectName, Query, Select, SelectItem,
    SetExpr, Statement, TableAlias, TableFactor, TableWithJoins, Visitor, WildcardAdditionalOptions,
};
use tarn_query::walk;

use super::calls::{binary, call, each_outside_queries, is_named, number};

/// Functions of one value that clients read as tables; others could be, but give rows.
const OF_ONE_VALUE: [&str; 11] = [
    "current_catalog",
    "current_database",
    "current_schema",
    "current_setting",
    "current_user",
    "format",
    "now",
    "pg_backend_pid",
    "session_user",
    "set_config",
    "version",
];

/// `SELECT * FROM name`, which `TABLE name` is.
pub(crate) fn whole_table(name: ObjectName) -> Statement {
    rows_of(vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())], table_of(name), None)
}

/// As [`whole_table`], where a query may stand.
pub(super) fn body(query: &mut Query) {
    let SetExpr::Table(table) = query.body.as_ref() else { return };
    let Some(name) = &table.table_name else { return };
    let schema = table.schema_name.iter().map(|schema| Ident::new(schema.as_str()));
    let name = ObjectName::from(schema.chain([Ident::new(name.as_str())]).collect::<Vec<_>>());
    if let Statement::Query(whole) = whole_table(name) {
        query.body = whole.body;
    }
}

/// A call in FROM becomes a query of one row.
pub(super) fn function(factor: &mut TableFactor) {
    let TableFactor::Table { name, alias, args: Some(args), with_ordinality: false, .. } = factor else { return };
    let Some(of) = OF_ONE_VALUE.iter().find(|of| is_named(name, of)) else { return };
    let called = alias.as_ref().map_or_else(|| Ident::new(*of), |alias| alias.name.clone());
    let args = args.args.iter().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    let value = SelectItem::ExprWithAlias { expr: call(of, args.collect()), alias: called.clone() };
    let Some(subquery) = query_of(vec![value]) else { return };
    let alias = alias.take().unwrap_or(TableAlias { explicit: true, name: called, columns: vec![], at: None });
    *factor = TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
}

/// `LATERAL unnest(a)` is `unnest(a)`, which sees what stands before it, too.
pub(super) fn lateral_list(factor: &mut TableFactor) {
    let TableFactor::Function { lateral: true, name, args, with_ordinality, alias } = factor else { return };
    let with_ordinality = *with_ordinality;
    let values = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    if let Some(array_exprs) = values.collect::<Option<Vec<Expr>>>().filter(|_| is_named(name, "unnest")) {
        *factor = TableFactor::UNNEST {
            alias: alias.take(),
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality,
        };
    }
}

/// A query of these, without FROM.
pub(crate) fn query_of(items: Vec<SelectItem>) -> Option<Box<Query>> {
    let Statement::Query(mut query) = whole_table(ObjectName::from(vec![])) else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    (select.projection, select.from) = (items, vec![]);
    Some(query)
}

/// Makes of a query one that reads it: `SELECT items FROM (query) AS alias`.
pub(crate) fn over(query: &mut Query, items: Vec<SelectItem>, alias: TableAlias) {
    let Some(mut around) = query_of(items) else { return };
    std::mem::swap(query, &mut *around);
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let relation = TableFactor::Derived { lateral: false, subquery: around, alias: Some(alias), sample: None };
    select.from = vec![TableWithJoins { relation, joins: vec![] }];
}

/// `EXISTS (query)` of a select list: whether its rows are more than none. The planner knows it in conditions alone.
pub(super) fn exists(expr: &mut Expr) {
    each_outside_queries(expr, |expr| {
        if let Expr::Exists { subquery, negated } = expr
            && let Some(counted) = count_of(subquery)
        {
            let op = if *negated { BinaryOperator::Eq } else { BinaryOperator::Gt };
            *expr = Expr::Nested(Box::new(binary(Expr::Subquery(counted), op, number(0))));
        }
    });
}

/// The same of a query whose lists are computed of the rows around it, in a condition, too.
pub(super) fn exists_in_list(expr: &mut Expr) {
    let Expr::Exists { subquery, .. } = expr else { return };
    let SetExpr::Select(select) = subquery.body.as_ref() else { return };
    let is_of_names = |factor: &TableFactor| match factor {
        TableFactor::UNNEST { array_exprs, .. } => array_exprs.iter().any(names_columns),
        // Functions of rows are queries by now.
        TableFactor::Derived { subquery, .. } => match subquery.body.as_ref() {
            SetExpr::Select(of) if of.from.is_empty() => of.projection.iter().any(|item| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => names_columns(expr),
                _ => false,
            }),
            _ => false,
        },
        _ => false,
    };
    let of_joins = |from: &TableWithJoins| from.joins.iter().any(|join| is_of_names(&join.relation));
    if select.from.iter().any(|from| is_of_names(&from.relation) || of_joins(from)) {
        exists(expr);
    }
}

/// Whether an expression names a column.
pub(super) fn names_columns(expr: &Expr) -> bool {
    struct ColumnNameFinder;
    impl Visitor for ColumnNameFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    walk(expr, &mut ColumnNameFinder).is_break()
}

fn count_of(subquery: &Query) -> Option<Box<Query>> {
    let count = SelectItem::UnnamedExpr(call("count", vec![number(1)]));
    if let Some(mut plain) = plain(subquery) {
        plain.projection = vec![count];
        let mut query = subquery.clone();
        (query.order_by, *query.body) = (None, SetExpr::Select(Box::new(plain)));
        return Some(Box::new(query));
    }
    let mut query = query_of(vec![count])?;
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let mut from = table_of(ObjectName::from(vec![]));
    let alias = TableAlias { explicit: true, name: Ident::new("found"), columns: vec![], at: None };
    from.relation =
        TableFactor::Derived { lateral: false, subquery: Box::new(subquery.clone()), alias: Some(alias), sample: None };
    select.from = vec![from];
    Some(query)
}

/// A SELECT that gives a row for each that its condition leaves. It may ask columns of the query around it, which the
/// planner knows no other place for.
fn plain(subquery: &Query) -> Option<Select> {
    let Query { with: None, body, limit_clause: None, fetch: None, .. } = subquery else { return None };
    let SetExpr::Select(select) = body.as_ref() else { return None };
    let Select { distinct: None, having: None, qualify: None, group_by: GroupByExpr::Expressions(by, _), .. } =
        select.as_ref()
    else {
        return None;
    };
    let gives_one = |item: &SelectItem| match item {
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
        }
        _ => false,
    };
    (by.is_empty() && select.projection.iter().all(gives_one)).then(|| select.as_ref().clone())
}
