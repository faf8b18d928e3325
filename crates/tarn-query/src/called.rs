//! By which name is a function called? Some have several: `row(x)` is `struct(x)`. The planner gives what is called by another
//! name an alias, so that its column is called as it is written, and of each alias it asks twice what is below, for its type
//! and for its metadata: twenty calls in each other are a million, thirty are hours and gigabytes.
//!
//! So calls that are deep in others are called by their own names. Their columns have none.

use std::ops::ControlFlow;

use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast;

/// So deep in other calls a function may be called by any of its names: each doubles the work.
const MAX_ALIASES: usize = 4;

/// Calls functions by their own names, where they are deep in other calls.
pub(crate) fn by_own_names(statement: &mut ast::Statement, state: &SessionState) {
    let _ = ast::VisitMut::visit(statement, &mut Calls { state, depth: 0 });
}

struct Calls<'a> {
    state: &'a SessionState,
    depth: usize,
}

impl Calls<'_> {
    fn own_name(&self, name: &str) -> Option<&str> {
        let scalar = self.state.scalar_functions().get(name).map(|function| function.name());
        scalar.or_else(|| self.state.higher_order_functions().get(name).map(|function| function.name()))
    }
}

impl ast::VisitorMut for Calls<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        let ast::Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        self.depth += 1;
        if self.depth > MAX_ALIASES
            && let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_mut_slice()
        {
            let called = if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() };
            if let Some(own) = self.own_name(&called).filter(|own| *own != called) {
                *name = ast::Ident::with_quote('"', own);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        self.depth -= usize::from(matches!(expr, ast::Expr::Function(_)));
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
        // Not a function: another names it in its error.
        assert_eq!(renamed(&format!("SELECT {}", nested("nothing", 9))), format!("SELECT {}", nested("nothing", 9)));
    }
}
