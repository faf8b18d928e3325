//! How does a batch get into a table that has no log? It is decided and applied where it is asked for, one after
//! another.
//!
//! There are no replicas, so an entry is agreed when it is decided; and nothing is durable, so nobody waits. The table
//! is one tablet and stays so.

use std::sync::Arc;

use parking_lot::Mutex;
use tarn_replica::PartDecision;
use tarn_rows::{Table, UnderWay};
use tarn_types::{Entry, MutationBatch};

use crate::error::{Error, ErrorKind, Result};

/// The way in.
pub(crate) struct UnloggedWriter {
    table: Arc<Table>,
    /// Held from the decision of a batch until it is applied.
    deciding: Mutex<()>,
}

impl UnloggedWriter {
    pub(crate) fn new(table: Arc<Table>) -> UnloggedWriter {
        UnloggedWriter { table, deciding: Mutex::new(()) }
    }

    /// Decides batches and applies them, each whole; visible when it returns.
    ///
    /// Errors: the memory engine's, which has none that a caller could cause. Batches before the one that failed are in
    /// effect.
    pub(crate) fn propose(&self, batches: &[MutationBatch]) -> Result<Vec<PartDecision>> {
        let map = self.table.tablet_map();
        let Some(tablet) = map.ids().next().filter(|_| map.len() == 1) else {
            return Err(Error::new(ErrorKind::Internal, "a table without a log has several tablets"));
        };
        let _one = self.deciding.lock();
        let mut decided = Vec::with_capacity(batches.len());
        for (of, batch) in batches.iter().enumerate() {
            let applied = self.table.applied(tablet);
            let known = self.table.look_up(tablet, batch, applied)?;
            let (outcome, effects) = self.table.resolve(applied.next(), known, &UnderWay::default())?;
            if let Some(effects) = effects {
                self.table.apply(tablet, applied.next(), &Entry::Effects(effects))?;
            }
            decided.push(PartDecision { of, part: batch.clone(), outcome });
        }
        Ok(decided)
    }
}
