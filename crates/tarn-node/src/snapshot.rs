//! What do tables hold at one moment?

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use roaring::RoaringBitmap;
use tarn_rows::{HotSnapshot, Table};
pub use tarn_rows::{KeyRange, Lookup, RangeOfRows, ScannedRows};
use tarn_types::{Cursor, FileId, TableSchema, Version};

use crate::auth::{Principal, Privilege};
use crate::catalog::{Entry, TableHandle};
use crate::error::{Error, Result};
use crate::external_table::{ExternalTable, Seen};
use crate::tables::TableService;

/// A table as a statement is planned with it: what is read later is this one, whatever has its name by then.
#[derive(Clone)]
pub enum Opened {
    /// One that is written here.
    Table(Arc<TableHandle>),
    /// One that others write.
    External(Arc<ExternalTable>, Arc<Seen>),
}

impl Opened {
    /// Its definition.
    pub fn schema(&self) -> &Arc<TableSchema> {
        match self {
            Opened::Table(handle) => handle.schema(),
            Opened::External(_, seen) => &seen.schema,
        }
    }
}

impl TableService {
    /// Whatever is called so.
    pub fn open(&self, name: &str) -> Option<Opened> {
        Some(match self.parts.catalog.entry(name)? {
            Entry::Table(handle) => Opened::Table(handle),
            Entry::External(external) => {
                let seen = external.seen();
                Opened::External(external, seen)
            }
        })
    }

    /// Tables to be read, all at one moment, in the order of `tables`: who sees a change of one of them sees all changes of the others
    /// that were acknowledged before it.
    ///
    /// Cost: a few references a table; no IO. A snapshot holds back what it stands on (files, old rows) while it lives.
    /// Errors: `Denied`; `NoTable` for one that was dropped; `Unavailable` for an archive whose place cannot be opened.
    pub fn snapshot(&self, who: &Principal, tables: &[Opened]) -> Result<Vec<TableSnapshot>> {
        let (mut written, mut taken) = (Vec::new(), Vec::with_capacity(tables.len()));
        for table in tables {
            self.may(who, table.schema(), Privilege::Select)?;
            match table {
                Opened::Table(handle) => written.push(handle.table.as_ref()),
                Opened::External(external, _) => drop(external.near()?),
            }
        }
        let mut written = Table::snapshot_all(&written)?.into_iter();
        for table in tables {
            taken.push(TableSnapshot(match table {
                Opened::Table(_) => Of::Rows(written.next().ok_or_else(|| Error::no_table(&table.schema().name))?),
                Opened::External(_, seen) => Of::Files { version: seen.version(), position: Cursor::default() },
            }));
        }
        Ok(taken)
    }
}

/// One position of one table: everything that it answers is true there, and it names the lake version that completes it.
pub struct TableSnapshot(Of);

enum Of {
    Rows(Arc<HotSnapshot>),
    /// No rows but those of the files of a version.
    Files {
        version: Version,
        position: Cursor,
    },
}

/// Rows by key, in the direction that was asked for. Each batch waits for the disk.
pub type RowBatches = Box<dyn Iterator<Item = Result<ScannedRows>> + Send>;

impl TableSnapshot {
    /// The lake version that, with the recent rows, is the table.
    pub fn version(&self) -> Version {
        match &self.0 {
            Of::Rows(rows) => rows.version(),
            Of::Files { version, .. } => *version,
        }
    }

    /// Per tablet, the last change that it shows.
    pub fn position(&self) -> &Cursor {
        match &self.0 {
            Of::Rows(rows) => rows.position(),
            Of::Files { position, .. } => position,
        }
    }

    /// Live rows changed after what [`TableSnapshot::version`] holds.
    pub fn recent_rows(&self) -> u64 {
        self.rows().map_or(0, |rows| rows.recent_rows())
    }

    /// Those rows: storage schema, projected by column position in the order given; `__seqno` last if asked for. In no order.
    pub fn recent(&self, projection: Option<&[usize]>, with_seqno: bool) -> Result<Vec<RecordBatch>> {
        self.rows().map_or(Ok(Vec::new()), |rows| Ok(rows.recent(projection, with_seqno)?))
    }

    /// Rows of the version's files that recent changes supersede, by file.
    pub fn hidden(&self) -> Result<Arc<BTreeMap<FileId, RoaringBitmap>>> {
        self.rows().map_or(Ok(Arc::default()), |rows| Ok(rows.hidden()?))
    }

    /// What is known of an engine key. Not for append-only tables, whose keys are not unique.
    pub fn get(&self, key: &[u8]) -> Result<Lookup> {
        self.rows().map_or(Ok(Lookup::Absent), |rows| Ok(rows.get(key)?))
    }

    /// The rows of a range of keys; of those that were evicted where they lie in [`TableSnapshot::version`]. Not for append-only tables.
    pub fn scan(&self, wanted: &RangeOfRows) -> RowBatches {
        let Some(rows) = self.rows() else { return Box::new(std::iter::empty()) };
        match rows.scan(wanted) {
            Ok(scan) => Box::new(scan.map(|batch| Ok(batch?))),
            Err(error) => Box::new(std::iter::once(Err(error.into()))),
        }
    }

    /// Whether the row engine has every row: nothing was evicted, and the table is not append-only.
    pub fn rows_complete(&self) -> bool {
        self.rows().is_some_and(|rows| rows.rows_complete())
    }

    fn rows(&self) -> Option<&HotSnapshot> {
        match &self.0 {
            Of::Rows(rows) => Some(rows),
            Of::Files { .. } => None,
        }
    }
}
