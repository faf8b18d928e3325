//! How do rows of ranges of keys become a stream? The row engine gives them in the order of their keys, or against it;
//! of those that were evicted it has the addresses, and they are put where they belong. Nothing is asked before the
//! plan runs.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{SortOptions, concat_batches, interleave_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};
use tarn_types::{DataType, Direction, KeyPart, TableSchema};
use tokio::sync::mpsc;

use crate::Error;
use crate::addresses::Addresses;
use crate::hot::{HotRows, HotView, KeyRange, RangeScan};
use crate::hot_exec::{arranged, properties, slices};
use crate::opening::Opener;
use crate::spec::{RangeRead, ScanSpec};
use crate::values::to_sql;

/// Batches that a blocking engine scan may be ahead of its reader.
const SCAN_AHEAD_BATCHES: usize = 2;

/// Rows of some ranges of keys.
#[derive(Debug, Clone)]
pub(crate) struct RowsExec {
    spec: Arc<ScanSpec>,
    /// Some for each partition, in key order.
    ranges: Vec<Vec<KeyRange>>,
    direction: Direction,
    batch_rows: usize,
    /// Rows of all ranges, by estimate.
    n_rows: usize,
    /// Enough rows of each partition.
    limit: Option<usize>,
    /// The full SQL schema.
    full: SchemaRef,
    /// Of it what the scan gives.
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl RowsExec {
    pub(crate) fn new(spec: Arc<ScanSpec>, read: &RangeRead, full: SchemaRef, schema: SchemaRef) -> Self {
        let n_partitions = read.ranges.len().clamp(1, spec.partitions.max(1));
        let mut ranges: Vec<Vec<KeyRange>> = vec![vec![]; n_partitions];
        for (at, range) in read.ranges.iter().enumerate() {
            ranges[at % n_partitions].push(range.clone());
        }
        let order = (read.ranges.len() == 1).then(|| key_order(&spec, read.n_fixed, &schema)).flatten();
        RowsExec {
            properties: properties(&schema, n_partitions, order),
            direction: Direction::Ascending,
            limit: spec.limit,
            batch_rows: read.batch_rows,
            n_rows: usize::try_from(read.rows).unwrap_or(usize::MAX),
            ranges,
            spec,
            full,
            schema,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same rows the other way round. `None`: they are in no order, or not all of them are given.
    pub(crate) fn reversed(&self) -> Option<RowsExec> {
        let order = self.properties.output_ordering().filter(|_| self.limit.is_none())?;
        let other = order.iter().map(|by| PhysicalSortExpr::new(Arc::clone(&by.expr), !by.options));
        let properties = properties(&self.schema, self.ranges.len(), LexOrdering::new(other));
        Some(RowsExec { direction: self.direction.reversed(), properties, ..self.fresh() })
    }

    /// A copy that did not run.
    fn fresh(&self) -> RowsExec {
        RowsExec { metrics: ExecutionPlanMetricsSet::new(), ..self.clone() }
    }
}

/// Whether the order of keys is an order of values as the planner knows them: zeros and NaN of floats have one key
/// each, and more than one place in the planner's order.
pub(crate) fn is_in_planner_order(table: &TableSchema, part: &KeyPart) -> bool {
    !matches!(table.columns[part.column_idx].data_type, DataType::Float32 | DataType::Float64)
}

/// In which order the rows of one range come: by the key behind its first `n_fixed` columns, as far as it is given.
fn key_order(spec: &ScanSpec, n_fixed: usize, schema: &SchemaRef) -> Option<LexOrdering> {
    let mut order = vec![];
    for part in &spec.table.key[n_fixed..] {
        let column = &spec.table.columns[part.column_idx];
        let found = schema.column_with_name(&column.name);
        let Some((at, _)) = found.filter(|_| is_in_planner_order(&spec.table, part)) else { break };
        let options = SortOptions { descending: part.descending, nulls_first: part.descending };
        order.push(PhysicalSortExpr::new(Arc::new(Column::new(&column.name, at)), options));
    }
    LexOrdering::new(order)
}

impl DisplayAs for RowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowsExec: scans={}", self.ranges.iter().map(Vec::len).sum::<usize>())?;
        if self.direction == Direction::Descending {
            write!(f, ", reverse=true")?;
        }
        if let Some(order) = self.properties.output_ordering() {
            write!(f, ", output_ordering=[{order}]")?;
        }
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for RowsExec {
    fn name(&self) -> &str {
        "RowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let opener = Opener::of(&context)?;
        let view = opener.view(&self.spec)?;
        let batch_rows = context.session_config().batch_size();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (projection, with_seqno) = self.spec.hot_projection();
        let scan = |range: &KeyRange| RangeScan {
            range: range.clone(),
            direction: self.direction,
            projection: projection.clone(),
            with_seqno,
            batch_rows: self.batch_rows,
        };
        let mut scans: Vec<RangeScan> = self.ranges[partition].iter().map(scan).collect();
        if self.direction == Direction::Descending {
            scans.reverse();
        }
        let left = self.limit.unwrap_or(usize::MAX);
        let (sender, receiver) = mpsc::channel(SCAN_AHEAD_BATCHES);
        let reading = RowsReader {
            receiver,
            task: SpawnedTask::spawn_blocking(move || send(view.as_ref(), &scans, left, &sender)),
            left,
            evicted: MetricBuilder::new(&self.metrics).counter("evicted_rows", partition),
            opener,
            spec: Arc::clone(&self.spec),
            full: Arc::clone(&self.full),
            schema: Arc::clone(&self.schema),
            context,
        };
        let batches = stream::try_unfold(reading, RowsReader::next);
        let slices = batches.map_ok(move |batch| {
            let slices: Vec<_> = slices(&batch, batch_rows).collect();
            stream::iter(slices.into_iter().map(Ok::<_, DataFusionError>))
        });
        let counted = slices.try_flatten().inspect(move |batch| {
            if let Ok(batch) = batch {
                metrics.record_output(batch.num_rows());
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), counted)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    /// Partitions have as many ranges, or nearly. Of the columns nothing is known.
    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let n_partitions = self.ranges.len();
        let of_each = self.n_rows.div_ceil(n_partitions).min(self.limit.unwrap_or(usize::MAX));
        let n_rows = if args.partition().is_some() { of_each } else { of_each.saturating_mul(n_partitions) };
        Ok(Arc::new(Statistics { num_rows: Precision::Inexact(n_rows), ..Statistics::new_unknown(&self.schema) }))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let batch_rows = self.batch_rows.min(limit.unwrap_or(usize::MAX)).max(1);
        Some(Arc::new(RowsExec { batch_rows, limit, ..self.fresh() }))
    }
}

/// Sends the rows of scans until there are `enough`, or nobody reads any more.
fn send(view: &dyn HotView, scans: &[RangeScan], enough: usize, sender: &mpsc::Sender<crate::Result<HotRows>>) {
    let mut sent = 0;
    for batch in scans.iter().flat_map(|scan| view.scan(scan)) {
        let n_rows = batch.as_ref().map_or(0, |batch| batch.rows.num_rows() + batch.evicted.len());
        sent += n_rows;
        if sender.blocking_send(batch).is_err() || sent >= enough {
            return;
        }
    }
}

/// One partition of an execution.
struct RowsReader {
    receiver: mpsc::Receiver<crate::Result<HotRows>>,
    task: SpawnedTask<()>,
    /// Rows that are still wanted.
    left: usize,
    evicted: Count,
    opener: Arc<Opener>,
    spec: Arc<ScanSpec>,
    full: SchemaRef,
    schema: SchemaRef,
    context: Arc<TaskContext>,
}

impl RowsReader {
    /// The next rows, of SQL types, and what is left.
    async fn next(mut self) -> Result<Option<(RecordBatch, RowsReader)>> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(rows) = self.receiver.recv().await else {
            self.task.join_unwind().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
            return Ok(None);
        };
        let batch = self.whole(rows?).await?;
        let batch = batch.slice(0, batch.num_rows().min(self.left));
        self.left -= batch.num_rows();
        Ok(Some((batch, self)))
    }

    /// The rows of a batch, each in its place.
    async fn whole(&self, HotRows { rows, evicted }: HotRows) -> Result<RecordBatch> {
        let hot = to_sql(&arranged(&self.spec, rows)?, &self.schema)?;
        if evicted.is_empty() {
            return Ok(hot);
        }
        let mut addresses = Addresses::default();
        evicted.iter().for_each(|(_, address)| addresses.add(*address));
        self.evicted.add(evicted.len());
        let files = addresses.reader(&self.opener, &self.spec, &self.full).await?;
        let found: Vec<RecordBatch> = files.execute(0, Arc::clone(&self.context))?.try_collect().await?;
        let found = concat_batches(&self.schema, &found)?;
        if found.num_rows() != evicted.len() {
            let (table, n, wanted) = (&self.spec.table.name, found.num_rows(), evicted.len());
            let what = format!("{n} of {wanted} rows of {table} are at their addresses");
            return Err(Error::Corrupt { what }.into());
        }
        let mut evicted = evicted.into_iter().peekable();
        let mut of_engine = 0..hot.num_rows();
        let places =
            (0..hot.num_rows() + found.num_rows()).map(|at| match evicted.next_if(|(place, _)| *place == at) {
                Some((_, address)) => (1, addresses.place(address)),
                None => (0, of_engine.next().unwrap_or_default()),
            });
        let places: Vec<(usize, usize)> = places.collect();
        Ok(interleave_record_batch(&[&hot, &found], &places)?)
    }
}
