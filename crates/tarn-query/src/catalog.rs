//! Which names does SQL find? Schema `public` has the tables of the hot side and views, schema `tarn` the system
//! tables.
//!
//! A table `t` is also found as `t$seqno`, with the column `__seqno`; that name is in no listing. [`dml`](crate::dml)
//! reads it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{MemTable, SchemaProvider, Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use tarn_types::full_name::{self, PUBLIC};

use crate::hot::HotCatalog;
use crate::lake::Lake;
use crate::table::TarnTable;
use crate::view_table::ViewTable;

/// What a table's name ends with to have `__seqno` among its columns.
pub(crate) const WITH_SEQNO: &str = "$seqno";

/// Tables about the system itself, each made when it is read. A table has the same columns each time.
#[async_trait]
pub trait SystemTables: Send + Sync {
    /// All names, without the schema `tarn`.
    fn names(&self) -> Vec<String>;
    /// The rows of one of [`SystemTables::names`], as they are now.
    async fn table(&self, name: &str) -> crate::Result<RecordBatch>;
}

/// The schema `public`, and all tables by their full names.
pub(crate) struct PublicSchema {
    /// What tables read with.
    pub lake: Arc<Lake>,
    /// Which tables and views there are.
    pub hot: Arc<dyn HotCatalog>,
}

impl fmt::Debug for PublicSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicSchema")
    }
}

impl PublicSchema {
    /// What is in a schema, in order.
    fn names_in(&self, schema: &str) -> Vec<String> {
        let tables = self.hot.tables();
        let names = tables.iter().map(|table| full_name::split(&table.name)).filter(|(of, _)| *of == schema);
        let mut names: Vec<String> = names.map(|(_, name)| name.to_owned()).collect();
        names.sort();
        names
    }
}

/// A schema that somebody made: what `public` finds by full names, by those that it has there.
#[derive(Debug)]
pub(crate) struct NamedSchema {
    /// As it stands before the dot.
    pub name: String,
    pub all: Arc<PublicSchema>,
}

#[async_trait]
impl SchemaProvider for NamedSchema {
    fn table_names(&self) -> Vec<String> {
        self.all.names_in(&self.name)
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        self.all.table(&full_name::join(&self.name, name)).await
    }

    fn table_exist(&self, name: &str) -> bool {
        self.all.table_exist(&full_name::join(&self.name, name))
    }
}

#[async_trait]
impl SchemaProvider for PublicSchema {
    fn table_names(&self) -> Vec<String> {
        self.names_in(PUBLIC)
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let (name, with_seqno) = name.strip_suffix(WITH_SEQNO).map_or((name, false), |name| (name, true));
        if let Some(source) = self.hot.table(name) {
            return Ok(Some(Arc::new(TarnTable::new(&self.lake, source, with_seqno))));
        }
        let view = self.hot.view(name).filter(|_| !with_seqno);
        Ok(view.map(|view| {
            let schema = self.lake.schemas.of(&view, false);
            Arc::new(ViewTable { view, schema }) as _
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.hot.table(name.strip_suffix(WITH_SEQNO).unwrap_or(name)).is_some() || self.hot.view(name).is_some()
    }
}

/// A schema of system tables: `tarn`, and what somebody else has of the kind.
pub struct SystemSchema {
    tables: Arc<dyn SystemTables>,
    /// Of tables that were asked for before.
    known: Mutex<HashMap<String, SchemaRef>>,
}

impl SystemSchema {
    /// Of these tables.
    pub fn new(tables: Arc<dyn SystemTables>) -> Self {
        SystemSchema { tables, known: Mutex::default() }
    }
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
        let known = self.known.lock().get(name).cloned();
        let schema = match known {
            Some(schema) => schema,
            None => self.tables.table(name).await?.schema(),
        };
        self.known.lock().insert(name.to_owned(), Arc::clone(&schema));
        Ok(Some(Arc::new(SystemTable { tables: Arc::clone(&self.tables), name: name.to_owned(), schema })))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.names().iter().any(|known| known == name)
    }
}

/// One of its tables in a plan: made anew each time it is read, as a prepared statement is run again and again.
struct SystemTable {
    tables: Arc<dyn SystemTables>,
    name: String,
    schema: SchemaRef,
}

impl fmt::Debug for SystemTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SystemTable({})", self.name)
    }
}

#[async_trait]
impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = self.tables.table(&self.name).await?;
        let now = MemTable::try_new(Arc::clone(&self.schema), vec![vec![rows]])?;
        now.scan(state, projection, filters, limit).await
    }
}
