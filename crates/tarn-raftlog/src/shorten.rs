//! How does a segment that ended early give its space back?
//!
//! After a crash the newest segment is sealed where it stands, at its file's full length: cutting a file costs more
//! than all else that opening writes. The collector cuts it later: it copies the seal to right behind the frames,
//! durable, and then shortens the file so that it ends with the copy. At each step the file's end is a whole seal.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::format::{self, BLOCK, Trailer};
use crate::open_log::OpenLog;
use crate::segment::Segment;
use crate::tail::{read_at, refuse};

impl OpenLog {
    /// Shortens sealed segments more than half of which is unused.
    pub fn shorten(&self) -> Result<()> {
        let wasteful = |segment: &&Arc<Segment>| {
            segment.is_sealed()
                && segment.end.load(Ordering::Relaxed) < segment.size_bytes() / 2
                && segment.live_items() > 0
        };
        let found: Vec<_> = self.lane.lock().segments.values().filter(wasteful).cloned().collect();
        found.iter().try_for_each(|segment| self.shorten_one(segment))
    }

    /// Nobody renews the file meanwhile: it is held.
    fn shorten_one(&self, segment: &Segment) -> Result<()> {
        let (file, path) = (&*segment.file, &segment.path);
        let trailer_offset = segment.size_bytes() - BLOCK;
        let trailer = Trailer::decode(&read_at(file, path, trailer_offset, BLOCK)?);
        let trailer = trailer.map_err(|bad| refuse(bad, path, trailer_offset))?;
        if trailer.salt != segment.salt || !(trailer.frames_end..trailer_offset).contains(&trailer.seal_offset) {
            return Err(Error::corrupt(path, trailer_offset, "trailer of another use of the file"));
        }
        let seal_offset = format::align(trailer.frames_end);
        let seal = read_at(file, path, trailer.seal_offset, trailer_offset - trailer.seal_offset)?;
        let len = seal.len() as u64 + BLOCK;
        if seal_offset + len > trailer.seal_offset {
            return Ok(());
        }
        let write = || {
            let mut buffer = self.buffers.take(len as usize);
            buffer.extend(&seal);
            buffer.extend(&Trailer { seal_offset, ..trailer }.encode());
            file.write_durable(buffer.bytes(), seal_offset)?;
            self.buffers.give(buffer);
            file.set_len(seal_offset + len)?;
            file.sync()?;
            file.rest();
            Ok(())
        };
        write().map_err(Error::io("shorten", path))?;
        segment.size_bytes.store(seal_offset + len, Ordering::Relaxed);
        Ok(())
    }
}
