//! May these rows be in the table? They may, unless one of its checks is false of one of them; a check that is NULL is
//! none.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::catalog::MemTable;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlan;
use tarn_query::{CompiledExprs, sql_schema};
use tarn_types::{TableSchema, full_name};

use super::Session;
use super::create_as::written;
use super::returning::reads_instead;
use crate::error::{Result, SqlError, state};
use crate::expressions::{ExpressionContext, no_expression};
use crate::names::quote;
use crate::rows::{long_name, pg_type};

impl Session {
    /// The checks of a table; of most there are none.
    pub(super) async fn compiled_checks(&self, table: &TableSchema) -> Result<Option<CompiledExprs>> {
        let checks = &table.options.rules.checks;
        if checks.is_empty() {
            return Ok(None);
        }
        let conditions: Vec<String> = checks.iter().map(|check| format!("({})", check.expr)).collect();
        Ok(Some(self.compiled_of(table, &conditions).await?))
    }

    /// Expressions over the columns of rows that are not written yet: the table is not read.
    pub(super) async fn compiled_of(&self, table: &TableSchema, exprs: &[String]) -> Result<CompiledExprs> {
        exprs.iter().try_for_each(|expr| self.check_order(expr))?;
        let statement = written(&format!("SELECT {} FROM {}", exprs.join(", "), quote(&table.name)))?;
        // The rows are the same in every session, however that shows values.
        let _forms = self.in_plain_forms()?;
        let plan = self.plan(&statement, &[]).await?;
        let nothing = MemTable::try_new(sql_schema(table, false), vec![vec![]])?;
        let plan = reads_instead(plan, &provider_as_source(Arc::new(nothing)))?;
        Ok(self.query.compile(plan).await?)
    }

    /// Whether the checks of a table that is to be made can be asked of its rows.
    pub(super) async fn plan_checks(&self, table: &TableSchema) -> Result<()> {
        if table.options.rules.checks.is_empty() {
            return Ok(());
        }
        for check in &table.options.rules.checks {
            let plan = self.plan_of_rows(table, &check.expr, ExpressionContext::Check).await?;
            let of = plan.schema().field(0);
            if !matches!(of.data_type(), ArrowType::Boolean | ArrowType::Null) {
                let of = pg_type(of).map_or_else(|_| of.data_type().to_string(), |of| long_name(&of));
                let message = format!("argument of CHECK must be type boolean, not type {of}");
                return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
            }
        }
        Ok(())
    }

    /// The plan of an expression over the columns of a table, which may not be there yet.
    ///
    /// Errors: as of planning it; `42803`, `0A000` for one that is of several rows, or makes them.
    pub(super) async fn plan_of_rows(
        &self,
        table: &TableSchema,
        expr: &str,
        place: ExpressionContext,
    ) -> Result<LogicalPlan> {
        self.check_order(expr)?;
        let columns =
            table.shown().iter().map(|column| format!("NULL::{} AS {}", column.data_type, quote(&column.name)));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let sql = format!("SELECT ({expr}) FROM (SELECT {columns}) AS {}", quote(full_name::bare(&table.name)));
        let plan = self.plan(&written(&sql)?, &[]).await?;
        match is_of_rows(&plan)? {
            true => Ok(plan),
            false => Err(no_expression(&plan, place)),
        }
    }
}

/// Whether a plan has one row for each that it reads.
fn is_of_rows(plan: &LogicalPlan) -> Result<bool> {
    let mut is_so = true;
    plan.apply_with_subqueries(|node| {
        is_so &=
            matches!(node, LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::EmptyRelation(_));
        Ok(if is_so { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_so)
}
