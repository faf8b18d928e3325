//! What does a name without a schema mean to a session, when a client asks? `pg_table_is_visible` and its kin tell
//! whether something is found by its name alone, `to_regclass` and `'t'::regclass` what a name means, `oid::regclass`
//! and its kin how something that has a number is written, and `tarn_relation_parts` finds what `$1::regclass` names
//! (`compat.rs`).

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, BooleanArray, Int32Array, ListBuilder, StringArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Signature, SimpleScalarUDF, Volatility};
use parking_lot::Mutex;
use postgres_types::Type;
use tarn_node::functions::FunctionId;
use tarn_node::node::Node;
use tarn_types::{TypeId, full_name};

use crate::catalog_numbers::Listed;
use crate::catalog_sequences;
use crate::catalog_types;
use crate::error::{SqlError, state};
use crate::names::{OF_SYSTEM, parts_named, quote};
use crate::relations::{RelationNamer, has_number, name_of_number, number_of, number_of_index};
use crate::rows::long_name;
use crate::schema_path::{CATALOG, whole_path};
use crate::session::vars::Vars;
use crate::temporary::Temporary;

/// Schema and name of a relation: what `regclass` asks in the place of `parse_ident`.
pub(crate) const RELATION_PARTS: &str = "tarn_relation_parts";

/// The number of a relation by its name: `'t'::regclass`.
pub(crate) const RELATION_NUMBER: &str = "tarn_relation_number";

/// How a relation that has a number is written: `'t'::regclass::text`.
pub(crate) const RELATION_NAME: &str = "tarn_relation_name";

/// The number of a type by its name: `'int'::regtype`.
pub(crate) const TYPE_NUMBER: &str = "tarn_type_number";

/// How a type that has a number is written: `23::regtype::text`.
pub(crate) const TYPE_NAME: &str = "tarn_type_name";

/// How a schema that has a number is written: `11::regnamespace::text`.
pub(crate) const SCHEMA_NAME: &str = "tarn_schema_name";

/// How a function that has a number is written: `oid::regproc::text`. A name is written as it is.
pub(crate) const FUNCTION_NAME: &str = "tarn_function_name";

/// What is asked about.
#[derive(Clone)]
struct VisibilityContext {
    node: Arc<Node>,
    vars: Arc<Mutex<Vars>>,
    temporary: Arc<Temporary>,
    listed: Arc<Listed>,
}

/// The functions, for one session.
pub(crate) fn functions(
    node: &Arc<Node>,
    vars: &Arc<Mutex<Vars>>,
    temporary: &Arc<Temporary>,
    listed: &Arc<Listed>,
) -> Vec<ScalarUDF> {
    let asked = VisibilityContext::of(node, vars, temporary, listed);
    let is_visible = |name: &str, tell: fn(&VisibilityContext, i32) -> bool| -> ScalarUDF {
        let asked = asked.clone();
        let answer = move |args: &[ColumnarValue]| {
            let args = ColumnarValue::values_to_arrays(args)?;
            let oids = cast(&args[0], &DataType::Int32)?;
            let told = oids.as_primitive::<Int32Type>().iter().map(|oid| oid.map(|oid| tell(&asked, oid)));
            Ok(ColumnarValue::Array(Arc::new(told.collect::<BooleanArray>())))
        };
        let signature = Signature::any(1, Volatility::Stable);
        SimpleScalarUDF::new_with_signature(name, signature, DataType::Boolean, Arc::new(answer)).into()
    };
    let tables = is_visible("pg_table_is_visible", VisibilityContext::shows_relation);
    let types = is_visible("pg_type_is_visible", VisibilityContext::shows_type);
    let of_users = is_visible("pg_function_is_visible", VisibilityContext::shows_function);
    let numbers = |name: &str,
                   number: fn(&VisibilityContext, &str) -> crate::error::Result<Option<i32>>|
     -> ScalarUDF {
        let asked = asked.clone();
        let answer = move |args: &[ColumnarValue]| {
            let args = ColumnarValue::values_to_arrays(args)?;
            let texts = cast(&args[0], &DataType::Utf8)?;
            let told = texts.as_string::<i32>().iter().map(|text| text.map_or(Ok(None), |text| number(&asked, text)));
            Ok(ColumnarValue::Array(Arc::new(told.collect::<crate::error::Result<Int32Array>>()?)))
        };
        let signature = Signature::exact(vec![DataType::Utf8], Volatility::Stable);
        SimpleScalarUDF::new_with_signature(name, signature, DataType::Int32, Arc::new(answer)).into()
    };
    let may_be_there = numbers("to_regclass", VisibilityContext::number);
    let there = numbers(RELATION_NUMBER, VisibilityContext::number_there);
    let type_there = numbers(TYPE_NUMBER, VisibilityContext::type_there);
    let names = |name: &str, tell: fn(&VisibilityContext, i32) -> String| -> ScalarUDF {
        let asked = asked.clone();
        let answer = move |args: &[ColumnarValue]| {
            let args = ColumnarValue::values_to_arrays(args)?;
            let oids = cast(&args[0], &DataType::Int32)?;
            let told = oids.as_primitive::<Int32Type>().iter().map(|oid| oid.map(|oid| tell(&asked, oid)));
            Ok(ColumnarValue::Array(Arc::new(told.collect::<StringArray>())))
        };
        let signature = Signature::any(1, Volatility::Stable);
        SimpleScalarUDF::new_with_signature(name, signature, DataType::Utf8, Arc::new(answer)).into()
    };
    let relation_names = names(RELATION_NAME, VisibilityContext::name);
    let type_names = names(TYPE_NAME, VisibilityContext::type_name);
    let schema_names = names(SCHEMA_NAME, VisibilityContext::schema_name);
    let of_functions = asked.clone();
    let function_names = move |args: &[ColumnarValue]| {
        let args = ColumnarValue::values_to_arrays(args)?;
        // The catalogs here have names where PostgreSQL has numbers.
        let texts = cast(&args[0], &DataType::Utf8)?;
        let told = texts.as_string::<i32>().iter().map(|text| {
            text.map(|text| match text.parse::<i32>() {
                Ok(oid) => of_functions.function_name(oid),
                Err(_) => text.to_owned(),
            })
        });
        Ok(ColumnarValue::Array(Arc::new(told.collect::<StringArray>())))
    };
    let signature = Signature::any(1, Volatility::Stable);
    let function_names: ScalarUDF =
        SimpleScalarUDF::new_with_signature(FUNCTION_NAME, signature, DataType::Utf8, Arc::new(function_names)).into();
    let parts = move |args: &[ColumnarValue]| {
        let args = ColumnarValue::values_to_arrays(args)?;
        let texts = cast(&args[0], &DataType::Utf8)?;
        let mut lists = ListBuilder::new(StringBuilder::new());
        for text in texts.as_string::<i32>() {
            let parts = text.map(|text| asked.parts(text)).transpose()?;
            lists.append_option(parts.map(|parts| parts.into_iter().map(Some)));
        }
        Ok(ColumnarValue::Array(Arc::new(lists.finish())))
    };
    let of_texts = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
    let signature = Signature::exact(vec![DataType::Utf8], Volatility::Stable);
    let parts: ScalarUDF =
        SimpleScalarUDF::new_with_signature(RELATION_PARTS, signature, of_texts, Arc::new(parts)).into();
    vec![
        tables,
        types,
        of_users,
        may_be_there,
        there,
        type_there,
        relation_names,
        type_names,
        schema_names,
        function_names,
        parts,
    ]
}

/// How the session writes relations that have numbers.
pub(crate) fn written(
    node: &Arc<Node>,
    vars: &Arc<Mutex<Vars>>,
    temporary: &Arc<Temporary>,
    listed: &Arc<Listed>,
) -> RelationNamer {
    let asked = VisibilityContext::of(node, vars, temporary, listed);
    Arc::new(move |oid| asked.name(oid))
}

/// A full name as it is written: without its schema where it is found so.
fn in_path(full: &str, is_found: bool) -> String {
    let (schema, name) = full_name::split(full);
    match is_found {
        true => quote(name),
        false => format!("{}.{}", quote(schema), quote(name)),
    }
}

/// How a number is written that nothing has.
fn digits(oid: i32) -> String {
    if oid == 0 { "-".to_owned() } else { oid.to_string() }
}

impl VisibilityContext {
    fn of(
        node: &Arc<Node>,
        vars: &Arc<Mutex<Vars>>,
        temporary: &Arc<Temporary>,
        listed: &Arc<Listed>,
    ) -> VisibilityContext {
        let (node, vars) = (Arc::clone(node), Arc::clone(vars));
        VisibilityContext { node, vars, temporary: Arc::clone(temporary), listed: Arc::clone(listed) }
    }

    fn path(&self) -> Arc<[String]> {
        whole_path(&self.vars, &self.node)
    }

    /// Whether a table, view, index or sequence is called so, by its full name.
    fn is_relation(&self, full: &str) -> bool {
        let catalog = self.node.catalog();
        self.temporary.entry(catalog, full).is_some()
            || self.temporary.has_index(catalog, full)
            || self.node.sequences().seen().iter().any(|name| name == full)
    }

    /// Whether what has this full name is what its name alone means.
    fn is_meant(&self, full: &str, is_there: impl Fn(&str) -> bool) -> bool {
        let bare = full_name::bare(full);
        let path = self.path();
        let first = path.iter().map(|schema| full_name::join(schema, bare)).find(|other| is_there(other));
        first.as_deref() == Some(full)
    }

    fn shows_relation(&self, oid: i32) -> bool {
        if self.temporary.schemas().iter().any(|own| has_number(own, oid)) {
            return true;
        }
        for table in self.temporary.public(self.node.catalog()) {
            if number_of(&table) == oid {
                let is_hidden = self.temporary.table(full_name::bare(&table.name)).is_some();
                return !is_hidden && self.is_meant(&table.name, |full| self.is_relation(full));
            }
            // An index: in the schema of its table.
            if has_number(&table, oid) {
                return self.path().iter().any(|schema| schema == full_name::schema_of(&table.name));
            }
        }
        let sequences = self.node.sequences().seen();
        match sequences.iter().find(|name| catalog_sequences::number(name) == oid) {
            Some(name) => self.is_meant(name, |full| self.is_relation(full)),
            None => self.listed.relation(oid).is_none_or(|full| self.looks_into(full_name::schema_of(&full))),
        }
    }

    /// Whether what is in a schema, and nowhere else, is found by its name alone.
    fn looks_into(&self, schema: &str) -> bool {
        schema == CATALOG || self.path().iter().any(|of| of == schema)
    }

    fn shows_type(&self, oid: i32) -> bool {
        let types = self.node.types();
        self.type_of(oid).is_none_or(|(name, _)| self.is_meant(&name, |full| types.get(full).is_some()))
    }

    /// The full name of a type that somebody made, and whether it is that of its arrays which has the number.
    fn type_of(&self, oid: i32) -> Option<(String, bool)> {
        let id = u32::try_from(oid).ok()?;
        let made = |id: u32| self.node.types().by_id(TypeId(id)).map(|of| of.name);
        // The number behind a type's is that of its arrays.
        made(id).map(|name| (name, false)).or_else(|| Some((made(id.checked_sub(1)?)?, true)))
    }

    fn shows_function(&self, oid: i32) -> bool {
        let functions = self.node.functions();
        let found = u32::try_from(oid).ok().and_then(|id| functions.by_id(FunctionId(id)));
        // Those of the engine are found whatever the path says.
        found.is_none_or(|of| self.is_meant(&of.name, |full| !functions.named(full).is_empty()))
    }

    /// The number of a relation, where the name is computed. What is written out is read as the cast.
    ///
    /// Errors: `0A000` for one of the catalogs.
    fn number(&self, text: &str) -> crate::error::Result<Option<i32>> {
        if let Ok(number) = text.trim().parse() {
            return Ok(Some(number));
        }
        if let [name] = &parts_named(text)?[..]
            && let Some(own) = self.temporary.table(name)
        {
            return Ok(Some(number_of(own.schema())));
        }
        let parts = self.parts(text)?;
        let (schema, name) = match &parts[..] {
            [schema, name] | [_, schema, name] if !OF_SYSTEM.contains(&schema.as_str()) => (schema, name),
            [name] if !name.starts_with("pg_") => return Ok(None),
            _ => {
                return Err(SqlError::unsupported(
                    format!("to_regclass of a name that is computed, \"{text}\" of a catalog"),
                    "write the name out",
                ));
            }
        };
        let full = full_name::join(schema, name);
        let catalog = self.node.catalog();
        if let Some(entry) = self.temporary.entry(catalog, &full) {
            return Ok(Some(number_of(&entry.schema())));
        }
        let tables = self.temporary.public(catalog);
        let index = tables.iter().find_map(|table| number_of_index(table, &full));
        let is_sequence = self.node.sequences().seen().contains(&full);
        Ok(index.or_else(|| is_sequence.then(|| catalog_sequences::number(&full))))
    }

    /// The same, of what has to be there.
    ///
    /// Errors: `42P01`.
    fn number_there(&self, text: &str) -> crate::error::Result<Option<i32>> {
        match self.number(text)? {
            Some(number) => Ok(Some(number)),
            None => {
                let message = format!("relation \"{}\" does not exist", parts_named(text)?.join("."));
                Err(SqlError::new(state::UNDEFINED_TABLE, message))
            }
        }
    }

    /// The number of a type by its name, which may be one already.
    ///
    /// Errors: `42704`.
    fn type_there(&self, text: &str) -> crate::error::Result<Option<i32>> {
        if let Ok(number) = text.trim().parse() {
            return Ok(Some(number));
        }
        let types = self.node.types();
        let through_path = || {
            let path = self.path();
            let full = path.iter().map(|schema| format!("{}.{text}", quote(schema)));
            full.into_iter().find_map(|full| catalog_types::number(types, &full))
        };
        match catalog_types::number(types, text).or_else(through_path) {
            Some(number) => Ok(Some(number)),
            None => Err(SqlError::new(state::UNDEFINED_OBJECT, format!("type \"{text}\" does not exist"))),
        }
    }

    /// The name of a type, with its schema where it is not found without; digits where nothing has the number.
    fn type_name(&self, oid: i32) -> String {
        if let Some((full, is_array)) = self.type_of(oid) {
            let name = in_path(&full, self.shows_type(oid));
            return if is_array { format!("{name}[]") } else { name };
        }
        match u32::try_from(oid).ok().and_then(Type::from_oid) {
            Some(Type::CHAR) => "\"char\"".to_owned(),
            Some(of) => long_name(&of),
            None => digits(oid),
        }
    }

    fn schema_name(&self, oid: i32) -> String {
        self.listed.schema(oid).map_or_else(|| digits(oid), |name| quote(&name))
    }

    /// The name of a function, with its schema where others are called so, or it is not found without.
    fn function_name(&self, oid: i32) -> String {
        match self.listed.function(oid) {
            Some(of) => in_path(&of.name, of.is_only && self.looks_into(full_name::schema_of(&of.name))),
            None => digits(oid),
        }
    }

    /// The name of a relation, with its schema where it is not found without; digits where nothing has the number.
    fn name(&self, oid: i32) -> String {
        if let Some(own) = self.temporary.schemas().iter().find(|own| number_of(own) == oid) {
            return quote(&own.name);
        }
        let tables = self.temporary.public(self.node.catalog());
        let of_table = tables.iter().find_map(|table| name_of_number(table, oid));
        let sequences = self.node.sequences().seen();
        let of_sequence = || sequences.iter().find(|name| catalog_sequences::number(name) == oid).cloned();
        match of_table.or_else(of_sequence).or_else(|| self.listed.relation(oid)) {
            Some(full) => in_path(&full, self.shows_relation(oid)),
            None => digits(oid),
        }
    }

    /// The parts of a name, with the schema that it is in where it says none.
    fn parts(&self, text: &str) -> crate::error::Result<Vec<String>> {
        let parts = parts_named(text)?;
        let [name] = &parts[..] else { return Ok(parts) };
        let is_there = |schema: &&String| {
            !OF_SYSTEM.contains(&schema.as_str()) && self.is_relation(&full_name::join(schema, name))
        };
        let path = self.path();
        Ok(match path.iter().find(is_there) {
            Some(schema) => vec![schema.clone(), name.clone()],
            None => parts,
        })
    }
}
