//! What is the definition of a view when tables that it reads are called otherwise, or their columns are?
//!
//! First its text is written for the columns, by the name that the table had, then for the names of tables. What a text
//! says is known to whoever reads SQL.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_metastore::Alteration;
use tarn_types::{Column, TableSchema};

use crate::error::Result;
use crate::renames;

/// How texts of views are written anew.
#[derive(Clone, Copy)]
pub struct Rewrites {
    /// When tables are called otherwise.
    pub names: renames::Rewrite,
    /// When columns are.
    pub columns: ColumnRewrite,
}

/// The query of a view when the table that it reads (before, after) has other names for its columns; `None`: it stays
/// as it is.
pub type ColumnRewrite = fn(&TableSchema, &TableSchema, &TableSchema) -> Result<Option<String>>;

/// Whether columns are called otherwise.
pub(crate) fn names_change(before: &TableSchema, after: &TableSchema) -> bool {
    let is_called_otherwise = |column: &Column| before.column_by_id(column.id).is_some_and(|of| of.name != column.name);
    after.columns.iter().any(is_called_otherwise)
}

/// The views of these whose definitions are others when each of these tables (before, after) is what it is to be.
///
/// Errors: as of [`reader_of`].
pub(crate) fn readers_of(
    views: &[Arc<TableSchema>],
    changes: &[(&TableSchema, &TableSchema)],
    rewrites: Rewrites,
) -> Result<Vec<Alteration>> {
    let mut readers = vec![];
    for view in views {
        if let Some(to) = reader_of(view, changes, rewrites)? {
            readers.push(Alteration { from: Arc::clone(view), to: Box::new(to) });
        }
    }
    Ok(readers)
}

/// The view when each of these tables (before, after) is what it is to be. `None`: it stays as it is.
///
/// Errors: those of `rewrites`, for a text of which that cannot be made.
pub fn reader_of(
    view: &TableSchema,
    changes: &[(&TableSchema, &TableSchema)],
    rewrites: Rewrites,
) -> Result<Option<TableSchema>> {
    let mut now = view.clone();
    let Some(of) = &view.options.view else { return Ok(None) };
    let read = || changes.iter().filter(|(from, _)| of.reads.values().any(|id| *id == from.id));
    for (from, to) in read() {
        if !names_change(from, to) {
            continue;
        }
        let query = (rewrites.columns)(&now, from, &to.renamed(&from.name))?;
        if let (Some(of), Some(query)) = (&mut now.options.view, query) {
            of.query = query;
        }
    }
    let names: BTreeMap<String, String> = read()
        .filter(|(from, to)| from.name != to.name)
        .map(|(from, to)| (from.name.clone(), to.name.clone()))
        .collect();
    if !names.is_empty() {
        let query = (rewrites.names)(&now, &names)?;
        if let Some(of) = &mut now.options.view {
            of.query = query;
            let reads = std::mem::take(&mut of.reads).into_iter();
            of.reads = reads.map(|(name, id)| (names.get(&name).cloned().unwrap_or(name), id)).collect();
        }
    }
    Ok((now != *view).then_some(now))
}
