//! What did the page cache do? Counters for everybody and for one query, by the same names.

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counters since the cache was opened, or of one query. Pages unless the name says bytes or calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Found in memory.
    pub ram_hits: u64,
    /// Found on disk.
    pub disk_hits: u64,
    /// Found nowhere: fetched by this reader.
    pub misses: u64,
    /// Fetched or read from disk by another reader at that moment, and waited for.
    pub waited: u64,
    /// Bytes of pages found in memory.
    pub ram_bytes: u64,
    /// Bytes of pages found on disk.
    pub disk_bytes: u64,
    /// Bytes fetched from the store.
    pub remote_bytes: u64,
    /// Bytes that readers asked for.
    pub asked_bytes: u64,
    /// GET requests to the store.
    pub requests: u64,
    /// HEAD requests to the store, where nobody said which state of an object is meant.
    pub heads: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Calls that went past the cache.
    pub bypassed: u64,
    /// Objects that turned out to be replaced between two requests of one call.
    pub replaced: u64,
    /// Left memory to make room.
    pub ram_evicted: u64,
    /// Left the disk to make room.
    pub disk_evicted: u64,
    /// Bytes that left the disk to make room.
    pub disk_evicted_bytes: u64,
    /// Written to disk.
    pub written: u64,
    /// Not written to disk, because too much was waiting to be.
    pub dropped: u64,
    /// Files that were not what was written, or gone: each was a miss.
    pub damaged: u64,
    /// Older than they may be: each was a miss.
    pub expired: u64,
    /// Writes that failed. The first one stops writing.
    pub write_failures: u64,
    /// Not written to disk, because writing has stopped.
    pub refused: u64,
}

impl AddAssign for PageStats {
    fn add_assign(&mut self, more: Self) {
        self.ram_hits += more.ram_hits;
        self.disk_hits += more.disk_hits;
        self.misses += more.misses;
        self.waited += more.waited;
        self.ram_bytes += more.ram_bytes;
        self.disk_bytes += more.disk_bytes;
        self.remote_bytes += more.remote_bytes;
        self.asked_bytes += more.asked_bytes;
        self.requests += more.requests;
        self.heads += more.heads;
        self.failures += more.failures;
        self.bypassed += more.bypassed;
        self.replaced += more.replaced;
        self.ram_evicted += more.ram_evicted;
        self.disk_evicted += more.disk_evicted;
        self.disk_evicted_bytes += more.disk_evicted_bytes;
        self.written += more.written;
        self.dropped += more.dropped;
        self.damaged += more.damaged;
        self.expired += more.expired;
        self.write_failures += more.write_failures;
        self.refused += more.refused;
    }
}

/// What the page cache holds now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PagesHeld {
    /// Pages in memory.
    pub ram_pages: u64,
    /// Their bytes.
    pub ram_bytes: u64,
    /// Pages on disk.
    pub disk_pages: u64,
    /// Their bytes, headers and the rest of the last file-system block included.
    pub disk_bytes: u64,
    /// Bytes that wait to be written.
    pub waiting_bytes: u64,
    /// Why nothing is written to disk any more.
    pub stopped: Option<String>,
}

/// What [`PageCache::clear`](crate::PageCache::clear) dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClearStats {
    /// States of objects that are no longer known.
    pub objects: u64,
    /// Pages that left memory.
    pub ram_pages: u64,
    /// Pages that left the disk.
    pub disk_pages: u64,
}

/// Why a read went past the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotUsed {
    /// The layer is switched off.
    Off,
    /// This request asked for it.
    Asked,
    /// The request has conditions or names a version, which only the store can judge.
    Conditions,
    /// Another object has the same hash. Nobody has seen this yet.
    Hash,
    /// The object was replaced again and again while it was read.
    Changing,
}

impl fmt::Display for NotUsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotUsed::Off => "switched off",
            NotUsed::Asked => "asked to go past it",
            NotUsed::Conditions => "conditions that only the store can judge",
            NotUsed::Hash => "another object has its hash",
            NotUsed::Changing => "the object keeps changing",
        })
    }
}

/// What one query got from the page cache: handed along with its reads, read at its end. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct PageUsage(Arc<Mutex<(PageStats, Option<NotUsed>)>>);

impl PageUsage {
    /// Counters so far.
    pub fn stats(&self) -> PageStats {
        self.0.lock().0
    }

    /// Why some read went past the cache, the last reason if there were several.
    pub fn not_used(&self) -> Option<NotUsed> {
        self.0.lock().1
    }
}

/// Counts for everybody and, where one asked, for the query that caused it.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    all: Arc<Mutex<PageStats>>,
    query: Option<PageUsage>,
}

impl Meter {
    pub(crate) fn new(all: Arc<Mutex<PageStats>>, query: Option<PageUsage>) -> Self {
        Meter { all, query }
    }

    pub(crate) fn add(&self, more: PageStats) {
        *self.all.lock() += more;
        if let Some(PageUsage(query)) = &self.query {
            query.lock().0 += more;
        }
    }

    pub(crate) fn not_used(&self, why: NotUsed) {
        self.add(PageStats { bypassed: 1, ..PageStats::default() });
        if let Some(PageUsage(query)) = &self.query {
            query.lock().1 = Some(why);
        }
    }
}
