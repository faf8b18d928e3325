//! How fast are blocks put in?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tarn_metastore::{Commit, Metastore};
use tarn_types::{FileId, TableId};
use tokio::task::JoinSet;

use crate::measure::Latency;

const MAINTENANCE_BYTES: u64 = 64 << 20;

/// What commits took.
#[derive(Debug, Serialize)]
pub struct Commits {
    pub blocks_per_s: f64,
    pub blocks_per_commit: u64,
    pub latency: Latency,
}

/// How commits come.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Each has one commit under way.
    pub writers: u64,
    pub commits: u64,
    pub blocks_per_commit: u64,
    /// `None`: as fast as it goes.
    pub per_s: Option<u64>,
}

/// Makes commits with `make` from the first of their numbers and of their file ids, with `maintenance` beside them as a
/// server calls it.
pub async fn write(
    metastore: &Arc<dyn Metastore>,
    table: TableId,
    first: FileId,
    pace: Pace,
    make: impl Fn(u64, FileId) -> Commit + Clone + Send + 'static,
) -> Result<Commits> {
    let Pace { writers, commits, blocks_per_commit, per_s } = pace;
    let (next, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let maintenance = tokio::spawn({
        let (metastore, is_over) = (metastore.clone(), is_over.clone());
        async move {
            while !is_over.load(Ordering::Relaxed) {
                let done = metastore.maintain(MAINTENANCE_BYTES).await?;
                if !done.more {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            anyhow::Ok(())
        }
    });
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..writers {
        let (metastore, next, make) = (metastore.clone(), next.clone(), make.clone());
        tasks.spawn(async move {
            let mut times = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= commits {
                    return anyhow::Ok(times);
                }
                let block = number * blocks_per_commit;
                let commit = make(block, FileId(first.0 + block));
                let mut begun = Instant::now();
                if let Some(per_s) = per_s {
                    let due = start + Duration::from_nanos(number * 1_000_000_000 / per_s);
                    // A stall counts for all that it holds up: who comes late began when it was due. A timer that fires
                    // late is none.
                    if begun < due {
                        tokio::time::sleep_until(due.into()).await;
                        begun = Instant::now();
                    } else {
                        begun = due;
                    }
                }
                metastore.commit(table, commit).await?;
                times.push(begun.elapsed());
            }
        });
    }
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    let took = start.elapsed();
    is_over.store(true, Ordering::Relaxed);
    maintenance.await??;
    let blocks_per_s = (commits * blocks_per_commit) as f64 / took.as_secs_f64();
    Ok(Commits { blocks_per_s, blocks_per_commit, latency: Latency::of(times) })
}

/// Until maintenance has nothing to do.
pub async fn tidy(metastore: &dyn Metastore) -> Result<()> {
    while metastore.maintain(MAINTENANCE_BYTES).await?.more {}
    Ok(())
}
