//! `(a, b) IN (SELECT c, d FROM t)` asks for a row among the rows of a query, `(a + 1, b) = (1, 2)` compares two. The
//! planner takes subqueries of one column, and rows of columns and constants alone.
//!
//! So a row is written as a value, `ROW(a, b)`, and so is each row of the subquery: `SELECT ROW(c, d) FROM t`. They are
//! compared column by column (`tarn-query`, `row_in_queries`). So is the one row of `(a, b) = (SELECT c, d …)`
//! (`tarn-query`, `row_values`). `= ANY` of a query is `IN`, `<> ALL` is `NOT IN`.

use tarn_query::sqlparser::ast::{
    BinaryOperator, Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident,
    Query, Select, SelectItem, SetExpr, TableAlias, TableAliasColumnDef,
};

use super::calls::{call, is_named, take};
use super::in_from::over;
use super::refused::gives_rows;
use crate::error::{Result, SqlError, state};

const ROW: &str = "row";

/// What the rows of a subquery are called that has them from further below.
pub(super) const ROWS_WITHIN: &str = "?rows?";

/// Writes rows as values.
///
/// Errors: `42601` for a subquery or a row of more or fewer columns than the row has; `0A000` for `< ANY` and its kin.
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    among(expr)?;
    match expr {
        Expr::InSubquery { expr: of, subquery, .. } => {
            as_value(of);
            match n_columns(of) {
                Some(n_columns) if n_columns > 1 => one_column(subquery, n_columns)?,
                _ => {}
            }
        }
        Expr::BinaryOp { left, op, right } if is_comparison(op) && is_row(left) && is_row(right) => {
            as_value(left);
            as_value(right);
            if let (Some(left), Some(right)) = (n_columns(left), n_columns(right))
                && left != right
            {
                return Err(SqlError::new(state::SYNTAX_ERROR, "unequal number of entries in row expressions"));
            }
        }
        Expr::BinaryOp { left, op, right } if is_comparison(op) && is_row(left) => {
            let Expr::Subquery(query) = right.as_mut() else { return Ok(()) };
            as_value(left);
            if let Some(n_columns) = n_columns(left) {
                one_column(query, n_columns)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// `= ANY` and `<> ALL` of a row and a query, as `IN` and `NOT IN`.
fn among(expr: &mut Expr) -> Result<()> {
    let is_any = matches!(expr, Expr::AnyOp { .. });
    let (Expr::AnyOp { left, compare_op, right, .. } | Expr::AllOp { left, compare_op, right }) = expr else {
        return Ok(());
    };
    if !is_row(left) || !matches!(right.as_ref(), Expr::Subquery(_)) {
        return Ok(());
    }
    let negated = match (is_any, &*compare_op) {
        (true, BinaryOperator::Eq) => false,
        (false, BinaryOperator::NotEq) => true,
        _ => {
            return Err(SqlError::unsupported(
                format!("{compare_op} ANY or ALL of a row and a subquery is not supported"),
                "use EXISTS (SELECT … WHERE …) with a comparison of rows",
            ));
        }
    };
    let of = Box::new(take(left));
    if let Expr::Subquery(subquery) = take(right) {
        *expr = Expr::InSubquery { expr: of, subquery, negated };
    }
    Ok(())
}

fn is_comparison(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | Gt | GtEq | Lt | LtEq | NotEq)
}

fn is_row(expr: &Expr) -> bool {
    matches!(expr, Expr::Tuple(_)) || n_columns(expr).is_some()
}

/// `(a, b)` as `ROW(a, b)`.
fn as_value(expr: &mut Expr) {
    if let Expr::Tuple(items) = expr {
        *expr = call(ROW, std::mem::take(items));
    }
}

/// Of a row that is a value.
fn n_columns(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) if is_named(name, ROW) => {
            let is_value = |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(_)));
            list.args.iter().all(is_value).then_some(list.args.len())
        }
        _ => None,
    }
}

/// The query with its row as its only column.
fn one_column(query: &mut Box<Query>, wanted: usize) -> Result<()> {
    let is_bare = query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(items) = items(select)
    {
        if items.len() != wanted {
            return Err(not_as_many(items.len() > wanted));
        }
        if is_bare && is_plain(select) {
            // Of equal rows one is as good as all.
            let row = call(ROW, items.into_iter().cloned().collect());
            (select.distinct, select.projection) = (None, vec![SelectItem::UnnamedExpr(row)]);
            return Ok(());
        }
    }
    let name = |idx: usize| Ident::with_quote('"', format!("?{idx}?"));
    let column = |idx| TableAliasColumnDef { name: name(idx), data_type: None };
    let rows = Ident::with_quote('"', ROWS_WITHIN);
    let named = |idx| Expr::CompoundIdentifier(vec![rows.clone(), name(idx)]);
    let row = vec![SelectItem::UnnamedExpr(call(ROW, (0..wanted).map(named).collect()))];
    let alias = TableAlias { explicit: true, name: rows.clone(), columns: (0..wanted).map(column).collect(), at: None };
    over(query, row, alias);
    Ok(())
}

/// `42601`
pub(super) fn not_as_many(is_more: bool) -> SqlError {
    let which = if is_more { "many" } else { "few" };
    SqlError::new(state::SYNTAX_ERROR, format!("subquery has too {which} columns"))
}

/// The columns of a list, if all are written out.
pub(super) fn items(select: &Select) -> Option<Vec<&Expr>> {
    let items = select.projection.iter().map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    items.collect()
}

/// Whether nothing but the list names its columns, and it gives a row for each.
fn is_plain(select: &Select) -> bool {
    let names_places = match &select.group_by {
        GroupByExpr::Expressions(by, _) => by.iter().any(|by| matches!(by, Expr::Value(_) | Expr::Identifier(_))),
        GroupByExpr::All(_) => true,
    };
    let gives_sets = select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => gives_rows(expr),
        _ => true,
    });
    !names_places && !gives_sets && matches!(select.distinct, None | Some(Distinct::Distinct))
}
