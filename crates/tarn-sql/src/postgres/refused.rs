//! Which statements does PostgreSQL refuse that the planner takes, and gives an answer that nobody asked for? They are refused as they are
//! written, with PostgreSQL's state:
//!
//! | statement | PostgreSQL | the planner |
//! |---|---|---|
//! | `SELECT DISTINCT FROM t` | 42601 | rows without columns |
//! | `SELECT ARRAY[]` | 42P18 | `{}` |
//! | `SELECT count() FROM t` | 42809 | counts |
//! | `SELECT generate_series(1, 3) OVER ()`, `VALUES (generate_series(1, 3))` | 42809, 0A000 | rows, an array |
//! | `SELECT nth_value(x, 0) OVER ()` | 22016 | NULL |
//! | `WITH RECURSIVE x AS (… UNION ALL SELECT … FROM y LEFT JOIN x …)` | 42P19 | rows |
//! | `WITH RECURSIVE x AS (… UNION … ORDER BY …)` | 0A000 | rows |

use std::ops::ControlFlow;

use tarn_query::sqlparser::ast::{
    Cte, Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, JoinOperator, ObjectName, Query,
    Select, SetExpr, Statement, TableFactor, TableWithJoins, UnaryOperator, Value, Visitor,
};
use tarn_query::{Walked, each_relation, walk};

use super::calls::{is_call, is_named};
use super::json::written as json;
use super::text_sets;
use crate::error::{Result, SqlError, state};
use crate::names::fold;

/// Functions whose calls are rows; those of texts and documents are asked their own files.
const SETS: [&str; 3] = ["generate_series", "generate_subscripts", "unnest"];

/// Whether a call gives rows.
pub(super) fn gives_rows(expr: &Expr) -> bool {
    SETS.iter().any(|name| is_call(expr, name)) || json::gives_rows(expr) || text_sets::gives_rows(expr)
}

/// Refuses what is in a statement, as it was written.
pub(super) fn check(statement: &Statement) -> Result<()> {
    match walk(statement, &mut Check::default()) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

#[derive(Default)]
struct Check {
    /// Casts of arrays around, which say what arrays without items are.
    n_typed: usize,
}

impl Visitor for Check {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        told(check_query(query))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        told(match (&select.distinct, select.projection.is_empty()) {
            (Some(Distinct::Distinct), true) => {
                Err(SqlError::new(state::SYNTAX_ERROR, "syntax error: SELECT DISTINCT of no columns"))
            }
            _ => Ok(()),
        })
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        self.n_typed += usize::from(is_typed(expr));
        told(match expr {
            Expr::Array(array) if array.elem.is_empty() && self.n_typed == 0 => {
                Err(SqlError::new(state::INDETERMINATE_TYPE, "cannot determine type of empty array")
                    .with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[]."))
            }
            Expr::Function(function) => check_call(function, function.over.is_some() && gives_rows(expr)),
            _ => Ok(()),
        })
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        self.n_typed -= usize::from(is_typed(expr));
        ControlFlow::Continue(())
    }
}

fn is_typed(expr: &Expr) -> bool {
    matches!(expr, Expr::Cast { expr, .. } if is_array(expr))
}

fn is_array(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_array(inner),
        expr => matches!(expr, Expr::Array(_)),
    }
}

fn told(checked: Result<()>) -> ControlFlow<SqlError> {
    match checked {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

fn check_call(function: &Function, is_set_over: bool) -> Result<()> {
    if is_set_over {
        let message =
            format!("OVER specified, but {} is not a window function nor an aggregate function", function.name);
        return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
    }
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    if is_named(&function.name, "count") && list.args.is_empty() {
        let message = "count(*) must be used to call a parameterless aggregate function";
        return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
    }
    if is_named(&function.name, "nth_value")
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(place))) = list.args.get(1)
        && is_below_one(place)
    {
        let message = "argument of nth_value must be greater than zero";
        return Err(SqlError::new(state::INVALID_NTH_VALUE, message));
    }
    Ok(())
}

/// A number that is written out, and is 0 or less.
fn is_below_one(expr: &Expr) -> bool {
    match expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => matches!(expr.as_ref(), Expr::Value(_)),
        Expr::Value(value) => {
            matches!(&value.value, Value::Number(digits, _) if digits.parse::<u64>().is_ok_and(|n| n == 0))
        }
        _ => false,
    }
}

fn check_query(query: &Query) -> Result<()> {
    if let SetExpr::Values(values) = query.body.as_ref()
        && values.rows.iter().flat_map(|row| &row.content).any(gives_rows)
    {
        let message = "set-returning functions are not allowed in VALUES";
        return Err(SqlError::unsupported(message, "SELECT gives a row for each item"));
    }
    let recursive = query.with.iter().filter(|with| with.recursive);
    recursive.flat_map(|with| &with.cte_tables).try_for_each(check_recursive)
}

/// A name of WITH RECURSIVE, whose query reads itself where that has no meaning.
fn check_recursive(cte: &Cte) -> Result<()> {
    let (name, query) = (fold(&cte.alias.name), cte.query.as_ref());
    if !mentions(query, &name) {
        return Ok(());
    }
    let clause = match (&query.order_by, &query.limit_clause) {
        (Some(_), _) => "ORDER BY",
        (_, Some(_)) => "LIMIT or OFFSET",
        (None, None) => {
            let SetExpr::SetOperation { right, .. } = query.body.as_ref() else { return Ok(()) };
            return check_recursive_part(right, &name);
        }
    };
    let message = format!("{clause} in a recursive query is not implemented");
    Err(SqlError::unsupported(message, "say it of the query that reads it"))
}

fn check_recursive_part(part: &SetExpr, name: &str) -> Result<()> {
    match part {
        SetExpr::Select(select) => select.from.iter().try_for_each(|from| check_joins(from, name)),
        SetExpr::Query(query) => check_recursive_part(&query.body, name),
        _ => Ok(()),
    }
}

/// Rows that an outer join may make up are none of the rows before.
fn check_joins(from: &TableWithJoins, name: &str) -> Result<()> {
    if let TableFactor::NestedJoin { table_with_joins, .. } = &from.relation {
        check_joins(table_with_joins, name)?;
    }
    for (at, join) in from.joins.iter().enumerate() {
        let is_left =
            || mentions(&from.relation, name) || from.joins[..at].iter().any(|join| mentions(&join.relation, name));
        let is_right = || mentions(&join.relation, name);
        let is_made_up = match join.join_operator {
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => is_right(),
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => is_left(),
            JoinOperator::FullOuter(_) => is_left() || is_right(),
            _ => false,
        };
        if is_made_up {
            let message = format!("recursive reference to query \"{name}\" must not appear within an outer join");
            return Err(SqlError::new(state::INVALID_RECURSION, message));
        }
        if let TableFactor::NestedJoin { table_with_joins, .. } = &join.relation {
            check_joins(table_with_joins, name)?;
        }
    }
    Ok(())
}

/// Whether a part of a statement reads a relation that is called so.
fn mentions(part: &impl Walked, name: &str) -> bool {
    let is_named = |relation: &ObjectName| match is_named(relation, name) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    each_relation(part, is_named).is_break()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn what_postgres_refuses() {
        let state_of = |sql: &str| {
            let statement = tarn_query::parser::statements(sql).unwrap().remove(0);
            check(&statement).err().map(|error| error.state())
        };
        let recursive = |joins: &str, more: &str| {
            format!("WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM {joins}{more}) SELECT n FROM x")
        };
        for (sql, state) in [
            ("SELECT DISTINCT FROM t", Some("42601")),
            ("SELECT FROM t", None),
            ("SELECT ARRAY[]", Some("42P18")),
            ("SELECT ARRAY[]::int[], ARRAY[1]", None),
            ("SELECT ARRAY[ARRAY[]]::int[]", None),
            ("SELECT count() OVER () FROM t", Some("42809")),
            ("SELECT count(*), count(a) FROM t", None),
            ("SELECT generate_series(1, 3) OVER ()", Some("42809")),
            ("VALUES (1, generate_series(1, 3))", Some("0A000")),
            ("SELECT nth_value(a, 0) OVER () FROM t", Some("22016")),
            ("SELECT nth_value(a, -1) OVER () FROM t", Some("22016")),
            ("SELECT nth_value(a, 1) OVER () FROM t", None),
            (&recursive("y LEFT JOIN x ON n = a", ""), Some("42P19")),
            (&recursive("x LEFT JOIN y ON n = a", ""), None),
            (&recursive("x RIGHT JOIN y ON n = a", ""), Some("42P19")),
            (&recursive("y RIGHT JOIN x ON n = a", ""), None),
            (&recursive("x FULL JOIN y ON n = a", ""), Some("42P19")),
            (&recursive("z JOIN (y LEFT JOIN x ON n = a) ON true", ""), Some("42P19")),
            (&recursive("x", " ORDER BY 1"), Some("0A000")),
            (&recursive("x", " LIMIT 10"), Some("0A000")),
            ("WITH RECURSIVE x(n) AS (SELECT 1 ORDER BY 1 LIMIT 1) SELECT n FROM x", None),
        ] {
            assert_eq!(state_of(sql), state, "{sql}");
        }
    }
}
