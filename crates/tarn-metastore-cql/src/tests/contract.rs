//! What must hold of every backend, and what must hold of several processes on one store?

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_metastore::contract::{Script, append, commit, describe, everything, many_writers, sample_file, with_files};
use tarn_metastore::{
    BlockMetadata, BloomBuilder, Commit, ExpectedVersion, Hash, Metastore, MetastoreExt, Probe, VersionSelector,
    hour_blocks, token_hash,
};
use tarn_types::{FileId, Kind, TableId, Version};

use super::{Keyspace, RUNTIME, on_a_store};
use crate::{Cql, is_of_one_datacenter};

fn make() -> Option<(Cql, Keyspace)> {
    let keyspace = Keyspace::new()?;
    let metastore = RUNTIME.block_on(keyspace.connect());
    Some((metastore, keyspace))
}

tarn_metastore::contract::suite!(make);

#[test]
fn writers_of_four_processes_lose_and_duplicate_nothing() {
    // The long form: TARN_SOAK_SECONDS is set by `make soak`.
    let commits = if std::env::var_os("TARN_SOAK_SECONDS").is_some() { 1_000 } else { 25 };
    on_a_store(async |keyspace| {
        let mut clients: Vec<Arc<dyn Metastore>> = Vec::new();
        for _ in 0..4 {
            clients.push(Arc::new(keyspace.connect().await));
        }
        many_writers(clients, commits).await;
    });
}

#[test]
fn whoever_comes_later_reads_the_same() {
    on_a_store(async |keyspace| {
        let first = keyspace.connect().await;
        let second = keyspace.connect().await;
        for step in Script::steps() {
            step.run(&first).await;
            let here = describe(&first).await;
            assert_eq!(describe(&second).await, here, "one that follows");
            assert_eq!(describe(&keyspace.connect().await).await, here, "one that comes now");
        }
        let latest = first.version(TableId(1)).await.unwrap();
        second.expire(TableId(1), latest).await.unwrap();
        // A table that began as a copy, with dead rows that no later commit touches.
        let file = first.allocate_files(1).await.unwrap();
        assert_eq!(first.commit(TableId(9), append(9, file)).await.unwrap(), Version(10));
        second.expire(TableId(9), Version(10)).await.unwrap();
        assert_eq!(second.snapshot(TableId(9), VersionSelector::Latest).await.unwrap().dead_rows(FileId(6)), 1);
        while second.maintain(1 << 30).await.unwrap().more {}
        let here = describe(&second).await;
        for client in [&first, &keyspace.connect().await] {
            assert_eq!(describe(client).await, here, "after the log was folded into the base");
        }
    });
}

#[test]
fn ids_of_eight_processes_are_unique() {
    on_a_store(async |keyspace| {
        let mut asked = Vec::new();
        for _ in 0..8 {
            let client = keyspace.connect().await;
            asked.push(RUNTIME.spawn(async move {
                let mut ids = Vec::new();
                for n in [1, 700, 700, 3] {
                    ids.push((client.allocate_files(n).await.unwrap().0, n));
                }
                ids
            }));
        }
        let mut ranges = Vec::new();
        for ids in asked {
            ranges.extend(ids.await.unwrap());
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{ranges:?}");
    });
}

/// A block with these keys in each file, in filters of so many chunks.
async fn with_filters(metastore: &Cql, n_chunks: u32, keys: &[Vec<Hash>]) -> TableId {
    let backend: Arc<dyn Metastore> = Arc::new(metastore.clone_for_tests());
    let (table, first) = with_files(&backend, keys.len() as u64).await;
    let mut change = Commit { expected: ExpectedVersion::Latest, ..commit(1, 0) };
    for (n, keys) in (0..).zip(keys) {
        let file = FileId(first.0 + n);
        let mut builder = BloomBuilder::new(n_chunks);
        keys.iter().for_each(|key| builder.insert(*key));
        change.add.push(sample_file(file, 1));
        let bloom = Some(builder.finish());
        change.block_metadata.insert(file, vec![BlockMetadata { row_group: 0, columns: vec![], bloom }]);
    }
    metastore.commit(table, change).await.unwrap();
    table
}

#[test]
fn rows_of_every_width_answer_alike() {
    on_a_store(async |keyspace| {
        for (setting, width) in [("32", 32), ("64", 64), ("128", 128), ("256", 256), ("auto", 64)] {
            let metastore = keyspace.connect_with(&format!("?chunk_row_bytes={setting}")).await.unwrap();
            let dense: Vec<Hash> = (0..12_000).map(|n| token_hash(&format!("filler{n}"))).collect();
            let keys: Vec<Vec<Hash>> =
                (0..20).map(|n| dense.iter().copied().chain([token_hash(&format!("key{n}"))]).collect()).collect();
            let table = with_filters(&metastore, 2048, &keys).await;
            assert_eq!(metastore.row_widths(), [(width, 1)], "{setting}");
            let hours = hour_blocks(&metastore.snapshot(table, VersionSelector::Latest).await.unwrap().files);
            let blooms = metastore.block_metadata(table, everything(hours.clone())).await.unwrap().blooms;
            assert_eq!(blooms.len(), keys.len());
            for n in 0..40 {
                let hash = token_hash(&format!("key{n}"));
                let probe = Probe { hours: hours.clone(), clauses: vec![vec![vec![hash]]] };
                let probed = metastore.probe(table, probe).await.unwrap();
                let expected: BTreeSet<u32> =
                    blooms.iter().filter(|(_, bloom)| bloom.may_contain(hash)).map(|(at, _)| *at).collect();
                assert_eq!(probed.kept.iter().collect::<BTreeSet<_>>(), expected);
                assert!(n >= 20 || probed.kept.contains(n));
                assert_eq!(probed.bytes_read, u64::from(width) * 20);
            }
            // Few of many: the rows are asked for by name.
            let mut one = hours.clone();
            one[0].blocks.drain(1..);
            let probe = Probe { hours: one, clauses: vec![vec![vec![token_hash("key0")]]] };
            let probed = metastore.probe(table, probe).await.unwrap();
            assert_eq!((probed.kept.len(), probed.bytes_read), (1, u64::from(width)));
            let drop = metastore.drop_table("t").await.unwrap();
            while metastore.maintain(1 << 30).await.unwrap().more {}
            assert_eq!(drop.id, table);
        }
        for (name, left) in keyspace.count_rows(&["bloom_chunks"]).await {
            assert!(left == 0 || ["catalog", "head", "hours"].contains(&&name[..]), "{left} rows are left in {name}");
        }
        for slot in [0, 7, 1000] {
            assert_eq!(keyspace.count("bloom_chunks WHERE table_id = 1 AND hour = -1 AND slot = ", slot).await, 0);
        }
    });
}

#[test]
fn a_local_quorum_is_of_one_datacenter() {
    let replication = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let class = ("class", "org.apache.cassandra.locator.NetworkTopologyStrategy");
    assert!(is_of_one_datacenter(&replication(&[class, ("eu", "3")])));
    assert!(!is_of_one_datacenter(&replication(&[class, ("eu", "3"), ("us", "3")])));
    assert!(!is_of_one_datacenter(&replication(&[("class", "SimpleStrategy"), ("replication_factor", "3")])));
    on_a_store(async |keyspace| {
        drop(keyspace.connect().await);
        assert!(keyspace.connect_with("?consistency=local_quorum").await.is_ok());
    });
}

#[test]
fn damage_is_named() {
    on_a_store(async |keyspace| {
        let metastore = keyspace.connect().await;
        for step in Script::steps() {
            step.run(&metastore).await;
        }
        let hours = hour_blocks(&metastore.snapshot(TableId(1), VersionSelector::Latest).await.unwrap().files);
        let probe = Probe { hours: hours.clone(), clauses: vec![vec![vec![token_hash("a")]]] };
        assert!(metastore.probe(TableId(1), probe.clone()).await.is_ok());
        // By the names of their tables: what a look at them is, and what the error says of the place.
        let mut places = keyspace.damage("columns", "record").await;
        let error = metastore.block_metadata(TableId(1), everything(hours.clone())).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(error.to_string().contains("column"), "{error}");
        places.repair().await;
        let mut places = keyspace.damage("bloom_chunks", "bits").await;
        let error = metastore.block_metadata(TableId(1), everything(hours.clone())).await.unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.to_string().contains("slot"), "{error}");
        places.repair().await;
        metastore.block_metadata(TableId(1), everything(hours)).await.unwrap();
        for (table, column, said) in [
            ("commit_log", "payload", "commit_log"),
            ("schemas", "json", "schemas"),
            ("blocks", "file", "blocks"),
            ("bases", "cursor", "bases"),
        ] {
            let mut places = keyspace.damage(table, column).await;
            let error = match keyspace.connect_with("").await {
                Err(error) => error,
                Ok(metastore) => metastore.snapshot(TableId(1), VersionSelector::Latest).await.unwrap_err(),
            };
            assert!(error.kind() == Kind::Corrupt && error.to_string().contains(said), "{table}: {error}");
            places.repair().await;
        }
        assert!(keyspace.connect().await.snapshot(TableId(1), VersionSelector::Latest).await.is_ok());
        keyspace.run("DELETE FROM $.blocks USING TIMESTAMP 9 WHERE table_id = 1 AND hour = -1").await;
        let error = keyspace.connect().await.snapshot(TableId(1), VersionSelector::Latest).await.unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.to_string().contains("files are in blocks"), "{error}");
    });
}

#[test]
fn a_stale_process_keeps_what_it_cannot_test() {
    on_a_store(async |keyspace| {
        let (reader, writer) = (keyspace.connect().await, keyspace.connect().await);
        let keys = vec![vec![token_hash("key0")], vec![token_hash("key1")]];
        let table = with_filters(&reader, 1024, &keys).await;
        let hours = hour_blocks(&reader.snapshot(table, VersionSelector::Latest).await.unwrap().files);
        let ask = || Probe { hours: hours.clone(), clauses: vec![vec![vec![token_hash("key0")]]] };
        assert_eq!(reader.probe(table, ask()).await.unwrap().kept.iter().collect::<Vec<_>>(), [0]);
        let files: Vec<FileId> = hours[0].blocks.iter().map(|block| block.file).collect();
        writer.commit(table, Commit { remove: files, ..commit(2, 1) }).await.unwrap();
        writer.expire(table, Version(2)).await.unwrap();
        while writer.maintain(1 << 30).await.unwrap().more {}
        let probed = reader.probe(table, ask()).await.unwrap();
        assert_eq!((probed.kept.len(), probed.without_bloom), (2, 2), "cleared rows are no proof of absence");
    });
}

#[test]
fn a_process_that_stops_in_the_middle_leaves_nothing_that_counts() {
    on_a_store(async |keyspace| {
        let metastore = keyspace.connect().await;
        let backend: Arc<dyn Metastore> = Arc::new(metastore.clone_for_tests());
        let (table, first) = with_files(&backend, 3).await;
        metastore.commit(table, append(1, first)).await.unwrap();
        // Payload and rows of an attempt whose conditional write never came.
        metastore.write_half(table, append(2, FileId(first.0 + 1))).await;
        assert_eq!(keyspace.connect().await.version(table).await.unwrap(), Version(1));
        let before = describe(&metastore).await;
        assert_eq!(describe(&keyspace.connect().await).await, before);
        assert_eq!(metastore.commit(table, append(3, FileId(first.0 + 2))).await.unwrap(), Version(2));
        let after = describe(&metastore).await;
        assert_eq!(describe(&keyspace.connect().await).await, after, "the loser's rows are not on the chain");
        // Folded, but the head was never moved.
        metastore.fold_only(table, Version(1)).await;
        assert_eq!(describe(&keyspace.connect().await).await, after);
        let stalled = keyspace.connect().await;
        stalled.version(table).await.unwrap();
        metastore.commit(table, Commit { remove: vec![first], ..commit(4, 2) }).await.unwrap();
        metastore.expire(table, Version(3)).await.unwrap();
        assert_eq!(describe(&keyspace.connect().await).await, describe(&metastore).await);
        while metastore.maintain(1 << 30).await.unwrap().more {}
        // Another that stopped before it folded the same versions goes on: what is cleared away stays away.
        stalled.fold_only(table, Version(1)).await;
        assert_eq!(describe(&keyspace.connect().await).await, describe(&metastore).await);
        assert_eq!(keyspace.count("blocks WHERE table_id = 1 AND hour = -1 AND file_id = ", first.0).await, 0);
    });
}
