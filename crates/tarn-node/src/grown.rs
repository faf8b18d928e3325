//! Which tablets have grown too large? They are split where about half of their rows are before.

use std::sync::Arc;

use tarn_types::TabletId;

use crate::catalog::TableHandle;
use crate::error::{ErrorKind, Result};
use crate::threads::blocking;

/// Splits the tablets of a table whose rows take more than `max_bytes` of the row engine's files, each in about its
/// middle; answers how many. To be called after a delivery: what a tablet came with is in the lake then, and it has the
/// fewest recent rows to look at.
pub(crate) async fn split(table: &Arc<TableHandle>, max_bytes: u64) -> Result<u64> {
    let table = Arc::clone(table);
    blocking(move || {
        let mut n_new = 0;
        for tablet in table.table.tablet_map().ids() {
            let bytes = table.table.rows_bytes(tablet)?;
            if bytes <= max_bytes {
                continue;
            }
            // A partition is not split.
            let Some(at) = table.table.middle_of(tablet)? else { continue };
            match split_at(&table, &at) {
                Ok(new) => {
                    n_new += 1;
                    tracing::info!(table = %table.schema().name, %tablet, %new, bytes, "a tablet grew and was split");
                }
                // What it came with is not delivered yet, or all ids are taken.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid) => {
                    tracing::debug!(table = %table.schema().name, %tablet, bytes, %error, "a tablet is not split");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(n_new)
    })
    .await
}

/// Splits the tablet that has the key `at`. Durable when it returns.
pub(crate) fn split_at(table: &TableHandle, at: &[u8]) -> Result<TabletId> {
    // A table that is dropped meanwhile gets no tablet more.
    let _in_use = table.enter()?;
    Ok(table.replicas()?.split(at)?)
}
