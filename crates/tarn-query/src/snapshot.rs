//! At which position does this statement read?
//!
//! One [`Snapshots`] per statement, carried by the session's configuration: the first scan of a table takes its [`HotView`], later
//! scans of the same statement share it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_metastore::{At, Metastore, TableVersion};
use tarn_types::{TableId, TableSchema};

use crate::hot::{HotSource, HotView};
use crate::{Error, Result};

/// The views one statement has taken so far.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// Locked only to look up or insert; taking a view is quick.
    taken: Mutex<HashMap<TableId, Arc<dyn HotView>>>,
}

impl Snapshots {
    pub(crate) fn view(&self, source: &dyn HotSource) -> Result<Arc<dyn HotView>> {
        let mut taken = self.taken.lock();
        let id = source.schema().id;
        if let Some(view) = taken.get(&id) {
            return Ok(Arc::clone(view));
        }
        let view = source.snapshot()?;
        taken.insert(id, Arc::clone(&view));
        Ok(view)
    }
}

/// The files of a table at a place in its past, or at exactly the version that a view names.
pub(crate) async fn lake_at(metastore: &dyn Metastore, table: &TableSchema, at: At) -> Result<Arc<TableVersion>> {
    let failed = |source| Error::Metastore { table: table.name.clone(), at, source };
    metastore.snapshot(table.id, at).await.map_err(failed)
}
