//! Which literal of an `INSERT … VALUES` does not fit its column?
//!
//! The planner casts literals and says little about those that fail. When it has failed, each literal is held against its
//! column here, so that the error names both.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Insert, SetExpr, Statement,
};
use tarn_types::{TableSchema, Value};

use crate::error::SqlError;
use crate::names::fold;
use crate::spelled::literal;

/// The first literal that is no value of its column.
pub(super) fn misfit(statement: &Statement, table: &TableSchema) -> Option<SqlError> {
    let Statement::Insert(Insert { columns, source: Some(source), .. }) = statement else { return None };
    let SetExpr::Values(values) = source.body.as_ref() else { return None };
    let named: Vec<usize> = if columns.is_empty() {
        (0..table.shown().len()).collect()
    } else {
        let position = |name: &datafusion::sql::sqlparser::ast::ObjectName| {
            let ident = name.0.last()?.as_ident()?;
            table.column(&fold(ident)).map(|(idx, _)| idx)
        };
        columns.iter().map(position).collect::<Option<_>>()?
    };
    let rows = values.rows.iter().enumerate();
    rows.flat_map(|(row, exprs)| exprs.iter().zip(&named).map(move |(expr, column)| (row, expr, *column)))
        .find_map(|(row, expr, column)| check(row, expr, &table.columns[column]))
}

fn check(row: usize, expr: &Expr, column: &tarn_types::Column) -> Option<SqlError> {
    let text = literal(expr)??;
    let error = SqlError::from(Value::parse(&column.data_type, &text).err()?);
    Some(
        SqlError::new(error.state(), format!("column \"{}\": {}", column.name, error.message()))
            .with_detail(format!("row {} of VALUES", row + 1)),
    )
}

/// The text that is the only argument of a CALL.
pub(super) fn only_text(arguments: &FunctionArguments) -> Option<String> {
    let [text] = <[String; 1]>::try_from(call_texts(arguments)?).ok()?;
    Some(text)
}

/// The arguments of a CALL, if they are literals and none is NULL.
pub(super) fn call_texts(arguments: &FunctionArguments) -> Option<Vec<String>> {
    let FunctionArguments::List(list) = arguments else { return None };
    let text = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => literal(expr).flatten(),
        _ => None,
    };
    list.args.iter().map(text).collect()
}
