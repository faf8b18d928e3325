//! Which columns has `FROM t AS x(a)`, where `t` has more than one? The first is `a`, the others keep their names. The
//! planner takes as many names as there are columns, and no fewer.
//!
//! More names than columns are 42P10.

use std::collections::HashSet;

use datafusion::error::Result;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::{
    Ident, Query, SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, WildcardAdditionalOptions, With,
};

use super::in_from::over;
use super::row_queries::{ROWS_WITHIN, items, not_as_many};
use crate::error::{SqlError, state};
use crate::names::fold;
use crate::shown::OTHER_NAME;

/// Gives the columns behind those that are named the names that they have.
#[derive(Debug)]
pub(super) struct FewNames;

impl RelationPlanner for FewNames {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let Some(alias) = alias_of(&mut relation).and_then(|alias| alias.take_if(|alias| !alias.columns.is_empty()))
        else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let plan = context.plan(relation)?;
        let own: Vec<&str> = plan.schema().fields().iter().map(|field| field.name().as_str()).collect();
        if alias.name.value == ROWS_WITHIN && alias.columns.len() != own.len() {
            return Err(not_as_many(own.len() > alias.columns.len()).into());
        }
        let alias = with_all_names(alias, &own)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, Some(alias)))))
    }
}

/// `WITH w(a) AS (query)` of more columns: they are named in FROM, as those of any other table.
pub(super) fn in_with(query: &mut Query) {
    let Some(With { recursive: false, cte_tables, .. }) = &mut query.with else { return };
    for cte in cte_tables {
        let n_said = cte.alias.columns.len();
        if n_said == 0 || n_columns(&cte.query.body).is_none_or(|n_columns| n_columns <= n_said) {
            continue;
        }
        let all = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        let alias = cte.alias.clone();
        cte.alias.columns.clear();
        over(&mut cte.query, all, alias);
    }
}

/// As many as are written out.
fn n_columns(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::Select(select) => items(select).map(|items| items.len()),
        SetExpr::Values(values) => values.rows.first().map(|row| row.content.len()),
        SetExpr::Query(query) => n_columns(&query.body),
        SetExpr::SetOperation { left, .. } => n_columns(left),
        _ => None,
    }
}

fn alias_of(relation: &mut TableFactor) -> Option<&mut Option<TableAlias>> {
    match relation {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => Some(alias),
        _ => None,
    }
}

/// Errors: `42P10` for more names than there are columns.
fn with_all_names(mut alias: TableAlias, own: &[&str]) -> Result<TableAlias, SqlError> {
    let (n_own, n_said) = (own.len(), alias.columns.len());
    if n_said > n_own {
        let message =
            format!("table \"{}\" has {n_own} columns available but {n_said} columns specified", fold(&alias.name));
        return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
    }
    let mut named: HashSet<String> = alias.columns.iter().map(|column| fold(&column.name)).collect();
    for own in &own[n_said..] {
        let mut name = (*own).to_owned();
        // The planner needs another name for the second of two that are called alike; it is not shown.
        for nth in 1.. {
            if named.insert(name.clone()) {
                break;
            }
            name = format!("{own}{OTHER_NAME}{nth}");
        }
        alias.columns.push(TableAliasColumnDef { name: Ident::with_quote('"', name), data_type: None });
    }
    Ok(alias)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(said: &[&str], own: &[&str]) -> Result<Vec<String>, SqlError> {
        let columns = said.iter().map(|name| TableAliasColumnDef { name: Ident::new(*name), data_type: None });
        let alias = TableAlias { explicit: true, name: Ident::new("x"), columns: columns.collect(), at: None };
        Ok(with_all_names(alias, own)?.columns.into_iter().map(|column| column.name.value).collect())
    }

    #[test]
    fn columns_that_are_not_named_keep_their_names() {
        assert_eq!(names(&["a"], &["x", "y", "z"]).unwrap(), ["a", "y", "z"]);
        assert_eq!(names(&["a", "b"], &["x", "y"]).unwrap(), ["a", "b"]);
        let hidden = format!("b{OTHER_NAME}1");
        assert_eq!(names(&["b"], &["x", "b"]).unwrap(), ["b", hidden.as_str()]);
        assert_eq!(names(&["B"], &["x", "b"]).unwrap(), ["B", hidden.as_str()], "names are folded");
        let error = names(&["a", "b"], &["x"]).unwrap_err();
        assert_eq!(error.state(), state::INVALID_COLUMN_REFERENCE);
        assert_eq!(error.message(), "table \"x\" has 1 columns available but 2 columns specified");
    }
}
