//! What does `UPDATE t SET (a, b) = (SELECT x, y FROM u WHERE …)` set? Each column to its value of the only row; `(a,
//! b) = ROW(1, 2)` sets both. The planner knows values of one column: so each is asked for by itself, `a = (SELECT x
//! FROM u WHERE …), b = (SELECT y FROM u WHERE …)`.
//!
//! A query whose rows may be others when another column of them is asked for stays as it is, and is refused: one with
//! DISTINCT, LIMIT, a set operation or `random()`, and one of which some columns aggregate and some do not.

use tarn_query::sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Insert, Merge,
    MergeAction, MergeUpdateExpr, ObjectName, OnConflict, OnConflictAction, OnInsert, Query, SelectItem, SetExpr,
    Statement, Update,
};

use super::calls::{is_named, is_volatile};
use super::single::aggregates;
use crate::error::{Result, SqlError, state};

/// Parts the assignments of a statement.
///
/// Errors: `42601` for more or fewer values than columns.
pub(super) fn part(statement: &mut Statement) -> Result<()> {
    match statement {
        Statement::Update(Update { assignments, .. }) => parted(assignments),
        Statement::Insert(Insert {
            on: Some(OnInsert::OnConflict(OnConflict { action: OnConflictAction::DoUpdate(update), .. })),
            ..
        }) => parted(&mut update.assignments),
        Statement::Merge(Merge { clauses, .. }) => clauses.iter_mut().try_for_each(|clause| match &mut clause.action {
            MergeAction::Update(MergeUpdateExpr { assignments, .. }) => parted(assignments),
            _ => Ok(()),
        }),
        _ => Ok(()),
    }
}

fn parted(assignments: &mut Vec<Assignment>) -> Result<()> {
    let is_row = |assignment: &Assignment| {
        matches!(assignment.target, AssignmentTarget::Tuple(_))
            && matches!(assignment.value, Expr::Subquery(_) | Expr::Function(_))
    };
    if !assignments.iter().any(is_row) {
        return Ok(());
    }
    let mut all = Vec::with_capacity(assignments.len());
    for assignment in std::mem::take(assignments) {
        let AssignmentTarget::Tuple(columns) = &assignment.target else {
            all.push(assignment);
            continue;
        };
        match values(&assignment.value) {
            Some(values) if values.len() == columns.len() => all.extend(columns.iter().zip(values).map(each)),
            Some(_) => {
                let message = "number of columns does not match number of values";
                return Err(SqlError::new(state::SYNTAX_ERROR, message));
            }
            None => all.push(assignment),
        }
    }
    *assignments = all;
    Ok(())
}

fn each((column, value): (&ObjectName, Expr)) -> Assignment {
    Assignment { target: AssignmentTarget::ColumnName(column.clone()), value }
}

/// The values of a row. `None`: it is not parted.
fn values(row: &Expr) -> Option<Vec<Expr>> {
    match row {
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) if is_named(name, "row") => {
            let plain = list.args.iter().map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
                _ => None,
            });
            plain.collect()
        }
        Expr::Subquery(query) => columns(query),
        _ => None,
    }
}

fn columns(query: &Query) -> Option<Vec<Expr>> {
    let Query { body, limit_clause: None, fetch: None, .. } = query else { return None };
    let SetExpr::Select(select) = body.as_ref() else { return None };
    let is_item = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if is_volatile(query)
        || select.distinct.is_some()
        || select.having.is_some()
        || !select.projection.iter().all(is_item)
    {
        return None;
    }
    let does = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => aggregates(expr),
        _ => false,
    };
    let n_aggregates = select.projection.iter().filter(|item| does(item)).count();
    if n_aggregates != 0 && n_aggregates != select.projection.len() {
        return None;
    }
    let column = |item: &SelectItem| {
        let mut query = query.clone();
        if let SetExpr::Select(select) = query.body.as_mut() {
            select.projection = vec![item.clone()];
        }
        Expr::Subquery(Box::new(query))
    };
    Some(select.projection.iter().map(column).collect())
}
