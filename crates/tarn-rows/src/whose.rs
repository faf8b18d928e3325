//! Whose rows are in an engine, of which tablets, and how far are they? To be asked before a table is opened: an engine that belongs
//! elsewhere, or is of another time than log and lake, must be told before anything is changed.

use std::collections::BTreeSet;
use std::ops::Range;

use tarn_types::{Cursor, SeqNo, TableId, TableSchema, TabletId, Version};

use crate::engine::{Engine, Space, WriteBatch};
use crate::error::Result;
use crate::layout;

/// How far a table's rows are, as the engine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The lake version whose addresses are installed, and its cursor.
    pub installed: (Version, Cursor),
    /// The last entry of each tablet that is in the rows.
    pub applied: Cursor,
}

/// How far the rows of a table are. Cost: one read a tablet.
pub fn standing(engine: &dyn Engine, schema: &TableSchema) -> Result<Standing> {
    let marker_key = layout::marker_key(schema.id);
    let installed = match engine.get(Space::Addresses, &marker_key)? {
        Some(bytes) => layout::decode_marker(&marker_key, &bytes)?,
        None => (Version(0), Cursor::new()),
    };
    let mut applied = Cursor::new();
    for tablet in schema.tablets() {
        let key = layout::applied_key(tablet);
        let seqno = engine.get(Space::Meta, &key)?.map(|bytes| layout::decode_applied(&key, &bytes)).transpose()?;
        applied.set(tablet, seqno.unwrap_or(SeqNo::ZERO));
    }
    Ok(Standing { installed, applied })
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

/// The tablets that have rows or addresses here and are not among `known`. Cost: one read for each tablet that was ever written.
pub fn tablets_beside(engine: &dyn Engine, known: &dyn Fn(TabletId) -> bool) -> Result<Vec<TabletId>> {
    let snapshot = engine.snapshot();
    let mut written = Vec::new();
    {
        let mut keys = snapshot.scan(Space::Meta, layout::applied_keys());
        while let Some((key, _)) = keys.next()? {
            written.extend(layout::tablet_of_applied(key).filter(|tablet| !known(*tablet)));
        }
    }
    let mut found = Vec::new();
    for tablet in written {
        for space in [Space::Rows, Space::Addresses] {
            let mut entries = snapshot.scan(space, layout::tablet_range(tablet..TabletId(tablet.0.saturating_add(1))));
            if entries.next()?.is_some() {
                found.push(tablet);
                break;
            }
        }
    }
    Ok(found)
}

/// Deletes everything of a table and its tablets, a run; durable once the engine is flushed. What is not there is no error.
pub fn remove(engine: &dyn Engine, table: TableId, tablets: Range<TabletId>) -> Result<()> {
    let mut writes = WriteBatch::default();
    writes.delete(Space::Addresses, &layout::marker_key(table));
    writes.delete(Space::Meta, &layout::evicted_key(table));
    engine.write(&writes)?;
    remove_run(engine, tablets)
}

/// Deletes everything of these tablets, and what is kept of tables that have no other; durable when it returns. For rows of which no
/// table is known.
pub fn remove_tablets(engine: &dyn Engine, tablets: &BTreeSet<TabletId>) -> Result<()> {
    let mut writes = WriteBatch::default();
    {
        let snapshot = engine.snapshot();
        let mut markers = snapshot.scan(Space::Addresses, layout::marker_keys());
        while let Some((key, value)) = markers.next()? {
            let (_, cursor) = layout::decode_marker(key, value)?;
            let is_theirs =
                cursor.iter().next().is_some() && cursor.iter().all(|(tablet, _)| tablets.contains(&tablet));
            if let Some(table) = layout::table_of_marker(key).filter(|_| is_theirs) {
                writes.delete(Space::Addresses, key);
                writes.delete(Space::Meta, &layout::evicted_key(table));
            }
        }
    }
    engine.write(&writes)?;
    for tablet in tablets {
        remove_run(engine, *tablet..TabletId(tablet.0.saturating_add(1)))?;
    }
    engine.flush()
}

/// Rows, addresses and positions of a run of tablets.
fn remove_run(engine: &dyn Engine, tablets: Range<TabletId>) -> Result<()> {
    let range = layout::tablet_range(tablets.clone());
    for space in [Space::Rows, Space::Addresses] {
        engine.delete_range(space, &range.start[..]..&range.end[..])?;
    }
    let mut writes = WriteBatch::default();
    for tablet in tablets.start.0..tablets.end.0 {
        writes.delete(Space::Meta, &layout::applied_key(TabletId(tablet)));
    }
    engine.write(&writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MemoryEngine;

    #[test]
    fn an_engine_tells_its_owner_and_the_tablets_that_nobody_knows() {
        let engine = MemoryEngine::default();
        assert_eq!(owner(&engine).unwrap(), None);
        set_owner(&engine, [7; 16]).unwrap();
        assert_eq!(owner(&engine).unwrap(), Some([7; 16]));
        let mut writes = WriteBatch::default();
        for tablet in [1_u32, 5, 6] {
            writes.put(Space::Meta, &layout::applied_key(TabletId(tablet)), &layout::encode_applied(SeqNo(1)));
        }
        writes.put(Space::Rows, &[0, 0, 0, 1, 9], b"row");
        writes.put(Space::Addresses, &[0, 0, 0, 5, 9], b"address");
        let marker = |tablet| layout::encode_marker(Version(1), &[(TabletId(tablet), SeqNo(1))].into_iter().collect());
        writes.put(Space::Addresses, &layout::marker_key(TableId(1)), &marker(1));
        writes.put(Space::Addresses, &layout::marker_key(TableId(2)), &marker(5));
        engine.write(&writes).unwrap();
        let beside = |known: u32| tablets_beside(&engine, &|tablet| tablet.0 == known).unwrap();
        assert_eq!(beside(99), [TabletId(1), TabletId(5)], "6 has left nothing but its position");
        assert_eq!(beside(1), [TabletId(5)]);
        remove(&engine, TableId(2), TabletId(5)..TabletId(7)).unwrap();
        assert_eq!(beside(99), [TabletId(1)]);
        let has_marker = |table| engine.get(Space::Addresses, &layout::marker_key(TableId(table))).unwrap().is_some();
        assert!(has_marker(1) && !has_marker(2));
        remove_tablets(&engine, &BTreeSet::from([TabletId(1), TabletId(4)])).unwrap();
        assert!(!has_marker(1), "its id may be given out again");
        assert_eq!(beside(99), []);
        assert_eq!(owner(&engine).unwrap(), Some([7; 16]));
    }
}
