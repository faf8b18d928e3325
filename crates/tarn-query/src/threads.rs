//! Where does a query compute? On the threads of its engine, so that a join deep in a kernel delays no other
//! connection.
//!
//! Planning goes there too: it may look up the addresses of many changed keys. The caller's task only waits: it can be
//! cancelled, and can be told so, whatever the query is doing. A query that nobody waits for stops at its next wait, or
//! where it asks (`stop.rs`).

use std::any::Any;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tracing::Instrument;

use crate::Result;
use crate::stop::StopWhenDropped;

/// Batches a query may be ahead of its reader.
const BATCHES_AHEAD: usize = 2;

/// A plan and what to run it with.
pub(crate) type PlannedQuery = (Arc<dyn ExecutionPlan>, Arc<TaskContext>);

/// The threads of an engine; without a handle, those of whoever asks.
#[derive(Debug, Clone)]
pub(crate) struct Threads {
    /// Of the runtime whose threads they are.
    pub handle: Option<Handle>,
}

impl Threads {
    /// Plans and runs. Ready when it is planned; dropping the future or the stream cancels, and drops `waits` first.
    pub(crate) async fn stream(
        &self,
        plan: impl Future<Output = Result<PlannedQuery>> + Send + 'static,
        waits: StopWhenDropped,
    ) -> Result<SendableRecordBatchStream> {
        let span = tracing::debug_span!("query");
        let (plan, context) = self.run(plan.instrument(span.clone())).await?;
        let schema = plan.schema();
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let task = self.spawn(execute(plan, context, sender).instrument(span));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, received(receiver, task, waits))))
    }

    /// Runs on the threads. Dropping the future cancels at the next wait.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send {
        // What plans is large (46 KiB), and would be a part, twice, of every future in which something may be planned.
        let work = work.boxed();
        async move {
            match self.spawn(work).join().await {
                Ok(done) => done,
                Err(error) => Err(ended(error).into()),
            }
        }
    }

    fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> SpawnedTask<T> {
        let _threads = self.handle.as_ref().map(Handle::enter);
        SpawnedTask::spawn(work)
    }
}

async fn execute(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>, sender: Sender) {
    // Until the last batch: it holds the views that the statement reads at, and what views stand on is not deleted.
    let _views = Arc::clone(&context);
    let mut batches = match execute_stream(plan, context) {
        Ok(batches) => batches,
        Err(error) => {
            // Whoever does not listen does not want to know.
            let _ = sender.send(Err(error)).await;
            return;
        }
    };
    while let Some(batch) = batches.next().await {
        if sender.send(batch).await.is_err() {
            return;
        }
    }
}

type Batch = Result<RecordBatch, DataFusionError>;
type Sender = mpsc::Sender<Batch>;

/// What the task sends, and its panic if it has one. Holds the task: dropping this stops it.
fn received(
    receiver: mpsc::Receiver<Batch>,
    task: SpawnedTask<()>,
    waits: StopWhenDropped,
) -> impl Stream<Item = Batch> {
    stream::unfold((waits, receiver, Some(task)), |(waits, mut receiver, mut task)| async move {
        if let Some(batch) = receiver.recv().await {
            return Some((batch, (waits, receiver, task)));
        }
        let outcome = task.take()?.await;
        outcome.err().map(|error| (Err(ended(error)), (waits, receiver, None)))
    })
}

/// Why a task has no outcome: it panicked, or its threads are gone.
fn ended(error: JoinError) -> DataFusionError {
    if !error.is_panic() {
        return DataFusionError::Execution("the query was stopped: the server is stopping".to_owned());
    }
    let panic = error.into_panic();
    let told = message(panic.as_ref()).unwrap_or("it did not say why");
    DataFusionError::Internal(format!("the query panicked: {told}"))
}

fn message(panic: &(dyn Any + Send)) -> Option<&str> {
    panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::runtime::Builder;

    use super::*;
    use crate::stop::Stop;

    #[test]
    fn a_query_that_blocks_its_threads_leaves_the_caller_free() {
        let queries = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let threads = Threads { handle: Some(queries.handle().clone()) };
        let caller = Builder::new_current_thread().build().unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let stuck = caller.block_on(async {
            let task = threads.spawn(async move {
                released.recv().unwrap();
                thread::current().id()
            });
            // The caller's only thread goes on.
            release.send(()).unwrap();
            task.await.unwrap()
        });
        assert_ne!(stuck, thread::current().id());
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_its_query() {
        let threads = Threads { handle: None };
        let waits = Stop::default().when_dropped();
        let failed = threads.stream(async { panic!("division by zebra") }, waits).await;
        let error = failed.err().unwrap().to_string();
        assert!(error.contains("division by zebra"), "{error}");
    }
}
