//! How fast is what is asked of blocks answered?

use std::time::Instant;

use anyhow::{Result, ensure};
use serde::Serialize;
use tarn_metastore::{BlockMetadataRequest, HourBlocks, Metastore, Probe, VersionSelector, hour_blocks};
use tarn_types::{ColumnId, TableId};

use crate::measure::Latency;
use crate::workload::{ASKED_COLUMNS, WorkloadSize, asked_columns, clauses};

/// All hours there are.
pub const EVERY: i64 = i64::MAX / 2;

/// One kind of question.
#[derive(Debug, Serialize)]
pub struct QueryStats {
    pub blocks: u64,
    pub latency: Latency,
    /// Of one call, as the backend counts them.
    pub bytes_read: u64,
}

/// All kinds of questions.
#[derive(Debug, Serialize)]
pub struct ReadStats {
    pub list_hour: Latency,
    pub list_day: Latency,
    pub probe_hour: QueryStats,
    pub probe_all: QueryStats,
    /// Places and bounds of ten columns.
    pub columns_hour: QueryStats,
    pub columns_all: QueryStats,
    /// Places alone, as a scan asks for them.
    pub chunks_hour: QueryStats,
}

/// Warm: everything is asked once before it is timed.
pub async fn reads(metastore: &dyn Metastore, table: TableId, size: &WorkloadSize, calls: usize) -> Result<ReadStats> {
    let columns = asked_columns(size.columns);
    let (list_hour, newest) = timed(calls, async || list(metastore, table, 1).await).await?;
    let (list_day, _) = timed(calls, async || list(metastore, table, 24).await).await?;
    let whole = list(metastore, table, EVERY).await?;
    let few = calls.div_ceil(4);
    Ok(ReadStats {
        list_hour,
        list_day,
        probe_hour: probe(metastore, table, 1, size.hour_blocks, calls).await?,
        probe_all: probe(metastore, table, EVERY, size.blocks, calls).await?,
        columns_hour: block_metadata(metastore, table, &newest, &columns, true, calls).await?,
        columns_all: block_metadata(metastore, table, &whole, &columns, true, few).await?,
        chunks_hour: block_metadata(metastore, table, &newest, &columns, false, calls).await?,
    })
}

async fn timed<T>(calls: usize, mut call: impl AsyncFnMut() -> Result<T>) -> Result<(Latency, T)> {
    let mut last = call().await?;
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        last = call().await?;
        times.push(start.elapsed());
    }
    Ok((Latency::of(times), last))
}

/// What a search does first: the version, and of its files those of the last hours.
pub async fn list(metastore: &dyn Metastore, table: TableId, hours: i64) -> Result<Vec<HourBlocks>> {
    let version = metastore.snapshot(table, VersionSelector::Latest).await?;
    let newest = version.files.iter().map(|file| file.hour).max().unwrap_or(0);
    Ok(hour_blocks(version.files.iter().filter(|file| file.hour > newest - hours)))
}

async fn probe(metastore: &dyn Metastore, table: TableId, hours: i64, asked: u64, calls: usize) -> Result<QueryStats> {
    let (latency, probed) = timed(calls, async || {
        let hours = list(metastore, table, hours).await?;
        Ok(metastore.probe(table, Probe { hours, clauses: clauses() }).await?)
    })
    .await?;
    ensure!(probed.kept.len() >= 3 && probed.kept.len() < asked / 20 + 10, "{} blocks kept", probed.kept.len());
    Ok(QueryStats { blocks: asked, latency, bytes_read: probed.bytes_read })
}

/// Of these columns of all blocks of these hours.
pub async fn block_metadata(
    metastore: &dyn Metastore,
    table: TableId,
    hours: &[HourBlocks],
    columns: &[ColumnId],
    stats: bool,
    calls: usize,
) -> Result<QueryStats> {
    let blocks: u64 = hours.iter().map(|of| of.blocks.len() as u64).sum();
    let (latency, found) = timed(calls, async || {
        let (hours, columns) = (hours.to_vec(), Some(columns.to_vec()));
        Ok(metastore
            .block_metadata(table, BlockMetadataRequest { hours, columns, stats, chunks: true, blooms: false })
            .await?)
    })
    .await?;
    let is_whole = found.columns.len() == ASKED_COLUMNS as usize
        && found.columns.iter().all(|column| column.blocks.len() as u64 == blocks);
    ensure!(is_whole, "metadata of columns is missing");
    Ok(QueryStats { blocks, latency, bytes_read: found.bytes_read })
}
