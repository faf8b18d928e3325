//! Which way is a range read? The row engine gives a range in either direction: where a sort wants the opposite of what
//! it gives, the range is read backwards, and the sort goes. With a limit above it (the latest of a key) no more is
//! read than is given.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning, replace_children_if_necessary};

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
    let merge = plan.downcast_ref::<SortPreservingMergeExec>();
    let below = merge.map_or(&plan, SortPreservingMergeExec::input);
    let sort = below.downcast_ref::<SortExec>();
    let (input, order, way) = match (sort, merge) {
        (Some(sort), _) => (sort.input(), sort.expr(), ScanDirection::Back),
        (None, Some(merge)) => (merge.input(), merge.expr(), ScanDirection::There),
        (None, None) => return Ok(Transformed::no(plan)),
    };
    let limits = [merge.and_then(SortPreservingMergeExec::fetch), sort.and_then(SortExec::fetch)];
    let limit = limits.into_iter().flatten().min();
    let Some(input) = one_run(input, way, limit.is_some())? else { return Ok(Transformed::no(plan)) };
    let is_in_order = input.equivalence_properties().ordering_satisfy(order.iter().cloned())?;
    if !is_in_order || input.output_partitioning().partition_count() > 1 {
        return Ok(Transformed::no(plan));
    }
    Ok(Transformed::yes(match limit {
        Some(n) => input.with_fetch(Some(n)).unwrap_or_else(|| Arc::new(GlobalLimitExec::new(input, 0, Some(n)))),
        None => input,
    }))
}

/// Along the order of the rows below, or against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanDirection {
    There,
    Back,
}

/// The rows of a range as one run, if nothing between depends on their order. Dealt out to several partitions, each of
/// which fills up before the first row is given, they stay unless there is a limit: then the work above them is next to
/// nothing.
fn one_run(
    plan: &Arc<dyn ExecutionPlan>,
    way: ScanDirection,
    is_limited: bool,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(rows) = plan.downcast_ref::<RowsExec>() {
        return Ok(match way {
            ScanDirection::There => Some(Arc::clone(plan)),
            ScanDirection::Back => rows.reversed().map(|rows| Arc::new(rows) as _),
        });
    }
    if let Some(dealt) = plan.downcast_ref::<RepartitionExec>() {
        let is_of_one = dealt.input().output_partitioning().partition_count() == 1;
        let is_dealt = matches!(dealt.partitioning(), Partitioning::RoundRobinBatch(_));
        return if is_limited && is_of_one && is_dealt { one_run(dealt.input(), way, is_limited) } else { Ok(None) };
    }
    let passes = plan.is::<FilterExec>() || plan.is::<ProjectionExec>() || plan.is::<TarnScan>();
    // With a limit of its own it would give other rows the other way round.
    let passes = passes && (way == ScanDirection::There || plan.fetch().is_none());
    match plan.children().as_slice() {
        [input] if passes => match one_run(input, way, is_limited)? {
            Some(input) => Ok(Some(replace_children_if_necessary(Arc::clone(plan), vec![input])?)),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}
