//! Which way is a range read? The row engine gives a range in either direction: where a sort wants the opposite of what it gives, the range
//! is read backwards, and the sort goes. With a limit above it (the latest of a key) no more is read than is given.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary};

use crate::rows_exec::RowsExec;
use crate::scan::TarnScan;

/// DataFusion's rule that lets files sort less: by then sorts are where they are needed.
pub(crate) const PUSHES_SORTS: &str = "PushdownSort";

/// The rule; it runs before [`PUSHES_SORTS`].
#[derive(Debug)]
pub(crate) struct Backwards;

impl PhysicalOptimizerRule for Backwards {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_down(without_sort)?.data)
    }

    fn name(&self) -> &str {
        "tarn_backwards"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn without_sort(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    // One partition needs no merge.
    let merged = plan.downcast_ref::<SortPreservingMergeExec>().map(|merge| merge.input());
    let Some(sort) = merged.unwrap_or(&plan).downcast_ref::<SortExec>() else { return Ok(Transformed::no(plan)) };
    let Some(input) = reversed(sort.input())? else { return Ok(Transformed::no(plan)) };
    let is_in_order = input.equivalence_properties().ordering_satisfy(sort.expr().iter().cloned())?;
    if !is_in_order || input.output_partitioning().partition_count() > 1 {
        return Ok(Transformed::no(plan));
    }
    Ok(Transformed::yes(match sort.fetch() {
        Some(n) => input.with_fetch(Some(n)).unwrap_or_else(|| Arc::new(GlobalLimitExec::new(input, 0, Some(n)))),
        None => input,
    }))
}

/// The same rows the other way round, if nothing between depends on their order.
fn reversed(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(rows) = plan.downcast_ref::<RowsExec>() {
        return Ok(rows.reversed().map(|rows| Arc::new(rows) as _));
    }
    // The rows of one partition are dealt out to several only for the work above, which is next to nothing when the first ones are enough.
    if let Some(dealt) = plan.downcast_ref::<RepartitionExec>() {
        let is_of_one = dealt.input().output_partitioning().partition_count() == 1;
        return if is_of_one { reversed(dealt.input()) } else { Ok(None) };
    }
    let passes =
        plan.is::<FilterExec>() || plan.is::<ProjectionExec>() || plan.is::<CooperativeExec>() || plan.is::<TarnScan>();
    // Fewer rows than there are would be others.
    match plan.children().as_slice() {
        [input] if passes && plan.fetch().is_none() => match reversed(input)? {
            Some(input) => Ok(Some(replace_children_if_necessary(Arc::clone(plan), vec![input])?)),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}
