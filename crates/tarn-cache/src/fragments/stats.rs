//! What did the fragment cache do, and what does it hold?

/// Counters since the cache was opened. Fragments unless the name says bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FragmentStats {
    /// Found in memory.
    pub ram_hits: u64,
    /// Found on disk.
    pub disk_hits: u64,
    /// Found nowhere.
    pub misses: u64,
    /// Bytes found in memory.
    pub ram_bytes: u64,
    /// Bytes found on disk.
    pub disk_bytes: u64,
    /// Taken in: put, and neither in memory nor on disk before.
    pub kept: u64,
    /// Said to be not worth it.
    pub refused: u64,
    /// Left memory to make room.
    pub ram_evicted: u64,
    /// Left the disk to make room.
    pub disk_evicted: u64,
    /// Bytes that left the disk to make room.
    pub disk_evicted_bytes: u64,
    /// Too old when they were looked for: each was a miss.
    pub expired: u64,
    /// Written to disk.
    pub written: u64,
    /// Not written to disk, because too much was waiting to be.
    pub dropped: u64,
    /// Not written to disk, because writing has stopped.
    pub not_written: u64,
    /// Files that were not what was written, or gone: each was a miss.
    pub damaged: u64,
    /// Writes that failed. The first one stops writing.
    pub write_failures: u64,
}

/// What the fragment cache holds now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FragmentsHeld {
    /// Fragments in memory.
    pub ram_fragments: u64,
    /// Their memory, keys included.
    pub ram_bytes: u64,
    /// Fragments on disk.
    pub disk_fragments: u64,
    /// What their files take.
    pub disk_bytes: u64,
    /// Memory of what waits to be written, keys included.
    pub waiting_bytes: u64,
    /// Keys remembered as not worth it.
    pub refused_keys: u64,
    /// Why nothing is written to disk any more.
    pub stopped: Option<String>,
}

/// What [`FragmentCache::clear`](crate::FragmentCache::clear) dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FragmentsCleared {
    /// Fragments that left memory.
    pub ram_fragments: u64,
    /// Fragments that left the disk.
    pub disk_fragments: u64,
}
