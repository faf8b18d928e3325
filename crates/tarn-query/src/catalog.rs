//! Which names does SQL find? Schema `public` has the tables of the hot side, schema `tarn` the system tables.
//!
//! A table `t` is also found as `t$seqno`, with the column `__seqno`; that name is in no listing. [`dml`](crate::dml) reads it.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};

use crate::hot::HotCatalog;
use crate::lake::Lake;
use crate::table::TarnTable;

/// What a table's name ends with to have `__seqno` among its columns.
pub(crate) const WITH_SEQNO: &str = "$seqno";

/// Tables about the system itself, each made when it is asked for.
#[async_trait]
pub trait SystemTables: Send + Sync {
    /// All names, without the schema `tarn`.
    fn names(&self) -> Vec<String>;
    /// The rows of one of [`SystemTables::names`], as they are now.
    async fn table(&self, name: &str) -> crate::Result<RecordBatch>;
}

/// The schema `public`.
pub(crate) struct PublicSchema {
    pub lake: Arc<Lake>,
    pub hot: Arc<dyn HotCatalog>,
}

impl fmt::Debug for PublicSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicSchema")
    }
}

#[async_trait]
impl SchemaProvider for PublicSchema {
    fn table_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.hot.tables().iter().map(|table| table.name.clone()).collect();
        names.sort();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let (name, with_seqno) = name.strip_suffix(WITH_SEQNO).map_or((name, false), |name| (name, true));
        let table = self.hot.table(name).map(|source| TarnTable::new(&self.lake, source, with_seqno));
        Ok(table.map(|table| Arc::new(table) as _))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.hot.table(name.strip_suffix(WITH_SEQNO).unwrap_or(name)).is_some()
    }
}

/// The schema `tarn`.
pub(crate) struct SystemSchema {
    pub tables: Arc<dyn SystemTables>,
}

impl fmt::Debug for SystemSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SystemSchema")
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        self.tables.names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if !self.table_exist(name) {
            return Ok(None);
        }
        let rows = self.tables.table(name).await?;
        Ok(Some(Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.names().iter().any(|known| known == name)
    }
}
