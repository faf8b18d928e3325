//! How does a mutation get in? Room first, then the log, then the rows; the answer when it is durable and visible.
//!
//! All batches of one call are submitted before the first is waited for: one group commit. The call runs on a blocking
//! thread and is not stopped half-way: a caller that goes away leaves it to finish.

use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use tarn_replica::{Replica, propose_all};
use tarn_rows::Outcome;
use tarn_types::{BatchBuilder, MutationBatch, Op, TabletId, batches_from_columns};

use crate::catalog::{Recent, Stuck, TableHandle};
use crate::error::{Error, ErrorKind, Result};
use crate::node::Node;
use crate::threads::blocking;

impl Node {
    /// Waits until recent rows of all tables take less than the limit, and those of tables whose delivery fails less than half of it.
    /// Writers call it before they propose.
    ///
    /// Errors: `Limit` when delivery does not make room in `write_wait_ms`, with what is in its way.
    pub async fn wait_for_room(&self, handle: &TableHandle) -> Result<()> {
        self.parts().check_writable()?;
        let limit = self.settings().recent_limit_bytes;
        let is_stuck = || handle.stuck.lock().is_some();
        let has_room = |recent: Recent| recent.has_room(limit, is_stuck());
        let recent = self.catalog().recent();
        if recent.is_pressed(limit, is_stuck()) {
            handle.kick.notify_one();
        }
        if has_room(recent) {
            return Ok(());
        }
        self.metrics().write_waits.inc();
        let wait = async {
            loop {
                // Registered before looking, so that a delivery in between is not missed.
                let made = self.room().notified();
                if has_room(self.catalog().recent()) {
                    return;
                }
                for table in self.catalog().all() {
                    table.kick.notify_one();
                }
                made.await;
            }
        };
        let limit_ms = self.settings().write_wait_ms;
        let waited = tokio::time::timeout(Duration::from_millis(limit_ms), wait).await;
        waited.map_err(|_| self.no_room(handle, limit, limit_ms))
    }

    fn no_room(&self, handle: &TableHandle, limit: u64, waited_ms: u64) -> Error {
        let recent = self.catalog().recent();
        let (table, used) = (&handle.schema().name, recent.bytes + recent.stuck_bytes);
        if let Some(stuck) = handle.stuck() {
            let Stuck { reason, .. } = &stuck;
            let message = format!(
                "undelivered rows of table \"{table}\" cannot be delivered since {}: {reason}; tables of which that is so take {} bytes, \
                 and may take half of the limit of {limit}; waited {waited_ms} ms",
                stuck.since(),
                recent.stuck_bytes
            );
            return Error::new(ErrorKind::Limit, message)
                .with_hint("other tables are written as before; remove the cause, CALL tarn.deliver to try at once, or DROP TABLE it");
        }
        let failing = self.catalog().stuck();
        let blamed = failing.first().map(|(name, stuck)| {
            format!("; table \"{name}\" cannot be delivered since {}: {}", stuck.since(), stuck.reason)
        });
        let blamed = blamed.unwrap_or_default();
        let message = format!(
            "undelivered rows take {used} bytes, the limit is {limit}; waited {waited_ms} ms for delivery{blamed}"
        );
        Error::new(ErrorKind::Limit, message)
            .with_hint("see the log for failing deliveries, or raise recent_limit_bytes")
    }

    /// Commits batches, each whole and by itself, and answers what became of each, in order. Callers waited for room.
    pub async fn commit(&self, handle: &Arc<TableHandle>, batches: Vec<MutationBatch>) -> Result<Vec<Outcome>> {
        self.parts().check_writable()?;
        let handle = Arc::clone(handle);
        let outcomes = blocking(move || handle.propose(batches)).await?;
        self.count(&outcomes);
        Ok(outcomes)
    }

    /// Encodes rows (storage schema, all columns) and commits them: one batch a tablet. Answers how many were written;
    /// with `Op::Insert`, how many did not exist. Callers waited for room.
    pub async fn commit_rows(&self, handle: &Arc<TableHandle>, rows: RecordBatch, op: Op) -> Result<u64> {
        self.parts().check_writable()?;
        let table = Arc::clone(handle);
        let outcomes = blocking(move || {
            let batches = batches_from_columns(table.schema(), &rows, op)?;
            table.propose(batches)
        })
        .await?;
        self.count(&outcomes);
        affected(handle, &outcomes)
    }

    pub(crate) fn count(&self, outcomes: &[Outcome]) {
        self.metrics().rows_written.inc_by(applied(outcomes));
    }
}

impl TableHandle {
    /// Commits on the calling thread, which waits for the disk.
    pub(crate) fn propose(&self, batches: Vec<MutationBatch>) -> Result<Vec<Outcome>> {
        let dropped = self.dropped.read();
        if *dropped {
            return Err(Error::no_table(&self.schema().name));
        }
        self.check_whole()?;
        let mut proposals = Vec::with_capacity(batches.len());
        for batch in batches {
            proposals.push((self.replica(batch.tablet())?, batch));
        }
        let decided = propose_all(&proposals)?;
        Ok(decided.into_iter().map(|(_, outcome)| outcome).collect())
    }

    fn replica(&self, tablet: TabletId) -> Result<&Replica> {
        let idx = tablet.0.checked_sub(self.schema().first_tablet.0).map(|idx| idx as usize);
        idx.and_then(|idx| self.replicas.get(idx)).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("tablet {tablet} is not one of table {}", self.schema().name))
        })
    }
}

/// Rows written in all, whatever became of the rest.
pub fn applied(outcomes: &[Outcome]) -> u64 {
    outcomes.iter().map(|outcome| if let Outcome::Applied { affected } = outcome { *affected } else { 0 }).sum()
}

/// Rows written in all; a conflict is `Conflict`.
pub fn affected(handle: &TableHandle, outcomes: &[Outcome]) -> Result<u64> {
    let mut rows = 0;
    for outcome in outcomes {
        match outcome {
            Outcome::Applied { affected } => rows += affected,
            Outcome::Conflict { .. } | Outcome::NeedsBase { .. } => return Err(conflict(&handle.schema().name)),
        }
    }
    Ok(rows)
}

/// `Conflict`: somebody changed a row between reading and writing it.
pub fn conflict(table: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("could not serialize access to table \"{table}\": a row changed meanwhile"))
        .with_hint("run the statement or transaction again")
}

/// Makes one batch a tablet of mutations that came as several, keeping their order.
pub fn merge(handle: &TableHandle, batches: &[MutationBatch]) -> Vec<MutationBatch> {
    if batches.len() == 1 {
        return batches.to_vec();
    }
    let mut merged: std::collections::BTreeMap<TabletId, BatchBuilder> = std::collections::BTreeMap::new();
    for batch in batches {
        let builder =
            merged.entry(batch.tablet()).or_insert_with(|| BatchBuilder::new(handle.schema(), batch.tablet()));
        for mutation in batch.iter() {
            builder.push(&mutation);
        }
    }
    merged.into_values().map(BatchBuilder::finish).collect()
}
