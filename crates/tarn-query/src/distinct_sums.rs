//! Is a sum of sums of the type of the sum? Beside one `count(DISTINCT x)`, DataFusion groups by `x` first, and sums up
//! the sums of these groups. Where `sum(int)` is a `bigint` and `sum(bigint)` a `numeric`, the plan would have other
//! columns than it said, and fails.
//!
//! So where it is another type, the rule leaves the aggregate as it is: distinct values are then collected beside the
//! sum.

use std::mem::discriminant;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::rule_order::wrapped;

const GROUPS_BY_DISTINCT: &str = "single_distinct_aggregation_to_group_by";

/// The rules, of which the one that sums up sums leaves alone what it would make another type of.
pub(crate) fn same_sums(rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    wrapped(rules, GROUPS_BY_DISTINCT, |inner| Arc::new(SameSums { inner }))
}

#[derive(Debug)]
struct SameSums {
    inner: Arc<dyn OptimizerRule + Send + Sync>,
}

impl OptimizerRule for SameSums {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.inner.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match becomes_another(&plan)? {
            true => Ok(Transformed::no(plan)),
            false => self.inner.rewrite(plan, config),
        }
    }
}

fn becomes_another(plan: &LogicalPlan) -> Result<bool> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(false) };
    for expr in &aggregate.aggr_expr {
        let Expr::AggregateFunction(AggregateFunction { func, .. }) = expr else { continue };
        let sum = expr.get_type(aggregate.input.schema())?;
        // Numbers of more digits are numbers.
        if func.name() == "sum" && discriminant(&func.return_type(std::slice::from_ref(&sum))?) != discriminant(&sum) {
            return Ok(true);
        }
    }
    Ok(false)
}
