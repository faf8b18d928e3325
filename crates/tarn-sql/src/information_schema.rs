//! What does the SQL standard's `information_schema` say, as PostgreSQL has it? Types by PostgreSQL's names, keys,
//! views, sequences, and what there is none of (triggers) as empty tables. Functions are DataFusion's to list, those of
//! users beside them (`catalog_routines.rs`).

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema};
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::Expr;
use tarn_node::edges::{Edge, Edges};
use tarn_node::node::Node;
use tarn_node::sequences::{Sequence, Width};
use tarn_query::{Error, SystemSchema, SystemTables};
use tarn_types::{
    BARE_NUMERIC, CheckRule, DataType, Enumerated, Identity, Length, TableSchema, Unique, data_type_of, full_name,
};

use crate::catalog_routines::{ROUTINES, Routines};
use crate::catalog_sequences;
use crate::definition::{default_text, has_primary_key};
use crate::error::Result;
use crate::expressions::read;
use crate::names::DATABASE;
use crate::rows::{is_enumerated, long_name, pg_type};
use crate::temporary::OwnSchema;
use crate::view_text::definition;

pub(crate) const SCHEMA: &str = "information_schema";

/// Relations and their columns, of which those in [`INTEGERS`] are numbers and all others texts.
#[rustfmt::skip]
const RELATIONS: [(&str, &[&str]); 12] = [
    ("check_constraints", &["constraint_catalog", "constraint_schema", "constraint_name", "check_clause"]),
    ("columns", &[
        "table_catalog", "table_schema", "table_name", "column_name", "ordinal_position", "column_default", "is_nullable", "data_type",
        "character_maximum_length", "character_octet_length", "numeric_precision", "numeric_precision_radix", "numeric_scale",
        "datetime_precision", "interval_type", "interval_precision", "character_set_catalog", "character_set_schema",
        "character_set_name", "collation_catalog", "collation_schema", "collation_name", "domain_catalog", "domain_schema",
        "domain_name", "udt_catalog", "udt_schema", "udt_name", "scope_catalog", "scope_schema", "scope_name", "maximum_cardinality",
        "dtd_identifier", "is_self_referencing", "is_identity", "identity_generation", "identity_start", "identity_increment",
        "identity_maximum", "identity_minimum", "identity_cycle", "is_generated", "generation_expression", "is_updatable",
    ]),
    ("constraint_column_usage", &[
        "table_catalog", "table_schema", "table_name", "column_name", "constraint_catalog", "constraint_schema", "constraint_name",
    ]),
    ("key_column_usage", &[
        "constraint_catalog", "constraint_schema", "constraint_name", "table_catalog", "table_schema", "table_name", "column_name",
        "ordinal_position", "position_in_unique_constraint",
    ]),
    ("referential_constraints", &[
        "constraint_catalog", "constraint_schema", "constraint_name", "unique_constraint_catalog", "unique_constraint_schema",
        "unique_constraint_name", "match_option", "update_rule", "delete_rule",
    ]),
    ("schemata", &[
        "catalog_name", "schema_name", "schema_owner", "default_character_set_catalog", "default_character_set_schema",
        "default_character_set_name", "sql_path",
    ]),
    ("sequences", &[
        "sequence_catalog", "sequence_schema", "sequence_name", "data_type", "numeric_precision", "numeric_precision_radix",
        "numeric_scale", "start_value", "minimum_value", "maximum_value", "increment", "cycle_option",
    ]),
    ("table_constraints", &[
        "constraint_catalog", "constraint_schema", "constraint_name", "table_catalog", "table_schema", "table_name", "constraint_type",
        "is_deferrable", "initially_deferred", "enforced", "nulls_distinct",
    ]),
    ("tables", &[
        "table_catalog", "table_schema", "table_name", "table_type", "self_referencing_column_name", "reference_generation",
        "user_defined_type_catalog", "user_defined_type_schema", "user_defined_type_name", "is_insertable_into", "is_typed",
        "commit_action",
    ]),
    ("triggers", &[
        "trigger_catalog", "trigger_schema", "trigger_name", "event_manipulation", "event_object_catalog", "event_object_schema",
        "event_object_table", "action_order", "action_condition", "action_statement", "action_orientation", "action_timing",
    ]),
    ("view_column_usage", &[
        "view_catalog", "view_schema", "view_name", "table_catalog", "table_schema", "table_name", "column_name",
    ]),
    ("views", &[
        "table_catalog", "table_schema", "table_name", "view_definition", "check_option", "is_updatable", "is_insertable_into",
        "is_trigger_updatable", "is_trigger_deletable", "is_trigger_insertable_into",
    ]),
];

const INTEGERS: [&str; 12] = [
    "ordinal_position",
    "character_maximum_length",
    "character_octet_length",
    "numeric_precision",
    "numeric_precision_radix",
    "numeric_scale",
    "datetime_precision",
    "interval_precision",
    "maximum_cardinality",
    "position_in_unique_constraint",
    "action_order",
    "cardinality",
];

/// The schema of tables.
const PUBLIC: &str = full_name::PUBLIC;

/// Schemas whose relations nobody makes.
const OWN: [&str; 3] = ["tarn", "pg_catalog", SCHEMA];

/// Registers the schema with a session. Costs microseconds.
pub(crate) fn register(context: &SessionContext, node: &Arc<Node>, own: &OwnSchema) -> Result<()> {
    let Some(catalog) = context.catalog(DATABASE) else { return Ok(()) };
    let theirs = Arc::new(InformationSchemaProvider::new(Arc::clone(context.state().catalog_list())));
    // It holds the schema that is made here, too.
    let ours = InformationSchema { node: Arc::clone(node), own: own.clone(), catalog: Arc::downgrade(&catalog) };
    let ours = SystemSchema::new(Arc::new(ours));
    catalog.register_schema(SCHEMA, Arc::new(OursFirst { node: Arc::clone(node), ours, theirs }))?;
    Ok(())
}

struct OursFirst {
    node: Arc<Node>,
    ours: SystemSchema,
    theirs: Arc<InformationSchemaProvider>,
}

impl fmt::Debug for OursFirst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEMA)
    }
}

#[async_trait]
impl SchemaProvider for OursFirst {
    fn table_names(&self) -> Vec<String> {
        self.ours.table_names().into_iter().chain([ROUTINES.to_owned()]).collect()
    }

    async fn table(&self, name: &str) -> datafusion::error::Result<Option<Arc<dyn TableProvider>>> {
        match self.ours.table(name).await? {
            Some(ours) => Ok(Some(ours)),
            None if name == ROUTINES => {
                let theirs = self.theirs.table(name).await?;
                Ok(theirs.map(|theirs| Arc::new(Routines { theirs, node: Arc::clone(&self.node) }) as _))
            }
            None => self.theirs.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.ours.table_exist(name) || self.theirs.table_exist(name)
    }
}

struct InformationSchema {
    node: Arc<Node>,
    own: OwnSchema,
    catalog: Weak<dyn CatalogProvider>,
}

impl fmt::Debug for InformationSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relations")
    }
}

#[derive(Clone)]
enum SchemaCell {
    Text(String),
    Int(i32),
    Null,
}

fn text(value: &str) -> SchemaCell {
    SchemaCell::Text(value.to_owned())
}

fn yes(is: bool) -> SchemaCell {
    text(if is { "YES" } else { "NO" })
}

/// The rows of a relation; what a row does not say is NULL.
struct RelationRows {
    names: &'static [&'static str],
    columns: Vec<Vec<SchemaCell>>,
    n_rows: usize,
}

impl RelationRows {
    fn push<'a>(&mut self, cells: impl IntoIterator<Item = (&'a str, SchemaCell)>) {
        self.n_rows += 1;
        for (name, cell) in cells {
            if let Some(at) = self.names.iter().position(|known| *known == name) {
                self.columns[at].resize(self.n_rows - 1, SchemaCell::Null);
                self.columns[at].push(cell);
            }
        }
    }

    fn finish(mut self) -> std::result::Result<RecordBatch, Error> {
        let columns = self.names.iter().zip(&mut self.columns).map(|(name, cells)| {
            cells.resize(self.n_rows, SchemaCell::Null);
            let array: ArrayRef = match INTEGERS.contains(name) {
                true => Arc::new(
                    cells
                        .iter()
                        .map(|cell| if let SchemaCell::Int(v) = cell { Some(*v) } else { None })
                        .collect::<Int32Array>(),
                ),
                false => Arc::new(
                    cells
                        .iter()
                        .map(|cell| if let SchemaCell::Text(text) = cell { Some(text.as_str()) } else { None })
                        .collect::<StringArray>(),
                ),
            };
            (Field::new(*name, array.data_type().clone(), true), array)
        });
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.unzip();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(|e| Error::Sql { source: e.into() })
    }
}

#[async_trait]
impl SystemTables for InformationSchema {
    fn names(&self) -> Vec<String> {
        RELATIONS.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    async fn table(&self, name: &str) -> std::result::Result<RecordBatch, Error> {
        let Some((_, names)) = RELATIONS.iter().find(|(known, _)| *known == name) else {
            return Err(Error::NoSuchTable { name: format!("{SCHEMA}.{name}") });
        };
        let mut rows = RelationRows { names, columns: vec![vec![]; names.len()], n_rows: 0 };
        match name {
            "columns" => self.columns(&mut rows).await?,
            "sequences" => self.sequences(&mut rows).await?,
            "tables" => self.tables(&mut rows),
            "views" => self.views(&mut rows),
            "schemata" => {
                let mut push = |schema: &str, owner: &str| {
                    let owner = ("schema_owner", text(owner));
                    rows.push([("catalog_name", text(DATABASE)), ("schema_name", text(schema)), owner]);
                };
                [PUBLIC].into_iter().chain(OWN).for_each(|schema| push(schema, "postgres"));
                for of in self.node.schemas().all() {
                    push(&of.name, of.owner.as_deref().unwrap_or("postgres"));
                }
            }
            "check_constraints" => self.each_check(|table, check| {
                rows.push(check_place(table, check).into_iter().chain([("check_clause", text(&check.expr))]));
            }),
            "referential_constraints" => self.each_edge(|edge| {
                let unique = match &edge.referenced.unique {
                    // An index that is no constraint has no name there.
                    Some(unique) => (!unique.by_index).then(|| unique.name.clone()),
                    None => Some(edge.parent.key_name()),
                };
                let of_unique = unique.iter().flat_map(|name| {
                    [
                        ("unique_constraint_catalog", text(DATABASE)),
                        ("unique_constraint_schema", text(full_name::schema_of(&edge.parent.name))),
                        ("unique_constraint_name", text(name)),
                    ]
                });
                let rules = [
                    ("match_option", text(if edge.key.match_full { "FULL" } else { "NONE" })),
                    ("update_rule", SchemaCell::Text(edge.key.on_update.to_string())),
                    ("delete_rule", SchemaCell::Text(edge.key.on_delete.to_string())),
                ];
                rows.push(named(&edge.child, &edge.key.name).into_iter().chain(of_unique).chain(rules));
            }),
            "table_constraints" => {
                let more = || {
                    let more = [("is_deferrable", yes(false)), ("initially_deferred", yes(false))];
                    more.into_iter().chain([("enforced", yes(true))])
                };
                self.each_key(|table| {
                    let kind = [("constraint_type", text("PRIMARY KEY"))];
                    rows.push(of_table(&table.name).into_iter().chain(constraint(table)).chain(kind).chain(more()));
                });
                self.each_unique(|table, unique| {
                    let kind = [("constraint_type", text("UNIQUE"))];
                    let of = of_table(&table.name).into_iter().chain(named(table, &unique.name));
                    rows.push(of.chain(kind).chain(more()).chain([("nulls_distinct", yes(true))]));
                });
                self.each_edge(|edge| {
                    let kind = [("constraint_type", text("FOREIGN KEY"))];
                    let more = [
                        ("is_deferrable", yes(edge.key.deferrable)),
                        ("initially_deferred", yes(edge.key.initially_deferred)),
                        ("enforced", yes(true)),
                    ];
                    let of = of_table(&edge.child.name).into_iter().chain(named(&edge.child, &edge.key.name));
                    rows.push(of.chain(kind).chain(more));
                });
                self.each_check(|table, check| {
                    let kind = [("constraint_type", text("CHECK"))];
                    let of = of_table(&table.name).into_iter().chain(check_place(table, check));
                    rows.push(of.chain(kind).chain(more()));
                });
            }
            "key_column_usage" | "constraint_column_usage" => {
                self.each_key(|table| {
                    for (at, column) in table.key_columns().enumerate() {
                        let column =
                            [("column_name", text(&column.name)), ("ordinal_position", SchemaCell::Int(at as i32 + 1))];
                        rows.push(of_table(&table.name).into_iter().chain(constraint(table)).chain(column));
                    }
                });
                self.each_unique(|table, unique| {
                    let columns = unique.columns.iter().filter_map(|id| table.column_by_id(*id));
                    for (at, column) in columns.enumerate() {
                        let column =
                            [("column_name", text(&column.name)), ("ordinal_position", SchemaCell::Int(at as i32 + 1))];
                        let of = of_table(&table.name).into_iter().chain(named(table, &unique.name));
                        rows.push(of.chain(column));
                    }
                });
                self.each_edge(|edge| {
                    let (table, ids) = match name {
                        "constraint_column_usage" => (&edge.parent, &edge.key.parent_columns),
                        _ => (&edge.child, &edge.key.columns),
                    };
                    for (at, column) in ids.iter().filter_map(|id| table.column_by_id(*id)).enumerate() {
                        // Where the column that it refers to stands in the parent's key.
                        let in_key = edge.referenced.order.iter().position(|place| *place == at).unwrap_or(at);
                        let cells = [
                            ("column_name", text(&column.name)),
                            ("ordinal_position", SchemaCell::Int(at as i32 + 1)),
                            ("position_in_unique_constraint", SchemaCell::Int(in_key as i32 + 1)),
                        ];
                        let of = of_table(&table.name).into_iter().chain(named(&edge.child, &edge.key.name));
                        rows.push(of.chain(cells));
                    }
                });
                if name == "constraint_column_usage" {
                    self.each_check(|table, check| {
                        for column in check.columns.iter().filter_map(|id| table.column_by_id(*id)) {
                            let of = of_table(&table.name).into_iter().chain(check_place(table, check));
                            rows.push(of.chain([("column_name", text(&column.name))]));
                        }
                    });
                }
            }
            _ => {}
        }
        rows.finish()
    }
}

fn check_place(table: &TableSchema, check: &CheckRule) -> [(&'static str, SchemaCell); 3] {
    named(table, &check.name)
}

/// A constraint, which is in the schema of its table.
fn named(table: &TableSchema, constraint: &str) -> [(&'static str, SchemaCell); 3] {
    let schema = full_name::schema_of(&table.name);
    [("constraint_catalog", text(DATABASE)), ("constraint_schema", text(schema)), ("constraint_name", text(constraint))]
}

fn of_table(full: &str) -> [(&'static str, SchemaCell); 3] {
    let (schema, table) = full_name::split(full);
    place(schema, table)
}

fn place(schema: &str, table: &str) -> [(&'static str, SchemaCell); 3] {
    [("table_catalog", text(DATABASE)), ("table_schema", text(schema)), ("table_name", text(table))]
}

fn constraint(table: &TableSchema) -> [(&'static str, SchemaCell); 3] {
    named(table, &table.key_name())
}

impl InformationSchema {
    /// The tables and views of `public` and of schemas that somebody made.
    fn public(&self) -> Vec<Arc<TableSchema>> {
        self.own.temporary.public(self.node.catalog())
    }

    /// Tables with a primary key.
    fn each_key(&self, mut each: impl FnMut(&TableSchema)) {
        for table in self.public() {
            // Views and archives have none.
            if has_primary_key(&table) {
                each(&table);
            }
        }
    }

    fn each_unique(&self, mut each: impl FnMut(&TableSchema, &Unique)) {
        for table in self.public() {
            let uniques = table.options.rules.uniques.iter().filter(|unique| !unique.by_index);
            uniques.for_each(|unique| each(&table, unique));
        }
    }

    fn each_edge(&self, mut each: impl FnMut(&Edge)) {
        Edges::of(&self.public()).all.iter().for_each(&mut each);
    }

    fn each_check(&self, mut each: impl FnMut(&TableSchema, &CheckRule)) {
        for table in self.public() {
            table.options.rules.checks.iter().for_each(|check| each(&table, check));
        }
    }

    /// The relations of the other schemas.
    fn own(&self) -> Vec<(&'static str, Arc<dyn SchemaProvider>)> {
        let Some(catalog) = self.catalog.upgrade() else { return vec![] };
        OWN.into_iter().filter_map(|schema| Some((schema, catalog.schema(schema)?))).collect()
    }

    fn tables(&self, rows: &mut RelationRows) {
        let mut push = |schema: &str, name: &str, kind: &str, is_table: bool| {
            let kind = [("table_type", text(kind)), ("is_insertable_into", yes(is_table)), ("is_typed", yes(false))];
            rows.push(place(schema, name).into_iter().chain(kind));
        };
        for schema in self.public() {
            let is_table = !schema.is_view();
            let (of, name) = full_name::split(&schema.name);
            push(of, name, if is_table { "BASE TABLE" } else { "VIEW" }, is_table);
        }
        for schema in self.own.temporary.schemas() {
            push(&self.own.name, &schema.name, "LOCAL TEMPORARY", !schema.is_view());
        }
        for (schema, relations) in self.own() {
            relations.table_names().iter().for_each(|name| push(schema, name, "VIEW", false));
        }
    }

    fn views(&self, rows: &mut RelationRows) {
        let own = self.own.temporary.schemas();
        for schema in self.public().into_iter().chain(own).filter(|schema| schema.is_view()) {
            let (of, name) = match schema.id.is_temporary() {
                true => (self.own.name.as_str(), schema.name.as_str()),
                false => full_name::split(&schema.name),
            };
            let query =
                schema.options.view.as_ref().map_or(SchemaCell::Null, |view| SchemaCell::Text(definition(view)));
            let kind =
                [("check_option", text("NONE")), ("is_updatable", yes(false)), ("is_insertable_into", yes(false))];
            let triggers = ["is_trigger_updatable", "is_trigger_deletable", "is_trigger_insertable_into"];
            let triggers = triggers.map(|name| (name, yes(false)));
            rows.push(place(of, name).into_iter().chain([("view_definition", query)]).chain(kind).chain(triggers));
        }
        for (schema, relations) in self.own() {
            for name in relations.table_names() {
                let kind =
                    [("check_option", text("NONE")), ("is_updatable", yes(false)), ("is_insertable_into", yes(false))];
                rows.push(place(schema, &name).into_iter().chain(kind));
            }
        }
    }

    async fn all_sequences(&self) -> std::result::Result<Vec<(String, Sequence)>, Error> {
        catalog_sequences::all(&self.node).await.map_err(|error| Error::Sql { source: error.into() })
    }

    async fn sequences(&self, rows: &mut RelationRows) -> std::result::Result<(), Error> {
        for (name, of) in self.all_sequences().await? {
            let number = |number: i64| SchemaCell::Text(number.to_string());
            rows.push([
                ("sequence_catalog", text(DATABASE)),
                ("sequence_schema", text(full_name::schema_of(&name))),
                ("sequence_name", text(full_name::bare(&name))),
                ("data_type", text(of.width.name())),
                ("numeric_precision", SchemaCell::Int(bits(of.width))),
                ("numeric_precision_radix", SchemaCell::Int(2)),
                ("numeric_scale", SchemaCell::Int(0)),
                ("start_value", number(of.start)),
                ("minimum_value", number(of.min)),
                ("maximum_value", number(of.max)),
                ("increment", number(of.increment)),
                ("cycle_option", yes(of.cycle)),
            ]);
        }
        Ok(())
    }

    async fn columns(&self, rows: &mut RelationRows) -> std::result::Result<(), Error> {
        let sequences = self.all_sequences().await?;
        let own = self.own.temporary.schemas();
        for table in self.public().into_iter().chain(own) {
            let table = &*table;
            let schema = match table.id.is_temporary() {
                true => self.own.name.as_str(),
                false => full_name::schema_of(&table.name),
            };
            let name = full_name::bare(&table.name);
            let stored = table.arrow();
            for (at, field) in stored.fields().iter().take(table.shown().len()).enumerate() {
                let default = default_text(table, at).map_or(SchemaCell::Null, SchemaCell::Text);
                let more = [("column_default", default), ("is_updatable", yes(!table.is_view() && !table.is_key(at)))];
                let more = identity(table, at, &sequences).into_iter().chain(generated(table, at)).chain(more);
                // What is said last counts.
                let mut cells: Vec<_> = described(at, field);
                for (name, cell) in more {
                    cells.retain(|(other, _)| *other != name);
                    cells.push((name, cell));
                }
                rows.push(place(schema, name).into_iter().chain(cells));
            }
        }
        for (schema, relations) in self.own() {
            // Its own are those of this file, which is reading them.
            for name in relations.table_names().into_iter().filter(|_| schema != SCHEMA) {
                let table = relations.table(&name).await.map_err(|source| Error::Sql { source })?;
                let Some(table) = table else { continue };
                for (at, field) in table.schema().fields().iter().enumerate() {
                    let more = [("is_updatable", yes(false))];
                    rows.push(place(schema, &name).into_iter().chain(described(at, field)).chain(more));
                }
            }
        }
        Ok(())
    }
}

fn bits(of: Width) -> i32 {
    match of {
        Width::Smallint => 16,
        Width::Integer => 32,
        Width::Bigint => 64,
    }
}

/// What is said of an identity column.
fn identity(table: &TableSchema, at: usize, sequences: &[(String, Sequence)]) -> Vec<(&'static str, SchemaCell)> {
    let Some(identity) = table.rules_of(at).and_then(|rules| rules.identity) else { return vec![] };
    let generation = match identity {
        Identity::Always => "ALWAYS",
        Identity::ByDefault => "BY DEFAULT",
    };
    let mut cells = vec![("is_identity", yes(true)), ("identity_generation", text(generation))];
    let is_its = |of: &Sequence| {
        of.owner.as_ref().is_some_and(|owner| owner.table == table.name && owner.column == table.columns[at].name)
    };
    if let Some((_, of)) = sequences.iter().find(|(_, of)| is_its(of)) {
        let number = |number: i64| SchemaCell::Text(number.to_string());
        cells.extend([
            ("identity_start", number(of.start)),
            ("identity_increment", number(of.increment)),
            ("identity_maximum", number(of.max)),
            ("identity_minimum", number(of.min)),
            ("identity_cycle", yes(of.cycle)),
        ]);
    }
    cells
}

/// What is said of a generated column.
fn generated(table: &TableSchema, at: usize) -> Vec<(&'static str, SchemaCell)> {
    let Some(generated) = table.generated(at) else { return vec![] };
    let is_shown_in_parentheses = matches!(read(&generated.expr), Ok(Expr::BinaryOp { .. }));
    let shown = if is_shown_in_parentheses { format!("({})", generated.expr) } else { generated.expr.clone() };
    vec![("is_generated", text("ALWAYS")), ("generation_expression", SchemaCell::Text(shown))]
}

/// What is said of every column.
fn described(at: usize, field: &Field) -> Vec<(&'static str, SchemaCell)> {
    let number = at as i32 + 1;
    let mut cells = vec![
        ("column_name", text(field.name())),
        ("ordinal_position", SchemaCell::Int(number)),
        ("is_nullable", yes(field.is_nullable())),
        ("udt_catalog", text(DATABASE)),
        ("dtd_identifier", SchemaCell::Text(number.to_string())),
        ("is_self_referencing", yes(false)),
        ("is_identity", yes(false)),
        ("identity_cycle", yes(false)),
        ("is_generated", text("NEVER")),
    ];
    if let Ok(of) = pg_type(field) {
        cells.push(("udt_name", text(of.name())));
        let is_array = matches!(field.data_type(), ArrowType::List(_) | ArrowType::LargeList(_));
        let is_made = is_enumerated(&of);
        cells.push(("udt_schema", text(if is_made { of.schema() } else { "pg_catalog" })));
        cells.push(match () {
            () if is_array => ("data_type", text("ARRAY")),
            () if is_made => ("data_type", text("USER-DEFINED")),
            () => ("data_type", SchemaCell::Text(long_name(&of))),
        });
    }
    // Of an array nothing is said.
    if let Some(length) = Length::of(field).filter(|_| !field.data_type().is_list()) {
        let n = i32::try_from(length.n_chars()).unwrap_or(i32::MAX);
        cells.push(("character_maximum_length", SchemaCell::Int(n)));
        // Of a character up to four bytes.
        cells.push(("character_octet_length", SchemaCell::Int(n.saturating_mul(4))));
    }
    let binary = |bits| {
        let scale = if bits == 24 || bits == 53 { SchemaCell::Null } else { SchemaCell::Int(0) };
        vec![
            ("numeric_precision", SchemaCell::Int(bits)),
            ("numeric_precision_radix", SchemaCell::Int(2)),
            ("numeric_scale", scale),
        ]
    };
    cells.extend(match data_type_of(field) {
        Ok(DataType::Int16) => binary(16),
        Ok(DataType::Int32) => binary(32),
        Ok(DataType::Int64) => binary(64),
        Ok(DataType::Float32) => binary(24),
        Ok(DataType::Float64) => binary(53),
        Ok(BARE_NUMERIC) => vec![("numeric_precision_radix", SchemaCell::Int(10))],
        Ok(DataType::Decimal { precision, scale }) => vec![
            ("numeric_precision", SchemaCell::Int(precision.into())),
            ("numeric_precision_radix", SchemaCell::Int(10)),
            ("numeric_scale", SchemaCell::Int(scale.into())),
        ],
        Ok(DataType::Text) if Length::of(field).is_some() || Enumerated::of(field).is_some() => vec![],
        Ok(DataType::Text | DataType::Bytes) => vec![("character_octet_length", SchemaCell::Int(1 << 30))],
        Ok(DataType::Date) => vec![("datetime_precision", SchemaCell::Int(0))],
        Ok(DataType::Time | DataType::Timestamp | DataType::TimestampTz) => {
            vec![("datetime_precision", SchemaCell::Int(6))]
        }
        _ => vec![],
    });
    cells
}
