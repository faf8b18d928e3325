//! Where on disk are the records, and are they all there? Bytes only: what a record means is `codec.rs`'s business.
//!
//! ```text
//! file    magic 8 | version u8 | zero 3 | crc u32 of these 12 | frame*          (a checkpoint has exactly one frame)
//! frame   len u32 | crc u32 of the rest | seq u64 | kind u8 | payload[len]       (integers little-endian, crc = CRC32C)
//! write   details* record | seal
//! ```
//!
//! A record is one frame, with the details that belong to it in frames of the same number in front; all of them are one write,
//! synced before it is answered. Behind it goes a *seal*, an empty frame that repeats the number and is not synced: it can only be
//! there if the sync came back. So a bad frame was answered, and is corruption, if its seal or any frame of a later number is
//! behind it; else it is part of a write that a crash tore, and the whole write is cut off. Frames of its own number prove nothing:
//! the pages of one write reach the disk in any order.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::embedded::io_error;
use crate::{Error, Result, codec};

const LOG_MAGIC: &[u8; 8] = b"TARNMLOG";
const CHECKPOINT_MAGIC: &[u8; 8] = b"TARNMCKP";
/// Formats that are read; the last is written.
const FORMATS: std::ops::RangeInclusive<u8> = 1..=codec::FORMAT;

pub(crate) const HEADER_BYTES: u64 = 16;
const FRAME_BYTES: usize = 17;

const RECORD: u8 = 1;
const SEAL: u8 = 2;
const CHECKPOINT: u8 = 3;
const DETAILS: u8 = 4;

/// The log that is written to.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    /// Where the next frame goes.
    end: u64,
    last_seq: u64,
}

/// What became of a record.
pub(crate) enum Append {
    /// It is on stable storage.
    Done,
    /// It is not there, and will not be.
    Undone(io::Error),
    /// Only reopening tells.
    Unknown(io::Error),
}

/// A record as it was read.
pub(crate) struct Frame {
    pub path: PathBuf,
    pub format: u8,
    pub offset: u64,
    pub payload: Vec<u8>,
    /// What stands in front of it, each with its offset.
    pub details: Vec<(u64, Vec<u8>)>,
}

/// A checkpoint as it was read.
pub(crate) struct Checkpoint {
    pub format: u8,
    pub payload: Vec<u8>,
}

/// All records behind a checkpoint.
pub(crate) struct Contents {
    pub frames: Vec<Frame>,
    /// The number of the last record, read or checkpointed.
    pub last_seq: u64,
    /// Where the last log's valid bytes end.
    pub end: u64,
    /// That of the last log.
    pub format: u8,
    pub torn: Option<Torn>,
}

/// Bytes of a write that was never answered.
pub(crate) struct Torn {
    pub path: PathBuf,
    pub offset: u64,
    pub size_bytes: u64,
}

/// The files of a folder, by number.
#[derive(Default)]
pub(crate) struct Found {
    pub checkpoint: Option<(PathBuf, u64)>,
    pub logs: Vec<(PathBuf, u64)>,
}

impl Log {
    /// An empty log whose first record will be `first_seq`: whole and durable, or not there. Takes the place of an empty one that
    /// begins so.
    pub fn create(dir: &Path, first_seq: u64) -> Result<Self> {
        let path = dir.join(format!("log-{first_seq:020}.tarn"));
        let tmp = path.with_extension("tmp");
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&tmp);
        let file = file.map_err(io_error("create", &tmp))?;
        file.write_all_at(&header(LOG_MAGIC), 0).map_err(io_error("write", &tmp))?;
        file.sync_all().map_err(io_error("sync", &tmp))?;
        fs::rename(&tmp, &path).map_err(io_error("rename", &tmp))?;
        sync_dir(dir)?;
        Ok(Self { path, file, end: HEADER_BYTES, last_seq: first_seq - 1 })
    }

    /// Goes on behind `end`; what lies there is cut off first.
    pub fn reopen(path: &Path, last_seq: u64, end: u64) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io_error("open", path))?;
        file.set_len(end).map_err(io_error("cut", path))?;
        if end < HEADER_BYTES {
            file.write_all_at(&header(LOG_MAGIC), 0).map_err(io_error("write", path))?;
        }
        file.sync_all().map_err(io_error("sync", path))?;
        let mut log = Self { path: path.to_owned(), file, end: end.max(HEADER_BYTES), last_seq };
        log.seal();
        Ok(log)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    pub fn size_bytes(&self) -> u64 {
        self.end - HEADER_BYTES
    }

    /// Adds a record behind its details, synced.
    pub fn append(&mut self, details: &[Vec<u8>], payload: &[u8]) -> Append {
        let seq = self.last_seq + 1;
        let n_bytes = details.iter().map(|details| FRAME_BYTES + details.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(n_bytes + FRAME_BYTES + payload.len());
        let frames = details.iter().map(|details| (DETAILS, &details[..])).chain([(RECORD, payload)]);
        for (kind, payload) in frames {
            if let Err(too_long) = put_frame(&mut bytes, seq, kind, payload) {
                return Append::Undone(too_long);
            }
        }
        if let Err(error) = self.file.write_all_at(&bytes, self.end) {
            let undone = self.file.set_len(self.end).and_then(|()| self.file.sync_data());
            return if undone.is_ok() { Append::Undone(error) } else { Append::Unknown(error) };
        }
        if let Err(error) = self.file.sync_data() {
            return Append::Unknown(error);
        }
        self.end += bytes.len() as u64;
        self.last_seq = seq;
        self.seal();
        Append::Done
    }

    /// Not synced, and no loss when it fails: the next record takes its place.
    fn seal(&mut self) {
        let mut seal = Vec::with_capacity(FRAME_BYTES);
        put_frame(&mut seal, self.last_seq, SEAL, &[]).expect("an empty frame is short");
        if self.file.write_all_at(&seal, self.end).is_ok() {
            self.end += seal.len() as u64;
        }
    }
}

/// Writes a checkpoint of the state after record `seq`: whole and durable, or not there. Answers its size.
pub(crate) fn write_checkpoint(dir: &Path, seq: u64, payload: &[u8]) -> Result<u64> {
    let path = dir.join(format!("checkpoint-{seq:020}.tarn"));
    let tmp = path.with_extension("tmp");
    let mut bytes = Vec::with_capacity(FRAME_BYTES + payload.len());
    put_frame(&mut bytes, seq, CHECKPOINT, payload).map_err(io_error("write", &tmp))?;
    let file = File::create(&tmp).map_err(io_error("create", &tmp))?;
    file.write_all_at(&header(CHECKPOINT_MAGIC), 0).map_err(io_error("write", &tmp))?;
    file.write_all_at(&bytes, HEADER_BYTES).map_err(io_error("write", &tmp))?;
    file.sync_all().map_err(io_error("sync", &tmp))?;
    fs::rename(&tmp, &path).map_err(io_error("rename", &tmp))?;
    sync_dir(dir)?;
    Ok(payload.len() as u64)
}

pub(crate) fn read_checkpoint(path: &Path, seq: u64) -> Result<Checkpoint> {
    let bytes = fs::read(path).map_err(io_error("read", path))?;
    let format = check_header(path, &bytes, CHECKPOINT_MAGIC)?;
    let body = &bytes[HEADER_BYTES as usize..];
    match parse(body) {
        Some(found) if found.kind == CHECKPOINT && found.seq == seq && found.size() == body.len() => {
            Ok(Checkpoint { format, payload: found.payload.to_vec() })
        }
        _ => Err(corrupt(path, HEADER_BYTES, "the checkpoint does not match its checksum")),
    }
}

/// Cuts off a write that was never answered.
pub(crate) fn cut(torn: &Torn) -> Result<()> {
    let file = OpenOptions::new().write(true).open(&torn.path).map_err(io_error("open", &torn.path))?;
    file.set_len(torn.offset).and_then(|()| file.sync_all()).map_err(io_error("cut", &torn.path))
}

/// Deletes the logs and checkpoints that the checkpoint at `seq` replaces. What stays is ignored by `scan`'s reader.
pub(crate) fn remove_before(dir: &Path, seq: u64, current: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let path = entry.map_err(io_error("list", dir))?.path();
        let old = match numbered(&path) {
            Some(("log", _)) => path != current,
            Some(("checkpoint", at)) => at < seq,
            _ => false,
        };
        if old {
            fs::remove_file(&path).map_err(io_error("delete", &path))?;
        }
    }
    sync_dir(dir)
}

/// What is in the folder. Deletes files that were never finished.
pub(crate) fn scan(dir: &Path) -> Result<Found> {
    let mut found = Found::default();
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let path = entry.map_err(io_error("list", dir))?.path();
        if path.extension().is_some_and(|extension| extension == "tmp") {
            fs::remove_file(&path).map_err(io_error("delete", &path))?;
            continue;
        }
        match numbered(&path) {
            Some(("log", seq)) => found.logs.push((path, seq)),
            Some(("checkpoint", seq)) if found.checkpoint.as_ref().is_none_or(|(_, newest)| *newest < seq) => {
                found.checkpoint = Some((path, seq));
            }
            _ => {}
        }
    }
    found.logs.sort_by_key(|(_, seq)| *seq);
    let after = found.checkpoint.as_ref().map_or(0, |(_, seq)| *seq);
    match (found.logs.first(), &found.checkpoint) {
        (Some((path, first)), _) if *first > after + 1 => {
            Err(corrupt(path, 0, format!("the log starts at record {first}, what is before it ends at {after}")))
        }
        (None, Some((path, _))) => Err(corrupt(path, 0, "the log that goes with this checkpoint is missing")),
        _ => Ok(found),
    }
}

/// The records after `checkpoint_seq`, in order and without a gap.
pub(crate) fn read(logs: &[(PathBuf, u64)], checkpoint_seq: u64) -> Result<Contents> {
    let before = logs.first().map_or(checkpoint_seq, |(_, first)| first - 1);
    let mut contents = Contents { frames: Vec::new(), last_seq: before, end: 0, format: codec::FORMAT, torn: None };
    for (path, _) in logs {
        let bytes = fs::read(path).map_err(io_error("read", path))?;
        contents.end = 0;
        if is_unfinished_header(&bytes) && Some(path) == logs.last().map(|(path, _)| path) {
            break;
        }
        contents.format = check_header(path, &bytes, LOG_MAGIC)?;
        contents.end = HEADER_BYTES;
        read_frames(path, &bytes, checkpoint_seq, &mut contents)?;
    }
    if contents.last_seq < checkpoint_seq {
        let (path, _) = logs.last().expect("without a log there is nothing to fall short");
        let reason = format!("the log ends at record {}, the checkpoint at {checkpoint_seq}", contents.last_seq);
        return Err(corrupt(path, contents.end, reason));
    }
    Ok(contents)
}

/// Reads the writes of one log. Details wait for their record; `contents.end` is behind the last whole write.
fn read_frames(path: &Path, bytes: &[u8], checkpoint_seq: u64, contents: &mut Contents) -> Result<()> {
    let mut offset = contents.end as usize;
    let mut details = Vec::new();
    while offset < bytes.len() {
        let last = contents.last_seq;
        let found = step(&bytes[offset..], last);
        // What came before a valid frame was answered: it is not a torn end.
        if let (Some(_), Some(torn)) = (&found, &contents.torn) {
            return Err(corrupt(&torn.path, torn.offset, "the frame does not match its checksum"));
        }
        let Some(found) = found else {
            if contents.torn.is_some() || is_answered(&bytes[offset + 1..], last + 1) {
                return Err(corrupt(path, offset as u64, "the frame does not match its checksum"));
            }
            break;
        };
        offset += found.skipped;
        let follows = match found.kind {
            SEAL => found.seq == last && details.is_empty(),
            DETAILS => found.seq == last + 1 && contents.format >= 2,
            RECORD => found.seq == last + 1,
            _ => false,
        };
        if !follows {
            let reason = format!("frame {} of kind {} follows on record {last}", found.seq, found.kind);
            return Err(corrupt(path, offset as u64, reason));
        }
        let (at, size) = (offset as u64, found.size());
        offset += size;
        if found.kind == DETAILS {
            details.push((at, found.payload.to_vec()));
            continue;
        }
        if found.kind == RECORD && found.seq > checkpoint_seq {
            let (path, payload, details) = (path.to_owned(), found.payload.to_vec(), std::mem::take(&mut details));
            contents.frames.push(Frame { path, format: contents.format, offset: at, payload, details });
        }
        details.clear();
        contents.last_seq = found.seq;
        contents.end = offset as u64;
    }
    if contents.end < bytes.len() as u64 {
        let size_bytes = bytes.len() as u64 - contents.end;
        contents.torn = Some(Torn { path: path.to_owned(), offset: contents.end, size_bytes });
    }
    Ok(())
}

struct Parsed<'a> {
    seq: u64,
    kind: u8,
    payload: &'a [u8],
    /// Bytes of a lost seal in front of it.
    skipped: usize,
}

impl Parsed<'_> {
    fn size(&self) -> usize {
        FRAME_BYTES + self.payload.len()
    }
}

/// The frame at the start of `bytes`. A seal is not synced: when it did not reach the disk and the write behind it did, that
/// write is taken.
fn step(bytes: &[u8], last: u64) -> Option<Parsed<'_>> {
    if let Some(found) = parse(bytes) {
        return Some(found);
    }
    let found = parse(bytes.get(FRAME_BYTES..)?)?;
    let follows = (found.kind == RECORD || found.kind == DETAILS) && found.seq == last + 1;
    follows.then_some(Parsed { skipped: FRAME_BYTES, ..found })
}

fn parse(bytes: &[u8]) -> Option<Parsed<'_>> {
    let (head, rest) = bytes.split_at_checked(FRAME_BYTES)?;
    let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let payload = rest.get(..u32_at(0) as usize)?;
    let seq = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
    (checksum(head, payload) == u32_at(4)).then_some(Parsed { seq, kind: head[16], payload, skipped: 0 })
}

/// Is there anything in these bytes that is only there when write `seq` was synced: its seal, or a frame of a later write?
fn is_answered(bytes: &[u8], seq: u64) -> bool {
    let proves = |head: &[u8]| {
        let found = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
        let first = match head[16] {
            SEAL => seq,
            RECORD | DETAILS => seq + 1,
            _ => return false,
        };
        (first..=first.saturating_add(u64::from(u32::MAX))).contains(&found)
    };
    bytes.windows(FRAME_BYTES).enumerate().any(|(at, head)| proves(head) && parse(&bytes[at..]).is_some())
}

fn put_frame(out: &mut Vec<u8>, seq: u64, kind: u8, payload: &[u8]) -> io::Result<()> {
    let len = u32::try_from(payload.len())
        .map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, format!("record of {} bytes", payload.len())))?;
    let start = out.len();
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&seq.to_le_bytes());
    out.push(kind);
    let crc = checksum(&out[start..], payload);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(payload);
    Ok(())
}

/// Over everything in the frame but the checksum itself.
fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..4]), &head[8..FRAME_BYTES]);
    crc32c::crc32c_append(crc, payload)
}

fn header(magic: &[u8; 8]) -> [u8; HEADER_BYTES as usize] {
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
fn check_header(path: &Path, bytes: &[u8], magic: &[u8; 8]) -> Result<u8> {
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
fn numbered(path: &Path) -> Option<(&str, u64)> {
    let (kind, seq) = path.file_name()?.to_str()?.strip_suffix(".tarn")?.split_once('-')?;
    Some((kind, seq.parse().ok()?))
}

fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync", dir))
}

fn corrupt(path: &Path, offset: u64, reason: impl Into<String>) -> Error {
    Error::Corrupt { path: path.to_owned(), offset, reason: reason.into() }
}
