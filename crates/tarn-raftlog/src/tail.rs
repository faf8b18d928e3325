//! What is in one segment file, and does it end where it should?
//!
//! A sealed segment is read through its seal, another one frame by frame, until one is not whole.
//!
//! **Torn or damaged.** Each header tells how many frames of its segment were acknowledged when it was written. After a
//! crash the whole frames are a prefix, and what follows is in any state. A header there that knows the first bad frame
//! as acknowledged proves damage; so does the seal, which is written when all frames are. All others are writes that
//! were in flight beside each other, and are cut off. What no single log can tell: damage that hits exactly the last
//! frame before a crash looks like that crash.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::format::{
    self, BATCH_HEAD, BLOCK, Bad, BatchView, FIRST_FRAME, FRAME_HEADER, FrameHeader, FrameKind, SegmentHeader, Trailer,
};
use crate::lane::Chain;
use crate::options::Damage;
use crate::record::{self, RecordView};

/// A batch as recovery keeps it; its head and meta lie in `LoadedSegment::bytes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedBatch {
    /// Its number.
    pub lsn: u64,
    /// Where its payloads begin in the file.
    pub data_offset: u64,
    /// How long they are together.
    pub data_bytes: usize,
    /// In [`LoadedSegment::bytes`].
    pub head_and_meta: std::ops::Range<usize>,
}

/// One segment file, read.
pub struct LoadedSegment {
    /// The newer of its two copies, of those that are whole.
    pub header: SegmentHeader,
    /// Both copies of the header are whole and alike.
    pub header_is_whole: bool,
    pub file: Arc<dyn DiskFile>,
    /// Of the file, as it was found.
    pub size_bytes: u64,
    /// A whole seal was found.
    pub sealed: bool,
    /// The heads and metas of its batches, and what lies between where frames were read.
    pub bytes: Vec<u8>,
    /// In the order of their numbers.
    pub batches: Vec<LoadedBatch>,
    /// Frames that are whole.
    pub n_frames: u32,
    /// Of its first batch; 0 while none was read.
    pub first_lsn: u64,
    /// The chain before its first frame.
    pub first_prev_crc: u32,
    /// After the last good frame.
    pub chain: Chain,
    /// Of the last good frame.
    pub end: u64,
    /// Something of this use of the file follows `end`: writes that were in flight.
    pub torn: bool,
    /// Why what follows `end` was no write in flight.
    pub damage: Option<Damage>,
}

impl LoadedSegment {
    fn new(file: Arc<dyn DiskFile>, header: SegmentHeader, header_is_whole: bool, size_bytes: u64) -> LoadedSegment {
        LoadedSegment {
            header,
            header_is_whole,
            file,
            size_bytes,
            sealed: false,
            bytes: Vec::new(),
            batches: Vec::new(),
            n_frames: 0,
            first_lsn: 0,
            first_prev_crc: 0,
            chain: Chain { crc: 0, next_lsn: 0 },
            end: FIRST_FRAME,
            torn: false,
            damage: None,
        }
    }

    /// The same file, of which only the header was read.
    pub fn unread(&self) -> LoadedSegment {
        LoadedSegment::new(Arc::clone(&self.file), self.header, self.header_is_whole, self.size_bytes)
    }

    /// No frame of this use of the file was found.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// An empty segment that can be used as it is, behind the one of number `newest`.
    pub fn is_ready(&self, newest: u64, unit: u64) -> bool {
        self.header_is_whole && !self.torn && self.header.seq > newest && self.header.unit == unit
    }

    /// Of one of its batches.
    pub fn head_and_meta(&self, batch: &LoadedBatch) -> &[u8] {
        &self.bytes[batch.head_and_meta.clone()]
    }
}

/// So many bytes; a file that is too short is corrupt.
pub fn read_at(file: &dyn DiskFile, path: &Path, offset: u64, len: u64) -> Result<Vec<u8>> {
    let mut buf = vec![0; len as usize];
    read_into(file, path, &mut buf, offset)?;
    Ok(buf)
}

fn read_into(file: &dyn DiskFile, path: &Path, buf: &mut [u8], offset: u64) -> Result<()> {
    match file.read_at(buf, offset) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(Error::corrupt(path, offset, "file is too short")),
        Err(source) => Err(Error::Io { action: "read", path: path.to_path_buf(), source }),
    }
}

/// The error that names the file: another version, or corrupt at `offset`.
pub fn refuse(bad: Bad, path: &Path, offset: u64) -> Error {
    match bad {
        Bad::Version(found) => Error::Version { path: path.to_path_buf(), found, known: format::VERSION },
        Bad::What(what) => Error::corrupt(path, offset, what),
    }
}

/// Reads the header, and the seal if there is a whole one. Frames are not read.
pub fn open(file: Arc<dyn DiskFile>, path: &Path, store: u64) -> Result<LoadedSegment> {
    let size_bytes = file.size_bytes().map_err(Error::io("read size of", path))?;
    let (header, whole) = read_header(&*file, path, store)?;
    let mut loaded = LoadedSegment::new(file, header, whole, size_bytes);
    if !load_seal(&mut loaded, path)? && size_bytes < header.reserved_bytes {
        // The reserved length goes only after a seal is written: a shorter file without one has lost its end.
        let what = format!("file of {size_bytes} bytes without a seal, want at least {}", header.reserved_bytes);
        return Err(Error::corrupt(path, size_bytes, what));
    }
    Ok(loaded)
}

/// The newer of the two copies, one of which may be torn.
fn read_header(file: &dyn DiskFile, path: &Path, store: u64) -> Result<(SegmentHeader, bool)> {
    let blocks = read_at(file, path, 0, FIRST_FRAME)?;
    let (first, second) = blocks.split_at(BLOCK as usize);
    let of_store = |header: SegmentHeader| match header.store == store {
        true => Ok(header),
        false => Err(Bad::What("header of another log")),
    };
    match (SegmentHeader::decode(first).and_then(of_store), SegmentHeader::decode(second).and_then(of_store)) {
        (Ok(a), Ok(b)) => Ok((if a.seq >= b.seq { a } else { b }, a == b)),
        (Ok(header), Err(_)) | (Err(_), Ok(header)) => Ok((header, false)),
        (Err(Bad::Version(found)), _) | (_, Err(Bad::Version(found))) => Err(refuse(Bad::Version(found), path, 0)),
        (Err(bad), Err(_)) => Err(refuse(bad, path, 0)),
    }
}

/// `false` when the trailer or the seal it points to is not whole.
fn load_seal(loaded: &mut LoadedSegment, path: &Path) -> Result<bool> {
    let (header, size_bytes) = (loaded.header, loaded.size_bytes);
    if size_bytes < FIRST_FRAME + 3 * BLOCK || !size_bytes.is_multiple_of(BLOCK) {
        return Ok(false);
    }
    let trailer_offset = size_bytes - BLOCK;
    let Ok(trailer) = Trailer::decode(&read_at(&*loaded.file, path, trailer_offset, BLOCK)?) else { return Ok(false) };
    let inside = FIRST_FRAME <= trailer.frames_end
        && trailer.frames_end <= trailer.seal_offset
        && trailer.seal_offset < trailer_offset;
    if trailer.salt != header.salt || !inside {
        return Ok(false);
    }
    let seal = read_at(&*loaded.file, path, trailer.seal_offset, trailer_offset - trailer.seal_offset)?;
    let Some(frame) = FrameHeader::decode(&seal) else { return Ok(false) };
    let end = FRAME_HEADER.saturating_add(frame.payload_bytes as usize);
    let Some(body) = seal.get(FRAME_HEADER..end) else { return Ok(false) };
    if frame.kind != FrameKind::Seal
        || (frame.salt, u64::from(frame.ordinal)) != (header.salt, trailer.n_frames)
        || !frame.payload_matches([body].into_iter())
    {
        return Ok(false);
    }
    let Some(views) = format::walk_seal(&frame, body) else { return Ok(false) };
    let fits = |b: &BatchView<'_>| {
        b.data_offset >= FIRST_FRAME && b.data_offset.saturating_add(b.data_bytes as u64) <= trailer.frames_end
    };
    if views.is_empty() || !views.iter().all(fits) {
        return Ok(false);
    }
    let start = seal.as_ptr() as usize;
    let batch = |view: &BatchView<'_>| {
        let at = view.head_and_meta.as_ptr() as usize - start;
        let (lsn, data_offset, data_bytes) = (view.lsn, view.data_offset, view.data_bytes);
        LoadedBatch { lsn, data_offset, data_bytes, head_and_meta: at..at + view.head_and_meta.len() }
    };
    loaded.batches = views.iter().map(batch).collect();
    loaded.bytes = seal;
    loaded.sealed = true;
    loaded.n_frames = frame.ordinal;
    loaded.first_lsn = trailer.first_lsn;
    loaded.first_prev_crc = trailer.first_prev_crc;
    loaded.chain = Chain { crc: trailer.last_crc, next_lsn: frame.lsn };
    loaded.end = trailer.frames_end;
    Ok(true)
}

/// Whether a frame of this use of the file seems to stand where the first one stands.
pub fn has_first_frame(loaded: &LoadedSegment, path: &Path) -> Result<bool> {
    if loaded.size_bytes < FIRST_FRAME + FRAME_HEADER as u64 {
        return Ok(false);
    }
    let bytes = read_at(&*loaded.file, path, FIRST_FRAME, FRAME_HEADER as u64)?;
    Ok(FrameHeader::decode(&bytes).is_some_and(|frame| frame.salt == loaded.header.salt))
}

/// Reads frames up to `bound` until one is not whole, then looks for what may not follow it.
pub fn scan(loaded: &mut LoadedSegment, path: &Path, bound: u64) -> Result<()> {
    let mut reader = SegmentReader::new(Arc::clone(&loaded.file), path, bound);
    while let Some(end) = scan_frame(&mut reader, loaded, loaded.end, false)? {
        loaded.end = end;
    }
    let mut at = loaded.end;
    while let Some(offset) = next_header(&mut reader, loaded, at)? {
        loaded.torn = true;
        let header = reader.frame_header(offset)?.expect("a header was just found here");
        if header.acknowledged > loaded.n_frames {
            let what = format!("damaged frame, but the log goes on at byte {offset}");
            loaded.damage = Some(Damage { path: path.to_path_buf(), offset: loaded.end, what });
            return Ok(());
        }
        at = offset + loaded.header.unit;
    }
    Ok(())
}

/// After damage: takes in every later frame that is whole by itself.
pub fn salvage(loaded: &mut LoadedSegment, path: &Path) -> Result<()> {
    let mut reader = SegmentReader::new(Arc::clone(&loaded.file), path, loaded.size_bytes);
    let mut at = loaded.end;
    while let Some(offset) = next_header(&mut reader, loaded, at)? {
        at = match scan_frame(&mut reader, loaded, offset, true)? {
            Some(end) => {
                loaded.end = end;
                end
            }
            None => offset + loaded.header.unit,
        };
    }
    Ok(())
}

/// The first place from `at` on where a header of this use of the file, of no earlier frame, stands.
fn next_header(reader: &mut SegmentReader<'_>, loaded: &LoadedSegment, mut at: u64) -> Result<Option<u64>> {
    while at + FRAME_HEADER as u64 <= reader.bound {
        let header = reader.frame_header(at)?;
        if header.is_some_and(|h| h.salt == loaded.header.salt && h.ordinal >= loaded.n_frames) {
            return Ok(Some(at));
        }
        at += loaded.header.unit;
    }
    Ok(None)
}

/// Takes in the frame at `at`. Returns where it ends; `None` if there is no whole frame. `any`: it need not continue
/// the one before.
fn scan_frame(reader: &mut SegmentReader<'_>, loaded: &mut LoadedSegment, at: u64, any: bool) -> Result<Option<u64>> {
    let room = reader.bound.saturating_sub(at);
    if room < FRAME_HEADER as u64 {
        return Ok(None);
    }
    let Some(frame) = reader.frame_header(at)? else { return Ok(None) };
    let first = loaded.n_frames == 0;
    let continues = match first {
        true => frame.ordinal == 0,
        false => {
            (frame.ordinal, frame.lsn, frame.prev_crc) == (loaded.n_frames, loaded.chain.next_lsn, loaded.chain.crc)
        }
    };
    let later = any && frame.ordinal >= loaded.n_frames && frame.lsn >= loaded.chain.next_lsn;
    let payload_bytes = u64::from(frame.payload_bytes);
    let fits = payload_bytes <= room - FRAME_HEADER as u64 && frame.n_batches > 0 && frame.lsn > 0;
    if frame.kind != FrameKind::Frame || frame.salt != loaded.header.salt || !(continues || later) || !fits {
        return Ok(None);
    }
    let Some(next_lsn) = frame.lsn.checked_add(u64::from(frame.n_batches)) else { return Ok(None) };
    let bytes = reader.get(at, FRAME_HEADER + frame.payload_bytes as usize)?;
    let payload = &bytes[FRAME_HEADER..];
    let offset = at + FRAME_HEADER as u64;
    let Some(views) = format::walk_frame(&frame, payload, offset) else { return Ok(None) };
    if !frame.payload_matches(views.iter().map(|b| &b.head_and_meta[..BATCH_HEAD])) {
        return Ok(None);
    }
    let data = |b: &BatchView<'_>| {
        let data_at = (b.data_offset - offset) as usize;
        data_at..data_at + b.data_bytes
    };
    if !views.iter().all(|b| b.meta_matches() && data_matches(b, &payload[data(b)])) {
        return Ok(None);
    }
    for view in &views {
        let start = loaded.bytes.len();
        loaded.bytes.extend_from_slice(view.head_and_meta);
        let (lsn, data_offset, data_bytes) = (view.lsn, view.data_offset, view.data_bytes);
        loaded.batches.push(LoadedBatch { lsn, data_offset, data_bytes, head_and_meta: start..loaded.bytes.len() });
    }
    if first {
        (loaded.first_lsn, loaded.first_prev_crc) = (frame.lsn, frame.prev_crc);
    }
    loaded.n_frames = frame.ordinal.saturating_add(1);
    loaded.chain = Chain { crc: frame.crc, next_lsn };
    Ok(Some(format::frame_end(at, payload_bytes, loaded.header.unit).min(reader.bound)))
}

/// Whether the payloads in `data` are those the batch's records describe.
fn data_matches(batch: &BatchView<'_>, data: &[u8]) -> bool {
    let Some(records) = record::decode_records(batch.meta()) else { return false };
    let mut rest = data;
    for record in &records {
        let RecordView::Entries(entries) = record else { continue };
        let Some((own, after)) = rest.split_at_checked(entries.data_bytes as usize) else { return false };
        if !entries.data_matches(own) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

/// Reads a file front to back in large pieces.
struct SegmentReader<'a> {
    file: Arc<dyn DiskFile>,
    path: &'a Path,
    /// Nothing is read from here on.
    bound: u64,
    start: u64,
    buf: Vec<u8>,
}

const READ_BYTES: u64 = 1 << 20;

impl SegmentReader<'_> {
    fn new(file: Arc<dyn DiskFile>, path: &Path, bound: u64) -> SegmentReader<'_> {
        SegmentReader { file, path, bound, start: 0, buf: Vec::new() }
    }

    /// `len` bytes at `offset`, which must not pass the bound.
    fn get(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let end = self.start + self.buf.len() as u64;
        if offset < self.start || offset + len as u64 > end {
            // What is there of it already is kept: a long frame follows its header.
            let kept = if (self.start..end).contains(&offset) { (end - offset) as usize } else { 0 };
            let mut buf = vec![0; READ_BYTES.max(len as u64).min(self.bound - offset) as usize];
            buf[..kept].copy_from_slice(&self.buf[self.buf.len() - kept..]);
            read_into(&*self.file, self.path, &mut buf[kept..], offset + kept as u64)?;
            (self.start, self.buf) = (offset, buf);
        }
        let at = (offset - self.start) as usize;
        Ok(&self.buf[at..at + len])
    }

    fn frame_header(&mut self, offset: u64) -> Result<Option<FrameHeader>> {
        Ok(FrameHeader::decode(self.get(offset, FRAME_HEADER)?))
    }
}
