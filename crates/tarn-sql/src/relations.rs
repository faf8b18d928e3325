//! What do `pg_class`, `pg_attribute`, `pg_attrdef`, `pg_index`, `pg_constraint`, `pg_description`, `pg_sequence`,
//! `pg_tables` and `pg_views` say of our tables, views and sequences? What `pg_depend` and `pg_rewrite` say of them is
//! in `catalog_dependencies.rs`, and what `pg_type` and `pg_enum` say of types in `catalog_types.rs`, and what
//! `pg_proc` says of functions that users wrote in `catalog_functions.rs`.
//!
//! Crate `datafusion-pg-catalog` lists relations and their columns. Here those of users get numbers that are the same
//! in every session, the types that clients are told, their defaults and their primary keys, unique constraints and
//! other indexes, which are relations, too; and system tables are views.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, new_empty_array, new_null_array,
};
use datafusion::arrow::compute::{cast, concat_batches, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int16Type, Int32Type, Schema, SchemaRef};
use datafusion::catalog::{MemTable, SchemaProvider, Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::TableType;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarUDF, Signature, SimpleScalarUDF, TypeSignature, Volatility};
use datafusion::physical_plan::{ExecutionPlan, collect};
use tarn_node::edges::{Edge, Edges};
use tarn_node::node::Node;
use tarn_node::schemas::SchemaId;
use tarn_types::data_type::TYPE_METADATA;
use tarn_types::{ColumnId, Identity, IndexedColumn, KeyPart, Length, OnParent, TableId, TableSchema, full_name};

use crate::catalog_dependencies;
use crate::catalog_functions::{self, ListForm};
use crate::catalog_numbers::{Listed, NamedFunction};
use crate::catalog_rows;
use crate::catalog_sequences;
use crate::catalog_types;
use crate::definition::{default_text, definition_text, has_primary_key, order_text};
use crate::names::{OF_SYSTEM, quote};
use crate::operator_classes;
use crate::rows::{CHAR, INT2_VECTOR, pg_type, size_and_modifier};
use crate::system::{SystemCell, SystemRows, text};
use crate::system_activity::PgTables;
use crate::temporary::OwnSchema;
use crate::view_text;

/// The relations of this file.
const RELATIONS: [&str; 15] = [
    "pg_attrdef",
    "pg_attribute",
    "pg_class",
    "pg_constraint",
    "pg_depend",
    "pg_description",
    "pg_enum",
    "pg_index",
    "pg_namespace",
    "pg_proc",
    "pg_rewrite",
    "pg_sequence",
    "pg_tables",
    "pg_type",
    "pg_views",
];

/// Numbers of schemas that somebody made: the number of the schema behind.
const SCHEMAS: i32 = 400_000_000;

/// Numbers of tables and views, of indexes, and of the constraints that they are of: the id of the table, or of that of
/// the entries, behind. Those of other relations are smaller.
const TABLES: i32 = 500_000_000;
const INDEXES: i32 = 1_000_000_000;
const CONSTRAINTS: i32 = 1_500_000_000;

/// From which place on temporary tables are numbered, and how many places they have: no more than keep indexes and
/// constraints apart.
const OWN_PLACES: i32 = 100_000_000;

/// Numbers of checks: as many for each table as [`CHECKS_OF_A_TABLE`].
const CHECKS: i32 = 1_700_000_000;
const CHECKS_OF_A_TABLE: i32 = 64;

/// Numbers of foreign keys, in the same way.
const FOREIGN_KEYS: i32 = 1_900_000_000;

/// The B-tree of `pg_am`, and its default operators.
const BTREE: i32 = 403;

/// One of the relations, made when it is read.
pub(crate) struct Relation {
    name: &'static str,
    node: Arc<Node>,
    /// Of the session that reads it.
    own: OwnSchema,
    theirs: Arc<dyn SchemaProvider>,
    /// Is told what there is.
    listed: Arc<Listed>,
    schema: SchemaRef,
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The relation of this name, if it is of this file.
pub(crate) async fn relation(
    name: &str,
    node: &Arc<Node>,
    own: &OwnSchema,
    theirs: &Arc<dyn SchemaProvider>,
    listed: &Arc<Listed>,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let Some(name) = RELATIONS.into_iter().find(|known| *known == name) else { return Ok(None) };
    let Some(table) = theirs.table(name).await? else { return Ok(None) };
    let numbers = |of: DataType| DataType::List(Arc::new(Field::new("item", of, true)));
    let field = |field: &FieldRef| match (name, field.name().as_str()) {
        ("pg_index", "indoption") => {
            let vector = [(TYPE_METADATA.to_owned(), INT2_VECTOR.to_owned())];
            Arc::new(Field::new(field.name(), numbers(DataType::Int16), true).with_metadata(vector.into()))
        }
        ("pg_index", "indkey") | ("pg_constraint", "conkey" | "confkey") => {
            Arc::new(Field::new(field.name(), numbers(DataType::Int16), true))
        }
        ("pg_index", "indclass" | "indcollation") => Arc::new(Field::new(field.name(), numbers(DataType::Int32), true)),
        ("pg_namespace", "nspacl") => Arc::new(Field::new(field.name(), numbers(DataType::Utf8), true)),
        ("pg_type", "typtype") => {
            let letter = [(TYPE_METADATA.to_owned(), CHAR.to_owned())];
            Arc::new(field.as_ref().clone().with_metadata(letter.into()))
        }
        _ => Arc::clone(field),
    };
    let mut fields: Vec<FieldRef> = table.schema().fields().iter().map(field).collect();
    if name == "pg_class" {
        fields.extend(["relacl", "reloptions"].map(|name| Arc::new(Field::new(name, numbers(DataType::Utf8), true))));
    }
    let (node, theirs, schema) = (Arc::clone(node), Arc::clone(theirs), Arc::new(Schema::new(fields)));
    let listed = Arc::clone(listed);
    Ok(Some(Arc::new(Relation { name, node, own: own.clone(), theirs, listed, schema })))
}

#[async_trait]
impl TableProvider for Relation {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = self.rows(state).await?;
        MemTable::try_new(Arc::clone(&self.schema), vec![vec![rows]])?.scan(state, projection, filters, limit).await
    }
}

type CatalogRow<'a> = Vec<(&'a str, ScalarValue)>;

/// A table or view and its number.
type NumberedTable = (i32, Arc<TableSchema>);

/// What is used in the place of the crate's numbers.
type OidMapping = HashMap<i32, i32>;

impl Relation {
    async fn rows(&self, state: &dyn Session) -> Result<RecordBatch> {
        let (all, renumbered_schemas) = self.schemas(&self.read("pg_namespace", state).await?)?;
        if self.name == "pg_namespace" {
            let schemas = numbers(&all, "oid")?.into_iter().zip(texts(&all, "nspname")?).collect();
            self.listed.list_schemas(schemas);
            let rights = self.schema.index_of("nspacl")?;
            let mut columns = all.columns().to_vec();
            columns[rights] = new_null_array(self.schema.field(rights).data_type(), all.num_rows());
            return Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?);
        }
        let namespaces: HashMap<String, i32> = texts(&all, "nspname")?.into_iter().zip(numbers(&all, "oid")?).collect();
        let own_namespace = namespaces.get(&self.own.name).copied().unwrap_or_default();
        let namespace = |full: &str| namespaces.get(full_name::schema_of(full)).copied().unwrap_or_default();
        let of = |table: &TableSchema| if table.id.is_temporary() { own_namespace } else { namespace(&table.name) };
        let classes = self.read("pg_class", state).await?;
        let classes = renumbered(&classes, &["relnamespace"], &renumbered_schemas)?;
        self.list(&classes, &namespaces)?;
        let (tables, numbers) = self.tables(&classes, &namespaces)?;
        let indexes = || tables.iter().flat_map(|(oid, table)| indexes(table).into_iter().map(|of| (*oid, of)));
        let sequences = match self.name {
            "pg_class" | "pg_depend" | "pg_sequence" => catalog_sequences::all(&self.node).await?,
            _ => vec![],
        };
        let own: Vec<CatalogRow> = match self.name {
            "pg_attrdef" => tables.iter().flat_map(|(oid, table)| defaults(*oid, table)).collect(),
            "pg_index" => {
                let classes = operator_numbers(&self.read("pg_opclass", state).await?)?;
                indexes().map(|(oid, of)| index(oid, &of, &classes)).collect()
            }
            "pg_constraint" => {
                let checks = tables.iter().flat_map(|(oid, table)| checks(*oid, table, of(table)));
                let keys = indexes().filter(|(_, index)| index.is_constraint);
                let seen: Vec<Arc<TableSchema>> = tables.iter().map(|(_, table)| Arc::clone(table)).collect();
                let edges = Edges::of(&seen);
                let foreign = edges.all.iter().filter_map(|edge| foreign_key(edge, of(&edge.child)));
                let foreign: Vec<CatalogRow> = foreign.collect();
                keys.map(|(oid, index)| constraint(oid, &index, of(index.table))).chain(checks).chain(foreign).collect()
            }
            "pg_class" => {
                let numbers = sequences.iter().map(|(name, _)| catalog_sequences::class(name, namespace(name)));
                let rows = catalog_rows::classes(&self.node, namespace);
                indexes().map(|(_, index)| index_relation(&index, of(index.table))).chain(numbers).chain(rows).collect()
            }
            "pg_attribute" => {
                let columns = indexes().flat_map(|(_, index)| index_columns(&index));
                columns.chain(catalog_rows::columns(&self.node)).collect()
            }
            "pg_sequence" => sequences.iter().map(|(name, of)| catalog_sequences::sequence(name, of)).collect(),
            "pg_description" => self.descriptions(&tables, class_of("pg_class", &classes, &namespaces)?),
            "pg_rewrite" => catalog_dependencies::rules(&tables),
            "pg_depend" => {
                let [relations, rules] = ["pg_class", "pg_rewrite"].map(|name| class_of(name, &classes, &namespaces));
                catalog_dependencies::dependencies(&tables, &sequences, relations?, rules?)
            }
            "pg_enum" => catalog_types::labels(&self.node),
            "pg_type" => catalog_types::types(&self.node, namespace),
            "pg_proc" => {
                let is_list =
                    self.schema.field_with_name("proargtypes").is_ok_and(|field| field.data_type().is_nested());
                let form = if is_list { ListForm::Arrays } else { ListForm::Texts };
                catalog_functions::functions(&self.node, namespace, form)
            }
            "pg_tables" => vec![],
            "pg_views" => tables.iter().filter_map(|(_, table)| self.view(table)).collect(),
            _ => indexes().flat_map(|(_, index)| index_columns(&index)).collect(),
        };
        let own = batch(&self.schema, &own)?;
        let theirs = match self.name {
            "pg_class" => {
                self.classes(&renumbered(&classes, &["oid", "relfilenode"], &numbers)?, &namespaces, &tables)?
            }
            "pg_attribute" => {
                let theirs = renumbered(&self.read(self.name, state).await?, &["attrelid"], &numbers)?;
                attributes(&theirs, &tables)?
            }
            "pg_description" | "pg_enum" | "pg_proc" | "pg_type" => self.read(self.name, state).await?,
            "pg_tables" => self.without_views(&self.read(self.name, state).await?)?,
            _ => return Ok(own),
        };
        let all = concat_batches(&self.schema, [&theirs, &own])?;
        if self.name == "pg_proc" {
            self.list_functions(&all, &namespaces)?;
        }
        Ok(all)
    }

    /// Keeps which relation of the catalogs, and which schema, has which number.
    fn list(&self, classes: &RecordBatch, namespaces: &HashMap<String, i32>) -> Result<()> {
        let schemas: HashMap<i32, String> = namespaces.iter().map(|(name, oid)| (*oid, name.clone())).collect();
        let of = numbers(classes, "relnamespace")?.into_iter().map(|of| schemas.get(&of));
        let named = numbers(classes, "oid")?.into_iter().zip(texts(classes, "relname")?).zip(of);
        let relations = named.filter_map(|((oid, name), schema)| {
            let schema = schema.filter(|schema| OF_SYSTEM.contains(&schema.as_str()))?;
            Some((oid, full_name::join(schema, &name)))
        });
        let relations = relations.collect();
        self.listed.list(relations, schemas);
        Ok(())
    }

    /// Keeps which function has which number.
    fn list_functions(&self, functions: &RecordBatch, namespaces: &HashMap<String, i32>) -> Result<()> {
        let schemas: HashMap<i32, &str> = namespaces.iter().map(|(name, oid)| (*oid, name.as_str())).collect();
        let names = texts(functions, "proname")?;
        let mut n_called: HashMap<&str, usize> = HashMap::with_capacity(names.len());
        names.iter().for_each(|name| *n_called.entry(name.as_str()).or_default() += 1);
        let of = numbers(functions, "pronamespace")?.into_iter().map(|of| schemas.get(&of).copied());
        let named = numbers(functions, "oid")?.into_iter().zip(&names).zip(of);
        let functions = named.filter_map(|((oid, name), schema)| {
            let is_only = n_called.get(name.as_str()) == Some(&1);
            Some((oid, NamedFunction { name: full_name::join(schema?, name), is_only }))
        });
        self.listed.list_functions(functions.collect());
        Ok(())
    }

    /// A relation as the crate has it.
    async fn read(&self, name: &str, state: &dyn Session) -> Result<RecordBatch> {
        let missing = || DataFusionError::Internal(format!("pg_catalog has no {name}"));
        let table = self.theirs.table(name).await?.ok_or_else(missing)?;
        let rows = collect(table.scan(state, None, &[], None).await?, state.task_ctx()).await?;
        Ok(concat_batches(&table.schema(), &rows)?)
    }

    /// The schemas, with our numbers of those that somebody made; and which numbers are in the place of which.
    fn schemas(&self, theirs: &RecordBatch) -> Result<(RecordBatch, OidMapping)> {
        let mut instead = OidMapping::new();
        for (theirs, name) in numbers(theirs, "oid")?.into_iter().zip(texts(theirs, "nspname")?) {
            if let Some(of) = self.node.schemas().get(&name) {
                instead.insert(theirs, number_of_schema(of.id));
            }
        }
        Ok((renumbered(theirs, &["oid"], &instead)?, instead))
    }

    fn tables(
        &self,
        classes: &RecordBatch,
        namespaces: &HashMap<String, i32>,
    ) -> Result<(Vec<NumberedTable>, OidMapping)> {
        let names: HashMap<i32, &str> = namespaces.iter().map(|(name, oid)| (*oid, name.as_str())).collect();
        let of = numbers(classes, "relnamespace")?;
        let named = numbers(classes, "oid")?.into_iter().zip(texts(classes, "relname")?).zip(of);
        let (mut tables, mut renumbered) = (vec![], OidMapping::new());
        for ((theirs, name), of) in named {
            let table = match names.get(&of).copied() {
                Some(schema) if schema == self.own.name => {
                    self.own.temporary.table(&name).map(|own| Arc::clone(own.schema()))
                }
                Some(schema) if self.node.schemas().has_tables(schema) => {
                    let full = full_name::join(schema, &name);
                    self.own.temporary.schema(self.node.catalog(), &full).ok()
                }
                _ => None,
            };
            // It may be gone by now.
            let Some(table) = table else { continue };
            let number = number_of(&table);
            renumbered.insert(theirs, number);
            tables.push((number, table));
        }
        Ok((tables, renumbered))
    }

    /// What people say of tables, views and their columns.
    fn descriptions(&self, tables: &[NumberedTable], class: i32) -> Vec<CatalogRow<'static>> {
        let row = |oid: i32, place: i32, text: &str| {
            vec![
                ("objoid", ScalarValue::from(oid)),
                ("classoid", ScalarValue::from(class)),
                ("objsubid", ScalarValue::from(place)),
                ("description", ScalarValue::from(text)),
            ]
        };
        let mut rows = vec![];
        for (oid, table) in tables {
            let said = self.node.comments().of(table.id);
            rows.extend(said.table.iter().map(|text| row(*oid, 0, text)));
            let columns = table.shown().iter().enumerate();
            let columns = columns.filter_map(|(at, column)| Some(row(*oid, at as i32 + 1, said.column(column.id)?)));
            rows.extend(columns);
        }
        rows
    }

    fn view(&self, table: &TableSchema) -> Option<CatalogRow<'static>> {
        let view = table.options.view.as_ref()?;
        let users = self.node.users().users();
        let is_own = table.id.is_temporary();
        let schema = if is_own { self.own.name.clone() } else { full_name::schema_of(&table.name).to_owned() };
        Some(vec![
            ("schemaname", ScalarValue::from(schema)),
            ("viewname", ScalarValue::from(full_name::bare(&table.name))),
            ("viewowner", ScalarValue::from(users.owner(table.id).unwrap_or("postgres").to_owned())),
            ("definition", ScalarValue::from(view_text::definition(view))),
        ])
    }

    fn without_views(&self, theirs: &RecordBatch) -> Result<RecordBatch> {
        let named = texts(theirs, "schemaname")?.into_iter().zip(texts(theirs, "tablename")?);
        let is_table = named.map(|(schema, name)| {
            if schema == self.own.name {
                return Some(self.own.temporary.table(&name).is_none_or(|own| !own.schema().is_view()));
            }
            let full = full_name::join(&schema, &name);
            Some(self.own.temporary.view(self.node.catalog(), &full).is_none())
        });
        Ok(filter_record_batch(theirs, &is_table.collect::<BooleanArray>())?)
    }

    /// System tables are views, as those of users are, and tables have indexes.
    fn classes(
        &self,
        theirs: &RecordBatch,
        namespaces: &HashMap<String, i32>,
        tables: &[NumberedTable],
    ) -> Result<RecordBatch> {
        let system = ["tarn", "information_schema"].map(|schema| namespaces.get(schema).copied());
        let views: HashSet<i32> = tables.iter().filter(|(_, table)| table.is_view()).map(|(oid, _)| *oid).collect();
        let kinds = numbers(theirs, "relnamespace")?.into_iter().zip(numbers(theirs, "oid")?);
        let is_view = |of: i32, oid: i32| system.contains(&Some(of)) || views.contains(&oid);
        let kinds = kinds.map(|(of, oid)| ScalarValue::from(if is_view(of, oid) { "v" } else { "r" }));
        let keyed: HashSet<i32> =
            tables.iter().filter(|(_, table)| !indexes(table).is_empty()).map(|(oid, _)| *oid).collect();
        let indexed = numbers(theirs, "oid")?.into_iter().map(|oid| ScalarValue::from(keyed.contains(&oid)));
        let checks: HashMap<i32, usize> =
            tables.iter().map(|(oid, table)| (*oid, table.options.rules.checks.len())).collect();
        let n_checks = |oid| i16::try_from(checks.get(&oid).copied().unwrap_or(0)).unwrap_or(i16::MAX);
        let n_checks = numbers(theirs, "oid")?.into_iter().map(|oid| ScalarValue::from(n_checks(oid)));
        let theirs = &with(theirs, "relchecks", ScalarValue::iter_to_array(n_checks)?)?;
        let temporary: HashSet<i32> =
            tables.iter().filter(|(_, table)| table.id.is_temporary()).map(|(oid, _)| *oid).collect();
        let persistence = |oid| ScalarValue::from(if temporary.contains(&oid) { "t" } else { "p" });
        let persistence = numbers(theirs, "oid")?.into_iter().map(persistence);
        let theirs = &with(theirs, "relpersistence", ScalarValue::iter_to_array(persistence)?)?;
        let theirs = with(theirs, "relkind", ScalarValue::iter_to_array(kinds)?)?;
        let theirs = with(&theirs, "relhasindex", ScalarValue::iter_to_array(indexed)?)?;
        let nothing =
            |field: &FieldRef| ScalarValue::try_new_null(field.data_type())?.to_array_of_size(theirs.num_rows());
        let more = self.schema.fields().iter().skip(theirs.num_columns()).map(nothing);
        let columns = theirs.columns().iter().cloned().map(Ok).chain(more).collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// Columns have the types that clients are told.
fn attributes(theirs: &RecordBatch, tables: &[NumberedTable]) -> Result<RecordBatch> {
    let tables: HashMap<i32, &TableSchema> = tables.iter().map(|(oid, table)| (*oid, table.as_ref())).collect();
    let of = numbers(theirs, "attrelid")?;
    let place = column(theirs, "attnum")?;
    let place = place.as_primitive::<Int16Type>();
    let (mut types, mut modifiers) = (numbers(theirs, "atttypid")?, numbers(theirs, "atttypmod")?);
    let (mut defaults, mut identities) = (vec![false; of.len()], vec![""; of.len()]);
    let mut generated = identities.clone();
    let mut dimensions = vec![0_i64; of.len()];
    for (row, oid) in of.iter().enumerate() {
        let Some(table) = tables.get(oid) else { continue };
        let Some(at) = usize::try_from(place.value(row)).ok().and_then(|place| place.checked_sub(1)) else {
            continue;
        };
        let Some((data_type, modifier)) = type_of(table, at) else { continue };
        (types[row], modifiers[row]) = (data_type, modifier);
        dimensions[row] = table.columns[at].data_type.item().is_some().into();
        if table.generated(at).is_some() {
            generated[row] = "s";
        }
        defaults[row] = default_text(table, at).is_some() || table.generated(at).is_some();
        identities[row] = match table.rules_of(at).and_then(|rules| rules.identity) {
            Some(Identity::Always) => "a",
            Some(Identity::ByDefault) => "d",
            None => "",
        };
    }
    let array = |values: Vec<i32>| ScalarValue::iter_to_array(values.into_iter().map(ScalarValue::from));
    let theirs = with(theirs, "atttypid", array(types)?)?;
    let theirs = with(&theirs, "atttypmod", array(modifiers)?)?;
    let dimensions = ScalarValue::iter_to_array(dimensions.into_iter().map(ScalarValue::from))?;
    let dimensions = cast(&dimensions, column(&theirs, "attndims")?.data_type())?;
    let theirs = with(&theirs, "attndims", dimensions)?;
    let identities = ScalarValue::iter_to_array(identities.into_iter().map(ScalarValue::from))?;
    let theirs = with(&theirs, "attidentity", identities)?;
    let generated = ScalarValue::iter_to_array(generated.into_iter().map(ScalarValue::from))?;
    let theirs = with(&theirs, "attgenerated", generated)?;
    let defaults = ScalarValue::iter_to_array(defaults.into_iter().map(ScalarValue::from))?;
    with(&theirs, "atthasdef", defaults)
}

/// The number of a column's type, and its modifier.
fn type_of(table: &TableSchema, at: usize) -> Option<(i32, i32)> {
    let arrow = table.arrow();
    let field = arrow.fields().get(at)?;
    let of = pg_type(field).ok()?;
    // An array has that of its items.
    let modified = match field.data_type() {
        DataType::List(item) if Length::of(field).is_none() => item,
        _ => field,
    };
    let (_, modifier) = size_and_modifier(&of, modified);
    Some((i32::try_from(of.oid()).ok()?, modifier))
}

/// The number of a relation of the catalog: `pg_class` is the one of which the numbers of relations are.
fn class_of(wanted: &str, classes: &RecordBatch, namespaces: &HashMap<String, i32>) -> Result<i32> {
    let catalog = namespaces.get("pg_catalog").copied();
    let named = numbers(classes, "oid")?.into_iter().zip(texts(classes, "relname")?);
    let mut named = named.zip(numbers(classes, "relnamespace")?);
    let found = named.find(|((_, name), of)| name == wanted && Some(*of) == catalog);
    Ok(found.map_or(0, |((oid, _), _)| oid))
}

/// With our numbers of tables and views in these columns.
fn renumbered(theirs: &RecordBatch, columns: &[&str], numbers_of: &OidMapping) -> Result<RecordBatch> {
    columns.iter().try_fold(theirs.clone(), |batch, name| {
        let ours = numbers(&batch, name)?.into_iter().map(|oid| numbers_of.get(&oid).copied().unwrap_or(oid));
        with(&batch, name, ScalarValue::iter_to_array(ours.map(ScalarValue::from))?)
    })
}

/// The number of a schema that somebody made, in every session.
pub(crate) fn number_of_schema(id: SchemaId) -> i32 {
    SCHEMAS.saturating_add(i32::try_from(id.0).unwrap_or(i32::MAX)).min(TABLES - 1)
}

/// The number of a table or view, in every session.
pub(crate) fn number_of(table: &TableSchema) -> i32 {
    TABLES.saturating_add(place_of(table.id)).min(INDEXES - 1)
}

/// The number of the index of a table that has this full name.
pub(crate) fn number_of_index(table: &TableSchema, full: &str) -> Option<i32> {
    let found = indexes(table).into_iter().find(|index| full_name::beside(&table.name, &index.name) == full)?;
    Some(found.number())
}

/// The full name of the table that has this number, or of the index of it that has.
pub(crate) fn name_of_number(table: &TableSchema, number: i32) -> Option<String> {
    if number_of(table) == number {
        return Some(table.name.clone());
    }
    let index = indexes(table).into_iter().find(|index| index.number() == number)?;
    Some(full_name::beside(&table.name, &index.name))
}

/// Whether it is the number of a table, or of an index of it.
pub(crate) fn has_number(table: &TableSchema, number: i32) -> bool {
    number_of(table) == number || indexes(table).iter().any(|index| index.number() == number)
}

/// What is added for a table: temporary ones have the upper half of the room, and their ids come again.
fn place_of(id: TableId) -> i32 {
    let place = |id: u32| i32::try_from(id).unwrap_or(i32::MAX);
    match id.0.checked_sub(TableId::FIRST_TEMPORARY.0) {
        None => place(id.0),
        Some(n_before) => OWN_PLACES + place(n_before % OWN_PLACES.unsigned_abs()),
    }
}

/// An index of a table: that of its primary key, of a unique constraint, or another one.
struct Index<'a> {
    table: &'a TableSchema,
    /// What its numbers are counted by.
    place: i32,
    name: String,
    /// Of the table, in order, and how they are ordered.
    columns: Vec<(usize, IndexedColumn)>,
    is_primary: bool,
    is_unique: bool,
    is_constraint: bool,
}

impl Index<'_> {
    fn number(&self) -> i32 {
        INDEXES.saturating_add(self.place)
    }

    /// Numbers of its columns, from 1.
    fn places(&self) -> ScalarValue {
        list(self.columns.iter().map(|(at, _)| ScalarValue::from(*at as i16 + 1)).collect(), &DataType::Int16)
    }
}

/// The indexes of a table, that of its primary key first.
fn indexes(table: &TableSchema) -> Vec<Index<'_>> {
    // There is no NULL in keys; PostgreSQL writes `DESC` of what puts it first.
    let of_key = |part: &KeyPart| {
        let (descending, nulls_first) = (part.descending, part.descending);
        (part.column_idx, IndexedColumn { descending, nulls_first, operators: None })
    };
    let primary = has_primary_key(table).then(|| Index {
        table,
        place: place_of(table.id),
        name: table.key_name(),
        columns: table.key.iter().map(of_key).collect(),
        is_primary: true,
        is_unique: true,
        is_constraint: true,
    });
    let place =
        |(place, id): (usize, &ColumnId)| Some((place, table.columns.iter().position(|column| column.id == *id)?));
    // Of those that are there for foreign keys alone nobody is told.
    let told = table.options.rules.uniques.iter().filter(|unique| !unique.of_foreign_key);
    let uniques = told.map(|unique| Index {
        table,
        // The entries are a table, which has this number to itself.
        place: place_of(unique.index),
        name: unique.name.clone(),
        columns: (unique.columns.iter().enumerate().filter_map(place))
            .map(|(place, at)| (at, unique.order(place)))
            .collect(),
        is_primary: false,
        is_unique: !unique.repeats,
        is_constraint: !unique.by_index,
    });
    primary.into_iter().chain(uniques).collect()
}

fn list(items: Vec<ScalarValue>, of: &DataType) -> ScalarValue {
    ScalarValue::List(ScalarValue::new_list_nullable(&items, of))
}

fn defaults(oid: i32, table: &TableSchema) -> Vec<CatalogRow<'static>> {
    let text = |at| default_text(table, at).or_else(|| Some(table.generated(at)?.expr.clone()));
    let texts = (0..table.columns.len()).filter_map(|at| Some((at, text(at)?)));
    let rows = texts.map(|(at, text)| {
        let number = (oid - TABLES).saturating_mul(1_024).saturating_add(at as i32);
        vec![
            ("oid", ScalarValue::from(number)),
            ("adrelid", ScalarValue::from(oid)),
            ("adnum", ScalarValue::from(at as i16 + 1)),
            ("adbin", ScalarValue::from(text)),
        ]
    });
    rows.collect()
}

/// The numbers of classes of operators that b-trees have, by their names.
fn operator_numbers(classes: &RecordBatch) -> Result<HashMap<String, i32>> {
    let number = |name| Ok::<_, DataFusionError>(cast(column(classes, name)?, &DataType::Int32)?);
    let (oids, methods) = (number("oid")?, number("opcmethod")?);
    let methods = methods.as_primitive::<Int32Type>().values();
    let named = texts(classes, "opcname")?.into_iter().zip(oids.as_primitive::<Int32Type>().values().iter());
    Ok(named.zip(methods.iter()).filter(|(_, method)| **method == BTREE).map(|((name, oid), _)| (name, *oid)).collect())
}

fn index(oid: i32, of: &Index<'_>, classes: &HashMap<String, i32>) -> CatalogRow<'static> {
    let n_columns = ScalarValue::from(of.columns.len() as i16);
    let zeros = || list(of.columns.iter().map(|_| ScalarValue::from(0_i32)).collect(), &DataType::Int32);
    let class = |(at, order): &(usize, IndexedColumn)| {
        let name = operator_classes::class_of(of.table, *at, order);
        ScalarValue::from(classes.get(name).copied().unwrap_or_default())
    };
    let operators = list(of.columns.iter().map(class).collect(), &DataType::Int32);
    // 1: descending, 2: NULL first.
    let option = |of: &IndexedColumn| i16::from(of.descending) | i16::from(of.nulls_first) << 1;
    let options = of.columns.iter().map(|(_, order)| ScalarValue::from(option(order)));
    let mut cells = vec![
        ("indexrelid", ScalarValue::from(of.number())),
        ("indrelid", ScalarValue::from(oid)),
        ("indnatts", n_columns.clone()),
        ("indnkeyatts", n_columns),
        ("indkey", of.places()),
        ("indcollation", zeros()),
        ("indclass", operators),
        ("indoption", list(options.collect(), &DataType::Int16)),
        ("indisprimary", ScalarValue::from(of.is_primary)),
        ("indisunique", ScalarValue::from(of.is_unique)),
    ];
    let is = ["indimmediate", "indisvalid", "indisready", "indislive"];
    cells.extend(is.map(|name| (name, ScalarValue::from(true))));
    cells
}

fn constraint(oid: i32, of: &Index<'_>, namespace: i32) -> CatalogRow<'static> {
    let number = of.number();
    vec![
        ("oid", ScalarValue::from(number - INDEXES + CONSTRAINTS)),
        ("conname", ScalarValue::from(of.name.clone())),
        ("connamespace", ScalarValue::from(namespace)),
        ("contype", ScalarValue::from(if of.is_primary { "p" } else { "u" })),
        ("convalidated", ScalarValue::from(true)),
        ("conrelid", ScalarValue::from(oid)),
        ("conindid", ScalarValue::from(number)),
        ("conislocal", ScalarValue::from(true)),
        ("connoinherit", ScalarValue::from(true)),
        ("conkey", of.places()),
    ]
}

fn number_of_check(table: &TableSchema, at: usize) -> i32 {
    let of_table = place_of(table.id).saturating_mul(CHECKS_OF_A_TABLE);
    CHECKS.saturating_add(of_table).saturating_add(i32::try_from(at).unwrap_or(i32::MAX))
}

fn checks(oid: i32, table: &TableSchema, namespace: i32) -> Vec<CatalogRow<'static>> {
    let place = |id: &ColumnId| table.columns.iter().position(|column| column.id == *id);
    let rows = table.options.rules.checks.iter().enumerate().map(|(at, check)| {
        let places = check.columns.iter().filter_map(place).map(|place| ScalarValue::from(place as i16 + 1));
        vec![
            ("oid", ScalarValue::from(number_of_check(table, at))),
            ("conname", ScalarValue::from(check.name.clone())),
            ("connamespace", ScalarValue::from(namespace)),
            ("contype", ScalarValue::from("c")),
            ("convalidated", ScalarValue::from(true)),
            ("conrelid", ScalarValue::from(oid)),
            ("conislocal", ScalarValue::from(true)),
            ("conkey", list(places.collect(), &DataType::Int16)),
            ("conbin", ScalarValue::from(check.expr.clone())),
        ]
    });
    rows.collect()
}

/// What `pg_constraint` says of the way in which an action is done.
fn letter(on: OnParent) -> &'static str {
    match on {
        OnParent::NoAction => "a",
        OnParent::Restrict => "r",
        OnParent::Cascade => "c",
        OnParent::SetNull => "n",
        OnParent::SetDefault => "d",
    }
}

fn number_of_foreign_key(table: &TableSchema, at: usize) -> i32 {
    let of_table = place_of(table.id).saturating_mul(CHECKS_OF_A_TABLE);
    FOREIGN_KEYS.saturating_add(of_table).saturating_add(i32::try_from(at).unwrap_or(i32::MAX))
}

fn foreign_key(edge: &Edge, namespace: i32) -> Option<CatalogRow<'static>> {
    let at = edge.child.options.rules.foreign_keys.iter().position(|key| key.name == edge.key.name)?;
    let places = |table: &TableSchema, ids: &[ColumnId]| {
        let place = |id: &ColumnId| table.columns.iter().position(|column| column.id == *id);
        let places = ids.iter().filter_map(place).map(|place| ScalarValue::from(place as i16 + 1));
        list(places.collect(), &DataType::Int16)
    };
    let unique = edge.referenced.unique.as_ref().map(|unique| unique.index);
    let index = INDEXES.saturating_add(place_of(unique.unwrap_or(edge.parent.id)));
    Some(vec![
        ("oid", ScalarValue::from(number_of_foreign_key(&edge.child, at))),
        ("conname", ScalarValue::from(edge.key.name.clone())),
        ("connamespace", ScalarValue::from(namespace)),
        ("contype", ScalarValue::from("f")),
        ("condeferrable", ScalarValue::from(edge.key.deferrable)),
        ("condeferred", ScalarValue::from(edge.key.initially_deferred)),
        ("convalidated", ScalarValue::from(true)),
        ("conrelid", ScalarValue::from(number_of(&edge.child))),
        ("conindid", ScalarValue::from(index)),
        ("confrelid", ScalarValue::from(number_of(&edge.parent))),
        ("confupdtype", ScalarValue::from(letter(edge.key.on_update))),
        ("confdeltype", ScalarValue::from(letter(edge.key.on_delete))),
        ("confmatchtype", ScalarValue::from(if edge.key.match_full { "f" } else { "s" })),
        ("conislocal", ScalarValue::from(true)),
        ("connoinherit", ScalarValue::from(true)),
        ("conkey", places(&edge.child, &edge.key.columns)),
        ("confkey", places(&edge.parent, &edge.key.parent_columns)),
    ])
}

/// How a table that has a number is written: without its schema where it is found so.
pub(crate) type RelationNamer = Arc<dyn Fn(i32) -> String + Send + Sync>;

/// The foreign key that has this number.
fn foreign_key_of(tables: &[Arc<TableSchema>], oid: i32, written: &RelationNamer) -> Option<String> {
    tables.iter().find_map(|child| {
        let mut keys = child.options.rules.foreign_keys.iter().enumerate();
        let (_, key) = keys.find(|(at, _)| number_of_foreign_key(child, *at) == oid)?;
        let parent = tables.iter().find(|table| table.id == key.parent_of(child.id))?;
        Some(definition_text(child, key, parent, &written(number_of(parent))))
    })
}

/// The check that has this number.
fn check_of(tables: &[Arc<TableSchema>], oid: i32) -> Option<String> {
    let mut found = tables.iter().flat_map(|table| {
        let checks = table.options.rules.checks.iter().enumerate();
        checks
            .filter(|(at, _)| number_of_check(table, *at) == oid)
            .map(|(_, check)| format!("CHECK (({}))", check.expr))
    });
    found.next()
}

fn index_relation(of: &Index<'_>, namespace: i32) -> CatalogRow<'static> {
    let number = of.number();
    vec![
        ("oid", ScalarValue::from(number)),
        ("relname", ScalarValue::from(of.name.clone())),
        ("relnamespace", ScalarValue::from(namespace)),
        ("relam", ScalarValue::from(BTREE)),
        ("relfilenode", ScalarValue::from(number)),
        ("relpersistence", ScalarValue::from(if of.table.id.is_temporary() { "t" } else { "p" })),
        ("relkind", ScalarValue::from("i")),
        ("relnatts", ScalarValue::from(of.columns.len() as i16)),
        ("relispopulated", ScalarValue::from(true)),
        ("relreplident", ScalarValue::from("n")),
    ]
}

fn index_columns(of: &Index<'_>) -> Vec<CatalogRow<'static>> {
    let columns = of.columns.iter().enumerate().filter_map(|(place, (at, _))| {
        let (data_type, modifier) = type_of(of.table, *at)?;
        Some(vec![
            ("attrelid", ScalarValue::from(of.number())),
            ("attname", ScalarValue::from(of.table.columns[*at].name.clone())),
            ("atttypid", ScalarValue::from(data_type)),
            ("attstattarget", ScalarValue::from(-1_i32)),
            ("attnum", ScalarValue::from(place as i16 + 1)),
            ("attcacheoff", ScalarValue::from(-1_i32)),
            ("atttypmod", ScalarValue::from(modifier)),
            ("attislocal", ScalarValue::from(true)),
        ])
    });
    columns.collect()
}

/// Rows by names of columns; what a row does not say is NULL, or nothing where it may not be.
fn batch(schema: &SchemaRef, rows: &[CatalogRow]) -> Result<RecordBatch> {
    let columns = schema.fields().iter().map(|field| -> Result<ArrayRef> {
        let missing = match field.is_nullable() {
            true => ScalarValue::try_new_null(field.data_type())?,
            false => ScalarValue::new_default(field.data_type())?,
        };
        let cell = |row: &CatalogRow| match row.iter().find(|(name, _)| name == field.name()) {
            Some((_, cell)) => cell.cast_to(field.data_type()),
            None => Ok(missing.clone()),
        };
        let cells = rows.iter().map(cell).collect::<Result<Vec<ScalarValue>>>()?;
        match cells.is_empty() {
            true => Ok(new_empty_array(field.data_type())),
            false => ScalarValue::iter_to_array(cells),
        }
    });
    Ok(RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_>>()?)?)
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| DataFusionError::Internal(format!("pg_catalog has no column {name}")))
}

fn numbers(batch: &RecordBatch, name: &str) -> Result<Vec<i32>> {
    Ok(column(batch, name)?.as_primitive::<Int32Type>().values().to_vec())
}

fn texts(batch: &RecordBatch, name: &str) -> Result<Vec<String>> {
    Ok(column(batch, name)?.as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_owned()).collect())
}

/// With other values in a column.
fn with(batch: &RecordBatch, name: &str, values: ArrayRef) -> Result<RecordBatch> {
    let at = batch.schema().index_of(name)?;
    let mut columns = batch.columns().to_vec();
    columns[at] = values;
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}

/// `pg_get_indexdef` and `pg_get_constraintdef`.
pub(crate) fn functions(node: &Arc<Node>, own: &OwnSchema, written: &RelationNamer) -> [ScalarUDF; 2] {
    let told = |name: &str, first: i32, tell: fn(&Index<'_>) -> String| {
        let (node, own, written) = (Arc::clone(node), Arc::clone(&own.temporary), Arc::clone(written));
        let kinds = [1, 2, 3].map(TypeSignature::Any).to_vec();
        let signature = Signature::one_of(kinds, Volatility::Stable);
        let answer = move |args: &[ColumnarValue]| {
            let args = ColumnarValue::values_to_arrays(args)?;
            let oids = cast(&args[0], &DataType::Int32)?;
            let mut tables = own.public(node.catalog());
            tables.extend(own.schemas());
            // A second number asks for one column alone.
            let places = match args.get(1).filter(|place| place.data_type().is_integer()) {
                Some(places) => Some(cast(places, &DataType::Int32)?),
                None => None,
            };
            let texts = oids.as_primitive::<Int32Type>().iter().enumerate().map(|(row, oid)| {
                if first == CONSTRAINTS && oid? >= FOREIGN_KEYS {
                    return foreign_key_of(&tables, oid?, &written);
                }
                if first == CONSTRAINTS && oid? >= CHECKS {
                    return check_of(&tables, oid?);
                }
                let place = oid?.checked_sub(first)?;
                let index = tables.iter().flat_map(|table| indexes(table)).find(|index| index.place == place)?;
                let place = places.as_ref().map_or(0, |places| places.as_primitive::<Int32Type>().value(row));
                match usize::try_from(place).ok()?.checked_sub(1) {
                    None => Some(tell(&index)),
                    Some(at) => Some(quote(&index.table.columns[index.columns.get(at)?.0].name)),
                }
            });
            let texts: StringArray = texts.collect();
            Ok(ColumnarValue::Array(Arc::new(texts)))
        };
        SimpleScalarUDF::new_with_signature(name, signature, DataType::Utf8, Arc::new(answer)).into()
    };
    [
        told("pg_get_indexdef", INDEXES, definition),
        told("pg_get_constraintdef", CONSTRAINTS, |of| {
            let kind = if of.is_primary { "PRIMARY KEY" } else { "UNIQUE" };
            format!("{kind} ({})", columns_text(of, |_| String::new()))
        }),
    ]
}

/// The statement that makes the index, as PostgreSQL writes it.
fn definition(of: &Index<'_>) -> String {
    let (index, name) = (quote(&of.name), quote(full_name::bare(&of.table.name)));
    let schema = quote(schema_of(of.table));
    let columns = columns_text(of, order_text);
    let kind = if of.is_unique { "UNIQUE INDEX" } else { "INDEX" };
    format!("CREATE {kind} {index} ON {schema}.{name} USING btree ({columns})")
}

fn schema_of(table: &TableSchema) -> &str {
    if table.id.is_temporary() { "pg_temp" } else { full_name::schema_of(&table.name) }
}

impl PgTables {
    /// `pg_indexes`: each index by its name, with the statement that makes it.
    pub(crate) fn indexes(&self) -> Result<RecordBatch, tarn_query::Error> {
        let mut rows = SystemRows::new(&["schemaname", "tablename", "indexname", "tablespace", "indexdef"]);
        let own = self.temporary.schemas();
        for table in self.temporary.public(self.node.catalog()).iter().chain(&own) {
            for index in indexes(table) {
                rows.push(vec![
                    text(schema_of(table)),
                    text(full_name::bare(&table.name)),
                    text(&index.name),
                    SystemCell::Null,
                    text(&definition(&index)),
                ]);
            }
        }
        rows.finish()
    }
}

/// `a, b DESC`
fn columns_text(of: &Index<'_>, text: fn(&IndexedColumn) -> String) -> String {
    let column =
        |(at, order): &(usize, IndexedColumn)| format!("{}{}", quote(&of.table.columns[*at].name), text(order));
    of.columns.iter().map(column).collect::<Vec<_>>().join(", ")
}
