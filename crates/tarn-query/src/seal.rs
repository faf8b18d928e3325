//! Does a `LIMIT` cut what it stands above, and nothing deeper? While sorts are placed, a limit's rows travel down with
//! the order that is asked for, through nodes that already have that order: past the `OFFSET` of a limit, past filters,
//! and past the last step of an aggregate, where rows are not yet groups. So `ORDER BY` above `LIMIT … OFFSET`, and
//! `DISTINCT … ORDER BY … LIMIT`, answer too few rows.
//!
//! A [`Sealed`] above such a node stops them: it has the order of its input and asks for none. It is there while sorts
//! are placed, and is taken away before the plan runs.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, replace_children_if_necessary,
};

/// DataFusion's rules, with the seals around the one that places sorts.
pub(crate) fn sealed_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    let places_sorts = rules.iter().position(|rule| rule.name() == PLACES_SORTS).expect("sorts are placed by a rule");
    rules.insert(places_sorts + 1, Arc::new(Seals::Remove));
    rules.insert(places_sorts, Arc::new(Seals::Add));
    rules
}

const PLACES_SORTS: &str = "EnsureRequirements";

#[derive(Debug)]
enum Seals {
    Add,
    Remove,
}

impl PhysicalOptimizerRule for Seals {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            Seals::Add => seal(plan, false),
            Seals::Remove => Ok(plan.transform_down(|node| Ok(opened(node)))?.data),
        }
    }

    fn name(&self) -> &str {
        match self {
            Seals::Add => "tarn_seal",
            Seals::Remove => "tarn_unseal",
        }
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn opened(node: Arc<dyn ExecutionPlan>) -> Transformed<Arc<dyn ExecutionPlan>> {
    match node.downcast_ref::<Sealed>() {
        // One never stands on another.
        Some(sealed) => Transformed::yes(Arc::clone(&sealed.input)),
        None => Transformed::no(node),
    }
}

/// `sorted`: do only nodes that keep each row stand between this one and a sort?
fn seal(plan: Arc<dyn ExecutionPlan>, sorted: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let is_sort = plan.is::<SortExec>() || plan.is::<SortPreservingMergeExec>();
    let keeps_rows = matches!(plan.cardinality_effect(), CardinalityEffect::Equal);
    let skips = plan.downcast_ref::<GlobalLimitExec>().is_some_and(|limit| limit.skip() > 0);
    let children = plan.children().into_iter().cloned();
    let children = children.map(|child| seal(child, is_sort || (sorted && keeps_rows)));
    let plan = replace_children_if_necessary(Arc::clone(&plan), children.collect::<Result<Vec<_>>>()?)?;
    let is_inner = !plan.children().is_empty();
    Ok(match is_inner && (skips || (sorted && !is_sort && !keeps_rows)) {
        true => Arc::new(Sealed { input: plan }),
        false => plan,
    })
}

/// Its input, and nothing that is asked of it goes further down.
#[derive(Debug)]
struct Sealed {
    input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for Sealed {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed")
    }
}

impl ExecutionPlan for Sealed {
    fn name(&self) -> &str {
        "Sealed"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    /// It does, but who says so is asked to pass orders on.
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

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Sealed { input })),
            _ => Err(DataFusionError::Internal("Sealed has one child".to_owned())),
        }
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
}
