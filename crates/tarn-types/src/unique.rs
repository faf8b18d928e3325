//! What are the entries by which a unique constraint is kept, and rows are found by their values?
//!
//! An index is a table of its own, which nobody names. Of a constraint its key is the values of the columns, so that
//! two rows of the same values have one entry, and only one of them can create it; its only other column is the engine
//! key of the row. A row with NULL in one of the columns has no entry: NULLs are never the same.
//!
//! ```text
//! table   id | email | name          unique (email)          index   k1 = 'a@b.c' | row = engine key of id 7
//! ```
//!
//! Of an index whose values may repeat the engine key of the row is the last part of the key, and before each value a
//! mark says whether it is NULL, for which there is no place in keys: every row has an entry, all of the same values
//! lie side by side, and nothing is in the cells.
//!
//! ```text
//! index (name)     n1 = false, k1 = 'ada', row = engine key of id 7
//!                  n1 = true,  k1 = '',    row = engine key of id 8          its name is NULL
//! ```
//!
//! An entry is written in the same batch of the log as its row. Being rows of a table, entries are durable, delivered,
//! replayed and split as rows are (RFC 10).

use crate::data_type::DataType;
use crate::error::{Error, Result};
use crate::ids::{ColumnId, TableId, TabletId};
use crate::key::encode_key;
use crate::options::TableOptions;
use crate::row::encode_cells;
use crate::rules::Unique;
use crate::schema::{Column, KeyPart, TableSchema};
use crate::value::Value;

/// The mark of a value that is NULL; `false` is that of all others.
pub const MARK_OF_NULL: bool = true;

/// The table of a constraint's entries, or of those of another index. Its id and its name are still to be given.
///
/// # Errors
/// [`Error::Schema`] for columns of which there are no keys, or that are not there.
pub fn index_table(table: &TableSchema, unique: &Unique) -> Result<TableSchema> {
    let (mut columns, mut key) = (Vec::with_capacity(2 * unique.columns.len() + 1), vec![]);
    for (place, id) in unique.columns.iter().enumerate() {
        let of = table.column_by_id(*id).ok_or_else(|| Error::Schema {
            table: table.name.clone(),
            reason: format!("unique {}: no column with id {id}", unique.name),
        })?;
        let order = unique.order(place);
        if unique.repeats {
            key.push(KeyPart { column_idx: columns.len(), descending: order.nulls_first });
            columns.push(column(columns.len(), &format!("n{}", place + 1), DataType::Bool));
        }
        key.push(KeyPart { column_idx: columns.len(), descending: order.descending });
        columns.push(column(columns.len(), &format!("k{}", place + 1), of.data_type));
    }
    if unique.repeats {
        key.push(KeyPart { column_idx: columns.len(), descending: false });
    }
    columns.push(column(columns.len(), "row", DataType::Bytes));
    let index = TableSchema {
        id: TableId(0),
        name: unique.name.clone(),
        columns,
        key,
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

/// Where the values of the indexed column at this place lie among the columns of the index. The mark, where there are
/// any, is before them.
#[must_use]
pub fn place_in_index(unique: &Unique, place: usize) -> usize {
    if unique.repeats { 2 * place + 1 } else { place }
}

/// What stands behind the mark of NULL, where an entry has a value of this type.
#[must_use]
pub fn stand_in(data_type: DataType) -> Value {
    match data_type {
        DataType::Bool => Value::Bool(false),
        DataType::Int16 => Value::Int16(0),
        DataType::Int32 => Value::Int32(0),
        DataType::Int64 => Value::Int64(0),
        DataType::Float32 => Value::Float32(0.0),
        DataType::Float64 => Value::Float64(0.0),
        DataType::Decimal { .. } => Value::Decimal(0),
        DataType::Text => Value::Text(String::new()),
        DataType::Bytes => Value::Bytes(vec![]),
        DataType::Date => Value::Date(0),
        DataType::Time => Value::Time(0),
        DataType::Timestamp | DataType::TimestampTz => Value::Timestamp(0),
        DataType::Uuid => Value::Uuid("00000000-0000-0000-0000-000000000000".to_owned()),
        // Of these there are no keys, and so no indexes.
        DataType::Interval | DataType::Inet | DataType::Json | DataType::Jsonb | DataType::Array(_) => Value::Null,
    }
}

/// The engine key of the entry that a row of these values (in the order of the table's columns) has in the index;
/// `None`: it has none. The key of the row is a part of it where values may repeat.
///
/// # Errors
/// [`Error::Coerce`] for a value of another type, [`Error::Usage`] for an index of other columns.
pub fn entry_key(
    table: &TableSchema,
    unique: &Unique,
    index: &TableSchema,
    values: &[Value],
    row_key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let mut parts = Vec::with_capacity(2 * unique.columns.len() + 1);
    for id in &unique.columns {
        let at = table.columns.iter().position(|column| column.id == *id);
        let Some((at, value)) = at.and_then(|at| Some((at, values.get(at)?))) else {
            return Err(Error::usage(format!("unique {}: no column with id {id}", unique.name)));
        };
        match (value, unique.repeats) {
            (Value::Null, false) => return Ok(None),
            (Value::Null, true) => parts.extend([Value::Bool(MARK_OF_NULL), stand_in(table.columns[at].data_type)]),
            (value, false) => parts.push(value.clone()),
            (value, true) => parts.extend([Value::Bool(!MARK_OF_NULL), value.clone()]),
        }
    }
    if unique.repeats {
        parts.push(Value::Bytes(row_key.to_vec()));
    }
    encode_key(index, &parts).map(Some)
}

/// The cells of an entry: the engine key of its row, or nothing where that is in the entry's key.
///
/// # Errors
/// As of [`encode_cells`].
pub fn entry_cells(index: &TableSchema, row_key: &[u8]) -> Result<Vec<u8>> {
    let mut values = vec![Value::Null; index.columns.len()];
    if let Some(last) = values.last_mut() {
        *last = Value::Bytes(row_key.to_vec());
    }
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
    use crate::{IndexedColumn, decode_key, decode_row};

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
        let unique = Unique { name: "t_n_email_key".into(), columns, index: TableId(9), ..Unique::default() };
        let index = TableSchema { id: TableId(9), ..index_table(&table, &unique).unwrap() };
        let key = |values: &[Value]| entry_key(&table, &unique, &index, values, b"no part of it").unwrap();
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

    /// NULL is behind all values, or before them, and rows of the same values lie side by side, each with its own
    /// entry.
    #[test]
    fn every_row_has_an_entry_of_its_own_where_values_may_repeat() {
        let table = table();
        let row = |id, email: Option<&str>, n: Option<i32>| {
            let email = email.map_or(Value::Null, |email| Value::Text(email.into()));
            [Value::Int64(id), email, n.map_or(Value::Null, Value::Int32)]
        };
        let rows = [
            row(1, Some("b"), Some(2)),
            row(2, Some("a"), Some(2)),
            row(3, None, Some(2)),
            row(4, Some("a"), None),
            row(5, Some("a"), Some(2)),
            row(6, Some(""), Some(2)),
        ];
        for (descending, nulls_first, want) in [
            (false, false, [6, 2, 5, 1, 3, 4]),
            (true, true, [3, 1, 2, 5, 6, 4]),
            (true, false, [1, 2, 5, 6, 3, 4]),
            (false, true, [3, 6, 2, 5, 1, 4]),
        ] {
            let by_email = IndexedColumn { descending, nulls_first, operators: None };
            let unique = Unique {
                name: "t_n_email_idx".into(),
                columns: vec![ColumnId(3), ColumnId(4)],
                index: TableId(9),
                by_index: true,
                repeats: true,
                orders: vec![IndexedColumn::default(), by_email],
                ..Unique::default()
            };
            let index = TableSchema { id: TableId(9), ..index_table(&table, &unique).unwrap() };
            let mut entries: Vec<(Vec<u8>, i64)> = vec![];
            for (row, id) in rows.iter().zip(1..) {
                let row_key = format!("row {id}").into_bytes();
                let entry = entry_key(&table, &unique, &index, row, &row_key).unwrap().unwrap();
                let cells = entry_cells(&index, &row_key).unwrap();
                let found = decode_row(&index, &entry, &cells).unwrap();
                assert_eq!(row_of_entry(&found), Some(&row_key[..]));
                assert_eq!(found[place_in_index(&unique, 0)], if id == 4 { Value::Int32(0) } else { row[2].clone() });
                entries.push((entry, id));
            }
            entries.sort();
            let order: Vec<i64> = entries.into_iter().map(|(_, id)| id).collect();
            assert_eq!(order, want, "{descending} {nulls_first}");
        }
    }

    #[test]
    fn what_stands_in_for_null_is_of_the_type() {
        let table = table();
        for data_type in [
            DataType::Bool,
            DataType::Int16,
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal { precision: 5, scale: 2 },
            DataType::Bytes,
            DataType::Date,
            DataType::Time,
            DataType::Timestamp,
            DataType::TimestampTz,
            DataType::Uuid,
        ] {
            let mut table = table.clone();
            table.columns[1].data_type = data_type;
            let columns = vec![ColumnId(4)];
            let unique = Unique { name: "i".into(), columns, by_index: true, repeats: true, ..Unique::default() };
            let index = index_table(&table, &unique).unwrap();
            let values = [Value::Int64(1), Value::Null, Value::Null];
            assert!(entry_key(&table, &unique, &index, &values, b"row").unwrap().is_some(), "{data_type}");
        }
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
