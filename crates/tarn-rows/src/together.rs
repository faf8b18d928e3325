//! How do entries of several tablets, of one table or of many, take effect at one moment?
//!
//! They are written to the engine as one batch and shown to readers while all of their tablets are locked: a reader of
//! any kind, of one key or of a snapshot, sees all of them or none. A restart needs nothing of this: the log has them
//! all or none, and nobody reads before it is replayed.
//!
//! Locks are taken in the order of tables and keys, which is the order in which [`Table::snapshot_all`] takes them.

use std::sync::Arc;

use tarn_types::{Effects, Entry, NamedEffects, SeqNo, TabletId};

use crate::engine::WriteBatch;
use crate::error::Result;
use crate::table::Table;

/// The next entry of one tablet.
#[derive(Clone, Copy)]
pub struct TabletEntry<'a> {
    /// The table of the tablet.
    pub table: &'a Table,
    /// The tablet.
    pub tablet: TabletId,
    /// Its place in the tablet's log.
    pub seqno: SeqNo,
    /// What it does.
    pub does: EntryEffect<'a>,
}

/// What an entry does to rows, and what it is called.
#[derive(Clone, Copy)]
pub enum EntryEffect<'a> {
    /// Without a name.
    Effects(&'a Effects),
    /// By a request.
    Named(&'a Arc<NamedEffects>),
}

impl<'a> EntryEffect<'a> {
    /// Of an entry; `None`: it changes no rows.
    #[must_use]
    pub fn of(entry: &'a Entry) -> Option<Self> {
        match entry {
            Entry::Effects(effects) => Some(Self::Effects(effects)),
            Entry::Named(named) => Some(Self::Named(named)),
            Entry::Freeze(_) | Entry::Split(_) => None,
        }
    }

    fn effects(self) -> &'a Effects {
        match self {
            Self::Effects(effects) => effects,
            Self::Named(named) => named.effects(),
        }
    }

    fn entry(self) -> Entry {
        match self {
            Self::Effects(effects) => Entry::Effects(effects.clone()),
            Self::Named(named) => Entry::Named(Arc::clone(named)),
        }
    }
}

/// Applies committed entries of different tablets; visible at one moment before it returns, durable in the log alone.
/// All tables must be of one engine.
///
/// # Errors
/// As [`Table::apply`]; an error leaves all tablets where they were.
pub fn apply_together(entries: &[TabletEntry<'_>]) -> Result<()> {
    let Some(first) = entries.first() else { return Ok(()) };
    let engine = Arc::clone(&first.table.base.engine);
    let mut parts =
        entries.iter().map(|entry| Ok((entry, entry.table.tablet(entry.tablet)?))).collect::<Result<Vec<_>>>()?;
    // Keys begin with their table.
    parts.sort_by_cached_key(|(_, tablet)| tablet.shared.read().range.start.clone());
    let is_one_engine = parts.iter().all(|(_, tablet)| Arc::ptr_eq(&tablet.base.engine, &engine));
    assert!(is_one_engine, "entries that take effect together are of tables of one engine");

    let mut writers: Vec<_> = parts.iter().map(|(_, tablet)| tablet.writer.lock()).collect();
    let mut writes = WriteBatch::default();
    let mut known = Vec::with_capacity(parts.len());
    for ((entry, tablet), writer) in parts.iter().zip(&writers) {
        tablet.check_order(writer, entry.seqno)?;
        let auditor = writer.auditor.with(entry.seqno, &entry.does.entry());
        tablet.put_effects(&mut writes, entry.seqno, entry.does.effects())?;
        let requests = match entry.does {
            EntryEffect::Effects(_) => writer.requests,
            EntryEffect::Named(named) => writer.requests.put(&engine, &mut writes, entry.seqno, named.request())?,
        };
        tablet.put_position(&mut writes, &auditor);
        known.push((auditor, requests));
    }
    let before = engine.snapshot();
    for (_, tablet) in &parts {
        tablet.shared.write().before_write = Some(Arc::clone(&before));
    }
    if let Err(error) = engine.write(&writes) {
        parts.iter().for_each(|(_, tablet)| tablet.shared.write().before_write = None);
        return Err(error);
    }
    let mut prepared = Vec::with_capacity(parts.len());
    for (((entry, tablet), writer), (auditor, requests)) in parts.iter().zip(&mut writers).zip(known) {
        prepared.push(tablet.prepare(writer, entry.seqno, entry.does.effects()));
        (writer.auditor, writer.requests) = (auditor, requests);
    }
    let now_ms = first.table.base.clock.now_ms();
    let mut shown: Vec<_> = parts.iter().map(|(_, tablet)| tablet.shared.write()).collect();
    for ((((entry, _), writer), shared), changes) in parts.iter().zip(&writers).zip(&mut shown).zip(&prepared) {
        shared.show(&writer.active, entry.seqno, changes, writer.active.size_bytes(), now_ms);
    }
    Ok(())
}
