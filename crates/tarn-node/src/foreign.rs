//! Is every row's parent there, and is no row's parent gone?
//!
//! A row needs its parent if it has an entry without NULL in the index that serves its foreign key, and a key of a
//! parent is gone if it was deleted among the parent's rows or the entries of its unique constraint. So what a commit
//! owes to foreign keys is told by the keys that it writes, whoever wrote them and wherever the rows lie
//! (`ForeignKeyChecks`): "this key is there" and "no entry of these values is there".
//!
//! ```text
//! commit ─> gates of its tables ─> latches of the keys that it owes something ─> what is owed is looked at ─> one write of the log ─> all is let go
//! ```
//!
//! Who needs a parent holds the latch of its key shared, who takes the key away holds it alone (`latches.rs`). Both
//! look at what is committed and in effect, and let go behind that: so of two that meet the second sees the first.
//! Nobody holds a latch but while he commits. A table with foreign keys is written through
//! [`TableService::commit_together`] alone; all others ask one flag.
//!
//! A definition that names a parent comes while nobody writes the parent, whose writers then have another handle: who
//! has entered the gates of its tables knows all foreign keys that they have.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::AsArray;
use tarn_rows::{KeyRange, Lookup, RangeOfRows, Table};
use tarn_types::{Direction, TableId, TableSchema, Value, children, decode_key, parent_key, values_of_entry};

use crate::catalog::{Catalog, TableHandle, altered};
use crate::edges::{Edge, Edges};
use crate::entries::{Index, are_there};
use crate::error::{Error, ErrorKind, ForeignKeyFault, Result, Violation};
use crate::latches::{LatchGuard, Latches};
use crate::own::OwnWrites;
use crate::parts::NodeParts;
use crate::snapshot::TableSnapshot;
use crate::tables::{Row, TableService};
use crate::threads::blocking;

/// How often what is owed is looked at anew, because tables were defined otherwise meanwhile.
const MAX_LOOKS: usize = 100;

/// Entries that are read at first; later batches grow.
const FIRST_ENTRIES: usize = 64;

/// What somebody wrote that is not committed.
#[derive(Clone, Default)]
pub struct UncommittedWrites {
    /// By table and by index.
    pub own: HashMap<TableId, Arc<OwnWrites>>,
    /// The keys to look at; `None`: all of them.
    pub keys: Option<HashMap<TableId, BTreeSet<Vec<u8>>>>,
}

/// What somebody owes to foreign keys. Places of [`Edges::all`].
#[derive(Default)]
struct ForeignKeyChecks {
    /// Parents that have to be there: the key, and the values of the child.
    there: Vec<(usize, Vec<u8>, Vec<Value>)>,
    /// Keys of parents that are gone, and their values.
    gone: Vec<(usize, Vec<u8>, Vec<Value>)>,
    /// What no commit can make up for.
    broken: Option<Violation>,
}

/// A parent that has to be there: its key, and the values of the child.
type RequiredParent<'a> = (&'a [u8], &'a [Value]);

/// Children of a parent that is gone.
pub struct Orphans {
    /// The foreign key that has them.
    pub edge: Edge,
    /// The key of the parent, among those of [`tarn_types::ReferencedKey::keys`].
    pub parent: Vec<u8>,
    /// The engine keys of the children.
    pub rows: Vec<Vec<u8>>,
}

impl ForeignKeyChecks {
    /// Errors: `Corrupt` for a table whose other side is not here.
    fn of(catalog: &Catalog, edges: &Edges, wrote: &UncommittedWrites) -> Result<ForeignKeyChecks> {
        let mut owed = ForeignKeyChecks::default();
        if let Some(lost) = wrote.own.keys().find_map(|table| edges.broken.get(table)) {
            return Err(Error::new(ErrorKind::Corrupt, format!("{lost}: what it needs is not here"))
                .with_hint("ALTER TABLE … DROP CONSTRAINT it"));
        }
        for (at, edge) in edges.all.iter().enumerate() {
            if let Some(entries) = wrote.own.get(&edge.serving.index) {
                let keys = keys_of(catalog, edge)?;
                let of = edge.child_types();
                let mut seen = HashSet::new();
                for (entry, _) in wrote.of(edge.serving.index, entries).filter(|(_, is_there)| *is_there) {
                    let entry = decode_key(entries.schema(), entry)?;
                    let values = values_of_entry(&edge.serving, edge.key.columns.len(), &entry);
                    let Some(values) = values else { continue };
                    if values.contains(&Value::Null) {
                        let is_mixed = edge.key.match_full && values.iter().any(|value| *value != Value::Null);
                        if is_mixed && owed.broken.is_none() {
                            owed.broken = Some(edge.violated(values, ForeignKeyFault::Mixed));
                        }
                        continue;
                    }
                    match parent_key(keys.schema(), &edge.referenced, &values, &of)? {
                        Some(key) if seen.contains(&key) => {}
                        Some(key) => {
                            seen.insert(key.clone());
                            owed.there.push((at, key, values));
                        }
                        None => {
                            let missing = edge.violated(values, ForeignKeyFault::Missing);
                            owed.broken.get_or_insert(missing);
                        }
                    }
                }
            }
            if let Some(parents) = wrote.own.get(&edge.referenced.keys) {
                for (key, _) in wrote.of(edge.referenced.keys, parents).filter(|(_, is_there)| !*is_there) {
                    owed.gone.push((at, key.to_vec(), edge.values_of_parent(parents.schema(), key)?));
                }
            }
        }
        Ok(owed)
    }

    fn is_nothing(&self) -> bool {
        self.there.is_empty() && self.gone.is_empty() && self.broken.is_none()
    }

    /// Cost: one read of the row engine for each foreign key whose parents are needed, a short scan for each key that
    /// is gone.
    fn violation(&self, catalog: &Catalog, edges: &Edges, wrote: &UncommittedWrites) -> Result<Option<Violation>> {
        if self.broken.is_some() {
            return Ok(self.broken.clone());
        }
        for (at, _, values) in &self.gone {
            let edge = &edges.all[*at];
            if !orphans_of(catalog, edge, values, wrote, 1)?.is_empty() {
                return Ok(Some(edge.violated(values.clone(), ForeignKeyFault::Referenced)));
            }
        }
        let mut by_edge: BTreeMap<usize, Vec<RequiredParent<'_>>> = BTreeMap::new();
        for (at, key, values) in &self.there {
            by_edge.entry(*at).or_default().push((key, values));
        }
        for (at, asked) in by_edge {
            let edge = &edges.all[at];
            let own = wrote.own.get(&edge.referenced.keys);
            let mut committed: Vec<RequiredParent<'_>> = vec![];
            for (key, values) in asked {
                match own.and_then(|own| own.get(key)) {
                    Some(Some(_)) => {}
                    Some(None) => {
                        return Ok(Some(edge.violated(values.to_vec(), ForeignKeyFault::Missing)));
                    }
                    None => committed.push((key, values)),
                }
            }
            let keys: Vec<&[u8]> = committed.iter().map(|(key, _)| *key).collect();
            let found = if keys.is_empty() { vec![] } else { keys_of(catalog, edge)?.table.multi_get(&keys)? };
            let missing = committed.iter().zip(found).find(|(_, found)| *found == Lookup::Absent);
            if let Some(((_, values), _)) = missing {
                return Ok(Some(edge.violated(values.to_vec(), ForeignKeyFault::Missing)));
            }
        }
        Ok(None)
    }
}

impl UncommittedWrites {
    /// The keys of a table to look at, and whether they are there.
    fn of<'a>(&'a self, table: TableId, own: &'a OwnWrites) -> impl Iterator<Item = (&'a [u8], bool)> {
        let some = self.keys.as_ref().map(|keys| keys.get(&table).into_iter().flatten().map(Vec::as_slice));
        let all = self.keys.is_none().then(|| own.keys());
        let keys = some.into_iter().flatten().chain(all.into_iter().flatten());
        keys.filter_map(|key| Some((key, own.get(key)?.is_some())))
    }
}

/// Children of a parent with these values: engine keys of at least so many rows, or of all.
fn orphans_of(
    catalog: &Catalog,
    edge: &Edge,
    values: &[Value],
    wrote: &UncommittedWrites,
    wanted: usize,
) -> Result<Vec<Vec<u8>>> {
    let entries = catalog.index(edge.serving.index).ok_or_else(|| altered(&edge.child.name))?;
    let schema = entries.schema();
    let Some(Range { start, end }) = children(schema, &edge.serving, values, &edge.parent_types())? else {
        return Ok(vec![]);
    };
    let snapshot = Table::snapshot_all(&[entries.table.as_ref()])?.pop().ok_or_else(|| altered(&edge.child.name))?;
    let snapshot = TableSnapshot::of_rows(snapshot);
    let snapshot = match wrote.own.get(&edge.serving.index) {
        Some(own) => snapshot.with_own(Arc::clone(own), schema),
        None => snapshot,
    };
    let asked = RangeOfRows {
        range: KeyRange::Range(start..end),
        direction: Direction::Ascending,
        projection: Some(vec![schema.columns.len() - 1]),
        with_seqno: false,
        batch_rows: FIRST_ENTRIES,
    };
    let mut rows = vec![];
    for batch in snapshot.scan(&asked) {
        let batch = batch?;
        if !batch.evicted.is_empty() {
            let message = format!("entries of index \"{}\" were evicted, which stay", edge.serving.name);
            return Err(Error::new(ErrorKind::Internal, message));
        }
        rows.extend(batch.rows.column(0).as_binary::<i32>().iter().flatten().map(<[u8]>::to_vec));
        if rows.len() >= wanted {
            break;
        }
    }
    Ok(rows)
}

/// The table whose keys a foreign key means.
fn keys_of(catalog: &Catalog, edge: &Edge) -> Result<Arc<TableHandle>> {
    let found = match &edge.referenced.unique {
        Some(_) => catalog.index(edge.referenced.keys),
        None => catalog.by_id(edge.referenced.keys, &edge.parent.name),
    };
    found.ok_or_else(|| altered(&edge.parent.name))
}

impl ForeignKeyChecks {
    /// The latches that it takes, and whether each is held alone.
    fn latches(&self, edges: &Edges) -> BTreeMap<usize, bool> {
        let place = |at: &usize, key: &[u8]| Latches::place(edges.all[*at].referenced.keys, key);
        let mut asked: BTreeMap<usize, bool> = BTreeMap::new();
        asked.extend(self.there.iter().map(|(at, key, _)| (place(at, key), false)));
        asked.extend(self.gone.iter().map(|(at, key, _)| (place(at, key), true)));
        asked
    }
}

/// As [`settle`], by the foreign keys that everybody sees. A definition that came between the look at these and the
/// latches may have put another index in the place of the one that was looked into: then all of it begins anew.
///
/// Errors: as of [`settle`]; `Conflict` while tables are defined otherwise again and again.
pub(crate) fn settle_now<'a>(parts: &'a NodeParts, wrote: &UncommittedWrites) -> Result<Vec<LatchGuard<'a>>> {
    for _ in 0..MAX_LOOKS {
        let generation = parts.catalog.generation();
        let edges = parts.edges.now(&parts.catalog);
        let held = settle(parts, &edges, wrote)?;
        if parts.catalog.generation() == generation {
            return Ok(held);
        }
    }
    Err(Error::new(ErrorKind::Conflict, "tables were defined otherwise again and again").with_hint("try again"))
}

/// Before a commit that has entered the gates of its tables: holds the keys that it owes something until what this
/// answers goes.
///
/// Errors: `ForeignKey`; `Conflict` for children that came while their parent's others were taken along.
pub(crate) fn settle<'a>(
    parts: &'a NodeParts,
    edges: &Edges,
    wrote: &UncommittedWrites,
) -> Result<Vec<LatchGuard<'a>>> {
    if edges.is_empty() {
        return Ok(vec![]);
    }
    let catalog = &parts.catalog;
    let owed = ForeignKeyChecks::of(catalog, edges, wrote)?;
    if owed.is_nothing() {
        return Ok(vec![]);
    }
    let held = parts.latches.hold(owed.latches(edges));
    if parts.latches.is_in_doubt() {
        // What is in the log counts, whatever was answered to who wrote it.
        for edge in &edges.all {
            keys_of(catalog, edge)?.replicas()?.settle()?;
            catalog.index(edge.serving.index).ok_or_else(|| altered(&edge.child.name))?.replicas()?.settle()?;
        }
    }
    match owed.violation(catalog, edges, wrote)? {
        None => Ok(held),
        // What was there when the transaction took the others along is gone; these came since.
        Some(late)
            if late.what == ForeignKeyFault::Referenced && (late.key.on_delete.acts() || late.key.on_update.acts()) =>
        {
            let message = format!(
                "could not serialize access to table \"{}\": a row that refers to it came meanwhile",
                late.parent.name
            );
            Err(Error::new(ErrorKind::Conflict, message).with_hint("run the statement or transaction again"))
        }
        Some(violation) => Err(Error::foreign_key(violation)),
    }
}

impl TableService {
    /// The table with this id.
    #[must_use]
    pub fn handle(&self, table: TableId) -> Option<Arc<TableHandle>> {
        self.parts.catalog.by_id(table, "")
    }

    /// All foreign keys there are, where these tables are seen otherwise than by everybody.
    #[must_use]
    pub fn edges(&self, altered: &[Arc<TableSchema>]) -> Arc<Edges> {
        match altered.is_empty() {
            true => self.parts.edges.now(&self.parts.catalog),
            false => {
                let mut tables = self.parts.catalog.schemas();
                tables.retain(|table| altered.iter().all(|other| other.id != table.id));
                tables.extend(altered.iter().cloned());
                Arc::new(Edges::of(&tables))
            }
        }
    }

    /// Whether there are entries of these keys, in their order: now.
    ///
    /// Cost: one read of the row engine for all.
    pub async fn entries_there(&self, index: &Index, keys: Vec<Vec<u8>>) -> Result<Vec<bool>> {
        are_there(&index.entries, keys).await
    }

    /// Rows of engine keys, in their order, for whoever follows their parents: what becomes of them the table's
    /// definition says, not a user.
    ///
    /// Cost: as of [`TableService::multi_get`].
    pub async fn rows_to_follow(&self, table: &TableHandle, keys: &[&[u8]]) -> Result<Vec<Option<Row>>> {
        self.parts.rows(table, keys).await
    }

    /// The first foreign key that does not hold, of those that `which` names by their places, for children and for
    /// parents that are gone: by what somebody wrote, and what is committed now.
    ///
    /// Cost: as of a commit, without its write.
    pub async fn violation(
        &self,
        edges: Arc<Edges>,
        which: Vec<(bool, bool)>,
        wrote: UncommittedWrites,
    ) -> Result<Option<Violation>> {
        let catalog = Arc::clone(&self.parts.catalog);
        blocking(move || {
            let mut owed = ForeignKeyChecks::of(&catalog, &edges, &wrote)?;
            let asked = |at: &usize| which.get(*at).copied().unwrap_or_default();
            owed.there.retain(|(at, ..)| asked(at).0);
            owed.gone.retain(|(at, ..)| asked(at).1);
            owed.violation(&catalog, &edges, &wrote)
        })
        .await
    }

    /// The rows that refer to keys that are gone, by the foreign key at one place of [`Edges::all`]: by what somebody
    /// wrote and what is committed now. `max_rows` at most, or `ProgramLimit`.
    pub async fn orphans(
        &self,
        edges: Arc<Edges>,
        edge_idx: usize,
        wrote: UncommittedWrites,
        max_rows: usize,
    ) -> Result<Vec<Orphans>> {
        let catalog = Arc::clone(&self.parts.catalog);
        blocking(move || {
            let (mut all, mut n_rows) = (vec![], 0);
            for (at, key, values) in ForeignKeyChecks::of(&catalog, &edges, &wrote)?.gone {
                if at != edge_idx {
                    continue;
                }
                let edge = &edges.all[at];
                let rows = orphans_of(&catalog, edge, &values, &wrote, max_rows + 1)?;
                n_rows += rows.len();
                if n_rows > max_rows {
                    let (key, table) = (&edge.key.name, &edge.child.name);
                    let message =
                        format!("foreign key \"{key}\" would change more than {max_rows} rows of \"{table}\"");
                    return Err(Error::new(ErrorKind::ProgramLimit, message)
                        .with_hint(format!("DELETE rows of \"{table}\" first, or fewer parents at once")));
                }
                if !rows.is_empty() {
                    all.push(Orphans { edge: edge.clone(), parent: key, rows });
                }
            }
            Ok(all)
        })
        .await
    }
}
