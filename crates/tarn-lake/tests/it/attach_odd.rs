//! Files as other programs write them, and as nobody should: each is attached as it is, or refused with a reason.

use std::sync::Arc;

use arrow::array::types::{Float16Type, Int32Type};
use arrow::array::*;
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType as ArrowType, Field, Schema, i256};
use bytes::Bytes;
use parquet::data_type::{
    ByteArray, ByteArrayType, Int32Type as ParquetInt32, Int64Type as ParquetInt64, Int96, Int96Type,
};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;

use tarn_types::{Archive, DataType, TableId, Value};

use crate::archive::{ArchiveHarness, parquet};

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

fn array<T: Array + 'static>(array: T) -> ArrayRef {
    Arc::new(array)
}

fn types(schema: &tarn_types::TableSchema) -> Vec<String> {
    schema.columns.iter().map(|column| format!("{} {}", column.name, column.data_type)).collect()
}

async fn attached(files: &[(&str, Bytes)], options: &[(&str, &str)]) -> ArchiveHarness {
    let mut world = ArchiveHarness::new();
    for (path, bytes) in files {
        world.put(path, bytes.clone()).await;
    }
    world.create(Archive::default(), options).await;
    world.pass().await;
    world.check().await;
    world
}

fn every_type() -> RecordBatch {
    let strings = || StringArray::from(vec![Some("b"), None, Some("Ä long one, ".repeat(20).as_str())]);
    batch(vec![
        ("bool", array(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("i8", array(Int8Array::from(vec![Some(-7), None, Some(3)]))),
        ("i16", array(Int16Array::from(vec![Some(-7), None, Some(3)]))),
        ("i32", array(Int32Array::from(vec![Some(-7), None, Some(3)]))),
        ("i64", array(Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MAX)]))),
        ("u8", array(UInt8Array::from(vec![Some(0), None, Some(255)]))),
        ("u16", array(UInt16Array::from(vec![Some(0), None, Some(65_535)]))),
        ("u32", array(UInt32Array::from(vec![Some(0), None, Some(u32::MAX)]))),
        ("u64", array(UInt64Array::from(vec![Some(1), None, Some(u64::MAX)]))),
        ("f16", array(PrimitiveArray::<Float16Type>::from_iter([Some(half(1.5)), None, Some(half(-2.0))]))),
        ("f32", array(Float32Array::from(vec![Some(1.5), None, Some(f32::NAN)]))),
        ("f64", array(Float64Array::from(vec![Some(-0.0), None, Some(0.0)]))),
        ("d9", array(decimals(9, 2))),
        ("d18", array(decimals(18, 2))),
        ("d38", array(decimals(38, 10))),
        (
            "d76",
            array(Decimal256Array::from(vec![Some(i256::ONE), None, None]).with_precision_and_scale(76, 2).unwrap()),
        ),
        ("text", array(strings())),
        ("large", array(LargeStringArray::from(vec![Some("x"), None, Some("y")]))),
        ("dictionary", array(DictionaryArray::<Int32Type>::from_iter([Some("x"), None, Some("y")]))),
        ("bytes", array(BinaryArray::from_opt_vec(vec![Some(b"\xff"), None, Some(&[7; 100])]))),
        (
            "fixed",
            array(
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(
                    [Some([1; 16]), None, Some([2; 16])].into_iter(),
                    16,
                )
                .unwrap(),
            ),
        ),
        ("date", array(Date32Array::from(vec![Some(-1), None, Some(20_000)]))),
        ("time_ms", array(Time32MillisecondArray::from(vec![Some(1), None, Some(86_399_999)]))),
        ("time_ns", array(Time64NanosecondArray::from(vec![Some(1), None, Some(86_399_999_999_999)]))),
        ("ts_ms", array(TimestampMillisecondArray::from(vec![Some(-1), None, Some(1)]))),
        ("ts_us", array(TimestampMicrosecondArray::from(vec![Some(-1), None, Some(1)]).with_timezone("+02:00"))),
        (
            "ts_ns",
            array(TimestampNanosecondArray::from(vec![Some(-1), None, Some(1_234_567_891)]).with_timezone("UTC")),
        ),
        ("nothing", array(NullArray::new(3))),
        ("list", list()),
        (
            "struct",
            array(StructArray::from(vec![(Arc::new(Field::new("x", ArrowType::Utf8, true)), array(strings()))])),
        ),
        ("__seqno", array(Int64Array::from(vec![1, 2, 3]))),
    ])
}

fn half(value: f32) -> <Float16Type as ArrowPrimitiveType>::Native {
    <<Float16Type as ArrowPrimitiveType>::Native>::from_f32(value)
}

fn decimals(precision: u8, scale: i8) -> Decimal128Array {
    let values = vec![Some(-123_456), None, Some(10i128.pow(u32::from(precision) - 1))];
    Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap()
}

fn list() -> ArrayRef {
    let field = Arc::new(Field::new("item", ArrowType::Int32, true));
    let values = array(Int32Array::from(vec![1, 2, 3]));
    array(ListArray::new(field, OffsetBuffer::from_lengths([1, 1, 1]), values, None))
}

#[tokio::test]
async fn every_type_there_is() {
    let _scenario = fail::FailScenario::setup();
    let world = attached(
        &[("a.parquet", parquet(&every_type(), 2))],
        &[("tokens", "all"), ("bloom", "i8, u64, d18, text, ts_ns")],
    )
    .await;
    assert_eq!(
        types(&*world.schema().await),
        [
            "bool BOOLEAN",
            "i8 SMALLINT",
            "i16 SMALLINT",
            "i32 INTEGER",
            "i64 BIGINT",
            "u8 SMALLINT",
            "u16 INTEGER",
            "u32 BIGINT",
            "u64 NUMERIC(20, 0)",
            "f16 REAL",
            "f32 REAL",
            "f64 DOUBLE PRECISION",
            "d9 NUMERIC(9, 2)",
            "d18 NUMERIC(18, 2)",
            "d38 NUMERIC(38, 10)",
            "text TEXT",
            "large TEXT",
            "dictionary TEXT",
            "bytes BYTEA",
            "fixed BYTEA",
            "date DATE",
            "time_ms TIME",
            "time_ns TIME",
            "ts_ms TIMESTAMP",
            "ts_us TIMESTAMP WITH TIME ZONE",
            "ts_ns TIMESTAMP WITH TIME ZONE",
        ]
    );
    assert_eq!(
        world.note("a.parquet").await,
        "left out: d76 (Decimal256(76, 2)), list (nested), struct (nested), __seqno (the name is ours); \
         nanoseconds are cut to microseconds: time_ns, ts_ns"
    );
    let bounds = async |name: &str| {
        let stats = world.stats("a.parquet", name).await;
        (stats.min, stats.max)
    };
    assert_eq!(bounds("u32").await.0, Some(Value::Int64(0)));
    assert_eq!(bounds("d38").await.0, Some(Value::Decimal(-123_456)));
    assert_eq!(bounds("ts_ns").await, (Some(Value::Timestamp(-1)), Some(Value::Timestamp(0))));
    for float in ["f16", "f32", "f64"] {
        assert_eq!(bounds(float).await, (None, None), "nobody knows of {float} whether it has NaN");
    }
    assert_eq!(world.stats("a.parquet", "f32").await.null_count, 1);
    let file = world.file("a.parquet").await;
    assert_eq!(file.hour, -1, "of the first timestamp, which is before 1970");
    assert_eq!((file.n_rows, file.blocks.len()), (3, 2));
}

#[tokio::test]
async fn columns_come_and_widen_as_files_do() {
    let _scenario = fail::FailScenario::setup();
    let ints = |name: &str| {
        batch(vec![(name, array(Int16Array::from(vec![1, 2]))), ("b", array(StringArray::from(vec!["x", "y"])))])
    };
    let world = attached(&[("a.parquet", parquet(&ints("a"), 10))], &[("tokens", "all"), ("bloom", "a")]).await;
    world
        .put(
            "b.parquet",
            parquet(
                &batch(vec![
                    ("a", array(Int64Array::from(vec![1 << 40]))),
                    ("c", array(StringArray::from(vec!["new words"]))),
                ]),
                10,
            ),
        )
        .await;
    world.put("c.parquet", parquet(&batch(vec![("b", array(BooleanArray::from(vec![true])))]), 10)).await;
    world.put("d.parquet", parquet(&batch(vec![("a", array(Float32Array::from(vec![1.0])))]), 10)).await;
    world
        .put(
            "e.parquet",
            parquet(&batch(vec![("a", array(Int32Array::from(vec![5]))), ("d", array(NullArray::new(1)))]), 10),
        )
        .await;
    let progress = world.pass().await;
    assert_eq!((progress.attached, progress.skipped), (2, 2));
    assert_eq!(types(&*world.schema().await), ["a BIGINT", "b TEXT", "c TEXT"]);
    assert_eq!(world.note("c.parquet").await, "column b is BOOLEAN here and TEXT in the table, and no type is both");
    assert!(world.note("d.parquet").await.starts_with("column a is REAL here"));
    world.check().await;
    assert_eq!(world.stats("e.parquet", "a").await.max, Some(Value::Int64(5)), "bounds are of the table's type");
}

#[tokio::test]
async fn what_is_no_parquet_is_listed_with_its_reason() {
    let _scenario = fail::FailScenario::setup();
    let good = parquet(&batch(vec![("a", array(Int32Array::from(vec![1, 2])))]), 10);
    let mut encrypted = good.to_vec();
    let len = encrypted.len();
    encrypted[len - 4..].copy_from_slice(b"PARE");
    let mut long_footer = good.to_vec();
    long_footer[len - 8..len - 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut garbled = good.to_vec();
    let footer = u32::from_le_bytes(garbled[len - 8..len - 4].try_into().unwrap()) as usize;
    garbled[len - 8 - footer..len - 8].fill(0xff);
    let none = parquet(&batch(vec![("a", array(Int32Array::from(Vec::<i32>::new())))]), 10);
    let cases = [
        ("empty.parquet", Bytes::new(), "it is empty"),
        ("short.parquet", good.slice(..5), "5 bytes are no Parquet file"),
        (
            "cut.parquet",
            good.slice(..len - 3),
            "it does not end as a Parquet file does: it is cut short, or something else",
        ),
        (
            "text.parquet",
            Bytes::from("a,b,c\n1,2,3\n4,5,6\n"),
            "it does not end as a Parquet file does: it is cut short, or something else",
        ),
        ("encrypted.parquet", encrypted.into(), "it is encrypted"),
        ("long.parquet", long_footer.into(), "its footer would have 4294967295 bytes"),
        ("garbled.parquet", garbled.into(), ""),
        ("none.parquet", none, "it has no rows"),
    ];
    let mut files: Vec<_> = cases.iter().map(|(path, bytes, _)| (*path, bytes.clone())).collect();
    files.push(("z_good.parquet", good.clone()));
    let world = attached(&files, &[]).await;
    for (path, _, reason) in &cases {
        let note = world.note(path).await;
        assert!(!note.is_empty() && note.starts_with(reason), "{path}: {note}");
        assert!(world.file(path).await.blocks.is_empty());
    }
    assert_eq!(world.latest().await.live_rows(), 2);
    let again = world.pass().await;
    assert_eq!((again.known, again.bytes_read), (9, 0), "what is broken is not read again until it changes");
    world.put("cut.parquet", good).await;
    assert_eq!(world.pass().await.attached, 1);
    world.check().await;
}

#[tokio::test]
async fn a_footer_that_lies_panics_nobody() {
    let _scenario = fail::FailScenario::setup();
    let good = parquet(&every_type(), 2).to_vec();
    let len = good.len();
    let footer = u32::from_le_bytes(good[len - 8..len - 4].try_into().unwrap()) as usize;
    let mut world = ArchiveHarness::new();
    world.put("a.parquet", good.clone()).await;
    world.create(Archive::default(), &[("tokens", "all"), ("bloom_chunks", "64")]).await;
    for nth in 0..200 {
        let mut bytes = good.clone();
        let at = len - 8 - footer + nth * footer / 200;
        bytes[at] ^= 1 << (nth % 8);
        world.put(&format!("b/{nth}.parquet"), bytes).await;
    }
    let progress = world.pass().await;
    assert_eq!(progress.attached + progress.skipped, 201);
}

#[tokio::test]
async fn twenty_thousand_columns() {
    let _scenario = fail::FailScenario::setup();
    let fields: Vec<_> = (0..20_000).map(|n| Field::new(format!("c{n}"), ArrowType::Int32, true)).collect();
    let columns = (0..20_000).map(|n| array(Int32Array::from(vec![n, n + 1]))).collect();
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .build();
    let mut bytes = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    let mut world = ArchiveHarness::new();
    world.put("wide.parquet", bytes).await;
    world.create(Archive::default(), &[]).await;
    let progress = world.pass().await;
    assert_eq!(progress.attached, 1);
    assert_eq!(world.schema().await.columns.len(), 20_000);
    let file = world.file("wide.parquet").await;
    assert!(file.blocks[0].columns.is_empty(), "none of them is in memory");
    let block_metadata = world.block_metadata(&file).await;
    let last = block_metadata[&0].0.last().unwrap();
    assert_eq!((block_metadata[&0].0.len(), &last.max), (20_000, &Some(Value::Int32(20_000))));
}

/// A file by hand: these columns of two rows.
fn by_hand(message: &str, write: impl Fn(&mut SerializedFileWriter<Vec<u8>>)) -> Bytes {
    let schema = Arc::new(parse_message_type(message).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Default::default()).unwrap();
    write(&mut writer);
    writer.into_inner().unwrap().into()
}

#[tokio::test]
async fn times_of_96_bits_have_no_bounds() {
    let _scenario = fail::FailScenario::setup();
    let message = "message spark_schema { optional int96 ts; required int64 id; repeated int32 many; }";
    let bytes = by_hand(message, |writer| {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let mut time = Int96::new();
        time.set_data(0, 0, 2_460_000);
        column.typed::<Int96Type>().write_batch(&[time], Some(&[1, 0]), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ParquetInt64>().write_batch(&[5, -5], None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ParquetInt32>().write_batch(&[1], Some(&[1, 0]), Some(&[0, 0])).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    });
    let world = attached(&[("a.parquet", bytes)], &[]).await;
    assert_eq!(types(&*world.schema().await), ["ts TIMESTAMP", "id BIGINT"]);
    let stats = world.stats("a.parquet", "ts").await;
    assert_eq!((stats.min, stats.max, stats.null_count), (None, None, 1));
    assert_eq!(world.stats("a.parquet", "id").await.min, Some(Value::Int64(-5)));
    let note = world.note("a.parquet").await;
    assert_eq!(note, "left out: many (nested); nanoseconds are cut to microseconds: ts");
}

#[tokio::test]
async fn names_that_come_twice_and_names_with_dots() {
    let _scenario = fail::FailScenario::setup();
    let message = "message m { required int32 a; required int32 a; required binary a.b (STRING); }";
    let bytes = by_hand(message, |writer| {
        let mut group = writer.next_row_group().unwrap();
        for _ in 0..2 {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ParquetInt32>().write_batch(&[1], None, None).unwrap();
            column.close().unwrap();
        }
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&[ByteArray::from("x")], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    });
    let world = attached(&[("a.parquet", bytes)], &[("tokens", "all")]).await;
    assert_eq!(types(&*world.schema().await), ["a.b TEXT"]);
    assert_eq!(world.note("a.parquet").await, "left out: a (the name comes twice)");
}

#[tokio::test]
async fn a_file_without_statistics_is_searched_and_never_pruned() {
    let _scenario = fail::FailScenario::setup();
    let rows = batch(vec![("a", array(Int32Array::from(vec![Some(1), None])))]);
    let properties = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None).build();
    let mut bytes = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    let world = attached(&[("a.parquet", bytes.into())], &[]).await;
    let stats = world.stats("a.parquet", "a").await;
    assert_eq!((stats.min, stats.max, stats.exact, stats.null_count), (None, None, false, 1));
    assert_eq!(world.schema().await.columns[0].data_type, DataType::Int32);
}

/// One column of one of these types, with NULLs.
fn column(kind: u8, values: &[Option<i8>]) -> ArrayRef {
    let of = || values.iter().copied();
    match kind {
        0 => array(Int8Array::from_iter(of())),
        1 => array(UInt16Array::from_iter(of().map(|v| v.map(|v| v.unsigned_abs().into())))),
        2 => array(Int32Array::from_iter(of().map(|v| v.map(i32::from)))),
        3 => array(Int64Array::from_iter(of().map(|v| v.map(i64::from)))),
        4 => array(UInt64Array::from_iter(of().map(|v| v.map(|v| u64::MAX - u64::from(v.unsigned_abs()))))),
        5 => array(Float32Array::from_iter(of().map(|v| v.map(|v| f32::from(v) / 4.0)))),
        6 => array(Float64Array::from_iter(of().map(|v| v.map(|v| if v == 7 { f64::NAN } else { v.into() })))),
        7 => array(Decimal128Array::from_iter(of().map(|v| v.map(i128::from))).with_precision_and_scale(9, 2).unwrap()),
        8 => {
            array(Decimal128Array::from_iter(of().map(|v| v.map(i128::from))).with_precision_and_scale(12, 4).unwrap())
        }
        9 => array(StringArray::from_iter(of().map(|v| v.map(|v| format!("word {v}"))))),
        10 => array(TimestampNanosecondArray::from_iter(of().map(|v| v.map(|v| i64::from(v) * 7)))),
        11 => array(TimestampMillisecondArray::from_iter(of().map(|v| v.map(i64::from)))),
        12 => array(Date32Array::from_iter(of().map(|v| v.map(i32::from)))),
        _ => array(NullArray::new(values.len())),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_types_come_in_whatever_order_bounds_and_keys_hold(
        files in proptest::collection::vec(
            (proptest::collection::vec((0..14u8, 0..3usize), 1..4), proptest::collection::vec(any::<Option<i8>>(), 1..6)),
            1..6,
        ),
        surveyed in 1..6usize,
    ) {
        let _scenario = fail::FailScenario::setup();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut world = ArchiveHarness::new();
            for (n, (columns, values)) in files.iter().enumerate() {
                let mut named = std::collections::BTreeMap::new();
                columns.iter().for_each(|(kind, name)| {
                    named.insert(["a", "b", "c"][*name], column(*kind, values));
                });
                world.put(&format!("{n}.parquet"), parquet(&batch(named.into_iter().collect()), 2)).await;
                // The table is made of the first files, the others come later.
                if n + 1 == surveyed.min(files.len()) && world.survey(Archive::default()).await.is_ok() {
                    world.create(Archive::default(), &[("tokens", "all"), ("bloom_chunks", "64")]).await;
                    world.pass().await;
                    world.check().await;
                }
            }
            if world.table != TableId(0) {
                world.pass().await;
                world.check().await;
                let progress = world.pass().await;
                assert_eq!((progress.known, progress.bytes_read), (files.len() as u64, 0));
            }
        });
    }
}
