//! By which name is a function called? Some have several: `row(x)` is `struct(x)`. The planner gives what is called by
//! another name an alias, so that its column is called as it is written, and of each alias it asks twice what is below,
//! for its type and for its metadata: twenty calls in each other are a million, thirty are hours and gigabytes.
//!
//! So calls that are deep in such calls are called by the functions' own names, and the columns of those are named
//! after them.

use std::ops::ControlFlow;

use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast;

use crate::parser::fold;
use crate::walk::walk_mut;

/// Calls by another name, in each other, that keep it: each doubles the planner's work.
const MAX_ALIASES: usize = 4;

/// Calls functions by their own names, where they are deep in calls by other names.
pub(crate) fn by_own_names(statement: &mut ast::Statement, state: &SessionState) {
    let _ = walk_mut(statement, &mut CallRenamer { state, around: vec![] });
}

struct CallRenamer<'a> {
    state: &'a SessionState,
    /// Of each call around, whether it is by another name.
    around: Vec<bool>,
}

impl CallRenamer<'_> {
    fn own_name(&self, name: &str) -> Option<&str> {
        let scalar = self.state.scalar_functions().get(name).map(|function| function.name());
        scalar.or_else(|| self.state.higher_order_functions().get(name).map(|function| function.name()))
    }
}

impl ast::VisitorMut for CallRenamer<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        let ast::Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let mut is_alias = false;
        if let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_mut_slice() {
            let called = fold(name);
            if let Some(own) = self.own_name(&called).filter(|own| *own != called) {
                is_alias = self.around.iter().filter(|is_alias| **is_alias).count() < MAX_ALIASES;
                if !is_alias {
                    *name = ast::Ident::with_quote('"', own);
                }
            }
        }
        self.around.push(is_alias);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if matches!(expr, ast::Expr::Function(_)) {
            self.around.pop();
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateBuilder;

    use super::*;
    use crate::parser;

    fn renamed(sql: &str) -> String {
        let work = || {
            let state = SessionStateBuilder::new().with_default_features().build();
            let mut statement = parser::statements(sql).unwrap().pop().unwrap();
            by_own_names(&mut statement, &state);
            statement.to_string()
        };
        // The parser goes as deep as its stack allows.
        let thread = std::thread::Builder::new().stack_size(parser::STACK_BYTES);
        std::thread::scope(|scope| thread.spawn_scoped(scope, work).unwrap().join().unwrap())
    }

    #[test]
    fn deep_calls_have_the_names_of_their_functions() {
        let nested = |name: &str, n: usize| format!("{}1{}", format!("{name}(").repeat(n), ")".repeat(n));
        let few = format!("SELECT {}", nested("ROW", MAX_ALIASES));
        assert_eq!(renamed(&few), few);
        let many = renamed(&format!("SELECT {}", nested("ROW", 30)));
        assert_eq!(many.matches("ROW(").count(), MAX_ALIASES);
        assert_eq!(many.matches("\"struct\"(").count(), 30 - MAX_ALIASES);
        // Side by side is not in each other, and what has its own name keeps how it is written.
        let beside = "SELECT pow(1, 2), pow(1, 2), pow(1, 2), pow(1, 2), pow(1, 2), pow(1, 2)";
        assert_eq!(renamed(beside), beside);
        let own = format!("SELECT {}", nested("ABS", 30));
        assert_eq!(renamed(&own), own);
        // What stands in the SELECT and in GROUP BY is called alike, however deep it stands.
        let grouped = "SELECT round(abs(sqrt(ln(abs(pow(a, 2)))))) FROM t GROUP BY pow(a, 2)";
        assert_eq!(renamed(grouped), grouped);
        let mixed = renamed(&format!("SELECT {}", nested("abs(row", 9).replace(')', "))")));
        assert_eq!(mixed.matches("abs(row(").count(), MAX_ALIASES);
        // Not a function: another names it in its error.
        assert_eq!(renamed(&format!("SELECT {}", nested("nothing", 9))), format!("SELECT {}", nested("nothing", 9)));
    }
}
