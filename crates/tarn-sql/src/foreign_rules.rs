//! What do `REFERENCES` and `FOREIGN KEY` say, and which constraint is that of two tables?
//!
//! ```sql
//! p_id int REFERENCES p [(id)] …            FOREIGN KEY (a, b) REFERENCES p [(x, y)] …
//! … [MATCH SIMPLE | FULL] [ON DELETE action] [ON UPDATE action] [[NOT] DEFERRABLE] [INITIALLY DEFERRED | IMMEDIATE]
//! ```
//!
//! What it comes to is a part of the child's schema ([`tarn_types::ForeignKey`]), with an index by which its rows are
//! found where none is there.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, ConstraintCharacteristics, ConstraintReferenceMatchKind, DeferrableInitial,
    ForeignKeyConstraint, Ident, ReferentialAction,
};
use tarn_types::{
    Column, ColumnId, DataType, ForeignKey, OnParent, TableSchema, Unique, full_name, is_comparable, referenced,
};

use crate::column_rules::made_up;
use crate::definition::{has_primary_key, long_type};
use crate::error::{Result, SqlError, state};
use crate::names::{check_name, fold, table_name, written_name};
use crate::unique_rules::{NOT_MADE, OF_FOREIGN_KEY};

/// A foreign key, as it was said.
#[derive(Debug, Clone, PartialEq)]
pub struct SaidForeignKey {
    name: Option<String>,
    /// The names of its columns.
    columns: Vec<String>,
    /// The table that it refers to.
    pub parent: String,
    /// None are named: those of its primary key.
    parent_columns: Vec<String>,
    /// With all else that is said, and without ids.
    says: ForeignKey,
}

impl SaidForeignKey {
    /// Of a table, or of one column, whose name it is then.
    ///
    /// Errors: `0A000` for what there is not; `42601`.
    pub fn of(said: &ForeignKeyConstraint, column: Option<(&str, Option<&Ident>)>) -> Result<SaidForeignKey> {
        // By all of its fields: a newer parser's clause is decided on before it compiles.
        let ForeignKeyConstraint {
            name,
            index_name,
            columns,
            foreign_table,
            referred_columns,
            on_delete,
            on_update,
            match_kind,
            characteristics,
        } = said;
        if index_name.is_some() {
            return Err(SqlError::unsupported("FOREIGN KEY with the name of an index", "leave it out"));
        }
        let match_full = match match_kind {
            None | Some(ConstraintReferenceMatchKind::Simple) => false,
            Some(ConstraintReferenceMatchKind::Full) => true,
            Some(ConstraintReferenceMatchKind::Partial) => {
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, "MATCH PARTIAL not yet implemented")
                    .with_hint("MATCH SIMPLE or MATCH FULL"));
            }
        };
        let (deferrable, initially_deferred) = deferral(characteristics.as_ref())?;
        let (columns, name) = match column {
            Some((column, before)) => (vec![column.to_owned()], name.as_ref().or(before)),
            None => (columns.iter().map(fold).collect(), name.as_ref()),
        };
        Ok(SaidForeignKey {
            name: name.map(fold),
            columns,
            parent: table_name(foreign_table)?,
            parent_columns: referred_columns.iter().map(fold).collect(),
            says: ForeignKey {
                match_full,
                on_delete: action(*on_delete),
                on_update: action(*on_update),
                deferrable,
                initially_deferred,
                ..ForeignKey::default()
            },
        })
    }

    /// As [`SaidForeignKey::of`], of a statement that was not looked at for schemas yet: the parent is called as it is
    /// written.
    pub fn of_written(said: &ForeignKeyConstraint) -> Result<SaidForeignKey> {
        Ok(SaidForeignKey { parent: written_name(&said.foreign_table)?, ..SaidForeignKey::of(said, None)? })
    }

    /// What a column says of itself.
    ///
    /// Errors: as of [`SaidForeignKey::of`].
    pub fn of_column(def: &ColumnDef) -> Result<Vec<SaidForeignKey>> {
        let column = fold(&def.name);
        let of = def.options.iter().filter_map(|option| match &option.option {
            ColumnOption::ForeignKey(said) => Some(SaidForeignKey::of(said, Some((&column, option.name.as_ref())))),
            _ => None,
        });
        of.collect()
    }
}

fn action(said: Option<ReferentialAction>) -> OnParent {
    match said {
        None | Some(ReferentialAction::NoAction) => OnParent::NoAction,
        Some(ReferentialAction::Restrict) => OnParent::Restrict,
        Some(ReferentialAction::Cascade) => OnParent::Cascade,
        Some(ReferentialAction::SetNull) => OnParent::SetNull,
        Some(ReferentialAction::SetDefault) => OnParent::SetDefault,
    }
}

fn deferral(said: Option<&ConstraintCharacteristics>) -> Result<(bool, bool)> {
    let Some(ConstraintCharacteristics { deferrable, initially, enforced }) = said else { return Ok((false, false)) };
    if *enforced == Some(false) {
        return Err(SqlError::unsupported("FOREIGN KEY … NOT ENFORCED", "leave the constraint out"));
    }
    let initially_deferred = *initially == Some(DeferrableInitial::Deferred);
    if initially_deferred && *deferrable == Some(false) {
        let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
        return Err(SqlError::new(state::SYNTAX_ERROR, message));
    }
    Ok((deferrable.unwrap_or(initially_deferred), initially_deferred))
}

/// Adds foreign keys to a table whose columns and other constraints are all known. `parent_of` finds tables by the
/// names that are said; the table itself is found by its own.
///
/// Errors: as PostgreSQL's of such a constraint.
pub fn add(
    table: &mut TableSchema,
    said: Vec<SaidForeignKey>,
    parent_of: impl Fn(&str) -> Result<Arc<TableSchema>>,
) -> Result<()> {
    for said in said {
        let parent = match said.parent == table.name {
            true => Arc::new(table.clone()),
            false => parent_of(&said.parent)?,
        };
        let key = foreign_key(table, &parent, said)?;
        table.options.rules.foreign_keys.push(key);
    }
    Ok(())
}

fn foreign_key(table: &TableSchema, parent: &TableSchema, said: SaidForeignKey) -> Result<ForeignKey> {
    let SaidForeignKey { name, columns, parent: parent_name, parent_columns, says } = said;
    check_tables(table, parent, &parent_name)?;
    let children = columns_of(table, &columns)?;
    let parent_columns = match parent_columns.is_empty() {
        false => columns_of(parent, &parent_columns)?,
        true if has_primary_key(parent) => parent.key_columns().collect(),
        true => {
            let message = format!("there is no primary key for referenced table \"{}\"", full_name::bare(&parent_name));
            return Err(SqlError::new(state::UNDEFINED_OBJECT, message));
        }
    };
    if children.len() != parent_columns.len() {
        let message = "number of referencing and referenced columns for foreign key disagree";
        return Err(SqlError::new(state::INVALID_FOREIGN_KEY, message));
    }
    let parents: Vec<ColumnId> = parent_columns.iter().map(|column| column.id).collect();
    if parents.iter().collect::<HashSet<_>>().len() < parents.len() {
        let message = "foreign key referenced-columns list must not contain duplicates";
        return Err(SqlError::new(state::INVALID_FOREIGN_KEY, message));
    }
    if referenced(parent, &parents).is_none() {
        let message =
            format!("there is no unique constraint matching given keys for referenced table \"{parent_name}\"");
        return Err(SqlError::new(state::INVALID_FOREIGN_KEY, message));
    }
    let ids: Vec<ColumnId> = children.iter().map(|column| column.id).collect();
    if ids.iter().collect::<HashSet<_>>().len() < ids.len() {
        return Err(SqlError::unsupported("FOREIGN KEY of one column twice", "name each column once"));
    }
    let taken: HashSet<&str> = constraint_names(table).collect();
    let name = match name {
        Some(name) if taken.contains(name.as_str()) => {
            let message = format!("constraint \"{name}\" for relation \"{}\" already exists", table.name);
            return Err(SqlError::new(state::DUPLICATE_OBJECT, message));
        }
        Some(name) => {
            check_name("constraint", &name)?;
            name
        }
        None => {
            let is_taken = |name: &str| taken.contains(name) || table.is_key_named(name);
            made_up(&[full_name::bare(&table.name), &columns.join("_")], "fkey", is_taken)
        }
    };
    for (child, of) in children.iter().zip(&parent_columns) {
        check_types(table, child, parent, of, &name)?;
    }
    check_actions(table, &children, &says)?;
    let parent = if parent.id == table.id && parent.name == table.name { ForeignKey::ITSELF } else { parent.id };
    Ok(ForeignKey { name, columns: ids, parent, parent_columns: parents, ..says })
}

/// Constraints of a table, but for its primary key.
fn constraint_names(table: &TableSchema) -> impl Iterator<Item = &str> {
    let rules = &table.options.rules;
    let uniques = rules.uniques.iter().filter(|unique| !unique.by_index).map(|unique| unique.name.as_str());
    let checks = rules.checks.iter().map(|check| check.name.as_str());
    uniques.chain(checks).chain(rules.foreign_keys.iter().map(|key| key.name.as_str()))
}

/// Whether a constraint of a table is called so.
pub fn has_constraint(table: &TableSchema, name: &str) -> bool {
    let is_key = || has_primary_key(table) && table.is_key_named(name);
    constraint_names(table).any(|other| other == name) || is_key()
}

fn check_tables(table: &TableSchema, parent: &TableSchema, parent_name: &str) -> Result<()> {
    if table.id.is_temporary() || parent.id.is_temporary() {
        if !table.id.is_temporary() {
            let message = "constraints on permanent tables may reference only permanent tables";
            return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
        }
        return Err(SqlError::unsupported(
            format!("FOREIGN KEY of temporary table \"{}\"", table.name),
            "leave it out, or make a table that stays",
        ));
    }
    if !parent.has_rows() {
        let message = format!("referenced relation \"{parent_name}\" is not a table");
        return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
    }
    for of in [table, parent] {
        if of.options.append_only {
            return Err(SqlError::unsupported(
                format!("FOREIGN KEY with append-only table \"{}\"", of.name),
                "create the table without append_only",
            ));
        }
    }
    Ok(())
}

fn columns_of<'a>(table: &'a TableSchema, names: &[String]) -> Result<Vec<&'a Column>> {
    let column = |name: &String| {
        let found = table.shown().iter().find(|column| column.name == *name);
        found.ok_or_else(|| {
            let message = format!("column \"{name}\" referenced in foreign key constraint does not exist");
            SqlError::new(state::UNDEFINED_COLUMN, message)
        })
    };
    names.iter().map(column).collect()
}

fn check_types(table: &TableSchema, child: &Column, parent: &TableSchema, of: &Column, name: &str) -> Result<()> {
    let place = |table: &TableSchema, column: &Column| table.columns.iter().position(|other| other.id == column.id);
    let (Some(at), Some(of_at)) = (place(table, child), place(parent, of)) else { return Ok(()) };
    let labels = |table: &TableSchema, at: usize| table.enumerated(at).map(|of| of.id);
    if is_comparable(child.data_type, of.data_type) && labels(table, at) == labels(parent, of_at) {
        return Ok(());
    }
    let is_number = |of: DataType| {
        matches!(
            of,
            DataType::Int16
                | DataType::Int32
                | DataType::Int64
                | DataType::Float32
                | DataType::Float64
                | DataType::Decimal { .. }
        )
    };
    let is_time = |of: DataType| matches!(of, DataType::Date | DataType::Timestamp | DataType::TimestampTz);
    let [one, other] = [child.data_type, of.data_type];
    if (is_number(one) && is_number(other)) || (is_time(one) && is_time(other)) {
        return Err(SqlError::unsupported(
            format!("FOREIGN KEY \"{name}\" from {} to {}", long_type(table, at), long_type(parent, of_at)),
            "give both columns one type",
        ));
    }
    let message = format!("foreign key constraint \"{name}\" cannot be implemented");
    Err(SqlError::new(state::DATATYPE_MISMATCH, message).with_detail(format!(
        "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
        child.name,
        of.name,
        long_type(table, at),
        long_type(parent, of_at)
    )))
}

fn check_actions(table: &TableSchema, children: &[&Column], says: &ForeignKey) -> Result<()> {
    for (what, on) in [("ON DELETE", says.on_delete), ("ON UPDATE", says.on_update)] {
        for column in children {
            let Some(at) = table.columns.iter().position(|other| other.id == column.id) else { continue };
            let changes = matches!(on, OnParent::SetNull | OnParent::SetDefault)
                || (on == OnParent::Cascade && what == "ON UPDATE");
            if changes && table.generated(at).is_some() {
                let message = format!("invalid {what} action for foreign key constraint containing generated column");
                return Err(SqlError::new(state::SYNTAX_ERROR, message));
            }
            let is_computed = table.rules_of(at).is_some_and(|rules| rules.default.is_some());
            if on == OnParent::SetDefault && is_computed {
                return Err(SqlError::unsupported(
                    format!("{what} SET DEFAULT of column \"{}\", whose default is computed", column.name),
                    "SET NULL, or a default that is a constant",
                ));
            }
        }
    }
    Ok(())
}

/// Indexes that foreign keys of a table need and that it has not: they are made with it, and those that none needs any
/// more go. `is_taken` says of full names of indexes, which are in the schema of the table.
pub fn serve(table: &mut TableSchema, is_taken: impl Fn(&str) -> bool) {
    table.options.rules.forget_unneeded();
    for at in 0..table.options.rules.foreign_keys.len() {
        let key = table.options.rules.foreign_keys[at].clone();
        if table.options.rules.serving(&key).is_some() {
            continue;
        }
        let names = key.columns.iter().filter_map(|id| table.column_by_id(*id)).map(|column| column.name.as_str());
        let names = names.collect::<Vec<_>>().join("_");
        let uniques = &table.options.rules.uniques;
        let is_taken = |name: &str| {
            is_taken(&full_name::beside(&table.name, name)) || uniques.iter().any(|unique| unique.name == name)
        };
        let name = made_up(&[full_name::bare(&table.name), &names], OF_FOREIGN_KEY, is_taken);
        table.options.rules.uniques.push(Unique {
            name,
            columns: key.columns,
            index: NOT_MADE,
            by_index: true,
            repeats: true,
            of_foreign_key: true,
            ..Unique::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_put_off_says_so() {
        let said = |deferrable, initially| {
            deferral(Some(&ConstraintCharacteristics { deferrable, initially, enforced: None }))
        };
        assert_eq!(said(None, Some(DeferrableInitial::Deferred)).unwrap(), (true, true));
        assert_eq!(said(Some(true), None).unwrap(), (true, false));
        assert_eq!(said(None, Some(DeferrableInitial::Immediate)).unwrap(), (false, false));
        assert_eq!(said(Some(false), Some(DeferrableInitial::Deferred)).unwrap_err().state(), state::SYNTAX_ERROR);
    }
}
