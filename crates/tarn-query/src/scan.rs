//! How was a table read, and why so? The node that says it in `EXPLAIN`, and is otherwise not there.
//!
//! [`TarnScan`] sits above what reads: Parquet scan, recent rows, their union, or an engine scan. Filters, thresholds, orders, limits,
//! projections and statistics pass through it in both directions, so a plan is as good as without it.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SortOrderPushdownResult};

use crate::files::Counts;

/// How a table was read.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub table: String,
    /// `point`, `range`, `rows`, `lake`.
    pub path: &'static str,
    pub why: String,
    pub version: u64,
    pub counts: Counts,
    pub recent_rows: u64,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Access { table, path, why, version, counts, recent_rows } = self;
        write!(f, "table={table}, access_path={path}, why={why:?}, version={version}")?;
        if *path == "lake" {
            write!(
                f,
                ", files={}/{}, blocks={}/{}",
                counts.files_kept, counts.files_total, counts.blocks_kept, counts.blocks_total
            )?;
            write!(f, ", delivered_rows={}, recent_rows={recent_rows}", counts.delivered_rows)?;
            write!(f, ", dead_rows={}, hidden_rows={}", counts.dead_rows, counts.hidden_rows)?;
        }
        Ok(())
    }
}

/// A table's scan with the account of it.
#[derive(Debug, Clone)]
pub(crate) struct TarnScan {
    input: Arc<dyn ExecutionPlan>,
    access: Arc<Access>,
    metrics: ExecutionPlanMetricsSet,
}

impl TarnScan {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, access: Access) -> Self {
        TarnScan { input, access: Arc::new(access), metrics: ExecutionPlanMetricsSet::new() }
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(TarnScan { input, access: Arc::clone(&self.access), metrics: ExecutionPlanMetricsSet::new() })
    }

    fn record(&self) {
        let Counts { files_total, files_kept, blocks_total, blocks_kept, dead_rows, hidden_rows, delivered_rows } =
            self.access.counts;
        let figures = [
            ("files_total", files_total),
            ("files_kept", files_kept),
            ("blocks_total", blocks_total),
            ("blocks_kept", blocks_kept),
            ("dead_rows", dead_rows),
            ("hidden_rows", hidden_rows),
            ("delivered_rows", delivered_rows),
            ("recent_rows", self.access.recent_rows),
        ];
        for (name, value) in figures {
            MetricBuilder::new(&self.metrics).global_counter(name).add(value as usize);
        }
    }
}

impl DisplayAs for TarnScan {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(f, "TarnScan: {}", self.access),
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={}", self.access.table)?;
                writeln!(f, "access_path={}", self.access.path)?;
                writeln!(f, "why={}", self.access.why)
            }
        }
    }
}

impl ExecutionPlan for TarnScan {
    fn name(&self) -> &str {
        "TarnScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    /// It does, but saying so invites a sort below this node, where the union keeps it from the files.
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
            (Some(input), true) => Ok(self.over(input)),
            _ => Err(DataFusionError::Internal("TarnScan has one child".to_owned())),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition == 0 {
            self.record();
        }
        self.input.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&inputs[0]))
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        Ok(self.input.try_swapping_with_projection(projection)?.map(|input| self.over(input)))
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(filters, &self.children())
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(result))
    }

    /// A union stops an order, though its files could still be read in it: then a top-k has its threshold early and skips the rest.
    fn try_pushdown_sort(&self, order: &[PhysicalSortExpr]) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        match self.input.downcast_ref::<UnionExec>() {
            None => self.input.try_pushdown_sort(order)?.try_map(|input| Ok(self.over(input))),
            Some(union) => {
                let mut ordered = false;
                let mut inputs = vec![];
                for input in union.inputs() {
                    inputs.push(match input.try_pushdown_sort(order)? {
                        SortOrderPushdownResult::Exact { inner } | SortOrderPushdownResult::Inexact { inner } => {
                            ordered = true;
                            inner
                        }
                        SortOrderPushdownResult::Unsupported => Arc::clone(input),
                    });
                }
                match ordered {
                    true => Ok(SortOrderPushdownResult::Inexact { inner: self.over(UnionExec::try_new(inputs)?) }),
                    false => Ok(SortOrderPushdownResult::Unsupported),
                }
            }
        }
    }
}
