//! How do hot rows become a stream? Two leaves: [`RecentExec`] gives recent rows from memory, [`RowsExec`] scans the
//! row engine. Both find the rows when they run, by what their spec says.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::SortOptions;
use arrow::compute::kernels::aggregate;
use arrow::datatypes::{DataType as ArrowType, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::{RecordBatchReceiverStreamBuilder, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use datafusion::scalar::ScalarValue;
use futures::{StreamExt, TryStreamExt, stream};
use tarn_types::DataType;

use crate::column_bounds::usual_bytes;
use crate::hot::KeyRange;
use crate::opening::Opener;
use crate::spec::{RangeRead, ScanSpec};
use crate::values::to_sql;

/// Batches that a blocking engine scan may be ahead of its reader.
const SCAN_AHEAD_BATCHES: usize = 2;

/// Recent rows are spread over partitions when there are more of them than this.
const RECENT_ROWS_PER_PARTITION: usize = 250_000;

fn properties(schema: &SchemaRef, partitions: usize, order: Option<LexOrdering>) -> Arc<PlanProperties> {
    let properties = PlanProperties::new(
        EquivalenceProperties::new_with_orderings(Arc::clone(schema), order),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    );
    Arc::new(properties.with_scheduling_type(SchedulingType::NonCooperative))
}

/// Recent rows of a scan, given out as SQL types in slices of the session's batch size. They are read when it runs.
#[derive(Debug)]
pub(crate) struct RecentExec {
    spec: Arc<ScanSpec>,
    /// Of SQL types: what the scan gives.
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    statistics: Arc<Statistics>,
    metrics: ExecutionPlanMetricsSet,
}

impl RecentExec {
    /// `columns` are the statistics of what the scan gives, if somebody asked for them.
    pub(crate) fn new(spec: Arc<ScanSpec>, schema: SchemaRef, columns: Option<Vec<ColumnStatistics>>) -> Self {
        let n_rows = spec.lake().map_or(0, |lake| lake.recent_rows as usize);
        let n_partitions = n_rows.div_ceil(RECENT_ROWS_PER_PARTITION).clamp(1, spec.partitions.max(1));
        let mut column_statistics = columns.unwrap_or_else(|| Statistics::unknown_column(&schema));
        let mut total_bytes = 0;
        for (column, field) in column_statistics.iter_mut().zip(schema.fields()) {
            let bytes = usual_bytes(n_rows as u64, field.data_type()) as usize;
            column.byte_size = Precision::Inexact(bytes);
            total_bytes += bytes;
        }
        let total_byte_size = Precision::Inexact(total_bytes);
        let statistics = Statistics { num_rows: Precision::Exact(n_rows), total_byte_size, column_statistics };
        let properties = properties(&schema, n_partitions, None);
        RecentExec {
            spec,
            schema,
            properties,
            statistics: Arc::new(statistics),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn n_partitions(&self) -> usize {
        self.properties.partitioning.partition_count()
    }
}

/// Statistics of the columns of recent rows.
pub(crate) fn recent_statistics(batches: &[RecordBatch], n_columns: usize) -> Vec<ColumnStatistics> {
    (0..n_columns).map(|column| column_statistics(batches.iter().map(|batch| batch.column(column)))).collect()
}

/// NULLs of every type; bounds of integers, dates and times, whose kernels cost next to nothing.
fn column_statistics<'a>(arrays: impl Iterator<Item = &'a ArrayRef>) -> ColumnStatistics {
    let mut nulls = 0;
    let (mut min, mut max): (Option<ScalarValue>, Option<ScalarValue>) = (None, None);
    let mut known = true;
    for array in arrays {
        nulls += array.null_count();
        if array.null_count() == array.len() {
            continue;
        }
        match bounds(array) {
            Some((low, high)) => {
                min = Some(min.map_or_else(|| low.clone(), |old| if low < old { low.clone() } else { old }));
                max = Some(max.map_or_else(|| high.clone(), |old| if high > old { high.clone() } else { old }));
            }
            None => known = false,
        }
    }
    let exact = |value: Option<ScalarValue>| value.filter(|_| known).map_or(Precision::Absent, Precision::Exact);
    ColumnStatistics {
        null_count: Precision::Exact(nulls),
        min_value: exact(min),
        max_value: exact(max),
        ..ColumnStatistics::new_unknown()
    }
}

fn bounds(array: &ArrayRef) -> Option<(ScalarValue, ScalarValue)> {
    use arrow::array::AsArray;
    use arrow::datatypes::*;
    macro_rules! of {
        ($arrow:ty, $scalar:expr) => {{
            let array = array.as_primitive::<$arrow>();
            let scalar = $scalar;
            Some((scalar(aggregate::min(array)), scalar(aggregate::max(array))))
        }};
    }
    match array.data_type() {
        ArrowType::Int16 => of!(Int16Type, ScalarValue::Int16),
        ArrowType::Int32 => of!(Int32Type, ScalarValue::Int32),
        ArrowType::Int64 => of!(Int64Type, ScalarValue::Int64),
        ArrowType::Date32 => of!(Date32Type, ScalarValue::Date32),
        ArrowType::Decimal128(p, s) => of!(Decimal128Type, |v| ScalarValue::Decimal128(v, *p, *s)),
        ArrowType::Timestamp(TimeUnit::Microsecond, zone) => {
            of!(TimestampMicrosecondType, |v| ScalarValue::TimestampMicrosecond(v, zone.clone()))
        }
        _ => None,
    }
}

impl DisplayAs for RecentExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_rows = self.spec.lake().map_or(0, |lake| lake.recent_rows);
        write!(f, "RecentExec: rows={n_rows}, partitions={}", self.n_partitions())
    }
}

impl ExecutionPlan for RecentExec {
    fn name(&self) -> &str {
        "RecentExec"
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
        let batch_rows = context.session_config().batch_size();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (schema, spec, n_partitions) = (Arc::clone(&self.schema), Arc::clone(&self.spec), self.n_partitions());
        let read = async move {
            if spec.lake().is_none_or(|lake| lake.recent_rows == 0) {
                return Ok(vec![]);
            }
            let recent = Opener::of(&context)?.recent(&spec)?;
            Ok::<_, DataFusionError>(recent.into_iter().skip(partition).step_by(n_partitions).collect::<Vec<_>>())
        };
        let rows = stream::once(read).map_ok(move |batches| {
            let slices = batches.into_iter().flat_map(move |batch| slices(&batch, batch_rows).collect::<Vec<_>>());
            stream::iter(slices.map(Ok::<_, DataFusionError>))
        });
        let spec = Arc::clone(&self.spec);
        let batches = rows.try_flatten().map(move |slice| {
            let _timer = metrics.elapsed_compute().timer();
            let batch = to_sql(&arranged(&spec, slice?)?, &schema)?;
            metrics.record_output(batch.num_rows());
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        match args.partition() {
            Some(_) if self.n_partitions() > 1 => Ok(Arc::new(Statistics::new_unknown(&self.schema))),
            _ => Ok(Arc::clone(&self.statistics)),
        }
    }
}

/// The columns of a hot batch, which has `__seqno` last, where the projection has them.
pub(crate) fn arranged(spec: &ScanSpec, batch: RecordBatch) -> Result<RecordBatch> {
    let n_columns = spec.table.columns.len();
    let Some(at) = spec.projection.iter().position(|column| *column == n_columns) else { return Ok(batch) };
    let last = batch.num_columns() - 1;
    if at == last {
        return Ok(batch);
    }
    let order: Vec<usize> = (0..at).chain([last]).chain(at..last).collect();
    Ok(batch.project(&order)?)
}

/// The rows of a batch in batches of so many: a statement may need short ones (`batch_rows.rs`).
fn slices(batch: &RecordBatch, batch_rows: usize) -> impl Iterator<Item = RecordBatch> {
    let starts = (0..batch.num_rows()).step_by(batch_rows);
    starts.map(move |start| batch.slice(start, batch_rows.min(batch.num_rows() - start)))
}

/// Live rows of the row engine in some ranges of keys.
#[derive(Debug)]
pub(crate) struct RowsExec {
    spec: Arc<ScanSpec>,
    /// Some for each partition, in key order.
    ranges: Vec<Vec<KeyRange>>,
    batch_rows: usize,
    /// Enough rows of each partition.
    limit: Option<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl RowsExec {
    /// `schema` is of SQL types: what the scan gives.
    pub(crate) fn new(spec: Arc<ScanSpec>, read: &RangeRead, schema: SchemaRef) -> Self {
        let n_partitions = read.ranges.len().clamp(1, spec.partitions.max(1));
        let mut ranges: Vec<Vec<KeyRange>> = vec![vec![]; n_partitions];
        for (at, range) in read.ranges.iter().enumerate() {
            ranges[at % n_partitions].push(range.clone());
        }
        let order = (read.ranges.len() == 1).then(|| key_order(&spec, read.n_fixed, &schema)).flatten();
        RowsExec {
            properties: properties(&schema, n_partitions, order),
            limit: spec.limit,
            batch_rows: read.batch_rows,
            ranges,
            spec,
            schema,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

/// In which order the rows of one range come: by the key behind its first `n_fixed` columns, as far as it is given.
fn key_order(spec: &ScanSpec, n_fixed: usize, schema: &SchemaRef) -> Option<LexOrdering> {
    let mut order = vec![];
    for part in &spec.table.key[n_fixed..] {
        let column = &spec.table.columns[part.column_idx];
        // Zeros and NaN of floats have one key, and more than one place in the planner's order.
        let is_float = matches!(column.data_type, DataType::Float32 | DataType::Float64);
        let Some((at, _)) = schema.column_with_name(&column.name).filter(|_| !is_float) else { break };
        let options = SortOptions { descending: part.descending, nulls_first: part.descending };
        order.push(PhysicalSortExpr::new(Arc::new(Column::new(&column.name, at)), options));
    }
    LexOrdering::new(order)
}

impl DisplayAs for RowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowsExec: scans={}", self.ranges.iter().map(Vec::len).sum::<usize>())?;
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
        let view = Opener::of(&context)?.view(&self.spec)?;
        let batch_rows = context.session_config().batch_size();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), SCAN_AHEAD_BATCHES);
        let sender = builder.tx();
        let (ranges, spec, schema) = (self.ranges[partition].clone(), Arc::clone(&self.spec), Arc::clone(&self.schema));
        let (limit, read_rows) = (self.limit.unwrap_or(usize::MAX), self.batch_rows);
        builder.spawn_blocking(move || {
            let (projection, with_seqno) = spec.hot_projection();
            let mut given = 0;
            let scans = ranges.iter().flat_map(|range| view.scan(range, Some(&projection), with_seqno, read_rows));
            for batch in scans {
                let batch = arranged(&spec, batch.map_err(DataFusionError::from)?)?;
                let batch = to_sql(&batch.slice(0, batch.num_rows().min(limit - given)), &schema)?;
                given += batch.num_rows();
                // A closed channel means that nobody reads any more.
                let is_read = slices(&batch, batch_rows).all(|slice| sender.blocking_send(Ok(slice)).is_ok());
                if !is_read || given >= limit {
                    break;
                }
            }
            Ok(())
        });
        let counted = builder.build().inspect(move |batch| {
            if let Ok(batch) = batch {
                metrics.record_output(batch.num_rows());
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), counted)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let batch_rows = self.batch_rows.min(limit.unwrap_or(usize::MAX)).max(1);
        Some(Arc::new(RowsExec {
            spec: Arc::clone(&self.spec),
            ranges: self.ranges.clone(),
            batch_rows,
            limit,
            schema: Arc::clone(&self.schema),
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }
}
