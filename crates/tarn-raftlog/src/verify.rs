//! Is every stored byte what was written?
//!
//! Reads all frames of all segments, also those that opening skips, and goes on after damage, to name all of it.

use std::path::Path;

use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::format::{self, Record};
use crate::options::{Damage, VerifyReport};
use crate::recovery::{self, Loaded, LoadedBatch};

pub fn verify(disk: &dyn Disk, dir: &Path) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let listing = recovery::list(disk, dir)?;
    let Some(store) = recovery::read_format(disk, dir)? else { return Ok(report) };
    let mut unfinished: Option<Damage> = None;
    for (seq, path) in listing.segments {
        let file = disk.open(&path).map_err(Error::io("open", &path))?;
        let checked = segment(&*file, &path, seq, store, &mut report);
        match checked {
            Ok(loaded) if loaded.batches.is_empty() && !loaded.sealed => continue,
            Ok(loaded) => {
                report.n_segments += 1;
                report.damages.extend(unfinished.take());
                if !loaded.sealed {
                    let what = "segment was never finished, but a later one has entries".to_string();
                    report.torn_tail = loaded.torn.then(|| (path.clone(), loaded.end));
                    unfinished = Some(Damage { path, offset: loaded.end, what });
                }
            }
            Err(Error::Corrupt { path, offset, what }) => report.damages.push(Damage { path, offset, what }),
            Err(error) => return Err(error),
        }
    }
    Ok(report)
}

fn segment(file: &dyn DiskFile, path: &Path, seq: u64, store: u64, report: &mut VerifyReport) -> Result<Loaded> {
    let header = recovery::read_header(file, path, seq, store)?;
    let size_bytes = file.size_bytes().map_err(Error::io("read size of", path))?;
    report.bytes_read += size_bytes;
    let sealed = recovery::load_sealed(file, path, header, size_bytes)?;
    // A seal bounds the frames: what follows them is not a torn tail.
    let bound = sealed.as_ref().map_or(size_bytes, |s| s.end);
    let scanned = recovery::scan(file, path, header, bound)?;
    count(&scanned.batches, report);
    let Some(sealed) = sealed else {
        if size_bytes < header.reserved_bytes {
            return Err(Error::corrupt(path, size_bytes, "file without a seal is shorter than reserved"));
        }
        return Ok(scanned);
    };
    if scanned.end != sealed.end || !same(&scanned.batches, &sealed.batches) {
        return Err(Error::corrupt(path, scanned.end, "damaged frame in a sealed segment"));
    }
    Ok(sealed)
}

fn same(a: &[LoadedBatch], b: &[LoadedBatch]) -> bool {
    let equal = |(a, b): (&LoadedBatch, &LoadedBatch)| {
        (a.lsn, a.data_offset, a.data_bytes) == (b.lsn, b.data_offset, b.data_bytes)
            && a.head_and_meta == b.head_and_meta
    };
    a.len() == b.len() && a.iter().zip(b).all(equal)
}

fn count(batches: &[LoadedBatch], report: &mut VerifyReport) {
    for batch in batches {
        report.n_batches += 1;
        let records = format::decode_records(&batch.head_and_meta[format::BATCH_HEAD..]).unwrap_or_default();
        let entries = records.iter().map(|r| if let Record::Entries(e) = r { e.table.len() as u64 } else { 0 });
        report.n_entries += entries.sum::<u64>();
    }
}
