//! Is there room for a write? Recent rows take memory until they are delivered; writers wait for that.

use std::time::Duration;

use crate::catalog::{DeliveryFailure, TableHandle, UndeliveredBytes};
use crate::error::{Error, ErrorKind, Result};
use crate::parts::NodeParts;

impl NodeParts {
    /// Waits until recent rows of all tables take less than the limit, and those of tables whose delivery fails less
    /// than half of it. Before each write.
    ///
    /// Errors: `Limit` when delivery does not make room in `write_wait_ms`, with what is in its way; for a temporary
    /// table, which nobody delivers, at once.
    pub(crate) async fn wait_for_room(&self, handle: &TableHandle) -> Result<()> {
        if handle.schema().id.is_temporary() {
            return self.temporary.check(self.settings.temporary_bytes);
        }
        self.check_writable()?;
        let limit = self.settings.recent_limit_bytes;
        let is_stuck = || handle.stuck.lock().is_some();
        let has_room = |recent: UndeliveredBytes| recent.has_room(limit, is_stuck());
        let recent = self.catalog.recent();
        if recent.is_pressed(limit, is_stuck()) {
            handle.kick.notify_one();
        }
        if has_room(recent) {
            return Ok(());
        }
        self.metrics.write_waits.inc();
        let began_us = self.clock.monotonic_us();
        let wait = async {
            loop {
                // Registered before looking, so that a delivery in between is not missed.
                let made = self.room.notified();
                if has_room(self.catalog.recent()) {
                    return;
                }
                for table in self.catalog.all() {
                    table.kick.notify_one();
                }
                made.await;
            }
        };
        let limit_ms = self.settings.write_wait_ms;
        let waited = tokio::time::timeout(Duration::from_millis(limit_ms), wait).await;
        let waited_us = self.clock.monotonic_us().saturating_sub(began_us);
        self.metrics.write_wait_seconds.observe_us(waited_us);
        tracing::debug!(table = %handle.schema().name, waited_us, has_room = waited.is_ok(), "a write waited for room");
        waited.map_err(|_| self.no_room(handle, limit, limit_ms))
    }

    fn no_room(&self, handle: &TableHandle, limit: u64, waited_ms: u64) -> Error {
        let recent = self.catalog.recent();
        let (table, used) = (&handle.schema().name, recent.bytes + recent.stuck_bytes);
        if let Some(stuck) = handle.stuck() {
            let DeliveryFailure { reason, .. } = &stuck;
            let message = format!(
                "undelivered rows of table \"{table}\" cannot be delivered since {}: {reason}; tables of which that is so take {} bytes, \
                 and may take half of the limit of {limit}; waited {waited_ms} ms",
                stuck.since(),
                recent.stuck_bytes
            );
            return Error::new(ErrorKind::Limit, message)
                .with_hint("other tables are written as before; remove the cause, CALL tarn.deliver to try at once, or DROP TABLE it");
        }
        let failing = self.catalog.stuck();
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
}
