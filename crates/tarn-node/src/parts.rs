//! What do statements and workers of a node share, and in which order is it opened?

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use tarn_cache::FileReaders;
use tarn_lake::Lake;
use tarn_metastore::{Definition, Metastore, is_document};
use tarn_raftlog::{Damage, RaftLog, Recovery};
use tarn_rows::{RocksEngine, RocksOptions};
use tarn_types::Clock;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::auth::Directory;
use crate::cache_metrics::CacheMetrics;
use crate::caches::{Caches, CachingStore};
use crate::catalog::Catalog;
use crate::clock::monotonic_ns;
use crate::comments::Comments;
use crate::dropped::Drops;
use crate::edges::KnownEdges;
use crate::error::{Error, Result};
use crate::folder::io_error;
use crate::functions::Functions;
use crate::health::Health;
use crate::lake_store;
use crate::latches::Latches;
use crate::ledger::Ledger;
use crate::log_metrics::LogMetrics;
use crate::metastores::{self, MetastoreLocation};
use crate::metrics::Metrics;
use crate::reserve::Reserve;
use crate::schemas::Schemas;
use crate::sequences;
use crate::settings::{LogRecovery, NodeSettings};
use crate::stores;
use crate::table_metrics::TableMetrics;
use crate::temporary_room::TemporaryRoom;
use crate::together::{self, PriorState, StartupPlan, quarantine_hint};
use crate::types::Types;

/// What statements and workers share.
pub struct NodeParts {
    pub settings: NodeSettings,
    pub clock: Arc<dyn Clock>,
    pub log: Arc<RaftLog>,
    pub engine: Arc<RocksEngine>,
    pub metastore: Arc<dyn Metastore>,
    pub lake: Lake,
    /// Where lake files are.
    pub lake_location: stores::StoreLocation,
    pub(crate) lake_near: CachingStore,
    /// How rows are read by their address.
    pub(crate) lake_files: FileReaders,
    pub caches: Arc<Caches>,
    pub users: Arc<Directory>,
    pub comments: Arc<Comments>,
    pub sequences: Arc<sequences::Directory>,
    pub types: Arc<Types>,
    pub functions: Arc<Functions>,
    pub schemas: Arc<Schemas>,
    pub catalog: Arc<Catalog>,
    pub(crate) edges: KnownEdges,
    pub(crate) latches: Latches,
    pub(crate) temporary: TemporaryRoom,
    /// Which tables have their rows here.
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) drops: Drops,
    pub metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) reserve: Reserve,
    /// Cancelled when the node closes: background work stops where it is.
    pub(crate) stop: CancellationToken,
    /// Woken when a delivery made room for writers.
    pub room: Notify,
    /// Log bytes appended when the engine was last flushed.
    pub(crate) flushed_log_bytes: AtomicU64,
    /// One flush at a time.
    pub(crate) flushing: Mutex<()>,
}

impl NodeParts {
    /// Opens the folder's parts; the caller holds its lock.
    ///
    /// Errors: anything in it is damaged, or does not fit the rest.
    pub(crate) async fn open(settings: NodeSettings, clock: Arc<dyn Clock>) -> Result<Arc<NodeParts>> {
        let dir = settings.data_dir.clone();
        // First: everything below may need the room.
        let reserve =
            Reserve::open(&dir, settings.reserve_bytes).map_err(|e| io_error("look for room in", &dir, &e))?;
        let before = PriorState::look(&settings)?;
        let begins = metastores::begins(&settings)?;
        let log_options = tarn_raftlog::Options {
            segment_bytes: settings.log_segment_bytes,
            cache_bytes: settings.log_cache_bytes,
            recovery: match settings.log_recovery {
                LogRecovery::Refuse => Recovery::Refuse,
                LogRecovery::Quarantine => Recovery::Quarantine,
            },
            clock: Some(monotonic_ns),
            ..tarn_raftlog::Options::new(dir.join("log"))
        };
        let log = Arc::new(open_log(log_options)?);
        if begins && !log.groups().is_empty() {
            return Err(metastores::refuse_loss(&settings));
        }
        let rocks =
            RocksOptions { memory_budget_bytes: settings.rows_memory_bytes as usize, ..RocksOptions::default() };
        let engine = RocksEngine::open(&dir.join("rows"), &rocks)?;
        let metastore =
            metastores::open(&MetastoreLocation::of(&settings)?, Arc::clone(&clock), &Handle::current()).await?;

        let StartupPlan { kept, abandoned, homeless } =
            before.check(&settings, &log, &engine, metastore.as_ref()).await?;
        let folder = kept.folder;
        let ledger = Ledger::begin(&dir, kept)?;
        together::mark_rows(&engine, folder)?;
        metastores::remember(&settings)?;
        for from in homeless {
            let mut to = Box::new((*from).clone());
            to.options.home = Some(folder);
            metastore.define(Definition::Alter { from, to }).await?;
        }
        let has_tables = metastore.tables().await?.iter().any(|schema| !is_document(schema));
        let users = Arc::new(Directory::open(Arc::clone(&metastore)).await?);
        let comments = Arc::new(Comments::open(Arc::clone(&metastore)).await?);
        let sequences = Arc::new(sequences::Directory::new(Arc::clone(&metastore)));
        let (lake_location, store) = lake_store::open(&settings, has_tables, folder).await?;
        let caches = Arc::new(Caches::open(&settings, Arc::clone(&clock), Handle::current()).await?);
        let lake_near = caches.around_lake(&lake_location, store);
        let lake_options = tarn_lake::Options {
            target_file_bytes: settings.lake_target_file_bytes,
            row_group_rows: settings.lake_row_group_rows,
            ..tarn_lake::Options::default()
        };
        let store = Arc::clone(&lake_near.store);
        let lake = Lake::new(store, Arc::clone(&metastore), Arc::clone(&clock), lake_options, uuid::Uuid::new_v4());
        let (engine, catalog) = (Arc::new(engine), Arc::<Catalog>::default());
        let types = Arc::new(Types::open(Arc::clone(&metastore), Arc::clone(&catalog)).await?);
        let functions = Arc::new(Functions::open(Arc::clone(&metastore), Arc::clone(&catalog)).await?);
        let schemas = Arc::new(Schemas::open(Arc::clone(&metastore), Arc::clone(&catalog)).await?);
        let of_tables =
            TableMetrics { catalog: Arc::clone(&catalog), engine: Arc::clone(&engine), clock: Arc::clone(&clock) };
        let metrics = Metrics::new(vec![
            Box::new(LogMetrics(Arc::clone(&log))),
            Box::new(CacheMetrics(Arc::clone(&caches))),
            Box::new(of_tables),
        ]);
        let lake_files = FileReaders::of_lake(lake_near.read.clone(), Arc::clone(&caches.footers));
        let parts = NodeParts {
            settings,
            clock,
            log,
            engine,
            metastore,
            lake,
            lake_location,
            lake_near,
            lake_files,
            caches,
            users,
            comments,
            sequences,
            types,
            functions,
            schemas,
            catalog,
            edges: KnownEdges::default(),
            latches: Latches::default(),
            temporary: TemporaryRoom::default(),
            ledger: Arc::new(ledger),
            drops: Drops::default(),
            metrics,
            health: Health::default(),
            reserve,
            stop: CancellationToken::new(),
            room: Notify::new(),
            flushed_log_bytes: AtomicU64::new(0),
            flushing: Mutex::new(()),
        };
        parts.finish_drops(&abandoned)?;
        Ok(Arc::new(parts))
    }
}

fn open_log(options: tarn_raftlog::Options) -> Result<RaftLog> {
    let (dir, recovery) = (options.dir.clone(), options.recovery);
    let (log, found) = RaftLog::open(options).map_err(|error| match (error.kind(), recovery) {
        (tarn_raftlog::ErrorKind::Corrupt, Recovery::Refuse) => Error::from(error).with_hint(quarantine_hint(&dir)),
        _ => Error::from(error),
    })?;
    tracing::info!(segments = found.n_segments, scanned = found.n_scanned, entries = found.n_entries, torn = ?found.torn_tail, "log opened");
    for Damage { path, offset, what } in &found.damages {
        tracing::warn!(path = %path.display(), offset, what, "the log was damaged");
    }
    Ok(log)
}
