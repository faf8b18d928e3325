//! What does not work on this node now, and why? What `/readyz` says, and what refuses a write before it reaches the
//! log.
//!
//! Every part tells its own faults; what it takes to be well again is tried by the node's maintenance, every second
//! (`NodeParts::heal`). Reads go on meanwhile. A fault that only opening the data folder anew can end asks for that
//! (`Health::reopen`) as soon as the disk works again; whoever runs the node does it (`server.rs`).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use tarn_rows::Remedy;

use crate::error::{Error, ErrorKind, Result, chain};
use crate::health::HealthIssue;
use crate::parts::NodeParts;

const ENGINE: &str = "row engine";
const LOG_WRITES: &str = "log";
const LOG: &str = "log segments";
const METASTORE: &str = "metastore";
const USERS: &str = "users";
const DISK: &str = "disk";

/// Written and synced to see whether a disk works again.
const PROBE: &str = "PROBE";

impl NodeParts {
    /// What does not work now; in order and without repetition.
    pub fn troubles(&self) -> Vec<HealthIssue> {
        let mut troubles = Vec::new();
        let mut add = |part, reason| troubles.push(HealthIssue { part, reason });
        if let Some(fault) = self.engine.fault() {
            add(ENGINE, fault.reason);
        }
        if self.log.metrics().poisoned {
            add(LOG_WRITES, "a write failed; the log is opened anew when the disk works".to_owned());
        }
        for (part, reason) in &*self.health.failing.lock() {
            add(part, reason.clone());
        }
        if self.reserve.is_low() {
            add(DISK, format!("the disk of {} is nearly full", self.settings.data_dir.display()));
        }
        troubles
    }

    /// Refuses a write that could not be applied, or that takes room which what was acknowledged will need. Nothing is
    /// in the log then.
    ///
    /// Errors: `DiskFull` the disk is nearly full; `Unavailable` the row engine's disk fails.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let state = if self.reserve.is_low() { ErrorKind::DiskFull } else { ErrorKind::Unavailable };
        if let Some(fault) = self.engine.fault() {
            let refused =
                Error::new(state, format!("nothing was written: the row engine cannot write: {}", fault.reason));
            return Err(match fault.remedy {
                Remedy::Heal | Remedy::Reopen => refused.with_hint(
                    "the server tries again by itself every second, and takes writes when the disk works; /readyz says when",
                ),
                Remedy::Operator => refused.with_hint("its data is damaged: see the server's log, and restore from a backup"),
            });
        }
        if self.reserve.is_low() {
            let dir = self.settings.data_dir.display();
            return Err(Error::new(state, format!("nothing was written: the disk of {dir} is nearly full")).with_hint(
                "free some space: writes are taken again by themselves; reserve_bytes is how much is held back",
            ));
        }
        Ok(())
    }

    /// One turn of healing what can be healed in place; blocks on the disk. Not the metastore, which heals in its own
    /// maintenance.
    pub(crate) fn heal(&self) -> Result<()> {
        let looked = self.reserve.look();
        if self.engine.fault().is_some() && self.engine.heal().is_ok() {
            self.metrics.heals.inc();
        }
        let is_hopeless = self.engine.fault().is_some_and(|fault| fault.remedy == Remedy::Reopen);
        let broken = [("log", self.log.metrics().poisoned), ("rows", is_hopeless)];
        let mut folders = broken.iter().filter(|(_, is_broken)| *is_broken).map(|(folder, _)| folder).peekable();
        if folders.peek().is_some() && folders.all(|folder| disk_works(&self.settings.data_dir.join(folder))) {
            self.health.reopen.cancel();
        }
        looked.map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                format!("look after the room of {}: {error}", self.settings.data_dir.display()),
            )
        })
    }

    /// Whether the log has, or can make, segments to write to.
    pub(crate) fn note_log(&self, maintenance: Result<(), &tarn_raftlog::Error>) {
        // A poisoned log says so by itself.
        self.note_part(LOG, maintenance.err().filter(|_| !self.log.metrics().poisoned).map(|error| chain(error)));
    }

    pub(crate) fn note_metastore(&self, maintenance: Result<(), &tarn_metastore::Error>) {
        self.note_part(METASTORE, maintenance.err().map(|error| chain(error)));
    }

    /// Whether users and rights are those of the metastore.
    pub(crate) fn note_users(&self, failed: Option<&Error>) {
        self.note_part(USERS, failed.map(ToString::to_string));
    }

    fn note_part(&self, part: &'static str, reason: Option<String>) {
        let mut failing = self.health.failing.lock();
        match reason {
            Some(reason) => drop(failing.insert(part, reason)),
            None if failing.remove(part).is_some() => {
                self.metrics.heals.inc();
            }
            None => {}
        }
    }

    pub(crate) fn is_metastore_faulty(&self) -> bool {
        self.health.failing.lock().contains_key(METASTORE)
    }

    /// Says in the server's log what began and what is over, each once.
    pub(crate) fn tell_troubles(&self) {
        let now: BTreeMap<&'static str, String> =
            self.troubles().into_iter().map(|trouble| (trouble.part, trouble.reason)).collect();
        let mut told = self.health.told.lock();
        for (part, reason) in now.iter().filter(|(part, _)| !told.contains_key(*part)) {
            tracing::error!(part, "does not work: {reason}; it is tried again every second");
        }
        for part in told.keys().filter(|part| !now.contains_key(*part)) {
            tracing::info!(part, "works again");
        }
        *told = now;
    }
}

/// Before a data folder is opened anew: what is read then is to come from the disk. After a failed sync the kernel may
/// call pages clean that never came there.
pub fn forget_pages(data_dir: &Path) {
    for folder in ["log", "meta", "rows/db"] {
        let entries = std::fs::read_dir(data_dir.join(folder)).into_iter().flatten().flatten();
        for file in entries.filter_map(|entry| std::fs::File::open(entry.path()).ok()) {
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

/// Can a file be written and synced there? The log and the row engine pass over names that they do not know.
fn disk_works(folder: &Path) -> bool {
    let path = folder.join(PROBE);
    let write = || {
        let mut file = std::fs::File::create(&path)?;
        file.write_all(&[0; 4096])?;
        file.sync_all()?;
        std::fs::File::open(folder)?.sync_all()
    };
    let works = write().is_ok();
    // One that stays is written over the next time.
    let _ = std::fs::remove_file(&path);
    works
}
