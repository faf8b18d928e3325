//! How do kept and computed fragments become one stream? Every partition first reads its share of what is no fragment,
//! as without this node; then the partitions take fragments one by one until none is left.
//!
//! ```text
//! partition ──> rest ──> next fragments ──> kept?  ──yes──> its batches
//!                             ^                └──no──> the leaf over this part of a file ──> batches, and kept when it ended whole
//!                             └────────────────────────────────┘
//! ```
//!
//! Nothing is kept of a stream that failed, was dropped, or has more bytes than reading it again is worth. Two
//! statements that miss the same fragment both compute it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::SchedulingType;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tarn_cache::{FragmentCache, FragmentKey};

use super::kept::{Layout, size};
use super::leaf::Template;
use super::units::{FragmentUnit, LakeSide};
use crate::compact::compacted;

/// Larger values are not kept.
const MAX_VALUE_BYTES: u64 = 16 << 20;

/// Nor those with more than one byte for so many that are read of the file.
const READ_PER_KEPT: u64 = 8;

/// Smaller ones are always kept: opening a file costs more than finding them.
const MIN_VALUE_BYTES: u64 = 16 << 10;

/// Fragments that a partition has begun at once: while one waits for the store, the other may go on.
const AT_ONCE: usize = 2;

/// Batches in memory are so much larger than their compressed bytes, at most.
const MAX_COMPRESSION: u64 = 4;

/// One part of a file that is asked of the cache.
#[derive(Debug)]
pub(crate) struct Fragment {
    /// Which rows of which file.
    pub unit: FragmentUnit,
    /// Under which its answer is kept.
    pub key: FragmentKey,
}

/// What all partitions share.
#[derive(Debug)]
pub(crate) struct FragmentScan {
    pub cache: FragmentCache,
    pub lake: LakeSide,
    pub template: Template,
    pub layout: Layout,
    /// Taken one by one by all partitions, from the front.
    pub fragments: Vec<Fragment>,
    /// What of the scan is no fragment, and why, for `EXPLAIN`.
    pub left_out: String,
}

/// A leaf whose files are answered from the cache where they can be.
pub(crate) struct FragmentExec {
    shared: Arc<FragmentScan>,
    /// The same leaf over what is no fragment.
    rest: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    round: Mutex<ExecutionRound>,
    metrics: ExecutionPlanMetricsSet,
}

/// One execution of all partitions. Executions follow each other: two of one plan at the same time would share their
/// lists.
struct ExecutionRound {
    started: Vec<bool>,
    next: Arc<AtomicUsize>,
}

impl ExecutionRound {
    fn new(n_partitions: usize) -> Self {
        ExecutionRound { started: vec![false; n_partitions], next: Arc::default() }
    }
}

impl FragmentExec {
    /// `rest` is the leaf without the fragments, in as many partitions as before.
    /// `properties` are the leaf's, as it stood in the plan.
    pub(crate) fn new(
        shared: Arc<FragmentScan>,
        rest: Arc<dyn ExecutionPlan>,
        properties: Arc<PlanProperties>,
    ) -> Self {
        let properties = match properties.scheduling_type {
            SchedulingType::Cooperative => properties,
            _ => Arc::new(properties.as_ref().clone().with_scheduling_type(SchedulingType::Cooperative)),
        };
        let n_partitions = rest.output_partitioning().partition_count();
        FragmentExec {
            shared,
            rest,
            properties,
            round: Mutex::new(ExecutionRound::new(n_partitions)),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The work list of the execution that this partition belongs to: a partition that starts again starts another one.
    fn work(&self, partition: usize) -> Arc<AtomicUsize> {
        let mut round = self.round.lock();
        if round.started[partition] {
            *round = ExecutionRound::new(round.started.len());
        }
        round.started[partition] = true;
        Arc::clone(&round.next)
    }
}

impl fmt::Debug for FragmentExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FragmentExec({} fragments)", self.shared.fragments.len())
    }
}

impl DisplayAs for FragmentExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FragmentExec: fragments={}", self.shared.fragments.len())?;
        match self.shared.left_out.as_str() {
            "" => Ok(()),
            left_out => write!(f, ", left_out={left_out}"),
        }
    }
}

impl ExecutionPlan for FragmentExec {
    fn name(&self) -> &str {
        "FragmentExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.rest]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(rest), true) => {
                Ok(Arc::new(FragmentExec::new(Arc::clone(&self.shared), rest, Arc::clone(&self.properties))))
            }
            _ => Err(DataFusionError::Internal("FragmentExec has one child".to_owned())),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let counts = Counts::new(&self.metrics, partition);
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let rest = self.rest.execute(partition, Arc::clone(&context))?;
        let taker = Arc::new(FragmentWorker { shared: Arc::clone(&self.shared), context, counts });
        let (next, n_fragments) = (self.work(partition), self.shared.fragments.len());
        let taken = std::iter::from_fn(move || {
            let at = next.fetch_add(1, Ordering::Relaxed);
            (at < n_fragments).then_some(at)
        });
        let started = move |at| {
            let taker = Arc::clone(&taker);
            async move { taker.start(at).await }
        };
        let fragments = stream::iter(taken).map(started).buffered(AT_ONCE);
        let batches = rest.chain(fragments.try_flatten()).inspect(move |batch| {
            if let Ok(batch) = batch {
                baseline.record_output(batch.num_rows());
            }
        });
        let schema = Arc::clone(self.shared.layout.schema());
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(schema, batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Of one partition.
#[derive(Clone)]
struct Counts {
    hits: Count,
    misses: Count,
    kept: Count,
    refused: Count,
    /// Of values that were used.
    bytes: Count,
    /// Values that could not be used: each was a miss.
    damaged: Count,
}

impl Counts {
    fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let counter = |name| MetricBuilder::new(metrics).counter(name, partition);
        Counts {
            hits: counter("hits"),
            misses: counter("misses"),
            kept: counter("kept"),
            refused: counter("refused"),
            bytes: counter("bytes"),
            damaged: counter("damaged"),
        }
    }
}

type Batches = BoxStream<'static, Result<RecordBatch>>;

/// One partition that takes fragments.
struct FragmentWorker {
    shared: Arc<FragmentScan>,
    context: Arc<TaskContext>,
    counts: Counts,
}

impl FragmentWorker {
    /// A fragment's batches; of one that must be computed, when the first of them is there.
    async fn start(&self, at: usize) -> Result<Batches> {
        let fragment = &self.shared.fragments[at];
        if let Some(value) = self.shared.cache.get(&fragment.key).await {
            if let Some(batches) = self.shared.layout.decode(&value) {
                self.counts.hits.add(1);
                self.counts.bytes.add(value.len());
                return Ok(stream::iter(batches.into_iter().map(Ok)).boxed());
            }
            self.counts.damaged.add(1);
        }
        self.counts.misses.add(1);
        let mut batches = self.compute(at)?;
        match batches.next().await {
            Some(first) => Ok(stream::once(async move { first }).chain(batches).boxed()),
            None => Ok(batches),
        }
    }

    fn compute(&self, at: usize) -> Result<Batches> {
        let FragmentScan { lake, template, .. } = self.shared.as_ref();
        let unit = &self.shared.fragments[at].unit;
        // Without a live row, there is nothing to read, and nothing to keep.
        let Some(piece) = lake.piece(unit)? else { return Ok(stream::empty().boxed()) };
        let batches = template.over(piece, lake.spec())?.execute(0, Arc::clone(&self.context))?;
        let batches = batches.map(|batch| Ok::<_, DataFusionError>(compacted(batch?)?));
        let max_bytes = (lake.bytes(unit) / READ_PER_KEPT).clamp(MIN_VALUE_BYTES, MAX_VALUE_BYTES);
        let keeper = FragmentRecorder {
            shared: Arc::clone(&self.shared),
            at,
            counts: self.counts.clone(),
            packed: vec![],
            packed_bytes: 0,
            max_bytes,
            memory: MemoryConsumer::new("fragment").register(self.context.memory_pool()),
            context: Arc::clone(&self.context),
        };
        let passing = stream::try_unfold((batches, Some(keeper)), |(mut batches, mut keeper)| async move {
            match batches.try_next().await? {
                Some(batch) => {
                    keeper = keeper.and_then(|keeper| keeper.see(&batch));
                    Ok::<_, DataFusionError>(Some((batch, (batches, keeper))))
                }
                None => {
                    keeper.into_iter().for_each(FragmentRecorder::finish);
                    Ok(None)
                }
            }
        });
        Ok(passing.boxed())
    }
}

/// What came by of one fragment.
struct FragmentRecorder {
    shared: Arc<FragmentScan>,
    at: usize,
    counts: Counts,
    packed: Vec<RecordBatch>,
    packed_bytes: u64,
    /// Of the value.
    max_bytes: u64,
    memory: MemoryReservation,
    context: Arc<TaskContext>,
}

/// Whether `n_bytes` may be kept aside: queries come first, so only as long as half of their memory is free.
fn has_room(pool: &dyn MemoryPool, n_bytes: usize) -> bool {
    match pool.memory_limit() {
        MemoryLimit::Finite(limit) => pool.reserved().saturating_add(n_bytes) <= limit / 2,
        _ => true,
    }
}

impl FragmentRecorder {
    /// `None`: it is too large, or cannot be kept, or the query has no memory left for it: it goes on without.
    fn see(mut self, batch: &RecordBatch) -> Option<FragmentRecorder> {
        let packed = self.shared.layout.pack(batch).ok();
        let n_bytes = packed.as_ref().map_or(0, size);
        self.packed_bytes = self.packed_bytes.saturating_add(n_bytes as u64);
        match packed {
            Some(packed) if self.packed_bytes <= (self.max_bytes * MAX_COMPRESSION).min(MAX_VALUE_BYTES) => {
                if !has_room(self.context.memory_pool().as_ref(), n_bytes) {
                    return None;
                }
                self.memory.try_grow(n_bytes).ok()?;
                self.packed.push(packed);
                Some(self)
            }
            _ => {
                self.refuse();
                None
            }
        }
    }

    fn finish(self) {
        match self.shared.layout.encode(&self.packed) {
            Ok(value) if value.len() as u64 <= self.max_bytes => {
                self.counts.kept.add(1);
                self.shared.cache.put(self.shared.fragments[self.at].key.clone(), value);
            }
            _ => self.refuse(),
        }
    }

    fn refuse(&self) {
        self.counts.refused.add(1);
        self.shared.cache.refuse(&self.shared.fragments[self.at].key);
    }
}
