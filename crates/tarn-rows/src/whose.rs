//! Whose rows are in an engine, of which tables, and how far are they? To be asked before a table is opened: an engine
//! that belongs elsewhere, or is of another time than log and lake, must be told before anything is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tarn_types::{Audit, Cursor, SeqNo, TableId, TableSchema, TabletId, TabletMap, Version};

use crate::engine::{Engine, EngineSnapshot, Space, WriteBatch};
use crate::error::{Error, Result};
use crate::layout::{self, TabletRecord};
use crate::requests;
use crate::tablet::TabletState;

/// How far a table's rows are, as the engine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableProgress {
    /// The lake version whose addresses are installed, and its cursor.
    pub installed: (Version, Cursor),
    /// The last entry of each tablet that is in the rows.
    pub applied: Cursor,
    /// The entries that split the tablets off with which the table did not begin.
    pub born: BTreeMap<TabletId, SeqNo>,
}

/// How far the rows of a table are. Cost: some reads a tablet.
pub fn standing(engine: &dyn Engine, schema: &TableSchema) -> Result<TableProgress> {
    let opened = open_tablets(engine, schema)?;
    Ok(TableProgress {
        installed: (
            opened.first().map_or(Version(0), |of| of.version),
            opened.iter().map(|of| (of.id, of.installed)).collect(),
        ),
        applied: opened.iter().map(|of| (of.id, of.applied.upto)).collect(),
        born: opened.iter().filter_map(|of| Some((of.id, of.born?.at))).collect(),
    })
}

/// The tablets of a table as the engine has them; those that it begins with, if the engine knows none of it yet.
pub(crate) fn open_tablets(engine: &dyn Engine, schema: &TableSchema) -> Result<Vec<TabletState>> {
    let snapshot = engine.snapshot();
    let mut records = Vec::new();
    {
        let mut found = snapshot.scan(Space::Meta, layout::tablet_keys(Some(schema.id)));
        while let Some((key, value)) = found.next()? {
            let (_, tablet) =
                layout::of_tablet_key(key).ok_or_else(|| Error::corrupt("tablet", key, "no tablet's key"))?;
            records.push((tablet, layout::decode_tablet(key, value)?));
        }
    }
    if records.is_empty() {
        records = first_records(schema);
    }
    let opened = records.into_iter().map(|(tablet, record)| open_tablet(&*snapshot, schema.id, tablet, record));
    let opened = opened.collect::<Result<Vec<_>>>()?;
    if let Some(pair) = opened.windows(2).find(|pair| pair[0].version != pair[1].version) {
        let reason = format!("version {}, of tablet {} it is {}", pair[1].version, pair[0].id, pair[0].version);
        return Err(Error::corrupt("marker", &layout::marker_key(schema.id, pair[1].id), reason));
    }
    Ok(opened)
}

/// Writes the tablets that a table begins with, if the engine knows none of it yet.
pub(crate) fn begin(engine: &dyn Engine, schema: &TableSchema) -> Result<()> {
    if engine.snapshot().scan(Space::Meta, layout::tablet_keys(Some(schema.id))).next()?.is_some() {
        return Ok(());
    }
    let mut writes = WriteBatch::default();
    for (tablet, record) in first_records(schema) {
        writes.put(Space::Meta, &layout::tablet_key(schema.id, tablet), &layout::encode_tablet(&record));
    }
    engine.write(&writes)
}

fn first_records(schema: &TableSchema) -> Vec<(TabletId, TabletRecord)> {
    let map = TabletMap::initial(schema);
    let record = |id| {
        let range = map.range(id)?;
        Some((id, TabletRecord { range: range.start.to_vec()..range.end.to_vec(), born: None }))
    };
    map.ids().filter_map(record).collect()
}

fn open_tablet(
    snapshot: &dyn EngineSnapshot,
    table: TableId,
    id: TabletId,
    record: TabletRecord,
) -> Result<TabletState> {
    let meta = |key: &[u8]| snapshot.get(Space::Meta, key);
    let audit = |key: &[u8]| meta(key)?.map(|bytes| layout::decode_applied(key, &bytes)).transpose();
    let marker_key = layout::marker_key(table, id);
    let marker = snapshot.get(Space::Addresses, &marker_key)?;
    let marker = marker.map(|bytes| layout::decode_marker(&marker_key, &bytes)).transpose()?;
    let (version, installed) = marker.unwrap_or_default();
    let has_addresses = snapshot.scan(Space::Addresses, record.range.clone()).next()?.is_some();
    Ok(TabletState {
        id,
        range: record.range,
        born: record.born,
        version,
        installed,
        applied: audit(&layout::applied_key(id))?.unwrap_or(Audit { after: SeqNo::ZERO, upto: SeqNo::ZERO, digest: 0 }),
        before: audit(&layout::audit_key(id))?,
        evicted: meta(&layout::evicted_key(id))?.is_some(),
        has_addresses,
    })
}

/// The id of the data folder that the engine belongs to; None: nobody has said so yet.
pub fn owner(engine: &dyn Engine) -> Result<Option<[u8; 16]>> {
    let key = layout::OWNER_KEY;
    engine.get(Space::Meta, &key)?.map(|bytes| layout::decode_owner(&key, &bytes)).transpose()
}

/// Says whose it is. Durable when it returns.
pub fn set_owner(engine: &dyn Engine, owner: [u8; 16]) -> Result<()> {
    let mut writes = WriteBatch::default();
    writes.put(Space::Meta, &layout::OWNER_KEY, &layout::encode_owner(owner));
    engine.write(&writes)?;
    engine.flush()
}

/// Tables that have rows or addresses here and are not among `known`, with their tablets. Cost: two reads for each
/// tablet that was ever opened.
pub fn tables_beside(
    engine: &dyn Engine,
    known: &dyn Fn(TableId) -> bool,
) -> Result<BTreeMap<TableId, BTreeSet<TabletId>>> {
    let snapshot = engine.snapshot();
    let mut unknown: BTreeMap<TableId, BTreeSet<TabletId>> = BTreeMap::new();
    {
        let mut keys = snapshot.scan(Space::Meta, layout::tablet_keys(None));
        while let Some((key, _)) = keys.next()? {
            if let Some((table, tablet)) = layout::of_tablet_key(key).filter(|(table, _)| !known(*table)) {
                unknown.entry(table).or_default().insert(tablet);
            }
        }
    }
    let mut found = BTreeMap::new();
    for (table, tablets) in unknown {
        for space in [Space::Rows, Space::Addresses] {
            if snapshot.scan(space, layout::table_range(table)).next()?.is_some() {
                found.insert(table, tablets);
                break;
            }
        }
    }
    Ok(found)
}

/// The tablets of a table that were ever opened here.
pub fn tablets_of(engine: &dyn Engine, table: TableId) -> Result<Vec<TabletId>> {
    let snapshot = engine.snapshot();
    let mut keys = snapshot.scan(Space::Meta, layout::tablet_keys(Some(table)));
    let mut tablets = Vec::new();
    while let Some((key, _)) = keys.next()? {
        tablets.extend(layout::of_tablet_key(key).map(|(_, tablet)| tablet));
    }
    Ok(tablets)
}

/// Deletes everything of a table and its tablets; durable once the engine is flushed. What is not there is no error.
pub fn remove(engine: &dyn Engine, table: TableId) -> Result<()> {
    let mut writes = WriteBatch::default();
    {
        let snapshot = engine.snapshot();
        let mut tablets = snapshot.scan(Space::Meta, layout::tablet_keys(Some(table)));
        while let Some((key, _)) = tablets.next()? {
            let Some((_, tablet)) = layout::of_tablet_key(key) else { continue };
            writes.delete(Space::Addresses, &layout::marker_key(table, tablet));
            for key in [layout::applied_key(tablet), layout::audit_key(tablet), layout::evicted_key(tablet)] {
                writes.delete(Space::Meta, &key);
            }
            requests::remove(&*snapshot, &mut writes, tablet)?;
            writes.delete(Space::Meta, key);
        }
    }
    for space in [Space::Rows, Space::Addresses] {
        let Range { start, end } = layout::table_range(table);
        engine.delete_range(space, &start..&end)?;
    }
    engine.write(&writes)
}

/// Deletes everything of tables of which nothing else is known; durable when it returns.
pub fn remove_tables(engine: &dyn Engine, tables: &BTreeSet<TableId>) -> Result<()> {
    tables.iter().try_for_each(|table| remove(engine, *table))?;
    engine.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MemoryEngine;
    use tarn_types::table_prefix;

    #[test]
    fn an_engine_tells_its_owner_and_the_tables_that_nobody_knows() {
        let engine = MemoryEngine::default();
        assert_eq!(owner(&engine).unwrap(), None);
        set_owner(&engine, [7; 16]).unwrap();
        assert_eq!(owner(&engine).unwrap(), Some([7; 16]));
        let mut writes = WriteBatch::default();
        for (table, tablet) in [(1_u32, 1_u32), (2, 5), (2, 6), (3, 9)] {
            let record = TabletRecord { range: layout::table_range(TableId(table)), born: None };
            let (table, tablet) = (TableId(table), TabletId(tablet));
            writes.put(Space::Meta, &layout::tablet_key(table, tablet), &layout::encode_tablet(&record));
            writes.put(Space::Meta, &layout::applied_key(tablet), b"applied");
            writes.put(Space::Addresses, &layout::marker_key(table, tablet), b"marker");
        }
        writes.put(Space::Rows, &[&table_prefix(TableId(1))[..], b"key"].concat(), b"row");
        writes.put(Space::Addresses, &[&table_prefix(TableId(2))[..], b"key"].concat(), b"address");
        engine.write(&writes).unwrap();
        let beside = |known: u32| {
            let found = tables_beside(&engine, &|table| table.0 == known).unwrap();
            found.into_iter().map(|(table, tablets)| (table.0, tablets.len())).collect::<Vec<_>>()
        };
        assert_eq!(beside(99), [(1, 1), (2, 2)], "3 has left nothing but its position");
        assert_eq!(beside(1), [(2, 2)]);
        remove(&engine, TableId(2)).unwrap();
        assert_eq!(beside(99), [(1, 1)]);
        let has_marker = |table, tablet| {
            engine.get(Space::Addresses, &layout::marker_key(TableId(table), TabletId(tablet))).unwrap().is_some()
        };
        assert!(has_marker(1, 1) && !has_marker(2, 5));
        remove_tables(&engine, &BTreeSet::from([TableId(1), TableId(4)])).unwrap();
        assert!(!has_marker(1, 1), "its id may be given out again");
        assert_eq!(engine.get(Space::Meta, &layout::applied_key(TabletId(1))).unwrap(), None);
        assert_eq!(beside(99), []);
        assert_eq!(owner(&engine).unwrap(), Some([7; 16]));
    }
}
