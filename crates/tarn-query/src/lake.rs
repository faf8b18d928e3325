//! With what does every table of an engine read? The handles of the process: no plan has them.

use std::sync::Arc;

use datafusion::execution::object_store::ObjectStoreUrl;
use tarn_cache::ProjectedCache;
use tarn_metastore::Metastore;

use crate::Result;
use crate::reader::Readers;
use crate::totals::Totals;
use crate::values::SqlSchemas;

/// The store under which the lake is registered with DataFusion.
const LAKE_URL: &str = "tarn-lake://lake";

/// See the module.
pub(crate) struct Lake {
    /// Versions, bounds and probes.
    pub metastore: Arc<dyn Metastore>,
    /// Bytes of files, through the caches.
    pub readers: Arc<Readers>,
    /// Metadata of files as scans need it.
    pub projected: Arc<ProjectedCache>,
    /// What is known of columns whose bounds are not in memory.
    pub totals: Arc<Totals>,
    /// Tables' columns as SQL has them, made once a definition.
    pub schemas: SqlSchemas,
}

/// What plans call the store.
pub(crate) fn lake_url() -> Result<ObjectStoreUrl> {
    Ok(ObjectStoreUrl::parse(LAKE_URL)?)
}
