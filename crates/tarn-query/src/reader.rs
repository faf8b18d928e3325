//! How does the Parquet scan get its bytes? What a footer would say from the metastore, or a footer from the cache; pages from the store.
//!
//! Invariant: of a file whose checksums are known, nothing is handed on, and nothing kept near, that is not what was written. What is not is
//! read once more, past everything that is near: then it is the file's damage, and no longer that of a copy or of the way here.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::internal_err;
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
use tarn_cache::{Ask, FooterCache, FooterKey, ObjectState, PageUsage, ReadStore};
use tarn_metastore::{Checksums, Damage};

use crate::Error;
use crate::chunks::Detailed;
use crate::foreign::usable;
use crate::settings::CacheSettings;

/// The lake's own store, as [`FooterKey`] numbers stores.
pub(crate) const LAKE: u64 = 0;

/// How many footers a scan read, cached ones included: a metric of the scan.
pub(crate) const FOOTERS: &str = "footers";

/// Columns that an error of damage names.
const NAMED_COLUMNS: usize = 8;

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

    pub(crate) fn open(&self, key: FooterKey, Sums(checksums): Sums) -> Reader {
        Reader { from: self.from.clone(), key, checksums, details: None, metrics: None }
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
        let Some(checksums) = file.extensions.get::<Sums>().cloned() else {
            return internal_err!("{} came without its checksums", file.object_meta.location);
        };
        let meta = file.object_meta;
        let of_file = ParquetFileMetrics::new(partition, meta.location.as_ref(), metrics);
        let footers = MetricBuilder::new(metrics).global_counter(FOOTERS);
        let key = FooterKey { store: self.id, path: meta.location, size_bytes: meta.size, etag: meta.e_tag };
        let mut reader = self.open(key, checksums);
        reader.metrics = Some(Metrics { of_file, footers });
        reader.details = details;
        Ok(Box::new(reader))
    }
}

/// Carried by each piece of a file: what it is held against. `None` inside: nobody knows what was written.
#[derive(Debug, Clone)]
pub(crate) struct Sums(pub Option<Arc<Checksums>>);

/// Reads one file.
pub(crate) struct Reader {
    from: Origin,
    key: FooterKey,
    checksums: Option<Arc<Checksums>>,
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

    /// What was written at `ranges`. The error is a [`Damage`], however deep, when that is not there any more.
    async fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.read_once(ranges, self.from.past_pages).await {
            Err(error) if Damage::of(&error).is_some() => self.read_once(ranges, true).await,
            answer => answer,
        }
    }

    /// From pages, else from the store; of an archive's file only as it was when it was attached.
    async fn read_once(&self, ranges: &[Range<u64>], past_pages: bool) -> Result<Vec<Bytes>> {
        // Names in the lake are never used again: a bucket that was restored or copied, and has other ETags, is the same lake.
        let etag = self.key.etag.clone().filter(|_| self.from.archive.is_some());
        let ask = || Ask {
            state: Some(ObjectState { size_bytes: self.key.size_bytes, etag, modified_ns: None }),
            bypass: past_pages,
            usage: Some(self.from.usage.clone()),
            checksums: self.checksums.clone(),
        };
        if let Some(paged) = self.from.store.read_pages(&self.key.path, ranges, ask).await {
            let read = paged.map_err(|error| self.failed(error))?;
            return match read.iter().zip(ranges).all(|(bytes, range)| bytes.len() as u64 == range.end - range.start) {
                true => Ok(read),
                false => Err(external(self.changed())),
            };
        }
        let Some(checksums) = &self.checksums else { return self.read_as_it_is(ranges).await };
        let plan = checksums.plan(ranges);
        let read = self.read_as_it_is(plan.runs()).await?;
        plan.take(&read).map_err(external)
    }

    /// From the store, and not held against any checksum.
    async fn read_as_it_is(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if self.from.archive.is_none() {
            return self.from.store.store().get_ranges(&self.key.path, ranges).await.map_err(external);
        }
        let fetch = |range| self.get_unchanged(range);
        coalesce_ranges(ranges, fetch, OBJECT_STORE_COALESCE_DEFAULT).await
    }

    /// As [`Reader::read`]; an error of damage names path, block and columns.
    async fn read_named(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.read(ranges).await {
            Ok(read) => Ok(read),
            Err(error) => Err(self.named(error).await),
        }
    }

    /// The error with what it is about, if that is damage.
    async fn named(&self, error: ParquetError) -> ParquetError {
        let damage = match Damage::of(&error) {
            Some(damage) => damage.clone(),
            // A store does not say that a file is too short, but only that it could not be read.
            None if self.checksums.is_some() => match self.from.store.store().head(&self.key.path).await {
                Ok(found) if found.size < self.key.size_bytes => Damage { range: found.size..self.key.size_bytes },
                _ => return error,
            },
            None => return error,
        };
        let tail_start = self.tail_start();
        let place = match damage.range.start >= tail_start && tail_start > 0 {
            true => "its footer".to_owned(),
            false => match self.footer().await {
                Ok(footer) => place(&footer, &damage.range),
                Err(_) => "which block it is cannot be told: its footer is damaged, too".to_owned(),
            },
        };
        external(Error::Damaged { path: self.key.path.to_string(), place, damage })
    }

    /// Where the footer begins, at the earliest.
    fn tail_start(&self) -> u64 {
        self.checksums.as_ref().map_or(0, |checksums| checksums.tail_start())
    }

    async fn footer(&self) -> tarn_cache::Result<Arc<ParquetMetaData>> {
        let footers = &self.from.footers;
        match &self.from.archive {
            Some(_) => footers.get_by(&self.key, Footer(self), usable).await,
            None => footers.get_by(&self.key, Footer(self), Ok).await,
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

/// A footer, read as the rest of the file is. Who reads it asks for more than it takes, and is given zeros where it is known not to be: what is
/// wrong with a block is none of its business.
struct Footer<'a>(&'a Reader);

impl MetadataFetch for Footer<'_> {
    fn fetch(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move {
            let lead = self.0.tail_start().clamp(range.start, range.end) - range.start;
            let tail = range.start + lead..range.end;
            let tail = self.0.read(&[tail]).await?.pop().unwrap_or_default();
            if lead == 0 {
                return Ok(tail);
            }
            let mut bytes = vec![0; lead as usize];
            bytes.extend_from_slice(&tail);
            Ok(bytes.into())
        }
        .boxed()
    }
}

/// Which blocks and columns have bytes in `range`.
fn place(footer: &ParquetMetaData, range: &Range<u64>) -> String {
    let mut blocks = vec![];
    for (block, group) in footer.row_groups().iter().enumerate() {
        let touched = group.columns().iter().filter(|column| {
            let (start, bytes) = column.byte_range();
            start < range.end && range.start < start + bytes
        });
        let names: Vec<_> = touched.map(|column| column.column_path().string()).collect();
        if names.is_empty() {
            continue;
        }
        let more = match names.len().saturating_sub(NAMED_COLUMNS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = names[..names.len().min(NAMED_COLUMNS)].join(", ");
        blocks.push(format!("block {block}, columns {named}{more}"));
    }
    if blocks.is_empty() { "its footer".to_owned() } else { blocks.join("; ") }
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.count(range.end - range.start);
        async move { Ok(self.read_named(&[range]).await?.pop().unwrap_or_default()) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        self.count(ranges.iter().map(|r| r.end - r.start).sum());
        async move { self.read_named(&ranges).await }.boxed()
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
            match self.footer().await {
                Ok(footer) => Ok(footer),
                Err(tarn_cache::Error::Footer { source: ParquetError::External(inner), .. }) if inner.is::<Error>() => {
                    Err(ParquetError::External(inner))
                }
                Err(error) => Err(self.named(external(error)).await),
            }
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
