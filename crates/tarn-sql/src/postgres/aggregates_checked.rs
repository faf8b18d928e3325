//! Which aggregates does PostgreSQL refuse, or compute elsewhere, that the planner takes? They are refused when a
//! statement is planned.
//!
//! - `string_agg(DISTINCT a::text, ',' ORDER BY a)`: what is ordered by is none of the values that are told apart
//!   (42P10).
//! - `(SELECT count(*) FILTER (WHERE o.x > 0) FROM i)` of an outer `o`: all that it reads is the outer query's, so it
//!   is an aggregate of that one, whose rows it counts. DataFusion counts those of `i`.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::datafusion;

use crate::error::{SqlError, state};

/// The rule; it changes nothing.
#[derive(Debug)]
pub(super) struct CheckedAggregates;

impl AnalyzerRule for CheckedAggregates {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::Aggregate(Aggregate { aggr_expr, .. }) = node {
                aggr_expr.iter().try_for_each(check)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        "postgres_checked_aggregates"
    }
}

fn check(expr: &Expr) -> Result<()> {
    expr.apply(|expr| {
        let Expr::AggregateFunction(AggregateFunction { params, .. }) = expr else {
            return Ok(TreeNodeRecursion::Continue);
        };
        if params.distinct && params.order_by.iter().any(|order| !params.args.contains(&order.expr)) {
            let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
            return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message).into());
        }
        let (mut is_outer, mut is_own) = (false, false);
        for part in params.args.iter().chain(params.filter.as_deref()) {
            part.apply(|part| {
                is_outer |= matches!(part, Expr::OuterReferenceColumn(..));
                is_own |= matches!(part, Expr::Column(_) | Expr::ScalarSubquery(_));
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        match is_outer && !is_own {
            true => Err(SqlError::unsupported(
                "an aggregate of the outer query's columns alone, in a subquery",
                "it is of the outer query's rows: compute it there",
            )
            .into()),
            false => Ok(TreeNodeRecursion::Jump),
        }
    })?;
    Ok(())
}
