//! What is in a file that somebody else wrote, in its own types: columns, row groups, bounds, places?
//!
//! Taken from the footer once, in the few bytes that are kept, because the footer of a wide file is large. What a table
//! cannot hold is left out and said: nested columns, intervals, decimals above 38 digits, names that come twice.
//!
//! Invariant: whatever numbers a footer has, nothing panics and every range lies within the file; else the file is
//! refused.

use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, TimeUnit};
use parquet::basic::{ColumnOrder, Compression};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::ColumnDescriptor;

use tarn_metastore::{Checksums, ColumnChunk};
use tarn_types::{DataType, ForeignNames, Value};

use super::bounds::{Bounds, bounds};
use crate::column_chunks::{Shapes, column_chunk};

/// Names that a note lists before it only counts.
const NAMED: usize = 20;

/// A file as its footer tells.
#[derive(Debug)]
pub(crate) struct ForeignFile {
    /// Those that a table can have, in the order of the file.
    pub columns: Vec<ForeignColumn>,
    /// Row groups, in the order of the file.
    pub groups: Vec<RowGroupInfo>,
    /// What of the file is not in the table, or not whole; empty: nothing.
    pub note: String,
    /// About what it takes in memory.
    pub bytes: usize,
    /// Of the whole file, if the table asks for them.
    pub checksums: Option<Arc<Checksums>>,
}

#[derive(Debug)]
pub(crate) struct ForeignColumn {
    /// As the file has it.
    pub name: String,
    /// Its place among the file's leaves.
    pub leaf_idx: usize,
    /// `None`: it holds nothing but NULL and does not say of which type.
    pub data_type: Option<DataType>,
    /// A row group without a record has column metadata that tells too little.
    pub records: Vec<Option<ColumnRecord>>,
}

#[derive(Debug)]
pub(crate) struct RowGroupInfo {
    /// As the footer says.
    pub n_rows: u64,
    /// Compressed.
    pub bytes: u64,
}

/// One column of one row group.
#[derive(Debug)]
pub(crate) struct ColumnRecord {
    /// As [`super::bounds`] believes it.
    pub min: Option<Value>,
    /// As [`super::bounds`] believes it.
    pub max: Option<Value>,
    /// Both are values that occur.
    pub exact: bool,
    /// `None`: the file does not say.
    pub null_count: Option<u64>,
    /// Where it lies.
    pub chunk: ColumnChunk,
}

impl ForeignFile {
    /// Of all its row groups.
    pub fn n_rows(&self) -> u64 {
        self.groups.iter().map(|group| group.n_rows).sum()
    }
}

/// `Err`: why the file cannot be read.
pub(crate) fn foreign(metadata: &ParquetMetaData, size_bytes: u64) -> Result<ForeignFile, String> {
    let mut groups = Vec::with_capacity(metadata.num_row_groups());
    for group in metadata.row_groups() {
        groups.push(check_group(metadata, group, size_bytes)?);
    }
    let n_rows: u128 = groups.iter().map(|group| u128::from(group.n_rows)).sum();
    if n_rows > u128::from(u32::MAX) {
        return Err(format!("it has {n_rows} rows, more than the 4,294,967,295 that a file may have"));
    }
    let (leaves, note) = leaves(metadata);
    let mut columns = Vec::with_capacity(leaves.len());
    let mut bytes = 0;
    for leaf in leaves {
        let descriptor = metadata.file_metadata().schema_descr().column(leaf.idx);
        let order = metadata.file_metadata().column_orders().and_then(|orders| orders.get(leaf.idx));
        let order = order.copied().unwrap_or(ColumnOrder::UNDEFINED);
        let records: Vec<_> = (metadata.row_groups().iter().zip(&groups))
            .map(|(group, of)| record(group.column(leaf.idx), &leaf, &descriptor, order, of.n_rows))
            .collect();
        bytes += leaf.name.len() + records.iter().map(size_of_record).sum::<usize>();
        columns.push(ForeignColumn { name: leaf.name, leaf_idx: leaf.idx, data_type: leaf.data_type, records });
    }
    Ok(ForeignFile { columns, groups, note, bytes, checksums: None })
}

fn size_of_record(record: &Option<ColumnRecord>) -> usize {
    let of = |value: &Option<Value>| match value {
        Some(Value::Text(text)) => text.len(),
        Some(Value::Bytes(bytes)) => bytes.len(),
        _ => 0,
    };
    size_of::<ColumnRecord>() + record.as_ref().map_or(0, |record| of(&record.min) + of(&record.max))
}

fn check_group(metadata: &ParquetMetaData, group: &RowGroupMetaData, size_bytes: u64) -> Result<RowGroupInfo, String> {
    let n_leaves = metadata.file_metadata().schema_descr().num_columns();
    if group.num_columns() != n_leaves {
        return Err(format!("a row group has {} columns, the schema has {n_leaves}", group.num_columns()));
    }
    let mut bytes = 0u64;
    for column in group.columns() {
        let path = || column.column_path().string();
        if let Some(file) = column.file_path() {
            return Err(format!("column {} lies in another file, {file}", path()));
        }
        if let Some(codec) = unreadable_codec(column.compression()) {
            return Err(format!("column {} is packed with {codec}, which this build does not read", path()));
        }
        let Some(end) = end_of(column).filter(|end| *end <= size_bytes) else {
            return Err(format!("column {} does not lie within the file's {size_bytes} bytes", path()));
        };
        bytes = bytes.saturating_add(column.compressed_size() as u64).min(end.max(size_bytes));
    }
    let n_rows = u64::try_from(group.num_rows()).map_err(|_| format!("a row group has {} rows", group.num_rows()))?;
    Ok(RowGroupInfo { n_rows, bytes })
}

/// The end of its pages; `None` when the numbers are none.
fn end_of(column: &ColumnChunkMetaData) -> Option<u64> {
    let start = match column.dictionary_page_offset() {
        Some(offset) if offset > 0 => offset.min(column.data_page_offset()),
        _ => column.data_page_offset(),
    };
    u64::try_from(start).ok()?.checked_add(u64::try_from(column.compressed_size()).ok()?)
}

fn unreadable_codec(codec: Compression) -> Option<&'static str> {
    match codec {
        Compression::GZIP(_) => Some("GZIP"),
        Compression::BROTLI(_) => Some("BROTLI"),
        Compression::LZO => Some("LZO"),
        _ => None,
    }
}

/// A leaf that becomes a column.
struct LeafColumn {
    name: String,
    idx: usize,
    arrow: ArrowType,
    data_type: Option<DataType>,
    shape: Arc<str>,
}

/// The leaves that a table can hold, and what is to be said of the others.
fn leaves(metadata: &ParquetMetaData) -> (Vec<LeafColumn>, String) {
    let descriptor = metadata.file_metadata().schema_descr();
    let names: ForeignNames<'_> = descriptor.root_schema().get_fields().iter().map(|field| field.name()).collect();
    let (mut leaves, mut shapes) = (Vec::new(), Shapes::default());
    let (mut left_out, mut cut) = (NameList::default(), NameList::default());
    for (idx, of) in descriptor.columns().iter().enumerate() {
        let root = descriptor.get_column_root(idx);
        let name = root.name();
        let is_flat = root.is_primitive() && of.max_rep_level() == 0;
        let shape = if is_flat { shapes.of(of) } else { None };
        let arrow = shape.as_ref().map(|shape| shape.field.data_type());
        let data_type = match names.column_type(name, is_flat, arrow) {
            Ok(data_type) => data_type,
            Err(why) => {
                left_out.add(name, Some(&why.to_string()));
                continue;
            }
        };
        let Some(shape) = shape else { continue };
        let arrow = shape.field.data_type().clone();
        if matches!(arrow, ArrowType::Timestamp(TimeUnit::Nanosecond, _) | ArrowType::Time64(TimeUnit::Nanosecond)) {
            cut.add(name, None);
        }
        let data_type = Some(data_type).filter(|_| arrow != ArrowType::Null);
        leaves.push(LeafColumn { name: name.to_owned(), idx, arrow, data_type, shape: shape.text.clone() });
    }
    let notes = [left_out.say("left out: "), cut.say("nanoseconds are cut to microseconds: ")];
    (leaves, notes.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// Names for a note; neighbours are said once.
#[derive(Default)]
struct NameList {
    named: Vec<String>,
    more: usize,
}

impl NameList {
    fn add(&mut self, name: &str, why: Option<&str>) {
        let said = match why {
            Some(why) => format!("{name} ({why})"),
            None => name.to_owned(),
        };
        if self.named.last() == Some(&said) {
            // Another leaf of the same nested column.
        } else if self.named.len() < NAMED {
            self.named.push(said);
        } else {
            self.more += 1;
        }
    }

    fn say(self, what: &str) -> Option<String> {
        let more = if self.more > 0 { format!(" and {} more", self.more) } else { String::new() };
        (!self.named.is_empty()).then(|| format!("{what}{}{more}", self.named.join(", ")))
    }
}

fn record(
    of: &ColumnChunkMetaData,
    leaf: &LeafColumn,
    descriptor: &ColumnDescriptor,
    order: ColumnOrder,
    n_rows: u64,
) -> Option<ColumnRecord> {
    let chunk = column_chunk(of, &leaf.shape)?;
    let statistics = of.statistics();
    let said = statistics.and_then(|of| of.null_count_opt());
    let null_count = match said {
        _ if descriptor.max_def_level() == 0 => Some(0),
        // More of them than rows is nonsense, and so may be the rest.
        Some(n) if n > n_rows => None,
        None if leaf.data_type.is_none() => Some(n_rows),
        said => said,
    };
    let believed = statistics.filter(|_| said.is_none_or(|n| n <= n_rows));
    let Bounds { min, max, exact } = believed.map(|of| bounds(of, order, descriptor, &leaf.arrow)).unwrap_or_default();
    let exact = null_count == Some(n_rows) || exact && null_count.is_some();
    Some(ColumnRecord { min, max, exact, null_count, chunk })
}
