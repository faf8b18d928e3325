//! How large, how packed, how eager: what an operator may choose about lake files.

use serde::{Deserialize, Serialize};

/// Plain data with sensible defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// A file is closed once it has this many bytes. Default 256 MiB: 50,000 files make 12 TB.
    pub target_file_bytes: u64,
    /// Or this many rows. Default 2^30; addresses count rows in 32 bits.
    pub target_file_rows: u64,
    /// Rows of a row group, the unit of pruning and of parallel scans. Default 262,144; less for wide rows.
    pub row_group_rows: usize,
    /// Rows of a row group take no more memory than this while they are written. Default 128 MiB.
    pub row_group_bytes: usize,
    /// Rows of a page, the least that a read by address decodes. Default 8,192, one batch of a scan.
    pub page_rows: usize,
    /// Of pages. Default LZ4.
    pub compression: Compression,
    /// Bytes of one part of an upload; smaller objects are put in one request. Default 8 MiB (S3 wants at least 5).
    pub part_bytes: usize,
    /// Text and byte bounds longer than this are shortened (and marked inexact). Default 64.
    pub statistics_bytes: usize,
    /// Compaction takes files of one size class once there are so many of them. Default 8.
    pub compact_files: usize,
    /// Compaction rewrites a file once this share of its rows is dead. Default 0.2.
    pub compact_dead: f64,
    /// Files merged at once. Each holds a row group in memory. Default 16.
    pub compact_fan_in: usize,
    /// Rows merged at once; their new addresses are held in memory. Default 16 Mi.
    pub compact_rows: u64,
}

/// How pages are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Pages as they are.
    None,
    /// Unpacks at several GB/s: scans of local files and of cached pages wait for the CPU, not for bytes.
    Lz4,
    /// A third smaller, three times slower to unpack: for remote storage without a cache. 1 to 22.
    Zstd(i32),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            target_file_bytes: 256 << 20,
            target_file_rows: 1 << 30,
            row_group_rows: 1 << 18,
            row_group_bytes: 128 << 20,
            page_rows: 8192,
            compression: Compression::Lz4,
            part_bytes: 8 << 20,
            statistics_bytes: 64,
            compact_files: 8,
            compact_dead: 0.2,
            compact_fan_in: 16,
            compact_rows: 16 << 20,
        }
    }
}
