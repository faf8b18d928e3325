//! Does an acknowledged batch survive, take effect once, and in order?

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tarn_raftlog::{MemoryDisk, Options, RaftLog};
use tarn_replica::{Error, LogReader, PartDecision, Replica, Replicas, commit_named, commit_together, propose_all};
use tarn_rows::{
    ChangeLog, Engine, EngineSnapshot, EngineStats, EntrySource, FeedError, HotSnapshot, Lookup, MemoryEngine, Outcome,
    Space, StagedFile, Table, TableChanges, WriteBatch, first_outcome,
};
use tarn_types::{
    BatchBuilder, Column, ColumnId, Cursor, DataType, KeyPart, Kind, ManualClock, MutationBatch, Partitioning, Request,
    RequestId, SeqNo, StatementOutcome, TableId, TableOptions, TableSchema, TabletId, TabletMap, Value, decode_row,
    encode_cells, encode_key,
};

fn schema(tablets: u32) -> Arc<TableSchema> {
    let column = |id, name: &str| Column {
        id: ColumnId(id),
        name: name.into(),
        data_type: DataType::Int64,
        nullable: false,
        default: None,
    };
    Arc::new(TableSchema {
        id: TableId(1),
        name: "t".into(),
        columns: vec![column(1, "id"), column(2, "v")],
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(1),
        options: TableOptions {
            tablets,
            partitioning: if tablets > 1 { Partitioning::Hash } else { Partitioning::Range },
            ..TableOptions::default()
        },
    })
}

fn key(schema: &TableSchema, id: i64) -> Vec<u8> {
    encode_key(schema, &[Value::Int64(id)]).unwrap()
}

fn cells(schema: &TableSchema, id: i64, v: i64) -> Vec<u8> {
    encode_cells(schema, &[Value::Int64(id), Value::Int64(v)]).unwrap()
}

/// One row set to a value.
fn put(schema: &TableSchema, id: i64, v: i64) -> MutationBatch {
    let key = key(schema, id);
    let mut batch = BatchBuilder::new(schema);
    batch.put(&key, &cells(schema, id, v), None);
    batch.finish()
}

/// A node: one log, one table, its replicas.
struct TestNode {
    disk: MemoryDisk,
    schema: Arc<TableSchema>,
    log: Arc<RaftLog>,
    table: Arc<Table>,
    replicas: Vec<Replica>,
    replayed: u64,
}

impl TestNode {
    fn open(disk: &MemoryDisk, engine: Arc<dyn Engine>, schema: Arc<TableSchema>) -> Result<TestNode, Error> {
        let options = Options { segment_bytes: 64 << 10, ..Options::new("/log") };
        let (log, _) = RaftLog::open_on(Arc::new(disk.clone()), options).unwrap();
        let log = Arc::new(log);
        let table = Arc::new(Table::open(engine, Arc::clone(&schema), Arc::new(ManualClock::new(0))).unwrap());
        let mut replayed = 0;
        let mut replicas = Vec::new();
        for tablet in schema.first_tablets() {
            let replica = Replica::open(Arc::clone(&log), Arc::clone(&table), tablet)?;
            replayed += replica.replay()?;
            replicas.push(replica);
        }
        table.finish_replay().unwrap();
        Ok(TestNode { disk: disk.clone(), schema, log, table, replicas, replayed })
    }

    fn new(tablets: u32) -> TestNode {
        TestNode::open(&MemoryDisk::new(7), Arc::new(MemoryEngine::new()), schema(tablets)).unwrap()
    }

    /// Loses power. The engine loses everything, as one that was never flushed does.
    fn restart(self) -> TestNode {
        let TestNode { disk, schema, log, table, replicas, .. } = self;
        drop((log, table, replicas));
        disk.cut_power();
        TestNode::open(&disk, Arc::new(MemoryEngine::new()), schema).unwrap()
    }

    fn replica_of(&self, batch: &MutationBatch) -> &Replica {
        let key = batch.iter().next().unwrap().key.to_vec();
        &self.replicas[(self.table.tablet_map().tablet_of(&key).0 - 1) as usize]
    }

    fn put(&self, id: i64, v: i64) -> Result<(SeqNo, Outcome), Error> {
        let batch = put(&self.schema, id, v);
        let (seqno, outcome) = self.replica_of(&batch).propose(batch)?;
        Ok((seqno.unwrap(), outcome))
    }

    fn get(&self, id: i64) -> Option<(SeqNo, Vec<u8>)> {
        match self.table.get(&key(&self.schema, id)).unwrap() {
            Lookup::Row { cells, seqno } => Some((seqno, cells.to_vec())),
            Lookup::Absent => None,
            Lookup::InLake(address) => panic!("nothing was delivered, yet {address:?}"),
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_after_loss_of_power() {
    let node = TestNode::new(2);
    for id in 0..50 {
        assert!(matches!(node.put(id, id * 10).unwrap().1, Outcome::Applied { affected: 1 }));
    }
    let before: Vec<_> = (0..50).map(|id| node.get(id)).collect();
    let node = node.restart();
    assert_eq!(node.replayed, 50);
    assert_eq!((0..50).map(|id| node.get(id)).collect::<Vec<_>>(), before);
    assert!(before.iter().all(Option::is_some));
    // And it goes on where it stopped.
    let heads: u64 = node.replicas.iter().map(|r| r.head().0).sum();
    assert_eq!(heads, 50);
    let (seqno, _) = node.put(3, 1).unwrap();
    assert_eq!(node.get(3).unwrap().0, seqno);
}

#[test]
fn what_is_refused_or_changes_nothing_is_in_no_log() {
    let node = TestNode::new(1);
    let replica = &node.replicas[0];
    let k = key(&node.schema, 1);
    let mut outcomes = Vec::new();
    for v in 0..4 {
        let mut batch = BatchBuilder::new(&node.schema);
        batch.insert(&k, &cells(&node.schema, 1, v)); // only the first takes effect
        outcomes.push(replica.propose(batch.finish()).unwrap().1);
        let mut batch = BatchBuilder::new(&node.schema);
        batch.put(&k, &cells(&node.schema, 1, 100 + v), Some(SeqNo(1))); // only while nobody changed it
        outcomes.push(replica.propose(batch.finish()).unwrap().1);
    }
    let affected = |o: &Outcome| if let Outcome::Applied { affected } = o { *affected } else { 9 };
    assert_eq!(outcomes.iter().map(affected).collect::<Vec<_>>(), [1, 1, 0, 9, 0, 9, 0, 9]);
    let before = node.get(1);
    let node = node.restart();
    assert_eq!(node.get(1), before);
    assert_eq!(node.replicas[0].head(), SeqNo(2));
}

#[test]
fn concurrent_proposals_share_flushes_and_apply_in_order() {
    let node = TestNode::new(3);
    let (n_threads, n_puts) = (6, 40);
    std::thread::scope(|scope| {
        for thread in 0..n_threads {
            let node = &node;
            scope.spawn(move || {
                for i in 0..n_puts {
                    // One row of my own, and one that all fight for.
                    let (seqno, outcome) = node.put(thread, i).unwrap();
                    assert_eq!(outcome, Outcome::Applied { affected: 1 });
                    assert_eq!(node.get(thread).unwrap(), (seqno, cells(&node.schema, thread, i)));
                    node.put(1000, thread * 1000 + i).unwrap();
                }
            });
        }
    });
    let total: u64 = node.replicas.iter().map(|r| r.head().0).sum();
    assert_eq!(total as i64, n_threads * n_puts * 2);
    let before: Vec<_> = (0..n_threads).chain([1000]).map(|id| node.get(id)).collect();
    let node = node.restart();
    assert_eq!((0..n_threads).chain([1000]).map(|id| node.get(id)).collect::<Vec<_>>(), before);
}

#[test]
fn several_tablets_cost_one_flush_and_are_all_or_none() {
    let node = TestNode::new(4);
    node.put(0, 0).unwrap(); // makes the spare segment
    let syncs = node.disk.n_syncs();
    let batches: Vec<MutationBatch> = (0..40).map(|id| put(&node.schema, id, 5)).collect();
    let proposals: Vec<_> = batches.iter().map(|b| (node.replica_of(b), b.clone())).collect();
    let decided = propose_all(&proposals).unwrap();
    assert_eq!(node.disk.n_syncs() - syncs, 1);
    for (id, (seqno, outcome)) in decided.iter().enumerate() {
        assert_eq!(*outcome, Outcome::Applied { affected: 1 });
        assert_eq!(node.get(id as i64).unwrap(), (seqno.unwrap(), cells(&node.schema, id as i64, 5)));
    }
    assert!(propose_all(&[]).unwrap().is_empty());

    // Lost power during the flush: all of the statement or none of it.
    node.disk.pull_plug_in(1);
    let batches: Vec<MutationBatch> = (0..40).map(|id| put(&node.schema, id, 6)).collect();
    let proposals: Vec<_> = batches.iter().map(|b| (node.replica_of(b), b.clone())).collect();
    assert_eq!(propose_all(&proposals).unwrap_err().kind(), Kind::Indeterminate);
    let node = node.restart();
    let sixes = (0..40).filter(|&id| node.get(id).unwrap().1 == cells(&node.schema, id, 6)).count();
    assert!(sixes == 0 || sixes == 40, "{sixes}");
}

#[test]
fn submitting_is_not_yet_agreement() {
    let node = TestNode::new(1);
    let first = node.replicas[0].submit(put(&node.schema, 1, 1)).unwrap();
    let second = node.replicas[0].submit(put(&node.schema, 1, 2)).unwrap();
    assert_eq!((first.seqno(), second.seqno()), (Some(SeqNo(1)), Some(SeqNo(2))));
    assert_eq!(node.get(1), None);
    // The later one applies both.
    second.wait().unwrap();
    assert_eq!(node.get(1).unwrap(), (SeqNo(2), cells(&node.schema, 1, 2)));
    assert_eq!(first.wait().unwrap(), (Some(SeqNo(1)), Outcome::Applied { affected: 1 }));
}

#[test]
fn a_failed_flush_is_indeterminate_and_then_the_log_is_unavailable() {
    for steps in 0..2 {
        let node = TestNode::new(1);
        node.put(1, 1).unwrap();
        node.disk.fail_in(steps); // the write, then the flush
        let error = node.put(1, 2).unwrap_err();
        assert_eq!(error.kind(), Kind::Indeterminate, "{error}");
        assert_eq!(node.get(1).unwrap().0, SeqNo(1), "nothing takes effect that may be lost");
        let error = node.put(1, 3).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        let node = node.restart();
        assert!(node.get(1).unwrap().0 <= SeqNo(2));
        node.put(1, 4).unwrap();
    }
}

/// An engine that refuses writes while it is told to.
#[derive(Default)]
struct RefusingEngine {
    engine: MemoryEngine,
    refuses: AtomicBool,
}

impl Engine for RefusingEngine {
    fn write(&self, batch: &WriteBatch) -> tarn_rows::Result<()> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(tarn_rows::Error::Faulty { reason: "it is told to".into() });
        }
        self.engine.write(batch)
    }

    fn get(&self, space: Space, key: &[u8]) -> tarn_rows::Result<Option<bytes::Bytes>> {
        self.engine.get(space, key)
    }

    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> tarn_rows::Result<Vec<Option<bytes::Bytes>>> {
        self.engine.multi_get(space, keys)
    }

    fn snapshot(&self) -> Arc<dyn EngineSnapshot> {
        self.engine.snapshot()
    }

    fn stage<'a>(
        &self,
        space: Space,
        entries: &mut dyn Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> tarn_rows::Result<StagedFile> {
        self.engine.stage(space, entries)
    }

    fn ingest(&self, files: Vec<StagedFile>) -> tarn_rows::Result<()> {
        self.engine.ingest(files)
    }

    fn flush(&self) -> tarn_rows::Result<()> {
        self.engine.flush()
    }

    fn delete_range(&self, space: Space, range: Range<&[u8]>) -> tarn_rows::Result<()> {
        self.engine.delete_range(space, range)
    }

    fn range_bytes(&self, space: Space, range: Range<&[u8]>) -> tarn_rows::Result<u64> {
        self.engine.range_bytes(space, range)
    }

    fn checkpoint(&self, dir: &Path) -> tarn_rows::Result<()> {
        self.engine.checkpoint(dir)
    }

    fn stats(&self) -> tarn_rows::Result<EngineStats> {
        self.engine.stats()
    }
}

#[test]
fn an_entry_that_could_not_be_applied_is_applied_next() {
    let engine = Arc::new(RefusingEngine::default());
    let node = TestNode::open(&MemoryDisk::new(9), Arc::<RefusingEngine>::clone(&engine), schema(1)).unwrap();
    engine.refuses.store(true, Ordering::Relaxed);
    let error = node.put(1, 1).unwrap_err();
    assert_eq!(error.kind(), Kind::Indeterminate, "it is in the log, and waits: {error}");
    engine.refuses.store(false, Ordering::Relaxed);
    assert_eq!(node.put(1, 2).unwrap().0, SeqNo(2));
    assert_eq!(node.table.applied(TabletId(1)), SeqNo(2));
}

/// All replicas of a table, as a node has them.
fn replicas_on(disk: &MemoryDisk, engine: Arc<dyn Engine>, schema: &Arc<TableSchema>) -> Arc<Replicas> {
    let options = Options { segment_bytes: 64 << 10, ..Options::new("/log") };
    let log = Arc::new(RaftLog::open_on(Arc::new(disk.clone()), options).unwrap().0);
    let table = Arc::new(Table::open(engine, Arc::clone(schema), Arc::new(ManualClock::new(0))).unwrap());
    let replicas = Arc::new(Replicas::new(log, table));
    assert!(replicas.replay().unwrap().iter().all(|of| of.failed.is_none()));
    replicas.table().finish_replay().unwrap();
    replicas
}

/// Writers count rows up, each its own; tablets are split under them again and again. No write is lost or refused, a
/// snapshot has every row that was acknowledged before it, and so has the table after a restart, with nothing in the
/// engine and with all of it.
#[test]
fn tablets_are_split_under_load() {
    const N_WRITERS: i64 = 3;
    const N_IDS: i64 = 40;
    const N_SPLITS: i64 = 8;
    let (disk, engine, schema) = (MemoryDisk::new(11), Arc::new(MemoryEngine::new()), schema(1));
    let replicas = replicas_on(&disk, Arc::<MemoryEngine>::clone(&engine), &schema);
    let table = Arc::clone(replicas.table());
    let acknowledged: Vec<AtomicI64> = (0..N_WRITERS * N_IDS).map(|_| AtomicI64::new(0)).collect();
    let value_of = |found: &Lookup, id: i64| match found {
        Lookup::Row { cells, .. } => match decode_row(&schema, &key(&schema, id), cells).unwrap()[1] {
            Value::Int64(v) => v,
            _ => unreachable!(),
        },
        Lookup::Absent => 0,
        Lookup::InLake(address) => panic!("nothing was delivered, yet {address:?}"),
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..N_WRITERS {
            let (replicas, schema, acknowledged, done) = (&replicas, &schema, &acknowledged, &done);
            scope.spawn(move || {
                for v in 1.. {
                    // One batch for all ids of the writer: it is cut wherever tablets are by then.
                    let ids = (0..N_IDS).map(|n| n * N_WRITERS + writer);
                    let mut batch = BatchBuilder::new(schema);
                    ids.clone().for_each(|id| batch.put(&key(schema, id), &cells(schema, id, v), None));
                    let decided = replicas.propose(&[batch.finish()]).unwrap();
                    let affected = decided.iter().map(|of| match of.outcome {
                        Outcome::Applied { affected } => affected,
                        ref other => panic!("{other:?}"),
                    });
                    assert_eq!(affected.sum::<u64>(), N_IDS as u64);
                    ids.for_each(|id| acknowledged[id as usize].store(v, Ordering::Release));
                    if done.load(Ordering::Acquire) {
                        return;
                    }
                }
            });
        }
        for n in 0..N_SPLITS {
            // A tablet that was split off is delivered before it is split again: so the lower part is, each time.
            let at = key(&schema, N_WRITERS * N_IDS * (N_SPLITS - n) / (N_SPLITS + 1));
            let new = replicas.split(&at).unwrap();
            assert_eq!(table.tablet_map().tablet_of(&at), new);
            let before: Vec<i64> = acknowledged.iter().map(|v| v.load(Ordering::Acquire)).collect();
            let snapshot = table.snapshot().unwrap();
            for (id, v) in before.into_iter().enumerate() {
                let id = id as i64;
                assert!(value_of(&snapshot.get(&key(&schema, id)).unwrap(), id) >= v, "row {id}");
            }
            let rows: usize = snapshot.recent(None, false).unwrap().iter().map(|rows| rows.num_rows()).sum();
            assert!(rows as u64 == snapshot.recent_rows() && rows as i64 <= N_WRITERS * N_IDS, "each row once");
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(table.tablet_map().len() as i64, N_SPLITS + 1);
    let state = |table: &Table| -> BTreeMap<i64, i64> {
        (0..N_WRITERS * N_IDS).map(|id| (id, value_of(&table.get(&key(&schema, id)).unwrap(), id))).collect()
    };
    let before = state(&table);
    assert!(before.values().zip(&acknowledged).all(|(v, acknowledged)| *v == acknowledged.load(Ordering::Acquire)));
    let refused = replicas.split(&key(&schema, N_WRITERS * N_IDS - 1)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Conflict, "what it had before its birth is not delivered: {refused}");

    // The feed has the changes of each row in order, though they are in several logs.
    let reader = Arc::new(LogReader::new(Arc::clone(replicas.log()), Arc::clone(&table)));
    let changes = TableChanges::new(Arc::clone(&table), reader);
    let (mut at, mut seen) = (Cursor::new(), BTreeMap::<Vec<u8>, i64>::new());
    loop {
        let some = changes.read(&at, 20_000).unwrap();
        if some.is_empty() {
            break;
        }
        for change in some {
            at.set(change.tablet, change.seqno);
            for effect in change.effects.iter() {
                let row = decode_row(&schema, effect.key, effect.cells.unwrap()).unwrap();
                let Value::Int64(v) = row[1] else { unreachable!() };
                let last = seen.insert(effect.key.to_vec(), v).unwrap_or(0);
                assert_eq!(v, last + 1, "each change once, in order");
            }
        }
    }
    assert!((0..N_WRITERS * N_IDS).all(|id| seen[&key(&schema, id)] == before[&id]));

    drop((changes, table, replicas));
    disk.cut_power();
    for engine in [Arc::new(MemoryEngine::new()), Arc::new(engine.crash()), engine] {
        let replicas = replicas_on(&disk, engine, &schema);
        assert_eq!(replicas.table().tablet_map().len() as i64, N_SPLITS + 1);
        assert_eq!(state(replicas.table()), before);
        assert_eq!(replicas.table().snapshot().unwrap().recent_rows() as i64, N_WRITERS * N_IDS);
    }
}

#[test]
fn the_feed_reads_what_is_in_effect_and_learns_what_is_trimmed() {
    let node = TestNode::new(2);
    let reader = Arc::new(LogReader::new(Arc::clone(&node.log), Arc::clone(&node.table)));
    let changes = TableChanges::new(Arc::clone(&node.table), reader.clone());
    for id in 0..20 {
        node.put(id, 1).unwrap();
    }
    let waiting = node.replicas[0].submit(put(&node.schema, first_of(&node.schema, 1), 2)).unwrap();
    let mut at = Cursor::new();
    let mut n = 0;
    while n < 20 {
        let some = changes.read(&at, 1).unwrap();
        assert!(!some.is_empty());
        for change in some {
            assert_eq!(change.seqno, at.get(change.tablet).next());
            at.set(change.tablet, change.seqno);
            n += change.effects.len();
        }
    }
    assert_eq!((changes.read(&at, 1 << 20).unwrap().len(), &at), (0, &changes.head()));
    waiting.wait().unwrap();
    assert_eq!(changes.read(&at, 1 << 20).unwrap().len(), 1);

    // Nothing is delivered: a trim keeps what the rows need.
    node.replicas[0].trim(SeqNo(5)).unwrap();
    assert_eq!(reader.entries(TabletId(1), SeqNo::ZERO, 1 << 20).unwrap()[0].0, SeqNo(1));
    // The log itself lost them: the reader is told.
    let mut batch = node.log.batch();
    batch.purge(tarn_replica::group_of(TabletId(1)), tarn_raftlog::Index(3), tarn_raftlog::Term(1));
    node.log.commit(batch).unwrap();
    let gone = reader.entries(TabletId(1), SeqNo(2), 1 << 20).unwrap_err();
    assert!(matches!(gone, FeedError::Trimmed { first: SeqNo(4), .. }), "{gone}");
    assert_eq!(reader.entries(TabletId(1), SeqNo(3), 1 << 20).unwrap()[0].0, SeqNo(4));
}

/// The smallest id whose row is in a tablet.
fn first_of(schema: &TableSchema, tablet: u32) -> i64 {
    let tablets = TabletMap::initial(schema);
    (0..).find(|&id| tablets.tablet_of(&key(schema, id)) == TabletId(tablet)).unwrap()
}

#[test]
fn rows_and_log_must_belong_together() {
    let node = TestNode::new(1);
    for v in 0..3 {
        node.put(1, v).unwrap();
    }
    let mut other = TableSchema::clone(&node.schema);
    other.id = TableId(2);
    let wrong = node.replicas[0].propose(BatchBuilder::new(&other).finish()).err();
    assert_eq!(wrong.unwrap().kind(), Kind::Invalid);

    // Rows from another log: they are ahead of this one.
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let one = TestNode::open(&MemoryDisk::new(1), Arc::clone(&engine), schema(1)).unwrap();
    one.put(1, 1).unwrap();
    drop(one);
    let behind = TestNode::open(&MemoryDisk::new(2), engine, schema(1)).err().unwrap();
    assert!(matches!(behind, Error::LogBehind { applied: SeqNo(1), last: SeqNo(0), .. }), "{behind}");

    // A log that begins after what the rows lost.
    let mut batch = node.log.batch();
    batch.purge(tarn_replica::group_of(TabletId(1)), tarn_raftlog::Index(2), tarn_raftlog::Term(1));
    node.log.commit(batch).unwrap();
    let TestNode { disk, schema, log, table, replicas, .. } = node;
    drop((log, table, replicas));
    let gone = TestNode::open(&disk, Arc::new(MemoryEngine::new()), schema).err().unwrap();
    assert!(matches!(gone, Error::LogGone { needed: SeqNo(1), first: SeqNo(3), .. }), "{gone}");
    assert_eq!(gone.kind(), Kind::Corrupt);
}

/// Who decides sees what is under way, and answers when that is there.
#[test]
fn a_batch_is_decided_behind_those_that_are_under_way() {
    let node = TestNode::new(1);
    let replica = &node.replicas[0];
    let k = key(&node.schema, 1);
    let batch = |push: &dyn Fn(&mut BatchBuilder)| {
        let mut builder = BatchBuilder::new(&node.schema);
        push(&mut builder);
        builder.finish()
    };
    let insert = |v| batch(&|builder| builder.insert(&k, &cells(&node.schema, 1, v)));
    let first = replica.submit(insert(1)).unwrap();
    let second = replica.submit(insert(2)).unwrap();
    let guarded =
        replica.submit(batch(&|builder| builder.put(&k, &cells(&node.schema, 1, 3), Some(SeqNo(1))))).unwrap();
    let deleted = replica.submit(batch(&|builder| builder.delete(&k, None))).unwrap();
    let again = replica.submit(insert(4)).unwrap();
    let places = [&first, &second, &guarded, &deleted, &again].map(|pending| pending.seqno().map(|seqno| seqno.0));
    assert_eq!(places, [Some(1), None, Some(2), Some(3), Some(4)]);
    assert_eq!(node.get(1), None, "nothing is there yet");
    let affected = |affected| Outcome::Applied { affected };
    assert_eq!(second.wait().unwrap(), (None, affected(0)));
    assert_eq!(node.get(1).unwrap(), (SeqNo(1), cells(&node.schema, 1, 1)), "what it was decided upon is visible");
    assert_eq!(again.wait().unwrap(), (Some(SeqNo(4)), affected(1)));
    assert_eq!(node.get(1).unwrap(), (SeqNo(4), cells(&node.schema, 1, 4)));
    for pending in [first, guarded, deleted] {
        assert_eq!(pending.wait().unwrap().1, affected(1));
    }
    let before = node.get(1);
    assert_eq!(node.restart().get(1), before);
}

#[test]
fn what_was_not_submitted_is_not_decided_upon() {
    let node = TestNode::new(1);
    node.put(1, 1).unwrap();
    node.disk.fail_in(0);
    assert_eq!(node.put(1, 2).unwrap_err().kind(), Kind::Indeterminate);
    // The log takes nothing more, so what is decided now is forgotten again.
    let mut batch = BatchBuilder::new(&node.schema);
    batch.delete(&key(&node.schema, 1), None);
    assert_eq!(node.replicas[0].propose(batch.finish()).unwrap_err().kind(), Kind::Unavailable);
    let mut batch = BatchBuilder::new(&node.schema);
    batch.insert(&key(&node.schema, 1), &cells(&node.schema, 1, 9));
    let error = node.replicas[0].propose(batch.finish()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "it exists if the put does, which nobody knows: {error}");
}

/// A table of a log and an engine that others share.
fn beside(log: &Arc<RaftLog>, engine: &Arc<dyn Engine>, id: u32, first_tablet: u32) -> Replicas {
    let schema = TableSchema { id: TableId(id), first_tablet: TabletId(first_tablet), ..(*schema(4)).clone() };
    let table = Table::open(Arc::clone(engine), Arc::new(schema), Arc::new(ManualClock::new(0))).unwrap();
    let replicas = Replicas::new(Arc::clone(log), Arc::new(table));
    assert!(replicas.replay().unwrap().iter().all(|replayed| replayed.failed.is_none()));
    replicas.table().finish_replay().unwrap();
    replicas
}

fn rows_of(schema: &TableSchema, rows: impl Iterator<Item = (i64, i64)>) -> MutationBatch {
    let mut batch = BatchBuilder::new(schema);
    rows.for_each(|(id, v)| batch.put(&key(schema, id), &cells(schema, id, v), None));
    batch.finish()
}

#[test]
fn batches_of_several_tables_are_there_together_or_not_at_all() {
    const ROWS: i64 = 16;
    let disk = MemoryDisk::new(11);
    let open = |disk: &MemoryDisk| {
        let options = Options { segment_bytes: 64 << 10, ..Options::new("/log") };
        let log = Arc::new(RaftLog::open_on(Arc::new(disk.clone()), options).unwrap().0);
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        [beside(&log, &engine, 1, 1), beside(&log, &engine, 2, 5)]
    };
    // Of the rows that are written together.
    let values = |tables: &[Replicas; 2]| -> Vec<i64> {
        let seen = Table::snapshot_all(&[tables[0].table(), tables[1].table()]).unwrap();
        let value = |seen: &HotSnapshot, id: i64| {
            let key = key(seen.schema(), id);
            let Lookup::Row { cells, .. } = seen.get(&key).unwrap() else { return None };
            let row = decode_row(seen.schema(), &key, &cells).unwrap();
            if let Value::Int64(v) = row[1] { Some(v) } else { None }
        };
        seen.iter().flat_map(|seen| (0..ROWS).filter_map(|id| value(seen, id))).collect()
    };
    let tables = Arc::new(open(&disk));
    let commit = |tables: &[Replicas; 2], n: i64| {
        let all = |table: &Replicas| rows_of(&table.table().table_schema(), (0..ROWS).map(|id| (id, n)));
        let decided = commit_together(&[(&tables[0], all(&tables[0])), (&tables[1], all(&tables[1]))]).unwrap();
        assert!(decided.iter().all(|decided| matches!(decided.outcome, Outcome::Applied { .. })));
    };
    commit(&tables, 0);
    let stop = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicI64::new(1));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (tables, next) = (Arc::clone(&tables), Arc::clone(&next));
            scope.spawn(move || (0..60).for_each(|_| commit(&tables, next.fetch_add(1, Ordering::Relaxed))));
        }
        // Entries of one tablet alone go in between.
        {
            let tables = Arc::clone(&tables);
            scope.spawn(move || {
                for n in 0..200 {
                    let schema = &tables[0].table().table_schema();
                    tables[0].propose(&[put(schema, ROWS + n % 7, -1)]).unwrap();
                }
            });
        }
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (tables, stop) = (Arc::clone(&tables), Arc::clone(&stop));
                scope.spawn(move || {
                    let mut n_read = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let seen = values(&tables);
                        assert_eq!(seen.len() as i64, 2 * ROWS);
                        assert!(seen.iter().all(|v| *v == seen[0]), "a part of a commit is seen: {seen:?}");
                        n_read += 1;
                    }
                    n_read
                })
            })
            .collect();
        while next.load(Ordering::Relaxed) <= 180 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    });
    commit(&tables, 1000);

    // A guard that fails in one tablet, or a key that is there, and nothing happens anywhere.
    let refused = |push: &dyn Fn(&mut BatchBuilder, &TableSchema)| {
        let (one, other) = (&tables[0].table().table_schema(), &tables[1].table().table_schema());
        let mut batch = BatchBuilder::new(other);
        push(&mut batch, other);
        let all = rows_of(one, (0..ROWS).map(|id| (id, 2000)));
        commit_together(&[(&tables[0], all), (&tables[1], batch.finish())]).unwrap()
    };
    let guarded = refused(&|batch, schema| batch.put(&key(schema, 3), &cells(schema, 3, 2000), Some(SeqNo(1))));
    assert!(guarded.iter().any(|decided| matches!(&decided.outcome, Outcome::Conflict { .. })));
    let there = refused(&|batch, schema| batch.create(&key(schema, 3), &cells(schema, 3, 2000)));
    assert!(there.iter().any(|decided| matches!(&decided.outcome, Outcome::Exists { .. })));
    let expected = vec![1000; 2 * ROWS as usize];
    assert_eq!(values(&tables), expected);

    // Nothing was flushed: all of it comes from the log.
    drop(tables);
    disk.cut_power();
    let again = open(&disk);
    assert_eq!(values(&again), expected);
}

#[test]
fn a_request_and_its_outcome_are_there_together_or_not_at_all() {
    let disk = MemoryDisk::new(12);
    let open = |disk: &MemoryDisk| {
        let options = Options { segment_bytes: 64 << 10, ..Options::new("/log") };
        let log = Arc::new(RaftLog::open_on(Arc::new(disk.clone()), options).unwrap().0);
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let tables = [beside(&log, &engine, 1, 1), beside(&log, &engine, 2, 5)];
        (engine, tables)
    };
    let request = |sequence, rows| Request {
        id: RequestId { origin: 7, sequence },
        statements: vec![StatementOutcome { digest: 1, rows }],
    };
    let none = |table: &Replicas| BatchBuilder::new(&table.table().table_schema()).finish();
    let (engine, tables) = open(&disk);
    let all = |n: i64| {
        let rows = |table: &Replicas| rows_of(&table.table().table_schema(), (0..16).map(|id| (id, n)));
        [(&tables[1], rows(&tables[1])), (&tables[0], rows(&tables[0]))]
    };
    let told = |engine: &Arc<dyn Engine>, sequence| {
        let outcome = first_outcome(&**engine, RequestId { origin: 7, sequence }).unwrap();
        outcome.map(|statements| statements[0].rows)
    };
    assert_eq!(told(&engine, 1), None);
    commit_named(&all(1), &request(1, 32)).unwrap();
    assert_eq!(told(&engine, 1), Some(32));

    // It changes nothing, and is known all the same.
    let decided = commit_named(&[(&tables[0], none(&tables[0]))], &request(2, 0)).unwrap();
    assert!(matches!(decided[..], [PartDecision { outcome: Outcome::Applied { affected: 0 }, .. }]));
    commit_named(&[(&tables[0], none(&tables[0])), all(2)[0].clone()], &request(3, 16)).unwrap();
    assert_eq!([2, 3].map(|sequence| told(&engine, sequence)), [Some(0), Some(16)]);

    // Refused by the other table: nothing of it is there, its name neither.
    let schema = tables[0].table().table_schema();
    let mut there = BatchBuilder::new(&schema);
    there.create(&key(&schema, 3), &cells(&schema, 3, 9));
    let refused = commit_named(&[all(4)[0].clone(), (&tables[0], there.finish())], &request(4, 17)).unwrap();
    assert!(matches!(&refused[..], [PartDecision { outcome: Outcome::Exists { .. }, of: 1, .. }]), "{refused:?}");
    assert_eq!(told(&engine, 4), None);

    // A split gives both halves what there was; nothing was flushed, and all comes from the log.
    let split_at = key(&tables[1].table().table_schema(), 8);
    tables[1].split(&split_at).unwrap();
    commit_named(&[all(5)[0].clone()], &request(5, 16)).unwrap();
    drop((engine, tables));
    disk.cut_power();
    let (engine, _tables) = open(&disk);
    assert_eq!([1, 2, 3, 4, 5].map(|sequence| told(&engine, sequence)), [Some(32), Some(0), Some(16), None, Some(16)]);
}
