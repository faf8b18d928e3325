//! How large is what an operator keeps? It adds up the buffers of its batches. Where one batch was cut into many, each
//! of them holds the buffers of the whole, and is counted as large: with batches of 16 rows, a table of 100 KB
//! is counted 1,000 times.
//!
//! Operators that keep batches, and count each by itself, have an [`OwnedExec`] below them, which copies the rows of
//! batches that hold much more than they show. What is counted is then what is held.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::joins::{CrossJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, replace_children_if_necessary,
};
use futures::StreamExt;

use crate::compact::owned;

/// The rule; it runs when the plan is as it will be.
#[derive(Debug)]
pub(crate) struct Owned;

impl PhysicalOptimizerRule for Owned {
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
    if !keeps_batches(plan.as_ref()) {
        return Ok(Transformed::no(plan));
    }
    let inputs = plan.children().into_iter();
    let owned = inputs.map(|input| Arc::new(OwnedExec { input: Arc::clone(input) }) as _).collect();
    Ok(Transformed::yes(replace_children_if_necessary(plan, owned)?))
}

/// Does it keep batches of its inputs, and count the shared buffers of each again? A hash join does not.
fn keeps_batches(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<PiecewiseMergeJoinExec>()
        || plan.is::<SortExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<RecursiveQueryExec>()
}

/// Its input, in batches that hold little more than they show.
#[derive(Debug)]
struct OwnedExec {
    input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for OwnedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedExec")
    }
}

impl ExecutionPlan for OwnedExec {
    fn name(&self) -> &str {
        "OwnedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(OwnedExec { input })),
            _ => Err(DataFusionError::Internal("OwnedExec has one child".to_owned())),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let schema = input.schema();
        let batches = input.map(|batch| batch.and_then(|batch| Ok(owned(batch)?)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&inputs[0]))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
