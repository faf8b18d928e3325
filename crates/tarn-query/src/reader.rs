//! How does the Parquet scan get its bytes? What a footer would say from the metastore, or a footer from the cache; pages from the store.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{ParquetFileMetrics, ParquetFileReaderFactory};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{
    GetOptions, OBJECT_STORE_COALESCE_DEFAULT, ObjectMeta, ObjectStore, ObjectStoreExt, coalesce_ranges,
};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, MetadataFetch};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;
use tarn_cache::{FooterCache, FooterKey};

use crate::Error;
use crate::chunks::Detailed;
use crate::foreign::usable;

/// The lake's own store, as [`FooterKey`] numbers stores.
pub(crate) const LAKE: u64 = 0;

/// How many footers a scan read, cached ones included: a metric of the scan.
pub(crate) const FOOTERS: &str = "footers";

/// Makes readers over one store with shared footers.
#[derive(Clone)]
pub(crate) struct Readers {
    store: Arc<dyn ObjectStore>,
    id: u64,
    /// Somebody else writes there: the table whose files these are.
    archive: Option<Arc<str>>,
    footers: Arc<FooterCache>,
    /// A file of which less is read is read without its page index.
    pub page_index_bytes: u64,
}

impl Readers {
    /// Of the lake's own store.
    pub(crate) fn of_lake(store: Arc<dyn ObjectStore>, footers: Arc<FooterCache>, page_index_bytes: u64) -> Self {
        Readers { store, id: LAKE, archive: None, footers, page_index_bytes }
    }

    /// Of the archive behind `table`, with the footers of these.
    pub(crate) fn of_archive(&self, store: Arc<dyn ObjectStore>, id: u64, table: &str) -> Self {
        Readers { store, id, archive: Some(table.into()), ..self.clone() }
    }

    /// Why a file of an archive cannot be read as it was attached: it is gone, or another one is there. `None`: it is the same, of the
    /// lake, or nobody can say. One request.
    pub(crate) async fn lost(&self, table: &str, file: &ObjectMeta) -> Option<Error> {
        self.archive.as_ref()?;
        let (table, path) = (table.to_owned(), file.location.to_string());
        match self.store.head(&file.location).await {
            Err(object_store::Error::NotFound { .. }) => Some(Error::Gone { table, path }),
            Ok(now) if now.size != file.size || file.e_tag.is_some() && now.e_tag != file.e_tag => {
                Some(Error::Changed { table, path })
            }
            _ => None,
        }
    }

    pub(crate) fn open(&self, key: FooterKey) -> Reader {
        Reader {
            store: Arc::clone(&self.store),
            archive: self.archive.clone(),
            footers: Arc::clone(&self.footers),
            key,
            details: None,
            metrics: None,
        }
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
        let details = file.extensions.get::<Detailed>().cloned();
        let meta = file.object_meta;
        let of_file = ParquetFileMetrics::new(partition, meta.location.as_ref(), metrics);
        let footers = MetricBuilder::new(metrics).global_counter(FOOTERS);
        let key = FooterKey { store: self.id, path: meta.location, size_bytes: meta.size, etag: meta.e_tag };
        let mut reader = self.open(key);
        reader.metrics = Some(Metrics { of_file, footers });
        reader.details = details;
        Ok(Box::new(reader))
    }
}

/// Reads one file.
pub(crate) struct Reader {
    store: Arc<dyn ObjectStore>,
    archive: Option<Arc<str>>,
    footers: Arc<FooterCache>,
    key: FooterKey,
    details: Option<Detailed>,
    metrics: Option<Metrics>,
}

struct Metrics {
    of_file: ParquetFileMetrics,
    footers: Count,
}

impl Reader {
    fn count(&self, bytes: u64) {
        if let Some(metrics) = &self.metrics {
            metrics.of_file.bytes_scanned.add(bytes as usize);
        }
    }

    /// Of a file that somebody else may have written anew: only as it was when it was attached.
    async fn get_unchanged(&self, table: &str, range: Range<u64>) -> Result<Bytes> {
        let n_bytes = range.end - range.start;
        let options =
            GetOptions { range: Some(range.into()), if_match: self.key.etag.clone(), ..GetOptions::default() };
        let got = match self.store.get_opts(&self.key.path, options).await {
            Err(object_store::Error::Precondition { .. }) => return Err(external(self.changed(table))),
            Err(object_store::Error::NotFound { .. }) => {
                return Err(external(Error::Gone { table: table.to_owned(), path: self.key.path.to_string() }));
            }
            got => got.map_err(external)?,
        };
        let bytes = got.bytes().await.map_err(external)?;
        match bytes.len() as u64 == n_bytes {
            true => Ok(bytes),
            false => Err(external(self.changed(table))),
        }
    }

    fn changed(&self, table: &str) -> Error {
        Error::Changed { table: table.to_owned(), path: self.key.path.to_string() }
    }
}

/// A footer that somebody else may have written anew.
struct Unchanged<'a> {
    reader: &'a Reader,
    table: &'a str,
}

impl MetadataFetch for Unchanged<'_> {
    fn fetch(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.reader.get_unchanged(self.table, range).boxed()
    }
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.count(range.end - range.start);
        async move {
            match &self.archive {
                Some(table) => self.get_unchanged(table, range).await,
                None => self.store.get_range(&self.key.path, range).await.map_err(external),
            }
        }
        .boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        self.count(ranges.iter().map(|r| r.end - r.start).sum());
        async move {
            match &self.archive {
                Some(table) => {
                    let fetch = |range| self.get_unchanged(table, range);
                    coalesce_ranges(&ranges, fetch, OBJECT_STORE_COALESCE_DEFAULT).await
                }
                None => self.store.get_ranges(&self.key.path, &ranges).await.map_err(external),
            }
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            if let Some(Detailed { loader, file }) = self.details.clone()
                && let Some(metadata) = loader.metadata(file, self).await?
            {
                return Ok(metadata);
            }
            if let Some(metrics) = &self.metrics {
                metrics.footers.add(1);
            }
            let footer = match &self.archive {
                Some(table) => self.footers.get_by(&self.key, Unchanged { reader: self, table }, usable).await,
                None => self.footers.get(&self.key, self.store.as_ref()).await,
            };
            footer.map_err(|error| match error {
                tarn_cache::Error::Footer { source: ParquetError::External(inner), .. } if inner.is::<Error>() => {
                    ParquetError::External(inner)
                }
                error => external(error),
            })
        }
        .boxed()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(Metrics { of_file, .. }) = &self.metrics {
            of_file.scan_efficiency_ratio.add_part(of_file.bytes_scanned.value());
            of_file.scan_efficiency_ratio.set_total(self.key.size_bytes as usize);
        }
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> ParquetError {
    ParquetError::External(Box::new(error))
}
