//! Single cases that the model does not reach: threads, ages, tables that only append, wrong calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use parking_lot::Mutex;
use tarn_feed::{ChangeLog, FrozenRows, Stage};
use tarn_rows::{
    Engine, EntryEffect, EntrySource, KeyRange, Lookup, MemoryEngine, Outcome, RangeOfRows, RocksEngine, Table,
    TableChanges, TabletEntry, UnderWay, apply_together,
};
use tarn_types::{
    BatchBuilder, Cursor, Effects, Entry, Kind, ManualClock, MutationBatch, Op, SeqNo, TableSchema, TabletId, Value,
    Version, batch_from_columns, encode_cells, encode_key,
};

use crate::world::{
    Disk, ModelRow, MutationRequest, SeqNoGuard, TableHarness, commit, effects, rows_of, schema, values,
};

fn columns(schema: &TableSchema, ids: std::ops::Range<i64>, v: i64) -> RecordBatch {
    let n = (ids.end - ids.start) as usize;
    let numbers: ArrayRef = Arc::new(Int64Array::from_value(v, n));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    let texts: ArrayRef = Arc::new(StringArray::from_iter((0..n).map(|_| None::<&str>)));
    RecordBatch::try_new(schema.arrow(), vec![numbers, ids, texts]).unwrap()
}

fn one_tablet(append_only: bool) -> Arc<TableSchema> {
    let mut one = TableSchema::clone(&schema(append_only));
    one.options.tablets = 1;
    Arc::new(one)
}

fn bulk(schema: &TableSchema, ids: std::ops::Range<i64>, v: i64, op: Op) -> MutationBatch {
    batch_from_columns(schema, &columns(schema, ids, v), op).unwrap()
}

fn serving(engine: Arc<dyn Engine>, schema: &Arc<TableSchema>) -> Table {
    let table = Table::open(engine, Arc::clone(schema), Arc::new(ManualClock::new(0))).unwrap();
    table.finish_replay().unwrap();
    table
}

/// What a leader does before a delivery, with a log that never fails.
fn freeze(table: &Table) -> Result<Option<FrozenRows>, tarn_rows::Error> {
    for (tablet, audit) in table.to_freeze() {
        table.apply(tablet, table.applied(tablet).next(), &Entry::Freeze(audit))?;
    }
    table.frozen()
}

fn ask(op: Op, id: i64, v: i64) -> MutationRequest {
    MutationRequest { op, id, v: Some(v), s: None, guard: SeqNoGuard::None }
}

/// Every write replaces all rows by rows of one value; a snapshot with two values, or a wrong number of rows, saw half
/// a batch.
#[test]
fn a_snapshot_never_sees_half_a_batch() {
    const N_ROWS: i64 = 3000;
    const N_WRITES: i64 = 30;
    let dir = tempfile::tempdir().unwrap();
    let engine: Arc<dyn Engine> = Arc::new(RocksEngine::open(dir.path(), &tarn_rows::RocksOptions::default()).unwrap());
    let schema = one_tablet(false);
    let table = serving(engine, &schema);
    commit(&table, SeqNo(1), &bulk(&schema, 0..N_ROWS, 1, Op::Put)).unwrap();
    let done = AtomicBool::new(false);
    let check = || {
        let snapshot = table.snapshot().unwrap();
        let want = snapshot.position().get(TabletId(5)).0 as i64;
        let uniform = |rows: &[RecordBatch]| {
            assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>() as i64, N_ROWS);
            for batch in rows {
                assert!(batch.column(0).as_primitive::<Int64Type>().values().iter().all(|v| *v == want));
            }
        };
        uniform(&snapshot.recent(Some(&[0]), false).unwrap());
        let asked = RangeOfRows { projection: Some(vec![0]), ..RangeOfRows::all(1000) };
        let scanned = snapshot.scan(&asked).unwrap().map(|batch| batch.unwrap().rows);
        uniform(&scanned.collect::<Vec<_>>());
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                check();
            }
        });
        for v in 2..N_WRITES {
            // Bulk and single rows take different ways.
            let batch = bulk(&schema, 0..N_ROWS, v, Op::Put);
            let batch = if v % 2 == 0 { batch } else { MutationBatch::from_bytes(batch.as_bytes().clone()).unwrap() };
            commit(&table, SeqNo(v as u64), &batch).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    check();
}

/// The eviction was not flushed, the refusal was answered, then the crash: the row is there again, and the whole row
/// that the front door wrote instead must win all the same.
#[test]
fn what_was_written_for_an_evicted_row_survives_a_crash_that_brings_it_back() {
    let mut world = TableHarness::new(Disk::Memory);
    world.write(&[ask(Op::Put, 1, 1)]);
    world.freeze();
    world.commit();
    world.install();
    world.evict(100);
    assert!(!world.table().snapshot().unwrap().rows_complete());
    world.write(&[ask(Op::Patch, 1, 7)]); // refused, then rewritten whole with a guard
    assert_eq!(
        world.log[&world.tablet(1)].len(),
        3,
        "the row, the freeze, and the whole row: the refusal is in no log"
    );
    let truth = world.truth.clone();
    world.crash();
    assert_eq!(world.truth, truth);
    world.check_now();
}

#[test]
fn a_delivery_that_was_committed_before_a_crash_is_repaired() {
    let mut world = TableHarness::new(Disk::Memory);
    for id in 0..10 {
        world.write(&[ask(Op::Put, id, 1)]);
    }
    world.freeze();
    world.commit();
    world.install();
    world.write(&[ask(Op::Delete, 1, 0)]);
    world.write(&[ask(Op::Put, 2, 2)]);
    world.write(&[MutationRequest { guard: SeqNoGuard::Wrong, ..ask(Op::Put, 3, 3) }]);
    world.write(&[ask(Op::Insert, 4, 4)]);
    world.freeze();
    world.commit();
    world.write(&[ask(Op::Put, 1, 9)]);
    world.write(&[ask(Op::Delete, 2, 0)]);
    world.crash();
    world.check_now();
    world.evict(100);
    world.check_now();
    world.freeze();
    world.commit();
    world.install();
    world.check_now();
}

#[test]
fn rows_leave_by_age_and_tombstones_by_delivery() {
    let mut world = TableHarness::new(Disk::Memory);
    world.clock.set_ms(1_000);
    for id in 0..6 {
        world.write(&[ask(Op::Put, id, 1)]);
    }
    let deliver = |world: &mut TableHarness| {
        world.freeze();
        world.commit();
        world.install();
    };
    deliver(&mut world);
    world.clock.set_ms(2_000);
    world.write(&[ask(Op::Put, 1, 2)]);
    world.write(&[ask(Op::Delete, 2, 0)]);
    let evict = |world: &TableHarness, before_ms| world.table().evict(before_ms, 1_000).unwrap();
    assert_eq!(evict(&world, 999), tarn_rows::EvictReport { examined: 6, rows: 0, tombstones: 0, done: true });
    let report = evict(&world, 1_500);
    assert_eq!((report.rows, report.tombstones), (4, 0), "what is not delivered stays");
    deliver(&mut world);
    let report = world.table().remove_tombstones(1_000).unwrap();
    let known = tarn_rows::EvictReport { examined: 1, rows: 0, tombstones: 1, done: true };
    assert_eq!(report, known, "and a tombstone goes when the lake knows; nothing else is looked at");
    assert_eq!(world.table().remove_tombstones(1_000).unwrap().examined, 0);
    assert_eq!(evict(&world, 1_999).rows, 0);
    assert_eq!(evict(&world, 2_000).rows, 1);
    world.check_now();
}

#[test]
fn a_version_is_in_use_while_a_snapshot_stands_at_it() {
    let mut world = TableHarness::new(Disk::Memory);
    let deliver = |world: &mut TableHarness, id| {
        world.write(&[ask(Op::Put, id, 1)]);
        world.freeze();
        world.commit();
        world.install();
    };
    deliver(&mut world, 1);
    let first = world.table().snapshot().unwrap();
    deliver(&mut world, 2);
    let second = world.table().snapshot().unwrap();
    deliver(&mut world, 3);
    assert!(first.version() < second.version());
    assert_eq!(world.table().oldest_version_in_use(), first.version());
    drop(first);
    assert_eq!(world.table().oldest_version_in_use(), second.version());
    drop(second);
    assert_eq!(world.table().oldest_version_in_use(), world.table().installed().0);
}

#[test]
fn tombstones_of_before_a_restart_are_searched_for_once() {
    let mut world = TableHarness::new(Disk::Memory);
    for id in 0..6 {
        world.write(&[ask(Op::Put, id, 1)]);
    }
    world.write(&[ask(Op::Delete, 2, 0)]);
    world.freeze();
    world.commit();
    world.install();
    world.crash();
    let found: Vec<_> = (0..4).map(|_| world.table().remove_tombstones(3).unwrap()).collect();
    assert_eq!(found.iter().map(|report| report.tombstones).sum::<u64>(), 1, "{found:?}");
    assert_eq!(found.iter().map(|report| report.examined).sum::<u64>(), 6, "{found:?}");
    assert!(found[3].done);
    world.check_now();
}

#[test]
fn a_table_that_only_appends_is_a_bag_that_comes_back_from_the_log() {
    let schema = one_tablet(true);
    let engine = Arc::new(MemoryEngine::new());
    let table = serving(Arc::clone(&engine) as Arc<dyn Engine>, &schema);
    let mut entries = Vec::new();
    for batch in
        [bulk(&schema, 0..2000, 1, Op::Put), bulk(&schema, 0..5, 2, Op::Insert), bulk(&schema, 0..5, 2, Op::Create)]
    {
        let (affected, seqno) = (batch.len() as u64, SeqNo(entries.len() as u64 + 1));
        let known = table.look_up(TabletId(5), &batch, table.applied(TabletId(5))).unwrap();
        let (outcome, effects) = table.resolve(seqno, known, &UnderWay::default()).unwrap();
        assert_eq!(outcome, Outcome::Applied { affected });
        let effects = effects.unwrap();
        assert!(effects.columns().is_some(), "rows that came as columns stay columns");
        let entry = Entry::Effects(effects);
        table.apply(TabletId(5), seqno, &entry).unwrap();
        entries.push(entry);
    }
    let mut delete = BatchBuilder::new(&schema);
    delete.delete(&encode_key(&schema, &[Value::Int64(1)]).unwrap(), None);
    assert!(matches!(commit(&table, SeqNo(4), &delete.finish()).unwrap(), Outcome::Conflict { .. }));

    let snapshot = table.snapshot().unwrap();
    assert_eq!(snapshot.recent_rows(), 2010);
    assert!(snapshot.hidden().unwrap().is_empty());
    assert!(!snapshot.rows_complete());
    assert_eq!(snapshot.get(b"x").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(engine.stats().unwrap().n_keys, [0, 0, 2], "nothing but the tablet and its applied seqno");

    let frozen = freeze(&table).unwrap().unwrap();
    entries.push(Entry::Freeze(None));
    assert_eq!((frozen.n_rows, frozen.deleted_keys), (2010, 0));
    let late = bulk(&schema, 0..5, 3, Op::Put);
    commit(&table, SeqNo(5), &late).unwrap();
    entries.push(Entry::Effects(effects(&late)));
    let staged = table.stage(&Stage::delivery(Version(1), frozen.cursor, Vec::new())).unwrap();
    table.install(staged).unwrap();
    assert_eq!(table.snapshot().unwrap().recent_rows(), 5);

    let table = Table::open(Arc::new(engine.crash()), Arc::clone(&schema), Arc::new(ManualClock::new(0))).unwrap();
    for (i, entry) in entries.iter().enumerate() {
        table.replay(TabletId(5), SeqNo(i as u64 + 1), entry).unwrap();
    }
    table.finish_replay().unwrap();
    assert_eq!(table.applied(TabletId(5)), SeqNo(5));
    let snapshot = table.snapshot().unwrap();
    let rows = rows_of(&snapshot.recent(None, true).unwrap());
    assert_eq!(rows, (0..5).map(|id| ModelRow { id, v: Some(3), s: None, seqno: 5 }).collect::<Vec<_>>());
    assert_eq!(snapshot.version(), Version(1));
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let schema = one_tablet(false);
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let table = Table::open(Arc::clone(&engine), Arc::clone(&schema), Arc::new(ManualClock::new(0))).unwrap();
    let batch = bulk(&schema, 0..3, 1, Op::Put);
    assert_eq!(commit(&table, SeqNo(1), &batch).unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(freeze(&table).unwrap_err().kind(), Kind::Unavailable);
    table.finish_replay().unwrap();
    assert_eq!(table.finish_replay().unwrap_err().kind(), Kind::Invalid);
    let entry = Entry::Effects(effects(&batch));
    assert_eq!(table.replay(TabletId(5), SeqNo(1), &entry).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(table.apply(TabletId(6), SeqNo(1), &entry).unwrap_err().kind(), Kind::Invalid, "no such tablet");
    commit(&table, SeqNo(2), &batch).unwrap();
    assert_eq!(commit(&table, SeqNo(2), &batch).unwrap_err().kind(), Kind::Invalid);
    let mut other = TableSchema::clone(&schema);
    other.id = tarn_types::TableId(4);
    let foreign = bulk(&other, 0..1, 1, Op::Put);
    assert_eq!(commit(&table, SeqNo(3), &foreign).unwrap_err().kind(), Kind::Invalid);

    let frozen = freeze(&table).unwrap().unwrap();
    for (at, why) in [(9, "is not applied"), (2, "is at no freeze")] {
        let wrong: Cursor = [(TabletId(5), SeqNo(at))].into_iter().collect();
        let staged = table.stage(&Stage::delivery(Version(1), wrong, Vec::new())).unwrap();
        assert_eq!(table.install(staged).unwrap_err().kind(), Kind::Conflict, "{why}");
    }
    let early = table.stage(&Stage::delivery(Version(2), frozen.cursor.clone(), Vec::new())).unwrap();
    let compaction = table.stage(&Stage::compaction(Version(1), Vec::new())).unwrap();
    table.install(compaction).unwrap();
    assert_eq!(table.install(early).unwrap_err().kind(), Kind::Conflict, "staged on another version");
    assert_eq!(table.stage(&Stage::compaction(Version(1), Vec::new())).unwrap_err().kind(), Kind::Conflict);
    assert_eq!(table.installed(), (Version(1), Cursor::new()));
    assert_eq!(freeze(&table).unwrap().unwrap().version, Version(1));
}

#[test]
fn a_dropped_table_leaves_its_neighbour_alone() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let schema = one_tablet(false);
    let mut other = TableSchema::clone(&schema);
    other.id = tarn_types::TableId(4);
    other.first_tablet = schema.tablet_ids().end;
    let other = Arc::new(other);
    let (table, neighbour) = (serving(Arc::clone(&engine), &schema), serving(Arc::clone(&engine), &other));
    commit(&table, SeqNo(1), &bulk(&schema, 0..3, 1, Op::Put)).unwrap();
    commit(&neighbour, SeqNo(1), &bulk(&other, 0..4, 1, Op::Put)).unwrap();
    table.drop_data().unwrap();
    assert!(table.snapshot().is_err());
    let again = serving(Arc::clone(&engine), &schema);
    assert_eq!((again.applied(TabletId(5)), again.snapshot().unwrap().recent_rows()), (SeqNo::ZERO, 0));
    assert_eq!(
        engine.stats().unwrap().n_keys,
        [4, 0, 3],
        "its tablet and what it applied; the tablet of the other one"
    );
    assert_eq!(neighbour.snapshot().unwrap().recent_rows(), 4);
}

#[test]
fn a_projection_of_nothing_still_counts() {
    let schema = one_tablet(false);
    let table = serving(Arc::new(MemoryEngine::new()), &schema);
    commit(&table, SeqNo(1), &bulk(&schema, 0..2000, 1, Op::Put)).unwrap();
    commit(&table, SeqNo(2), &bulk(&schema, 0..7, 2, Op::Put)).unwrap();
    let snapshot = table.snapshot().unwrap();
    let n = |rows: &[RecordBatch]| rows.iter().map(RecordBatch::num_rows).sum::<usize>();
    assert_eq!(n(&snapshot.recent(Some(&[]), false).unwrap()), 2000);
    let nothing_of_all = RangeOfRows { projection: Some(vec![]), ..RangeOfRows::all(512) };
    let scanned = snapshot.scan(&nothing_of_all).unwrap().map(|batch| batch.unwrap().rows);
    assert_eq!(n(&scanned.collect::<Vec<_>>()), 2000);
    let key = encode_key(&schema, &[Value::Int64(3)]).unwrap();
    let of_key = RangeOfRows { range: KeyRange::Prefix(key.clone()), ..RangeOfRows::all(512) };
    let one = snapshot.scan(&of_key).unwrap();
    assert_eq!(one.map(|batch| batch.unwrap().rows.num_rows()).sum::<usize>(), 1);
    assert!(matches!(snapshot.get(&key).unwrap(), Lookup::Row { seqno: SeqNo(2), .. }));
    assert!(table.recent_bytes() > 2000 * 8);
}

#[derive(Default)]
struct Entries(Mutex<Vec<(TabletId, SeqNo, Effects)>>);

impl EntrySource for Entries {
    fn entries(&self, tablet: TabletId, after: SeqNo, max_bytes: usize) -> tarn_feed::Result<Vec<(SeqNo, Effects)>> {
        let mut n_bytes = 0;
        let entries = self.0.lock();
        let wanted = entries.iter().filter(|(of, seqno, _)| *of == tablet && *seqno > after);
        let within = wanted.take_while(|(_, _, batch)| {
            let fits = n_bytes < max_bytes;
            n_bytes += batch.size_bytes();
            fits
        });
        Ok(within.map(|(_, seqno, batch)| (*seqno, batch.clone())).collect())
    }

    fn head(&self, tablet: TabletId) -> SeqNo {
        self.0.lock().iter().filter(|(of, _, _)| *of == tablet).map(|(_, seqno, _)| *seqno).max().unwrap_or_default()
    }
}

#[test]
fn the_change_log_reads_every_entry_once_in_order_per_tablet() {
    let schema = schema(false);
    let table = Arc::new(serving(Arc::new(MemoryEngine::new()), &schema));
    let source = Arc::new(Entries::default());
    let mut n_entries = 0;
    for id in 0..50 {
        let key = encode_key(&schema, &[Value::Int64(id)]).unwrap();
        let tablet = table.tablet_map().tablet_of(&key);
        let mut builder = BatchBuilder::new(&schema);
        builder.put(&key, &encode_cells(&schema, &values(id, Some(1), None)).unwrap(), None);
        // Positions without mutations, as a log has them.
        let seqno = SeqNo(source.head(tablet).0 + 1 + id as u64 % 2);
        source.0.lock().push((tablet, seqno, effects(&builder.finish())));
        n_entries += 1;
    }
    let log: Arc<dyn ChangeLog> = Arc::new(TableChanges::new(table, source));
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = Arc::new(tarn_feed::Checkpoints::open(dir.path()).unwrap());
    let mut seen = Cursor::new();
    let mut n_seen = 0;
    loop {
        // A new subscription every time: it goes on from its checkpoint.
        let mut subscription = tarn_feed::Subscription::open(Arc::clone(&checkpoints), "s", Arc::clone(&log)).unwrap();
        let changes = subscription.poll(100).unwrap();
        if changes.is_empty() {
            break;
        }
        for change in &changes {
            assert!(change.seqno > seen.get(change.tablet));
            seen.set(change.tablet, change.seqno);
            n_seen += 1;
        }
        subscription.checkpoint(&seen).unwrap();
    }
    assert_eq!((n_seen, &seen), (n_entries, &log.head()));
}

/// A bag has no seqno to compare at the end of a replay but that of its entries.
#[test]
fn an_appended_delivery_that_was_committed_before_a_crash_is_repaired() {
    let schema = one_tablet(true);
    let engine = Arc::new(MemoryEngine::new());
    let table = serving(Arc::clone(&engine) as Arc<dyn Engine>, &schema);
    let rows = [(0..3, 1), (3..5, 2)].map(|(ids, v)| Entry::Effects(effects(&bulk(&schema, ids, v, Op::Put))));
    let [first, second] = rows;
    let entries = [first, Entry::Freeze(None), second];
    let mut delivered = Cursor::new();
    for (i, entry) in entries.iter().enumerate() {
        table.apply(TabletId(5), SeqNo(i as u64 + 1), entry).unwrap();
        if let Some(frozen) = table.frozen().unwrap() {
            delivered = frozen.cursor;
        }
    }
    assert_eq!(delivered, [(TabletId(5), SeqNo(2))].into_iter().collect());

    let table = Table::open(Arc::new(engine.crash()), Arc::clone(&schema), Arc::new(ManualClock::new(0))).unwrap();
    let repair = Stage::repair(Version(1), delivered, Vec::new(), Vec::new());
    let early = table.stage(&repair).unwrap();
    assert_eq!(table.install(early).unwrap_err().kind(), Kind::Conflict, "the log has not been replayed so far");
    for (i, entry) in entries.iter().enumerate() {
        table.replay(TabletId(5), SeqNo(i as u64 + 1), entry).unwrap();
    }
    table.install(table.stage(&repair).unwrap()).unwrap();
    table.finish_replay().unwrap();
    let ids: Vec<i64> =
        rows_of(&table.snapshot().unwrap().recent(None, true).unwrap()).iter().map(|row| row.id).collect();
    assert_eq!(ids, [3, 4]);
}

#[test]
fn entries_without_effect_are_not_recent_after_a_crash() {
    let mut world = TableHarness::new(Disk::Memory);
    world.write(&[ask(Op::Put, 1, 1)]);
    world.freeze();
    world.commit();
    world.install();
    world.write(&[ask(Op::Insert, 1, 2)]);
    world.write(&[MutationRequest { guard: SeqNoGuard::Wrong, ..ask(Op::Put, 1, 3) }]);
    assert_eq!(world.table().pending().rows, 0);
    world.crash();
    assert_eq!(world.table().pending().rows, 0);
    assert!(freeze(world.table()).unwrap().is_none());
}

/// A row is there for whoever would create its key: in the rows, in the lake alone, under way, and in the same batch;
/// and not when it is gone.
#[test]
fn a_key_is_created_once_wherever_its_row_lies() {
    let mut world = TableHarness::new(Disk::Memory);
    let exists = |world: &TableHarness, id| Outcome::Exists { key: world.key(id) };
    let create = |world: &mut TableHarness, ids: &[i64]| {
        let mut batch = BatchBuilder::new(&world.schema);
        for id in ids {
            batch.create(&world.key(*id), &encode_cells(&world.schema, &values(*id, Some(7), None)).unwrap());
        }
        world.propose(world.tablet(ids[0]), &batch.finish())
    };
    world.write(&[ask(Op::Put, 1, 1)]);
    assert_eq!(create(&mut world, &[1]), exists(&world, 1));
    world.freeze();
    world.commit();
    world.install();
    world.evict(100);
    assert!(matches!(world.table().get(&world.key(1)).unwrap(), Lookup::InLake(_)));
    assert_eq!(create(&mut world, &[1]), exists(&world, 1));
    let entries = world.log.values().map(Vec::len).sum::<usize>();
    world.write(&[ask(Op::Delete, 1, 0)]);
    world.lag = 3;
    assert_eq!(create(&mut world, &[1]), Outcome::Applied { affected: 1 });
    assert!(!world.is_even(), "the row is under way");
    assert_eq!(create(&mut world, &[1]), exists(&world, 1));
    let twin = (2..).find(|id| world.tablet(*id) == world.tablet(1)).unwrap();
    assert_eq!(create(&mut world, &[twin, twin]), exists(&world, twin));
    assert_eq!(create(&mut world, &[twin, 1]), exists(&world, 1), "and nothing of its batch happened");
    assert!(!world.truth.contains_key(&twin));
    world.apply_to(0);
    assert_eq!(world.log.values().map(Vec::len).sum::<usize>(), entries + 2, "what is refused is in no log");
    world.check_now();
}

/// An eviction finds a row, a writer replaces it, the eviction goes on: the new row must stay.
#[test]
fn an_eviction_never_takes_a_row_that_was_written_meanwhile() {
    const N_ROWS: i64 = 1500;
    let schema = one_tablet(false);
    let table = serving(Arc::new(MemoryEngine::new()), &schema);
    let batch = bulk(&schema, 0..N_ROWS, 1, Op::Put);
    commit(&table, SeqNo(1), &batch).unwrap();
    let frozen = freeze(&table).unwrap().unwrap();
    let placed = tarn_feed::PlacedRows { file: tarn_types::FileId(1), keys: frozen.rows[0].clone(), first_row: 0 };
    let staged = table.stage(&Stage::delivery(Version(1), frozen.cursor, vec![placed])).unwrap();
    table.install(staged).unwrap();
    let check = || {
        let snapshot = table.snapshot().unwrap();
        let asked = RangeOfRows { projection: Some(vec![]), ..RangeOfRows::all(512) };
        let (mut n_rows, mut n_evicted) = (0, 0);
        for batch in snapshot.scan(&asked).unwrap().map(Result::unwrap) {
            n_rows += batch.rows.num_rows();
            n_evicted += batch.evicted.len();
        }
        assert_eq!((n_rows + n_evicted) as i64, N_ROWS);
        assert!(n_evicted == 0 || !snapshot.rows_complete(), "a snapshot that says it is complete is");
    };
    std::thread::scope(|scope| {
        let evicting = scope.spawn(|| while !table.evict(i64::MAX, 100).unwrap().done {});
        let reading = scope.spawn(|| (0..20).for_each(|_| check()));
        for (i, mutation) in batch.iter().enumerate() {
            let mut builder = BatchBuilder::new(&schema);
            builder.put(mutation.key, mutation.cells, None);
            commit(&table, SeqNo(3 + i as u64), &builder.finish()).unwrap();
        }
        evicting.join().unwrap();
        reading.join().unwrap();
    });
    while !table.evict(i64::MAX, 1000).unwrap().done {}
    for (i, mutation) in batch.iter().enumerate() {
        let found = table.get(mutation.key).unwrap();
        assert!(matches!(found, Lookup::Row { seqno, .. } if seqno == SeqNo(3 + i as u64)), "row {i}: {found:?}");
    }
}

#[test]
fn an_entry_with_a_key_of_another_tablet_is_corrupt_and_changes_nothing() {
    for append_only in [false, true] {
        let schema = schema(append_only);
        let table = serving(Arc::new(MemoryEngine::new()), &schema);
        let of = |tablet: TabletId| {
            let row = |id| [Value::Int64(1), Value::Int64(id), Value::Null];
            let key = |id| encode_key(&schema, &[Value::Int64(id)]).unwrap();
            let id = (0..).find(|id| table.tablet_map().tablet_of(&key(*id)) == tablet).unwrap();
            let mut batch = BatchBuilder::new(&schema);
            batch.put(&key(id), &encode_cells(&schema, &row(id)).unwrap(), None);
            effects(&batch.finish())
        };
        let (ours, theirs) = (of(TabletId(5)), of(TabletId(6)));
        let error = table.apply(TabletId(5), SeqNo(1), &Entry::Effects(theirs.clone())).unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.to_string().contains("tablet 5"), "{error}");
        // Together with one that is in its place: neither.
        let entry = |tablet, effects| TabletEntry {
            table: &table,
            tablet,
            seqno: SeqNo(1),
            does: EntryEffect::Effects(effects),
        };
        let error = apply_together(&[entry(TabletId(5), &ours), entry(TabletId(6), &ours)]).unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.to_string().contains("tablet 6"), "{error}");
        assert!(table.snapshot().unwrap().recent(None, false).unwrap().is_empty());
        apply_together(&[entry(TabletId(5), &ours), entry(TabletId(6), &theirs)]).unwrap();
        let recent = table.snapshot().unwrap().recent(None, false).unwrap();
        assert_eq!(recent.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
    }
}
