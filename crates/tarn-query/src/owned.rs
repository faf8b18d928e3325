//! How large is what an operator keeps? It adds up the buffers of its batches. Where one batch was cut into many, each
//! of them holds the buffers of the whole, and is counted as large: with batches of 16 rows, a table of 100 KB
//! is counted 1,000 times.
//!
//! Operators that keep batches, and count each by itself, have a node with [`OwnedRows`] below them, which copies the
//! rows of batches that hold much more than they show. What is counted is then what is held.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use futures::StreamExt;

use crate::compact::owned;
use crate::rebatch::{Rebatch, RebatchExec};

/// The rule; it runs when the plan is as it will be.
#[derive(Debug)]
pub(crate) struct OwnedBatchesRule;

impl PhysicalOptimizerRule for OwnedBatchesRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_up(with_owned_inputs)?.data)
    }

    fn name(&self) -> &str {
        "tarn_owned"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn with_owned_inputs(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let kept = n_kept(plan.as_ref());
    if kept == 0 {
        return Ok(Transformed::no(plan));
    }
    let owned = plan.children().into_iter().enumerate().map(|(idx, child)| match idx < kept {
        true => RebatchExec::<OwnedRows>::above(child),
        false => Arc::clone(child),
    });
    let owned = owned.collect();
    Ok(Transformed::yes(replace_children_if_necessary(plan, owned)?))
}

/// Of how many inputs, the first ones, it keeps batches and counts all that each holds. A hash join counts shared
/// buffers once, but each of its own output's batches may have a buffer of a megabyte for a few texts.
fn n_kept(plan: &dyn ExecutionPlan) -> usize {
    let keeps_all = plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<PiecewiseMergeJoinExec>()
        || plan.is::<SortExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<RecursiveQueryExec>();
    match keeps_all {
        true => usize::MAX,
        false => usize::from(plan.is::<HashJoinExec>()),
    }
}

/// Batches that hold little more than they show.
#[derive(Debug)]
struct OwnedRows;

impl Rebatch for OwnedRows {
    const NAME: &'static str = "OwnedExec";

    fn rebatch(input: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = input.schema();
        let batches = input.map(|batch| batch.and_then(|batch| Ok(owned(batch)?)));
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }
}
