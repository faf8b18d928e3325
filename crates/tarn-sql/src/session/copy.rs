//! What does a COPY statement do? Its rows come in by a pipeline (`copy_from.rs`) or go out as those of a query.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    CopySource, CopyTarget, Expr, Ident, Query, SelectItem, Statement, WildcardAdditionalOptions,
};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tarn_query::OnKey;
use tarn_query::dml::{rows_of, table_of};
use tarn_types::TableSchema;

use super::copy_from::{CopyFrom, Rules, Writing, start};
use super::{Answer, CopyTo, ResultSet, Session};
use crate::copy_format::{CopyFormat, Format};
use crate::definition::has_primary_key;
use crate::error::{Result, SqlError, state};
use crate::names::{fold, table_name};
use crate::shown::shown;

impl Session {
    /// All data of a COPY FROM was sent: commits or holds what is left, and answers how many rows were written.
    pub fn finish_copy<'a>(&'a self, copy: &'a mut CopyFrom) -> BoxFuture<'a, Result<u64>> {
        let finishing = async move {
            let (rows, held) = copy.finish().await?;
            let rows = match held {
                Some(held) => {
                    let rows = self.hold(held).await?;
                    self.end_of_statement().await?;
                    rows
                }
                None => rows,
            };
            self.copied(copy, rows)
        };
        finishing.boxed()
    }

    /// What is wrong with a COPY statement is said when it is prepared: some drivers lose count of messages when it is
    /// said later.
    pub(super) fn check_copy(&self, statement: &Statement) -> Result<()> {
        let Statement::Copy { source, to, target, options, legacy_options, .. } = statement else { return Ok(()) };
        check_target(target)?;
        Format::new(options, legacy_options, self.style())?;
        self.allow_copy(statement)?;
        match source {
            CopySource::Table { table_name: name, columns } if !to => {
                column_positions(self.table(&table_name(name)?)?.schema(), columns).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Starts a COPY statement. `on_key` is what it says itself about keys that are there.
    pub(super) async fn copy(&self, statement: &Statement, on_key: Option<OnKey>) -> Result<Answer> {
        let Statement::Copy { source, to, options, legacy_options, .. } = statement else {
            return Err(SqlError::new(state::INTERNAL, "not a COPY"));
        };
        self.check_copy(statement)?;
        let format = Format::new(options, legacy_options, self.style())?;
        if *to {
            return match on_key {
                None => self.copy_to(source, format).await,
                Some(_) => Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "COPY TO has no on_conflict")),
            };
        }
        let CopySource::Table { table_name: name, columns } = source else {
            return Err(SqlError::new(state::SYNTAX_ERROR, "COPY FROM needs a table"));
        };
        let handle = self.table(&table_name(name)?)?;
        let columns = column_positions(handle.schema(), columns)?;
        let hold = self.must_hold_for(handle.schema())?;
        let on_key = on_key_of(handle.schema(), on_key)?;
        // Which columns a stream of Arrow has is known when it comes.
        let given = if format.kind == CopyFormat::Arrow { &[][..] } else { &columns };
        let fills = self.fills(handle.schema(), given).await?;
        let rules = Rules { fills, row_rules: self.row_rules(handle.schema()).await? };
        let writing = Writing { rules, on_key, hold };
        Ok(Answer::CopyFrom(Box::new(start(&self.sql, self.principal(), handle, columns, format, writing))))
    }

    async fn copy_to(&self, source: &CopySource, format: Format) -> Result<Answer> {
        let (name, columns) = match source {
            CopySource::Query(query) => return self.copy_query(query, format).await,
            CopySource::Table { table_name, columns } => (table_name, columns),
        };
        if let Some(view) = self.view_of(&table_name(name)?) {
            return Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("cannot copy from view \"{}\"", view.name))
                .with_hint("COPY (SELECT …) TO STDOUT"));
        }
        let positions = self.definition(&table_name(name)?).ok().filter(|table| has_generated(table));
        let places = |table: Arc<TableSchema>| Ok::<_, SqlError>((column_positions(&table, columns)?, table));
        let positions = positions.map(places).transpose()?;
        let item = |column: Ident| SelectItem::UnnamedExpr(Expr::Identifier(column));
        let columns = match (columns.as_slice(), positions) {
            (_, Some((places, table))) => {
                places.iter().map(|at| item(Ident::with_quote('"', &table.columns[*at].name))).collect()
            }
            ([], None) => vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
            (columns, None) => columns.iter().cloned().map(item).collect(),
        };
        self.copy_statement(&rows_of(columns, table_of(name.clone()), None), format).await
    }

    async fn copy_query(&self, query: &Query, format: Format) -> Result<Answer> {
        self.copy_statement(&Statement::Query(Box::new(query.clone())), format).await
    }

    async fn copy_statement(&self, statement: &Statement, format: Format) -> Result<Answer> {
        let plan = self.permitted(self.plan(statement, &[]).await?)?;
        let stream = self.query.stream(plan, None).await?;
        let schema = shown(&stream.schema());
        let batches = stream.map(|batch| batch.map_err(SqlError::from)).boxed();
        let rows = ResultSet { schema, batches, command: "COPY", is_binary: false };
        Ok(Answer::CopyTo(CopyTo { rows, format }))
    }
}

/// What a COPY does about keys that are there: unless it says so, it is refused where one is.
fn on_key_of(table: &TableSchema, asked: Option<OnKey>) -> Result<OnKey> {
    match asked {
        Some(_) if !has_primary_key(table) => Err(SqlError::unsupported(
            format!("on_conflict of table {}, whose rows are not held to a key,", table.name),
            "leave it out: every row is written",
        )),
        Some(asked) => Ok(asked),
        None if has_primary_key(table) => Ok(OnKey::Refuse),
        None => Ok(OnKey::Replace),
    }
}

fn check_target(target: &CopyTarget) -> Result<()> {
    match target {
        CopyTarget::Stdin | CopyTarget::Stdout => Ok(()),
        other => Err(SqlError::unsupported(
            format!("COPY with {other}: the server reads and writes no files"),
            "use FROM STDIN or TO STDOUT (psql: \\copy), or `tarn load FILE --table t`",
        )),
    }
}

fn has_generated(schema: &TableSchema) -> bool {
    (0..schema.columns.len()).any(|at| schema.generated(at).is_some())
}

/// The places of the columns of a COPY: those that are named, or all that somebody gives values.
fn column_positions(schema: &TableSchema, columns: &[Ident]) -> Result<Vec<usize>> {
    if columns.is_empty() {
        return Ok((0..schema.shown().len()).filter(|at| schema.generated(*at).is_none()).collect());
    }
    let mut positions = Vec::with_capacity(columns.len());
    for column in columns {
        let name = fold(column);
        let idx = schema.shown().iter().position(|column| column.name == name);
        let idx = idx.ok_or_else(|| SqlError::undefined_column(&schema.name, &name))?;
        if schema.generated(idx).is_some() {
            let message = format!("column \"{name}\" is a generated column");
            return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message)
                .with_detail("Generated columns cannot be used in COPY.")
                .with_hint("leave it out; COPY (SELECT …) TO has it"));
        }
        if positions.contains(&idx) {
            return Err(SqlError::new(state::DUPLICATE_COLUMN, format!("column \"{name}\" specified more than once")));
        }
        positions.push(idx);
    }
    Ok(positions)
}
