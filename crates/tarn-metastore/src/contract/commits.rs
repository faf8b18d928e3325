//! What must hold of commits and the versions that they make?

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringBitmap;
use uuid::Uuid;

use tarn_types::{FileId, Kind, SeqNo, TableId, TabletId, Version};

use super::samples::{Backend, append, commit, cursor, sample_file, sample_schema, with_files};
use super::script::describe;
use crate::{Commit, CommitKind, Error, ExpectedVersion, File, MetastoreExt, TableVersion, VersionSelector};

/// Files, dead rows and cursor of a commit are in the version that it makes.
pub async fn commits_make_versions(metastore: Backend) {
    let (table, first) = with_files(&metastore, 2).await;
    let (a, b) = (first, FileId(first.0 + 1));
    let dead: BTreeMap<_, _> = [(a, RoaringBitmap::from([1, 2]))].into();
    let delivery = Commit {
        add: vec![sample_file(b, 7), sample_file(a, 5)],
        deletion_vectors: dead.clone(),
        cursor: cursor(9),
        kind: CommitKind::Delivery,
        ..commit(1, 0)
    };
    assert_eq!(metastore.commit(table, delivery).await.unwrap(), Version(1));
    let version = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
    assert_eq!(version.files.iter().map(|file| file.id).collect::<Vec<_>>(), [a, b]);
    assert_eq!((version.live_rows(), version.dead_rows(a), version.size_bytes()), (10, 2, 120));
    assert_eq!(version.file(b).unwrap().created_version, Version(1));
    assert_eq!((version.cursor.get(TabletId(1)), version.committed_ms), (SeqNo(9), 2_000));

    let rewrite = Commit { remove: vec![a], at_ms: 5, ..commit(2, 1) };
    assert_eq!(metastore.commit(table, rewrite).await.unwrap(), Version(2));
    let version = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
    assert_eq!((version.files.len(), version.deletion_vectors.len(), version.live_rows()), (1, 0, 7));
    assert_eq!(version.cursor.get(TabletId(1)), SeqNo(9), "no cursor in the commit leaves the cursor");
    assert_eq!(version.committed_ms, 2_000, "time does not run backwards from version to version");

    let commits = metastore.commits(table, Version(0)).await.unwrap();
    assert_eq!(commits.iter().map(|commit| commit.version).collect::<Vec<_>>(), [Version(1), Version(2)]);
    assert_eq!(commits[0].id, Uuid::from_u128(1));
    assert_eq!(*commits[0].deletion_vectors[&a], dead[&a]);
    assert_eq!((&commits[1].removed[..], commits[1].kind), (&[a][..], CommitKind::Compaction));
    assert_eq!(metastore.commits(table, Version(2)).await.unwrap().len(), 0);
    assert_eq!(metastore.commits(table, Version(3)).await.unwrap_err().kind(), Kind::NotFound);
    let stats = metastore.stats().await.unwrap();
    assert_eq!((stats.files, stats.blocks, stats.commits), (1, 1, 2));
}

/// A commit that was made for another version is a conflict, and nothing of it is there.
pub async fn the_expected_version_must_be_the_latest(metastore: Backend) {
    let (table, _) = with_files(&metastore, 1).await;
    metastore.commit(table, commit(1, 0)).await.unwrap();
    for wrong in [0, 2] {
        let error = metastore.commit(table, commit(2, wrong)).await.unwrap_err();
        assert!(matches!(error, Error::Conflict { current: Version(1), .. }), "{error}");
    }
    assert_eq!(metastore.version(table).await.unwrap(), Version(1));
    assert_eq!(metastore.commit(TableId(99), commit(3, 0)).await.unwrap_err().kind(), Kind::NotFound);
}

/// A commit that is sent again has its first answer, also behind later ones.
pub async fn a_lost_answer_is_found_by_id(metastore: Backend) {
    let (table, file) = with_files(&metastore, 1).await;
    let lost = Commit { add: vec![sample_file(file, 3)], ..commit(7, 0) };
    metastore.commit(table, lost.clone()).await.unwrap();
    assert_eq!(metastore.commit(table, lost.clone()).await.unwrap(), Version(1));
    metastore.commit(table, commit(8, 1)).await.unwrap();
    assert_eq!(metastore.commit(table, lost).await.unwrap(), Version(1), "also behind a later commit");
    assert!(metastore.commits(table, Version(0)).await.unwrap().iter().any(|info| info.id == Uuid::from_u128(7)));
    let version = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
    assert_eq!((version.version, version.files.len()), (Version(2), 1));
}

/// The same commit from sixteen at once goes in once.
pub async fn one_id_is_one_commit_however_many_send_it(metastore: Backend) {
    let (table, file) = with_files(&metastore, 1).await;
    let same = Commit { add: vec![sample_file(file, 3)], ..commit(7, 0) };
    let sent: Vec<_> = (0..16)
        .map(|_| {
            let (metastore, same) = (metastore.clone(), same.clone());
            tokio::spawn(async move { metastore.commit(table, same).await })
        })
        .collect();
    for answer in sent {
        assert_eq!(answer.await.unwrap().unwrap(), Version(1));
    }
    assert_eq!(metastore.version(table).await.unwrap(), Version(1));
}

/// Every commit of 32 writers who try again at a conflict is in once, in an order that all see.
pub async fn writers_side_by_side_lose_and_duplicate_nothing(metastore: Backend) {
    const WRITERS: u64 = 32;
    const COMMITS: u64 = 4;
    let table = metastore.create_table(sample_schema("t")).await.unwrap().id;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let metastore = metastore.clone();
            tokio::spawn(async move {
                let mut mine = vec![];
                for n in 0..COMMITS {
                    let file = metastore.allocate_files(1).await.unwrap();
                    let id = u128::from(writer * COMMITS + n + 1);
                    loop {
                        let expected = metastore.version(table).await.unwrap();
                        let change = Commit { add: vec![sample_file(file, 1)], ..commit(id, expected.0) };
                        match metastore.commit(table, change).await {
                            Ok(version) => break mine.push((version, file)),
                            Err(error) => assert_eq!(error.kind(), Kind::Conflict),
                        }
                    }
                }
                mine
            })
        })
        .collect();
    let mut answered = vec![];
    for writer in writers {
        answered.extend(writer.await.unwrap());
    }
    answered.sort();
    let versions: Vec<_> = answered.iter().map(|(version, _)| version.0).collect();
    assert_eq!(versions, (1..=WRITERS * COMMITS).collect::<Vec<_>>(), "every version has one writer");
    let commits = metastore.commits(table, Version(0)).await.unwrap();
    let logged: Vec<_> = commits.iter().map(|commit| (commit.version, commit.added[0].id)).collect();
    assert_eq!(logged, answered);
    let mut files: Vec<_> = answered.iter().map(|(_, file)| *file).collect();
    files.sort();
    let version = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
    assert_eq!(version.files.iter().map(|file| file.id).collect::<Vec<_>>(), files);
}

/// What does not fit the table's files, rows or cursor is refused, and everything is as before.
pub async fn unlawful_commits_change_nothing(metastore: Backend) {
    let (table, first) = with_files(&metastore, 3).await;
    let (a, b, never) = (first, FileId(first.0 + 1), FileId(first.0 + 1_000_000));
    let dead = |file, rows: &[u32]| [(file, rows.iter().copied().collect::<RoaringBitmap>())].into();
    let good =
        Commit { add: vec![sample_file(a, 3)], cursor: cursor(5), deletion_vectors: dead(a, &[1]), ..commit(1, 0) };
    metastore.commit(table, good).await.unwrap();
    let before = describe(&*metastore).await;
    let unlawful = [
        ("twice", Commit { add: vec![sample_file(b, 1), sample_file(b, 1)], ..commit(2, 1) }),
        ("there already", Commit { add: vec![sample_file(a, 3)], ..commit(2, 1) }),
        ("never allocated", Commit { add: vec![sample_file(never, 3)], ..commit(2, 1) }),
        ("blocks", Commit { add: vec![File { n_rows: 4, ..sample_file(b, 3) }], ..commit(2, 1) }),
        ("removes a stranger", Commit { remove: vec![b], ..commit(2, 1) }),
        ("removes twice", Commit { remove: vec![a, a], ..commit(2, 1) }),
        ("dead in a stranger", Commit { deletion_vectors: dead(b, &[0]), ..commit(2, 1) }),
        ("dead in a removed", Commit { remove: vec![a], deletion_vectors: dead(a, &[0, 1]), ..commit(2, 1) }),
        ("dead beyond the end", Commit { deletion_vectors: dead(a, &[1, 3]), ..commit(2, 1) }),
        ("back to life", Commit { deletion_vectors: dead(a, &[0]), ..commit(2, 1) }),
        ("cursor back", Commit { cursor: cursor(4), ..commit(2, 1) }),
    ];
    for (name, commit) in unlawful {
        let error = metastore.commit(table, commit).await.expect_err(name);
        assert_eq!(error.kind(), Kind::Invalid, "{name}: {error}");
    }
    assert_eq!(describe(&*metastore).await, before);
}

/// A version that was read once is read again the same, by its number and by its time.
pub async fn old_versions_are_as_they_were(metastore: Backend) {
    let (table, first) = with_files(&metastore, 20).await;
    let mut seen = vec![metastore.snapshot(table, VersionSelector::Latest).await.unwrap()];
    for n in 0..20 {
        let file = FileId(first.0 + n);
        let remove = if n % 3 == 2 { vec![FileId(first.0 + n - 1)] } else { vec![] };
        let deletion_vectors = if n % 5 == 0 { [(file, RoaringBitmap::from([1]))].into() } else { BTreeMap::new() };
        let change =
            Commit { add: vec![sample_file(file, 3)], remove, deletion_vectors, ..commit(1 + u128::from(n), n) };
        metastore.commit(table, Commit { at_ms: 10_000 + 10 * n as i64, ..change }).await.unwrap();
        seen.push(metastore.snapshot(table, VersionSelector::Latest).await.unwrap());
    }
    for version in seen.iter().chain(seen.iter().rev()) {
        assert_eq!(*metastore.snapshot(table, VersionSelector::Version(version.version)).await.unwrap(), **version);
        assert_eq!(*metastore.snapshot(table, VersionSelector::Time(version.committed_ms)).await.unwrap(), **version);
        assert_eq!(
            *metastore.snapshot(table, VersionSelector::Time(version.committed_ms + 9)).await.unwrap(),
            **version
        );
    }
    assert_eq!(metastore.snapshot(table, VersionSelector::Oldest).await.unwrap().version, Version(0));
    assert_eq!(metastore.snapshot(table, VersionSelector::Time(999)).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(
        metastore.snapshot(table, VersionSelector::Version(Version(21))).await.unwrap_err().kind(),
        Kind::NotFound
    );
}

/// Versions that are forgotten are not found, and each file that no version needs is named once.
pub async fn expiring_forgets_and_names_the_files(metastore: Backend) {
    let (table, a) = with_files(&metastore, 3).await;
    let (b, c) = (FileId(a.0 + 1), FileId(a.0 + 2));
    metastore.commit(table, Commit { add: vec![sample_file(a, 1)], ..commit(1, 0) }).await.unwrap();
    metastore.commit(table, Commit { add: vec![sample_file(b, 1)], remove: vec![a], ..commit(2, 1) }).await.unwrap();
    metastore.commit(table, Commit { add: vec![sample_file(c, 1)], remove: vec![b], ..commit(3, 2) }).await.unwrap();
    let latest = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
    assert!(metastore.expire(table, Version(0)).await.unwrap().is_empty());
    let gone = metastore.expire(table, Version(2)).await.unwrap();
    assert_eq!(gone.iter().map(|file| file.id).collect::<Vec<_>>(), [a]);
    assert!(metastore.expire(table, Version(2)).await.unwrap().is_empty(), "named once");
    assert_eq!(metastore.snapshot(table, VersionSelector::Oldest).await.unwrap().version, Version(2));
    assert_eq!(
        metastore.snapshot(table, VersionSelector::Version(Version(1))).await.unwrap_err().kind(),
        Kind::NotFound
    );
    assert_eq!(metastore.snapshot(table, VersionSelector::Time(2_000)).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(metastore.commits(table, Version(1)).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(metastore.commits(table, Version(2)).await.unwrap().len(), 1);
    let gone = metastore.expire(table, Version(3)).await.unwrap();
    assert_eq!(gone.iter().map(|file| file.id).collect::<Vec<_>>(), [b]);
    assert_eq!(*metastore.snapshot(table, VersionSelector::Latest).await.unwrap(), *latest);
    assert_eq!(metastore.expire(table, Version(4)).await.unwrap_err().kind(), Kind::Invalid);
    metastore.commit(table, Commit { remove: vec![c], ..commit(4, 3) }).await.unwrap();
    assert_eq!(metastore.expire(table, Version(4)).await.unwrap()[0].id, c);
}

/// Commits that only add files follow on whatever is latest.
pub async fn appends_are_rebased(metastore: Backend) {
    let (table, first) = with_files(&metastore, 3).await;
    for n in 0..3 {
        let version = metastore.commit(table, append(n + 1, FileId(first.0 + n as u64))).await.unwrap();
        assert_eq!(version, Version(n as u64 + 1));
    }
    assert_eq!(
        metastore.commit(table, append(2, FileId(first.0 + 1))).await.unwrap(),
        Version(2),
        "once, however often"
    );
    let latest = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
    assert_eq!((latest.version, latest.files.len()), (Version(3), 3));
    assert_eq!(latest.files[2].created_version, Version(3));
    let elsewhere = metastore.commit(TableId(99), append(9, first)).await.unwrap_err();
    assert_eq!(elsewhere.kind(), Kind::NotFound);
}

/// A commit that does more than add files is not lawful without the version that it was made for.
pub async fn only_appends_are(metastore: Backend) {
    let (table, first) = with_files(&metastore, 2).await;
    let second = FileId(first.0 + 1);
    metastore.commit(table, append(1, first)).await.unwrap();
    let dead = [(first, RoaringBitmap::from([0]))].into();
    for (name, change) in [
        ("removes", Commit { remove: vec![first], ..append(2, second) }),
        ("buries", Commit { deletion_vectors: dead, ..append(2, second) }),
        ("moves the cursor", Commit { cursor: cursor(1), ..append(2, second) }),
    ] {
        let error = metastore.commit(table, change.clone()).await.expect_err(name);
        assert_eq!(error.kind(), Kind::Invalid, "{name}: {error}");
        let there = Commit { expected: ExpectedVersion::At(Version(0)), ..change };
        assert_eq!(metastore.commit(table, there).await.unwrap_err().kind(), Kind::Conflict, "{name}");
    }
    assert_eq!(metastore.version(table).await.unwrap(), Version(1));
}

/// Of two commits made for one version both go in where files, rows and tablets are disjoint; else the second is a
/// conflict.
pub async fn disjoint_commits_are_rebased(metastore: Backend) {
    let (table, first) = with_files(&metastore, 7).await;
    let file = |n: u64| FileId(first.0 + n);
    let positions =
        |of: [(u32, u64); 2]| Some(of.map(|(tablet, seqno)| (TabletId(tablet), SeqNo(seqno))).into_iter().collect());
    let files = Commit {
        add: vec![sample_file(file(0), 5), sample_file(file(1), 5), sample_file(file(2), 5)],
        cursor: positions([(1, 1), (2, 1)]),
        kind: CommitKind::Delivery,
        ..commit(1, 0)
    };
    metastore.commit(table, files).await.unwrap();
    // What all of them read.
    let base = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
    let of_base =
        |id| Commit { expected: ExpectedVersion::Disjoint(base.clone()), kind: CommitKind::Delivery, ..commit(id, 0) };
    let buries = |rows: [u32; 1]| [(file(0), RoaringBitmap::from(rows))].into();
    let one = Commit {
        add: vec![sample_file(file(3), 2)],
        deletion_vectors: buries([1]),
        cursor: positions([(1, 8), (2, 1)]),
        ..of_base(2)
    };
    assert_eq!(metastore.commit(table, one.clone()).await.unwrap(), Version(2));
    let other = Commit {
        add: vec![sample_file(file(4), 2)],
        deletion_vectors: buries([3]),
        cursor: positions([(1, 1), (2, 9)]),
        ..of_base(3)
    };
    assert_eq!(metastore.commit(table, other.clone()).await.unwrap(), Version(3));
    let merged = Commit {
        add: vec![sample_file(file(5), 10)],
        remove: vec![file(1), file(2)],
        kind: CommitKind::Compaction,
        ..of_base(4)
    };
    assert_eq!(metastore.commit(table, merged).await.unwrap(), Version(4));
    let latest = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
    assert_eq!(latest.files.iter().map(|file| file.id).collect::<Vec<_>>(), [0, 3, 4, 5].map(file));
    assert_eq!(latest.deletion_vectors[&file(0)].iter().collect::<Vec<_>>(), [1, 3]);
    assert_eq!((latest.cursor.get(TabletId(1)), latest.cursor.get(TabletId(2))), (SeqNo(8), SeqNo(9)));
    // Sent again it is what it was, and the versions tell what came in.
    assert_eq!(metastore.commit(table, other).await.unwrap(), Version(3));
    let commits = metastore.commits(table, Version(2)).await.unwrap();
    assert_eq!(commits[0].cursor, Some(latest.cursor.clone()));
    assert_eq!(commits[0].deletion_vectors[&file(0)].len(), 2);

    let added = |id| Commit { add: vec![sample_file(file(6), 1)], ..of_base(id) };
    for (name, change) in [
        ("a row that is dead by now", Commit { deletion_vectors: buries([1]), ..added(5) }),
        ("a file that is gone", Commit { deletion_vectors: [(file(1), [0].into())].into(), ..added(5) }),
        ("removes what is gone", Commit { remove: vec![file(2)], kind: CommitKind::Compaction, ..added(5) }),
        (
            "removes a file of which rows died",
            Commit { remove: vec![file(0)], kind: CommitKind::Compaction, ..added(5) },
        ),
        ("a tablet that others moved", Commit { cursor: positions([(1, 1), (2, 7)]), ..added(5) }),
    ] {
        let refused = metastore.commit(table, change).await.expect_err(name);
        assert!(
            matches!(refused, Error::Conflict { expected: Version(1), current: Version(4), .. }),
            "{name}: {refused}"
        );
    }
    let attached = Commit { kind: CommitKind::Attach, ..added(5) };
    assert_eq!(metastore.commit(table, attached).await.unwrap_err().kind(), Kind::Invalid);
    let back = Commit { cursor: positions([(1, 0), (2, 1)]), ..added(5) };
    assert!(matches!(metastore.commit(table, back).await, Err(Error::CursorBehind { .. })));
    assert_eq!(metastore.version(table).await.unwrap(), Version(4));
}

/// 32 writers on one client, each with its share of a thousand appends.
pub async fn thirty_two_writers_a_thousand_commits(metastore: Backend) {
    many_writers(vec![metastore], 1_000).await;
}

/// 32 writers, spread over clients of one store, each with so many commits.
pub async fn many_writers(clients: Vec<Backend>, commits: u64) {
    const WRITERS: u64 = 32;
    let table = clients[0].create_table(sample_schema("t")).await.unwrap().id;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let metastore = clients[writer as usize % clients.len()].clone();
            tokio::spawn(async move {
                let first = metastore.allocate_files(commits).await.unwrap();
                let mut mine = vec![];
                for n in 0..commits {
                    let file = FileId(first.0 + n);
                    let id = u128::from(writer * commits + n + 1);
                    mine.push((metastore.commit(table, append(id, file)).await.unwrap(), file));
                }
                assert!(mine.is_sorted(), "one writer's commits come in its order");
                mine
            })
        })
        .collect();
    let mut answered = vec![];
    for writer in writers {
        answered.extend(writer.await.unwrap());
    }
    answered.sort();
    let versions = answered.iter().map(|(version, _)| version.0);
    assert!(versions.eq(1..=WRITERS * commits), "every version has one writer");
    for client in &clients {
        let logged = client.commits(table, Version(0)).await.unwrap();
        assert!(logged.iter().map(|commit| (commit.version, commit.added[0].id)).eq(answered.iter().copied()));
        let files: BTreeSet<_> = answered.iter().map(|(_, file)| *file).collect();
        let latest = client.snapshot(table, VersionSelector::Latest).await.unwrap();
        assert!(latest.files.iter().map(|file| file.id).eq(files), "every file once");
        assert_eq!(client.stats().await.unwrap().commits, WRITERS * commits);
    }
}

/// Every version can be read while others are made.
pub async fn time_travel_under_writers(metastore: Backend) {
    let table = metastore.create_table(sample_schema("t")).await.unwrap().id;
    let writers: Vec<_> = (0..4u64)
        .map(|writer| {
            let metastore = metastore.clone();
            tokio::spawn(async move {
                for n in 0..100 {
                    let file = metastore.allocate_files(1).await.unwrap();
                    metastore.commit(table, append(u128::from(writer * 100 + n + 1), file)).await.unwrap();
                }
            })
        })
        .collect();
    let mut seen: BTreeMap<Version, Vec<FileId>> = BTreeMap::new();
    let ids = |whole: &TableVersion| whole.files.iter().map(|file| file.id).collect::<Vec<_>>();
    while seen.last_key_value().is_none_or(|(version, _)| version.0 < 400) {
        let latest = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
        assert_eq!(latest.files.len() as u64, latest.version.0, "one file a version");
        seen.insert(latest.version, ids(&latest));
        let middle = Version(latest.version.0 / 2);
        let earlier = metastore.snapshot(table, VersionSelector::Version(middle)).await.unwrap();
        assert_eq!((earlier.version, earlier.files.len() as u64), (middle, middle.0));
        if let Some(as_seen) = seen.get(&middle) {
            assert_eq!(&ids(&earlier), as_seen, "version {middle} is what it was");
        }
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for (version, files) in seen {
        assert_eq!(ids(&metastore.snapshot(table, VersionSelector::Version(version)).await.unwrap()), files);
    }
}

/// What is said of a file, and that it has no blocks, comes back with it.
pub async fn notes_stay_with_their_files(metastore: Backend) {
    let (table, first) = with_files(&metastore, 2).await;
    let second = FileId(first.0 + 1);
    let skipped = File { note: Some("footer is encrypted".into()), ..sample_file(first, 0) };
    let partly = File { note: Some("column tags is nested".into()), ..sample_file(second, 3) };
    metastore.commit(table, Commit { add: vec![skipped, partly], ..append(1, first) }).await.unwrap();
    let latest = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
    let notes: Vec<_> = latest.files.iter().map(|file| file.note.as_deref().unwrap()).collect();
    assert_eq!(notes, ["footer is encrypted", "column tags is nested"]);
    assert_eq!((latest.files.len(), latest.live_rows()), (2, 3));
    assert_eq!(metastore.stats().await.unwrap().blocks, 1);
}
