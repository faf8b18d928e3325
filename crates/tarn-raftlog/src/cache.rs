//! Which payloads need no disk?
//!
//! The newest payloads of each group, as the caller handed them in, lie beside its index ([`crate::index::Group::kept`]):
//! a tail of the group's entries. What is not yet durable is always there (it may be nowhere else). What is durable
//! leaves oldest first, over all groups, when the budget is exceeded: [`Arrivals`] remembers the order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::index::Group;

/// Payloads of neighbouring entries of one batch, back to back.
#[derive(Debug)]
pub struct Kept {
    pub first: u64,
    pub n: u64,
    pub lsn: u64,
    data: Bytes,
}

/// What a kept piece costs beside its bytes.
const PIECE_BYTES: u64 = 64;
const FEW: usize = 16;

fn cost(data: &Bytes) -> u64 {
    data.len() as u64 + PIECE_BYTES
}

/// Order of arrival of what is kept, and how much it is.
#[derive(Debug, Default)]
pub struct Arrivals {
    order: Mutex<VecDeque<(u64, u64)>>,
    bytes: AtomicU64,
}

impl Arrivals {
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Keeps the payloads of `n` entries from `first` on, the newest of `group`; [`Arrivals::note`] must follow, before
    /// the group's lock is let go.
    pub fn keep(&self, group: &mut Group, first: u64, n: u64, data: Bytes, lsn: u64) {
        self.bytes.fetch_add(cost(&data), Ordering::Relaxed);
        group.kept.push_back(Kept { first, n, lsn, data });
    }

    /// So many pieces of these groups were kept.
    pub fn note(&self, groups: impl Iterator<Item = u64>, lsn: u64) {
        self.order.lock().extend(groups.map(|id| (id, lsn)));
    }

    /// Forgets the kept payloads up to `upto`, whose places are still known.
    pub fn purge(&self, group: &mut Group, upto: u64) {
        while let Some(front) = group.kept.front_mut() {
            if front.first > upto {
                return;
            }
            let drop = (upto + 1 - front.first).min(front.n);
            let (first, n) = (front.first, front.n);
            if drop == n {
                self.forget(group.kept.pop_front());
                continue;
            }
            let bytes = group.bytes_in(first..first + drop);
            if let Some(front) = group.kept.front_mut() {
                (front.first, front.n) = (first + drop, n - drop);
                drop_front(&mut front.data, bytes);
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
            return;
        }
    }

    /// Forgets the kept payloads after `index`, whose places are still known.
    pub fn truncate_after(&self, group: &mut Group, index: u64) {
        while let Some(back) = group.kept.back() {
            let (first, n) = (back.first, back.n);
            if first + n <= index + 1 {
                return;
            }
            if first > index {
                self.forget(group.kept.pop_back());
                continue;
            }
            let keep = index + 1 - first;
            let bytes = group.bytes_in(first..first + keep);
            if let Some(back) = group.kept.back_mut() {
                self.bytes.fetch_sub(back.data.len() as u64 - bytes, Ordering::Relaxed);
                back.n = keep;
                back.data.truncate(bytes as usize);
            }
            return;
        }
    }

    pub fn clear(&self, group: &mut Group) {
        while let Some(kept) = group.kept.pop_back() {
            self.forget(Some(kept));
        }
    }

    fn forget(&self, kept: Option<Kept>) {
        let bytes = kept.map_or(0, |kept| cost(&kept.data));
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Groups and batches of the oldest arrivals, if more than `budget_bytes` are kept, as far as they are durable; a few
    /// at a time. The caller drops them with [`Arrivals::evict`].
    pub fn next_to_go(&self, budget_bytes: u64, durable_lsn: u64, few: &mut Vec<(u64, u64)>) {
        few.clear();
        if self.bytes() <= budget_bytes {
            return;
        }
        let mut order = self.order.lock();
        while few.len() < FEW
            && let Some(oldest) = order.pop_front_if(|&mut (_, lsn)| lsn <= durable_lsn)
        {
            few.push(oldest);
        }
    }

    pub fn evict(&self, group: &mut Group, lsn: u64) {
        if group.kept.front().is_some_and(|kept| kept.lsn <= lsn) {
            self.forget(group.kept.pop_front());
        }
    }
}

fn drop_front(data: &mut Bytes, n: u64) {
    let _dropped = data.split_to(n as usize);
}

/// Walks kept payloads in index order; one summing of lengths for a whole range.
pub struct KeptReader<'a> {
    group: &'a Group,
    piece: usize,
    /// Where the next entry of the piece starts.
    at: usize,
}

impl<'a> KeptReader<'a> {
    /// Ready for entries from `lo` on, which must be live.
    pub fn new(group: &'a Group, lo: u64) -> KeptReader<'a> {
        let piece = group.kept.partition_point(|kept| kept.first + kept.n <= lo);
        let mut reader = KeptReader { group, piece, at: 0 };
        if let Some(kept) = group.kept.get(piece)
            && kept.first <= lo
        {
            reader.at = group.bytes_in(kept.first..lo) as usize;
        }
        reader
    }

    /// The payload of `index`, which must not be below those asked for before, if it is kept.
    pub fn payload(&mut self, index: u64, len: usize) -> Option<Bytes> {
        let kept = self.group.kept.get(self.piece)?;
        if index < kept.first {
            return None;
        }
        let payload = kept.data.slice(self.at..self.at + len);
        self.at += len;
        if index + 1 == kept.first + kept.n {
            self.piece += 1;
            self.at = 0;
        }
        Some(payload)
    }
}
