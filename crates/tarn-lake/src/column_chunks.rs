//! Where do the columns of a Parquet file lie, and of what shape are they? What a reader needs of the footer, column by
//! column.
//!
//! A shape is Parquet's type of one column under the name `c`, in Parquet's schema language: it depends on nothing else
//! in the file, so many columns share one, and a reader makes a schema of the shapes it wants. Arrow types are taken
//! from the shape alone, never from hints elsewhere in the footer: whoever reads with shapes sees the same types.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::Field;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::{LogicalType, Repetition};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::parser::parse_message_type;
use parquet::schema::printer::print_schema;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};

use tarn_metastore::ColumnChunk;

/// The name of every column in its shape.
const NAME: &str = "c";

/// The type of a column that is one leaf: flat, or a list of such.
#[derive(Debug)]
pub(crate) struct LeafType {
    /// As the metastore keeps it.
    pub text: Arc<str>,
    /// As a reader sees a column of this shape.
    pub field: Field,
}

/// The shapes met so far; a wide file has few.
#[derive(Default)]
pub(crate) struct Shapes {
    by_text: HashMap<String, Option<Arc<LeafType>>>,
}

impl Shapes {
    /// The shape of the column at the top of the file to which this leaf belongs, alone; `None` when Arrow has no type
    /// for it, or it has other leaves.
    pub fn of_column(&mut self, file: &SchemaDescriptor, leaf_idx: usize) -> Option<Arc<LeafType>> {
        let leaf = file.column(leaf_idx);
        match file.get_column_root(leaf_idx) {
            root if root.is_primitive() => self.of(&leaf),
            root => self.of_list(root, &leaf),
        }
    }

    fn of_list(&mut self, root: &Type, leaf: &ColumnDescriptor) -> Option<Arc<LeafType>> {
        let [lists] = root.get_fields() else { return None };
        let [item] = (if lists.is_group() { lists.get_fields() } else { &[] }) else { return None };
        let is_list = root.get_basic_info().logical_type_ref() == Some(&LogicalType::List);
        if !is_list || !item.is_primitive() {
            return None;
        }
        let item = Type::group_type_builder(lists.name())
            .with_repetition(Repetition::REPEATED)
            .with_fields(vec![Arc::new(named(leaf, item.name(), true)?)])
            .build();
        let whole = Type::group_type_builder(NAME)
            .with_repetition(root.get_basic_info().repetition())
            .with_logical_type(Some(LogicalType::List))
            .with_fields(vec![Arc::new(item.ok()?)])
            .build()
            .ok()?;
        let text = print(&whole);
        let known = self.by_text.entry(text).or_insert_with_key(|text| shape(&whole, text));
        known.clone()
    }

    /// The shape of a flat leaf; `None` when Arrow has no type for it.
    pub fn of(&mut self, leaf: &ColumnDescriptor) -> Option<Arc<LeafType>> {
        let whole = anonymous(leaf, true)?;
        let text = print(&whole);
        if let Some(known) = self.by_text.get(&text) {
            return known.clone();
        }
        let shape = shape(&whole, &text).or_else(|| {
            // An annotation that the language cannot say, or nobody knows yet: what is stored stays readable.
            let plain = anonymous(leaf, false)?;
            shape(&plain, &print(&plain))
        });
        self.by_text.insert(text, shape.clone());
        shape
    }
}

/// If a reader of the text sees what a reader of the type does.
fn shape(whole: &Type, text: &str) -> Option<Arc<LeafType>> {
    let field = field(whole)?;
    let message = parse_message_type(&format!("message m {{ {}}}", ended(text))).ok()?;
    let again = message.get_fields().first().and_then(|leaf| self::field(leaf))?;
    (again == field).then(|| Arc::new(LeafType { text: text.into(), field }))
}

/// As a field of something: a leaf ends with a semicolon, a group with its brace.
fn ended(text: &str) -> String {
    if text.ends_with('}') { format!("{text} ") } else { format!("{text}; ") }
}

fn field(leaf: &Type) -> Option<Field> {
    let message = Type::group_type_builder("m").with_fields(vec![Arc::new(leaf.clone())]).build().ok()?;
    let schema = parquet_to_arrow_schema(&SchemaDescriptor::new(Arc::new(message)), None).ok()?;
    schema.fields().first().map(|field| field.as_ref().clone())
}

/// The leaf's type under [`NAME`] and without an id, annotated or not.
fn anonymous(leaf: &ColumnDescriptor, annotated: bool) -> Option<Type> {
    named(leaf, NAME, annotated)
}

fn named(leaf: &ColumnDescriptor, name: &str, annotated: bool) -> Option<Type> {
    let of = leaf.self_type();
    let repetition = of.get_basic_info().repetition();
    let mut to = Type::primitive_type_builder(name, leaf.physical_type())
        .with_repetition(repetition)
        .with_length(leaf.type_length());
    if annotated {
        to = to
            .with_logical_type(leaf.logical_type_ref().cloned())
            .with_converted_type(leaf.converted_type())
            .with_precision(leaf.type_precision())
            .with_scale(leaf.type_scale());
    }
    to.build().ok()
}

/// `optional int64 c (TIMESTAMP(MICROS,true))`, `optional group c (LIST) { repeated group list { optional int32 item; }
/// }`
fn print(column: &Type) -> String {
    let name = column.name();
    if column.is_group() {
        let list = if column.get_basic_info().logical_type_ref().is_some() { " (LIST)" } else { "" };
        let repetition = column.get_basic_info().repetition().to_string().to_lowercase();
        let fields: String = column.get_fields().iter().map(|field| ended(&print(field))).collect();
        return format!("{repetition} group {name}{list} {{ {fields}}}");
    }
    let mut printed = Vec::new();
    print_schema(&mut printed, column);
    let printed = String::from_utf8_lossy(&printed);
    let printed = printed.trim().trim_end_matches(';');
    match printed.split_once(&format!(" {name}")) {
        Some((kind, annotation)) => format!("{} {name}{annotation}", kind.to_lowercase()),
        None => printed.to_owned(),
    }
}

/// `None` when a number in the footer makes no sense.
pub(crate) fn column_chunk(of: &ColumnChunkMetaData, shape: &Arc<str>) -> Option<ColumnChunk> {
    let number = |n: i64| u64::try_from(n).ok();
    let index = |offset: Option<i64>, length: Option<i32>| match (offset, length) {
        (Some(offset), Some(length)) => Some((number(offset)?, u32::try_from(length).ok()?)),
        _ => Some((0, 0)),
    };
    Some(ColumnChunk {
        shape: shape.clone(),
        data_page_offset: number(of.data_page_offset())?,
        dictionary_page_offset: number(of.dictionary_page_offset().unwrap_or(0))?,
        compressed_bytes: number(of.compressed_size())?,
        uncompressed_bytes: number(of.uncompressed_size())?,
        n_values: number(of.num_values())?,
        codec: of.compression_codec() as u8,
        encodings: of.encodings_mask().as_i32() as u32,
        offset_index: index(of.offset_index_offset(), of.offset_index_length())?,
        column_index: index(of.column_index_offset(), of.column_index_length())?,
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType as ArrowType;

    use super::*;

    fn leaves(message: &str) -> SchemaDescriptor {
        SchemaDescriptor::new(Arc::new(parse_message_type(message).unwrap()))
    }

    #[test]
    fn a_shape_says_what_the_leaf_is_and_not_what_it_is_called() {
        let cases = [
            ("required int32 a", "required int32 c"),
            ("optional int64 a (TIMESTAMP(MICROS,true))", "optional int64 c (TIMESTAMP(MICROS,true))"),
            ("optional int64 a (TIMESTAMP_MILLIS)", "optional int64 c (TIMESTAMP_MILLIS)"),
            ("optional int32 a (INTEGER(8,false))", "optional int32 c (INTEGER(8,false))"),
            (
                "optional fixed_len_byte_array (9) a (DECIMAL(20,2))",
                "optional fixed_len_byte_array (9) c (DECIMAL(20,2))",
            ),
            ("optional binary a (UTF8)", "optional byte_array c (UTF8)"),
            ("optional binary a (STRING)", "optional byte_array c (STRING)"),
            ("optional binary a (JSON)", "optional byte_array c (JSON)"),
            ("optional int96 a", "optional int96 c"),
            ("optional fixed_len_byte_array (2) a (FLOAT16)", "optional fixed_len_byte_array (2) c (FLOAT16)"),
            ("optional fixed_len_byte_array (16) a (UUID)", "optional fixed_len_byte_array (16) c (UUID)"),
            ("optional int32 a (UNKNOWN)", "optional int32 c (UNKNOWN)"),
            ("optional boolean a", "optional boolean c"),
            ("optional double a", "optional double c"),
            ("optional int32 a (TIME_MILLIS)", "optional int32 c (TIME_MILLIS)"),
            ("optional int64 a (TIME(NANOS,false))", "optional int64 c (TIME(NANOS,false))"),
            ("optional fixed_len_byte_array (12) a (INTERVAL)", "optional fixed_len_byte_array (12) c (INTERVAL)"),
        ];
        let mut shapes = Shapes::default();
        for (leaf, want) in cases {
            let shape = shapes.of(&leaves(&format!("message m {{ {leaf}; }}")).column(0)).unwrap();
            assert_eq!(&*shape.text, want);
        }
        let of = |leaf: &str| Shapes::default().of(&leaves(&format!("message m {{ {leaf}; }}")).column(0)).unwrap();
        assert_eq!(of("optional int32 a = 7").field, of("optional int32 x").field);
        let many = leaves("message m { optional int32 a; optional int32 b; required int32 d; }");
        let mut shapes = Shapes::default();
        let texts: Vec<_> = many.columns().iter().map(|leaf| shapes.of(leaf).unwrap()).collect();
        assert!(Arc::ptr_eq(&texts[0], &texts[1]));
        assert!(!Arc::ptr_eq(&texts[0], &texts[2]));
        let list = "optional group c (LIST) { repeated group list { optional byte_array item (STRING); } }";
        let file = leaves(
            "message m { optional group a (LIST) { repeated group list { optional binary item (STRING); } }
             optional group b { optional int32 x; } }",
        );
        let shape = shapes.of_column(&file, 0).unwrap();
        assert_eq!((&*shape.text, shape.field.data_type()), (list, &ArrowType::new_list(ArrowType::Utf8, true)));
        assert!(shapes.of_column(&file, 1).is_none());
        assert_eq!(*texts[0].field.data_type(), ArrowType::Int32);
    }
}
