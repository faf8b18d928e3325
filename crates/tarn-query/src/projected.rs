//! What does a Parquet reader need to know of a file, when only some of its columns are read from some of its row
//! groups?
//!
//! [`ProjectedLeaves`] puts Parquet metadata together from what the metastore keeps of the columns of blocks, so that
//! no footer is read: its schema has just these columns, under the table's names. All row groups are there, so that
//! positions stay what they are; those that are not read have empty columns.
//!
//! Invariant: what is said of a column that is read is what the file's footer says. Bounds are said only where the file
//! stores the table's own type, else they might be of another unit.

use std::sync::Arc;

use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::{Compression, EncodingMask, LogicalType, Type as Physical};
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, FileMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnDescriptor, SchemaDescPtr, SchemaDescriptor, Type};
use tarn_metastore::{Block, ColumnChunk, ColumnStats, File};
use tarn_types::{ColumnId, DataType, Value, arrow_type};

/// A column as its table has it.
#[derive(Debug, Clone)]
pub(crate) struct NamedColumn {
    /// What metadata is kept under.
    pub id: ColumnId,
    /// What the reader is to call it.
    pub name: Arc<str>,
    /// As the table has it; a file may have a narrower one.
    pub data_type: DataType,
}

impl NamedColumn {
    /// Whether pages say between which values they lie. Parquet's bounds of floats leave NaN out, which filters do not;
    /// those of arrays are of their items, those of
    /// intervals and addresses of texts.
    pub(crate) fn has_bounds(&self) -> bool {
        !matches!(
            self.data_type,
            DataType::Float32 | DataType::Float64 | DataType::Interval | DataType::Inet | DataType::Array(_)
        )
    }
}

/// The columns that a file has of those that are asked for. Files of one shape share it.
#[derive(Debug)]
pub(crate) struct ProjectedLeaves {
    schema: SchemaDescPtr,
    columns: Vec<ProjectedLeaf>,
}

#[derive(Debug)]
struct ProjectedLeaf {
    named: NamedColumn,
    /// Whether its values are the table's, bit for bit.
    same_type: bool,
}

impl ProjectedLeaves {
    /// From each column's shape, as [`ColumnChunk::shape`] has it.
    pub(crate) fn new<'a>(columns: impl IntoIterator<Item = (&'a NamedColumn, &'a str)>) -> Result<Self, ParquetError> {
        let mut fields = vec![];
        let mut leaves = vec![];
        for (named, shape) in columns {
            let field = Arc::new(leaf(&named.name, shape)?);
            let alone = Type::group_type_builder("tarn").with_fields(vec![Arc::clone(&field)]).build()?;
            let arrow = parquet_to_arrow_schema(&SchemaDescriptor::new(Arc::new(alone)), None)?;
            let same_type = *arrow.field(0).data_type() == arrow_type(&named.data_type);
            leaves.push(ProjectedLeaf { named: named.clone(), same_type });
            fields.push(field);
        }
        let root = Type::group_type_builder("tarn").with_fields(fields).build()?;
        Ok(ProjectedLeaves { schema: Arc::new(SchemaDescriptor::new(Arc::new(root))), columns: leaves })
    }

    /// Metadata of `file`. `chunks`: for each row group that is read, ascending, where the leaves lie, in their order.
    pub(crate) fn metadata(
        &self,
        file: &File,
        chunks: &[(u32, Vec<&ColumnChunk>)],
    ) -> Result<ParquetMetaData, ParquetError> {
        let mut read = chunks.iter().peekable();
        let mut groups = Vec::with_capacity(file.blocks.len());
        for block in &file.blocks {
            let here = read.next_if(|(row_group, _)| *row_group == block.row_group);
            let columns = self.columns.iter().enumerate().map(|(idx, leaf)| match here {
                Some((_, chunks)) => self.column(idx, leaf, chunks[idx], block),
                None => ColumnChunkMetaData::builder(self.schema.column(idx)).build(),
            });
            let group = RowGroupMetaData::builder(Arc::clone(&self.schema))
                .set_num_rows(block.n_rows as i64)
                .set_total_byte_size(block.bytes as i64)
                .set_column_metadata(columns.collect::<Result<_, _>>()?);
            groups.push(group.build()?);
        }
        let about = FileMetaData::new(2, file.n_rows as i64, None, None, Arc::clone(&self.schema), None);
        Ok(ParquetMetaData::new(about, groups))
    }

    fn column(
        &self,
        idx: usize,
        leaf: &ProjectedLeaf,
        chunk: &ColumnChunk,
        block: &Block,
    ) -> Result<ColumnChunkMetaData, ParquetError> {
        let descriptor = self.schema.column(idx);
        // Of a list, Parquet would speak of its items.
        let says = leaf.same_type && !matches!(leaf.named.data_type, DataType::Array(_));
        let stats = block.column(leaf.named.id).filter(|_| says);
        let stats = stats.and_then(|stats| statistics(stats, &descriptor));
        let mut column = ColumnChunkMetaData::builder(descriptor)
            .set_compression(codec(chunk.codec)?)
            .set_encodings_mask(EncodingMask::try_new(chunk.encodings as i32)?)
            .set_num_values(signed(chunk.n_values)?)
            .set_total_compressed_size(signed(chunk.compressed_bytes)?)
            .set_total_uncompressed_size(signed(chunk.uncompressed_bytes)?)
            .set_data_page_offset(signed(chunk.data_page_offset)?);
        if chunk.dictionary_page_offset > 0 {
            column = column.set_dictionary_page_offset(Some(signed(chunk.dictionary_page_offset)?));
        }
        if let Some(stats) = stats {
            column = column.set_statistics(stats);
        }
        column.build()
    }
}

/// The column of a shape, under another name: names may hold what the schema language cannot say.
fn leaf(name: &str, shape: &str) -> Result<Type, ParquetError> {
    // A group ends with its brace.
    let end = if shape.ends_with('}') { "" } else { ";" };
    let message = parse_message_type(&format!("message m {{ {shape}{end} }}"))?;
    match message.get_fields() {
        [field] => called(field, name),
        _ => Err(ParquetError::General(format!("column {name} of shape {shape} is not one column"))),
    }
}

/// A leaf, or a list of such, under another name.
pub(crate) fn called(leaf: &Type, name: &str) -> Result<Type, ParquetError> {
    match leaf {
        Type::PrimitiveType { basic_info, physical_type, type_length, scale, precision } => {
            Type::primitive_type_builder(name, *physical_type)
                .with_repetition(basic_info.repetition())
                .with_converted_type(basic_info.converted_type())
                .with_logical_type(basic_info.logical_type_ref().cloned())
                .with_length(*type_length)
                .with_scale(*scale)
                .with_precision(*precision)
                .build()
        }
        Type::GroupType { basic_info, fields } if basic_info.logical_type_ref() == Some(&LogicalType::List) => {
            Type::group_type_builder(name)
                .with_repetition(basic_info.repetition())
                .with_logical_type(Some(LogicalType::List))
                .with_fields(fields.clone())
                .build()
        }
        Type::GroupType { .. } => Err(ParquetError::General(format!("column {name} is no leaf"))),
    }
}

/// As Parquet counts.
fn signed(n: u64) -> Result<i64, ParquetError> {
    i64::try_from(n).map_err(|_| ParquetError::General(format!("{n} is no place in a file")))
}

fn codec(code: u8) -> Result<Compression, ParquetError> {
    Ok(match code {
        0 => Compression::UNCOMPRESSED,
        1 => Compression::SNAPPY,
        2 => Compression::GZIP(Default::default()),
        3 => Compression::LZO,
        4 => Compression::BROTLI(Default::default()),
        5 => Compression::LZ4,
        6 => Compression::ZSTD(Default::default()),
        7 => Compression::LZ4_RAW,
        _ => return Err(ParquetError::General(format!("codec {code} is not known"))),
    })
}

/// Bounds as Parquet says them, for thresholds that rise while a file is read. `None`: of floats, whose bounds in
/// Parquet are silent about NaN, and where a bound is missing.
fn statistics(stats: &ColumnStats, descriptor: &ColumnDescriptor) -> Option<Statistics> {
    fn of<T>(stats: &ColumnStats, value: impl Fn(&Value) -> Option<T>) -> Option<ValueStatistics<T>> {
        let bound = |bound: &Option<Value>| bound.as_ref().map_or(Some(None), |bound| value(bound).map(Some));
        let (min, max) = (bound(&stats.min)?, bound(&stats.max)?);
        let known = ValueStatistics::new(min, max, None, Some(stats.null_count), false);
        Some(known.with_min_is_exact(stats.exact).with_max_is_exact(stats.exact))
    }
    let integer = |value: &Value| match value {
        Value::Int16(v) => Some(i64::from(*v)),
        Value::Int32(v) | Value::Date(v) => Some(i64::from(*v)),
        Value::Int64(v) | Value::Time(v) | Value::Timestamp(v) => Some(*v),
        Value::Decimal(v) => i64::try_from(*v).ok(),
        _ => None,
    };
    let length = descriptor.type_length();
    Some(match descriptor.physical_type() {
        Physical::BOOLEAN => Statistics::Boolean(of(stats, |value| match value {
            Value::Bool(v) => Some(*v),
            _ => None,
        })?),
        Physical::INT32 => Statistics::Int32(of(stats, |value| i32::try_from(integer(value)?).ok())?),
        Physical::INT64 => Statistics::Int64(of(stats, integer)?),
        Physical::BYTE_ARRAY => Statistics::ByteArray(of(stats, |value| match value {
            Value::Text(v) | Value::Uuid(v) | Value::Json(v) => Some(ByteArray::from(v.as_bytes().to_vec())),
            Value::Bytes(v) => Some(ByteArray::from(v.clone())),
            _ => None,
        })?),
        Physical::FIXED_LEN_BYTE_ARRAY => Statistics::FixedLenByteArray(of(stats, |value| match value {
            Value::Decimal(v) => {
                let bytes = v.to_be_bytes();
                let skipped = bytes.len().checked_sub(usize::try_from(length).ok()?)?;
                Some(FixedLenByteArray::from(bytes[skipped..].to_vec()))
            }
            _ => None,
        })?),
        Physical::INT96 | Physical::FLOAT | Physical::DOUBLE => return None,
    })
}

#[cfg(test)]
#[path = "../tests/it/column_chunk.rs"]
mod column_chunk;

#[cfg(test)]
mod tests {
    use arrow::array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array,
        Int32Array, Int64Array, RecordBatch, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
        TimestampMillisecondArray,
    };
    use bytes::Bytes;
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ArrowReaderOptions;
    use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
    use parquet::arrow::async_reader::AsyncFileReader;
    use parquet::basic::ZstdLevel;
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
    use parquet::file::properties::{EnabledStatistics, WriterProperties};
    use proptest::prelude::*;
    use tarn_types::{FileId, Version, data_type_of};

    use super::column_chunk::column_chunk;
    use super::*;
    use crate::page_index::PageIndexRanges;

    /// A column of each kind there is, one with a name that no schema language can say, one with another unit than the
    /// table's.
    fn rows(n: i64, seed: i64) -> RecordBatch {
        let some = |at: i64| ((at * 7 + seed) % 5 != 0).then_some(at * 31 % 17 + seed);
        let all = || (0..n).map(some);
        let small = Decimal128Array::from_iter(all().map(|v| v.map(i128::from))).with_precision_and_scale(7, 2);
        let middle = Decimal128Array::from_iter(all().map(|v| v.map(i128::from))).with_precision_and_scale(15, 2);
        let large =
            Decimal128Array::from_iter(all().map(|v| v.map(|v| -i128::from(v)))).with_precision_and_scale(30, 2);
        let text = || StringArray::from_iter(all().map(|v| v.map(|v| format!("text {v}"))));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("bool", Arc::new(BooleanArray::from_iter(all().map(|v| v.map(|v| v % 2 == 0))))),
            ("int2", Arc::new(Int16Array::from_iter(all().map(|v| v.map(|v| v as i16))))),
            ("int4", Arc::new(Int32Array::from_iter(all().map(|v| v.map(|v| v as i32))))),
            ("int8", Arc::new(Int64Array::from_iter(all()))),
            ("real", Arc::new(Float32Array::from_iter(all().map(|v| v.map(|v| v as f32))))),
            ("double", Arc::new(Float64Array::from_iter(all().map(|v| v.map(|v| v as f64))))),
            ("small", Arc::new(small.unwrap())),
            ("middle", Arc::new(middle.unwrap())),
            ("large", Arc::new(large.unwrap())),
            ("a name; with (all), {sorts} of \"signs\"", Arc::new(text())),
            ("bytes", Arc::new(BinaryArray::from_iter(all().map(|v| v.map(|v| v.to_be_bytes()))))),
            ("date", Arc::new(Date32Array::from_iter(all().map(|v| v.map(|v| v as i32))))),
            ("time", Arc::new(Time64MicrosecondArray::from_iter(all()))),
            ("at", Arc::new(TimestampMicrosecondArray::from_iter(all()))),
            ("at_tz", Arc::new(TimestampMicrosecondArray::from_iter(all()).with_timezone("UTC"))),
            ("millis", Arc::new(TimestampMillisecondArray::from_iter(all()))),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
    }

    /// A file in memory.
    struct FileBytes(Bytes);

    impl AsyncFileReader for FileBytes {
        fn get_bytes(&mut self, range: std::ops::Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
            let bytes = self.0.slice(range.start as usize..range.end as usize);
            async move { Ok(bytes) }.boxed()
        }

        fn get_metadata<'a>(
            &'a mut self,
            _: Option<&'a ArrowReaderOptions>,
        ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
            unreachable!("only ranges are read")
        }
    }

    fn written(rows: &RecordBatch, block_rows: usize, zstd: bool) -> (Bytes, ParquetMetaData, File) {
        let codec = if zstd { Compression::ZSTD(ZstdLevel::default()) } else { Compression::LZ4_RAW };
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(block_rows))
            .set_compression(codec)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_data_page_row_count_limit(3)
            .set_write_batch_size(3)
            .build();
        let mut writer = ArrowWriter::try_new(vec![], rows.schema(), Some(properties)).unwrap();
        writer.write(rows).unwrap();
        let bytes = Bytes::from(writer.into_inner().unwrap());
        let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
        let footer = reader.parse_and_finish(&bytes).unwrap();
        let (schema, mut blocks) = (rows.schema(), vec![]);
        for (row_group, group) in (0..).zip(footer.row_groups()) {
            let first_row = row_group as u64 * block_rows as u64;
            let columns = schema.fields().iter().zip(1..).filter_map(|(field, id)| {
                let leaves = footer.file_metadata().schema_descr();
                let bounds = StatisticsConverter::try_new(field.name(), &schema, leaves);
                let bounds = bounds.unwrap();
                let data_type = data_type_of(field).ok()?;
                let value = |array: ArrayRef| {
                    Some(Value::from_arrow(array.as_ref(), 0, &data_type).ok()?).filter(|v| !v.is_null())
                };
                Some(ColumnStats {
                    column: ColumnId(id),
                    min: value(bounds.row_group_mins([group]).unwrap()),
                    max: value(bounds.row_group_maxes([group]).unwrap()),
                    exact: true,
                    null_count: bounds.row_group_null_counts([group]).unwrap().value(0),
                    bytes: 0,
                })
            });
            let columns = columns.collect();
            let bytes = group.total_byte_size() as u64;
            blocks.push(Block { row_group, first_row, n_rows: group.num_rows() as u64, bytes, columns });
        }
        let file = File {
            id: FileId(1),
            path: "f".to_owned(),
            size_bytes: bytes.len() as u64,
            n_rows: rows.num_rows() as u64,
            hour: 0,
            etag: None,
            blocks,
            created_version: Version(1),
            sorted_by_key: false,
            note: None,
            checksums: None,
        };
        (bytes, footer, file)
    }

    /// Reads `columns` of the row groups `which` through projected metadata, and holds it against the footer.
    fn check(rows: &RecordBatch, block_rows: usize, zstd: bool, columns: &[usize], which: impl Fn(usize) -> bool) {
        let (bytes, footer, file) = written(rows, block_rows, zstd);
        let named: Vec<NamedColumn> = columns
            .iter()
            .map(|idx| NamedColumn {
                id: ColumnId(*idx as u32 + 1),
                name: rows.schema().field(*idx).name().as_str().into(),
                data_type: data_type_of(rows.schema().field(*idx)).unwrap_or(DataType::Timestamp),
            })
            .collect();
        let read: Vec<usize> = (0..footer.num_row_groups()).filter(|at| which(*at)).collect();
        let kept: Vec<Vec<ColumnChunk>> = read
            .iter()
            .map(|at| columns.iter().map(|idx| column_chunk(footer.row_group(*at).column(*idx))).collect())
            .collect();
        let chunks: Vec<(u32, Vec<&ColumnChunk>)> =
            read.iter().zip(&kept).map(|(at, chunks)| (*at as u32, chunks.iter().collect())).collect();
        let Some((_, first)) = chunks.first() else { return };
        let leaves = ProjectedLeaves::new(named.iter().zip(first.iter().map(|chunk| chunk.shape.as_ref()))).unwrap();
        let bare = leaves.metadata(&file, &chunks).unwrap();
        assert!(bare.offset_index().is_none());

        let bounds = vec![true; columns.len()];
        let places = PageIndexRanges::of(&chunks, &bounds).unwrap();
        let metadata = places.load(bare, &chunks, &bounds, &mut FileBytes(bytes)).now_or_never().unwrap().unwrap();
        assert_eq!(metadata.num_row_groups(), footer.num_row_groups());
        assert_eq!(metadata.file_metadata().num_rows(), footer.file_metadata().num_rows());
        for (at, group) in metadata.row_groups().iter().enumerate() {
            assert_eq!(group.num_rows(), footer.row_group(at).num_rows());
            for (to, idx) in columns.iter().enumerate() {
                let (ours, theirs) = (group.column(to), footer.row_group(at).column(*idx));
                assert_eq!(ours.column_descr().self_type(), theirs.column_descr().self_type());
                if !read.contains(&at) {
                    assert_eq!(ours.compressed_size(), 0);
                    continue;
                }
                assert_eq!(ours.byte_range(), theirs.byte_range());
                assert_eq!(ours.data_page_offset(), theirs.data_page_offset());
                assert_eq!(ours.dictionary_page_offset(), theirs.dictionary_page_offset());
                assert_eq!(ours.uncompressed_size(), theirs.uncompressed_size());
                assert_eq!(ours.num_values(), theirs.num_values());
                assert_eq!(ours.compression_codec(), theirs.compression_codec());
                assert_eq!(ours.encodings_mask(), theirs.encodings_mask());
                if let (Some(ours), Some(theirs)) = (ours.statistics(), theirs.statistics()) {
                    assert_eq!(ours.min_bytes_opt(), theirs.min_bytes_opt(), "{}", named[to].name);
                    assert_eq!(ours.max_bytes_opt(), theirs.max_bytes_opt(), "{}", named[to].name);
                    assert_eq!(ours.null_count_opt(), theirs.null_count_opt());
                }
                let silent = matches!(named[to].name.as_ref(), "real" | "double" | "millis");
                assert_eq!(ours.statistics().is_none(), silent, "{}", named[to].name);
                let index = |of: &ParquetMetaData, column: usize| {
                    (of.offset_index().unwrap()[at][column].clone(), of.column_index().unwrap()[at][column].clone())
                };
                assert_eq!(index(&metadata, to), index(&footer, *idx));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_says_what_the_footer_says(
            n in 1..40i64,
            seed in 0..1000i64,
            block_rows in 1..20usize,
            zstd in any::<bool>(),
            columns in proptest::sample::subsequence((0..16usize).collect::<Vec<_>>(), 1..16),
            step in 1..3usize,
        ) {
            check(&rows(n, seed), block_rows, zstd, &columns, |at| at % step == 0);
        }
    }

    #[test]
    fn every_column_is_as_in_the_footer() {
        check(&rows(30, 3), 7, true, &(0..16).collect::<Vec<_>>(), |_| true);
    }

    #[test]
    fn what_is_no_leaf_is_refused() {
        let named = NamedColumn { id: ColumnId(1), name: "a".into(), data_type: DataType::Int64 };
        for bad in [
            "optional int64",
            "",
            "int64 c",
            "optional group c { required int32 a; }",
            "optional int64 c; optional int32 d",
        ] {
            assert!(ProjectedLeaves::new([(&named, bad)]).is_err(), "{bad}");
        }
        assert!(codec(8).is_err());
    }
}
