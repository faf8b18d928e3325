//! How is a view written? What the catalogs show of its query, and the statement that makes it again.

use tarn_types::{TableSchema, View};

use crate::names::quote;

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
