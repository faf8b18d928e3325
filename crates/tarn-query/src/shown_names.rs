//! How is a footer of the lake read when columns were renamed or dropped since? As if its columns had the names that
//! they have by now, and those that are no more a name that nobody asks for.
//!
//! A file keeps the names that it was written with ([`TableSchema::names_in_files`]). What the metastore says of a file
//! goes by ids, and has the table's names already (`projected.rs`); only who reads the file's own footer needs this.

use std::collections::HashMap;
use std::sync::Arc;

use parquet::errors::Result;
use parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataBuilder, RowGroupMetaData};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};
use tarn_types::TableSchema;

use crate::projected::called;

/// Names in files, and those that the table has.
#[derive(Debug)]
pub(crate) struct ShownNames(HashMap<String, String>);

impl ShownNames {
    /// `None`: they are the same.
    pub(crate) fn of(table: &TableSchema) -> Option<Arc<ShownNames>> {
        let dropped = table.options.rules.dropped.iter().map(|of| (of.stored.clone(), format!("__dropped_{}", of.id)));
        let renamed = table.names_in_files().map(|(stored, shown)| (stored.to_owned(), shown.to_owned()));
        let names: HashMap<String, String> = dropped.chain(renamed).collect();
        (!names.is_empty()).then(|| Arc::new(ShownNames(names)))
    }

    /// The same footer by the table's names. Cost: a copy of what is said of each column of each row group.
    pub(crate) fn of_footer(&self, footer: &ParquetMetaData) -> Result<ParquetMetaData> {
        let about = footer.file_metadata();
        let root = about.schema_descr().root_schema();
        let field = |field: &TypePtr| match self.0.get(field.name()) {
            Some(shown) => called(field, shown).map(Arc::new),
            None => Ok(Arc::clone(field)),
        };
        let fields = root.get_fields().iter().map(field).collect::<Result<Vec<TypePtr>>>()?;
        let root = Type::group_type_builder(root.name()).with_fields(fields).build()?;
        let schema: SchemaDescPtr = Arc::new(SchemaDescriptor::new(Arc::new(root)));
        let (created_by, orders) = (about.created_by().map(str::to_owned), about.column_orders().cloned());
        // Hints of types would go by the other names.
        let about = FileMetaData::new(about.version(), about.num_rows(), created_by, None, Arc::clone(&schema), orders);
        let groups = footer.row_groups().iter().map(|group| {
            RowGroupMetaData::builder(Arc::clone(&schema))
                .set_num_rows(group.num_rows())
                .set_total_byte_size(group.total_byte_size())
                .set_column_metadata(group.columns().to_vec())
                .build()
        });
        Ok(ParquetMetaDataBuilder::new(about)
            .set_row_groups(groups.collect::<Result<Vec<_>>>()?)
            .set_column_index(footer.column_index().cloned())
            .set_offset_index(footer.offset_index().cloned())
            .build())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::Int64Type;
    use bytes::Bytes;
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
    use parquet::file::metadata::ParquetMetaDataReader;

    use super::*;

    #[test]
    fn columns_that_change_their_names_with_each_other_keep_their_values() {
        let a: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let b: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
        let rows = RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap();
        let mut writer = ArrowWriter::try_new(vec![], rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        let bytes = Bytes::from(writer.into_inner().unwrap());
        let footer = ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
        let swapped = [("a", "b"), ("b", "a")].map(|(stored, shown)| (stored.to_owned(), shown.to_owned()));
        let shown = ShownNames(HashMap::from(swapped)).of_footer(&footer).unwrap();
        let shown = ArrowReaderMetadata::try_new(Arc::new(shown), ArrowReaderOptions::new()).unwrap();
        let read = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, shown).build().unwrap().next().unwrap();
        let read = read.unwrap();
        assert_eq!(read.column_by_name("b").unwrap().as_primitive::<Int64Type>().values(), &[1, 2]);
        assert_eq!(read.column_by_name("a").unwrap().as_string::<i32>().value(1), "y");
    }
}
