//! Which columns has `(a JOIN b USING (n)) j`? Those of `SELECT * FROM a JOIN b USING (n)`: `n` once. DataFusion's has
//! `n` of both tables, and takes the one of `a` for either.

use tarn_query::sqlparser::ast::{Query, SelectItem, SetExpr, TableFactor, TableWithJoins, WildcardAdditionalOptions};

use super::in_from::query_of;

/// A join that has a name becomes the query that it is.
pub(super) fn as_query(factor: &mut TableFactor) {
    let TableFactor::NestedJoin { table_with_joins: joined, alias: alias @ Some(_) } = factor else { return };
    // A query by itself sees no tables beside it.
    if is_lateral(joined) {
        return;
    }
    let all = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
    let Some(mut subquery) = query_of(all) else { return };
    let Query { body, .. } = subquery.as_mut();
    let SetExpr::Select(select) = body.as_mut() else { return };
    select.from = vec![joined.as_ref().clone()];
    *factor = TableFactor::Derived { lateral: false, subquery, alias: alias.take(), sample: None };
}

fn is_lateral(joined: &TableWithJoins) -> bool {
    let factors = std::iter::once(&joined.relation).chain(joined.joins.iter().map(|join| &join.relation));
    factors.into_iter().any(|factor| match factor {
        TableFactor::Derived { lateral, .. } | TableFactor::Function { lateral, .. } => *lateral,
        TableFactor::Table { args, .. } => args.is_some(),
        TableFactor::NestedJoin { table_with_joins, .. } => is_lateral(table_with_joins),
        TableFactor::UNNEST { .. } => true,
        _ => false,
    })
}
