//! A folder of files that somebody else writes, the table it is attached as, and the check that the two agree.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::*;
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::properties::WriterProperties;

use tarn_lake::attach::{ArchiveSurvey, Attach, Progress};
use tarn_metastore::{
    BlockMetadataRequest, Bloom, ColumnStats, File, Memory, MetastoreExt, TableVersion, VersionSelector, compare,
    hour_blocks, token_hash, tokens, value_hash,
};
use tarn_types::{
    Archive, ColumnId, DataType, FileId, ManualClock, TableId, TableSchema, TokenColumns, Value, conform,
};

use crate::faults::{Faults, FaultyMetastore};

pub const URL: &str = "mem://archive";

/// The archive as a reader sees it: whoever writes or deletes there fails the test.
#[derive(Debug, Default)]
pub struct ReadOnly {
    pub inner: Arc<InMemory>,
    /// Paths whose reading is forbidden.
    pub denied: Mutex<HashSet<String>>,
    /// Paths that cannot be reached.
    pub away: Mutex<HashSet<String>>,
    /// Written over right before they are read the next time.
    pub overwritten: Mutex<BTreeMap<String, Bytes>>,
    pub reads: Mutex<Vec<String>>,
}

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadOnly")
    }
}

fn never<T>(what: &str) -> T {
    panic!("an archive is never {what}")
}

#[async_trait]
impl ObjectStore for ReadOnly {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        never("written to")
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        never("written to")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path = location.to_string();
        assert!(options.if_match.is_some(), "{path} is read whatever it is by now");
        self.reads.lock().push(path.clone());
        if self.denied.lock().contains(&path) {
            return Err(Error::PermissionDenied { path, source: "denied".into() });
        }
        if self.away.lock().contains(&path) {
            return Err(Error::Generic { store: "away", source: path.into() });
        }
        let overwrite = self.overwritten.lock().remove(&path);
        if let Some(bytes) = overwrite {
            self.inner.put(location, bytes.into()).await?;
        }
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        never("deleted from")
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        never("written to")
    }
}

pub struct ArchiveHarness {
    pub store: Arc<ReadOnly>,
    pub metastore: Arc<FaultyMetastore>,
    pub attach: Attach,
    pub clock: Arc<ManualClock>,
    pub table: TableId,
}

impl ArchiveHarness {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let store = Arc::new(ReadOnly::default());
        let metastore = Arc::new(FaultyMetastore {
            inner: Arc::new(Memory::new(clock.clone())),
            faults: Arc::new(Faults::default()),
            before_commit: Default::default(),
        });
        let attach =
            Attach { store: store.clone(), metastore: metastore.clone(), clock: clock.clone(), concurrency: 3 };
        Self { store, metastore, attach, clock, table: TableId(0) }
    }

    pub async fn put(&self, path: &str, bytes: impl Into<Bytes>) {
        self.store.inner.put(&Path::from(path), bytes.into().into()).await.unwrap();
    }

    pub async fn remove(&self, path: &str) {
        self.store.inner.delete(&Path::from(path)).await.unwrap();
    }

    pub async fn survey(&self, archive: Archive) -> tarn_lake::Result<ArchiveSurvey> {
        self.attach.survey("logs", &Archive { url: URL.into(), ..archive }).await
    }

    /// Surveys, and creates the table with these options.
    pub async fn create(&mut self, archive: Archive, options: &[(&str, &str)]) -> ArchiveSurvey {
        let mut surveyed = self.survey(archive).await.unwrap();
        for (name, value) in options {
            surveyed.schema.set_option(name, value).unwrap();
        }
        self.table = self.metastore.inner.create_table(surveyed.schema.clone()).await.unwrap().id;
        surveyed
    }

    pub async fn pass(&self) -> Progress {
        self.attach.pass(self.table, &|_| {}).await.unwrap()
    }

    pub async fn latest(&self) -> Arc<TableVersion> {
        self.metastore.inner.snapshot(self.table, VersionSelector::Latest).await.unwrap()
    }

    pub async fn schema(&self) -> Arc<TableSchema> {
        let tables = self.metastore.inner.tables().await.unwrap();
        tables.into_iter().find(|schema| schema.id == self.table).unwrap()
    }

    pub async fn file(&self, path: &str) -> Arc<File> {
        let version = self.latest().await;
        version.files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("no file {path}")).clone()
    }

    pub async fn note(&self, path: &str) -> String {
        self.file(path).await.note.as_deref().unwrap_or_default().to_owned()
    }

    /// Each file is in the table once and as it is now; its bounds hold, its filters have its keys.
    pub async fn check(&self) {
        let (version, schema) = (self.latest().await, self.schema().await);
        let mut objects: BTreeMap<String, ObjectMeta> = BTreeMap::new();
        for object in self.store.inner.list(None).try_collect::<Vec<_>>().await.unwrap() {
            objects.insert(object.location.to_string(), object);
        }
        for file in &version.files {
            let object = objects.remove(&file.path).unwrap_or_else(|| panic!("{} twice or gone", file.path));
            assert_eq!((file.size_bytes, &file.etag), (object.size, &object.e_tag), "{}", file.path);
            assert!(!file.blocks.is_empty() || file.note.is_some());
            if !file.blocks.is_empty() {
                self.check_file(file, &schema).await;
            }
        }
        assert!(objects.is_empty(), "not attached: {:?}", objects.keys());
    }

    async fn check_file(&self, file: &File, schema: &TableSchema) {
        let bytes = self.store.inner.get(&Path::from(file.path.as_str())).await.unwrap().bytes().await.unwrap();
        let block_metadata = self.block_metadata(file).await;
        assert!(file.blocks.iter().all(|block| block.columns.len() <= 1), "few bounds are in memory");
        for block in &file.blocks {
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes.clone(), options).unwrap();
            let reader = reader.with_row_groups(vec![block.row_group as usize]).build().unwrap();
            let rows: Vec<_> = reader.map(|rows| in_table(&rows.unwrap(), schema)).collect();
            assert_eq!(rows.iter().map(|rows| rows.num_rows() as u64).sum::<u64>(), block.n_rows);
            let (stats, bloom) = &block_metadata[&block.row_group];
            for stats in block.columns.iter().chain(stats) {
                check_bounds(schema, stats, &rows, block.n_rows);
            }
            assert_eq!(bloom.is_some(), schema.options.indexing.any());
            if let Some(bloom) = bloom {
                check_keys(schema, bloom, &rows);
            }
        }
    }

    /// Bounds and filter by row group.
    pub async fn block_metadata(&self, file: &File) -> BTreeMap<u32, (Vec<ColumnStats>, Option<Bloom>)> {
        let hours = hour_blocks([&Arc::new(file.clone())]);
        let wanted = BlockMetadataRequest { hours, columns: None, stats: true, chunks: true, blooms: true };
        let found = self.metastore.inner.block_metadata(self.table, wanted).await.unwrap();
        let mut block_metadata: BTreeMap<u32, (Vec<ColumnStats>, Option<Bloom>)> =
            file.blocks.iter().map(|block| (block.row_group, Default::default())).collect();
        for column in found.columns {
            for (at, stats) in column.blocks.iter().zip(column.stats) {
                block_metadata.get_mut(&file.blocks[*at as usize].row_group).unwrap().0.push(stats);
            }
        }
        for (at, bloom) in found.blooms {
            block_metadata.get_mut(&file.blocks[at as usize].row_group).unwrap().1 = Some(bloom);
        }
        block_metadata
    }

    pub async fn stats(&self, path: &str, column: &str) -> ColumnStats {
        let (schema, file) = (self.schema().await, self.file(path).await);
        let id = schema.column(column).unwrap().1.id;
        let block_metadata = self.block_metadata(&file).await;
        block_metadata[&0].0.iter().find(|stats| stats.column == id).unwrap_or_else(|| panic!("no {column}")).clone()
    }

    /// A lake that has a table of the same objects, for what must not happen.
    pub fn as_lake(&self, store: Arc<dyn ObjectStore>) -> tarn_lake::Lake {
        let (metastore, clock) = (self.metastore.clone(), self.attach.clock.clone());
        tarn_lake::Lake::new(store, metastore, clock, Default::default(), uuid::Uuid::from_u128(1))
    }
}

/// The rows as the table shows them.
fn in_table(rows: &RecordBatch, schema: &TableSchema) -> RecordBatch {
    let known: Vec<usize> =
        (0..rows.num_columns()).filter(|idx| schema.column(rows.schema().field(*idx).name()).is_some()).collect();
    conform(&rows.project(&known).unwrap(), schema).unwrap()
}

fn check_bounds(schema: &TableSchema, stats: &ColumnStats, rows: &[RecordBatch], n_rows: u64) {
    let (idx, column) = schema.columns.iter().enumerate().find(|(_, column)| column.id == stats.column).unwrap();
    let mut nulls = 0;
    for rows in rows {
        for row in 0..rows.num_rows() {
            let value = Value::from_arrow(rows.column(idx), row, &column.data_type).unwrap();
            if value.is_null() {
                nulls += 1;
                continue;
            }
            for (bound, wrong) in [(&stats.min, std::cmp::Ordering::Less), (&stats.max, std::cmp::Ordering::Greater)] {
                if let Some(bound) = bound {
                    let order = compare(&value, bound);
                    // A bound from before the column was widened may be of a type that says nothing now.
                    assert!(order.is_none_or(|order| order != wrong), "{}: {value:?} and {stats:?}", column.name);
                }
            }
        }
    }
    assert_eq!(stats.null_count, nulls, "of {n_rows} in {}", column.name);
}

fn check_keys(schema: &TableSchema, bloom: &Bloom, rows: &[RecordBatch]) {
    let indexing = &schema.options.indexing;
    let is_tokenized = |id: ColumnId, data_type| match &indexing.tokens {
        TokenColumns::None => false,
        TokenColumns::All => data_type == DataType::Text,
        TokenColumns::Some(ids) => ids.contains(&id),
    };
    for (idx, column) in schema.columns.iter().enumerate() {
        for rows in rows {
            for row in (0..rows.num_rows()).filter(|row| rows.column(idx).is_valid(*row)) {
                let value = Value::from_arrow(rows.column(idx), row, &column.data_type).unwrap();
                if indexing.bloom.contains(&column.id) {
                    let key = value_hash(column.id, &column.data_type, &value).unwrap();
                    assert!(bloom.may_contain(key), "{value:?} of {}", column.name);
                }
                if let (Value::Text(text), true) = (&value, is_tokenized(column.id, column.data_type)) {
                    let mut scratch = String::new();
                    let mut tokens = tokens(text, &mut scratch);
                    while let Some(token) = tokens.next_token() {
                        assert!(bloom.may_contain(token_hash(token)), "{token} of {}", column.name);
                    }
                }
            }
        }
    }
}

/// A Parquet file of these rows, in row groups of `group_rows`.
pub fn parquet(rows: &RecordBatch, group_rows: usize) -> Bytes {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
    bytes.into()
}

pub fn ids(version: &TableVersion) -> Vec<FileId> {
    version.files.iter().map(|file| file.id).collect()
}

pub async fn paths(store: &dyn ObjectStore) -> Vec<String> {
    let mut paths: Vec<_> = store.list(None).map(|object| object.unwrap().location.to_string()).collect().await;
    paths.sort();
    paths
}
