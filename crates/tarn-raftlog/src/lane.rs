//! Where does the next batch go, and which frame is written next?
//!
//! The one stream of frames, under one short lock: numbers are given, places fixed, nothing is encoded or written here.
//! A batch joins the newest queued frame, or opens one behind it. A frame that opens a segment waits for all before it,
//! and nothing is written beside it until the old segment is sealed: only the newest segment can have a torn tail. Its
//! segment is named (`head`) before it is written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cache::Data;
use crate::format::{self, BATCH_HEAD, BLOCK, FIRST_FRAME, FRAME_HEADER, FrameHeader, FrameKind, SEAL_LINE, Trailer};
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use crate::segment::Segment;

/// A frame takes no more batches beyond this, so that one torn write stays small beside a segment.
const FRAME_BYTES: u64 = 8 << 20;
/// Frames being written at once: a second one doubles what the device does, a third only waits in it.
const WINDOW: usize = 2;

/// The one stream of frames, and the segments that it goes through.
pub struct Lane {
    /// All but the free ones, by number.
    pub segments: BTreeMap<u64, Arc<Segment>>,
    /// Empty, ready to take frames, used in this order.
    pub free: BTreeMap<u64, Arc<Segment>>,
    /// The segment that takes new frames.
    pub active: Arc<Segment>,
    /// The number of the next segment: higher than any that was used.
    pub next_seq: u64,
    /// Where the next frame starts in `active`, when no frame is queued.
    next_offset: u64,
    /// Size of the seal that `active` will need.
    seal_bytes: u64,
    /// Nothing is in them and nothing will be, but a higher number is in use: to be renewed before they are used.
    pub idle: Vec<Arc<Segment>>,
    /// The segment that FORMAT names as the newest (`head`): it must stay there, with this number.
    named_seq: u64,
    /// The number of the next batch; they begin at 1.
    pub next_lsn: u64,
    /// Frames that are queued or being written.
    pub frames: Pipeline<Frame>,
    /// The segment of the frames being written, and its seal as it grows.
    writing: Draft,
    /// A frame is acknowledged when it is on the device.
    flushed: bool,
    /// A segment is being sealed, or the next one named: no frame may begin.
    sealing: bool,
    /// Of batches that were submitted and are not acknowledged.
    pub pending_bytes: u64,
    /// Why nothing is written any more.
    pub poisoned: Option<Arc<str>>,
    /// A host's thread that commits for those who do not wait.
    pub committer: Option<Arc<Gate>>,
    /// No more batches are taken.
    pub closed: bool,
    /// What is counted under the lane's lock.
    pub counters: Metrics,
}

/// One batch as it goes to disk.
pub struct EncodedBatch {
    /// With its checksum: complete.
    pub head_and_meta: Vec<u8>,
    /// Shared with the cache.
    pub data: Arc<Data>,
    /// On disk.
    pub data_bytes: u64,
}

impl EncodedBatch {
    /// The batch, for whoever writes it; its data stays here too.
    pub fn take(&mut self) -> EncodedBatch {
        let (head_and_meta, data) = (std::mem::take(&mut self.head_and_meta), Arc::clone(&self.data));
        EncodedBatch { head_and_meta, data, data_bytes: self.data_bytes }
    }

    /// In a frame.
    pub fn size_bytes(&self) -> u64 {
        self.head_and_meta.len() as u64 + self.data_bytes
    }
}

/// Batches that will be one group commit, at a place already settled.
pub struct Frame {
    /// Where the frame goes.
    pub segment: Arc<Segment>,
    /// Of its header in the segment.
    pub offset: u64,
    first_lsn: u64,
    /// In the order of their numbers.
    pub batches: Vec<EncodedBatch>,
    /// What its batches take so far.
    pub payload_bytes: u64,
}

impl Frame {
    /// Of its newest batch.
    pub fn last_lsn(&self) -> u64 {
        self.first_lsn + self.batches.len() as u64 - 1
    }

    /// Where the next batch of this frame would start.
    fn next_offset(&self) -> u64 {
        self.offset + FRAME_HEADER as u64 + self.payload_bytes
    }

    /// Where the next frame starts.
    pub fn end(&self) -> u64 {
        format::frame_end(self.offset, self.payload_bytes, self.segment.unit)
    }
}

/// A frame to be written by whoever holds this, after the segment before it is sealed and its own is named, if that is
/// asked.
pub struct Work {
    /// Taken from the queue; nobody adds to it.
    pub frame: Frame,
    /// With its checksums.
    pub header: [u8; FRAME_HEADER],
    /// What seals the segment before it, if this frame is the first of its segment.
    pub seal: Option<Draft>,
    /// It is the first frame of its segment, and the log was in another one.
    pub enters: bool,
}

/// What the seal of a segment will say.
pub struct Draft {
    /// The one to be sealed.
    pub segment: Arc<Segment>,
    lines: Vec<u8>,
    n_batches: u32,
    /// Frames in it so far.
    pub n_frames: u32,
    first_lsn: u64,
    first_prev_crc: u32,
    /// The chain: CRC of the last frame, the lsn after it, and where it ends.
    pub last_crc: u32,
    /// As the next segment begins.
    pub next_lsn: u64,
    /// Of the last frame in the segment.
    pub end: u64,
}

/// The end of the log as recovery finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// Of the header of the last frame; 0 in a new log.
    pub crc: u32,
    /// Of the batch that comes next; 1 in a new log.
    pub next_lsn: u64,
}

/// What a batch asks of its place.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Head and records.
    pub meta_bytes: u64,
    /// Payloads, as they are on disk.
    pub data_bytes: u64,
}

impl Lane {
    /// A log that goes on behind `chain` in `active`. `flushed`: a frame counts when it is on the device.
    pub fn new(
        segments: BTreeMap<u64, Arc<Segment>>,
        free: BTreeMap<u64, Arc<Segment>>,
        active: Arc<Segment>,
        next_seq: u64,
        chain: Chain,
        flushed: bool,
    ) -> Lane {
        Lane {
            segments,
            free,
            writing: Draft::new(&active, chain),
            named_seq: active.seq,
            active,
            next_seq,
            next_offset: FIRST_FRAME,
            seal_bytes: FRAME_HEADER as u64,
            idle: Vec::new(),
            next_lsn: chain.next_lsn,
            frames: Pipeline::new(WINDOW, chain.next_lsn - 1),
            flushed,
            sealing: false,
            pending_bytes: 0,
            poisoned: None,
            committer: None,
            closed: false,
            counters: Metrics::default(),
        }
    }

    /// The place for a batch: its segment and offset, in a frame that is then the newest. `Err`: a segment of at least
    /// so many bytes must be made first.
    pub fn place(&mut self, room: Room, segment_bytes: u64) -> Result<(Arc<Segment>, u64), u64> {
        let size_bytes = room.meta_bytes + room.data_bytes;
        let line_bytes = SEAL_LINE as u64 + room.meta_bytes;
        let seal_bytes = self.seal_bytes + line_bytes;
        // Without a spare the last part of a segment is kept for batches that free space, such as purges.
        let kept = if !self.free.is_empty() || room.data_bytes == 0 { 0 } else { (segment_bytes / 8).min(1 << 20) };
        let needs = |end: u64, seal_bytes: u64| format::align(end) + format::align(seal_bytes) + BLOCK;
        let active_bytes = self.active.size_bytes();
        let fits = |end: u64| needs(end, seal_bytes) + kept <= active_bytes;

        if let Some((frame, _)) = self.frames.newest()
            && frame.payload_bytes < FRAME_BYTES
            && fits(frame.next_offset() + size_bytes)
        {
            self.seal_bytes = seal_bytes;
            return Ok((Arc::clone(&frame.segment), frame.next_offset()));
        }
        let start = self.next_offset();
        if fits(start + FRAME_HEADER as u64 + size_bytes) {
            self.seal_bytes = seal_bytes;
            return Ok(self.open_frame(start));
        }
        let seal_bytes = FRAME_HEADER as u64 + line_bytes;
        let needed = needs(FIRST_FRAME + FRAME_HEADER as u64 + size_bytes, seal_bytes);
        let Some(next) = self.take_free(needed) else { return Err(needed.max(segment_bytes)) };
        if start == FIRST_FRAME && self.segments.remove(&self.active.seq).is_some() {
            self.idle.push(Arc::clone(&self.active));
        }
        self.active = next;
        self.segments.insert(self.active.seq, Arc::clone(&self.active));
        self.seal_bytes = seal_bytes;
        Ok(self.open_frame(FIRST_FRAME))
    }

    /// The first empty segment of at least so many bytes. Numbers are used in ascending order: shorter ones before it
    /// must be renewed before they can be used.
    fn take_free(&mut self, bytes: u64) -> Option<Arc<Segment>> {
        let seq = self.free.values().find(|segment| segment.size_bytes() >= bytes)?.seq;
        let behind = self.free.split_off(&seq);
        self.idle.extend(std::mem::replace(&mut self.free, behind).into_values());
        self.free.remove(&seq)
    }

    /// Where a frame behind all others would start, in `active`.
    fn next_offset(&mut self) -> u64 {
        match self.frames.newest() {
            Some((frame, _)) => frame.end(),
            None => self.next_offset,
        }
    }

    fn open_frame(&mut self, offset: u64) -> (Arc<Segment>, u64) {
        let segment = Arc::clone(&self.active);
        let first_lsn = self.next_lsn;
        let frame = Frame { segment: Arc::clone(&segment), offset, first_lsn, batches: Vec::new(), payload_bytes: 0 };
        self.frames.push(frame, first_lsn);
        (segment, offset + FRAME_HEADER as u64)
    }

    /// Queues a batch at the place it was just given. Returns its lsn.
    pub fn push(&mut self, batch: EncodedBatch) -> u64 {
        let lsn = self.next_lsn;
        self.next_lsn += 1;
        self.pending_bytes += batch.size_bytes();
        self.counters.batches += 1;
        if let Some((frame, last_lsn)) = self.frames.newest() {
            frame.payload_bytes += batch.size_bytes();
            frame.batches.push(batch);
            *last_lsn = lsn;
        }
        lsn
    }

    /// Whether [`Lane::take`] would give work.
    pub fn has_work(&self) -> bool {
        if self.sealing || self.poisoned.is_some() {
            return false;
        }
        self.frames
            .next()
            .is_some_and(|frame| frame.segment.seq == self.writing.segment.seq || self.frames.in_flight() == 0)
    }

    /// The gate at which one is to be let through who will write the next frame, if there is one and somebody wants it.
    pub fn pick_writer(&mut self) -> Option<Arc<Gate>> {
        if !self.has_work() {
            return None;
        }
        let waits = self.frames.pick_gate();
        waits.or_else(|| self.frames.wants_call().then(|| self.committer.take()).flatten())
    }

    /// The next frame, if it may be written now.
    pub fn take(&mut self) -> Option<Work> {
        if !self.has_work() {
            return None;
        }
        let frame = self.frames.start()?;
        if self.frames.queued() == 0 {
            self.next_offset = frame.end();
        }
        let mut seal = None;
        let enters = frame.segment.seq != self.writing.segment.seq;
        if enters {
            let next = Draft::new(&frame.segment, self.writing.chain());
            let old = std::mem::replace(&mut self.writing, next);
            // A segment without frames is no part of the log: it needs no seal.
            seal = (old.n_batches > 0).then_some(old);
            self.sealing = true;
        }
        // All in flight are of this segment. Without flushes, what is acknowledged may be lost all the same.
        let in_flight = self.frames.in_flight() as u32 - 1;
        let acknowledged = if self.flushed { self.writing.n_frames - in_flight } else { 0 };
        let header = self.writing.add(&frame, acknowledged);
        Some(Work { frame, header, seal, enters })
    }

    /// The segment before, if it had frames, is sealed, and this one is named; its frames may be written side by side.
    pub fn entered(&mut self, segment: &Segment) {
        self.sealing = false;
        self.named_seq = segment.seq;
    }

    /// Whether it is not the segment that must be there.
    pub fn may_go(&self, segment: &Segment) -> bool {
        segment.seq != self.named_seq
    }

    /// Takes out an idle segment that may be renewed.
    pub fn take_idle(&mut self) -> Option<Arc<Segment>> {
        let at = self.idle.iter().position(|segment| self.may_go(segment))?;
        Some(self.idle.swap_remove(at))
    }

    /// Takes no more batches, and lets the committer go when it has written what is wanted. Returns the last lsn.
    pub fn close(&mut self) -> u64 {
        self.closed = true;
        self.committer.take().iter().for_each(|committer| committer.open());
        self.next_lsn - 1
    }

    /// The newest segment's seal, if it has frames and all are acknowledged; nothing is written after it.
    pub fn take_last(&mut self) -> Option<Draft> {
        if self.frames.in_flight() + self.frames.queued() > 0 || self.writing.n_batches == 0 {
            return None;
        }
        self.sealing = true;
        let next = Draft::new(&self.active, self.writing.chain());
        Some(std::mem::replace(&mut self.writing, next))
    }

    /// Nothing is written any more. The first cause counts.
    pub fn fail(&mut self, cause: Arc<str>) {
        self.poisoned.get_or_insert(cause);
    }

    /// How much of `active` is given away.
    pub fn used_bytes(&mut self) -> u64 {
        self.next_offset()
    }
}

impl Draft {
    /// A segment that begins behind `chain`, without frames.
    pub fn new(segment: &Arc<Segment>, chain: Chain) -> Draft {
        Draft {
            segment: Arc::clone(segment),
            lines: Vec::new(),
            n_batches: 0,
            n_frames: 0,
            first_lsn: chain.next_lsn,
            first_prev_crc: chain.crc,
            last_crc: chain.crc,
            next_lsn: chain.next_lsn,
            end: FIRST_FRAME,
        }
    }

    fn chain(&self) -> Chain {
        Chain { crc: self.last_crc, next_lsn: self.next_lsn }
    }

    /// Takes in a frame of this segment; returns its header.
    fn add(&mut self, frame: &Frame, acknowledged: u32) -> [u8; FRAME_HEADER] {
        assert_eq!(frame.first_lsn, self.next_lsn, "frames are written in the order of their batches");
        let mut header = FrameHeader {
            kind: FrameKind::Frame,
            salt: self.segment.salt,
            lsn: frame.first_lsn,
            ordinal: self.n_frames,
            acknowledged,
            n_batches: frame.batches.len() as u32,
            prev_crc: self.last_crc,
            payload_bytes: frame.payload_bytes as u32,
            payload_crc: 0,
            crc: 0,
        };
        let encoded = header.encode(frame.batches.iter().map(|batch| &batch.head_and_meta[..BATCH_HEAD]));
        let mut at = frame.offset + FRAME_HEADER as u64;
        for (lsn, batch) in (frame.first_lsn..).zip(&frame.batches) {
            let data_offset = at + batch.head_and_meta.len() as u64;
            self.line(lsn, data_offset, &batch.head_and_meta);
            at = data_offset + batch.data_bytes;
        }
        self.n_frames += 1;
        self.last_crc = header.crc;
        self.next_lsn = frame.last_lsn() + 1;
        self.end = frame.end();
        encoded
    }

    /// A batch of a frame that was read, not written.
    pub fn line(&mut self, lsn: u64, data_offset: u64, head_and_meta: &[u8]) {
        format::put_seal_line(&mut self.lines, lsn, data_offset, head_and_meta);
        self.n_batches += 1;
    }

    /// Size of the seal with its trailer, in whole blocks.
    pub fn seal_bytes(&self) -> u64 {
        format::align((FRAME_HEADER + self.lines.len()) as u64) + BLOCK
    }

    /// The seal, zeros, and the trailer, to be written so that they end the file.
    pub fn encode(&self, seal_offset: u64) -> (Vec<u8>, Vec<u8>) {
        let mut header = FrameHeader {
            kind: FrameKind::Seal,
            salt: self.segment.salt,
            lsn: self.next_lsn,
            ordinal: self.n_frames,
            acknowledged: self.n_frames,
            n_batches: self.n_batches,
            prev_crc: self.last_crc,
            payload_bytes: self.lines.len() as u32,
            payload_crc: 0,
            crc: 0,
        };
        let mut seal = header.encode([&self.lines[..]].into_iter()).to_vec();
        seal.extend_from_slice(&self.lines);
        let trailer = Trailer {
            salt: self.segment.salt,
            seal_offset,
            frames_end: self.end,
            n_frames: u64::from(self.n_frames),
            first_lsn: self.first_lsn,
            first_prev_crc: self.first_prev_crc,
            last_crc: self.last_crc,
        };
        (seal, trailer.encode())
    }

    /// Marks the segment sealed, of this length.
    pub fn done(&self, size_bytes: u64) {
        self.segment.size_bytes.store(size_bytes, Ordering::Relaxed);
        self.segment.end.store(self.end, Ordering::Relaxed);
        self.segment.sealed.store(true, Ordering::Release);
    }
}
