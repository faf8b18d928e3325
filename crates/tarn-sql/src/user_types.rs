//! Which columns of a definition are of types that users made?
//!
//! What a column keeps is one of the table's own types, a text for a label. So the type is taken out of a definition
//! before that is read, and put into the table that comes of it.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{self, ArrayElemTypeDef, CreateTable, Expr};
use tarn_node::types::{TypeKind, Types, UserType};
use tarn_query::parser::statements;
use tarn_query::{Walkable, each_expr};
use tarn_types::{Enumerated, TableSchema, Value};

use crate::error::{Result, SqlError, state};
use crate::expressions::read;
use crate::names::{fold, quote, table_name};

/// The name of a type that is none of the language's: `mood`, `public.mood`.
pub fn type_name(named: &ast::DataType) -> Option<String> {
    match named {
        ast::DataType::Custom(name, modifiers) if modifiers.is_empty() => table_name(name).ok(),
        _ => None,
    }
}

/// The enumerated type that a column is of.
///
/// Errors: `0A000` for an array of one, and for a row type.
pub fn enumerated(named: &ast::DataType, types: &Types) -> Result<Option<Enumerated>> {
    if let ast::DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) = named
        && type_name(item).is_some_and(|name| types.get(&name).is_some())
    {
        return Err(SqlError::unsupported(
            format!("a column of type {named}"),
            "a table of its own with a row for each item, or jsonb",
        ));
    }
    let Some(found) = type_name(named).and_then(|name| types.get(&name)) else { return Ok(None) };
    match &found.kind {
        TypeKind::Enum { .. } => Ok(found.enumerated()),
        TypeKind::Row { .. } => Err(SqlError::unsupported(
            format!("a column of the row type {}", quote(&found.name)),
            "its columns as columns of the table, or jsonb",
        )),
    }
}

/// A column of an enumerated type, by its name.
pub type EnumColumn = (String, Enumerated);

/// The definition with texts in the place of enumerated types, and which columns these are.
///
/// Errors: as of [`enumerated`].
pub fn taken(create: &CreateTable, types: &Types) -> Result<(CreateTable, Vec<EnumColumn>)> {
    let (mut plain, mut taken) = (create.clone(), vec![]);
    for def in &mut plain.columns {
        if let Some(of) = enumerated(&def.data_type, types)? {
            def.data_type = ast::DataType::Text;
            taken.push((fold(&def.name), of));
        }
    }
    Ok((plain, taken))
}

/// Puts them into the table.
///
/// Errors: `22P02` for a default that is no label.
pub fn put(schema: &mut TableSchema, taken: Vec<EnumColumn>) -> Result<()> {
    for (name, of) in taken {
        let Some((_, column)) = schema.column(&name) else { continue };
        check_default(column.default.as_ref(), &of)?;
        let id = column.id;
        schema.options.rules.entry(id).enumerated = Some(of);
    }
    Ok(())
}

/// Errors: `22P02` for a default that is no label.
pub fn check_default(default: Option<&Value>, of: &Enumerated) -> Result<()> {
    match default {
        Some(Value::Text(text)) => Ok(of.place(text).map(drop)?),
        _ => Ok(()),
    }
}

/// What names a type in a text that is kept, beside the columns that are of it: views, defaults, checks and generated
/// columns. As PostgreSQL says it.
pub fn mentions(tables: &[Arc<TableSchema>], name: &str) -> Vec<String> {
    let names = |text: &str| read(text).is_ok_and(|expr| names_type(&expr, name));
    let mut found = vec![];
    for table in tables {
        if let Some(view) = &table.options.view
            && statements(&view.query).is_ok_and(|all| all.iter().any(|statement| names_type(statement, name)))
        {
            found.push(format!("view {} depends on type {}", table.name, quote(name)));
        }
        for (at, column) in table.columns.iter().enumerate() {
            let default = table.computed_default(at).is_some_and(names);
            if default || table.generated(at).is_some_and(|of| names(&of.expr)) {
                let of = format!("default value for column {} of table {}", column.name, table.name);
                found.push(format!("{of} depends on type {}", quote(name)));
            }
        }
        for check in table.options.rules.checks.iter().filter(|check| names(&check.expr)) {
            found.push(format!("constraint {} on table {} depends on type {}", check.name, table.name, quote(name)));
        }
    }
    found
}

/// As [`mentions`], of row types.
pub fn columns_of(types: &[UserType], name: &str) -> Vec<String> {
    let mut found = vec![];
    for of in types {
        let TypeKind::Row { columns } = &of.kind else { continue };
        for column in columns {
            if read(&format!("NULL::{}", column.data_type)).is_ok_and(|expr| names_type(&expr, name)) {
                let row = quote(&of.name);
                found.push(format!("column {} of composite type {row} depends on type {}", column.name, quote(name)));
            }
        }
    }
    found
}

fn names_type(of: &impl Walkable, name: &str) -> bool {
    fn is_it(named: &ast::DataType, name: &str) -> bool {
        match named {
            ast::DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => is_it(item, name),
            named => type_name(named).as_deref() == Some(name),
        }
    }
    let found = each_expr(of, |expr| {
        let named = match expr {
            Expr::Cast { data_type, .. } => data_type,
            Expr::TypedString(typed) => &typed.data_type,
            _ => return ControlFlow::Continue(()),
        };
        if is_it(named, name) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found.is_break()
}

/// `42704`
pub fn undefined_type(name: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}
