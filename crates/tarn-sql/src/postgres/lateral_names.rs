//! Which table is `x` in `FROM a x CROSS JOIN (b x CROSS JOIN LATERAL (SELECT x.n) s)`? Two of one FROM that a query in
//! it sees: the name is ambiguous (42P09). The planner takes the nearer one.

use std::collections::HashSet;
use std::ops::ControlFlow;

use tarn_query::sqlparser::ast::{Expr, Query, Select, TableFactor, TableWithJoins, Visitor};
use tarn_query::{each_expr, name_in_from, walk};

use crate::error::{Result, SqlError, state};
use crate::names::fold;

/// Errors: `42P09` for a table that a lateral query names, where two are called so.
pub(super) fn check(select: &Select) -> Result<()> {
    let mut seen = FromTables::default();
    select.from.iter().for_each(|from| seen.look_at(from));
    if seen.twice.is_empty() {
        return Ok(());
    }
    for query in seen.laterals {
        let mut own = QueryTables::default();
        let _ = walk(query, &mut own);
        let named = each_expr(query, |expr| match expr {
            Expr::CompoundIdentifier(parts) => match &parts[..] {
                [.., table, _] if seen.twice.contains(&fold(table)) && !own.0.contains(&fold(table)) => {
                    ControlFlow::Break(fold(table))
                }
                _ => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        });
        if let ControlFlow::Break(table) = named {
            let message = format!("table reference \"{table}\" is ambiguous");
            return Err(SqlError::new(state::AMBIGUOUS_ALIAS, message).with_hint("give each table a name of its own"));
        }
    }
    Ok(())
}

/// The tables of a FROM.
#[derive(Default)]
struct FromTables<'a> {
    once: HashSet<String>,
    twice: HashSet<String>,
    laterals: Vec<&'a Query>,
}

impl<'a> FromTables<'a> {
    fn look_at(&mut self, from: &'a TableWithJoins) {
        for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)) {
            match factor {
                TableFactor::NestedJoin { table_with_joins, alias: None } => self.look_at(table_with_joins),
                TableFactor::Derived { lateral: true, subquery, .. } => self.laterals.push(subquery),
                _ => {}
            }
            if let Some(name) = name_in_from(factor)
                && !self.once.insert(name.clone())
            {
                self.twice.insert(name);
            }
        }
    }
}

/// The tables of a query, and of those in it.
#[derive(Default)]
struct QueryTables(HashSet<String>);

impl Visitor for QueryTables {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        self.0.extend(name_in_from(factor));
        ControlFlow::Continue(())
    }
}
