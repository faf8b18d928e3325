//! How do bytes get from the thread that encodes them into the store, with bounded memory?
//!
//! ```text
//! blocking thread: Pipe (io::Write) ── Piece… ──> upload(): one multipart upload per file
//! ```
//!
//! The channel holds a few pieces; when the store is slower than the encoder, the encoder waits. Checksums are made of
//! the bytes as the encoder hands them over, before anything can happen to them on their way.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use tarn_metastore::{Checksums, Summing};

use crate::error::store_error;
use crate::{Error, Result};

/// Bytes of one message.
const PIECE_BYTES: usize = 1 << 20;

/// Messages on the way.
const PIECES: usize = 8;

/// Parts of one upload on the way.
const PARTS: usize = 4;

pub(crate) enum UploadPart {
    Start(Path),
    Bytes(Bytes),
    /// Ends the object, which must have this many bytes.
    Finish {
        size_bytes: u64,
    },
}

pub(crate) fn channel() -> (mpsc::Sender<UploadPart>, mpsc::Receiver<UploadPart>) {
    mpsc::channel(PIECES)
}

/// Where an encoder writes one object.
pub(crate) struct Pipe {
    pieces: mpsc::Sender<UploadPart>,
    pending: Vec<u8>,
    summing: Summing,
}

impl Pipe {
    /// Blocks while the channel is full, as all methods do.
    pub fn start(pieces: mpsc::Sender<UploadPart>, path: Path) -> io::Result<Self> {
        let pipe = Self { pieces, pending: Vec::with_capacity(PIECE_BYTES), summing: Summing::default() };
        pipe.send(UploadPart::Start(path))?;
        Ok(pipe)
    }

    /// A block ends at `offset`; the bytes before it may still be on their way here.
    pub fn end_block(&mut self, offset: u64) {
        self.summing.cut(offset);
    }

    /// Nothing can be written behind it. Answers the checksums of all that was.
    pub fn finish(&mut self, size_bytes: u64) -> io::Result<Checksums> {
        io::Write::flush(self)?;
        self.send(UploadPart::Finish { size_bytes })?;
        Ok(std::mem::take(&mut self.summing).finish())
    }

    fn send(&self, piece: UploadPart) -> io::Result<()> {
        self.pieces.blocking_send(piece).map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the upload stopped"))
    }
}

impl io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.summing.feed(bytes);
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= PIECE_BYTES {
            io::Write::flush(self)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let full = std::mem::replace(&mut self.pending, Vec::with_capacity(PIECE_BYTES));
        self.send(UploadPart::Bytes(full.into()))
    }
}

/// Uploads what comes. Answers the ETags of the objects that were finished, in order; one that was not is given up.
pub(crate) async fn upload(
    store: Arc<dyn ObjectStore>,
    part_bytes: usize,
    mut pieces: mpsc::Receiver<UploadPart>,
) -> Result<Vec<Option<String>>> {
    let mut etags = Vec::new();
    let mut current: Option<(Path, BufWriter)> = None;
    while let Some(piece) = pieces.recv().await {
        match (piece, &mut current) {
            (UploadPart::Start(path), _) => {
                let writer = BufWriter::with_capacity(store.clone(), path.clone(), part_bytes);
                current = Some((path, writer.with_max_concurrency(PARTS)));
            }
            (UploadPart::Bytes(bytes), Some((path, writer))) => {
                if let Err(error) = writer.put(bytes).await {
                    let _ = writer.abort().await; // The first error is the one to tell; what stays is an orphan.
                    return Err(store_error("write", path)(error));
                }
            }
            (UploadPart::Finish { size_bytes }, Some((path, writer))) => {
                let failed =
                    |source: io::Error| object_store::Error::Generic { store: "upload", source: source.into() };
                writer.shutdown().await.map_err(|e| store_error("write", &path)(failed(e)))?;
                let found = store.head(path).await.map_err(store_error("look at", &path))?;
                if found.size != size_bytes {
                    return Err(Error::Size { path: path.to_string(), found: found.size, want: size_bytes });
                }
                etags.push(found.e_tag);
                current = None;
            }
            (_, None) => unreachable!("an object is started before it is written"),
        }
    }
    if let Some((_, mut writer)) = current {
        let _ = writer.abort().await; // The encoder failed and tells why.
    }
    Ok(etags)
}
