//! What is one segment file, and how does it come to be used, and used again?
//!
//! [`Segment`] is one use of a file: what in it lives, and what must be durable before the file may be used again. A
//! file gets its name when it is whole, keeps it for good, and is overwritten in place: a new number and a new salt in
//! its header make an empty segment of it, and no byte of an earlier use passes for one of the new.
//!
//! The header is there twice, written one after the other: a torn write leaves the other copy.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::buffer::Buffers;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::format::{BLOCK, FIRST_FRAME, PACKED_UNIT, SegmentHeader};
use crate::metrics::SegmentInfo;
use crate::options::{Durability, Options};

/// Of files that are whole.
pub const EXTENSION: &str = ".seg";
/// Of files that are being made.
pub const TEMPORARY: &str = ".tmp";

/// One use of one file.
pub struct Segment {
    /// Its number: the order of segments. A file has another one each time it is used again.
    pub seq: u64,
    /// Stays the same however often the file is used again.
    pub path: PathBuf,
    /// Open for reads and writes.
    pub file: Arc<dyn DiskFile>,
    /// In every frame of this use.
    pub salt: u64,
    /// Length of the file; when it is sealed, with its seal.
    pub size_bytes: AtomicU64,
    /// Frames start at multiples of this.
    pub unit: u64,
    /// End of the last frame.
    pub end: AtomicU64,
    /// No more frames come, and the file says so.
    pub sealed: AtomicBool,
    /// Live entries and group records, and their bytes.
    live_items: AtomicU64,
    live_bytes: AtomicU64,
    /// All that were ever put in it.
    born_bytes: AtomicU64,
    /// The batch that killed the latest of the dead: the file may be used again when it is durable.
    killed_by: AtomicU64,
}

impl Segment {
    /// An empty segment; what lives in it is told by [`Segment::born`].
    pub fn new(header: &SegmentHeader, path: PathBuf, file: Arc<dyn DiskFile>, size_bytes: u64) -> Segment {
        Segment {
            seq: header.seq,
            path,
            file,
            salt: header.salt,
            size_bytes: size_bytes.into(),
            unit: header.unit,
            end: FIRST_FRAME.into(),
            sealed: false.into(),
            live_items: 0.into(),
            live_bytes: 0.into(),
            born_bytes: 0.into(),
            killed_by: 0.into(),
        }
    }

    #[cfg(test)]
    pub fn for_tests(disk: &dyn Disk, seq: u64) -> Arc<Segment> {
        let header = SegmentHeader { store: 0, seq, salt: seq, reserved_bytes: 0, unit: BLOCK };
        let path = PathBuf::from(format!("/{seq}"));
        let file = disk.create(&path, 0).expect("memory has room");
        Arc::new(Segment::new(&header, path, file, 0))
    }

    /// Of the file.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// No more frames come.
    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Live entries and group records; 0: the file may be used again once `killed_by` is durable.
    pub fn live_items(&self) -> u64 {
        self.live_items.load(Ordering::Acquire)
    }

    /// Payloads and records that live.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed)
    }

    /// The number of the batch that killed the latest of the dead.
    pub fn killed_by(&self) -> u64 {
        self.killed_by.load(Ordering::Acquire)
    }

    /// What the living would take if they were copied: their bytes, less what packing saves. Padding is not alive.
    pub fn live_disk_bytes(&self) -> u64 {
        let (live, born) = (self.live_bytes(), self.born_bytes.load(Ordering::Relaxed).max(1));
        let share = u128::from(self.end.load(Ordering::Relaxed)) * u128::from(live) / u128::from(born);
        live.min(share as u64)
    }

    /// Entries or records were put in it.
    pub fn born(&self, items: u64, bytes: u64) {
        self.live_items.fetch_add(items, Ordering::AcqRel);
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.born_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What [`crate::RaftLog::segments`] says of it.
    pub fn info(&self) -> SegmentInfo {
        let live_bytes = self.live_bytes();
        SegmentInfo {
            seq: self.seq,
            path: self.path.clone(),
            size_bytes: self.size_bytes(),
            sealed: self.is_sealed(),
            live_bytes,
            dead_bytes: self.born_bytes.load(Ordering::Relaxed).saturating_sub(live_bytes),
            live_items: self.live_items(),
        }
    }

    /// Recovery: all that was ever put in it.
    pub fn set_born_bytes(&self, bytes: u64) {
        self.born_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The killer is noted before the dead are counted: who sees nothing living sees who killed the last.
    pub fn died(&self, items: u64, bytes: u64, killer_lsn: u64) {
        self.killed_by.fetch_max(killer_lsn, Ordering::AcqRel);
        let lived = self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let lived = (self.live_items.fetch_sub(items, Ordering::AcqRel), lived);
        assert!(lived.0 >= items && lived.1 >= bytes, "more died in {} than lived", self.path.display());
    }
}

/// What all segments of an open log have in common.
pub struct Ident {
    /// The number of the log.
    pub store: u64,
    /// Frames start at multiples of this: blocks, unless frames are not flushed.
    pub unit: u64,
}

impl Ident {
    /// Of a log that is opened with these options.
    pub fn new(store: u64, options: &Options) -> Ident {
        let unit = if options.sync == Durability::Os { PACKED_UNIT } else { BLOCK };
        Ident { store, unit }
    }

    fn header(&self, seq: u64, salt: u64, reserved_bytes: u64) -> SegmentHeader {
        SegmentHeader { store: self.store, seq, salt, reserved_bytes, unit: self.unit }
    }
}

/// Writes both copies of a header, the first durable before the second begins.
pub fn write_header(file: &dyn DiskFile, header: &SegmentHeader, buffers: &Buffers) -> io::Result<()> {
    let mut buffer = buffers.take(BLOCK as usize);
    buffer.extend(&header.encode());
    file.write_durable(buffer.bytes(), 0)?;
    file.write_durable(buffer.bytes(), BLOCK)?;
    buffers.give(buffer);
    Ok(())
}

/// Makes an empty segment of a file in which nothing lives any more.
pub fn renew(disk: &dyn Disk, ident: &Ident, old: &Segment, seq: u64, buffers: &Buffers) -> Result<Arc<Segment>> {
    let reserved = old.size_bytes();
    let header = ident.header(seq, disk.salt(), reserved);
    write_header(&*old.file, &header, buffers).map_err(Error::io("renew", &old.path))?;
    Ok(Arc::new(Segment::new(&header, old.path.clone(), Arc::clone(&old.file), reserved)))
}

/// A new file on its way to be a segment: its space is reserved. Where frames will be flushed it is filled with zeros,
/// step by step, because the first write to reserved space changes the file system's metadata, and a flush must then
/// wait for its journal.
pub struct Preparation {
    temporary: PathBuf,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    reserved_bytes: u64,
    filled_bytes: u64,
}

/// Zeros of one step: a sixteenth of the file within these.
const FILL_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=2 << 20;

impl Preparation {
    /// `slot`: the number in the file's name, which no file has.
    pub fn begin(disk: &dyn Disk, options: &Options, slot: u64, reserved_bytes: u64) -> Result<Preparation> {
        let dir = &options.dir;
        let path = dir.join(format!("{slot:016}{EXTENSION}"));
        let temporary = dir.join(format!("{slot:016}{TEMPORARY}"));
        match disk.create(&temporary, reserved_bytes) {
            Ok(file) => {
                let filled_bytes = if options.sync == Durability::Os { reserved_bytes } else { 0 };
                Ok(Preparation { temporary, path, file, reserved_bytes, filled_bytes })
            }
            Err(source) => {
                // A leftover is removed by the next open; nothing depends on it.
                let _ = disk.remove(&temporary);
                Err(no_space(path, source))
            }
        }
    }

    /// How long the file will be.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// How far it is, of 1000.
    pub fn per_mille(&self) -> u64 {
        self.filled_bytes * 1000 / self.reserved_bytes.max(1)
    }

    /// Zeros written so far.
    pub fn filled_bytes(&self) -> u64 {
        self.filled_bytes
    }

    /// Fills some more. `true`: all of it is filled.
    pub fn fill(&mut self, buffers: &Buffers) -> Result<bool> {
        let step = (self.reserved_bytes / 16).clamp(*FILL_BYTES.start(), *FILL_BYTES.end());
        let n = step.min(self.reserved_bytes - self.filled_bytes);
        if n > 0 {
            let mut buffer = buffers.take(n as usize);
            buffer.zeros(n as usize);
            self.file.write_at(buffer.bytes(), self.filled_bytes).map_err(|e| no_space(self.path.clone(), e))?;
            buffers.give(buffer);
            self.filled_bytes += n;
        }
        Ok(self.filled_bytes == self.reserved_bytes)
    }

    /// An empty segment under its final name, durable.
    pub fn finish(
        self,
        disk: &dyn Disk,
        dir: &Path,
        ident: &Ident,
        seq: u64,
        buffers: &Buffers,
    ) -> Result<Arc<Segment>> {
        let header = ident.header(seq, disk.salt(), self.reserved_bytes);
        let finish = || -> io::Result<()> {
            write_header(&*self.file, &header, buffers)?;
            self.file.sync()?;
            disk.rename(&self.temporary, &self.path)?;
            disk.sync_dir(dir)
        };
        if let Err(source) = finish() {
            self.abandon(disk);
            return Err(no_space(self.path, source));
        }
        Ok(Arc::new(Segment::new(&header, self.path, self.file, self.reserved_bytes)))
    }

    /// Removes the file; what cannot be removed the next open removes.
    pub fn abandon(&self, disk: &dyn Disk) {
        let _ = disk.remove(&self.temporary);
    }
}

fn no_space(path: PathBuf, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace { path, source },
        _ => Error::Io { action: "create", path, source },
    }
}
