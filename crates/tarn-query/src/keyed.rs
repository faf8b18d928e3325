//! Does this statement need a plan at all? `SELECT`, `UPDATE`, `DELETE` of one full key and `INSERT … VALUES` do not.
//!
//! Pure: from the parsed statement and the table's schema to a [`KeyedPlan`] that is bound and executed many times.
//! Whatever is not recognised is `None` and takes the planner's way, which also words the errors: a literal that does
//! not fit its column is not recognised here.
//!
//! ```
//! use tarn_query::{KeyedPlanner, keyed::KeyedPlan};
//! # use tarn_types::{Column, ColumnId, DataType, KeyPart, TableId, TableOptions, TableSchema, TabletId};
//! # let column = |id, name: &str, data_type| Column { id: ColumnId(id), name: name.into(), data_type, nullable: id > 1, default: None };
//! # let schema = TableSchema {
//! #     id: TableId(1), name: "t".into(), columns: vec![column(1, "k", DataType::Int64), column(2, "v", DataType::Text)],
//! #     key: vec![KeyPart { column_idx: 0, descending: false }], n_partition_key: 1, first_tablet: TabletId(1), options: TableOptions::default(),
//! # };
//! let parse = |sql| tarn_query::parser::statements(sql).unwrap().remove(0);
//! let plan = KeyedPlanner::analyse(&parse("SELECT v FROM t WHERE k = $1"), &schema);
//! assert!(matches!(plan, Some(KeyedPlan::Select { .. })));
//! assert!(KeyedPlanner::analyse(&parse("SELECT v FROM t WHERE k > $1"), &schema).is_none());
//! ```

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, Assignment, AssignmentTarget, BinaryOperator, DataType as Named, Delete, Expr, FromTable,
    GroupByExpr, Insert, ObjectName, Query, Select, SelectFlavor, SelectItem, SetExpr, Statement, TableAlias,
    TableFactor, TableObject, TableWithJoins, TimezoneInfo, UnaryOperator, Update, Value as Literal,
    WildcardAdditionalOptions,
};
use tarn_types::{ColumnId, ColumnRules, DataType, Identity, Style, TableSchema, Value, full_name};

use crate::conflict::{OnKey, on_key};
use crate::parser::fold;
use crate::written_types::is_inet;
use crate::{Error, Result};

/// Recognises keyed statements.
#[derive(Debug)]
pub struct KeyedPlanner;

/// A value that is known, or will be bound.
#[derive(Debug, Clone, PartialEq)]
pub enum Slot {
    /// Of the column's type, or NULL.
    Literal(Value),
    /// `$n`, counted from 0.
    Parameter(usize),
}

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputColumn {
    /// Its alias, or the column's name.
    pub name: String,
    /// Position in the table.
    pub column_idx: usize,
}

/// A statement that is answered by key. Keys have one slot per key column, in key order; those of a unique constraint
/// one per column of it.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyedPlan {
    /// At most one row.
    Select {
        /// What to give of it.
        columns: Vec<OutputColumn>,
        /// Whose.
        key: Vec<Slot>,
        /// By which unique constraint of the table the row is found; `None`: by the primary key.
        unique: Option<usize>,
    },
    /// Whole rows.
    Insert {
        /// One slot per column of the table, in table order; columns that were not named have their default.
        rows: Vec<Vec<Slot>>,
        /// What happens to those whose key is there: refused, replaced or kept.
        on_key: OnKey,
    },
    /// New values for some columns of one row.
    Update {
        /// Whose.
        key: Vec<Slot>,
        /// Column position and its new value, each column once, no key column.
        set: Vec<(usize, Slot)>,
    },
    /// One row.
    Delete {
        /// Whose.
        key: Vec<Slot>,
    },
}

/// A [`KeyedPlan`] with every value in place, each of its column's type.
#[derive(Debug, Clone, PartialEq)]
pub enum BoundKeyedPlan {
    /// Read this key, give the plan's columns.
    Select {
        /// Key values in key order, or those of the plan's constraint; none NULL.
        key: Vec<Value>,
    },
    /// Write these rows.
    Insert {
        /// One value per column, NULL only where the column allows it.
        rows: Vec<Vec<Value>>,
    },
    /// Change this key.
    Update {
        /// Key values in key order, none NULL.
        key: Vec<Value>,
        /// New values.
        set: Vec<(usize, Value)>,
    },
    /// Remove this key.
    Delete {
        /// Key values in key order, none NULL.
        key: Vec<Value>,
    },
    /// The key was compared with NULL: nothing to read, nothing to change.
    Nothing,
}

/// The table a statement reads or changes, when it names exactly one directly. Folds unquoted names; drops catalog and
/// `public`.
pub fn table_name(statement: &Statement) -> Option<String> {
    match statement {
        Statement::Query(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.from.as_slice() {
                [from] => relation(from).map(|(name, _)| name),
                _ => None,
            },
            _ => None,
        },
        Statement::Insert(Insert { table: TableObject::TableName(name), .. }) => object_name(name),
        Statement::Update(Update { table, .. }) => relation(table).map(|(name, _)| name),
        Statement::Delete(delete) => match from_of(delete) {
            [from] => relation(from).map(|(name, _)| name),
            _ => None,
        },
        _ => None,
    }
}

impl KeyedPlanner {
    /// The plan of a keyed statement on `table`; `None` when it is none, or not simple enough. Times without an offset
    /// are UTC.
    pub fn analyse(statement: &Statement, table: &TableSchema) -> Option<KeyedPlan> {
        Self::analyse_in(statement, table, &Style::default())
    }

    /// As [`KeyedPlanner::analyse`], but times are read as a session reads them.
    pub fn analyse_in(statement: &Statement, table: &TableSchema, style: &Style) -> Option<KeyedPlan> {
        match statement {
            Statement::Query(query) => select(query, table, style),
            _ if table.is_keyless() => None,
            Statement::Insert(statement) => insert(statement, table, style),
            Statement::Update(statement) => update(statement, table, style),
            Statement::Delete(statement) => delete(statement, table, style),
            _ => None,
        }
    }
}

impl KeyedPlan {
    /// How many parameters the plan takes: the highest `$n`.
    pub fn n_parameters(&self) -> usize {
        self.slots()
            .into_iter()
            .map(|(_, slot)| if let Slot::Parameter(idx) = slot { idx + 1 } else { 0 })
            .max()
            .unwrap_or(0)
    }

    /// The place of the column that each parameter is for, whose type it has. `None` for a number that is skipped.
    pub fn parameter_columns(&self, table: &TableSchema) -> Vec<Option<usize>> {
        let mut columns = vec![None; self.n_parameters()];
        let key = self.key_columns(table);
        let key_column = |part: usize| key[part];
        for (place, slot) in self.slots() {
            if let Slot::Parameter(idx) = slot {
                let column = match place {
                    SlotUse::Key(part) => key_column(part),
                    SlotUse::Column(column) => column,
                };
                columns[*idx] = Some(column);
            }
        }
        columns
    }

    /// The places of the parameters that are compared with columns of the key, and whether they are stored nowhere.
    pub fn key_parameters(&self) -> HashMap<usize, bool> {
        let slots = self.slots();
        let of = |(place, slot): &(SlotUse, &Slot)| match slot {
            Slot::Parameter(idx) => Some((*idx, matches!(place, SlotUse::Key(_)))),
            Slot::Literal(_) => None,
        };
        let mut compared: HashMap<usize, bool> = slots.iter().filter_map(of).filter(|(_, is_key)| *is_key).collect();
        for (idx, is_key) in slots.iter().filter_map(of) {
            if let Some(is_alone) = compared.get_mut(&idx) {
                *is_alone &= is_key;
            }
        }
        compared
    }

    /// The plan with its parameters, coerced to their columns' types.
    ///
    /// Errors: too few parameters; a value that does not fit its column; NULL where the column has none.
    pub fn bind(&self, table: &TableSchema, parameters: &[Value]) -> Result<BoundKeyedPlan> {
        if parameters.len() < self.n_parameters() {
            return Err(Error::Parameters { expected: self.n_parameters(), given: parameters.len() });
        }
        let value = |column: usize, slot: &Slot| match slot {
            Slot::Literal(value) => Ok(value.clone()),
            Slot::Parameter(idx) if parameters[*idx] == Value::Null => Ok(Value::Null),
            Slot::Parameter(idx) => {
                parameters[*idx].clone().coerce(&table.columns[column].data_type).map_err(Error::types(&table.name))
            }
        };
        let checked = |row: usize, column: usize, slot: &Slot| {
            let value = value(column, slot)?;
            let definition = &table.columns[column];
            match value {
                Value::Null if table.is_key(column) => {
                    Err(Error::NullKey { table: table.name.clone(), column: definition.name.clone() })
                }
                value @ (Value::Text(_) | Value::Array(_)) => fitting(table, column, value),
                Value::Null if !definition.nullable => {
                    Err(Error::types(&table.name)(tarn_types::Error::Null { column: definition.name.clone(), row }))
                }
                value => Ok(value),
            }
        };
        // NULL equals nothing.
        let columns = self.key_columns(table);
        let whose = |key: &[Slot]| {
            let asked = |(slot, column): (&Slot, &usize)| match value(*column, slot)? {
                // What is no label is no value of the column: it is not asked for.
                text @ Value::Text(_) if table.enumerated(*column).is_some() => fitting(table, *column, text),
                Value::Text(text) if table.is_padded(*column) => Ok(Value::Text(text.trim_end_matches(' ').into())),
                value => Ok(value),
            };
            let values = key.iter().zip(&columns).map(asked).collect::<Result<Vec<_>>>()?;
            Ok::<_, Error>((!values.contains(&Value::Null)).then_some(values))
        };
        Ok(match self {
            KeyedPlan::Select { key, .. } => {
                whose(key)?.map_or(BoundKeyedPlan::Nothing, |key| BoundKeyedPlan::Select { key })
            }
            KeyedPlan::Delete { key } => {
                whose(key)?.map_or(BoundKeyedPlan::Nothing, |key| BoundKeyedPlan::Delete { key })
            }
            KeyedPlan::Update { key, set } => {
                let set = set
                    .iter()
                    .map(|(column, slot)| Ok((*column, checked(0, *column, slot)?)))
                    .collect::<Result<Vec<_>>>()?;
                whose(key)?.map_or(BoundKeyedPlan::Nothing, |key| BoundKeyedPlan::Update { key, set })
            }
            KeyedPlan::Insert { rows, .. } => {
                let row = |(idx, row): (usize, &Vec<Slot>)| {
                    row.iter().enumerate().map(|(column, slot)| checked(idx, column, slot)).collect()
                };
                BoundKeyedPlan::Insert { rows: rows.iter().enumerate().map(row).collect::<Result<Vec<_>>>()? }
            }
        })
    }

    /// The columns by which the row is found.
    fn key_columns(&self, table: &TableSchema) -> Vec<usize> {
        match self {
            KeyedPlan::Select { unique: Some(at), .. } => unique_columns(table, *at),
            _ => key_columns(table),
        }
    }

    fn slots(&self) -> Vec<(SlotUse, &Slot)> {
        fn of_key(key: &[Slot]) -> impl Iterator<Item = (SlotUse, &Slot)> {
            key.iter().enumerate().map(|(part, slot)| (SlotUse::Key(part), slot))
        }
        match self {
            KeyedPlan::Select { key, .. } | KeyedPlan::Delete { key } => of_key(key).collect(),
            KeyedPlan::Update { key, set } => {
                of_key(key).chain(set.iter().map(|(column, slot)| (SlotUse::Column(*column), slot))).collect()
            }
            KeyedPlan::Insert { rows, .. } => rows
                .iter()
                .flat_map(|row| row.iter().enumerate().map(|(column, slot)| (SlotUse::Column(column), slot)))
                .collect(),
        }
    }
}

/// The columns of a unique constraint.
fn unique_columns(table: &TableSchema, at: usize) -> Vec<usize> {
    let unique = table.options.rules.uniques.get(at);
    let place = |id: &ColumnId| table.columns.iter().position(|column| column.id == *id);
    unique.into_iter().flat_map(|unique| &unique.columns).filter_map(place).collect()
}

/// What a slot is for.
enum SlotUse {
    Key(usize),
    Column(usize),
}

fn select(query: &Query, table: &TableSchema, style: &Style) -> Option<KeyedPlan> {
    let Select {
        select_token: _,
        optimizer_hints: _,
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: _,
        projection,
        exclude: None,
        into: None,
        from,
        lateral_views,
        prewhere: None,
        selection: Some(selection),
        connect_by,
        group_by: GroupByExpr::Expressions(group_by, group_modifiers),
        cluster_by,
        distribute_by,
        sort_by,
        having: None,
        named_window,
        qualify: None,
        window_before_qualify: _,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    } = plain_select(query)?
    else {
        return None;
    };
    let has_lists = !group_by.is_empty()
        || !group_modifiers.is_empty()
        || !lateral_views.is_empty()
        || !connect_by.is_empty()
        || !cluster_by.is_empty()
        || !distribute_by.is_empty()
        || !sort_by.is_empty()
        || !named_window.is_empty();
    let [from] = from.as_slice() else { return None };
    let (name, alias) = relation(from)?;
    if has_lists || name != table.name || table.options.append_only {
        return None;
    }
    let scope = Scope { table, alias: alias.as_deref(), style };
    let mut columns = vec![];
    for item in projection {
        match item {
            SelectItem::Wildcard(options) if is_plain(options) => {
                columns.extend(
                    table
                        .shown()
                        .iter()
                        .enumerate()
                        .map(|(column_idx, c)| OutputColumn { name: c.name.clone(), column_idx }),
                );
            }
            SelectItem::UnnamedExpr(expr) => {
                let column_idx = scope.column(expr)?;
                columns.push(OutputColumn { name: table.columns[column_idx].name.clone(), column_idx });
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                columns.push(OutputColumn { name: fold(alias), column_idx: scope.column(expr)? })
            }
            _ => return None,
        }
    }
    if let Some(key) = scope.full_key(selection) {
        return Some(KeyedPlan::Select { columns, key, unique: None });
    }
    let by = |at: usize| Some((at, scope.full_unique(selection, at)?));
    let (unique, key) = (0..table.options.rules.uniques.len()).find_map(by)?;
    Some(KeyedPlan::Select { columns, key, unique: Some(unique) })
}

/// A `SELECT` without anything around it.
fn plain_select(query: &Query) -> Option<&Select> {
    match plain_body(query)? {
        SetExpr::Select(select) => Some(select),
        _ => None,
    }
}

/// What a query consists of, if that is all.
fn plain_body(query: &Query) -> Option<&SetExpr> {
    let Query {
        with: None,
        body,
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks,
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators,
    } = query
    else {
        return None;
    };
    (locks.is_empty() && pipe_operators.is_empty()).then_some(body)
}

/// `*`, and nothing about it.
fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    opt_ilike.is_none()
        && opt_exclude.is_none()
        && opt_except.is_none()
        && opt_replace.is_none()
        && opt_rename.is_none()
        && opt_alias.is_none()
}

fn insert(statement: &Insert, table: &TableSchema, style: &Style) -> Option<KeyedPlan> {
    let Insert {
        insert_token: _,
        optimizer_hints: _,
        or: None,
        ignore: false,
        into: _,
        table: TableObject::TableName(name),
        table_alias: _,
        columns,
        overwrite: false,
        source,
        assignments,
        partitioned: None,
        after_columns,
        has_table_keyword: _,
        on: _,
        returning: None,
        output: None,
        replace_into: _,
        priority: None,
        insert_alias: None,
        settings: None,
        format_clause: None,
        multi_table_insert_type: None,
        multi_table_into_clauses,
        multi_table_when_clauses,
        multi_table_else_clause: None,
    } = statement
    else {
        return None;
    };
    let has_lists = !assignments.is_empty()
        || !after_columns.is_empty()
        || !multi_table_into_clauses.is_empty()
        || !multi_table_when_clauses.is_empty();
    if has_lists || object_name(name)? != table.name {
        return None;
    }
    // Rows that are there may have other keys.
    if statement.on.is_some() && table.has_indexes() {
        return None;
    }
    // What is wrong with it the planner's way says.
    let on_key = on_key(statement, table).ok()?;
    // `DEFAULT VALUES` gives none.
    let values = source.as_ref().map_or(Some(vec![&[][..]]), |source| plain_values(source))?;
    let on_key = match on_key {
        // Of one row no other is in the statement.
        OnKey::ReplaceOnce if values.len() == 1 => OnKey::Replace,
        OnKey::ReplaceOnce | OnKey::Change => return None,
        on_key => on_key,
    };
    let named: Vec<usize> = match columns.as_slice() {
        [] if source.is_none() => vec![],
        [] => (0..table.columns.len()).collect(),
        columns => columns.iter().map(|name| Some(table.column(&object_name(name)?)?.0)).collect::<Option<_>>()?,
    };
    // What is computed, and what rows are held to, is the planner's.
    let is_computed = |column: usize| table.computed_default(column).is_some() && !named.contains(&column);
    if table.options.rules.look_at_rows()
        || named.iter().any(|column| is_generated(table, *column))
        || (0..table.columns.len()).any(is_computed)
    {
        return None;
    }
    let twice = named.iter().enumerate().any(|(i, column)| named[..i].contains(column));
    if twice {
        return None;
    }
    let defaults: Vec<Slot> =
        table.columns.iter().map(|column| Slot::Literal(column.default.clone().unwrap_or(Value::Null))).collect();
    let mut rows = vec![];
    for given in values {
        if given.len() != named.len() {
            return None;
        }
        let mut row = defaults.clone();
        for (column, expr) in named.iter().zip(given) {
            if is_default(expr) && table.computed_default(*column).is_some() {
                return None;
            }
            if !is_default(expr) {
                row[*column] = slot(expr, &table.columns[*column].data_type, style)?;
            }
        }
        rows.push(row);
    }
    Some(KeyedPlan::Insert { rows, on_key })
}

/// Whether nobody may say what the column has.
fn is_generated(table: &TableSchema, column: usize) -> bool {
    table.rules_of(column).is_some_and(|rules| rules.identity == Some(Identity::Always) || rules.generated.is_some())
}

/// A text as its column keeps it.
fn fitting(table: &TableSchema, column: usize, value: Value) -> Result<Value> {
    match (table.rules_of(column), value) {
        (Some(ColumnRules { length: Some(length), .. }), value) => {
            length.fit_value(value).map_err(Error::types(&table.name))
        }
        (Some(ColumnRules { enumerated: Some(enumerated), .. }), Value::Text(text)) => {
            enumerated.place(&text).map_err(Error::types(&table.name))?;
            Ok(Value::Text(text))
        }
        (_, value) => Ok(value),
    }
}

/// The rows of a `VALUES` without anything around it.
fn plain_values(source: &Query) -> Option<Vec<&[Expr]>> {
    match plain_body(source)? {
        SetExpr::Values(values) => Some(values.rows.iter().map(|row| &row[..]).collect()),
        _ => None,
    }
}

/// `DEFAULT`, where a value is expected.
#[must_use]
pub fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}

fn update(statement: &Update, table: &TableSchema, style: &Style) -> Option<KeyedPlan> {
    let Update {
        update_token: _,
        optimizer_hints: _,
        table: target,
        assignments,
        from: None,
        selection: Some(selection),
        returning: None,
        output: None,
        or: None,
        order_by,
        limit: None,
    } = statement
    else {
        return None;
    };
    let (name, alias) = relation(target)?;
    let looks_at_rows = table.options.rules.look_at_rows();
    if !order_by.is_empty() || name != table.name || table.options.append_only || looks_at_rows {
        return None;
    }
    let scope = Scope { table, alias: alias.as_deref(), style };
    let mut set: Vec<(usize, Slot)> = vec![];
    for Assignment { target, value } in assignments {
        let AssignmentTarget::ColumnName(name) = target else { return None };
        let (column, definition) = table.column(&object_name(name)?)?;
        if table.is_key(column) || is_generated(table, column) || set.iter().any(|(other, _)| *other == column) {
            return None;
        }
        if is_default(value) && table.computed_default(column).is_some() {
            return None;
        }
        let value = match is_default(value) {
            true => Slot::Literal(definition.default.clone().unwrap_or(Value::Null)),
            false => slot(value, &definition.data_type, style)?,
        };
        set.push((column, value));
    }
    Some(KeyedPlan::Update { key: scope.full_key(selection)?, set })
}

fn delete(statement: &Delete, table: &TableSchema, style: &Style) -> Option<KeyedPlan> {
    let Delete {
        delete_token: _,
        optimizer_hints: _,
        tables,
        from: FromTable::WithFromKeyword(from),
        using: None,
        selection: Some(selection),
        returning: None,
        output: None,
        order_by,
        limit: None,
    } = statement
    else {
        return None;
    };
    let [from] = from.as_slice() else { return None };
    let (name, alias) = relation(from)?;
    if !tables.is_empty() || !order_by.is_empty() || name != table.name || table.options.append_only {
        return None;
    }
    Some(KeyedPlan::Delete { key: Scope { table, alias: alias.as_deref(), style }.full_key(selection)? })
}

/// The key of the only row that an `UPDATE` or `DELETE` may change, and whether its condition says more than that.
pub(crate) fn row_key(statement: &Statement, table: &TableSchema, style: &Style) -> Option<(Vec<Slot>, bool)> {
    let (from, selection) = match statement {
        Statement::Update(Update { table, from: None, selection: Some(selection), .. }) => (table, selection),
        Statement::Delete(delete @ Delete { using: None, selection: Some(selection), .. }) => match from_of(delete) {
            [from] => (from, selection),
            _ => return None,
        },
        _ => return None,
    };
    let (name, alias) = relation(from)?;
    if name != table.name || table.is_keyless() {
        return None;
    }
    Scope { table, alias: alias.as_deref(), style }.named(selection, &key_columns(table))
}

/// The columns of the primary key, in its order.
fn key_columns(table: &TableSchema) -> Vec<usize> {
    table.key.iter().map(|part| part.column_idx).collect()
}

pub(crate) fn from_of(delete: &Delete) -> &[TableWithJoins] {
    match &delete.from {
        FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables) => tables,
    }
}

/// One plain table and its alias.
pub(crate) fn relation(from: &TableWithJoins) -> Option<(String, Option<String>)> {
    let TableWithJoins { relation, joins } = from;
    let TableFactor::Table {
        name,
        alias,
        args: None,
        with_hints,
        version: None,
        with_ordinality: false,
        partitions,
        json_path: None,
        sample: None,
        index_hints,
    } = relation
    else {
        return None;
    };
    if !joins.is_empty() || !with_hints.is_empty() || !partitions.is_empty() || !index_hints.is_empty() {
        return None;
    }
    let alias = match alias {
        None => None,
        Some(TableAlias { explicit: _, name, columns, at: None }) if columns.is_empty() => Some(fold(name)),
        Some(_) => return None,
    };
    Some((object_name(name)?, alias))
}

/// Schemas that no table of users is in.
const OF_SYSTEM: [&str; 3] = ["tarn", "pg_catalog", "information_schema"];

/// The full name of a table of users ([`tarn_types::full_name`]): that of `public`, where no schema is given.
pub(crate) fn object_name(name: &ObjectName) -> Option<String> {
    let parts: Vec<String> = name.0.iter().map(|part| part.as_ident().map(fold)).collect::<Option<_>>()?;
    match parts.as_slice() {
        [table] => Some(table.clone()),
        [schema, table] | [_, schema, table] if !OF_SYSTEM.contains(&schema.as_str()) => {
            Some(full_name::join(schema, table))
        }
        _ => None,
    }
}

/// The names that a `WHERE` can use.
struct Scope<'a> {
    table: &'a TableSchema,
    alias: Option<&'a str>,
    style: &'a Style,
}

impl Scope<'_> {
    fn column(&self, expr: &Expr) -> Option<usize> {
        let name = match expr {
            Expr::Identifier(name) => name,
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, name] if fold(table) == self.alias.unwrap_or(full_name::bare(&self.table.name)) => name,
                _ => return None,
            },
            _ => return None,
        };
        let name = fold(name);
        self.table.shown().iter().position(|column| column.name == name)
    }

    /// One slot per key column, when the condition is exactly an equality for each.
    fn full_key(&self, selection: &Expr) -> Option<Vec<Slot>> {
        if self.table.is_keyless() {
            return None;
        }
        self.full(selection, &key_columns(self.table))
    }

    /// The same of a unique constraint.
    fn full_unique(&self, selection: &Expr, at: usize) -> Option<Vec<Slot>> {
        if self.table.options.rules.uniques[at].repeats {
            return None;
        }
        self.full(selection, &unique_columns(self.table, at))
    }

    fn full(&self, selection: &Expr, columns: &[usize]) -> Option<Vec<Slot>> {
        self.named(selection, columns).filter(|(_, has_more)| !has_more).map(|(named, _)| named)
    }

    /// A slot for each of the columns, when the condition has an equality for each, and whether it says more.
    fn named(&self, selection: &Expr, columns: &[usize]) -> Option<(Vec<Slot>, bool)> {
        let mut found: Vec<Option<Slot>> = vec![None; columns.len()];
        let has_more = self.equalities(selection, columns, &mut found);
        Some((found.into_iter().collect::<Option<_>>()?, has_more))
    }

    /// Whether something else is among the conditions that are all to be met.
    fn equalities(&self, expr: &Expr, columns: &[usize], found: &mut [Option<Slot>]) -> bool {
        match expr {
            Expr::Nested(inner) => self.equalities(inner, columns, found),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                let has_more = self.equalities(left, columns, found);
                self.equalities(right, columns, found) || has_more
            }
            other => self.equality(other, columns, found).is_none(),
        }
    }

    fn equality(&self, expr: &Expr, columns: &[usize], found: &mut [Option<Slot>]) -> Option<()> {
        match expr {
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                let (column, value) = match (self.column(left), self.column(right)) {
                    (Some(column), None) => (column, right),
                    (None, Some(column)) => (column, left),
                    _ => return None,
                };
                let part = columns.iter().position(|of| *of == column)?;
                let data_type = &self.table.columns[column].data_type;
                let slot = slot(value, data_type, self.style).filter(|_| compares_exactly(value, data_type))?;
                let literal_null = slot == Slot::Literal(Value::Null);
                if literal_null || found[part].is_some() {
                    return None;
                }
                found[part] = Some(slot);
                Some(())
            }
            _ => None,
        }
    }
}

/// Whether a literal that was read as a value of the column is still what was written: `0.125` is no `NUMERIC(9, 2)`.
fn compares_exactly(expr: &Expr, data_type: &DataType) -> bool {
    let decimals = |text: &str| text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    match (data_type, expr) {
        (DataType::Decimal { scale, .. }, Expr::Value(value)) => match &value.value {
            Literal::Number(text, _) => !text.contains(['e', 'E']) && decimals(text) <= *scale as usize,
            Literal::Placeholder(_) => true,
            _ => false,
        },
        (DataType::Decimal { .. } | DataType::Float32, _) => false,
        _ => true,
    }
}

/// A literal or parameter as a value of a column; `None` for anything else, and for a literal that does not fit.
fn slot(expr: &Expr, data_type: &DataType, style: &Style) -> Option<Slot> {
    let parse = |text: &str| Value::parse_in(data_type, text, style).ok().map(Slot::Literal);
    let numeric = matches!(
        data_type,
        DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal { .. }
    );
    match expr {
        Expr::Nested(inner) => slot(inner, data_type, style),
        Expr::Value(value) => match &value.value {
            Literal::Null => Some(Slot::Literal(Value::Null)),
            Literal::Placeholder(name) => {
                let number: usize = name.strip_prefix('$')?.parse().ok()?;
                number.checked_sub(1).map(Slot::Parameter)
            }
            Literal::Boolean(value) => {
                matches!(data_type, DataType::Bool).then_some(Slot::Literal(Value::Bool(*value)))
            }
            Literal::Number(text, _) if numeric => parse(text),
            Literal::SingleQuotedString(text) | Literal::EscapedStringLiteral(text) => parse(text),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } if numeric => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                Literal::Number(text, _) => parse(&format!("-{text}")),
                _ => None,
            },
            _ => None,
        },
        Expr::Cast { kind: _, expr, data_type: to, array: false, format: None } if is_named(data_type, to) => {
            match expr.as_ref() {
                Expr::Value(value)
                    if matches!(
                        value.value,
                        Literal::SingleQuotedString(_) | Literal::Placeholder(_) | Literal::Null
                    ) =>
                {
                    slot(expr, data_type, style)
                }
                _ => None,
            }
        }
        Expr::TypedString(typed) if is_named(data_type, &typed.data_type) => match &typed.value.value {
            Literal::SingleQuotedString(text) => parse(text),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a type in SQL is this type, without a length or precision that would change the value.
fn is_named(data_type: &DataType, named: &Named) -> bool {
    use TimezoneInfo::{None as Bare, Tz, WithTimeZone, WithoutTimeZone};
    match named {
        Named::Bool | Named::Boolean => *data_type == DataType::Bool,
        Named::SmallInt(None) | Named::Int2(None) => *data_type == DataType::Int16,
        Named::Int(None) | Named::Integer(None) | Named::Int4(None) => *data_type == DataType::Int32,
        Named::BigInt(None) | Named::Int8(None) => *data_type == DataType::Int64,
        Named::Real | Named::Float4 => *data_type == DataType::Float32,
        Named::DoublePrecision | Named::Float8 => *data_type == DataType::Float64,
        Named::Text | Named::Varchar(None) | Named::CharacterVarying(None) => *data_type == DataType::Text,
        Named::Bytea => *data_type == DataType::Bytes,
        Named::Date => *data_type == DataType::Date,
        Named::Time(None, Bare | WithoutTimeZone) => *data_type == DataType::Time,
        Named::Timestamp(None, Bare | WithoutTimeZone) => *data_type == DataType::Timestamp,
        Named::Timestamp(None, WithTimeZone | Tz) => *data_type == DataType::TimestampTz,
        Named::Interval { fields: None, precision: None } => *data_type == DataType::Interval,
        named if is_inet(named) => *data_type == DataType::Inet,
        Named::Uuid => *data_type == DataType::Uuid,
        Named::JSON => *data_type == DataType::Json,
        Named::JSONB => *data_type == DataType::Jsonb,
        Named::Array(ArrayElemTypeDef::SquareBracket(named, None)) => {
            data_type.item().is_some_and(|item| is_named(&item, named))
        }
        _ => false,
    }
}
