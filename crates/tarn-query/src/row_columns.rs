//! What does a list of columns say of rows that are in somebody's hands, again and again? The row of a key that is
//! changed, the row that is inserted, the rows that `RETURNING` asks of.
//!
//! Planning a query costs a hundred times as much as computing it of one row. So the list is compiled when it is first
//! asked for, and kept for all parameters. `now()` and its kin are parameters, too, which each statement gives itself.
//! It is compiled anew each time where another function answers for one statement (`current_setting('x')`), and where
//! a parameter is a function's argument: a type may hang on the value (`round(v, $1)`).

use std::borrow::Borrow;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ParamValues, internal_err};
use datafusion::logical_expr::async_udf::AsyncScalarUDF;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Projection, Volatility};
use datafusion::scalar::ScalarValue;

use crate::compiled::{CompiledExprs, OWN_PARAMETERS, each, is_same};
use crate::engine::{Session, moment};
use crate::rewrite::each_expression;
use crate::{Error, Result};

/// The columns of a `SELECT` of one table, or of none, that does nothing else.
#[derive(Debug, Clone)]
pub struct RowColumns {
    plan: Arc<LogicalPlan>,
    /// The same for all executions, if there is such a thing.
    same: Option<Arc<ReusablePlan>>,
    /// Whether it is computed at once: nothing is called, and little is nested.
    is_short: bool,
    kept: Arc<OnceLock<CompileState>>,
}

/// A list of columns that is the same for all executions.
#[derive(Debug, Clone)]
struct ReusablePlan {
    plan: LogicalPlan,
    /// What stands behind its parameters ([`OWN_PARAMETERS`]), as it was written.
    moments: Vec<Expr>,
}

/// What became of it when it was first compiled.
#[derive(Debug, Clone)]
enum CompileState {
    /// It is the same for all executions.
    Always(CompiledExprs),
    /// It is compiled for each.
    Never,
    /// It cannot be compiled.
    Planned,
}

/// Expressions of more parts have a thread of queries to themselves, and its deep stack.
const MAX_SHORT_PARTS: usize = 1_000;

impl RowColumns {
    /// The columns of this plan. `None`: it does more.
    pub fn of(plan: &LogicalPlan) -> Option<RowColumns> {
        each_list(plan, is_of_row)?;
        let same = ReusablePlan::of(plan).map(Arc::new);
        let (mut n_parts, mut calls) = (0, false);
        each_list(same.as_ref().map_or(plan, |same| &same.plan), |list| {
            each(list, |expr| {
                n_parts += 1;
                calls |= matches!(expr, Expr::ScalarFunction(_));
            });
            true
        })?;
        let is_short = !calls && n_parts <= MAX_SHORT_PARTS;
        Some(RowColumns { plan: Arc::new(plan.clone()), same, is_short, kept: Arc::default() })
    }
}

impl ReusablePlan {
    /// `None`: its functions or its parameters do not let it be one.
    fn of(plan: &LogicalPlan) -> Option<ReusablePlan> {
        let mut moments = vec![];
        let plan = each_expression(plan.clone(), |expr, _| as_moment(expr, &mut moments)).ok()?;
        each_list(&plan, |list| is_same(list) && !list.expr.iter().any(calls_with_parameter))?;
        Some(ReusablePlan { plan, moments })
    }

    /// What the moments are for a statement that begins now.
    fn values(&self, session: &Session) -> Result<Vec<ScalarValue>> {
        if self.moments.is_empty() {
            return Ok(vec![]);
        }
        let context = session.moment();
        let values = self.moments.iter().map(|call| match moment_of(call, || &context)? {
            Some(value) => Ok(value),
            None => internal_err!("{call} tells no moment"),
        });
        Ok(values.collect::<Result<_, DataFusionError>>()?)
    }
}

/// Writes a parameter for a function that tells when the statement or its transaction began.
fn as_moment(expr: Expr, moments: &mut Vec<Expr>) -> Result<Transformed<Expr>, DataFusionError> {
    if moment_of(&expr, || moment(Arc::default(), None))?.is_none() {
        return Ok(Transformed::no(expr));
    }
    let field = expr.to_field(&DFSchema::empty())?.1;
    let id = format!("${}", OWN_PARAMETERS + moments.len() + 1);
    moments.push(expr);
    Ok(Transformed::yes(Expr::Placeholder(Placeholder::new_with_field(id, Some(field)))))
}

/// What a function without arguments is for one statement, if it tells that when it is planned.
fn moment_of<C: Borrow<SimplifyContext>>(
    expr: &Expr,
    context: impl FnOnce() -> C,
) -> Result<Option<ScalarValue>, DataFusionError> {
    let Expr::ScalarFunction(call) = expr else { return Ok(None) };
    if !call.args.is_empty() || call.func.signature().volatility != Volatility::Stable {
        return Ok(None);
    }
    Ok(match call.func.simplify(vec![], context().borrow())? {
        ExprSimplifyResult::Simplified(Expr::Literal(value, _)) => Some(value),
        _ => None,
    })
}

impl Session {
    /// The columns of these rows, which have the table's columns, of storage types; of no table, of as many rows. With
    /// values for the parameters, each of the type that it has in the plan.
    ///
    /// `None`: they cannot be compiled, and a plan has to say what is wrong with them. Errors: what the expressions say
    /// of a row. Cost: that of planning at first, or each time (see above); that of the expressions, on the threads of
    /// queries if they call functions.
    pub async fn row_columns(
        &self,
        of: &RowColumns,
        rows: &RecordBatch,
        parameters: Option<&ParamValues>,
    ) -> Result<Option<RecordBatch>> {
        let kept = match (of.kept.get(), &of.same) {
            (Some(kept), _) => kept.clone(),
            (None, None) => CompileState::Never,
            (None, Some(same)) => {
                let kept = match self.compile(same.plan.clone()).await {
                    Ok(compiled) if compiled.is_same => CompileState::Always(compiled),
                    Ok(_) => CompileState::Never,
                    // Another time there may be room.
                    Err(error) if is_full(&error) => return Err(error),
                    Err(_) => CompileState::Planned,
                };
                of.kept.get_or_init(|| kept).clone()
            }
        };
        let (compiled, moments) = match (kept, &of.same) {
            (CompileState::Always(compiled), Some(same)) if compiled.takes(parameters) => {
                (compiled, same.values(self)?)
            }
            (CompileState::Planned, _) => return Ok(None),
            _ => match self.compile_bound(of, parameters).await {
                Ok(compiled) => (compiled, vec![]),
                Err(_) => return Ok(None),
            },
        };
        if of.is_short {
            return Ok(Some(compiled.evaluate_with(rows, parameters, &moments)?));
        }
        let (rows, parameters) = (rows.clone(), parameters.cloned());
        self.compute(async move { Ok(Some(compiled.evaluate_with(&rows, parameters.as_ref(), &moments)?)) }).await
    }

    async fn compile_bound(&self, of: &RowColumns, parameters: Option<&ParamValues>) -> Result<CompiledExprs> {
        let plan = match parameters {
            Some(parameters) => of.plan.as_ref().clone().with_param_values(parameters.clone())?,
            None => of.plan.as_ref().clone(),
        };
        self.compile(plan).await
    }
}

fn is_full(error: &Error) -> bool {
    let Error::Sql { source } = error else { return false };
    matches!(source.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Walks the lists of columns of a plan that does nothing else. `None`: it does more, or one is refused.
fn each_list(plan: &LogicalPlan, mut is_taken: impl FnMut(&Projection) -> bool) -> Option<()> {
    let mut read = plan;
    loop {
        read = match read {
            LogicalPlan::Projection(list) if is_taken(list) => &list.input,
            LogicalPlan::SubqueryAlias(of) => &of.input,
            LogicalPlan::TableScan(scan) if scan.filters.is_empty() && scan.fetch.is_none() => return Some(()),
            LogicalPlan::EmptyRelation(of) if of.produce_one_row => return Some(()),
            _ => return None,
        };
    }
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
