//! How is it said that a key is there, or that one is not that a row refers to? As PostgreSQL says it, so that what
//! clients make of `23505` and `23503` is made of it here too.

use bytes::BytesMut;
use tarn_node::error::{ExistingKey, ForeignKeyFault, Violation};
use tarn_types::{
    Column, ColumnId, DataType, Forms, TableSchema, Unique, Value, Zone, decode_key, full_name, index_table,
};

use crate::error::{SqlError, state};
use crate::names::quote;
use crate::text;

/// `23505`, with the key in its detail: moments as the clocks of `zone` show them.
pub(crate) fn duplicate(existing: &ExistingKey, zone: &Zone) -> SqlError {
    let ExistingKey { table, key, unique } = existing;
    let name = match unique {
        None => table.key_name(),
        Some(unique) => unique.name.clone(),
    };
    let message = format!("duplicate key value violates unique constraint \"{name}\"");
    let error = SqlError::new(state::UNIQUE_VIOLATION, message).with_constraint(&table.name, name);
    match told(table, unique.as_ref(), key, zone) {
        Some(told) => error.with_detail(format!("{told} already exists.")),
        // A key that was read or encoded a moment ago; without its values the error is the same.
        None => error,
    }
}

/// `23503`, with the key in its detail.
pub(crate) fn violated(violation: &Violation, zone: &Zone) -> SqlError {
    let Violation { child, parent, key, values, what } = violation;
    let columns = |table: &TableSchema, ids: &[ColumnId]| {
        let columns = ids.iter().filter_map(|id| table.column_by_id(*id)).collect();
        values_text(columns, values, zone)
    };
    // PostgreSQL leaves schemas out here, also of the detail.
    let (child_name, parent_name, name) = (full_name::bare(&child.name), full_name::bare(&parent.name), &key.name);
    let error = match what {
        ForeignKeyFault::Referenced => {
            let message = format!(
                "update or delete on table \"{parent_name}\" violates foreign key constraint \"{name}\" on table \"{child_name}\""
            );
            let detail = columns(parent, &key.parent_columns);
            SqlError::new(state::FOREIGN_KEY_VIOLATION, message)
                .with_detail(format!("{detail} is still referenced from table \"{child_name}\"."))
        }
        ForeignKeyFault::Missing | ForeignKeyFault::Mixed => {
            let message =
                format!("insert or update on table \"{child_name}\" violates foreign key constraint \"{name}\"");
            let detail = match what {
                ForeignKeyFault::Mixed => "MATCH FULL does not allow mixing of null and nonnull key values.".to_owned(),
                _ => format!("{} is not present in table \"{parent_name}\".", columns(child, &key.columns)),
            };
            SqlError::new(state::FOREIGN_KEY_VIOLATION, message).with_detail(detail)
        }
    };
    error.with_constraint(&child.name, name.clone())
}

fn told(table: &TableSchema, unique: Option<&Unique>, key: &[u8], zone: &Zone) -> Option<String> {
    let Some(unique) = unique else { return Some(key_text(table, &decode_key(table, key).ok()?, zone)) };
    let values = decode_key(&index_table(table, unique).ok()?, key).ok()?;
    let columns = unique.columns.iter().filter_map(|id| table.column_by_id(*id)).collect();
    Some(values_text(columns, &values, zone))
}

/// `Key (a, b)=(1, x)`: the columns of the key and their values.
pub(crate) fn key_text(table: &TableSchema, values: &[Value], zone: &Zone) -> String {
    values_text(table.key_columns().collect(), values, zone)
}

fn values_text(columns: Vec<&Column>, values: &[Value], zone: &Zone) -> String {
    let names: Vec<String> = columns.iter().map(|column| quote(&column.name)).collect();
    let values: Vec<String> =
        columns.iter().zip(values).map(|(column, value)| value_text(value, &column.data_type, zone)).collect();
    format!("Key ({})=({})", names.join(", "), values.join(", "))
}

fn value_text(value: &Value, data_type: &DataType, zone: &Zone) -> String {
    match value {
        Value::Timestamp(micros) if *data_type == DataType::TimestampTz => {
            let mut out = BytesMut::new();
            text::timestamp(&mut out, *micros, Some(zone), Forms::default());
            String::from_utf8_lossy(&out).into_owned()
        }
        value => value.to_display(data_type),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tarn_types::{KeyPart, TableId, TableOptions, TabletId, encode_key, entry_key};

    use super::*;

    /// The texts are those of PostgreSQL 15 for the same table.
    #[test]
    fn a_duplicate_key_is_told_as_postgres_tells_it() {
        let column = |id, name: &str, data_type| Column {
            id: ColumnId(id),
            name: name.into(),
            data_type,
            nullable: false,
            default: None,
        };
        let table = Arc::new(TableSchema {
            id: TableId(1),
            name: "t".into(),
            columns: vec![column(1, "City", DataType::Text), column(2, "at", DataType::TimestampTz)],
            key: vec![KeyPart { column_idx: 0, descending: false }, KeyPart { column_idx: 1, descending: true }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        });
        let values = [Value::Text("Bern, CH".into()), Value::Timestamp(1_593_561_600_000_000)];
        let key = encode_key(&table, &values).unwrap();
        let zone = Zone::parse("America/New_York").unwrap();
        let error = duplicate(&ExistingKey { table: Arc::clone(&table), key, unique: None }, &zone);
        assert_eq!(error.state(), "23505");
        assert_eq!(error.message(), "duplicate key value violates unique constraint \"t_pkey\"");
        let detail = "Key (\"City\", at)=(Bern, CH, 2020-06-30 20:00:00-04) already exists.";
        assert_eq!(error.detail(), Some(detail));
        assert_eq!(error.constraint(), Some(("t", "t_pkey")));
        let unique = Unique { name: "t_at_key".into(), columns: vec![ColumnId(2)], ..Unique::default() };
        let index = index_table(&table, &unique).unwrap();
        let key = entry_key(&table, &unique, &index, &values, &[]).unwrap().unwrap();
        let error = duplicate(&ExistingKey { table, key, unique: Some(unique) }, &zone);
        assert_eq!(error.message(), "duplicate key value violates unique constraint \"t_at_key\"");
        assert_eq!(error.detail(), Some("Key (at)=(2020-06-30 20:00:00-04) already exists."));
        assert_eq!(error.constraint(), Some(("t", "t_at_key")));
    }
}
