//! What does this process know of the tables? No more than the store said; it may be behind, never ahead or beside it.
//!
//! Answers of the store come in any order. Each says as of which version it is, so what is older than what is held
//! changes nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tarn_metastore::backend::{State, StateRecord, Table};
use tarn_metastore::{CommitInfo, Error, TableVersion};
use tarn_types::{TableId, TableSchema, Version};

use crate::pool::RequestFailure;

/// Counts what can change of a table beside its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableSeqs {
    /// Counts the changes of its definition.
    pub definition_seq: i64,
    /// Also of the files of its oldest version, while it is restored.
    pub base_seq: i64,
}

/// How far a table is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownTable {
    /// The latest that is known here.
    pub version: Version,
    /// How far the table was read.
    pub seen: TableSeqs,
}

/// What happened to a table since it was looked at.
pub(crate) struct Tail {
    /// How far it goes.
    pub seen: TableSeqs,
    /// The first version that is kept.
    pub oldest: Version,
    /// If it is another one.
    pub schema: Option<Arc<TableSchema>>,
    /// After the one that was known, ascending.
    pub commits: Vec<Arc<CommitInfo>>,
}

pub(crate) struct LocalState {
    /// The tables whose versions were read.
    pub state: State,
    seen: HashMap<TableId, TableSeqs>,
    /// Ids do not come back.
    dropped: HashSet<TableId>,
    /// Also of tables whose versions nobody asked for.
    schemas: HashMap<TableId, (i64, Arc<TableSchema>)>,
}

impl LocalState {
    /// Nothing was read yet.
    pub fn new() -> Self {
        Self { state: State::default(), seen: HashMap::new(), dropped: HashSet::new(), schemas: HashMap::new() }
    }

    /// `None`: nothing of its versions was read.
    pub fn known(&self, table: TableId) -> Option<KnownTable> {
        let version = self.state.tables.get(&table)?.latest().version;
        Some(KnownTable { version, seen: *self.seen.get(&table)? })
    }

    /// The definition, if it is the one with this number.
    pub fn schema(&self, table: TableId, definition_seq: i64) -> Option<Arc<TableSchema>> {
        self.schemas.get(&table).filter(|(seq, _)| *seq == definition_seq).map(|(_, schema)| schema.clone())
    }

    /// Keeps a definition, unless a newer one is kept or the table is known to be dropped.
    pub fn note_schema(&mut self, table: TableId, definition_seq: i64, schema: &Arc<TableSchema>) {
        let known = self.schemas.get(&table).map(|(seq, _)| *seq);
        if !self.dropped.contains(&table) && known.is_none_or(|known| known < definition_seq) {
            self.schemas.insert(table, (definition_seq, schema.clone()));
        }
    }

    /// A table as a whole.
    pub fn take_in(&mut self, table: Table, seen: TableSeqs) {
        let id = table.schema.id;
        let is_newer = self.known(id).is_none_or(|known| {
            (seen.base_seq, seen.definition_seq, table.latest().version)
                > (known.seen.base_seq, known.seen.definition_seq, known.version)
        });
        if is_newer && !self.dropped.contains(&id) {
            self.note_schema(id, seen.definition_seq, &table.schema);
            self.state.tables.insert(id, table);
            self.seen.insert(id, seen);
        }
    }

    /// False: it does not follow on what is held, and the table must be read as a whole.
    pub fn catch_up(&mut self, id: TableId, tail: Tail) -> Result<bool, RequestFailure> {
        let (Some(table), Some(seen)) = (self.state.tables.get_mut(&id), self.seen.get_mut(&id)) else {
            return Ok(self.dropped.contains(&id));
        };
        if seen.base_seq != tail.seen.base_seq {
            return Ok(seen.base_seq > tail.seen.base_seq);
        }
        let latest = table.latest().version;
        let mut missing = tail.commits.into_iter().skip_while(|commit| commit.version <= latest).peekable();
        if missing.peek().is_some_and(|commit| commit.version != latest.next())
            || tail.oldest > latest && missing.peek().is_none()
        {
            return Ok(false);
        }
        let odd = |reason: String| RequestFailure::Damaged { place: format!("commits of table {id}"), reason };
        for commit in missing {
            table.push(commit, None).map_err(odd)?;
        }
        table.settle();
        if seen.definition_seq < tail.seen.definition_seq {
            let Some(schema) = tail.schema else { return Ok(false) };
            seen.definition_seq = tail.seen.definition_seq;
            table.schema = schema.clone();
            self.note_schema(id, tail.seen.definition_seq, &schema);
        }
        self.expire(id, tail.oldest)?;
        Ok(true)
    }

    /// A commit of ours that is in.
    pub fn push(
        &mut self,
        id: TableId,
        commit: Arc<CommitInfo>,
        next: Arc<TableVersion>,
    ) -> Result<(), RequestFailure> {
        let Some(table) = self.state.tables.get_mut(&id) else { return Ok(()) };
        // Somebody may have read it before.
        if commit.version != table.latest().version.next() {
            return Ok(());
        }
        let odd = |reason: String| RequestFailure::Damaged { place: format!("commits of table {id}"), reason };
        table.push(commit, Some(next)).map_err(odd)
    }

    /// Files of the oldest version that came by a commit of ours, as the `base_seq`-th change of it. When somebody read
    /// the table meanwhile, it is read again.
    pub fn restore(
        &mut self,
        id: TableId,
        base_seq: i64,
        commit: Arc<CommitInfo>,
        next: Arc<TableVersion>,
    ) -> Result<(), RequestFailure> {
        let (Some(table), Some(seen)) = (self.state.tables.get_mut(&id), self.seen.get_mut(&id)) else { return Ok(()) };
        if seen.base_seq + 1 != base_seq {
            self.state.tables.remove(&id);
            self.seen.remove(&id);
            return Ok(());
        }
        seen.base_seq = base_seq;
        let odd = |reason: String| RequestFailure::Damaged { place: format!("table {id}"), reason };
        table.push(commit, Some(next)).map_err(odd)
    }

    /// Forgets versions as the store did.
    pub fn expire(&mut self, id: TableId, keep: Version) -> Result<(), RequestFailure> {
        let Some(table) = self.state.tables.get(&id) else { return Ok(()) };
        if keep <= table.oldest.version || keep > table.latest().version {
            return Ok(());
        }
        let odd = |reason: String| RequestFailure::Damaged { place: format!("commits of table {id}"), reason };
        self.state.apply(StateRecord::Expire { table: id, keep }).map_err(odd)
    }

    /// The store does not have it.
    pub fn forget(&mut self, table: TableId) {
        let was_known = self.state.tables.remove(&table).is_some() | self.schemas.remove(&table).is_some();
        self.seen.remove(&table);
        if was_known {
            self.dropped.insert(table);
        }
    }

    /// Of all tables whose versions were read, ascending.
    pub fn ids(&self) -> Vec<TableId> {
        self.state.tables.keys().copied().collect()
    }

    /// `NoTableId` when it was not read, or is gone.
    pub fn table(&self, id: TableId) -> Result<&Table, Error> {
        self.state.table(id)
    }
}
