//! How is a node put together?
//!
//! Opens, in this order: the folder's lock, the log, the row engine, the metastore; holds these against each other (`together.rs`) before
//! anything is deleted; then the lake, then each table (replay the log, repair what a crash left between commit and install, serve), then
//! the query engine and the workers. Closing goes
//! the other way: no more statements, workers stop, the row engine is flushed, the log is closed. Everything a client was
//! told is durable is in the log before it is told, so a node may also just die.

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use parking_lot::{Mutex, RwLock};
use tarn_feed::HotTable;
use tarn_lake::Lake;
use tarn_metastore::{Definition, Metastore, is_document};
use tarn_raftlog::{Damage, ErrorKind, RaftLog, Recovery};
use tarn_replica::Replica;
use tarn_rows::{Engine as _, RocksEngine, RocksOptions, Table};
use tarn_types::{Clock, Kind, TableSchema};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::auth::Directory;
use crate::auth::directory::REFRESH;
use crate::budget::Budget;
use crate::caches::{Caches, Near};
use crate::catalog::{Catalog, TableHandle};
use crate::clock::{SystemClock, monotonic_ns};
use crate::drops::Drops;
use crate::error::{Result, SqlError, state};
use crate::health::Health;
use crate::lake_store;
use crate::ledger::Ledger;
use crate::metastores::{self, Place};
use crate::metrics::Metrics;
use crate::reserve::Reserve;
use crate::settings::{LogRecovery, Settings};
use crate::stores;
use crate::system::System;
use crate::threads::Threads;
use crate::together::{self, Before, Found};
use crate::worker::{MAX_JOBS, Worker};
use crate::write::blocking;

/// How often the node looks after the log and the row engine.
const UPKEEP: Duration = Duration::from_secs(1);

/// What the metastore may write of its packs and checkpoints in one turn.
const METASTORE_BUDGET_BYTES: u64 = 64 << 20;

/// Some kernels, a nested-loop join's above all, hold their thread for long: there must be others for the queries beside them.
const QUERY_THREADS_PER_CORE: usize = 8;

/// Threads of all workers together.
const BACKGROUND_THREADS: usize = 2;

/// Log bytes that one round of garbage collection may copy.
const GARBAGE_BUDGET_BYTES: u64 = 16 << 20;

/// Tables that replay their logs at the same time when a node starts.
const OPENED_AT_ONCE: usize = 16;

/// However late it is, closing the log and flushing the row engine get so long.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);

/// The row engine is flushed at least this often while there are writes.
const FLUSH_INTERVAL_MS: i64 = 60_000;

/// Of the data folder: nobody else sees what is in it.
const PRIVATE: u32 = 0o700;

/// What statements and workers share.
pub struct Parts {
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
    pub log: Arc<RaftLog>,
    pub engine: Arc<RocksEngine>,
    pub metastore: Arc<dyn Metastore>,
    pub lake: Lake,
    /// Where lake files are.
    pub lake_place: stores::Place,
    lake_near: Near,
    pub caches: Arc<Caches>,
    pub users: Arc<Directory>,
    pub catalog: Arc<Catalog>,
    /// Which tables have their rows here.
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) drops: Drops,
    pub metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) reserve: Reserve,
    /// Cancelled when the node closes: background work stops where it is.
    pub(crate) stop: CancellationToken,
    /// Woken when a delivery made room for writers.
    pub room: Notify,
    /// Log bytes appended when the engine was last flushed.
    flushed_log_bytes: AtomicU64,
    /// One flush at a time.
    flushing: Mutex<()>,
}

/// A table's store after its log was replayed.
struct Replayed {
    table: Arc<Table>,
    replicas: Vec<Replica>,
    /// What of it the log lost, if the operator chose to go on without.
    damage: Option<String>,
}

/// A running node. Shared by all connections; [`Node::close`] it before dropping it, or accept a replay at the next start.
pub struct Node {
    parts: Arc<Parts>,
    query: tarn_query::Engine,
    /// Serializes CREATE and DROP (`drops.rs`).
    ddl: tokio::sync::Mutex<()>,
    /// What transactions hold back until COMMIT.
    held: Arc<Budget>,
    closed: RwLock<bool>,
    /// Queries have threads of their own: a join must not hold up connections.
    _queries: Threads,
    /// So have workers: encoding Parquet must not hold up statements.
    background: Mutex<Option<Threads>>,
    upkeep: Mutex<Option<JoinHandle<()>>>,
    _lock: File,
}

impl Node {
    /// Opens or makes the node in `settings.data_dir`.
    ///
    /// Errors: another process has the folder; anything below is damaged. Nothing is served then.
    pub async fn open(settings: Settings) -> Result<Arc<Node>> {
        Node::open_with(settings, Arc::new(SystemClock::default())).await
    }

    /// As [`Node::open`], with a clock of the caller's.
    pub async fn open_with(settings: Settings, clock: Arc<dyn Clock>) -> Result<Arc<Node>> {
        let lock = lock_folder(&settings.data_dir)?;
        let parts = open_parts(settings, clock).await?;
        let background = Threads::start("tarn-background", BACKGROUND_THREADS)?;
        let queries = Threads::start("tarn-query", QUERY_THREADS_PER_CORE * cores())?;
        let query = query_engine(&parts, queries.handle())?;
        let _ = parts.caches.metadata.set(Arc::clone(query.metadata_cache()));
        let held = Budget::new(parts.settings.transactions_bytes);
        let node = Arc::new(Node {
            parts,
            query,
            ddl: tokio::sync::Mutex::new(()),
            held,
            closed: RwLock::new(false),
            _queries: queries,
            background: Mutex::new(Some(background)),
            upkeep: Mutex::default(),
            _lock: lock,
        });
        node.open_tables().await?;
        node.start_upkeep();
        node.follow_users();
        crate::scrub::start(&node);
        Ok(node)
    }

    /// What all transactions together may hold back.
    pub fn held(&self) -> &Arc<Budget> {
        &self.held
    }

    async fn open_tables(&self) -> Result<()> {
        let mut tables = self.parts.metastore.tables().await?;
        tables.retain(|schema| !is_document(schema));
        let failed = AtomicBool::new(false);
        let failed = &failed;
        let open = |schema: Arc<TableSchema>| async move {
            if failed.load(Ordering::Acquire) {
                return Ok(None);
            }
            let name = schema.name.clone();
            let opened = match schema.options.archive {
                Some(_) => self.open_archive(schema).await.map(|()| None),
                None => self.open_table(schema).await,
            };
            opened.map_err(|error| {
                failed.store(true, Ordering::Release);
                let told = SqlError::new(error.state(), format!("open table \"{name}\": {}", error.message()));
                error.hint().map_or(told.clone(), |hint| told.with_hint(hint))
            })
        };
        // All that began are waited for, also when one failed: none may hold on to the folder when this returns.
        let opened: Vec<Result<_>> = futures::stream::iter(tables).map(open).buffered(OPENED_AT_ONCE).collect().await;
        for handle in opened {
            handle?.into_iter().for_each(|handle| self.parts.catalog.insert(handle));
        }
        self.parts.metrics.tables.set(self.parts.catalog.names().len() as i64);
        Ok(())
    }

    /// Opens a table. None: the log lost so much that nothing of it can be shown, and the operator chose to start all the
    /// same. Such a table can only be dropped.
    pub(crate) async fn open_table(&self, schema: Arc<TableSchema>) -> Result<Option<Arc<TableHandle>>> {
        let (parts, opened) = (Arc::clone(&self.parts), Arc::clone(&schema));
        let replayed = blocking(move || parts.replay(opened)).await?;
        let Replayed { table, replicas, damage } = match replayed {
            Ok(replayed) => replayed,
            Err(lost) => {
                tracing::error!(table = %schema.name, "table is not served: {lost}");
                return Ok(None);
            }
        };
        let hot: Arc<dyn HotTable> = table.clone();
        let repaired = match (self.parts.lake.repair(&hot).await, &damage) {
            (Err(error), Some(damage)) => {
                tracing::error!(table = %schema.name, %error, "table is not served: {damage}");
                return Ok(None);
            }
            (repaired, _) => repaired?,
        };
        tracing::debug!(table = %schema.name, ?repaired, "opened");
        let finished = Arc::clone(&table);
        blocking(move || Ok(finished.finish_replay()?)).await?;

        let (jobs, queue) = mpsc::channel(MAX_JOBS);
        let handle = Arc::new(TableHandle {
            hot,
            table,
            replicas,
            jobs,
            kick: Notify::new(),
            stop: self.parts.stop.child_token(),
            worker: Mutex::new(None),
            damage,
            stuck: Mutex::default(),
            dropped: RwLock::new(false),
        });
        if let Some(damage) = handle.damage() {
            tracing::error!(table = %handle.schema().name, "table is read-only: {damage}");
            return Ok(Some(handle));
        }
        let worker = Worker::new(Arc::clone(&self.parts), Arc::clone(&handle));
        if let Some(background) = self.background.lock().as_ref() {
            *handle.worker.lock() = Some(background.handle().spawn(worker.run(queue)));
        }
        Ok(Some(handle))
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if *self.closed.read() {
            return Err(SqlError::stopping());
        }
        Ok(())
    }

    fn start_upkeep(self: &Arc<Self>) {
        if !self.parts.settings.background {
            return;
        }
        let (parts, stop) = (Arc::clone(&self.parts), self.parts.stop.clone());
        if let Some(background) = self.background.lock().as_ref() {
            let upkeep = background.handle().spawn(async move {
                let mut flushed_ms = parts.clock.now_ms();
                loop {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(UPKEEP) => {}
                    }
                    // Closing waits for its end as long as it can.
                    let failed = parts.upkeep(&mut flushed_ms).await.err();
                    parts.tell_troubles();
                    if let Some(error) = failed {
                        parts.metrics.background_failures.inc();
                        tracing::debug!(%error, "upkeep failed, will be retried");
                    }
                }
            });
            *self.upkeep.lock() = Some(upkeep);
        }
    }

    /// Users and rights as other servers change them. Not part of the upkeep, whose turns may wait for the disk, nor of
    /// what a setting switches off: how old they may be is promised. An embedded metastore has no other server.
    fn follow_users(&self) {
        if self.parts.settings.metastore == metastores::EMBEDDED {
            return;
        }
        let (parts, stop) = (Arc::clone(&self.parts), self.parts.stop.clone());
        let following = async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(REFRESH) => {}
                }
                let refreshed = tokio::select! {
                    () = stop.cancelled() => return,
                    refreshed = parts.users.refresh() => refreshed,
                };
                parts.note_users(refreshed.err().as_ref());
            }
        };
        // A node that is closing needs no users.
        let _ = self.spawn_background(following);
    }

    /// [`Node::close_within`] what a stop may take.
    pub async fn close(&self) -> Result<()> {
        self.close_within(Duration::from_millis(self.parts.settings.shutdown_ms)).await
    }

    /// Stops the workers, closes the log, so that the next start has nothing to scan and can tell any damage from a
    /// crash, and makes everything applied durable in the row engine, so that it replays nothing. What is not done in
    /// time is left: it costs the next start what a crash would have cost it.
    pub async fn close_within(&self, patience: Duration) -> Result<()> {
        {
            let mut closed = self.closed.write();
            if std::mem::replace(&mut *closed, true) {
                return Ok(());
            }
        }
        let deadline = Instant::now() + patience;
        // All at once: each stops where it is. Deliveries and compactions may be left at any point.
        self.parts.stop.cancel();
        let workers = async {
            for handle in self.parts.catalog.all() {
                let worker = handle.worker.lock().take();
                if let Some(worker) = worker {
                    let _ = worker.await;
                }
            }
            for attachment in self.parts.catalog.archives() {
                attachment.end().await;
            }
            let upkeep = self.upkeep.lock().take();
            if let Some(upkeep) = upkeep {
                let _ = upkeep.await;
            }
        };
        if tokio::time::timeout(patience / 2, workers).await.is_err() {
            tracing::warn!("background work still runs: closing all the same");
        }
        let parts = Arc::clone(&self.parts);
        let closed = blocking(move || {
            parts.caches.close();
            // Whatever becomes of the rows: from the log they can be made again.
            let closed = parts.log.close();
            parts.flush()?;
            Ok(closed?)
        });
        let closed = tokio::time::timeout_at(deadline.max(Instant::now() + LEAST_PATIENCE), closed).await;
        drop(self.background.lock().take());
        closed.unwrap_or_else(|_| {
            tracing::warn!("the row engine is not flushed in time: the next start replays the log");
            Ok(())
        })
    }

    pub fn settings(&self) -> &Settings {
        &self.parts.settings
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.parts.clock
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.parts.catalog
    }

    pub fn metrics(&self) -> &Metrics {
        &self.parts.metrics
    }

    pub fn metastore(&self) -> &Arc<dyn Metastore> {
        &self.parts.metastore
    }

    pub fn users(&self) -> &Arc<Directory> {
        &self.parts.users
    }

    pub fn caches(&self) -> &Arc<Caches> {
        &self.parts.caches
    }

    pub fn lake_place(&self) -> &stores::Place {
        &self.parts.lake_place
    }

    pub fn query(&self) -> &tarn_query::Engine {
        &self.query
    }

    pub(crate) fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }

    /// Whoever changes the catalog does it alone.
    pub(crate) async fn lock_catalog(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.ddl.lock().await
    }

    /// Cancelled when the node closes.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.parts.stop.child_token()
    }

    /// Runs `work` on the threads of background work. Dropped before its end, the work is, too.
    pub(crate) async fn in_background<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let mut running = JoinSet::new();
        match self.background.lock().as_ref() {
            Some(background) => running.spawn_on(work, &background.handle()),
            None => return Err(SqlError::stopping()),
        };
        match running.join_next().await {
            Some(Ok(done)) => done,
            _ => Err(SqlError::new(state::INTERNAL, "background work died")),
        }
    }

    pub(crate) fn spawn_background(&self, work: impl Future<Output = ()> + Send + 'static) -> Option<JoinHandle<()>> {
        self.background.lock().as_ref().map(|background| background.handle().spawn(work))
    }

    pub fn room(&self) -> &Notify {
        &self.parts.room
    }

    /// Why not every statement is served, a reason a line; `/readyz`. Empty: all are.
    pub fn not_ready(&self) -> Vec<String> {
        if *self.closed.read() {
            return vec!["the server is stopping".to_owned()];
        }
        self.parts.troubles().into_iter().map(|trouble| format!("{}: {}", trouble.part, trouble.reason)).collect()
    }

    /// Ends when the data folder must be opened anew, because of a fault that is over and that nothing else heals.
    pub async fn reopen_asked(&self) {
        self.parts.health.reopen.cancelled().await;
    }

    /// The text of `/metrics`, gauges brought up to date.
    pub fn metrics_text(&self) -> String {
        let metrics = &self.parts.metrics;
        metrics.recent_bytes.set(self.parts.catalog.recent_bytes() as i64);
        metrics.scrub_damaged_files.set(self.parts.lake.flaws().all().len() as i64);
        metrics.query_memory_bytes.set(self.query.memory_used_bytes() as i64);
        metrics.engine_faulty.set(i64::from(self.parts.engine.fault().is_some()));
        metrics.engine_errors.set(self.parts.engine.n_background_errors() as i64);
        metrics.metastore_faulty.set(i64::from(self.parts.is_metastore_faulty()));
        metrics.disk_low.set(i64::from(self.parts.reserve.is_low()));
        metrics.text()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.parts.stop.cancel();
        // A runtime may not be waited for inside another: let its threads end by themselves.
        drop(self.background.lock().take());
    }
}

impl Parts {
    /// Opens a table's store and replays its log. `Ok(Err(lost))`: the log does not go with the rows, and the operator
    /// chose to start all the same.
    fn replay(&self, schema: Arc<TableSchema>) -> Result<Result<Replayed, String>> {
        let engine: Arc<dyn tarn_rows::Engine> = self.engine.clone();
        let table = Arc::new(Table::open(engine, Arc::clone(&schema), Arc::clone(&self.clock))?);
        let (mut replicas, mut damage) = (Vec::with_capacity(schema.options.tablets as usize), None);
        for tablet in schema.tablets() {
            let replica = match Replica::open(Arc::clone(&self.log), Arc::clone(&table), tablet) {
                Ok(replica) => replica,
                Err(error) => return self.give_up(error).map(Err),
            };
            let lost = match replica.replay() {
                Ok(_) => replica
                    .damaged_from()
                    .map(|from| format!("the log lost what was acknowledged of tablet {tablet}, from entry {from} on")),
                Err(error) => Some(self.give_up(error)?),
            };
            damage = damage.or(lost);
            replicas.push(replica);
        }
        Ok(Ok(Replayed { table, replicas, damage }))
    }

    /// A log that lost something: an error that names the remedy or, if the operator chose it, what is lost.
    fn give_up(&self, error: tarn_replica::Error) -> Result<String> {
        let is_the_log = error.kind() == Kind::Corrupt && !matches!(error, tarn_replica::Error::Replay { .. });
        match self.settings.log_recovery {
            _ if !is_the_log => Err(error.into()),
            LogRecovery::Quarantine => Ok(error.to_string()),
            LogRecovery::Refuse => {
                Err(SqlError::from(error).with_hint(quarantine_hint(&self.settings.data_dir.join("log"))))
            }
        }
    }

    /// Flushes the row engine; all tables take note.
    pub fn flush(&self) -> Result<()> {
        let _one = self.flushing.lock();
        let log_bytes = self.log.metrics().entry_bytes;
        let tables = self.catalog.all();
        let marks: Vec<_> = tables.iter().map(|handle| handle.table.begin_flush()).collect();
        self.engine.flush()?;
        for (handle, mark) in tables.iter().zip(marks) {
            handle.table.end_flush(mark);
        }
        self.flushed_log_bytes.store(log_bytes, Ordering::Release);
        Ok(())
    }

    async fn upkeep(self: &Arc<Self>, flushed_ms: &mut i64) -> Result<()> {
        let unflushed = self.log.metrics().entry_bytes - self.flushed_log_bytes.load(Ordering::Acquire);
        let now_ms = self.clock.now_ms();
        let due = unflushed > 0 && now_ms.saturating_sub(*flushed_ms) >= FLUSH_INTERVAL_MS;
        let parts = Arc::clone(self);
        let flush = due || unflushed >= self.settings.log_flush_bytes;
        if flush {
            *flushed_ms = now_ms;
        }
        blocking(move || {
            // First: what follows may need the room.
            parts.caches.upkeep();
            let healed = parts.heal();
            let flushed = if flush { parts.flush() } else { Ok(()) };
            let collected = parts.log.collect_garbage(GARBAGE_BUDGET_BYTES);
            // Here rather than by the next writer that ends a segment.
            let prepared = parts.log.prepare();
            parts.note_log(prepared.as_ref().map(|_| ()));
            // One part that fails keeps no other from its work.
            healed.and(flushed)?;
            collected?;
            Ok(prepared?)
        })
        .await
        .and(self.upkeep_metastore().await)
    }

    async fn upkeep_metastore(self: &Arc<Self>) -> Result<()> {
        self.sweep_dropped().await;
        let done = self.metastore.upkeep(METASTORE_BUDGET_BYTES).await;
        self.note_metastore(done.as_ref().map(|_| ()));
        Ok(done.map(|_| ())?)
    }
}

async fn open_parts(settings: Settings, clock: Arc<dyn Clock>) -> Result<Arc<Parts>> {
    let dir = settings.data_dir.clone();
    // First: everything below may need the room.
    let reserve = Reserve::open(&dir, settings.reserve_bytes).map_err(|e| io_error("look for room in", &dir, &e))?;
    let before = Before::look(&settings)?;
    let begins = metastores::begins(&settings)?;
    let log_options = tarn_raftlog::Options {
        segment_bytes: settings.log_segment_bytes,
        cache_bytes: settings.log_cache_bytes,
        recovery: match settings.log_recovery {
            LogRecovery::Refuse => Recovery::Refuse,
            LogRecovery::Quarantine => Recovery::Quarantine,
        },
        clock: Some(monotonic_ns),
        ..tarn_raftlog::Options::new(dir.join("log"))
    };
    let log = Arc::new(open_log(log_options)?);
    if begins && !log.groups().is_empty() {
        return Err(metastores::refuse_loss(&settings));
    }
    let rocks = RocksOptions { memory_budget_bytes: settings.rows_memory_bytes as usize, ..RocksOptions::default() };
    let engine = RocksEngine::open(&dir.join("rows"), &rocks)?;
    let metastore = metastores::open(&Place::of(&settings)?, Arc::clone(&clock), &Handle::current()).await?;

    let Found { kept, abandoned, homeless } = before.check(&settings, &log, &engine, metastore.as_ref()).await?;
    let folder = kept.folder;
    let ledger = Ledger::begin(&dir, kept)?;
    together::mark_rows(&engine, folder)?;
    metastores::remember(&settings)?;
    for from in homeless {
        let mut to = Box::new((*from).clone());
        to.options.home = Some(folder);
        metastore.define(Definition::Alter { from, to }).await?;
    }
    let has_tables = metastore.tables().await?.iter().any(|schema| !is_document(schema));
    let users = Arc::new(Directory::open(Arc::clone(&metastore)).await?);
    let (lake_place, store) = lake_store::open(&settings, has_tables, folder).await?;
    let caches = Arc::new(Caches::open(&settings, Arc::clone(&clock), Handle::current()).await?);
    let lake_near = caches.around_lake(&lake_place, store);
    let lake_options = tarn_lake::Options {
        target_file_bytes: settings.lake_target_file_bytes,
        row_group_rows: settings.lake_row_group_rows,
        ..tarn_lake::Options::default()
    };
    let store = Arc::clone(&lake_near.store);
    let lake = Lake::new(store, Arc::clone(&metastore), Arc::clone(&clock), lake_options, uuid::Uuid::new_v4());
    let spill = settings.spill_location();
    let _ = std::fs::remove_dir_all(&spill);
    std::fs::create_dir_all(&spill).map_err(|e| io_error("make", &spill, &e))?;
    let metrics = Metrics::new(Arc::clone(&log), Arc::clone(&caches));
    let parts = Parts {
        settings,
        clock,
        log,
        engine: Arc::new(engine),
        metastore,
        lake,
        lake_place,
        lake_near,
        caches,
        users,
        catalog: Arc::default(),
        ledger: Arc::new(ledger),
        drops: Drops::default(),
        metrics,
        health: Health::default(),
        reserve,
        stop: CancellationToken::new(),
        room: Notify::new(),
        flushed_log_bytes: AtomicU64::new(0),
        flushing: Mutex::new(()),
    };
    parts.finish_drops(&abandoned)?;
    Ok(Arc::new(parts))
}

fn open_log(options: tarn_raftlog::Options) -> Result<RaftLog> {
    let (dir, recovery) = (options.dir.clone(), options.recovery);
    let (log, found) = RaftLog::open(options).map_err(|error| match (error.kind(), recovery) {
        (ErrorKind::Corrupt, Recovery::Refuse) => SqlError::from(error).with_hint(quarantine_hint(&dir)),
        _ => SqlError::from(error),
    })?;
    tracing::info!(segments = found.n_segments, scanned = found.n_scanned, entries = found.n_entries, torn = ?found.torn_tail, "log opened");
    for Damage { path, offset, what } in &found.damages {
        tracing::warn!(path = %path.display(), offset, what, "the log was damaged");
    }
    Ok(log)
}

pub(crate) fn quarantine_hint(log_dir: &Path) -> String {
    format!(
        "`tarn check log {}` names all damage; log_recovery = 'quarantine' (--log-recovery quarantine) starts all the same \
         and serves tables that lost something read-only",
        log_dir.display()
    )
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

fn query_engine(parts: &Arc<Parts>, threads: Handle) -> Result<tarn_query::Engine> {
    let partitions = parts.settings.query_partitions;
    let options = tarn_query::Options {
        memory_bytes: parts.settings.query_memory_bytes as usize,
        target_partitions: if partitions == 0 { cores() } else { partitions },
        spill_dir: Some(parts.settings.spill_location()),
        catalog: crate::pg_catalog::DATABASE.to_owned(),
        threads: Some(threads),
        metadata_cache_bytes: parts.settings.metastore_cache_bytes as usize,
        fragments: Some(parts.caches.fragments.clone()),
        ..tarn_query::Options::default()
    };
    let catalog = Arc::clone(&parts.catalog);
    let backend = metastores::shown(&parts.settings.metastore);
    let caches = Arc::clone(&parts.caches);
    let system = System::new(
        Arc::clone(&parts.metastore),
        Arc::clone(&catalog),
        Arc::clone(&parts.log),
        Arc::clone(&caches),
        parts.lake.flaws().clone(),
        backend,
    );
    let (metastore, read) = (Arc::clone(&parts.metastore), parts.lake_near.read.clone());
    let footers = Arc::clone(&caches.footers);
    Ok(tarn_query::Engine::new(options, metastore, read, footers, catalog, Arc::new(system))?)
}

/// Makes the data folder, for this user alone. One that is there and open to others is narrowed: rows, log and Parquet could be read
/// past the server.
fn keep_private(dir: &Path) -> Result<()> {
    let making = DirBuilder::new().recursive(true).mode(PRIVATE).create(dir);
    making.map_err(|error| io_error("make", dir, &error))?;
    let found = std::fs::metadata(dir).map_err(|error| io_error("look at", dir, &error))?.permissions().mode() & 0o777;
    if found & !PRIVATE == 0 {
        return Ok(());
    }
    match std::fs::set_permissions(dir, Permissions::from_mode(found & PRIVATE)) {
        Ok(()) => {
            tracing::warn!(dir = %dir.display(), "the data folder was open to others (mode {found:o}): it is this user's alone now")
        }
        Err(error) => {
            tracing::warn!(dir = %dir.display(), %error, "the data folder is open to others (mode {found:o}): chmod 700 it")
        }
    }
    Ok(())
}

fn lock_folder(dir: &Path) -> Result<File> {
    keep_private(dir)?;
    let path = dir.join("LOCK");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|e| io_error("open", &path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SqlError::new(
            state::OBJECT_IN_USE,
            format!("the data folder {} is in use by another tarn process", dir.display()),
        )
        .with_hint("stop it, or choose another folder with --data-dir")),
        Err(TryLockError::Error(error)) => Err(io_error("lock", &path, &error)),
    }
}

fn io_error(what: &str, path: &Path, error: &std::io::Error) -> SqlError {
    SqlError::new(state::IO_ERROR, format!("{what} {}: {error}", path.display()))
}
