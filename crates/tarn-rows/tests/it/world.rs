//! A table with everything around it in memory: a log that survives, a lake of vectors, and a model that knows the
//! truth.
//!
//! The model resolves mutations by itself, over plain values. The lake commits what it is given and keeps every
//! version. What is compared: at any position, lake version minus hidden rows plus recent rows must be the model, row
//! by row with seqnos, and so must every key.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType as ArrowType, Field, Int64Type, Schema};
use roaring::RoaringBitmap;
use tarn_feed::{FrozenRows, PlacedRows, Stage};
use tarn_rows::{
    Engine, HotSnapshot, KeyRange, Lookup, MemoryEngine, Outcome, RangeOfRows, RecentBytes, ScannedRows, Table, Tuning,
    UnderWay,
};
use tarn_types::{
    BatchBuilder, Column, ColumnId, Cursor, DataType, Direction, Effects, Entry, FileId, KeyPart, ManualClock,
    MutationBatch, Op, Partitioning, SeqNo, TableId, TableOptions, TableSchema, TabletId, Value, Version,
    batch_from_columns, decode_row, encode_cells, encode_key, encode_patch,
};

pub const N_IDS: i64 = 24;

pub fn schema(append_only: bool) -> Arc<TableSchema> {
    let column = |id: u32, name: &str, data_type, nullable| Column {
        id: ColumnId(id),
        name: name.into(),
        data_type,
        nullable,
        default: None,
    };
    let schema = TableSchema {
        id: TableId(3),
        name: "t".into(),
        columns: vec![
            column(1, "v", DataType::Int64, true),
            column(2, "id", DataType::Int64, false),
            column(3, "s", DataType::Text, true),
        ],
        key: vec![KeyPart { column_idx: 1, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(5),
        options: TableOptions { tablets: 2, partitioning: Partitioning::Hash, append_only, ..TableOptions::default() },
    };
    schema.validate().unwrap();
    Arc::new(schema)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelRow {
    pub id: i64,
    pub v: Option<i64>,
    pub s: Option<String>,
    pub seqno: u64,
}

pub fn values(id: i64, v: Option<i64>, s: Option<&str>) -> Vec<Value> {
    vec![v.map_or(Value::Null, Value::Int64), Value::Int64(id), s.map_or(Value::Null, |s| Value::Text(s.into()))]
}

/// Does a mutation carry the seqno of the row, or a wrong one?
#[derive(Clone, Copy, Debug)]
pub enum SeqNoGuard {
    None,
    Right,
    Wrong,
}

#[derive(Clone, Debug)]
pub struct MutationRequest {
    pub op: Op,
    pub id: i64,
    pub v: Option<i64>,
    pub s: Option<String>,
    pub guard: SeqNoGuard,
}

pub type Truth = BTreeMap<i64, ModelRow>;

#[derive(Clone, Default)]
pub struct LakeVersion {
    pub version: Version,
    pub cursor: Cursor,
    pub files: BTreeMap<FileId, Vec<ModelRow>>,
    pub dead: BTreeMap<FileId, RoaringBitmap>,
}

impl LakeVersion {
    pub fn live(&self) -> impl Iterator<Item = (FileId, u32, &ModelRow)> {
        self.files
            .iter()
            .flat_map(|(file, rows)| rows.iter().enumerate().map(move |(i, row)| (*file, i as u32, row)))
            .filter(|(file, i, _)| self.dead.get(file).is_none_or(|dead| !dead.contains(*i)))
    }
}

/// A committed version: what repair or install needs.
#[derive(Clone)]
struct Commit {
    version: Version,
    cursor: Option<Cursor>,
    added: FileId,
}

pub struct SavedSnapshot {
    snapshot: Arc<HotSnapshot>,
    truth: Truth,
}

pub enum Disk {
    Memory,
    Rocks(PathBuf),
}

pub struct TableHarness {
    pub schema: Arc<TableSchema>,
    pub clock: Arc<ManualClock>,
    disk: Disk,
    memory: Option<Arc<MemoryEngine>>,
    pub table: Option<Table>,
    pub log: BTreeMap<TabletId, Vec<Entry>>,
    /// In the log, and not applied yet: so many entries of a tablet at most.
    pub lag: usize,
    under_way: BTreeMap<TabletId, UnderWay>,
    pub truth: Truth,
    pub lake: Vec<LakeVersion>,
    /// Committed, not installed.
    pending: Vec<Commit>,
    /// Frozen, not committed; with the truth at its cursor.
    frozen: Option<(FrozenRows, Truth)>,
    truth_at_freeze: Option<(Cursor, Truth)>,
    pub saved: Vec<SavedSnapshot>,
    next_file: u64,
    recent_bytes: Arc<RecentBytes>,
}

pub const TUNING: Tuning = Tuning { min_bulk_rows: 4, max_open_rows: 5, kept_requests: 6 };

impl TableHarness {
    pub fn new(disk: Disk) -> Self {
        let mut world = Self {
            schema: schema(false),
            clock: Arc::new(ManualClock::new(1_000)),
            disk,
            memory: None,
            table: None,
            log: BTreeMap::new(),
            lag: 0,
            under_way: BTreeMap::new(),
            truth: Truth::new(),
            lake: vec![LakeVersion::default()],
            pending: Vec::new(),
            frozen: None,
            truth_at_freeze: None,
            saved: Vec::new(),
            next_file: 1,
            recent_bytes: Arc::default(),
        };
        world.start();
        world
    }

    pub fn table(&self) -> &Table {
        self.table.as_ref().unwrap()
    }

    pub fn key(&self, id: i64) -> Vec<u8> {
        encode_key(&self.schema, &[Value::Int64(id)]).unwrap()
    }

    pub fn tablet(&self, id: i64) -> TabletId {
        self.table().tablet_map().tablet_of(&self.key(id))
    }

    fn engine(&mut self) -> Arc<dyn Engine> {
        match &self.disk {
            Disk::Memory => {
                let engine = Arc::new(self.memory.as_ref().map_or_else(MemoryEngine::new, |engine| engine.crash()));
                self.memory = Some(Arc::clone(&engine));
                engine
            }
            Disk::Rocks(dir) => Arc::new(crate::engines::rocks(dir)),
        }
    }

    /// Open, replay, repair, serve.
    fn start(&mut self) {
        let engine = self.engine();
        let table = Table::open_tuned(
            engine,
            Arc::clone(&self.schema),
            self.clock.clone(),
            TUNING,
            Arc::clone(&self.recent_bytes),
        )
        .unwrap();
        let (_, installed) = table.installed();
        for (tablet, entries) in &self.log {
            assert!(table.durable(*tablet) >= installed.get(*tablet), "installed is never ahead of durable");
            for (i, entry) in entries.iter().enumerate() {
                let seqno = SeqNo(i as u64 + 1);
                if seqno > table.replayed_up_to(*tablet) {
                    // What comes back from a log has no columns.
                    table.replay(*tablet, seqno, &Entry::from_bytes(entry.to_bytes()).unwrap()).unwrap();
                }
            }
        }
        assert!(table.snapshot().is_err(), "nobody is served before the replay is through");
        self.table = Some(table);
        for commit in std::mem::take(&mut self.pending) {
            self.install_commit(&commit, true);
        }
        self.table().finish_replay().unwrap();
        for (tablet, entries) in &self.log {
            assert_eq!(self.table().applied(*tablet), SeqNo(entries.len() as u64));
        }
    }

    pub fn crash(&mut self) {
        self.frozen = None;
        self.truth_at_freeze = None;
        self.under_way.clear();
        if matches!(self.disk, Disk::Rocks(_)) {
            self.saved.clear();
        }
        self.table = None;
        self.start();
    }

    /// Writes a batch; all asks of other tablets than the first one's are left out.
    pub fn write(&mut self, asks: &[MutationRequest]) {
        let tablet = self.tablet(asks[0].id);
        let asks: Vec<&MutationRequest> = asks.iter().filter(|ask| self.tablet(ask.id) == tablet).collect();
        let batch = match self.columns_of(&asks) {
            Some(batch) => batch,
            None => self.batch_of(&asks),
        };
        let outcome = self.propose(tablet, &batch);
        if let Outcome::NeedsBase { key } = outcome {
            self.rewrite(&key);
        }
    }

    /// Columnar if all asks are plain and the same.
    fn columns_of(&self, asks: &[&MutationRequest]) -> Option<MutationBatch> {
        let op = asks[0].op;
        let plain = asks.iter().all(|ask| ask.op == op && matches!(ask.guard, SeqNoGuard::None));
        if asks.len() < TUNING.min_bulk_rows || !plain || !matches!(op, Op::Put | Op::Insert | Op::Create) {
            return None;
        }
        let v: ArrayRef = Arc::new(asks.iter().map(|ask| ask.v).collect::<Int64Array>());
        let id: ArrayRef = Arc::new(asks.iter().map(|ask| Some(ask.id)).collect::<Int64Array>());
        let s: ArrayRef = Arc::new(asks.iter().map(|ask| ask.s.clone()).collect::<StringArray>());
        let rows = RecordBatch::try_new(self.schema.arrow(), vec![v, id, s]).unwrap();
        let batch = batch_from_columns(&self.schema, &rows, op).unwrap();
        assert!(batch.columns().is_some());
        Some(batch)
    }

    fn batch_of(&self, asks: &[&MutationRequest]) -> MutationBatch {
        let mut builder = BatchBuilder::new(&self.schema);
        for ask in asks {
            let key = self.key(ask.id);
            let now = self.truth.get(&ask.id).map(|row| SeqNo(row.seqno));
            let guard = match ask.guard {
                SeqNoGuard::None => None,
                SeqNoGuard::Right => now,
                SeqNoGuard::Wrong => Some(now.unwrap_or(SeqNo(1)).next()),
            };
            let all = values(ask.id, ask.v, ask.s.as_deref());
            match ask.op {
                Op::Put => builder.put(&key, &encode_cells(&self.schema, &all).unwrap(), guard),
                Op::Insert => builder.insert(&key, &encode_cells(&self.schema, &all).unwrap()),
                Op::Create => builder.create(&key, &encode_cells(&self.schema, &all).unwrap()),
                Op::Patch => builder.patch(&key, &encode_patch(&self.schema, &[(0, all[0].clone())]).unwrap(), guard),
                Op::Delete => builder.delete(&key, guard),
            }
        }
        builder.finish()
    }

    /// Log, apply, and compare the outcome with the model's.
    pub fn propose(&mut self, tablet: TabletId, batch: &MutationBatch) -> Outcome {
        let seqno = SeqNo(self.log.entry(tablet).or_default().len() as u64 + 1);
        let known = self.table().look_up(tablet, batch, self.table().applied(tablet)).unwrap();
        // Others are applied between reading and deciding.
        self.apply_to(self.lag / 2);
        let under_way = self.under_way.entry(tablet).or_insert_with(|| UnderWay::keeping(1));
        let (outcome, effects) = self.table.as_ref().unwrap().resolve(seqno, known, under_way).unwrap();
        if let Some(entry) = effects.map(Entry::Effects) {
            under_way.push(seqno, entry.clone());
            self.log.entry(tablet).or_default().push(entry);
        }
        self.apply_to(self.lag);
        if let Outcome::NeedsBase { key } = &outcome {
            assert!(matches!(self.table().get(key).unwrap(), Lookup::InLake(_)), "only an evicted row needs its base");
            return outcome;
        }
        let mut truth = self.truth.clone();
        let mut affected = 0;
        for mutation in batch.iter() {
            let Value::Int64(id) = tarn_types::decode_key(&self.schema, mutation.key).unwrap()[0] else {
                unreachable!()
            };
            let row = truth.get(&id).cloned();
            if mutation.guard.is_some() && mutation.guard != row.as_ref().map(|row| SeqNo(row.seqno)) {
                assert_eq!(outcome, Outcome::Conflict { key: mutation.key.to_vec() });
                return outcome;
            }
            if mutation.op == Op::Create && row.is_some() {
                assert_eq!(outcome, Outcome::Exists { key: mutation.key.to_vec() });
                return outcome;
            }
            let decoded = |cells: &[u8]| {
                let all = decode_row(&self.schema, mutation.key, cells).unwrap();
                let v = if let Value::Int64(v) = all[0] { Some(v) } else { None };
                let s = if let Value::Text(s) = &all[2] { Some(s.clone()) } else { None };
                ModelRow { id, v, s, seqno: seqno.0 }
            };
            affected += 1;
            match (mutation.op, row) {
                (Op::Put, _) | (Op::Insert | Op::Create, None) => drop(truth.insert(id, decoded(mutation.cells))),
                (Op::Patch, Some(row)) => drop(truth.insert(id, ModelRow { s: row.s, ..decoded(mutation.cells) })),
                (Op::Delete, Some(_)) => drop(truth.remove(&id)),
                _ => affected -= 1,
            }
        }
        assert_eq!(outcome, Outcome::Applied { affected });
        self.truth = truth;
        outcome
    }

    /// Applies what is under way, but the newest `lag` entries of each tablet.
    pub fn apply_to(&mut self, lag: usize) {
        for (tablet, under_way) in &mut self.under_way {
            let last = self.log[tablet].len().saturating_sub(lag) as u64;
            while let Some((seqno, entry)) = under_way.first().filter(|(seqno, _)| seqno.0 <= last) {
                self.table.as_ref().unwrap().apply(*tablet, seqno, entry).unwrap();
                under_way.applied_first();
            }
        }
    }

    /// Is all that is in the log applied?
    pub fn is_even(&self) -> bool {
        self.under_way.values().all(|under_way| under_way.first().is_none())
    }

    /// What a front door does when a row's base is in the lake: a whole row, guarded.
    fn rewrite(&mut self, key: &[u8]) {
        let Lookup::InLake(address) = self.table().get(key).unwrap() else { unreachable!() };
        let (version, _) = self.table().installed();
        let row = self.version(version).files[&address.file][address.row as usize].clone();
        assert_eq!(row.seqno, address.seqno.0);
        let mut builder = BatchBuilder::new(&self.schema);
        let all = values(row.id, Some(-1), row.s.as_deref());
        builder.put(key, &encode_cells(&self.schema, &all).unwrap(), Some(address.seqno));
        let outcome = self.propose(self.tablet(row.id), &builder.finish());
        assert_eq!(outcome, Outcome::Applied { affected: 1 });
    }

    fn version(&self, version: Version) -> &LakeVersion {
        self.lake.iter().find(|lake| lake.version == version).unwrap()
    }

    fn last(&self) -> &LakeVersion {
        self.lake.last().unwrap()
    }

    /// Freezes; the same again until it is installed, and with the dead rows of what is installed now.
    pub fn freeze(&mut self) {
        self.apply_to(0);
        if !self.pending.is_empty() {
            return;
        }
        if self.table().frozen().unwrap().is_none() {
            self.freeze_all();
        }
        let Some(frozen) = self.table().frozen().unwrap() else {
            assert!(self.table().pending().rows == 0);
            return;
        };
        let truth = match &self.truth_at_freeze {
            Some((cursor, truth)) => {
                let is_same = cursor.iter().all(|(tablet, seqno)| frozen.cursor.get(tablet) == seqno);
                assert!(
                    is_same,
                    "a failed delivery is tried again with the same cursor, and those that were split off"
                );
                truth.clone()
            }
            None => {
                let applied = self.table().applied_cursor();
                // What has nothing to freeze stays where it is installed.
                assert!(applied.covers(&frozen.cursor) && frozen.cursor.covers(&self.table().installed().1));
                self.truth.clone()
            }
        };
        self.truth_at_freeze = Some((frozen.cursor.clone(), truth.clone()));
        assert_eq!(frozen.version, self.last().version);
        let rows = rows_of(&frozen.rows);
        assert_eq!(rows.len() as u64, frozen.n_rows);
        assert_same(&merge(self.last(), &frozen.dead, rows), &truth, "lake without dead rows, and frozen rows");
        self.frozen = Some((frozen, truth));
    }

    /// What a leader puts into the logs before a delivery.
    pub fn freeze_all(&mut self) {
        for (tablet, audit) in self.table().to_freeze() {
            let entry = Entry::Freeze(audit);
            let log = self.log.entry(tablet).or_default();
            log.push(entry.clone());
            self.table.as_ref().unwrap().apply(tablet, SeqNo(log.len() as u64), &entry).unwrap();
        }
    }

    /// Commits what is frozen; it may be a while old.
    pub fn commit(&mut self) {
        let Some((frozen, _)) = self.frozen.take() else { return };
        if frozen.version != self.last().version {
            return; // a compaction came between; the commit would be refused
        }
        let mut rows = rows_of(&frozen.rows);
        rows.sort();
        let mut next = self.last().clone();
        for (file, dead) in frozen.dead {
            *next.dead.entry(file).or_default() |= dead;
        }
        next.cursor = frozen.cursor.clone();
        self.add_version(next, rows, Some(frozen.cursor));
    }

    /// Rewrites all live rows of the lake into one file.
    pub fn compact(&mut self) {
        if !self.pending.is_empty() {
            return;
        }
        let mut rows: Vec<ModelRow> = self.last().live().map(|(_, _, row)| row.clone()).collect();
        rows.sort_by_key(|row| (row.v, row.id));
        let next = LakeVersion { files: BTreeMap::new(), dead: BTreeMap::new(), ..self.last().clone() };
        self.add_version(next, rows, None);
    }

    fn add_version(&mut self, mut next: LakeVersion, rows: Vec<ModelRow>, cursor: Option<Cursor>) {
        next.version = next.version.next();
        let added = FileId(self.next_file);
        self.next_file += 1;
        next.files.insert(added, rows);
        self.pending.push(Commit { version: next.version, cursor, added });
        self.lake.push(next);
    }

    /// Installs what is committed.
    pub fn install(&mut self) {
        for commit in std::mem::take(&mut self.pending) {
            self.install_commit(&commit, false);
        }
    }

    fn install_commit(&mut self, commit: &Commit, repair: bool) {
        let lake = self.version(commit.version);
        let placed = vec![placed(commit.added, &lake.files[&commit.added])];
        let stage = match &commit.cursor {
            Some(cursor) if repair => {
                let gone = died(&self.schema, &self.lake, commit.version);
                Stage::repair(commit.version, cursor.clone(), placed, gone)
            }
            Some(cursor) => Stage::delivery(commit.version, cursor.clone(), placed),
            None => Stage::compaction(commit.version, placed),
        };
        let staged = self.table().stage(&stage).unwrap();
        self.table().install(staged).unwrap();
        let (installed, cursor) = self.table().installed();
        // A cursor from before a split does not name the new tablet.
        assert!(installed == commit.version && cursor.covers(&lake.cursor));
        if commit.cursor.is_some() {
            self.truth_at_freeze = None;
            self.frozen = None;
        }
    }

    /// Parts the tablet that has a row there, if it can be.
    pub fn split(&mut self, id: i64) {
        self.apply_to(0);
        let Ok((tablet, split)) = self.table().plan_split(&self.key(id)) else { return };
        let log = self.log.entry(tablet).or_default();
        log.push(Entry::Split(split.clone()));
        let seqno = SeqNo(log.len() as u64);
        self.table.as_ref().unwrap().apply(tablet, seqno, &Entry::Split(split.clone())).unwrap();
        // The new log begins behind the split.
        self.log.insert(split.new, vec![Entry::Freeze(None); seqno.0 as usize]);
    }

    pub fn evict(&mut self, budget: usize) {
        while !self.table().evict(i64::MAX, budget).unwrap().done {}
    }

    pub fn save(&mut self) {
        self.apply_to(0);
        let snapshot = self.table().snapshot().unwrap();
        self.saved.push(SavedSnapshot { snapshot, truth: self.truth.clone() });
        if self.saved.len() > 4 {
            let oldest = self.saved.remove(0);
            self.check(&oldest);
        }
    }

    pub fn check_saved(&self) {
        self.saved.iter().for_each(|saved| self.check(saved));
    }

    pub fn check_now(&self) {
        self.check(&SavedSnapshot { snapshot: self.table().snapshot().unwrap(), truth: self.truth.clone() });
        assert_eq!(self.recent_bytes.get(), self.table().recent_bytes(), "there is one table, its tablets are all");
    }

    fn check(&self, saved: &SavedSnapshot) {
        let SavedSnapshot { snapshot, truth } = saved;
        let lake = self.version(snapshot.version());
        let recent = rows_of(&snapshot.recent(None, true).unwrap());
        assert_eq!(recent.len() as u64, snapshot.recent_rows());
        let hidden = snapshot.hidden().unwrap();
        for (file, rows) in hidden.iter() {
            assert!(lake.dead.get(file).is_none_or(|dead| dead.is_disjoint(rows)), "a dead row has no address");
        }
        assert_same(&merge(lake, &hidden, recent), truth, "lake and recent rows");
        for id in 0..N_IDS {
            let found = match snapshot.get(&self.key(id)).unwrap() {
                Lookup::Absent => None,
                Lookup::Row { cells, seqno } => {
                    let all = decode_row(&self.schema, &self.key(id), &cells).unwrap();
                    assert_eq!(all, values(id, truth[&id].v, truth[&id].s.as_deref()));
                    Some(seqno.0)
                }
                Lookup::InLake(address) => {
                    assert!(!snapshot.rows_complete());
                    let row = &lake.files[&address.file][address.row as usize];
                    assert_eq!((row.seqno, Some(row)), (address.seqno.0, truth.get(&id)));
                    Some(row.seqno)
                }
            };
            assert_eq!(found, truth.get(&id).map(|row| row.seqno), "row {id}");
        }
        for (from, to) in [(0, N_IDS), (3, 3), (2, N_IDS - 2)] {
            for direction in [Direction::Ascending, Direction::Descending] {
                self.check_scan(saved, self.key(from)..self.key(to), direction);
            }
        }
    }

    /// Rows of the engine and those that were evicted, each in its place.
    fn check_scan(
        &self,
        SavedSnapshot { snapshot, truth }: &SavedSnapshot,
        range: Range<Vec<u8>>,
        direction: Direction,
    ) {
        let mut wanted: Vec<&ModelRow> = truth.values().filter(|row| range.contains(&self.key(row.id))).collect();
        wanted.sort_by(|a, b| direction.of(self.key(a.id).cmp(&self.key(b.id))));
        let range = KeyRange::Range(range);
        let asked = RangeOfRows { range, direction, projection: None, with_seqno: true, batch_rows: 7 };
        let lake = self.version(snapshot.version());
        let mut found = Vec::new();
        for batch in snapshot.scan(&asked).unwrap() {
            let ScannedRows { rows, evicted, last_key } = batch.unwrap();
            assert!(rows.num_rows() + evicted.len() > 0);
            assert!(evicted.is_empty() || !snapshot.rows_complete());
            let mut of_batch = if rows.num_rows() > 0 { rows_of(&[rows]) } else { vec![] };
            for (place, address) in evicted {
                of_batch.insert(place, lake.files[&address.file][address.row as usize].clone());
            }
            if let Some(key) = last_key {
                assert_eq!(of_batch.last().map(|row| self.key(row.id)), Some(key));
            }
            found.extend(of_batch);
        }
        assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "a scan, {direction:?}");
    }
}

/// The keys of the rows that a version has declared dead.
pub fn died(schema: &TableSchema, lake: &[LakeVersion], version: Version) -> Vec<Vec<u8>> {
    let at = lake.iter().position(|of| of.version == version).unwrap();
    let (before, after) = (&lake[at - 1], &lake[at]);
    let dead = before.live().filter(|(file, row, _)| after.dead.get(file).is_some_and(|dead| dead.contains(*row)));
    dead.map(|(.., row)| encode_key(schema, &[Value::Int64(row.id)]).unwrap()).collect()
}

pub fn merge(lake: &LakeVersion, without: &BTreeMap<FileId, RoaringBitmap>, with: Vec<ModelRow>) -> Vec<ModelRow> {
    let kept = lake.live().filter(|(file, i, _)| without.get(file).is_none_or(|rows| !rows.contains(*i)));
    kept.map(|(_, _, row)| row.clone()).chain(with).collect()
}

pub fn assert_same(found: &[ModelRow], truth: &Truth, what: &str) {
    let ids: BTreeSet<i64> = found.iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), found.len(), "{what}: a key comes twice: {found:?}");
    let mut found = found.to_vec();
    found.sort();
    assert_eq!(found, truth.values().cloned().collect::<Vec<_>>(), "{what}");
}

/// What a batch of rows comes to in a table that has none of them.
pub fn effects(batch: &MutationBatch) -> Effects {
    Effects::of_rows(batch).unwrap()
}

/// What a leader does with a batch, with a log that never fails and nothing under way.
pub fn commit(table: &Table, seqno: SeqNo, batch: &MutationBatch) -> Result<Outcome, tarn_rows::Error> {
    let first = batch.iter().next().map(|mutation| mutation.key.to_vec()).unwrap_or_default();
    let tablet = table.tablet_map().tablet_of(&first);
    let known = table.look_up(tablet, batch, table.applied(tablet))?;
    let (outcome, effects) = table.resolve(seqno, known, &UnderWay::default())?;
    effects.map_or(Ok(()), |effects| table.apply(tablet, seqno, &Entry::Effects(effects)))?;
    Ok(outcome)
}

pub fn rows_of(batches: &[RecordBatch]) -> Vec<ModelRow> {
    let mut rows = Vec::new();
    for batch in batches {
        assert!(batch.num_rows() > 0);
        let number = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        let (v, id, seqno) = (number("v"), number("id"), number("__seqno"));
        let s = batch.column_by_name("s").unwrap().as_string::<i32>();
        for i in 0..batch.num_rows() {
            rows.push(ModelRow {
                id: id.value(i),
                v: v.is_valid(i).then(|| v.value(i)),
                s: s.is_valid(i).then(|| s.value(i).to_owned()),
                seqno: seqno.value(i) as u64,
            });
        }
    }
    rows
}

pub fn placed(file: FileId, rows: &[ModelRow]) -> PlacedRows {
    let fields = vec![Field::new("id", ArrowType::Int64, false), Field::new("__seqno", ArrowType::Int64, false)];
    let id: ArrayRef = Arc::new(rows.iter().map(|row| Some(row.id)).collect::<Int64Array>());
    let seqno: ArrayRef = Arc::new(rows.iter().map(|row| Some(row.seqno as i64)).collect::<Int64Array>());
    let keys = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![id, seqno]).unwrap();
    PlacedRows { file, keys, first_row: 0 }
}
