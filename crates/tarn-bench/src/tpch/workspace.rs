//! Where the tables lie: a folder with a server's data, what is in its object store, and how it was made; kept for the
//! next run if asked for.
//!
//! ```text
//! DIR/tpch.json          scale factor, store, rows of each table
//! DIR/data               the server's folder: log, rows, metastore; the lake too with --store local
//! DIR/store/tarn/lake    the lake's objects with --store s3: bucket `tarn`, prefix `lake`
//! DIR/files              the lake's Parquet files, linked for other engines, a folder for each table
//! DIR/cache              the caches of the server that is measured; emptied before it starts
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::options::{Store, TpchOptions};
use super::progress;
use super::tables::{TABLES, rows_about};
use crate::far_store::FarStore;
use crate::report::Report;
use crate::scratch::scratch;
use crate::server::ServerProcess;

const BUCKET: &str = "tarn";
const PREFIX: &str = "lake";

/// While loading: what compaction has replaced needs no room.
const LOADING: (&str, &str) = ("TARN_VERSIONS_KEPT_MS", "10s");

/// Nothing else runs while a query is timed.
const MEASURING: (&str, &str) = ("TARN_BACKGROUND", "false");

/// A folder with the tables in it.
pub struct Workspace {
    folder: PathBuf,
    made: WorkspaceManifest,
    /// Removes the folder at the end, if nobody keeps it.
    _scratch: Option<tempfile::TempDir>,
}

#[derive(Serialize, Deserialize)]
struct WorkspaceManifest {
    sf: f64,
    store: Store,
    rows: BTreeMap<String, u64>,
}

/// Which layers a server has on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caches {
    Off,
    Metadata,
    Pages,
    Fragments,
    All,
}

/// From where a server reads its lake.
#[derive(Clone, Copy)]
pub enum Lake<'a> {
    Near,
    Far(&'a FarStore),
}

impl Workspace {
    /// The folder of `--data` as it was kept, or a new one.
    pub async fn open(options: &TpchOptions, report: &mut Report) -> Result<Workspace> {
        if let Some(folder) = &options.data {
            let read = std::fs::read(folder.join("tpch.json"));
            let read = read.with_context(|| format!("{} was not kept by --keep", folder.display()))?;
            let made: WorkspaceManifest = serde_json::from_slice(&read)?;
            ensure!(made.sf == options.sf, "{} has scale factor {}; say --sf {0}", folder.display(), made.sf);
            ensure!(made.store == options.store, "{} has --store {:?}", folder.display(), made.store);
            return Ok(Workspace { folder: folder.clone(), made, _scratch: None });
        }
        let (folder, scratch) = match &options.keep {
            Some(folder) => (folder.clone(), None),
            None => {
                let scratch = scratch(options.scratch.as_deref())?;
                (scratch.path().to_owned(), Some(scratch))
            }
        };
        ensure!(!folder.join("tpch.json").exists(), "{} has tables already: --data uses them", folder.display());
        std::fs::create_dir_all(folder.join("store").join(BUCKET))?;
        let made = WorkspaceManifest { sf: options.sf, store: options.store, rows: BTreeMap::new() };
        let mut workspace = Workspace { folder, made, _scratch: scratch };
        workspace.load(options, report).await?;
        std::fs::write(workspace.folder.join("tpch.json"), serde_json::to_vec_pretty(&workspace.made)?)?;
        Ok(workspace)
    }

    /// Through the front door: COPY, delivery, compaction. The far store answers without delay meanwhile.
    async fn load(&mut self, options: &TpchOptions, report: &mut Report) -> Result<()> {
        let store = FarStore::serve(&self.objects(), Default::default()).await?;
        let lake = match options.store {
            Store::Local => Lake::Near,
            Store::S3 => Lake::Far(&store),
        };
        let server = self.serve(options, lake, Caches::Off, LOADING).await?;
        let bar = progress::bar("loading", rows_about(options.sf))?;
        let started = Instant::now();
        for table in &TABLES {
            bar.set_message(table.name);
            server.execute(&table.declaration()?).await?;
            let mut n_rows = 0;
            let batches = table.batches(options.sf).inspect(|batch| {
                let n = batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
                n_rows += n;
                bar.inc(n);
            });
            let acknowledged = server.copy(table.name, &table.schema(), batches).await?;
            ensure!(acknowledged == n_rows, "{acknowledged} rows of {} acknowledged, want {n_rows}", table.name);
            self.made.rows.insert(table.name.to_owned(), n_rows);
        }
        report.figure("load_s", "s", vec![started.elapsed().as_secs_f64()]);
        let started = Instant::now();
        for table in &TABLES {
            for step in ["deliver", "compact"] {
                bar.set_message(format!("{} {step}", table.name));
                server.execute(&format!("CALL tarn.{step}('{}')", table.name)).await?;
            }
        }
        bar.finish_and_clear();
        report.figure("deliver_and_compact_s", "s", vec![started.elapsed().as_secs_f64()]);
        report.figure("load_peak_rss_mb", "MiB", vec![server.peak_rss_mb()?]);
        server.stop().await?;
        report.figure("disk_mb", "MB", vec![bytes_below(&self.folder)? as f64 / 1e6]);
        Ok(())
    }

    /// The root of the far store.
    pub fn objects(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// Of each table.
    pub fn rows(&self) -> &BTreeMap<String, u64> {
        &self.made.rows
    }

    /// A server on these tables. Its caches are empty.
    pub async fn start(&self, options: &TpchOptions, lake: Lake<'_>, caches: Caches) -> Result<ServerProcess> {
        self.serve(options, lake, caches, MEASURING).await
    }

    async fn serve(
        &self,
        options: &TpchOptions,
        lake: Lake<'_>,
        caches: Caches,
        purpose: (&str, &str),
    ) -> Result<ServerProcess> {
        let cache = self.folder.join("cache");
        if cache.exists() {
            std::fs::remove_dir_all(&cache)?;
        }
        let (cache, near) = (cache.display().to_string(), self.lake_folder().display().to_string());
        let far = format!("s3://{BUCKET}/{PREFIX}");
        let mut variables =
            vec![("TARN_CACHE_FOLDER", cache.as_str()), ("TARN_QUERY_MEMORY_BYTES", &options.query_memory)];
        variables.push(purpose);
        variables.extend_from_slice(caches.variables());
        let location = match lake {
            Lake::Near => near.as_str(),
            Lake::Far(store) => {
                variables.extend(store.variables());
                far.as_str()
            }
        };
        variables.push(("TARN_LAKE", location));
        self.moved_to(location)?;
        ServerProcess::start_with(options.tarn.as_deref(), &self.folder.join("data"), &variables).await
    }

    /// The same files, by another way: the data folder remembers the one before.
    fn moved_to(&self, location: &str) -> Result<()> {
        let mark = self.folder.join("data").join("LAKE");
        if !mark.exists() {
            return Ok(());
        }
        let text = std::fs::read_to_string(&mark)?;
        let id = text.lines().next().unwrap_or_default();
        Ok(std::fs::write(&mark, format!("{id}\n{location}\n"))?)
    }

    fn lake_folder(&self) -> PathBuf {
        match self.made.store {
            Store::Local => self.folder.join("data").join("lake"),
            Store::S3 => self.objects().join(BUCKET).join(PREFIX),
        }
    }

    /// The Parquet files of each table, linked into a folder of its own: older ones that are still kept are not among
    /// them. No file may have dead rows, or others would read different tables.
    pub async fn files(&self, server: &ServerProcess) -> Result<Vec<(&'static str, PathBuf)>> {
        let links = self.folder.join("files");
        if links.exists() {
            std::fs::remove_dir_all(&links)?;
        }
        let mut tables = Vec::new();
        for table in &TABLES {
            let folder = links.join(table.name);
            std::fs::create_dir_all(&folder)?;
            let sql = format!("SELECT path, dead_rows FROM tarn.files WHERE table_name = '{}'", table.name);
            let files = server.rows(&sql).await?;
            ensure!(!files.is_empty(), "nothing of {} was delivered", table.name);
            for (idx, row) in files.iter().enumerate() {
                ensure!(row[1] == "0", "{} has {} dead rows", row[0], row[1]);
                let file = self.lake_folder().join(row[0].trim_start_matches('/'));
                let link = folder.join(format!("{idx:04}.parquet"));
                std::fs::hard_link(&file, link).with_context(|| format!("link {}", file.display()))?;
            }
            tables.push((table.name, folder));
        }
        Ok(tables)
    }
}

impl Caches {
    fn variables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Caches::Off => &[NO_METADATA, NO_FOOTERS, NO_PAGES, NO_FRAGMENTS],
            Caches::Metadata => &[NO_PAGES, NO_FRAGMENTS],
            Caches::Pages => &[NO_METADATA, NO_FOOTERS, NO_FRAGMENTS],
            Caches::Fragments => &[NO_METADATA, NO_FOOTERS, NO_PAGES],
            Caches::All => &[],
        }
    }
}

const NO_METADATA: (&str, &str) = ("TARN_METASTORE_CACHE_BYTES", "0");
const NO_FOOTERS: (&str, &str) = ("TARN_FOOTER_CACHE_BYTES", "0");
const NO_PAGES: (&str, &str) = ("TARN_CACHE_PAGES", "off");
const NO_FRAGMENTS: (&str, &str) = ("TARN_CACHE_FRAGMENTS", "off");

/// Of all files.
pub fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        bytes += if found.is_dir() { bytes_below(&entry.path())? } else { found.len() };
    }
    Ok(bytes)
}
