//! What are these expressions of rows that no query reads? COPY has its rows in its hands, and asks for their defaults;
//! every writer asks whether its rows may be.
//!
//! The list of columns of a `SELECT` becomes expressions that are computed batch by batch, where the caller is. What
//! the optimizer computes once for a statement, as `now()`, is computed once when it is compiled: compile for each
//! statement, or keep what does not hang on it (`row_columns.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ParamValues, plan_err};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Volatility};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::scalar::ScalarValue;

use crate::batch_rows::optimized;
use crate::engine::Session;
use crate::values::as_sql;
use crate::{Error, Result};

/// Parameters from this place on are no client's, who has 65,535 at most.
pub(crate) const OWN_PARAMETERS: usize = 1 << 16;

/// Expressions over the columns of one table, or over none, and over parameters.
#[derive(Debug, Clone)]
pub struct CompiledExprs {
    /// One after the other: each reads what the one before it gives, and the parameters.
    lists: Arc<[List]>,
    /// Whether it answers the same way in another statement, but for what is asked for each row.
    pub(crate) is_same: bool,
}

#[derive(Debug, Clone)]
struct List {
    /// What it reads: columns of rows by their names, those of another list by their places; then the parameters.
    reads: SchemaRef,
    is_by_name: bool,
    /// By their places: the names of columns like these are never looked for.
    parameters: Vec<usize>,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    gives: SchemaRef,
}

impl CompiledExprs {
    /// A column for each expression, as long as the batch. Columns of the batch are found by name, and may have storage
    /// types.
    ///
    /// Errors: what the expressions say of a row. Cost: that of the expressions, on the caller's thread.
    pub fn evaluate(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        Ok(self.evaluate_rows(rows)?.columns().to_vec())
    }

    /// [`CompiledExprs::evaluate`] with the types of the columns; their names mean nothing.
    pub fn evaluate_rows(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        self.evaluate_with(rows, None, &[])
    }

    /// As [`CompiledExprs::evaluate_rows`], with values for the parameters that the expressions were compiled with:
    /// each of the type that it had in the plan. `own` are those from [`OWN_PARAMETERS`] on.
    pub(crate) fn evaluate_with(
        &self,
        rows: &RecordBatch,
        parameters: Option<&ParamValues>,
        own: &[ScalarValue],
    ) -> Result<RecordBatch> {
        let mut rows = rows.clone();
        for list in self.lists.iter() {
            let n_rows = rows.num_rows();
            let read = list.read(&rows, parameters, own)?;
            let given = list.exprs.iter().map(|expr| expr.evaluate(&read)?.into_array(n_rows));
            let given = given.collect::<Result<Vec<_>, DataFusionError>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(n_rows));
            rows = RecordBatch::try_new_with_options(Arc::clone(&list.gives), given, &options)
                .map_err(DataFusionError::from)?;
        }
        Ok(rows)
    }

    /// Whether these parameters are of the types that the expressions were compiled with.
    pub(crate) fn takes(&self, parameters: Option<&ParamValues>) -> bool {
        let Some(ParamValues::List(given)) = parameters else { return true };
        self.lists.iter().all(|list| {
            let mut fields = list.parameters.iter().zip(list.reads.fields().iter().skip(list.n_columns()));
            fields.all(|(place, field)| {
                let value = given.get(*place).map(|given| &given.value);
                value.is_none_or(|value| value.is_null() || value.data_type() == *field.data_type())
            })
        })
    }
}

impl List {
    /// Without the parameters.
    fn n_columns(&self) -> usize {
        self.reads.fields().len() - self.parameters.len()
    }

    fn read(
        &self,
        rows: &RecordBatch,
        parameters: Option<&ParamValues>,
        own: &[ScalarValue],
    ) -> Result<RecordBatch, DataFusionError> {
        let mut columns = Vec::with_capacity(self.reads.fields().len());
        for (place, field) in self.reads.fields().iter().take(self.n_columns()).enumerate() {
            let place = if self.is_by_name { rows.schema_ref().index_of(field.name())? } else { place };
            columns.push(Arc::clone(rows.column(place)));
        }
        for place in &self.parameters {
            let given = match (place.checked_sub(OWN_PARAMETERS), parameters) {
                (Some(place), _) => own.get(place),
                (None, Some(ParamValues::List(given))) => given.get(*place).map(|given| &given.value),
                (None, _) => None,
            };
            let given = given.ok_or_else(|| DataFusionError::Internal(format!("${} was not bound", place + 1)))?;
            columns.push(given.to_array_of_size(rows.num_rows())?);
        }
        as_sql(columns, rows.num_rows(), &self.reads)
    }
}

impl Session {
    /// Compiles the list of columns of a `SELECT … FROM table`, or of one without a table.
    ///
    /// Errors: as of planning; `Unsupported` for a query that does more.
    pub async fn compile(&self, plan: LogicalPlan) -> Result<CompiledExprs> {
        let (state, plan) = self.statement_state(&plan)?;
        self.compute(async move {
            let optimized = optimized(&state, &plan)?;
            let (mut lists, mut same) = (vec![], true);
            compile_list(&optimized, &state, &mut lists)?;
            optimized.apply(|node| {
                if let LogicalPlan::Projection(list) = node {
                    same &= is_same(list);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(CompiledExprs { lists: lists.into(), is_same: same })
        })
        .await
    }
}

fn compile_list(plan: &LogicalPlan, state: &SessionState, lists: &mut Vec<List>) -> Result<()> {
    match plan {
        LogicalPlan::Projection(list) => {
            compile_list(&list.input, state, lists)?;
            lists.push(list_of(&list.expr, list.input.schema(), &list.schema, state)?);
            Ok(())
        }
        LogicalPlan::SubqueryAlias(of) => compile_list(&of.input, state, lists),
        LogicalPlan::TableScan(scan) if scan.filters.is_empty() && scan.fetch.is_none() => {
            // The columns alone, where all that is asked for is a column.
            let reads = plan.schema();
            let columns: Vec<Expr> = reads.iter().map(Expr::from).collect();
            lists.push(List { is_by_name: true, ..list_of(&columns, reads, reads, state)? });
            Ok(())
        }
        LogicalPlan::EmptyRelation(of) if of.produce_one_row => Ok(()),
        other => Err(Error::Unsupported {
            what: format!("{} in an expression of a table's definition", other.display()),
            remedy: "an expression of the row's own columns",
        }),
    }
}

fn list_of(exprs: &[Expr], reads: &DFSchema, gives: &DFSchema, state: &SessionState) -> Result<List, DataFusionError> {
    let parameters = parameters_of(exprs)?;
    let fields = parameters.values().map(|field| (None, Arc::clone(field))).collect();
    let reads = reads.join(&DFSchema::new_with_metadata(fields, Default::default())?)?;
    let exprs = exprs.iter().map(|expr| {
        let expr = expr.clone().transform(|expr| {
            Ok(match expr {
                Expr::Placeholder(parameter) => Transformed::yes(Expr::Column(Column::from_name(parameter.id))),
                other => Transformed::no(other),
            })
        })?;
        create_physical_expr(&expr.data, &reads, state.execution_props(), &PhysicalPlanningContext::default())
    });
    Ok(List {
        exprs: exprs.collect::<Result<_, _>>()?,
        reads: unnamed(reads.as_arrow()),
        is_by_name: false,
        parameters: parameters.into_keys().collect(),
        gives: unnamed(gives.as_arrow()),
    })
}

/// The parameters of expressions by their places, as columns of their names.
fn parameters_of(exprs: &[Expr]) -> Result<BTreeMap<usize, FieldRef>, DataFusionError> {
    let mut found = BTreeMap::new();
    for expr in exprs {
        expr.apply(|expr| {
            if let Expr::Placeholder(parameter) = expr {
                let place = parameter.id.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
                let (Some(place), Some(field)) = (place.and_then(|number| number.checked_sub(1)), &parameter.field)
                else {
                    return plan_err!("nothing tells the type of {}", parameter.id);
                };
                let named = field.as_ref().clone().with_name(&parameter.id).with_nullable(true);
                found.insert(place, Arc::new(named));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(found)
}

/// What a batch holds is held to its schema, and a column that the planner has proved to be never NULL may be where the
/// writer has not looked yet.
fn unnamed(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Whether a list says the same in another statement, but for what is asked for each row.
pub(crate) fn is_same(list: &Projection) -> bool {
    let mut is_same = true;
    each(list, |expr| match expr {
        Expr::ScalarFunction(call) => is_same &= call.func.signature().volatility != Volatility::Stable,
        Expr::Placeholder(parameter) => is_same &= parameter.field.is_some(),
        _ => {}
    });
    is_same
}

/// Walks all expressions of a list.
pub(crate) fn each(list: &Projection, mut look: impl FnMut(&Expr)) {
    for expr in &list.expr {
        let _ = expr.apply(|expr| {
            look(expr);
            Ok::<_, DataFusionError>(TreeNodeRecursion::Continue)
        });
    }
}
