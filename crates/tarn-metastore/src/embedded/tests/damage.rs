//! Is every damage seen, and is nothing else taken for one?

use super::*;

#[test]
fn a_log_cut_at_any_byte_opens_to_what_was_answered_before() {
    let (dir, held, ends) = run_script(Limits::default());
    let name = last_log(dir.path()).file_name().unwrap().to_owned();
    let whole = fs::read(last_log(dir.path())).unwrap();
    for len in 0..=whole.len() {
        let copied = scratch().unwrap();
        fs::write(copied.path().join(&name), &whole[..len]).unwrap();
        // A step is in once its record is whole, whether or not its seal is.
        let steps = ends.iter().rposition(|end| *end == HEADER || *end - SEAL <= len as u64).unwrap_or(0);
        let (metastore, _) = open(copied.path()).unwrap();
        assert_eq!(describe(&metastore), held[steps], "cut at byte {len}");
        if len % 16 != 0 {
            continue;
        }
        // It goes on from there: what is written next is there after another start.
        runtime().block_on(metastore.create_table(contract::sample_schema("later"))).unwrap();
        let now = describe(&metastore);
        drop(metastore);
        assert_eq!(describe(&open(copied.path()).unwrap().0), now);
    }
}

/// With one table's block metadata in packs, and another's in a log that is covered by the checkpoint.
fn with_all_kinds_of_files() -> (TempDir, Vec<String>) {
    let (dir, held, _) = run_script(READY);
    let files = files_in(dir.path());
    let has = |part: &str| files.iter().any(|file| file.to_string_lossy().contains(part));
    assert!(has("log-") && has("checkpoint-") && has(".pack"), "{files:?}");
    (dir, held)
}

#[test]
fn a_checkpoint_or_a_pack_cut_anywhere_is_detected() {
    let (dir, _) = with_all_kinds_of_files();
    for name in files_in(dir.path()) {
        let whole = fs::read(dir.path().join(&name)).unwrap();
        if name.to_string_lossy().contains("log-") || whole.is_empty() {
            continue;
        }
        for len in 0..whole.len() {
            let copied = copy(dir.path());
            fs::write(copied.path().join(&name), &whole[..len]).unwrap();
            let error = open(copied.path()).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{name:?} cut at {len}: {error}");
        }
    }
}

#[test]
fn a_flipped_byte_anywhere_is_detected_or_harmless() {
    let some = Limits { log_bytes: 700, patience: 1, ..Limits::default() };
    for limits in [some, READY, Limits::default()] {
        let (dir, held, _) = run_script(limits);
        for name in files_in(dir.path()) {
            let whole = fs::read(dir.path().join(&name)).unwrap();
            let copied = copy(dir.path());
            for at in 0..whole.len() {
                // Opening may cut a log or write a seal.
                for file in files_in(dir.path()).iter().filter(|file| **file != name) {
                    fs::copy(dir.path().join(file), copied.path().join(file)).unwrap();
                }
                let mut bytes = whole.clone();
                bytes[at] ^= 0x20;
                fs::write(copied.path().join(&name), &bytes).unwrap();
                let opened = open(copied.path());
                let read =
                    opened.and_then(|(metastore, _)| runtime().block_on(read_all(&metastore)).map(|()| metastore));
                match read {
                    Err(Error::Corrupt { path, offset, .. }) => {
                        assert_eq!(path, copied.path().join(&name));
                        assert!(offset <= at as u64, "byte {at}, reported at {offset}");
                    }
                    Err(error) => panic!("byte {at}: {error}"),
                    // A seal says nothing that is not known without it.
                    Ok(metastore) => {
                        assert_eq!(
                            &describe(&metastore),
                            held.last().unwrap(),
                            "byte {at} of {name:?} changed the answer unseen"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_missing_file_is_detected() {
    let (dir, _) = with_all_kinds_of_files();
    let some = run_script(Limits { log_bytes: 700, patience: 1, ..Limits::default() }).0;
    for dir in [dir, some] {
        for name in files_in(dir.path()).iter().filter(|name| !name.ends_with("lock")) {
            let copied = copy(dir.path());
            fs::remove_file(copied.path().join(name)).unwrap();
            let error = open(copied.path()).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "without {name:?}: {error}");
        }
    }
}

#[test]
fn a_seal_that_was_lost_with_the_power_is_no_corruption() {
    let (dir, held, ends) = run_script(Limits::default());
    let path = last_log(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    for end in &ends[1..] {
        bytes[(*end - SEAL) as usize..*end as usize].fill(0);
    }
    fs::write(&path, bytes).unwrap();
    assert_eq!(&describe(&open(dir.path()).unwrap().0), held.last().unwrap());
}

#[test]
fn a_write_whose_pages_came_in_another_order_is_torn_unless_it_was_answered() {
    let (dir, held, ends) = run_script(Limits::default());
    let whole = fs::read(last_log(dir.path())).unwrap();
    let name = last_log(dir.path()).file_name().unwrap().to_owned();
    // The first frame of a write that has another valid one behind it is lost.
    let writes = ends.windows(2).map(|pair| (pair[0] as usize, pair[1] as usize)).zip(&held);
    let with_block_metadata = writes.filter(|((start, end), _)| start < end && whole[start + 16] == 4);
    let mut n_writes = 0;
    for ((start, end), before) in with_block_metadata {
        n_writes += 1;
        let opened = |end: usize| {
            let copied = scratch().unwrap();
            let mut bytes = whole[..end].to_vec();
            bytes[start..start + 30].fill(0);
            fs::write(copied.path().join(&name), bytes).unwrap();
            open(copied.path()).map(|(metastore, _)| describe(&metastore))
        };
        assert_eq!(&opened(end - SEAL as usize).unwrap(), before, "never answered");
        let error = opened(end).unwrap_err();
        assert!(matches!(error, Error::Corrupt { offset, .. } if offset == start as u64), "{error}");
    }
    assert_eq!(n_writes, 3);
}

#[test]
fn space_that_a_log_took_ahead_is_not_torn() {
    let dir = scratch().unwrap();
    let (metastore, _) = open_with(dir.path(), READY).unwrap();
    let runtime = runtime();
    runtime.block_on(metastore.create_table(contract::sample_schema("t"))).unwrap();
    let crashed = copy(dir.path());
    // As a crash leaves it that comes before the space of the log before is given back, and before the checkpoint is
    // whole.
    let first = fs::read(last_log(dir.path())).unwrap();
    runtime.block_on(metastore.maintain(1)).unwrap();
    runtime.block_on(metastore.create_table(contract::sample_schema("u"))).unwrap();
    let turned = copy(dir.path());
    fs::write(turned.path().join(last_log(crashed.path()).file_name().unwrap()), &first).unwrap();
    files_in(turned.path()).iter().filter(|file| file.to_string_lossy().contains("checkpoint")).for_each(|file| {
        fs::remove_file(turned.path().join(file)).unwrap();
    });
    let held = describe(&metastore);
    drop(metastore);
    assert!(fs::metadata(last_log(dir.path())).unwrap().len() < 1 << 12, "the space is given back");

    assert!(first.len() > 1 << 19 && first.ends_with(&[0; 4096]), "{} bytes", first.len());
    let (metastore, recovery) = open(turned.path()).unwrap();
    assert_eq!((describe(&metastore), recovery), (held, Recovery { records: 2, torn_bytes: 0 }));

    // What lies behind is part of a write that never came to its end.
    let path = last_log(crashed.path());
    let mut bytes = first;
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    bytes[end as usize + 10_000] = 1;
    fs::write(&path, &bytes).unwrap();
    let (metastore, recovery) = open(crashed.path()).unwrap();
    assert_eq!(recovery, Recovery { records: 1, torn_bytes: 10_001 });
    drop(metastore);
    assert_eq!(fs::metadata(&path).unwrap().len(), end + SEAL);
}

#[test]
fn what_was_not_finished_is_deleted() {
    let (dir, held) = with_all_kinds_of_files();
    let before = files_in(dir.path());
    fs::write(dir.path().join("checkpoint-00000000000000000099.tmp"), b"half").unwrap();
    fs::write(dir.path().join("log-upkeep.tmp"), b"half").unwrap();
    fs::write(dir.path().join("packs/1/-1-99.tmp"), b"half").unwrap();
    fs::write(dir.path().join("packs/1/-1-98.pack"), b"whole, and named by nothing").unwrap();
    let metastore = open(dir.path()).unwrap().0;
    assert_eq!(&describe(&metastore), held.last().unwrap());
    runtime().block_on(metastore.maintain(1)).unwrap();
    assert_eq!(files_in(dir.path()), before);
}

/// A log that is cut short names no packs: opened by mistake, it must not cost those of the right one.
#[test]
fn packs_survive_the_opening_of_a_log_that_was_cut_short() {
    let (dir, held) = with_all_kinds_of_files();
    let before = files_in(dir.path());
    let [kept, path] = [dir.path().join("kept"), dir.path().to_owned()];
    fs::create_dir(&kept).unwrap();
    let logs: Vec<_> =
        files_in(&path).into_iter().filter(|file| file.extension().is_some_and(|it| it == "tarn")).collect();
    for log in &logs {
        fs::rename(path.join(log), kept.join(log)).unwrap();
    }
    drop(open(&path).unwrap());
    for log in files_in(&path).into_iter().filter(|file| file.parent() == Some(Path::new(""))) {
        fs::remove_file(path.join(log)).unwrap();
    }
    for log in &logs {
        fs::rename(kept.join(log), path.join(log)).unwrap();
    }
    fs::remove_dir(&kept).unwrap();
    assert_eq!(&describe(&open(&path).unwrap().0), held.last().unwrap());
    assert_eq!(files_in(&path), before);
}

#[test]
fn a_newer_format_is_named() {
    let (dir, ..) = run_script(Limits::default());
    let path = last_log(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = codec::FORMAT + 1;
    let crc = crc32c::crc32c(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let error = open(dir.path()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(&format!("format version {}", codec::FORMAT + 1)), "{error}");
}
