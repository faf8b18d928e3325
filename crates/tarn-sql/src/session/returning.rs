//! What does `INSERT … RETURNING` answer? A SELECT of the rows that are inserted, which is planned over their table and reads them instead.
//!
//! It is computed before they are written: where it fails, nothing is written, as in PostgreSQL.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::MemTable;
use datafusion::common::ParamValues;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Expr, Insert, Statement, visit_expressions};
use futures::{StreamExt, TryStreamExt, stream};
use tarn_node::catalog::TableHandle;
use tarn_query::dml::{Dml, DmlKind};
use tarn_query::sql_schema;
use tarn_types::Op;

use super::placeholders::parameter_fields;
use super::{Answer, Rows, Session};
use crate::error::{Result, SqlError, state};
use crate::names::quote;
use crate::shown::shown;
use crate::statement::{Parsed, parse};

/// Rows that are answered are kept until they are written.
const MAX_BYTES: usize = 64 << 20;

/// An INSERT without its RETURNING, and the SELECT that is asked for by it. `None`: it has none.
pub(super) fn taken(statement: &Statement, table: &str) -> Result<Option<(Statement, Statement)>> {
    let Statement::Insert(insert) = statement else { return Ok(None) };
    let Some(items) = &insert.returning else { return Ok(None) };
    let rest = Statement::Insert(Insert { returning: None, table_alias: None, ..insert.clone() });
    let of = insert.table_alias.as_ref().map_or(String::new(), |alias| format!(" AS {}", alias.alias));
    let items = items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Ok(Some((rest, select(&format!("SELECT {items} FROM {}{of}", quote(table)))?)))
}

/// Read as a client's, whose columns are named like those of every SELECT.
fn select(sql: &str) -> Result<Statement> {
    let is_refused = |expr: &Expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => true,
        Expr::Function(function) => function.name.to_string().eq_ignore_ascii_case("unnest"),
        _ => false,
    };
    let Some(Parsed::Sql(statement)) = parse(sql)?.pop() else {
        return Err(SqlError::new(state::SYNTAX_ERROR, "RETURNING takes expressions"));
    };
    let found = visit_expressions(&*statement, |expr| match is_refused(expr) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    match found.is_break() {
        true => {
            Err(SqlError::unsupported("a subquery or a function of sets in RETURNING", "SELECT it after the INSERT"))
        }
        false => Ok(*statement),
    }
}

impl Session {
    /// The plan of what is returned, over the table that is written.
    pub(super) async fn returned(&self, asked: &Statement) -> Result<LogicalPlan> {
        let plan = self.plan(asked, &[]).await?;
        match parameter_fields(&plan)?.is_empty() {
            true => Ok(plan),
            false => Err(SqlError::unsupported("a parameter in RETURNING", "return the columns alone")),
        }
    }

    /// Inserts rows as one write, and answers what is asked of them.
    pub(super) async fn insert_returning(
        &self,
        dml: &Dml,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
        returning: &LogicalPlan,
    ) -> Result<Answer> {
        let DmlKind::Insert { on_conflict_do_nothing } = dml.kind else {
            return Err(SqlError::new(state::INTERNAL, "RETURNING is of an INSERT"));
        };
        let hold = self.must_hold()?;
        let rows = self.rows_of(dml, parameters).await?;
        if on_conflict_do_nothing && rows.as_ref().is_some_and(|rows| rows.num_rows() > 1) {
            return Err(SqlError::unsupported(
                "ON CONFLICT DO NOTHING RETURNING of several rows",
                "insert one row at a time",
            ));
        }
        let plan = reading(returning.clone(), rows.as_ref(), dml)?;
        let answered = self.query.stream(plan, None).await?;
        let schema = answered.schema();
        let answers: Vec<RecordBatch> = answered.try_collect().await?;
        let op = if on_conflict_do_nothing { Op::Insert } else { Op::Put };
        let written = match rows {
            Some(rows) => self.insert_rows(handle, rows, op, hold).await?,
            None => 0,
        };
        let answers = if written == 0 { vec![] } else { answers };
        let batches = stream::iter(answers.into_iter().map(Ok)).boxed();
        let rows = Rows { schema: shown(&schema), batches, command: "INSERT" };
        Ok(Answer::Rows(rows).counted_by(self.backend.rows()))
    }

    /// All of them, as the table keeps them. `None`: there are none.
    async fn rows_of(&self, dml: &Dml, parameters: Option<ParamValues>) -> Result<Option<RecordBatch>> {
        let mut stream = self.query.dml_rows(dml, parameters).await?;
        let (mut rows, mut n_bytes) = (vec![], 0);
        while let Some(batch) = stream.next().await.transpose()? {
            n_bytes += batch.get_array_memory_size();
            if n_bytes > MAX_BYTES {
                let message = format!("INSERT … RETURNING of more than {} MiB; nothing is inserted", MAX_BYTES >> 20);
                return Err(
                    SqlError::new(state::PROGRAM_LIMIT, message).with_hint("insert in parts, or without RETURNING")
                );
            }
            if batch.num_rows() > 0 {
                rows.push(batch);
            }
        }
        Ok(rows.first().map(|first| concat_batches(&first.schema(), &rows)).transpose()?)
    }
}

/// The plan, which reads these rows instead of the table.
fn reading(plan: LogicalPlan, rows: Option<&RecordBatch>, dml: &Dml) -> Result<LogicalPlan> {
    let schema = sql_schema(&dml.table, false);
    let rows = rows.into_iter().map(|batch| {
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        Ok(RecordBatch::try_new(Arc::clone(&schema), columns.collect::<std::result::Result<_, _>>()?)?)
    });
    let rows = MemTable::try_new(Arc::clone(&schema), vec![rows.collect::<Result<Vec<_>>>()?])?;
    let source = provider_as_source(Arc::new(rows));
    let replaced = plan.transform_down(|node| {
        Ok(match node {
            LogicalPlan::TableScan(mut scan) => {
                scan.source = Arc::clone(&source);
                Transformed::new(LogicalPlan::TableScan(scan), true, TreeNodeRecursion::Jump)
            }
            node => Transformed::no(node),
        })
    })?;
    Ok(replaced.data)
}
