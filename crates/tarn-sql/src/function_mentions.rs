//! What names a function in a text that is kept: views, defaults, checks, generated columns, and bodies that are no
//! text of their own?

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Expr, FunctionArg, ObjectName, TableFactor, TableFunctionArgs, Visitor};
use tarn_node::functions::UserFunction;
use tarn_query::parser::statements;
use tarn_query::{Walkable, walk};
use tarn_types::{TableSchema, full_name};

use crate::expressions::read;
use crate::names::{fold, quote};
use crate::user_functions::query_of;

/// Each of them, as PostgreSQL says it. A call of another function of the name counts, too: which is meant is known
/// when it is planned.
pub fn mentions<'a>(
    tables: &[Arc<TableSchema>],
    functions: impl Iterator<Item = &'a UserFunction>,
    of: &UserFunction,
) -> Vec<String> {
    let (name, shown) = (of.name.as_str(), of.shown());
    let in_query = |text: &str| statements(text).is_ok_and(|all| all.iter().any(|statement| calls(statement, name)));
    let in_expr = |text: &str| read(text).is_ok_and(|expr| calls(&expr, name));
    let mut found = vec![];
    for table in tables {
        if table.options.view.as_ref().is_some_and(|view| in_query(&view.query)) {
            found.push(format!("view {} depends on function {shown}", table.name));
        }
        for (at, column) in table.columns.iter().enumerate() {
            let default = table.computed_default(at).is_some_and(in_expr);
            if default || table.generated(at).is_some_and(|of| in_expr(&of.expr)) {
                let of = format!("default value for column {} of table {}", column.name, table.name);
                found.push(format!("{of} depends on function {shown}"));
            }
        }
        for check in table.options.rules.checks.iter().filter(|check| in_expr(&check.expr)) {
            found.push(format!("constraint {} on table {} depends on function {shown}", check.name, table.name));
        }
    }
    for function in functions {
        if in_query(&query_of(&function.written.body)) {
            let (caller, types) = (quote(&function.name), function.written.signature().join(","));
            found.push(format!("function {caller}({types}) depends on function {shown}"));
        }
    }
    found
}

/// Whether a call of this name is one of the function of this full name.
pub fn is_called(call: &ObjectName, name: &str) -> bool {
    let parts: Option<Vec<String>> = call.0.iter().map(|part| part.as_ident().map(fold)).collect();
    match parts.as_deref() {
        Some([only]) => name == only,
        Some([.., schema, own]) => name == full_name::join(schema, own),
        _ => false,
    }
}

/// Whether a part of a statement calls a function of this full name. One that is named without a schema is in `public`.
pub fn calls(part: &impl Walkable, name: &str) -> bool {
    calls_with(part, name, |_| true)
}

/// As [`calls`], but of the calls in FROM only those that have such arguments.
pub fn calls_with(part: &impl Walkable, name: &str, in_from: impl Fn(&[FunctionArg]) -> bool) -> bool {
    struct CallFinder<'a, F> {
        name: &'a str,
        in_from: F,
    }

    impl<F> CallFinder<'_, F> {
        fn is(&self, name: &ObjectName) -> ControlFlow<()> {
            if is_called(name, self.name) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    impl<F: Fn(&[FunctionArg]) -> bool> Visitor for CallFinder<'_, F> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(call) => self.is(&call.name),
                _ => ControlFlow::Continue(()),
            }
        }

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            match factor {
                TableFactor::Table { name, args: Some(TableFunctionArgs { args, .. }), .. }
                | TableFactor::Function { name, args, .. }
                    if (self.in_from)(args) =>
                {
                    self.is(name)
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }

    walk(part, &mut CallFinder { name, in_from }).is_break()
}
