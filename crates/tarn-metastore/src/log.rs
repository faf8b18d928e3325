//! Where on disk are the records, and are they all there? Bytes only: what a record means is `codec.rs`'s business.
//!
//! ```text
//! file    magic 8 | version u8 | zero 3 | crc u32 of these 12 | frame*          (a checkpoint has exactly one frame)
//! frame   len u32 | crc u32 of the rest | seq u64 | kind u8 | payload[len]       (integers little-endian, crc = CRC32C)
//! write   (metadata* record)+ | seal
//! ```
//!
//! A record is one frame, with the block metadata that belongs to it in front; records that were made side by side are
//! one write. All frames of a write have its number, and are synced before any of them is answered. Behind it goes a
//! *seal*, an empty frame that repeats the number and is not synced: it can only be there if the sync came back. So a
//! bad frame was answered, and is corruption, if its write's seal or any frame of a later number is behind it; else it
//! is part of a write that a crash tore, and the log is cut behind the last whole record. Frames of its own number
//! prove nothing: the pages of one write reach the disk in any order.
//!
//! A log takes its space ahead, so it may end in zeros, which are no frame: a sync then need not change the file's
//! length.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::error::io_error;
use crate::{Error, Result, codec};

const LOG_MAGIC: &[u8; 8] = b"TARNMLOG";
/// Formats that are read; the last is written.
const FORMATS: std::ops::RangeInclusive<u8> = 1..=codec::FORMAT;

pub(crate) const HEADER_BYTES: u64 = 16;
pub(crate) const FRAME_BYTES: usize = 17;

/// From this size on it is cheaper to combine checksums than to go through the bytes again.
const COMBINED_BYTES: usize = 16 << 10;

/// Space that a log takes ahead of what is written: then a sync has bytes to bring to the disk, and no new length.
const RESERVED_BYTES: u64 = 1 << 20;

/// A larger buffer is given back after the write that needed it.
const KEPT_BUF_BYTES: usize = 4 << 20;

const RECORD: u8 = 1;
const SEAL: u8 = 2;
pub(crate) const CHECKPOINT: u8 = 3;
const BLOCK_METADATA: u8 = 4;

/// The log that is written to.
pub(crate) struct Log {
    file: Arc<LogFile>,
    /// Where the next frame goes.
    end: u64,
    /// Where the last record ends: what is behind it was not answered.
    records_end: u64,
    /// The length of the file. What lies behind `end` is zero.
    reserved: u64,
    last_seq: u64,
    /// Of `end`, what is block metadata.
    block_metadata_bytes: u64,
    buf: Vec<u8>,
}

/// One file of the log, for those who read block metadata from where it was first written. Opened when it is first
/// read.
#[derive(Debug)]
pub(crate) struct LogFile {
    /// The number of its first record; part of its name.
    pub first_seq: u64,
    path: PathBuf,
    file: OnceLock<File>,
}

/// What goes into a frame, with its checksum: made before its number is known, outside of all locks.
pub(crate) struct Payload {
    pub bytes: Vec<u8>,
    /// Of long ones; 0 where it is not worth it.
    crc: u32,
}

/// A record, and the block metadata that stands in front of it.
pub(crate) struct LogEntry {
    pub block_metadata: Vec<Payload>,
    pub record: Payload,
}

/// An empty log that has no number yet.
pub(crate) struct UnnumberedLog {
    tmp: PathBuf,
    file: File,
}

/// What became of records.
pub(crate) enum Append {
    /// They are on stable storage; the block metadata at these offsets, in their order.
    Done(Vec<u64>),
    /// They are not there, and will not be.
    Undone(io::Error),
    /// Only reopening tells.
    Unknown(io::Error),
}

/// A record as it was read.
pub(crate) struct Frame<'a> {
    pub log: &'a Arc<LogFile>,
    /// Of the file that the frame is in.
    pub format: u8,
    /// Of the frame in its file.
    pub offset: u64,
    /// Checked; without the frame's head.
    pub payload: &'a [u8],
    /// What stands in front of it, each with its offset.
    pub block_metadata: &'a [(u64, &'a [u8])],
}

/// How the log ends.
pub(crate) struct Contents {
    /// The number of the last record, read or checkpointed.
    pub last_seq: u64,
    /// Where the last log's valid bytes end.
    pub end: u64,
    /// Of the last log, what is block metadata.
    pub block_metadata_bytes: u64,
    /// That of the last log.
    pub format: u8,
    pub torn: Option<TornTail>,
}

/// Bytes of a write that was never answered.
pub(crate) struct TornTail {
    /// The file that ends in it.
    pub path: PathBuf,
    pub offset: u64,
    /// From `offset` to the end of what was written.
    pub size_bytes: u64,
}

/// The files of a folder, by number.
#[derive(Default)]
pub(crate) struct LogFolder {
    /// The newest, and the number of the last record that it has.
    pub checkpoint: Option<(PathBuf, u64)>,
    /// Ascending.
    pub logs: Vec<Arc<LogFile>>,
}

impl Payload {
    /// Computes the checksum, when there is enough to gain by doing it here.
    pub fn new(bytes: Vec<u8>) -> Self {
        let crc = if bytes.len() < COMBINED_BYTES { 0 } else { crc32c::crc32c(&bytes) };
        Self { bytes, crc }
    }
}

impl LogFile {
    /// Opens nothing yet.
    pub fn new(path: PathBuf, first_seq: u64) -> Self {
        Self { first_seq, path, file: OnceLock::new() }
    }

    /// For errors, and for whoever deletes it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = File::open(&self.path).map_err(io_error("open", &self.path))?;
        Ok(self.file.get_or_init(|| file))
    }

    /// Reads bytes of a frame that was whole.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match self.file()?.read_exact_at(buf, offset) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(corrupt(&self.path, offset, "the file ends early"))
            }
            read => read.map_err(io_error("read", &self.path)),
        }
    }

    /// The payload of the block metadata frame at `offset`, which has so many bytes; held against its checksum.
    pub fn block_metadata(&self, offset: u64, payload_bytes: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; FRAME_BYTES + payload_bytes];
        self.read(&mut bytes, offset)?;
        match parse(&bytes) {
            Some(found) if found.kind == BLOCK_METADATA && found.payload.len() == payload_bytes => {
                bytes.drain(..FRAME_BYTES);
                Ok(bytes)
            }
            _ => Err(corrupt(&self.path, offset, "the frame does not match its checksum")),
        }
    }
}

/// Where the log that begins with write `first_seq` is.
pub(crate) fn path(dir: &Path, first_seq: u64) -> PathBuf {
    dir.join(format!("log-{first_seq:020}.tarn"))
}

/// Where the payload of the frame at `offset` begins.
pub(crate) fn payload_at(offset: u64) -> u64 {
    offset + FRAME_BYTES as u64
}

impl UnnumberedLog {
    /// Whole and durable under a name that is none. Whoever prepares one beside others has a name of his own.
    pub fn create(dir: &Path, name: &str) -> Result<Self> {
        let tmp = dir.join(format!("log-{name}.tmp"));
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&tmp);
        let file = file.map_err(io_error("create", &tmp))?;
        file.write_all_at(&header(LOG_MAGIC), 0).map_err(io_error("write", &tmp))?;
        reserve(&file, RESERVED_BYTES);
        file.sync_all().map_err(io_error("sync", &tmp))?;
        Ok(Self { tmp, file })
    }

    /// Its first write will be `first_seq`. Takes the place of an empty log that begins so.
    pub fn install(self, first_seq: u64) -> Result<Log> {
        let dir = self.tmp.parent().expect("it was made in a folder");
        let path = path(dir, first_seq);
        fs::rename(&self.tmp, &path).map_err(io_error("rename", &self.tmp))?;
        sync_dir(dir)?;
        let file = Arc::new(LogFile { first_seq, path, file: OnceLock::from(self.file) });
        let (end, reserved, last_seq) = (HEADER_BYTES, RESERVED_BYTES, first_seq - 1);
        Ok(Log { file, end, records_end: end, reserved, last_seq, block_metadata_bytes: 0, buf: Vec::new() })
    }
}

impl Log {
    /// Goes on behind what was read; what lies there is cut off first.
    pub fn reopen(log: Arc<LogFile>, contents: &Contents) -> Result<Self> {
        let (path, end) = (log.path(), contents.end);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io_error("open", path))?;
        file.set_len(end).map_err(io_error("cut", path))?;
        if end < HEADER_BYTES {
            file.write_all_at(&header(LOG_MAGIC), 0).map_err(io_error("write", path))?;
        }
        file.sync_all().map_err(io_error("sync", path))?;
        log.file.set(file).expect("nobody has read from it yet");
        let (end, block_metadata_bytes) = (end.max(HEADER_BYTES), contents.block_metadata_bytes);
        let last_seq = contents.last_seq;
        let (records_end, reserved, buf) = (end, end, Vec::new());
        let mut log = Self { file: log, end, records_end, reserved, last_seq, block_metadata_bytes, buf };
        let _ = log.seal();
        Ok(log)
    }

    /// The file that is written to now.
    pub fn file(&self) -> &Arc<LogFile> {
        &self.file
    }

    /// Of the file that is written to now.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The number of the last record that is in.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Of the file that is written to, without its head.
    pub fn size_bytes(&self) -> u64 {
        self.end - HEADER_BYTES
    }

    /// Of these, what is not block metadata.
    pub fn record_bytes(&self) -> u64 {
        self.size_bytes() - self.block_metadata_bytes
    }

    fn out(&self) -> &File {
        self.file.file.get().expect("the log that is written to is open")
    }

    /// Adds records behind their metadata in one write, synced.
    pub fn append(&mut self, entries: &[LogEntry]) -> Append {
        let seq = self.last_seq + 1;
        let frame_bytes = |payload: &Payload| FRAME_BYTES + payload.bytes.len();
        let block_metadata_bytes: usize = entries.iter().flat_map(|entry| &entry.block_metadata).map(frame_bytes).sum();
        let record_bytes: usize = entries.iter().map(|entry| frame_bytes(&entry.record)).sum();
        let mut buf = std::mem::take(&mut self.buf);
        buf.clear();
        buf.reserve(block_metadata_bytes + record_bytes);
        let mut offsets = Vec::new();
        for entry in entries {
            for block_metadata in &entry.block_metadata {
                offsets.push(self.end + buf.len() as u64);
                if let Err(too_long) = put_frame(&mut buf, seq, BLOCK_METADATA, block_metadata) {
                    return Append::Undone(too_long);
                }
            }
            if let Err(too_long) = put_frame(&mut buf, seq, RECORD, &entry.record) {
                return Append::Undone(too_long);
            }
        }
        let needed = self.end + buf.len() as u64;
        if needed > self.reserved {
            self.reserved = needed.next_multiple_of(RESERVED_BYTES);
            reserve(self.out(), self.reserved);
        }
        if let Err(error) = self.out().write_all_at(&buf, self.end) {
            self.reserved = self.end;
            let undone = self.out().set_len(self.end).and_then(|()| self.out().sync_data());
            return if undone.is_ok() { Append::Undone(error) } else { Append::Unknown(error) };
        }
        if let Err(error) = self.out().sync_data() {
            // What the disk has is not known, and stays as it is.
            self.reserved = self.end;
            return Append::Unknown(error);
        }
        self.end += buf.len() as u64;
        self.records_end = self.end;
        self.block_metadata_bytes += block_metadata_bytes as u64;
        self.last_seq = seq;
        // Not synced, and no loss when it fails: the next record takes its place.
        let _ = self.seal();
        if buf.capacity() <= KEPT_BUF_BYTES {
            self.buf = buf;
        }
        Append::Done(offsets)
    }

    fn seal(&mut self) -> io::Result<()> {
        let mut seal = Vec::with_capacity(FRAME_BYTES);
        put_frame(&mut seal, self.last_seq, SEAL, &Payload::new(Vec::new())).expect("an empty frame is short");
        self.out().write_all_at(&seal, self.end)?;
        self.end += seal.len() as u64;
        Ok(())
    }

    /// Goes on after a write or a sync that failed: cuts off what was never answered, for good, and reads everything
    /// that was answered back from the disk. Cost: reads the file.
    ///
    /// # Errors
    /// The disk still fails; or `Corrupt`: it does not have what it said it had.
    pub fn mend(&mut self) -> Result<()> {
        let path = self.path();
        self.out().set_len(self.records_end).and_then(|()| self.out().sync_all()).map_err(io_error("cut", path))?;
        // After a failed sync the kernel may call pages clean that never came to the disk. Those are not to be read
        // here.
        let _ = rustix::fs::fadvise(self.out(), 0, None, rustix::fs::Advice::DontNeed);
        let bytes = fs::read(path).map_err(io_error("read", path))?;
        let format = check_header(path, &bytes, LOG_MAGIC)?;
        let before = self.file.first_seq - 1;
        let mut found = Contents { last_seq: before, end: HEADER_BYTES, block_metadata_bytes: 0, format, torn: None };
        read_frames(&self.file, &bytes, before, &mut found, &mut |_| Ok(()))?;
        if (found.last_seq, found.end) != (self.last_seq, self.records_end) {
            let reason = format!("record {} was synced, the disk has record {}", self.last_seq, found.last_seq);
            return Err(corrupt(path, found.end, reason));
        }
        self.end = self.records_end;
        self.reserved = self.end;
        self.seal().map_err(io_error("write", self.path()))
    }

    /// Makes the last seal durable, too: another log follows on this one.
    pub fn finish(&self) -> Result<()> {
        self.out().sync_data().map_err(io_error("sync", self.path()))
    }
}

/// Gives back the space that was taken ahead. No loss when that fails: a log may end in zeros.
impl Drop for Log {
    fn drop(&mut self) {
        if self.reserved > self.end {
            let _ = self.out().set_len(self.end);
        }
    }
}

/// Gives the file so many bytes, zero where nothing was written. A file system that cannot do it, or has no room, says
/// so when the bytes are written.
fn reserve(file: &File, n_bytes: u64) {
    let _ = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, n_bytes);
}

/// Cuts off a write that was never answered.
pub(crate) fn cut(torn: &TornTail) -> Result<()> {
    let file = OpenOptions::new().write(true).open(&torn.path).map_err(io_error("open", &torn.path))?;
    file.set_len(torn.offset).and_then(|()| file.sync_all()).map_err(io_error("cut", &torn.path))
}

/// What is in the folder. Deletes files that were never finished.
pub(crate) fn scan(dir: &Path) -> Result<LogFolder> {
    let mut found = LogFolder::default();
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let path = entry.map_err(io_error("list", dir))?.path();
        if path.extension().is_some_and(|extension| extension == "tmp") {
            fs::remove_file(&path).map_err(io_error("delete", &path))?;
            continue;
        }
        match numbered(&path) {
            Some(("log", seq)) => {
                let log = LogFile::new(path.clone(), seq);
                found.logs.push(Arc::new(log));
            }
            Some(("checkpoint", seq)) if found.checkpoint.as_ref().is_none_or(|(_, newest)| *newest < seq) => {
                found.checkpoint = Some((path, seq));
            }
            _ => {}
        }
    }
    found.logs.sort_by_key(|log| log.first_seq);
    let after = found.checkpoint.as_ref().map_or(0, |(_, seq)| *seq);
    match (found.logs.first(), &found.checkpoint) {
        (Some(log), _) if log.first_seq > after + 1 => {
            let reason = format!("the log starts at record {}, what is before it ends at {after}", log.first_seq);
            Err(corrupt(&log.path, 0, reason))
        }
        (None, Some((path, _))) => Err(corrupt(path, 0, "the log that goes with this checkpoint is missing")),
        _ => Ok(found),
    }
}

/// Visits the records after `checkpoint_seq`, in order and without a gap. Logs that hold no such record are not looked
/// at.
pub(crate) fn read(
    logs: &[Arc<LogFile>],
    checkpoint_seq: u64,
    visit: &mut dyn FnMut(Frame<'_>) -> Result<()>,
) -> Result<Contents> {
    let covered = logs.iter().skip(1).take_while(|next| next.first_seq <= checkpoint_seq + 1).count();
    let logs = &logs[covered..];
    let before = logs.first().map_or(checkpoint_seq, |log| log.first_seq - 1);
    let mut contents =
        Contents { last_seq: before, end: 0, block_metadata_bytes: 0, format: codec::FORMAT, torn: None };
    for log in logs {
        let path = &log.path;
        let bytes = fs::read(path).map_err(io_error("read", path))?;
        contents.end = 0;
        contents.block_metadata_bytes = 0;
        if is_unfinished_header(&bytes) && logs.last().is_some_and(|last| Arc::ptr_eq(log, last)) {
            break;
        }
        contents.format = check_header(path, &bytes, LOG_MAGIC)?;
        contents.end = HEADER_BYTES;
        if log.first_seq != contents.last_seq + 1 {
            let reason = format!("the log starts at record {}, {} was before", log.first_seq, contents.last_seq);
            return Err(corrupt(path, 0, reason));
        }
        read_frames(log, &bytes, checkpoint_seq, &mut contents, visit)?;
    }
    if contents.last_seq < checkpoint_seq {
        let path = &logs.last().expect("without a log there is nothing to fall short").path;
        let reason = format!("the log ends at record {}, the checkpoint at {checkpoint_seq}", contents.last_seq);
        return Err(corrupt(path, contents.end, reason));
    }
    Ok(contents)
}

/// Reads the writes of one log. Block metadata waits for its record; `contents.end` is behind the last whole record.
fn read_frames(
    log: &Arc<LogFile>,
    bytes: &[u8],
    checkpoint_seq: u64,
    contents: &mut Contents,
    visit: &mut dyn FnMut(Frame<'_>) -> Result<()>,
) -> Result<()> {
    let path = &log.path;
    let mut offset = contents.end as usize;
    let mut block_metadata: Vec<(u64, &[u8])> = Vec::new();
    let mut block_metadata_bytes = 0;
    // Whether records of write `last_seq` may still come.
    let mut is_open = false;
    while offset < bytes.len() {
        let last = contents.last_seq;
        let found = step(&bytes[offset..], last);
        // What came before a valid frame was answered: it is not a torn end.
        if let (Some(_), Some(torn)) = (&found, &contents.torn) {
            return Err(corrupt(&torn.path, torn.offset, "the frame does not match its checksum"));
        }
        let Some(found) = found else {
            // Space that was taken ahead.
            if bytes[offset..].iter().all(|byte| *byte == 0) {
                break;
            }
            let sealed_from = if is_open { last } else { last + 1 };
            if contents.torn.is_some() || is_answered(&bytes[offset + 1..], sealed_from, last + 2) {
                return Err(corrupt(path, offset as u64, "the frame does not match its checksum"));
            }
            break;
        };
        offset += found.skipped;
        let goes_on = found.seq == last + 1 || found.seq == last && is_open && found.skipped == 0;
        let follows = match found.kind {
            SEAL => found.seq == last && block_metadata.is_empty(),
            BLOCK_METADATA => goes_on && contents.format >= 2,
            RECORD => goes_on,
            _ => false,
        };
        if !follows {
            let reason = format!("frame {} of kind {} follows on record {last}", found.seq, found.kind);
            return Err(corrupt(path, offset as u64, reason));
        }
        let (at, size) = (offset as u64, found.size());
        offset += size;
        if found.kind == BLOCK_METADATA {
            block_metadata.push((at, found.payload));
            block_metadata_bytes += size as u64;
            continue;
        }
        if found.kind == RECORD && found.seq > checkpoint_seq {
            let (format, payload) = (contents.format, found.payload);
            visit(Frame { log, format, offset: at, payload, block_metadata: &block_metadata })?;
        }
        block_metadata.clear();
        contents.block_metadata_bytes += std::mem::take(&mut block_metadata_bytes);
        is_open = found.kind == RECORD && contents.format >= 2;
        contents.last_seq = found.seq;
        contents.end = offset as u64;
    }
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
    if contents.end < written {
        let size_bytes = written - contents.end;
        contents.torn = Some(TornTail { path: path.to_owned(), offset: contents.end, size_bytes });
    }
    Ok(())
}

struct ParsedRecord<'a> {
    seq: u64,
    kind: u8,
    payload: &'a [u8],
    /// Bytes of a lost seal in front of it.
    skipped: usize,
}

impl ParsedRecord<'_> {
    fn size(&self) -> usize {
        FRAME_BYTES + self.payload.len()
    }
}

/// The frame at the start of `bytes`. A seal is not synced: when it did not reach the disk and the write behind it did,
/// that write is taken.
fn step(bytes: &[u8], last: u64) -> Option<ParsedRecord<'_>> {
    if let Some(found) = parse(bytes) {
        return Some(found);
    }
    let found = parse(bytes.get(FRAME_BYTES..)?)?;
    let follows = (found.kind == RECORD || found.kind == BLOCK_METADATA) && found.seq == last + 1;
    follows.then_some(ParsedRecord { skipped: FRAME_BYTES, ..found })
}

fn parse(bytes: &[u8]) -> Option<ParsedRecord<'_>> {
    let (head, rest) = bytes.split_at_checked(FRAME_BYTES)?;
    let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let payload = rest.get(..u32_at(0) as usize)?;
    let seq = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
    (checksum(head, payload) == u32_at(4)).then_some(ParsedRecord { seq, kind: head[16], payload, skipped: 0 })
}

/// Is there anything in these bytes that is only there when the write that a bad frame belongs to was synced: a seal
/// from `sealed_from` on, or a frame of a write from `written_from` on?
fn is_answered(bytes: &[u8], sealed_from: u64, written_from: u64) -> bool {
    let proves = |head: &[u8]| {
        let found = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
        let first = match head[16] {
            SEAL => sealed_from,
            RECORD | BLOCK_METADATA => written_from,
            _ => return false,
        };
        (first..=first.saturating_add(u64::from(u32::MAX))).contains(&found)
    };
    bytes.windows(FRAME_BYTES).enumerate().any(|(at, head)| proves(head) && parse(&bytes[at..]).is_some())
}

/// A payload that is alone in its file.
pub(crate) fn only_frame(bytes: &[u8], kind: u8, seq: u64) -> Option<&[u8]> {
    parse(bytes)
        .filter(|found| (found.kind, found.seq, found.size()) == (kind, seq, bytes.len()))
        .map(|found| found.payload)
}

fn put_frame(out: &mut Vec<u8>, seq: u64, kind: u8, payload: &Payload) -> io::Result<()> {
    let n_bytes = payload.bytes.len();
    let head = frame_head(seq, kind, n_bytes, |head| match n_bytes < COMBINED_BYTES {
        true => crc32c::crc32c_append(head, &payload.bytes),
        false => crc32c::crc32c_combine(head, payload.crc, n_bytes),
    })?;
    out.extend_from_slice(&head);
    out.extend_from_slice(&payload.bytes);
    Ok(())
}

/// What stands in front of a payload of so many bytes. `crc` makes of the head's checksum that of both.
pub(crate) fn frame_head(
    seq: u64,
    kind: u8,
    n_bytes: usize,
    crc: impl FnOnce(u32) -> u32,
) -> io::Result<[u8; FRAME_BYTES]> {
    let len = u32::try_from(n_bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, format!("record of {n_bytes} bytes")))?;
    let mut head = [0; FRAME_BYTES];
    head[..4].copy_from_slice(&len.to_le_bytes());
    head[8..16].copy_from_slice(&seq.to_le_bytes());
    head[16] = kind;
    let crc = crc(head_checksum(&head));
    head[4..8].copy_from_slice(&crc.to_le_bytes());
    Ok(head)
}

fn head_checksum(head: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head[..4]), &head[8..FRAME_BYTES])
}

/// Over everything in the frame but the checksum itself.
fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(head_checksum(head), payload)
}

pub(crate) fn header(magic: &[u8; 8]) -> [u8; HEADER_BYTES as usize] {
    header_of(magic, *FORMATS.end())
}

fn header_of(magic: &[u8; 8], format: u8) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(magic);
    header[8] = format;
    let crc = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Answers the file's format.
pub(crate) fn check_header(path: &Path, bytes: &[u8], magic: &[u8; 8]) -> Result<u8> {
    let found = bytes.get(..HEADER_BYTES as usize).ok_or_else(|| corrupt(path, 0, "the file's header is cut off"))?;
    let is_sound = found[..8] == magic[..] && crc32c::crc32c(&found[..12]).to_le_bytes() == found[12..];
    let (format, writes) = (found[8], FORMATS.end());
    if !is_sound {
        Err(corrupt(path, 0, "the file's header is damaged"))
    } else if !FORMATS.contains(&format) {
        Err(corrupt(path, 8, format!("format version {format} is not known, this build writes {writes}")))
    } else {
        Ok(format)
    }
}

/// A log that a crash left before its header was synced, as format 1 could.
fn is_unfinished_header(bytes: &[u8]) -> bool {
    let len = bytes.len() as u64;
    len < HEADER_BYTES && FORMATS.map(|format| header_of(LOG_MAGIC, format)).any(|whole| whole.starts_with(bytes))
        || len <= HEADER_BYTES && bytes.iter().all(|b| *b == 0)
}

/// `log-00000000000000000007.tarn` is ("log", 7).
pub(crate) fn numbered(path: &Path) -> Option<(&str, u64)> {
    let (kind, seq) = path.file_name()?.to_str()?.strip_suffix(".tarn")?.split_once('-')?;
    Some((kind, seq.parse().ok()?))
}

pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync", dir))
}

fn corrupt(path: &Path, offset: u64, reason: impl Into<String>) -> Error {
    Error::Corrupt { path: path.to_owned(), offset, reason: reason.into() }
}
