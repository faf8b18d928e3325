//! What do these files hold? Values are read whole and tested; what is no good is forgotten, and is a miss.

use std::fs::File;
use std::io::{self, IoSliceMut, Read, Seek};
use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;
use rustix::io::Errno;

use super::cache::{DiskCache, header_len};
use super::cached;
use super::format;
use super::key::DiskKey;
use crate::ttl::oldest_ms;

/// Values that were read together.
#[derive(Debug, Default)]
pub(crate) struct ReadAll {
    /// The files, one behind the other.
    pub buffer: Bytes,
    /// Of each key, where its value is and when it was written; `None` as [`DiskCache::read`] has it.
    pub values: Vec<Option<(Range<usize>, i64)>>,
}

/// Why a file gave nothing.
enum DiskReadFailure {
    Expired,
    Damaged,
    /// The file may be good: this process has too many open, or too little memory.
    NoMeans,
}

impl From<io::Error> for DiskReadFailure {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => DiskReadFailure::NoMeans,
            _ => DiskReadFailure::Damaged,
        }
    }
}

impl<K: DiskKey> DiskCache<K> {
    /// The value of `key` and when it was written. `None`: it is not there any more, damaged, too old, another's, or
    /// files cannot be opened now. Blocks on the disk.
    pub(crate) fn read(&self, key: &K) -> Option<(Bytes, i64)> {
        self.read_or_forget(key, || {
            let (file, len) = self.open_file(key)?;
            let mut value = vec![0; usize::try_from(len).map_err(|_| DiskReadFailure::Damaged)?];
            let written_ms = self.fill(key, file, &mut value)?;
            Ok((value.into(), written_ms))
        })
    }

    /// The values of `keys`, whose lengths they know, one behind the other in one buffer. Blocks on the disk.
    pub(crate) fn read_all(&self, keys: &[K]) -> ReadAll {
        if keys.len() > 1 {
            let paths: Vec<PathBuf> = keys.iter().map(|key| self.path(&key.entry_id())).collect();
            cached::prefetch(paths.iter().map(PathBuf::as_path));
        }
        let Some((slots, len)) = slots(keys) else { return ReadAll::default() };
        let mut buffer = self.buffers.take(len);
        let mut read = |(key, place): (&K, Range<usize>)| {
            let value = &mut buffer[place.clone()];
            let written_ms = self.read_or_forget(key, || {
                let (file, len) = self.open_file(key)?;
                if len != value.len() as u64 {
                    return Err(DiskReadFailure::Damaged);
                }
                self.fill(key, file, value)
            })?;
            Some((place, written_ms))
        };
        let values = keys.iter().zip(slots).map(&mut read).collect();
        ReadAll { buffer: buffer.into(), values }
    }

    /// The same, if they are near enough to be read without waiting for a disk: all of them, and whole. `None`: ask
    /// [`DiskCache::read_all`].
    pub(crate) fn read_cached(&self, keys: &[K]) -> Option<ReadAll> {
        let (slots, len) = slots(keys)?;
        let mut buffer = self.buffers.take(len);
        let mut values = vec![];
        for (key, place) in keys.iter().zip(slots) {
            let value = &mut buffer[place.clone()];
            let mut head = vec![0; header_len(key)];
            let file = cached::open(&self.path(&key.entry_id()))?;
            if file.metadata().ok()?.len() != (head.len() + value.len()) as u64
                || !cached::read(&file, &mut head, value)
            {
                return None;
            }
            values.push(Some((place, self.checked(key, &head, value).ok()?)));
        }
        Some(ReadAll { buffer: buffer.into(), values })
    }

    /// What `attempt` reads of the file of `key`. When it fails although nobody has the file in hand, the file is
    /// forgotten.
    fn read_or_forget<T>(&self, key: &K, mut attempt: impl FnMut() -> Result<T, DiskReadFailure>) -> Option<T> {
        if let Ok(value) = attempt() {
            return Some(value);
        }
        // Meanwhile it may have been evicted, and written again.
        let _writing = self.writing.lock();
        if !self.state.lock().kept.contains(&key.entry_id()) {
            return None;
        }
        let failed = match attempt() {
            Ok(value) => return Some(value),
            Err(failed) => failed,
        };
        let mut state = self.state.lock();
        match failed {
            DiskReadFailure::NoMeans => return None,
            DiskReadFailure::Expired => state.stats.expired += 1,
            DiskReadFailure::Damaged => state.stats.damaged += 1,
        }
        state.kept.remove(&key.entry_id());
        drop(state);
        self.forget_files([key.entry_id()].into_iter());
        None
    }

    /// The file of `key`, and how long its value is.
    fn open_file(&self, key: &K) -> Result<(File, u64), DiskReadFailure> {
        let file = File::open(self.path(&key.entry_id()))?;
        let len = file.metadata()?.len().checked_sub(header_len(key) as u64);
        let len = len.filter(|len| key.value_len().map_or(*len <= self.options.max_bytes, |want| *len == want));
        Ok((file, len.ok_or(DiskReadFailure::Damaged)?))
    }

    /// Reads and tests the value of `key`, as long as its file has it. Returns when it was written.
    fn fill(&self, key: &K, mut file: File, value: &mut [u8]) -> Result<i64, DiskReadFailure> {
        let mut head = vec![0; header_len(key)];
        let len = head.len() + value.len();
        if file.read_vectored(&mut [IoSliceMut::new(&mut head), IoSliceMut::new(value)])? < len {
            // A signal, or a file that others write.
            file.rewind()?;
            file.read_exact(&mut head)?;
            file.read_exact(value)?;
        }
        self.checked(key, &head, value)
    }

    /// When `value` was written, if it is what was written for `key`.
    fn checked(&self, key: &K, head: &[u8], value: &[u8]) -> Result<i64, DiskReadFailure> {
        let header = format::read_header(K::MAGIC, head).filter(|header| key.matches(header.key));
        let header = header.filter(|header| header.is_of(value)).ok_or(DiskReadFailure::Damaged)?;
        match header.written_ms < oldest_ms(&self.options.ttl) {
            true => Err(DiskReadFailure::Expired),
            false => Ok(header.written_ms),
        }
    }
}

/// Where the values of `keys` go in one buffer, and how long it is. `None`: a key does not know its value's length.
fn slots<K: DiskKey>(keys: &[K]) -> Option<(Vec<Range<usize>>, usize)> {
    let mut at = 0;
    let place = |key: &K| {
        let start = at;
        at += usize::try_from(key.value_len()?).ok()?;
        Some(start..at)
    };
    let slots = keys.iter().map(place).collect::<Option<_>>()?;
    Some((slots, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_lacks_is_not_the_files_fault() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(matches!(DiskReadFailure::from(io::Error::from(errno)), DiskReadFailure::NoMeans), "{errno}");
        }
        for errno in [Errno::NOENT, Errno::IO] {
            assert!(matches!(DiskReadFailure::from(io::Error::from(errno)), DiskReadFailure::Damaged), "{errno}");
        }
    }
}
