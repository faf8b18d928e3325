//! Which tables have their rows in this data folder, and which of them are being dropped?
//!
//! The metastore says which tables there are, but which of its tables this folder has, and whether it is the metastore
//! that goes with the folder, it cannot say: it may be cut short, an older copy, or another one. So the folder keeps a
//! list of its own, in the file `LEDGER`. At start the two are held against each other (`together.rs`), and nothing of
//! a table is ever deleted but what the ledger says was dropped (`drops.rs`).
//!
//! ```text
//! CREATE   creating + name ─> metastore ─> tables + entry
//! DROP     dropping + id   ─> metastore ─> dropped + entry ─> rows, log, files deleted ─> nothing
//! ```
//!
//! The file is written as a whole beside the old one, synced, and put in its place: after a crash it is the one before
//! or the one after. Its bytes are described in `docs/formats/ledger.md`.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tarn_types::{TableId, TableSchema, TabletId};
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::folder::io_error;
use crate::small_file::{replace, sealed, unsealed};

/// Its name in the data folder.
pub const NAME: &str = "LEDGER";

const FORMAT: u8 = 1;

/// A table that has, or had, its rows in the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Never another table's.
    pub id: TableId,
    /// The one that it was made with: its folder in the lake is called after it.
    pub name: String,
    /// The first id of its tablets.
    pub first_tablet: TabletId,
    /// How many ids are its own, for those it has and those that splits make.
    pub tablets: u32,
}

impl LedgerEntry {
    /// As the table was made: later names change nothing of its folder.
    pub fn of(schema: &TableSchema) -> LedgerEntry {
        let ids = schema.tablet_ids();
        LedgerEntry {
            id: schema.id,
            name: schema.made_as().to_owned(),
            first_tablet: ids.start,
            tablets: ids.end.0 - ids.start.0,
        }
    }

    /// All ids that may be of its tablets.
    pub fn tablets(&self) -> Range<TabletId> {
        self.first_tablet..TabletId(self.first_tablet.0.saturating_add(self.tablets))
    }

    /// Whether the tablet is, or was, one of the table's.
    pub fn has(&self, tablet: TabletId) -> bool {
        self.tablets().contains(&tablet)
    }
}

/// What the ledger says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerContent {
    /// The data folder. Tables in the metastore name it as their home, the row engine as its owner.
    pub folder: Uuid,
    /// Without archives, which have no rows.
    pub tables: Vec<LedgerEntry>,
    /// Names of tables that the metastore was asked to make, and that may be there or not.
    pub creating: Vec<String>,
    /// Of `tables`, those that the metastore was asked to drop, and that may be gone there or not.
    pub dropping: Vec<TableId>,
    /// Tables that the metastore has dropped, of which rows, log or files may be left.
    pub dropped: Vec<LedgerEntry>,
}

impl LedgerContent {
    /// A table was made or found.
    ///
    /// A metastore that is a copy of another gives out again what the other gave to tables that were dropped: from then
    /// on these ids mean the new table, and nothing more is removed under them.
    pub fn add(&mut self, entry: LedgerEntry) {
        self.creating.retain(|name| *name != entry.name);
        self.tables.retain(|known| known.id != entry.id);
        let is_reused =
            |gone: &LedgerEntry| gone.id == entry.id || entry.has(gone.first_tablet) || gone.has(entry.first_tablet);
        self.dropped.retain(|gone| !is_reused(gone));
        self.tables.push(entry);
    }

    /// A table is to be dropped; it may be one that a CREATE left half-made.
    pub fn begin_drop(&mut self, entry: &LedgerEntry) {
        self.add(entry.clone());
        self.end_drop(entry.id);
        self.dropping.push(entry.id);
    }

    /// It was not dropped.
    pub fn end_drop(&mut self, id: TableId) {
        self.dropping.retain(|known| *known != id);
    }

    /// The metastore has dropped it.
    pub fn finish_drop(&mut self, id: TableId) {
        self.end_drop(id);
        let (gone, left) = std::mem::take(&mut self.tables).into_iter().partition(|known| known.id == id);
        self.tables = left;
        self.dropped.extend::<Vec<LedgerEntry>>(gone);
    }
}

/// The ledger of a folder that is open.
pub struct Ledger {
    path: PathBuf,
    /// Held while it is written: changes come one after another.
    kept: Mutex<LedgerContent>,
}

impl Ledger {
    /// What the folder's ledger says; None: there is none, as in a new folder or one of an older build.
    ///
    /// Errors: `Corrupt`, when it is damaged.
    pub fn read(dir: &Path) -> Result<Option<LedgerContent>> {
        let path = dir.join(NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("read", &path, &error)),
        };
        decode(&bytes).map(Some).map_err(|reason| {
            Error::new(ErrorKind::Corrupt, format!("{}: {reason}", path.display())).with_hint(
                "put it back from a backup of the data folder. Removed, it is made anew from what the metastore lists, and for that one \
                 start nothing tells an older copy of the metastore from the right one",
            )
        })
    }

    /// Begins with `kept`, which is durable when this returns.
    pub fn begin(dir: &Path, kept: LedgerContent) -> Result<Ledger> {
        let ledger = Ledger { path: dir.join(NAME), kept: Mutex::default() };
        if Ledger::read(dir)?.as_ref() == Some(&kept) {
            *ledger.kept.lock() = kept;
        } else {
            ledger.change(|now| *now = kept)?;
        }
        Ok(ledger)
    }

    /// A copy of what the file says now.
    pub fn kept(&self) -> LedgerContent {
        self.kept.lock().clone()
    }

    /// Changes it; durable when this returns, and not changed when it fails. Cost: the file is written anew, two syncs.
    pub fn change(&self, change: impl FnOnce(&mut LedgerContent)) -> Result<()> {
        let mut kept = self.kept.lock();
        let mut next = kept.clone();
        change(&mut next);
        replace(&self.path, &encode(&next)).map_err(|error| io_error("write", &self.path, &error))?;
        *kept = next;
        Ok(())
    }
}

fn encode(kept: &LedgerContent) -> Vec<u8> {
    sealed(FORMAT, |bytes| {
        serde_json::to_writer(&mut *bytes, kept).expect("names and numbers are JSON, and a buffer takes them");
        bytes.push(b'\n');
    })
}

fn decode(bytes: &[u8]) -> std::result::Result<LedgerContent, String> {
    serde_json::from_slice(unsealed(FORMAT, bytes)?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u32, name: &str) -> LedgerEntry {
        LedgerEntry { id: TableId(id), name: name.to_owned(), first_tablet: TabletId(10 * id), tablets: 2 }
    }

    #[test]
    fn the_documented_bytes() {
        let kept =
            LedgerContent { folder: Uuid::from_u128(7), tables: vec![entry(1, "t")], ..LedgerContent::default() };
        let bytes = encode(&kept);
        assert_eq!(bytes[0], 1);
        assert_eq!(
            std::str::from_utf8(&bytes[5..]).unwrap(),
            "{\"folder\":\"00000000-0000-0000-0000-000000000007\",\"tables\":[{\"id\":1,\"name\":\"t\",\"first_tablet\":10,\
             \"tablets\":2}],\"creating\":[],\"dropping\":[],\"dropped\":[]}\n"
        );
        assert_eq!(decode(&bytes).unwrap(), kept);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let kept = LedgerContent {
            tables: vec![entry(1, "t"), entry(2, "é")],
            dropped: vec![entry(3, "u")],
            ..LedgerContent::default()
        };
        let bytes = encode(&kept);
        assert!((0..bytes.len()).all(|len| decode(&bytes[..len]).is_err()));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_change_is_on_disk_or_was_not_made() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Ledger::read(dir.path()).unwrap(), None);
        let ledger = Ledger::begin(dir.path(), LedgerContent::default()).unwrap();
        ledger.change(|kept| kept.creating.push("t".to_owned())).unwrap();
        ledger.change(|kept| kept.add(entry(1, "t"))).unwrap();
        ledger.change(|kept| kept.begin_drop(&entry(1, "t"))).unwrap();
        let asked = ledger.kept();
        assert_eq!((asked.creating.len(), asked.tables.len(), &asked.dropping[..]), (0, 1, &[TableId(1)][..]));
        ledger.change(|kept| kept.finish_drop(TableId(1))).unwrap();
        let kept = Ledger::read(dir.path()).unwrap().unwrap();
        assert_eq!(kept, LedgerContent { dropped: vec![entry(1, "t")], ..LedgerContent::default() });
        assert_eq!(kept, ledger.kept());

        let reused = LedgerEntry { name: "u".to_owned(), ..entry(1, "t") };
        let mut kept_on = kept.clone();
        kept_on.add(reused.clone());
        assert_eq!((kept_on.tables, kept_on.dropped), (vec![reused], vec![]), "the id is another table's now");

        fs::create_dir(dir.path().join("LEDGER.new")).unwrap();
        assert_eq!(ledger.change(|kept| kept.dropped.clear()).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(ledger.kept(), kept);
        fs::write(dir.path().join(NAME), b"").unwrap();
        let damaged = Ledger::read(dir.path()).unwrap_err();
        assert!(damaged.kind() == ErrorKind::Corrupt && damaged.message().contains("LEDGER"), "{damaged}");
    }
}
