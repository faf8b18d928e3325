//! What do `UNIQUE` and indexes say of a table's columns?
//!
//! Of what may be said of a constraint only its name and its columns are understood; what else it says is refused by
//! name. What an index says is read in `index_sql.rs`, which classes of operators there are in `operator_classes.rs`.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, IndexColumn, NullsDistinctOption, OrderByExpr, OrderByOptions, UniqueConstraint,
};
use tarn_types::{DataType, IndexedColumn, TableId, TableSchema, Unique, full_name};

use crate::column_rules::made_up;
use crate::error::{Result, SqlError, state};
use crate::names::{check_name, fold};
use crate::operator_classes::operators;

/// Of an index that is still to be made.
pub const NOT_MADE: TableId = TableId(0);

/// What names of indexes end with that are there for foreign keys alone, of which nobody is told.
pub const OF_FOREIGN_KEY: &str = "fkidx";

/// A constraint, or another index, as it was said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SaidUnique {
    /// `None`: it is made up of the table's and the columns'.
    pub name: Option<Ident>,
    /// The names of its columns, as they are kept.
    pub columns: Vec<String>,
    /// By `CREATE INDEX` or `CREATE UNIQUE INDEX`.
    pub by_index: bool,
    /// By `CREATE INDEX`: values may be there more than once.
    pub repeats: bool,
    /// What is said of each column of an index.
    pub orders: Vec<IndexedColumn>,
}

impl SaidUnique {
    /// Of a table.
    ///
    /// Errors: `0A000` for what else is said of it.
    pub fn of(said: &UniqueConstraint) -> Result<SaidUnique> {
        check(said)?;
        let columns = said.columns.iter().map(column).collect::<Result<_>>()?;
        Ok(SaidUnique { name: said.name.clone(), columns, ..SaidUnique::default() })
    }

    /// Of one column. `name` is what stands before it.
    ///
    /// Errors: `0A000` for what else is said of it.
    pub fn of_column(said: &UniqueConstraint, name: Option<&Ident>, column: &str) -> Result<SaidUnique> {
        check(said)?;
        let name = said.name.as_ref().or(name).cloned();
        Ok(SaidUnique { name, columns: vec![column.to_owned()], ..SaidUnique::default() })
    }
}

fn check(said: &UniqueConstraint) -> Result<()> {
    let UniqueConstraint {
        name: _,
        index_name,
        index_type_display: _,
        index_type,
        columns: _,
        index_options,
        characteristics,
        nulls_distinct,
    } = said;
    if *nulls_distinct == NullsDistinctOption::NotDistinct {
        return Err(SqlError::unsupported("UNIQUE NULLS NOT DISTINCT", "UNIQUE, and NOT NULL of its columns"));
    }
    if characteristics.is_some() {
        return Err(SqlError::unsupported("UNIQUE … DEFERRABLE", "leave it out: it is checked by each statement"));
    }
    if index_name.is_some() || index_type.is_some() || !index_options.is_empty() {
        return Err(SqlError::unsupported("UNIQUE … with options of an index", "UNIQUE (columns)"));
    }
    Ok(())
}

/// A column of a constraint.
///
/// Errors: `0A000` for an expression, and for what else is said of it.
fn column(column: &IndexColumn) -> Result<String> {
    let IndexColumn { column: OrderByExpr { expr, options, with_fill }, operator_class } = column;
    let OrderByOptions { asc, nulls_first } = options;
    match expr {
        // Ascending is the order of a constraint that does not say it.
        Expr::Identifier(ident)
            if *asc != Some(false) && nulls_first.is_none() && with_fill.is_none() && operator_class.is_none() =>
        {
            Ok(fold(ident))
        }
        _ => Err(SqlError::unsupported(
            "UNIQUE of anything but columns in their own order",
            "name columns: (a, b); a GENERATED column keeps what an expression gives",
        )),
    }
}

/// Without what is said twice, or is the primary key: in `CREATE TABLE` it holds once, as in PostgreSQL.
pub fn once(said: Vec<SaidUnique>, table: &TableSchema) -> Vec<SaidUnique> {
    let is_key =
        |columns: &[String]| !table.is_keyless() && table.key_columns().map(|column| &column.name).eq(columns.iter());
    let mut kept: Vec<SaidUnique> = vec![];
    for unique in said {
        let is_said = is_key(&unique.columns) || kept.iter().any(|other| other.columns == unique.columns);
        if unique.name.is_some() || !is_said {
            kept.push(unique);
        }
    }
    kept
}

/// More constraints and indexes of a table whose columns are all known, each with a name of its own, and which of them
/// have names that are made up.
///
/// Errors: `42703` for a column that is not there, `42701` for one that is named twice; `42P07` for a name that is
/// given twice; `42704` and `42804` for operators that are not of the column's type; `0A000` for columns of which there
/// are no keys, and for rows that are not kept by key.
pub fn uniques(said: Vec<SaidUnique>, table: &TableSchema) -> Result<(Vec<Unique>, Vec<usize>)> {
    if let Some(first) = said.first().filter(|_| table.options.append_only) {
        return Err(SqlError::unsupported(
            format!("{} of append-only table \"{}\"", first.kind(), table.name),
            "create the table without append_only",
        ));
    }
    let mut names: HashSet<String> = table.options.rules.uniques.iter().map(|unique| unique.name.clone()).collect();
    for name in said.iter().filter_map(|unique| unique.name.as_ref()).map(fold) {
        check_name("constraint", &name)?;
        if !names.insert(name.clone()) {
            return Err(SqlError::new(state::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")));
        }
    }
    let (mut uniques, mut unnamed): (Vec<Unique>, _) = (vec![], vec![]);
    for said in said {
        let mut ids = Vec::with_capacity(said.columns.len());
        let mut orders = said.orders.clone();
        for (place, name) in said.columns.iter().enumerate() {
            let Some(at) = table.shown().iter().position(|column| column.name == *name) else {
                let in_key = if said.by_index { "" } else { " named in key" };
                let message = format!("column \"{name}\"{in_key} does not exist");
                return Err(SqlError::new(state::UNDEFINED_COLUMN, message));
            };
            let column = &table.columns[at];
            if ids.contains(&column.id) && said.by_index {
                let message = format!("{} of column \"{name}\" twice", said.kind());
                return Err(SqlError::unsupported(message, "name it once: the second says nothing more"));
            }
            if ids.contains(&column.id) {
                let message = format!("column \"{name}\" appears twice in unique constraint");
                return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
            }
            if column.data_type == DataType::Json {
                let message = "data type json has no default operator class for access method \"btree\"";
                return Err(SqlError::new(state::UNDEFINED_OBJECT, message)
                    .with_hint("of json there are no keys: keep what identifies it in a column of its own"));
            }
            if !column.data_type.is_ordered() {
                return Err(SqlError::unsupported(
                    format!("{} of column \"{name}\", which is {}", said.kind(), column.data_type),
                    "of json, intervals, addresses and arrays there are no keys: keep what identifies it in a column of its own",
                ));
            }
            if let Some(order) = orders.get_mut(place) {
                order.operators =
                    order.operators.take().map(|class| operators(&class, table, at)).transpose()?.flatten();
            }
            ids.push(column.id);
        }
        if orders.iter().all(|order| *order == IndexedColumn::default()) {
            orders.clear();
        }
        let name = match &said.name {
            Some(name) => fold(name),
            None => {
                unnamed.push(uniques.len());
                let columns = said.columns.join("_");
                let name = made_up(&[full_name::bare(&table.name), &columns], label(said.by_index), |name| {
                    names.contains(name)
                });
                names.insert(name.clone());
                name
            }
        };
        let SaidUnique { by_index, repeats, .. } = said;
        uniques.push(Unique { name, columns: ids, index: NOT_MADE, by_index, repeats, orders, of_foreign_key: false });
    }
    Ok((uniques, unnamed))
}

impl SaidUnique {
    fn kind(&self) -> &'static str {
        if self.repeats { "CREATE INDEX" } else { "UNIQUE" }
    }
}

fn label(by_index: bool) -> &'static str {
    if by_index { "idx" } else { "key" }
}

/// Gives the primary key of a table that comes a name that no other table's key or index has.
///
/// Errors: `42P07` for a name that was said and is taken.
pub fn name_key(table: &mut TableSchema, others: &[Arc<TableSchema>]) -> Result<()> {
    let schema = full_name::schema_of(&table.name);
    let is_taken = |name: &str| {
        let mut beside = others.iter().filter(|other| full_name::schema_of(&other.name) == schema);
        beside.any(|other| {
            let mut uniques = other.options.rules.uniques.iter();
            let has_key = other.has_rows() && other.is_key_named(name);
            has_key || full_name::bare(&other.name) == name || uniques.any(|of| of.name == name)
        })
    };
    let name = table.key_name();
    if table.is_keyless() || !is_taken(&name) {
        return Ok(());
    }
    if table.options.rules.key_name.is_some() {
        return Err(SqlError::new(state::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")));
    }
    table.options.rules.key_name = Some(made_up(&[full_name::bare(&table.name)], "pkey", is_taken));
    Ok(())
}

/// Gives a constraint or index whose name is made up one that is free.
pub fn name_anew(table: &mut TableSchema, at: usize, is_taken: impl Fn(&str) -> bool) {
    let unique = &table.options.rules.uniques[at];
    let columns = unique.columns.iter().filter_map(|id| table.column_by_id(*id)).map(|column| column.name.as_str());
    let columns = columns.collect::<Vec<_>>().join("_");
    let others = table.options.rules.uniques.iter().enumerate().filter(|(other, _)| *other != at);
    let others: HashSet<&str> = others.map(|(_, unique)| unique.name.as_str()).collect();
    // Its index is in the schema of the table.
    let is_taken = |name: &str| others.contains(name) || is_taken(&full_name::beside(&table.name, name));
    let label = if unique.of_foreign_key { OF_FOREIGN_KEY } else { label(unique.by_index) };
    let name = made_up(&[full_name::bare(&table.name), &columns], label, is_taken);
    table.options.rules.uniques[at].name = name;
}
