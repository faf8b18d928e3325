//! How is a function called, as it is written, and what else do the rewrites do with expressions?

use std::ops::ControlFlow;

pub(crate) use tarn_query::parser::call;
use tarn_query::sqlparser::ast::{BinaryOperator, Expr, ObjectName, Query, Value, Visitor, VisitorMut};
use tarn_query::{Walkable, walk, walk_mut};

use crate::names::fold;

/// Is it a call of that function?
pub(super) fn is_call(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Function(function) if is_named(&function.name, name))
}

/// Is it this name, without a schema?
pub(super) fn is_named(name: &ObjectName, as_: &str) -> bool {
    matches!(&name.0[..], [part] if part.as_ident().is_some_and(|ident| fold(ident) == as_))
}

/// Functions that give something else each time.
const VOLATILE: [&str; 6] = ["random", "gen_random_uuid", "uuid", "clock_timestamp", "nextval", "setval"];

/// Whether the rows of a query, or a value, may be others each time that they are computed.
pub(super) fn is_volatile(query: &impl Walkable) -> bool {
    struct VolatileCallFinder;
    impl Visitor for VolatileCallFinder {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match VOLATILE.iter().any(|name| is_call(expr, name)) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    walk(query, &mut VolatileCallFinder).is_break()
}

/// Takes an expression out of its place, where NULL is then.
pub(super) fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()))
}

/// A number that is written out.
pub(super) fn number(number: u64) -> Expr {
    Expr::Value(Value::Number(number.to_string(), false).with_empty_span())
}

/// An operator between two expressions.
pub(crate) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// Conditions that all hold. `None`: there are none.
pub(crate) fn all_of(conditions: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    conditions.into_iter().reduce(|left, right| binary(left, BinaryOperator::And, right))
}

/// Changes the expressions of a statement's part, the inner ones first, but not those of queries in it, which have
/// names and lists of their own.
pub(super) fn each_outside_queries(part: &mut impl Walkable, change: impl FnMut(&mut Expr)) {
    struct OuterExprVisitor<F> {
        n_queries: usize,
        change: F,
    }
    impl<F: FnMut(&mut Expr)> VisitorMut for OuterExprVisitor<F> {
        type Break = ();

        fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.n_queries += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.n_queries -= 1;
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if self.n_queries == 0 {
                (self.change)(expr);
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(part, &mut OuterExprVisitor { n_queries: 0, change });
}
