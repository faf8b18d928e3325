//! What is one segment file, and how does the newest one grow?
//!
//! [`Segment`] is what the log knows of a file: how much in it lives, and what must be durable before it may go.
//! [`Writer`] is used by one committer at a time: it writes frames at the end of the active segment and seals it
//! when frames move on to the next. A segment gets its first frame only after the one before is sealed and durable,
//! so only the newest segment with frames can have a torn tail.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::format::{self, BLOCK, FRAME_HEADER, FrameHeader, FrameKind, SegmentHeader, Trailer};
use crate::options::Durability;

pub const EXTENSION: &str = ".seg";
pub const TEMPORARY: &str = ".tmp";

#[derive(Clone)]
pub struct Segment {
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
    pub salt: u64,
    pub size_bytes: u64,
    pub sealed: bool,
    /// Live entries and group records.
    pub live_items: u64,
    pub live_bytes: u64,
    /// The batch that killed the latest of the dead: the file may go when it is durable.
    pub killed_by: u64,
}

impl Segment {
    pub fn new(path: PathBuf, file: Arc<dyn DiskFile>, salt: u64, size_bytes: u64) -> Segment {
        Segment { path, file, salt, size_bytes, sealed: false, live_items: 0, live_bytes: 0, killed_by: 0 }
    }

    pub fn born(&mut self, items: u64, bytes: u64) {
        self.live_items += items;
        self.live_bytes += bytes;
    }

    pub fn died(&mut self, items: u64, bytes: u64, killer_lsn: u64) {
        assert!(
            items <= self.live_items && bytes <= self.live_bytes,
            "more died in {} than lived",
            self.path.display()
        );
        self.live_items -= items;
        self.live_bytes -= bytes;
        self.killed_by = self.killed_by.max(killer_lsn);
    }
}

pub fn segment_path(dir: &Path, seq: u64) -> PathBuf {
    dir.join(format!("{seq:016}{EXTENSION}"))
}

/// A new segment without frames, under its final name and durable, its space reserved.
pub fn create(disk: &dyn Disk, dir: &Path, store: u64, seq: u64, reserved_bytes: u64) -> Result<Segment> {
    let path = segment_path(dir, seq);
    let temporary = dir.join(format!("{seq:016}{TEMPORARY}"));
    let salt = disk.salt();
    let create = || -> io::Result<Arc<dyn DiskFile>> {
        let file = disk.create(&temporary, reserved_bytes)?;
        let header = SegmentHeader { store, seq, salt, reserved_bytes }.encode();
        file.write_at(&mut [IoSlice::new(&header)], 0)?;
        file.sync_all()?;
        disk.rename(&temporary, &path)?;
        disk.sync_dir(dir)?;
        Ok(file)
    };
    match create() {
        Ok(file) => Ok(Segment::new(path, file, salt, reserved_bytes)),
        Err(source) => {
            // A leftover is removed by the next open; nothing depends on it.
            let _ = disk.remove(&temporary);
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Err(Error::NoSpace { path, source }),
                _ => Err(Error::Io { action: "create", path, source }),
            }
        }
    }
}

/// One batch as it goes to disk.
pub struct EncodedBatch {
    pub head_and_meta: Bytes,
    pub pieces: Vec<Bytes>,
    pub data_bytes: u64,
}

impl EncodedBatch {
    pub fn size_bytes(&self) -> u64 {
        self.head_and_meta.len() as u64 + self.data_bytes
    }
}

/// Batches that will be one group commit, at a place already settled.
pub struct Frame {
    pub segment: u64,
    pub offset: u64,
    pub first_lsn: u64,
    pub batches: Vec<EncodedBatch>,
    pub payload_bytes: u64,
}

impl Frame {
    pub fn last_lsn(&self) -> u64 {
        self.first_lsn + self.batches.len() as u64 - 1
    }

    /// Where the next batch of this frame would start.
    pub fn next_offset(&self) -> u64 {
        self.offset + FRAME_HEADER as u64 + self.payload_bytes
    }

    /// Where the next frame starts.
    pub fn end(&self) -> u64 {
        format::align(self.next_offset())
    }
}

/// The end of the log on disk.
pub struct Writer {
    pub segment: u64,
    pub file: Arc<dyn DiskFile>,
    pub salt: u64,
    pub end: u64,
    pub prev_crc: u32,
    pub next_lsn: u64,
    /// Lines of the seal to come.
    pub lines: Vec<u8>,
    pub n_batches: u32,
}

static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

impl Writer {
    /// Writes one frame and makes it durable. When it opens `segment`, the old one is sealed before; returns the old
    /// one's number and size then.
    pub fn commit(&mut self, frame: &Frame, segment: &Segment, sync: Durability) -> io::Result<Option<(u64, u64)>> {
        let sealed = if frame.segment == self.segment { None } else { Some((self.segment, self.seal()?)) };
        if sealed.is_some() {
            self.segment = frame.segment;
            self.file = Arc::clone(&segment.file);
            self.salt = segment.salt;
            self.end = BLOCK;
            self.lines.clear();
            self.n_batches = 0;
        }
        assert_eq!(
            (self.end, self.next_lsn),
            (frame.offset, frame.first_lsn),
            "frames are written in order, each where it was placed"
        );
        self.write(frame)?;
        if sync == Durability::Durable {
            self.file.sync_data()?;
        }
        Ok(sealed)
    }

    fn write(&mut self, frame: &Frame) -> io::Result<()> {
        let mut header = FrameHeader {
            kind: FrameKind::Frame,
            salt: self.salt,
            lsn: frame.first_lsn,
            n_batches: frame.batches.len() as u32,
            prev_crc: self.prev_crc,
            payload_bytes: frame.payload_bytes,
            crc: 0,
        };
        let header_bytes = header.encode(frame.batches.iter().map(|b| &b.head_and_meta[..]));
        let padding = (frame.end() - frame.next_offset()) as usize;
        let mut slices = Vec::with_capacity(2 + frame.batches.iter().map(|b| 1 + b.pieces.len()).sum::<usize>());
        slices.push(IoSlice::new(&header_bytes));
        for batch in &frame.batches {
            slices.push(IoSlice::new(&batch.head_and_meta));
            slices.extend(batch.pieces.iter().map(|piece| IoSlice::new(piece)));
        }
        slices.push(IoSlice::new(&ZEROS[..padding]));
        self.file.write_at(&mut slices, frame.offset)?;

        let mut at = frame.offset + FRAME_HEADER as u64;
        for (lsn, batch) in (frame.first_lsn..).zip(&frame.batches) {
            let data_offset = at + batch.head_and_meta.len() as u64;
            format::put_seal_line(&mut self.lines, lsn, data_offset, &batch.head_and_meta);
            at = data_offset + batch.data_bytes;
        }
        self.n_batches += header.n_batches;
        self.prev_crc = header.crc;
        self.next_lsn = frame.last_lsn() + 1;
        self.end = frame.end();
        Ok(())
    }

    /// Closes the segment with its index, cuts the reserved rest and makes all of it durable. Returns the file's size.
    pub fn seal(&mut self) -> io::Result<u64> {
        let mut header = FrameHeader {
            kind: FrameKind::Seal,
            salt: self.salt,
            lsn: self.next_lsn,
            n_batches: self.n_batches,
            prev_crc: self.prev_crc,
            payload_bytes: self.lines.len() as u64,
            crc: 0,
        };
        let header_bytes = header.encode([&self.lines[..]].into_iter());
        let trailer_offset = format::align(self.end + FRAME_HEADER as u64 + header.payload_bytes);
        let padding = (trailer_offset - self.end - FRAME_HEADER as u64 - header.payload_bytes) as usize;
        let trailer = Trailer { salt: self.salt, seal_offset: self.end }.encode();
        let mut slices = [&header_bytes[..], &self.lines, &ZEROS[..padding], &trailer].map(IoSlice::new);
        self.file.write_at(&mut slices, self.end)?;
        // The seal before the length: a file shorter than reserved then always has a whole seal.
        self.file.sync_data()?;
        let size_bytes = trailer_offset + BLOCK;
        self.file.set_len(size_bytes)?;
        self.file.sync_all()?;
        Ok(size_bytes)
    }
}
