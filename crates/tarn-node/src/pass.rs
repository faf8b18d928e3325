//! How does an archive stay a table as it changes?
//!
//! A pass (`tarn-lake`'s `attach`) lists the archive and commits what is new; queries see each commit as soon as it is
//! made. What is committed is the progress: a pass that was cancelled, failed or died is gone on with by the next one.
//!
//! Invariant: nothing here writes to an archive, or deletes from it (`stores.rs` opens it to be read).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use object_store::ObjectStore;
use tarn_lake::attach::{Attach, Progress};
use tarn_metastore::{Definition, Metastore, MetastoreExt};
use tarn_types::{Archive, Kind, TableId, TableSchema};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Result, chain};
use crate::external_table::{ExternalTable, PassStatus, VersionedSchema, archive_of};
use crate::parts::NodeParts;
use crate::stores::StoreLocation;

/// Files read at once, unless `concurrency` says otherwise.
const CONCURRENCY: u32 = 4;

/// A first pass that failed is gone on with after so long.
const RETRY: Duration = Duration::from_secs(60);

/// How often a change of the definition is tried that others get in the way of.
const TRIES: usize = 3;

impl ExternalTable {
    /// Lists the archive and takes in what is new, changed or gone; waits for a pass that runs. Dropped half-way, what
    /// is committed stays.
    ///
    /// Errors: what was in the way, with what to do; what is committed stays.
    pub async fn pass(&self, parts: &NodeParts) -> Result<Progress> {
        let _one = self.passing.lock().await;
        let running = RunningPass::begin(self, parts.clock.now_ms());
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

    async fn take_in(&self, parts: &NodeParts) -> Result<Progress> {
        self.location.check().await?;
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
        let progress = done.map_err(|error| explain(&error, &self.location))?;
        if !archive.attached {
            self.mark_attached(parts).await?;
        }
        Ok(progress)
    }

    /// A folder that is not mounted looks like an empty one: then all would be taken for gone, and read again when it
    /// is back.
    async fn check_not_away(&self, store: &dyn ObjectStore, parts: &NodeParts) -> Result<()> {
        let n_files = parts.metastore.snapshot(self.id, tarn_metastore::VersionSelector::Latest).await?.files.len();
        if n_files == 0 || store.list(None).next().await.is_some() {
            return Ok(());
        }
        let message = format!("nothing at all is listed at {}, of which {n_files} files are attached", self.location);
        Err(Error::new(ErrorKind::Unavailable, message).with_hint(format!(
            "see that it is mounted; the files stay attached. DETACH TABLE {} if the archive is gone for good",
            self.name
        )))
    }

    /// Shows queries what is committed.
    async fn publish(&self, parts: &NodeParts) -> Result<()> {
        // In this order: the definition may be newer than the version, which is harmless, and not the other way.
        let version = parts.metastore.version(self.id).await?;
        let schema = definition(&*parts.metastore, self.id, &self.name).await?;
        let seen = self.seen();
        if Arc::ptr_eq(&seen.schema, &schema) || seen.schema == schema {
            seen.version.fetch_max(version.0, Ordering::AcqRel);
            return Ok(());
        }
        *self.seen.write() = Arc::new(VersionedSchema { schema, version: AtomicU64::new(version.0) });
        parts.catalog.changed();
        Ok(())
    }

    /// Remembers that a pass came to its end.
    async fn mark_attached(&self, parts: &NodeParts) -> Result<()> {
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

    /// Everything that happens by itself: a first pass that was cut short (`goes_on`), one each `follow`, and old
    /// versions forgotten.
    pub(crate) async fn live(self: Arc<Self>, parts: Arc<NodeParts>, goes_on: bool) {
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
}

fn from_now(wait: Duration) -> Instant {
    Instant::now() + wait
}

/// A pass that runs. Dropped before its end, it was cancelled.
struct RunningPass<'a>(&'a ExternalTable);

impl RunningPass<'_> {
    fn begin(of: &ExternalTable, now_ms: i64) -> RunningPass<'_> {
        let mut standing = of.standing.lock();
        *standing = PassStatus {
            is_running: true,
            started_ms: Some(now_ms),
            progress: Some(Progress::default()),
            earlier: standing.done(),
            ..PassStatus::default()
        };
        drop(standing);
        RunningPass(of)
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

impl Drop for RunningPass<'_> {
    fn drop(&mut self) {
        self.0.standing.lock().is_running = false;
    }
}

pub(crate) fn reader(store: Arc<dyn ObjectStore>, parts: &NodeParts, archive: &Archive) -> Attach {
    Attach {
        store,
        metastore: Arc::clone(&parts.metastore),
        clock: Arc::clone(&parts.clock),
        concurrency: archive.concurrency.unwrap_or(CONCURRENCY) as usize,
    }
}

async fn definition(metastore: &dyn Metastore, id: TableId, name: &str) -> Result<Arc<TableSchema>> {
    let tables = metastore.tables().await?;
    tables.into_iter().find(|schema| schema.id == id).ok_or_else(|| Error::no_table(name))
}

fn stopped(name: &str) -> Error {
    let message = format!("the pass over \"{name}\" was stopped: it is being detached, or the server stops");
    Error::new(ErrorKind::Canceled, message)
}

pub(crate) fn explain(error: &tarn_lake::Error, location: &StoreLocation) -> Error {
    use tarn_lake::Error as Lake;
    let explained = Error::of_kind(error.kind(), chain(error));
    match error {
        Lake::NothingToAttach { .. } => explained
            .with_kind(ErrorKind::Invalid)
            .with_hint("all files below it that end in .parquet are attached"),
        Lake::NoHour { .. } => explained.with_kind(ErrorKind::Invalid).with_hint(
            "name the parts of these paths that say the hour, such as dt=…/hr=…; or leave hour_from out: time_column dates the files",
        ),
        Lake::Store { .. } => explained.with_kind(ErrorKind::Unavailable).with_hint(location.remedy()),
        _ => explained,
    }
}
