//! What do the catalogs say of types that users made? `pg_type` and `pg_enum`, `to_regtype` and `format_type`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, AsArray, Int32Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::common::ScalarValue;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;
use postgres_types::Type;
use tarn_node::node::Node;
use tarn_node::types::{TypeKind, Types, UserType};
use tarn_types::{TypeId, full_name};

use crate::names::{quote, relation_named};
use crate::rows::{LONG_NAMES, long_name};

/// Numbers of labels: behind each other, as many for a type as it may have.
const LABELS: u32 = 600_000_000;
const LABELS_OF_A_TYPE: u32 = 1_000;

/// Numbers of the relations that row types are: behind each other, as those of the types.
const ROWS: u32 = 300_000_000;

/// The number that `pg_class` has of a row type.
pub(crate) fn relation_of(id: TypeId) -> i32 {
    i32::try_from(ROWS.saturating_add(id.0)).unwrap_or(i32::MAX)
}

/// A row, by names of columns.
type TypeRow = Vec<(&'static str, ScalarValue)>;

fn oid(id: u32) -> ScalarValue {
    ScalarValue::from(i32::try_from(id).unwrap_or(i32::MAX))
}

/// Rows of `pg_type`: each type, and the one of its arrays.
pub(crate) fn types(node: &Node, namespace: impl Fn(&str) -> i32) -> Vec<TypeRow> {
    let of = |of: &UserType| {
        let namespace = namespace(&of.name);
        [of_type(of, namespace), of_arrays(of, namespace)]
    };
    node.types().all().iter().flat_map(of).collect()
}

fn of_type(of: &UserType, namespace: i32) -> TypeRow {
    let (kind, category, functions, length, align) = match of.kind {
        TypeKind::Enum { .. } => ("e", "E", ["enum_in", "enum_out", "enum_recv", "enum_send"], 4_i16, "i"),
        TypeKind::Row { .. } => ("c", "C", ["record_in", "record_out", "record_recv", "record_send"], -1, "d"),
    };
    let mut cells = shared(full_name::bare(&of.name), of.id.0, namespace);
    cells.extend([
        ("typlen", ScalarValue::from(length)),
        ("typbyval", ScalarValue::from(length > 0)),
        ("typtype", ScalarValue::from(kind)),
        ("typcategory", ScalarValue::from(category)),
        ("typarray", oid(of.id.0 + 1)),
        ("typrelid", ScalarValue::from(if kind == "c" { relation_of(of.id) } else { 0 })),
        ("typinput", ScalarValue::from(functions[0])),
        ("typoutput", ScalarValue::from(functions[1])),
        ("typreceive", ScalarValue::from(functions[2])),
        ("typsend", ScalarValue::from(functions[3])),
        ("typalign", ScalarValue::from(align)),
        ("typstorage", ScalarValue::from(if length > 0 { "p" } else { "x" })),
    ]);
    cells
}

fn of_arrays(of: &UserType, namespace: i32) -> TypeRow {
    let mut cells = shared(&format!("_{}", full_name::bare(&of.name)), of.id.0 + 1, namespace);
    cells.extend([
        ("typlen", ScalarValue::from(-1_i16)),
        ("typbyval", ScalarValue::from(false)),
        ("typtype", ScalarValue::from("b")),
        ("typcategory", ScalarValue::from("A")),
        ("typelem", oid(of.id.0)),
        ("typinput", ScalarValue::from("array_in")),
        ("typoutput", ScalarValue::from("array_out")),
        ("typreceive", ScalarValue::from("array_recv")),
        ("typsend", ScalarValue::from("array_send")),
        ("typalign", ScalarValue::from("i")),
        ("typstorage", ScalarValue::from("x")),
    ]);
    cells
}

fn shared(name: &str, id: u32, namespace: i32) -> TypeRow {
    vec![
        ("oid", oid(id)),
        ("typname", ScalarValue::from(name)),
        ("typnamespace", ScalarValue::from(namespace)),
        ("typowner", ScalarValue::from(10_i32)),
        ("typispreferred", ScalarValue::from(false)),
        ("typisdefined", ScalarValue::from(true)),
        ("typdelim", ScalarValue::from(",")),
        ("typmodin", ScalarValue::from("-")),
        ("typmodout", ScalarValue::from("-")),
        ("typanalyze", ScalarValue::from("-")),
        ("typnotnull", ScalarValue::from(false)),
        ("typtypmod", ScalarValue::from(-1_i32)),
    ]
}

/// Rows of `pg_enum`.
pub(crate) fn labels(node: &Node) -> Vec<TypeRow> {
    let mut rows = vec![];
    for of in node.types().all() {
        let TypeKind::Enum { labels } = &of.kind else { continue };
        for (at, label) in (0_u16..).zip(labels) {
            let number = LABELS.saturating_add(of.id.0.saturating_mul(LABELS_OF_A_TYPE)).saturating_add(at.into());
            rows.push(vec![
                ("oid", oid(number)),
                ("enumtypid", oid(of.id.0)),
                ("enumsortorder", ScalarValue::from(f32::from(at) + 1.0)),
                ("enumlabel", ScalarValue::from(label.clone())),
            ]);
        }
    }
    rows
}

/// `to_regtype`, and `format_type` in the place of the crate's, which knows no types that were made since.
pub(crate) fn functions(context: &SessionContext, types: &Arc<Types>) -> Vec<ScalarUDF> {
    let signature = Signature::exact(vec![DataType::Utf8], Volatility::Stable);
    let named = TypeNames { types: Arc::clone(types), names: None, signature };
    let theirs = context.state_ref().read().scalar_functions().get("format_type").cloned();
    let formats = theirs.map(|theirs| {
        let signature = theirs.signature().clone();
        ScalarUDF::from(TypeNames { types: Arc::clone(types), names: Some(theirs), signature })
    });
    [Some(ScalarUDF::from(named)), formats].into_iter().flatten().collect()
}

/// The number of a type by its name, or its name by its number.
#[derive(Debug)]
struct TypeNames {
    types: Arc<Types>,
    /// Who knows the names of PostgreSQL's own; without it, numbers are asked for.
    names: Option<Arc<ScalarUDF>>,
    signature: Signature,
}

/// There is one of each name in a session.
impl PartialEq for TypeNames {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && Arc::ptr_eq(&self.types, &other.types)
    }
}

impl Eq for TypeNames {}

impl std::hash::Hash for TypeNames {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for TypeNames {
    fn name(&self) -> &str {
        if self.names.is_some() { "format_type" } else { "to_regtype" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.names.is_some() { DataType::Utf8 } else { DataType::Int32 })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let n_rows = args.number_rows;
        let [first, ..] = &args.args[..] else { return exec_err!("{} takes an argument", self.name()) };
        let first = first.clone();
        let Some(theirs) = &self.names else {
            let names = cast(&first.to_array(n_rows)?, &DataType::Utf8)?;
            let oids = names.as_string::<i32>().iter().map(|name| name.and_then(|name| number(&self.types, name)));
            return Ok(ColumnarValue::Array(Arc::new(oids.collect::<Int32Array>())));
        };
        let known = cast(&theirs.invoke_with_args(args)?.to_array(n_rows)?, &DataType::Utf8)?;
        let known = known.as_string::<i32>();
        let oids = cast(&first.to_array(known.len())?, &DataType::Int32)?;
        let oids = oids.as_primitive::<Int32Type>();
        let names = (0..known.len()).map(|row| {
            let own = oids.is_valid(row).then(|| self.called(oids.value(row))).flatten();
            own.or_else(|| known.is_valid(row).then(|| known.value(row).to_owned()))
        });
        Ok(ColumnarValue::Array(Arc::new(names.collect::<StringArray>())))
    }
}

/// The number of a type by its name, as `regtype` reads it: what stands in parentheses behind it says nothing.
pub(crate) fn number(types: &Types, name: &str) -> Option<i32> {
    let name = without_modifiers(name);
    let name = name.as_ref();
    let made = |name: &str| types.get(&relation_named(name).ok()?).map(|of| of.id.0);
    type_oid(name).or_else(|| {
        let of_items = name.trim().strip_suffix("[]").and_then(made).map(|id| id + 1);
        i32::try_from(of_items.or_else(|| made(name))?).ok()
    })
}

/// `varchar(10)` is `varchar`, `timestamp(3) with time zone` is `timestamp with time zone`.
fn without_modifiers(name: &str) -> Cow<'_, str> {
    match name.split_once('(').and_then(|(before, rest)| Some((before, rest.split_once(')')?.1))) {
        Some((before, behind)) if !name.contains('"') => Cow::Owned(format!("{}{behind}", before.trim_end())),
        _ => Cow::Borrowed(name),
    }
}

impl TypeNames {
    fn called(&self, number: i32) -> Option<String> {
        let id = u32::try_from(number).ok()?;
        // The crate's function knows them by their numbers alone.
        if let Some(of) = [Type::INET, Type::INET_ARRAY].iter().find(|of| of.oid() == id) {
            return Some(long_name(of));
        }
        if let Some(of) = self.types.by_id(TypeId(id)) {
            return Some(quote(&of.name));
        }
        self.types.by_id(TypeId(id.checked_sub(1)?)).map(|of| format!("{}[]", quote(&of.name)))
    }
}

/// The number of one of Postgres' own types.
pub(crate) fn type_oid(name: &str) -> Option<i32> {
    const OTHER_NAMES: [(&str, &str); 6] = [
        ("\"char\"", "char"),
        ("bit varying", "varbit"),
        ("char", "bpchar"),
        ("dec", "numeric"),
        ("decimal", "numeric"),
        ("int", "int4"),
    ];
    static OIDS: LazyLock<HashMap<String, i32>> = LazyLock::new(|| {
        let types = (1..FIRST_OF_USERS).filter_map(|oid| Some((Type::from_oid(oid)?, oid as i32)));
        types.map(|(data_type, oid)| (data_type.name().to_owned(), oid)).collect()
    });
    let name = name.trim().to_ascii_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let item = name.trim_end_matches("[]").trim_end();
    let short = LONG_NAMES.iter().chain(&OTHER_NAMES).find(|(long, _)| *long == item).map_or(item, |(_, short)| short);
    match item.len() < name.len() {
        true => OIDS.get(format!("_{short}").as_str()).copied(),
        false => OIDS.get(short).copied(),
    }
}

/// Numbers of types below are Postgres' own.
const FIRST_OF_USERS: u32 = 10_000;
