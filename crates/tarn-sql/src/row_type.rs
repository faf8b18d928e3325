//! Of which type is a row? A struct of the planner's says so in the metadata of its first field: what goes through
//! CASE, UNION and subqueries is of the type still. The rows of a table are of a type that is called as the table is,
//! and has no number of its own.

use std::collections::HashMap;

use datafusion::arrow::datatypes::{DataType, Field, Fields};
use tarn_types::TypeId;

/// The key of the metadata of the first field that tells the number of the type of the row, which is 0 if it is that of
/// a table's rows, and its name: `16384 pair`.
const ROW_METADATA: &str = "tarn.row";

/// A field of rows of these fields, of the type of this number and name.
pub fn told(mut fields: Vec<Field>, id: TypeId, name: &str) -> Field {
    if let Some(first) = fields.first_mut() {
        let mut metadata = first.metadata().clone();
        metadata.insert(ROW_METADATA.to_owned(), format!("{id} {name}"));
        first.set_metadata(metadata);
    }
    Field::new("", DataType::Struct(Fields::from(fields)), true)
}

/// The type of a row: its number, which is 0 if it is that of a table's rows, and its name. `None`: of no named type.
pub fn named(of: &DataType) -> Option<(TypeId, &str)> {
    let DataType::Struct(fields) = of else { return None };
    let (id, name) = fields.first()?.metadata().get(ROW_METADATA)?.split_once(' ')?;
    Some((TypeId(id.parse().ok()?), name))
}

/// The field of a row, as it is outside of it.
pub fn outside(field: &Field) -> Field {
    let mut metadata: HashMap<String, String> = field.metadata().clone();
    metadata.remove(ROW_METADATA);
    field.clone().with_nullable(true).with_metadata(metadata)
}

/// Whether nobody named the fields: the planner calls them `c0`, PostgreSQL `f1`.
pub fn is_anonymous(fields: &Fields) -> bool {
    fields.iter().enumerate().all(|(at, field)| *field.name() == format!("c{at}"))
}
