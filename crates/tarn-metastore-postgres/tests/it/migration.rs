//! From schema 1 to 2 while readers and writers go on, killed at each step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tarn_metastore::contract::{append, describe, sample_block_metadata, sample_schema, with_files};
use tarn_metastore::{
    Block, BlockMetadata, Commit, ExpectedVersion, HourBlocks, Metastore, MetastoreExt, Probe, VersionSelector,
    hour_blocks, token_hash,
};
use tarn_metastore_postgres::Postgres;
use tarn_types::{FileId, Kind, TableId, Version};

use crate::server::TestServer;

const KEYS: [&str; 4] = ["connection", "refused", "a", "nowhere"];

/// One file with one block, its hour and keys by its number.
fn change(n: u64, file: FileId) -> Commit {
    let mut change = append(u128::from(n) + 1, file);
    change.add[0].hour = n as i64 % 3;
    let keys = if n.is_multiple_of(2) { &KEYS[..2] } else { &KEYS[2..3] };
    change.block_metadata = [(file, sample_block_metadata(keys))].into();
    change
}

async fn probes(metastore: &dyn Metastore, table: TableId, hours: &[HourBlocks]) -> Vec<Vec<u32>> {
    let mut kept = vec![];
    for key in KEYS {
        let probe = Probe { hours: hours.to_vec(), clauses: vec![vec![vec![token_hash(key)]]] };
        kept.push(metastore.probe(table, probe).await.unwrap().kept.iter().collect());
    }
    kept
}

#[test]
fn older_and_newer_stores_are_left_alone_and_named() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let remote = server.remote().await;
        server.connect_as(&remote, 1..=1).await.unwrap();
        let older = server.connect(&remote).await.err().unwrap();
        assert_eq!(older.kind(), Kind::Unavailable);
        assert!(older.to_string().contains("tarn metastore migrate"), "{older}");
        server.admin().await.batch_execute("UPDATE meta SET schema_version = 3").await.unwrap();
        for newer in [
            server.connect(&remote).await.err(),
            Postgres::migrate(&remote, server.runtime().handle(), &|_| {}).await.err(),
        ] {
            let newer = newer.unwrap();
            assert!(newer.to_string().contains("schema version 3"), "{newer}");
        }
    });
}

#[test]
fn a_store_is_migrated_while_it_is_used_and_killed_at_every_step() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let remote = server.remote().await;
        let old: Arc<dyn Metastore> = Arc::new(server.connect_as(&remote, 1..=1).await.unwrap());
        let both: Arc<dyn Metastore> = Arc::new(server.connect_as(&remote, 1..=2).await.unwrap());
        let (table, first) = with_files(&old, 1_000).await;
        let still = old.create_table(sample_schema("still")).await.unwrap().id;
        for n in 0..100 {
            old.commit(table, change(n, FileId(first.0 + n))).await.unwrap();
        }
        // Of this one nothing changes meanwhile.
        let of_still = old.allocate_files(40).await.unwrap();
        for n in 0..40 {
            old.commit(still, change(n, FileId(of_still.0 + n))).await.unwrap();
        }
        let remove = (0..5).map(|n| FileId(of_still.0 + n)).collect();
        let removing =
            Commit { remove, add: vec![], expected: ExpectedVersion::At(Version(40)), ..append(1_000, of_still) };
        old.commit(still, removing).await.unwrap();
        let hours = hour_blocks(&old.snapshot(still, VersionSelector::Latest).await.unwrap().files);
        let before = (probes(&*old, still, &hours).await, describe_table(&*old, still).await);

        let (is_over, n_written, n_read) = (AtomicBool::new(false), AtomicU64::new(100), AtomicU64::new(0));
        let writing = async {
            let mut n = 100;
            while !is_over.load(Ordering::SeqCst) {
                let version = both.commit(table, change(n, FileId(first.0 + n))).await.unwrap();
                assert_eq!(version, Version(n + 1));
                n += 1;
                n_written.store(n, Ordering::SeqCst);
            }
        };
        let reading = async {
            while !is_over.load(Ordering::SeqCst) {
                assert_eq!(probes(&*both, still, &hours).await, before.0);
                let latest = both.snapshot(table, VersionSelector::Latest).await.unwrap();
                let of_latest = hour_blocks(&latest.files);
                let kept = probes(&*both, table, &of_latest).await;
                let numbers = of_latest.iter().flat_map(|of_hour| &of_hour.blocks).map(|block| block.file.0 - first.0);
                for (at, n) in (0u32..).zip(numbers) {
                    let has = [n.is_multiple_of(2), n.is_multiple_of(2), !n.is_multiple_of(2)];
                    for (kept, has) in kept.iter().zip(has) {
                        assert!(!has || kept.contains(&at), "block {n} of {latest:?}");
                    }
                }
                let stats = both.stats().await.unwrap();
                assert!(stats.loose_blocks + stats.packs > 0, "{stats:?}");
                n_read.fetch_add(1, Ordering::SeqCst);
            }
        };
        let migrating = async {
            let mut n_steps = 0;
            let handle = server.runtime().handle().clone();
            for kill_at in 1.. {
                // Dies when it is about to make the step durable for which it was not killed before.
                let (remote, handle) = (remote.clone(), handle.clone());
                let done = tokio::spawn(async move {
                    let n = AtomicU64::new(0);
                    let report = |step: &str| {
                        assert!(n.fetch_add(1, Ordering::SeqCst) != kill_at % 2, "killed at: {step}");
                    };
                    Postgres::migrate(&remote, &handle, &report).await
                });
                match done.await {
                    Ok(version) => {
                        assert_eq!(version.unwrap(), 2);
                        break;
                    }
                    Err(killed) => assert!(killed.is_panic()),
                }
                n_steps += 1;
                assert!(n_steps < 200);
                // Between two steps a turn of reading and writing, and maintenance, which deletes but does not pack.
                let (written, read) = (n_written.load(Ordering::SeqCst), n_read.load(Ordering::SeqCst));
                both.maintain(1 << 20).await.unwrap();
                while n_written.load(Ordering::SeqCst) <= written || n_read.load(Ordering::SeqCst) <= read {
                    tokio::task::yield_now().await;
                }
            }
            is_over.store(true, Ordering::SeqCst);
            n_steps
        };
        let ((), (), n_steps) = tokio::join!(writing, reading, migrating);
        assert!(n_steps >= 6, "killed {n_steps} times");

        // A build that knows schema 1 alone is told.
        let fenced = old.commit(table, change(900, FileId(first.0 + 900))).await.unwrap_err();
        assert_eq!(fenced.kind(), Kind::Unavailable);
        assert!(fenced.to_string().contains("schema version 2"), "{fenced}");
        let new = server.open().await;
        assert_eq!((probes(&new, still, &hours).await, describe_table(&new, still).await), before);
        assert_eq!(describe(&new).await, describe(&*both).await);
        while new.maintain(1 << 30).await.unwrap().more {}
        assert_eq!((probes(&new, still, &hours).await, describe_table(&new, still).await), before);
        assert_eq!(new.version(table).await.unwrap(), Version(n_written.load(Ordering::SeqCst)));
        let left = "SELECT to_regclass('bloom_chunks') IS NULL AND to_regclass('block_details') IS NULL";
        assert!(server.admin().await.query_one(left, &[]).await.unwrap().get::<_, bool>(0));
    });
}

#[test]
fn an_older_build_is_told_as_soon_as_a_migration_begins_to_write_twice() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let remote = server.remote().await;
        let old: Arc<dyn Metastore> = Arc::new(server.connect_as(&remote, 1..=1).await.unwrap());
        let (table, first) = with_files(&old, 3).await;
        old.commit(table, change(0, first)).await.unwrap();
        // Dies right after `both`.
        let (to_migrate, handle) = (remote.clone(), server.runtime().handle().clone());
        let killed = tokio::spawn(async move {
            let report = |step: &str| assert!(!step.starts_with("backfill"), "killed");
            Postgres::migrate(&to_migrate, &handle, &report).await
        });
        assert!(killed.await.unwrap_err().is_panic());
        let fenced = old.commit(table, change(1, FileId(first.0 + 1))).await.unwrap_err();
        assert_eq!(fenced.kind(), Kind::Unavailable, "{fenced}");
        // A new server can start now, and goes on through the rest.
        let new = server.open().await;
        assert_eq!(new.commit(table, change(1, FileId(first.0 + 1))).await.unwrap(), Version(2));
        assert_eq!(Postgres::migrate(&remote, server.runtime().handle(), &|_| {}).await.unwrap(), 2);
        assert_eq!(new.commit(table, change(2, FileId(first.0 + 2))).await.unwrap(), Version(3));
        let hours = hour_blocks(&new.snapshot(table, VersionSelector::Latest).await.unwrap().files);
        assert_eq!(probes(&new, table, &hours).await[0], vec![0, 2]);
    });
}

#[test]
fn a_file_of_many_blocks_is_copied_in_parts_without_reading_all_of_it_each_time() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let remote = server.remote().await;
        let old: Arc<dyn Metastore> = Arc::new(server.connect_as(&remote, 1..=1).await.unwrap());
        let (table, first) = with_files(&old, 3).await;
        old.commit(table, change(0, first)).await.unwrap();
        let mut wide = change(3, FileId(first.0 + 1));
        let (block, block_metadata) = (wide.add[0].blocks[0].clone(), wide.block_metadata[&wide.add[0].id][0].clone());
        wide.add[0].blocks = (0..100).map(|row_group| Block { row_group, ..block.clone() }).collect();
        wide.add[0].n_rows = 100;
        let of_block = |row_group| BlockMetadata { row_group, ..block_metadata.clone() };
        wide.block_metadata = [(wide.add[0].id, (0..100).map(of_block).collect())].into();
        old.commit(table, wide).await.unwrap();
        old.commit(table, change(6, FileId(first.0 + 2))).await.unwrap();
        let hours = hour_blocks(&old.snapshot(table, VersionSelector::Latest).await.unwrap().files);
        let before = (probes(&*old, table, &hours).await, describe_table(&*old, table).await);

        let (to_migrate, handle) = (remote.clone(), server.runtime().handle().clone());
        let killed = tokio::spawn(async move {
            let report = |step: &str| assert!(!step.starts_with("backfill: 38 blocks"), "killed");
            Postgres::migrate(&to_migrate, &handle, &report).await
        });
        assert!(killed.await.unwrap_err().is_panic());
        // Of the 64 blocks that are copied; 0 is also a number of those that are not.
        let damage = format!(
            "UPDATE bloom_chunks SET bits = '' WHERE file_id = {0} AND row_group BETWEEN 1 AND 62; UPDATE block_columns SET record = '' WHERE file_id = {0} AND row_group BETWEEN 1 AND 62",
            first.0 + 1
        );
        server.admin().await.batch_execute(&damage).await.unwrap();
        assert_eq!(Postgres::migrate(&remote, server.runtime().handle(), &|_| {}).await.unwrap(), 2);
        let new = server.open().await;
        assert_eq!((probes(&new, table, &hours).await, describe_table(&new, table).await), before);
    });
}

/// What can be read of one table.
async fn describe_table(metastore: &dyn Metastore, table: TableId) -> String {
    let all = describe(metastore).await;
    let schema = metastore.tables().await.unwrap().into_iter().find(|schema| schema.id == table).unwrap();
    let start = all.find(&format!("{schema:?}")).unwrap();
    let rest = &all[start..];
    let end = rest[1..].find("TableSchema {").map_or(rest.len(), |at| at + 1);
    rest[..end].to_owned()
}
