//! How much is in a window? It keeps the rows of a partition, often of all partitions, and gives each of them a value,
//! of which no operator counts anything: `max(v) OVER ()` over 400 MB of texts took 1.6 GB, and one text of a megabyte
//! beside a million short ones would be a terabyte.
//!
//! So rows that go into a window are counted in the memory of queries until they come out, with the constants that its
//! arguments write out for each of them, and so are the values that its functions give ([`give`]; `collected.rs` has
//! those of aggregates). A window that has no room is refused, as a sort without a disk is.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{LimitEffect, PartitionEvaluator};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{StandardWindowExpr, StandardWindowFunctionExpr, WindowExpr};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion::scalar::ScalarValue;
use futures::Stream;
use parking_lot::Mutex;

use crate::compact::shown_bytes;
use crate::long_constants::long_constant;

/// Rows are there as they came, and put together with those before them.
const COPIES: usize = 2;

/// A constant is written out into a buffer that doubles.
const WRITTEN: usize = 3;

/// Shorter constants are nothing beside the rows.
const LONG_BYTES: usize = 256;

/// What a window takes uncounted, so that small ones are never refused because others fill the memory.
const FREE_BYTES: usize = 1 << 20;

thread_local! {
    /// The window that this thread computes, if it computes one.
    static CURRENT: RefCell<Option<Arc<InWindow>>> = const { RefCell::new(None) };
}

/// A function of the window that this thread computes gives a value of so many bytes to a row; outside of windows it is
/// for whoever asked.
///
/// Errors: the memory of queries does not hold it.
pub(crate) fn give(bytes: usize) -> Result<()> {
    CURRENT.with_borrow(|current| match current {
        // As a value by itself, and in the column that is made of them.
        Some(window) => window.take(0, bytes.saturating_mul(2)),
        None => Ok(()),
    })
}

/// What is in one window of a plan, all its partitions together.
#[derive(Debug, Default)]
struct InWindow {
    reservation: OnceLock<MemoryReservation>,
    held: Mutex<HeldRows>,
}

#[derive(Debug, Default)]
struct HeldRows {
    n_streams: usize,
    rows: usize,
    bytes: usize,
}

impl InWindow {
    /// A stream of it begins.
    fn open(&self, context: &TaskContext) {
        let register = || MemoryConsumer::new("window").with_can_spill(true).register(context.memory_pool());
        self.reservation.get_or_init(register);
        self.held.lock().n_streams += 1;
    }

    /// A stream of it has ended. With the last one all is gone, also what never came out.
    fn close(&self) {
        let mut held = self.held.lock();
        held.n_streams -= 1;
        if held.n_streams == 0 {
            *held = HeldRows::default();
            self.reservation.get().map(MemoryReservation::free);
        }
    }

    fn take(&self, rows: usize, bytes: usize) -> Result<()> {
        let mut held = self.held.lock();
        let wanted = held.bytes.saturating_add(bytes);
        if let Some(reservation) = self.reservation.get() {
            reservation.try_resize(wanted.saturating_sub(FREE_BYTES))?;
        }
        (held.rows, held.bytes) = (held.rows + rows, wanted);
        Ok(())
    }

    /// So many rows are out, each with its part of what is there.
    fn leave(&self, rows: usize) {
        let mut held = self.held.lock();
        let rows = rows.min(held.rows);
        let share = (held.bytes as u128 * rows as u128).checked_div(held.rows as u128).unwrap_or(0) as usize;
        (held.rows, held.bytes) = (held.rows - rows, held.bytes - share);
        if let Some(reservation) = self.reservation.get() {
            reservation.resize(held.bytes.saturating_sub(FREE_BYTES));
        }
    }
}

/// The rule; it runs when windows are where they will be.
#[derive(Debug)]
pub(crate) struct InWindows;

impl PhysicalOptimizerRule for InWindows {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_up(counted)?.data)
    }

    fn name(&self) -> &str {
        "tarn_in_windows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn counted(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let window = Arc::new(InWindow::default());
    let below = |input: &Arc<dyn ExecutionPlan>, exprs: &[Arc<dyn WindowExpr>]| -> Arc<dyn ExecutionPlan> {
        let constants = exprs.iter().map(|expr| constants(expr.as_ref())).sum();
        Arc::new(WindowSide {
            input: Arc::clone(input),
            window: Arc::clone(&window),
            side: WindowBoundary::Into { constants },
        })
    };
    let counted: Arc<dyn ExecutionPlan> = if let Some(whole) = plan.downcast_ref::<WindowAggExec>() {
        let (input, exprs) = (below(whole.input(), whole.window_expr()), giving(whole.window_expr()));
        Arc::new(WindowAggExec::try_new(exprs, input, !whole.partition_keys().is_empty())?)
    } else if let Some(bounded) = plan.downcast_ref::<BoundedWindowAggExec>() {
        let (input, exprs) = (below(bounded.input(), bounded.window_expr()), giving(bounded.window_expr()));
        let can_repartition = !bounded.partition_keys().is_empty();
        Arc::new(BoundedWindowAggExec::try_new(exprs, input, bounded.input_order_mode.clone(), can_repartition)?)
    } else {
        return Ok(Transformed::no(plan));
    };
    Ok(Transformed::yes(Arc::new(WindowSide { input: counted, window, side: WindowBoundary::OutOf })))
}

/// What constants the arguments of a function write out for each row.
fn constants(expr: &dyn WindowExpr) -> usize {
    let mut bytes = 0;
    for argument in expr.expressions() {
        let _ = argument.apply(|part| {
            let value = match part.downcast_ref::<Literal>() {
                Some(literal) => Some(literal.value()),
                None => part.downcast_ref::<ScalarFunctionExpr>().and_then(|call| long_constant(call.fun())),
            };
            bytes += value.map(ScalarValue::size).filter(|size| *size >= LONG_BYTES).unwrap_or(0);
            Ok(TreeNodeRecursion::Continue)
        });
    }
    bytes
}

/// The functions, with a count around those whose values have no fixed size.
fn giving(exprs: &[Arc<dyn WindowExpr>]) -> Vec<Arc<dyn WindowExpr>> {
    exprs.iter().map(|expr| giving_one(expr).unwrap_or_else(|| Arc::clone(expr))).collect()
}

fn giving_one(expr: &Arc<dyn WindowExpr>) -> Option<Arc<dyn WindowExpr>> {
    let standard = expr.as_any().downcast_ref::<StandardWindowExpr>()?;
    if is_small(expr.field().ok()?.data_type()) {
        return None;
    }
    let function = Arc::new(CountedWindowFunction(Arc::clone(standard.get_standard_func_expr())));
    let frame = Arc::clone(expr.get_window_frame());
    Some(Arc::new(StandardWindowExpr::new(function, expr.partition_by(), expr.order_by(), frame)))
}

/// Whether all values of a type are small.
pub(crate) fn is_small(data_type: &DataType) -> bool {
    data_type.is_primitive() || matches!(data_type, DataType::Boolean | DataType::Null)
}

/// A function of windows whose values are counted.
#[derive(Debug)]
struct CountedWindowFunction(Arc<dyn StandardWindowFunctionExpr>);

#[deny(clippy::missing_trait_methods)]
impl StandardWindowFunctionExpr for CountedWindowFunction {
    fn create_evaluator(&self) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(GivingEvaluator(self.0.create_evaluator()?)))
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self.0.as_any()
    }

    fn field(&self) -> Result<FieldRef> {
        self.0.field()
    }

    fn expressions(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.0.expressions()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn evaluate_args(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        self.0.evaluate_args(batch)
    }

    fn reverse_expr(&self) -> Option<Arc<dyn StandardWindowFunctionExpr>> {
        self.0.reverse_expr().map(|reversed| Arc::new(CountedWindowFunction(reversed)) as _)
    }

    fn get_result_ordering(&self, schema: &SchemaRef) -> Option<PhysicalSortExpr> {
        self.0.get_result_ordering(schema)
    }

    fn limit_effect(&self) -> LimitEffect {
        self.0.limit_effect()
    }
}

#[derive(Debug)]
struct GivingEvaluator(Box<dyn PartitionEvaluator>);

#[deny(clippy::missing_trait_methods)]
impl PartitionEvaluator for GivingEvaluator {
    fn evaluate(&mut self, values: &[ArrayRef], range: &std::ops::Range<usize>) -> Result<ScalarValue> {
        let value = self.0.evaluate(values, range)?;
        give(value.size())?;
        Ok(value)
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        let given = self.0.evaluate_all(values, num_rows)?;
        give(given.get_array_memory_size())?;
        Ok(given)
    }

    fn evaluate_all_with_rank(&self, num_rows: usize, ranks: &[std::ops::Range<usize>]) -> Result<ArrayRef> {
        self.0.evaluate_all_with_rank(num_rows, ranks)
    }

    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.0.memoize(state)
    }

    fn get_range(&self, idx: usize, n_rows: usize) -> Result<std::ops::Range<usize>> {
        self.0.get_range(idx, n_rows)
    }

    fn is_causal(&self) -> bool {
        self.0.is_causal()
    }

    fn supports_bounded_execution(&self) -> bool {
        self.0.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.0.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.0.include_rank()
    }
}

/// Stands below a window, or above it. Gives its input's rows.
#[derive(Debug)]
struct WindowSide {
    input: Arc<dyn ExecutionPlan>,
    window: Arc<InWindow>,
    side: WindowBoundary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowBoundary {
    /// Rows go in, each with so many bytes of constants.
    Into { constants: usize },
    /// Rows come out.
    OutOf,
}

impl DisplayAs for WindowSide {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for WindowSide {
    fn name(&self) -> &str {
        match self.side {
            WindowBoundary::Into { .. } => "IntoWindowExec",
            WindowBoundary::OutOf => "OutOfWindowExec",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
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

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match &children[..] {
            [input] => {
                let (input, window) = (Arc::clone(input), Arc::clone(&self.window));
                Ok(Arc::new(WindowSide { input, window, side: self.side }))
            }
            _ => Err(DataFusionError::Internal(format!("{} has one child", self.name()))),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, Arc::clone(&context))?;
        let window = Arc::clone(&self.window);
        window.open(&context);
        Ok(Box::pin(WindowStream { input, window, side: self.side, given: 0 }))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&inputs[0]))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}

struct WindowStream {
    input: SendableRecordBatchStream,
    window: Arc<InWindow>,
    side: WindowBoundary,
    /// Rows of the batch that whoever polls has.
    given: usize,
}

/// The window that this thread computed before, when dropped.
struct PreviousWindow(Option<Arc<InWindow>>);

impl Drop for PreviousWindow {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl Stream for WindowStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.side == WindowBoundary::OutOf {
            let given = std::mem::take(&mut self.given);
            self.window.leave(given);
        }
        let current = match self.side {
            // What is below a window is not in it.
            WindowBoundary::Into { .. } => None,
            WindowBoundary::OutOf => Some(Arc::clone(&self.window)),
        };
        let before = PreviousWindow(CURRENT.replace(current));
        let polled = self.input.as_mut().poll_next(context);
        drop(before);
        let Some(batch) = ready!(polled).transpose()? else { return Poll::Ready(None) };
        match self.side {
            WindowBoundary::OutOf => self.given = batch.num_rows(),
            WindowBoundary::Into { constants } => {
                let shown: usize = batch.columns().iter().map(bytes_of).sum();
                let written = constants.saturating_mul(WRITTEN).saturating_mul(batch.num_rows());
                let bytes = shown.saturating_mul(COPIES).saturating_add(written);
                self.window.take(batch.num_rows(), bytes)?;
            }
        }
        Poll::Ready(Some(Ok(batch)))
    }
}

fn bytes_of(column: &ArrayRef) -> usize {
    shown_bytes(column).min(column.get_array_memory_size())
}

impl RecordBatchStream for WindowStream {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

impl Drop for WindowStream {
    fn drop(&mut self) {
        self.window.close();
    }
}
