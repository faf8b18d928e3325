//! How is a node put together?
//!
//! Opens, in this order: the folder's lock, the log, the row engine, the metastore; holds these against each other
//! (`together.rs`) before anything is deleted; then the lake, then each table (replay the log, repair what a crash left
//! between commit and install, serve), then the workers. Closing goes the other way: no more statements, workers stop,
//! the row engine is flushed, the log is closed. Everything a client was told is durable is in the log before it is
//! told, so a node may also just die.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use parking_lot::{Mutex, RwLock};
use tarn_cache::ReadStore;
use tarn_feed::HotTable;
use tarn_lake::Flaws;
use tarn_metastore::{Metastore, is_document};
use tarn_raftlog::RaftLog;
use tarn_replica::Replicas;
use tarn_types::{Clock, TableSchema};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::auth::Directory;
use crate::auth::directory::REFRESH;
use crate::caches::Caches;
use crate::catalog::{Catalog, Gate, TableHandle, WayIn};
use crate::clock::SystemClock;
use crate::comments::Comments;
use crate::error::{Error, ErrorKind, Result};
use crate::external_table::{ExternalTable, archive_of};
use crate::folder::lock_folder;
use crate::functions::Functions;
use crate::jobs::{MAX_JOBS, TableJob};
use crate::metastores;
use crate::metrics::Metrics;
use crate::parts::NodeParts;
use crate::replay::ReplayedTable;
use crate::schemas::Schemas;
use crate::scrub;
use crate::sequences;
use crate::settings::NodeSettings;
use crate::stores;
use crate::tables::TableService;
use crate::threads::{Threads, blocking};
use crate::types::Types;
use crate::worker::Worker;

/// How often the node looks after the log and the row engine.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// Threads of all workers together.
const BACKGROUND_THREADS: usize = 2;

/// Address space, of which little is used: schemas of strangers' files may nest.
const BACKGROUND_STACK_BYTES: usize = 256 << 20;

/// Tables that replay their logs at the same time when a node starts.
const OPENED_AT_ONCE: usize = 16;

/// However late it is, closing the log and flushing the row engine get so long.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);

/// A running node. Shared by all connections; [`Node::close`] it before dropping it, or accept a replay at the next
/// start.
pub struct Node {
    parts: Arc<NodeParts>,
    tables: TableService,
    /// Serializes CREATE and DROP (`drops.rs`).
    ddl: Arc<tokio::sync::Mutex<()>>,
    closed: RwLock<bool>,
    /// Workers have threads of their own: encoding Parquet must not hold up statements.
    background: Mutex<Option<Threads>>,
    /// What runs on them beside the workers of tables.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    _lock: File,
}

impl Node {
    /// Opens or makes the node in `settings.data_dir`.
    ///
    /// Errors: another process has the folder; anything below is damaged. Nothing is served then.
    pub fn open(settings: NodeSettings) -> BoxFuture<'static, Result<Arc<Node>>> {
        Node::open_with(settings, Arc::new(SystemClock::default()))
    }

    /// As [`Node::open`], with a clock of the caller's.
    pub fn open_with(settings: NodeSettings, clock: Arc<dyn Clock>) -> BoxFuture<'static, Result<Arc<Node>>> {
        Node::open_within(settings, clock).boxed()
    }

    async fn open_within(settings: NodeSettings, clock: Arc<dyn Clock>) -> Result<Arc<Node>> {
        let lock = lock_folder(&settings.data_dir)?;
        let parts = NodeParts::open(settings, clock).await?;
        let background = Threads::start("tarn-background", BACKGROUND_THREADS, BACKGROUND_STACK_BYTES)?;
        let node = Arc::new(Node {
            tables: TableService::new(Arc::clone(&parts)),
            parts,
            ddl: Arc::default(),
            closed: RwLock::new(false),
            background: Mutex::new(Some(background)),
            tasks: Mutex::default(),
            _lock: lock,
        });
        if let Err(error) = node.open_tables().await {
            // Those that were opened have workers, which hold on to the folder.
            node.end_tasks().await;
            return Err(error);
        }
        if let Err(error) = node.finish_committing().await {
            node.end_tasks().await;
            return Err(error);
        }
        if let Err(error) = node.drop_unnamed_indexes().await {
            node.end_tasks().await;
            return Err(error);
        }
        node.drop_all_beside().await;
        if let Err(error) = node.tell_tables().await {
            tracing::warn!(%error, "tables do not know the newest labels of their columns yet: ALTER TYPE tells them again");
        }
        node.start_maintenance();
        node.follow_users();
        node.start_scrub();
        Ok(node)
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
                _ if schema.is_view() => {
                    self.parts.catalog.insert_view(schema);
                    Ok(None)
                }
                Some(_) => self.add_external_table(schema).await.map(|()| None),
                None => self.open_table(schema).await,
            };
            opened.map_err(|error| {
                failed.store(true, Ordering::Release);
                let told = Error::new(error.kind(), format!("open table \"{name}\": {}", error.message()));
                error.hint().map_or(told.clone(), |hint| told.with_hint(hint))
            })
        };
        // All that began are waited for, also when one failed: none may hold on to the folder when this returns.
        let opened: Vec<Result<_>> = futures::stream::iter(tables).map(open).buffered(OPENED_AT_ONCE).collect().await;
        let mut first = Ok(());
        for opened in opened {
            match opened {
                Ok(handle) => handle.into_iter().for_each(|handle| self.parts.catalog.insert(handle)),
                Err(error) => first = first.and(Err(error)),
            }
        }
        first?;
        // Their names are known from then on.
        self.sequences().all().await?;
        let n_tables = self.parts.catalog.schemas().iter().filter(|schema| !schema.is_view()).count();
        self.parts.metrics.tables.set(n_tables as i64);
        Ok(())
    }

    /// Opens a table. None: the log lost so much that nothing of it can be shown, and the operator chose to start all
    /// the same. Such a table can only be dropped.
    pub(crate) async fn open_table(&self, schema: Arc<TableSchema>) -> Result<Option<Arc<TableHandle>>> {
        let (parts, opened) = (Arc::clone(&self.parts), Arc::clone(&schema));
        let replayed = blocking(move || parts.replay(opened)).await?;
        let ReplayedTable { table, replicas, damage } = match replayed {
            Ok(replayed) => replayed,
            Err(lost) => {
                tracing::error!(table = %schema.name, "table is not served: {lost}");
                return Ok(None);
            }
        };
        let of_worker = Arc::clone(&replicas);
        let hot: Arc<dyn HotTable> = replicas.clone();
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

        let handle = self.served(of_worker, move |jobs, stop| TableHandle {
            schema,
            table,
            way_in: WayIn::Logged(replicas),
            jobs,
            kick: Notify::new(),
            stop,
            worker: Mutex::new(None),
            damage,
            stuck: Mutex::default(),
            gate: Arc::default(),
            altered_from: None,
        });
        if let Some(damage) = handle.damage() {
            tracing::error!(table = %handle.schema().name, "table is read-only: {damage}");
        }
        Ok(Some(handle))
    }

    /// The same table in another handle, with another definition and a worker of its own; that of the other has ended.
    pub(crate) fn served_anew(
        &self,
        before: &TableHandle,
        replicas: &Arc<Replicas>,
        schema: Arc<TableSchema>,
        gate: Arc<RwLock<Gate>>,
    ) -> Arc<TableHandle> {
        self.served(Arc::clone(replicas), |jobs, stop| TableHandle {
            schema,
            table: Arc::clone(&before.table),
            way_in: WayIn::Logged(Arc::clone(replicas)),
            jobs,
            kick: Notify::new(),
            stop,
            worker: Mutex::new(None),
            damage: before.damage.clone(),
            stuck: Mutex::new(before.stuck()),
            gate,
            altered_from: None,
        })
    }

    /// A table with its worker, if it is whole.
    fn served(
        &self,
        replicas: Arc<Replicas>,
        handle: impl FnOnce(mpsc::Sender<TableJob>, CancellationToken) -> TableHandle,
    ) -> Arc<TableHandle> {
        let (jobs, queue) = mpsc::channel(MAX_JOBS);
        let handle = Arc::new(handle(jobs, self.parts.stop.child_token()));
        if handle.damage().is_none() {
            let worker = Worker::new(Arc::clone(&self.parts), Arc::clone(&handle), replicas);
            *handle.worker.lock() = self.spawn_background(worker.run(queue));
        }
        handle
    }

    /// Opens an archive of the metastore, when the server starts.
    async fn add_external_table(&self, schema: Arc<TableSchema>) -> Result<()> {
        let external = self.open_external_table(schema).await?;
        if let Err(error) = external.near() {
            tracing::error!(table = %external.name(), %error, "archive cannot be read");
        }
        self.parts().catalog.insert_external(Arc::clone(&external));
        let goes_on = !archive_of(&external.schema())?.attached;
        self.start_following(&external, goes_on);
        Ok(())
    }

    /// The table as the metastore has it. Looks at no file.
    pub(crate) async fn open_external_table(&self, schema: Arc<TableSchema>) -> Result<Arc<ExternalTable>> {
        let stop = self.parts.stop.child_token();
        ExternalTable::open(&*self.parts.metastore, &self.parts.caches, schema, stop).await
    }

    pub(crate) fn start_following(&self, external: &Arc<ExternalTable>, goes_on: bool) {
        if self.settings().background {
            let living = Arc::clone(external).live(Arc::clone(self.parts()), goes_on);
            *external.worker.lock() = self.spawn_background(living);
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if *self.closed.read() {
            return Err(Error::stopping());
        }
        Ok(())
    }

    fn start_maintenance(self: &Arc<Self>) {
        if !self.parts.settings.background {
            return;
        }
        let (parts, stop) = (Arc::clone(&self.parts), self.parts.stop.clone());
        self.keep(async move {
            let mut flushed_ms = parts.clock.now_ms();
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(MAINTENANCE) => {}
                }
                // Closing waits for its end as long as it can.
                let failed = parts.maintain(&mut flushed_ms).await.err();
                parts.tell_troubles();
                if let Some(error) = failed {
                    parts.metrics.background_failures.inc();
                    tracing::debug!(%error, "upkeep failed, will be retried");
                }
            }
        });
    }

    /// Damage in the lake is looked for as long as the node runs.
    fn start_scrub(&self) {
        let (parts, stop) = (Arc::clone(&self.parts), self.parts.stop.clone());
        self.keep(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = scrub::run(&parts) => {}
            }
        });
    }

    /// Users and rights as other servers change them. Not part of the maintenance, whose turns may wait for the disk,
    /// nor of what a setting switches off: how old they may be is promised. An embedded metastore has no other server.
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
        self.keep(following);
    }

    /// Runs on the threads of background work until the node closes, which waits for its end.
    fn keep(&self, work: impl Future<Output = ()> + Send + 'static) {
        let running = self.spawn_background(work);
        self.tasks.lock().extend(running);
    }

    /// [`Node::close_within`] what a stop may take.
    pub fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.close_within(Duration::from_millis(self.parts.settings.shutdown_ms))
    }

    /// Stops the workers, closes the log, so that the next start has nothing to scan and can tell any damage from a
    /// crash, and makes everything applied durable in the row engine, so that it replays nothing. What is not done in
    /// time is left: it costs the next start what a crash would have cost it.
    pub fn close_within(&self, patience: Duration) -> BoxFuture<'_, Result<()>> {
        self.end(patience).boxed()
    }

    async fn end(&self, patience: Duration) -> Result<()> {
        {
            let mut closed = self.closed.write();
            if std::mem::replace(&mut *closed, true) {
                return Ok(());
            }
        }
        let deadline = Instant::now() + patience;
        if tokio::time::timeout(patience / 2, self.end_tasks()).await.is_err() {
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

    /// The door to the rows of its tables.
    pub fn tables(&self) -> &TableService {
        &self.tables
    }

    /// Stops all background work where it is, deliveries and compactions at any point, and waits for its end.
    async fn end_tasks(&self) {
        self.parts.stop.cancel();
        for handle in self.parts.catalog.all() {
            let worker = handle.worker.lock().take();
            if let Some(worker) = worker {
                let _ = worker.await;
            }
        }
        for external in self.parts.catalog.external_tables() {
            external.end().await;
        }
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            let _ = task.await;
        }
    }

    /// As the node was opened with them.
    pub fn settings(&self) -> &NodeSettings {
        &self.parts.settings
    }

    /// By which all of the node goes.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.parts.clock
    }

    /// Which tables are open.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.parts.catalog
    }

    /// To be counted in from anywhere.
    pub fn metrics(&self) -> &Metrics {
        &self.parts.metrics
    }

    /// Where versions, files and documents are.
    pub fn metastore(&self) -> &Arc<dyn Metastore> {
        &self.parts.metastore
    }

    /// Who there is, and what they may.
    pub fn users(&self) -> &Arc<Directory> {
        &self.parts.users
    }

    /// What was said of tables.
    pub fn comments(&self) -> &Arc<Comments> {
        &self.parts.comments
    }

    /// Which sequences there are, and their numbers.
    pub fn sequences(&self) -> &Arc<sequences::Directory> {
        &self.parts.sequences
    }

    /// Which functions users wrote.
    pub fn functions(&self) -> &Arc<Functions> {
        &self.parts.functions
    }

    /// What schemas there are beside those that nobody made.
    pub fn schemas(&self) -> &Arc<Schemas> {
        &self.parts.schemas
    }

    /// What types there are beside those of PostgreSQL.
    pub fn types(&self) -> &Arc<Types> {
        &self.parts.types
    }

    /// What is kept near.
    pub fn caches(&self) -> &Arc<Caches> {
        &self.parts.caches
    }

    /// Where lake files are, without credentials.
    pub fn lake_location(&self) -> &stores::StoreLocation {
        &self.parts.lake_location
    }

    /// How queries read lake files.
    pub fn lake_reads(&self) -> &ReadStore {
        &self.parts.lake_near.read
    }

    /// What was found damaged of the lake.
    pub fn lake_flaws(&self) -> &Flaws {
        self.parts.lake.flaws()
    }

    /// Of all tablets.
    pub fn log(&self) -> &RaftLog {
        &self.parts.log
    }

    /// Where the metastore is, as it may be shown.
    pub fn metastore_place(&self) -> String {
        metastores::shown(&self.parts.settings.metastore)
    }

    pub(crate) fn parts(&self) -> &Arc<NodeParts> {
        &self.parts
    }

    /// Whoever changes the catalog does it alone.
    pub(crate) async fn lock_catalog(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.ddl).lock_owned().await
    }

    /// Runs `work` on the threads of background work. Dropped before its end, the work is, too.
    pub(crate) async fn in_background<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let mut running = JoinSet::new();
        match self.background.lock().as_ref() {
            Some(background) => running.spawn_on(work, &background.handle()),
            None => return Err(Error::stopping()),
        };
        match running.join_next().await {
            Some(Ok(done)) => done,
            _ => Err(Error::new(ErrorKind::Internal, "background work died")),
        }
    }

    pub(crate) fn spawn_background(&self, work: impl Future<Output = ()> + Send + 'static) -> Option<JoinHandle<()>> {
        self.background.lock().as_ref().map(|background| background.handle().spawn(work))
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
