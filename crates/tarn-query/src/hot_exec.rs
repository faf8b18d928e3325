//! How do recent rows become a stream? They lie in memory, and are found when the plan runs, by what its spec says.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::kernels::aggregate;
use arrow::datatypes::{DataType as ArrowType, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use datafusion::scalar::ScalarValue;
use futures::{StreamExt, TryStreamExt, stream};

use crate::column_bounds::usual_bytes;
use crate::opening::Opener;
use crate::spec::ScanSpec;
use crate::values::to_sql;

/// Recent rows are spread over partitions when there are more of them than this.
const RECENT_ROWS_PER_PARTITION: usize = 250_000;

pub(crate) fn properties(schema: &SchemaRef, partitions: usize, order: Option<LexOrdering>) -> Arc<PlanProperties> {
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
pub(crate) fn slices(batch: &RecordBatch, batch_rows: usize) -> impl Iterator<Item = RecordBatch> {
    let starts = (0..batch.num_rows()).step_by(batch_rows);
    starts.map(move |start| batch.slice(start, batch_rows.min(batch.num_rows() - start)))
}
