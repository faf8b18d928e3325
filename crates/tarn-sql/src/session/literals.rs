//! Which literal of an `INSERT … VALUES` does not fit its column, and which array of an `UPDATE` has dimensions that no
//! column has?
//!
//! The planner casts literals and says little about those that fail. When it has failed, each literal is held against
//! its column here, so that the error names both.

use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Insert, SetExpr, Statement,
};
use tarn_types::{NoArray, TableSchema, Value};

use crate::error::SqlError;
use crate::names::fold;
use crate::spelled::literal;

/// The first literal that is no value of its column; of an UPDATE, the first array of several dimensions.
pub(super) fn misfit(statement: &Statement, table: &TableSchema) -> Option<SqlError> {
    if let Statement::Update(update) = statement {
        let deep = |assignment: &&Assignment| has_dimensions(&assignment.value);
        return update.assignments.iter().filter(deep).find_map(|assignment| {
            let AssignmentTarget::ColumnName(name) = &assignment.target else { return None };
            let (_, column) = table.column(&fold(name.0.last()?.as_ident()?))?;
            check(0, &assignment.value, column)
        });
    }
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
    if column.data_type.item().is_some() && has_dimensions(expr) {
        let of = column.name.clone();
        return Some(tarn_types::Error::Array { value: of, why: NoArray::Dimensions }.into());
    }
    let text = literal(expr)??;
    let error = SqlError::from(Value::parse(&column.data_type, &text).err()?);
    Some(
        SqlError::new(error.state(), format!("column \"{}\": {}", column.name, error.message()))
            .with_detail(format!("row {} of VALUES", row + 1)),
    )
}

/// An array that is written out with arrays in it.
fn has_dimensions(expr: &Expr) -> bool {
    match expr {
        Expr::Array(array) => array.elem.iter().any(|item| matches!(item, Expr::Array(_))),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => has_dimensions(expr),
        _ => false,
    }
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
