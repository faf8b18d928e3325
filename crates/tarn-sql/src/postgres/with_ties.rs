//! Which rows are those of `FETCH FIRST n ROWS WITH TIES`? The first n, and all that the ORDER BY puts beside the last
//! of them: those whose rank is n at most.
//!
//! The parser writes the limit as a call, which stands until the plan is there and is never computed:
//!
//! ```text
//! Limit skip, tarn_with_ties(n)          Limit skip
//!   Sort keys                     ──>      Projection, without the rank
//!     rows                                   Sort keys
//!                                              Filter rank <= n + skip
//!                                                Window rank() OVER (ORDER BY keys)
//!                                                  rows
//! ```

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, exec_err};
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::rank;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprFunctionExt, Limit, LogicalPlan, LogicalPlanBuilder, Projection, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Sort, Volatility, cast,
};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::datafusion;
use tarn_query::parser::WITH_TIES;

use crate::error::SqlError;

/// The mark of such a limit.
pub(super) fn mark() -> ScalarUDF {
    Mark { signature: Signature::exact(vec![DataType::Int64], Volatility::Immutable) }.into()
}

/// The rule, which runs when a statement is planned.
#[derive(Debug)]
pub(super) struct WithTies;

impl AnalyzerRule for WithTies {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(with_ties)?.data)
    }

    fn name(&self) -> &str {
        "with_ties"
    }
}

fn with_ties(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Limit(limit) = node else { return Ok(Transformed::no(node)) };
    let Some(count) = limit.fetch.as_deref().and_then(marked).cloned() else {
        return Ok(Transformed::no(LogicalPlan::Limit(limit)));
    };
    let Limit { skip, input, .. } = limit;
    // Above the sort columns may be left out that it alone names.
    let (sort, shown) = match input.as_ref() {
        LogicalPlan::Sort(sort) => (sort, None),
        LogicalPlan::Projection(Projection { expr, input, .. }) => match input.as_ref() {
            LogicalPlan::Sort(sort) => (sort, Some(expr)),
            _ => return Err(unordered().into()),
        },
        _ => return Err(unordered().into()),
    };
    let Sort { expr: keys, input: rows, .. } = sort;
    let ranked = rank().order_by(keys.clone()).build()?;
    let called = Column::from_name(ranked.schema_name().to_string());
    let last = match &skip {
        Some(skip) => cast(count, DataType::Int64) + cast(skip.as_ref().clone(), DataType::Int64),
        None => cast(count, DataType::Int64),
    };
    // No limit where it is NULL.
    let is_first = cast(Expr::Column(called), DataType::Int64).lt_eq(last.clone()).or(last.is_null());
    let columns = rows.schema().columns().into_iter().map(Expr::Column);
    let plan = LogicalPlanBuilder::from(Arc::clone(rows))
        .window([ranked])?
        .filter(is_first)?
        .sort(keys.clone())?
        .project(columns)?;
    let plan = match shown {
        Some(shown) => plan.project(shown.clone())?,
        None => plan,
    };
    let plan = match skip {
        Some(skip) => plan.limit_by_expr(Some(*skip), None)?,
        None => plan,
    };
    Ok(Transformed::yes(plan.build()?))
}

/// The count of a limit that is marked.
fn marked(fetch: &Expr) -> Option<&Expr> {
    match fetch {
        Expr::ScalarFunction(call) if call.name() == WITH_TIES => call.args.first(),
        Expr::Cast(cast) => marked(&cast.expr),
        _ => None,
    }
}

fn unordered() -> SqlError {
    SqlError::unsupported(
        "WITH TIES of such a query is not supported",
        "rank() OVER (ORDER BY …) in a subquery, and WHERE",
    )
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    signature: Signature,
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        WITH_TIES
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{WITH_TIES} is no function of statements")
    }
}
