//! How do rows of listed keys become a stream? The row engine is asked for all of them; of those that were evicted it
//! has the addresses, and their rows are read from the files. Nothing is asked before the plan runs.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};
use tarn_types::RowDecoder;

use crate::Error;
use crate::addresses::Addresses;
use crate::hot::{HotLookup, HotView};
use crate::hot_exec::arranged;
use crate::opening::Opener;
use crate::spec::ScanSpec;
use crate::values::to_sql;

/// Rows of listed keys, in no order.
#[derive(Debug)]
pub(crate) struct KeysExec {
    spec: Arc<ScanSpec>,
    keys: Arc<[Vec<u8>]>,
    /// The full SQL schema.
    full: SchemaRef,
    /// Of it what the scan gives.
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl KeysExec {
    pub(crate) fn new(spec: Arc<ScanSpec>, keys: &[Vec<u8>], full: SchemaRef, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        KeysExec { spec, keys: keys.into(), full, schema, properties: Arc::new(properties), metrics }
    }
}

impl DisplayAs for KeysExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeysExec: keys={}", self.keys.len())
    }
}

impl ExecutionPlan for KeysExec {
    fn name(&self) -> &str {
        "KeysExec"
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
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let counter = |name| MetricBuilder::new(&self.metrics).counter(name, partition);
        let lookup = Lookup {
            view: opener.view(&self.spec)?,
            opener,
            spec: Arc::clone(&self.spec),
            keys: Arc::clone(&self.keys),
            full: Arc::clone(&self.full),
            schema: Arc::clone(&self.schema),
            evicted: counter("evicted_rows"),
        };
        let rows = stream::once(lookup.rows(context)).try_flatten().inspect(move |batch| {
            if let Ok(batch) = batch {
                baseline.record_output(batch.num_rows());
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    /// At most a row a key.
    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let num_rows = Precision::Inexact(self.keys.len());
        Ok(Arc::new(Statistics { num_rows, ..Statistics::new_unknown(&self.schema) }))
    }
}

/// One execution.
struct Lookup {
    opener: Arc<Opener>,
    view: Arc<dyn HotView>,
    spec: Arc<ScanSpec>,
    keys: Arc<[Vec<u8>]>,
    full: SchemaRef,
    schema: SchemaRef,
    evicted: Count,
}

impl Lookup {
    async fn rows(self, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (view, keys, spec) = (Arc::clone(&self.view), Arc::clone(&self.keys), Arc::clone(&self.spec));
        // The row engine may wait for its disk.
        let asked = SpawnedTask::spawn_blocking(move || hot_rows(view.as_ref(), &keys, &spec));
        let (batch, addresses) =
            asked.join_unwind().await.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))??;
        let batch = to_sql(&batch, &self.schema)?;
        let hot = stream::iter((batch.num_rows() > 0).then_some(Ok(batch)));
        let schema = Arc::clone(&self.schema);
        let rows = match addresses.is_empty() {
            true => hot.boxed(),
            false => {
                self.evicted.add(addresses.len());
                let files = addresses.reader(&self.opener, &self.spec, &self.full).await?;
                hot.chain(files.execute(0, context)?).boxed()
            }
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// Rows that the row engine has, of storage types; and where the others are.
fn hot_rows(view: &dyn HotView, keys: &[Vec<u8>], spec: &ScanSpec) -> Result<(RecordBatch, Addresses)> {
    let (projection, with_seqno) = spec.hot_projection();
    let mut decoder = RowDecoder::new(&spec.table, Some(&projection), with_seqno);
    let mut addresses = Addresses::default();
    for (key, found) in keys.iter().zip(view.multi_get(keys)?) {
        match found {
            HotLookup::Row { cells, seqno } => {
                decoder.push(key, &cells, seqno).map_err(Error::types(&spec.table.name))?;
            }
            HotLookup::Absent => {}
            HotLookup::InLake(address) => addresses.add(address),
        }
    }
    let batch = decoder.finish().map_err(Error::types(&spec.table.name))?;
    Ok((arranged(spec, batch)?, addresses))
}
