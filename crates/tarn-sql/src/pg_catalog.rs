//! What do Postgres tools see of the catalog?
//!
//! `pg_catalog` and Postgres' session functions, by crate `datafusion-pg-catalog`, in one session; beside them what
//! that crate lacks, and answers to the few queries of drivers that no planner of ours could run.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::{
    ColumnarValue, ScalarUDF, Signature, SimpleScalarUDF, TypeSignature, Volatility, create_udf,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, Ident, SetExpr, Statement, Value, Visitor};
use datafusion_pg_catalog::pg_catalog::context::{PgCatalogContextProvider, Role};
use tarn_node::auth::Directory;
use tarn_node::node::Node;
use tarn_query::parser::statements;
use tarn_query::{SystemSchema, walk};

use crate::catalog_functions;
use crate::catalog_numbers::Listed;
use crate::catalog_types;
use crate::described;
use crate::error::{Result, SqlError};
use crate::information_schema;
use crate::names::{DATABASE, SERVER_VERSION, column_of, fold};
use crate::postgres::{all_of, binary, identifiers};
use crate::relations;
use crate::system_activity::PgTables;
use crate::temporary::OwnSchema;
use crate::visible;

const SCHEMA: &str = "pg_catalog";

/// There are no triggers and rules of users, and nobody says anything of roles: NULL.
const NOTHING_TOLD: [&str; 3] = ["pg_get_ruledef", "pg_get_triggerdef", "shobj_description"];

/// All that is there can be seen; a node that answers is no standby, and temporary tables of other sessions are not
/// there.
const ALWAYS: [(&str, bool); 4] = [
    ("pg_collation_is_visible", true),
    ("pg_is_in_recovery", false),
    ("pg_is_other_temp_schema", false),
    ("pg_operator_is_visible", true),
];

/// A function that answers the same, whatever it is asked.
fn constant(name: &str, answer: ScalarValue) -> ScalarUDF {
    let signature = Signature::one_of(vec![TypeSignature::Nullary, TypeSignature::VariadicAny], Volatility::Stable);
    let data_type = answer.data_type();
    let tell = Arc::new(move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(answer.clone())));
    SimpleScalarUDF::new_with_signature(name, signature, data_type, tell).into()
}

/// Registers schemas `pg_catalog` and `information_schema` and their functions with a session of `user`, and what is
/// ours of it. Costs milliseconds.
pub(crate) fn register(
    context: &SessionContext,
    user: &str,
    users: &Arc<Directory>,
    ours: PgTables,
    temporary: &OwnSchema,
) -> Result<()> {
    let types = Arc::clone(ours.node.types());
    let listed = Arc::new(Listed::default());
    let visible = visible::functions(&ours.node, &ours.vars, &temporary.temporary, &listed);
    let written = visible::written(&ours.node, &ours.vars, &temporary.temporary, &listed);
    information_schema::register(context, &ours.node, temporary)?;
    let state = context.state_ref();
    let own = SessionStateBuilder::new_from_existing(state.read().clone()).type_planner().take();
    datafusion_pg_catalog::setup_pg_catalog(context, DATABASE, Roles(Arc::clone(users)))
        .map_err(|error| SqlError::from(*error))?;
    // The crate puts its types in the place of ours.
    let mut with_both = SessionStateBuilder::new_from_existing(state.read().clone());
    let theirs = with_both.type_planner().take();
    let with_both = with_both.with_type_planner(Arc::new(BothTypes { own, theirs })).build();
    *state.write() = with_both;
    if let Some(catalog) = context.catalog(DATABASE)
        && let Some(theirs) = catalog.schema(SCHEMA)
    {
        let node = Arc::clone(&ours.node);
        relations::functions(&node, temporary, &written)
            .into_iter()
            .for_each(|function| context.register_udf(function));
        described::functions(&node, &temporary.temporary)
            .into_iter()
            .for_each(|function| context.register_udf(function));
        catalog_functions::described(&node).into_iter().for_each(|function| context.register_udf(function));
        // By them names of relations are found; the crate's own take no blanks around dots, which ADBC writes.
        let names = identifiers::functions().into_iter();
        names.for_each(|function| context.register_udf(function.as_ref().clone()));
        let ours = SystemSchema::new(Arc::new(ours));
        catalog.register_schema(SCHEMA, Arc::new(WithOurs { theirs, ours, node, own: temporary.clone(), listed }))?;
    }
    visible.into_iter().for_each(|function| context.register_udf(function));
    catalog_types::functions(context, &types).into_iter().for_each(|function| context.register_udf(function));
    let user = user.to_owned();
    // current_user is written as session_user, too.
    context.register_udf(create_udf(
        "session_user",
        vec![],
        DataType::Utf8,
        Volatility::Stable,
        Arc::new(move |_| Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(user.clone()))))),
    ));
    let version = format!("PostgreSQL {SERVER_VERSION} (Tarn {})", env!("CARGO_PKG_VERSION"));
    context.register_udf(create_udf(
        "version",
        vec![],
        DataType::Utf8,
        Volatility::Immutable,
        Arc::new(move |_| Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(version.clone()))))),
    ));
    // Defaults are kept as they are written.
    let kinds = [TypeSignature::Any(2), TypeSignature::Any(3)];
    let signature = Signature::one_of(kinds.to_vec(), Volatility::Immutable);
    let written = Arc::new(|arguments: &[ColumnarValue]| Ok(arguments[0].clone()));
    context.register_udf(SimpleScalarUDF::new_with_signature("pg_get_expr", signature, DataType::Utf8, written).into());
    // Sizes by object id are not known here: see tarn.tables.
    context.register_udf(create_udf(
        "pg_table_size",
        vec![DataType::Int32],
        DataType::Int64,
        Volatility::Stable,
        Arc::new(|arguments| Ok(ColumnarValue::Array(Arc::new(Int64Array::new_null(rows_of(arguments)))))),
    ));
    NOTHING_TOLD.iter().for_each(|name| context.register_udf(constant(name, ScalarValue::Utf8(None))));
    ALWAYS.iter().for_each(|(name, is)| context.register_udf(constant(name, ScalarValue::Boolean(Some(*is)))));
    context.register_udf(create_udf(
        "pg_size_pretty",
        vec![DataType::Int64],
        DataType::Utf8,
        Volatility::Immutable,
        Arc::new(|arguments| {
            let sizes = arguments[0].to_array(rows_of(arguments))?;
            let sizes = sizes.as_primitive::<Int64Type>();
            let texts: StringArray = sizes.iter().map(|size| size.map(pretty)).collect();
            Ok(ColumnarValue::Array(Arc::new(texts)))
        }),
    ));
    Ok(())
}

/// Takes them from a session that ends: each holds the session's catalog, which holds it, and neither would ever be
/// freed.
pub fn forget(context: &SessionContext) {
    if let Some(catalog) = context.catalog(DATABASE) {
        for schema in [SCHEMA, information_schema::SCHEMA] {
            let _ = catalog.deregister_schema(schema, true);
        }
    }
}

/// Types of columns, and those of the catalog: `regclass` and its kin.
#[derive(Debug)]
struct BothTypes {
    own: Option<Arc<dyn TypePlanner>>,
    theirs: Option<Arc<dyn TypePlanner>>,
}

impl TypePlanner for BothTypes {
    fn plan_type_field(&self, named: &ast::DataType) -> datafusion::error::Result<Option<FieldRef>> {
        for types in [&self.own, &self.theirs].into_iter().flatten() {
            if let Some(field) = types.plan_type_field(named)? {
                return Ok(Some(field));
            }
        }
        Ok(None)
    }
}

/// Schema `pg_catalog`.
struct WithOurs {
    theirs: Arc<dyn SchemaProvider>,
    ours: SystemSchema,
    node: Arc<Node>,
    own: OwnSchema,
    listed: Arc<Listed>,
}

impl fmt::Debug for WithOurs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEMA)
    }
}

#[async_trait]
impl SchemaProvider for WithOurs {
    fn table_names(&self) -> Vec<String> {
        // What both have is ours, and there once.
        let ours = self.ours.table_names();
        self.theirs.table_names().into_iter().filter(|name| !ours.contains(name)).chain(ours.clone()).collect()
    }

    async fn table(&self, name: &str) -> datafusion::error::Result<Option<Arc<dyn TableProvider>>> {
        if let Some(ours) = self.ours.table(name).await? {
            return Ok(Some(ours));
        }
        match relations::relation(name, &self.node, &self.own, &self.theirs, &self.listed).await? {
            Some(ours) => Ok(Some(ours)),
            None => self.theirs.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.ours.table_exist(name) || self.theirs.table_exist(name)
    }
}

/// Fills `pg_roles`.
#[derive(Clone)]
struct Roles(Arc<Directory>);

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Roles")
    }
}

#[async_trait]
impl PgCatalogContextProvider for Roles {
    async fn roles(&self) -> Vec<String> {
        self.0.users().all().map(|(name, _)| name.to_owned()).collect()
    }

    async fn role(&self, name: &str) -> Option<Role> {
        // It is asked for by names that were there a moment ago, and may not be missing.
        let user = self.0.users().get(name).cloned();
        let (is_superuser, can_login) = user.map_or((false, false), |user| (user.superuser, user.login));
        Some(Role {
            name: name.to_owned(),
            is_superuser,
            can_login,
            can_create_db: is_superuser,
            can_create_role: is_superuser,
            can_create_user: is_superuser,
            can_replication: false,
            grants: vec![],
            inherited_roles: vec![],
        })
    }
}

fn rows_of(arguments: &[ColumnarValue]) -> usize {
    arguments.iter().map(|a| if let ColumnarValue::Array(array) = a { array.len() } else { 1 }).max().unwrap_or(1)
}

fn pretty(bytes: i64) -> String {
    let mut size = bytes;
    for unit in ["bytes", "kB", "MB", "GB"] {
        if size.abs() < 10 * 1024 {
            return format!("{size} {unit}");
        }
        size /= 1024;
    }
    format!("{size} TB")
}

/// JDBC's `getPrimaryKeys` and `getIndexInfo` expand arrays of composites: the same answers from `information_schema`
/// and `tarn.keys`.
pub fn substitute(statement: Statement) -> Result<Statement> {
    let mut asked = KeysAsked::default();
    let _ = walk(&statement, &mut asked);
    if !asked.expands || !(asked.primary || asked.indexes) {
        return Ok(statement);
    }
    const INDEXES: &str = "SELECT current_database() AS \"TABLE_CAT\", table_schema AS \"TABLE_SCHEM\", table_name AS \"TABLE_NAME\", \
         repeats AS \"NON_UNIQUE\", NULL::text AS \"INDEX_QUALIFIER\", index_name AS \"INDEX_NAME\", 3::smallint AS \"TYPE\", \
         position AS \"ORDINAL_POSITION\", column_name AS \"COLUMN_NAME\", CASE WHEN descending THEN 'D' ELSE 'A' END AS \"ASC_OR_DESC\", \
         NULL::bigint AS \"CARDINALITY\", NULL::bigint AS \"PAGES\", NULL::text AS \"FILTER_CONDITION\", NULL::text AS \"REMARKS\" \
         FROM (SELECT n.nspname AS table_schema, t.relname AS table_name, a.attname AS column_name, a.attnum::bigint AS position, i.relname AS index_name, \
         x.indoption[a.attnum] & 1 = 1 AS descending, NOT x.indisunique AS repeats FROM pg_catalog.pg_index x \
         JOIN pg_catalog.pg_class t ON t.oid = x.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
         JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid \
         JOIN pg_catalog.pg_attribute a ON a.attrelid = i.oid) indexes ORDER BY table_name, repeats, index_name, position";
    const KEYS: &str = "SELECT NULL::text AS \"TABLE_CAT\", table_schema AS \"TABLE_SCHEM\", table_name AS \"TABLE_NAME\", \
         column_name AS \"COLUMN_NAME\", position AS \"KEY_SEQ\", key_name AS \"PK_NAME\", true AS \"IS_NOT_NULL\" \
         FROM (SELECT k.table_schema, k.table_name, k.column_name, k.ordinal_position::bigint AS position, k.constraint_name AS key_name \
         FROM information_schema.key_column_usage k JOIN information_schema.table_constraints c ON c.table_schema = k.table_schema \
         AND c.table_name = k.table_name AND c.constraint_name = k.constraint_name WHERE c.constraint_type = 'PRIMARY KEY') keys \
         ORDER BY table_name, position";
    let mut keys = statements(if asked.indexes { INDEXES } else { KEYS })?.pop();
    if let Some(Statement::Query(query)) = &mut keys
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        select.selection = all_of(asked.conditions);
    }
    keys.ok_or_else(|| SqlError::new(crate::error::state::INTERNAL, "a query was replaced by nothing"))
}

/// What a query for primary keys, or for indexes, asks for.
#[derive(Default)]
struct KeysAsked {
    expands: bool,
    primary: bool,
    indexes: bool,
    /// The same of what is read instead.
    conditions: Vec<Expr>,
}

impl Visitor for KeysAsked {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) => {
                let name = function.name.0.last().and_then(|part| part.as_ident());
                self.expands |= name.is_some_and(|name| name.value.eq_ignore_ascii_case("_pg_expandarray"));
            }
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                let name = column_of(expr).map(fold);
                self.primary |= matches!(name.as_deref(), Some("indisprimary" | "contype"));
                self.indexes |= name.as_deref() == Some("indoption");
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                let text = |text: &str| Expr::Value(Value::SingleQuotedString(text.to_owned()).with_empty_span());
                let asked = match column_of(left).map(|column| column.value.as_str()) {
                    Some("relname") => Expr::Identifier(Ident::new("table_name")),
                    Some("nspname") => Expr::Identifier(Ident::new("table_schema")),
                    _ => return ControlFlow::Continue(()),
                };
                if let Expr::Value(value) = right.as_ref() {
                    let wanted = match &value.value {
                        Value::SingleQuotedString(wanted) | Value::EscapedStringLiteral(wanted) => text(wanted),
                        Value::Placeholder(_) => right.as_ref().clone(),
                        _ => return ControlFlow::Continue(()),
                    };
                    self.conditions.push(binary(asked, BinaryOperator::Eq, wanted));
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{ParsedSql, parse};

    #[test]
    fn the_table_of_a_primary_key_query_is_found() {
        let sql = "SELECT information_schema._pg_expandarray(i.indkey) FROM x WHERE ct.relname = 'it''s' AND n.nspname = 'public' AND i.indisprimary";
        let ParsedSql::Sql(replaced) = parse(sql).unwrap().remove(0) else { panic!() };
        assert!(replaced.to_string().contains("table_name = 'it''s' AND table_schema = 'public'"), "{replaced}");
        let sql = "SELECT information_schema._pg_expandarray(i.indkey), i.indoption FROM x WHERE n.nspname = $1 AND ct.relname = $2 AND i.indisunique";
        let ParsedSql::Sql(replaced) = parse(sql).unwrap().remove(0) else { panic!() };
        assert!(replaced.to_string().contains("table_schema = $1 AND table_name = $2"), "{replaced}");
    }

    #[test]
    fn sizes_as_postgres_writes_them() {
        assert_eq!(pretty(10_239), "10239 bytes");
        assert_eq!(pretty(10_240), "10 kB");
        assert_eq!(pretty(128 << 20), "128 MB");
    }
}
