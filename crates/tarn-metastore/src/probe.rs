//! Which of these blocks can hold the keys that a search asks for?
//!
//! ```text
//! clauses   every one must hold        matches(body, 'connection refused') AND status IN (500, 502)
//!   alternatives   one is enough         [[connection, refused]]                 [[status=500], [status=502]]
//!     AllOf   all keys are in the block
//! ```
//!
//! Invariant: a block that has all keys of one alternative of every clause is kept. What is not known of a block keeps
//! it.

use roaring::RoaringBitmap;

use crate::bloom::{CHUNK_BYTES, has_bits};
use crate::{BlockRef, Bloom, Hash, HourBlocks};

/// One of several ways in which a condition can hold: all of these keys are in the block.
pub type AllOf = Vec<Hash>;

/// Blocks that may hold rows for which every clause has a way to hold. A clause without a way never holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probe {
    /// The blocks that are asked about. Answers count them through all hours, in this order.
    pub hours: Vec<HourBlocks>,
    /// Conditions that must all hold, each with the ways in which it can.
    pub clauses: Vec<Vec<AllOf>>,
}

/// What a probe found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProbeResult {
    /// Positions of the probed blocks, counted through all hours.
    pub kept: RoaringBitmap,
    /// Blocks that have no bloom, and are kept.
    pub without_bloom: u64,
    /// Read from the store for this, before any cache of ours.
    pub bytes_read: u64,
}

/// Answers from blooms in memory. `find` looks a block's filter up by hour and place.
pub fn answer<'a>(probe: &Probe, find: impl Fn(i64, BlockRef) -> Option<&'a Bloom>) -> ProbeResult {
    let mut probed = ProbeResult::default();
    let blocks = probe.hours.iter().flat_map(|of_hour| of_hour.blocks.iter().map(|block| (of_hour.hour, *block)));
    for (at, (hour, block)) in (0..).zip(blocks) {
        let Some(bloom) = find(hour, block) else {
            probed.without_bloom += 1;
            probed.kept.insert(at);
            continue;
        };
        let mut has = |key: &Hash| {
            probed.bytes_read += CHUNK_BYTES as u64;
            has_bits(bloom.chunk(key.chunk(bloom.n_chunks())), &key.mask())
        };
        if probe.clauses.iter().all(|ways| ways.iter().any(|keys| keys.iter().all(&mut has))) {
            probed.kept.insert(at);
        }
    }
    probed
}
