//! Is any byte of a lake file that is not what was written an error that names the file, whoever reads it, and never a
//! row?

use object_store::ObjectStoreExt;
use object_store::path::Path;

use tarn_lake::{Options, ScrubPosition};
use tarn_metastore::{Checksums, File};
use tarn_types::Kind;

use crate::test_data::Event;
use crate::world::{LakeHarness, small, to_events};

const COLUMNS: [&str; 5] = ["device", "at", "reading", "note", "__seqno"];

fn columns() -> Vec<String> {
    COLUMNS.map(str::to_owned).to_vec()
}

fn path(file: &File) -> Path {
    Path::from(file.path.as_str())
}

fn sums(file: &File) -> &Checksums {
    file.checksums.as_ref().expect("every file that is written has checksums")
}

async fn bytes(world: &LakeHarness, file: &File) -> Vec<u8> {
    world.store.inner.get(&path(file)).await.unwrap().bytes().await.unwrap().to_vec()
}

async fn put(world: &LakeHarness, file: &File, bytes: Vec<u8>) {
    world.store.inner.put(&path(file), bytes.into()).await.unwrap();
}

/// The rows of one block, or an error that names the file.
async fn block(world: &LakeHarness, file: &File, block: usize) -> Option<Vec<Event>> {
    let of = &file.blocks[block];
    let rows: Vec<u32> = (of.first_row as u32..(of.first_row + of.n_rows) as u32).collect();
    match world.lake.read_rows(file, &rows, &columns()).await {
        Ok(read) => Some(to_events(&read)),
        Err(error) => {
            assert_eq!(error.kind(), Kind::Corrupt, "{error}");
            assert!(error.to_string().contains(&file.path), "{error}");
            None
        }
    }
}

/// Three files of two blocks, all of them small enough to be compacted.
async fn world() -> LakeHarness {
    let world = LakeHarness::new(Options { target_file_rows: 100, compact_files: 100, ..small() }).await;
    for from in [0, 4, 8] {
        (from..from + 4).for_each(|at| world.hot.put(["a", "b"][at as usize % 2], at));
        world.deliver().await;
    }
    world
}

#[tokio::test]
async fn a_flipped_bit_anywhere_in_a_file_is_named_and_never_a_row() {
    let _scenario = fail::FailScenario::setup();
    let world = world().await;
    let version = world.latest().await;
    let file = version.files[1].clone();
    let (whole, truth) = (bytes(&world, &file).await, world.rows_of(&file).await);
    assert_eq!((whole.len() as u64, file.blocks.len()), (sums(&file).size_bytes(), 2));
    let cuts = sums(&file).cuts().to_vec();
    assert_eq!(cuts.len(), 2, "each block ends where a piece does");
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        put(&world, &file, damaged).await;
        let of_byte = cuts.iter().filter(|cut| **cut <= at as u64).count();
        for idx in 0..2 {
            let read = block(&world, &file, idx).await;
            // A footer is everybody's.
            let is_damaged = of_byte == idx || of_byte == 2;
            let rows = &truth[idx * 2..idx * 2 + 2];
            assert_eq!(read.as_deref(), (!is_damaged).then_some(rows), "byte {at}, block {idx}");
        }
        let stretch = world.lake.check_stretch(&file, 0, u64::MAX).await.unwrap();
        let place = ["(block 0, columns device, at, reading, note, __seqno)", "(block 1, ", "(its footer)"][of_byte];
        assert_eq!(stretch.flaws.len(), 1, "byte {at}: {:?}", stretch.flaws);
        assert!(stretch.flaws[0].contains(&file.path) && stretch.flaws[0].contains(place), "{:?}", stretch.flaws);
    }
    put(&world, &file, whole).await;
    assert_eq!(block(&world, &file, 0).await.unwrap(), truth[..2]);
    assert_eq!(world.lake.check_stretch(&file, 0, u64::MAX).await.unwrap().flaws, [""; 0]);
    world.check().await;
}

#[tokio::test]
async fn a_damaged_file_is_not_compacted_and_stops_no_other() {
    let _scenario = fail::FailScenario::setup();
    let world = world().await;
    let before = world.latest().await;
    let file = before.files[1].clone();
    let whole = bytes(&world, &file).await;
    for at in (0..whole.len()).step_by(37) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        put(&world, &file, damaged).await;
        let error = world.lake.compact_fully(&world.hot()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "byte {at}");
        assert!(error.to_string().contains(&file.path), "byte {at}: {error}");
        assert_eq!(world.latest().await.version, before.version, "the table is as it was");
        assert_eq!(world.lake.flaws().of_table(world.table.id).len(), 1);
        put(&world, &file, whole.clone()).await;
        world.lake.look_again(world.table.id).await.unwrap();
        assert!(world.lake.flaws().all().is_empty());
    }
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    put(&world, &file, damaged).await;
    assert!(world.lake.compact_fully(&world.hot()).await.is_err());
    let compacted = world.compact_fully().await.expect("the others are small");
    assert_eq!((compacted.files_before, compacted.rows), (2, 8));
    assert!(world.compact_fully().await.is_none(), "it is left alone");
    assert!(world.latest().await.file(file.id).is_some());
    put(&world, &file, whole).await;
    world.lake.look_again(world.table.id).await.unwrap();
    while world.compact_fully().await.is_some() {}
    assert!(world.latest().await.file(file.id).is_none(), "it was rewritten with the rest");
    world.check().await;
}

#[tokio::test]
async fn a_file_that_was_cut_swapped_zeroed_or_lost_is_named() {
    let _scenario = fail::FailScenario::setup();
    let world = world().await;
    let version = world.latest().await;
    let (file, other) = (version.files[0].clone(), version.files[2].clone());
    let (whole, foreign) = (bytes(&world, &file).await, bytes(&world, &other).await);
    let truth = world.rows_of(&file).await;
    let mut swapped = foreign.clone();
    swapped.resize(whole.len(), 0);
    let cuts = [0, 1, whole.len() / 2, whole.len() - 1].map(|len| whole[..len].to_vec());
    for damaged in cuts.into_iter().chain([swapped, vec![0; whole.len()]]) {
        put(&world, &file, damaged).await;
        for idx in 0..2 {
            let read = block(&world, &file, idx).await;
            assert!(read.is_none_or(|rows| rows == truth[idx * 2..idx * 2 + 2]));
        }
        assert!(!world.lake.check_stretch(&file, 0, u64::MAX).await.unwrap().flaws.is_empty());
        assert!(world.lake.compact_fully(&world.hot()).await.is_err());
        put(&world, &file, whole.clone()).await;
        world.lake.look_again(world.table.id).await.unwrap();
    }
    // What was written is all there.
    let longer = [whole.clone(), vec![7; 100]].concat();
    put(&world, &file, longer).await;
    assert_eq!(block(&world, &file, 1).await.unwrap(), truth[2..]);
    let flaws = world.lake.check_stretch(&file, 0, u64::MAX).await.unwrap().flaws;
    assert_eq!(flaws, [format!("{} is {} bytes, want {}", file.path, whole.len() + 100, whole.len())]);
    world.store.inner.delete(&path(&file)).await.unwrap();
    let flaws = world.lake.check_stretch(&file, 0, u64::MAX).await.unwrap().flaws;
    assert_eq!(flaws, [format!("{} is missing", file.path)]);
}

#[tokio::test]
async fn what_a_crash_left_is_not_made_good_from_damaged_bytes() {
    let _scenario = fail::FailScenario::setup();
    let mut world = world().await;
    (0..12).for_each(|at| world.hot.put("a", at));
    fail::cfg("lake::after_commit", "1*return").unwrap();
    world.lake.deliver(&world.hot()).await.unwrap_err();
    world.crash();
    let version = world.latest().await;
    let mut n_refused = 0;
    for file in &version.files {
        let whole = bytes(&world, file).await;
        let mut damaged = whole.clone();
        damaged[10] ^= 4;
        put(&world, file, damaged).await;
        // Its keys are read only if it came, or had rows that died, with the commit.
        if let Err(error) = world.lake.repair(&world.hot()).await {
            assert_eq!(error.kind(), Kind::Corrupt, "{error}");
            assert!(error.to_string().contains(&file.path), "{error}");
            n_refused += 1;
        }
        put(&world, file, whole).await;
    }
    assert!(n_refused > 0, "repair reads files");
    world.lake.repair(&world.hot()).await.unwrap();
    world.check().await;
}

#[tokio::test]
async fn a_scrub_goes_round_and_tells_each_damage_once() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(Options { row_group_rows: 500, target_file_rows: 1000, ..Options::default() }).await;
    (0..3000).for_each(|at| world.hot.put("a", at));
    world.deliver().await;
    let version = world.latest().await;
    assert_eq!(version.files.len(), 3);
    let mut round = ScrubPosition::default();
    let all = world.lake.scrub(&mut round, u64::MAX).await.unwrap();
    assert_eq!((all.bytes, all.files, all.is_round, all.found.len()), (version.size_bytes(), 3, true, 0));

    let file = version.files[1].clone();
    let whole = bytes(&world, &file).await;
    let mut damaged = whole.clone();
    damaged[whole.len() / 3] ^= 2;
    put(&world, &file, damaged).await;
    // A step is a piece.
    let (mut found, mut steps) = (vec![], 0);
    while steps < 18 {
        let scrubbed = world.lake.scrub(&mut round, 1).await.unwrap();
        steps += 1;
        assert_eq!(scrubbed.is_round, steps % 9 == 0, "step {steps}");
        found.extend(scrubbed.found);
    }
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].file, found[0].table), (file.id, world.table.id));
    assert!(found[0].what.contains("(block 0, columns"), "{}", found[0].what);
    assert_eq!(world.lake.flaws().all(), found);
    put(&world, &file, whole).await;
    world.lake.scrub(&mut round, u64::MAX).await.unwrap();
    world.lake.scrub(&mut round, u64::MAX).await.unwrap();
    assert!(world.lake.flaws().all().is_empty(), "it is whole again");
    assert!(world.lake.scrub(&mut ScrubPosition::default(), 0).await.unwrap().bytes == 0);
}
