//! Does a join stop when nobody waits for it? A task can be stopped where it pauses, and a join pauses when its input
//! does. One batch of
//! 8,192 rows against 400,000 is minutes without a pause.
//!
//! So the probed side of joins that try every pair comes in pieces of [`PROBED_ROWS`], with a pause after each. The
//! work is the same: such a join takes as many rows of the other side at once as fill a batch. And what joins give is
//! counted, so that many batches of one piece pause, too. A join that finds its pairs by a hash or an order may find millions
//! for one batch, of which its condition leaves none: that condition stops (`stop.rs`).

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
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use futures::{Stream, StreamExt, ready};

use crate::rebatch::{Rebatch, RebatchExec};
use crate::stop::{Stop, stoppable};

/// Rows of the probed side between two pauses. With a million rows on the other side these are 64 million pairs.
const PROBED_ROWS: usize = 64;

/// The rule; it runs when all others have.
#[derive(Debug)]
pub(crate) struct Pauses;

impl PhysicalOptimizerRule for Pauses {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let stop = Stop::of(config);
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
        let children = vec![Arc::clone(left), RebatchExec::<Pieces>::above(right)];
        let mut joined = replace_children_if_necessary(Arc::clone(&plan), children)?;
        // Else it would try all pairs of a piece first.
        if let Some(join) = joined.downcast_ref::<NestedLoopJoinExec>()
            && let Some(filter) = join.filter()
        {
            let filter = Some(stoppable(filter, stop));
            joined = Arc::new(NestedLoopJoinExecBuilder::from(join).with_filter(filter).build()?);
        }
        return Ok(Transformed::yes(Arc::new(CooperativeExec::new(joined))));
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
    Ok(Transformed::yes(Arc::new(CooperativeExec::new(joined))))
}

/// Pieces of [`PROBED_ROWS`], and a pause after each.
#[derive(Debug)]
struct Pieces;

impl Rebatch for Pieces {
    const NAME: &'static str = "PiecesExec";

    fn rebatch(input: SendableRecordBatchStream) -> SendableRecordBatchStream {
        Box::pin(PieceStream { schema: input.schema(), input, rest: None, pause: false })
    }
}

struct PieceStream {
    schema: SchemaRef,
    input: SendableRecordBatchStream,
    rest: Option<RecordBatch>,
    /// Was a piece given since the last pause?
    pause: bool,
}

impl Stream for PieceStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.pause) {
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
        let n_rows = batch.num_rows().min(PROBED_ROWS);
        if batch.num_rows() > n_rows {
            self.rest = Some(batch.slice(n_rows, batch.num_rows() - n_rows));
        }
        self.pause = true;
        Poll::Ready(Some(Ok(batch.slice(0, n_rows))))
    }
}

impl RecordBatchStream for PieceStream {
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
        let mut pieces = PieceStream { schema, input: Box::pin(input), rest: None, pause: false };
        let mut given = vec![];
        for _ in 0..8 {
            given.push(pieces.next().now_or_never().map(|piece| piece.map_or(0, |batch| batch.unwrap().num_rows())));
        }
        // `None` is a pause: the task may be stopped there.
        assert_eq!(given, [Some(64), None, Some(64), None, Some(22), None, Some(0), Some(0)]);
    }
}
