//! Was metadata of these columns of this file put together before?
//!
//! What the metastore says of a block is the same for ever, and a file keeps its id for ever: a file that was replaced
//! comes back under another one. What else the metadata depends on, the names and types under which a table has the
//! columns, is in the key; after an `ALTER` the columns that it changed are asked for anew. So a lookup gives what
//! would be put together, or a miss.
//!
//! Metadata tells of some row groups only. It answers for those and for fewer of them, with one condition: who wants to
//! know where pages begin is not given metadata without it, unless it was looked for in vain.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use parquet::file::metadata::ParquetMetaData;
use tarn_types::{ColumnId, DataType, FileId, TableId};

use crate::CacheStats;
use crate::lru::Lru;

/// One column that is read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProjectedColumn {
    /// In its table.
    pub id: ColumnId,
    /// As its table has it.
    pub name: Arc<str>,
    /// As its table has it now.
    pub data_type: DataType,
    /// Whether the bounds of its pages are of use.
    pub bounds: bool,
}

/// The columns that are read of each file of a scan, in their order. Make it once a scan: lookups compare by its hash
/// first.
#[derive(Debug)]
pub struct Projection {
    columns: Vec<ProjectedColumn>,
    hash: u64,
}

impl Projection {
    /// Of these columns.
    pub fn new(columns: Vec<ProjectedColumn>) -> Self {
        let mut hasher = DefaultHasher::new();
        columns.hash(&mut hasher);
        Projection { columns, hash: hasher.finish() }
    }

    /// Those that it was made of.
    pub fn columns(&self) -> &[ProjectedColumn] {
        &self.columns
    }

    fn memory_bytes(&self) -> usize {
        self.columns.iter().map(|column| size_of_val(column) + column.name.len()).sum()
    }
}

impl PartialEq for Projection {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.columns == other.columns
    }
}

impl Eq for Projection {}

impl Hash for Projection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// A file and what of it is read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProjectedKey {
    /// Of the file.
    pub table: TableId,
    /// Never given to another file.
    pub file: FileId,
    /// Shared by the files of a scan.
    pub projection: Arc<Projection>,
}

/// Metadata of the key's columns.
#[derive(Debug, Clone)]
pub struct ProjectedMetadata {
    /// Has the key's columns, and all row groups of the file.
    pub metadata: Arc<ParquetMetaData>,
    /// Of these it tells where their columns lie, ascending.
    pub row_groups: Vec<u32>,
    /// Whether its page index was looked for; if there is none all the same, there is none to be had.
    pub indexed: bool,
}

impl ProjectedMetadata {
    fn answers(&self, row_groups: &[u32], index_from_bytes: Option<u64>) -> bool {
        if !row_groups.iter().all(|row_group| self.row_groups.binary_search(row_group).is_ok()) {
            return false;
        }
        let size = |row_group: &u32| self.metadata.row_group(*row_group as usize).compressed_size() as u64;
        let wants_index = index_from_bytes.is_some_and(|from| row_groups.iter().map(size).sum::<u64>() >= from);
        let has_index = self.metadata.offset_index().is_some();
        !wants_index || has_index || (self.indexed && row_groups == self.row_groups)
    }
}

/// Metadata that was put together before, bounded by bytes: the least recently used goes first. Shared by cloning the
/// `Arc` around it.
#[derive(Debug)]
pub struct ProjectedCache {
    entries: Mutex<Lru<ProjectedKey, ProjectedMetadata>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl ProjectedCache {
    /// A cache that holds at most `max_bytes`. With 0 it holds nothing.
    pub fn new(max_bytes: usize) -> Self {
        let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
        ProjectedCache { entries: Mutex::new(Lru::new(max_bytes)), hits, misses }
    }

    /// Metadata that tells at least of `row_groups`, which ascend. If so much is read of them, it has their page index,
    /// when there is one; `None`: it may have.
    pub fn get(
        &self,
        key: &ProjectedKey,
        row_groups: &[u32],
        index_from_bytes: Option<u64>,
    ) -> Option<Arc<ParquetMetaData>> {
        let mut entries = self.entries.lock();
        let found = entries.get(key).filter(|found| found.answers(row_groups, index_from_bytes));
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found.map(|found| Arc::clone(&found.metadata))
    }

    /// Keeps it in place of what is there for the key.
    pub fn insert(&self, key: ProjectedKey, projected: ProjectedMetadata) {
        // Files of a scan share the projection: counted for each it is counted too often, never too seldom.
        let bytes = projected.metadata.memory_size()
            + size_of_val(projected.row_groups.as_slice())
            + size_of::<(ProjectedKey, ProjectedMetadata)>()
            + key.projection.memory_bytes();
        self.entries.lock().insert(key, projected, bytes);
    }

    /// Drops what is kept of one table (of all, if `None`); how many files and projections of them.
    pub fn clear(&self, table: Option<TableId>) -> u64 {
        self.entries.lock().retain(|key| table.is_some_and(|table| key.table != table))
    }

    /// Counters and size.
    pub fn stats(&self) -> CacheStats {
        let entries = self.entries.lock();
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evicted: entries.evicted(),
            entries: entries.len() as u64,
            bytes: entries.bytes() as u64,
            max_bytes: entries.max_bytes() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::metadata::{
        ColumnChunkMetaData, FileMetaData, OffsetIndexBuilder, ParquetMetaDataBuilder, RowGroupMetaData,
    };
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;

    /// Row groups of 100 bytes.
    fn metadata(n_row_groups: usize, index: bool) -> Arc<ParquetMetaData> {
        let schema = Arc::new(parse_message_type("message t { REQUIRED INT64 a; }").unwrap());
        let schema = Arc::new(SchemaDescriptor::new(schema));
        let group = || {
            let column = ColumnChunkMetaData::builder(schema.column(0)).set_total_compressed_size(100).build();
            RowGroupMetaData::builder(schema.clone()).set_column_metadata(vec![column.unwrap()]).build().unwrap()
        };
        let about = FileMetaData::new(2, 0, None, None, schema.clone(), None);
        let offsets = index.then(|| vec![vec![OffsetIndexBuilder::new().build()]; n_row_groups]);
        let metadata = ParquetMetaData::new(about, (0..n_row_groups).map(|_| group()).collect());
        Arc::new(ParquetMetaDataBuilder::new_from_metadata(metadata).set_offset_index(offsets).build())
    }

    fn key(file: u64, data_type: DataType) -> ProjectedKey {
        let column = ProjectedColumn { id: ColumnId(1), name: "a".into(), data_type, bounds: false };
        ProjectedKey { table: TableId(1), file: FileId(file), projection: Arc::new(Projection::new(vec![column])) }
    }

    #[test]
    fn it_answers_for_the_same_file_and_columns_only() {
        let cache = ProjectedCache::new(1 << 20);
        let kept = metadata(3, false);
        let projected = ProjectedMetadata { metadata: kept.clone(), row_groups: vec![0, 2], indexed: false };
        cache.insert(key(1, DataType::Int64), projected);
        let found = cache.get(&key(1, DataType::Int64), &[2], None).unwrap();
        assert!(Arc::ptr_eq(&found, &kept));
        assert!(cache.get(&key(1, DataType::Int64), &[0, 2], None).is_some());
        assert!(cache.get(&key(1, DataType::Int64), &[0, 1], None).is_none(), "a row group that it does not tell of");
        assert!(cache.get(&key(2, DataType::Int64), &[2], None).is_none(), "another file");
        assert!(cache.get(&key(1, DataType::Int32), &[2], None).is_none(), "an altered column");
        let another = ProjectedKey { table: TableId(2), ..key(1, DataType::Int64) };
        assert!(cache.get(&another, &[2], None).is_none(), "another table");
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.entries), (2, 4, 1));
    }

    #[test]
    fn who_wants_the_page_index_gets_it() {
        let key = key(1, DataType::Int64);
        let cache = ProjectedCache::new(1 << 20);
        let insert = |index, indexed| {
            cache.insert(
                key.clone(),
                ProjectedMetadata { metadata: metadata(3, index), row_groups: vec![0, 1], indexed },
            );
        };
        insert(false, false);
        assert!(cache.get(&key, &[0], Some(101)).is_some(), "too little is read to ask for it");
        assert!(cache.get(&key, &[0, 1], Some(101)).is_none());
        insert(true, true);
        assert!(cache.get(&key, &[0, 1], Some(0)).is_some() && cache.get(&key, &[1], None).is_some());
        insert(false, true);
        assert!(cache.get(&key, &[0, 1], Some(0)).is_some(), "it was looked for, and there is none");
        assert!(cache.get(&key, &[1], Some(0)).is_none(), "of fewer row groups it may be small enough");
    }

    #[test]
    fn bytes_stay_under_the_bound() {
        let one = ProjectedCache::new(1 << 20);
        let projected =
            || ProjectedMetadata { metadata: metadata(4, false), row_groups: vec![0, 1, 2, 3], indexed: false };
        one.insert(key(1, DataType::Int64), projected());
        let bytes = one.stats().bytes;
        assert!(bytes > projected().metadata.memory_size() as u64);
        let cache = ProjectedCache::new(bytes as usize * 2);
        (1..=3).for_each(|file| cache.insert(key(file, DataType::Int64), projected()));
        assert_eq!((cache.stats().entries, cache.stats().bytes), (2, bytes * 2));
        assert!(cache.get(&key(1, DataType::Int64), &[0], None).is_none(), "the oldest went");
        let nothing = ProjectedCache::new(0);
        nothing.insert(key(1, DataType::Int64), projected());
        assert_eq!(nothing.stats().entries, 0);
    }
}
