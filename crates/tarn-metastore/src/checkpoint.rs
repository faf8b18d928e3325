//! How does the whole state come to the disk beside a log whose writers must not wait?
//!
//! A checkpoint is a file of one frame (docs/formats/metastore.md). It is made piece by piece: a piece is encoded,
//! written and synced before the next one, so it needs little memory, and a sync of the log that comes meanwhile waits
//! for one piece at most. The frame's head, whose length and checksum are known last, is written last; then the file
//! gets its name.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::io_error;
use crate::log::{self, CHECKPOINT, FRAME_BYTES, HEADER_BYTES};
use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"TARNMCKP";

/// What is synced at once.
const PIECE_BYTES: usize = 128 << 10;

/// A checkpoint as it was read.
pub(crate) struct Checkpoint {
    /// Of the records in it: what decoding them has to know.
    pub format: u8,
    /// Whole, and under its checksum.
    pub payload: Vec<u8>,
}

/// A checkpoint that is being written. Under its name it is whole and durable, or not there.
pub(crate) struct CheckpointWriter {
    path: PathBuf,
    tmp: PathBuf,
    file: File,
    seq: u64,
    n_bytes: u64,
    crc: u32,
}

impl CheckpointWriter {
    /// Of the state after write `seq`.
    pub fn create(dir: &Path, seq: u64) -> Result<Self> {
        let path = dir.join(format!("checkpoint-{seq:020}.tarn"));
        let tmp = path.with_extension("tmp");
        let file = File::create(&tmp).map_err(io_error("create", &tmp))?;
        file.write_all_at(&log::header(MAGIC), 0).map_err(io_error("write", &tmp))?;
        Ok(Self { path, tmp, file, seq, n_bytes: 0, crc: crc32c::crc32c(&[]) })
    }

    /// Takes what was encoded so far, once that is worth a sync.
    pub fn offer(&mut self, encoded: &mut Vec<u8>) -> Result<()> {
        if encoded.len() < PIECE_BYTES { Ok(()) } else { self.put(encoded) }
    }

    fn put(&mut self, encoded: &mut Vec<u8>) -> Result<()> {
        for piece in encoded.chunks(PIECE_BYTES) {
            let at = HEADER_BYTES + FRAME_BYTES as u64 + self.n_bytes;
            self.file.write_all_at(piece, at).map_err(io_error("write", &self.tmp))?;
            self.file.sync_data().map_err(io_error("sync", &self.tmp))?;
            self.crc = crc32c::crc32c_append(self.crc, piece);
            self.n_bytes += piece.len() as u64;
        }
        encoded.clear();
        Ok(())
    }

    /// Takes the rest. Answers the size of it all.
    pub fn finish(mut self, encoded: &mut Vec<u8>) -> Result<u64> {
        self.put(encoded)?;
        let head = log::frame_head(self.seq, CHECKPOINT, self.n_bytes as usize, |head| {
            crc32c::crc32c_combine(head, self.crc, self.n_bytes as usize)
        });
        let head = head.map_err(io_error("write", &self.tmp))?;
        self.file.write_all_at(&head, HEADER_BYTES).map_err(io_error("write", &self.tmp))?;
        self.file.sync_all().map_err(io_error("sync", &self.tmp))?;
        fs::rename(&self.tmp, &self.path).map_err(io_error("rename", &self.tmp))?;
        log::sync_dir(self.path.parent().unwrap_or(Path::new(".")))?;
        Ok(self.n_bytes)
    }
}

/// # Errors
/// `Corrupt` when it is not whole, or not that of write `seq`.
pub(crate) fn read(path: &Path, seq: u64) -> Result<Checkpoint> {
    let bytes = fs::read(path).map_err(io_error("read", path))?;
    let format = log::check_header(path, &bytes, MAGIC)?;
    match log::only_frame(&bytes[HEADER_BYTES as usize..], CHECKPOINT, seq) {
        Some(payload) => Ok(Checkpoint { format, payload: payload.to_vec() }),
        None => {
            let (path, reason) = (path.to_owned(), "the checkpoint does not match its checksum".to_owned());
            Err(Error::Corrupt { path, offset: HEADER_BYTES, reason })
        }
    }
}

/// Deletes the checkpoints before the one at `seq`.
pub(crate) fn remove_before(dir: &Path, seq: u64) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let path = entry.map_err(io_error("list", dir))?.path();
        if log::numbered(&path).is_some_and(|(kind, at)| kind == "checkpoint" && at < seq) {
            fs::remove_file(&path).map_err(io_error("delete", &path))?;
        }
    }
    Ok(())
}
