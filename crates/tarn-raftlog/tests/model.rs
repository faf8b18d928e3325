//! Does the log equal a plain map per group, whatever is done to it and wherever the power goes?
//!
//! Random steps on a simulated disk with 16–64 KiB segments, so that rollover, rewriting and deletion happen all the
//! time. A history of models is kept, one for each submitted batch: after a crash the log must equal one of them, and
//! none older than the last batch that was acknowledged. `PROPTEST_CASES` sets how many histories are tried.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tarn_raftlog::{Durability, Error, ErrorKind, GroupId, Index, MemoryDisk, Options, RaftLog, Term, Ticket};

#[derive(Debug, Clone)]
enum ModelOp {
    Append { group: u64, back: u64, lens: Vec<usize>, new_term: bool },
    Truncate { group: u64, back: u64 },
    Purge { group: u64, keep: u64 },
    Skip { group: u64, ahead: u64 },
    State { group: u64, len: usize },
    Put { group: u64, key: u8, value: Option<u8> },
    Destroy { group: u64 },
}

#[derive(Debug, Clone)]
enum LogStep {
    Submit {
        ops: Vec<ModelOp>,
        wait: bool,
    },
    Sync,
    Collect(u64),
    Reopen,
    Kill,
    /// Pull the plug after so many more disk steps.
    Plug(u64),
    CutNow,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ModelGroup {
    floor: u64,
    floor_term: u64,
    last: u64,
    entries: BTreeMap<u64, (u64, Vec<u8>)>,
    state: Option<Vec<u8>>,
    pairs: BTreeMap<u8, u8>,
}

type LogModel = BTreeMap<u64, ModelGroup>;

fn ops() -> impl Strategy<Value = Vec<ModelOp>> {
    let group = 0u64..4;
    let len = prop_oneof![8 => 0usize..300, 2 => 300usize..5000, 1 => 5000usize..20000];
    let op = prop_oneof![
        12 => (group.clone(), prop_oneof![6 => Just(0u64), 1 => 1u64..6], prop::collection::vec(len, 1..5), any::<bool>())
            .prop_map(|(group, back, lens, new_term)| ModelOp::Append { group, back, lens, new_term }),
        1 => (group.clone(), 0u64..6).prop_map(|(group, back)| ModelOp::Truncate { group, back }),
        4 => (group.clone(), 0u64..6).prop_map(|(group, keep)| ModelOp::Purge { group, keep }),
        1 => (group.clone(), 1u64..5).prop_map(|(group, ahead)| ModelOp::Skip { group, ahead }),
        2 => (group.clone(), 0usize..40).prop_map(|(group, len)| ModelOp::State { group, len }),
        1 => (group.clone(), 0u8..3, any::<Option<u8>>())
            .prop_map(|(group, key, value)| ModelOp::Put { group, key, value }),
        1 => group.prop_map(|group| ModelOp::Destroy { group }),
    ];
    prop::collection::vec(op, 1..4)
}

fn steps() -> impl Strategy<Value = Vec<LogStep>> {
    let step = prop_oneof![
        30 => (ops(), any::<bool>()).prop_map(|(ops, wait)| LogStep::Submit { ops, wait }),
        2 => Just(LogStep::Sync),
        4 => prop_oneof![Just(0), Just(u64::MAX)].prop_map(LogStep::Collect),
        1 => Just(LogStep::Reopen),
        1 => Just(LogStep::Kill),
        2 => (0u64..40).prop_map(LogStep::Plug),
        1 => Just(LogStep::CutNow),
    ];
    prop::collection::vec(step, 1..60)
}

/// Content that no other entry has.
fn payload(len: usize, salt: u64) -> Vec<u8> {
    (0..len).map(|i| (i as u64 * 31 + salt * 7 + (salt >> 8)) as u8).collect()
}

struct LogHarness {
    disk: MemoryDisk,
    options: Options,
    log: Option<RaftLog>,
    /// Model after each submitted batch; the first is what the last open found.
    history: Vec<LogModel>,
    /// No older model than this may be found after a crash.
    acknowledged: usize,
    n_payloads: u64,
    term: u64,
}

impl LogHarness {
    fn new(seed: u64, segment_bytes: u64, cache_bytes: u64) -> LogHarness {
        let disk = MemoryDisk::new(seed);
        let options = Options { segment_bytes, cache_bytes, sync: Durability::Durable, ..Options::new("/log") };
        let (log, _) = RaftLog::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
        LogHarness {
            disk,
            options,
            log: Some(log),
            history: vec![LogModel::new()],
            acknowledged: 0,
            n_payloads: 0,
            term: 1,
        }
    }

    fn step(&mut self, step: &LogStep) {
        let failed = match step {
            LogStep::Submit { ops, wait } => self.submit(ops, *wait),
            LogStep::Sync => {
                let done = self.log.as_ref().unwrap().sync();
                self.note(done)
            }
            LogStep::Collect(budget) => {
                let done = self.log.as_ref().unwrap().collect_garbage(*budget);
                done.map_err(|e| assert!(matches!(e.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{e}"))
                    .is_err()
            }
            LogStep::Reopen => {
                let done = self.log.as_ref().unwrap().sync();
                let failed = self.note(done);
                if !failed {
                    self.reopen();
                }
                failed
            }
            LogStep::Kill => {
                self.log = None;
                self.disk.kill_process();
                self.reopen();
                false
            }
            LogStep::Plug(steps) => {
                self.disk.pull_plug_in(*steps);
                false
            }
            LogStep::CutNow => true,
        };
        if failed {
            self.log = None;
            self.disk.cut_power();
            self.reopen();
        } else {
            self.check();
        }
    }

    fn note(&mut self, done: Result<(), Error>) -> bool {
        match done {
            Ok(()) => {
                self.acknowledged = self.history.len() - 1;
                false
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
                true
            }
        }
    }

    fn submit(&mut self, ops: &[ModelOp], wait: bool) -> bool {
        let log = self.log.as_ref().unwrap();
        let mut batch = log.batch();
        let mut model = self.history.last().unwrap().clone();
        for op in ops {
            match op {
                ModelOp::Append { group, back, lens, new_term } => {
                    self.term += u64::from(*new_term);
                    let g = model.entry(*group).or_default();
                    let first = g.last.saturating_sub(*back).max(g.floor) + 1;
                    let entries: Vec<Vec<u8>> = lens
                        .iter()
                        .map(|&len| {
                            self.n_payloads += 1;
                            payload(len, self.n_payloads)
                        })
                        .collect();
                    batch.append(GroupId(*group), Term(self.term), Index(first), entries.iter().map(|e| &e[..]));
                    g.entries.split_off(&first);
                    for (index, entry) in (first..).zip(entries) {
                        g.entries.insert(index, (self.term, entry));
                        g.last = index;
                    }
                }
                ModelOp::Truncate { group, back } => {
                    let g = model.entry(*group).or_default();
                    g.last = g.last.saturating_sub(*back).max(g.floor);
                    g.entries.split_off(&(g.last + 1));
                    batch.truncate_after(GroupId(*group), Index(g.last));
                }
                ModelOp::Purge { group, keep } => {
                    let g = model.entry(*group).or_default();
                    let upto = g.last.saturating_sub(*keep);
                    let term = g.entries.get(&upto).map_or(0, |e| e.0);
                    batch.purge(GroupId(*group), Index(upto), Term(term));
                    if upto > g.floor {
                        (g.floor, g.floor_term) = (upto, term);
                        g.entries = g.entries.split_off(&(upto + 1));
                    }
                }
                ModelOp::Skip { group, ahead } => {
                    let g = model.entry(*group).or_default();
                    let upto = g.last + ahead;
                    batch.purge(GroupId(*group), Index(upto), Term(self.term));
                    (g.floor, g.floor_term, g.last) = (upto, self.term, upto);
                    g.entries.clear();
                }
                ModelOp::State { group, len } => {
                    self.n_payloads += 1;
                    let state = payload(*len, self.n_payloads);
                    batch.state(GroupId(*group), &state);
                    model.entry(*group).or_default().state = Some(state);
                }
                ModelOp::Put { group, key, value } => {
                    batch.put(GroupId(*group), &[*key], value.as_ref().map(std::slice::from_ref));
                    let g = model.entry(*group).or_default();
                    match value {
                        Some(value) => g.pairs.insert(*key, *value),
                        None => g.pairs.remove(key),
                    };
                }
                ModelOp::Destroy { group } => {
                    batch.destroy(GroupId(*group));
                    model.remove(group);
                }
            }
        }
        let submitted = log.submit(batch);
        match submitted {
            Ok(ticket) => {
                self.history.push(model);
                let done: Option<Result<(), Error>> = wait.then(|| Ticket::wait(&ticket));
                done.is_some_and(|done| self.note(done))
            }
            Err(error) => {
                // Only the plug was pulled, perhaps while a spare segment was made: nothing of the batch was done.
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                true
            }
        }
    }

    fn reopen(&mut self) {
        self.log = None;
        let opened = RaftLog::open_on(Arc::new(self.disk.clone()), self.options.clone());
        let log = match opened {
            Ok((log, _)) => log,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                // The plug was pulled during recovery.
                self.disk.cut_power();
                match RaftLog::open_on(Arc::new(self.disk.clone()), self.options.clone()) {
                    Ok((log, _)) => log,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let candidates = &self.history[self.acknowledged..];
        let found = candidates.iter().rev().find(|model| difference(&log, model).is_none());
        let Some(found) = found else {
            let why: Vec<_> = candidates.iter().map(|m| difference(&log, m)).collect();
            panic!("the log after a crash equals none of the {} allowed states: {why:?}", candidates.len());
        };
        self.history = vec![found.clone()];
        self.acknowledged = 0;
        self.log = Some(log);
    }

    fn check(&self) {
        let difference = difference(self.log.as_ref().unwrap(), self.history.last().unwrap());
        assert_eq!(difference, None);
    }
}

fn difference(log: &RaftLog, model: &LogModel) -> Option<String> {
    for group in 0..4 {
        let nothing = ModelGroup::default();
        let (id, want) = (GroupId(group), model.get(&group).unwrap_or(&nothing));
        if (log.first_index(id).0, log.last_index(id).0) != (want.floor + 1, want.last) {
            return Some(format!(
                "group {group}: {}..={}, want {}..={}",
                log.first_index(id),
                log.last_index(id),
                want.floor + 1,
                want.last
            ));
        }
        let read = match log.entries(id, Index(want.floor + 1)..Index(want.last + 1), usize::MAX) {
            Ok(read) => read,
            // The disk is off: what is not in memory cannot be compared now.
            Err(error) if error.kind() == ErrorKind::Unavailable => continue,
            Err(error) => return Some(error.to_string()),
        };
        let got: Vec<_> = read.into_iter().map(|e| (e.index.0, (e.term.0, e.payload.to_vec()))).collect();
        if got != want.entries.iter().map(|(k, v)| (*k, v.clone())).collect::<Vec<_>>() {
            return Some(format!("group {group}: entries differ"));
        }
        let terms_agree = want.entries.iter().all(|(&i, e)| log.term(id, Index(i)) == Some(Term(e.0)));
        let floor_agrees = want.floor == 0 || log.term(id, Index(want.floor)) == Some(Term(want.floor_term));
        if !terms_agree || !floor_agrees || log.term(id, Index(want.last + 1)).is_some() {
            return Some(format!("group {group}: terms differ"));
        }
        if log.log_bytes(id) != want.entries.values().map(|e| e.1.len() as u64).sum::<u64>() {
            return Some(format!("group {group}: byte totals differ"));
        }
        let pairs: BTreeMap<u8, u8> = (0..3).filter_map(|k| Some((k, log.get(id, &[k])?[0]))).collect();
        if log.state(id).map(|s| s.to_vec()) != want.state || pairs != want.pairs {
            return Some(format!("group {group}: state or pairs differ"));
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn log_equals_its_model_through_crashes(
        seed: u64,
        segment_kib in 16u64..64,
        cache in prop_oneof![Just(0u64), Just(20_000), Just(1 << 30)],
        steps in steps(),
    ) {
        let mut world = LogHarness::new(seed, segment_kib << 10, cache);
        for step in &steps {
            world.step(step);
        }
        // What is left is sound, byte for byte.
        world.disk.kill_process();
        world.log = None;
        let report = RaftLog::verify_on(&world.disk, &world.options.dir).unwrap();
        prop_assert!(report.is_sound(), "{:?}", report);
    }
}
