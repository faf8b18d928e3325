//! Does a `LIMIT` cut what it stands above, and nothing deeper? While sorts are placed, a limit's rows travel down with
//! the order that is asked for, through nodes that already have that order: past the `OFFSET` of a limit, past filters,
//! and past the last step of an aggregate, where rows are not yet groups. So `ORDER BY` above `LIMIT … OFFSET`, and
//! `DISTINCT … ORDER BY … LIMIT`, answer too few rows.
//!
//! And does a filter keep its column? While filters are pushed down, their columns are found by name. Where two columns
//! of a node are called the same, as above a join of tables that both have a column `n`, a filter of the second would
//! be taken for one of the first, and blocks that hold the answer would be left out.
//!
//! And does a filter stay above a limit? Many nodes that end after so many rows (`fetch`) pass filters on, a scan of
//! files above all: of the first ten rows those that a join finds became the first ten of those that it finds.
//!
//! And does a projection know which columns it is of? A filter that gives only some of its columns lets a projection
//! pass as if it gave all: where two columns are called the same, one was answered for the other. And what has two
//! names in a projection may be sorted by one and asked for by the other: a union of files and recent rows, below which
//! the projection went, does not know that they are one.
//!
//! And does a filter of what a semi join gives stay with the side that gives it? What it says of a key holds on the
//! other side, too, where DataFusion looks for the column of the same name, which may be another than the key.
//!
//! And does a limit stay above windows? The groups of an aggregate below a window are all its rows, and of windows in
//! each other each wants rows that follow.
//!
//! A [`SealExec`] above such a node stops them: it has the order of its input and asks for none, and lets filters pass
//! whose columns have names of their own, or none where rows are limited. No projection passes it, and no limit. It is
//! there while sorts are placed or filters, projections or limits are pushed, and is taken away before the plan runs.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Statistics};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{ChildFilterDescription, FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, replace_children_if_necessary,
};

/// DataFusion's rules, with the seals around those that place sorts and push filters, projections or limits.
pub(crate) fn sealed_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let rules = PhysicalOptimizer::new().rules;
    let n_rules = rules.len();
    let sealed = rules.into_iter().flat_map(|rule| {
        let seals = match rule.name() {
            PLACES_SORTS => Seals::AroundSorts,
            PUSHES_PROJECTIONS => Seals::AroundProjections,
            LIMITS_GROUPS => Seals::AroundGroups,
            LIMITS_WINDOWS => Seals::AroundWindows,
            name if name.starts_with(PUSHES_FILTERS) => Seals::AroundFilters,
            _ => return vec![rule],
        };
        vec![Arc::new(seals) as _, rule, Arc::new(Seals::Remove) as _]
    });
    let sealed: Vec<_> = sealed.collect();
    assert_eq!(sealed.len(), n_rules + 14, "one rule places sorts, two push filters, two projections, two limits");
    sealed
}

const PLACES_SORTS: &str = "EnsureRequirements";

/// Two rules, before and after the plan is optimized.
const PUSHES_FILTERS: &str = "FilterPushdown";

/// Two rules, before and after limits are pushed.
const PUSHES_PROJECTIONS: &str = "ProjectionPushdown";

/// Groups that come last are left out of an aggregate.
const LIMITS_GROUPS: &str = "LimitAggregation";

const LIMITS_WINDOWS: &str = "LimitPushPastWindows";

#[derive(Debug)]
enum Seals {
    AroundSorts,
    AroundFilters,
    AroundProjections,
    AroundGroups,
    AroundWindows,
    Remove,
}

impl PhysicalOptimizerRule for Seals {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            Seals::AroundSorts => seal(plan, false),
            Seals::AroundFilters => Ok(plan.transform_up(|node| Ok(filtered(node)))?.data),
            Seals::AroundProjections => Ok(plan.transform_up(projected)?.data),
            Seals::AroundGroups => seal_windows(plan, true),
            Seals::AroundWindows => seal_windows(plan, false),
            Seals::Remove => Ok(plan.transform_down(|node| Ok(opened(node)))?.data),
        }
    }

    fn name(&self) -> &str {
        match self {
            Seals::AroundSorts => "tarn_seal_sorts",
            Seals::AroundFilters => "tarn_seal_filters",
            Seals::AroundProjections => "tarn_seal_projections",
            Seals::AroundGroups => "tarn_seal_groups",
            Seals::AroundWindows => "tarn_seal_windows",
            Seals::Remove => "tarn_unseal",
        }
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Sealed, if it ends after some rows, or if two of its columns, or of those that a semi join joins, have the same
/// name.
fn filtered(node: Arc<dyn ExecutionPlan>) -> Transformed<Arc<dyn ExecutionPlan>> {
    let n_columns = node.schema().fields().len();
    let is_ambiguous = own_names(&node).len() < n_columns && !node.children().is_empty();
    match is_ambiguous || node.fetch().is_some() {
        true => Transformed::yes(Arc::new(SealExec { input: node })),
        false => Transformed::no(node),
    }
}

/// Sealed, if it is a filter that gives some of its columns; its input sealed, if it is a projection that gives
/// something twice.
fn projected(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if node.downcast_ref::<FilterExec>().is_some_and(|filter| filter.projection().is_some()) {
        return Ok(Transformed::yes(Arc::new(SealExec { input: node })));
    }
    match node.downcast_ref::<ProjectionExec>() {
        Some(projection) if knows_what_is_equal(projection) => {
            let input = Arc::new(SealExec { input: Arc::clone(projection.input()) });
            Ok(Transformed::yes(replace_children_if_necessary(node, vec![input])?))
        }
        _ => Ok(Transformed::no(node)),
    }
}

/// Whether something has two names in it, or is constant.
fn knows_what_is_equal(projection: &ProjectionExec) -> bool {
    let mut seen = HashSet::new();
    projection.expr().iter().any(|given| given.expr.is::<Literal>() || !seen.insert(&given.expr))
}

/// Places of the columns whose name no other column has, nor a column that a semi join asked for.
fn own_names(node: &Arc<dyn ExecutionPlan>) -> HashSet<usize> {
    let schema = node.schema();
    let mut found = HashMap::<&str, Option<usize>>::new();
    for (idx, field) in schema.fields().iter().enumerate() {
        found.entry(field.name()).and_modify(|place| *place = None).or_insert(Some(idx));
    }
    for field in asked_for(node).iter().flat_map(|schema| schema.fields()) {
        found.remove(field.name().as_str());
    }
    found.into_values().flatten().collect()
}

/// What a semi join asks for and does not give.
fn asked_for(node: &Arc<dyn ExecutionPlan>) -> Option<SchemaRef> {
    let join = node.downcast_ref::<HashJoinExec>()?;
    match join.join_type() {
        JoinType::LeftSemi => Some(join.right().schema()),
        JoinType::RightSemi => Some(join.left().schema()),
        _ => None,
    }
}

/// Seals windows: all, or those below other windows.
fn seal_windows(plan: Arc<dyn ExecutionPlan>, all: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let is_window = plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>();
    let children = plan.children().into_iter().cloned().map(|child| seal_windows(child, all || is_window));
    let children = children.collect::<Result<Vec<_>>>()?;
    let plan = replace_children_if_necessary(plan, children)?;
    Ok(if is_window && all { Arc::new(SealExec { input: plan }) } else { plan })
}

fn opened(mut node: Arc<dyn ExecutionPlan>) -> Transformed<Arc<dyn ExecutionPlan>> {
    let mut is_changed = false;
    // What stood between two of them may be gone.
    while let Some(sealed) = node.downcast_ref::<SealExec>() {
        let input = Arc::clone(&sealed.input);
        node = input;
        is_changed = true;
    }
    Transformed::new(node, is_changed, TreeNodeRecursion::Continue)
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
        true => Arc::new(SealExec { input: plan }),
        false => plan,
    })
}

/// Its input, and nothing that is asked of it goes further down.
#[derive(Debug)]
struct SealExec {
    input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for SealExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed")
    }
}

impl ExecutionPlan for SealExec {
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
            (Some(input), true) => Ok(Arc::new(SealExec { input })),
            _ => Err(DataFusionError::Internal("Sealed has one child".to_owned())),
        }
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        if self.input.fetch().is_some() {
            return Ok(FilterDescription::all_unsupported(&parent_filters, &self.children()));
        }
        let allowed = own_names(&self.input);
        let passed = ChildFilterDescription::from_child_with_allowed_indices(&parent_filters, allowed, &self.input)?;
        Ok(FilterDescription::new().with_child(passed))
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
