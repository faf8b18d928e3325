//! What are the entries by which a unique constraint is kept?
//!
//! An index is a table of its own, which nobody names: its key is the values of the constraint's columns, so that two rows of the same values
//! have one entry, and only one of them can create it; its only other column is the engine key of the row. A row with NULL in one of the
//! columns has no entry: NULLs are never the same.
//!
//! ```text
//! table   id | email | name          unique (email)          index   k1 = 'a@b.c' | row = engine key of id 7
//! ```
//!
//! An entry is written in the same batch of the log as its row. Being rows of a table, entries are durable, delivered, replayed and split as
//! rows are (RFC 10).

use crate::data_type::DataType;
use crate::error::{Error, Result};
use crate::ids::{ColumnId, TableId, TabletId};
use crate::key::encode_key;
use crate::options::TableOptions;
use crate::row::encode_cells;
use crate::rules::Unique;
use crate::schema::{Column, KeyPart, TableSchema};
use crate::value::Value;

/// The table of a constraint's entries. Its id and its name are still to be given.
///
/// # Errors
/// [`Error::Schema`] for columns of which there are no keys, or that are not there.
pub fn index_table(table: &TableSchema, unique: &Unique) -> Result<TableSchema> {
    let mut columns = Vec::with_capacity(unique.columns.len() + 1);
    for (place, id) in unique.columns.iter().enumerate() {
        let of = table.column_by_id(*id).ok_or_else(|| Error::Schema {
            table: table.name.clone(),
            reason: format!("unique {}: no column with id {id}", unique.name),
        })?;
        columns.push(column(place, &format!("k{}", place + 1), of.data_type));
    }
    columns.push(column(columns.len(), "row", DataType::Bytes));
    let key = (0..unique.columns.len()).map(|column_idx| KeyPart { column_idx, descending: false });
    let index = TableSchema {
        id: TableId(0),
        name: unique.name.clone(),
        columns,
        key: key.collect(),
        n_partition_key: 1,
        first_tablet: TabletId(0),
        options: TableOptions {
            is_index: true,
            delivery_interval_ms: table.options.delivery_interval_ms,
            delivery_bytes: table.options.delivery_bytes,
            feed_retention_ms: table.options.feed_retention_ms,
            ..TableOptions::default()
        },
    };
    index.validate()?;
    Ok(index)
}

fn column(place: usize, name: &str, data_type: DataType) -> Column {
    Column { id: ColumnId(place as u32 + 1), name: name.to_owned(), data_type, nullable: false, default: None }
}

/// The engine key of the entry that a row of these values (in the order of the table's columns) has in the index; `None`: it has none.
///
/// # Errors
/// [`Error::Coerce`] for a value of another type, [`Error::Usage`] for an index of other columns.
pub fn entry_key(
    table: &TableSchema,
    unique: &Unique,
    index: &TableSchema,
    values: &[Value],
) -> Result<Option<Vec<u8>>> {
    let mut parts = Vec::with_capacity(unique.columns.len());
    for id in &unique.columns {
        let at = table.columns.iter().position(|column| column.id == *id);
        let value = at.and_then(|at| values.get(at));
        match value {
            Some(Value::Null) => return Ok(None),
            Some(value) => parts.push(value.clone()),
            None => return Err(Error::usage(format!("unique {}: no column with id {id}", unique.name))),
        }
    }
    encode_key(index, &parts).map(Some)
}

/// The cells of an entry: the engine key of its row.
///
/// # Errors
/// As of [`encode_cells`].
pub fn entry_cells(index: &TableSchema, row_key: &[u8]) -> Result<Vec<u8>> {
    let mut values = vec![Value::Null; index.key.len()];
    values.push(Value::Bytes(row_key.to_vec()));
    encode_cells(index, &values)
}

/// The engine key of the row that an entry (in the order of the index' columns) is of; `None`: it is no entry.
#[must_use]
pub fn row_of_entry(entry: &[Value]) -> Option<&[u8]> {
    match entry.last() {
        Some(Value::Bytes(row_key)) => Some(row_key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode_key, decode_row};

    fn table() -> TableSchema {
        let column = |id, name: &str, data_type, nullable| Column {
            id: ColumnId(id),
            name: name.into(),
            data_type,
            nullable,
            default: None,
        };
        TableSchema {
            id: TableId(7),
            name: "t".into(),
            columns: vec![
                column(1, "id", DataType::Int64, false),
                column(4, "email", DataType::Text, true),
                column(3, "n", DataType::Int32, true),
            ],
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        }
    }

    #[test]
    fn rows_of_the_same_values_have_one_entry_and_those_with_null_none() {
        let table = table();
        let columns = vec![ColumnId(3), ColumnId(4)];
        let unique = Unique { name: "t_n_email_key".into(), columns, index: TableId(9), by_index: false };
        let index = TableSchema { id: TableId(9), ..index_table(&table, &unique).unwrap() };
        let key = |values: &[Value]| entry_key(&table, &unique, &index, values).unwrap();
        let row = |id, email: &str, n| [Value::Int64(id), Value::Text(email.into()), Value::Int32(n)];
        let first = key(&row(1, "a", 5)).unwrap();
        assert_eq!(Some(&first), key(&row(2, "a", 5)).as_ref());
        assert_ne!(Some(&first), key(&row(1, "a", 6)).as_ref());
        assert_eq!(decode_key(&index, &first).unwrap(), [Value::Int32(5), Value::Text("a".into())]);
        assert_eq!(key(&[Value::Int64(1), Value::Null, Value::Int32(5)]), None);
        let cells = entry_cells(&index, b"row 1").unwrap();
        let entry = decode_row(&index, &first, &cells).unwrap();
        assert_eq!(row_of_entry(&entry), Some(&b"row 1"[..]));
    }

    #[test]
    fn there_is_no_index_of_what_has_no_order() {
        let mut table = table();
        table.columns[1].data_type = DataType::Jsonb;
        let unique = Unique { name: "u".into(), columns: vec![ColumnId(4)], ..Unique::default() };
        assert!(index_table(&table, &unique).is_err());
        let unknown = Unique { columns: vec![ColumnId(8)], ..unique };
        assert!(index_table(&table, &unknown).is_err());
    }
}
