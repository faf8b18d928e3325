//! How is a table made with the columns of another?
//!
//! Names, types, lengths and `NOT NULL` are copied always, defaults, checks, the key, identity columns and comments
//! where the statement says so. What a table is kept with (`WITH`) is not.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::ObjectName;
use tarn_node::sequences::{Owner, Sequence};
use tarn_types::TableSchema;

use super::{Answer, Session};
use crate::column_rules::ColumnSequence;
use crate::ddl::{TableDefinition, table_like};
use crate::error::{Result, SqlError};
use crate::expressions::{read, sequence_of};
use crate::like_sql::CreateLike;
use crate::names::table_name;

impl Session {
    /// Errors: `42P01` for a relation that is not there; as of `CREATE TABLE`.
    pub(super) async fn create_like(&self, asked: &CreateLike) -> Result<Answer> {
        let own = self.temporary_of(&asked.create)?;
        let (create, including) = (own.as_ref().unwrap_or(&asked.create), asked.including);
        let of = self.relation(&asked.of)?;
        let schema = table_like(create, &of, including, self.sql.settings())?;
        let comments = match including.comments {
            true => self.column_comments(&of),
            false => vec![],
        };
        if own.is_some() && !comments.is_empty() {
            return Err(SqlError::unsupported(
                "comments on columns of a temporary table",
                "INCLUDING ALL EXCLUDING COMMENTS",
            ));
        }
        let sequences = if including.identity { self.identity_sequences(&of, &schema.name).await? } else { vec![] };
        let made: Vec<usize> = sequences.iter().map(|made| made.column_idx).collect();
        let is_own = |name: &str| own.is_some() && self.temporary.sequence(name).is_some();
        self.check_sequences(&schema, &made, is_own).await?;
        let unnamed = (0..schema.options.rules.uniques.len()).collect();
        let (name, defined) =
            (schema.name.clone(), TableDefinition { schema, sequences, unnamed, foreign_keys: vec![] });
        if own.is_some() {
            self.make_temporary(create, defined).await?;
            return Ok(Answer::done("CREATE TABLE"));
        }
        if create.if_not_exists && self.node.catalog().contains(&name) {
            return Ok(Answer::done("CREATE TABLE"));
        }
        let answer = self.create(defined, create.if_not_exists).await?;
        if !comments.is_empty() {
            let table = self.node.catalog().schema(&name)?;
            for (at, text) in comments {
                self.node.say(&self.principal(), &table, Some(table.columns[at].id), Some(text)).await?;
            }
        }
        Ok(answer)
    }

    /// The relation of this name, in whatever schema it says.
    pub(super) fn relation(&self, name: &ObjectName) -> Result<Arc<TableSchema>> {
        if let Some(own) = self.own_name(name) {
            let own = self.temporary.table(&own).map(|own| Arc::clone(own.schema()));
            return own.ok_or_else(|| SqlError::undefined_table(&name.to_string()));
        }
        let table = table_name(name)?;
        match name.0.len() {
            1 => self.definition(&table),
            _ => self.temporary.schema(self.node.catalog(), &table),
        }
    }

    /// What is said of the columns of a table, by their places.
    fn column_comments(&self, of: &TableSchema) -> Vec<(usize, String)> {
        let said = self.node.comments().of(of.id);
        let columns = of.shown().iter().enumerate();
        columns.filter_map(|(at, column)| Some((at, said.column(column.id)?.to_owned()))).collect()
    }

    /// Sequences like those of the identity columns of a table, from their beginning.
    async fn identity_sequences(&self, of: &TableSchema, table: &str) -> Result<Vec<ColumnSequence>> {
        let mut found = vec![];
        for (column_idx, column) in of.shown().iter().enumerate() {
            let is_identity = of.rules_of(column_idx).is_some_and(|rules| rules.identity.is_some());
            let Some(text) = of.computed_default(column_idx).filter(|_| is_identity) else { continue };
            let Some(name) = sequence_of(&read(text)?) else { continue };
            let theirs = match self.temporary.sequence(&name).filter(|_| of.id.is_temporary()) {
                Some(own) => own.lock().clone(),
                None => self.node.sequences().get(&name).await?,
            };
            let (table, column) = (table.to_owned(), column.name.clone());
            let owner = Some(Owner { table, table_id: None, column, column_id: None, is_identity: true });
            let (last, is_called) = (theirs.start, false);
            found.push(ColumnSequence { column_idx, sequence: Sequence { owner, last, is_called, ..theirs } });
        }
        Ok(found)
    }
}
