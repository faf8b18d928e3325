//! How long does each query take: from far away and near, with each layer of caches alone, with all and with none?
//!
//! Each arrangement has a server of its own, started on the same tables with empty caches. A query runs once to fill
//! them (over a line without delay, unless that run is a figure itself), then `rounds` times. Where nothing that is
//! read stays near, one run is enough, and takes long.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::options::{Store, TpchOptions};
use super::progress;
use super::queries::Query;
use super::summary::Summary;
use super::way::{Run, RunMode};
use super::workspace::{Lake, Workspace};
use crate::far_store::{FarStore, Line};
use crate::report::{Report, ms_since};
use crate::server::ServerProcess;

/// Every query in every way that is asked for; servers are started one after the other.
pub async fn measure(
    options: &TpchOptions,
    workspace: &Workspace,
    summary: &mut Summary,
    report: &mut Report,
) -> Result<()> {
    let store = FarStore::serve(&workspace.objects(), options.line()).await?;
    let far = [RunMode::FarOff, RunMode::Metadata, RunMode::Pages, RunMode::Fragments, RunMode::Warm];
    let near = [RunMode::LocalOff, RunMode::LocalWarm];
    let ways: Vec<RunMode> = match options.store {
        Store::S3 => far.into_iter().chain(near).collect(),
        Store::Local => near.to_vec(),
    };
    for way in ways {
        let lake = if way.is_far() { Lake::Far(&store) } else { Lake::Near };
        let server = workspace.start(options, lake, way.caches()).await?;
        if way == RunMode::Fragments
            && server.rows("SELECT layer FROM tarn.caches WHERE layer = 'fragments'").await?.is_empty()
        {
            eprintln!("{} is left out: the server has no such layer", way.name());
            continue;
        }
        one_way(options, way, &server, &store, summary).await?;
        report.record(&format!("{}_peak_rss_mb", way.name()), "MiB", vec![server.peak_rss_mb()?]);
        server.stop().await?;
    }
    Ok(())
}

async fn one_way(
    options: &TpchOptions,
    way: RunMode,
    server: &ServerProcess,
    store: &FarStore,
    summary: &mut Summary,
) -> Result<()> {
    let queries: Vec<_> = options.asked().collect();
    let bar = progress::bar(way.name(), queries.len() as u64)?;
    for query in queries {
        bar.set_message(query.name());
        if way == RunMode::Warm {
            server.execute("SYSTEM DROP CACHE").await?;
        }
        match way.first() {
            Some(way) => {
                let first = run(options, query, server, store, summary).await?;
                summary.add(query.number, way, first);
            }
            None => {
                store.set_line(Line::default());
                run(options, query, server, store, summary).await?;
                store.set_line(options.line());
            }
        }
        for _ in 0..way.rounds(options) {
            let run = run(options, query, server, store, summary).await?;
            summary.add(query.number, way, run);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

async fn run(
    options: &TpchOptions,
    query: &Query,
    server: &ServerProcess,
    store: &FarStore,
    summary: &mut Summary,
) -> Result<Run> {
    let sql = query.sql(options.sf);
    store.take_asked();
    let cpu_before = server.cpu_s()?;
    let started = Instant::now();
    let n_rows = server.rows(&sql).await?.len();
    let ms = ms_since(started);
    let (cpu_s, asked) = (server.cpu_s()? - cpu_before, store.take_asked());
    let expected = summary.expect_rows(query.number, n_rows);
    ensure!(expected == n_rows, "{} has {n_rows} rows, and had {expected}", query.name());
    Ok(Run { ms, cpu_s, asked })
}
