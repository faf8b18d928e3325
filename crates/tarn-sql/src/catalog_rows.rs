//! What do the catalogs say of row types? Each is a relation, too: a row of `pg_class` (kind `c`), whose columns are in
//! `pg_attribute`.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::ScalarValue;
use tarn_node::node::Node;
use tarn_node::types::{TypeKind, UserType};
use tarn_types::{Length, full_name};

use crate::catalog_types::relation_of;
use crate::row_fields::field_of;
use crate::row_type::outside;
use crate::rows::{pg_type, size_and_modifier};

/// A row, by names of columns.
type RowTypeRow = Vec<(&'static str, ScalarValue)>;

/// All row types, and how many columns they have.
fn all(node: &Node) -> impl Iterator<Item = (UserType, usize)> {
    node.types().all().into_iter().filter_map(|of| match &of.kind {
        TypeKind::Row { columns } => {
            let n_columns = columns.len();
            Some((of, n_columns))
        }
        TypeKind::Enum { .. } => None,
    })
}

/// Rows of `pg_class`.
pub(crate) fn classes(node: &Node, namespace: impl Fn(&str) -> i32) -> Vec<RowTypeRow> {
    let class = |(of, n_columns): (UserType, usize)| {
        vec![
            ("oid", ScalarValue::from(relation_of(of.id))),
            ("relname", ScalarValue::from(full_name::bare(&of.name))),
            ("relnamespace", ScalarValue::from(namespace(&of.name))),
            ("reltype", ScalarValue::from(i32::try_from(of.id.0).unwrap_or(i32::MAX))),
            ("relpersistence", ScalarValue::from("p")),
            ("relkind", ScalarValue::from("c")),
            ("relnatts", ScalarValue::from(i16::try_from(n_columns).unwrap_or(i16::MAX))),
            ("relispopulated", ScalarValue::from(true)),
            ("relreplident", ScalarValue::from("n")),
        ]
    };
    all(node).map(class).collect()
}

/// Rows of `pg_attribute`.
pub(crate) fn columns(node: &Node) -> Vec<RowTypeRow> {
    let mut rows = vec![];
    for (of, _) in all(node) {
        // A type with a field of a type that no value has here tells of none.
        let Ok(Some(row)) = field_of(&of.name, node.types()) else { continue };
        let DataType::Struct(fields) = row.data_type() else { continue };
        for (place, field) in (1_i16..).zip(fields) {
            let Some((data_type, modifier)) = type_of(&outside(field)) else { continue };
            rows.push(vec![
                ("attrelid", ScalarValue::from(relation_of(of.id))),
                ("attname", ScalarValue::from(field.name().clone())),
                ("atttypid", ScalarValue::from(data_type)),
                ("attstattarget", ScalarValue::from(-1_i32)),
                ("attnum", ScalarValue::from(place)),
                ("attndims", ScalarValue::from(i64::from(field.data_type().is_list()))),
                ("attcacheoff", ScalarValue::from(-1_i32)),
                ("atttypmod", ScalarValue::from(modifier)),
                ("attislocal", ScalarValue::from(true)),
            ]);
        }
    }
    rows
}

/// The number of a field's type, and its modifier.
fn type_of(field: &Field) -> Option<(i32, i32)> {
    let of = pg_type(field).ok()?;
    // An array has that of its items.
    let modified = match field.data_type() {
        DataType::List(item) if Length::of(field).is_none() => item.as_ref(),
        _ => field,
    };
    let (_, modifier) = size_and_modifier(&of, modified);
    Some((i32::try_from(of.oid()).ok()?, modifier))
}
