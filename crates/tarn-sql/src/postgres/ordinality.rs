//! Which row of a function in FROM is one? `FROM unnest(a) WITH ORDINALITY AS t(x, n)`: a column behind the others
//! counts from 1. Its rows are those of a list, and the numbers are those of another as long, which is unnested beside
//! it:
//!
//! ```sql
//! FROM LATERAL (SELECT unnest(a) AS x, unnest(generate_series(1, cardinality(a))) AS ordinality) AS t(x, n)
//! ```

use tarn_query::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, SelectItem, TableAlias, TableFactor, TableFunctionArgs,
};

use super::calls::{call, is_named, number, take};
use super::in_from::query_of;
use super::series::SERIES;
use crate::error::{Result, SqlError};

const UNNEST: &str = "unnest";

/// The column that counts the rows of a list.
pub(super) fn numbers(list: Expr) -> SelectItem {
    let series = call(SERIES, vec![number(1), call("cardinality", vec![list])]);
    SelectItem::ExprWithAlias { expr: call(UNNEST, vec![series]), alias: Ident::new("ordinality") }
}

/// `unnest` and `generate_series` with numbers become a query of lists.
///
/// Errors: `0A000` for another function, and for several arrays, the longest of which is not known.
pub(super) fn in_from(factor: &mut TableFactor) -> Result<()> {
    let (name, list, alias) = match factor {
        TableFactor::UNNEST { alias, array_exprs, with_ordinality: true, .. } => match &mut array_exprs[..] {
            [list] => (UNNEST, take(list), alias),
            _ => return Err(unsupported("unnest of several arrays")),
        },
        TableFactor::Table {
            name, alias, args: Some(TableFunctionArgs { args, .. }), with_ordinality: true, ..
        }
        | TableFactor::Function { name, alias, args, with_ordinality: true, .. } => {
            let called = if is_named(name, SERIES) { SERIES } else { UNNEST };
            if called == UNNEST && !is_named(name, UNNEST) {
                return Err(unsupported(&name.to_string()));
            }
            let plain = args.iter_mut().map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => Some(take(arg)),
                _ => None,
            });
            let Some(mut args) = plain.collect::<Option<Vec<Expr>>>() else { return Err(unsupported(called)) };
            match (called, args.len()) {
                (UNNEST, 1) => (UNNEST, args.remove(0), alias),
                (UNNEST, _) => return Err(unsupported("unnest of several arrays")),
                _ => (SERIES, call(SERIES, args), alias),
            }
        }
        _ => return Ok(()),
    };
    let called = alias.as_ref().map_or_else(|| Ident::new(name), |alias| alias.name.clone());
    let rows = SelectItem::ExprWithAlias { expr: call(UNNEST, vec![list.clone()]), alias: called.clone() };
    let Some(subquery) = query_of(vec![rows, numbers(list)]) else { return Ok(()) };
    let alias = alias.take().unwrap_or(TableAlias { explicit: true, name: called, columns: vec![], at: None });
    *factor = TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None };
    Ok(())
}

fn unsupported(what: &str) -> SqlError {
    SqlError::unsupported(
        format!("{what} WITH ORDINALITY is not supported"),
        "of one array: unnest(array) WITH ORDINALITY; elsewhere row_number() OVER () in a subquery",
    )
}
