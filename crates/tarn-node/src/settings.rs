//! What can be set of a node, and what is it by default?

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Serialize;
use tarn_types::settings::{
    ParseResult, bytes, duration_ms, optional, optional_path, path, positive, positive_ms, switch, text,
};

/// What a node does with a log that lost something acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogRecovery {
    /// Does not start, and changes nothing.
    Refuse,
    /// Starts. Tables that lost something show what is left of them and take no writes.
    Quarantine,
}

tarn_types::settings! {
    /// The settings of one node.
    pub struct NodeSettings {
        data_dir: PathBuf = "tarn-data", path, "folder of the log, the row engine, the metastore and, unless `lake` says otherwise, the lake";
        lake: Option<String> = "", optional, "where lake files live: a folder, s3://bucket/prefix, gs://… or az://… (credentials: docs/archives.md); empty = <data_dir>/lake";
        attach_roots: String = "", text, "folders and URLs below which ATTACH may look, with commas between them; empty = anywhere without users, nowhere with users";
        rows_memory_bytes: u64 = "256MiB", bytes, "block cache and write buffers of the row engine";
        recent_limit_bytes: u64 = "384MiB", bytes, "recent (undelivered) rows kept in memory, all tables together; writers wait when it is reached, and those of tables whose delivery fails at half of it";
        temporary_bytes: u64 = "256MiB", bytes, "memory of temporary tables, those of all sessions together; who writes to one gets 53400 when it is reached";
        write_wait_ms: u64 = "60000", duration_ms, "how long a writer waits for that room before it fails with 53400";
        footer_cache_bytes: u64 = "64MiB", bytes, "parsed Parquet footers kept in memory";
        metastore: String = "embedded", metastore, "where versions, files and blocks are kept: embedded = <data_dir>/meta, or the URL of a database";
        metastore_timeout_ms: u64 = "10s", positive_ms, "a database of the metastore that does not answer for so long is taken for unavailable (08006)";
        metastore_concurrency: usize = "64", positive, "requests of one call to it that are on the way at once";
        metastore_hedge_ms: u64 = "0", duration_ms, "a read that it has not answered by then is asked of another node too; 0 = never";
        metastore_cache_bytes: u64 = "64MiB", bytes, "metadata of files, put together from what the metastore says of their columns, kept in memory; 0 = none";
        cache_folder: Option<PathBuf> = "", optional_path, "folder of what is kept near on disk; empty = <data_dir>/cache";
        cache_local: bool = "false", switch, "keep pages and listings of local folders near, too (network file systems)";
        cache_pages: bool = "true", switch, "keep pages of files in object storage near";
        cache_page_bytes: u64 = "256KiB", page_size, "size of such a page; another size empties the folder at the next start";
        cache_pages_ram_bytes: u64 = "256MiB", bytes, "memory for pages";
        cache_pages_disk_bytes: u64 = "10GiB", bytes, "disk for pages; 0 = memory only";
        cache_fragments: bool = "true", switch, "keep what leaves of plans (filter, projection, partial aggregate) gave of a file";
        cache_fragments_ram_bytes: u64 = "64MiB", bytes, "memory for such results";
        cache_fragments_disk_bytes: u64 = "2GiB", bytes, "disk for such results; 0 = memory only";
        cache_ttl_ms: u64 = "0", duration_ms, "pages and results that are older are fetched or computed anew; 0 = any age, as no answer depends on it";
        cache_listings: bool = "true", switch, "keep listings of an archive's sealed directories";
        cache_listings_bytes: u64 = "64MiB", bytes, "memory for listings, for each archive";
        cache_listings_ttl_ms: u64 = "1d", duration_ms, "a kept listing that is older is made anew";
        cache_sealed_after_ms: u64 = "1d", duration_ms, "a directory is sealed when nothing in it is younger";
        cache_open: String = "", text, "directories that are always listed: paths with * for any characters of one name, blanks between them";
        log_segment_bytes: u64 = "64MiB", bytes, "size of one segment file of the log";
        log_cache_bytes: u64 = "32MiB", bytes, "log entries kept in memory for readers near the head";
        log_flush_bytes: u64 = "256MiB", bytes, "the row engine is flushed when this much log would have to be replayed";
        log_recovery: LogRecovery = "refuse", log_recovery, "a log that lost something acknowledged: refuse = do not start; quarantine = start, and serve the tables concerned read-only";
        abandon_tablets: String = "", tablets, "tablets that log and rows have and no table: given up for good at this start, instead of refusing it; 3,5-8 as that error names them";
        background_interval_ms: u64 = "1s", positive_ms, "how often each table is looked at for delivery, compaction, eviction and log trimming";
        background: bool = "true", switch, "run that background work at all (tests and benches drive it by hand instead)";
        tablet_split_bytes: u64 = "1GiB", bytes, "a tablet whose rows take more of the row engine's files is split after a delivery; 0 = never by itself";
        compaction: bool = "true", switch, "merge small lake files in the background";
        lake_target_file_bytes: u64 = "256MiB", bytes, "size at which a new lake file is begun";
        lake_row_group_rows: usize = "262144", positive, "rows of one block (Parquet row group)";
        versions_kept_ms: u64 = "1h", duration_ms, "how long a superseded lake version and its files stay readable (AS OF)";
        scrub_bytes_per_s: u64 = "8MiB", bytes, "how much of the lake is read in a second in the background, to find damage before somebody asks for the rows; 0 = nothing";
        scrub_interval_ms: u64 = "7d", duration_ms, "how long after the begin of one such round over all files the next begins";
        reserve_bytes: u64 = "64MiB", bytes, "room held back in <data_dir>/RESERVE, at most a sixteenth of the disk: it is given back when the disk fills, and writes are refused (53100) until there is room for it again; 0 = none";
        shutdown_ms: u64 = "30s", duration_ms, "how long running statements may finish after a stop was asked for";
    }
}

impl NodeSettings {
    /// The folder or URL of the lake, the default filled in.
    pub fn lake_location(&self) -> String {
        self.lake.clone().unwrap_or_else(|| self.data_dir.join("lake").display().to_string())
    }

    /// The folder of caches on disk, the default filled in.
    pub fn cache_location(&self) -> PathBuf {
        self.cache_folder.clone().unwrap_or_else(|| self.data_dir.join("cache"))
    }
}

fn metastore(value: &str) -> ParseResult<String> {
    if value.is_empty() { Err("embedded, or the URL of a database") } else { text(value) }
}

fn page_size(value: &str) -> ParseResult<u64> {
    const WANT: &str = "a size from 4KiB to 64MiB";
    let size = bytes(value).map_err(|_| WANT)?;
    if (4 << 10..=64 << 20).contains(&size) { Ok(size) } else { Err(WANT) }
}

fn log_recovery(value: &str) -> ParseResult<LogRecovery> {
    match value {
        "refuse" => Ok(LogRecovery::Refuse),
        "quarantine" => Ok(LogRecovery::Quarantine),
        _ => Err("refuse or quarantine"),
    }
}

fn tablets(value: &str) -> ParseResult<String> {
    tablet_ranges(value).ok_or("numbers of tablets, such as 3,5-8").and_then(|_| text(value))
}

/// The tablets of the setting `abandon_tablets`; None when it cannot be read.
pub fn tablet_ranges(text: &str) -> Option<Vec<RangeInclusive<u32>>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(range).collect()
}
