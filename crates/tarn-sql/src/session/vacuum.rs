//! What do `VACUUM` and `ANALYZE` do? `VACUUM` brings what is recent into the lake and merges small files, as `DELIVER
//! TABLE` and `COMPACT TABLE` do. `ANALYZE` looks whether what it names is there; counts and bounds are exact without
//! it.

use std::sync::Arc;

use tarn_node::jobs::Work;
use tarn_types::TableSchema;

use super::{Answer, Session};
use crate::error::{Result, SqlError};
use crate::names::{fold, table_name};
use crate::vacuum_sql::{Vacuum, Vacuumed};

impl Session {
    /// One table after the other; those before one that fails are done.
    ///
    /// Errors: `25001` for `VACUUM` in a transaction; `42P01`, `42703` for what is not there; `42809` for a view;
    /// `0A000` for a temporary table.
    pub(super) async fn vacuum(&self, asked: &Vacuum) -> Result<Answer> {
        match asked.vacuums {
            true => self.outside_transaction("VACUUM")?,
            false => self.transaction.lock().check_usable()?,
        }
        let mut names = asked.tables.iter().map(|table| self.named_table(table)).collect::<Result<Vec<_>>>()?;
        if !asked.vacuums {
            return Ok(Answer::done("ANALYZE"));
        }
        let who = self.principal();
        if names.is_empty() {
            let is_its = |table: &&Arc<TableSchema>| {
                let has_files = !table.is_view() && table.options.archive.is_none();
                has_files && self.node.may_own(&who, table).is_ok()
            };
            let all = self.node.catalog().schemas();
            names = all.iter().filter(is_its).map(|table| table.name.clone()).collect();
        }
        for name in names {
            match asked.tables.is_empty() {
                // One of all that somebody dropped meanwhile.
                true if !self.node.catalog().contains(&name) => continue,
                true => {}
                false => self.refuse_own("VACUUM", &name)?,
            }
            let handle = self.node.catalog().require(&name)?;
            self.node.work(&who, &handle, Work::Deliver).await?;
            self.node.work(&who, &handle, Work::Compact).await?;
        }
        Ok(Answer::done("VACUUM"))
    }

    /// Its name, if it is there, and the columns that are to be analysed are.
    fn named_table(&self, named: &Vacuumed) -> Result<String> {
        let name = match self.own_name(&named.name) {
            Some(own) if self.temporary.table(&own).is_some() => own,
            Some(_) => return Err(SqlError::undefined_table(&named.name.to_string())),
            None => table_name(&named.name)?,
        };
        let table = self.definition(&name)?;
        for column in named.columns.iter().map(fold) {
            if !table.shown().iter().any(|other| other.name == column) {
                return Err(SqlError::undefined_column(&table.name, &column));
            }
        }
        Ok(name)
    }
}
