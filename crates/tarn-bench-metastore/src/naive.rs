//! What was the first model like: Postgres with a row a block that has the whole filter, tested by the client?
//!
//! The published 30 s came from it. One hour is put in, all of it is fetched and tested, warm; more hours cost as much
//! each.

use anyhow::{Result, ensure};
use bytes::Bytes;
use serde::Serialize;
use tarn_metastore::Bloom;
use tokio_postgres::NoTls;

use crate::measure::Latency;
use crate::workload::{Extent, WorkloadSize, block_metadata, clauses};

/// What was measured of one hour, and what that comes to.
#[derive(Debug, Serialize)]
pub struct NaiveReport {
    pub blocks: u64,
    pub latency: Latency,
    pub bytes_read: u64,
    /// For all blocks of the workload: `latency` times the hours.
    pub scaled_to_blocks: u64,
    pub scaled_ms: f64,
}

/// Makes one hour's rows in tables of its own, and fetches and tests all of them.
pub async fn run(url: &str, size: WorkloadSize, calls: usize, say: &dyn Fn(&str)) -> Result<NaiveReport> {
    say("naive Postgres: whole filters");
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute(
            "DROP TABLE IF EXISTS tarn_bench_naive; CREATE TABLE tarn_bench_naive (block bigint PRIMARY KEY, bloom bytea);
             ALTER TABLE tarn_bench_naive ALTER bloom SET STORAGE EXTERNAL",
        )
        .await?;
    let insert = client.prepare("INSERT INTO tarn_bench_naive VALUES ($1, $2)").await?;
    let first = size.blocks - size.hour_blocks.min(size.blocks);
    for number in first..size.blocks {
        let bloom = block_metadata(number, &size, Extent::Whole).bloom;
        let bits = bloom.as_ref().map_or(&[][..], |bloom| bloom.bits());
        client.execute(&insert, &[&(number as i64), &bits]).await?;
    }
    let blocks = size.blocks - first;
    let keys = clauses().remove(0).remove(0);
    let (mut times, mut bytes_read) = (Vec::new(), 0);
    for call in 0..=calls {
        let start = std::time::Instant::now();
        let (mut kept, mut n_bytes) = (0, 0);
        for row in client.query("SELECT bloom FROM tarn_bench_naive", &[]).await? {
            let bits: &[u8] = row.get(0);
            n_bytes += bits.len() as u64;
            let bloom = Bloom::from_bits(Bytes::copy_from_slice(bits));
            kept += u64::from(bloom.is_none_or(|bloom| keys.iter().all(|key| bloom.may_contain(*key))));
        }
        ensure!((3..blocks / 20 + 10).contains(&kept), "{kept} blocks kept");
        bytes_read = n_bytes;
        // The first call warms the server.
        if call > 0 {
            times.push(start.elapsed());
        }
    }
    client.batch_execute("DROP TABLE tarn_bench_naive").await?;
    let latency = Latency::of(times);
    let scaled_ms = latency.p50_ms * size.blocks as f64 / blocks as f64;
    Ok(NaiveReport { blocks, latency, bytes_read, scaled_to_blocks: size.blocks, scaled_ms })
}
