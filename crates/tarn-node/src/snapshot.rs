//! What do tables hold at one moment?

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use roaring::RoaringBitmap;
use tarn_rows::{HotSnapshot, Table};
pub use tarn_rows::{KeyRange, Lookup, RangeOfRows, ScannedRows};
use tarn_types::{Cursor, FileId, TableId, TableSchema, Version};

use crate::auth::{Principal, Privilege};
use crate::catalog::{CatalogEntry, TableHandle, altered};
use crate::error::{Error, Result};
use crate::external_table::{ExternalTable, VersionedSchema};
use crate::own::OwnWrites;
use crate::own_view::OwnView;
use crate::tables::TableService;

/// A table as a statement is planned with it: what is read later is this one, whatever has its name by then.
#[derive(Clone)]
pub enum OpenTable {
    /// One that is written here.
    Table(Arc<TableHandle>),
    /// One that others write.
    External(Arc<ExternalTable>, Arc<VersionedSchema>),
}

impl OpenTable {
    /// Its definition.
    pub fn schema(&self) -> &Arc<TableSchema> {
        match self {
            OpenTable::Table(handle) => handle.schema(),
            OpenTable::External(_, seen) => &seen.schema,
        }
    }
}

impl TableService {
    /// The table that is called so; a view has no rows to open.
    pub fn open(&self, name: &str) -> Option<OpenTable> {
        match self.parts.catalog.entry(name)? {
            CatalogEntry::Table(handle) => Some(OpenTable::Table(handle)),
            CatalogEntry::External(external) => {
                let seen = external.seen();
                Some(OpenTable::External(external, seen))
            }
            CatalogEntry::View(_) => None,
        }
    }

    /// Tables to be read, all at one moment, in the order of `tables`: who sees a change of one of them sees all
    /// changes of the others that were acknowledged before it. One that a view reads comes with the id of the view,
    /// whose owner must be allowed to.
    ///
    /// Cost: a few references a table; no IO. A snapshot holds back what it stands on (files, old rows) while it lives.
    /// Errors: `Denied`; `NoTable` for one that was dropped; `Unavailable` for an archive whose place cannot be opened.
    pub fn snapshot(&self, who: &Principal, tables: &[(OpenTable, Option<TableId>)]) -> Result<Vec<TableSnapshot>> {
        let (mut written, mut taken) = (Vec::new(), Vec::with_capacity(tables.len()));
        for (table, through) in tables {
            match through {
                None => self.may(who, table.schema(), Privilege::Select)?,
                Some(view) => self.may_through(who, *view, table.schema())?,
            }
            match table {
                OpenTable::Table(handle) => written.push(handle.table.as_ref()),
                OpenTable::External(external, _) => drop(external.near()?),
            }
        }
        let mut written = Table::snapshot_all(&written)?.into_iter();
        for (table, _) in tables {
            taken.push(match table {
                OpenTable::Table(_) => {
                    TableSnapshot::of_rows(written.next().ok_or_else(|| Error::no_table(&table.schema().name))?)
                }
                OpenTable::External(_, seen) => TableSnapshot::of_files(seen.version()),
            });
        }
        Ok(taken)
    }
}

/// One position of one table: everything that it answers is true there, and it names the lake version that completes
/// it. Cheap to clone.
#[derive(Clone)]
pub struct TableSnapshot(SnapshotSource);

#[derive(Clone)]
enum SnapshotSource {
    Rows(Arc<HotSnapshot>),
    /// The same, and what a transaction wrote.
    Own(Arc<OwnView>),
    /// No rows but those of the files of a version.
    Files {
        version: Version,
        position: Cursor,
    },
}

/// Rows by key, in the direction that was asked for. Each batch waits for the disk.
pub type RowBatches = Box<dyn Iterator<Item = Result<ScannedRows>> + Send>;

impl TableSnapshot {
    pub(crate) fn of_rows(rows: Arc<HotSnapshot>) -> TableSnapshot {
        TableSnapshot(SnapshotSource::Rows(rows))
    }

    /// Of a table without rows but those of the files of a version.
    pub(crate) fn of_files(version: Version) -> TableSnapshot {
        TableSnapshot(SnapshotSource::Files { version, position: Cursor::default() })
    }

    /// The same position as a transaction sees it that wrote these rows: they are among the recent ones, instead of
    /// those of their keys. The table has the columns of `seen`, which the transaction may have altered.
    #[must_use]
    pub fn with_own(self, own: Arc<OwnWrites>, seen: &Arc<TableSchema>) -> TableSnapshot {
        let view = |rows| TableSnapshot(SnapshotSource::Own(Arc::new(OwnView::new(rows, own, Arc::clone(seen)))));
        match self.0 {
            SnapshotSource::Rows(rows) => view(rows),
            SnapshotSource::Own(own) => view(Arc::clone(own.rows())),
            files @ SnapshotSource::Files { .. } => TableSnapshot(files),
        }
    }

    /// Whether it shows the rows that somebody planned for who saw this definition.
    ///
    /// Errors: `Conflict` for a table that got other columns in between.
    pub fn check_for(&self, planned: &Arc<TableSchema>) -> Result<()> {
        let rows = match &self.0 {
            SnapshotSource::Rows(rows) => rows,
            SnapshotSource::Own(view) => view.rows(),
            SnapshotSource::Files { .. } => return Ok(()),
        };
        match Arc::ptr_eq(rows.schema(), planned) || rows.schema().has_columns_of(planned) {
            true => Ok(()),
            false => Err(altered(&planned.name)),
        }
    }

    /// Whether every row of this position has the entries in an index that are its own: the table was defined with it
    /// then.
    pub fn has_index(&self, index: TableId) -> bool {
        let rows = match &self.0 {
            SnapshotSource::Rows(rows) => rows,
            SnapshotSource::Own(view) => view.rows(),
            SnapshotSource::Files { .. } => return false,
        };
        rows.schema().options.rules.uniques.iter().any(|unique| unique.index == index)
    }

    /// The lake version that, with the recent rows, is the table.
    pub fn version(&self) -> Version {
        match &self.0 {
            SnapshotSource::Files { version, .. } => *version,
            SnapshotSource::Rows(rows) => rows.version(),
            SnapshotSource::Own(view) => view.rows().version(),
        }
    }

    /// Per tablet, the last change that it shows.
    pub fn position(&self) -> &Cursor {
        match &self.0 {
            SnapshotSource::Rows(rows) => rows.position(),
            SnapshotSource::Own(view) => view.rows().position(),
            SnapshotSource::Files { position, .. } => position,
        }
    }

    /// Live rows changed after what [`TableSnapshot::version`] holds. Of a transaction that wrote rows it reads keys
    /// when it is first asked.
    pub fn recent_rows(&self) -> Result<u64> {
        match &self.0 {
            SnapshotSource::Rows(rows) => Ok(rows.recent_rows()),
            SnapshotSource::Own(view) => view.recent_rows(),
            SnapshotSource::Files { .. } => Ok(0),
        }
    }

    /// Those rows: storage schema, projected by column position in the order given; `__seqno` last if asked for. In no
    /// order.
    pub fn recent(&self, projection: Option<&[usize]>, with_seqno: bool) -> Result<Vec<RecordBatch>> {
        match &self.0 {
            SnapshotSource::Rows(rows) => Ok(rows.recent(projection, with_seqno)?),
            SnapshotSource::Own(view) => view.recent(projection, with_seqno),
            SnapshotSource::Files { .. } => Ok(Vec::new()),
        }
    }

    /// Rows of the version's files that recent changes supersede, by file.
    pub fn hidden(&self) -> Result<Arc<BTreeMap<FileId, RoaringBitmap>>> {
        match &self.0 {
            SnapshotSource::Rows(rows) => Ok(rows.hidden()?),
            SnapshotSource::Own(view) => view.hidden(),
            SnapshotSource::Files { .. } => Ok(Arc::default()),
        }
    }

    /// What is known of an engine key. Not for append-only tables, whose keys are not unique.
    pub fn get(&self, key: &[u8]) -> Result<Lookup> {
        match &self.0 {
            SnapshotSource::Rows(rows) => Ok(rows.get(key)?),
            SnapshotSource::Own(view) => view.get(key),
            SnapshotSource::Files { .. } => Ok(Lookup::Absent),
        }
    }

    /// The rows of a range of keys; of those that were evicted where they lie in [`TableSnapshot::version`]. Not for
    /// append-only tables.
    pub fn scan(&self, wanted: &RangeOfRows) -> RowBatches {
        match &self.0 {
            SnapshotSource::Rows(rows) => match rows.scan(wanted) {
                Ok(scan) => Box::new(scan.map(|batch| Ok(batch?))),
                Err(error) => Box::new(std::iter::once(Err(error.into()))),
            },
            SnapshotSource::Own(view) => Box::new(view.scan(wanted)),
            SnapshotSource::Files { .. } => Box::new(std::iter::empty()),
        }
    }

    /// Whether the row engine has every row: nothing was evicted, and the table is not append-only.
    pub fn rows_complete(&self) -> bool {
        match &self.0 {
            SnapshotSource::Rows(rows) => rows.rows_complete(),
            SnapshotSource::Own(view) => view.rows_complete(),
            SnapshotSource::Files { .. } => false,
        }
    }
}
