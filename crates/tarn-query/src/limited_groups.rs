//! May an aggregate end after so many groups? `DISTINCT … LIMIT` says so where its rows have no order. Where they come
//! to have one while other rules run, as above windows, DataFusion takes the limit for that of the first groups in an
//! order, of which there is none: `Ordering direction required for DISTINCT with limit`.
//!
//! Such an aggregate loses the limit, which is above it still.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// The rule; it runs before fragments are looked for, which keep a plan as it is then, and at the end, behind what
/// changes orders once more.
#[derive(Debug)]
pub(crate) struct LimitedGroups;

impl PhysicalOptimizerRule for LimitedGroups {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_up(without_limit)?.data)
    }

    fn name(&self) -> &str {
        "tarn_limited_groups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn without_limit(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(Transformed::no(node)) };
    let is_of_no_order = aggregate.limit_options().is_some_and(|limit| limit.descending.is_none());
    if !is_of_no_order || aggregate.is_unordered_unfiltered_group_by_distinct() {
        return Ok(Transformed::no(node));
    }
    Ok(Transformed::yes(Arc::new(aggregate.with_new_limit_options(None))))
}
