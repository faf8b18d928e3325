//! Which table is meant by a name, when a session has tables of its own?
//!
//! | name | table |
//! |---|---|
//! | `t` | the session's own, or that of schema `public` |
//! | `pg_temp.t`, `pg_temp_7.t` | the session's own |
//! | `public.t` | that of schema `public` |
//! | `s.t` | that of a schema `s` that somebody made |
//!
//! A name without a schema is looked for in [`SEARCH_PATH`], which is the default schema of such a session and in no
//! listing. What a view reads was named when it was made: its text is planned with `public` for a default
//! ([`of_views`]).

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;

use crate::catalog::{NamedSchema, PublicSchema};

/// The default schema of a session with tables of its own.
pub(crate) const SEARCH_PATH: &str = "__search_path";

/// The schema of everybody's tables.
pub(crate) const PUBLIC: &str = "public";

/// What PostgreSQL calls the schema of a session's own tables, whatever its number.
const OWN: &str = "pg_temp";

/// The schemas of a session.
#[derive(Debug)]
pub(crate) struct Schemas {
    /// What everybody has, and what is registered.
    others: MemoryCatalogProvider,
    /// By full names, those of schemas that somebody made, too.
    public: Arc<PublicSchema>,
    own: Arc<PublicSchema>,
    /// The name of `own` in listings.
    own_name: String,
    path: Arc<SearchPath>,
}

impl Schemas {
    pub(crate) fn new(public: &Arc<PublicSchema>, own: Arc<PublicSchema>, own_name: &str) -> Schemas {
        let path = Arc::new(SearchPath { own: Arc::clone(&own), public: Arc::clone(public) });
        let public = Arc::clone(public);
        Schemas { others: MemoryCatalogProvider::new(), public, own, own_name: own_name.to_owned(), path }
    }
}

impl CatalogProvider for Schemas {
    /// That of the session's own tables is there while it has some.
    fn schema_names(&self) -> Vec<String> {
        let mut names = self.others.schema_names();
        names.extend(self.public.hot.schemas());
        if !self.own.hot.tables().is_empty() {
            names.push(self.own_name.clone());
        }
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SEARCH_PATH => Some(Arc::clone(&self.path) as _),
            name if name == OWN || name == self.own_name => Some(Arc::clone(&self.own) as _),
            name => self.others.schema(name).or_else(|| {
                let is_there = self.public.hot.schemas().iter().any(|schema| schema == name);
                let made = || NamedSchema { name: name.to_owned(), all: Arc::clone(&self.public) };
                is_there.then(|| Arc::new(made()) as _)
            }),
        }
    }

    fn register_schema(&self, name: &str, schema: Arc<dyn SchemaProvider>) -> Result<Option<Arc<dyn SchemaProvider>>> {
        self.others.register_schema(name, schema)
    }

    fn deregister_schema(&self, name: &str, cascade: bool) -> Result<Option<Arc<dyn SchemaProvider>>> {
        self.others.deregister_schema(name, cascade)
    }
}

/// The session's own tables, then everybody's.
#[derive(Debug)]
struct SearchPath {
    own: Arc<PublicSchema>,
    public: Arc<PublicSchema>,
}

#[async_trait]
impl SchemaProvider for SearchPath {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.own.table_names();
        names.extend(self.public.table_names());
        names.sort();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.own.table(name).await? {
            Some(own) => Ok(Some(own)),
            None => self.public.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.own.table_exist(name) || self.public.table_exist(name)
    }
}

/// The state that texts of views are planned with: as if the session had no tables of its own.
pub(crate) fn of_views(state: &SessionState) -> SessionState {
    let mut state = state.clone();
    PUBLIC.clone_into(&mut state.config_mut().options_mut().catalog.default_schema);
    state
}
