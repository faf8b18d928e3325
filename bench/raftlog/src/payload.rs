//! Which bytes are written?
//!
//! Entries that compress about two to one: of every 64 bytes, 32 are random and 32 are one repeated byte. Two
//! generators: a pool of distinct payloads for speed (no two within one commit are equal, or an engine that compresses
//! whole batches would find them), and one payload per (group, index) where every byte is checked afterwards.

use bytes::Bytes;

/// A pool is about this large in memory, and at least 64 payloads.
const POOL_BYTES: u64 = 16 << 20;
const MAX_POOL: u64 = 8192;

/// The next number of the splitmix64 sequence.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `len` bytes decided by `seed`.
pub fn payload(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(len as usize + 64);
    while bytes.len() < len as usize {
        for _ in 0..4 {
            bytes.extend_from_slice(&splitmix(&mut state).to_le_bytes());
        }
        bytes.extend_from_slice(&[b'.'; 32]);
    }
    bytes.truncate(len as usize);
    bytes
}

/// The payload of an entry that will be checked.
pub fn checked_payload(group: u64, index: u64, len: u64) -> Vec<u8> {
    payload(group << 40 | index, len)
}

/// Distinct payloads of one length, handed out in turn without copying.
pub struct Pool {
    payloads: Vec<Bytes>,
}

impl Pool {
    pub fn new(len: u64) -> Pool {
        let n = (POOL_BYTES / len.max(1)).clamp(64, MAX_POOL);
        Pool { payloads: (0..n).map(|i| Bytes::from(payload(i + 1, len))).collect() }
    }

    pub fn get(&self, i: u64) -> Bytes {
        self.payloads[(i % self.payloads.len() as u64) as usize].clone()
    }
}

/// A small seeded sequence of positions.
pub struct Positions(u64);

impl Positions {
    pub fn new(seed: u64) -> Positions {
        Positions(seed)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        splitmix(&mut self.0) % n.max(1)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn payloads_have_their_length_and_differ() {
        assert_eq!(super::payload(1, 100).len(), 100);
        assert_ne!(super::payload(1, 64), super::payload(2, 64));
        assert_eq!(super::payload(1, 128)[32..64], [b'.'; 32]);
    }
}
