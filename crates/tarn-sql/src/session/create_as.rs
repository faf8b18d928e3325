//! What is `CREATE TABLE … AS SELECT`? A table of the query's columns, then an INSERT of its rows. And `TRUNCATE`? A
//! DELETE of all of them.
//!
//! A table whose rows cannot be written is dropped again. It is there, and fills, while the statement runs: after a
//! crash it has as many rows as it had. Inside a transaction its rows are held until COMMIT.

use datafusion::sql::sqlparser::ast::{
    CascadeOption, CreateTable, Insert, Query, Statement, Truncate, TruncateIdentityOption,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_types::{BARE_NUMERIC, DataType, Length, Opaque, data_type_of};

use super::{Answer, Session};
use crate::ddl::{Ddl, TableDefinition, table_of_columns};
use crate::digits::Digits;
use crate::error::{Result, SqlError, state};
use crate::names::{quote, table_name};
use crate::rows::{is_between_times, is_bpchar};
use crate::shown::shown;
use crate::statement::{ParsedSql, parse};

impl Session {
    /// Errors: as of CREATE TABLE, of the query and of INSERT; the table is not there then.
    pub(super) async fn create_as(&self, create: &CreateTable, query: &Query) -> Result<Answer> {
        let own = self.temporary_of(create)?;
        let create = own.as_ref().unwrap_or(create);
        let name = table_name(&create.name)?;
        let is_there = match own {
            Some(_) => self.temporary.table(&name).is_some(),
            None => self.node.catalog().contains(&name),
        };
        if create.if_not_exists && is_there {
            return Ok(Answer::done("CREATE TABLE AS"));
        }
        self.check_filled(&name, query, own.is_some())?;
        let plan = self.permitted(self.plan(&Statement::Query(Box::new(query.clone())), &[]).await?)?;
        let fields = shown(&self.query.coerced_columns(plan)?);
        if let Some(field) = fields.fields().iter().find(|field| is_bpchar(field)) {
            let message = format!("column \"{}\" of type bpchar without a length in a table", field.name());
            return Err(SqlError::unsupported(message, "cast it to char(n), or to text"));
        }
        let columns = fields.fields().iter().map(|field| match data_type_of(field) {
            // What shows no zeros at its end goes on so.
            Ok(DataType::Decimal { .. }) if Digits::is_bare(field) => Ok((field.name().clone(), BARE_NUMERIC)),
            Ok(data_type) => Ok((field.name().clone(), data_type)),
            // What lies between two times is kept as what it is shown as.
            Err(_) if is_between_times(field) => Ok((field.name().clone(), DataType::Interval)),
            Err(_) => Err(SqlError::unsupported(
                format!("column \"{}\" of type {} in a table", field.name(), field.data_type()),
                "cast it in the SELECT",
            )),
        });
        let given = columns.collect::<Result<Vec<_>>>()?;
        let mut schema = table_of_columns(create, given, self.sql.settings())?;
        for (at, field) in fields.fields().iter().enumerate() {
            if let Some(length) = Length::of(field) {
                let id = schema.columns[at].id;
                schema.options.rules.entry(id).length = Some(length);
            }
        }
        let labels = fields.fields().iter().map(|field| self.enumerated(field));
        for (at, of) in labels.enumerate().filter_map(|(at, of)| Some((at, of?))) {
            let id = schema.columns[at].id;
            schema.options.rules.entry(id).enumerated = Some(of);
        }
        let defined = TableDefinition { schema, sequences: vec![], unnamed: vec![], foreign_keys: vec![] };
        match own {
            Some(_) => drop(self.make_temporary(create, defined).await?),
            None => drop(self.create(defined, false).await?),
        }
        match self.fill(&name, query).await {
            Ok(n_rows) => Ok(Answer::counted("SELECT", n_rows)),
            // What undoes the transaction drops the table.
            Err(error) if self.transaction.lock().is_open() => Err(error),
            Err(error) if own.is_some() => {
                self.temporary.drop_table(&name);
                Err(error)
            }
            Err(error) => match self.run_ddl(Ddl::Drop { names: vec![name.clone()], if_exists: true }).await {
                Ok(_) => Err(error),
                Err(_) => Err(error.with_detail(format!("table \"{name}\" is there, with some of the rows: drop it"))),
            },
        }
    }

    /// How many rows the table has now.
    async fn fill(&self, table: &str, query: &Query) -> Result<u64> {
        let mut insert = written(&format!("INSERT INTO {} SELECT 1", quote(table)))?;
        if let Statement::Insert(Insert { source, .. }) = &mut insert {
            *source = Some(Box::new(query.clone()));
        }
        self.change_rows(insert).await
    }

    /// One table after the other: those before one that fails are empty, and the error says so.
    pub(super) async fn truncate(&self, truncate: &Truncate) -> Result<Answer> {
        let Truncate { table_names, partitions, table: _, if_exists, identity, cascade, on_cluster } = truncate;
        let restarts = matches!(identity, Some(TruncateIdentityOption::Restart));
        if restarts && self.transaction.lock().is_open() {
            return Err(SqlError::unsupported(
                "TRUNCATE … RESTART IDENTITY inside BEGIN: sequences are not taken back by ROLLBACK",
                "run it outside a transaction (autocommit)",
            ));
        }
        if partitions.is_some() || *if_exists || on_cluster.is_some() {
            return Err(SqlError::unsupported("TRUNCATE of anything but tables", "TRUNCATE TABLE a, b"));
        }
        let names = table_names.iter().map(|target| table_name(&target.name)).collect::<Result<Vec<_>>>()?;
        names.iter().try_for_each(|name| self.table(name).map(drop))?;
        let names = self.emptied_with(names, *cascade == Some(CascadeOption::Cascade))?;
        self.as_one(self.empty_all(&names, restarts).boxed()).await?;
        Ok(Answer::done("TRUNCATE TABLE"))
    }

    async fn empty_all(&self, names: &[String], restarts: bool) -> Result<()> {
        for (n_done, name) in names.iter().enumerate() {
            // Its rows take memory until it is another table.
            if self.temporary.table(name).is_some() {
                self.temporary.truncate(&self.node, name)?;
                if restarts {
                    self.temporary.restart_of_table(name);
                }
                continue;
            }
            let deleted = self.change_rows(written(&format!("DELETE FROM {}", quote(name)))?).await;
            deleted.map_err(|error| match n_done {
                0 => error,
                _ => error.with_detail(format!("rows of {} are deleted", names[..n_done].join(", "))),
            })?;
            if restarts {
                self.node.restart_sequences_of(&self.principal(), name).await?;
            }
        }
        Ok(())
    }

    /// How many rows a statement changed that stands for a part of another.
    pub(super) fn change_rows(&self, statement: Statement) -> BoxFuture<'_, Result<u64>> {
        let changing = async {
            let prepared = Box::pin(self.prepare_meant(Opaque::new(ParsedSql::Sql(Box::new(statement))))).await?;
            match Box::pin(self.run_prepared(&prepared, vec![])).await? {
                Answer::Done(tag) => Ok(tag.rows.unwrap_or(0)),
                _ => Err(SqlError::new(state::INTERNAL, "a change of rows answered rows")),
            }
        };
        changing.boxed()
    }
}

pub(super) fn written(sql: &str) -> Result<Statement> {
    match parse(sql)?.pop() {
        Some(ParsedSql::Sql(statement)) => Ok(*statement),
        _ => Err(SqlError::new(state::INTERNAL, format!("{sql} is no statement"))),
    }
}
