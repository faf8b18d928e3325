//! Which fields has a row of a type that somebody made, and of a table? Those of its columns, as a table has them: so a
//! `jsonb` in a row is a text that says so beside it.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit};
use datafusion::sql::sqlparser::ast::{self, ArrayElemTypeDef, Expr, SelectItem, SetExpr, Statement};
use tarn_node::types::{Attribute, TypeKind, Types, UserType};
use tarn_query::parser::statements;
use tarn_types::{TypeId, arrow_field};

use crate::catalog_types::type_oid;
use crate::column_rules::length;
use crate::error::{Result, SqlError, state};
use crate::names::quote;
use crate::row_type::{named, told};
use crate::spelled::data_type;
use crate::user_types::type_name;

/// Rows in rows, at most: a type is in none that is in it, but may be in others in many places.
const MAX_DEPTH: usize = 32;

/// The field of a value of the row type that is called so: one that somebody made, or a table. `None`: it is none of
/// both.
///
/// Errors: `0A000` for one with a field of a type that no value has here.
pub fn field_of(name: &str, types: &Types) -> Result<Option<Field>> {
    of_name(name, types, 0)
}

/// The field of a column of a row type, by its type as it is written.
///
/// Errors: as of [`field_of`]; `0A000` for rows of a table, which may be dropped.
pub fn column_of(data_type: &str, types: &Types) -> Result<Field> {
    let field = of_written(&written_type(data_type)?, types, 0)?;
    let mut of = field.data_type();
    while let DataType::List(item) = of {
        of = item.data_type();
    }
    match named(of) {
        Some((TypeId(0), table)) => Err(SqlError::unsupported(
            format!("a column of the row type of {}", quote(table)),
            "CREATE TYPE of its columns, and a column of that",
        )),
        _ => Ok(field),
    }
}

fn of_name(name: &str, types: &Types, depth: usize) -> Result<Option<Field>> {
    if depth > MAX_DEPTH {
        let message = format!("rows of type {name} are more than {MAX_DEPTH} rows in each other");
        return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("put them side by side"));
    }
    if let Some(of) = types.get(name) {
        return match &of.kind {
            TypeKind::Row { columns } => of_type(&of, columns, types, depth).map(Some),
            TypeKind::Enum { .. } => Ok(None),
        };
    }
    if type_oid(name).is_some() {
        return Ok(None);
    }
    let Some(table) = types.table(name) else { return Ok(None) };
    let fields = (0..table.shown().len()).map(|at| table.field(at).with_nullable(true)).collect();
    Ok(Some(told(fields, TypeId(0), name)))
}

fn of_type(of: &UserType, columns: &[Attribute], types: &Types, depth: usize) -> Result<Field> {
    let fields = columns.iter().map(|column| {
        let written = written_type(&column.data_type)?;
        Ok(of_written(&written, types, depth)?.with_name(&column.name))
    });
    Ok(told(fields.collect::<Result<_>>()?, of.id, &of.name))
}

/// The field of a value of a type as it is written.
fn of_written(written: &ast::DataType, types: &Types, depth: usize) -> Result<Field> {
    if let ast::DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) = written
        && length(written)?.is_none()
    {
        let item = of_written(item, types, depth)?.with_name(Field::LIST_FIELD_DEFAULT_NAME);
        return Ok(Field::new("", DataType::List(Arc::new(item)), true));
    }
    if let Some(name) = type_name(written) {
        if let Some(of) = types.get(&name).and_then(|of| of.enumerated()) {
            return Ok(of.told(Field::new("", DataType::Utf8, true)));
        }
        if let Some(row) = of_name(&name, types, depth + 1)? {
            return Ok(row);
        }
    }
    if matches!(written, ast::DataType::Interval { fields: None, precision: None }) {
        return Ok(Field::new("", DataType::Interval(IntervalUnit::MonthDayNano), true));
    }
    let field = arrow_field("", &data_type(written)?, true);
    Ok(match length(written)? {
        Some(length) => length.told(field),
        None => field,
    })
}

/// A type as the parser has it.
fn written_type(text: &str) -> Result<ast::DataType> {
    let none = || SqlError::new(state::INTERNAL, format!("{text} is no type"));
    let Some(Statement::Query(query)) = statements(&format!("SELECT NULL::{text}"))?.pop() else { return Err(none()) };
    let SetExpr::Select(select) = *query.body else { return Err(none()) };
    match select.projection.into_iter().next() {
        Some(SelectItem::UnnamedExpr(Expr::Cast { data_type, .. })) => Ok(data_type),
        _ => Err(none()),
    }
}
