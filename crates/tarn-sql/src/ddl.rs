//! What does `CREATE TABLE` mean?
//!
//! SQL text to [`TableSchema`] and back (`SHOW CREATE TABLE`). Nothing is stored here: the node creates and drops.

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, ColumnOptionDef, CreateTable, CreateTableOptions, Expr, HiveDistributionStyle, HiveFormat,
    Ident, IndexColumn, OrderByExpr, OrderByOptions, PrimaryKeyConstraint, SqlOption, TableConstraint,
};
use tarn_node::functions::FunctionId;
use tarn_node::renames::Rename;
use tarn_node::schemas::SchemaId;
use tarn_types::options::OPTION_NAMES;
use tarn_types::{
    CheckRule, Column, ColumnId, ColumnRules, DataType, GeneratedColumn, KeyPart, ROW_COLUMN, Rules, Style, TableId,
    TableOptions, TableSchema, TabletId, TypeId, Unique,
};

use crate::column_rules::{self, ColumnClauses, ColumnSequence, SaidCheck};
use crate::definition::has_primary_key;
use crate::error::{Result, SqlError, state};
use crate::foreign_rules::SaidForeignKey;
use crate::like_sql::LikeOptions;
use crate::names::{check_name, fold, table_name};
use crate::settings::SqlSettings;
use crate::spelled::{data_type, literal};
use crate::unique_rules::{self, SaidUnique};
use crate::view_sql::ViewStatement;

/// A change of the catalog.
#[derive(Debug, Clone)]
pub enum Ddl {
    /// A table; with `if_not_exists` nothing, where something has the name.
    Create { defined: Box<TableDefinition>, if_not_exists: bool },
    /// Tables, all or none.
    Drop { names: Vec<String>, if_exists: bool },
    /// Of views, of what is dropped with them, and of comments.
    Views(ViewStatement),
    /// At one moment.
    Rename(Vec<Rename>),
    /// Those with these numbers.
    DropTypes(Vec<TypeId>),
    /// Those with these numbers.
    DropFunctions(Vec<FunctionId>),
    /// By their names, and by the numbers that they had when they were found.
    DropSchemas {
        names: Vec<String>,
        ids: Vec<SchemaId>,
        /// With what is in them.
        cascade: bool,
    },
}

/// Options that a table can keep but nothing acts on yet: refused, so that nobody relies on them. What to do instead.
const NOT_YET: [(&str, &str); 2] = [
    ("ttl", "DELETE old rows by a predicate from time to time"),
    (
        "partition_by",
        "leave it out: lake files are grouped by the hour of delivery, and pruned by statistics of every column",
    ),
];

/// A table as it was asked for, and the sequences of its columns, which are still to be made.
#[derive(Debug, Clone)]
pub struct TableDefinition {
    /// Ids are still to be assigned.
    pub schema: TableSchema,
    /// By the columns that they belong to; their names may be taken.
    pub sequences: Vec<ColumnSequence>,
    /// Which of its unique constraints have names that are made up, which may be taken.
    pub unnamed: Vec<usize>,
    /// What it refers to, which is still to be found.
    pub foreign_keys: Vec<SaidForeignKey>,
}

/// Reads one `CREATE TABLE`. Ids are placeholders: the metastore assigns them; so are names of sequences, which may be
/// taken. Defaults are read as `style` says.
pub fn defined(create: &CreateTable, settings: &SqlSettings, style: &Style) -> Result<TableDefinition> {
    let name = name_of(create)?;
    let mut columns = Vec::with_capacity(create.columns.len());
    let mut key: Option<Vec<(String, bool)>> = None;
    let (mut rules, mut sequences, mut checks, mut generated) = (Rules::default(), vec![], vec![], vec![]);
    let (mut said_uniques, mut foreign_keys, mut key_name) = (vec![], vec![], None);
    for def in &create.columns {
        let column_idx = columns.len();
        let (mut column, is_key) = column(def, column_idx)?;
        let said = ColumnClauses::of(def, &mut column, &name, style)?;
        if is_key {
            set_key(&mut key, vec![(column.name.clone(), false)], &name)?;
            let said = def.options.iter().find(|of| matches!(of.option, ColumnOption::PrimaryKey(_)));
            key_name = said.and_then(|said| said.name.as_ref()).map(fold);
        }
        if said.rules != (ColumnRules { id: column.id, ..ColumnRules::default() }) {
            rules.columns.push(said.rules);
        }
        generated.extend(said.generated.map(|expr| (column_idx, expr)));
        sequences.extend(said.sequence.map(|sequence| ColumnSequence { column_idx, sequence }));
        checks.extend(said.checks);
        said_uniques.extend(column_uniques(def, &column.name)?);
        foreign_keys.extend(SaidForeignKey::of_column(def)?);
        columns.push(column);
    }
    for constraint in &create.constraints {
        match constraint {
            TableConstraint::PrimaryKey(primary) => {
                set_key(&mut key, key_of(primary)?, &name)?;
                key_name = primary.name.as_ref().map(fold);
            }
            TableConstraint::Check(check) => checks.push(SaidCheck::of(check, None)?),
            TableConstraint::Unique(unique) => said_uniques.push(SaidUnique::of(unique)?),
            TableConstraint::ForeignKey(key) => foreign_keys.push(SaidForeignKey::of(key, None)?),
            other => {
                return Err(SqlError::unsupported(
                    format!("constraint {other} of table \"{name}\""),
                    "PRIMARY KEY, UNIQUE, FOREIGN KEY, NOT NULL and CHECK are the constraints Tarn enforces",
                ));
            }
        }
    }
    if let Some(key_name) = &key_name {
        check_name("constraint", key_name)?;
    }
    let mut schema = schema_of(create, name, columns, key, rules, settings)?;
    schema.options.rules.key_name = key_name.filter(|name| !schema.is_key_named(name));
    let is_generated = |at: usize| generated.iter().any(|(other, _)| *other == at);
    let generated = generated.iter().map(|(at, expr)| Ok((*at, column_rules::generated(expr, is_generated, &schema)?)));
    for (at, generated) in generated.collect::<Result<Vec<_>>>()? {
        let id = schema.columns[at].id;
        schema.options.rules.entry(id).generated = Some(generated);
    }
    schema.options.rules.checks = column_rules::checks(checks, &schema)?;
    let (uniques, unnamed) = unique_rules::uniques(unique_rules::once(said_uniques, &schema), &schema)?;
    schema.options.rules.uniques = uniques;
    schema.validate().map_err(|e| invalid(&schema, &e))?;
    Ok(TableDefinition { schema, sequences, unnamed, foreign_keys })
}

/// What a column says of its own values.
pub fn column_uniques(def: &ColumnDef, column: &str) -> Result<Vec<SaidUnique>> {
    let of = |def: &ColumnOptionDef| match &def.option {
        ColumnOption::Unique(unique) => Some(SaidUnique::of_column(unique, def.name.as_ref(), column)),
        _ => None,
    };
    def.options.iter().filter_map(of).collect()
}

/// The table of a `CREATE TABLE … AS`, with these columns.
pub fn table_of_columns(
    create: &CreateTable,
    columns: Vec<(String, DataType)>,
    settings: &SqlSettings,
) -> Result<TableSchema> {
    let name = name_of(create)?;
    if !create.columns.is_empty() || !create.constraints.is_empty() {
        return Err(SqlError::unsupported(
            format!("CREATE TABLE {name} (…) AS with columns or keys of its own"),
            "name the columns in the SELECT; or create the table with its key, then INSERT INTO … SELECT",
        ));
    }
    let columns = columns.into_iter().enumerate().map(|(idx, (name, data_type))| {
        check_column_name(&name)?;
        Ok(Column { id: ColumnId(idx as u32 + 1), name, data_type, nullable: true, default: None })
    });
    schema_of(create, name, columns.collect::<Result<_>>()?, None, Rules::default(), settings)
}

/// The table of a `CREATE TABLE … (LIKE of …)`. Of identity columns it says that they are; their sequences are still to
/// be made.
pub fn table_like(
    create: &CreateTable,
    of: &TableSchema,
    including: LikeOptions,
    settings: &SqlSettings,
) -> Result<TableSchema> {
    let name = name_of(create)?;
    // Ids of the other table may have gaps.
    let ids: HashMap<ColumnId, ColumnId> =
        of.shown().iter().enumerate().map(|(at, column)| (column.id, ColumnId(at as u32 + 1))).collect();
    let mut columns = Vec::with_capacity(ids.len());
    let mut rules = Rules::default();
    for (at, column) in of.shown().iter().enumerate() {
        let default = column.default.clone().filter(|_| including.defaults);
        let id = ids[&column.id];
        columns.push(Column { id, default, ..column.clone() });
        let Some(said) = of.rules_of(at) else { continue };
        // Rows are not copied: what tells rows that are there of the column is not either.
        let ColumnRules { id: _, default, identity, generated, length, enumerated, stored: _, missing: _ } = said;
        let is_copied = if identity.is_some() { including.identity } else { including.defaults };
        let (default, identity) = match is_copied {
            true => (default.clone(), *identity),
            false => (None, None),
        };
        let generated = generated.as_ref().filter(|_| including.generated).map(|generated| GeneratedColumn {
            columns: generated.columns.iter().filter_map(|id| ids.get(id).copied()).collect(),
            ..generated.clone()
        });
        if default.is_some() || length.is_some() || generated.is_some() || enumerated.is_some() {
            let (length, enumerated) = (*length, enumerated.clone());
            let said = ColumnRules { id, default, identity, generated, length, enumerated, ..ColumnRules::default() };
            rules.columns.push(said);
        }
    }
    if including.constraints {
        let of_new = |check: &CheckRule| CheckRule {
            columns: check.columns.iter().filter_map(|id| ids.get(id).copied()).collect(),
            ..check.clone()
        };
        rules.checks = of.options.rules.checks.iter().map(of_new).collect();
    }
    if including.indexes {
        let of_new = |unique: &Unique| Unique {
            columns: unique.columns.iter().filter_map(|id| ids.get(id).copied()).collect(),
            index: unique_rules::NOT_MADE,
            ..unique.clone()
        };
        let told = of.options.rules.uniques.iter().filter(|unique| !unique.of_foreign_key);
        rules.uniques = told.map(of_new).collect();
    }
    let key = (including.indexes && has_primary_key(of))
        .then(|| of.key.iter().map(|part| (of.columns[part.column_idx].name.clone(), part.descending)).collect());
    schema_of(create, name, columns, key, rules, settings)
}

fn name_of(create: &CreateTable) -> Result<String> {
    refuse_unsupported(create)?;
    let name = table_name(&create.name)?;
    check_name("table", &name)?;
    Ok(name)
}

/// `key`: its columns, and whether they descend.
fn schema_of(
    create: &CreateTable,
    name: String,
    mut columns: Vec<Column>,
    key: Option<Vec<(String, bool)>>,
    rules: Rules,
    settings: &SqlSettings,
) -> Result<TableSchema> {
    if columns.is_empty() {
        return Err(SqlError::unsupported(format!("table \"{name}\" without columns"), "name one at least"));
    }
    let key = key.unwrap_or_else(|| {
        columns.push(row_column(columns.len()));
        vec![(ROW_COLUMN.to_owned(), false)]
    });
    let key: Vec<KeyPart> = key
        .into_iter()
        .map(|(column, descending)| {
            let idx = columns.iter().position(|c: &Column| c.name == column);
            idx.map(|column_idx| KeyPart { column_idx, descending })
                .ok_or_else(|| SqlError::undefined_column(&name, &column).with_detail("named by PRIMARY KEY"))
        })
        .collect::<Result<_>>()?;
    for part in &key {
        check_key_column(&columns[part.column_idx])?;
        columns[part.column_idx].nullable = false;
    }
    let options = TableOptions {
        delivery_interval_ms: settings.delivery_interval_ms,
        delivery_bytes: settings.delivery_bytes,
        rules,
        ..TableOptions::default()
    };
    let mut schema =
        TableSchema { id: TableId(0), name, columns, key, n_partition_key: 1, first_tablet: TabletId(0), options };
    apply_options(&mut schema, &create.table_options)?;
    schema.validate().map_err(|e| invalid(&schema, &e))?;
    Ok(schema)
}

/// Errors: `0A000` for an array, an interval and an address: keys are compared by their bytes, and no array has bytes
/// in its order.
fn check_key_column(column: &Column) -> Result<()> {
    match column.data_type {
        DataType::Interval | DataType::Inet | DataType::Array(_) => Err(SqlError::unsupported(
            format!("column \"{}\" of type {} in a primary key", column.name, column.data_type),
            "a key has columns of any type but intervals, addresses, arrays and JSON: a bigint of microseconds, the text of an \
             address, or rows of one item each",
        )),
        _ => Ok(()),
    }
}

fn invalid(schema: &TableSchema, error: &impl std::fmt::Display) -> SqlError {
    SqlError::new(state::INVALID_TABLE_DEFINITION, format!("table \"{}\": {error}", schema.name))
}

fn refuse_unsupported(create: &CreateTable) -> Result<()> {
    // By all of its fields: a newer parser's clause is decided on before it compiles.
    let CreateTable {
        or_replace,
        temporary,
        external,
        dynamic,
        global,
        if_not_exists: _,
        transient,
        volatile,
        iceberg,
        snapshot,
        name: _,
        columns: _,
        constraints: _,
        hive_distribution,
        hive_formats,
        table_options: _,
        file_format,
        location,
        query: _,
        without_rowid,
        like,
        clone,
        version,
        comment,
        on_commit,
        on_cluster,
        primary_key,
        order_by,
        partition_by,
        cluster_by,
        clustered_by,
        inherits,
        partition_of,
        for_values,
        strict,
        copy_grants,
        enable_schema_evolution,
        change_tracking,
        data_retention_time_in_days,
        max_data_extension_time_in_days,
        default_ddl_collation,
        with_aggregation_policy,
        with_row_access_policy,
        with_storage_lifecycle_policy,
        with_tags,
        external_volume,
        base_location,
        catalog,
        catalog_sync,
        storage_serialization_policy,
        target_lag,
        warehouse,
        refresh_mode,
        initialize,
        require_user,
        diststyle,
        distkey,
        sortkey,
        backup,
    } = create;
    let is_partitioned = partition_by.is_some()
        || partition_of.is_some()
        || for_values.is_some()
        || !matches!(hive_distribution, HiveDistributionStyle::NONE);
    let is_shared = *global == Some(true) || *transient || *volatile;
    let formats = hive_formats.as_ref().is_some_and(|formats| *formats != HiveFormat::default());
    let has_place = formats || file_format.is_some() || location.is_some() || base_location.is_some();
    let has_order = primary_key.is_some() || order_by.is_some() || cluster_by.is_some() || clustered_by.is_some();
    let is_of_others = *dynamic
        || *iceberg
        || *snapshot
        || *without_rowid
        || clone.is_some()
        || version.is_some()
        || comment.is_some()
        || on_cluster.is_some()
        || *strict
        || *copy_grants
        || enable_schema_evolution.is_some()
        || change_tracking.is_some()
        || data_retention_time_in_days.is_some()
        || max_data_extension_time_in_days.is_some()
        || default_ddl_collation.is_some()
        || with_aggregation_policy.is_some()
        || with_row_access_policy.is_some()
        || with_storage_lifecycle_policy.is_some()
        || with_tags.is_some()
        || external_volume.is_some()
        || catalog.is_some()
        || catalog_sync.is_some()
        || storage_serialization_policy.is_some()
        || target_lag.is_some()
        || warehouse.is_some()
        || refresh_mode.is_some()
        || initialize.is_some()
        || *require_user
        || diststyle.is_some()
        || distkey.is_some()
        || sortkey.is_some()
        || backup.is_some();
    let refused = [
        (*or_replace, "OR REPLACE", "DROP TABLE IF EXISTS it first"),
        (is_shared, "GLOBAL, TRANSIENT or VOLATILE", "CREATE TEMPORARY TABLE is of this session, others do not see it"),
        (on_commit.is_some() && !*temporary, "ON COMMIT", "it is of temporary tables"),
        (*external, "EXTERNAL", "create an ordinary table and load into it"),
        (like.is_some(), "LIKE without parentheses", "CREATE TABLE t (LIKE u INCLUDING ALL)"),
        (inherits.is_some(), "INHERITS", "name all columns"),
        (is_partitioned, "PARTITION BY", "leave it out: lake files are pruned by the statistics of every column"),
        (has_place, "STORED AS or LOCATION", "leave it out: the setting `lake` says where the files of all tables are"),
        (has_order, "ORDER BY or CLUSTER BY", "leave it out: the primary key orders the rows"),
        (is_of_others, "with a clause of another system", "write CREATE TABLE name (columns) WITH (name = value)"),
    ];
    for (present, clause, remedy) in refused {
        if present {
            return Err(SqlError::unsupported(format!("CREATE TABLE … {clause}"), remedy));
        }
    }
    Ok(())
}

/// The columns of a primary key, and whether they descend.
///
/// Errors: `0A000` for what else may be said of one.
pub fn key_of(primary: &PrimaryKeyConstraint) -> Result<Vec<(String, bool)>> {
    check_primary_key(primary)?;
    primary.columns.iter().map(key_column).collect()
}

/// The table with this key in the place of the one that is not shown.
///
/// Errors: `42P16` where it has a key already, or has no such key; `42703`.
pub fn keyed(table: &TableSchema, key: &[(String, bool)]) -> Result<TableSchema> {
    if !table.is_keyless() {
        let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
        return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message)
            .with_hint("CREATE TABLE with the other key, INSERT INTO … SELECT, and rename it"));
    }
    let mut to = table.clone();
    to.columns.truncate(table.shown().len());
    to.key = key
        .iter()
        .map(|(name, descending)| match to.column(name) {
            Some((column_idx, _)) => Ok(KeyPart { column_idx, descending: *descending }),
            None => {
                Err(SqlError::new(state::UNDEFINED_COLUMN, format!("column \"{name}\" named in key does not exist")))
            }
        })
        .collect::<Result<_>>()?;
    for part in to.key.clone() {
        check_key_column(&to.columns[part.column_idx])?;
        to.columns[part.column_idx].nullable = false;
    }
    to.validate().map_err(|error| {
        SqlError::new(state::INVALID_TABLE_DEFINITION, format!("table \"{}\": {error}", table.name))
    })?;
    Ok(to)
}

fn set_key(key: &mut Option<Vec<(String, bool)>>, parts: Vec<(String, bool)>, table: &str) -> Result<()> {
    if key.is_some() {
        return Err(SqlError::new(
            state::INVALID_TABLE_DEFINITION,
            format!("multiple primary keys for table \"{table}\" are not allowed"),
        )
        .with_hint("use one PRIMARY KEY (a, b)"));
    }
    *key = Some(parts);
    Ok(())
}

/// A key is checked at once and has no index of its own: what says otherwise is refused.
fn check_primary_key(primary: &PrimaryKeyConstraint) -> Result<()> {
    let PrimaryKeyConstraint { name: _, index_name, index_type, columns: _, index_options, characteristics } = primary;
    if index_name.is_some() || index_type.is_some() || !index_options.is_empty() || characteristics.is_some() {
        return Err(SqlError::unsupported(
            "PRIMARY KEY … with an index or DEFERRABLE",
            "PRIMARY KEY (columns) orders the rows and is checked by each statement",
        ));
    }
    Ok(())
}

fn key_column(column: &IndexColumn) -> Result<(String, bool)> {
    let IndexColumn { column: OrderByExpr { expr, options, with_fill }, operator_class } = column;
    let OrderByOptions { asc, nulls_first } = options;
    if nulls_first.is_some() || with_fill.is_some() || operator_class.is_some() {
        return Err(SqlError::unsupported(
            "PRIMARY KEY … NULLS FIRST or with an operator class",
            "PRIMARY KEY (a, b DESC): keys are never NULL",
        ));
    }
    match expr {
        Expr::Identifier(ident) => Ok((fold(ident), *asc == Some(false))),
        other => {
            Err(SqlError::new(state::INVALID_TABLE_DEFINITION, format!("\"{other}\" in PRIMARY KEY is not a column")))
        }
    }
}

/// The key of a table whose creator names none.
fn row_column(idx: usize) -> Column {
    let id = ColumnId(idx as u32 + 1);
    Column { id, name: ROW_COLUMN.to_owned(), data_type: DataType::Bytes, nullable: false, default: None }
}

/// Errors: `42622` for one that is too long, `42939` for Tarn's own, `42701` for those that PostgreSQL has in every
/// table.
pub fn check_column_name(name: &str) -> Result<()> {
    check_name("column", name)?;
    if name.starts_with("__") {
        let message = format!("column \"{name}\": names that begin with __ are Tarn's own");
        return Err(SqlError::new(state::RESERVED_NAME, message).with_hint("call it otherwise"));
    }
    // PostgreSQL's own columns of every table: drivers ask for them, and mean these.
    if ["tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"].contains(&name) {
        let message = format!("column name \"{name}\" conflicts with a system column name");
        return Err(SqlError::new(state::DUPLICATE_COLUMN, message).with_hint("call it otherwise"));
    }
    Ok(())
}

/// A column that a table gets which may have rows, and what is said of it. Defaults are read as `style` says.
///
/// Errors: `0A000` for a key, and for a column that counts by itself; those of CREATE TABLE.
pub fn added_column(def: &ColumnDef, id: ColumnId, table: &str, style: &Style) -> Result<(Column, ColumnClauses)> {
    let (column, is_key) = column(def, 0)?;
    let mut column = Column { id, ..column };
    let said = ColumnClauses::of(def, &mut column, table, style)?;
    let name = &column.name;
    if is_key {
        return Err(SqlError::unsupported(
            format!("ALTER TABLE … ADD COLUMN \"{name}\" … PRIMARY KEY"),
            "ADD COLUMN first, and ADD PRIMARY KEY then, if the table has none",
        ));
    }
    if said.sequence.is_some() {
        return Err(SqlError::unsupported(
            format!("ALTER TABLE … ADD COLUMN \"{name}\" that counts by itself"),
            "CREATE SEQUENCE s, ADD COLUMN … NOT NULL DEFAULT nextval('s'), and ALTER SEQUENCE s OWNED BY the column",
        ));
    }
    Ok((column, said))
}

/// One column and whether it says PRIMARY KEY itself; the rest of what it says is `column_rules`'.
fn column(def: &ColumnDef, idx: usize) -> Result<(Column, bool)> {
    let name = fold(&def.name);
    check_column_name(&name)?;
    let data_type = match column_rules::serial(&def.data_type) {
        Some(counts) => counts,
        None => data_type(&def.data_type).map_err(|e| e.with_detail(format!("column \"{name}\"")))?,
    };
    let mut column = Column { id: ColumnId(idx as u32 + 1), name, data_type, nullable: true, default: None };
    let mut is_key = false;
    for option in &def.options {
        match &option.option {
            ColumnOption::Null => column.nullable = true,
            ColumnOption::NotNull => column.nullable = false,
            ColumnOption::PrimaryKey(primary) => {
                check_primary_key(primary)?;
                is_key = true;
            }
            ColumnOption::Comment(_) => {}
            ColumnOption::Default(_) | ColumnOption::Check(_) => {}
            ColumnOption::Generated { .. } => {}
            // Said of the table.
            ColumnOption::Unique(_) | ColumnOption::ForeignKey(_) => {}
            other => {
                return Err(SqlError::unsupported(
                    format!("column option {other} of column \"{}\"", column.name),
                    "NOT NULL, DEFAULT, GENERATED … AS IDENTITY, CHECK, UNIQUE, REFERENCES and PRIMARY KEY are supported",
                ));
            }
        }
    }
    Ok((column, is_key))
}

fn apply_options(schema: &mut TableSchema, options: &CreateTableOptions) -> Result<()> {
    let options = match options {
        CreateTableOptions::None => return Ok(()),
        CreateTableOptions::With(options) => options,
        other => return Err(SqlError::unsupported(format!("table options {other}"), "write WITH (name = value, …)")),
    };
    for option in options {
        let SqlOption::KeyValue { key, value } = option else {
            return Err(SqlError::new(state::SYNTAX_ERROR, format!("WITH option {option}: want name = value")));
        };
        let text = option_text(key, value)?;
        apply_option(schema, &fold(key), &text)?;
    }
    Ok(())
}

/// The text of a WITH option's value; a bare word is one, too.
pub(crate) fn option_text(key: &Ident, value: &Expr) -> Result<String> {
    match (literal(value), value) {
        (Some(Some(text)), _) => Ok(text),
        (None, Expr::Identifier(ident)) => Ok(ident.value.clone()),
        _ => Err(SqlError::new(state::INVALID_PARAMETER_VALUE, format!("WITH option {key} = {value}: want a literal"))),
    }
}

fn apply_option(schema: &mut TableSchema, name: &str, text: &str) -> Result<()> {
    if name == "partition_key" {
        schema.n_partition_key = partition_columns(schema, text).ok_or_else(|| {
            SqlError::new(
                state::INVALID_PARAMETER_VALUE,
                format!("table option partition_key = {text}: want a count, or the leading columns of the primary key in order"),
            )
        })?;
        return Ok(());
    }
    // As rows are packed here anyhow, and as `pgbench -i` says it.
    if name == "fillfactor" {
        return match text {
            "100" => Ok(()),
            _ => {
                Err(SqlError::unsupported("a fillfactor other than 100", "leave it out: rows are packed as they come"))
            }
        };
    }
    if let Some((_, remedy)) = NOT_YET.iter().find(|(not_yet, _)| *not_yet == name) {
        return Err(SqlError::unsupported(format!("table option {name} is not enforced yet"), *remedy));
    }
    schema.set_option(name, text).map_err(|error| {
        if let tarn_types::Error::UnknownColumn { column, .. } = &error {
            return SqlError::undefined_column(&schema.name, column).with_detail(format!("named by {name}")).with_hint(
                "names are separated by commas, and written as they are: lower case unless the column was quoted",
            );
        }
        let known: Vec<&str> =
            OPTION_NAMES.iter().copied().filter(|name| NOT_YET.iter().all(|(not_yet, _)| not_yet != name)).collect();
        let known = format!("options: {}, partition_key", known.join(", "));
        SqlError::new(state::INVALID_PARAMETER_VALUE, error.to_string()).with_hint(known)
    })
}

fn partition_columns(schema: &TableSchema, text: &str) -> Option<usize> {
    if let Ok(count) = text.parse::<usize>() {
        return (1..=schema.key.len()).contains(&count).then_some(count);
    }
    let names: Vec<&str> = text.split(',').map(str::trim).collect();
    let leading = schema.key.iter().map(|part| schema.columns[part.column_idx].name.as_str());
    (names.len() <= schema.key.len() && leading.take(names.len()).eq(names.iter().copied())).then_some(names.len())
}

/// A text literal.
#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Statement;
    use tarn_types::Value;

    use super::*;
    use crate::definition::create_statement;
    use crate::statement::{ParsedSql, parse};

    fn create(sql: &str) -> Result<TableSchema> {
        match parse(sql)?.remove(0) {
            ParsedSql::Sql(statement) => match *statement {
                Statement::CreateTable(create) => {
                    Ok(defined(&create, &SqlSettings::default(), &Style::default())?.schema)
                }
                other => panic!("{other} is no CREATE TABLE"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_types_and_their_aliases() {
        let schema = create(
            "CREATE TABLE t (a int, b bigint, c smallint, d real, e double precision, f numeric(15,2), g text, h varchar(10), \
             i bytea, j date, k time, l timestamp, m timestamptz, n uuid, o json, p boolean, q float8, r timestamp with time zone, \
             s jsonb, u int8, v float4, w decimal, x char(3), PRIMARY KEY (a, b DESC))",
        )
        .unwrap();
        let types: Vec<DataType> = schema.columns.iter().map(|c| c.data_type).collect();
        assert_eq!(types[0..3], [DataType::Int32, DataType::Int64, DataType::Int16]);
        assert_eq!(types[5], DataType::Decimal { precision: 15, scale: 2 });
        assert_eq!(types[12], DataType::TimestampTz);
        assert_eq!(types[17], DataType::TimestampTz);
        assert!(schema.key[1].descending && !schema.key[0].descending);
        assert!(!schema.columns[0].nullable && schema.columns[6].nullable);
    }

    #[test]
    fn options_and_defaults() {
        let schema = create(
            "CREATE TABLE IF NOT EXISTS t (a int, b int, v text NOT NULL DEFAULT 'x', n int DEFAULT -5, PRIMARY KEY (a, b)) \
             WITH (partition_key = 'a, b', partitioning = 'hash', tablets = 4, delivery = '5 seconds', append_only = true, hot_retention = '30 days')",
        )
        .unwrap();
        assert_eq!(
            (schema.n_partition_key, schema.options.tablets, schema.options.delivery_interval_ms),
            (2, 4, 5_000)
        );
        assert!(schema.options.append_only);
        assert_eq!(schema.options.hot_retention_ms, Some(2_592_000_000));
        assert_eq!(schema.columns[2].default, Some(Value::Text("x".into())));
        assert_eq!(schema.columns[3].default, Some(Value::Int32(-5)));
    }

    #[test]
    fn show_create_round_trips() {
        let schema = create(
            "CREATE TABLE \"My t\" (a int, \"B\" numeric(10,3) DEFAULT 1.5, c text, PRIMARY KEY (a DESC)) WITH (partitioning = 'hash', tablets = 2, hot_retention = '1h', \
             tokens = 'c', bloom = '\"B\", a', bloom_chunks = 64, bloom_fpp = 0.01)",
        )
        .unwrap();
        assert_eq!(schema.options.indexing.bloom, [ColumnId(2), ColumnId(1)]);
        assert_eq!(create(&create_statement(&schema, &[])).unwrap(), schema);
    }

    #[test]
    fn what_is_said_of_columns_round_trips() {
        let schema = create(
            "CREATE TABLE t (id bigserial, n int GENERATED BY DEFAULT AS IDENTITY, at timestamptz DEFAULT now(), v varchar(3) DEFAULT 'ab', \
             f char(2), b int DEFAULT -5 CHECK (b < 0), ok bool DEFAULT true, PRIMARY KEY (id), CHECK (n > b), CONSTRAINT \"No\" CHECK (v <> ''))",
        )
        .unwrap();
        let text = create_statement(&schema, &[]);
        for part in [
            "id BIGINT NOT NULL DEFAULT nextval('t_id_seq'::regclass)",
            "n INTEGER NOT NULL GENERATED BY DEFAULT AS IDENTITY",
            "DEFAULT now()",
            "v VARCHAR(3) DEFAULT 'ab'::character varying",
            "f CHAR(2)",
            "b INTEGER DEFAULT '-5'::integer",
            "ok BOOLEAN DEFAULT true",
            "CONSTRAINT t_b_check CHECK (b < 0)",
            "CONSTRAINT t_check CHECK (n > b)",
            "CONSTRAINT \"No\" CHECK (v <> '')",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(create(&text).unwrap(), schema);
    }

    #[test]
    fn unique_constraints_have_names_as_in_postgres_and_hold_once() {
        let schema = create(
            "CREATE TABLE t (id int PRIMARY KEY UNIQUE, email text UNIQUE, a int CONSTRAINT own UNIQUE, UNIQUE (a, email), UNIQUE (email), \
             UNIQUE (id))",
        )
        .unwrap();
        let names: Vec<&str> = schema.options.rules.uniques.iter().map(|unique| unique.name.as_str()).collect();
        assert_eq!(names, ["t_email_key", "own", "t_a_email_key"]);
        assert_eq!(schema.options.rules.uniques[2].columns, [ColumnId(3), ColumnId(2)]);
        let text = create_statement(&schema, &[]);
        assert!(text.contains("CONSTRAINT t_a_email_key UNIQUE (a, email)"), "{text}");
        assert_eq!(create(&text).unwrap(), schema);
    }

    #[test]
    fn mistakes_have_states_and_remedies() {
        let cases = [
            ("CREATE TABLE t ()", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TABLE t (a int PRIMARY KEY, b int PRIMARY KEY)", state::INVALID_TABLE_DEFINITION),
            ("CREATE TABLE t (a int, PRIMARY KEY (b))", state::UNDEFINED_COLUMN),
            ("CREATE TABLE t (a int PRIMARY KEY, b serial DEFAULT 1)", state::SYNTAX_ERROR),
            ("CREATE TABLE t (a int PRIMARY KEY, b text GENERATED ALWAYS AS IDENTITY)", state::INVALID_PARAMETER_VALUE),
            ("CREATE TABLE t (a int PRIMARY KEY, b int GENERATED ALWAYS AS (a * 2))", state::SYNTAX_ERROR),
            ("CREATE TABLE t (a int PRIMARY KEY, b varchar(0))", state::INVALID_PARAMETER_VALUE),
            ("CREATE TABLE t (a int PRIMARY KEY, b varchar(2) DEFAULT 'abc')", state::TEXT_TOO_LONG),
            ("CREATE TABLE t (a int PRIMARY KEY, CHECK (c > 0))", state::UNDEFINED_COLUMN),
            (
                "CREATE TABLE t (a int PRIMARY KEY, CONSTRAINT x CHECK (a > 0), CONSTRAINT x CHECK (a > 1))",
                state::DUPLICATE_OBJECT,
            ),
            ("CREATE TABLE t (a int PRIMARY KEY, b int DEFAULT a + 1)", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TABLE t (a int PRIMARY KEY, b int DEFAULT 'x')", state::INVALID_TEXT),
            ("CREATE TABLE t (a int PRIMARY KEY) WITH (colour = 1)", state::INVALID_PARAMETER_VALUE),
            ("CREATE TABLE t (a int PRIMARY KEY) WITH (ttl = '30 days')", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TABLE t (a int PRIMARY KEY, b text) WITH (tokens = 'c')", state::UNDEFINED_COLUMN),
            ("CREATE TABLE t (a int PRIMARY KEY, b text) WITH (tokens = 'a')", state::INVALID_TABLE_DEFINITION),
            ("CREATE TABLE t (a int PRIMARY KEY, b real) WITH (bloom = 'b')", state::INVALID_TABLE_DEFINITION),
            (
                "CREATE TABLE t (a int PRIMARY KEY) WITH (bloom = 'a', bloom_chunks = 65)",
                state::INVALID_PARAMETER_VALUE,
            ),
            ("CREATE TABLE t (a int PRIMARY KEY) WITH (bloom = 'a', bloom_fpp = 2)", state::INVALID_PARAMETER_VALUE),
            (
                "CREATE TABLE t (a int PRIMARY KEY, at date) WITH (partition_by = 'hour(at)')",
                state::FEATURE_NOT_SUPPORTED,
            ),
            ("CREATE TABLE t (a int PRIMARY KEY, b numeric(50, 2))", state::INVALID_PARAMETER_VALUE),
            ("CREATE TABLE t (a int PRIMARY KEY, UNIQUE (b))", state::UNDEFINED_COLUMN),
            ("CREATE TABLE t (a int PRIMARY KEY, b int, UNIQUE (b, b))", state::DUPLICATE_COLUMN),
            ("CREATE TABLE t (a int PRIMARY KEY, b int, UNIQUE NULLS NOT DISTINCT (b))", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TABLE t (a int PRIMARY KEY, b int UNIQUE DEFERRABLE)", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TABLE t (a int PRIMARY KEY, b int, UNIQUE (b) DEFERRABLE)", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TABLE t (a int PRIMARY KEY, b jsonb UNIQUE)", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TABLE t (a int UNIQUE) WITH (append_only = true)", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TABLE t (a int, b int, CONSTRAINT u UNIQUE (a), CONSTRAINT u UNIQUE (b))", state::DUPLICATE_TABLE),
            ("CREATE TABLE tarn.t (a int PRIMARY KEY)", state::WRONG_OBJECT_TYPE),
        ];
        for (sql, want) in cases {
            assert_eq!(create(sql).unwrap_err().state(), want, "{sql}");
        }
        let unknown = create("CREATE TABLE t (a int PRIMARY KEY) WITH (colour = 1)").unwrap_err();
        assert!(unknown.hint().unwrap().contains("tablets"));
    }
}
