//! Which changes of the catalog are lawful? Pure, like `check.rs`.

use tarn_types::{Column, ColumnId, DataType, DroppedColumn, TableSchema, TokenColumns};

use crate::{Error, Result};

/// What names and URLs of documents begin with, and no table's name (`document.rs`).
pub(crate) const DOCUMENT_SCHEME: &str = "tarn-document://";

/// Numbers the columns from 1, and lets the options follow.
pub(crate) fn number_columns(schema: &mut TableSchema) {
    let ids: Vec<_> = (1..).map(ColumnId).take(schema.columns.len()).collect();
    renumber(schema, &ids);
}

/// Gives each column its id in `ids`; the options mean the same columns as before.
fn renumber(schema: &mut TableSchema, ids: &[ColumnId]) {
    let given: Vec<_> = schema.columns.iter().map(|column| column.id).collect();
    // An id that no column has stays as it is, for `validate` to complain of.
    let new_id = |id: &mut ColumnId| {
        let position = given.iter().position(|given| given == id);
        *id = position.map_or(ColumnId(u32::MAX), |idx| ids[idx]);
    };
    if let TokenColumns::Some(columns) = &mut schema.options.indexing.tokens {
        columns.iter_mut().for_each(new_id);
    }
    schema.options.indexing.bloom.iter_mut().for_each(new_id);
    schema.options.rules.ids_mut().for_each(new_id);
    if let Some(archive) = &mut schema.options.archive {
        archive.time_column.iter_mut().for_each(new_id);
    }
    schema.columns.iter_mut().zip(ids).for_each(|(column, id)| column.id = *id);
}

/// The table as it will be. `current` is what the caller saw.
pub(crate) fn altered(current: &TableSchema, mut to: TableSchema) -> Result<TableSchema> {
    let invalid = |reason: String| Err(Error::InvalidChange { name: current.name.clone(), reason });
    let gone = gone(current, &to)?;
    let is_left = |column: &&Column| !gone.contains(&column.id);
    let (shown, n_left) = (to.shown(), current.shown().iter().filter(is_left).count());
    if shown.len() < n_left || to.is_keyless() != current.is_keyless() {
        return invalid(format!("{} of {n_left} columns are left", shown.len()));
    }
    // The hidden key of a table without one stays behind the columns that are new.
    let hidden = &to.columns[shown.len()..];
    if current.columns[current.shown().len()..] != *hidden {
        return invalid("the key of rows without one changes".to_owned());
    }
    // Files go by one name for good; what a column is called may change where there are files of ours.
    let names_left = current.columns.iter().zip(current.stored_names()).filter(|(column, _)| is_left(column));
    let names = names_left.map(|(_, stored)| stored).zip(to.stored_names());
    let may_be_called = current.has_rows();
    for ((before, after), (stored, stored_after)) in current.shown().iter().filter(is_left).zip(shown).zip(names) {
        if after.id != before.id || stored != stored_after || !may_be_called && before.name != after.name {
            return invalid(format!("column {} changes its place, or its name in files", before.name));
        } else if !before.data_type.widens_to(&after.data_type) {
            let (name, from, to) = (&before.name, before.data_type, after.data_type);
            return invalid(format!("column {name} is {from}, and not every such value is one of {to}"));
        } else if before.data_type != after.data_type
            && current.key.iter().any(|part| current.columns[part.column_idx].id == before.id)
        {
            return invalid(format!("column {} is part of the key, which keeps its type", before.name));
        } else if to.missing(after.id) != current.missing(before.id) {
            return invalid(format!("column {} has another value in older rows", before.name));
        }
    }
    let n_new = shown.len() - n_left;
    let mut ids: Vec<ColumnId> = current.columns.iter().filter(is_left).map(|column| column.id).collect();
    ids.splice(n_left..n_left, (current.next_column_id().0..).map(ColumnId).take(n_new));
    renumber(&mut to, &ids);

    // Filters that are there know nothing of it: its rows would not be found by them.
    let added = |column: &&Column| {
        let before = current.columns.iter().find(|before| before.id == column.id);
        before.is_some_and(|before| {
            (has_tokens(&to, column) && !has_tokens(current, before))
                || (to.options.indexing.bloom.contains(&column.id)
                    && !current.options.indexing.bloom.contains(&column.id))
        })
    };
    if let Some(column) = to.columns.iter().find(added) {
        let name = &column.name;
        return invalid(format!(
            "column {name} is in no filter so far: only new columns can be added to what is indexed"
        ));
    }

    if [&current.name, &to.name].into_iter().any(|name| name.starts_with(DOCUMENT_SCHEME)) {
        return invalid("names that begin so are those of documents".to_owned());
    }
    let mut may_differ = TableSchema { name: to.name.clone(), columns: to.columns.clone(), ..current.clone() };
    may_differ.options.indexing = to.options.indexing.clone();
    // None of the key is gone: what is in front of it may be, or is new.
    for part in &mut may_differ.key {
        let id = current.columns[part.column_idx].id;
        part.column_idx = to.columns.iter().position(|column| column.id == id).unwrap_or(part.column_idx);
    }
    may_differ.options.rules = to.options.rules.clone();
    // Its files stay where they are.
    may_differ.options.made_as = current.renamed(&to.name).options.made_as;
    // A table of a build that did not say where its rows are gets a home once, and keeps it.
    may_differ.options.home = current.options.home.or(to.options.home);
    // What a view gives is said anew as a whole; a table does not become one, nor a view a table.
    if let (Some(view), Some(after)) = (&mut may_differ.options.view, &to.options.view) {
        view.clone_from(after);
    }
    if let (Some(archive), Some(after)) = (&mut may_differ.options.archive, &to.options.archive) {
        (archive.follow_ms, archive.attached) = (after.follow_ms, after.attached);
    }
    if to != may_differ {
        return invalid(
            "only its name, columns and what is said of them, what is indexed, how often an archive is looked at, and the query of a view \
             can change"
                .to_owned(),
        );
    }
    to.validate().map_err(|source| Error::Schema { source })?;
    Ok(to)
}

/// The columns that are dropped: those that the table is said not to have any more, which is all that changes in what
/// was dropped.
fn gone(current: &TableSchema, to: &TableSchema) -> Result<Vec<ColumnId>> {
    let (before, after) = (&current.options.rules.dropped, &to.options.rules.dropped);
    let names = current.stored_names();
    let is_gone = |of: &&DroppedColumn| {
        let at = current.shown().iter().position(|column| column.id == of.id);
        at.is_some_and(|at| names[at] == of.stored && !current.is_key(at) && current.has_rows())
    };
    match after.strip_prefix(&before[..]) {
        Some(gone) if gone.iter().all(|of| is_gone(&of)) => Ok(gone.iter().map(|of| of.id).collect()),
        _ => {
            let reason = "only columns that it has, and that are not in its key, can be dropped".to_owned();
            Err(Error::InvalidChange { name: current.name.clone(), reason })
        }
    }
}

/// Whether the tokens of this column's texts are in the filters.
fn has_tokens(table: &TableSchema, column: &Column) -> bool {
    match &table.options.indexing.tokens {
        TokenColumns::None => false,
        TokenColumns::All => column.data_type == DataType::Text,
        TokenColumns::Some(columns) => columns.contains(&column.id),
    }
}
