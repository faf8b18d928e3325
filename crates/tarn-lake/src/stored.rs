//! By which names, and in which types, do columns lie in files? Each by one name for good
//! ([`TableSchema::stored_names`]), whatever it is called by now; intervals and addresses are texts
//! ([`tarn_types::file_field`]).
//!
//! Rows go by the table's own names and types everywhere else: they are turned where a file is written, and where one
//! is read.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use tarn_types::{TableSchema, file_column};

use crate::Result;
use crate::error::{arrow_error, types_error};

/// The same columns by the names of `schema`, which has as many. No copy of what is of the same type.
pub(crate) fn called(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| of_type(column, field.data_type())).collect::<Result<_>>()?;
    let called = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
    called.map_err(arrow_error("name columns"))
}

/// The column in the type of its file, or of its table.
pub(crate) fn of_type(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    file_column(column, to).map_err(types_error("change the type of a column"))
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
