//! How does a session find, make, empty and drop the tables that it has to itself?
//!
//! A name without a schema means such a table, if there is one of it. Names of schema `pg_temp` are said without it
//! before a statement is looked at ([`Session::with_own_names`]), while a statement that writes to `public.t` is
//! refused as long as that is hidden.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    CopySource, CreateTable, CreateTableOptions, FromTable, ObjectName, ObjectType, OnCommit as SaidOnCommit, Query,
    Statement, TableFactor, TableObject, TableWithJoins,
};
use tarn_node::catalog::{CatalogEntry, TableHandle};
use tarn_node::sequences::Sequence;
use tarn_query::each_relation;
use tarn_types::TableSchema;

use super::{Answer, Session};
use crate::activity::Status;
use crate::column_rules::{ColumnSequence, made_up};
use crate::ddl::{TableDefinition, defined};
use crate::error::{Result, SqlError, state};
use crate::expressions::next_of;
use crate::names::{OWN_SCHEMA, fold, quote, table_name};
use crate::temporary::{OnCommit, OwnTable, own_schema};
use crate::user_types;

impl Session {
    /// The table that is called so, to write to or work on.
    pub(super) fn table(&self, name: &str) -> Result<Arc<TableHandle>> {
        match self.temporary.table(name) {
            Some(own) if own.schema().is_view() => Err(tarn_node::error::Error::is_view(name).into()),
            Some(own) => Ok(own),
            None => {
                let entry = self.temporary.entry(self.node.catalog(), name);
                Ok(entry.ok_or_else(|| tarn_node::error::Error::no_table(name))?.require()?)
            }
        }
    }

    /// The same, if it is a table that is written here.
    pub(super) fn written_here(&self, name: &str) -> Option<Arc<TableHandle>> {
        let own = self.temporary.table(name);
        if own.as_ref().is_some_and(|own| own.schema().is_view()) {
            return None;
        }
        own.or_else(|| match self.temporary.entry(self.node.catalog(), name)? {
            CatalogEntry::Table(handle) => Some(handle),
            CatalogEntry::External(_) | CatalogEntry::View(_) => None,
        })
    }

    /// The definition of the table or view that is called so.
    pub(super) fn definition(&self, name: &str) -> Result<Arc<TableSchema>> {
        match self.temporary.table(name) {
            Some(own) => Ok(Arc::clone(own.schema())),
            None => self.temporary.schema(self.node.catalog(), name),
        }
    }

    /// The view that is called so.
    pub(super) fn view_of(&self, name: &str) -> Option<Arc<TableSchema>> {
        match self.temporary.table(name) {
            Some(own) => Some(Arc::clone(own.schema())).filter(|own| own.is_view()),
            None => self.temporary.view(self.node.catalog(), name),
        }
    }

    /// Moves whenever a name may mean another table.
    pub(super) fn generation(&self) -> (u64, u64) {
        (self.node.catalog().generation(), self.temporary.generation())
    }

    /// Before a write to a table, as [`Session::must_hold`]: what a session has to itself may be written by a
    /// transaction that only reads.
    pub(super) fn must_hold_for(&self, table: &TableSchema) -> Result<bool> {
        match table.id.is_temporary() {
            true => Ok(self.transaction.lock().is_open()),
            false => self.must_hold(),
        }
    }

    /// Before a statement that is about files, rights or comments, of which temporary tables have none.
    ///
    /// Errors: `0A000`.
    pub(super) fn refuse_own(&self, what: &str, name: &str) -> Result<()> {
        match self.temporary.table(name) {
            None => Ok(()),
            Some(_) => Err(SqlError::unsupported(
                format!("{what} of temporary table \"{name}\""),
                "an ordinary table has files, rights and comments",
            )),
        }
    }

    /// Behind a statement that was a transaction by itself.
    pub(super) fn settle(&self) {
        if self.temporary.has_tables()
            && self.status() == Status::Idle
            && let Err(error) = self.temporary.commit(&self.node)
        {
            tracing::warn!(%error, "rows of a temporary table are left behind ON COMMIT");
        }
    }

    /// A statement with names of schema `pg_temp` said without it, where it writes or defines. `None`: there are none.
    ///
    /// Errors: `42P01` for one that is not there; `0A000` for a table of schema `public` that is hidden.
    pub(super) fn with_own_names(&self, statement: &Statement) -> Result<Option<Statement>> {
        let is_drop = matches!(statement, Statement::Drop { .. });
        if !self.temporary.has_tables() && !is_drop {
            return Ok(None);
        }
        let mut own = statement.clone();
        if let Statement::Drop { object_type: ObjectType::Table, if_exists: true, names, .. } = &mut own {
            names.retain(|name| self.own_name(name).is_none_or(|name| self.temporary.table(&name).is_some()));
        }
        let mut is_changed = is_drop;
        for name in targets(&mut own) {
            if let Some(table) = self.own_name(name) {
                if self.temporary.table(&table).is_none() {
                    return Err(SqlError::undefined_table(&format!("{OWN_SCHEMA}.{table}")));
                }
                name.0.drain(..name.0.len() - 1);
                is_changed = true;
            } else if name.0.len() > 1
                && let Ok(table) = table_name(name)
                && self.temporary.table(&table).is_some()
            {
                return Err(hidden(&table));
            }
        }
        Ok(is_changed.then_some(own))
    }

    /// The name in the schema of the session's own tables, if it is one of that.
    pub(super) fn own_name(&self, name: &ObjectName) -> Option<String> {
        let [schema, table] = &name.0[..] else { return None };
        let (schema, table) = (fold(schema.as_ident()?), fold(table.as_ident()?));
        (schema == OWN_SCHEMA || schema == self.own_schema()).then_some(table)
    }

    fn own_schema(&self) -> String {
        own_schema(self.backend.pid())
    }

    /// Whether it is a query that names a table of schema `public` which a table of the session's own hides.
    pub(super) fn names_hidden(&self, statement: &Statement, table: &str) -> bool {
        if self.temporary.table(table).is_none() {
            return false;
        }
        let found = each_relation(statement, |name| match name.0.len() {
            1 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        found.is_break()
    }

    /// What `CREATE TABLE` makes for the session alone. `None`: a table for everybody.
    ///
    /// Errors: `42P16` for one in another schema.
    pub(super) fn temporary_of(&self, create: &CreateTable) -> Result<Option<CreateTable>> {
        let own_name = self.own_name(&create.name);
        if !create.temporary && own_name.is_none() {
            return Ok(None);
        }
        let mut own = CreateTable { temporary: true, ..create.clone() };
        match own_name {
            Some(_) => drop(own.name.0.drain(..1)),
            None if own.name.0.len() > 1 => {
                let message = "cannot create temporary relation in non-temporary schema";
                return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message).with_hint("name no schema"));
            }
            None => {}
        }
        if own.table_options != CreateTableOptions::None {
            return Err(SqlError::unsupported(
                "CREATE TEMPORARY TABLE … WITH",
                "leave it out: a temporary table is in memory, and nothing of it is delivered or logged",
            ));
        }
        Ok(Some(own))
    }

    /// `CREATE TEMPORARY TABLE`, without `AS`.
    pub(super) async fn create_temporary(&self, create: &CreateTable) -> Result<Answer> {
        let (plain, taken) = user_types::taken(create, self.node.types())?;
        let mut defined = defined(&plain, self.sql.settings(), &self.style())?;
        user_types::put(&mut defined.schema, taken)?;
        self.check_defaults(&defined.schema).await?;
        self.plan_checks(&defined.schema).await?;
        self.plan_generated(&defined.schema).await?;
        let made: Vec<usize> = defined.sequences.iter().map(|made| made.column_idx).collect();
        self.check_sequences(&defined.schema, &made, |name| self.temporary.sequence(name).is_some()).await?;
        self.make_temporary(create, defined).await?;
        Ok(Answer::done("CREATE TABLE"))
    }

    /// Makes an empty table. False: it was there already and `IF NOT EXISTS` was said.
    ///
    /// Errors: `25006` in a transaction that only reads; `42P07`; `54000`.
    pub(super) async fn make_temporary(&self, create: &CreateTable, defined: TableDefinition) -> Result<bool> {
        self.must_hold()?;
        let TableDefinition { mut schema, sequences, unnamed: _, foreign_keys } = defined;
        if !foreign_keys.is_empty() {
            return Err(SqlError::unsupported(
                format!("FOREIGN KEY of temporary table \"{}\"", schema.name),
                "leave it out, or make a table that stays",
            ));
        }
        if schema.has_indexes() {
            return Err(SqlError::unsupported(
                format!("UNIQUE, and indexes, of temporary table \"{}\"", schema.name),
                "make it the PRIMARY KEY, or leave it out",
            ));
        }
        if self.temporary.table(&schema.name).is_some() {
            return match create.if_not_exists {
                true => Ok(false),
                false => {
                    Err(SqlError::new(state::DUPLICATE_TABLE, format!("relation \"{}\" already exists", schema.name))
                        .with_hint("use CREATE TEMPORARY TABLE IF NOT EXISTS, or DROP TABLE it first"))
                }
            };
        }
        let mut made: Vec<(String, Sequence)> = vec![];
        for ColumnSequence { column_idx, sequence } in sequences {
            let (id, column) = (schema.columns[column_idx].id, schema.columns[column_idx].name.clone());
            let name = self.free_sequence(&[&schema.name, &column], &made).await?;
            schema.options.rules.entry(id).default = Some(next_of(&name));
            made.push((name, sequence));
        }
        let on_commit = match create.on_commit {
            None | Some(SaidOnCommit::PreserveRows) => OnCommit::Keep,
            Some(SaidOnCommit::DeleteRows) => OnCommit::DeleteRows,
            Some(SaidOnCommit::Drop) => OnCommit::Drop,
        };
        let handle = self.node.temporary_table(schema)?;
        self.temporary.insert(OwnTable { handle, on_commit }, made)?;
        Ok(true)
    }

    /// A name that no sequence has, also none that others may use: defaults name sequences without a schema.
    async fn free_sequence(&self, parts: &[&str], made: &[(String, Sequence)]) -> Result<String> {
        let there = self.node.sequences().all().await?;
        let is_taken = |name: &str| {
            let is_made = made.iter().chain(&there).any(|(other, _)| other == name);
            is_made || self.temporary.sequence(name).is_some() || self.temporary.table(name).is_some()
        };
        Ok(made_up(parts, "seq", is_taken))
    }

    /// Before `CREATE TABLE … AS`: its rows are written by the table's name.
    ///
    /// Errors: `0A000` where that means another table, in the query or in what is made.
    pub(super) fn check_filled(&self, name: &str, query: &Query, is_temporary: bool) -> Result<()> {
        if !is_temporary {
            return self.temporary.table(name).map_or(Ok(()), |_| Err(hidden(name)));
        }
        let is_meant = |relation: &ObjectName| matches!(&relation.0[..], [part] if part.as_ident().is_some_and(|ident| fold(ident) == name));
        let found = each_relation(query, |relation| match is_meant(relation) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        match found.is_break() {
            false => Ok(()),
            true => Err(SqlError::unsupported(
                format!("making temporary table \"{name}\" of a query that reads another of that name"),
                format!("read it as public.{}, or call the new one otherwise", quote(name)),
            )),
        }
    }
}

fn hidden(table: &str) -> SqlError {
    SqlError::unsupported(
        format!("\"public.{table}\" cannot be named here while temporary table \"{table}\" hides it"),
        format!("DROP TABLE pg_temp.{}, or call it otherwise", quote(table)),
    )
}

/// What a statement writes to, drops or describes.
fn targets(statement: &mut Statement) -> Vec<&mut ObjectName> {
    fn of_list(list: &mut [TableWithJoins]) -> Vec<&mut ObjectName> {
        let named = list.iter_mut().filter_map(|table| match &mut table.relation {
            TableFactor::Table { name, .. } => Some(name),
            _ => None,
        });
        named.collect()
    }
    match statement {
        Statement::Insert(insert) => match &mut insert.table {
            TableObject::TableName(name) => vec![name],
            _ => vec![],
        },
        Statement::Update(update) => of_list(std::slice::from_mut(&mut update.table)),
        Statement::Delete(delete) => match &mut delete.from {
            FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from) => of_list(from),
        },
        Statement::Merge(merge) => match &mut merge.table {
            TableFactor::Table { name, .. } => vec![name],
            _ => vec![],
        },
        Statement::Copy { source: CopySource::Table { table_name, .. }, .. } => vec![table_name],
        Statement::Truncate(truncate) => truncate.table_names.iter_mut().map(|target| &mut target.name).collect(),
        Statement::Drop { object_type: ObjectType::Table | ObjectType::View, names, .. } => names.iter_mut().collect(),
        Statement::ShowCreate { obj_name: name, .. } | Statement::ExplainTable { table_name: name, .. } => vec![name],
        Statement::ShowColumns { show_options, .. } => {
            show_options.show_in.as_mut().and_then(|shown| shown.parent_name.as_mut()).into_iter().collect()
        }
        _ => vec![],
    }
}
