//! What happened to a table after this cursor?

use std::sync::Arc;

use tarn_feed::{Change, ChangeLog};
use tarn_replica::LogReader;
use tarn_rows::TableChanges;
use tarn_types::Cursor;

use crate::auth::{Principal, Privilege};
use crate::catalog::TableHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::tables::TableService;
use crate::threads::blocking;

impl TableService {
    /// Effects that are visible after `after`, ascending and without a gap per tablet; between tablets there is no
    /// order. About `max_bytes` of them, at least one change if there is one: an empty answer means that `after` is
    /// where the table is.
    ///
    /// Cost: recent entries come from memory, others from the log's files.
    /// Errors: `Denied`; `WrongState` when the log does not go back that far.
    pub async fn changes(
        &self,
        who: &Principal,
        table: &Arc<TableHandle>,
        after: &Cursor,
        max_bytes: usize,
    ) -> Result<Vec<Change>> {
        self.may(who, table.schema(), Privilege::Select)?;
        let reader = LogReader::new(Arc::clone(&self.parts.log), Arc::clone(&table.table));
        let (log, after) = (TableChanges::new(Arc::clone(&table.table), Arc::new(reader)), after.clone());
        blocking(move || log.read(&after, max_bytes).map_err(told)).await
    }
}

fn told(error: tarn_feed::Error) -> Error {
    match error {
        tarn_feed::Error::Trimmed { .. } => Error::new(ErrorKind::WrongState, error.to_string())
            .with_hint("read the table in a snapshot, and follow it from the snapshot's position"),
        error => error.into(),
    }
}
