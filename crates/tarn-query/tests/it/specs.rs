//! A scan's spec goes to another process and reads the same rows there; and one that lost its dead rows on the way
//! reads none.

use futures::TryStreamExt;
use proptest::prelude::*;
use roaring::RoaringBitmap;
use tarn_query::{Error, Options, ScanSpec};
use tarn_types::Kind;

use crate::block_metadata::KeptMetadata;
use crate::fixture::{Fixture, row, to_text};
use crate::fragments::questions;
use crate::pruning::{self, PruningOp, condition, step};

/// What the scans of a statement read.
async fn specs(fixture: &Fixture, sql: &str) -> Vec<ScanSpec> {
    let session = &fixture.session;
    let plan = session.plan(&session.parse(sql).unwrap()).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let (physical, _) = session.physical(&plan).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    session.specs(&physical).iter().map(|spec| ScanSpec::clone(spec)).collect()
}

async fn read(fixture: &Fixture, spec: ScanSpec) -> Result<Vec<String>, Error> {
    let batches: Vec<_> = fixture.session.scan(spec).await?.try_collect().await.map_err(Error::from)?;
    let mut rows = to_text(&batches);
    rows.sort();
    Ok(rows)
}

async fn come_back(steps: Vec<PruningOp>, keep: KeptMetadata, evicts: bool, asked: Vec<(String, bool, String)>) {
    let mut fixture = Fixture::keeping(pruning::schema(), Options::default(), keep).await;
    for step in &steps {
        step.run(&fixture).await;
    }
    if evicts {
        fixture.table.evict();
    }
    let mut carried = vec![];
    for (path, prunes, sql) in asked {
        fixture.set("tarn.access_path", &path).await;
        fixture.set("tarn.pruning", if prunes { "on" } else { "off" }).await;
        for spec in specs(&fixture, &sql).await {
            let bytes = spec.encode();
            let rows = read(&fixture, spec).await.unwrap();
            let back = ScanSpec::decode(&bytes).unwrap();
            assert_eq!(back.encode(), bytes, "{sql}");
            assert_eq!(read(&fixture, back).await.unwrap(), rows, "{sql}");
            carried.push((sql.clone(), bytes, rows));
        }
    }
    // Another process over the same table.
    fixture = fixture.restarted(Options { target_partitions: 3, ..Options::default() });
    for (sql, bytes, rows) in carried {
        assert_eq!(read(&fixture, ScanSpec::decode(&bytes).unwrap()).await.unwrap(), rows, "{sql}");
    }
}

fn asked() -> impl Strategy<Value = (String, bool, String)> {
    let keyed = (proptest::collection::vec(0..70i64, 1..9), condition()).prop_map(|(ids, condition)| {
        let ids = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        format!("SELECT id, n, note FROM t WHERE id IN ({ids}) AND ({condition} OR flag)")
    });
    let sql = prop_oneof![4 => questions(), 2 => keyed, 1 => Just("SELECT __seqno, id FROM \"t$seqno\"".to_owned())];
    let path = prop_oneof![Just("auto".to_owned()), Just("lake".to_owned())];
    (path, prop::bool::weighted(0.8), sql)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_spec_that_was_carried_reads_the_same_rows(
        steps in proptest::collection::vec(step(), 10..90),
        keep in prop_oneof![Just(KeptMetadata::Bounds), Just(KeptMetadata::Metadata), Just(KeptMetadata::SomeMetadata)],
        evicts in any::<bool>(),
        asked in proptest::collection::vec(asked(), 3..7),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(come_back(steps, keep, evicts, asked));
    }
}

/// 20 rows in five blocks of a file; three of them are dead, and two superseded by recent rows.
async fn with_dead_rows() -> Fixture {
    let fixture = Fixture::new().await;
    (0..20).for_each(|a| fixture.table.put(row(a, 0, a)));
    fixture.table.deliver().await;
    [4, 5, 11].iter().for_each(|a| fixture.table.delete(&row(*a, 0, 0)));
    fixture.table.deliver().await;
    [7, 13].iter().for_each(|a| fixture.table.put(row(*a, 0, 50)));
    fixture
}

/// The bytes with one bitmap instead of another.
fn exchanged(bytes: &[u8], old: &RoaringBitmap, new: &RoaringBitmap) -> Vec<u8> {
    let serialized = |bitmap: &RoaringBitmap| {
        let mut out = vec![bitmap.serialized_size() as u8];
        bitmap.serialize_into(&mut out).unwrap();
        out
    };
    let (old, new) = (serialized(old), serialized(new));
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&old)).collect();
    assert_eq!(places.len(), 1);
    [&bytes[..places[0]], &new, &bytes[places[0] + old.len()..]].concat()
}

#[tokio::test]
async fn a_spec_without_its_dead_rows_is_an_error() {
    let fixture = with_dead_rows().await;
    let spec = specs(&fixture, "SELECT a FROM t").await.remove(0);
    let bytes = spec.encode();
    let rows = read(&fixture, ScanSpec::decode(&bytes).unwrap()).await.unwrap();
    assert_eq!(rows.len(), 17);
    let (dead, hidden) = ([4, 5, 11].into_iter().collect(), [7, 13].into_iter().collect());
    for (old, new) in
        [(&dead, vec![]), (&hidden, vec![]), (&dead, vec![4, 5]), (&hidden, vec![7, 4]), (&dead, vec![4, 5, 11, 12])]
    {
        let lost = exchanged(&bytes, old, &new.into_iter().collect());
        let error = read(&fixture, ScanSpec::decode(&lost).unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(error.to_string().contains("dead_rows: 3"), "{error}");
    }
}

#[tokio::test]
async fn a_spec_is_read_at_its_position_or_not_at_all() {
    let fixture = with_dead_rows().await;
    let spec = specs(&fixture, "SELECT a FROM t").await.remove(0);
    let point = specs(&fixture, "SELECT a FROM t WHERE a = 3 AND b = 0").await.remove(0);
    fixture.set("tarn.as_of_version", "1").await;
    let before = specs(&fixture, "SELECT a FROM t").await.remove(0);
    fixture.table.put(row(30, 0, 1));
    fixture.table.deliver().await;
    for moved in [spec, point] {
        let error = read(&fixture, moved).await.unwrap_err();
        assert!(matches!(&error, Error::Moved { table } if table == "t") && error.kind() == Kind::Conflict, "{error}");
    }
    // The past does not move.
    assert_eq!(read(&fixture, before).await.unwrap().len(), 20);
}
