//! What happens when a request or its answer is lost on the way?

use std::sync::Arc;

use tarn_metastore::contract::proxy::{NetworkFault, Proxy, has};
use tarn_metastore::contract::{append, commit, sample_schema, with_files};
use tarn_metastore::{BlockMetadataRequest, Commit, Error, Metastore, MetastoreExt, Probe, VersionSelector};
use tarn_types::{FileId, Kind, ManualClock, TableId, Version};

use super::{Keyspace, RUNTIME, on_a_store};
use crate::Cql;
use crate::session::Statement;
use crate::tables::Statements;

/// A client that reaches the store through a proxy, and one that reaches it directly; a table with file ids for both.
struct ProxiedClients {
    proxy: Proxy,
    client: Cql,
    direct: Cql,
    table: TableId,
    first: FileId,
}

impl ProxiedClients {
    async fn to(keyspace: &Keyspace, timeout_ms: u64) -> Self {
        let proxy = Proxy::start(keyspace.node()).await.unwrap();
        let direct = keyspace.connect().await;
        let remote = keyspace.through(proxy.address(), timeout_ms);
        let client = Cql::connect(&remote, Arc::new(ManualClock::new(1_000)), RUNTIME.handle()).await.unwrap();
        let backend: Arc<dyn Metastore> = Arc::new(client.clone_for_tests());
        let (table, first) = with_files(&backend, 100).await;
        // All that a commit needs before it is sent is there.
        client.commit(table, append(1, first)).await.unwrap();
        Self { proxy, client, direct, table, first }
    }

    /// Does it to the next request that carries this conditional statement.
    async fn arm(&self, fault: NetworkFault, statement: fn(&Statements) -> &Statement) {
        let inner = &self.client.inner;
        let id = inner.store.statement_id(statement(&inner.statements)).await;
        self.proxy.arm(fault, move |seen| has(seen, &id), |seen| has(seen, b"[applied]"));
    }

    fn file(&self, n: u64) -> FileId {
        FileId(self.first.0 + n)
    }

    async fn files(&self) -> Vec<FileId> {
        let latest = self.direct.snapshot(self.table, VersionSelector::Latest).await.unwrap();
        latest.files.iter().map(|file| file.id).collect()
    }
}

#[test]
fn a_lost_answer_is_resolved() {
    on_a_store(async |keyspace| {
        let ways = ProxiedClients::to(keyspace, 10_000).await;
        let mut files = vec![ways.file(0)];
        for (n, fault) in (1..).zip([NetworkFault::CutBefore, NetworkFault::CutAfter, NetworkFault::CutAfter]) {
            ways.arm(fault, |statements| &statements.head_commit).await;
            let version = ways.client.commit(ways.table, append(1 + u128::from(n), ways.file(n))).await;
            ways.proxy.reached(n).await;
            assert_eq!(version.unwrap(), Version(n + 1), "{fault:?}");
            files.push(ways.file(n));
            assert_eq!(ways.files().await, files, "{fault:?}: once");
        }
        // A group of commits is in or not as a whole.
        ways.arm(NetworkFault::CutAfter, |statements| &statements.head_commit).await;
        let mut sent = Vec::new();
        for n in 10..30u64 {
            let (client, table, file) = (ways.client.clone_for_tests(), ways.table, ways.file(n));
            sent.push(RUNTIME.spawn(async move { client.commit(table, append(n.into(), file)).await }));
        }
        let mut versions = Vec::new();
        for answer in sent {
            versions.push(answer.await.unwrap().unwrap().0);
        }
        versions.sort_unstable();
        assert_eq!(versions, (5..25).collect::<Vec<_>>());
        assert_eq!(ways.files().await.len(), 24);
    });
}

#[test]
fn lost_answers_of_the_catalog_are_resolved() {
    on_a_store(async |keyspace| {
        let ways = ProxiedClients::to(keyspace, 10_000).await;
        for (n, fault) in (0..).zip([NetworkFault::CutBefore, NetworkFault::CutAfter]) {
            let name = format!("made{n}");
            ways.arm(fault, |statements| &statements.catalog_next).await;
            let made = ways.client.create_table(sample_schema(&name)).await.unwrap();
            ways.arm(fault, |statements| &statements.catalog_next).await;
            assert_eq!(ways.direct.tables().await.unwrap().last().unwrap(), &made, "{fault:?}");
            let dropped = ways.client.drop_table(&name).await.unwrap();
            assert_eq!(dropped, made);
            assert_eq!(ways.direct.tables().await.unwrap().len(), 1, "{fault:?}");
            ways.arm(fault, |statements| &statements.catalog_files).await;
            let (some, others) = (ways.client.allocate_files(5_000).await, ways.direct.allocate_files(5_000).await);
            let (some, others) = (some.unwrap().0, others.unwrap().0);
            assert!(some.abs_diff(others) >= 5_000, "{fault:?}");
            ways.client.commit(ways.table, append(50 + n, ways.file(50 + n as u64))).await.unwrap();
            ways.arm(fault, |statements| &statements.head_oldest).await;
            let latest = ways.direct.version(ways.table).await.unwrap();
            ways.client.expire(ways.table, latest).await.unwrap();
            assert_eq!(
                ways.direct.snapshot(ways.table, VersionSelector::Oldest).await.unwrap().version,
                latest,
                "{fault:?}"
            );
        }
        ways.proxy.reached(8).await;
    });
}

#[test]
fn timeout_after_success() {
    on_a_store(async |keyspace| {
        let ways = ProxiedClients::to(keyspace, 2_000).await;
        ways.arm(NetworkFault::Swallow, |statements| &statements.head_commit).await;
        let change = append(2, ways.file(1));
        let answer = ways.client.commit(ways.table, change.clone()).await;
        ways.proxy.reached(1).await;
        match answer {
            Ok(version) => assert_eq!(version, Version(2)),
            // It is in, and nobody here can know.
            Err(error) => assert_eq!(error.kind(), Kind::Indeterminate, "{error}"),
        }
        assert_eq!(ways.files().await, [ways.file(0), ways.file(1)]);
        ways.proxy.refuse();
        ways.proxy.accept();
        let again = until_available(|| ways.client.commit(ways.table, change.clone())).await;
        assert_eq!(again.unwrap(), Version(2), "its id is in");
        assert_eq!(ways.files().await, [ways.file(0), ways.file(1)]);
    });
}

/// Asks until there is an answer that does not depend on the network.
async fn until_available<T, F: Future<Output = tarn_metastore::Result<T>>>(
    ask: impl Fn() -> F,
) -> tarn_metastore::Result<T> {
    let asking = async {
        loop {
            match ask().await {
                Err(error) if [Kind::Unavailable, Kind::Indeterminate].contains(&error.kind()) => {
                    tokio::task::yield_now().await;
                }
                other => return other,
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), asking).await.expect("it comes back")
}

#[test]
fn concurrent_commit_between_check_and_cas() {
    on_a_store(async |keyspace| {
        let ways = ProxiedClients::to(keyspace, 10_000).await;
        let appended = append(2, ways.file(1));
        let exact = Commit { add: append(3, ways.file(2)).add, ..commit(3, 3) };
        for (n, change) in [(1, appended), (2, exact)] {
            ways.arm(NetworkFault::Hold, |statements| &statements.head_commit).await;
            let (client, table) = (ways.client.clone_for_tests(), ways.table);
            let held = RUNTIME.spawn(async move { client.commit(table, change).await });
            ways.proxy.reached(n).await;
            let other = append(100 + u128::from(n), ways.file(10 + n));
            let version = ways.direct.commit(ways.table, other).await.unwrap();
            ways.proxy.release();
            let answer = held.await.unwrap();
            if n == 1 {
                assert_eq!((version, answer.unwrap()), (Version(2), Version(3)), "rebased");
            } else {
                let error = answer.unwrap_err();
                assert!(matches!(error, Error::Conflict { .. }), "{error}");
            }
        }
        assert_eq!(ways.files().await.len(), 4);
    });
}

#[test]
fn a_backend_that_is_away_is_unavailable_with_address_and_setting() {
    on_a_store(async |keyspace| {
        let ways = ProxiedClients::to(keyspace, 2_000).await;
        ways.proxy.refuse();
        let address = ways.proxy.address().to_string();
        let table = ways.table;
        let hours =
            tarn_metastore::hour_blocks(&ways.direct.snapshot(table, VersionSelector::Latest).await.unwrap().files);
        let client = &ways.client;
        let probe = Probe { hours: hours.clone(), clauses: vec![] };
        let wanted = BlockMetadataRequest { hours, stats: true, ..BlockMetadataRequest::default() };
        let errors = [
            client.tables().await.err(),
            client.snapshot(table, VersionSelector::Latest).await.err(),
            client.commits(table, Version(0)).await.err(),
            client.commit(table, append(2, ways.file(1))).await.err(),
            client.create_table(sample_schema("other")).await.err(),
            client.allocate_files(1_000_000).await.err(),
            client.probe(table, probe).await.err(),
            client.block_metadata(table, wanted).await.err(),
            client.expire(table, Version(1)).await.err(),
            client.maintain(1).await.err(),
            Cql::connect(&keyspace.through(ways.proxy.address(), 500), Arc::new(ManualClock::new(0)), RUNTIME.handle())
                .await
                .err(),
        ];
        for (n, error) in errors.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("call {n} was answered"));
            let text = error.to_string();
            assert!(matches!(error, Error::Unavailable { setting: "metastore", .. }), "call {n}: {error:?}");
            assert!(text.contains(&address) && text.contains("`metastore`"), "call {n}: {text}");
        }
        assert_eq!(ways.files().await, [ways.file(0)]);

        ways.proxy.accept();
        let version = until_available(|| client.commit(table, append(2, ways.file(1)))).await.unwrap();
        assert_eq!(version, Version(2), "and comes back");
        assert_eq!(client.snapshot(table, VersionSelector::Latest).await.unwrap().files.len(), 2);
    });
}
