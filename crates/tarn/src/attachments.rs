//! How does an archive become a table of this node, and stay one as the archive changes?
//!
//! An [`Attachment`] is a table that others write: no rows of its own, no log, no tablets. A pass (`tarn-lake`'s `attach`) lists the
//! archive and commits what is new; queries see each commit as soon as it is made. `ATTACH` surveys the archive, makes the table and
//! runs the first pass; `CALL tarn.attach('t')` and the table's worker (`follow`) run others. What is committed is the progress: a pass
//! that was cancelled, failed or died is gone on with by the next one, and a server that starts goes on with a first pass.
//!
//! Invariant: nothing here writes to an archive, or deletes from it (`stores.rs` opens it to be read).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use object_store::ObjectStore;
use parking_lot::{Mutex, RwLock};
use tarn_lake::attach::{Attach, Progress};
use tarn_metastore::{Definition, Metastore, MetastoreExt};
use tarn_types::{Archive, Kind, TableId, TableSchema, Version};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::attach_sql::AttachRequest;
use crate::caches::Near;
use crate::drops::half_made;
use crate::error::{Result, SqlError, state};
use crate::node::{Node, Parts};
use crate::stores::{Place, chain};

/// Files read at once, unless `concurrency` says otherwise.
const CONCURRENCY: u32 = 4;

/// A first pass that failed is gone on with after so long.
const RETRY: Duration = Duration::from_secs(60);

/// How often a change of the definition is tried that others get in the way of.
const TRIES: usize = 3;

/// One archive that is attached.
pub struct Attachment {
    id: TableId,
    name: String,
    place: Place,
    /// As the environment of this process has it; whether somebody answers there is another question.
    near: Result<Near>,
    /// What queries see. Held for moments only.
    seen: RwLock<Arc<Seen>>,
    /// One pass at a time.
    passing: tokio::sync::Mutex<()>,
    standing: Mutex<Standing>,
    stop: CancellationToken,
    worker: Mutex<Option<JoinHandle<()>>>,
}

/// A definition, and the latest version for which it was right: another definition is another `Seen`, so that a statement that was
/// planned with this one reads what goes with it.
pub struct Seen {
    pub schema: Arc<TableSchema>,
    version: AtomicU64,
}

impl Seen {
    pub fn version(&self) -> Version {
        Version(self.version.load(Ordering::Acquire))
    }
}

/// How the passes of this process went.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    pub is_running: bool,
    /// Of the running pass, else of the last.
    pub progress: Option<Progress>,
    /// What the passes before that did, all together.
    pub earlier: Done,
    pub started_ms: Option<i64>,
    pub ended_ms: Option<i64>,
    pub last_error: Option<String>,
}

/// What passes did: whoever waits for one learns from two of these what came in meanwhile, however many passes there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    pub attached: u64,
    pub removed: u64,
    pub rows: u64,
    pub bytes_read: u64,
}

impl Done {
    fn and(self, progress: &Progress) -> Done {
        Done {
            attached: self.attached + progress.attached,
            removed: self.removed + progress.removed,
            rows: self.rows + progress.rows,
            bytes_read: self.bytes_read + progress.bytes_read,
        }
    }
}

impl Standing {
    /// Of all passes of this process.
    pub fn done(&self) -> Done {
        self.progress.as_ref().map_or(self.earlier, |progress| self.earlier.and(progress))
    }
}

impl Attachment {
    /// The table as the metastore has it. Looks at no file.
    pub async fn open(parts: &Parts, schema: Arc<TableSchema>, stop: CancellationToken) -> Result<Arc<Attachment>> {
        let archive = archive_of(&schema)?;
        let place = Place::parse_for("open", &archive.url)?;
        let version = parts.metastore.version(schema.id).await?;
        Ok(Arc::new(Attachment {
            id: schema.id,
            name: schema.name.clone(),
            near: place.open().map(|store| parts.caches.around_archive(&place, store)),
            place,
            seen: RwLock::new(Arc::new(Seen { schema, version: AtomicU64::new(version.0) })),
            passing: tokio::sync::Mutex::default(),
            standing: Mutex::default(),
            stop,
            worker: Mutex::default(),
        }))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.seen().schema)
    }

    /// What a statement that begins now sees.
    pub fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen.read())
    }

    /// Files of this archive have the same id, those of no other table do; never 0.
    pub fn store_id(&self) -> u64 {
        u64::from(self.id.0) + 1
    }

    /// Its store, through the caches.
    pub fn near(&self) -> Result<Near> {
        self.near.clone()
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }

    /// In one word: `running`, `failed`, `interrupted` (the first pass did not come to its end, and nobody is at it) or `attached`.
    pub fn state(&self) -> &'static str {
        let standing = self.standing.lock();
        let is_attached = self.seen().schema.options.archive.as_ref().is_some_and(|archive| archive.attached);
        match () {
            () if standing.is_running => "running",
            () if standing.last_error.is_some() => "failed",
            () if !is_attached => "interrupted",
            () => "attached",
        }
    }

    /// `25006`: who writes to it instead.
    pub fn read_only(&self) -> SqlError {
        let name = &self.name;
        SqlError::new(
            state::READ_ONLY_TRANSACTION,
            format!("table \"{name}\" is read-only: it is the archive {}, which others write", self.place),
        )
        .with_hint(format!(
            "write files there and CALL tarn.attach('{name}'), or CREATE TABLE another and INSERT INTO … SELECT * FROM {name}; \
             DETACH TABLE {name} forgets it, and deletes no file"
        ))
    }

    /// Lists the archive and takes in what is new, changed or gone; waits for a pass that runs. Dropped half-way, what is committed
    /// stays.
    ///
    /// Errors: what was in the way, with what to do; what is committed stays.
    pub async fn pass(&self, parts: &Parts) -> Result<Progress> {
        let _one = self.passing.lock().await;
        let running = Running::begin(self, parts.clock.now_ms());
        let done = tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(stopped(&self.name)),
            done = self.take_in(parts) => done,
        };
        running.end(&done, parts.clock.now_ms());
        match &done {
            Ok(progress) => {
                parts.metrics.attach_passes.inc();
                parts.metrics.attached_files.inc_by(progress.attached);
                let Progress { listed, known, attached, skipped, removed, rows, version, .. } = progress;
                tracing::info!(table = %self.name, listed, known, attached, skipped, removed, rows, %version, "attached");
            }
            Err(error) => {
                parts.metrics.attach_failures.inc();
                tracing::warn!(table = %self.name, %error, "pass failed");
            }
        }
        done
    }

    async fn take_in(&self, parts: &Parts) -> Result<Progress> {
        self.place.check().await?;
        let store = self.near()?.store;
        self.check_not_away(&*store, parts).await?;
        let changed = Notify::new();
        let report = |progress: &Progress| {
            let before = self.standing.lock().progress.replace(*progress);
            if before.is_some_and(|before| before.version != progress.version) {
                changed.notify_one();
            }
        };
        let archive = archive_of(&self.schema())?.clone();
        let attach = reader(store, parts, &archive);
        let pass = attach.pass(self.id, &report);
        tokio::pin!(pass);
        let done = loop {
            tokio::select! {
                done = &mut pass => break done,
                () = changed.notified() => self.publish(parts).await?,
            }
        };
        self.publish(parts).await?;
        let progress = done.map_err(|error| explain(&error, &self.place))?;
        if !archive.attached {
            self.mark_attached(parts).await?;
        }
        Ok(progress)
    }

    /// A folder that is not mounted looks like an empty one: then all would be taken for gone, and read again when it is back.
    async fn check_not_away(&self, store: &dyn ObjectStore, parts: &Parts) -> Result<()> {
        let n_files = parts.metastore.snapshot(self.id, tarn_metastore::At::Latest).await?.files.len();
        if n_files == 0 || store.list(None).next().await.is_some() {
            return Ok(());
        }
        let message = format!("nothing at all is listed at {}, of which {n_files} files are attached", self.place);
        Err(SqlError::new(state::IO_ERROR, message).with_hint(format!(
            "see that it is mounted; the files stay attached. DETACH TABLE {} if the archive is gone for good",
            self.name
        )))
    }

    /// Shows queries what is committed.
    async fn publish(&self, parts: &Parts) -> Result<()> {
        // In this order: the definition may be newer than the version, which is harmless, and not the other way.
        let version = parts.metastore.version(self.id).await?;
        let schema = definition(&*parts.metastore, self.id, &self.name).await?;
        let seen = self.seen();
        if Arc::ptr_eq(&seen.schema, &schema) || seen.schema == schema {
            seen.version.fetch_max(version.0, Ordering::AcqRel);
            return Ok(());
        }
        *self.seen.write() = Arc::new(Seen { schema, version: AtomicU64::new(version.0) });
        parts.catalog.changed();
        Ok(())
    }

    /// Remembers that a pass came to its end.
    async fn mark_attached(&self, parts: &Parts) -> Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            let from = definition(&*parts.metastore, self.id, &self.name).await?;
            let mut to = Box::new((*from).clone());
            if let Some(archive) = &mut to.options.archive {
                archive.attached = true;
            }
            match parts.metastore.define(Definition::Alter { from, to }).await {
                Err(error) if error.kind() == Kind::Conflict && tries < TRIES => {}
                done => {
                    done?;
                    return self.publish(parts).await;
                }
            }
        }
    }

    /// Everything that happens by itself: a first pass that was cut short (`goes_on`), one each `follow`, and old versions forgotten.
    async fn live(self: Arc<Self>, parts: Arc<Parts>, goes_on: bool) {
        let kept_ms = parts.settings.versions_kept_ms;
        let tidy_every = Duration::from_millis((kept_ms / 4).max(10_000));
        let mut next_pass = if goes_on { Some(Instant::now()) } else { self.wait(false).map(from_now) };
        let mut next_tidy = from_now(tidy_every);
        loop {
            let due = next_pass.map_or(next_tidy, |at| at.min(next_tidy));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep_until(due) => {}
            }
            if next_pass.is_some_and(|at| at <= Instant::now()) {
                // How it went is counted and told there.
                let _ = self.pass(&parts).await;
                next_pass = self.wait(goes_on).map(from_now);
            }
            if next_tidy <= Instant::now() {
                next_tidy = from_now(tidy_every);
                let pinned = self.seen().version();
                if let Err(error) = parts.lake.expire(self.id, kept_ms, pinned).await {
                    parts.metrics.background_failures.inc();
                    tracing::error!(table = %self.name, %error, "versions are not forgotten, will be retried");
                }
            }
        }
    }

    /// From the end of one pass to the next one.
    fn wait(&self, goes_on: bool) -> Option<Duration> {
        let archive = self.schema().options.archive.clone().unwrap_or_default();
        archive.follow_ms.map(Duration::from_millis).or((goes_on && !archive.attached).then_some(RETRY))
    }

    /// Ends its worker, and waits for a pass that runs to stop.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        let worker = self.worker.lock().take();
        if let Some(worker) = worker {
            let _ = worker.await;
        }
        let _none_runs = self.passing.lock().await;
    }
}

fn from_now(wait: Duration) -> Instant {
    Instant::now() + wait
}

/// A pass that runs. Dropped before its end, it was cancelled.
struct Running<'a>(&'a Attachment);

impl Running<'_> {
    fn begin(of: &Attachment, now_ms: i64) -> Running<'_> {
        let mut standing = of.standing.lock();
        *standing = Standing {
            is_running: true,
            started_ms: Some(now_ms),
            progress: Some(Progress::default()),
            earlier: standing.done(),
            ..Standing::default()
        };
        drop(standing);
        Running(of)
    }

    fn end(self, done: &Result<Progress>, now_ms: i64) {
        let mut standing = self.0.standing.lock();
        standing.ended_ms = Some(now_ms);
        match done {
            Ok(progress) => standing.progress = Some(*progress),
            Err(error) => {
                let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                standing.last_error = Some(format!("{error}{hint}"));
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.standing.lock().is_running = false;
    }
}

fn reader(store: Arc<dyn ObjectStore>, parts: &Parts, archive: &Archive) -> Attach {
    Attach {
        store,
        metastore: Arc::clone(&parts.metastore),
        clock: Arc::clone(&parts.clock),
        concurrency: archive.concurrency.unwrap_or(CONCURRENCY) as usize,
    }
}

fn archive_of(schema: &TableSchema) -> Result<&Archive> {
    let error = || SqlError::new(state::INTERNAL, format!("table \"{}\" is no archive", schema.name));
    schema.options.archive.as_ref().ok_or_else(error)
}

async fn definition(metastore: &dyn Metastore, id: TableId, name: &str) -> Result<Arc<TableSchema>> {
    let tables = metastore.tables().await?;
    tables.into_iter().find(|schema| schema.id == id).ok_or_else(|| SqlError::undefined_table(name))
}

impl Node {
    /// Makes a table of an archive and runs the first pass. Cancelled or failed during the pass, the table is there with what was
    /// committed.
    pub async fn attach(self: &Arc<Self>, request: &AttachRequest) -> Result<Progress> {
        self.check_open()?;
        self.check_free(&request.name)?;
        let place = Place::parse(&request.url)?;
        place.check().await?;
        let (store, archive) = (place.open()?, request.archive(place.to_string()));
        let attach = reader(store, self.parts(), &archive);
        let name = request.name.clone();
        let surveying = async move {
            let surveyed = attach.survey(&name, &archive).await;
            surveyed.map_err(|error| explain(&error, &place))
        };
        let surveyed = self.in_background(surveying).await?;
        let schema = request.table(surveyed.schema)?;

        let node = Arc::clone(self);
        // To its end, also when the client goes away: half a table is none.
        let making = tokio::spawn(async move { node.create_archive(schema).await });
        let attachment = making
            .await
            .map_err(|e| SqlError::new(state::INTERNAL, format!("a change of the catalog died: {e}")))??;
        self.pass(&attachment).await.map_err(|error| {
            if error.state() == state::QUERY_CANCELED {
                return error;
            }
            let name = attachment.name();
            let hint = error.hint().map(|hint| format!("{hint}; then ")).unwrap_or_default();
            error.with_hint(format!(
                "{hint}CALL tarn.attach('{name}') to go on: what was read until now is in the table"
            ))
        })
    }

    async fn create_archive(&self, schema: TableSchema) -> Result<Arc<Attachment>> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.check_free(&schema.name)?;
        let schema = self.parts().metastore.create_table(schema).await.map_err(|e| half_made(e.into()))?;
        let attachment = match Attachment::open(self.parts(), Arc::clone(&schema), self.stop_token()).await {
            Ok(attachment) => attachment,
            Err(error) => return Err(self.undo_create(&schema, error).await),
        };
        self.parts().catalog.insert_archive(Arc::clone(&attachment));
        self.parts().metrics.tables.inc();
        // The statement runs the first pass, and whoever cancels that means it.
        self.start_following(&attachment, false);
        Ok(attachment)
    }

    pub(crate) fn check_free(&self, name: &str) -> Result<()> {
        let message = format!("table \"{name}\" already exists");
        let error = SqlError::new(state::DUPLICATE_TABLE, message);
        match (self.catalog().archive(name), self.catalog().contains(name)) {
            (Some(_), _) => Err(error.with_hint(format!(
                "CALL tarn.attach('{name}') takes in what is new there; DETACH TABLE {name} forgets it"
            ))),
            (None, true) => Err(error.with_hint("choose another name, or DROP TABLE it first")),
            (None, false) => Ok(()),
        }
    }

    /// Opens an archive of the metastore, when the server starts.
    pub(crate) async fn open_archive(&self, schema: Arc<TableSchema>) -> Result<()> {
        let attachment = Attachment::open(self.parts(), schema, self.stop_token()).await?;
        if let Err(error) = attachment.near() {
            tracing::error!(table = %attachment.name(), %error, "archive cannot be read");
        }
        self.parts().catalog.insert_archive(Arc::clone(&attachment));
        let goes_on = !archive_of(&attachment.schema())?.attached;
        self.start_following(&attachment, goes_on);
        Ok(())
    }

    fn start_following(&self, attachment: &Arc<Attachment>, goes_on: bool) {
        if self.settings().background {
            let living = Arc::clone(attachment).live(Arc::clone(self.parts()), goes_on);
            *attachment.worker.lock() = self.spawn_background(living);
        }
    }

    /// One pass over an archive, on the threads of background work. Cancelled when it is dropped.
    pub async fn pass(&self, attachment: &Arc<Attachment>) -> Result<Progress> {
        let (attachment, parts) = (Arc::clone(attachment), Arc::clone(self.parts()));
        self.in_background(async move { attachment.pass(&parts).await }).await
    }

    /// Forgets an archive; its files stay where they are. False: there was none and `if_exists` was said.
    ///
    /// Errors: `42P01`, and `42809` for a table that is no archive.
    pub async fn detach(&self, name: &str, if_exists: bool) -> Result<bool> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        match self.catalog().archive(name) {
            Some(attachment) => self.forget_archive(&attachment).await,
            None if self.catalog().contains(name) => {
                Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("table \"{name}\" is not an archive"))
                    .with_hint("DROP TABLE removes a table with its rows"))
            }
            None if if_exists => Ok(false),
            None => Err(SqlError::undefined_table(name)),
        }
    }

    /// The caller holds the catalog.
    pub(crate) async fn forget_archive(&self, attachment: &Attachment) -> Result<bool> {
        // First: an archive that could not be detached is followed as before.
        match self.parts().metastore.drop_table(attachment.name()).await {
            // By an earlier DETACH whose answer was lost, or by another server.
            Err(error) if error.kind() == Kind::NotFound => {}
            dropped => drop(dropped?),
        }
        self.parts().catalog.remove(attachment.name());
        attachment.end().await;
        self.parts().metrics.tables.dec();
        Ok(true)
    }
}

fn stopped(name: &str) -> SqlError {
    let message = format!("the pass over \"{name}\" was stopped: it is being detached, or the server stops");
    SqlError::new(state::QUERY_CANCELED, message)
}

fn explain(error: &tarn_lake::Error, place: &Place) -> SqlError {
    use tarn_lake::Error as Lake;
    let explained = SqlError::of_kind(error.kind(), chain(error));
    match error {
        Lake::NothingToAttach { .. } => explained
            .with_state(state::INVALID_PARAMETER_VALUE)
            .with_hint("all files below it that end in .parquet are attached"),
        Lake::NoHour { .. } => explained.with_state(state::INVALID_PARAMETER_VALUE).with_hint(
            "name the parts of these paths that say the hour, such as dt=…/hr=…; or leave hour_from out: time_column dates the files",
        ),
        Lake::Store { .. } => explained.with_state(state::IO_ERROR).with_hint(place.remedy()),
        _ => explained,
    }
}
