//! Which log is this, and which segments must be there?
//!
//! A log that lost its newest segment looks like one that ended before it, and one that lost an older one like a log
//! whose collector freed it. So the file `FORMAT` names the segment that takes frames, and those with frames before it.
//!
//! Invariant: the named segments are there. Each is durable, with its file's name, before it is named; it is renewed or
//! removed after it is durably named no more; and a segment is named before a frame in it is acknowledged. So if no
//! file has the number, a file is gone, wherever the power went.
//!
//! ```text
//! block 0: which log   block 1: names, even turns   block 2: names, odd turns
//! ```
//! Names are written over the older of the two: a torn write leaves the other, whose segments are still there. The log
//! goes on in another segment after one such write. Before a file is renewed or removed both are written without it: so
//! whichever of the two is damaged, the other names nothing that went.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::buffer::Buffers;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::format::{self, BLOCK, MAX_NAMES, SegmentList, SegmentRef};
use crate::options::Damage;
use crate::segment::{EXTENSION, Segment, TEMPORARY};
use crate::tail::{read_at, refuse};

/// The file's name, in the log's folder.
pub const FORMAT: &str = "FORMAT";
const HEAD_BYTES: u64 = 3 * BLOCK;

/// The open file.
pub struct FormatFile {
    /// The number of the log, in every segment of it.
    pub store: u64,
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    known: Mutex<FormatState>,
}

struct FormatState {
    /// The newer of those that are whole.
    names: Option<SegmentList>,
    both_whole: bool,
    /// Both say the same.
    in_both: bool,
}

impl FormatFile {
    /// `None`: there is no such file.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<FormatFile>> {
        let path = dir.join(FORMAT);
        let file = match disk.open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Io { action: "open", path, source }),
        };
        let first = read_at(&*file, &path, 0, BLOCK)?;
        let store = format::decode_format(&first).map_err(|bad| refuse(bad, &path, 0))?;
        let bytes = read_at(&*file, &path, BLOCK, HEAD_BYTES - BLOCK)?;
        let both = bytes.chunks_exact(BLOCK as usize).map(|block| SegmentList::decode(block, store).ok());
        let both: Vec<Option<SegmentList>> = both.collect();
        let both_whole = both.iter().all(Option::is_some);
        let said = |names: &Option<SegmentList>| names.as_ref().map(|names| (names.newest, names.before.clone()));
        let in_both = both_whole && said(&both[0]) == said(&both[1]);
        let names = both.into_iter().flatten().max_by_key(|names| names.turn);
        Ok(Some(FormatFile { store, file, path, known: Mutex::new(FormatState { names, both_whole, in_both }) }))
    }

    /// Of a new log, durable; it names no segment.
    pub fn create(disk: &dyn Disk, dir: &Path) -> Result<FormatFile> {
        let path = dir.join(FORMAT);
        let temporary = dir.join(format!("{FORMAT}{TEMPORARY}"));
        let store = disk.salt();
        let both = [0, 1].map(|turn| SegmentList { turn, ..SegmentList::default() });
        let mut bytes = format::encode_format(store);
        both.iter().for_each(|names| bytes.extend(names.encode(store)));
        let write = || -> io::Result<Arc<dyn DiskFile>> {
            let file = disk.create(&temporary, 0)?;
            file.write_at(&bytes, 0)?;
            file.sync()?;
            disk.rename(&temporary, &path)?;
            disk.sync_dir(dir)?;
            Ok(file)
        };
        let file = write().map_err(Error::io("write", &path))?;
        let [_, names] = both;
        let known = FormatState { names: Some(names), both_whole: true, in_both: true };
        Ok(FormatFile { store, file, path, known: Mutex::new(known) })
    }

    /// The number of the segment that takes frames; 0: there is none yet, or it cannot be told.
    pub fn newest_seq(&self) -> u64 {
        self.known.lock().names.as_ref().map_or(0, |names| names.newest.seq)
    }

    /// Whether both blocks of names could be read.
    pub fn is_whole(&self) -> bool {
        self.known.lock().both_whole
    }

    /// As it was read, it survives the power: a killed process may have left names that are only in the page cache.
    pub fn sync(&self) -> Result<()> {
        self.file.sync().map_err(Error::io("sync", &self.path))
    }

    /// Names the segment that takes frames, and all with frames before it, oldest first; all are durable. Durable when
    /// this returns. Writes nothing if they are named already.
    pub fn name(&self, newest: &Segment, before: &[Arc<Segment>], buffers: &Buffers) -> Result<()> {
        let before = before.iter().map(|segment| segment_ref(segment)).collect();
        let name = |old: &SegmentList| SegmentList { newest: segment_ref(newest), before, ..*old };
        self.write_both(name, buffers)
    }

    /// The log goes on in `newest`; `before`: the sealed one before it, if it got frames. One write.
    pub fn enter(&self, newest: &Segment, before: Option<&Segment>, buffers: &Buffers) -> io::Result<()> {
        let enter = |old: &SegmentList| {
            let before = old.before.iter().copied().chain(before.map(segment_ref)).collect();
            SegmentList { newest: segment_ref(newest), before, ..*old }
        };
        let mut known = self.known.lock();
        let names = known.change(enter);
        self.write(&mut known, names, buffers)
    }

    /// The segment may be renewed or removed when this returns.
    pub fn let_go(&self, dead: &Segment, buffers: &Buffers) -> Result<()> {
        let let_go = |old: &SegmentList| {
            let before = old.before.iter().copied().filter(|place| place.seq != dead.seq).collect();
            SegmentList { before, ..*old }
        };
        self.write_both(let_go, buffers)
    }

    fn write_both(&self, change: impl FnOnce(&SegmentList) -> SegmentList, buffers: &Buffers) -> Result<()> {
        let mut known = self.known.lock();
        let names = known.change(change);
        if known.in_both && known.names.as_ref() == Some(&names) {
            return Ok(());
        }
        let mut write = || self.write(&mut known, names.clone(), buffers).map_err(Error::io("write", &self.path));
        write()?;
        write()?;
        known.both_whole = true;
        known.in_both = true;
        Ok(())
    }

    /// Over the older of the two. Who writes holds the lock meanwhile: there is one place for the next names.
    fn write(&self, known: &mut FormatState, names: SegmentList, buffers: &Buffers) -> io::Result<()> {
        let turn = known.names.as_ref().map_or(0, |old| old.turn) + 1;
        let names = SegmentList { turn, ..names };
        known.in_both = false;
        let mut buffer = buffers.take(BLOCK as usize);
        buffer.extend(&names.encode(self.store));
        self.file.write_durable(buffer.bytes(), BLOCK * (1 + turn % 2))?;
        buffers.give(buffer);
        known.names = Some(names);
        Ok(())
    }

    /// Damage for each named segment that is gone, newest first, or one if nobody can tell. `all`: the number of each
    /// segment, and whether it has frames.
    pub fn find_gone(&self, all: &[(u64, bool)]) -> Vec<Damage> {
        let known = self.known.lock();
        let Some(SegmentList { newest, before, .. }) = &known.names else {
            let what = "neither list of the segments is whole: nobody can tell whether all are there".to_string();
            return vec![Damage { path: self.path.clone(), offset: BLOCK, what }];
        };
        let is_newest_gone = newest.seq > 0 && all.iter().all(|&(seq, _)| seq != newest.seq);
        let gone_before = before.iter().rev().filter(|place| !all.contains(&(place.seq, true)));
        let gone = Some(newest).filter(|_| is_newest_gone).into_iter().chain(gone_before);
        gone.map(|place| self.gone(place)).collect()
    }

    fn gone(&self, SegmentRef { seq, slot }: &SegmentRef) -> Damage {
        let dir = self.path.parent().unwrap_or(Path::new(""));
        let path = dir.join(format!("{slot:016}{EXTENSION}"));
        let what = format!(
            "this file is missing: {} names it as segment {seq}, and no file in {} holds that segment; put it back",
            self.path.display(),
            dir.display()
        );
        Damage { path, offset: 0, what }
    }
}

impl FormatState {
    /// The names as they will be; those of the oldest segments are left out when they are too many.
    fn change(&self, change: impl FnOnce(&SegmentList) -> SegmentList) -> SegmentList {
        let mut names = change(&self.names.clone().unwrap_or_default());
        let surplus = names.before.len().saturating_sub(MAX_NAMES);
        names.before.drain(..surplus);
        names
    }
}

fn segment_ref(segment: &Segment) -> SegmentRef {
    SegmentRef { seq: segment.seq, slot: slot_of(&segment.path) }
}

/// The number in the file's name.
fn slot_of(path: &Path) -> u64 {
    path.file_stem().and_then(|stem| stem.to_str()?.parse().ok()).unwrap_or(0)
}
