//! What do constants take? The planner computes what it can: `repeat('x', 1000000)`, written a thousand times, is a
//! gigabyte that it keeps in the plan. So what functions make of constants is counted in the memory of queries, for as
//! long as the statement is planned and run ([`Constants`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::Array;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::ColumnarValue;
use parking_lot::Mutex;

/// Bytes of each statement's computed constants that are not reserved, so that short ones are never refused because
/// others fill the memory.
const FREE_BYTES: usize = 1 << 20;

/// Memory of the constants that the planner has computed; it is given back with the last copy of the statement's
/// configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Constants(Option<Arc<ConstantMemory>>);

#[derive(Debug)]
struct ConstantMemory {
    /// Of what is more than [`FREE_BYTES`].
    reservation: MemoryReservation,
    bytes: AtomicUsize,
    /// What is computed while the query runs is of one batch.
    is_planned: AtomicBool,
    /// The planner takes what fails for something to be computed later.
    refused: Mutex<Option<String>>,
}

impl Constants {
    /// Of a statement that is about to be planned.
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>) -> Constants {
        let reservation = MemoryConsumer::new("constants").register(pool);
        let (bytes, is_planned, refused) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::new(None));
        Constants(Some(Arc::new(ConstantMemory { reservation, bytes, is_planned, refused })))
    }

    /// Counts a value that was computed of constants alone.
    ///
    /// Errors: the memory of queries does not hold it.
    pub(crate) fn count(&self, value: &ColumnarValue) -> Result<(), DataFusionError> {
        let Some(computed) = self.0.as_ref().filter(|computed| !computed.is_planned.load(Ordering::Relaxed)) else {
            return Ok(());
        };
        let bytes = match value {
            ColumnarValue::Scalar(value) => value.size(),
            ColumnarValue::Array(array) => array.get_array_memory_size(),
        };
        let before = computed.bytes.fetch_add(bytes, Ordering::Relaxed);
        let more = before.saturating_add(bytes).saturating_sub(before.max(FREE_BYTES));
        if more == 0 {
            return Ok(());
        }
        computed.reservation.try_grow(more).inspect_err(|error| {
            if let DataFusionError::ResourcesExhausted(refused) = error.find_root() {
                computed.refused.lock().get_or_insert_with(|| refused.clone());
            }
        })
    }

    /// Errors: some constants were too large.
    pub(crate) fn check(&self) -> Result<(), DataFusionError> {
        let refused = self.0.as_ref().and_then(|computed| computed.refused.lock().clone());
        refused.map_or(Ok(()), |refused| Err(DataFusionError::ResourcesExhausted(refused)))
    }

    /// The statement is planned: of what was computed on the way, so many bytes are left in the plan.
    pub(crate) fn end(&self, left_bytes: usize) {
        if let Some(computed) = &self.0 {
            computed.is_planned.store(true, Ordering::Relaxed);
            let held = computed.reservation.size();
            computed.reservation.shrink(held.saturating_sub(left_bytes));
        }
    }
}
