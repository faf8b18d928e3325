//! What does a list of columns say of rows that are in somebody's hands, again and again? The row of a key that is
//! changed, the row that is inserted, the rows that `RETURNING` asks of.
//!
//! Planning a query costs a hundred times as much as computing it of one row. So the list is compiled when it is first
//! asked for, and kept for all parameters. It is compiled anew each time where a function is one statement's
//! (`now()`), and where a parameter is a function's argument: a type may hang on the value (`round(v, $1)`).

use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, ParamValues};
use datafusion::logical_expr::async_udf::AsyncScalarUDF;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Volatility};

use crate::Result;
use crate::compiled::Compiled;
use crate::engine::Session;

/// The columns of a `SELECT` of one table, or of none, that does nothing else.
#[derive(Debug, Clone)]
pub struct RowColumns {
    plan: LogicalPlan,
    traits: Traits,
    kept: Arc<OnceLock<Kept>>,
}

/// What became of it when it was first compiled.
#[derive(Debug, Clone)]
enum Kept {
    /// It is the same for all executions.
    Always(Compiled),
    /// It is compiled for each.
    Never,
    /// It cannot be compiled.
    Planned,
}

/// What functions are in a list of columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traits {
    /// None answers another way when the statement runs again but those that are asked for each row.
    pub is_same: bool,
    /// Some are asked for each row. Who answers may wait, for the number of a sequence.
    pub is_volatile: bool,
}

impl RowColumns {
    /// The columns of this plan. `None`: it does more.
    pub fn of(plan: &LogicalPlan) -> Option<RowColumns> {
        let mut traits = Traits { is_same: true, is_volatile: false };
        let mut read = plan;
        loop {
            read = match read {
                LogicalPlan::Projection(list) => {
                    is_of_row(list).then_some(())?;
                    let of = traits_of(list);
                    traits.is_same &= of.is_same && !list.expr.iter().any(calls_with_parameter);
                    traits.is_volatile |= of.is_volatile;
                    &list.input
                }
                LogicalPlan::SubqueryAlias(of) => &of.input,
                LogicalPlan::TableScan(scan) if scan.filters.is_empty() && scan.fetch.is_none() => break,
                LogicalPlan::EmptyRelation(of) if of.produce_one_row => break,
                _ => return None,
            };
        }
        Some(RowColumns { plan: plan.clone(), traits, kept: Arc::default() })
    }
}

impl Session {
    /// The columns of these rows, which have the table's columns, of storage types; of no table, of as many rows. With
    /// values for the parameters, each of the type that it has in the plan.
    ///
    /// `None`: they cannot be compiled, and a plan has to say what is wrong with them. Errors: what the expressions say
    /// of a row. Cost: that of planning at first, or each time (see above); that of the expressions, on the caller's
    /// thread if none of them waits.
    pub async fn row_columns(
        &self,
        of: &RowColumns,
        rows: &RecordBatch,
        parameters: Option<&ParamValues>,
    ) -> Result<Option<RecordBatch>> {
        let compiled = match of.kept.get() {
            Some(Kept::Always(compiled)) => compiled.clone(),
            Some(Kept::Planned) => return Ok(None),
            Some(Kept::Never) | None => match self.compile_row_columns(of, parameters).await {
                Some(compiled) => compiled,
                None => return Ok(None),
            },
        };
        if !of.traits.is_volatile {
            return Ok(Some(compiled.evaluate_with(rows, parameters)?));
        }
        let (rows, parameters) = (rows.clone(), parameters.cloned());
        self.compute(async move { Ok(Some(compiled.evaluate_with(&rows, parameters.as_ref())?)) }).await
    }

    async fn compile_row_columns(&self, of: &RowColumns, parameters: Option<&ParamValues>) -> Option<Compiled> {
        let is_bound = !of.traits.is_same && parameters.is_some();
        let compiled = match (parameters, is_bound) {
            (Some(parameters), true) => match of.plan.clone().with_param_values(parameters.clone()) {
                Ok(plan) => self.compile(plan).await,
                Err(error) => Err(error.into()),
            },
            _ => self.compile(of.plan.clone()).await,
        };
        let kept = match &compiled {
            Ok(compiled) if of.traits.is_same && compiled.is_same => Kept::Always(compiled.clone()),
            // With other values it may be possible.
            Ok(_) => Kept::Never,
            Err(_) if is_bound => Kept::Never,
            Err(_) => Kept::Planned,
        };
        of.kept.get_or_init(|| kept);
        compiled.ok()
    }
}

/// What functions a list calls.
pub(crate) fn traits_of(list: &Projection) -> Traits {
    let mut traits = Traits { is_same: true, is_volatile: false };
    each(list, |expr| match expr {
        Expr::ScalarFunction(call) => match call.func.signature().volatility {
            Volatility::Immutable => {}
            Volatility::Stable => traits.is_same = false,
            Volatility::Volatile => traits.is_volatile = true,
        },
        Expr::Placeholder(parameter) => traits.is_same &= parameter.field.is_some(),
        _ => {}
    });
    traits
}

/// Whether each row is answered by itself, and by whoever has it.
fn is_of_row(list: &Projection) -> bool {
    let mut is_of_row = true;
    each(list, |expr| match expr {
        Expr::ScalarFunction(call) => is_of_row &= call.func.inner().downcast_ref::<AsyncScalarUDF>().is_none(),
        Expr::ScalarSubquery(_)
        | Expr::InSubquery(_)
        | Expr::Exists(_)
        | Expr::SetComparison(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::AggregateFunction(_)
        | Expr::WindowFunction(_)
        | Expr::Unnest(_) => is_of_row = false,
        _ => {}
    });
    is_of_row
}

fn each(list: &Projection, mut look: impl FnMut(&Expr)) {
    for expr in &list.expr {
        let _ = expr.apply(|expr| {
            look(expr);
            Ok::<_, DataFusionError>(TreeNodeRecursion::Continue)
        });
    }
}

/// Whether a parameter is in an argument of a function.
fn calls_with_parameter(expr: &Expr) -> bool {
    let is_parameter = |expr: &Expr| Ok(matches!(expr, Expr::Placeholder(_)));
    let found = expr.exists(|expr| match expr {
        Expr::ScalarFunction(call) => {
            call.args.iter().try_fold(false, |found, arg| Ok(found || arg.exists(is_parameter)?))
        }
        _ => Ok(false),
    });
    // Of what cannot be walked nothing is known.
    found.unwrap_or(true)
}
