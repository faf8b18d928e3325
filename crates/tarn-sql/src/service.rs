//! What do all sessions of a node share?
//!
//! The query engine over the node's tables, its threads, and what transactions may hold back. A session is made of it;
//! faces hold it and nothing below.

use std::path::Path;
use std::sync::Arc;

use tarn_node::node::Node;
use tarn_node::threads::Threads;
use tarn_query::SqlDialect;
use tarn_query::parser::STACK_BYTES;
use tarn_types::Opaque;
use tokio::runtime::Handle;

use crate::activity::Activity;
use crate::advisory::Locks;
use crate::budget::Budget;
use crate::channels::Channels;
use crate::cursors::kept::MAX_FILES;
use crate::error::{Result, SqlError, state};
use crate::hot;
use crate::names::DATABASE;
use crate::postgres;
use crate::settings::SqlSettings;
use crate::system::System;
use crate::turns::Turns;
use crate::user_functions::NodeFunctions;
use crate::views;

/// Some kernels, a nested-loop join's above all, hold their thread for long: there must be others for the queries
/// beside them.
const QUERY_THREADS_PER_CORE: usize = 8;

/// SQL over one node. Shared by all its sessions; dropped, its queries end.
pub struct Sql {
    node: Arc<Node>,
    settings: SqlSettings,
    query: Opaque<tarn_query::Engine>,
    activity: Arc<Activity>,
    /// What transactions hold back until COMMIT.
    held: Arc<Budget>,
    pub(crate) locks: Arc<Locks>,
    /// Of cursors that keep rows in files.
    pub(crate) cursor_files: Arc<Budget>,
    pub(crate) channels: Arc<Channels>,
    pub(crate) turns: Turns,
    /// Where it was opened: what a thread of a query waits for runs there.
    pub(crate) runtime: Handle,
    /// Queries have threads of their own: a join must not hold up connections.
    _threads: Threads,
}

impl Sql {
    /// Over an open node. What queries of an earlier process spilled goes.
    ///
    /// Panics outside of a runtime. Errors: the system gives no threads; the folder of spilled state cannot be used.
    pub fn open(node: Arc<Node>, settings: SqlSettings) -> Result<Arc<Sql>> {
        let threads = Threads::start("tarn-query", QUERY_THREADS_PER_CORE * cores(), STACK_BYTES)?;
        let caches = node.caches();
        let spill = settings.spill_dir.clone().unwrap_or_else(|| node.settings().data_dir.join("spill"));
        empty(&spill)?;
        let partitions = settings.query_partitions;
        let options = tarn_query::Options {
            information_schema: false,
            memory_bytes: settings.query_memory_bytes as usize,
            target_partitions: if partitions == 0 { cores() } else { partitions },
            spill_dir: Some(spill),
            catalog: DATABASE.to_owned(),
            threads: Some(threads.handle()),
            metadata: Arc::clone(&caches.metadata),
            fragments: Some(caches.fragments.clone()),
            meaning: SqlDialect {
                views: views::texts(),
                user_functions: Some(Arc::new(NodeFunctions(Arc::clone(node.functions())))),
                ..postgres::meaning(node.types())
            },
            ..tarn_query::Options::default()
        };
        let activity = Activity::new(&node, settings.slow_statement_ms);
        let system = System::new(Arc::clone(&node), Arc::clone(&activity));
        let tables = Arc::new(hot::NodeTables(Arc::clone(&node)));
        let (metastore, footers) = (Arc::clone(node.metastore()), Arc::clone(&caches.footers));
        let query =
            tarn_query::Engine::new(options, metastore, node.lake_reads().clone(), footers, tables, Arc::new(system))?;
        let (query, held) = (Opaque::new(query), Budget::new(settings.transactions_bytes));
        Ok(Arc::new(Sql {
            node,
            settings,
            query,
            activity,
            held,
            locks: Arc::default(),
            cursor_files: Budget::new(MAX_FILES),
            channels: Arc::default(),
            turns: Turns::default(),
            runtime: Handle::current(),
            _threads: threads,
        }))
    }

    /// What it is over.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Of statements, as the server was started with them.
    pub fn settings(&self) -> &SqlSettings {
        &self.settings
    }

    /// The engine that plans and runs queries, with its threads and memory.
    pub fn query(&self) -> &tarn_query::Engine {
        &self.query
    }

    /// Which clients are there, and what they run.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// What all transactions together may hold back.
    pub fn held(&self) -> &Arc<Budget> {
        &self.held
    }

    /// The text of `/metrics`, gauges brought up to date.
    pub fn metrics_text(&self) -> String {
        self.node.metrics().query_memory_bytes.set(self.query.memory_used_bytes() as i64);
        self.node.metrics_text()
    }
}

/// Makes the folder, with nothing in it.
fn empty(spill: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(spill);
    std::fs::create_dir_all(spill)
        .map_err(|error| SqlError::new(state::IO_ERROR, format!("make {}: {error}", spill.display())))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}
