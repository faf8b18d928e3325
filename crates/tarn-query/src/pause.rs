//! Does a join stop when nobody waits for it? A task can be stopped where it pauses, and a join pauses when its input
//! does. One batch of
//! 8,192 rows against 400,000 is minutes without a pause.
//!
//! So the probed side of joins that try every pair comes in pieces of [`PROBED_ROWS`], with a pause after each. The
//! work is the same: such a join takes as many rows of the other side at once as fill a batch. And joins pause when
//! they have given [`JOINED_BATCHES`], so that many batches of one piece pause, too. These pauses are counted by each
//! join for itself: of tokio's budget each poll takes a part, and where joins stand a hundred deep it is used up on the
//! way to the lowest, each time anew. A join that finds its pairs by a hash or an order may find millions for one
//! batch, of which its condition leaves none: that condition stops (`stop.rs`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use futures::{Stream, StreamExt, ready};

use crate::rebatch::{Rebatch, RebatchExec};
use crate::running::StatementContext;
use crate::stop::{Stop, stoppable};

/// Rows of the probed side between two pauses. With a million rows on the other side these are 64 million pairs.
const PROBED_ROWS: usize = 64;

/// Batches that a join gives between two pauses.
const JOINED_BATCHES: usize = 16;

/// The rule; it runs when all others have.
#[derive(Debug)]
pub(crate) struct JoinsPause;

impl PhysicalOptimizerRule for JoinsPause {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let stop = StatementContext::of(config).stop;
        Ok(plan.transform_up(|plan| paused(plan, &stop))?.data)
    }

    fn name(&self) -> &str {
        "tarn_pauses"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn paused(plan: Arc<dyn ExecutionPlan>, stop: &Stop) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if plan.is::<NestedLoopJoinExec>() || plan.is::<CrossJoinExec>() {
        let [left, right] = plan.children()[..] else {
            return Err(DataFusionError::Internal("a join has two inputs".to_owned()));
        };
        let children = vec![Arc::clone(left), RebatchExec::<PauseRule>::above(right)];
        let mut joined = replace_children_if_necessary(Arc::clone(&plan), children)?;
        // Else it would try all pairs of a piece first.
        if let Some(join) = joined.downcast_ref::<NestedLoopJoinExec>()
            && let Some(filter) = join.filter()
        {
            let filter = Some(stoppable(filter, stop));
            joined = Arc::new(NestedLoopJoinExecBuilder::from(join).with_filter(filter).build()?);
        }
        return Ok(Transformed::yes(RebatchExec::<Pauses>::above(&joined)));
    }
    let joined: Arc<dyn ExecutionPlan> = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        match &join.filter {
            Some(filter) => join.builder().with_filter(Some(stoppable(filter, stop))).build_exec()?,
            None => plan,
        }
    } else if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        match join.filter() {
            Some(filter) => Arc::new(SortMergeJoinExec::try_new(
                Arc::clone(join.left()),
                Arc::clone(join.right()),
                join.on().to_vec(),
                Some(stoppable(filter, stop)),
                join.join_type(),
                join.sort_options().to_vec(),
                join.null_equality(),
            )?),
            None => plan,
        }
    } else {
        return Ok(Transformed::no(plan));
    };
    Ok(Transformed::yes(RebatchExec::<Pauses>::above(&joined)))
}

/// Pieces of [`PROBED_ROWS`], and a pause after each.
#[derive(Debug)]
struct PauseRule;

impl Rebatch for PauseRule {
    const NAME: &'static str = "PiecesExec";

    fn rebatch(input: SendableRecordBatchStream) -> SendableRecordBatchStream {
        Box::pin(PausingStream::new(input, PROBED_ROWS, 1))
    }
}

/// Batches as they are, and a pause after [`JOINED_BATCHES`].
#[derive(Debug)]
struct Pauses;

impl Rebatch for Pauses {
    const NAME: &'static str = "PausesExec";

    fn rebatch(input: SendableRecordBatchStream) -> SendableRecordBatchStream {
        Box::pin(PausingStream::new(input, usize::MAX, JOINED_BATCHES))
    }
}

struct PausingStream {
    schema: SchemaRef,
    input: SendableRecordBatchStream,
    /// Rows of a piece, at most.
    max_rows: usize,
    rest: Option<RecordBatch>,
    /// Pieces between two pauses.
    run: usize,
    n_given: usize,
}

impl PausingStream {
    fn new(input: SendableRecordBatchStream, max_rows: usize, run: usize) -> Self {
        PausingStream { schema: input.schema(), input, max_rows, rest: None, run, n_given: 0 }
    }
}

impl Stream for PausingStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.n_given == self.run {
            self.n_given = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match ready!(self.input.poll_next_unpin(cx)) {
                Some(Ok(batch)) => batch,
                other => return Poll::Ready(other),
            },
        };
        self.n_given += 1;
        if batch.num_rows() <= self.max_rows {
            return Poll::Ready(Some(Ok(batch)));
        }
        self.rest = Some(batch.slice(self.max_rows, batch.num_rows() - self.max_rows));
        Poll::Ready(Some(Ok(batch.slice(0, self.max_rows))))
    }
}

impl RecordBatchStream for PausingStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::{FutureExt, stream};

    use super::*;

    #[test]
    fn a_batch_comes_in_pieces_with_a_pause_after_each() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..150));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let schema = batch.schema();
        let input = RecordBatchStreamAdapter::new(Arc::clone(&schema), stream::iter([Ok(batch)]));
        let mut pieces = PausingStream::new(Box::pin(input), PROBED_ROWS, 1);
        let mut given = vec![];
        for _ in 0..8 {
            given.push(pieces.next().now_or_never().map(|piece| piece.map_or(0, |batch| batch.unwrap().num_rows())));
        }
        // `None` is a pause: the task may be stopped there.
        assert_eq!(given, [Some(64), None, Some(64), None, Some(22), None, Some(0), Some(0)]);
    }
}
