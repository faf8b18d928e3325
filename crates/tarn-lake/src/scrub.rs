//! Is every byte of every file still what was written? Read at a pace that its caller sets, whether or not anybody asks
//! for the rows.
//!
//! Rows are read when they are asked for, and some are not for years. A scrub goes round: table by table, file by file,
//! each from its first byte to its last. What it finds is remembered ([`Lake::flaws`]) until a later round finds the
//! file whole, or gone.

use std::collections::BTreeSet;
use std::ops::Range;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use tarn_metastore::{Damage, File, PIECE_BYTES, VersionSelector};
use tarn_types::{FileId, Kind, TableId};

use crate::checked::CheckedReader;
use crate::error::{parquet_error, store_error};
use crate::flaws::{Flaw, Flaws};
use crate::lake::metastore_error;
use crate::{Error, Lake, Result};

/// Bytes of one read.
const READ_BYTES: u64 = 4 << 20;

/// A stretch of a file that was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Where it ends, and the next one begins; the size of the file when it was the last.
    pub end: u64,
    /// That were read.
    pub bytes: u64,
    /// What is wrong: one for each run of damaged bytes, with path, block and columns.
    pub flaws: Vec<String>,
}

/// Where a scrub stands.
#[derive(Debug, Default)]
pub struct ScrubPosition {
    /// Table, file and byte that come next.
    next: (TableId, FileId, u64),
    /// In this round.
    flawed: BTreeSet<(TableId, FileId)>,
}

/// What one step of a scrub did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubStats {
    /// That were read.
    pub bytes: u64,
    /// Read to their end.
    pub files: u64,
    /// That were not known before.
    pub found: Vec<Flaw>,
    /// The last file is done: the next step begins with the first one.
    pub is_round: bool,
}

impl Lake {
    /// Goes on where `round` stands, for about `budget_bytes`; a file counts as [`PIECE_BYTES`] at least.
    ///
    /// # Errors
    /// Those of the store and the metastore; the next step goes on at the same place.
    pub async fn scrub(&self, round: &mut ScrubPosition, budget_bytes: u64) -> Result<ScrubStats> {
        let mut done = ScrubStats::default();
        let mut left = budget_bytes;
        let tables = self.metastore.tables().await.map_err(metastore_error("list the tables behind", round.next.0))?;
        let mut ids: Vec<_> = tables.iter().filter(|schema| schema.has_rows()).map(|of| of.id).collect();
        ids.sort_unstable();
        for table in ids.into_iter().filter(|id| *id >= round.next.0).collect::<Vec<_>>() {
            if table != round.next.0 {
                round.next = (table, FileId(0), 0);
            }
            let version = match self.metastore.snapshot(table, VersionSelector::Latest).await {
                Ok(version) => version,
                Err(error) if error.kind() == Kind::NotFound => continue,
                Err(error) => return Err(metastore_error("read the version", table)(error)),
            };
            for file in version.files.iter().filter(|file| file.id >= round.next.1).cloned().collect::<Vec<_>>() {
                if file.id != round.next.1 {
                    round.next = (table, file.id, 0);
                }
                loop {
                    if left == 0 {
                        return Ok(done);
                    }
                    let from = round.next.2;
                    let stretch = match self.check_stretch(&file, from, left).await {
                        Ok(stretch) => stretch,
                        // It may have left the table while it was read.
                        Err(_) if !self.has_file(table, file.id).await? => break,
                        Err(error) => return Err(error),
                    };
                    if !stretch.flaws.is_empty() && self.has_file(table, file.id).await? {
                        round.flawed.insert((table, file.id));
                        let what = stretch.flaws.join("; ");
                        done.found.extend(self.flaws.add(Flaw { table, file: file.id, path: file.path.clone(), what }));
                    }
                    done.bytes += stretch.bytes;
                    left = left.saturating_sub(stretch.bytes.max(PIECE_BYTES));
                    round.next.2 = stretch.end;
                    if stretch.end >= file.size_bytes {
                        break;
                    }
                }
                done.files += 1;
                round.next = (table, FileId(file.id.0 + 1), 0);
            }
            round.next = (TableId(table.0 + 1), FileId(0), 0);
        }
        let ScrubPosition { flawed, .. } = std::mem::take(round);
        self.flaws.keep_only(&flawed);
        done.is_round = true;
        Ok(done)
    }

    async fn has_file(&self, table: TableId, file: FileId) -> Result<bool> {
        match self.metastore.snapshot(table, VersionSelector::Latest).await {
            Ok(version) => Ok(version.file(file).is_some()),
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            Err(error) => Err(metastore_error("read the version", table)(error)),
        }
    }

    /// Reads about `max_bytes` of a file from `from` on, where a stretch ended or the file begins. At its begin the
    /// size is held against what was committed. A file without checksums has its size looked at and is not read.
    ///
    /// # Errors
    /// Those of the store, if it cannot say what there is.
    pub async fn check_stretch(&self, file: &File, from: u64, max_bytes: u64) -> Result<Stretch> {
        let mut stretch = Stretch { end: file.size_bytes, ..Stretch::default() };
        if from == 0 {
            let path = Path::parse(&file.path).map_err(|e| store_error("look at", &file.path)(e.into()))?;
            match self.store.head(&path).await {
                Ok(found) if found.size == file.size_bytes => {}
                Ok(found) => {
                    let wrong = Error::Size { path: file.path.clone(), found: found.size, want: file.size_bytes };
                    stretch.flaws.push(wrong.to_string());
                    return Ok(stretch);
                }
                Err(object_store::Error::NotFound { .. }) => {
                    stretch.flaws.push(format!("{} is missing", file.path));
                    return Ok(stretch);
                }
                Err(error) => return Err(store_error("look at", &file.path)(error)),
            }
        }
        let Some(checksums) = &file.checksums else { return Ok(stretch) };
        let reader = CheckedReader::new(self.store.clone(), file)?;
        let upto = file.size_bytes.min(from.saturating_add(max_bytes.max(1)));
        stretch.end = from;
        let mut damaged: Vec<Range<u64>> = vec![];
        while stretch.end < upto {
            let run = checksums.around(&(stretch.end..upto.min(stretch.end + READ_BYTES)));
            if let Some(damage) = damage_of(&reader, file, &run).await? {
                let mut pieces = vec![damage];
                // Each piece by itself from there on: one that is damaged says nothing of the next.
                let mut at = pieces[0].range.end;
                while at < run.end {
                    let piece = checksums.around(&(at..at + 1));
                    pieces.extend(damage_of(&reader, file, &piece).await?);
                    at = piece.end;
                }
                for Damage { range } in pieces {
                    match damaged.last_mut() {
                        Some(last) if last.end == range.start => last.end = range.end,
                        _ => damaged.push(range),
                    }
                }
            }
            stretch.bytes += run.end - stretch.end;
            stretch.end = run.end;
        }
        for range in damaged {
            stretch.flaws.push(reader.damaged(Damage { range }).await.to_string());
        }
        Ok(stretch)
    }

    /// The files that are known not to be as they were written.
    pub fn flaws(&self) -> &Flaws {
        &self.flaws
    }

    /// Reads the files of a table again that are known to be damaged, and forgets of which nothing is wrong any more.
    pub async fn look_again(&self, table: TableId) -> Result<()> {
        for Flaw { file: id, .. } in self.flaws.of_table(table) {
            let version = self.metastore.snapshot(table, VersionSelector::Latest).await;
            let version = version.map_err(metastore_error("read the version", table))?;
            let is_whole = match version.file(id) {
                Some(file) => self.check_stretch(file, 0, u64::MAX).await?.flaws.is_empty(),
                None => true,
            };
            if is_whole {
                self.flaws.remove(table, id);
            }
        }
        Ok(())
    }
}

/// What is wrong with a run of pieces.
async fn damage_of(reader: &CheckedReader, file: &File, run: &Range<u64>) -> Result<Option<Damage>> {
    match reader.read(std::slice::from_ref(run)).await {
        Ok(_) => Ok(None),
        Err(error) => match Damage::of(&error) {
            Some(damage) => Ok(Some(damage.clone())),
            None => Err(parquet_error("read", &file.path)(error)),
        },
    }
}
