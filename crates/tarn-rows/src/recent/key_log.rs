//! Which keys changed, in which order did they first come? An arena: no allocation per key.

/// Append-only; a reader that knows a length sees the same keys below it for ever.
#[derive(Debug)]
pub(crate) struct KeyLog {
    arena: Vec<u8>,
    /// Key i is `arena[ends[i] .. ends[i + 1]]`.
    ends: Vec<usize>,
}

impl Default for KeyLog {
    fn default() -> Self {
        Self { arena: Vec::new(), ends: vec![0] }
    }
}

impl KeyLog {
    pub(crate) fn push(&mut self, key: &[u8]) {
        self.arena.extend_from_slice(key);
        self.ends.push(self.arena.len());
    }

    pub(crate) fn get(&self, arrival: usize) -> &[u8] {
        &self.arena[self.ends[arrival]..self.ends[arrival + 1]]
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.arena.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}
