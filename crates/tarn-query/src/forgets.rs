//! What does the planner know of rows that are not there? An outer join fills up with NULLs what has no match, and
//! grouping sets put NULL for the columns that a set leaves out. DataFusion goes on to take such a column for the
//! constant, or for the equal of another column, that it is below: it was not sorted by, and groups of it were several.
//!
//! A [`ForgetsExec`] stands below the side of an outer join that may be filled up, and above grouping sets. It gives
//! its input's rows, and says neither what is constant in them nor what is equal or in order.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Statistics};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties, replace_children_if_necessary,
};

/// The rule; it runs before those that ask for orders.
#[derive(Debug)]
pub(crate) struct NullableOrderRule;

impl PhysicalOptimizerRule for NullableOrderRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_up(forgetting)?.data)
    }

    fn name(&self) -> &str {
        "tarn_forgets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn forgetting(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if plan.downcast_ref::<AggregateExec>().is_some_and(|aggregate| !aggregate.group_expr().is_single()) {
        return Ok(Transformed::yes(ForgetsExec::above(&plan)));
    }
    let Some(filled_up) = join_type(plan.as_ref()).map(filled_up) else { return Ok(Transformed::no(plan)) };
    let knows = |child: &Arc<dyn ExecutionPlan>| !child.equivalence_properties().eq_group().is_empty();
    let mut is_changed = false;
    let children = plan.children().into_iter().zip(filled_up).map(|(child, is_filled_up)| {
        let forgets = is_filled_up && knows(child);
        is_changed |= forgets;
        if forgets { ForgetsExec::above(child) } else { Arc::clone(child) }
    });
    let children = children.collect::<Vec<_>>();
    match is_changed {
        true => Ok(Transformed::yes(replace_children_if_necessary(plan, children)?)),
        false => Ok(Transformed::no(plan)),
    }
}

fn join_type(plan: &dyn ExecutionPlan) -> Option<JoinType> {
    let of_hash = plan.downcast_ref::<HashJoinExec>().map(|join| *join.join_type());
    let of_loop = || plan.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type());
    let of_merge = || plan.downcast_ref::<SortMergeJoinExec>().map(|join| join.join_type());
    of_hash.or_else(of_loop).or_else(of_merge)
}

/// Whether its left and its right side may be filled up with NULLs.
fn filled_up(join: JoinType) -> [bool; 2] {
    match join {
        JoinType::Left => [false, true],
        JoinType::Right => [true, false],
        JoinType::Full => [true, true],
        JoinType::Inner
        | JoinType::LeftSemi
        | JoinType::RightSemi
        | JoinType::LeftAnti
        | JoinType::RightAnti
        | JoinType::LeftMark
        | JoinType::RightMark => [false, false],
    }
}

/// Its input's rows.
#[derive(Debug)]
struct ForgetsExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl ForgetsExec {
    fn above(input: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Arc::new(ForgetsExec { input: Arc::clone(input), properties: Arc::new(properties) })
    }
}

impl DisplayAs for ForgetsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ForgetsExec")
    }
}

impl ExecutionPlan for ForgetsExec {
    fn name(&self) -> &str {
        "ForgetsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
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
            _ => Err(DataFusionError::Internal("ForgetsExec has one child".to_owned())),
        }
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(parent_filters, &self.children())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
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
