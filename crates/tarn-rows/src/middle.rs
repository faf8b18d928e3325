//! Has a tablet grown too large, and where would it be split?
//!
//! Both are told by what the engine knows of its files: an estimate of the bytes that lie in a range of keys. The
//! middle is found byte by byte, as a word is found in a dictionary; nothing is read but three keys.

use std::ops::Range;

use tarn_types::{TabletId, partition_prefix, prefix_end};

use crate::engine::{Engine, Space};
use crate::error::Result;
use crate::recent::contains;
use crate::table::Table;

/// A half is found to this part of the whole.
const PRECISION: u64 = 64;

/// Keys that agree in so many bytes are not told apart.
const MAX_PREFIX_BYTES: usize = 64;

impl Table {
    /// About how many bytes of the row engine's files a tablet's rows take: what was not flushed does not count, what
    /// was overwritten may. A table that only appends has no rows there. Cost: reads of index blocks.
    pub fn rows_bytes(&self, tablet: TabletId) -> Result<u64> {
        let range = self.tablet(tablet)?.shared.read().range.clone();
        self.base.engine.range_bytes(Space::Rows, &range.start..&range.end)
    }

    /// A place to split a tablet at so that its halves are about equal, in bytes of files: where a partition begins, of
    /// a hashed table a token. `None`: it has one partition alone, or none. Cost: some hundred estimates, three keys
    /// read.
    pub fn middle_of(&self, tablet: TabletId) -> Result<Option<Vec<u8>>> {
        let range = self.tablet(tablet)?.shared.read().range.clone();
        let probe = middle(&*self.base.engine, &range)?;
        let snapshot = self.base.engine.snapshot();
        let partition_at = |from: Vec<u8>| -> Result<Option<Vec<u8>>> {
            let mut rows = snapshot.scan(Space::Rows, from..range.end.clone());
            Ok(rows.next()?.map(|(key, _)| partition_prefix(&self.base.schema(), key)).transpose()?)
        };
        let Some(first) = partition_at(range.start.clone())? else { return Ok(None) };
        match partition_at(probe.max(range.start.clone()))? {
            Some(middle) if middle > first => Ok(Some(middle)),
            // The first one reaches over the middle: what is behind it.
            _ => match prefix_end(&first) {
                Some(behind) if contains(&range, &behind) => partition_at(behind),
                _ => Ok(None),
            },
        }
    }
}

/// A prefix before which about half of the bytes of a range lie.
fn middle(engine: &dyn Engine, range: &Range<Vec<u8>>) -> Result<Vec<u8>> {
    let below = |key: &[u8]| match key {
        key if key <= range.start.as_slice() => Ok(0),
        key => engine.range_bytes(Space::Rows, &range.start..key.min(&range.end)),
    };
    let whole = below(&range.end)?;
    let mut prefix = Vec::new();
    while prefix.len() < MAX_PREFIX_BYTES {
        // The last byte before which there is no more than half.
        let (mut low, mut high) = (0_u16, 256_u16);
        while high - low > 1 {
            let byte = low.midpoint(high);
            prefix.push(byte as u8);
            let is_low = below(&prefix)? <= whole / 2;
            prefix.pop();
            (low, high) = if is_low { (byte, high) } else { (low, byte) };
        }
        prefix.push(low as u8);
        let end = prefix_end(&prefix).unwrap_or_else(|| range.end.clone());
        if below(&end)?.saturating_sub(below(&prefix)?) <= whole / PRECISION {
            break;
        }
    }
    Ok(prefix)
}
