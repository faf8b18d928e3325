//! How do hot rows become a stream? Two leaves: [`RecentExec`] gives recent rows from memory, [`RowsExec`] scans the row engine.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::kernels::aggregate;
use arrow::datatypes::{DataType as ArrowType, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::{RecordBatchReceiverStreamBuilder, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use datafusion::scalar::ScalarValue;
use futures::StreamExt;
use futures::stream;

use crate::hot::HotView;
use crate::values::to_sql;

/// Batches that a blocking engine scan may be ahead of its reader.
const SCAN_AHEAD_BATCHES: usize = 2;

/// Recent rows are spread over partitions when there are more of them than this.
const RECENT_ROWS_PER_PARTITION: usize = 250_000;

fn properties(schema: &SchemaRef, partitions: usize) -> Arc<PlanProperties> {
    let properties = PlanProperties::new(
        EquivalenceProperties::new(Arc::clone(schema)),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    );
    Arc::new(properties.with_scheduling_type(SchedulingType::NonCooperative))
}

/// Rows in memory, of storage types, given out as SQL types in slices of the session's batch size.
#[derive(Debug)]
pub(crate) struct RecentExec {
    /// One list per partition.
    batches: Vec<Vec<RecordBatch>>,
    n_rows: usize,
    /// Of SQL types; the same columns as the batches.
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    statistics: OnceLock<Arc<Statistics>>,
    metrics: ExecutionPlanMetricsSet,
}

impl RecentExec {
    pub(crate) fn new(batches: Vec<RecordBatch>, schema: SchemaRef, max_partitions: usize) -> Self {
        let n_rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        let n_partitions = n_rows.div_ceil(RECENT_ROWS_PER_PARTITION).clamp(1, max_partitions.max(1));
        let mut dealt: Vec<Vec<RecordBatch>> = vec![vec![]; n_partitions];
        for (idx, batch) in batches.into_iter().enumerate() {
            dealt[idx % n_partitions].push(batch);
        }
        let properties = properties(&schema, n_partitions);
        RecentExec {
            batches: dealt,
            n_rows,
            schema,
            properties,
            statistics: OnceLock::new(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn statistics(&self) -> Arc<Statistics> {
        let compute = || {
            let all: Vec<&RecordBatch> = self.batches.iter().flatten().collect();
            let column = |idx: usize| column_statistics(all.iter().map(|batch| batch.column(idx)));
            Arc::new(Statistics {
                num_rows: Precision::Exact(self.n_rows),
                total_byte_size: Precision::Inexact(all.iter().map(|b| b.get_array_memory_size()).sum()),
                column_statistics: (0..self.schema.fields().len()).map(column).collect(),
            })
        };
        Arc::clone(self.statistics.get_or_init(compute))
    }
}

/// NULLs of every type; bounds of integers, dates and times, whose kernels cost next to nothing.
fn column_statistics<'a>(arrays: impl Iterator<Item = &'a ArrayRef>) -> ColumnStatistics {
    let (mut nulls, mut bytes) = (0, 0);
    let (mut min, mut max): (Option<ScalarValue>, Option<ScalarValue>) = (None, None);
    let mut known = true;
    for array in arrays {
        nulls += array.null_count();
        bytes += array.get_array_memory_size();
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
        byte_size: Precision::Inexact(bytes),
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
        write!(f, "RecentExec: rows={}, partitions={}", self.n_rows, self.batches.len())
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
        let schema = Arc::clone(&self.schema);
        let batches = self.batches[partition].clone().into_iter();
        let batches = batches.flat_map(move |batch| slices(&batch, batch_rows).collect::<Vec<_>>());
        let batches = batches.map(move |slice| {
            let _timer = metrics.elapsed_compute().timer();
            let batch = to_sql(&slice, &schema)?;
            metrics.record_output(batch.num_rows());
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream::iter(batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        match args.partition() {
            Some(_) if self.batches.len() > 1 => Ok(Arc::new(Statistics::new_unknown(&self.schema))),
            _ => Ok(self.statistics()),
        }
    }
}

/// The rows of a batch in batches of so many: a statement may need short ones (`batch_rows.rs`).
fn slices(batch: &RecordBatch, batch_rows: usize) -> impl Iterator<Item = RecordBatch> {
    let starts = (0..batch.num_rows()).step_by(batch_rows);
    starts.map(move |start| batch.slice(start, batch_rows.min(batch.num_rows() - start)))
}

/// Live rows of the row engine: one partition per key prefix.
pub(crate) struct RowsExec {
    view: Arc<dyn HotView>,
    /// `None`: everything.
    prefixes: Vec<Option<Vec<u8>>>,
    projection: Option<Vec<usize>>,
    with_seqno: bool,
    limit: Option<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl RowsExec {
    /// `schema` is of SQL types: the columns of `projection`, then `__seqno` if asked for.
    pub(crate) fn new(
        view: Arc<dyn HotView>,
        prefixes: Vec<Option<Vec<u8>>>,
        projection: Option<Vec<usize>>,
        with_seqno: bool,
        limit: Option<usize>,
        schema: SchemaRef,
    ) -> Self {
        let properties = properties(&schema, prefixes.len());
        RowsExec {
            view,
            prefixes,
            projection,
            with_seqno,
            limit,
            schema,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl fmt::Debug for RowsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowsExec({} prefixes)", self.prefixes.len())
    }
}

impl DisplayAs for RowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowsExec: scans={}", self.prefixes.len())?;
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
        let batch_rows = context.session_config().batch_size();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), SCAN_AHEAD_BATCHES);
        let sender = builder.tx();
        let (view, prefix, projection) =
            (Arc::clone(&self.view), self.prefixes[partition].clone(), self.projection.clone());
        let (with_seqno, limit, schema) = (self.with_seqno, self.limit, Arc::clone(&self.schema));
        builder.spawn_blocking(move || {
            let mut given = 0;
            for batch in view.scan(prefix, projection.as_deref(), with_seqno) {
                let batch = to_sql(&batch.map_err(DataFusionError::from)?, &schema)?;
                given += batch.num_rows();
                // A closed channel means that nobody reads any more.
                if !slices(&batch, batch_rows).all(|slice| sender.blocking_send(Ok(slice)).is_ok())
                    || limit.is_some_and(|limit| given >= limit)
                {
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
}
