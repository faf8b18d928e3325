//! A tablet that has grown is split in about its middle, at the beginning of a partition.

use std::path::Path;
use std::sync::Arc;

use tarn_rows::{Engine, MemoryEngine, Table};
use tarn_types::{
    BatchBuilder, Entry, KeyPart, ManualClock, Partitioning, TableSchema, TabletId, Value, encode_cells, encode_key,
    encode_partition_prefix,
};

use crate::engines::rocks;
use crate::world::{effects, schema};

/// The world's table with another key.
fn keyed(key: &[usize], n_partition_key: usize, partitioning: Partitioning) -> Arc<TableSchema> {
    let mut table = TableSchema::clone(&schema(false));
    table.key = key.iter().map(|column_idx| KeyPart { column_idx: *column_idx, descending: false }).collect();
    table.n_partition_key = n_partition_key;
    table.options.partitioning = partitioning;
    table.options.tablets = 1;
    Arc::new(table)
}

fn noise(n: i64) -> String {
    let mut state = n as u64;
    let digit = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + (state >> 40) as u8 % 26)
    };
    (0..80).map(digit).collect()
}

/// A table with rows of (v, id), in files.
fn table_of(engine: Arc<dyn Engine>, schema: &Arc<TableSchema>, rows: impl Iterator<Item = (i64, i64)>) -> Table {
    let table = Table::open(engine, Arc::clone(schema), Arc::new(ManualClock::new(0))).unwrap();
    table.finish_replay().unwrap();
    let tablet = table.tablet_map().ids().next().unwrap();
    for some in rows.collect::<Vec<_>>().chunks(500) {
        let mut batch = BatchBuilder::new(schema);
        for (v, id) in some {
            let row = [Value::Int64(*v), Value::Int64(*id), Value::Text(noise(*id))];
            let key: Vec<Value> = schema.key.iter().map(|part| row[part.column_idx].clone()).collect();
            batch.put(&encode_key(schema, &key).unwrap(), &encode_cells(schema, &row).unwrap(), None);
        }
        table.apply(tablet, table.applied(tablet).next(), &Entry::Effects(effects(&batch.finish()))).unwrap();
    }
    table.flush().unwrap();
    table
}

fn engines(dir: &Path) -> [Arc<dyn Engine>; 2] {
    [Arc::new(MemoryEngine::new()), Arc::new(rocks(dir))]
}

fn only(table: &Table) -> TabletId {
    table.tablet_map().ids().next().unwrap()
}

#[test]
fn the_middle_is_that_of_the_bytes() {
    const N: i64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let schema = keyed(&[1], 1, Partitioning::Range);
    for engine in engines(dir.path()) {
        // Ids far from the middle of all that there could be.
        let table = table_of(engine, &schema, (0..N).map(|id| (0, 7_000_000 + id)));
        let at = table.middle_of(only(&table)).unwrap().unwrap();
        let place = |id: i64| encode_key(&schema, &[Value::Int64(7_000_000 + id)]).unwrap();
        assert!(at > place(N * 2 / 5) && at < place(N * 3 / 5));
        let whole = table.rows_bytes(only(&table)).unwrap();
        let (parted, split) = table.plan_split(&at).unwrap();
        let new = split.new;
        table.apply(parted, table.applied(parted).next(), &Entry::Split(split)).unwrap();
        let halves = [parted, new].map(|tablet| table.rows_bytes(tablet).unwrap());
        assert!(halves.iter().all(|half| (whole * 2 / 5..=whole * 3 / 5).contains(half)), "{halves:?} of {whole}");
    }
}

#[test]
fn a_partition_stays_whole() {
    let dir = tempfile::tempdir().unwrap();
    let schema = keyed(&[0, 1], 1, Partitioning::Range);
    let large = (0..8000).map(|id| (3, id));
    for (engine, alone) in engines(&dir.path().join("a")).into_iter().zip(engines(&dir.path().join("b"))) {
        // The middle lies in partition 3, with which the tablet begins: 4 is what can be split off.
        let table = table_of(engine, &schema, large.clone().chain((0..1000).map(|id| (4 + id % 5, id))));
        let at = table.middle_of(only(&table)).unwrap();
        assert_eq!(at, Some(encode_partition_prefix(&schema, &[Value::Int64(4)]).unwrap()));
        let table = table_of(alone, &schema, large.clone());
        assert_eq!(table.middle_of(only(&table)).unwrap(), None, "there is one partition");
    }
}

#[test]
fn a_hashed_tablet_is_split_at_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let schema = keyed(&[1], 1, Partitioning::Hash);
    for engine in engines(dir.path()) {
        let table = table_of(engine, &schema, (0..20_000).map(|id| (0, id)));
        let at = table.middle_of(only(&table)).unwrap().unwrap();
        assert_eq!(at.len(), 12, "table and token");
        // Tokens are evenly spread: the middle of the bytes is near that of the tokens.
        assert!((0x70..0x90).contains(&at[4]), "{at:?}");
    }
}

#[test]
fn an_empty_tablet_has_no_middle() {
    let dir = tempfile::tempdir().unwrap();
    let schema = keyed(&[1], 1, Partitioning::Range);
    for engine in engines(dir.path()) {
        let table = table_of(engine, &schema, std::iter::empty());
        assert_eq!(table.rows_bytes(only(&table)).unwrap(), 0);
        assert_eq!(table.middle_of(only(&table)).unwrap(), None);
    }
}
