//! May the equality of a filter stand for an order? `WHERE abs(a) = a` makes both one for the planner: what has to be
//! sorted by `a`, as a window with `PARTITION BY a` wants it, is sorted by `abs(a)`, and then perhaps no order by `a`
//! is found: the window fails with an assertion.
//!
//! So where a column is compared with something computed, the planner gets another condition that says the same.
//! Columns that are equal to columns or to constants are what it should know.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};

use crate::balance::conjunction;

/// The rule: behind the choice of joins' sides, which estimates what a filter leaves by its equalities, and before
/// orders are asked for.
#[derive(Debug)]
pub(crate) struct EqualityOrderRule;

/// The rule of DataFusion that chooses the sides of joins.
pub(crate) const CHOOSES_SIDES: &str = "join_selection";

impl PhysicalOptimizerRule for EqualityOrderRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_up(hidden)?.data)
    }

    fn name(&self) -> &str {
        "tarn_equated_columns"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn hidden(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
    let terms = split_conjunction(filter.predicate());
    if !terms.iter().any(|term| equates_computed(term)) {
        return Ok(Transformed::no(node));
    }
    let terms: Vec<Arc<dyn PhysicalExpr>> = terms
        .into_iter()
        .map(|term| match equates_computed(term) {
            true => Arc::new(BinaryExpr::new(Arc::clone(term), Operator::IsNotDistinctFrom, lit(true))) as _,
            false => Arc::clone(term),
        })
        .collect();
    let predicate = conjunction(&terms.iter().collect::<Vec<_>>());
    Ok(Transformed::yes(Arc::new(FilterExecBuilder::from(filter).with_predicate(predicate).build()?)))
}

/// Is it an equality of a column with something that is computed of columns? The answer of a subquery is a constant.
fn equates_computed(term: &Arc<dyn PhysicalExpr>) -> bool {
    let Some(equality) = term.downcast_ref::<BinaryExpr>().filter(|binary| *binary.op() == Operator::Eq) else {
        return false;
    };
    let is_computed = |side: &Arc<dyn PhysicalExpr>| !side.is::<Column>() && !collect_columns(side).is_empty();
    let (left, right) = (equality.left(), equality.right());
    (left.is::<Column>() && is_computed(right)) || (right.is::<Column>() && is_computed(left))
}
