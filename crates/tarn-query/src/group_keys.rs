//! Which columns may be named beside a `GROUP BY` of a table's primary key? All of that table: each group has one row
//! of it.
//!
//! ```sql
//! SELECT s.id, s.name, count(v.id) FROM shops s LEFT JOIN visits v ON v.shop = s.id GROUP BY s.id
//! ```
//!
//! So PostgreSQL has it, and so ORMs count what belongs to a row. The planner would have it from a table's constraints,
//! but takes more from those: it drops a `DISTINCT` above a key whose rows `unnest` has made several of. So the columns
//! that are named are written into the GROUP BY here, which changes no group: of one key there is one row, and what an
//! outer join adds is NULL in all columns.
//!
//! A key is one that rows are held to: those of append-only tables are not.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, ObjectName, OrderBy, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    Statement, TableFactor, TableWithJoins, Value, Visitor, VisitorMut,
};
use tarn_types::{TableSchema, full_name};

use crate::Result;
use crate::keyed::object_name;
use crate::parser::fold;
use crate::table::TarnTable;
use crate::walk::{walk, walk_mut};

/// Writes out what hangs on keys in the GROUP BYs of a statement. One that has none costs a walk over its syntax.
pub(crate) async fn write_out(statement: &mut Statement, state: &SessionState) -> Result<()> {
    let mut named = Grouped::default();
    let _ = walk(&*statement, &mut named);
    let mut tables = HashMap::new();
    for name in named.relations.difference(&named.defined) {
        let Ok(schema) = state.schema_for_ref(TableReference::bare(name.as_str())) else { continue };
        let Some(provider) = schema.table(name).await? else { continue };
        if let Some(table) = provider.downcast_ref::<TarnTable>() {
            tables.insert(name.clone(), Arc::clone(table.table_schema()));
        }
    }
    if tables.values().any(|table| is_keyed(table)) {
        let _ = walk_mut(statement, &mut GroupByRewriter { tables: &tables, state });
    }
    Ok(())
}

fn is_keyed(table: &TableSchema) -> bool {
    table.has_rows() && !table.is_keyless() && !table.options.append_only
}

/// What is named in a FROM beside a GROUP BY, and what WITH defines.
#[derive(Default)]
struct Grouped {
    relations: BTreeSet<String>,
    defined: BTreeSet<String>,
}

impl Visitor for Grouped {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.defined.extend(query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| fold(&cte.alias.name)));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        if matches!(&select.group_by, GroupByExpr::Expressions(by, _) if !by.is_empty()) {
            let mut names = vec![];
            select.from.iter().for_each(|from| factors(from, &mut |name, _| names.extend(name.and_then(object_name))));
            self.relations.extend(names);
        }
        ControlFlow::Continue(())
    }
}

/// Sees the tables of a FROM by name and alias; of what is no table, no name.
fn factors<'a>(from: &'a TableWithJoins, see: &mut impl FnMut(Option<&'a ObjectName>, Option<&'a Ident>)) {
    for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)) {
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let renames = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
                see((!renames).then_some(name), alias.as_ref().map(|alias| &alias.name));
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => factors(table_with_joins, see),
            _ => see(None, None),
        }
    }
}

struct GroupByRewriter<'a> {
    tables: &'a HashMap<String, Arc<TableSchema>>,
    state: &'a SessionState,
}

impl VisitorMut for GroupByRewriter<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let SetExpr::Select(select) = query.body.as_mut() {
            self.write(select, query.order_by.as_ref());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        // Those of UNION; what a query has was seen with its ORDER BY, and has nothing more to be written.
        self.write(select, None);
        ControlFlow::Continue(())
    }
}

/// A table of a FROM, as it is called there.
struct FromTable<'a> {
    name: String,
    table: &'a TableSchema,
}

impl GroupByRewriter<'_> {
    fn write(&self, select: &mut Select, order_by: Option<&OrderBy>) {
        let GroupByExpr::Expressions(by, modifiers) = &select.group_by else { return };
        if by.is_empty() || !modifiers.is_empty() {
            return;
        }
        let mut called = vec![];
        for from in &select.from {
            factors(from, &mut |name, alias| {
                let Some(name) = name.and_then(object_name) else { return };
                if let Some(table) = self.tables.get(&name) {
                    let alone = || full_name::bare(&name).to_owned();
                    called.push(FromTable { name: alias.map_or_else(alone, fold), table });
                }
            });
        }
        let by: HashSet<(usize, usize)> = by.iter().filter_map(|by| column(written(by, select), &called)).collect();
        let is_grouped = |(at, of): (usize, &FromTable<'_>)| {
            is_keyed(of.table) && of.table.key.iter().all(|part| by.contains(&(at, part.column_idx)))
        };
        let grouped: HashSet<usize> =
            called.iter().enumerate().filter(|of| is_grouped(*of)).map(|(at, _)| at).collect();
        if grouped.is_empty() {
            return;
        }
        let mut named = SelectColumns { called: &called, state: self.state, n_aggregates: 0, columns: BTreeSet::new() };
        named.of(select, order_by);
        let wanted = named.columns.into_iter().filter(|place| grouped.contains(&place.0) && !by.contains(place));
        let quoted = |name: &str| Ident::with_quote('"', name);
        let wanted = wanted.map(|(at, column_idx)| {
            let of = &called[at];
            Expr::CompoundIdentifier(vec![quoted(&of.name), quoted(&of.table.columns[column_idx].name)])
        });
        let wanted: Vec<Expr> = wanted.collect();
        if let GroupByExpr::Expressions(by, _) = &mut select.group_by {
            by.extend(wanted);
        }
    }
}

/// What `GROUP BY 2` stands for.
fn written<'a>(by: &'a Expr, select: &'a Select) -> &'a Expr {
    let place = match by {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => text.parse::<usize>().ok().and_then(|place| place.checked_sub(1)),
            _ => None,
        },
        _ => None,
    };
    match place.and_then(|place| select.projection.get(place)) {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => expr,
        _ => by,
    }
}

/// The table, by its place in FROM, and the column that an expression is. None if it is more, or is in several tables.
fn column(expr: &Expr, called: &[FromTable<'_>]) -> Option<(usize, usize)> {
    let (table, name) = match expr {
        Expr::Identifier(name) => (None, fold(name)),
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [.., table, name] => (Some(fold(table)), fold(name)),
            _ => return None,
        },
        Expr::Nested(inner) => return column(inner, called),
        _ => return None,
    };
    let mut found = called.iter().enumerate().filter_map(|(at, of)| {
        let is_meant = table.as_ref().is_none_or(|table| *table == of.name);
        let column_idx = of.table.shown().iter().position(|column| column.name == name);
        Some((at, column_idx.filter(|_| is_meant)?))
    });
    match (found.next(), found.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// The columns that a SELECT names outside of aggregates.
struct SelectColumns<'a> {
    called: &'a [FromTable<'a>],
    state: &'a SessionState,
    n_aggregates: usize,
    columns: BTreeSet<(usize, usize)>,
}

impl SelectColumns<'_> {
    fn of(&mut self, select: &Select, order_by: Option<&OrderBy>) {
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(_) => (0..self.called.len()).for_each(|at| self.all_of(at)),
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let name = name.0.last().and_then(|part| part.as_ident()).map(fold);
                    let at = self.called.iter().position(|of| name.as_ref() == Some(&of.name));
                    at.into_iter().for_each(|at| self.all_of(at));
                }
                item => drop(walk(item, self)),
            }
        }
        if let Some(having) = &select.having {
            let _ = walk(having, self);
        }
        if let Some(order_by) = order_by {
            let _ = walk(order_by, self);
        }
    }

    fn all_of(&mut self, at: usize) {
        self.columns.extend((0..self.called[at].table.shown().len()).map(|column_idx| (at, column_idx)));
    }

    fn is_aggregate(&self, expr: &Expr) -> bool {
        let Expr::Function(function) = expr else { return false };
        let name = function.name.0.last().and_then(|part| part.as_ident()).map(fold);
        function.over.is_none() && name.is_some_and(|name| self.state.aggregate_functions().contains_key(&name))
    }
}

impl Visitor for SelectColumns<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.n_aggregates += usize::from(self.is_aggregate(expr));
        if self.n_aggregates == 0 {
            self.columns.extend(column(expr, self.called));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.n_aggregates -= usize::from(self.is_aggregate(expr));
        ControlFlow::Continue(())
    }
}
