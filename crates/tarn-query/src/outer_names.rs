//! Which table is `item` in `SELECT (SELECT count(*) FROM part WHERE part.item = item.id) FROM item`? The one of the
//! query around it: a name before a point is a table's. The planner takes it for the column `item` of `part`, and looks
//! for a field of that.
//!
//! So such a name gets a schema before it, and the planner looks for a table. One that has no schema, or another name,
//! is found by any.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Delete, Expr, FromTable, Ident, Select, Statement, TableFactor, TableWithJoins, Update, Visitor, VisitorMut,
};

use crate::from_tables::each_table;
use crate::parser::fold;
use crate::walk::{walk, walk_mut};

/// No schema and no column is called so.
const ANY: &str = "?any?";

/// The statement with schemas before the names of tables that queries further around have. `None`: it has no such name.
///
/// Cost: a walk over the statement, and a copy of one that has subqueries.
pub(crate) fn told_apart(statement: &Statement) -> Option<Statement> {
    if walk(statement, &mut Selects { n_more: 2 }).is_continue() {
        return None;
    }
    let mut statement = statement.clone();
    let mut names = Names::default();
    let _ = walk_mut(&mut statement, &mut names);
    names.has_changed.then_some(statement)
}

/// Breaks where one query is in another.
struct Selects {
    n_more: usize,
}

impl Selects {
    fn one(&mut self) -> ControlFlow<()> {
        self.n_more -= 1;
        if self.n_more == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Visitor for Selects {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        if changed_tables(statement).is_empty() { ControlFlow::Continue(()) } else { self.one() }
    }

    fn pre_visit_select(&mut self, _: &Select) -> ControlFlow<()> {
        self.one()
    }
}

/// The tables of an UPDATE or a DELETE.
fn changed_tables(statement: &Statement) -> Vec<&TableWithJoins> {
    match statement {
        Statement::Update(Update { table, .. }) => vec![table],
        Statement::Delete(Delete {
            from: FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from),
            using,
            ..
        }) => from.iter().chain(using.iter().flatten()).collect(),
        _ => vec![],
    }
}

/// The tables of each query around, the outermost first, and the schema that finds each.
#[derive(Default)]
struct Names {
    around: Vec<HashMap<String, Ident>>,
    has_changed: bool,
}

impl Names {
    fn enter<'a>(&mut self, from: impl IntoIterator<Item = &'a TableWithJoins>) {
        let mut tables = HashMap::new();
        for from in from {
            each_table(from, &mut |name, factor, _| _ = tables.insert(name, schema_of(factor)));
        }
        self.around.push(tables);
    }
}

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<()> {
        let tables = changed_tables(statement);
        if !tables.is_empty() {
            self.enter(tables);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.enter(&select.from);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        self.around.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::CompoundIdentifier(parts) = expr else { return ControlFlow::Continue(()) };
        let ([table, _], Some((nearest, around))) = (&parts[..], self.around.split_last()) else {
            return ControlFlow::Continue(());
        };
        let called = fold(table);
        if !nearest.contains_key(&called)
            && let Some(schema) = around.iter().rev().find_map(|tables| tables.get(&called))
        {
            parts.insert(0, schema.clone());
            self.has_changed = true;
        }
        ControlFlow::Continue(())
    }
}

fn schema_of(factor: &TableFactor) -> Ident {
    let own = match factor {
        TableFactor::Table { name, alias: None, .. } => name.0.iter().rev().nth(1).and_then(|part| part.as_ident()),
        _ => None,
    };
    own.cloned().unwrap_or_else(|| Ident::with_quote('"', ANY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser;

    #[test]
    fn names_of_tables_further_around_have_schemas() {
        for (sql, want) in [
            (
                "SELECT (SELECT count(*) FROM b WHERE b.a = a.id) FROM a",
                "SELECT (SELECT count(*) FROM b WHERE b.a = \"?any?\".a.id) FROM a",
            ),
            (
                "SELECT (SELECT count(*) FROM b WHERE b.a = A.id) FROM z.a",
                "SELECT (SELECT count(*) FROM b WHERE b.a = z.A.id) FROM z.a",
            ),
            (
                "DELETE FROM z.a AS x WHERE EXISTS (SELECT 1 FROM b WHERE b.a = x.id)",
                "DELETE FROM z.a AS x WHERE EXISTS (SELECT 1 FROM b WHERE b.a = \"?any?\".x.id)",
            ),
        ] {
            assert_eq!(written(sql).as_deref(), Some(want));
        }
        for same in [
            "SELECT a.id FROM a",
            "SELECT (SELECT count(*) FROM a WHERE a.id > 1) FROM a",
            "SELECT (SELECT count(*) FROM b WHERE b.a = c.id) FROM a",
            "UPDATE a SET id = a.id + 1",
        ] {
            assert_eq!(written(same), None);
        }
    }

    fn written(sql: &str) -> Option<String> {
        let statement = parser::statements(sql).unwrap().pop().unwrap();
        told_apart(&statement).map(|statement| statement.to_string())
    }
}
