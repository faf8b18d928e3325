//! Which columns are `(v).*`? The fields of the row `v`, one column each. Which they are, the select is asked that it
//! stands in: the row is planned alone, with the FROM and the WITHs around it. Selects are looked at from the inside
//! out.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SetExpr, Statement, Visitor, VisitorMut, With,
};
use tarn_query::parser::statements;
use tarn_query::{walk, walk_mut};

use super::Session;
use super::placeholders::DeclaredType;
use crate::error::{Result, SqlError, state};
use crate::names::fold;
use crate::postgres::{field_of_row, row_of_all};
use crate::row_type::is_anonymous;
use crate::rows::{long_name, pg_type};
use crate::shown::numbered_name;

/// Selects of a statement that may have such columns.
const MAX_SELECTS: usize = 200;

/// Columns that were written have smaller numbers behind their names.
const FIRST_NUMBER: usize = 100_000;

impl Session {
    /// A statement with the fields in the place of such columns. `None`: there are none.
    ///
    /// Errors: `42809` of what is no row; `0A000` of a row that is not known without what is around its query.
    pub(super) async fn with_row_stars(
        &self,
        statement: &Statement,
        declared: &[Option<DeclaredType>],
    ) -> Result<Option<Statement>> {
        let mut own: Option<Statement> = None;
        for _ in 0..MAX_SELECTS {
            let mut found = RowStarFinder { withs: vec![], asked: vec![] };
            if walk(own.as_ref().unwrap_or(statement), &mut found).is_continue() {
                return Ok(own);
            }
            let mut fields = vec![];
            for asked in &found.asked {
                let Some(asked) = asked else { return Err(not_known()) };
                let plan = Box::pin(self.plan(asked, declared)).await.map_err(|error| match error.state() {
                    state::UNDEFINED_COLUMN | state::SYNTAX_OR_ACCESS => not_known().with_detail(error.to_string()),
                    _ => error,
                })?;
                fields.push(names_of(plan.schema().field(0))?);
            }
            let mut written = RowStarExpander { fields };
            let _ = walk_mut(own.get_or_insert_with(|| statement.clone()), &mut written);
        }
        Err(SqlError::new(state::PROGRAM_LIMIT, format!("a statement has (…).* in {MAX_SELECTS} selects at most"))
            .with_hint("name the fields"))
    }
}

fn not_known() -> SqlError {
    SqlError::unsupported("(…).* of a row that depends on what is around its query", "name the fields: (v).a, (v).b")
}

/// The names of a row's fields.
fn names_of(row: &Field) -> Result<Vec<String>> {
    let DataType::Struct(fields) = row.data_type() else {
        let message = format!("type {} is not composite", long_name(&pg_type(row)?));
        return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
    };
    Ok(match is_anonymous(fields) {
        true => (1..=fields.len()).map(|at| format!("f{at}")).collect(),
        false => fields.iter().map(|field| field.name().clone()).collect(),
    })
}

fn row_of(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => row_of_all(expr),
        _ => None,
    }
}

/// Finds the first select, from the inside out, that has such columns.
struct RowStarFinder {
    /// Those around, the outermost first.
    withs: Vec<Option<With>>,
    /// A query of each row.
    asked: Vec<Option<Statement>>,
}

impl Visitor for RowStarFinder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.withs.push(query.with.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.withs.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.asked = select.projection.iter().filter_map(row_of).map(|row| self.asking(select, row)).collect();
        if self.asked.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl RowStarFinder {
    fn asking(&self, around: &Select, row: &Expr) -> Option<Statement> {
        let Statement::Query(mut query) = statements("SELECT 1").ok()?.pop()? else { return None };
        let SetExpr::Select(select) = query.body.as_mut() else { return None };
        select.projection = vec![SelectItem::UnnamedExpr(row.clone())];
        select.from.clone_from(&around.from);
        for with in self.withs.iter().flatten() {
            let known = query.with.get_or_insert_with(|| With { cte_tables: vec![], ..with.clone() });
            known.recursive |= with.recursive;
            // What is nearer hides what is called like it.
            known
                .cte_tables
                .retain(|cte| with.cte_tables.iter().all(|near| fold(&near.alias.name) != fold(&cte.alias.name)));
            known.cte_tables.extend(with.cte_tables.iter().cloned());
        }
        Some(Statement::Query(query))
    }
}

/// Writes out the columns of that select.
struct RowStarExpander {
    fields: Vec<Vec<String>>,
}

impl VisitorMut for RowStarExpander {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if !select.projection.iter().any(|item| row_of(item).is_some()) {
            return ControlFlow::Continue(());
        }
        let mut names: HashSet<String> = select.projection.iter().filter_map(name_of).collect();
        let mut rows = std::mem::take(&mut self.fields).into_iter();
        for item in std::mem::take(&mut select.projection) {
            let Some(row) = row_of(&item) else {
                select.projection.push(item);
                continue;
            };
            for name in rows.next().unwrap_or_default() {
                // The planner wants another name for the second of two.
                let alias = match names.insert(name.clone()) {
                    true => Ident::with_quote('"', &name),
                    false => numbered_name(&name, FIRST_NUMBER + select.projection.len()),
                };
                let expr = field_of_row(row.clone(), &name);
                select.projection.push(SelectItem::ExprWithAlias { expr, alias });
            }
        }
        ControlFlow::Break(())
    }
}

fn name_of(item: &SelectItem) -> Option<String> {
    match item {
        item if row_of(item).is_some() => None,
        SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(fold(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(fold),
        _ => None,
    }
}
