//! How well does a cache do?

/// Counters since the cache was made, and what it holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups answered from memory.
    pub hits: u64,
    /// Lookups that were not.
    pub misses: u64,
    /// Values that left to make room.
    pub evicted: u64,
    /// Values held.
    pub entries: u64,
    /// Memory of the values held.
    pub bytes: u64,
    /// What they may take together.
    pub max_bytes: u64,
}
