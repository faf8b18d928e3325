//! How large is a page cache, and where does it lie?

use std::path::PathBuf;

/// Sizes and places of a page cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageOptions {
    /// Bytes of a page: what is fetched, kept and evicted at once. Pages of another size in the folder are deleted at
    /// open. Default 256 KiB.
    pub page_bytes: u32,
    /// Memory for pages. Default 256 MiB.
    pub ram_bytes: u64,
    /// Where pages are kept on disk; `None`: nowhere. Default `None`.
    pub folder: Option<PathBuf>,
    /// Room on disk, whole file-system blocks counted. Default 10 GiB.
    pub disk_bytes: u64,
    /// Memory for pages that wait to be written; more are not written. Default 64 MiB.
    pub waiting_bytes: u64,
    /// Present bytes that are fetched again rather than cutting a request in two. Default 256 KiB.
    pub coalesce_gap_bytes: u64,
    /// Bytes of the largest request; longer runs are fetched by several at once. Default 8 MiB.
    pub max_request_bytes: u64,
}

impl Default for PageOptions {
    fn default() -> Self {
        PageOptions {
            page_bytes: 256 << 10,
            ram_bytes: 256 << 20,
            folder: None,
            disk_bytes: 10 << 30,
            waiting_bytes: 64 << 20,
            coalesce_gap_bytes: 256 << 10,
            max_request_bytes: 8 << 20,
        }
    }
}
