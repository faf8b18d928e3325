//! How do queries see the tables of a node? Adapters from the node's door to the traits of `tarn-query`.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use parking_lot::Mutex;
use roaring::RoaringBitmap;
use tarn_node::auth::Principal;
use tarn_node::catalog::TableHandle;
use tarn_node::error::Error;
use tarn_node::node::Node;
use tarn_node::own::OwnWrites;
use tarn_node::snapshot::{self, Lookup, OpenTable, RangeOfRows, ScannedRows, TableSnapshot};
use tarn_query::{
    FileStore, HotCatalog, HotLookup, HotReader, HotRows, HotSource, HotView, IndexLookup, KeyRange, RangeScan, Result,
    RowBatches,
};
use tarn_types::{Cursor, Direction, FileId, TableId, TableSchema, Version};

use crate::altered::NameLookup;
use crate::error::SqlError;
use crate::error_from::in_query;
use crate::temporary::Temporary;
use crate::transaction::{Transaction, TransactionView};

/// All tables of a node.
pub struct NodeTables(pub Arc<Node>);

impl HotCatalog for NodeTables {
    fn tables(&self) -> Vec<Arc<TableSchema>> {
        self.0.catalog().schemas()
    }

    fn schemas(&self) -> Vec<String> {
        schemas(&self.0)
    }

    fn table(&self, name: &str) -> Option<Arc<dyn HotSource>> {
        let table = PlannedTable::Everybodys(self.0.tables().open(name)?);
        Some(Arc::new(OpenedSource { table, through: None }))
    }

    fn view(&self, name: &str) -> Option<Arc<TableSchema>> {
        self.0.catalog().view(name)
    }
}

/// The same, as a session sees them.
pub(crate) struct SeenTables {
    /// Has everybody's tables.
    pub node: Arc<Node>,
    /// Has the session's own, which hide others of their name.
    pub temporary: Arc<Temporary>,
}

impl HotCatalog for SeenTables {
    fn tables(&self) -> Vec<Arc<TableSchema>> {
        self.temporary.public(self.node.catalog())
    }

    fn schemas(&self) -> Vec<String> {
        schemas(&self.node)
    }

    fn table(&self, name: &str) -> Option<Arc<dyn HotSource>> {
        let table = match self.temporary.called(name) {
            NameLookup::AsCommitted => self.node.tables().open(name)?,
            NameLookup::Altered(altered) => OpenTable::Table(altered.handle),
            NameLookup::Nothing => return None,
        };
        Some(Arc::new(OpenedSource { table: PlannedTable::Everybodys(table), through: None }))
    }

    fn view(&self, name: &str) -> Option<Arc<TableSchema>> {
        self.temporary.view(self.node.catalog(), name)
    }
}

/// The schemas that somebody made.
fn schemas(node: &Node) -> Vec<String> {
    node.schemas().all().into_iter().map(|of| of.name).collect()
}

/// Those that a session has to itself.
pub(crate) struct OwnTables(pub Arc<Temporary>);

impl HotCatalog for OwnTables {
    fn tables(&self) -> Vec<Arc<TableSchema>> {
        self.0.schemas()
    }

    fn view(&self, name: &str) -> Option<Arc<TableSchema>> {
        self.0.table(name).map(|own| Arc::clone(own.schema())).filter(|own| own.is_view())
    }

    fn table(&self, name: &str) -> Option<Arc<dyn HotSource>> {
        let table = self.0.table(name).filter(|own| !own.schema().is_view())?;
        let table = PlannedTable::Own { schema: Arc::clone(table.schema()), table: Arc::downgrade(&table) };
        Some(Arc::new(OpenedSource { table, through: None }))
    }
}

/// A table that a plan is of.
#[derive(Clone)]
enum PlannedTable {
    Everybodys(OpenTable),
    /// A session's own. A plan that is kept does not keep its rows, which take memory until it is dropped.
    Own {
        table: Weak<TableHandle>,
        schema: Arc<TableSchema>,
    },
}

impl PlannedTable {
    fn schema(&self) -> &Arc<TableSchema> {
        match self {
            PlannedTable::Everybodys(table) => table.schema(),
            PlannedTable::Own { schema, .. } => schema,
        }
    }

    /// Errors: `NoTable` for one that was dropped.
    fn open(&self) -> Result<OpenTable> {
        match self {
            PlannedTable::Everybodys(table) => Ok(table.clone()),
            PlannedTable::Own { table, schema } => {
                let table = table.upgrade().map(OpenTable::Table);
                table.ok_or_else(|| in_query(&schema.name, Error::no_table(&schema.name)))
            }
        }
    }
}

/// One of them.
struct OpenedSource {
    table: PlannedTable,
    /// The view whose owner's rights it is read with.
    through: Option<TableId>,
}

impl HotSource for OpenedSource {
    fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(self.table.schema())
    }

    fn files(&self) -> FileStore {
        let PlannedTable::Everybodys(OpenTable::External(external, _)) = &self.table else { return FileStore::Lake };
        FileStore::External { store: external.reads(), id: external.store_id() }
    }

    fn through(&self, view: TableId) -> Option<Arc<dyn HotSource>> {
        // One of the session's own has no other owner.
        let view = Some(view).filter(|view| !view.is_temporary())?;
        Some(Arc::new(OpenedSource { table: self.table.clone(), through: Some(view) }))
    }
}

/// Entries of an index that are read at first; later batches grow.
const FIRST_ENTRIES: usize = 64;

/// Reads for the user of a session, and what its transaction sees.
pub struct SessionReader {
    /// Whose tables are read.
    pub node: Arc<Node>,
    /// Who that is by now.
    pub who: Arc<Mutex<Principal>>,
    /// Of the session: what it wrote is seen beside what is committed.
    pub transaction: Arc<Mutex<Transaction>>,
    pub(crate) temporary: Arc<Temporary>,
}

impl HotReader for SessionReader {
    fn snapshot(&self, sources: &[Arc<dyn HotSource>]) -> Result<Vec<Arc<dyn HotView>>> {
        let opened = sources.iter().map(|source| (source.as_ref() as &dyn Any).downcast_ref::<OpenedSource>());
        let opened = opened.flatten().map(|source| Ok((source.table.open()?, source.through)));
        let opened: Vec<(OpenTable, Option<TableId>)> = opened.collect::<Result<_>>()?;
        let who = self.who.lock().clone();
        let failed = |error| {
            let names: Vec<&str> = opened.iter().map(|(table, _)| table.schema().name.as_str()).collect();
            in_query(&names.join(", "), error)
        };
        let TransactionView { own, moment } = {
            let mut transaction = self.transaction.lock();
            for (table, _) in &opened {
                // It comes out of the engine as it went in.
                let told =
                    |error: SqlError| tarn_query::Error::Sql { source: DataFusionError::External(Box::new(error)) };
                transaction.check_table(table.schema()).map_err(told)?;
            }
            transaction.reads(&self.node).map_err(failed)?
        };
        let altered = self.temporary.now();
        let is_altered = |schema: &Arc<TableSchema>| {
            let altered = altered.altered.get(schema.id);
            altered.filter(|altered| Arc::ptr_eq(altered.handle.schema(), schema))
        };
        // Entries are of the same moment as their rows. Those that the transaction makes itself lack what others write
        // meanwhile.
        let mut asked = opened.clone();
        let mut entries_of: Vec<std::ops::Range<usize>> = Vec::with_capacity(opened.len());
        for (table, _) in &opened {
            let n_before = asked.len();
            if let OpenTable::Table(handle) = table
                && handle.schema().has_indexes()
                && is_altered(handle.schema()).is_none()
            {
                let indexes = self.node.tables().indexes(handle.schema()).unwrap_or_default();
                asked.extend(indexes.into_iter().map(|index| (OpenTable::Table(index.entries), None)));
            }
            entries_of.push(n_before..asked.len());
        }
        let mut taken = self.node.tables().snapshot(&who, &asked);
        if taken.is_err() && asked.len() > opened.len() {
            // An index may be dropped just now: the answer does not hang on it.
            asked.truncate(opened.len());
            entries_of.fill(0..0);
            taken = self.node.tables().snapshot(&who, &asked);
        }
        let taken = taken.map_err(failed)?;
        let with_own = |snapshot: TableSnapshot, schema: &Arc<TableSchema>| match own.get(&schema.id) {
            Some(own) => snapshot.with_own(Arc::clone(own), schema),
            None => snapshot,
        };
        let views = opened.iter().zip(&taken).zip(entries_of).map(|(((table, _), now), entries)| {
            let at_moment = moment.as_ref().and_then(|moment| moment.of(table));
            let is_now = at_moment.is_none();
            let snapshot = at_moment.unwrap_or_else(|| now.clone());
            let (seen, id) = (table.schema(), table.schema().id);
            let altered = is_altered(seen);
            snapshot.check_for(altered.map_or(seen, |altered| &altered.from)).map_err(failed)?;
            let snapshot = match altered {
                Some(_) if !own.contains_key(&id) => {
                    snapshot.with_own(Arc::new(OwnWrites::new(Arc::clone(seen))), seen)
                }
                _ => with_own(snapshot, seen),
            };
            let mut indexes = HashMap::new();
            for ((index, _), now) in asked[entries.clone()].iter().zip(&taken[entries]) {
                let of_moment = moment.as_ref().and_then(|moment| moment.of(index));
                let Some(entries) = of_moment.or_else(|| is_now.then(|| now.clone())) else { continue };
                // Else it is being filled, or is gone for those who write.
                if !snapshot.has_index(index.schema().id) {
                    continue;
                }
                indexes.insert(
                    index.schema().id,
                    Entries { rows_at: index.schema().columns.len() - 1, snapshot: with_own(entries, index.schema()) },
                );
            }
            Ok(Arc::new(SnapshotView { table: Arc::clone(seen), snapshot, indexes }) as Arc<dyn HotView>)
        });
        views.collect()
    }
}

/// The entries of an index, at the moment of its table.
struct Entries {
    /// The place of the column that leads to rows.
    rows_at: usize,
    snapshot: TableSnapshot,
}

/// One position of one table.
struct SnapshotView {
    table: Arc<TableSchema>,
    snapshot: TableSnapshot,
    indexes: HashMap<TableId, Entries>,
}

impl SnapshotView {
    fn of<T>(&self, answer: tarn_node::error::Result<T>) -> Result<T> {
        answer.map_err(|error| in_query(&self.table.name, error))
    }
}

impl HotView for SnapshotView {
    fn version(&self) -> Version {
        self.snapshot.version()
    }

    fn position(&self) -> &Cursor {
        self.snapshot.position()
    }

    fn recent_rows(&self) -> Result<u64> {
        self.of(self.snapshot.recent_rows())
    }

    fn recent(&self, projection: Option<&[usize]>, with_seqno: bool) -> Result<Vec<RecordBatch>> {
        self.of(self.snapshot.recent(projection, with_seqno))
    }

    fn hidden(&self) -> Result<Arc<BTreeMap<FileId, RoaringBitmap>>> {
        self.of(self.snapshot.hidden())
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<HotLookup>> {
        let found = keys.iter().map(|key| self.of(self.snapshot.get(key)));
        let found = found.map(|found| {
            Ok(match found? {
                Lookup::Row { cells, seqno } => HotLookup::Row { cells, seqno },
                Lookup::Absent => HotLookup::Absent,
                Lookup::InLake(address) => HotLookup::InLake(address),
            })
        });
        found.collect()
    }

    fn scan(&self, scan: &RangeScan) -> RowBatches {
        let RangeScan { range, direction, projection, with_seqno, batch_rows } = scan;
        let wanted = RangeOfRows {
            range: snapshot::KeyRange::Range(range.start.clone()..range.end.clone()),
            direction: *direction,
            projection: Some(projection.clone()),
            with_seqno: *with_seqno,
            batch_rows: *batch_rows,
        };
        let table = self.table.name.clone();
        let batches = self.snapshot.scan(&wanted);
        Box::new(batches.map(move |batch| {
            let ScannedRows { rows, evicted, .. } = batch.map_err(|error| in_query(&table, error))?;
            Ok(HotRows { rows, evicted })
        }))
    }

    fn rows_complete(&self) -> bool {
        self.snapshot.rows_complete()
    }

    fn indexed(&self, index: TableId, ranges: &[KeyRange], max_rows: usize) -> Result<IndexLookup> {
        let Some(Entries { rows_at, snapshot }) = self.indexes.get(&index) else {
            return Ok(IndexLookup::Unknown("its entries are not those of the rows that the statement sees"));
        };
        let mut rows = vec![];
        for KeyRange { start, end } in ranges {
            let wanted = RangeOfRows {
                range: snapshot::KeyRange::Range(start.clone()..end.clone()),
                direction: Direction::Ascending,
                projection: Some(vec![*rows_at]),
                with_seqno: false,
                batch_rows: FIRST_ENTRIES,
            };
            for batch in snapshot.scan(&wanted) {
                let ScannedRows { rows: entries, evicted, .. } = self.of(batch)?;
                // Nobody evicts them: their tables say no time after which.
                if !evicted.is_empty() {
                    return Ok(IndexLookup::Unknown("entries were evicted"));
                }
                let keys = entries.column(0).as_binary::<i32>();
                rows.extend(keys.iter().flatten().map(<[u8]>::to_vec));
                if rows.len() > max_rows {
                    return Ok(IndexLookup::TooMany);
                }
            }
        }
        Ok(IndexLookup::Rows(rows))
    }
}
