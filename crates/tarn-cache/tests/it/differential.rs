//! Whatever happens to the store, the folder and the process, a read through the cache gives what the store gives.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use object_store::path::Path;
use object_store::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tarn_cache::{ObjectState, PageOptions, PageStore, ReadRequest, Trust};

use crate::stores::*;

const PATHS: [&str; 4] = ["t/a", "t/b", "u/c", "u/d"];

struct CacheHarness {
    dice: StdRng,
    inner: Arc<TestStore>,
    folder: tempfile::TempDir,
    options: PageOptions,
    trust: Trust,
    store: Option<PageStore>,
    /// What each ETag of each path stood for.
    history: HashMap<(Path, String), Vec<u8>>,
    states: Vec<(Path, ObjectState)>,
    n_written: u64,
}

impl CacheHarness {
    fn new(seed: u64, trust: Trust) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let options = PageOptions {
            page_bytes: [16, 64, 100][dice.random_range(0..3)],
            ram_bytes: [0, 300, 1 << 20][dice.random_range(0..3)],
            folder: dice.random_bool(0.7).then(|| folder.path().to_owned()),
            disk_bytes: [0, 6 * 4096, 1 << 20][dice.random_range(0..3)],
            waiting_bytes: [150, 1 << 20][dice.random_range(0..2)],
            coalesce_gap_bytes: [0, 100, 1_000][dice.random_range(0..3)],
            max_request_bytes: [1, 200, 1 << 20][dice.random_range(0..3)],
        };
        let inner = TestStore::seeded(seed);
        let store = Some(cached(&inner, options.clone(), trust));
        let (history, states) = Default::default();
        CacheHarness { dice, inner, folder, options, trust, store, history, states, n_written: 0 }
    }

    fn store(&self) -> &PageStore {
        self.store.as_ref().unwrap()
    }

    fn path(&mut self) -> Path {
        // A store that is written once has new names all the time, and the younger ones are read.
        match self.trust {
            Trust::Checked => Path::from(PATHS[self.dice.random_range(0..4)]),
            Trust::WrittenOnce => {
                let back = self.dice.random_range(0..4).min(self.n_written);
                Path::from(format!("t/{}", self.n_written - back))
            }
        }
    }

    async fn put(&mut self) {
        self.n_written += 1;
        let path =
            if self.trust == Trust::WrittenOnce { Path::from(format!("t/{}", self.n_written)) } else { self.path() };
        let n = self.dice.random_range(0..700);
        let content = bytes(self.dice.random(), n);
        if self.dice.random() {
            let _ = self.store().put(&path, content.clone().into()).await; // an error, but it happened
        } else {
            self.inner.put_plain(path.as_ref(), content.clone()).await;
        }
        let meta = self.inner.plain.head(&path).await.unwrap();
        self.history.insert((path.clone(), meta.e_tag.clone().unwrap()), content);
        self.states.push((path, ObjectState::of(&meta)));
    }

    fn range(&mut self) -> GetRange {
        let (start, n) = (self.dice.random_range(0..750), self.dice.random_range(1..400));
        match self.dice.random_range(0..6) {
            0 => GetRange::Suffix(n),
            1 => GetRange::Offset(start),
            2 => GetRange::Bounded(start..start),
            _ => GetRange::Bounded(start..start + n),
        }
    }

    /// Repeats what only an injected fault made fail; after a while the store recovers.
    async fn until_answered<T>(&self, read: impl AsyncFn(&PageStore) -> Result<T>) -> Result<T> {
        for attempt in 0.. {
            match read(self.store()).await {
                Err(Error::Generic { source, .. }) if attempt < 40 && is_fault(source.to_string()) => {}
                Err(Error::Generic { source, .. }) if attempt == 40 && is_fault(source.to_string()) => {
                    self.inner.faults_percent.store(0, Ordering::Relaxed);
                }
                answer => return answer,
            }
        }
        unreachable!()
    }

    async fn read(&mut self) {
        let path = self.path();
        let range = self.dice.random_bool(0.8).then(|| self.range());
        let options = || GetOptions { range: range.clone(), ..GetOptions::default() };
        let fetch = async |store: &dyn ObjectStore| store.get_opts(&path, options()).await?.bytes().await;
        let expected = fetch(self.inner.plain.as_ref()).await;
        let got = self.until_answered(async |store: &PageStore| fetch(store).await).await;
        assert_same(&got, &expected, &format!("{path} {range:?}"));
    }

    async fn read_ranges(&mut self) {
        let path = self.path();
        let ranges: Vec<_> = (0..self.dice.random_range(0..6))
            .map(|_| {
                let start = self.dice.random_range(0..600);
                start..start + self.dice.random_range(1..300)
            })
            .collect();
        let expected = self.inner.plain.get_ranges(&path, &ranges).await;
        if expected.is_err() && ranges.is_empty() {
            return; // a plain store does not look whether it exists
        }
        let got = self.until_answered(async |store: &PageStore| store.get_ranges(&path, &ranges).await).await;
        match (got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{path} {ranges:?}"),
            (Err(_), Err(_)) => {}
            (got, expected) => panic!("{path} {ranges:?}: {got:?}, the store says {expected:?}"),
        }
    }

    /// Of a state that may be gone by now.
    async fn read_state(&mut self) {
        if self.states.is_empty() {
            return;
        }
        let (path, state) = self.states[self.dice.random_range(0..self.states.len())].clone();
        let etag = state.etag.clone().unwrap();
        let content = self.history[&(path.clone(), etag.clone())].clone();
        let start = self.dice.random_range(0..400);
        let range = start..start + 200;
        let as_condition = self.dice.random::<bool>();
        let got = self
            .until_answered(async |store: &PageStore| {
                if as_condition {
                    let options = GetOptions {
                        range: Some(range.clone().into()),
                        if_match: Some(etag.clone()),
                        ..GetOptions::default()
                    };
                    store.get_opts(&path, options).await?.bytes().await
                } else {
                    let ask = ReadRequest { state: Some(state.clone()), ..ReadRequest::default() };
                    Ok(store.read_ranges(&path, std::slice::from_ref(&range), &ask).await?.remove(0))
                }
            })
            .await;
        match got {
            Ok(got) => assert_eq!(got, content[start as usize..content.len().min(start as usize + 200)]),
            Err(Error::Precondition { .. } | Error::NotFound { .. }) => {
                let now = self.inner.plain.head(&path).await;
                assert!(now.is_err() || now.unwrap().e_tag != Some(etag), "{path} is still as it was");
            }
            Err(_) => assert!(start as usize >= content.len()),
        }
    }

    fn damage(&mut self) {
        if self.options.folder.is_none() {
            return;
        }
        let files = page_files(self.folder.path());
        if files.is_empty() {
            return;
        }
        let file = &files[self.dice.random_range(0..files.len())];
        let Ok(mut content) = fs::read(file) else { return }; // the writer is at work
        match self.dice.random_range(0..4) {
            0 => drop(fs::remove_file(file)),
            1 => drop(fs::write(file, &content[..self.dice.random_range(0..=content.len())])),
            2 => drop(fs::copy(&files[self.dice.random_range(0..files.len())], file)),
            _ if content.is_empty() => {}
            _ => {
                let bit = self.dice.random_range(0..content.len() * 8);
                content[bit / 8] ^= 1 << (bit % 8);
                drop(fs::write(file, content));
            }
        }
    }

    fn restart(&mut self) {
        if self.dice.random() {
            self.store().cache().write_waiting();
        }
        self.store = None;
        self.store = Some(cached(&self.inner, self.options.clone(), self.trust));
    }

    async fn step(&mut self) {
        match self.dice.random_range(0..100) {
            0..15 => self.put().await,
            15..18 => {
                let path = self.path();
                let _ = self.store().delete(&path).await;
            }
            18..45 => self.read().await,
            45..70 => self.read_ranges().await,
            70..80 => self.read_state().await,
            80..82 => drop(self.store().cache().clear(None, None)),
            82..84 => drop(self.store().cache().clear(None, Some(&Path::from("t")))),
            84..86 => self.restart(),
            // Past the cache, a short read is the store's own.
            86..88 if self.store().cache().is_on() => {
                self.inner.faults_percent.store(self.dice.random_range(0..40), Ordering::Relaxed)
            }
            88..91 => {
                let on = self.dice.random_bool(0.9);
                self.store().cache().set_on(on);
                self.inner.faults_percent.store(0, Ordering::Relaxed);
            }
            91..93 => self.store().cache().resume_writing(),
            _ => self.damage(),
        }
    }
}

fn is_fault(source: String) -> bool {
    source.contains("503") || source.contains("bytes for")
}

fn assert_same(got: &Result<Bytes>, expected: &Result<Bytes>, what: &str) {
    match (got, expected) {
        (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{what}"),
        (Err(got), Err(expected)) => assert_eq!(
            matches!(got, Error::NotFound { .. }),
            matches!(expected, Error::NotFound { .. }),
            "{what}: {got}, the store says {expected}"
        ),
        (got, expected) => panic!("{what}: {got:?}, the store says {expected:?}"),
    }
}

async fn run(trust: Trust, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut world = CacheHarness::new(seed, trust);
        for _ in 0..400 {
            world.step().await;
        }
    }
}

#[tokio::test]
async fn reads_of_objects_that_others_overwrite_equal_the_stores() {
    run(Trust::Checked, 0..40).await;
}

#[tokio::test]
async fn reads_of_objects_that_are_written_once_equal_the_stores() {
    run(Trust::WrittenOnce, 100..140).await;
}
