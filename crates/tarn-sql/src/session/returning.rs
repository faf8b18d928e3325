//! What does `… RETURNING` answer? A SELECT of the rows that are written (or were deleted), which is planned over their
//! table and reads them instead.
//!
//! It is computed before they are written: where it fails, nothing is written, as in PostgreSQL.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::MemTable;
use datafusion::common::ParamValues;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, TableSource};
use datafusion::sql::sqlparser::ast::{
    Expr, FromTable, Ident, SelectItem, SelectItemQualifiedWildcardKind, Statement, TableFactor, TableWithJoins,
    UpdateTableFromKind,
};
use futures::{StreamExt, TryStreamExt, stream};
use tarn_node::catalog::TableHandle;
use tarn_query::dml::{Dml, FEW_ROWS};
use tarn_query::{RowColumns, each_expr, sql_schema};
use tarn_types::Op;

use super::placeholders::parameter_fields;
use super::{Answer, ResultSet, Session};
use crate::encoding;
use crate::error::{Result, SqlError, state};
use crate::names::{fold, function_name, qualifiers, quote};
use crate::shown::shown;
use crate::statement::{ParsedSql, parse};

/// Rows that are answered are kept until they are written.
pub(super) const MAX_BYTES: usize = 64 << 20;

/// What is asked of the rows that are written.
#[derive(Debug)]
pub(super) struct Returning {
    /// A query of their table.
    pub(super) plan: LogicalPlan,
    /// The same, if it is nothing but columns of each row.
    columns: Option<RowColumns>,
}

impl Returning {
    /// The columns that are answered.
    pub(super) fn schema(&self) -> SchemaRef {
        shown(&Arc::new(self.plan.schema().as_arrow().clone()))
    }
}

/// What is answered of rows.
pub(super) struct ReturnedRows {
    pub(super) schema: SchemaRef,
    pub(super) batches: Vec<RecordBatch>,
}

impl ReturnedRows {
    pub(super) fn answer(self, command: &'static str) -> Answer {
        let batches = stream::iter(self.batches.into_iter().map(Ok)).boxed();
        Answer::Rows(ResultSet { schema: self.schema, batches, command, is_binary: false })
    }
}

/// The SELECT that is asked for by the RETURNING of a statement that writes `table`. `None`: it has none.
pub(super) fn asked(statement: &Statement, table: &str) -> Result<Option<Statement>> {
    let (items, alias) = match statement {
        Statement::Insert(insert) => {
            (&insert.returning, insert.table_alias.as_ref().map(|alias| alias.alias.to_string()))
        }
        Statement::Update(update) => (&update.returning, alias(std::slice::from_ref(&update.table))),
        Statement::Delete(delete) => match &delete.from {
            FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from) => (&delete.returning, alias(from)),
        },
        _ => return Ok(None),
    };
    let Some(items) = items else { return Ok(None) };
    check_own(items, statement)?;
    let of = alias.map_or(String::new(), |alias| format!(" AS {alias}"));
    let items = items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Ok(Some(select(&format!("SELECT {items} FROM {}{of}", quote(table)))?))
}

/// Errors: `0A000` for columns of the tables in FROM and USING.
fn check_own(items: &[SelectItem], statement: &Statement) -> Result<()> {
    let beside: &[TableWithJoins] = match statement {
        Statement::Update(update) => match &update.from {
            Some(UpdateTableFromKind::AfterSet(tables)) => tables,
            _ => return Ok(()),
        },
        Statement::Delete(delete) => delete.using.as_deref().unwrap_or_default(),
        _ => return Ok(()),
    };
    let names: Vec<String> = beside.iter().flat_map(qualifiers).collect();
    let named = |qualifier: Option<&Ident>| qualifier.map(fold).filter(|name| names.contains(name));
    let found = items.iter().find_map(|item| match item {
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            named(name.0.last().and_then(|part| part.as_ident()))
        }
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            let mut found = None;
            let _ = each_expr(expr, |expr| {
                if let Expr::CompoundIdentifier(parts) = expr {
                    found = found.take().or_else(|| named(parts.first()));
                }
                ControlFlow::<()>::Continue(())
            });
            found
        }
        _ => None,
    });
    match found {
        Some(name) => Err(SqlError::unsupported(
            format!("RETURNING of columns of \"{name}\", which is not the table that is changed"),
            "WITH x AS (UPDATE … RETURNING *) SELECT … FROM x JOIN it",
        )),
        None => Ok(()),
    }
}

/// What the only table of a list is called.
fn alias(from: &[TableWithJoins]) -> Option<String> {
    match from {
        [TableWithJoins { relation: TableFactor::Table { alias: Some(alias), .. }, .. }] => {
            Some(alias.name.to_string())
        }
        _ => None,
    }
}

/// `54000`: nothing is written by then.
pub(super) fn too_much() -> SqlError {
    let message = format!("RETURNING of more than {} MiB of rows; nothing is written", MAX_BYTES >> 20);
    SqlError::new(state::PROGRAM_LIMIT, message).with_hint("write in parts, or without RETURNING")
}

/// Read as a client's, whose columns are named like those of every SELECT.
fn select(sql: &str) -> Result<Statement> {
    let is_refused = |expr: &Expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => true,
        Expr::Function(function) => function_name(function).is_some_and(|name| name == "unnest"),
        _ => false,
    };
    let Some(ParsedSql::Sql(statement)) = parse(sql)?.pop() else {
        return Err(SqlError::new(state::SYNTAX_ERROR, "RETURNING takes expressions"));
    };
    let found = each_expr(&*statement, |expr| match is_refused(expr) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    match found.is_break() {
        true => Err(SqlError::unsupported("a subquery or a function of sets in RETURNING", "SELECT it afterwards")),
        false => Ok(*statement),
    }
}

impl Session {
    /// The plan of what is returned, over the table that is written.
    pub(super) async fn returned(&self, asked: &Statement) -> Result<Returning> {
        let plan = self.plan(asked, &[]).await?;
        check_rows(&plan)?;
        match parameter_fields(&plan)?.is_empty() {
            true => Ok(Returning { columns: RowColumns::of(&plan), plan }),
            false => Err(SqlError::unsupported("a parameter in RETURNING", "return the columns alone")),
        }
    }

    /// Inserts rows as one write, and answers what is asked of them.
    pub(super) async fn insert_returning(
        &self,
        dml: &Dml,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
        returning: &Returning,
        op: Op,
        hold: bool,
    ) -> Result<(u64, Option<ReturnedRows>)> {
        let rules = self.row_rules(handle.schema()).await?;
        let as_written = |rows| {
            encoding::check_columns(&rows)?;
            rules.applied(rows)
        };
        let rows = self.rows_of(dml, parameters).await?.map(as_written).transpose()?;
        let answers = self.answers(returning, rows.as_ref(), dml).await?;
        let written = match rows {
            Some(rows) => self.insert_rows(handle, rows, op, hold).await?,
            None => 0,
        };
        Ok((written, Some(answers)))
    }

    /// What is asked of these rows (all columns of the table, of storage types). `None`: there are none.
    pub(super) async fn answers(
        &self,
        returning: &Returning,
        rows: Option<&RecordBatch>,
        dml: &Dml,
    ) -> Result<ReturnedRows> {
        // Of no row nothing is computed.
        let Some(rows) = rows.filter(|rows| rows.num_rows() > 0) else {
            return Ok(ReturnedRows { schema: returning.schema(), batches: vec![] });
        };
        if let Some(columns) = returning.columns.as_ref().filter(|_| rows.num_rows() <= FEW_ROWS)
            && let Some(answered) = self.query.row_columns(columns, rows, None).await?
        {
            return Ok(ReturnedRows { schema: shown(answered.schema_ref()), batches: vec![answered] });
        }
        let answered = self.query.stream(reading(returning.plan.clone(), Some(rows), dml)?, None).await?;
        let schema = shown(&answered.schema());
        Ok(ReturnedRows { schema, batches: answered.try_collect().await? })
    }

    /// All of them, as the table keeps them. `None`: there are none.
    async fn rows_of(&self, dml: &Dml, parameters: Option<ParamValues>) -> Result<Option<RecordBatch>> {
        let mut stream = self.query.dml_rows(dml, parameters).await?;
        let (mut rows, mut n_bytes) = (vec![], 0);
        while let Some(batch) = stream.next().await.transpose()? {
            n_bytes += batch.get_array_memory_size();
            if n_bytes > MAX_BYTES {
                return Err(too_much());
            }
            if batch.num_rows() > 0 {
                rows.push(batch);
            }
        }
        Ok(rows.first().map(|first| concat_batches(&first.schema(), &rows)).transpose()?)
    }
}

/// Each row is answered by itself.
fn check_rows(plan: &LogicalPlan) -> Result<()> {
    let refused = |what: &str, state| Err(SqlError::new(state, format!("{what} are not allowed in RETURNING")));
    match plan {
        LogicalPlan::Aggregate(_) => refused("aggregate functions", state::GROUPING),
        LogicalPlan::Window(_) => refused("window functions", state::WINDOWING),
        plan => plan.inputs().into_iter().try_for_each(check_rows),
    }
}

/// The plan, which reads these rows instead of the table.
pub(super) fn reading(plan: LogicalPlan, rows: Option<&RecordBatch>, dml: &Dml) -> Result<LogicalPlan> {
    let schema = sql_schema(&dml.table, false);
    let rows = rows.into_iter().map(|batch| {
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        Ok(RecordBatch::try_new(Arc::clone(&schema), columns.collect::<std::result::Result<_, _>>()?)?)
    });
    let rows = MemTable::try_new(Arc::clone(&schema), vec![rows.collect::<Result<Vec<_>>>()?])?;
    reads_instead(plan, &provider_as_source(Arc::new(rows)))
}

/// The plan, which reads this where it reads tables.
pub(super) fn reads_instead(plan: LogicalPlan, source: &Arc<dyn TableSource>) -> Result<LogicalPlan> {
    let replaced = plan.transform_down(|node| {
        Ok(match node {
            LogicalPlan::TableScan(mut scan) => {
                scan.source = Arc::clone(source);
                Transformed::new(LogicalPlan::TableScan(scan), true, TreeNodeRecursion::Jump)
            }
            node => Transformed::no(node),
        })
    })?;
    Ok(replaced.data)
}
