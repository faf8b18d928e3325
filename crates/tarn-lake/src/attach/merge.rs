//! Do a file's columns fit the table, and what does the table have to become for them? What does the file look like in
//! the table?
//!
//! Columns are the same when they have the same name. A column that the table does not have comes at its end, a wider
//! type widens the table's; a file for which neither will do is refused whole, with the column and both types. A file
//! that lacks a column is NULL there.
//!
//! Invariant: what was committed before still means the same: a table that has files only changes in ways that the
//! metastore allows (`DataType::widens_to`), and bounds are given in the table's types of the moment.

use std::collections::HashMap;

use tarn_metastore::{Block, BlockMetadata, Bloom, ColumnStats};
use tarn_types::{Column, ColumnId, DataType, TableSchema};

use super::columns::{ColumnRecord, ForeignColumn, ForeignFile};
use super::types::{common, widen};
use crate::stats::inline_columns;

/// Columns that grow as files come.
pub(crate) struct MergedColumns {
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
    /// So many are of a table that has files.
    n_committed: usize,
    /// Their values are in blooms, where floats cannot be.
    bloom: Vec<ColumnId>,
    changed: bool,
}

impl MergedColumns {
    /// Of a table that has none yet.
    pub fn none() -> Self {
        Self { columns: Vec::new(), by_name: HashMap::new(), n_committed: 0, bloom: Vec::new(), changed: false }
    }

    /// Begins with the columns that the table has.
    pub fn of(table: &TableSchema) -> Self {
        Self {
            columns: table.columns.clone(),
            by_name: table.columns.iter().map(|column| column.name.clone()).zip(0..).collect(),
            n_committed: table.columns.len(),
            bloom: table.options.indexing.bloom.clone(),
            changed: false,
        }
    }

    /// Takes the columns of one file in, all or none. `Err`: what does not fit.
    pub fn take(&mut self, file: &[ForeignColumn]) -> Result<(), String> {
        let (mut new, mut wider) = (Vec::new(), Vec::new());
        for column in file {
            // Of a column that is NULL throughout and does not say its type there is nothing to learn.
            let Some(data_type) = column.data_type else { continue };
            match self.by_name.get(&column.name) {
                None => new.push((column.name.clone(), data_type)),
                Some(idx) => {
                    let both = self.both(*idx, data_type)?;
                    if both != self.columns[*idx].data_type {
                        wider.push((*idx, both));
                    }
                }
            }
        }
        self.changed |= !new.is_empty() || !wider.is_empty();
        for (idx, data_type) in wider {
            self.columns[idx].data_type = data_type;
        }
        for (name, data_type) in new {
            self.by_name.insert(name.clone(), self.columns.len());
            // The metastore numbers it; until then its place is as good a number as any.
            let id = ColumnId(self.columns.iter().map(|column| column.id.0).next_back().unwrap_or(0) + 1);
            self.columns.push(Column { id, name, data_type, nullable: true, default: None });
        }
        Ok(())
    }

    /// The type for the table's values and the file's.
    fn both(&self, idx: usize, theirs: DataType) -> Result<DataType, String> {
        let ours = &self.columns[idx];
        let is_committed = idx < self.n_committed;
        let both = common(ours.data_type, theirs)
            .filter(|both| !is_committed || ours.data_type.widens_to(both))
            .filter(|both| !is_float(*both) || !self.bloom.contains(&ours.id));
        both.ok_or_else(|| {
            format!("column {} is {theirs} here and {} in the table, and no type is both", ours.name, ours.data_type)
        })
    }

    /// The table with these columns, if there is anything new.
    pub fn changed(self, table: &TableSchema) -> Option<TableSchema> {
        self.changed.then(|| TableSchema { columns: self.columns, ..table.clone() })
    }

    /// The table's own first, then those that files brought, in the order in which they came.
    pub fn into_columns(self) -> Vec<Column> {
        self.columns
    }
}

fn is_float(data_type: DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// The columns of a table by name.
pub(crate) struct ColumnLookup<'a> {
    by_name: HashMap<&'a str, &'a Column>,
    table: &'a TableSchema,
}

impl<'a> ColumnLookup<'a> {
    /// Looks the table's columns up by name once.
    pub fn new(table: &'a TableSchema) -> Self {
        Self { by_name: table.columns.iter().map(|column| (column.name.as_str(), column)).collect(), table }
    }

    /// A file as the table's blocks and their metadata. The table has taken its columns in. A file whose metadata would
    /// lack a column that it has gets none of its columns' metadata: a reader takes what is missing for NULL, and a
    /// footer tells all.
    pub fn blocks(&self, file: ForeignFile, blooms: Vec<Option<Bloom>>) -> (Vec<Block>, Vec<BlockMetadata>) {
        let is_inline = inline_columns(self.table);
        let mut first_row = 0;
        let (mut blocks, mut block_metadata) = (Vec::new(), Vec::new());
        let blooms = blooms.into_iter().chain(std::iter::repeat(None));
        for ((row_group, group), bloom) in (0..).zip(&file.groups).zip(blooms) {
            let (n_rows, bytes) = (group.n_rows, group.bytes);
            blocks.push(Block { row_group, first_row, n_rows, bytes, columns: Vec::new() });
            block_metadata.push(BlockMetadata { row_group, columns: Vec::new(), bloom });
            first_row += n_rows;
        }
        let mut is_whole = true;
        for column in file.columns {
            let Some(of) = self.by_name.get(column.name.as_str()) else { continue };
            let own = column.data_type.unwrap_or(of.data_type);
            for ((block, block_metadata), record) in blocks.iter_mut().zip(&mut block_metadata).zip(column.records) {
                let knows_nulls = record.as_ref().is_some_and(|record| record.null_count.is_some());
                let Some((stats, chunk)) = record.and_then(|record| stats(of, own, record, block.n_rows)) else {
                    is_whole = false;
                    continue;
                };
                if knows_nulls && is_inline(of.id) {
                    block.columns.push(stats.clone());
                }
                block_metadata.columns.push((stats, chunk));
            }
        }
        for of_block in &mut block_metadata {
            of_block.columns.sort_by_key(|(stats, _)| stats.column);
            of_block.columns.truncate(if is_whole { usize::MAX } else { 0 });
        }
        (blocks, block_metadata)
    }
}

/// A count of NULLs that the file does not say becomes one that excludes nothing: some are, some are not. Of a single
/// row that cannot be said, unless there is a value.
fn stats(
    column: &Column,
    own: DataType,
    record: ColumnRecord,
    n_rows: u64,
) -> Option<(ColumnStats, tarn_metastore::ColumnChunk)> {
    let null_count = match (record.null_count, n_rows) {
        (Some(n), _) => n,
        (None, 2..) => 1,
        (None, _) if record.min.is_some() => 0,
        (None, _) => return None,
    };
    let wide = |bound: Option<tarn_types::Value>| bound.and_then(|bound| widen(bound, own, column.data_type));
    let stats = ColumnStats {
        column: column.id,
        min: wide(record.min),
        max: wide(record.max),
        exact: record.exact,
        null_count,
        bytes: record.chunk.compressed_bytes,
    };
    Some((stats, record.chunk))
}

#[cfg(test)]
mod tests {
    use tarn_types::Value;

    use super::*;
    use crate::attach::columns::RowGroupInfo;
    use crate::test_data::events;

    fn file(columns: &[(&str, Option<DataType>)]) -> Vec<ForeignColumn> {
        let column = |(name, data_type): &(&str, Option<DataType>)| ForeignColumn {
            name: name.to_string(),
            leaf_idx: 0,
            data_type: *data_type,
            records: vec![],
        };
        columns.iter().map(column).collect()
    }

    fn described(columns: &[Column]) -> Vec<String> {
        columns.iter().map(|column| format!("{} {} {}", column.id, column.name, column.data_type)).collect()
    }

    #[test]
    fn columns_come_in_the_order_of_appearance() {
        let mut columns = MergedColumns::none();
        columns.take(&file(&[("b", Some(DataType::Int16)), ("nothing", None)])).unwrap();
        columns.take(&file(&[("a", Some(DataType::Text)), ("b", Some(DataType::Int64))])).unwrap();
        let error = columns.take(&file(&[("c", Some(DataType::Bool)), ("a", Some(DataType::Bool))])).unwrap_err();
        assert_eq!(error, "column a is BOOLEAN here and TEXT in the table, and no type is both");
        assert_eq!(described(&columns.into_columns()), ["1 b BIGINT", "2 a TEXT"], "all of a file or nothing");
    }

    #[test]
    fn a_table_with_files_widens_only_as_the_metastore_allows() {
        let mut table = events();
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        table.columns[3].data_type = decimal(10, 2);
        table.columns[0].data_type = DataType::Int32;
        table.options.indexing.bloom = vec![ColumnId(1)];
        let take = |name: &str, data_type| {
            let mut columns = MergedColumns::of(&table);
            columns.take(&file(&[(name, Some(data_type))])).map(|()| columns.changed(&table))
        };
        assert_eq!(take("at", DataType::Int16).unwrap(), None);
        let wider = take("note", decimal(12, 2)).unwrap().unwrap();
        assert_eq!(wider.columns[3].data_type, decimal(12, 2));
        assert!(take("note", decimal(10, 3)).is_err(), "what was kept at two digits means something else at three");
        assert!(take("device", DataType::Float32).is_err(), "its values are in blooms");
        assert_eq!(described(&take("z", DataType::Date).unwrap().unwrap().columns)[4], "5 z DATE");
    }

    #[test]
    fn unknown_counts_of_null_exclude_nothing() {
        let record = |null_count, min: Option<i16>| ColumnRecord {
            min: min.map(Value::Int16),
            max: min.map(Value::Int16),
            exact: false,
            null_count,
            chunk: Default::default(),
        };
        let column = &events().columns[1];
        let of = |null_count, min, n_rows| {
            stats(column, DataType::Int16, record(null_count, min), n_rows)
                .map(|(stats, _)| (stats.null_count, stats.min))
        };
        assert_eq!(of(None, Some(3), 2), Some((1, Some(Value::Int64(3)))));
        assert_eq!(of(None, Some(3), 1), Some((0, Some(Value::Int64(3)))));
        assert_eq!(of(None, None, 1), None);
        assert_eq!(of(Some(0), None, 1), Some((0, None)));
    }

    #[test]
    fn a_file_with_a_column_of_which_too_little_is_known_has_block_metadata_of_none() {
        let table = events();
        let record = |null_count| {
            Some(ColumnRecord { min: None, max: None, exact: false, null_count, chunk: Default::default() })
        };
        let column = |idx: usize, records| ForeignColumn {
            name: table.columns[idx].name.clone(),
            leaf_idx: idx,
            data_type: Some(table.columns[idx].data_type),
            records,
        };
        let block_metadata_of = |unknown| {
            let group = || RowGroupInfo { n_rows: 1, bytes: 1 };
            let columns =
                vec![column(1, vec![record(Some(0)), unknown]), column(2, vec![record(Some(0)), record(Some(1))])];
            let file =
                ForeignFile { groups: vec![group(), group()], columns, note: String::new(), bytes: 0, checksums: None };
            let (_, block_metadata) = ColumnLookup::new(&table).blocks(file, vec![]);
            block_metadata.iter().map(|of_block| of_block.columns.len()).collect::<Vec<_>>()
        };
        assert_eq!(block_metadata_of(record(Some(0))), [2, 2]);
        assert_eq!(block_metadata_of(record(None)), [0, 0]);
        assert_eq!(block_metadata_of(None), [0, 0]);
    }
}
