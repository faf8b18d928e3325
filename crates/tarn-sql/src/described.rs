//! What do people say of a table, schema, type or function, and which query is a view? By the numbers of `pg_class`:
//! `obj_description`, `col_description` and `pg_get_viewdef`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int32Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionImplementation, ScalarUDF, Signature, SimpleScalarUDF, TypeSignature, Volatility,
};
use tarn_node::functions::FunctionId;
use tarn_node::node::Node;
use tarn_types::{TableSchema, TypeId};

use crate::names::relation_named;
use crate::relations::{number_of, number_of_schema};
use crate::temporary::Temporary;
use crate::view_text::definition;

/// The functions, for a session of a node with tables of its own.
pub(crate) fn functions(node: &Arc<Node>, own: &Arc<Temporary>) -> [ScalarUDF; 3] {
    let of_object = {
        let node = Arc::clone(node);
        move |arguments: &[ColumnarValue]| {
            let arguments = ColumnarValue::values_to_arrays(arguments)?;
            let catalogs = arguments.get(1).map(|catalogs| cast(catalogs, &DataType::Utf8)).transpose()?;
            let of_relations = |row: usize| {
                catalogs.as_ref().is_none_or(|catalogs| catalogs.as_string::<i32>().value(row) == "pg_class")
            };
            let of_types = |row: usize| {
                catalogs.as_ref().is_some_and(|catalogs| catalogs.as_string::<i32>().value(row) == "pg_type")
            };
            let of_schemas = |row: usize| {
                catalogs.as_ref().is_some_and(|catalogs| catalogs.as_string::<i32>().value(row) == "pg_namespace")
            };
            let of_functions = |row: usize| {
                catalogs.as_ref().is_some_and(|catalogs| catalogs.as_string::<i32>().value(row) == "pg_proc")
            };
            let said_of_type = |number| node.types().by_id(TypeId(number))?.comment;
            if let Some(said) = of_these_alone(&arguments[0], of_types, said_of_type)? {
                return Ok(said);
            }
            let said_of_schema = |number: u32| {
                let all = node.schemas().all();
                all.into_iter().find(|of| u32::try_from(number_of_schema(of.id)) == Ok(number))?.comment
            };
            if let Some(said) = of_these_alone(&arguments[0], of_schemas, said_of_schema)? {
                return Ok(said);
            }
            let said_of_function = |number| node.functions().by_id(FunctionId(number))?.comment.clone();
            if let Some(said) = of_these_alone(&arguments[0], of_functions, said_of_function)? {
                return Ok(said);
            }
            told(&node.catalog().schemas(), &arguments[0], |table, row| {
                node.comments().of(table.id).table.filter(|_| of_relations(row))
            })
        }
    };
    let of_column = {
        let node = Arc::clone(node);
        move |arguments: &[ColumnarValue]| {
            let arguments = ColumnarValue::values_to_arrays(arguments)?;
            let places = cast(&arguments[1], &DataType::Int32)?;
            told(&node.catalog().schemas(), &arguments[0], |table, row| {
                let at = usize::try_from(places.as_primitive::<Int32Type>().value(row)).ok()?.checked_sub(1)?;
                node.comments().of(table.id).column(table.shown().get(at)?.id).map(str::to_owned)
            })
        }
    };
    let of_view = {
        let (node, own) = (Arc::clone(node), Arc::clone(own));
        move |arguments: &[ColumnarValue]| {
            let arguments = ColumnarValue::values_to_arrays(arguments)?;
            // Those of the session hide others.
            let relations: Vec<_> = own.schemas().into_iter().chain(node.catalog().schemas()).collect();
            told(&relations, &arguments[0], |table, _| table.options.view.as_ref().map(definition))
        }
    };
    let function = |name: &str, n_arguments: &[usize], answer: ScalarFunctionImplementation| {
        let kinds = n_arguments.iter().map(|n| TypeSignature::Any(*n)).collect();
        let signature = Signature::one_of(kinds, Volatility::Stable);
        SimpleScalarUDF::new_with_signature(name, signature, DataType::Utf8, answer).into()
    };
    [
        function("obj_description", &[1, 2], Arc::new(of_object)),
        function("col_description", &[2], Arc::new(of_column)),
        function("pg_get_viewdef", &[1, 2], Arc::new(of_view)),
    ]
}

/// What is said of the things with these numbers, if all of them are of the kind.
fn of_these_alone(
    things: &dyn Array,
    is_one: impl Fn(usize) -> bool,
    said: impl Fn(u32) -> Option<String>,
) -> Result<Option<ColumnarValue>> {
    if things.is_empty() || things.data_type().is_string() || !(0..things.len()).all(is_one) {
        return Ok(None);
    }
    let numbers = cast(things, &DataType::Int32)?;
    let said = |number: i32| said(u32::try_from(number).ok()?);
    let texts = numbers.as_primitive::<Int32Type>().iter().map(|number| number.and_then(said));
    Ok(Some(ColumnarValue::Array(Arc::new(texts.collect::<StringArray>()))))
}

/// What is told of the relations with these numbers; of a text that is no number the name of one.
fn told(
    schemas: &[Arc<TableSchema>],
    relations: &dyn Array,
    tell: impl Fn(&TableSchema, usize) -> Option<String>,
) -> Result<ColumnarValue> {
    let (names, numbers) = match relations.data_type().is_string() {
        true => (Some(cast(relations, &DataType::Utf8)?), None),
        false => (None, Some(cast(relations, &DataType::Int32)?)),
    };
    let texts = (0..relations.len()).map(|row| {
        let is_asked = |table: &&Arc<TableSchema>| {
            let by_number = |numbers: &Int32Array| numbers.is_valid(row) && numbers.value(row) == number_of(table);
            let by_name = |names: &StringArray| {
                let name = names.value(row);
                let is_its = relation_named(name).is_ok_and(|full| full == table.name);
                names.is_valid(row) && (is_its || name == table.name || name.parse() == Ok(number_of(table)))
            };
            numbers.as_ref().is_some_and(|numbers| by_number(numbers.as_primitive::<Int32Type>()))
                || names.as_ref().is_some_and(|names| by_name(names.as_string::<i32>()))
        };
        tell(schemas.iter().find(is_asked)?, row)
    });
    Ok(ColumnarValue::Array(Arc::new(texts.collect::<StringArray>())))
}
