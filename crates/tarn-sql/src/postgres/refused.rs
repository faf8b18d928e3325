//! Which statements does PostgreSQL refuse that the planner takes, and gives an answer that nobody asked for? They are
//! refused as they are written, with PostgreSQL's state:
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
//! | `WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT (n + 1)::numeric …)` | 42804 | integers |
//! | `SELECT a.n FROM a LEFT JOIN b USING (n) GROUP BY n` | 42803 if `n` has two types | rows |
//! | `SELECT g AS a, g AS b … GROUP BY a, ROLLUP (b)` | groups by each | one column |
//! | `FROM a, LATERAL (SELECT count(*) FROM b WHERE b.n = a.n GROUP BY ROLLUP (v))` | a group of no rows, too | none of rows without a match |

use std::ops::ControlFlow;

use tarn_query::sqlparser::ast::{
    Cte, DataType, Distinct, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    GroupByExpr, JoinConstraint, JoinOperator, ObjectName, Query, Select, SelectItem, SetExpr, Statement, TableFactor,
    TableWithJoins, UnaryOperator, Value, Visitor,
};
use tarn_query::{Walkable, each_relation, walk};

use super::calls::{is_call, is_named};
use super::json::{record_sets, written as json};
use super::text_sets;
use crate::error::{Result, SqlError, state};
use crate::names::fold;

/// Functions whose calls are rows; those of texts and documents are asked their own files.
const SETS: [&str; 3] = ["generate_series", "generate_subscripts", "unnest"];

/// Whether a call gives rows.
pub(super) fn gives_rows(expr: &Expr) -> bool {
    let is_of_json = json::gives_rows(expr) || record_sets::gives_rows(expr);
    SETS.iter().any(|name| is_call(expr, name)) || is_of_json || text_sets::gives_rows(expr)
}

/// Refuses what is in a statement, as it was written.
pub(super) fn check(statement: &Statement) -> Result<()> {
    match walk(statement, &mut StatementCheck::default()) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

#[derive(Default)]
struct StatementCheck {
    /// Casts of arrays around, which say what arrays without items are.
    n_typed: usize,
}

impl Visitor for StatementCheck {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        told(check_query(query))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        told(match (&select.distinct, select.projection.is_empty()) {
            (Some(Distinct::Distinct), true) => {
                Err(SqlError::new(state::SYNTAX_ERROR, "syntax error: SELECT DISTINCT of no columns"))
            }
            _ => check_grouping_sets(select).and_then(|()| check_merged(select)),
        })
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<SqlError> {
        told(match factor {
            TableFactor::Derived { lateral: true, subquery, .. } if groups_what_matches(subquery) => {
                // The planner makes a join of it, in which rows without a match have no group of all rows.
                Err(SqlError::unsupported(
                    "GROUPING SETS, ROLLUP and CUBE in LATERAL",
                    "join, and group behind the join",
                ))
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

/// Whether it has several groupings of the rows that its WHERE leaves.
fn groups_what_matches(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let GroupByExpr::Expressions(by, _) = &select.group_by else { return false };
    select.selection.is_some()
        && by.iter().any(|by| matches!(by, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_)))
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
            let SetExpr::SetOperation { left, right, .. } = query.body.as_ref() else { return Ok(()) };
            check_recursive_types(left, right, &name)?;
            return check_recursive_part(right, &name);
        }
    };
    let message = format!("{clause} in a recursive query is not implemented");
    Err(SqlError::unsupported(message, "say it of the query that reads it"))
}

/// What the part that reads itself casts to another number than the first part has: the planner casts it back.
fn check_recursive_types(first: &SetExpr, part: &SetExpr, name: &str) -> Result<()> {
    let (SetExpr::Select(first), SetExpr::Select(part)) = (first, part) else { return Ok(()) };
    fn value(item: Option<&SelectItem>) -> Option<&Expr> {
        match item? {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
            _ => None,
        }
    }
    for (at, item) in part.projection.iter().enumerate() {
        let Some(Expr::Cast { data_type: to, .. }) = value(Some(item)) else { continue };
        let is_wide = matches!(
            to,
            DataType::Numeric(_)
                | DataType::Decimal(_)
                | DataType::Real
                | DataType::Float4
                | DataType::DoublePrecision
                | DataType::Float8
        );
        let is_same = match value(first.projection.get(at)) {
            Some(Expr::Cast { data_type, .. }) => {
                // A `numeric` has room for every other.
                data_type == to || *data_type == DataType::Numeric(ExactNumberInfo::None)
            }
            _ => false,
        };
        if is_wide && !is_same {
            let message =
                format!("recursive query \"{name}\" column {} is cast to {to} in its recursive term alone", at + 1);
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message)
                .with_hint("Cast the output of the non-recursive term to the correct type."));
        }
    }
    Ok(())
}

/// Grouping sets name a column of the list twice: each of its names is a group by itself.
fn check_grouping_sets(select: &Select) -> Result<()> {
    let GroupByExpr::Expressions(by, _) = &select.group_by else { return Ok(()) };
    let mut sets = vec![];
    let mut names = vec![];
    for expr in by {
        match expr {
            Expr::Rollup(of) | Expr::Cube(of) | Expr::GroupingSets(of) => sets.extend(of.iter().flatten()),
            other => names.push(other),
        }
    }
    if sets.is_empty() {
        return Ok(());
    }
    let aliased = |expr: &Expr| {
        let Expr::Identifier(name) = expr else { return None };
        select.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if fold(alias) == fold(name) => Some((fold(alias), expr)),
            _ => None,
        })
    };
    let named: Vec<(String, &Expr)> = names.into_iter().chain(sets).filter_map(aliased).collect();
    let is_twice = named
        .iter()
        .enumerate()
        .any(|(at, (name, expr))| named[..at].iter().any(|(other, of)| other != name && of == expr));
    match is_twice {
        true => Err(SqlError::unsupported(
            "grouping sets of one column by two names are not supported",
            "write one of them as another expression, as (x + 0)",
        )),
        false => Ok(()),
    }
}

/// A column that USING has merged is another than that of a table, if their types are not the same, which nobody knows
/// yet.
fn check_merged(select: &Select) -> Result<()> {
    let GroupByExpr::Expressions(by, _) = &select.group_by else { return Ok(()) };
    let merged: Vec<String> = select
        .from
        .iter()
        .flat_map(|from| &from.joins)
        .filter_map(|join| match &join.join_operator {
            JoinOperator::Join(JoinConstraint::Using(names))
            | JoinOperator::Inner(JoinConstraint::Using(names))
            | JoinOperator::Left(JoinConstraint::Using(names))
            | JoinOperator::LeftOuter(JoinConstraint::Using(names)) => Some(names),
            _ => None,
        })
        .flatten()
        .filter_map(|name| name.0.last().and_then(|part| part.as_ident()).map(fold))
        .collect();
    let is_grouped = |name: &str| {
        merged.iter().any(|merged| merged == name)
            && by.iter().any(|by| matches!(by, Expr::Identifier(by) if fold(by) == name))
            && !by.iter().any(
                |by| matches!(by, Expr::CompoundIdentifier(path) if path.last().is_some_and(|by| fold(by) == name)),
            )
    };
    for item in &select.projection {
        if let SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path))
        | SelectItem::ExprWithAlias { expr: Expr::CompoundIdentifier(path), .. } = item
            && let [table, column] = &path[..]
            && is_grouped(&fold(column))
        {
            let message = format!(
                "column \"{table}.{column}\" must appear in the GROUP BY clause or be used in an aggregate function"
            );
            let hint = format!("GROUP BY {table}.{column}, or SELECT {column}");
            return Err(SqlError::new(state::GROUPING, message).with_hint(hint));
        }
    }
    Ok(())
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
fn mentions(part: &impl Walkable, name: &str) -> bool {
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
            (
                "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT (n + 1)::numeric FROM x) SELECT n FROM x",
                Some("42804"),
            ),
            (
                "WITH RECURSIVE x(n) AS (SELECT 1::numeric UNION ALL SELECT (n + 1)::numeric FROM x) SELECT n FROM x",
                None,
            ),
            ("SELECT g AS a, g AS b FROM t GROUP BY a, ROLLUP (b)", Some("0A000")),
            ("SELECT g AS a, h AS b FROM t GROUP BY a, ROLLUP (b)", None),
            ("SELECT a.n FROM a LEFT JOIN b USING (n) GROUP BY n", Some("42803")),
            ("SELECT n, a.m FROM a LEFT JOIN b USING (n) GROUP BY n, a.m", None),
        ] {
            assert_eq!(state_of(sql), state, "{sql}");
        }
    }
}
