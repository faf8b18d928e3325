//! What if the network loses requests and answers, or the server is away?

use std::sync::Arc;

use tarn_metastore::contract::proxy::{NetworkFault, Proxy, has};
use tarn_metastore::contract::{append, commit, describe, sample_block_metadata, sample_schema, with_files};
use tarn_metastore::{Commit, Error, ExpectedVersion, Metastore, MetastoreExt, VersionSelector};
use tarn_types::{FileId, Kind, Version};

use crate::server::TestServer;

/// Does this to the next transaction that ends.
fn arm(proxy: &Proxy, fault: NetworkFault) {
    proxy.arm(fault, |seen| has(seen, b"COMMIT\0"), |seen| has(seen, b"COMMIT\0"));
}

#[test]
fn a_lost_answer_is_resolved() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let (proxy, remote) = server.proxied().await;
        let metastore: Arc<dyn Metastore> = Arc::new(server.connect(&remote).await.unwrap());
        let (table, first) = with_files(&metastore, 9).await;
        let mut n_faults = 0;
        let mut version = 0;
        for fault in [NetworkFault::CutBefore, NetworkFault::CutAfter] {
            for expected in [ExpectedVersion::Latest, ExpectedVersion::At(Version(version + 1))] {
                arm(&proxy, fault);
                let change = append(u128::from(version) + 1, FileId(first.0 + version));
                version += 1;
                let answer = metastore.commit(table, Commit { expected: expected.clone(), ..change }).await;
                assert_eq!(answer.unwrap(), Version(version), "{fault:?} {expected:?}");
                n_faults += 1;
                proxy.reached(n_faults).await;
            }
            arm(&proxy, fault);
            let name = format!("{fault:?}").to_lowercase();
            let made = metastore.create_table(sample_schema(&name)).await.unwrap();
            n_faults += 1;
            proxy.reached(n_faults).await;
            assert_eq!(metastore.tables().await.unwrap().last(), Some(&made));
            assert!(matches!(metastore.create_table(sample_schema(&name)).await, Err(Error::TableExists { .. })));
            arm(&proxy, fault);
            assert_eq!(metastore.drop_table(&name).await.unwrap(), made);
            n_faults += 1;
            proxy.reached(n_faults).await;

            let latest = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
            let remove = latest.files.iter().map(|file| file.id).collect::<Vec<_>>();
            let removing = Commit { remove: remove.clone(), ..commit(100 + u128::from(version), version) };
            version += 1;
            assert_eq!(metastore.commit(table, removing).await.unwrap(), Version(version));
            arm(&proxy, fault);
            let gone = metastore.expire(table, Version(version)).await.unwrap();
            n_faults += 1;
            proxy.reached(n_faults).await;
            assert_eq!(gone.iter().map(|file| file.id).collect::<Vec<_>>(), remove, "{fault:?}");
        }
        assert_eq!(metastore.version(table).await.unwrap(), Version(version));
        let direct = server.open().await;
        assert_eq!(describe(&direct).await, describe(&*metastore).await);
    });
}

#[test]
fn timeout_after_success() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let (proxy, mut remote) = server.proxied().await;
        remote.timeout_ms = 500;
        let metastore: Arc<dyn Metastore> = Arc::new(server.connect(&remote).await.unwrap());
        let (table, file) = with_files(&metastore, 1).await;
        arm(&proxy, NetworkFault::Swallow);
        assert_eq!(metastore.commit(table, append(1, file)).await.unwrap(), Version(1));
        proxy.reached(1).await;
        assert_eq!(metastore.commits(table, Version(0)).await.unwrap().len(), 1);
    });
}

#[test]
fn a_commit_that_nobody_can_ask_about_is_indeterminate_and_found_later() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let (proxy, mut remote) = server.proxied().await;
        remote.timeout_ms = 500;
        let metastore: Arc<dyn Metastore> = Arc::new(server.connect(&remote).await.unwrap());
        let (table, file) = with_files(&metastore, 1).await;
        arm(&proxy, NetworkFault::Hold);
        let (writing, change) = (metastore.clone(), append(1, file));
        let writing = tokio::spawn(async move { writing.commit(table, change).await });
        proxy.reached(1).await;
        proxy.refuse();
        let error = writing.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::Indeterminate, "{error}");
        assert!(error.to_string().contains(&proxy.address().to_string()), "{error}");
        proxy.accept();
        assert_eq!(metastore.commit(table, append(1, file)).await.unwrap(), Version(1));
        assert_eq!(metastore.version(table).await.unwrap(), Version(1));
    });
}

/// What else happens before a commit whose answer was lost can be looked for.
#[derive(Debug, Clone, Copy)]
enum ConcurrentEvent {
    Expired,
    Dropped,
    Newer,
    Damaged,
}

#[test]
fn a_commit_that_cannot_be_found_any_more_is_indeterminate() {
    for meanwhile in
        [ConcurrentEvent::Expired, ConcurrentEvent::Dropped, ConcurrentEvent::Newer, ConcurrentEvent::Damaged]
    {
        let Some(server) = TestServer::find() else { return };
        server.run(async {
            let (proxy, mut remote) = server.proxied().await;
            remote.url.push_str(&format!("&application_name={}", server.schema()));
            let metastore: Arc<dyn Metastore> = Arc::new(server.connect(&remote).await.unwrap());
            let other: Arc<dyn Metastore> = Arc::new(server.open().await);
            let admin = server.admin().await;
            let (table, first) = with_files(&metastore, 2).await;
            metastore.commit(table, append(1, first)).await.unwrap();
            let second = append(2, FileId(first.0 + 1));
            arm(&proxy, NetworkFault::Swallow);
            let (writing, change) = (metastore.clone(), second.clone());
            let writing = tokio::spawn(async move { writing.commit(table, change).await });
            proxy.reached(1).await;
            assert_eq!(other.version(table).await.unwrap(), Version(2));
            match meanwhile {
                ConcurrentEvent::Expired => {
                    other.commit(table, commit(3, 2)).await.unwrap();
                    other.expire(table, Version(2)).await.unwrap();
                }
                ConcurrentEvent::Dropped => drop(other.drop_table("t").await.unwrap()),
                ConcurrentEvent::Newer => admin.batch_execute("UPDATE meta SET schema_version = 3").await.unwrap(),
                ConcurrentEvent::Damaged => admin.batch_execute("UPDATE commits SET payload = ''").await.unwrap(),
            }
            let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1";
            assert!(!admin.query(end, &[&server.schema()]).await.unwrap().is_empty());
            let error = writing.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), Kind::Indeterminate, "{meanwhile:?}: {error}");
            if matches!(meanwhile, ConcurrentEvent::Expired) {
                // Who asks anew gets an answer about now.
                assert_eq!(metastore.commit(table, second).await.unwrap_err().kind(), Kind::Invalid);
                assert_eq!(metastore.version(table).await.unwrap(), Version(3));
            }
        });
    }
}

#[test]
fn a_server_that_takes_no_writes_is_not_asked() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let mut remote = server.remote().await;
        server.connect(&remote).await.unwrap();
        // As a standby says.
        remote.url.push_str("&target_session_attrs=any&options=-c%20default_transaction_read_only%3Don");
        let error = server.connect(&remote).await.err().unwrap();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    });
}

#[test]
fn concurrent_commit_between_check_and_write() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let (proxy, remote) = server.proxied().await;
        let slow: Arc<dyn Metastore> = Arc::new(server.connect(&remote).await.unwrap());
        let quick: Arc<dyn Metastore> = Arc::new(server.open().await);
        let admin = server.admin().await;
        let (table, first) = with_files(&slow, 2).await;
        for (n, expected) in [(0, ExpectedVersion::Latest), (1, ExpectedVersion::At(Version(2)))] {
            let change = |id, file| Commit { expected: expected.clone(), ..append(id, FileId(first.0 + file)) };
            let (a, b) = match &expected {
                ExpectedVersion::At(version) => (commit(3, version.0), commit(4, version.0)),
                _ => (change(1, 0), change(2, 1)),
            };
            arm(&proxy, NetworkFault::Hold);
            let (before, after) = (slow.clone(), quick.clone());
            let before = tokio::spawn(async move { before.commit(table, a).await });
            proxy.reached(n + 1).await;
            let after = tokio::spawn(async move { after.commit(table, b).await });
            // It waits for the row that the first one holds, and has seen nothing of what comes.
            let waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE' AND pid <> pg_backend_pid()
                AND pid IN (SELECT pid FROM pg_locks WHERE relation = to_regclass($1))";
            let tables = format!("{}.tables", server.schema());
            while admin.query(waiting, &[&tables]).await.unwrap().is_empty() {
                assert!(!after.is_finished());
                tokio::task::yield_now().await;
            }
            proxy.release();
            assert_eq!(before.await.unwrap().unwrap(), Version(n * 2 + 1));
            match (expected, after.await.unwrap()) {
                (ExpectedVersion::Latest, answer) => assert_eq!(answer.unwrap(), Version(2)),
                (_, answer) => assert_eq!(answer.unwrap_err().kind(), Kind::Conflict),
            }
        }
    });
}

#[test]
fn a_backend_that_is_away_is_unavailable_with_address_and_setting_and_comes_back() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let (proxy, remote) = server.proxied().await;
        let metastore: Arc<dyn Metastore> = Arc::new(server.connect(&remote).await.unwrap());
        let (table, first) = with_files(&metastore, 2).await;
        metastore.commit(table, append(1, first)).await.unwrap();
        proxy.refuse();
        let second = FileId(first.0 + 1);
        let errors = [
            metastore.tables().await.unwrap_err(),
            metastore.snapshot(table, VersionSelector::Latest).await.unwrap_err(),
            metastore.commit(table, append(2, second)).await.unwrap_err(),
            metastore.allocate_files(5_000).await.unwrap_err(),
            metastore.expire(table, Version(1)).await.unwrap_err(),
            metastore.maintain(1 << 20).await.unwrap_err(),
            metastore.create_table(sample_schema("u")).await.unwrap_err(),
            server.connect(&remote).await.err().unwrap(),
        ];
        for error in errors {
            let text = error.to_string();
            assert_eq!(error.kind(), Kind::Unavailable, "{text}");
            assert!(text.contains(&proxy.address().to_string()) && text.contains("`metastore`"), "{text}");
        }
        proxy.accept();
        assert_eq!(metastore.version(table).await.unwrap(), Version(1));
        assert_eq!(metastore.commit(table, append(2, second)).await.unwrap(), Version(2));
    });
}

#[test]
fn a_server_that_restarts_is_not_noticed_by_the_next_question() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let mut remote = server.remote().await;
        remote.url.push_str(&format!("&application_name={}", server.schema()));
        let metastore: Arc<dyn Metastore> = Arc::new(server.connect(&remote).await.unwrap());
        let (table, first) = with_files(&metastore, 3).await;
        let admin = server.admin().await;
        for n in 0..3 {
            metastore.commit(table, append(n + 1, FileId(first.0 + n as u64))).await.unwrap();
            let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1";
            assert!(!admin.query(end, &[&server.schema()]).await.unwrap().is_empty());
            assert_eq!(metastore.version(table).await.unwrap(), Version(n as u64 + 1));
        }
    });
}

#[test]
fn maintenance_that_dies_changes_no_answer() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let (proxy, remote) = server.proxied().await;
        let metastore: Arc<dyn Metastore> = Arc::new(server.connect(&remote).await.unwrap());
        let (table, first) = with_files(&metastore, 70).await;
        for n in 0..70u64 {
            let file = FileId(first.0 + n);
            let block_metadata = [(file, sample_block_metadata(&["connection", "refused"]))].into();
            metastore.commit(table, Commit { block_metadata, ..append(u128::from(n) + 1, file) }).await.unwrap();
        }
        let before = describe(&*metastore).await;
        arm(&proxy, NetworkFault::CutBefore);
        assert_eq!(metastore.maintain(1 << 30).await.unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(describe(&*metastore).await, before);
        // The server may not have noticed yet that the one before is gone, and its lock with it.
        let mut made = 0;
        while made == 0 {
            made = metastore.maintain(1 << 30).await.unwrap().packs_made;
        }
        assert_eq!(metastore.stats().await.unwrap().loose_blocks, 0);
        assert_eq!(describe(&*metastore).await, before);
    });
}
