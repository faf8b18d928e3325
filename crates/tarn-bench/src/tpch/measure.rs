//! How long does each query take: from far away and near, with each layer of caches alone, with all and with none?
//!
//! Each arrangement has a server of its own, started on the same tables with empty caches. A query runs once to fill them (over a line
//! without delay, unless that run is a figure itself), then `rounds` times. Where nothing that is read stays near, one run is enough,
//! and takes long.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::options::{Options, Store};
use super::place::{Caches, Lake, Place};
use super::progress;
use super::queries::Query;
use super::summary::Summary;
use crate::far_store::{Asked, FarStore, Line};
use crate::report::{Report, ms_since};
use crate::server::Server;

/// Where the lake is, and what is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The first run after `SYSTEM DROP CACHE`, all layers on.
    Cold,
    FarOff,
    Metadata,
    Pages,
    Fragments,
    Warm,
    LocalOff,
    LocalWarm,
}

/// One run of one query.
#[derive(Debug, Clone)]
pub struct Run {
    pub ms: f64,
    /// CPU time of the server.
    pub cpu_s: f64,
    /// Of the store; of local disks nothing is counted.
    pub asked: Asked,
}

impl Way {
    /// In the order of the table's columns.
    pub const ALL: [Way; 8] =
        [Way::FarOff, Way::Cold, Way::Metadata, Way::Pages, Way::Fragments, Way::Warm, Way::LocalOff, Way::LocalWarm];

    /// In names of figures.
    pub fn name(self) -> &'static str {
        match self {
            Way::FarOff => "far_off",
            Way::Cold => "far_cold",
            Way::Metadata => "far_metadata",
            Way::Pages => "far_pages",
            Way::Fragments => "far_fragments",
            Way::Warm => "far_warm",
            Way::LocalOff => "local_off",
            Way::LocalWarm => "local_warm",
        }
    }

    pub fn is_far(self) -> bool {
        !matches!(self, Way::LocalOff | Way::LocalWarm)
    }

    fn caches(self) -> Caches {
        match self {
            Way::FarOff | Way::LocalOff => Caches::Off,
            Way::Metadata => Caches::Metadata,
            Way::Pages => Caches::Pages,
            Way::Fragments => Caches::Fragments,
            Way::Cold | Way::Warm | Way::LocalWarm => Caches::All,
        }
    }

    /// Of a first run that fills what is near, if that is a figure of its own.
    fn first(self) -> Option<Way> {
        match self {
            Way::Warm => Some(Way::Cold),
            Way::FarOff => Some(Way::FarOff),
            _ => None,
        }
    }

    fn rounds(self, options: &Options) -> usize {
        match self {
            Way::FarOff => 0,
            // Everything but the metadata comes from far away in each round.
            Way::Metadata => 1,
            _ => options.rounds,
        }
    }
}

pub async fn measure(options: &Options, place: &Place, summary: &mut Summary, report: &mut Report) -> Result<()> {
    let store = FarStore::serve(&place.objects(), options.line()).await?;
    let far = [Way::FarOff, Way::Metadata, Way::Pages, Way::Fragments, Way::Warm];
    let near = [Way::LocalOff, Way::LocalWarm];
    let ways: Vec<Way> = match options.store {
        Store::S3 => far.into_iter().chain(near).collect(),
        Store::Local => near.to_vec(),
    };
    for way in ways {
        let lake = if way.is_far() { Lake::Far(&store) } else { Lake::Near };
        let server = place.start(options, lake, way.caches()).await?;
        if way == Way::Fragments
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

async fn one_way(options: &Options, way: Way, server: &Server, store: &FarStore, summary: &mut Summary) -> Result<()> {
    let queries: Vec<_> = options.asked().collect();
    let bar = progress::bar(way.name(), queries.len() as u64)?;
    for query in queries {
        bar.set_message(query.name());
        if way == Way::Warm {
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
    options: &Options,
    query: &Query,
    server: &Server,
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
