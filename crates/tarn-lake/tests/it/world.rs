//! A table with its hot side, lake and metastore, and the check that holds whatever happened to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type};
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use uuid::Uuid;

use tarn_feed::HotTable;
use tarn_lake::{CompactionStats, DeliveryStats, Lake, Options};
use tarn_metastore::{File, Memory, MetastoreExt, TableVersion, VersionSelector, compare};
use tarn_types::{ManualClock, TableSchema, TabletId, Value};

use crate::faults::{Faults, FaultyMetastore, FaultyStore};
use crate::hot::{DeviceKey, Hot};
use crate::test_data::{Event, events};

/// The year 2100: every object is older than that.
pub const NOW_MS: i64 = 4_102_444_800_000;

pub struct LakeHarness {
    pub table: Arc<TableSchema>,
    pub hot: Arc<Hot>,
    pub store: Arc<FaultyStore>,
    pub metastore: Arc<FaultyMetastore>,
    pub clock: Arc<ManualClock>,
    pub lake: Arc<Lake>,
    pub options: Options,
}

/// Files of four rows in row groups of two, uploaded in several parts.
pub fn small() -> Options {
    Options {
        target_file_rows: 4,
        row_group_rows: 2,
        page_rows: 2,
        part_bytes: 1500,
        compact_files: 3,
        compact_fan_in: 4,
        ..Options::default()
    }
}

impl LakeHarness {
    pub async fn new(options: Options) -> Self {
        Self::of(events(), options).await
    }

    pub async fn of(table: TableSchema, options: Options) -> Self {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let store = Arc::new(FaultyStore { inner: Arc::new(InMemory::new()), faults: Arc::new(Faults::default()) });
        let metastore = Arc::new(FaultyMetastore {
            inner: Arc::new(Memory::new(clock.clone())),
            faults: Arc::new(Faults::default()),
            before_commit: Default::default(),
        });
        let table = metastore.create_table(table).await.unwrap();
        let hot = Arc::new(Hot::new(table.clone()));
        let lake = Arc::new(lake(&store, &metastore, &clock, &options, 1));
        Self { table, hot, store, metastore, clock, lake, options }
    }

    pub fn hot(&self) -> Arc<dyn HotTable> {
        self.hot.clone()
    }

    /// Another process takes over: what memory held is gone.
    pub fn crash(&mut self) {
        self.hot.crash();
        self.lake = Arc::new(lake(&self.store, &self.metastore, &self.clock, &self.options, 2));
    }

    pub async fn deliver(&self) -> DeliveryStats {
        self.lake.deliver(&self.hot()).await.unwrap().expect("something to deliver")
    }

    pub async fn compact_fully(&self) -> Option<CompactionStats> {
        self.lake.compact_fully(&self.hot()).await.unwrap()
    }

    pub async fn latest(&self) -> Arc<TableVersion> {
        self.metastore.inner.snapshot(self.table.id, VersionSelector::Latest).await.unwrap()
    }

    /// All objects in the store.
    pub async fn objects(&self) -> Vec<String> {
        let listed: Vec<_> = self.store.inner.list(None).try_collect().await.unwrap();
        listed.into_iter().map(|object| object.location.to_string()).collect()
    }

    pub async fn rows_of(&self, file: &File) -> Vec<Event> {
        let bytes = self.store.inner.get(&Path::from(file.path.as_str())).await.unwrap().bytes().await.unwrap();
        assert_eq!(bytes.len() as u64, file.size_bytes);
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
        reader.flat_map(|batch| to_events(&batch.unwrap())).collect()
    }

    /// Law 2: what is installed is what is committed; the lake holds each row of the model at its cursor exactly once;
    /// each row's address is where it lies; files are sorted, and their bounds hold.
    pub async fn check(&self) {
        let version = self.latest().await;
        let (installed, cursor) = self.hot.installed();
        assert_eq!(installed, version.version);
        assert_eq!(cursor, version.cursor);
        self.check_version(&version).await;
    }

    /// The same for a version that need not be installed, without addresses.
    pub async fn check_rows(&self, version: &TableVersion) -> Vec<(DeviceKey, (tarn_types::FileId, u32))> {
        let (mut rows, mut places) = (Vec::new(), Vec::new());
        for file in &version.files {
            let all = self.rows_of(file).await;
            assert_eq!(all.len() as u64, file.n_rows);
            assert!(all.is_sorted_by_key(|event| (event.device.clone(), -event.at)), "{} is not sorted", file.path);
            check_bounds(file, &all);
            let dead = version.deletion_vectors.get(&file.id);
            for (row, event) in (0..).zip(all) {
                if dead.is_none_or(|dead| !dead.contains(row)) {
                    places.push(((event.device.clone(), event.at), (file.id, row)));
                    rows.push(event);
                }
            }
        }
        assert_eq!(rows.len() as u64, version.live_rows());
        rows.sort_by_key(|event| event.seqno);
        assert_eq!(rows, self.hot.model(version.cursor.get(TabletId(1)).0), "at version {}", version.version);
        places
    }

    async fn check_version(&self, version: &TableVersion) {
        let places = self.check_rows(version).await;
        if !self.table.options.append_only {
            assert_eq!(places.into_iter().collect::<BTreeMap<_, _>>(), self.hot.addresses());
        }
    }
}

fn lake(
    store: &Arc<FaultyStore>,
    metastore: &Arc<FaultyMetastore>,
    clock: &Arc<ManualClock>,
    options: &Options,
    instance: u128,
) -> Lake {
    Lake::new(store.clone(), metastore.clone(), clock.clone(), options.clone(), Uuid::from_u128(instance))
}

pub fn to_events(batch: &RecordBatch) -> Vec<Event> {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let (device, at) = (column("device").as_string::<i32>(), column("at").as_primitive::<Int64Type>());
    let (reading, note) = (column("reading").as_primitive::<Float64Type>(), column("note").as_string::<i32>());
    let seqno = column("__seqno").as_primitive::<Int64Type>();
    (0..batch.num_rows())
        .map(|row| Event {
            device: device.value(row).to_owned(),
            at: at.value(row),
            reading: reading.is_valid(row).then(|| reading.value(row)),
            note: note.is_valid(row).then(|| note.value(row).to_owned()),
            seqno: seqno.value(row),
        })
        .collect()
}

fn check_bounds(file: &File, rows: &[Event]) {
    let mut first_row = 0;
    for block in &file.blocks {
        assert_eq!(block.first_row, first_row);
        let rows = &rows[first_row as usize..(first_row + block.n_rows) as usize];
        first_row += block.n_rows;
        for stats in &block.columns {
            let values: Vec<Value> = rows
                .iter()
                .map(|row| match stats.column.0 {
                    1 => Value::Text(row.device.clone()),
                    2 => Value::Int64(row.at),
                    3 => row.reading.map_or(Value::Null, Value::Float64),
                    _ => row.note.clone().map_or(Value::Null, Value::Text),
                })
                .collect();
            assert_eq!(stats.null_count, values.iter().filter(|value| value.is_null()).count() as u64);
            let values: Vec<_> = values.into_iter().filter(|value| !value.is_null()).collect();
            let smallest = values.iter().min_by(|a, b| compare(a, b).unwrap());
            let greatest = values.iter().max_by(|a, b| compare(a, b).unwrap());
            if let (Some(min), Some(smallest)) = (&stats.min, smallest) {
                assert!(compare(min, smallest).unwrap().is_le(), "{min:?} > {smallest:?}");
                assert!(!stats.exact || min == smallest, "{min:?} is not exact, {smallest:?} is");
            }
            if let (Some(max), Some(greatest)) = (&stats.max, greatest) {
                assert!(compare(max, greatest).unwrap().is_ge(), "{max:?} < {greatest:?}");
                assert!(!stats.exact || max == greatest, "{max:?} is not exact, {greatest:?} is");
            }
            assert!(!stats.exact || stats.min.is_some() == smallest.is_some());
        }
    }
    assert_eq!(first_row, file.n_rows);
}
