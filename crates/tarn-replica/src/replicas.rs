//! Which replicas does a table have here? What is asked of a table goes to that of each tablet, and their number grows
//! when one is split.
//!
//! To those who deliver it is the table's hot side ([`HotTable`]): a freeze is an entry of each tablet's log.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tarn_raftlog::RaftLog;
use tarn_rows::{DeliveryBacklog, FeedError, FeedResult, FrozenRows, HotTable, Outcome, Stage, StagedAddresses, Table};
use tarn_types::{Cursor, Entry, MutationBatch, Request, SeqNo, TableSchema, TabletId, Version};

use crate::error::{Error, Result};
use crate::replica::{Replica, propose_all, propose_entries, propose_named, propose_together};

/// How often a batch is cut anew because a tablet was split meanwhile.
const MAX_CUTS: usize = 16;

/// The replicas of one table.
pub struct Replicas {
    log: Arc<RaftLog>,
    table: Arc<Table>,
    open: RwLock<BTreeMap<TabletId, Arc<Replica>>>,
    /// One split at a time: each takes the next id.
    splitting: Mutex<()>,
}

/// What became of the log of one tablet at start.
#[derive(Debug)]
pub struct TabletReplay {
    /// The tablet.
    pub tablet: TabletId,
    /// From which entry on the log lost what was acknowledged, if it did ([`Replica::damaged_from`]).
    pub damaged_from: Option<SeqNo>,
    /// Why it could not be replayed to its end.
    pub failed: Option<Error>,
}

/// What became of a batch, or of the part of it that is in one tablet.
#[derive(Clone, Debug)]
pub struct PartDecision {
    /// The place of the batch among those that were proposed.
    pub of: usize,
    /// What was decided as one.
    pub part: MutationBatch,
    /// What became of it.
    pub outcome: Outcome,
}

impl PartDecision {
    /// Whether nothing of it happened.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !matches!(self.outcome, Outcome::Applied { .. })
    }
}

impl Replicas {
    /// Without a replica yet: [`Replicas::replay`] opens them.
    #[must_use]
    pub fn new(log: Arc<RaftLog>, table: Arc<Table>) -> Self {
        Self { log, table, open: RwLock::default(), splitting: Mutex::default() }
    }

    /// Opens all tablets, those that come to be on the way too, and replays their logs: a tablet that was split off
    /// after the one that had its keys. Then [`Table::finish_replay`].
    ///
    /// # Errors
    /// As [`Replica::open`]. What a replay met is in the answer, by tablet.
    pub fn replay(&self) -> Result<Vec<TabletReplay>> {
        let mut done: Vec<TabletReplay> = Vec::new();
        loop {
            let map = self.table.tablet_map();
            let is_open = |tablet: TabletId| self.open.read().contains_key(&tablet);
            let is_next = |tablet: &TabletId| {
                !is_open(*tablet) && self.table.born(*tablet).is_none_or(|(parent, _)| is_open(parent))
            };
            let Some(tablet) = map.ids().find(is_next) else { return Ok(done) };
            let replica = Replica::open(Arc::clone(&self.log), Arc::clone(&self.table), tablet)?;
            let failed = replica.replay().err();
            done.push(TabletReplay { tablet, damaged_from: replica.damaged_from(), failed });
            self.open.write().insert(tablet, Arc::new(replica));
        }
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The log that holds their entries.
    #[must_use]
    pub fn log(&self) -> &Arc<RaftLog> {
        &self.log
    }

    /// Those that are open, by tablet.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Replica>> {
        self.open.read().values().cloned().collect()
    }

    /// That of a tablet; of one that was just split off it is opened.
    fn replica(&self, tablet: TabletId) -> Result<Arc<Replica>> {
        if let Some(replica) = self.open.read().get(&tablet) {
            return Ok(Arc::clone(replica));
        }
        let mut open = self.open.write();
        if let Some(replica) = open.get(&tablet) {
            return Ok(Arc::clone(replica));
        }
        let replica = Arc::new(Replica::open(Arc::clone(&self.log), Arc::clone(&self.table), tablet)?);
        open.insert(tablet, Arc::clone(&replica));
        Ok(replica)
    }

    /// Commits batches with one flush. A batch whose keys are in several tablets is cut, and each part is decided by
    /// itself; all that is applied is durable, or nothing is.
    ///
    /// # Errors
    /// As [`propose_all`].
    pub fn propose(&self, batches: &[MutationBatch]) -> Result<Vec<PartDecision>> {
        for _ in 0..MAX_CUTS {
            let tablets = self.table.tablet_map();
            let mut parts: Vec<(usize, Arc<Replica>, MutationBatch)> = Vec::with_capacity(batches.len());
            for (of, batch) in batches.iter().enumerate() {
                for (tablet, part) in batch.clone().cut(&tablets).map_err(Error::Cut)? {
                    parts.push((of, self.replica(tablet)?, part));
                }
            }
            let proposals: Vec<(&Replica, MutationBatch)> =
                parts.iter().map(|(_, replica, part)| (&**replica, part.clone())).collect();
            match propose_all(&proposals) {
                Err(error) if error.is_elsewhere() => self.wait_for_splits(&proposals)?,
                decided => {
                    let parts = parts.into_iter().zip(decided?);
                    return Ok(parts.map(|((of, _, part), (_, outcome))| PartDecision { of, part, outcome }).collect());
                }
            }
        }
        Err(Error::Moving { table: self.table.table_schema().name.clone() })
    }

    /// A split that is in the log is applied by whoever waits for anything behind it.
    fn wait_for_splits(&self, proposals: &[(&Replica, MutationBatch)]) -> Result<()> {
        proposals.iter().try_for_each(|(replica, _)| replica.settle())
    }

    /// Splits the tablet that has the key `at` there: what it has from there on is a new tablet's, which is answered.
    /// Writers of that tablet wait for one look at its recent rows; nobody else waits.
    ///
    /// # Errors
    /// As [`Table::plan_split`], and those of a commit.
    pub fn split(&self, at: &[u8]) -> Result<TabletId> {
        let _one = self.splitting.lock();
        let tablet = self.table.tablet_map().tablet_of(at);
        let (parent, split) = self.table.plan_split(at).map_err(Error::not_decided(tablet))?;
        let new = split.new;
        let replica = self.replica(parent)?;
        propose_entries(vec![(&*replica, Entry::Split(split))])?;
        self.replica(new)?;
        Ok(new)
    }

    /// Returns when all that is under way in any tablet now is durable and in effect, so that what came of an earlier
    /// call is known.
    ///
    /// # Errors
    /// As of [`crate::PendingBatch::wait`].
    pub fn settle(&self) -> Result<()> {
        self.all().iter().try_for_each(|replica| replica.settle())
    }

    fn freeze_all(&self) -> Result<()> {
        let wanted = self.table.to_freeze();
        let replicas = wanted.iter().map(|(tablet, _)| self.replica(*tablet)).collect::<Result<Vec<_>>>()?;
        let entries = replicas.iter().zip(wanted).map(|(replica, (_, audit))| (&**replica, Entry::Freeze(audit)));
        propose_entries(entries.collect()).map(drop)
    }
}

/// Commits a batch of each table, all of them or none, whatever tablets their keys are in, and seen at one moment.
/// Answers what became of each part, as [`Replicas::propose`] does, or, when nothing was applied, of those that were
/// refused.
///
/// # Errors
/// As [`propose_together`].
pub fn commit_together(batches: &[(&Replicas, MutationBatch)]) -> Result<Vec<PartDecision>> {
    commit_as_one(batches, None)
}

/// As [`commit_together`], by a request: its outcome is kept with the table of the first batch, which may be empty, and
/// which is decided with it.
///
/// # Errors
/// As [`propose_together`].
pub fn commit_named(batches: &[(&Replicas, MutationBatch)], request: &Request) -> Result<Vec<PartDecision>> {
    commit_as_one(batches, Some(request))
}

fn commit_as_one(batches: &[(&Replicas, MutationBatch)], request: Option<&Request>) -> Result<Vec<PartDecision>> {
    for _ in 0..MAX_CUTS {
        let mut parts: Vec<(usize, Arc<Replica>, MutationBatch)> = Vec::with_capacity(batches.len());
        for (of, (replicas, batch)) in batches.iter().enumerate() {
            let tablets = replicas.table.tablet_map();
            let is_home = of == 0 && request.is_some();
            if is_home && batch.is_empty() {
                let any = tablets.ids().next().expect("a table has tablets");
                parts.push((of, replicas.replica(any)?, batch.clone()));
            }
            for (tablet, part) in batch.clone().cut(&tablets).map_err(Error::Cut)? {
                parts.push((of, replicas.replica(tablet)?, part));
            }
        }
        let proposals: Vec<(Arc<Replica>, MutationBatch)> =
            parts.iter().map(|(_, replica, part)| (Arc::clone(replica), part.clone())).collect();
        let proposed = match request {
            Some(request) => propose_named(&proposals, request.clone()),
            None => propose_together(&proposals),
        };
        match proposed {
            // A split that is in the log is applied by whoever waits for anything behind it.
            Err(error) if error.is_elsewhere() => proposals.iter().try_for_each(|(replica, _)| replica.settle())?,
            decided => {
                let parts = parts.into_iter().zip(decided?);
                let mut decided: Vec<PartDecision> =
                    parts.map(|((of, _, part), outcome)| PartDecision { of, part, outcome }).collect();
                if decided.iter().any(PartDecision::is_refused) {
                    decided.retain(PartDecision::is_refused);
                }
                return Ok(decided);
            }
        }
    }
    let table = batches.first().map_or_else(String::new, |(replicas, _)| replicas.table.table_schema().name.clone());
    Err(Error::Moving { table })
}

impl HotTable for Replicas {
    fn schema(&self) -> Arc<TableSchema> {
        self.table.table_schema()
    }

    fn pending(&self) -> DeliveryBacklog {
        self.table.pending()
    }

    fn installed(&self) -> (Version, Cursor) {
        self.table.installed()
    }

    fn freeze(&self) -> FeedResult<Option<FrozenRows>> {
        // What an earlier attempt froze goes first, as it was.
        if let Some(frozen) = self.table.frozen()? {
            return Ok(Some(frozen));
        }
        self.freeze_all().map_err(|error| FeedError::source(error.kind(), error))?;
        Ok(self.table.frozen()?)
    }

    fn stage(&self, stage: Stage) -> FeedResult<StagedAddresses> {
        Ok(self.table.stage(&stage)?)
    }

    fn install(&self, staged: StagedAddresses) -> FeedResult<()> {
        Ok(self.table.install(staged)?)
    }
}
