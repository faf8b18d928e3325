//! May these rows be in the table? They may, unless one of its checks is false of one of them; a check that is NULL is none.
//!
//! Whatever writes rows asks here, when they are as they will be kept: INSERT and UPDATE, and COPY on the thread that decodes.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, FieldRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::MemTable;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::LogicalPlan;
use tarn_query::sql_schema;
use tarn_types::TableSchema;

use super::Session;
use super::compiled_rules::Checks;
use super::create_as::written;
use super::returning::reads_instead;
use crate::error::{Result, SqlError, state};
use crate::expressions::{Place, no_expression};
use crate::names::quote;
use crate::rows::{long_name, pg_type};

impl Session {
    /// The checks of a table; of most there are none.
    pub(super) async fn checks(&self, table: &Arc<TableSchema>) -> Result<Option<Checks>> {
        let checks = &table.options.rules.checks;
        if checks.is_empty() {
            return Ok(None);
        }
        let conditions: Vec<String> = checks.iter().map(|check| format!("({})", check.expr)).collect();
        let statement = written(&format!("SELECT {} FROM {}", conditions.join(", "), quote(&table.name)))?;
        let plan = self.plan(&statement, &[]).await?;
        // They are of rows that are not written yet: the table is not read.
        let nothing = MemTable::try_new(sql_schema(table, false), vec![vec![]])?;
        let plan = reads_instead(plan, &provider_as_source(Arc::new(nothing)))?;
        Ok(Some(Checks::new(Arc::clone(table), self.query.compile(plan).await?)))
    }

    /// Whether rows may be written, for those who write few batches.
    pub(super) async fn check_rows(&self, table: &Arc<TableSchema>, rows: &RecordBatch) -> Result<()> {
        match self.checks(table).await? {
            None => Ok(()),
            Some(checks) => checks.check(rows),
        }
    }

    /// Whether the checks of a table that is to be made can be asked of its rows.
    pub(super) async fn plan_checks(&self, table: &TableSchema) -> Result<()> {
        if table.options.rules.checks.is_empty() {
            return Ok(());
        }
        for check in &table.options.rules.checks {
            let of = self.field_of(table, &check.expr, Place::Check).await?;
            if !matches!(of.data_type(), ArrowType::Boolean | ArrowType::Null) {
                let of = pg_type(&of).map_or_else(|_| of.data_type().to_string(), |of| long_name(&of));
                let message = format!("argument of CHECK must be type boolean, not type {of}");
                return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
            }
        }
        Ok(())
    }

    /// What an expression over the columns of a table gives, which may not be there yet.
    ///
    /// Errors: as of planning it; `42803`, `0A000` for one that is of several rows, or makes them.
    pub(super) async fn field_of(&self, table: &TableSchema, expr: &str, place: Place) -> Result<FieldRef> {
        let columns =
            table.shown().iter().map(|column| format!("NULL::{} AS {}", column.data_type, quote(&column.name)));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let sql = format!("SELECT ({expr}) FROM (SELECT {columns}) AS {}", quote(&table.name));
        let plan = self.plan(&written(&sql)?, &[]).await?;
        if !is_of_rows(&plan)? {
            return Err(no_expression(&plan, place));
        }
        Ok(Arc::clone(&plan.schema().fields()[0]))
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
