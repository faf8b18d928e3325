//! At which position does this statement read?
//!
//! One [`Snapshots`] per statement: all tables that its plan reads, at one moment.

use std::collections::HashMap;
use std::sync::Arc;

use tarn_metastore::{Metastore, TableVersion, VersionSelector};
use tarn_types::{TableId, TableSchema, Version};

use crate::hot::{HotReader, HotSource, HotView};
use crate::{Error, Result};

/// The views of one statement.
pub(crate) struct Snapshots(HashMap<TableId, TableSnapshotView>);

/// A table and what is seen of it.
pub(crate) struct TableSnapshotView {
    /// The hot side of the table.
    pub source: Arc<dyn HotSource>,
    /// Of the one moment at which the statement reads.
    pub view: Arc<dyn HotView>,
}

impl Snapshots {
    /// Of all tables that a plan reads, some of them several times.
    pub(crate) fn of(tables: Vec<Arc<dyn HotSource>>, reader: &dyn HotReader) -> Result<Self> {
        let sources: HashMap<TableId, Arc<dyn HotSource>> =
            tables.into_iter().map(|source| (source.schema().id, source)).collect();
        let (ids, sources): (Vec<_>, Vec<_>) = sources.into_iter().unzip();
        if sources.is_empty() {
            return Ok(Snapshots(HashMap::new()));
        }
        let views = reader.snapshot(&sources)?;
        let seen = sources.into_iter().zip(views).map(|(source, view)| TableSnapshotView { source, view });
        Ok(Snapshots(ids.into_iter().zip(seen).collect()))
    }

    /// What is seen of one of them.
    pub(crate) fn of_table(&self, table: &TableSchema) -> Result<&TableSnapshotView> {
        let seen = self.0.get(&table.id);
        seen.ok_or_else(|| Error::Corrupt { what: format!("table {} is not among those of the plan", table.name) })
    }
}

/// The files of a table at a place in its past, or at exactly the version that a view names.
pub(crate) async fn lake_at(
    metastore: &dyn Metastore,
    table: &TableSchema,
    at: VersionSelector,
) -> Result<Arc<TableVersion>> {
    // It never has any.
    if table.id.is_temporary() {
        return match at {
            VersionSelector::Version(Version(0)) => Ok(Arc::default()),
            _ => Err(Error::Unsupported {
                what: format!("reading temporary table \"{}\" as it was", table.name),
                remedy: "RESET tarn.as_of_version and tarn.as_of_time: only the lake has earlier versions",
            }),
        };
    }
    let failed = |source| Error::Metastore { table: table.name.clone(), at, source };
    metastore.snapshot(table.id, at).await.map_err(failed)
}
