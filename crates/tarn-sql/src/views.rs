//! How is the text of a view read?

use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::Statement;
use tarn_query::ViewTexts;

use crate::error::{Result, SqlError, state};
use crate::shown::shown_name;
use crate::statement::{ParsedSql, parse};

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
        (Some(ParsedSql::Sql(statement)), true) if matches!(*statement, Statement::Query(_)) => Ok(*statement),
        _ => Err(SqlError::new(state::SYNTAX_ERROR, "a view is made of one query")),
    }
}
