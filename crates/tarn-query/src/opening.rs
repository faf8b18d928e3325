//! Who opens the scans of a statement? Its [`Opener`], in the configuration of the statement's session: the handles,
//! the views of all its tables at one moment, and what was opened of each scan. Plans have none of these; they find it
//! when they run, by their [`ScanSpec`]s.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use datafusion::prelude::SessionConfig;
use parking_lot::Mutex;
use tarn_cache::ProjectedCache;
use tarn_metastore::{TableVersion, VersionSelector};
use tarn_types::{DataType, SEQNO_COLUMN, SEQNO_ID, TableSchema};

use crate::column_chunks::{ColumnChunkLoader, ScanColumns};
use crate::hot::{FileStore, HotView};
use crate::lake::Lake;
use crate::projected::NamedColumn;
use crate::reader::Readers;
use crate::settings::CacheSettings;
use crate::snapshot::{Snapshots, lake_at};
use crate::spec::{LakeRead, ScanSpec};
use crate::{Error, Result};

/// Of one statement.
pub(crate) struct Opener {
    lake: Arc<Lake>,
    tables: Snapshots,
    /// By the address of the spec, which what was opened keeps alive.
    opened: Mutex<HashMap<usize, Arc<OpenScan>>>,
}

/// What a scan reads with.
#[derive(Debug)]
pub(crate) struct OpenScan {
    /// Keeps its address from being another spec's.
    _spec: Arc<ScanSpec>,
    /// With which its files are read.
    pub readers: Arc<Readers>,
    recent: OnceLock<Vec<RecordBatch>>,
}

impl Opener {
    pub(crate) fn new(lake: Arc<Lake>, tables: Snapshots) -> Self {
        Opener { lake, tables, opened: Mutex::default() }
    }

    /// Of the statement that runs.
    pub(crate) fn of(context: &TaskContext) -> Result<Arc<Opener>> {
        Opener::in_config(context.session_config())
    }

    /// Of the statement with this configuration.
    pub(crate) fn in_config(config: &SessionConfig) -> Result<Arc<Opener>> {
        let outside = || Error::Corrupt { what: "a table is read outside of a statement".to_owned() };
        config.get_extension::<Opener>().ok_or_else(outside)
    }

    /// A table as the statement sees it.
    pub(crate) fn now(&self, table: &TableSchema) -> Result<Arc<dyn HotView>> {
        Ok(Arc::clone(&self.tables.of_table(table)?.view))
    }

    /// The files of a version.
    pub(crate) async fn version(&self, table: &TableSchema, at: VersionSelector) -> Result<Arc<TableVersion>> {
        lake_at(self.lake.metastore.as_ref(), table, at).await
    }

    pub(crate) fn lake(&self) -> &Lake {
        &self.lake
    }

    /// The hot side of a scan.
    ///
    /// Errors: `Moved` if the statement sees another position than the scan was planned for.
    pub(crate) fn view(&self, spec: &ScanSpec) -> Result<Arc<dyn HotView>> {
        let view = self.now(&spec.table)?;
        let is_there = view.version() == spec.version && spec.position.as_ref() == Some(view.position());
        if is_there { Ok(view) } else { Err(Error::Moved { table: spec.table.name.clone() }) }
    }

    /// Why files of the table cannot be read by pages.
    pub(crate) fn pages_not_used(&self, table: &TableSchema, caches: &CacheSettings) -> Result<Option<&'static str>> {
        Ok(self.readers(table, caches)?.pages_not_used())
    }

    /// Where a table's files are.
    pub(crate) fn files(&self, table: &TableSchema) -> Result<FileStore> {
        Ok(self.tables.of_table(table)?.source.files())
    }

    fn readers(&self, table: &TableSchema, caches: &CacheSettings) -> Result<Readers> {
        let readers = self.lake.readers.of_scan(caches);
        Ok(match self.files(table)? {
            FileStore::Lake => readers.of_table(table),
            FileStore::External { store, id } => readers.of_external_table(store, id, &table.name),
        })
    }

    /// Opens a scan, or finds what was opened of it. No IO.
    pub(crate) fn open(&self, spec: &Arc<ScanSpec>) -> Result<Arc<OpenScan>> {
        let address = Arc::as_ptr(spec) as usize;
        if let Some(open) = self.opened.lock().get(&address) {
            return Ok(Arc::clone(open));
        }
        let mut readers = self.readers(&spec.table, &spec.caches)?;
        if let Some(lake) = spec.lake().filter(|lake| spec.pruning && !lake.pruned.files.is_empty()) {
            let loader = self.loader(spec, lake, readers.page_index_bytes);
            readers = readers.with_loader(Arc::new(loader));
        }
        let open = OpenScan { _spec: Arc::clone(spec), readers: Arc::new(readers), recent: OnceLock::new() };
        // Of two who open it at the same time, both use what the first one put there.
        Ok(Arc::clone(self.opened.lock().entry(address).or_insert(Arc::new(open))))
    }

    /// Who says where the columns of the scan lie.
    fn loader(&self, spec: &ScanSpec, lake: &LakeRead, page_index_bytes: u64) -> ColumnChunkLoader {
        let projected = match spec.caches.metadata {
            true => Arc::clone(&self.lake.projected),
            false => Arc::new(ProjectedCache::new(0)),
        };
        ColumnChunkLoader::new(
            Arc::clone(&self.lake.metastore),
            projected,
            Arc::clone(&spec.table),
            columns(spec, lake),
            &lake.pruned.files,
            lake.by_pages.then_some(page_index_bytes),
        )
    }

    /// The recent rows of a scan, of storage types.
    pub(crate) fn recent(&self, spec: &Arc<ScanSpec>) -> Result<Vec<RecordBatch>> {
        let open = self.open(spec)?;
        if let Some(rows) = open.recent.get() {
            return Ok(rows.clone());
        }
        let (projection, with_seqno) = spec.hot_projection();
        let rows = self.view(spec)?.recent(Some(&projection), with_seqno)?;
        Ok(open.recent.get_or_init(|| rows).clone())
    }
}

/// What is asked of each file: the columns that are read, or of none the first one, which says where row groups are;
/// and the change of a row.
fn columns(spec: &ScanSpec, lake: &LakeRead) -> ScanColumns {
    let (_, with_seqno) = spec.hot_projection();
    let read = if lake.columns.is_empty() && !with_seqno { &[0] } else { lake.columns.as_slice() };
    let named = read.iter().map(|at| {
        let column = &spec.table.columns[*at];
        NamedColumn { id: column.id, name: column.name.as_str().into(), data_type: column.data_type }
    });
    let change =
        with_seqno.then(|| NamedColumn { id: SEQNO_ID, name: SEQNO_COLUMN.into(), data_type: DataType::Int64 });
    let mut in_filter: Vec<bool> = read.iter().map(|at| lake.in_filter.contains(at)).collect();
    in_filter.extend(change.iter().map(|_| false));
    ScanColumns { named: named.chain(change).collect(), in_filter }
}
