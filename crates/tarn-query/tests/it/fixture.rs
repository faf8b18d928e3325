//! A table as the rest of Tarn would keep it, small: hot rows, recent rows, addresses, and lake files with deletion
//! vectors.
//!
//! It follows the protocol (deliver, compact, evict) in the plainest way, so that the query side can be held against
//! [`Table::truth`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use roaring::RoaringBitmap;
use tarn_cache::{FooterCache, ReadStore};
use tarn_metastore::{
    Block, BlockMetadata, ColumnStats, Commit, CommitKind, ExpectedVersion, File, Memory, Metastore, MetastoreExt,
};
use tarn_query::{
    Engine, HotCatalog, HotLookup, HotRows, HotSource, HotView, Options, RangeScan, Result, RowBatches, Session,
    SystemTables,
};
use tarn_types::{
    Address, Column, ColumnId, Cursor, DataType, FileId, KeyPart, ManualClock, Partitioning, RowDecoder, SeqNo,
    TableId, TableOptions, TableSchema, TabletId, Value, Version, encode_cells, encode_key,
};
use uuid::Uuid;

use crate::block_metadata::KeptMetadata;
use crate::nothing_hot::{CurrentSource, TypedReader};
use crate::recording::{RecordingMetastore, RecordingStore};

pub type Row = Vec<Value>;

/// Rows per row group: small, so that a handful of rows makes several blocks.
pub const BLOCK_ROWS: usize = 4;

#[derive(Clone)]
pub struct Table {
    pub schema: Arc<TableSchema>,
    state: Arc<Mutex<State>>,
    metastore: Arc<RecordingMetastore>,
    store: Arc<RecordingStore>,
    keep: KeptMetadata,
    log: Arc<Mutex<Vec<HotRequest>>>,
}

#[derive(Clone, Default)]
struct State {
    seqno: u64,
    truth: BTreeMap<Vec<u8>, (Row, SeqNo)>,
    /// Live rows of the engine: the truth without what was evicted.
    engine: BTreeMap<Vec<u8>, (Row, SeqNo)>,
    recent: BTreeSet<Vec<u8>>,
    addresses: BTreeMap<Vec<u8>, Address>,
    version: u64,
    cursor: Cursor,
}

pub fn column(id: u32, name: &str, data_type: DataType) -> Column {
    Column { id: ColumnId(id), name: name.to_owned(), data_type, nullable: true, default: None }
}

/// `t (a BIGINT, b BIGINT, n BIGINT, price NUMERIC(15, 2), name TEXT, day DATE, PRIMARY KEY (a, b))`.
pub fn schema() -> TableSchema {
    let mut columns = vec![
        column(1, "a", DataType::Int64),
        column(2, "b", DataType::Int64),
        column(3, "n", DataType::Int64),
        column(4, "price", DataType::Decimal { precision: 15, scale: 2 }),
        column(5, "name", DataType::Text),
        column(6, "day", DataType::Date),
    ];
    columns[0].nullable = false;
    columns[1].nullable = false;
    TableSchema {
        id: TableId(1),
        name: "t".to_owned(),
        columns,
        key: vec![KeyPart { column_idx: 0, descending: false }, KeyPart { column_idx: 1, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(1),
        options: TableOptions { tablets: 2, partitioning: Partitioning::Hash, ..TableOptions::default() },
    }
}

/// A row of [`schema`] that its key and one number determine.
pub fn row(a: i64, b: i64, n: i64) -> Row {
    let n_or_null = if n % 7 == 3 { Value::Null } else { Value::Int64(n) };
    let name =
        if n % 5 == 4 { Value::Null } else { Value::Text(format!("name-{:03}-{}", n, "x".repeat((n % 20) as usize))) };
    vec![
        Value::Int64(a),
        Value::Int64(b),
        n_or_null,
        Value::Decimal(i128::from(n) * 25 - 1000),
        name,
        Value::Date(9_000 + n as i32),
    ]
}

pub fn batch(schema: &TableSchema, rows: &[(Row, SeqNo)]) -> RecordBatch {
    let arrow = schema.arrow_with_seqno();
    let mut columns: Vec<ArrayRef> = vec![];
    for (idx, column) in schema.columns.iter().enumerate() {
        let parts: Vec<ArrayRef> =
            rows.iter().map(|(row, _)| row[idx].to_array(&column.data_type, 1).unwrap()).collect();
        let parts: Vec<&dyn arrow::array::Array> = parts.iter().map(|p| p.as_ref()).collect();
        columns.push(match parts.is_empty() {
            true => arrow::array::new_empty_array(arrow.field(idx).data_type()),
            false => arrow::compute::concat(&parts).unwrap(),
        });
    }
    columns.push(Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, seqno)| seqno.0 as i64))));
    RecordBatch::try_new(arrow, columns).unwrap()
}

impl Table {
    pub async fn new(
        schema: TableSchema,
        metastore: Arc<RecordingMetastore>,
        store: Arc<RecordingStore>,
        keep: KeptMetadata,
    ) -> Table {
        let schema = metastore.create_table(schema).await.unwrap();
        Table { schema, state: Arc::default(), metastore, store, keep, log: Arc::default() }
    }

    fn key(&self, row: &Row) -> Vec<u8> {
        let values: Vec<Value> = self.schema.key.iter().map(|part| row[part.column_idx].clone()).collect();
        encode_key(&self.schema, &values).unwrap()
    }

    pub fn put(&self, row: Row) {
        let key = self.key(&row);
        let mut state = self.state.lock();
        state.seqno += 1;
        let entry = (row, SeqNo(state.seqno));
        state.truth.insert(key.clone(), entry.clone());
        state.engine.insert(key.clone(), entry);
        state.recent.insert(key);
    }

    pub fn delete(&self, row: &Row) {
        let key = self.key(row);
        let mut state = self.state.lock();
        state.seqno += 1;
        state.truth.remove(&key);
        state.engine.remove(&key);
        state.recent.insert(key);
    }

    pub fn truth(&self) -> Vec<Row> {
        self.state.lock().truth.values().map(|(row, _)| row.clone()).collect()
    }

    pub fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// What was asked of the hot side since the last call.
    pub fn asked(&self) -> Vec<HotRequest> {
        std::mem::take(&mut *self.log.lock())
    }

    /// Delivered rows leave the engine.
    pub fn evict(&self) {
        let mut state = self.state.lock();
        let State { engine, recent, .. } = &mut *state;
        engine.retain(|key, _| recent.contains(key));
    }

    /// Recent rows become one file; what they supersede is dead.
    pub async fn deliver(&self) {
        let (rows, dead, cursor, version) = {
            let state = self.state.lock();
            if state.recent.is_empty() {
                return;
            }
            let rows: Vec<(Vec<u8>, (Row, SeqNo))> =
                state.recent.iter().filter_map(|key| Some((key.clone(), state.truth.get(key)?.clone()))).collect();
            let dead: Vec<Address> = state.recent.iter().filter_map(|key| state.addresses.get(key).copied()).collect();
            let mut cursor = Cursor::default();
            cursor.set(TabletId(1), SeqNo(state.seqno));
            (rows, dead, cursor, state.version)
        };
        let lake = self
            .metastore
            .snapshot(self.schema.id, tarn_metastore::VersionSelector::Version(Version(version)))
            .await
            .unwrap();
        let mut vectors: BTreeMap<FileId, RoaringBitmap> = BTreeMap::new();
        for address in dead {
            let vector = || lake.deletion_vectors.get(&address.file).map(|v| v.as_ref().clone()).unwrap_or_default();
            vectors.entry(address.file).or_insert_with(vector).insert(address.row);
        }
        self.commit(rows, vec![], vectors, Some(cursor.clone()), CommitKind::Delivery).await;
        let mut state = self.state.lock();
        let State { recent, addresses, truth, .. } = &mut *state;
        addresses.retain(|key, _| truth.contains_key(key));
        recent.clear();
        state.cursor = cursor;
    }

    /// All files become one, without their dead rows.
    pub async fn compact(&self) {
        let (rows, version) = {
            let state = self.state.lock();
            // What the lake has at the cursor: delivered rows, also of keys that changed since.
            (state.addresses.clone(), state.version)
        };
        let lake = self
            .metastore
            .snapshot(self.schema.id, tarn_metastore::VersionSelector::Version(Version(version)))
            .await
            .unwrap();
        if lake.files.len() < 2 {
            return;
        }
        let mut files = BTreeMap::new();
        for file in &lake.files {
            files.insert(file.id, self.read(file).await);
        }
        let rows =
            rows.into_iter().map(|(key, address)| (key, files[&address.file][address.row as usize].clone())).collect();
        let remove = lake.files.iter().map(|f| f.id).collect();
        self.commit(rows, remove, BTreeMap::new(), None, CommitKind::Compaction).await;
    }

    async fn read(&self, file: &File) -> Vec<(Row, SeqNo)> {
        let bytes = self.store.get(&Path::from(file.path.as_str())).await.unwrap().bytes().await.unwrap();
        let reader =
            parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
        let mut rows = vec![];
        for batch in reader {
            let batch = batch.unwrap();
            for i in 0..batch.num_rows() {
                let value = |idx: usize, data_type: &DataType| {
                    Value::from_arrow(batch.column(idx).as_ref(), i, data_type).unwrap()
                };
                let row = self.schema.columns.iter().enumerate().map(|(idx, c)| value(idx, &c.data_type)).collect();
                let Value::Int64(seqno) = value(self.schema.columns.len(), &DataType::Int64) else { panic!("seqno") };
                rows.push((row, SeqNo(seqno as u64)));
            }
        }
        rows
    }

    async fn commit(
        &self,
        rows: Vec<(Vec<u8>, (Row, SeqNo))>,
        remove: Vec<FileId>,
        deletion_vectors: BTreeMap<FileId, RoaringBitmap>,
        cursor: Option<Cursor>,
        kind: CommitKind,
    ) {
        let mut rows = rows;
        // Files are sorted by key columns, not by tablet and token.
        rows.sort_by(|(_, (x, _)), (_, (y, _))| {
            let part = |part: &KeyPart| x[part.column_idx].cmp_same_type(&y[part.column_idx]);
            self.schema.key.iter().map(part).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
        });
        let id = self.metastore.allocate_files(1).await.unwrap();
        let (mut add, mut block_metadata) = (vec![], BTreeMap::new());
        if !rows.is_empty() {
            let values: Vec<(Row, SeqNo)> = rows.iter().map(|(_, entry)| entry.clone()).collect();
            let (file, of_file) = write_file(&self.schema, id, &values, self.store.as_ref(), self.keep).await;
            add.push(file);
            block_metadata.insert(id, of_file);
            block_metadata.retain(|_, blocks| !blocks.is_empty());
        }
        let commit = Commit {
            id: Uuid::new_v4(),
            expected: ExpectedVersion::At(Version(self.version())),
            add,
            block_metadata,
            remove,
            deletion_vectors,
            cursor,
            kind,
            at_ms: 0,
        };
        let version = self.metastore.commit(self.schema.id, commit).await.unwrap();
        let mut state = self.state.lock();
        state.version = version.0;
        for (idx, (key, (_, seqno))) in rows.into_iter().enumerate() {
            state.addresses.insert(key, Address { file: id, row: idx as u32, seqno });
        }
    }
}

/// Writes rows in the order given and says what the metastore should know of the file.
pub async fn write_file(
    schema: &TableSchema,
    id: FileId,
    rows: &[(Row, SeqNo)],
    store: &dyn ObjectStore,
    keep: KeptMetadata,
) -> (File, Vec<BlockMetadata>) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(BLOCK_ROWS))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_data_page_row_count_limit(2)
        .build();
    let all = batch(schema, rows);
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, all.schema(), Some(properties)).unwrap();
    writer.write(&all).unwrap();
    let footer = writer.close().unwrap();
    let path = format!("{}-{}/hr=2026-11-21-12/{id}.parquet", schema.name, schema.id);
    let size_bytes = bytes.len() as u64;
    store.put(&Path::from(path.as_str()), PutPayload::from(bytes)).await.unwrap();
    let blocks = rows.chunks(BLOCK_ROWS).enumerate().map(|(idx, rows)| Block {
        row_group: idx as u32,
        first_row: (idx * BLOCK_ROWS) as u64,
        n_rows: rows.len() as u64,
        bytes: 1000,
        columns: schema
            .columns
            .iter()
            .enumerate()
            .map(|(c, column)| column_stats(column.id, rows.iter().map(|(row, _)| &row[c])))
            .collect(),
    });
    let mut blocks: Vec<Block> = blocks.collect();
    let values: Vec<Row> = rows.iter().map(|(row, _)| row.clone()).collect();
    let of_blocks: Vec<&[Row]> = values.chunks(BLOCK_ROWS).collect();
    let block_metadata = keep.block_metadata(schema, id, &mut blocks, &of_blocks, &footer);
    let file = File {
        id,
        path,
        size_bytes,
        n_rows: rows.len() as u64,
        hour: (id.0 % 3) as i64,
        etag: None,
        blocks,
        created_version: Version(0),
        sorted_by_key: true,
        note: None,
        checksums: None,
    };
    (file, block_metadata)
}

fn column_stats<'a>(column: ColumnId, values: impl Iterator<Item = &'a Value>) -> ColumnStats {
    let (mut min, mut max): (Option<&Value>, Option<&Value>) = (None, None);
    let mut null_count = 0;
    for value in values {
        if value.is_null() {
            null_count += 1;
            continue;
        }
        min = Some(min.filter(|m| m.cmp_same_type(value).is_le()).unwrap_or(value));
        max = Some(max.filter(|m| m.cmp_same_type(value).is_ge()).unwrap_or(value));
    }
    ColumnStats { column, min: min.cloned(), max: max.cloned(), exact: true, null_count, bytes: 100 }
}

impl HotSource for Table {
    fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.schema)
    }
}

impl CurrentSource for Table {
    fn now(&self) -> Arc<dyn HotView> {
        Arc::new(FixtureView {
            schema: Arc::clone(&self.schema),
            state: self.state.lock().clone(),
            log: Arc::clone(&self.log),
        })
    }
}

struct FixtureView {
    schema: Arc<TableSchema>,
    state: State,
    log: Arc<Mutex<Vec<HotRequest>>>,
}

/// What was asked of the hot side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HotRequest {
    /// So many keys.
    Keys(usize),
    /// A range, of which so many rows at first.
    Rows(usize),
    /// Recent rows.
    Recent,
}

impl FixtureView {
    fn decode(
        &self,
        rows: Vec<(&Vec<u8>, &(Row, SeqNo))>,
        projection: Option<&[usize]>,
        with_seqno: bool,
    ) -> RecordBatch {
        let mut decoder = RowDecoder::new(&self.schema, projection, with_seqno);
        for (key, (row, seqno)) in rows {
            decoder.push(key, &encode_cells(&self.schema, row).unwrap(), *seqno).unwrap();
        }
        decoder.finish().unwrap()
    }

    fn get(&self, key: &[u8]) -> HotLookup {
        let State { truth, engine, recent, addresses, .. } = &self.state;
        let row = engine.get(key).or_else(|| truth.get(key).filter(|_| recent.contains(key)));
        match (row, addresses.get(key)) {
            (Some((row, seqno)), _) => {
                HotLookup::Row { cells: Bytes::from(encode_cells(&self.schema, row).unwrap()), seqno: *seqno }
            }
            (None, Some(address)) if !recent.contains(key) => HotLookup::InLake(*address),
            _ => HotLookup::Absent,
        }
    }

    fn live_recent(&self) -> Vec<(&Vec<u8>, &(Row, SeqNo))> {
        self.state.recent.iter().filter_map(|key| self.state.truth.get_key_value(key)).collect()
    }
}

impl HotView for FixtureView {
    fn version(&self) -> Version {
        Version(self.state.version)
    }

    fn position(&self) -> &Cursor {
        &self.state.cursor
    }

    fn recent_rows(&self) -> Result<u64> {
        Ok(self.live_recent().len() as u64)
    }

    fn recent(&self, projection: Option<&[usize]>, with_seqno: bool) -> Result<Vec<RecordBatch>> {
        self.log.lock().push(HotRequest::Recent);
        // Several small batches, as the real thing has them.
        Ok(self.live_recent().chunks(3).map(|rows| self.decode(rows.to_vec(), projection, with_seqno)).collect())
    }

    fn hidden(&self) -> Result<Arc<BTreeMap<FileId, RoaringBitmap>>> {
        let mut hidden: BTreeMap<FileId, RoaringBitmap> = BTreeMap::new();
        for address in self.state.recent.iter().filter_map(|key| self.state.addresses.get(key)) {
            hidden.entry(address.file).or_default().insert(address.row);
        }
        Ok(Arc::new(hidden))
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<HotLookup>> {
        self.log.lock().push(HotRequest::Keys(keys.len()));
        Ok(keys.iter().map(|key| self.get(key)).collect())
    }

    fn scan(&self, scan: &RangeScan) -> RowBatches {
        let State { engine, addresses, recent, .. } = &self.state;
        let RangeScan { range, projection, with_seqno, .. } = scan;
        let evicted = addresses.keys().filter(|key| !engine.contains_key(*key) && !recent.contains(*key));
        let of_range = |key: &&Vec<u8>| range.start <= **key && **key < range.end;
        let mut keys: Vec<&Vec<u8>> = engine.keys().chain(evicted).filter(of_range).collect();
        keys.sort_by(|a, b| scan.direction.of(a.cmp(b)));
        self.log.lock().push(HotRequest::Rows(keys.len().min(scan.batch_rows)));
        let batch = |keys: &[&Vec<u8>]| {
            let rows = keys.iter().filter_map(|key| engine.get_key_value(*key)).collect();
            let evicted = keys.iter().enumerate().filter(|(_, key)| !engine.contains_key(**key));
            let evicted = evicted.map(|(place, key)| (place, addresses[*key])).collect();
            Ok(HotRows { rows: self.decode(rows, Some(projection), *with_seqno), evicted })
        };
        let batches: Vec<Result<HotRows>> = keys.chunks(scan.batch_rows.min(5)).map(batch).collect();
        Box::new(batches.into_iter())
    }

    fn rows_complete(&self) -> bool {
        self.state.engine.len() == self.state.truth.len()
    }
}

struct FixtureTables(Vec<Table>);

impl HotCatalog for FixtureTables {
    fn tables(&self) -> Vec<Arc<TableSchema>> {
        self.0.iter().map(|table| Arc::clone(&table.schema)).collect()
    }

    fn table(&self, name: &str) -> Option<Arc<dyn HotSource>> {
        self.0.iter().find(|table| table.schema.name == name).map(|table| Arc::new(table.clone()) as _)
    }
}

struct OneSystemTable;

#[async_trait]
impl SystemTables for OneSystemTable {
    fn names(&self) -> Vec<String> {
        vec!["tablets".to_owned()]
    }

    async fn table(&self, _: &str) -> Result<RecordBatch> {
        Ok(RecordBatch::try_from_iter([("tablet", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef)]).unwrap())
    }
}

/// An engine over one table of [`schema`].
pub struct Fixture {
    pub table: Table,
    pub metastore: Arc<RecordingMetastore>,
    pub store: Arc<RecordingStore>,
    pub engine: Engine,
    pub session: Session,
}

impl Fixture {
    pub async fn new() -> Fixture {
        Fixture::with(schema()).await
    }

    pub async fn with(schema: TableSchema) -> Fixture {
        Fixture::with_options(schema, Options::default()).await
    }

    pub async fn with_options(schema: TableSchema, options: Options) -> Fixture {
        Fixture::keeping(schema, options, KeptMetadata::Bounds).await
    }

    pub async fn keeping(schema: TableSchema, options: Options, keep: KeptMetadata) -> Fixture {
        let metastore = Memory::new(Arc::new(ManualClock::default()));
        let metastore = Arc::new(RecordingMetastore::new(Arc::new(metastore)));
        let store = Arc::new(RecordingStore::new(Arc::new(InMemory::new())));
        let table = Table::new(schema, Arc::clone(&metastore), Arc::clone(&store), keep).await;
        Fixture::over(table, metastore, store, options)
    }

    fn over(table: Table, metastore: Arc<RecordingMetastore>, store: Arc<RecordingStore>, options: Options) -> Fixture {
        let engine = Engine::new(
            options,
            Arc::clone(&metastore) as _,
            ReadStore::plain(Arc::clone(&store) as _, "in memory"),
            Arc::new(FooterCache::new(16 << 20)),
            Arc::new(FixtureTables(vec![table.clone()])),
            Arc::new(OneSystemTable),
        )
        .unwrap();
        let session = engine.session(TypedReader::<Table>::all());
        Fixture { table, metastore, store, engine, session }
    }

    /// The same table under another engine.
    pub fn restarted(self, options: Options) -> Fixture {
        let Fixture { table, metastore, store, .. } = self;
        Fixture::over(table, metastore, store, options)
    }

    /// Rows as text, one string a row, in the order they came.
    pub async fn rows(&self, sql: &str) -> Vec<String> {
        let batches = self.session.collect(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        to_text(&batches)
    }

    /// As [`Fixture::rows`], sorted.
    pub async fn sorted(&self, sql: &str) -> Vec<String> {
        let mut rows = self.rows(sql).await;
        rows.sort();
        rows
    }

    pub async fn one(&self, sql: &str) -> String {
        let rows = self.rows(sql).await;
        assert_eq!(rows.len(), 1, "{sql}");
        rows.into_iter().next().unwrap()
    }

    pub async fn set(&self, name: &str, value: &str) {
        self.session.collect(&format!("SET {name} = '{value}'")).await.unwrap();
    }

    /// The physical plan as text.
    pub async fn explain(&self, sql: &str) -> String {
        let statement = self.session.parse(sql).unwrap();
        let plan = self.session.plan(&statement).await.unwrap();
        let (physical, _) = self.session.physical(&plan).await.unwrap();
        datafusion::physical_plan::displayable(physical.as_ref()).indent(false).to_string()
    }
}

pub fn to_text(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = vec![];
    for batch in batches {
        let columns: Vec<ArrayFormatter<'_>> =
            batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
        rows.extend(
            (0..batch.num_rows()).map(|i| columns.iter().map(|c| c.value(i).to_string()).collect::<Vec<_>>().join("|")),
        );
    }
    rows
}

/// A model row as [`to_text`] shows it.
pub fn row_text(schema: &TableSchema, row: &Row) -> String {
    let shown = |(value, column): (&Value, &Column)| {
        if value.is_null() { "NULL".to_owned() } else { value.to_display(&column.data_type) }
    };
    row.iter().zip(&schema.columns).map(shown).collect::<Vec<_>>().join("|")
}
