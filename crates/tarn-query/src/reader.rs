//! How does the Parquet scan get its bytes? Footers from the cache, pages from the store.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{ParquetFileMetrics, ParquetFileReaderFactory};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;
use tarn_cache::{FooterCache, FooterKey};

/// Makes readers over one store with shared footers.
pub(crate) struct Readers {
    store: Arc<dyn ObjectStore>,
    footers: Arc<FooterCache>,
}

impl Readers {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, footers: Arc<FooterCache>) -> Self {
        Readers { store, footers }
    }

    pub(crate) fn open(&self, key: FooterKey) -> Reader {
        Reader { store: Arc::clone(&self.store), footers: Arc::clone(&self.footers), key, metrics: None }
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Readers({})", self.store)
    }
}

impl ParquetFileReaderFactory for Readers {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        _metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> datafusion::error::Result<Box<dyn AsyncFileReader + Send>> {
        let meta = file.object_meta;
        let metrics = ParquetFileMetrics::new(partition, meta.location.as_ref(), metrics);
        let key = FooterKey { path: meta.location, size_bytes: meta.size, etag: meta.e_tag };
        let mut reader = self.open(key);
        reader.metrics = Some(metrics);
        Ok(Box::new(reader))
    }
}

/// Reads one file.
pub(crate) struct Reader {
    store: Arc<dyn ObjectStore>,
    footers: Arc<FooterCache>,
    key: FooterKey,
    metrics: Option<ParquetFileMetrics>,
}

impl Reader {
    fn count(&self, bytes: u64) {
        if let Some(metrics) = &self.metrics {
            metrics.bytes_scanned.add(bytes as usize);
        }
    }
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.count(range.end - range.start);
        async move { self.store.get_range(&self.key.path, range).await.map_err(external) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        self.count(ranges.iter().map(|r| r.end - r.start).sum());
        async move { self.store.get_ranges(&self.key.path, &ranges).await.map_err(external) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move { self.footers.get(&self.key, self.store.as_ref()).await.map_err(external) }.boxed()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.scan_efficiency_ratio.add_part(metrics.bytes_scanned.value());
            metrics.scan_efficiency_ratio.set_total(self.key.size_bytes as usize);
        }
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> ParquetError {
    ParquetError::External(Box::new(error))
}
