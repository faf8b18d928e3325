//! How was a table read, and why so? The node that says it in `EXPLAIN`, and is otherwise not there.
//!
//! [`TarnScan`] sits above what reads: Parquet scan, recent rows, their union, or an engine scan. Filters, thresholds,
//! orders, limits, projections and statistics pass through it in both directions, so a plan is as good as without it.
//! It has the scan's spec; what it says of pages and fetched bytes is known once it ran.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, Metric, MetricBuilder, MetricValue, MetricsSet,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties, SortOrderPushdownResult,
};

use futures::StreamExt;
use tarn_cache::PageStats;
use tarn_types::full_name;

use crate::compact::compacted;
use crate::files::Counts;
use crate::lake_source::LakeSource;
use crate::opening::{OpenScan, Opener};
use crate::pruning::PruningCounts;
use crate::reader::FOOTERS;
use crate::spec::{LakeRead, PathChoice, ScanSpec};

/// What is said of how a table is read.
#[derive(Debug)]
pub(crate) struct Access {
    /// What is read, as plain data.
    pub spec: Arc<ScanSpec>,
    /// Why this process cannot read the table's files by pages.
    pub pages_not_used: Option<&'static str>,
    /// Why no fragment is used, said when the plan is ready.
    pub no_fragments: OnceLock<String>,
    /// What the scan read with, once it ran.
    ran: OnceLock<Arc<OpenScan>>,
}

impl Access {
    pub(crate) fn new(spec: Arc<ScanSpec>, pages_not_used: Option<&'static str>) -> Self {
        Access { spec, pages_not_used, no_fragments: OnceLock::new(), ran: OnceLock::new() }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScanSpec { table, version, chosen, .. } = self.spec.as_ref();
        let PathChoice { path, why, cost_us, not_taken } = chosen;
        let name = full_name::dotted(&table.name);
        write!(f, "table={name}, access_path={path}, why={why:?}, version={version}")?;
        if let Some(LakeRead { counts, recent_rows, late_materialization, .. }) = self.spec.lake() {
            let PruningCounts { files_total, blocks_total, time, statistics, bloom, metastore_bytes } = counts.pruning;
            write!(f, ", files={}/{files_total}, blocks={}/{blocks_total}", counts.files_kept, counts.blocks_kept)?;
            write!(f, ", pruned_time={time}, pruned_statistics={statistics}, pruned_bloom={bloom}")?;
            write!(f, ", metastore_bytes={metastore_bytes}")?;
            write!(f, ", delivered_rows={}, recent_rows={recent_rows}", counts.delivered_rows)?;
            write!(f, ", dead_rows={}, hidden_rows={}", counts.dead_rows, counts.hidden_rows)?;
            write!(f, ", read={}", if *late_materialization { "filter columns first" } else { "all columns" })?;
            match (self.pages_not_used, self.ran.get().and_then(|ran| ran.readers.usage().not_used())) {
                (Some(why), _) => write!(f, ", pages=not_used: {why}")?,
                (None, Some(why)) => write!(f, ", pages=not_used: {why}")?,
                (None, None) => write!(f, ", pages=on")?,
            }
            if let Some(reason) = self.no_fragments.get() {
                write!(f, ", fragments_not_used={reason:?}")?;
            }
        }
        match not_taken.as_str() {
            "" => Ok(()),
            not_taken => write!(f, ", cost={cost_us}us, not_taken={not_taken:?}"),
        }
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
    /// `input` reads what the spec of `access` says.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, access: Access) -> Self {
        let ScanSpec { table, version, chosen, .. } = access.spec.as_ref();
        let (name, id, version) = (&table.name, table.id.0, version.0);
        tracing::debug!(table = name, id, path = chosen.path, why = chosen.why, version, "scan");
        TarnScan { input, access: Arc::new(access), metrics: ExecutionPlanMetricsSet::new() }
    }

    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(TarnScan { input, access: Arc::clone(&self.access), metrics: ExecutionPlanMetricsSet::new() })
    }

    fn record(&self) {
        let (counts, recent_rows) =
            self.access.spec.lake().map(|lake| (lake.counts, lake.recent_rows)).unwrap_or_default();
        let Counts { pruning, files_kept, blocks_kept, dead_rows, hidden_rows, delivered_rows } = counts;
        let PruningCounts { files_total, blocks_total, time, statistics, bloom, metastore_bytes: _ } = pruning;
        let figures = [
            ("files_total", files_total),
            ("files_kept", files_kept),
            ("blocks_total", blocks_total),
            ("blocks_kept", blocks_kept),
            ("pruned_time", time),
            ("pruned_statistics", statistics),
            ("pruned_bloom", bloom),
            ("dead_rows", dead_rows),
            ("hidden_rows", hidden_rows),
            ("delivered_rows", delivered_rows),
            ("recent_rows", recent_rows),
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
                let ScanSpec { table, chosen, .. } = self.access.spec.as_ref();
                writeln!(f, "table={}", full_name::dotted(&table.name))?;
                writeln!(f, "access_path={}", chosen.path)?;
                writeln!(f, "why={}", chosen.why)
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
        // Of what is hot no pages are counted, nor of evicted rows that are read by their addresses.
        if self.access.spec.lake().is_none() {
            return self.input.execute(partition, context);
        }
        let open = Opener::of(&context)?.open(&self.access.spec)?;
        self.access.ran.get_or_init(|| open);
        let rows = self.input.execute(partition, context)?;
        let compact = rows.map(|batch| Ok(compacted(batch?)?));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), compact)))
    }

    /// Of a scan that ran: also what only then was known.
    fn metrics(&self) -> Option<MetricsSet> {
        let mut metrics = self.metrics.clone_inner();
        if metrics.sum_by_name("blocks_total").is_none() {
            return Some(metrics);
        }
        let mut tell = |name: &'static str, value: usize| {
            let count = Count::new();
            count.add(value);
            metrics.push(Arc::new(Metric::new(MetricValue::Count { name: name.into(), count }, None)));
        };
        let (Some(lake), Some(ran)) = (self.access.spec.lake(), self.access.ran.get()) else { return Some(metrics) };
        let loader = ran.readers.loader();
        let loaded = loader.map_or(0, |loader| loader.bytes_read());
        tell("metastore_bytes", (lake.counts.pruning.metastore_bytes + loaded) as usize);
        tell("cached_files", loader.map_or(0, |loader| loader.cached_files()) as usize);
        if ran.readers.pages_not_used().is_none() {
            let used = ran.readers.usage().stats();
            let PageStats { ram_hits, disk_hits, misses, waited, requests, heads, remote_bytes, .. } = used;
            tell("pages_from_memory", ram_hits as usize);
            tell("pages_from_disk", disk_hits as usize);
            tell("pages_fetched", misses as usize);
            tell("pages_waited_for", waited as usize);
            tell("store_requests", (requests + heads) as usize);
            tell("store_bytes", remote_bytes as usize);
        }
        let mut files = FilesRead::default();
        files.add(&self.input);
        tell(FOOTERS, files.footers);
        if lake.asked_bloom {
            tell("false_positive_files", files.without_a_match());
        }
        Some(metrics)
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

    /// Rows of files are in key order already: an order by the key needs no sort. Any other order sets in which order
    /// files are read, so that a top-k has its threshold early and skips the rest; a union would stop that, hence its
    /// inputs are asked one by one.
    fn try_pushdown_sort(&self, order: &[PhysicalSortExpr]) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        let union = self.input.downcast_ref::<UnionExec>();
        let inputs = union.map_or(std::slice::from_ref(&self.input), |union| union.inputs().as_slice());
        if let Some(sorted) = self.in_key_order(inputs, order) {
            let sorted = UnionExec::try_new(sorted)?;
            // A filter may make a column equal to the key; a union forgets that its inputs have that in common.
            if sorted.equivalence_properties().ordering_satisfy(order.iter().cloned())? {
                return Ok(SortOrderPushdownResult::Exact { inner: self.over(sorted) });
            }
        }
        let mut ordered = false;
        let mut pushed = vec![];
        for input in inputs {
            pushed.push(match input.try_pushdown_sort(order)? {
                SortOrderPushdownResult::Exact { inner } | SortOrderPushdownResult::Inexact { inner } => {
                    ordered = true;
                    inner
                }
                SortOrderPushdownResult::Unsupported => Arc::clone(input),
            });
        }
        match ordered {
            true => Ok(SortOrderPushdownResult::Inexact { inner: self.over(UnionExec::try_new(pushed)?) }),
            false => Ok(SortOrderPushdownResult::Unsupported),
        }
    }

    fn fetch(&self) -> Option<usize> {
        None
    }

    /// Each partition gives at most `limit` rows; nothing if there are several, whose limit is that of their merge.
    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let limit = limit?;
        let limited = |input: &Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
            input.with_fetch(Some(limit)).unwrap_or_else(|| Arc::new(LocalLimitExec::new(Arc::clone(input), limit)))
        };
        let input = match self.input.downcast_ref::<UnionExec>() {
            None => limited(&self.input),
            Some(union) => UnionExec::try_new(union.inputs().iter().map(limited).collect()).ok()?,
        };
        Some(self.over(input))
    }
}

/// What a node reads, if it is a scan.
pub(crate) fn spec_of(plan: &dyn ExecutionPlan) -> Option<&Arc<ScanSpec>> {
    plan.downcast_ref::<TarnScan>().map(|scan| &scan.access.spec)
}

/// The specs of a plan's scans.
pub(crate) fn specs(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<ScanSpec>> {
    let of_scan = plan.downcast_ref::<TarnScan>().map(|scan| Arc::clone(&scan.access.spec));
    of_scan.into_iter().chain(plan.children().into_iter().flat_map(specs)).collect()
}

/// What the files of a scan gave, by its metrics.
#[derive(Default)]
struct FilesRead {
    footers: usize,
    /// By file: rows that the filters left, and rows that they did not.
    rows: HashMap<String, (usize, usize)>,
}

impl FilesRead {
    fn add(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        plan.children().into_iter().for_each(|child| self.add(child));
        if !plan.is::<DataSourceExec>() {
            return;
        }
        for metric in plan.metrics().iter().flat_map(|metrics| metrics.iter()) {
            let (name, value) = (metric.value().name(), metric.value().as_usize());
            if name == FOOTERS {
                self.footers += value;
            }
            let Some(file) = metric.labels().iter().find(|label| label.name() == "filename") else { continue };
            let rows = match name {
                "pushdown_rows_matched" => (value, 0),
                "pushdown_rows_pruned" => (0, value),
                _ => continue,
            };
            let of_file = self.rows.entry(file.value().to_owned()).or_default();
            *of_file = (of_file.0 + rows.0, of_file.1 + rows.1);
        }
    }

    /// Files that were read for nothing. A file without a dropped row was not asked row by row.
    fn without_a_match(&self) -> usize {
        self.rows.values().filter(|(matched, dropped)| *matched == 0 && *dropped > 0).count()
    }
}

/// Above this many pieces, whose readers are open at the same time, merging them costs more memory than a sort.
const MAX_MERGED_PIECES: usize = 16;

impl TarnScan {
    /// The inputs with their rows in `order`, when it is the order of the key: a partition for every piece of a file,
    /// the rest sorted.
    fn in_key_order(
        &self,
        inputs: &[Arc<dyn ExecutionPlan>],
        order: &[PhysicalSortExpr],
    ) -> Option<Vec<Arc<dyn ExecutionPlan>>> {
        let mut n_partitions = 0;
        let mut sorted: Vec<Arc<dyn ExecutionPlan>> = vec![];
        for input in inputs {
            sorted.push(match LakeSource::of(input.as_ref()) {
                Some(files) => Arc::new(self.files_in_key_order(files.config(), order)?),
                None => Arc::new(
                    SortExec::new(LexOrdering::new(order.iter().cloned())?, Arc::clone(input))
                        .with_preserve_partitioning(true),
                ),
            });
            n_partitions += sorted.last()?.output_partitioning().partition_count();
        }
        // A single partition was sorted as a whole: it must stay one. Several are merged above.
        let merged = self.input.output_partitioning().partition_count() > 1;
        (merged || n_partitions == 1).then_some(sorted)
    }

    fn files_in_key_order(&self, files: &FileScanConfig, order: &[PhysicalSortExpr]) -> Option<DataSourceExec> {
        let sorted_by = self.access.spec.sorted_by();
        let pieces: Vec<PartitionedFile> = files.file_groups.iter().flat_map(|group| group.iter().cloned()).collect();
        if order.len() > sorted_by.len() || pieces.len() > MAX_MERGED_PIECES {
            return None;
        }
        let projection = files.file_source().projection()?;
        let mut stored = vec![];
        for (wanted, (name, descending)) in order.iter().zip(sorted_by) {
            let output = wanted.expr.downcast_ref::<Column>()?;
            let column = projection.as_ref().get(output.index())?.expr.downcast_ref::<Column>()?;
            if column.name() != name || wanted.options.descending != descending {
                return None;
            }
            stored.push(PhysicalSortExpr::new(Arc::new(column.clone()), wanted.options));
        }
        let config = FileScanConfigBuilder::from(files.clone())
            .with_file_groups(pieces.into_iter().map(|piece| FileGroup::new(vec![piece])).collect())
            .with_output_ordering(vec![LexOrdering::new(stored)?])
            .with_preserve_order(true)
            .build();
        let scan = LakeSource::exec(config, &self.access.spec);
        let satisfied = scan.properties().equivalence_properties().ordering_satisfy(order.iter().cloned());
        satisfied.is_ok_and(|satisfied| satisfied).then_some(scan)
    }
}
