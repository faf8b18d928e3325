//! How do rows in key order become Parquet files (docs/formats/lake.md), their blocks and their addresses?
//!
//! Invariants: a file's columns are the table's in order, by the names that files have, then `__seqno`; its rows are in
//! key order; it is closed only at the end of a row group, once it has reached its target size and has as many rows as
//! a row group may have, or with the last row. So `n` rows need at most `n / row_group_rows + 1` files, whose ids are
//! allocated before the first byte is written.
//!
//! A reader decodes [`BATCH_ROWS`] rows of a row group at once, however wide they are. So no window of so many rows of
//! a row group holds more than [`WINDOW_BYTES`]: where rows are wider, the row group ends.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, SchemaRef};
use arrow::row::{RowConverter, SortField};
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as Codec, ZstdLevel};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use tokio::sync::mpsc;
use uuid::Uuid;

use tarn_feed::PlacedRows;
use tarn_metastore::{BlockMetadata, File};
use tarn_types::{FileId, SEQNO_COLUMN, TableSchema, Version};

use crate::error::{arrow_error, parquet_error};
use crate::format::{BATCH_ROWS, FORMAT_KEY, FORMAT_VERSION};
use crate::index::{Indexer, block_metadata};
use crate::names::file_path;
use crate::options::{Compression, Options};
use crate::sort::key_columns;
use crate::stats::{NanSpan, NullArrays, blocks, inline_columns};
use crate::stored::called;
use crate::upload::{Pipe, UploadPart};
use crate::{Error, Result};

const TABLE_KEY: &str = "tarn.table";
const FILE_KEY: &str = "tarn.file";

/// Rows of one batch on its way into a file; fewer when they are wide.
const MAX_BATCH_ROWS: usize = 1 << 16;
pub(crate) const MAX_BATCH_BYTES: usize = 64 << 20;

/// What [`BATCH_ROWS`] rows of a row group take in memory, at most; a row that is longer has a row group of its own.
const WINDOW_BYTES: usize = 16 << 20;

/// What Parquet calls the group of a list's items.
const LIST: &str = "list";

/// Rows looked at to tell whether a column repeats its values.
const SAMPLE_ROWS: usize = 4096;

/// A column whose sample is more distinct than this gets no dictionary: it would outgrow its page after a fraction of
/// the row group, cost a hash per value until then, and save nothing.
const DISTINCT: f64 = 0.98;

/// What all files of one delivery or compaction share.
#[derive(Clone)]
pub(crate) struct Spec {
    pub table: Arc<TableSchema>,
    /// Of the rows, `__seqno` last.
    pub schema: SchemaRef,
    /// The same by the names that files have.
    pub in_files: SchemaRef,
    /// How large and how packed.
    pub options: Arc<Options>,
    /// Rows of a row group, so that one fits the memory it may take.
    pub row_group_rows: usize,
    /// Rows that are encoded at once.
    pub batch_rows: usize,
    /// The id of the first; the others follow on it.
    pub first_file: FileId,
    /// Ids that may be used.
    pub n_files: u64,
    /// In the names of the files: two attempts do not write over each other.
    pub instance: Uuid,
    /// Of the files: that of the delivery, or the newest of the files that are compacted.
    pub hour: i64,
    /// Whether to keep the keys and where they lie; tables that only append need no addresses.
    pub place: bool,
}

impl Spec {
    /// The ids are still to be allocated: `n_files` of them. `row_bytes`: of a row in memory.
    pub fn new(table: Arc<TableSchema>, options: &Arc<Options>, n_rows: u64, row_bytes: usize, hour: i64) -> Self {
        let row_bytes = row_bytes.max(1);
        let row_group_rows = (options.row_group_bytes / row_bytes).clamp(1, options.row_group_rows.max(1));
        Self {
            schema: table.arrow_with_seqno(),
            in_files: table.arrow_in_files(),
            row_group_rows,
            batch_rows: (MAX_BATCH_BYTES / row_bytes).clamp(1, MAX_BATCH_ROWS),
            first_file: FileId(0),
            n_files: n_rows / row_group_rows as u64 + 1,
            instance: Uuid::nil(),
            hour,
            place: !table.options.append_only,
            options: options.clone(),
            table,
        }
    }
}

/// What was written.
#[derive(Default)]
pub(crate) struct WrittenFiles {
    /// Without ETags, which the store tells later.
    pub files: Vec<File>,
    /// Blooms and column metadata of their blocks.
    pub block_metadata: BTreeMap<FileId, Vec<BlockMetadata>>,
    /// Where the keys lie, in key order; empty where nobody wants them.
    pub placed: Vec<PlacedRows>,
}

/// Writes rows in key order, in as many files as they need. Blocks: run it off the executor.
pub(crate) fn write(
    spec: &Spec,
    batches: impl Iterator<Item = Result<RecordBatch>>,
    pieces: mpsc::Sender<UploadPart>,
) -> Result<WrittenFiles> {
    let mut writer = Writer { spec, pieces, key_idx: key_idx(spec), current: None, written: WrittenFiles::default() };
    for batch in batches {
        writer.push(batch?)?;
    }
    writer.close()?;
    Ok(writer.written)
}

/// The columns of a [`PlacedRows`].
fn key_idx(spec: &Spec) -> Vec<usize> {
    let names = key_columns(&spec.table).into_iter().chain([SEQNO_COLUMN.to_owned()]);
    names.filter_map(|name| spec.schema.index_of(&name).ok()).collect()
}

struct Writer<'a> {
    spec: &'a Spec,
    pieces: mpsc::Sender<UploadPart>,
    key_idx: Vec<usize>,
    current: Option<Current>,
    written: WrittenFiles,
}

/// The file that is being written.
struct Current {
    id: FileId,
    path: Path,
    parquet: ArrowWriter<Pipe>,
    n_rows: u64,
    nans: Vec<NanSpan>,
    null_arrays: Vec<NullArrays>,
    indexer: Indexer,
    window: Window,
}

/// The rows of the row group since the last [`BATCH_ROWS`] of them.
#[derive(Debug, Default)]
struct Window {
    n_rows: usize,
    n_bytes: usize,
}

impl Window {
    /// Takes as many of the rows as the row group may have, rows that are taken at once being alike; none if it has to
    /// end before the first.
    fn take(&mut self, rows: &RecordBatch) -> usize {
        let n_bytes = size_bytes(rows);
        if self.n_bytes + n_bytes <= WINDOW_BYTES {
            self.add(rows.num_rows(), n_bytes);
            return rows.num_rows();
        }
        // A row that is longer than a window is taken alone.
        let least = usize::from(self.n_rows == 0);
        let mut fit = rows.num_rows().min(BATCH_ROWS - self.n_rows);
        let mut n_bytes = size_bytes(&rows.slice(0, fit));
        while self.n_bytes + n_bytes > WINDOW_BYTES && fit > least {
            fit /= 2;
            n_bytes = size_bytes(&rows.slice(0, fit));
        }
        self.add(fit, n_bytes);
        fit
    }

    fn add(&mut self, n_rows: usize, n_bytes: usize) {
        (self.n_rows, self.n_bytes) = (self.n_rows + n_rows, self.n_bytes + n_bytes);
        if self.n_rows >= BATCH_ROWS {
            // Those behind the last whole window begin the next one, with their share.
            self.n_rows %= BATCH_ROWS;
            self.n_bytes = n_bytes * self.n_rows / n_rows;
        }
    }
}

/// What the rows themselves take: slices share buffers, which must not count for each of them.
pub(crate) fn size_bytes(rows: &RecordBatch) -> usize {
    rows.columns().iter().map(shown_bytes).sum()
}

fn shown_bytes(column: &ArrayRef) -> usize {
    let Some(lists) = column.as_list_opt::<i32>() else {
        return column.to_data().get_slice_memory_size().unwrap_or(0);
    };
    // A slice of lists has the items of all.
    let ends = lists.value_offsets();
    let (first, last) = (ends[0] as usize, ends[lists.len()] as usize);
    shown_bytes(&lists.values().slice(first, last - first)) + size_of_val(ends)
}

impl Current {
    fn end_row_group(&mut self) -> Result<()> {
        self.window = Window::default();
        self.parquet.flush().map_err(parquet_error("write", &self.path))?;
        let end = self.parquet.bytes_written() as u64;
        self.parquet.inner_mut().end_block(end);
        self.indexer.end_row_group();
        Ok(())
    }
}

impl Writer<'_> {
    fn push(&mut self, mut batch: RecordBatch) -> Result<()> {
        while batch.num_rows() > 0 {
            let mut file = match self.current.take() {
                Some(file) => file,
                None => self.open(&batch)?,
            };
            // Row groups are ended here, not by the writer: a file may only end where one does.
            let room = self.spec.row_group_rows - file.parquet.in_progress_rows();
            let n_rows = file.window.take(&batch.slice(0, room.min(batch.num_rows())));
            let rows = batch.slice(0, n_rows);
            batch = batch.slice(n_rows, batch.num_rows() - n_rows);
            self.add(&mut file, &rows)?;
            let group_ended = n_rows == 0 || file.parquet.in_progress_rows() >= self.spec.row_group_rows;
            if group_ended {
                file.end_row_group()?;
            }
            let full = file.n_rows >= self.spec.row_group_rows as u64
                && (file.parquet.bytes_written() as u64 >= self.spec.options.target_file_bytes
                    || file.n_rows >= self.spec.options.target_file_rows);
            self.current = Some(file);
            if group_ended && full {
                self.close()?;
            }
        }
        Ok(())
    }

    fn open(&self, first: &RecordBatch) -> Result<Current> {
        let spec = self.spec;
        let nth = self.written.files.len() as u64;
        assert!(nth < spec.n_files, "file {nth} of {} that were allocated", spec.n_files);
        let id = FileId(spec.first_file.0 + nth);
        let path = file_path(&spec.table, spec.hour, id, spec.instance);
        let pipe =
            Pipe::start(self.pieces.clone(), path.clone()).map_err(|e| parquet_error("write", &path)(e.into()))?;
        let properties = properties(spec, id, &called(first, &spec.in_files)?)?;
        let parquet = ArrowWriter::try_new(pipe, spec.in_files.clone(), Some(properties));
        let parquet = parquet.map_err(parquet_error("write", &path))?;
        let columns = spec.table.columns.iter().map(|column| (column.name.as_str(), column.data_type));
        let indexer = Indexer::new(&spec.table, columns);
        let (nans, null_arrays, window) = (Vec::new(), Vec::new(), Window::default());
        Ok(Current { id, path, parquet, n_rows: 0, nans, null_arrays, indexer, window })
    }

    fn add(&mut self, file: &mut Current, rows: &RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let end = file.n_rows + rows.num_rows() as u64;
        let nans = (0..self.spec.table.columns.len()).filter(|idx| has_nan(rows.column(*idx)));
        file.nans.extend(nans.map(|column_idx| NanSpan { column_idx, rows: file.n_rows..end }));
        let arrays = (0..self.spec.table.columns.len()).filter(|idx| rows.column(*idx).data_type().is_list());
        file.null_arrays.extend(arrays.filter_map(|column_idx| {
            let n_rows = rows.column(column_idx).null_count() as u64;
            (n_rows > 0).then_some(NullArrays { column_idx, first_row: file.n_rows, n_rows })
        }));
        file.parquet.write(&called(rows, &self.spec.in_files)?).map_err(parquet_error("write", &file.path))?;
        file.indexer.add(rows)?;
        if self.spec.place {
            let keys = rows.project(&self.key_idx).map_err(arrow_error("keep keys"))?;
            self.written.placed.push(PlacedRows { file: file.id, keys, first_row: file.n_rows as u32 });
        }
        file.n_rows = end;
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let Some(mut file) = self.current.take() else { return Ok(()) };
        if file.parquet.in_progress_rows() > 0 {
            file.end_row_group()?;
        }
        let metadata = file.parquet.finish().map_err(parquet_error("write", &file.path))?;
        let size_bytes = file.parquet.bytes_written() as u64;
        let path = file.path.to_string();
        let sums = file.parquet.inner_mut().finish(size_bytes).map_err(|e| parquet_error("write", &path)(e.into()))?;
        let nulls = &file.null_arrays;
        let mut blocks = blocks(&path, &self.spec.table, &self.spec.in_files, &metadata, &file.nans, nulls)?;
        let block_metadata = block_metadata(&self.spec.table, &metadata, &blocks, file.indexer.finish());
        self.written.block_metadata.insert(file.id, block_metadata);
        let is_inline = inline_columns(&self.spec.table);
        blocks.iter_mut().for_each(|block| block.columns.retain(|stats| is_inline(stats.column)));
        self.written.files.push(File {
            id: file.id,
            size_bytes,
            n_rows: file.n_rows,
            hour: self.spec.hour,
            etag: None,
            blocks,
            created_version: Version(0),
            sorted_by_key: true,
            note: None,
            checksums: Some(Arc::new(sums)),
            path,
        });
        Ok(())
    }
}

fn has_nan(column: &dyn Array) -> bool {
    match column.data_type() {
        DataType::Float32 => column.as_primitive::<Float32Type>().values().iter().any(|v| v.is_nan()),
        DataType::Float64 => column.as_primitive::<Float64Type>().values().iter().any(|v| v.is_nan()),
        _ => false,
    }
}

fn properties(spec: &Spec, file: FileId, first: &RecordBatch) -> Result<WriterProperties> {
    let options = &spec.options;
    let codec = match options.compression {
        Compression::None => Codec::UNCOMPRESSED,
        Compression::Lz4 => Codec::LZ4_RAW,
        Compression::Zstd(level) => {
            Codec::ZSTD(ZstdLevel::try_new(level).map_err(parquet_error("choose the compression of", file))?)
        }
    };
    let sorting = spec.table.key.iter().map(|part| SortingColumn {
        column_idx: part.column_idx as i32,
        descending: part.descending,
        nulls_first: false,
    });
    let entry = |key: &str, value: String| KeyValue { key: key.to_owned(), value: Some(value) };
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("tarn {}", env!("CARGO_PKG_VERSION")))
        .set_compression(codec)
        .set_max_row_group_row_count(None)
        .set_data_page_row_count_limit(options.page_rows)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_statistics_truncate_length(Some(options.statistics_bytes.max(1)))
        .set_column_index_truncate_length(Some(options.statistics_bytes.max(1)))
        .set_sorting_columns(Some(sorting.collect()))
        .set_key_value_metadata(Some(vec![
            entry(FORMAT_KEY, FORMAT_VERSION.to_owned()),
            entry(TABLE_KEY, spec.table.id.to_string()),
            entry(FILE_KEY, file.to_string()),
        ]));
    for path in distinct_columns(first)? {
        properties = properties.set_column_dictionary_enabled(ColumnPath::new(path), false);
    }
    Ok(properties.build())
}

/// Where the columns lie of which hardly a value comes twice; an array's values are its items.
fn distinct_columns(rows: &RecordBatch) -> Result<Vec<Vec<String>>> {
    let stride = (rows.num_rows() / SAMPLE_ROWS).max(1);
    let picked: arrow::array::UInt32Array = (0..rows.num_rows() as u32).step_by(stride).take(SAMPLE_ROWS).collect();
    let sample = take_record_batch(rows, &picked).map_err(arrow_error("sample rows"))?;
    let mut distinct = Vec::new();
    for (field, column) in sample.schema().fields().iter().zip(sample.columns()) {
        let (column, path) = match column.as_list_opt::<i32>() {
            // As many of them as rows of another column.
            Some(lists) => {
                let items = lists.values().slice(0, lists.values().len().min(SAMPLE_ROWS));
                (items, vec![field.name().clone(), LIST.to_owned(), Field::LIST_FIELD_DEFAULT_NAME.to_owned()])
            }
            None => (Arc::clone(column), vec![field.name().clone()]),
        };
        let converter = RowConverter::new(vec![SortField::new(column.data_type().clone())]);
        let values = converter.and_then(|c| c.convert_columns(std::slice::from_ref(&column)));
        let values = values.map_err(arrow_error("sample rows"))?;
        let n_distinct = values.iter().map(|row| row.data().to_vec()).collect::<HashSet<_>>().len();
        if n_distinct as f64 > DISTINCT * column.len() as f64 {
            distinct.push(path);
        }
    }
    Ok(distinct)
}

impl From<tokio::task::JoinError> for Error {
    /// A panic goes on in the caller; a cancelled task is a runtime that shuts down.
    fn from(error: tokio::task::JoinError) -> Self {
        match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Self::Cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Float64Array};
    use tarn_types::{Column, ColumnId, SEQNO_ID, Value};

    use super::*;
    use crate::test_data::{Event, batch, event, events};

    fn written(options: Options, rows: RecordBatch) -> WrittenFiles {
        let n_rows = rows.num_rows() as u64;
        let spec = Spec::new(Arc::new(events()), &Arc::new(options), n_rows, 100, 0);
        let (sender, mut receiver) = crate::upload::channel();
        let drain = std::thread::spawn(move || while receiver.blocking_recv().is_some() {});
        let written = write(&spec, [Ok(rows)].into_iter(), sender).unwrap();
        drain.join().unwrap();
        written
    }

    #[test]
    fn a_block_with_nan_has_no_bounds_and_its_neighbour_has() {
        let events_: Vec<_> = (0..6).map(|at| event("a", 10 - at, 2)).collect();
        let rows = batch(&events(), &events_);
        let readings = Float64Array::from(vec![Some(1.0), Some(f64::NAN), Some(5.0), None, Some(-2.0), Some(3.0)]);
        let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
        columns[2] = Arc::new(readings);
        let rows = RecordBatch::try_new(rows.schema(), columns).unwrap();
        let written = written(Options { row_group_rows: 3, ..Options::default() }, rows);
        let stats: Vec<_> = written.files[0].blocks.iter().map(|block| &block.columns[2]).collect();
        assert_eq!((&stats[0].min, &stats[0].max, stats[0].exact, stats[0].null_count), (&None, &None, false, 0));
        let (min, max) = (Some(Value::Float64(-2.0)), Some(Value::Float64(3.0)));
        assert_eq!((&stats[1].min, &stats[1].max, stats[1].exact, stats[1].null_count), (&min, &max, true, 1));
    }

    #[test]
    fn wide_rows_make_small_row_groups() {
        let spec = |row_bytes| Spec::new(Arc::new(events()), &Arc::new(Options::default()), 1_000_000, row_bytes, 0);
        assert_eq!((spec(100).row_group_rows, spec(100).n_files), (1 << 18, 4));
        assert_eq!((spec(1 << 20).row_group_rows, spec(1 << 20).batch_rows), (128, 64));
    }

    #[test]
    fn a_batch_of_a_reader_is_bounded_however_wide_the_rows_are() {
        let text = |at: usize| "x".repeat(if at % 1000 < 30 { 1 << 20 } else { 10 });
        let rows: Vec<_> = (0..3000).map(|at| Event { note: Some(text(at)), ..event("a", at as i64, 0) }).collect();
        let written = written(Options { target_file_bytes: 1, ..Options::default() }, batch(&events(), &rows));
        // The rows are few: they are one file, however many row groups it has.
        assert_eq!(written.files.len(), 1);
        let groups: Vec<u64> = written.files[0].blocks.iter().map(|block| block.n_rows).collect();
        assert_eq!(groups.iter().sum::<u64>(), 3000);
        assert!((4..=20).contains(&groups.len()), "{groups:?}");
        let mut at = 0;
        for n_rows in groups {
            let bytes: usize = (at..at + n_rows as usize).map(|at| text(at).len()).sum();
            assert!(bytes <= WINDOW_BYTES, "{bytes}");
            at += n_rows as usize;
        }
    }

    #[test]
    fn a_wide_table_keeps_the_bounds_of_its_key_in_memory_and_the_others_in_the_block_metadata() {
        let mut table = events();
        let extra = (5..40).map(|id| Column { id: ColumnId(id), name: format!("c{id}"), ..table.columns[3].clone() });
        let extra: Vec<_> = extra.collect();
        table.columns.extend(extra);
        let rows = batch(&events(), &[event("a", 1, 2), event("a", 0, 3)]);
        let seqno = rows.column(4).clone();
        let mut columns: Vec<ArrayRef> = rows.columns()[..4].to_vec();
        columns.extend((5..40).map(|_| rows.column(3).clone()).chain([seqno]));
        let rows = RecordBatch::try_new(table.arrow_with_seqno(), columns).unwrap();
        let spec = Spec::new(Arc::new(table), &Arc::new(Options::default()), 2, 100, 0);
        let (sender, mut receiver) = crate::upload::channel();
        let drain = std::thread::spawn(move || while receiver.blocking_recv().is_some() {});
        let written = write(&spec, [Ok(rows)].into_iter(), sender).unwrap();
        drain.join().unwrap();
        let file = &written.files[0];
        let inline: Vec<_> = file.blocks[0].columns.iter().map(|stats| stats.column.0).collect();
        assert_eq!(inline, [1, 2]);
        let block_metadata = &written.block_metadata[&file.id][0];
        let ids: Vec<_> = block_metadata.columns.iter().map(|(stats, _)| stats.column.0).collect();
        assert_eq!(ids, (1..40).chain([SEQNO_ID.0]).collect::<Vec<_>>());
        assert_eq!(block_metadata.column(ColumnId(39)).unwrap().0.max, Some(Value::Text("note 3".into())));
        assert_eq!(block_metadata.bloom, None);
    }

    #[test]
    fn a_column_without_repetition_has_no_dictionary() {
        let rows: Vec<_> = (0..3000).map(|at| event(["a", "b"][at as usize % 2], at, at / 100)).collect();
        assert_eq!(distinct_columns(&batch(&events(), &rows)).unwrap(), [["at"]]);
    }
}
