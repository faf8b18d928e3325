//! How does a table come back from its log?

use std::sync::Arc;

use tarn_replica::{Replicas, TabletReplay as Log};
use tarn_rows::{Table, Tuning};
use tarn_types::{Kind, TableSchema};

use crate::error::{Error, Result};
use crate::parts::NodeParts;
use crate::settings::LogRecovery;
use crate::together::quarantine_hint;

/// A table's store after its log was replayed.
pub(crate) struct ReplayedTable {
    /// As far as its log goes.
    pub table: Arc<Table>,
    /// One a tablet, at the end of their logs.
    pub replicas: Arc<Replicas>,
    /// What of it the log lost, if the operator chose to go on without.
    pub damage: Option<String>,
}

impl NodeParts {
    /// Opens a table's store and replays its log. `Ok(Err(lost))`: the log does not go with the rows, and the operator
    /// chose to start all the same.
    pub(crate) fn replay(&self, schema: Arc<TableSchema>) -> Result<Result<ReplayedTable, String>> {
        let engine: Arc<dyn tarn_rows::Engine> = self.engine.clone();
        let table = Arc::new(Table::open_tuned(
            engine,
            Arc::clone(&schema),
            Arc::clone(&self.clock),
            Tuning::default(),
            Arc::clone(self.catalog.recent_rows()),
        )?);
        let replicas = Arc::new(Replicas::new(Arc::clone(&self.log), Arc::clone(&table)));
        let logs = match replicas.replay() {
            Ok(logs) => logs,
            Err(error) => return self.give_up(error).map(Err),
        };
        let mut damage = None;
        for Log { tablet, damaged_from, failed } in logs {
            let lost = match failed {
                Some(error) => Some(self.give_up(error)?),
                None => damaged_from
                    .map(|from| format!("the log lost what was acknowledged of tablet {tablet}, from entry {from} on")),
            };
            damage = damage.or(lost);
        }
        Ok(Ok(ReplayedTable { table, replicas, damage }))
    }

    /// A log that lost something: an error that names the remedy or, if the operator chose it, what is lost.
    fn give_up(&self, error: tarn_replica::Error) -> Result<String> {
        let is_the_log = error.kind() == Kind::Corrupt && !matches!(error, tarn_replica::Error::Replay { .. });
        match self.settings.log_recovery {
            _ if !is_the_log => Err(error.into()),
            LogRecovery::Quarantine => Ok(error.to_string()),
            LogRecovery::Refuse => {
                Err(Error::from(error).with_hint(quarantine_hint(&self.settings.data_dir.join("log"))))
            }
        }
    }
}
