//! How do queries see hot rows, and tables that have none? Adapters from the row store and from archives to the traits of `tarn-query`.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use object_store::memory::InMemory;
use roaring::RoaringBitmap;
use tarn_cache::ReadStore;
use tarn_node::attachment::{Attachment, Seen};
use tarn_node::catalog::{Catalog, Entry};
use tarn_query::{Error, FileStore, HotCatalog, HotLookup, HotSource, HotView, Result, RowBatches};
use tarn_rows::{HotSnapshot, KeyRange, Lookup, Table};
use tarn_types::{Cursor, FileId, Kind, TableSchema, Version};

/// Rows of one batch of a row-engine scan.
const SCAN_BATCH_ROWS: usize = 8192;

/// All tables of a node.
pub struct Tables(pub Arc<Catalog>);

impl HotCatalog for Tables {
    fn tables(&self) -> Vec<Arc<TableSchema>> {
        self.0.schemas()
    }

    fn table(&self, name: &str) -> Option<Arc<dyn HotSource>> {
        Some(match self.0.entry(name)? {
            Entry::Table(handle) => Arc::new(Source(Arc::clone(handle.table()))),
            Entry::Archive(attachment) => Arc::new(ArchiveSource::new(attachment)),
        })
    }
}

/// One table of the row store.
pub struct Source(pub Arc<Table>);

impl HotSource for Source {
    fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(self.0.table_schema())
    }

    fn snapshot(&self) -> Result<Arc<dyn HotView>> {
        let snapshot = self.0.snapshot().map_err(|e| failed(&self.0.table_schema().name, e))?;
        Ok(Arc::new(View(snapshot)))
    }
}

/// One position of one table.
struct View(Arc<HotSnapshot>);

fn failed(table: &str, error: tarn_rows::Error) -> Error {
    Error::hot(table, error.kind(), error)
}

/// What the row store knows of a key, in the words of a query.
pub fn lookup(found: Lookup) -> HotLookup {
    match found {
        Lookup::Row { cells, seqno } => HotLookup::Row { cells, seqno },
        Lookup::Absent => HotLookup::Absent,
        Lookup::InLake(address) => HotLookup::InLake(address),
    }
}

impl View {
    fn name(&self) -> &str {
        &self.0.schema().name
    }
}

impl HotView for View {
    fn version(&self) -> Version {
        self.0.version()
    }

    fn position(&self) -> &Cursor {
        self.0.position()
    }

    fn recent_rows(&self) -> u64 {
        self.0.recent_rows()
    }

    fn recent(&self, projection: Option<&[usize]>, with_seqno: bool) -> Result<Vec<RecordBatch>> {
        self.0.recent(projection, with_seqno).map_err(|e| failed(self.name(), e))
    }

    fn hidden(&self) -> Result<Arc<BTreeMap<FileId, RoaringBitmap>>> {
        self.0.hidden().map_err(|e| failed(self.name(), e))
    }

    fn get(&self, key: &[u8]) -> Result<HotLookup> {
        self.0.get(key).map(lookup).map_err(|e| failed(self.name(), e))
    }

    fn scan(&self, prefix: Option<Vec<u8>>, projection: Option<&[usize]>, with_seqno: bool) -> RowBatches {
        let range = prefix.map_or(KeyRange::All, KeyRange::Prefix);
        let table = self.name().to_owned();
        match self.0.scan(&range, projection, with_seqno, SCAN_BATCH_ROWS) {
            Ok(scan) => Box::new(scan.map(move |batch| batch.map_err(|e| failed(&table, e)))),
            Err(error) => Box::new(std::iter::once(Err(failed(&table, error)))),
        }
    }

    fn rows_complete(&self) -> bool {
        self.0.rows_complete()
    }
}

/// One archive, as it was when a statement was planned.
pub struct ArchiveSource {
    attachment: Arc<Attachment>,
    seen: Arc<Seen>,
}

impl ArchiveSource {
    pub fn new(attachment: Arc<Attachment>) -> ArchiveSource {
        ArchiveSource { seen: attachment.seen(), attachment }
    }
}

impl HotSource for ArchiveSource {
    fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.seen.schema)
    }

    fn snapshot(&self) -> Result<Arc<dyn HotView>> {
        let unreadable = |error| Error::hot(self.attachment.name(), Kind::Unavailable, error);
        self.attachment.near().map_err(unreadable)?;
        Ok(Arc::new(NoRows { version: self.seen.version(), position: Cursor::default() }))
    }

    fn files(&self) -> FileStore {
        // An archive that cannot be opened has nothing to read: `snapshot` said so before.
        let store = match self.attachment.near() {
            Ok(near) => near.read,
            Err(_) => ReadStore::plain(Arc::new(InMemory::new()), "it cannot be opened"),
        };
        FileStore::Archive { store, id: self.attachment.store_id() }
    }
}

/// No rows but those of the files of a version.
struct NoRows {
    version: Version,
    position: Cursor,
}

impl HotView for NoRows {
    fn version(&self) -> Version {
        self.version
    }

    fn position(&self) -> &Cursor {
        &self.position
    }

    fn recent_rows(&self) -> u64 {
        0
    }

    fn recent(&self, _: Option<&[usize]>, _: bool) -> Result<Vec<RecordBatch>> {
        Ok(Vec::new())
    }

    fn hidden(&self) -> Result<Arc<BTreeMap<FileId, RoaringBitmap>>> {
        Ok(Arc::default())
    }

    fn get(&self, _: &[u8]) -> Result<HotLookup> {
        Ok(HotLookup::Absent)
    }

    fn scan(&self, _: Option<Vec<u8>>, _: Option<&[usize]>, _: bool) -> RowBatches {
        Box::new(std::iter::empty())
    }

    fn rows_complete(&self) -> bool {
        false
    }
}
