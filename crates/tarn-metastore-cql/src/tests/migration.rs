//! Does a store move to the next version of its tables while it is read and written, wherever the move is stopped?

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Semaphore;

use tarn_metastore::contract::proxy::{NetworkFault, Proxy, has};
use tarn_metastore::contract::{append, everything, sample_schema};
use tarn_metastore::{
    BlockMetadata, BloomBuilder, Commit, Error, Hash, Metastore, MetastoreExt, Probe, VersionSelector, hour_blocks,
    token_hash,
};
use tarn_types::{FileId, Kind, TableId, Version};

use super::{Keyspace, RUNTIME, on_a_store};
use crate::layout::{NEWEST, Phase};
use crate::{Cql, CqlInner, SchemaVersion};

/// A client as builds were that made version 1, but for what they know of the next.
async fn older(keyspace: &Keyspace, known: u32) -> Cql {
    Cql::of(CqlInner::open_on(&keyspace.remote, RUNTIME.handle(), known, 1).await.unwrap())
}

/// Commits that go in beside each step.
const WRITES: usize = 6;

fn key(file: FileId) -> Hash {
    token_hash(&format!("key{file}"))
}

/// Adds a file whose filter has its own key and others, in one of three hours.
fn indexed(id: u128, file: FileId, n_chunks: u32) -> Commit {
    let mut change = append(id, file);
    change.add[0].hour = (file.0 % 3) as i64;
    let mut builder = BloomBuilder::new(n_chunks);
    (0..n_chunks * 4).for_each(|n| builder.insert(token_hash(&format!("filler{n}"))));
    builder.insert(key(file));
    let bloom = Some(builder.finish());
    change.block_metadata.insert(file, vec![BlockMetadata { row_group: 0, columns: vec![], bloom }]);
    change
}

/// Every block is kept for its own key; answers how many blocks are kept for keys of others.
async fn probe_all(client: &Cql, table: TableId) -> u64 {
    let latest = client.snapshot(table, VersionSelector::Latest).await.unwrap();
    let hours = hour_blocks(&latest.files);
    let blocks: Vec<_> = hours.iter().flat_map(|of_hour| of_hour.blocks.clone()).collect();
    let mut others = 0;
    for n in (0..blocks.len()).step_by(1 + blocks.len() / 6) {
        let probe = Probe { hours: hours.clone(), clauses: vec![vec![vec![key(blocks[n].file)]]] };
        let probed = client.probe(table, probe).await.unwrap();
        assert!(probed.kept.contains(n as u32), "block {:?} has its key", blocks[n]);
        assert_eq!(probed.without_bloom, 0);
        others += probed.kept.len() - 1;
    }
    others
}

#[test]
fn online_and_stopped_after_each_step() {
    on_a_store(async |keyspace| {
        let first = older(keyspace, NEWEST).await;
        let quiet = first.create_table(sample_schema("quiet")).await.unwrap().id;
        let busy = first.create_table(sample_schema("busy")).await.unwrap().id;
        let files = first.allocate_files(12).await.unwrap();
        for n in 0..12 {
            let n_chunks = if n % 2 == 0 { 64 } else { 128 };
            first.commit(quiet, indexed(1 + u128::from(n), FileId(files.0 + n), n_chunks)).await.unwrap();
        }
        first.commit(quiet, Commit { remove: vec![files], ..tarn_metastore::contract::commit(50, 12) }).await.unwrap();
        first.expire(quiet, Version(4)).await.unwrap();
        let refused = keyspace.connect_with("").await.err().unwrap();
        assert!(matches!(refused, Error::SchemaVersion { found: 1, needed: NEWEST, .. }), "{refused}");
        assert!(refused.to_string().contains("tarn metastore migrate"), "{refused}");
        let (before, kept) = (describe(&first, quiet).await, probe_all(&first, quiet).await);
        let outdated = older(keyspace, 1).await;

        // Writers and readers that know nothing of it until they meet it.
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let allowed = Arc::new(Semaphore::new(0));
        let mut running = Vec::new();
        for writer in 0..2u128 {
            let (client, allowed, written) = (older(keyspace, NEWEST).await, allowed.clone(), written.clone());
            running.push(RUNTIME.spawn(async move {
                let mut n = 0;
                while let Ok(permit) = allowed.acquire().await {
                    permit.forget();
                    let file = client.allocate_files(1).await.unwrap();
                    client.commit(busy, indexed(1_000 * (writer + 1) + n, file, 64)).await.unwrap();
                    n += 1;
                    written.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
        let (client, until) = (older(keyspace, NEWEST).await, stop.clone());
        running.push(RUNTIME.spawn(async move {
            while !until.load(Ordering::SeqCst) {
                probe_all(&client, busy).await;
            }
        }));
        for phase in Phase::ALL {
            let at_start = written.load(Ordering::SeqCst);
            allowed.add_permits(WRITES);
            let migrating = CqlInner::open_on(&keyspace.remote, RUNTIME.handle(), NEWEST, NEWEST).await.unwrap();
            migrating.migrate(&|_| {}, Some(phase)).await.unwrap();
            drop(migrating);
            let newcomer = older(keyspace, NEWEST).await;
            for client in [&first, &newcomer] {
                assert_eq!(describe(client, quiet).await, before, "after {phase:?}");
                assert_eq!(probe_all(client, quiet).await, kept, "after {phase:?}");
                probe_all(client, busy).await;
            }
            if [Phase::Both, Phase::Backfill, Phase::Switch].contains(&phase) {
                let fenced = outdated.commit(busy, append(7, FileId(1))).await.unwrap_err();
                let source = std::error::Error::source(&fenced).map(ToString::to_string).unwrap_or_default();
                assert!(source.contains("another node is migrating to 2"), "after {phase:?}: {fenced} {source}");
                assert!(keyspace.connect_with("").await.is_ok(), "this build's servers may come");
            }
            while written.load(Ordering::SeqCst) < at_start + WRITES as u64 {
                assert!(running.iter().all(|task| !task.is_finished()), "after {phase:?}: nobody gave up");
                tokio::task::yield_now().await;
            }
        }
        allowed.add_permits(WRITES);
        let told = AtomicU64::new(0);
        let report = |_: &str| told.store(1, Ordering::SeqCst);
        let version = Cql::migrate(&keyspace.remote, RUNTIME.handle(), &report).await.unwrap();
        assert_eq!((version, told.load(Ordering::SeqCst) > 0), (SchemaVersion(NEWEST), true));
        while written.load(Ordering::SeqCst) < ((Phase::ALL.len() + 1) * WRITES) as u64 {
            assert!(running.iter().all(|task| !task.is_finished()), "nobody gave up");
            tokio::task::yield_now().await;
        }
        stop.store(true, Ordering::SeqCst);
        allowed.close();
        for task in running {
            task.await.unwrap();
        }
        let after = keyspace.connect().await;
        assert_eq!(after.schema_version(), SchemaVersion(NEWEST));
        assert_eq!(describe(&after, quiet).await, before);
        assert_eq!(probe_all(&after, quiet).await, kept);
        probe_all(&after, busy).await;
        let n_written = written.load(Ordering::SeqCst);
        assert_eq!(after.snapshot(busy, VersionSelector::Latest).await.unwrap().files.len() as u64, n_written);
        let tables = keyspace.count_rows(&["bloom_chunks"]).await;
        assert!(tables.iter().all(|(name, _)| name != "bloom_chunks32" && name != "migrated"), "{tables:?}");
        assert_eq!(outdated.tables().await.unwrap_err().kind(), Kind::Unavailable);
        // Again: there is nothing to do.
        assert_eq!(Cql::migrate(&keyspace.remote, RUNTIME.handle(), &|_| {}).await.unwrap(), SchemaVersion(NEWEST));
    });
}

/// All that can be read of a table.
async fn describe(client: &Cql, table: TableId) -> String {
    let mut out = String::new();
    let oldest = client.snapshot(table, VersionSelector::Oldest).await.unwrap().version.0;
    for version in oldest..=client.version(table).await.unwrap().0 {
        let whole = client.snapshot(table, VersionSelector::Version(Version(version))).await.unwrap();
        let block_metadata = client.block_metadata(table, everything(hour_blocks(&whole.files))).await.unwrap();
        writeln!(out, "{version} {:?} {:?} {:?}", whole.files, block_metadata.columns, block_metadata.blooms).unwrap();
    }
    out
}

#[test]
fn cut_off_in_the_middle_of_a_step() {
    // Statements as they are prepared or sent, and a phase among their values.
    for text in [
        "migrated (table_id",
        "ADD chunk_row_bytes",
        "backfill",
        "INTO migrated",
        "INTO bloom_chunks",
        "DROP TABLE IF EXISTS b",
    ] {
        on_a_store(async |keyspace| {
            let first = older(keyspace, NEWEST).await;
            let table = first.create_table(sample_schema("t")).await.unwrap().id;
            let files = first.allocate_files(4).await.unwrap();
            for n in 0..4 {
                first.commit(table, indexed(1 + u128::from(n), FileId(files.0 + n), 32)).await.unwrap();
            }
            let (before, kept) = (describe(&first, table).await, probe_all(&first, table).await);
            let proxy = Proxy::start(keyspace.node()).await.unwrap();
            proxy.arm(NetworkFault::CutBefore, move |seen| has(seen, text.as_bytes()), |_| false);
            let remote = keyspace.through(proxy.address(), 10_000);
            // It may get over it, or stop; or stop before it, where the server is slow.
            let mut ended = Cql::migrate(&remote, RUNTIME.handle(), &|_| {}).await;
            while ended.is_err() && proxy.is_armed() {
                ended = Cql::migrate(&remote, RUNTIME.handle(), &|_| {}).await;
            }
            assert!(!proxy.is_armed(), "{text} was met");
            for client in [&first, &older(keyspace, NEWEST).await] {
                assert_eq!(describe(client, table).await, before, "{text}: {ended:?}");
                assert_eq!(probe_all(client, table).await, kept, "{text}: {ended:?}");
            }
            Cql::migrate(&keyspace.remote, RUNTIME.handle(), &|_| {}).await.unwrap();
            let after = keyspace.connect().await;
            assert_eq!((describe(&after, table).await, probe_all(&after, table).await), (before, kept), "{text}");
        });
    }
}

#[test]
fn a_newer_store_is_left_alone() {
    on_a_store(async |keyspace| {
        let client = keyspace.connect().await;
        keyspace.run("UPDATE $.catalog SET schema_version = 3, seq = 9 WHERE k = 'tarn' IF seq = 0").await;
        let refused = keyspace.connect_with("").await.err().unwrap();
        assert!(matches!(refused, Error::SchemaVersion { found: 3, needed: NEWEST, .. }), "{refused}");
        assert_eq!(client.tables().await.unwrap_err().kind(), Kind::Unavailable, "also for who was there before");
    });
}
