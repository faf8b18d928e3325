//! Which row of a function in FROM is one? `FROM unnest(a) WITH ORDINALITY AS t(x, n)`: a column behind the others
//! counts from 1. Its rows are those of a list, and the numbers are those of another as long, which is unnested beside
//! it; of several lists, as long as the longest:
//!
//! ```sql
//! FROM LATERAL (SELECT unnest(a) AS x, unnest(generate_series(1::bigint, cardinality(a))) AS ordinality) AS t(x, n)
//! ```

use tarn_query::sqlparser::ast::{
    CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, Ident, SelectItem, TableAlias, TableFactor,
    TableFunctionArgs,
};

use super::calls::{call, is_named, number, take};
use super::in_from::query_of;
use super::series::SERIES;
use crate::error::{Result, SqlError};

const UNNEST: &str = "unnest";

/// The column that counts the rows of a list.
pub(super) fn numbers(list: Expr) -> SelectItem {
    up_to(call("cardinality", vec![list]))
}

fn up_to(n_rows: Expr) -> SelectItem {
    let first = Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(number(1)),
        data_type: DataType::BigInt(None),
        array: false,
        format: None,
    };
    let series = call(SERIES, vec![first, n_rows]);
    SelectItem::ExprWithAlias { expr: call(UNNEST, vec![series]), alias: Ident::new("ordinality") }
}

/// `unnest` and `generate_series` with numbers become a query of lists.
///
/// Errors: `0A000` for another function.
pub(super) fn in_from(factor: &mut TableFactor) -> Result<()> {
    let (name, lists, alias) = match factor {
        TableFactor::UNNEST { alias, array_exprs, with_ordinality: true, .. } => {
            (UNNEST, std::mem::take(array_exprs), alias)
        }
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
            let Some(args) = plain.collect::<Option<Vec<Expr>>>() else { return Err(unsupported(called)) };
            match called {
                UNNEST => (UNNEST, args, alias),
                _ => (SERIES, vec![call(SERIES, args)], alias),
            }
        }
        _ => return Ok(()),
    };
    let called = alias.as_ref().map_or_else(|| Ident::new(name), |alias| alias.name.clone());
    let column = |(at, list): (usize, &Expr)| {
        let alias = if at == 0 { called.clone() } else { Ident::new(format!("{UNNEST}{at}")) };
        SelectItem::ExprWithAlias { expr: call(UNNEST, vec![list.clone()]), alias }
    };
    let mut items: Vec<SelectItem> = lists.iter().enumerate().map(column).collect();
    let mut lengths: Vec<Expr> = lists.into_iter().map(|list| call("cardinality", vec![list])).collect();
    items.push(match lengths.len() {
        1 => up_to(lengths.remove(0)),
        _ => up_to(call("greatest", lengths)),
    });
    let Some(subquery) = query_of(items) else { return Ok(()) };
    let alias = alias.take().unwrap_or(TableAlias { explicit: true, name: called, columns: vec![], at: None });
    *factor = TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None };
    Ok(())
}

fn unsupported(what: &str) -> SqlError {
    SqlError::unsupported(
        format!("{what} WITH ORDINALITY is not supported"),
        "of arrays: unnest(array) WITH ORDINALITY; elsewhere row_number() OVER () in a subquery",
    )
}
