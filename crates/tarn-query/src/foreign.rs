//! What of a footer that somebody else wrote is a table's? The columns that attaching the file took, and nothing of the
//! others.
//!
//! Invariants: which columns those are is decided by [`ForeignNames`], as it was when the file was attached; their
//! types are what is stored, whatever hints the writer left. So it does not matter to an answer whether a file is read
//! by its footer or by the block metadata that the metastore keeps.

use std::sync::Arc;

use arrow::datatypes::DataType as ArrowType;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::errors::Result;
use parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataBuilder, RowGroupMetaData};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};
use tarn_types::ForeignNames;

/// The footer without columns that no table has. Cost: nothing much, unless there are such columns or the file has
/// hints.
pub(crate) fn usable(footer: ParquetMetaData) -> Result<ParquetMetaData> {
    let about = footer.file_metadata();
    let descriptor = about.schema_descr();
    let roots = descriptor.root_schema().get_fields();
    let names: ForeignNames<'_> = roots.iter().map(|field| field.name()).collect();
    let mut kept: Vec<usize> = vec![];
    let mut fields: Vec<TypePtr> = vec![];
    for (idx, leaf) in descriptor.columns().iter().enumerate() {
        let root = descriptor.get_column_root_ptr(idx);
        let is_flat = root.is_primitive() && leaf.max_rep_level() == 0;
        let arrow = if is_flat { arrow_type_of(&root) } else { None };
        if names.column_type(root.name(), is_flat, arrow.as_ref()).is_ok() {
            kept.push(idx);
            fields.push(root);
        }
    }
    if fields.len() == roots.len() && about.key_value_metadata().is_none() {
        return Ok(footer);
    }
    let root = Type::group_type_builder(descriptor.root_schema().name()).with_fields(fields).build()?;
    let schema: SchemaDescPtr = Arc::new(SchemaDescriptor::new(Arc::new(root)));
    let orders = about.column_orders().map(|orders| pick(orders, &kept));
    let created_by = about.created_by().map(str::to_owned);
    let about = FileMetaData::new(about.version(), about.num_rows(), created_by, None, Arc::clone(&schema), orders);
    let groups = footer.row_groups().iter().map(|group| {
        RowGroupMetaData::builder(Arc::clone(&schema))
            .set_num_rows(group.num_rows())
            .set_total_byte_size(group.total_byte_size())
            .set_column_metadata(pick(group.columns(), &kept))
            .build()
    });
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let column_index = footer.column_index().map(|groups| groups.iter().map(|group| pick(group, &kept)).collect());
    let offset_index = footer.offset_index().map(|groups| groups.iter().map(|group| pick(group, &kept)).collect());
    Ok(ParquetMetaDataBuilder::new(about)
        .set_row_groups(groups)
        .set_column_index(column_index)
        .set_offset_index(offset_index)
        .build())
}

/// What a reader sees in a flat column of this type.
fn arrow_type_of(leaf: &TypePtr) -> Option<ArrowType> {
    let alone = Type::group_type_builder("tarn").with_fields(vec![Arc::clone(leaf)]).build().ok()?;
    let schema = parquet_to_arrow_schema(&SchemaDescriptor::new(Arc::new(alone)), None).ok()?;
    schema.fields().first().map(|field| field.data_type().clone())
}

/// Of an index that has nothing of a row group there is nothing to pick.
fn pick<T: Clone>(of_leaves: &[T], kept: &[usize]) -> Vec<T> {
    kept.iter().filter_map(|idx| of_leaves.get(*idx).cloned()).collect()
}
