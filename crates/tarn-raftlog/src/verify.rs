//! Is every stored byte what was written?
//!
//! Reads all frames of all segments, also those that opening skips, and goes on after damage, to name all of it.

use std::path::Path;

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::BATCH_HEAD;
use crate::options::{Damage, VerifyReport};
use crate::record::{self, RecordView};
use crate::recovery;
use crate::tail::{self, Loaded};

pub fn verify(disk: &dyn Disk, dir: &Path) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let listing = recovery::list(disk, dir)?;
    let Some(store) = recovery::read_format(disk, dir)? else { return Ok(report) };
    let mut segments = Vec::new();
    for (_, path) in listing.segments {
        let file = disk.open(&path).map_err(Error::io("open", &path))?;
        report.bytes_read += file.size_bytes().map_err(Error::io("read size of", &path))?;
        match tail::open(file, &path, store) {
            Ok(loaded) => segments.push((path, loaded)),
            Err(Error::Corrupt { path, offset, what }) => report.damages.push(Damage { path, offset, what }),
            Err(error) => return Err(error),
        }
    }
    segments.sort_by_key(|(_, segment)| segment.header.seq);
    let mut unfinished: Option<Damage> = None;
    for (path, segment) in segments {
        let loaded = check(segment, &path, &mut report)?;
        if loaded.torn && !loaded.sealed && loaded.damage.is_none() {
            report.torn_tail = Some((path.clone(), loaded.end));
        }
        report.damages.extend(loaded.damage.clone());
        if loaded.is_empty() {
            continue;
        }
        report.n_segments += 1;
        report.damages.extend(unfinished.take());
        if !loaded.sealed {
            let what = "segment was never finished, but a later one has entries".to_string();
            unfinished = Some(Damage { path, offset: loaded.end, what });
        }
    }
    Ok(report)
}

/// Reads all frames; of a sealed segment they must be those of its seal.
fn check(mut segment: Loaded, path: &Path, report: &mut VerifyReport) -> Result<Loaded> {
    let what = |what: &str, offset: u64| Damage { path: path.to_path_buf(), offset, what: what.to_string() };
    if !segment.header_is_whole {
        report.mendable.push(what("one of the two copies of the header is not whole", 0));
    }
    let bound = if segment.sealed { segment.end } else { segment.size_bytes };
    let mut scanned = segment.unread();
    tail::scan(&mut scanned, path, bound)?;
    count(&scanned, report);
    if !segment.sealed {
        return Ok(scanned);
    }
    if scanned.end != segment.end || !same(&scanned, &segment) {
        segment.damage = Some(what("damaged frame in a sealed segment", scanned.end));
    }
    Ok(segment)
}

fn same(a: &Loaded, b: &Loaded) -> bool {
    let equal = |(x, y): (&tail::LoadedBatch, &tail::LoadedBatch)| {
        (x.lsn, x.data_offset, x.data_bytes) == (y.lsn, y.data_offset, y.data_bytes)
            && a.head_and_meta(x) == b.head_and_meta(y)
    };
    a.batches.len() == b.batches.len() && a.batches.iter().zip(&b.batches).all(equal)
}

fn count(loaded: &Loaded, report: &mut VerifyReport) {
    for batch in &loaded.batches {
        report.n_batches += 1;
        let records = record::decode_records(&loaded.head_and_meta(batch)[BATCH_HEAD..]).unwrap_or_default();
        let entries = records.iter().map(|r| if let RecordView::Entries(e) = r { e.n as u64 } else { 0 });
        report.n_entries += entries.sum::<u64>();
    }
}
