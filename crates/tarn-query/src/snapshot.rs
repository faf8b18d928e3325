//! At which position does this statement read?
//!
//! One [`Snapshots`] per statement, carried by the session's configuration: the first scan of a table takes its [`HotView`], later
//! scans of the same statement share it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_metastore::{At, Metastore, TableVersion};
use tarn_types::{TableId, Version};

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

/// The files of a table at exactly `version`.
pub(crate) async fn lake_version(
    metastore: &dyn Metastore,
    table: TableId,
    name: &str,
    version: Version,
) -> Result<Arc<TableVersion>> {
    metastore.snapshot(table, At::Version(version)).await.map_err(|source| Error::Metastore {
        table: name.to_owned(),
        version,
        source,
    })
}
