//! By which names do columns lie in files? Each by one for good ([`TableSchema::stored_names`]), whatever it is called
//! by now.
//!
//! Rows go by the table's own names everywhere else: they are called otherwise where a file is written, and where one
//! is read.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};

use tarn_types::TableSchema;

use crate::Result;
use crate::error::arrow_error;

/// The same columns by the names of `schema`, which has as many of the same types. No copy.
pub(crate) fn called(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let called = RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options);
    called.map_err(arrow_error("name columns"))
}

/// The same columns by these names, in order.
pub(crate) fn called_by(batch: &RecordBatch, names: &[String]) -> Result<RecordBatch> {
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(names);
    let fields: Vec<Field> = fields.map(|(field, name)| field.as_ref().clone().with_name(name)).collect();
    called(batch, &Arc::new(Schema::new(fields)))
}

/// What files call these columns of the table; other names stay.
pub(crate) fn in_files(table: &TableSchema, names: &[String]) -> Vec<String> {
    let stored = table.stored_names();
    let in_file = |name: &String| table.column(name).map_or(name.as_str(), |(idx, _)| stored[idx]).to_owned();
    names.iter().map(in_file).collect()
}
