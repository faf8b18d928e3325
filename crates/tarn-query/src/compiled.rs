//! What are these expressions of rows that no query reads? COPY has its rows in its hands, and asks for their defaults;
//! every writer asks whether its rows may be.
//!
//! The list of columns of a `SELECT` becomes expressions that are computed batch by batch, where the caller is. What
//! the optimizer computes once for a statement, as `now()`, is computed once when it is compiled: compile for each
//! statement.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};

use crate::engine::Session;
use crate::values::to_sql;
use crate::{Error, Result};

/// Expressions over the columns of one table, or over none.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// One after the other: each reads what the one before it gives.
    lists: Vec<List>,
}

#[derive(Debug, Clone)]
struct List {
    /// What it reads, by name.
    reads: SchemaRef,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    gives: SchemaRef,
}

impl Compiled {
    /// A column for each expression, as long as the batch. Columns of the batch are found by name, and may have storage
    /// types.
    ///
    /// Errors: what the expressions say of a row. Cost: that of the expressions, on the caller's thread.
    pub fn evaluate(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        Ok(self.evaluate_rows(rows)?.columns().to_vec())
    }

    /// [`Compiled::evaluate`] with the types of the columns; their names mean nothing.
    pub fn evaluate_rows(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let mut rows = rows.clone();
        for list in &self.lists {
            let read = list.reads.fields().iter().map(|field| rows.schema_ref().index_of(field.name()));
            let read = read.collect::<Result<Vec<_>, _>>().map_err(DataFusionError::from)?;
            let read = to_sql(&rows.project(&read).map_err(DataFusionError::from)?, &list.reads)?;
            let n_rows = read.num_rows();
            let given = list.exprs.iter().map(|expr| expr.evaluate(&read)?.into_array(n_rows));
            let given = given.collect::<Result<Vec<_>, DataFusionError>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(n_rows));
            rows = RecordBatch::try_new_with_options(Arc::clone(&list.gives), given, &options)
                .map_err(DataFusionError::from)?;
        }
        Ok(rows)
    }
}

impl Session {
    /// Compiles the list of columns of a `SELECT … FROM table`, or of one without a table.
    ///
    /// Errors: as of planning; `Unsupported` for a query that does more.
    pub async fn compile(&self, plan: LogicalPlan) -> Result<Compiled> {
        let (state, plan) = self.statement_state(&plan)?;
        self.compute(async move {
            let optimized = state.optimize(&plan)?;
            let mut lists = vec![];
            compile_list(&optimized, &state, &mut lists)?;
            Ok(Compiled { lists })
        })
        .await
    }
}

fn compile_list(plan: &LogicalPlan, state: &SessionState, lists: &mut Vec<List>) -> Result<()> {
    match plan {
        LogicalPlan::Projection(list) => {
            compile_list(&list.input, state, lists)?;
            let reads = list.input.schema();
            let exprs = list.expr.iter().map(|expr| compiled(expr, reads, state));
            lists.push(List {
                reads: unnamed(reads.as_arrow()),
                exprs: exprs.collect::<Result<_, _>>()?,
                gives: unnamed(list.schema.as_arrow()),
            });
            Ok(())
        }
        LogicalPlan::SubqueryAlias(of) => compile_list(&of.input, state, lists),
        LogicalPlan::TableScan(scan) if scan.filters.is_empty() && scan.fetch.is_none() => {
            // The columns alone, where all that is asked for is a column.
            let reads = plan.schema();
            let columns = reads.iter().map(|(of, field)| {
                let column = Expr::from((of, field));
                compiled(&column, reads, state)
            });
            let reads = unnamed(reads.as_arrow());
            lists.push(List { reads: Arc::clone(&reads), exprs: columns.collect::<Result<_, _>>()?, gives: reads });
            Ok(())
        }
        LogicalPlan::EmptyRelation(of) if of.produce_one_row => Ok(()),
        other => Err(Error::Unsupported {
            what: format!("{} in an expression of a table's definition", other.display()),
            remedy: "an expression of the row's own columns",
        }),
    }
}

fn compiled(expr: &Expr, reads: &DFSchema, state: &SessionState) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    create_physical_expr(expr, reads, state.execution_props(), &PhysicalPlanningContext::default())
}

/// What a batch holds is held to its schema, and a column that the planner has proved to be never NULL may be where the
/// writer has not looked yet.
fn unnamed(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
