//! Replicas that follow one log come to the same: whoever delivers, installs, evicts, flushes, restarts or leads, and
//! whenever.
//!
//! Each replica has a table and an engine of its own. The logs and the lake are common. At every step each replica must
//! show what the log says up to where it is, and at the end all of them the same, at the same version. The same holds
//! of what requests came to that have a name.

use std::sync::Arc;

use proptest::prelude::*;
use tarn_feed::Stage;
use tarn_rows::{Engine, Lookup, MemoryEngine, Outcome, Space, Table, UnderWay, first_outcome_within};
use tarn_types::{
    BatchBuilder, Cursor, Effect, EffectsBuilder, Entry, FileId, ManualClock, NamedEffects, Op, Partitioning, Request,
    RequestId, SeqNo, StatementOutcome, TableSchema, TabletId, Value, Version, decode_key, decode_row, encode_cells,
    encode_key, encode_patch,
};

use crate::world::{
    LakeVersion, ModelRow, N_IDS, TUNING, Truth, assert_same, died, merge, placed, rows_of, schema, values,
};

const N_REPLICAS: usize = 2;
/// Few, so that some are forgotten and made again.
const N_REQUESTS: u64 = 4;

#[derive(Clone, Debug)]
enum ReplicaOp {
    /// Whoever leads decides it; the others hear of it later.
    Write {
        leader: usize,
        asks: Vec<(Op, i64, i64)>,
        /// By this request, which is not made again while it is known.
        request: Option<u64>,
    },
    /// So many more entries of each tablet are applied.
    Follow(usize, usize),
    Freeze(usize),
    /// Commits what is frozen, and installs nothing.
    Deliver(usize),
    Compact,
    /// The next version that a replica has not.
    Install(usize),
    Split {
        leader: usize,
        id: i64,
    },
    Evict(usize),
    Flush(usize),
    Crash(usize),
}

fn step() -> impl Strategy<Value = ReplicaOp> {
    let who = || 0..N_REPLICAS;
    let op = prop_oneof![
        3 => Just(Op::Put),
        1 => Just(Op::Insert),
        1 => Just(Op::Create),
        2 => Just(Op::Patch),
        2 => Just(Op::Delete),
    ];
    let asks = proptest::collection::vec((op, 0..N_IDS, any::<i8>().prop_map(i64::from)), 1..6);
    prop_oneof![
        10 => (who(), asks, proptest::option::of(0..N_REQUESTS))
            .prop_map(|(leader, asks, request)| ReplicaOp::Write { leader, asks, request }),
        6 => (who(), 1usize..5).prop_map(|(who, n)| ReplicaOp::Follow(who, n)),
        3 => who().prop_map(ReplicaOp::Freeze),
        3 => who().prop_map(ReplicaOp::Deliver),
        2 => Just(ReplicaOp::Compact),
        5 => who().prop_map(ReplicaOp::Install),
        2 => (who(), 0..N_IDS).prop_map(|(leader, id)| ReplicaOp::Split { leader, id }),
        3 => who().prop_map(ReplicaOp::Evict),
        2 => who().prop_map(ReplicaOp::Flush),
        2 => who().prop_map(ReplicaOp::Crash),
    ]
}

struct Replica {
    engine: Arc<MemoryEngine>,
    table: Table,
}

/// A committed version: what an install needs.
struct Commit {
    cursor: Option<Cursor>,
    added: FileId,
}

struct ReplicaGroup {
    schema: Arc<TableSchema>,
    /// By tablet, in the order in which they came to be.
    logs: Vec<(TabletId, Vec<Entry>)>,
    replicas: Vec<Replica>,
    lake: Vec<LakeVersion>,
    /// That of `lake[i + 1]`.
    commits: Vec<Commit>,
}

impl ReplicaGroup {
    fn new(schema: Arc<TableSchema>) -> Self {
        let open = |_| {
            let engine = Arc::new(MemoryEngine::new());
            let table = open(&engine, &schema);
            table.finish_replay().unwrap();
            Replica { engine, table }
        };
        Self {
            logs: schema.first_tablets().map(|tablet| (tablet, Vec::new())).collect(),
            replicas: (0..N_REPLICAS).map(open).collect(),
            lake: vec![LakeVersion::default()],
            commits: Vec::new(),
            schema,
        }
    }

    fn log(&mut self, tablet: TabletId) -> &mut Vec<Entry> {
        &mut self.logs.iter_mut().find(|(id, _)| *id == tablet).unwrap().1
    }

    fn table(&self, who: usize) -> &Table {
        &self.replicas[who].table
    }

    /// Applies up to `n` more entries of each tablet; tablets that come to be on the way too.
    fn follow(&mut self, who: usize, n: usize) {
        for (tablet, log) in &self.logs {
            let table = &self.replicas[who].table;
            if table.tablet_map().range(*tablet).is_none() {
                continue;
            }
            let first = table.applied(*tablet).0 as usize;
            for (at, entry) in log.iter().enumerate().skip(first).take(n) {
                table.apply(*tablet, SeqNo(at as u64 + 1), entry).unwrap();
            }
        }
    }

    /// A leader has applied all there is.
    fn lead(&mut self, who: usize) {
        self.follow(who, usize::MAX);
    }

    /// What a replica says of a request.
    fn outcome(&self, who: usize, request: u64) -> Option<Vec<StatementOutcome>> {
        first_outcome_within(&*self.replicas[who].engine, id_of(request), TUNING.kept_requests).unwrap()
    }

    fn write(&mut self, leader: usize, asks: &[(Op, i64, i64)], mut request: Option<u64>) {
        self.lead(leader);
        if request.is_some_and(|request| self.outcome(leader, request).is_some()) {
            return;
        }
        let mut batch = BatchBuilder::new(&self.schema);
        for (op, id, v) in asks {
            let key = encode_key(&self.schema, &[Value::Int64(*id)]).unwrap();
            let all = values(*id, Some(*v), None);
            match op {
                Op::Put => batch.put(&key, &encode_cells(&self.schema, &all).unwrap(), None),
                Op::Insert => batch.insert(&key, &encode_cells(&self.schema, &all).unwrap()),
                Op::Create => batch.create(&key, &encode_cells(&self.schema, &all).unwrap()),
                Op::Patch => batch.patch(&key, &encode_patch(&self.schema, &[(0, all[0].clone())]).unwrap(), None),
                Op::Delete => batch.delete(&key, None),
            }
        }
        let tablets = self.table(leader).tablet_map();
        for (tablet, part) in batch.finish().cut(&tablets).unwrap() {
            let seqno = SeqNo(self.log(tablet).len() as u64 + 1);
            let table = self.table(leader);
            let known = table.look_up(tablet, &part, table.applied(tablet)).unwrap();
            // A row that lies in the lake alone needs its base: not what is tested here.
            let (outcome, effects) = table.resolve(seqno, known, &UnderWay::default()).unwrap();
            let is_applied = matches!(outcome, Outcome::Applied { .. });
            let entry = match request.filter(|_| is_applied) {
                Some(named) => {
                    request = None;
                    let statements =
                        vec![StatementOutcome { digest: named, rows: u64::from(tablet.0) * 1_000 + seqno.0 }];
                    let effects = effects.unwrap_or_else(|| EffectsBuilder::new(&self.schema).finish(None));
                    Entry::Named(Arc::new(NamedEffects::new(Request { id: id_of(named), statements }, effects)))
                }
                None => match effects {
                    Some(effects) => Entry::Effects(effects),
                    None => continue,
                },
            };
            self.append(leader, tablet, entry);
        }
    }

    fn append(&mut self, leader: usize, tablet: TabletId, entry: Entry) -> SeqNo {
        let log = self.log(tablet);
        // What others apply has no columns.
        log.push(Entry::from_bytes(entry.to_bytes()).unwrap());
        let seqno = SeqNo(log.len() as u64);
        self.table(leader).apply(tablet, seqno, &entry).unwrap();
        seqno
    }

    fn freeze(&mut self, leader: usize) {
        self.lead(leader);
        for (tablet, audit) in self.table(leader).to_freeze() {
            self.append(leader, tablet, Entry::Freeze(audit));
        }
    }

    fn split(&mut self, leader: usize, id: i64) {
        self.lead(leader);
        let at = encode_key(&self.schema, &[Value::Int64(id)]).unwrap();
        let Ok((tablet, split)) = self.table(leader).plan_split(&at) else { return };
        let new = split.new;
        let seqno = self.append(leader, tablet, Entry::Split(split));
        self.logs.push((new, vec![Entry::Freeze(None); seqno.0 as usize]));
    }

    fn deliver(&mut self, who: usize) {
        let Some(frozen) = self.table(who).frozen().unwrap() else { return };
        let last = self.lake.last().unwrap();
        // Who is behind, or was overtaken, is refused.
        if frozen.version != last.version || !frozen.cursor.covers(&last.cursor) {
            return;
        }
        let mut next = last.clone();
        for (file, dead) in frozen.dead {
            *next.dead.entry(file).or_default() |= dead;
        }
        next.cursor = frozen.cursor.clone();
        let mut rows = rows_of(&frozen.rows);
        rows.sort();
        self.commit(next, rows, Some(frozen.cursor));
    }

    fn compact(&mut self) {
        let last = self.lake.last().unwrap();
        let rows: Vec<ModelRow> = last.live().map(|(.., row)| row.clone()).collect();
        let next = LakeVersion { files: Default::default(), dead: Default::default(), ..last.clone() };
        self.commit(next, rows, None);
    }

    fn commit(&mut self, mut next: LakeVersion, rows: Vec<ModelRow>, cursor: Option<Cursor>) {
        next.version = next.version.next();
        let added = FileId(next.version.0);
        next.files.insert(added, rows);
        self.lake.push(next);
        self.commits.push(Commit { cursor, added });
    }

    /// True: the next version is installed. False: there is none, or the replica has not applied so much.
    fn install(&self, who: usize) -> bool {
        let table = self.table(who);
        let (Version(installed), _) = table.installed();
        let Some(commit) = self.commits.get(installed as usize) else { return false };
        let version = &self.lake[installed as usize + 1];
        let places = vec![placed(commit.added, &version.files[&commit.added])];
        let stage = match &commit.cursor {
            Some(cursor) => {
                let gone = died(&self.schema, &self.lake, version.version);
                Stage::repair(version.version, cursor.clone(), places, gone)
            }
            None => Stage::compaction(version.version, places),
        };
        let is_applied = commit.cursor.as_ref().is_none_or(|cursor| {
            let applied = table.applied_cursor();
            cursor.iter().all(|(tablet, seqno)| applied.get(tablet) >= seqno)
        });
        let done = table.stage(&stage).and_then(|staged| table.install(staged));
        assert_eq!(done.is_ok(), is_applied, "{done:?}");
        is_applied
    }

    /// The engine keeps what was flushed; the log is there as far as it was applied, and more of it.
    fn crash(&mut self, who: usize) {
        let replica = &mut self.replicas[who];
        replica.engine = Arc::new(replica.engine.crash());
        replica.table = open(&replica.engine, &self.schema);
        let table = &replica.table;
        for (tablet, log) in &self.logs {
            if table.tablet_map().range(*tablet).is_none() {
                continue;
            }
            let first = table.replayed_up_to(*tablet).0 as usize;
            for (at, entry) in log.iter().enumerate().skip(first) {
                table.replay(*tablet, SeqNo(at as u64 + 1), entry).unwrap();
            }
        }
        table.finish_replay().unwrap();
    }

    /// What the log says, up to a position.
    fn truth_at(&self, position: &Cursor) -> Truth {
        let mut truth = Truth::new();
        for (tablet, log) in &self.logs {
            for (at, entry) in log.iter().enumerate().take(position.get(*tablet).0 as usize) {
                for Effect { key, cells } in entry.effects().iter().flat_map(|effects| effects.iter()) {
                    let Value::Int64(id) = decode_key(&self.schema, key).unwrap()[0] else { unreachable!() };
                    truth.remove(&id);
                    if let Some(cells) = cells {
                        let all = decode_row(&self.schema, key, cells).unwrap();
                        let v = if let Value::Int64(v) = all[0] { Some(v) } else { None };
                        truth.insert(id, ModelRow { id, v, s: None, seqno: at as u64 + 1 });
                    }
                }
            }
        }
        truth
    }

    /// What a replica has to know of a request: the outcomes that some tablet keeps, its own and those of the tablets
    /// that had its keys.
    fn known(&self, who: usize, request: u64) -> Vec<Vec<StatementOutcome>> {
        let (table, mut known) = (self.table(who), Vec::new());
        for tablet in table.tablet_map().ids() {
            let applied = table.applied(tablet);
            let (mut of, mut upto) = (tablet, applied);
            loop {
                let born = table.born(of);
                let after = born.map_or(0, |(_, at)| at.0);
                let log = &self.logs.iter().find(|(id, _)| *id == of).unwrap().1;
                for (seqno, entry) in (1..).zip(log).skip(after as usize).take_while(|(seqno, _)| *seqno <= upto.0) {
                    let named = entry.request().filter(|named| named.id == id_of(request));
                    known.extend(
                        named.filter(|_| applied.0 - seqno <= TUNING.kept_requests).map(|of| of.statements.clone()),
                    );
                }
                let Some((parent, at)) = born else { break };
                (of, upto) = (parent, at);
            }
        }
        known
    }

    fn check(&self, who: usize) {
        for request in 0..N_REQUESTS {
            let (found, known) = (self.outcome(who, request), self.known(who, request));
            match found {
                Some(found) => assert!(known.contains(&found), "request {request}: {found:?} of {known:?}"),
                None => assert!(known.is_empty(), "request {request} is forgotten: {known:?}"),
            }
        }
        let snapshot = self.table(who).snapshot().unwrap();
        let truth = self.truth_at(snapshot.position());
        let lake = &self.lake[snapshot.version().0 as usize];
        let recent = rows_of(&snapshot.recent(None, true).unwrap());
        assert_same(&merge(lake, &snapshot.hidden().unwrap(), recent), &truth, "lake and recent rows");
        for id in 0..N_IDS {
            let key = encode_key(&self.schema, &[Value::Int64(id)]).unwrap();
            let found = match snapshot.get(&key).unwrap() {
                Lookup::Absent => None,
                Lookup::Row { seqno, .. } => Some(seqno),
                Lookup::InLake(address) => {
                    let row = &lake.files[&address.file][address.row as usize];
                    assert_eq!(Some(row), truth.get(&id));
                    Some(address.seqno)
                }
            };
            assert_eq!(found, truth.get(&id).map(|row| SeqNo(row.seqno)), "row {id} of replica {who}");
        }
    }

    fn run(mut self, steps: Vec<ReplicaOp>) {
        for step in steps {
            match step {
                ReplicaOp::Write { leader, asks, request } => self.write(leader, &asks, request),
                ReplicaOp::Follow(who, n) => self.follow(who, n),
                ReplicaOp::Freeze(who) => self.freeze(who),
                ReplicaOp::Deliver(who) => self.deliver(who),
                ReplicaOp::Compact => self.compact(),
                ReplicaOp::Install(who) => drop(self.install(who)),
                ReplicaOp::Split { leader, id } => self.split(leader, id),
                ReplicaOp::Evict(who) => while !self.table(who).evict(i64::MAX, 7).unwrap().done {},
                ReplicaOp::Flush(who) => self.table(who).flush().unwrap(),
                ReplicaOp::Crash(who) => self.crash(who),
            }
            (0..N_REPLICAS).for_each(|who| self.check(who));
        }
        for who in 0..N_REPLICAS {
            // Two times: a tablet may come to be by the first.
            (0..self.logs.len()).for_each(|_| self.follow(who, usize::MAX));
            while self.install(who) {}
            self.check(who);
            assert_eq!(self.table(who).installed().0, self.lake.last().unwrap().version, "all is installed");
        }
        let positions: Vec<Cursor> = self.replicas.iter().map(|replica| replica.table.applied_cursor()).collect();
        assert!(positions.windows(2).all(|pair| pair[0] == pair[1]), "{positions:?}");
    }
}

fn id_of(request: u64) -> RequestId {
    RequestId { origin: request + 1, sequence: request }
}

fn open(engine: &Arc<MemoryEngine>, schema: &Arc<TableSchema>) -> Table {
    Table::open_tuned(
        Arc::<MemoryEngine>::clone(engine),
        Arc::clone(schema),
        Arc::new(ManualClock::new(0)),
        TUNING,
        Arc::default(),
    )
    .unwrap()
}

fn by_range() -> Arc<TableSchema> {
    let mut one = TableSchema::clone(&schema(false));
    (one.options.tablets, one.options.partitioning) = (1, Partitioning::Range);
    Arc::new(one)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replicas_of_a_hashed_table_come_to_the_same(steps in proptest::collection::vec(step(), 1..60)) {
        ReplicaGroup::new(schema(false)).run(steps);
    }

    #[test]
    fn replicas_of_a_table_by_range_come_to_the_same(steps in proptest::collection::vec(step(), 1..60)) {
        ReplicaGroup::new(by_range()).run(steps);
    }
}

/// Rows that are not what their log says are found by the next freeze but one on another replica, and by a restart on
/// the same.
#[test]
fn a_replica_that_went_astray_is_told() {
    let mut group = ReplicaGroup::new(by_range());
    let tablet = group.schema.first_tablet;
    group.write(0, &[(Op::Put, 1, 1)], None);
    group.freeze(0);
    group.follow(1, 9);
    group.write(0, &[(Op::Put, 2, 2)], None);
    // The other one applies something else at the same place.
    let mut other = BatchBuilder::new(&group.schema);
    other.put(
        &encode_key(&group.schema, &[Value::Int64(2)]).unwrap(),
        &encode_cells(&group.schema, &values(2, Some(3), None)).unwrap(),
        None,
    );
    let other = Entry::Effects(tarn_types::Effects::of_rows(&other.finish()).unwrap());
    group.table(1).apply(tablet, SeqNo(3), &other).unwrap();
    group.freeze(0);
    group.follow(1, 9);
    group.write(0, &[(Op::Put, 3, 3)], None);
    group.follow(1, 9);
    group.lead(0);
    let audit = group.table(0).audit(tablet);
    let told = group.table(1).apply(tablet, SeqNo(6), &Entry::Freeze(audit)).unwrap_err();
    assert!(matches!(told, tarn_rows::Error::Diverged { after: SeqNo(2), upto: SeqNo(4), .. }), "{told}");

    group.table(1).flush().unwrap();
    let engine = Arc::new(group.replicas[1].engine.crash());
    let again = open(&engine, &group.schema);
    let log = group.logs[0].1.clone();
    let replayed = log.iter().enumerate().map(|(at, entry)| again.replay(tablet, SeqNo(at as u64 + 1), entry));
    let told = replayed.collect::<Result<Vec<()>, _>>().unwrap_err();
    assert!(matches!(told, tarn_rows::Error::Diverged { after: SeqNo(2), upto: SeqNo(4), .. }), "{told}");
}

/// A replica may hear of two splits before it installs what was delivered between them: what the third tablet has is in
/// the log of the first.
#[test]
fn a_tablet_of_a_tablet_comes_back_from_the_first_ones_log() {
    let put = |leader, id| ReplicaOp::Write { leader, asks: vec![(Op::Put, id, 0)], request: None };
    ReplicaGroup::new(by_range()).run(vec![
        put(0, 21),
        ReplicaOp::Split { leader: 0, id: 0 },
        ReplicaOp::Deliver(0),
        put(1, 0),
        ReplicaOp::Install(1),
        ReplicaOp::Split { leader: 1, id: 1 },
        put(0, 0),
        ReplicaOp::Flush(0),
        ReplicaOp::Crash(0),
    ]);
}

/// What was delivered before two splits is delivered of the third tablet, too.
#[test]
fn a_delivery_from_before_two_splits_is_installed_in_all_three() {
    let mut group = ReplicaGroup::new(by_range());
    group.write(0, &[(Op::Put, 1, 0), (Op::Put, 11, 0), (Op::Put, 21, 0)], None);
    group.freeze(0);
    group.deliver(0);
    assert!(group.install(0));
    group.split(0, 10);
    group.write(0, &[(Op::Put, 12, 0)], None);
    group.freeze(0);
    group.split(0, 20);
    group.follow(1, 9);
    group.follow(1, 9);
    assert_eq!(
        group.table(1).tablet_map().len(),
        2,
        "the second split waits: its tablet came with what is not delivered"
    );
    group.deliver(0);
    assert!(group.install(0));
    group.split(0, 20);
    (0..3).for_each(|_| group.follow(1, 9));
    assert_eq!(group.table(1).tablet_map().len(), 3);
    assert!(group.install(1), "the first version, whose cursor names one tablet");
    let (_, installed) = group.table(1).installed();
    let first = installed.iter().map(|(_, seqno)| seqno).collect::<Vec<_>>();
    assert_eq!(first, [SeqNo(2); 3]);
    (0..2).for_each(|who| group.check(who));
    while group.install(1) {}
    (0..2).for_each(|who| group.check(who));
}

/// As many outcomes are on the disk as may be asked for, and a few more, however many there were; those of a dropped
/// table are gone.
#[test]
fn outcomes_that_are_forgotten_are_deleted() {
    let mut group = ReplicaGroup::new(by_range());
    let tablet = group.logs[0].0;
    let outcomes = |group: &ReplicaGroup| {
        let snapshot = group.replicas[0].engine.snapshot();
        let count = |tag: u8| {
            let (mut found, mut n) = (snapshot.scan(Space::Meta, vec![tag]..vec![tag + 1]), 0);
            while found.next().unwrap().is_some() {
                n += 1;
            }
            n
        };
        (count(b'd'), count(b'q'))
    };
    let named = |n: u64| {
        let request = Request { id: id_of(n), statements: Vec::new() };
        Entry::Named(Arc::new(NamedEffects::new(request, EffectsBuilder::new(&by_range()).finish(None))))
    };
    let kept = TUNING.kept_requests;
    for n in 0..100 {
        group.append(0, tablet, named(n));
        let (by_name, by_age) = outcomes(&group);
        assert_eq!(by_name, by_age);
        assert!(by_name <= kept as usize + 1, "{by_name} after {n}");
    }
    for n in 0..100 {
        assert_eq!(group.outcome(0, n).is_some(), n + kept >= 99, "request {n}");
    }
    // Nobody makes requests any more, and deliveries go on.
    for id in 0..=kept as i64 {
        group.write(0, &[(Op::Put, id, 1)], None);
    }
    group.freeze(0);
    assert_eq!(outcomes(&group), (0, 0));

    // Made again, it is younger than what it was.
    group.append(0, tablet, named(7));
    for _ in 1..kept {
        group.append(0, tablet, Entry::Freeze(None));
    }
    assert!(group.outcome(0, 7).is_some());
    group.append(0, tablet, named(8));
    group.table(0).drop_data().unwrap();
    assert_eq!(outcomes(&group), (0, 0));
}
