//! Which keys are in a row group, and what is kept of it beside the commit log?
//!
//! Rows pass by on their way into a file, or are read for it; the tokens and values that the table's options name go
//! into one bloom filter a row group. Nothing is collected for a table that asked for none.
//!
//! Invariant: every token of a tokenized column and every value of a bloom column of every row is in its block's
//! filter. Keys do not depend on the width of a column, so a file's own types will do.
//!
//! A filter whose size nobody chose is filled at the largest and folded to what its keys need, which gives exactly the
//! filter of that size.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use tarn_metastore::{
    Block, BlockMetadata, Bloom, BloomBuilder, ColumnStats, chunks_for, token_hash, tokens, value_hash,
};
use tarn_types::{ColumnId, DataType, SEQNO_ID, TableSchema, TokenColumns, Value, arrow_type};

use crate::Result;
use crate::column_chunks::{Shapes, column_chunk};
use crate::error::{arrow_error, types_error};

/// Chunks of a filter while it is filled, when its size is to be chosen: 1 MiB, twice the keys that the default size
/// holds.
const FILLED_CHUNKS: u32 = 32_768;

/// Blooms of the row groups of one file while its rows pass by.
pub(crate) struct Indexer {
    keys: Vec<KeyColumn>,
    /// `None`: the table asked for none.
    size: Option<BloomSize>,
    current: Option<BloomBuilder>,
    done: Vec<Option<Bloom>>,
    scratch: String,
}

/// A column that gives keys.
struct KeyColumn {
    name: String,
    id: ColumnId,
    data_type: DataType,
    tokens: bool,
    value: bool,
}

#[derive(Clone, Copy)]
enum BloomSize {
    Given(u32),
    /// By this rate of false positives.
    Chosen(f64),
}

impl Indexer {
    /// `columns` are those of the rows that will come, by name and as they are stored there. Key columns that are not
    /// among them are NULL, and have no keys.
    pub fn new<'a>(table: &TableSchema, columns: impl IntoIterator<Item = (&'a str, DataType)>) -> Self {
        let indexing = &table.options.indexing;
        let size = indexing.any().then_some(match indexing.bloom_chunks {
            0 => BloomSize::Chosen(indexing.bloom_fpp),
            n_chunks => BloomSize::Given(n_chunks),
        });
        let mut keys = Vec::new();
        if size.is_some() {
            let named = |id: &ColumnId| table.column_by_id(*id).map(|column| (column.name.as_str(), column.id));
            let values: Vec<_> = indexing.bloom.iter().filter_map(named).collect();
            let tokenized: Vec<_> = match &indexing.tokens {
                TokenColumns::Some(ids) => ids.iter().filter_map(named).collect(),
                _ => Vec::new(),
            };
            for (name, data_type) in columns {
                let value = values.iter().find(|(of, _)| *of == name);
                let tokens = data_type == DataType::Text
                    && (indexing.tokens == TokenColumns::All || tokenized.iter().any(|(of, _)| *of == name));
                if tokens || value.is_some() {
                    let id = value.map_or(ColumnId(0), |(_, id)| *id);
                    keys.push(KeyColumn { name: name.to_owned(), id, data_type, tokens, value: value.is_some() });
                }
            }
        }
        Self { keys, size, current: None, done: Vec::new(), scratch: String::new() }
    }

    /// The columns whose rows [`Indexer::add`] looks at.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.name.as_str())
    }

    /// Some rows of the current row group.
    pub fn add(&mut self, rows: &RecordBatch) -> Result<()> {
        let Some(size) = self.size else { return Ok(()) };
        let bloom = self.current.get_or_insert_with(|| builder(size));
        for key in &self.keys {
            let Some(column) = rows.column_by_name(&key.name) else { continue };
            add_column(bloom, key, column, &mut self.scratch)?;
        }
        Ok(())
    }

    /// The keys so far are those of one row group; the next ones are of the next.
    pub fn end_row_group(&mut self) {
        let bloom = self.size.map(|size| {
            let bloom = self.current.take().unwrap_or_else(|| builder(size)).finish();
            match size {
                BloomSize::Given(_) => bloom,
                BloomSize::Chosen(fpp) => bloom.resized(chunks_for(bloom.estimated_keys(), fpp).min(FILLED_CHUNKS)),
            }
        });
        self.done.push(bloom);
    }

    /// A filter for each row group that ended.
    pub fn finish(self) -> Vec<Option<Bloom>> {
        self.done
    }
}

fn builder(size: BloomSize) -> BloomBuilder {
    BloomBuilder::new(match size {
        BloomSize::Given(n_chunks) => n_chunks,
        BloomSize::Chosen(_) => FILLED_CHUNKS,
    })
}

fn add_column(bloom: &mut BloomBuilder, key: &KeyColumn, column: &ArrayRef, scratch: &mut String) -> Result<()> {
    let storage = arrow_type(&key.data_type);
    let column = match *column.data_type() == storage {
        true => column.clone(),
        false => cast(column, &storage).map_err(arrow_error("read keys"))?,
    };
    if key.tokens {
        for text in column.as_string::<i32>().iter().flatten() {
            let mut tokens = tokens(text, scratch);
            while let Some(token) = tokens.next_token() {
                bloom.insert(token_hash(token));
            }
        }
    }
    if key.value {
        for row in (0..column.len()).filter(|row| column.is_valid(*row)) {
            let value = Value::from_arrow(&column, row, &key.data_type).map_err(types_error("read keys"))?;
            if let Some(hash) = value_hash(key.id, &key.data_type, &value) {
                bloom.insert(hash);
            }
        }
    }
    Ok(())
}

/// What is kept of the row groups of a file that we wrote: their blooms, and of each column of the table the bounds in
/// `blocks` beside its place; of the change of each row, which is the file's last column, the place alone. The file's
/// other columns are the table's, in order, each of one leaf. All columns have a place, or none has: a reader takes a
/// column without one for NULL.
pub(crate) fn block_metadata(
    table: &TableSchema,
    metadata: &ParquetMetaData,
    blocks: &[Block],
    blooms: Vec<Option<Bloom>>,
) -> Vec<BlockMetadata> {
    let descriptor = metadata.file_metadata().schema_descr();
    let mut shapes = Shapes::default();
    let n_columns = table.columns.len();
    let shapes: Vec<_> = (0..=n_columns).map(|idx| shapes.of_column(descriptor, idx)).collect();
    let change = |group: &RowGroupMetaData| {
        let place = column_chunk(group.column(n_columns), &shapes[n_columns].as_ref()?.text)?;
        let bytes = place.compressed_bytes;
        Some((ColumnStats { column: SEQNO_ID, min: None, max: None, exact: false, null_count: 0, bytes }, place))
    };
    let places: HashMap<ColumnId, usize> = table.columns.iter().map(|column| column.id).zip(0..).collect();
    let mut blooms = blooms.into_iter();
    let mut is_whole = true;
    let of_block = |(block, group): (&Block, &RowGroupMetaData)| {
        let mut columns: Vec<_> = (block.columns.iter())
            .filter_map(|stats| {
                let idx = *places.get(&stats.column)?;
                Some((stats.clone(), column_chunk(group.column(idx), &shapes[idx].as_ref()?.text)?))
            })
            .collect();
        columns.extend(change(group));
        columns.sort_by_key(|(stats, _)| stats.column);
        is_whole &= columns.len() == n_columns + 1;
        BlockMetadata { row_group: block.row_group, columns, bloom: blooms.next().flatten() }
    };
    let mut block_metadata: Vec<_> = blocks.iter().zip(metadata.row_groups()).map(of_block).collect();
    if !is_whole {
        block_metadata.iter_mut().for_each(|of_block| of_block.columns.clear());
    }
    block_metadata
}

#[cfg(test)]
mod tests {
    use tarn_types::Indexing;

    use super::*;
    use crate::test_data::{batch, event, events};

    fn indexed(indexing: Indexing) -> (TableSchema, Indexer) {
        let mut table = events();
        table.options.indexing = indexing;
        let columns = table.columns.iter().map(|column| (column.name.as_str(), column.data_type));
        let indexer = Indexer::new(&table, columns);
        (table, indexer)
    }

    #[test]
    fn nothing_asked_for_is_nothing_kept() {
        let (table, mut indexer) = indexed(Indexing::default());
        indexer.add(&batch(&table, &[event("a", 1, 2)])).unwrap();
        indexer.end_row_group();
        assert_eq!(indexer.finish(), [None]);
    }

    #[test]
    fn tokens_and_values_of_each_row_group_are_in_its_filter() {
        let tokens = TokenColumns::Some(vec![ColumnId(4)]);
        let (table, mut indexer) = indexed(Indexing { tokens, bloom: vec![ColumnId(2)], ..Indexing::default() });
        assert_eq!(indexer.columns().collect::<Vec<_>>(), ["at", "note"]);
        indexer.add(&batch(&table, &[event("first", 1, 2), event("first", 2, 3)])).unwrap();
        indexer.end_row_group();
        indexer.add(&batch(&table, &[event("second", 3, 4)])).unwrap();
        indexer.end_row_group();
        indexer.end_row_group();
        let blooms: Vec<_> = indexer.finish().into_iter().map(Option::unwrap).collect();
        let has = |block: usize, hash| blooms[block].may_contain(hash);
        let at = |v| value_hash(ColumnId(2), &DataType::Int64, &Value::Int64(v)).unwrap();
        assert!(has(0, token_hash("note")) && has(0, token_hash("2")) && has(0, token_hash("3")) && has(0, at(1)));
        assert!(!has(0, token_hash("first")), "the device is not tokenized");
        assert!(!has(0, at(3)) && has(1, at(3)) && has(1, token_hash("4")) && !has(1, token_hash("2")));
        assert!(!has(2, token_hash("note")), "a group without rows has no keys");
        assert!(blooms.iter().all(|bloom| bloom.n_chunks() == 64), "few keys need few chunks");
    }

    #[test]
    fn a_given_size_is_kept_and_all_texts_are_all_texts() {
        let indexing = Indexing { tokens: TokenColumns::All, bloom_chunks: 256, ..Indexing::default() };
        let (table, mut indexer) = indexed(indexing);
        assert_eq!(indexer.columns().collect::<Vec<_>>(), ["device", "note"]);
        indexer.add(&batch(&table, &[event("Dev-7", 1, 2)])).unwrap();
        indexer.end_row_group();
        let bloom = indexer.finish().remove(0).unwrap();
        assert_eq!(bloom.n_chunks(), 256);
        assert!(bloom.may_contain(token_hash("dev")) && bloom.may_contain(token_hash("7")));
    }

    #[test]
    fn many_keys_choose_a_filter_that_holds_them() {
        let indexing = Indexing { bloom: vec![ColumnId(2)], bloom_fpp: 0.001, ..Indexing::default() };
        let (table, mut indexer) = indexed(indexing);
        let rows: Vec<_> = (0..20_000).map(|at| event("a", at, 2)).collect();
        indexer.add(&batch(&table, &rows)).unwrap();
        indexer.end_row_group();
        let bloom = indexer.finish().remove(0).unwrap();
        assert_eq!(bloom.n_chunks(), chunks_for(20_000, 0.001));
        let at = |v| value_hash(ColumnId(2), &DataType::Int64, &Value::Int64(v)).unwrap();
        assert!((0..20_000).all(|v| bloom.may_contain(at(v))));
        let wrong = (20_000..120_000).filter(|v| bloom.may_contain(at(*v))).count();
        assert!(wrong < 150, "{wrong} of 100,000");
    }
}
