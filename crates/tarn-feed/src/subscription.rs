//! How far has this listener come? Checkpoints that survive a restart, one small file per name, and the reader that
//! uses them.
//!
//! A checkpoint file is one line of JSON, `{"format":1,"cursor":{"1":17}}`, replaced by rename after an fsync: it is
//! always whole. A listener sees each change at least once; it sees it exactly once if it keeps the cursor together
//! with what it made of the changes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tarn_types::Cursor;

use crate::changes::{Change, ChangeLog};
use crate::error::{Error, Result};

const FORMAT: u32 = 1;
const MAX_NAME_BYTES: usize = 200;
const SUFFIX: &str = ".checkpoint";

#[derive(Serialize, Deserialize)]
struct Line {
    format: u32,
    cursor: Cursor,
}

/// A folder of checkpoints.
pub struct Checkpoints {
    dir: PathBuf,
    /// One writer at a time, since the temporary file has one name.
    writing: Mutex<()>,
}

impl Checkpoints {
    /// Opens the folder, making it if it is not there.
    pub fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        Ok(Self { dir: dir.to_owned(), writing: Mutex::new(()) })
    }

    /// Where the listener stands; None if it never confirmed anything.
    pub fn load(&self, name: &str) -> Result<Option<Cursor>> {
        let path = self.path(name)?;
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Io { context: "read", path, source }),
        };
        let line: Line =
            serde_json::from_slice(&text).map_err(|e| Error::Corrupt { path: path.clone(), reason: e.to_string() })?;
        if line.format != FORMAT {
            return Err(Error::Corrupt { path, reason: format!("format {}, want {FORMAT}", line.format) });
        }
        Ok(Some(line.cursor))
    }

    /// Remembers where the listener stands; durable when it returns. Two fsyncs.
    pub fn store(&self, name: &str, cursor: &Cursor) -> Result<()> {
        let path = self.path(name)?;
        let line = serde_json::to_string(&Line { format: FORMAT, cursor: cursor.clone() })
            .map_err(|e| Error::Corrupt { path: path.clone(), reason: e.to_string() })?;
        let _writing = self.writing.lock();
        let temporary = self.dir.join("next.tmp");
        let mut file = fs::File::create(&temporary).map_err(Error::io("create", &temporary))?;
        writeln!(file, "{line}").and_then(|()| file.sync_all()).map_err(Error::io("write", &temporary))?;
        fs::rename(&temporary, &path).map_err(Error::io("rename to", &path))?;
        fs::File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(Error::io("sync", &self.dir))
    }

    /// Forgets the listener.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        match fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::Io { context: "remove", path, source })
            }
            _ => Ok(()),
        }
    }

    /// The names of all listeners, ascending.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(Error::io("list", &self.dir))? {
            let entry = entry.map_err(Error::io("list", &self.dir))?;
            if let Some(name) = entry.file_name().to_str().and_then(|file| file.strip_suffix(SUFFIX)) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(plain) {
            return Err(Error::BadName { name: name.to_owned() });
        }
        Ok(self.dir.join(format!("{name}{SUFFIX}")))
    }
}

/// One listener of one table's changes.
pub struct Subscription {
    name: String,
    checkpoints: Arc<Checkpoints>,
    log: Arc<dyn ChangeLog>,
    position: Cursor,
}

impl Subscription {
    /// Goes on from the listener's last checkpoint, or from the beginning.
    pub fn open(checkpoints: Arc<Checkpoints>, name: &str, log: Arc<dyn ChangeLog>) -> Result<Self> {
        let position = checkpoints.load(name)?.unwrap_or_default();
        Ok(Self { name: name.to_owned(), checkpoints, log, position })
    }

    /// How far [`Subscription::poll`] has come.
    #[must_use]
    pub fn position(&self) -> &Cursor {
        &self.position
    }

    /// The next changes, about `max_bytes` of them; none when the listener has seen everything. See
    /// [`ChangeLog::read`].
    pub fn poll(&mut self, max_bytes: usize) -> Result<Vec<Change>> {
        let changes = self.log.read(&self.position, max_bytes)?;
        for change in &changes {
            let seen = self.position.get(change.tablet);
            assert!(change.seqno > seen, "seqno regression of tablet {}: {seen} → {}", change.tablet, change.seqno);
            self.position.advance(change.tablet, change.seqno);
        }
        Ok(changes)
    }

    /// Confirms what was polled up to `cursor`: a restart goes on from there. Durable when it returns.
    pub fn checkpoint(&self, cursor: &Cursor) -> Result<()> {
        if !self.position.covers(cursor) {
            return Err(Error::NotPolled {
                name: self.name.clone(),
                polled: self.position.clone(),
                asked: cursor.clone(),
            });
        }
        self.checkpoints.store(&self.name, cursor)
    }

    /// Jumps to a place, for instance to the cursor of a snapshot after [`Error::Trimmed`].
    pub fn seek(&mut self, cursor: Cursor) {
        self.position = cursor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_types::{SeqNo, TabletId};

    fn at(seqno: u64) -> Cursor {
        [(TabletId(1), SeqNo(seqno))].into_iter().collect()
    }

    #[test]
    fn a_checkpoint_survives_and_names_itself() {
        let dir = tempfile::tempdir().unwrap();
        let store = Checkpoints::open(dir.path()).unwrap();
        assert_eq!(store.load("a").unwrap(), None);
        store.store("a", &at(4)).unwrap();
        store.store("b", &at(9)).unwrap();
        store.store("a", &at(5)).unwrap();
        let again = Checkpoints::open(dir.path()).unwrap();
        assert_eq!(again.load("a").unwrap(), Some(at(5)));
        assert_eq!(again.names().unwrap(), ["a", "b"]);
        again.remove("a").unwrap();
        again.remove("a").unwrap();
        assert_eq!(again.names().unwrap(), ["b"]);
    }

    #[test]
    fn a_broken_or_newer_checkpoint_is_named_and_never_read_as_the_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let store = Checkpoints::open(dir.path()).unwrap();
        for text in ["", "{\"format\":1", "{\"format\":2,\"cursor\":{}}"] {
            fs::write(dir.path().join("a.checkpoint"), text).unwrap();
            let error = store.load("a").unwrap_err();
            assert_eq!(error.kind(), tarn_types::Kind::Corrupt);
            assert!(error.to_string().contains("a.checkpoint"), "{error}");
        }
    }

    #[test]
    fn a_name_never_leaves_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let store = Checkpoints::open(dir.path()).unwrap();
        for name in ["", "../x", "a/b", "ä", &"x".repeat(300)] {
            assert!(matches!(store.store(name, &at(1)), Err(Error::BadName { .. })), "{name}");
        }
    }

    #[test]
    fn what_was_not_polled_is_not_confirmed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Checkpoints::open(dir.path()).unwrap());
        let log: Arc<dyn ChangeLog> = Arc::new(crate::changes::MemoryLog::default());
        let subscription = Subscription::open(store, "s", log).unwrap();
        assert!(matches!(subscription.checkpoint(&at(1)), Err(Error::NotPolled { .. })));
    }
}
