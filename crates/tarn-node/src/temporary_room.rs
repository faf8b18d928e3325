//! What do the temporary tables of a node have in common? Their ids, and the memory that they may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tarn_rows::RecentBytes;
use tarn_types::TableId;

use crate::error::{Error, ErrorKind, Result};

/// See the module.
#[derive(Default)]
pub(crate) struct TemporaryRoom {
    n_made: AtomicU32,
    /// What they take: engines and recent rows.
    bytes: Arc<RecentBytes>,
}

impl TemporaryRoom {
    /// Ids come again after two billion tables.
    pub(crate) fn next_id(&self) -> TableId {
        let TableId(first) = TableId::FIRST_TEMPORARY;
        TableId(first + self.n_made.fetch_add(1, Ordering::Relaxed) % (u32::MAX - first))
    }

    /// Where a table counts what it takes.
    pub(crate) fn bytes(&self) -> &Arc<RecentBytes> {
        &self.bytes
    }

    /// Errors: `Limit` when all of them take as much as they may.
    pub(crate) fn check(&self, limit_bytes: u64) -> Result<()> {
        let used = self.bytes.get();
        if used < limit_bytes {
            return Ok(());
        }
        let message = format!("temporary tables take {used} bytes, the limit is {limit_bytes}");
        Err(Error::new(ErrorKind::Limit, message).with_hint(
            "DROP or TRUNCATE those that are not needed: rows that were changed or deleted take their room until then; or raise temporary_bytes",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_of_their_own_kind_and_come_round() {
        let room = TemporaryRoom::default();
        assert_eq!(room.next_id(), TableId::FIRST_TEMPORARY);
        room.n_made.store(u32::MAX >> 1, Ordering::Relaxed);
        assert!((0..3).all(|_| room.next_id().is_temporary()));
    }

    #[test]
    fn writers_are_told_when_there_is_no_room() {
        let room = TemporaryRoom::default();
        assert!(room.check(1).is_ok());
        assert_eq!(room.check(0).unwrap_err().kind(), ErrorKind::Limit);
    }
}
