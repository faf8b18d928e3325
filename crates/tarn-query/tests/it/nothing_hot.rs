//! The hot side of tables whose rows are all in files, and an engine without tables of its own.

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::RecordBatch;
use roaring::RoaringBitmap;
use tarn_query::{HotLookup, HotReader, HotSource, HotView, RangeScan, Result, RowBatches, SystemTables};
use tarn_types::{Cursor, FileId, Version};

/// No rows but those of the files.
pub struct NothingHot {
    version: Version,
    cursor: Cursor,
}

impl NothingHot {
    pub fn at(version: Version) -> Self {
        Self { version, cursor: Cursor::default() }
    }
}

impl HotView for NothingHot {
    fn version(&self) -> Version {
        self.version
    }

    fn position(&self) -> &Cursor {
        &self.cursor
    }

    fn recent_rows(&self) -> Result<u64> {
        Ok(0)
    }

    fn recent(&self, _: Option<&[usize]>, _: bool) -> Result<Vec<RecordBatch>> {
        Ok(vec![])
    }

    fn hidden(&self) -> Result<Arc<BTreeMap<FileId, RoaringBitmap>>> {
        Ok(Arc::default())
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<HotLookup>> {
        Ok(vec![HotLookup::Absent; keys.len()])
    }

    fn scan(&self, _: &RangeScan) -> RowBatches {
        Box::new(std::iter::empty())
    }

    fn rows_complete(&self) -> bool {
        false
    }
}

pub struct NoSystemTables;

#[async_trait::async_trait]
impl SystemTables for NoSystemTables {
    fn names(&self) -> Vec<String> {
        vec![]
    }

    async fn table(&self, name: &str) -> Result<RecordBatch> {
        Err(tarn_query::Error::NoSuchTable { name: name.to_owned() })
    }
}

/// A table of a test, as it is now.
pub trait CurrentSource: HotSource {
    fn now(&self) -> Arc<dyn HotView>;
}

/// Reads tables of one type.
pub struct TypedReader<T>(PhantomData<fn(T)>);

impl<T: CurrentSource> TypedReader<T> {
    pub fn all() -> Arc<dyn HotReader> {
        Arc::new(TypedReader(PhantomData::<fn(T)>))
    }
}

impl<T: CurrentSource> HotReader for TypedReader<T> {
    fn snapshot(&self, sources: &[Arc<dyn HotSource>]) -> Result<Vec<Arc<dyn HotView>>> {
        let source = |source: &Arc<dyn HotSource>| (source.as_ref() as &dyn Any).downcast_ref::<T>().unwrap().now();
        Ok(sources.iter().map(source).collect())
    }
}
