//! Which columns are `s.*` of `SELECT s.* FROM z.s`? Those of the table of schema `z`. The planner finds `s.id` by the
//! table's name alone, but takes for `s.*` only columns whose table was named exactly so, without a schema.
//!
//! So the name of the star becomes the one that the table has in FROM.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ObjectName, ObjectNamePart, Select, SelectItem, SelectItemQualifiedWildcardKind, Statement, TableFactor, VisitorMut,
};

use crate::from_tables::each_table;
use crate::parser::fold;
use crate::walk::walk_mut;

/// Writes the schemas of tables before the names of their stars.
///
/// Cost: a walk over the statement.
pub(crate) fn with_schemas(statement: &mut Statement) {
    let _ = walk_mut(statement, &mut Stars);
}

struct Stars;

impl VisitorMut for Stars {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(star), _) = item else {
                continue;
            };
            let [ObjectNamePart::Identifier(table)] = &star.0[..] else { continue };
            let called = fold(table);
            let (mut n_called_so, mut in_from) = (0, None);
            for from in &select.from {
                each_table(from, &mut |name, factor, _| {
                    if name == called {
                        n_called_so += 1;
                        in_from = name_with_schema(factor);
                    }
                });
            }
            // Which of two is meant cannot be told.
            if n_called_so == 1
                && let Some(name) = in_from
            {
                star.clone_from(name);
            }
        }
        ControlFlow::Continue(())
    }
}

/// The name of a table that has a schema before it, and no alias.
fn name_with_schema(factor: &TableFactor) -> Option<&ObjectName> {
    match factor {
        TableFactor::Table { name, alias: None, args: None, .. } if name.0.len() > 1 => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser;

    #[test]
    fn stars_are_named_as_tables_in_from() {
        for (sql, want) in [
            ("SELECT s.* FROM z.s", "SELECT z.s.* FROM z.s"),
            ("SELECT S.*, a.* FROM \"Z\".s JOIN a ON true", "SELECT \"Z\".s.*, a.* FROM \"Z\".s JOIN a ON true"),
            ("SELECT s.* FROM x, (z.s CROSS JOIN y)", "SELECT z.s.* FROM x, (z.s CROSS JOIN y)"),
            ("SELECT 1 UNION SELECT s.* FROM z.s", "SELECT 1 UNION SELECT z.s.* FROM z.s"),
            ("SELECT (SELECT s.* FROM z.s) FROM z.s", "SELECT (SELECT z.s.* FROM z.s) FROM z.s"),
        ] {
            assert_eq!(written(sql), want);
        }
        for same in [
            "SELECT s.* FROM s",
            "SELECT z.s.* FROM z.s",
            "SELECT s.* FROM z.s AS x",
            "SELECT x.* FROM z.s AS x",
            "SELECT s.* FROM z.s, y.s",
            "SELECT s.* FROM z.t AS s, y.t",
            "SELECT s.* FROM z.s, s",
            "SELECT * FROM z.s",
        ] {
            assert_eq!(written(same), same);
        }
    }

    fn written(sql: &str) -> String {
        let mut statement = parser::statements(sql).unwrap().pop().unwrap();
        with_schemas(&mut statement);
        statement.to_string()
    }
}
