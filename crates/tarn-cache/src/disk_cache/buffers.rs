//! Into which memory is a run of values read? Into one that was read into before, if there is one of that length:
//! making and zeroing memory costs about as much as the copy out of the system's page cache.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// What waits to be used again, at most.
const MAX_FREE_BYTES: usize = 16 << 20;

/// Buffers that nobody has in hand.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<FreeBuffers>);

#[derive(Debug, Default)]
struct FreeBuffers {
    by_len: HashMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

/// A buffer that goes back when the last who reads it lets it go. It holds what was read before, until it is written
/// to.
#[derive(Debug)]
pub(super) struct BufferLease {
    bytes: Vec<u8>,
    home: Arc<Buffers>,
}

impl Buffers {
    pub(super) fn take(self: &Arc<Self>, len: usize) -> BufferLease {
        let mut free = self.0.lock();
        let found = free.pop(len);
        drop(free);
        BufferLease { bytes: found.unwrap_or_else(|| vec![0; len]), home: Arc::clone(self) }
    }
}

impl FreeBuffers {
    fn pop(&mut self, len: usize) -> Option<Vec<u8>> {
        let found = self.by_len.get_mut(&len)?.pop()?;
        self.bytes -= len;
        Some(found)
    }

    /// Keeps `bytes`; when there is no room, those of other lengths go, which nobody may ask for again.
    fn push(&mut self, bytes: Vec<u8>) {
        let len = bytes.len();
        if self.bytes + len > MAX_FREE_BYTES {
            self.by_len.retain(|other, _| *other == len);
            self.bytes = self.by_len.values().flatten().map(Vec::len).sum();
        }
        if self.bytes + len <= MAX_FREE_BYTES {
            self.bytes += len;
            self.by_len.entry(len).or_default().push(bytes);
        }
    }
}

impl Drop for BufferLease {
    fn drop(&mut self) {
        self.home.0.lock().push(std::mem::take(&mut self.bytes));
    }
}

impl Deref for BufferLease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for BufferLease {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for BufferLease {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<BufferLease> for Bytes {
    fn from(lent: BufferLease) -> Bytes {
        Bytes::from_owner(lent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_all_have_let_it_go() {
        let buffers = Arc::new(Buffers::default());
        let mut lent = buffers.take(1000);
        let place = lent.as_ptr();
        lent[0] = 7;
        let bytes = Bytes::from(lent);
        let part = bytes.slice(0..1);
        drop(bytes);
        assert_ne!(buffers.take(1000).as_ptr(), place, "a reader has it");
        assert_eq!(part[0], 7);
        drop(part);
        assert_eq!(buffers.take(999).len(), 999);
        let again: Vec<BufferLease> = (0..2).map(|_| buffers.take(1000)).collect();
        assert!(again.iter().any(|lent| lent.as_ptr() == place));
    }

    #[test]
    fn what_waits_is_bounded() {
        let buffers = Arc::new(Buffers::default());
        for _ in 0..2 {
            drop((0..100).map(|_| buffers.take(1 << 20)).collect::<Vec<_>>());
            assert_eq!(buffers.0.lock().bytes, MAX_FREE_BYTES);
        }
        drop(buffers.take(1000));
        let free = buffers.0.lock();
        assert_eq!((free.bytes, free.by_len.len()), (1000, 1), "other lengths made room");
        drop(free);
        drop(buffers.take(MAX_FREE_BYTES + 1));
        assert_eq!(buffers.0.lock().bytes, 0);
    }
}
