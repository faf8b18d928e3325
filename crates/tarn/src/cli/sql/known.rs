//! Which tables, columns, functions and settings has the server? Asked beside the session, so that a prompt never waits
//! long.
//!
//! A connection of its own asks, once at the beginning and once after each change of the catalog; changes of others are
//! seen after [`FRESH`]. Until the answer is there, completion goes by the last one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use parking_lot::{Condvar, Mutex};
use tarn_console::names::Catalog;
use tokio::runtime::Handle;

use crate::cli::client::{Connection, Target};

/// How long an answer is good: others change the catalog, too.
const FRESH: Duration = Duration::from_secs(60);

/// How long Tab waits for the first answer.
const WAIT: Duration = Duration::from_millis(300);

// What a console can use of them; a catalog without end is not fetched.
const COLUMNS: &str = "SELECT table_schema, table_name, column_name FROM information_schema.columns ORDER BY 1, 2, ordinal_position LIMIT 100000";
const FUNCTIONS: &str = "SELECT DISTINCT routine_name FROM information_schema.routines ORDER BY 1 LIMIT 10000";

const USERS: &str = "SELECT rolname FROM pg_catalog.pg_roles ORDER BY 1 LIMIT 10000";

/// What is known; handed to the editor, too.
#[derive(Clone)]
pub struct CatalogCache {
    shared: Arc<SharedCatalog>,
}

struct SharedCatalog {
    state: Mutex<CatalogState>,
    /// An answer came, or will not
    answered: Condvar,
}

struct CatalogState {
    catalog: Arc<Catalog>,
    fetched: Option<Instant>,
    is_asking: bool,
    /// Counts changes: an answer that was asked before one is not fresh
    n_changes: u64,
}

impl CatalogCache {
    /// Nothing is known yet.
    pub fn new() -> CatalogCache {
        let state = CatalogState { catalog: Arc::default(), fetched: None, is_asking: false, n_changes: 0 };
        CatalogCache { shared: Arc::new(SharedCatalog { state: Mutex::new(state), answered: Condvar::new() }) }
    }

    /// The catalog has changed.
    pub fn is_outdated(&self) {
        let mut state = self.shared.state.lock();
        state.fetched = None;
        state.n_changes += 1;
    }

    /// It is another server.
    pub fn forget(&self) {
        self.is_outdated();
        self.shared.state.lock().catalog = Arc::default();
    }

    /// Asks, unless what is known is fresh or somebody asks already.
    pub fn ask(&self, runtime: &Handle, target: &Target) {
        let mut state = self.shared.state.lock();
        let is_fresh = state.fetched.is_some_and(|fetched| fetched.elapsed() < FRESH);
        if is_fresh || state.is_asking {
            return;
        }
        state.is_asking = true;
        let (shared, target, n_changes) = (Arc::clone(&self.shared), target.clone(), state.n_changes);
        runtime.spawn(async move {
            let answer = fetch(&target).await;
            let mut state = shared.state.lock();
            state.is_asking = false;
            // Without an answer nothing is completed, which is no error of what is typed.
            if let Ok(catalog) = answer {
                state.catalog = Arc::new(catalog);
                state.fetched = (state.n_changes == n_changes).then(Instant::now);
            }
            shared.answered.notify_all();
        });
    }

    /// What is known now; the first time, or after a change, after a short wait.
    pub fn catalog(&self) -> Arc<Catalog> {
        let mut state = self.shared.state.lock();
        if state.fetched.is_none() && state.is_asking {
            self.shared.answered.wait_for(&mut state, WAIT);
        }
        Arc::clone(&state.catalog)
    }
}

async fn fetch(target: &Target) -> Result<Catalog> {
    let connection = target.connect().await?;
    let mut catalog = Catalog::default();
    for row in connection.rows(COLUMNS).await? {
        let [Some(schema), Some(table), Some(column)] = row.as_slice() else { continue };
        let name = if schema == "public" { table.clone() } else { format!("{schema}.{table}") };
        catalog.tables.entry(name).or_default().push(column.clone());
    }
    catalog.functions = first_column(&connection, FUNCTIONS).await;
    catalog.settings = first_column(&connection, "SHOW ALL").await;
    catalog.users = first_column(&connection, USERS).await;
    Ok(catalog)
}

/// Empty if the server does not have it.
async fn first_column(connection: &Connection, sql: &str) -> Vec<String> {
    let rows = connection.rows(sql).await.unwrap_or_default();
    rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect()
}
