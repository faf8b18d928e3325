//! What do the catalogs say of functions that users wrote? `pg_proc`, `information_schema.routines`, and how a function
//! is made again: `pg_get_functiondef` and its kin.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionImplementation, ScalarUDF, Signature, SimpleScalarUDF, TypeSignature, Volatility,
};
use tarn_node::functions::{Body, FunctionId, Mode, Parallel, Parameter, UserFunction, Volatility as Changes};
use tarn_node::node::Node;
use tarn_node::types::Types;
use tarn_types::full_name;

use crate::catalog_types::type_oid;
use crate::function_types::item_of;
use crate::names::quote;
use crate::rows::LONG_NAMES;
use crate::user_functions::query_of;

/// A row, by names of columns.
type FunctionRow = Vec<(&'static str, ScalarValue)>;

/// The number of language `sql`.
const SQL: i32 = 14;

/// The number that a function has in the catalogs.
fn oid(function: &UserFunction) -> i32 {
    i32::try_from(function.id.0).unwrap_or(i32::MAX)
}

/// The number of a type.
fn type_number(name: &str, types: &Types) -> i32 {
    let of_item = item_of(name);
    let short = |name: &str| {
        LONG_NAMES.iter().find(|(long, _)| *long == name).map_or(name.to_owned(), |(_, of)| (*of).to_owned())
    };
    let known = match of_item {
        Some(item) => type_oid(&format!("_{}", short(item))),
        None => type_oid(name).or_else(|| type_oid(&short(name))),
    };
    let user = |name: &str| types.all().into_iter().find(|of| quote(&of.name) == name).map(|of| of.id.0);
    let made = || of_item.and_then(user).map(|id| id + 1).or_else(|| user(name)).and_then(|id| i32::try_from(id).ok());
    known.or_else(made).unwrap_or(0)
}

/// Rows of `pg_proc`. Lists are as `proc_lists` writes them.
pub(crate) fn functions(node: &Node, namespace: impl Fn(&str) -> i32, lists: ListForm) -> Vec<FunctionRow> {
    let functions = node.functions().all();
    functions.iter().map(|function| row(function, node.types(), namespace(&function.name), lists)).collect()
}

/// How the catalog has lists: the numbers of a vector, texts of an array.
#[derive(Clone, Copy)]
pub(crate) enum ListForm {
    /// `23 25`, `{a,b}`
    Texts,
    Arrays,
}

fn row(function: &UserFunction, types: &Types, namespace: i32, lists: ListForm) -> FunctionRow {
    let of = &function.written;
    let number = |parameter: &Parameter| type_number(&parameter.data_type, types);
    let taken: Vec<i32> = of.taken().map(number).collect();
    let n_defaults = of.taken().filter(|parameter| parameter.default.is_some()).count();
    let small = |n: usize| ScalarValue::from(i16::try_from(n).unwrap_or(i16::MAX));
    let has_modes = of.parameters.iter().any(|parameter| parameter.mode != Mode::In);
    let has_names = of.parameters.iter().any(|parameter| parameter.name.is_some());
    let letter = |parameter: &Parameter| match parameter.mode {
        Mode::In => "i".to_owned(),
        Mode::Out => "o".to_owned(),
        Mode::InOut => "b".to_owned(),
        Mode::Table => "t".to_owned(),
    };
    let names = of.parameters.iter().map(|parameter| parameter.name.clone().unwrap_or_default()).collect();
    let (body, standard) = match &of.body {
        Body::Text(text) => (text.clone(), None),
        Body::Return(_) | Body::Atomic(_) => (String::new(), Some(query_of(&of.body))),
    };
    let is_set = of.is_set;
    let rows = of.rows.as_ref().and_then(|rows| rows.parse::<f32>().ok());
    let cost = of.cost.as_ref().and_then(|cost| cost.parse::<f32>().ok());
    let mut cells = vec![
        ("oid", ScalarValue::from(oid(function))),
        ("proname", ScalarValue::from(full_name::bare(&function.name))),
        ("pronamespace", ScalarValue::from(namespace)),
        ("proowner", ScalarValue::from(10_i32)),
        ("prolang", ScalarValue::from(SQL)),
        ("procost", ScalarValue::from(cost.unwrap_or(100.0))),
        ("prorows", ScalarValue::from(rows.unwrap_or(if is_set { 1_000.0 } else { 0.0 }))),
        ("provariadic", ScalarValue::from(0_i32)),
        ("prosupport", ScalarValue::from("-")),
        ("prokind", ScalarValue::from("f")),
        ("prosecdef", ScalarValue::from(false)),
        ("proleakproof", ScalarValue::from(of.is_leakproof)),
        ("proisstrict", ScalarValue::from(of.is_strict)),
        ("proretset", ScalarValue::from(is_set)),
        ("provolatile", ScalarValue::from(changes(of.volatility).0)),
        ("proparallel", ScalarValue::from(parallel(of.parallel).0)),
        ("pronargs", small(taken.len())),
        ("pronargdefaults", small(n_defaults)),
        ("prorettype", ScalarValue::from(type_number(&of.returns, types))),
        ("proargtypes", numbers(&taken, lists, " ")),
        ("prosrc", ScalarValue::from(body)),
        ("prosqlbody", ScalarValue::Utf8(standard)),
    ];
    if has_modes {
        let all: Vec<i32> = of.parameters.iter().map(number).collect();
        cells.push(("proallargtypes", numbers(&all, lists, ",")));
        cells.push(("proargmodes", texts(of.parameters.iter().map(letter).collect(), lists)));
    }
    if has_names {
        cells.push(("proargnames", texts(names, lists)));
    }
    cells
}

fn numbers(numbers: &[i32], lists: ListForm, between: &str) -> ScalarValue {
    match lists {
        ListForm::Arrays => {
            let items: Vec<ScalarValue> = numbers.iter().map(|number| ScalarValue::from(*number)).collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Int32))
        }
        ListForm::Texts => {
            let items = numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(between);
            ScalarValue::from(if between == " " { items } else { format!("{{{items}}}") })
        }
    }
}

fn texts(texts: Vec<String>, lists: ListForm) -> ScalarValue {
    match lists {
        ListForm::Arrays => {
            let items: Vec<ScalarValue> = texts.into_iter().map(ScalarValue::from).collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Utf8))
        }
        ListForm::Texts => {
            let items = texts.into_iter().map(|text| if text.is_empty() { "\"\"".to_owned() } else { text });
            ScalarValue::from(format!("{{{}}}", items.collect::<Vec<_>>().join(",")))
        }
    }
}

fn changes(of: Changes) -> (&'static str, &'static str) {
    match of {
        Changes::Immutable => ("i", " IMMUTABLE"),
        Changes::Stable => ("s", " STABLE"),
        Changes::Volatile => ("v", ""),
    }
}

fn parallel(of: Parallel) -> (&'static str, &'static str) {
    match of {
        Parallel::Safe => ("s", " PARALLEL SAFE"),
        Parallel::Restricted => ("r", " PARALLEL RESTRICTED"),
        Parallel::Unsafe => ("u", ""),
    }
}

/// The statement that makes a function again, as `pg_get_functiondef` writes it.
pub(crate) fn definition(function: &UserFunction) -> String {
    let of = &function.written;
    let mut options = format!("{}{}", changes(of.volatility).1, parallel(of.parallel).1);
    if of.is_strict {
        options.push_str(" STRICT");
    }
    if of.is_leakproof {
        options.push_str(" LEAKPROOF");
    }
    for (word, number) in [("COST", &of.cost), ("ROWS", &of.rows)] {
        // What they are without a word is not said.
        let usual = if word == "COST" { "100" } else { "1000" };
        if let Some(number) = number.as_ref().filter(|number| *number != usual) {
            options.push_str(&format!(" {word} {number}"));
        }
    }
    if !options.is_empty() {
        options.push('\n');
    }
    let body = match &of.body {
        Body::Text(text) => {
            let mut tag = "$function".to_owned();
            while text.contains(&tag) {
                tag.push('x');
            }
            format!("AS {tag}${text}{tag}$\n")
        }
        Body::Return(expr) => format!("RETURN {expr}\n"),
        Body::Atomic(text) => format!("BEGIN ATOMIC\n {text}\nEND\n"),
    };
    let (schema, name) = full_name::split(&function.name);
    let (schema, name) = (quote(schema), quote(name));
    let (arguments, result) = (arguments(function, true), result(function));
    format!(
        "CREATE OR REPLACE FUNCTION {schema}.{name}({arguments})\n RETURNS {result}\n LANGUAGE sql\n{options}{body}"
    )
}

/// `a integer, b integer DEFAULT 1, OUT c text`
fn arguments(function: &UserFunction, with_defaults: bool) -> String {
    let shown = function.written.parameters.iter().filter(|parameter| parameter.mode != Mode::Table);
    let shown = shown.map(|parameter| {
        let mode = match parameter.mode {
            Mode::Out => "OUT ",
            Mode::InOut => "INOUT ",
            Mode::In | Mode::Table => "",
        };
        let name = parameter.name.as_ref().map(|name| format!("{} ", quote(name))).unwrap_or_default();
        let default = parameter.default.as_ref().filter(|_| with_defaults);
        let default = default.map(|text| format!(" DEFAULT {text}")).unwrap_or_default();
        format!("{mode}{name}{}{default}", parameter.data_type)
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// `integer`, `SETOF integer`, `TABLE(a integer)`
fn result(function: &UserFunction) -> String {
    let of = &function.written;
    let columns = of.parameters.iter().filter(|parameter| parameter.mode == Mode::Table);
    let columns: Vec<String> = columns
        .map(|column| format!("{} {}", quote(column.name.as_deref().unwrap_or_default()), column.data_type))
        .collect();
    match (columns.is_empty(), of.is_set) {
        (false, _) => format!("TABLE({})", columns.join(", ")),
        (true, true) => format!("SETOF {}", of.returns),
        (true, false) => of.returns.clone(),
    }
}

/// Rows of `information_schema.routines`, by names of columns.
pub(crate) fn routines(node: &Node) -> Vec<Vec<(&'static str, String)>> {
    let row = |function: &Arc<UserFunction>| {
        let of = &function.written;
        let (schema, name) = full_name::split(&function.name);
        vec![
            ("specific_schema", schema.to_owned()),
            ("routine_schema", schema.to_owned()),
            ("specific_name", format!("{name}_{}", function.id.0)),
            ("routine_name", name.to_owned()),
            ("data_type", if of.returns.ends_with("[]") { "ARRAY".to_owned() } else { of.returns.clone() }),
            ("function_type", if of.is_set { "TABLE" } else { "SCALAR" }.to_owned()),
            ("is_deterministic", (of.volatility == Changes::Immutable).to_string()),
            ("syntax_example", format!("{}({})", quote(name), arguments(function, true))),
            ("description", function.comment.clone().unwrap_or_default()),
        ]
    };
    node.functions().all().iter().map(row).collect()
}

/// What is asked of functions by their numbers, for any session of a node.
pub(crate) fn described(node: &Arc<Node>) -> Vec<ScalarUDF> {
    let told = |name: &str, tell: fn(&UserFunction) -> String| {
        let node = Arc::clone(node);
        let answer: ScalarFunctionImplementation = Arc::new(move |arguments: &[ColumnarValue]| {
            let arguments = ColumnarValue::values_to_arrays(arguments)?;
            told_of(&node, &arguments[0], tell)
        });
        let signature = Signature::one_of(vec![TypeSignature::Any(1)], Volatility::Stable);
        SimpleScalarUDF::new_with_signature(name, signature, DataType::Utf8, answer).into()
    };
    vec![
        told("pg_get_functiondef", definition),
        told("pg_get_function_arguments", |function| arguments(function, true)),
        told("pg_get_function_identity_arguments", |function| arguments(function, false)),
        told("pg_get_function_result", result),
    ]
}

/// What is told of the functions with these numbers, or, of texts, of those that are called so.
fn told_of(node: &Node, of: &dyn Array, tell: fn(&UserFunction) -> String) -> Result<ColumnarValue> {
    let found: Vec<Option<Arc<UserFunction>>> = match of.data_type().is_string() {
        true => {
            let names = cast(of, &DataType::Utf8)?;
            names.as_string::<i32>().iter().map(|name| name.and_then(|name| named(node, name))).collect()
        }
        false => {
            let numbers = cast(of, &DataType::Int32)?;
            let by_number = |number: i32| node.functions().by_id(FunctionId(u32::try_from(number).ok()?));
            numbers.as_primitive::<Int32Type>().iter().map(|number| number.and_then(by_number)).collect()
        }
    };
    let texts = found.iter().map(|function| function.as_deref().map(tell));
    Ok(ColumnarValue::Array(Arc::new(texts.collect::<StringArray>())))
}

/// `f`, `public.f(integer, text)`; without types the only one of its name.
fn named(node: &Node, text: &str) -> Option<Arc<UserFunction>> {
    let text = text.trim();
    if let Ok(number) = text.parse() {
        return node.functions().by_id(FunctionId(number));
    }
    let (name, types) = match text.split_once('(') {
        Some((name, types)) => (name, Some(types.strip_suffix(')')?)),
        None => (text, None),
    };
    let mut found = node.functions().named(&crate::names::relation_named(name).ok()?);
    if let Some(types) = types {
        let wanted: Vec<i32> = match types.trim().is_empty() {
            true => vec![],
            false => types.split(',').map(|name| type_number(name.trim(), node.types())).collect(),
        };
        found.retain(|function| {
            let has = function.written.signature().into_iter().map(|name| type_number(name, node.types()));
            has.eq(wanted.iter().copied())
        });
    }
    match found.len() {
        1 => found.pop(),
        _ => None,
    }
}
