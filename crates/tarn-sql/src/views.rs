//! How is the text of a view read, and which statement makes a view again?

use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::Statement;
use tarn_query::ViewTexts;
use tarn_types::{TableSchema, View};

use crate::error::{Result, SqlError, state};
use crate::names::quote;
use crate::shown::shown_name;
use crate::statement::{Parsed, parse};

/// How the engine reads views.
pub(crate) fn texts() -> ViewTexts {
    // It comes out of the engine as it went in.
    let query = |text: &str| {
        query(text).map_err(|error| tarn_query::Error::Sql { source: DataFusionError::External(Box::new(error)) })
    };
    ViewTexts { query, shown_name }
}

/// The query that a text is.
pub(crate) fn query(text: &str) -> Result<Statement> {
    let mut statements = parse(text)?;
    match (statements.pop(), statements.is_empty()) {
        (Some(Parsed::Sql(statement)), true) if matches!(*statement, Statement::Query(_)) => Ok(*statement),
        _ => Err(SqlError::new(state::SYNTAX_ERROR, "a view is made of one query")),
    }
}

/// The query, as the catalogs show it.
pub(crate) fn definition(view: &View) -> String {
    // What ends it is no part of a comment.
    let end = if view.query.lines().last().is_some_and(|line| line.contains("--")) { "\n;" } else { ";" };
    format!("{}{end}", view.query)
}

/// The statement that makes this view again.
pub(crate) fn create_statement(schema: &TableSchema, view: &View) -> String {
    let names: Vec<String> = schema.columns.iter().map(|column| quote(&column.name)).collect();
    let has_own_names = schema.columns.iter().zip(&view.columns).any(|(column, name)| column.name != *name);
    let columns = if has_own_names { format!(" ({})", names.join(", ")) } else { String::new() };
    format!("CREATE VIEW {}{columns} AS {}", quote(&schema.name), view.query)
}
