//! What does the metastore keep of a column of a row group? As the lake's writer says it, from the file's footer. Also
//! compiled into the unit tests of `projected.rs`, which hold what is made of it against that footer.

use parquet::basic::Compression;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::printer::print_schema;
use parquet::schema::types::Type;
use tarn_metastore::ColumnChunk;

pub fn column_chunk(column: &ColumnChunkMetaData) -> ColumnChunk {
    let place = |offset: Option<i64>, length: Option<i32>| (offset.unwrap_or(0) as u64, length.unwrap_or(0) as u32);
    ColumnChunk {
        shape: shape(column.column_descr().self_type()).into(),
        data_page_offset: column.data_page_offset() as u64,
        dictionary_page_offset: column.dictionary_page_offset().unwrap_or(0) as u64,
        compressed_bytes: column.compressed_size() as u64,
        uncompressed_bytes: column.uncompressed_size() as u64,
        n_values: column.num_values() as u64,
        codec: match column.compression() {
            Compression::UNCOMPRESSED => 0,
            Compression::SNAPPY => 1,
            Compression::ZSTD(_) => 6,
            Compression::LZ4_RAW => 7,
            other => panic!("{other:?}"),
        },
        encodings: column.encodings_mask().as_i32() as u32,
        offset_index: place(column.offset_index_offset(), column.offset_index_length()),
        column_index: place(column.column_index_offset(), column.column_index_length()),
    }
}

/// Under the placeholder name `c`.
fn shape(leaf: &Type) -> String {
    let Type::PrimitiveType { basic_info, physical_type, type_length, scale, precision } = leaf else {
        panic!("{leaf:?}")
    };
    let placeholder = Type::primitive_type_builder("c", *physical_type)
        .with_repetition(basic_info.repetition())
        .with_converted_type(basic_info.converted_type())
        .with_logical_type(basic_info.logical_type_ref().cloned())
        .with_length(*type_length)
        .with_scale(*scale)
        .with_precision(*precision)
        .build();
    let mut text = vec![];
    print_schema(&mut text, &placeholder.unwrap());
    String::from_utf8(text).unwrap().trim().trim_end_matches(';').to_owned()
}
