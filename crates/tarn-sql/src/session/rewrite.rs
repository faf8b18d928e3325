//! How do rows get another key or another shape, where that cannot be told of them as they lie? All of them are written
//! into another table, which takes the place at one moment (`tarn_node` `rekey.rs`). The table is read meanwhile, and
//! nobody writes it.

use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_node::alter::TableAlteration;
use tarn_types::{ColumnRules, Rules, TableSchema};

use super::Session;
use super::create_as::written;
use super::execute::to_its_end;
use crate::error::{Result, SqlError, state};
use crate::names::quote;
use crate::unique_rules::NOT_MADE;

/// A table that has all rows, and is not in its place yet. Given up, it is dropped.
pub(super) struct TableRewrite {
    altering: TableAlteration,
    to: TableSchema,
    /// Its name until then.
    pub name: String,
}

impl Session {
    /// Writes the rows of a FROM, which has a column of each name, into a table that is as `to` says.
    ///
    /// Errors: `23505`, and what else an INSERT says of a row.
    pub(super) fn fill_beside<'a>(
        &'a self,
        mut altering: TableAlteration,
        mut to: TableSchema,
        rows: &'a str,
    ) -> BoxFuture<'a, Result<TableRewrite>> {
        // On the heap: it runs another statement.
        async move {
            // Files of the table that is made are written by the names of now, and its rows have all columns, and no
            // others.
            let rules = &mut to.options.rules;
            rules.columns.iter_mut().for_each(|of| (of.stored, of.missing) = (None, None));
            rules.dropped.clear();
            rules.forget_empty();
            // What is said of columns holds of the rows; identity columns would be given other numbers by it.
            let only = |of: &ColumnRules| {
                let (length, enumerated) = (of.length, of.enumerated.clone());
                ColumnRules { id: of.id, length, enumerated, ..ColumnRules::default() }
            };
            let of_texts = rules.columns.iter().filter(|of| of.length.is_some() || of.enumerated.is_some());
            let of_texts = of_texts.map(only).collect();
            let mut made = to.clone();
            made.options.rules = Rules { columns: of_texts, ..Rules::default() };
            let (name, altering) = to_its_end(async move {
                let name = altering.make_beside(made).await?;
                Ok::<_, SqlError>((name, altering))
            })
            .await?;
            let names: Vec<String> = to.shown().iter().map(|column| quote(&column.name)).collect();
            let names = names.join(", ");
            let fill = written(&format!("INSERT INTO {} ({names}) SELECT {names} FROM {rows}", quote(&name)))?;
            self.change_rows(fill).await.map_err(|error| not_unique(error, &to.key_name()))?;
            // The rows lie elsewhere, so all entries are others.
            to.options.rules.uniques.iter_mut().for_each(|unique| unique.index = NOT_MADE);
            let beside = self.node.catalog().schema(&name)?;
            let (altering, to) = self.with_indexes_beside(altering, &beside, to).await?;
            Ok(TableRewrite { altering, to, name })
        }
        .boxed()
    }

    /// From now on it is the table.
    pub(super) async fn take_place(&self, filled: TableRewrite) -> Result<()> {
        let TableRewrite { altering, to, name: _ } = filled;
        let placed = to_its_end(async move { altering.take_place(&to).await });
        self.interrupt.submit(placed, |()| 0).await
    }
}

/// As PostgreSQL says of a key that is made what it says of a row.
pub(super) fn not_unique(error: SqlError, index: &str) -> SqlError {
    if error.state() != state::UNIQUE_VIOLATION {
        return error;
    }
    let message = format!("could not create unique index \"{index}\"");
    let detail = error.detail().unwrap_or_default().replace("already exists", "is duplicated");
    SqlError::new(state::UNIQUE_VIOLATION, message)
        .with_detail(detail)
        .with_hint("DELETE all but one of the rows that have it, or name more columns")
}
