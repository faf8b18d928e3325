//! Where would a function see less than in PostgreSQL? A `VOLATILE` one reads what is there when it is called: rows
//! that its own statement has changed until then, and what was changed since its cursor was declared. Here its query is
//! a part of the query that calls it, and reads what was there when that began. So where it makes a difference it is
//! refused: where it is called for each row and reads the table that its statement changes, and where a cursor gives
//! rows out after a change.
//!
//! A statement that changes one row calls it before that, and a function in FROM is read whole before the first row is
//! changed.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, SetExpr, Statement, TableFactor, Visitor,
};
use tarn_node::functions::{UserFunction, Volatility};
use tarn_query::parser::statements;
use tarn_query::{datafusion, each_expr, walk};
use tarn_types::{TableSchema, full_name};

use super::Session;
use crate::error::{Result, SqlError};
use crate::function_mentions::{calls, calls_with};
use crate::names::{column_of, fold};
use crate::user_functions::query_of;

impl Session {
    /// Before a statement changes rows of a table.
    ///
    /// Errors: `0A000`, with the function.
    pub(super) fn check_volatile(&self, statement: &Statement, table: &TableSchema) -> Result<()> {
        let changed = full_name::bare(&table.name);
        // What a view reads is not followed.
        let is_met = |name: &String| name == changed || self.view_of(name).is_some();
        let is_called = |of: &UserFunction| calls_for_rows(statement, &of.name);
        match self.volatile(is_called, is_met) {
            Some(function) if !changes_one_row(statement, table) => Err(SqlError::unsupported(
                format!(
                    "calling {function}, a VOLATILE function that reads \"{changed}\", for each row that is changed there"
                ),
                "ALTER FUNCTION … STABLE: it reads what is there when the statement begins",
            )),
            _ => Ok(()),
        }
    }

    /// A function whose answer a cursor of this query would give another way once something was changed.
    pub(super) fn volatile_in(&self, query: &Statement) -> Option<String> {
        self.volatile(|of| calls(query, &of.name), |_| true)
    }

    /// A function that is called, and reads one of these.
    fn volatile(&self, is_called: impl Fn(&UserFunction) -> bool, is_met: impl Fn(&String) -> bool) -> Option<String> {
        let functions = self.node.functions().all();
        let mut called = functions.iter().filter(|of| of.written.volatility == Volatility::Volatile && is_called(of));
        let found = called.find(|function| {
            let mut reads = QueryReads { tables: HashSet::new(), seen: HashSet::new(), functions: &functions };
            reads.add(function);
            reads.tables.iter().any(&is_met)
        });
        found.map(|function| function.shown())
    }
}

/// Whether a function is called for rows, and not once in FROM.
fn calls_for_rows(statement: &Statement, name: &str) -> bool {
    let names_column = |expr: &Expr| match column_of(expr) {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    };
    let asks = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
        | FunctionArg::Named { arg: FunctionArgExpr::Expr(expr), .. }
        | FunctionArg::ExprNamed { arg: FunctionArgExpr::Expr(expr), .. } => each_expr(expr, names_column).is_break(),
        _ => false,
    };
    calls_with(statement, name, |args| args.iter().any(asks))
}

/// Whether it says itself that there is one row at most.
fn changes_one_row(statement: &Statement, table: &TableSchema) -> bool {
    let by_key = |condition: Option<&Expr>| condition.is_some_and(|condition| has_key(condition, table));
    match statement {
        Statement::Insert(insert) => insert.source.as_ref().is_none_or(|source| match source.body.as_ref() {
            SetExpr::Values(values) => values.rows.len() <= 1,
            SetExpr::Select(select) => select.from.is_empty(),
            _ => false,
        }),
        Statement::Update(update) => update.from.is_none() && by_key(update.selection.as_ref()),
        Statement::Delete(delete) => delete.using.is_none() && by_key(delete.selection.as_ref()),
        _ => false,
    }
}

/// Whether each column of the key is to be equal to something that names no column.
fn has_key(condition: &Expr, table: &TableSchema) -> bool {
    fn fixed(condition: &Expr, found: &mut HashSet<String>) {
        match condition {
            Expr::Nested(of) => fixed(of, found),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                fixed(left, found);
                fixed(right, found);
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                for (column, value) in [(left, right), (right, left)] {
                    if let Some(column) = column_of(column)
                        && is_constant(value)
                    {
                        found.insert(fold(column));
                    }
                }
            }
            _ => {}
        }
    }
    fn is_constant(value: &Expr) -> bool {
        match value {
            Expr::Value(_) => true,
            Expr::Cast { expr, .. } | Expr::Nested(expr) => is_constant(expr),
            _ => false,
        }
    }
    let mut found = HashSet::new();
    fixed(condition, &mut found);
    !table.is_keyless() && table.key.iter().all(|part| found.contains(&table.columns[part.column_idx].name))
}

/// What a function's query names in FROM, and what the functions do that it calls. Names of WITHs are among them.
struct QueryReads<'a> {
    tables: HashSet<String>,
    seen: HashSet<u32>,
    functions: &'a [Arc<UserFunction>],
}

impl QueryReads<'_> {
    fn add(&mut self, function: &UserFunction) {
        if !self.seen.insert(function.id.0) {
            return;
        }
        for statement in statements(&query_of(&function.written.body)).unwrap_or_default() {
            let _ = walk(&statement, self);
            for called in self.functions.iter().filter(|of| calls(&statement, &of.name)) {
                self.add(called);
            }
        }
    }
}

impl Visitor for QueryReads<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: None, .. } = factor {
            self.tables.extend(name.0.last().and_then(|part| part.as_ident()).map(fold));
        }
        ControlFlow::Continue(())
    }
}
