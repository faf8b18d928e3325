//! Do the log, the rows and the metastore of a data folder belong together, and are they of one time?
//!
//! Asked at start, before the first delete, and before the first write that could not be taken back. A metastore that
//! is cut short, emptied, an older copy or another folder's lists other tables than the folder has, or older versions
//! than are installed in the rows. Then the start is refused: which of the two is right only the operator can say, and
//! both are as they were.
//!
//! | held against each other | what is told |
//! |---|---|
//! | ledger and folders | `log` or `rows` are not there |
//! | ledger, owner of the rows, homes of the tables | another folder's rows or metastore |
//! | ledger and the metastore's tables | an older, emptied or cut metastore; an older copy of the ledger |
//! | tablets in log and rows, and tables | the same, where there was no ledger yet |
//! | positions of rows, log and lake of each table | an older copy of one of the three |

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use tarn_metastore::{Metastore, TableVersion, VersionSelector};
use tarn_raftlog::{Index, RaftLog};
use tarn_replica::group_of;
use tarn_rows::{Engine, TableProgress, owner, standing, tables_beside, tablets_of};
use tarn_types::{SeqNo, TableId, TableSchema, TabletId};
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{Ledger, LedgerContent, LedgerEntry};
use crate::settings::{LogRecovery, NodeSettings, tablet_ranges};
use crate::{lake_store, metastores};

/// Tables whose versions are asked for at once.
const ASKED_AT_ONCE: usize = 16;

/// Tables that an error names; of more it says how many.
const NAMED: usize = 5;

const PUT_BACK: &str = "nothing was changed: put back the metastore, log and rows of one and the same time";

/// What was in the folder before anything was opened.
pub struct PriorState {
    kept: Option<LedgerContent>,
    had_log: bool,
    had_rows: bool,
}

/// What is to be done before tables are opened.
#[derive(Debug)]
pub struct StartupPlan {
    /// The ledger as it is to be.
    pub kept: LedgerContent,
    /// Rows that the operator gave up: in no table.
    pub abandoned: OrphanedData,
    /// Tables that do not name their home yet.
    pub homeless: Vec<Arc<TableSchema>>,
}

/// Rows and logs of which nothing is known, or no more than that they were here.
#[derive(Debug, Default)]
pub struct OrphanedData {
    /// All of these.
    pub tables: BTreeSet<TableId>,
    /// These, whoever they belong to.
    pub tablets: BTreeSet<TabletId>,
}

impl PriorState {
    /// Looks, and opens nothing.
    ///
    /// Errors: `Corrupt` for a damaged ledger, `WrongState` when it names tables and their log or rows are not there.
    pub fn look(settings: &NodeSettings) -> Result<PriorState> {
        let dir = &settings.data_dir;
        let kept = Ledger::read(dir)?;
        // An engine without this file takes all others for rubbish.
        let (had_log, had_rows) = (holds_log(&dir.join("log"))?, dir.join("rows/db/CURRENT").is_file());
        // Without both it is a new beginning: then no table may be left either.
        let kept = kept.filter(|_| had_log || had_rows);
        let has_tables = kept.as_ref().is_some_and(|kept| !kept.tables.is_empty());
        let may_lack_log = settings.log_recovery == LogRecovery::Quarantine;
        let missing = match (had_log, had_rows) {
            (false, true) if has_tables && !may_lack_log => "log",
            (true, false) if has_tables => "rows",
            _ => return Ok(PriorState { kept, had_log, had_rows }),
        };
        let names = kept.iter().flat_map(|kept| &kept.tables).map(|entry| entry.name.as_str());
        let message = format!(
            "the data folder {} has tables {}, and nothing of `{missing}` is there",
            dir.display(),
            named(names)
        );
        let without_log = match missing {
            "log" => format!("; or {}", quarantine_hint(&dir.join("log"))),
            _ => String::new(),
        };
        Err(Error::new(ErrorKind::WrongState, message).with_hint(format!(
            "put `{missing}` back (is it mounted? was it restored?); nothing was changed. To begin anew, move `log`, `rows` and the \
             metastore away, and the lake {}{without_log}",
            settings.lake_location()
        )))
    }

    /// Holds everything against everything; reads only.
    ///
    /// Errors: `WrongState` and `Corrupt`, naming what does not fit and what to do.
    pub async fn check(
        self,
        settings: &NodeSettings,
        log: &RaftLog,
        engine: &dyn Engine,
        metastore: &dyn Metastore,
    ) -> Result<StartupPlan> {
        let listed: Vec<Arc<TableSchema>> = metastore.tables().await?;
        let listed: Vec<Arc<TableSchema>> = listed.into_iter().filter(|table| table.has_rows()).collect();
        let folder = Folder { settings, listed };
        let owner = owner(engine)?.map(Uuid::from_bytes);
        let kept = match self.kept {
            Some(kept) => {
                folder.check_owner(owner, kept.folder)?;
                kept
            }
            None if !self.had_log && !self.had_rows && !folder.listed.is_empty() => return Err(folder.refuse_new()),
            None => folder.without_a_ledger(owner)?,
        };
        folder.check_homes(kept.folder)?;
        let (kept, abandoned) = folder.check_tables(kept, log, engine)?;
        let latest: Vec<_> =
            folder.listed.iter().map(|table| metastore.snapshot(table.id, VersionSelector::Latest)).collect();
        let latest: Vec<_> = stream::iter(latest).buffered(ASKED_AT_ONCE).try_collect().await?;
        for (table, latest) in folder.listed.iter().zip(latest) {
            folder.check_positions(table, &latest, &standing(engine, table)?, log)?;
        }
        let homeless = folder.listed.iter().filter(|table| table.options.home.is_none()).cloned().collect();
        Ok(StartupPlan { kept, abandoned, homeless })
    }
}

struct Folder<'a> {
    settings: &'a NodeSettings,
    /// Tables of the metastore that have rows.
    listed: Vec<Arc<TableSchema>>,
}

impl Folder<'_> {
    fn dir(&self) -> std::path::Display<'_> {
        self.settings.data_dir.display()
    }

    fn metastore(&self) -> String {
        match metastores::MetastoreLocation::of(self.settings) {
            Ok(place) => place.shown(),
            Err(_) => metastores::shown(&self.settings.metastore),
        }
    }

    fn refuse(&self, message: String, hint: impl Into<String>) -> Error {
        Error::new(ErrorKind::WrongState, message).with_hint(hint)
    }

    fn refuse_new(&self) -> Error {
        let names = self.listed.iter().map(|table| table.name.as_str());
        let message = format!(
            "the metastore {} lists tables {}, and the data folder {} has neither log nor rows",
            self.metastore(),
            named(names),
            self.dir()
        );
        let hint = "serve it with the data folder that these tables have their rows in, or put its `log` and `rows` back; a new data \
                    folder needs a metastore without tables";
        self.refuse(message, hint)
    }

    /// Of a folder that an older build served, or whose ledger was removed.
    fn without_a_ledger(&self, owner: Option<Uuid>) -> Result<LedgerContent> {
        let known = match owner {
            Some(owner) => Some(owner),
            None => lake_store::known_id(&self.settings.data_dir)?,
        };
        let tables = self.listed.iter().map(|table| LedgerEntry::of(table)).collect();
        Ok(LedgerContent { folder: known.unwrap_or_else(Uuid::new_v4), tables, ..LedgerContent::default() })
    }

    fn check_owner(&self, owner: Option<Uuid>, folder: Uuid) -> Result<()> {
        let Some(other) = owner.filter(|owner| *owner != folder) else { return Ok(()) };
        let rows = self.settings.data_dir.join("rows");
        let message =
            format!("{} belongs to the data folder with the id {other}, and this one has {folder}", rows.display());
        Err(self.refuse(message, PUT_BACK))
    }

    fn check_homes(&self, folder: Uuid) -> Result<()> {
        let elsewhere = |table: &&Arc<TableSchema>| table.options.home.is_some_and(|home| home != folder);
        let Some(first) = self.listed.iter().find(elsewhere) else { return Ok(()) };
        let home = first.options.home.unwrap_or_default();
        let message = format!(
            "the metastore {} is another data folder's: its tables {} have their rows in the one with the id {home}, and {} has {folder}",
            self.metastore(),
            named(self.listed.iter().filter(elsewhere).map(|table| table.name.as_str())),
            self.dir()
        );
        Err(self.refuse(
            message,
            "nothing was changed: set `metastore`, or put back the folder `meta`, that goes with this data folder",
        ))
    }

    /// What the ledger will say, and which tablets are to be removed.
    fn check_tables(
        &self,
        mut kept: LedgerContent,
        log: &RaftLog,
        engine: &dyn Engine,
    ) -> Result<(LedgerContent, OrphanedData)> {
        for table in &self.listed {
            let is_known = kept.tables.iter().any(|entry| entry.id == table.id && entry.has(table.first_tablet));
            if !is_known && kept.creating.contains(&table.name) {
                kept.add(LedgerEntry::of(table));
            } else if !is_known {
                return Err(self.refuse_unknown(table));
            }
        }
        let is_listed = |entry: &LedgerEntry| self.listed.iter().any(|table| table.id == entry.id);
        for id in kept.dropping.clone() {
            // What was asked for has happened, or it has not.
            match kept.tables.iter().any(|entry| entry.id == id && is_listed(entry)) {
                true => kept.end_drop(id),
                false => kept.finish_drop(id),
            }
        }
        kept.creating.clear();

        let missing: Vec<LedgerEntry> = kept.tables.iter().filter(|entry| !is_listed(entry)).cloned().collect();
        let known = || kept.tables.iter().chain(&kept.dropped);
        let beside = tables_beside(engine, &|table| known().any(|entry| entry.id == table))?;
        let groups: Vec<TabletId> = log.groups().into_iter().map(|group| TabletId(group.0 as u32)).collect();
        let unknown = groups.iter().copied().filter(|tablet| !known().any(|entry| entry.has(*tablet)));
        let orphans: BTreeSet<TabletId> = beside.values().flatten().copied().chain(unknown).collect();
        let mut lost = orphans.clone();
        for entry in &missing {
            lost.insert(entry.first_tablet);
            lost.extend(tablets_of(engine, entry.id)?);
            lost.extend(groups.iter().filter(|tablet| entry.has(**tablet)));
        }
        let tables = beside.keys().copied().chain(missing.iter().map(|entry| entry.id)).collect();
        if lost.is_empty() {
            return Ok((kept, OrphanedData::default()));
        }
        let given_up = tablet_ranges(&self.settings.abandon_tablets).unwrap_or_default();
        if lost.iter().all(|tablet| given_up.iter().any(|range| range.contains(&tablet.0))) {
            tracing::warn!(tablets = %ranges_text(&lost), "rows and log of tablets that no table has are given up");
            kept.tables.retain(is_listed);
            return Ok((kept, OrphanedData { tables, tablets: lost }));
        }
        if let Some(before) = metastores::moved_from(self.settings)? {
            return Err(metastores::refuse_move(&before, self.settings, lost.len()));
        }
        Err(self.refuse_lost(&missing, &orphans, &lost))
    }

    fn refuse_unknown(&self, table: &TableSchema) -> Error {
        let message = format!(
            "the metastore {} lists the table \"{}\" (id {}), which the data folder {} does not have: it was dropped, or never made here",
            self.metastore(),
            table.name,
            table.id,
            self.dir()
        );
        let hint = format!(
            "nothing was changed. The metastore is another one or an older copy, or the data folder is: put back what goes together. If a \
             build of Tarn that keeps no ledger made that table here, remove {}",
            self.settings.data_dir.join(crate::ledger::NAME).display()
        );
        self.refuse(message, hint)
    }

    fn refuse_lost(&self, missing: &[LedgerEntry], orphans: &BTreeSet<TabletId>, lost: &BTreeSet<TabletId>) -> Error {
        let mut what = String::new();
        if !missing.is_empty() {
            let _ = write!(what, "tables {}", named(missing.iter().map(|entry| entry.name.as_str())));
        }
        if !orphans.is_empty() {
            let and = if missing.is_empty() { "" } else { ", and " };
            let _ = write!(what, "{and}{} tablets that are no table's ({})", orphans.len(), ranges_text(orphans));
        }
        let message =
            format!("the data folder {} has {what}: the metastore {} does not list them", self.dir(), self.metastore());
        self.refuse(
            message,
            format!(
                "nothing was changed. The metastore is another one, an older copy, or was cut short: put back the one that goes with this \
                 data folder. To give up for good what log and rows have of these tablets, start once with --abandon-tablets {}",
                ranges_text(lost)
            ),
        )
    }

    /// Rows, log and lake of one table tell where they are: none may be behind what another one already counts on.
    fn check_positions(
        &self,
        table: &TableSchema,
        latest: &TableVersion,
        rows: &TableProgress,
        log: &RaftLog,
    ) -> Result<()> {
        let is_damaged = |tablet| log.check_group(group_of(tablet)).is_err();
        // The log lost something, and the operator knows: what is left of the table is shown.
        let tablets = || rows.applied.iter().map(|(tablet, _)| tablet);
        let may_lack = self.settings.log_recovery == LogRecovery::Quarantine || tablets().any(is_damaged);
        let opened = |error: String| {
            Error::new(ErrorKind::Corrupt, format!("open table \"{}\": {error}", table.name)).with_hint(PUT_BACK)
        };
        let (installed, cursor) = &rows.installed;
        if *installed > latest.version && !may_lack {
            let latest = latest.version;
            return Err(opened(tarn_lake::Error::Ahead { table: table.id, installed: *installed, latest }.to_string()));
        }
        for tablet in tablets().filter(|_| !may_lack) {
            // What a tablet has from before it was split off is in another one's log.
            let born = rows.born.get(&tablet).copied().unwrap_or_default();
            let (first, last) =
                (log.first_index(group_of(tablet)), SeqNo(log.last_index(group_of(tablet)).0).max(born));
            let (applied, delivered) = (rows.applied.get(tablet), latest.cursor.get(tablet));
            let behind = if applied > last {
                Some(tarn_replica::Error::LogBehind { tablet, applied, last }.to_string())
            } else if delivered > last {
                Some(format!("tablet {tablet} is delivered up to {delivered}, but its log ends at {last}"))
            } else {
                let needed = applied.min(cursor.get(tablet)).max(born).next();
                let is_there = first <= Index(needed.0);
                (!is_there).then(|| tarn_replica::Error::LogGone { tablet, needed, first: SeqNo(first.0) }.to_string())
            };
            if let Some(error) = behind {
                return Err(opened(error)
                    .with_hint(format!("{PUT_BACK}; or {}", quarantine_hint(&self.settings.data_dir.join("log")))));
            }
        }
        Ok(())
    }
}

/// Whether there is anything of a log.
fn holds_log(dir: &Path) -> Result<bool> {
    let failed = |error: std::io::Error| Error::new(ErrorKind::Unavailable, format!("list {}: {error}", dir.display()));
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        if entry.map_err(failed)?.file_name() != "LOCK" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Names for an error: a few, and how many more.
fn named<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let mut text = names.iter().take(NAMED).map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    if names.len() > NAMED {
        let _ = write!(text, " and {} more", names.len() - NAMED);
    }
    text
}

/// `3,5-8,11`, as [`tablet_ranges`] reads it.
fn ranges_text(tablets: &BTreeSet<TabletId>) -> String {
    let mut ranges: Vec<RangeInclusive<u32>> = Vec::new();
    for TabletId(tablet) in tablets {
        match ranges.last_mut() {
            Some(last) if last.end().saturating_add(1) == *tablet => *last = *last.start()..=*tablet,
            _ => ranges.push(*tablet..=*tablet),
        }
    }
    let text = |range: &RangeInclusive<u32>| match range.start() == range.end() {
        true => range.start().to_string(),
        false => format!("{}-{}", range.start(), range.end()),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

/// The rows of an engine get their owner when they have none.
///
/// Errors: the engine cannot be written.
pub fn mark_rows(engine: &dyn Engine, folder: Uuid) -> Result<()> {
    match owner(engine)? {
        Some(_) => Ok(()),
        None => Ok(tarn_rows::set_owner(engine, *folder.as_bytes())?),
    }
}

/// What an operator may do about a log that lost something.
pub(crate) fn quarantine_hint(log_dir: &Path) -> String {
    format!(
        "`tarn check log {}` names all damage; log_recovery = 'quarantine' (--log-recovery quarantine) starts all the same \
         and serves tables that lost something read-only",
        log_dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tablets_are_written_as_they_are_read() {
        let tablets: BTreeSet<TabletId> = [3, 5, 6, 7, 11, u32::MAX].map(TabletId).into_iter().collect();
        let text = ranges_text(&tablets);
        assert_eq!(text, format!("3,5-7,11,{}", u32::MAX));
        let ranges = tablet_ranges(&text).unwrap();
        assert!(tablets.iter().all(|tablet| ranges.iter().any(|range| range.contains(&tablet.0))));
        assert!(!ranges.iter().any(|range| range.contains(&4) || range.contains(&8)));
        assert_eq!(tablet_ranges("").unwrap(), []);
        assert_eq!(tablet_ranges("all"), None);
    }

    #[test]
    fn many_tables_are_counted_and_a_few_named() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(named(names.into_iter().take(2)), "\"a\", \"b\"");
        assert_eq!(named(names.into_iter()), "\"a\", \"b\", \"c\", \"d\", \"e\" and 2 more");
    }
}
