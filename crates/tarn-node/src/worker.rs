//! What happens in the background of a table? Delivery, compaction, eviction, log trimming: one after another.
//!
//! One task a table, so that deliveries and compactions of a table are serial, as the seam to the lake demands.
//! Statements such as `DELIVER TABLE t` are jobs of the same task. A failed step is logged, counted and tried again at
//! the next turn.

use std::sync::Arc;
use std::time::Duration;

use tarn_feed::HotTable;
use tarn_lake::CompactionStats;
use tarn_replica::Replicas;
use tarn_types::{Cursor, SeqNo};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::catalog::{DeliveryFailure, TableHandle};
use crate::error::{Error, ErrorKind, Result};
use crate::grown;
use crate::jobs::{JobReport, TableJob, Work};
use crate::parts::NodeParts;
use crate::threads::blocking;

/// How long background work may go on when the node closes.
const LAST_STEPS: Duration = Duration::from_secs(1);

/// Rows of the row engine looked at by one eviction step.
const EVICT_BUDGET: usize = 50_000;

/// Deliveries in one `DELIVER TABLE`: what was frozen by a failed one, then the rest.
const MAX_DELIVERIES: usize = 3;

/// Into how many steps a feed's retention is cut: positions are remembered that often.
const RETENTION_STEPS: i64 = 256;

/// Objects no version names are removed when they are older than this: longer than any delivery takes.
const ORPHAN_GRACE_MS: u64 = 3_600_000;

/// Maintenance rounds between two searches for such objects.
const ORPHAN_ROUNDS: u64 = 16;

/// Asks the table's worker and waits for it.
pub(crate) async fn ask(handle: &TableHandle, work: Work) -> Result<JobReport> {
    let gone =
        || Error::new(ErrorKind::WrongState, format!("the worker of table \"{}\" has stopped", handle.schema().name));
    handle.check_whole()?;
    let (done, answer) = oneshot::channel();
    handle.jobs.send(TableJob { work, done }).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

/// Runs `work` to its end, or until [`LAST_STEPS`] after `closing`: what is short is done then, and nothing of it runs
/// on.
async fn until<T>(closing: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        done = &mut work => return Some(done),
        () = closing.cancelled() => {}
    }
    tokio::time::timeout(LAST_STEPS, work).await.ok()
}

/// The task of one table.
pub struct Worker {
    parts: Arc<NodeParts>,
    handle: Arc<TableHandle>,
    /// One a tablet.
    replicas: Arc<Replicas>,
    /// The same, as the lake sees the table.
    hot: Arc<dyn HotTable>,
    /// Positions at earlier times, oldest first: what the feed's retention keeps.
    marks: Vec<(i64, Cursor)>,
    /// Up to where the log was trimmed.
    trimmed: Cursor,
    maintained_ms: i64,
    n_maintained: u64,
}

impl Worker {
    pub(crate) fn new(parts: Arc<NodeParts>, handle: Arc<TableHandle>, replicas: Arc<Replicas>) -> Worker {
        let hot: Arc<dyn HotTable> = replicas.clone();
        Worker {
            parts,
            handle,
            replicas,
            hot,
            marks: Vec::new(),
            trimmed: Cursor::new(),
            maintained_ms: 0,
            n_maintained: 0,
        }
    }

    /// Runs until the table is dropped or the node closes.
    pub async fn run(mut self, mut jobs: mpsc::Receiver<TableJob>) {
        let handle = Arc::clone(&self.handle);
        let closing = self.parts.stop.clone();
        let background = self.parts.settings.background;
        let mut interval = tokio::time::interval(Duration::from_millis(self.parts.settings.background_interval_ms));
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = handle.stop.cancelled() => return,
                job = jobs.recv() => match job {
                    Some(job) => {
                        let report = until(&closing, self.work(job.work)).await;
                        let report = report.unwrap_or_else(|| Err(Error::stopping()));
                        // Nobody waits any more: the work is done all the same.
                        let _ = job.done.send(report);
                    }
                    None => return,
                },
                () = handle.kick.notified(), if background => self.turn_until(&closing).await,
                _ = interval.tick(), if background => self.turn_until(&closing).await,
            }
        }
    }

    async fn work(&mut self, work: Work) -> Result<JobReport> {
        let mut report = match work {
            Work::Deliver => self.deliver_all().await?,
            Work::Compact => self.compact_all().await?,
            Work::Evict => self.evict_all().await?,
            Work::Flush => {
                let parts = Arc::clone(&self.parts);
                blocking(move || parts.flush()).await?;
                JobReport::default()
            }
        };
        report.version = self.handle.table.installed().0.0;
        Ok(report)
    }

    /// One turn, left when the node closes: whatever it began is taken up again by the next start. A table that is
    /// dropped waits for its end.
    async fn turn_until(&mut self, closing: &CancellationToken) {
        until(closing, self.turn()).await;
    }

    /// One turn: whatever is due.
    async fn turn(&mut self) {
        let step = async {
            let delivered = self.is_delivery_due() && self.deliver().await?.is_some();
            if delivered && self.parts.settings.compaction {
                while !self.is_delivery_due() && self.compact().await? {}
            }
            if delivered {
                self.split_grown().await?;
            }
            self.look_up_hidden().await?;
            self.evict_old().await?;
            self.trim().await?;
            self.maintain().await
        };
        if let Err(error) = step.await {
            if self.handle.stop.is_cancelled() {
                // The table was dropped, or the node closes: nobody waits for it.
                tracing::debug!(table = %self.handle.schema().name, %error, "background work was cut short");
                return;
            }
            self.parts.metrics.background_failures.inc();
            tracing::error!(table = %self.handle.schema().name, %error, "background work failed, will be retried");
        }
    }

    fn is_delivery_due(&self) -> bool {
        let pending = self.handle.table.pending();
        let Some(oldest_ms) = pending.oldest_ms else { return false };
        let options = &self.handle.schema().options;
        let age_ms = self.parts.clock.now_ms().saturating_sub(oldest_ms);
        let is_stuck = self.handle.stuck.lock().is_some();
        let pressed = self.parts.catalog.recent().is_pressed(self.parts.settings.recent_limit_bytes, is_stuck);
        pending.bytes >= options.delivery_bytes || age_ms >= options.delivery_interval_ms as i64 || pressed
    }

    async fn deliver(&mut self) -> Result<Option<JobReport>> {
        let delivered = self.parts.lake.deliver(&self.hot).await.map_err(Error::from);
        self.note_delivery(delivered.as_ref().err());
        self.parts.room.notify_waiters();
        let delivered = delivered?;
        Ok(delivered.map(|delivered| {
            self.parts.metrics.deliveries.inc();
            self.parts.metrics.delivery_seconds.observe_us(delivered.ms * 1000);
            self.parts.metrics.delivered_rows.inc_by(delivered.rows);
            tracing::info!(table = %self.handle.schema().name, version = %delivered.version, rows = delivered.rows, files = delivered.files, "delivered");
            JobReport { rows: delivered.rows, files: delivered.files, version: delivered.version.0 }
        }))
    }

    /// Who waits for room, and who asks how the server is, hears why there is none.
    fn note_delivery(&self, failed: Option<&Error>) {
        let name = &self.handle.schema().name;
        let failed = failed.filter(|_| !self.handle.stop.is_cancelled());
        let since_ms = self.handle.stuck().map_or_else(|| self.parts.clock.now_ms(), |stuck| stuck.since_ms);
        let stuck = failed.map(|error| DeliveryFailure { since_ms, reason: error.to_string() });
        self.parts.catalog.note_delivery(&self.handle, stuck);
        self.parts.metrics.set_delivery_failing(name, failed.is_some());
    }

    /// Everything written before the call: also what came while an earlier delivery was frozen.
    async fn deliver_all(&mut self) -> Result<JobReport> {
        let wanted = self.handle.table.applied_cursor();
        let mut total = JobReport::default();
        for _ in 0..MAX_DELIVERIES {
            let Some(report) = self.deliver().await? else { break };
            total.rows += report.rows;
            total.files += report.files;
            if self.handle.table.installed().1.covers(&wanted) {
                break;
            }
        }
        Ok(total)
    }

    /// What is most worth it, by policy; true: something was.
    async fn compact(&mut self) -> Result<bool> {
        let compacted = self.parts.lake.compact(&self.hot).await?;
        Ok(compacted.map(|compacted| self.compacted(&compacted)).is_some())
    }

    /// All small files and all dead rows. Damaged files stay as they are; the others are done, and then the damage is
    /// the answer.
    async fn compact_all(&mut self) -> Result<JobReport> {
        let mut total = JobReport::default();
        let lake = &self.parts.lake;
        lake.look_again(self.handle.schema().id).await?;
        let n_damaged = || lake.flaws().of_table(self.handle.schema().id).len();
        loop {
            let before = n_damaged();
            match lake.compact_fully(&self.hot).await {
                Ok(None) => break,
                Ok(Some(compacted)) => {
                    self.compacted(&compacted);
                    total.rows += compacted.rows;
                    total.files += compacted.files_after;
                }
                // The next one goes without it.
                Err(tarn_lake::Error::Damaged { .. }) if n_damaged() > before => {}
                Err(error) => return Err(error.into()),
            }
        }
        match lake.flaws().of_table(self.handle.schema().id).into_iter().next() {
            Some(flaw) => Err(Error::of_kind(tarn_types::Kind::Corrupt, flaw.what)),
            None => Ok(total),
        }
    }

    fn compacted(&self, compacted: &CompactionStats) {
        let CompactionStats { version, rows, files_before, files_after, ms, .. } = compacted;
        self.parts.metrics.compactions.inc();
        self.parts.metrics.compaction_seconds.observe_us(ms * 1000);
        tracing::info!(table = %self.handle.schema().name, %version, rows, files_before, files_after, "compacted");
    }

    /// Tablets that have become too large.
    async fn split_grown(&self) -> Result<()> {
        let max_bytes = self.parts.settings.tablet_split_bytes;
        if max_bytes > 0 && self.parts.check_writable().is_ok() {
            let n_new = grown::split(&self.handle, max_bytes).await?;
            self.parts.metrics.tablet_splits.inc_by(n_new);
        }
        Ok(())
    }

    /// What recent rows hide, before a query has to ask.
    async fn look_up_hidden(&self) -> Result<()> {
        if self.handle.table.pending().oldest_ms.is_none() {
            return Ok(());
        }
        let table = Arc::clone(&self.handle.table);
        blocking(move || Ok(table.look_up_hidden()?)).await
    }

    /// Delivered rows past the table's hot retention.
    async fn evict_old(&mut self) -> Result<()> {
        let options = &self.handle.schema().options;
        let Some(retention_ms) = options.hot_retention_ms.filter(|_| !options.append_only) else { return Ok(()) };
        let before_ms = self.parts.clock.now_ms().saturating_sub(retention_ms as i64);
        self.evict(before_ms).await.map(|_| ())
    }

    async fn evict(&mut self, before_ms: i64) -> Result<tarn_rows::EvictReport> {
        let table = Arc::clone(&self.handle.table);
        let report = blocking(move || Ok(table.evict(before_ms, EVICT_BUDGET)?)).await?;
        self.parts.metrics.evicted_rows.inc_by(report.rows);
        Ok(report)
    }

    async fn evict_all(&mut self) -> Result<JobReport> {
        if self.handle.schema().options.append_only {
            return Ok(JobReport::default());
        }
        let mut rows = 0;
        // To the end of what a running pass has left, then once over everything.
        for _ in 0..2 {
            loop {
                let report = self.evict(i64::MAX).await?;
                rows += report.rows;
                if report.done {
                    break;
                }
            }
        }
        Ok(JobReport { rows, ..JobReport::default() })
    }

    /// Forgets log entries that are durable in the row engine, delivered, and past the feed's retention.
    async fn trim(&mut self) -> Result<()> {
        let handle = Arc::clone(&self.handle);
        let now_ms = self.parts.clock.now_ms();
        let retention_ms = handle.schema().options.feed_retention_ms as i64;
        let is_due =
            self.marks.last().is_none_or(|(at_ms, _)| now_ms.saturating_sub(*at_ms) >= retention_ms / RETENTION_STEPS);
        if is_due {
            self.marks.push((now_ms, handle.table.applied_cursor()));
        }
        let n_old = self.marks.iter().take_while(|(at_ms, _)| now_ms.saturating_sub(*at_ms) >= retention_ms).count();
        let Some((_, retained)) = n_old.checked_sub(1).and_then(|newest_old| self.marks.get(newest_old)).cloned()
        else {
            return Ok(());
        };
        self.marks.drain(..n_old - 1);
        let (_, installed) = handle.table.installed();
        let replicas = self.replicas.all();
        let tablets = replicas.iter().map(|replica| replica.tablet());
        let upto: Cursor = tablets
            .map(|tablet| {
                let kept = handle.table.durable(tablet).min(installed.get(tablet)).min(retained.get(tablet));
                (tablet, kept)
            })
            .collect();
        if upto == self.trimmed {
            return Ok(());
        }
        for (tablet, seqno) in upto.iter() {
            let before = self.trimmed.get(tablet);
            assert!(seqno >= before, "the log of tablet {tablet} is trimmed back: {before} → {seqno}");
        }
        let trimming = upto.clone();
        blocking(move || {
            for replica in replicas {
                let upto = trimming.get(replica.tablet());
                if upto > SeqNo::ZERO {
                    replica.trim(upto)?;
                }
            }
            Ok(())
        })
        .await?;
        self.trimmed = upto;
        Ok(())
    }

    /// Rarely: forgets lake versions nobody may ask for any more, tombstones of keys the lake has forgotten, and
    /// objects no version names.
    async fn maintain(&mut self) -> Result<()> {
        let now_ms = self.parts.clock.now_ms();
        let kept_ms = self.parts.settings.versions_kept_ms as i64;
        if now_ms.saturating_sub(self.maintained_ms) < (kept_ms / 4).max(10_000) {
            return Ok(());
        }
        self.maintained_ms = now_ms;
        let pinned = self.handle.table.oldest_version_in_use();
        self.parts.lake.expire(self.handle.schema().id, kept_ms as u64, pinned).await?;
        let options = &self.handle.schema().options;
        if options.hot_retention_ms.is_none() && !options.append_only {
            let table = Arc::clone(&self.handle.table);
            blocking(move || Ok(table.remove_tombstones(EVICT_BUDGET)?)).await?;
        }
        self.n_maintained += 1;
        if self.n_maintained.is_multiple_of(ORPHAN_ROUNDS) {
            self.parts.lake.remove_orphans(self.handle.schema(), ORPHAN_GRACE_MS).await?;
        }
        Ok(())
    }
}
