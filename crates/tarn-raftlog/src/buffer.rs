//! Where is a frame put together so that the device can take it as it is?
//!
//! Direct writes want memory that starts on a block. A [`Buffer`] has a block more than it needs and begins where the
//! first block begins; it never grows, so it never moves. [`Buffers`] keeps a few for the next frames.

use parking_lot::Mutex;

use crate::format::BLOCK;

const ALIGN: usize = BLOCK as usize;
/// Buffers kept; two frames are in flight at most, and a segment may be prepared beside them.
const KEPT: usize = 3;
/// Larger ones are given back to the system.
const KEPT_BYTES: usize = 4 << 20;
const MIN_BYTES: usize = 64 << 10;

/// Bytes of one write, beginning on a block.
#[derive(Debug)]
pub struct Buffer {
    raw: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new(room: usize) -> Buffer {
        let mut buffer = Buffer { raw: Vec::with_capacity(room.max(MIN_BYTES) + ALIGN), start: 0 };
        buffer.start = buffer.raw.as_ptr().align_offset(ALIGN);
        buffer.clear();
        buffer
    }

    fn clear(&mut self) {
        self.raw.clear();
        self.raw.resize(self.start, 0);
    }

    fn room(&self) -> usize {
        self.raw.capacity() - self.start
    }

    /// Adds bytes within the room it was made for.
    pub fn extend(&mut self, bytes: &[u8]) {
        assert!(self.raw.len() + bytes.len() <= self.raw.capacity(), "a buffer is made as large as its frame");
        self.raw.extend_from_slice(bytes);
    }

    /// Adds zeros up to a multiple of `unit`.
    pub fn pad(&mut self, unit: usize) {
        self.zeros((self.raw.len() - self.start).next_multiple_of(unit) + self.start - self.raw.len());
    }

    /// Adds so many zeros, within the room it was made for.
    pub fn zeros(&mut self, n: usize) {
        assert!(self.raw.len() + n <= self.raw.capacity(), "a buffer is made as large as its frame");
        self.raw.resize(self.raw.len() + n, 0);
    }

    /// What was added, from a block boundary on.
    pub fn bytes(&self) -> &[u8] {
        &self.raw[self.start..]
    }
}

/// A few buffers that wait to be used again.
#[derive(Debug, Default)]
pub struct Buffers {
    free: Mutex<Vec<Buffer>>,
}

impl Buffers {
    /// An empty buffer with room for so many bytes.
    pub fn take(&self, room: usize) -> Buffer {
        let mut free = self.free.lock();
        let fitting = free.iter().position(|buffer| buffer.room() >= room);
        let found = fitting.map(|at| free.swap_remove(at));
        drop(free);
        match found {
            Some(mut buffer) => {
                buffer.clear();
                buffer
            }
            None if room > KEPT_BYTES => Buffer::new(room),
            None => Buffer::new(room.next_power_of_two()),
        }
    }

    /// Hands a buffer back. Too long ones, and those beyond the few that are kept, are freed.
    pub fn give(&self, buffer: Buffer) {
        let mut free = self.free.lock();
        if buffer.raw.capacity() > KEPT_BYTES + ALIGN {
            return;
        }
        if free.len() == KEPT {
            // The smallest goes: a pool of small ones would serve no long frame.
            match free.iter_mut().min_by_key(|kept| kept.room()) {
                Some(smallest) if smallest.room() < buffer.room() => *smallest = buffer,
                _ => {}
            }
            return;
        }
        free.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_start_on_a_block_and_are_used_again() {
        let buffers = Buffers::default();
        for round in 1..50usize {
            let mut buffer = buffers.take(round * 5000 + ALIGN);
            assert_eq!(buffer.bytes(), b"");
            buffer.extend(&vec![round as u8; round * 5000 - 3]);
            buffer.pad(ALIGN);
            assert_eq!(buffer.bytes().as_ptr().align_offset(ALIGN), 0);
            assert_eq!(buffer.bytes().len(), (round * 5000 - 3).next_multiple_of(ALIGN));
            assert!(buffer.bytes()[round * 5000 - 3..].iter().all(|&b| b == 0));
            buffers.give(buffer);
        }
        assert!(buffers.free.lock().len() <= KEPT);
    }
}
