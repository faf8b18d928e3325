//! A node that cuts or copies the batches of its input, and changes nothing else: rows, their order and their
//! partitions are those of the input, and so are its statistics.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// What becomes of the batches.
pub(crate) trait Rebatch: fmt::Debug + Send + Sync + 'static {
    /// As `EXPLAIN` calls the node.
    const NAME: &'static str;

    /// The same rows in the same order, in other batches.
    fn rebatch(input: SendableRecordBatchStream) -> SendableRecordBatchStream;
}

/// The node of a [`Rebatch`].
#[derive(Debug)]
pub(crate) struct RebatchExec<R> {
    input: Arc<dyn ExecutionPlan>,
    rebatch: PhantomData<R>,
}

impl<R: Rebatch> RebatchExec<R> {
    pub(crate) fn above(input: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(RebatchExec::<R> { input: Arc::clone(input), rebatch: PhantomData })
    }
}

impl<R: Rebatch> DisplayAs for RebatchExec<R> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(R::NAME)
    }
}

impl<R: Rebatch> ExecutionPlan for RebatchExec<R> {
    fn name(&self) -> &str {
        R::NAME
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

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match &children[..] {
            [input] => Ok(Self::above(input)),
            _ => Err(DataFusionError::Internal(format!("{} has one child", R::NAME))),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Ok(R::rebatch(self.input.execute(partition, context)?))
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
