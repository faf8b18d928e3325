//! What becomes of the row engine when its disk fails?
//!
//! By itself RocksDB takes no more writes after a failed flush, and has no way back that we could call. So it is told
//! to forget such an error ([`EventListener::on_background_error`]): a failed flush leaves its memtables where they
//! were, the next one writes them into new files; after a failed write of the MANIFEST the next change of it begins a
//! new one; a failed compaction is tried again by RocksDB. What is forgotten there is remembered here, until a flush
//! succeeds: [`Watch::fault`].
//!
//! The price: nobody inside of RocksDB is told that a flush failed, so nobody may wait there for one. Flushes are begun
//! and waited for in `rocks.rs`, writers wait for memtables there, and a closing engine flushes before RocksDB does.
//!
//! Damaged data, and errors that leave memory in doubt, stay what they are: RocksDB takes no more writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rust_rocksdb::ErrorKind;
use rust_rocksdb::event_listener::{
    CompactionJobInfo, DBBackgroundErrorReason as Reason, DBWriteStallCondition as Stall, EventListener, FlushJobInfo,
    MemTableInfo, MutableStatus, WriteStallInfo,
};

/// Why the engine cannot be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineFault {
    /// What RocksDB says.
    pub reason: String,
    /// What may help.
    pub remedy: Remedy,
}

/// What ends a fault?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// [`RocksEngine::heal`](super::RocksEngine::heal), once the disk works.
    Heal,
    /// Only opening the engine anew, once the disk works. Everything is on disk or in the tablets' logs.
    Reopen,
    /// Data is damaged: whoever runs the server must look.
    Operator,
}

/// Shared by an engine and what RocksDB calls.
#[derive(Default)]
pub(super) struct Watch {
    seen: Mutex<EngineEvents>,
    changed: Condvar,
    is_faulty: AtomicBool,
    /// Memtables may wait to be flushed. Set by RocksDB, cleared by whoever looked.
    pub sealed: AtomicBool,
    /// The MANIFEST is in doubt: no flush succeeds before another change of it did.
    pub manifest_failed: AtomicBool,
    /// A compaction failed, and none succeeded since.
    pub compaction_failed: AtomicBool,
    n_errors: AtomicU64,
    /// Writes that waited for a memtable.
    pub n_memtable_waits: AtomicU64,
    /// How often RocksDB began to slow writes down.
    pub n_slowdowns: AtomicU64,
    /// How often it stopped them.
    pub n_stops: AtomicU64,
}

/// What happened so far.
#[derive(Clone, Default)]
pub(super) struct EngineEvents {
    /// Told of by the engine, of whatever kind.
    pub n_events: u64,
    /// Failed flushes and changes of the MANIFEST.
    pub n_failed: u64,
    /// The newest write that a flush wrote out, all before it as well.
    pub flushed: u64,
    /// Why writes are refused; `None`: they are not.
    pub fault: Option<EngineFault>,
}

impl Watch {
    /// A copy, as of now.
    pub fn seen(&self) -> EngineEvents {
        self.seen.lock().clone()
    }

    /// Why writes are refused; asked before every write, and cheap while there is none.
    pub fn fault(&self) -> Option<EngineFault> {
        // Writers ask before every write.
        if self.is_faulty.load(Ordering::Acquire) { self.seen.lock().fault.clone() } else { None }
    }

    /// Background errors since the engine was opened, those of compactions included.
    pub fn n_errors(&self) -> u64 {
        self.n_errors.load(Ordering::Relaxed)
    }

    /// Waits until something happens after `n_events`. False: nothing did for so long.
    pub fn wait_past(&self, n_events: u64, at_most: Duration) -> bool {
        let mut seen = self.seen.lock();
        while seen.n_events == n_events {
            if self.changed.wait_for(&mut seen, at_most).timed_out() {
                return seen.n_events != n_events;
            }
        }
        true
    }

    /// A flush succeeded that began when `n_failed` had failed: what failed until then is over.
    pub fn heal(&self, n_failed: u64) {
        let mut seen = self.seen.lock();
        if seen.n_failed == n_failed && seen.fault.as_ref().is_some_and(|fault| fault.remedy == Remedy::Heal) {
            seen.fault = None;
            self.is_faulty.store(false, Ordering::Release);
        }
    }

    /// Notes a fault, unless a worse one is known.
    pub fn fail(&self, reason: String, remedy: Remedy) {
        self.happened(|seen| {
            seen.n_failed += 1;
            if seen.fault.as_ref().is_none_or(|fault| fault.remedy == Remedy::Heal) {
                seen.fault = Some(EngineFault { reason, remedy });
            }
            self.is_faulty.store(true, Ordering::Release);
        });
    }

    fn happened(&self, note: impl FnOnce(&mut EngineEvents)) {
        let mut seen = self.seen.lock();
        note(&mut seen);
        seen.n_events += 1;
        self.changed.notify_all();
    }
}

/// What RocksDB calls, from its own threads. It must neither block nor call back.
pub(super) struct Listener(pub Arc<Watch>);

impl EventListener for Listener {
    fn on_memtable_sealed(&self, _: &MemTableInfo) {
        self.0.sealed.store(true, Ordering::Release);
    }

    fn on_flush_completed(&self, info: &FlushJobInfo) {
        let flushed = info.largest_seqno();
        self.0.happened(|seen| seen.flushed = seen.flushed.max(flushed));
    }

    fn on_compaction_completed(&self, info: &CompactionJobInfo) {
        if info.status().is_ok() {
            self.0.compaction_failed.store(false, Ordering::Release);
            self.0.happened(|_| {});
        }
    }

    fn on_stall_conditions_changed(&self, info: &WriteStallInfo) {
        let counter = match info.cur() {
            Stall::KDelayed => &self.0.n_slowdowns,
            Stall::KStopped => &self.0.n_stops,
            Stall::KNormal => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn on_background_error(&self, reason: Reason, status: MutableStatus) {
        let Err(error) = status.result() else { return };
        self.0.n_errors.fetch_add(1, Ordering::Relaxed);
        let is_io = error.kind() == ErrorKind::IOError;
        match reason {
            Reason::KCompaction if is_io => {
                self.0.compaction_failed.store(true, Ordering::Release);
                status.reset();
                self.0.happened(|_| {});
            }
            Reason::KFlush
            | Reason::KFlushNoWAL
            | Reason::KManifestWrite
            | Reason::KManifestWriteNoWAL
            | Reason::KAsyncFileOpen
                if is_io =>
            {
                status.reset();
                let is_manifest = matches!(reason, Reason::KManifestWrite | Reason::KManifestWriteNoWAL);
                self.0.manifest_failed.fetch_or(is_manifest, Ordering::AcqRel);
                self.0.fail(error.to_string(), Remedy::Heal);
            }
            _ if error.kind() == ErrorKind::Corruption => self.0.fail(error.to_string(), Remedy::Operator),
            _ => self.0.fail(error.to_string(), Remedy::Reopen),
        }
    }
}
