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
use object_store::{GetOptions, OBJECT_STORE_COALESCE_DEFAULT, ObjectMeta, ObjectStoreExt, coalesce_ranges};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, MetadataFetch};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;
use tarn_cache::{Ask, FooterCache, FooterKey, ObjectState, PageUsage};

use crate::Error;
use crate::chunks::Detailed;
use crate::foreign::usable;
use crate::read_store::ReadStore;
use crate::settings::CacheSettings;

/// The lake's own store, as [`FooterKey`] numbers stores.
pub(crate) const LAKE: u64 = 0;

/// How many footers a scan read, cached ones included: a metric of the scan.
pub(crate) const FOOTERS: &str = "footers";

/// Makes readers over one store with shared footers.
#[derive(Clone)]
pub(crate) struct Readers {
    from: Origin,
    id: u64,
    /// A file of which less is read is read without its page index.
    pub page_index_bytes: u64,
}

/// What all readers of a scan share.
#[derive(Clone)]
struct Origin {
    store: ReadStore,
    /// Somebody else writes there: the table whose files these are.
    archive: Option<Arc<str>>,
    footers: Arc<FooterCache>,
    /// Go past the pages.
    past_pages: bool,
    usage: PageUsage,
}

impl Readers {
    /// Of the lake's own store.
    pub(crate) fn of_lake(store: ReadStore, footers: Arc<FooterCache>, page_index_bytes: u64) -> Self {
        let from = Origin { store, archive: None, footers, past_pages: false, usage: PageUsage::default() };
        Readers { from, id: LAKE, page_index_bytes }
    }

    /// Of the archive behind `table`, with the footers of these.
    pub(crate) fn of_archive(&self, store: ReadStore, id: u64, table: &str) -> Self {
        let from = Origin { store, archive: Some(table.into()), ..self.from.clone() };
        Readers { from, id, page_index_bytes: self.page_index_bytes }
    }

    /// The same for one scan: by the caches that its session wants, with a count of its own.
    pub(crate) fn of_scan(&self, caches: &CacheSettings) -> Self {
        let footers = match caches.footers {
            true => Arc::clone(&self.from.footers),
            false => Arc::new(FooterCache::new(0)),
        };
        let from = Origin { footers, past_pages: !caches.pages, usage: PageUsage::default(), ..self.from.clone() };
        Readers { from, ..self.clone() }
    }

    /// What the scan got from pages so far.
    pub(crate) fn usage(&self) -> &PageUsage {
        &self.from.usage
    }

    /// Why the scan cannot use pages.
    pub(crate) fn pages_not_used(&self) -> Option<&'static str> {
        match self.from.past_pages {
            true => Some("tarn.cache.pages is off"),
            false => self.from.store.not_used(),
        }
    }

    /// Why a file of an archive cannot be read as it was attached: it is gone, or another one is there. `None`: it is the same, of the
    /// lake, or nobody can say. One request.
    pub(crate) async fn lost(&self, table: &str, file: &ObjectMeta) -> Option<Error> {
        self.from.archive.as_ref()?;
        let (table, path) = (table.to_owned(), file.location.to_string());
        match self.from.store.store().head(&file.location).await {
            Err(object_store::Error::NotFound { .. }) => Some(Error::Gone { table, path }),
            Ok(now) if now.size != file.size || file.e_tag.is_some() && now.e_tag != file.e_tag => {
                Some(Error::Changed { table, path })
            }
            _ => None,
        }
    }

    pub(crate) fn open(&self, key: FooterKey) -> Reader {
        Reader { from: self.from.clone(), key, details: None, metrics: None }
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Readers({})", self.from.store)
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
    from: Origin,
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

    /// From pages, else from the store; of an archive's file only as it was when it was attached.
    async fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        // Names in the lake are never used again: a bucket that was restored or copied, and has other ETags, is the same lake.
        let etag = self.key.etag.clone().filter(|_| self.from.archive.is_some());
        let ask = || Ask {
            state: Some(ObjectState { size_bytes: self.key.size_bytes, etag, modified_ns: None }),
            bypass: self.from.past_pages,
            usage: Some(self.from.usage.clone()),
        };
        let paged = self.from.store.read_pages(&self.key.path, ranges, ask).await;
        match (paged, &self.from.archive) {
            (Some(paged), _) => {
                let read = paged.map_err(|error| self.failed(error))?;
                match read.iter().zip(ranges).all(|(bytes, range)| bytes.len() as u64 == range.end - range.start) {
                    true => Ok(read),
                    false => Err(external(self.changed())),
                }
            }
            (None, None) => self.from.store.store().get_ranges(&self.key.path, ranges).await.map_err(external),
            (None, Some(_)) => {
                let fetch = |range| self.get_unchanged(range);
                coalesce_ranges(ranges, fetch, OBJECT_STORE_COALESCE_DEFAULT).await
            }
        }
    }

    /// Of a file that somebody else may have written anew.
    async fn get_unchanged(&self, range: Range<u64>) -> Result<Bytes> {
        let n_bytes = range.end - range.start;
        let options =
            GetOptions { range: Some(range.into()), if_match: self.key.etag.clone(), ..GetOptions::default() };
        let got = self.from.store.store().get_opts(&self.key.path, options).await;
        let bytes = got.map_err(|error| self.failed(error))?.bytes().await.map_err(external)?;
        match bytes.len() as u64 == n_bytes {
            true => Ok(bytes),
            false => Err(external(self.changed())),
        }
    }

    /// What a file that is not the one that was meant means.
    fn failed(&self, error: object_store::Error) -> ParquetError {
        match (error, &self.from.archive) {
            (object_store::Error::Precondition { .. }, _) => external(self.changed()),
            (object_store::Error::NotFound { .. }, Some(table)) => {
                external(Error::Gone { table: table.to_string(), path: self.key.path.to_string() })
            }
            (error, _) => external(error),
        }
    }

    fn changed(&self) -> Error {
        let path = self.key.path.to_string();
        match &self.from.archive {
            Some(table) => Error::Changed { table: table.to_string(), path },
            None => Error::Corrupt {
                what: format!("lake file {path} has not the {} bytes that were committed", self.key.size_bytes),
            },
        }
    }
}

/// A footer, read as the rest of the file is.
struct Footer<'a>(&'a Reader);

impl MetadataFetch for Footer<'_> {
    fn fetch(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move { Ok(self.0.read(&[range]).await?.pop().unwrap_or_default()) }.boxed()
    }
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.count(range.end - range.start);
        async move { Ok(self.read(&[range]).await?.pop().unwrap_or_default()) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        self.count(ranges.iter().map(|r| r.end - r.start).sum());
        async move { self.read(&ranges).await }.boxed()
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
            let footers = &self.from.footers;
            let footer = match &self.from.archive {
                Some(_) => footers.get_by(&self.key, Footer(self), usable).await,
                None => footers.get_by(&self.key, Footer(self), Ok).await,
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
