//! What does a foreign key refer to, and by what are the rows found that do?
//!
//! A key of the parent is what its rows are found by: its primary key, or the entries of a unique constraint. So "is
//! the parent there" is whether one engine key is, wherever the row lies. Rows of the child are found by the entries of
//! an index of theirs ([`crate::Rules::serving`]), which all begin with the values.
//!
//! ```text
//! parent   id = 7 | …                    child   3 | p_id = 7          index of child (p_id)     n1 = not NULL, k1 = 7, row = 3
//!          └ engine key of the parent <──────────────┘                 └────── range ──────┘
//! ```
//!
//! The columns of a child may be of another width than those of the parent (`integer` and `bigint`): values are
//! converted, and one that has no place in the other type is of no row.

use std::ops::Range;

use crate::data_type::DataType;
use crate::error::{Error, Result};
use crate::ids::{ColumnId, TableId};
use crate::key::{encode_key, encode_partition_prefix, prefix_end};
use crate::rules::Unique;
use crate::schema::TableSchema;
use crate::unique::{MARK_OF_NULL, place_in_index};
use crate::value::Value;

/// The key of a parent that a foreign key means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencedKey {
    /// The table whose keys these are: the parent itself, or the entries of its unique constraint.
    pub keys: TableId,
    /// Its unique constraint or index; `None`: it is the primary key.
    pub unique: Option<Unique>,
    /// For each part of the key, the place of its column among those that the foreign key names.
    pub order: Vec<usize>,
}

/// The key of a table that consists of these columns, in whatever order; `None`: there is none. The primary key comes
/// first.
#[must_use]
pub fn referenced(parent: &TableSchema, columns: &[ColumnId]) -> Option<ReferencedKey> {
    let order_of = |key: Vec<ColumnId>| -> Option<Vec<usize>> {
        let order = key.iter().map(|id| columns.iter().position(|column| column == id));
        order.collect::<Option<Vec<usize>>>().filter(|order| order.len() == columns.len())
    };
    if !parent.is_keyless() && !parent.options.append_only && parent.has_rows() {
        let key = parent.key.iter().map(|part| parent.columns[part.column_idx].id).collect();
        if let Some(order) = order_of(key) {
            return Some(ReferencedKey { keys: parent.id, unique: None, order });
        }
    }
    let uniques = parent.options.rules.uniques.iter().filter(|unique| !unique.repeats);
    let found = uniques.filter_map(|unique| Some((unique, order_of(unique.columns.clone())?))).next();
    found.map(|(unique, order)| ReferencedKey { keys: unique.index, unique: Some(unique.clone()), order })
}

/// Whether values of the two types can be the same.
#[must_use]
pub fn is_comparable(one: DataType, other: DataType) -> bool {
    let is_whole = |of| matches!(of, DataType::Int16 | DataType::Int32 | DataType::Int64);
    let is_decimal = |of| matches!(of, DataType::Decimal { .. });
    one == other || (is_whole(one) && is_whole(other)) || (is_decimal(one) && is_decimal(other))
}

/// The value as one of another type; `None`: that has no such value.
#[must_use]
pub fn converted(value: &Value, from: DataType, to: DataType) -> Option<Value> {
    let whole = match value {
        Value::Int16(value) => Some(i64::from(*value)),
        Value::Int32(value) => Some(i64::from(*value)),
        Value::Int64(value) => Some(*value),
        _ => None,
    };
    match (value, whole, from, to) {
        (value, ..) if from == to => Some(value.clone()),
        (_, Some(whole), _, DataType::Int16) => i16::try_from(whole).ok().map(Value::Int16),
        (_, Some(whole), _, DataType::Int32) => i32::try_from(whole).ok().map(Value::Int32),
        (_, Some(whole), _, DataType::Int64) => Some(Value::Int64(whole)),
        (Value::Decimal(value), _, DataType::Decimal { scale, .. }, DataType::Decimal { scale: to, precision }) => {
            let (scale, to) = (i32::from(scale), i32::from(to));
            let power = 10_i128.checked_pow(scale.abs_diff(to))?;
            let value = match to >= scale {
                true => value.checked_mul(power)?,
                false => (value % power == 0).then(|| value / power)?,
            };
            let limit = 10_i128.checked_pow(u32::from(precision));
            limit.is_none_or(|limit| value.abs() < limit).then_some(Value::Decimal(value))
        }
        _ => None,
    }
}

/// The engine key of the parent that has these values, which are in the order of the foreign key's columns and of the
/// types `of`. `keys` is the table of [`ReferencedKey::keys`]. `None`: no parent can have them.
///
/// # Errors
/// As of [`encode_key`].
pub fn parent_key(
    keys: &TableSchema,
    referenced: &ReferencedKey,
    values: &[Value],
    of: &[DataType],
) -> Result<Option<Vec<u8>>> {
    let mut parts = Vec::with_capacity(referenced.order.len());
    for (column, place) in keys.key_columns().zip(&referenced.order) {
        let (Some(value), Some(of)) = (values.get(*place), of.get(*place)) else {
            return Err(Error::usage(format!(
                "{} of {} values of a foreign key",
                values.len(),
                referenced.order.len()
            )));
        };
        match converted(value, *of, column.data_type) {
            Some(value) => parts.push(value),
            None => return Ok(None),
        }
    }
    encode_key(keys, &parts).map(Some)
}

/// Entries of children, in the index by which they are found, that have these values (in the order of the foreign key's
/// columns, of the types `of`). `None`: no child can have them.
///
/// # Errors
/// As of [`encode_partition_prefix`].
pub fn children(
    index: &TableSchema,
    unique: &Unique,
    values: &[Value],
    of: &[DataType],
) -> Result<Option<Range<Vec<u8>>>> {
    let mut parts = Vec::with_capacity(2 * values.len());
    for (place, (value, of)) in values.iter().zip(of).enumerate() {
        let Some(column) = index.columns.get(place_in_index(unique, place)) else {
            return Err(Error::usage(format!("index {} has no column for value {place}", index.name)));
        };
        let Some(value) = converted(value, *of, column.data_type) else { return Ok(None) };
        if unique.repeats {
            parts.push(Value::Bool(!MARK_OF_NULL));
        }
        parts.push(value);
    }
    let start = encode_partition_prefix(index, &parts)?;
    Ok(prefix_end(&start).map(|end| start..end))
}

/// The values of a foreign key's columns that an entry of its index has, in their order; NULL where the column is.
#[must_use]
pub fn values_of_entry(unique: &Unique, n_columns: usize, entry: &[Value]) -> Option<Vec<Value>> {
    let value = |place: usize| {
        let at = place_in_index(unique, place);
        match (unique.repeats, at.checked_sub(1).and_then(|mark| entry.get(mark))) {
            (true, Some(Value::Bool(mark))) if *mark == MARK_OF_NULL => Some(Value::Null),
            _ => entry.get(at).cloned(),
        }
    };
    (0..n_columns).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TabletId;
    use crate::options::TableOptions;
    use crate::schema::{Column, KeyPart};
    use crate::unique::{entry_key, index_table};
    use crate::{decode_key, rules::ForeignKey};

    fn table(id: u32, types: &[DataType]) -> TableSchema {
        let columns = types.iter().zip(1..).map(|(data_type, id)| Column {
            id: ColumnId(id),
            name: format!("c{id}"),
            data_type: *data_type,
            nullable: id > 1,
            default: None,
        });
        TableSchema {
            id: TableId(id),
            name: format!("t{id}"),
            columns: columns.collect(),
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        }
    }

    #[test]
    fn a_child_leads_to_its_parent_and_the_parent_to_its_children() {
        let mut parent = table(1, &[DataType::Int64, DataType::Text, DataType::Int16]);
        let unique = Unique { name: "u".into(), columns: vec![ColumnId(3), ColumnId(2)], ..Unique::default() };
        parent.options.rules.uniques.push(Unique { index: TableId(9), ..unique });
        assert_eq!(referenced(&parent, &[ColumnId(1)]).unwrap().keys, TableId(1));
        assert_eq!(referenced(&parent, &[ColumnId(2)]), None);
        let by_both = referenced(&parent, &[ColumnId(2), ColumnId(3)]).unwrap();
        assert_eq!((by_both.keys, &by_both.order[..]), (TableId(9), &[1, 0][..]));

        let child = table(2, &[DataType::Int32, DataType::Text, DataType::Int32]);
        let columns = vec![ColumnId(2), ColumnId(3)];
        let serving = Unique { name: "s".into(), columns, by_index: true, repeats: true, ..Unique::default() };
        let index = TableSchema { id: TableId(8), ..index_table(&child, &serving).unwrap() };
        let row = |id, text: Option<&str>, n: i32| {
            [Value::Int32(id), text.map_or(Value::Null, |text| Value::Text(text.into())), Value::Int32(n)]
        };
        let entry = |row: &[Value], key: &[u8]| entry_key(&child, &serving, &index, row, key).unwrap().unwrap();
        let of_child = [DataType::Text, DataType::Int32];
        let keys = TableSchema { id: TableId(9), ..index_table(&parent, &parent.options.rules.uniques[0]).unwrap() };

        let found = decode_key(&index, &entry(&row(3, Some("a"), 7), b"three")).unwrap();
        let values = values_of_entry(&serving, 2, &found).unwrap();
        assert_eq!(values, [Value::Text("a".into()), Value::Int32(7)]);
        let of_parent = parent_key(&keys, &by_both, &values, &of_child).unwrap().unwrap();
        assert_eq!(decode_key(&keys, &of_parent).unwrap(), [Value::Int16(7), Value::Text("a".into())]);
        let beyond = [Value::Text("a".into()), Value::Int32(70_000)];
        assert_eq!(parent_key(&keys, &by_both, &beyond, &of_child).unwrap(), None);

        let of_values = [Value::Text("a".into()), Value::Int16(7)];
        let range = children(&index, &serving, &of_values, &[DataType::Text, DataType::Int16]).unwrap().unwrap();
        assert!(range.contains(&entry(&row(3, Some("a"), 7), b"three")));
        for other in [row(3, Some("a"), 8), row(3, Some("ab"), 7), row(3, None, 7)] {
            assert!(!range.contains(&entry(&other, b"three")), "{other:?}");
        }
        let null = decode_key(&index, &entry(&row(3, None, 7), b"three")).unwrap();
        assert_eq!(values_of_entry(&serving, 2, &null).unwrap(), [Value::Null, Value::Int32(7)]);
        let key = ForeignKey { parent: ForeignKey::ITSELF, ..ForeignKey::default() };
        assert_eq!(key.parent_of(TableId(5)), TableId(5));
    }

    #[test]
    fn numbers_are_the_same_in_every_width_that_has_them() {
        let decimal = |scale| DataType::Decimal { precision: 5, scale };
        assert_eq!(converted(&Value::Int32(7), DataType::Int32, DataType::Int64), Some(Value::Int64(7)));
        assert_eq!(converted(&Value::Int64(1 << 40), DataType::Int64, DataType::Int32), None);
        assert_eq!(converted(&Value::Decimal(150), decimal(2), decimal(1)), Some(Value::Decimal(15)));
        assert_eq!(converted(&Value::Decimal(155), decimal(2), decimal(1)), None);
        assert_eq!(converted(&Value::Decimal(99_999), decimal(0), decimal(2)), None);
        assert!(is_comparable(DataType::Int16, DataType::Int64) && !is_comparable(DataType::Int64, DataType::Text));
    }
}
