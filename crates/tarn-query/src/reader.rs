//! How does the Parquet scan get its bytes? Metadata from the metastore where that says it, else as
//! [`tarn_cache::FileReader`] reads a file; what was read is counted for the scan.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::internal_err;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{ParquetFileMetrics, ParquetFileReaderFactory};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::ObjectMeta;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::Result;
use parquet::file::metadata::ParquetMetaData;
use tarn_cache::{FileReader, FileReaders, FooterCache, FooterKey, LAKE_STORE, PageUsage, ReadStore};
use tarn_metastore::Checksums;
use tarn_types::{FileId, TableSchema};

use crate::Error;
use crate::column_chunks::ColumnChunkLoader;
use crate::foreign::usable;
use crate::settings::CacheSettings;
use crate::shown_names::ShownNames;

/// How many footers a scan read, cached ones included: a metric of the scan.
pub(crate) const FOOTERS: &str = "footers";

/// Makes readers over one store with shared footers.
#[derive(Clone, Debug)]
pub(crate) struct Readers {
    files: FileReaders,
    /// As [`FooterKey`] numbers stores.
    id: u64,
    /// A file of which less is read is read without its page index.
    pub page_index_bytes: u64,
    /// Of one scan: who knows where its columns lie. `None`: footers are read.
    loader: Option<Arc<ColumnChunkLoader>>,
    /// Of one scan: what the table calls columns that files call otherwise.
    names: Option<Arc<ShownNames>>,
}

impl Readers {
    /// Of the lake's own store.
    pub(crate) fn of_lake(store: ReadStore, footers: Arc<FooterCache>, page_index_bytes: u64) -> Self {
        Readers {
            files: FileReaders::of_lake(store, footers),
            id: LAKE_STORE,
            page_index_bytes,
            loader: None,
            names: None,
        }
    }

    /// The same for files of a table of the lake.
    pub(crate) fn of_table(self, table: &TableSchema) -> Self {
        Readers { names: ShownNames::of(table), ..self }
    }

    /// Of the archive behind `table`, with the footers of these.
    pub(crate) fn of_external_table(&self, store: ReadStore, id: u64, table: &str) -> Self {
        let files = self.files.of_external_table(store, table, usable);
        Readers { files, id, page_index_bytes: self.page_index_bytes, loader: None, names: None }
    }

    /// The same, asking `loader` for the metadata of files that say which they are ([`OfFile`]).
    pub(crate) fn with_loader(self, loader: Arc<ColumnChunkLoader>) -> Self {
        Readers { loader: Some(loader), ..self }
    }

    pub(crate) fn loader(&self) -> Option<&Arc<ColumnChunkLoader>> {
        self.loader.as_ref()
    }

    /// The same for one scan: by the caches that its session wants, with a count of its own.
    pub(crate) fn of_scan(&self, caches: &CacheSettings) -> Self {
        Readers { files: self.files.by(caches.footers, caches.pages), ..self.clone() }
    }

    /// What the scan got from pages so far.
    pub(crate) fn usage(&self) -> &PageUsage {
        self.files.usage()
    }

    /// Why the scan cannot use pages.
    pub(crate) fn pages_not_used(&self) -> Option<&'static str> {
        self.files.pages_not_used()
    }

    /// Why a file of an archive cannot be read as it was attached. `None`: it is the same, of the lake, or nobody can
    /// say. One request.
    pub(crate) async fn lost(&self, file: &ObjectMeta) -> Option<Error> {
        self.files.lost(file).await.map(Error::from)
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
        let of_file = file.extensions.get::<OfFile>().copied();
        let Some(Sums(checksums)) = file.extensions.get::<Sums>().cloned() else {
            return internal_err!("{} came without its checksums", file.object_meta.location);
        };
        let meta = file.object_meta;
        let of_parquet = ParquetFileMetrics::new(partition, meta.location.as_ref(), metrics);
        let footers = MetricBuilder::new(metrics).global_counter(FOOTERS);
        let key = FooterKey { store: self.id, path: meta.location, size_bytes: meta.size, etag: meta.e_tag };
        let block_metadata = self.loader.clone().zip(of_file);
        let (file, names) = (self.files.open(key, checksums), self.names.clone());
        Ok(Box::new(Reader { file, block_metadata, names, of_parquet, footers }))
    }
}

/// Carried by each piece of a file: what it is held against. `None` inside: nobody knows what was written.
#[derive(Debug, Clone)]
pub(crate) struct Sums(pub Option<Arc<Checksums>>);

/// Carried by each piece of a file whose metadata the metastore may have: which one it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfFile(pub FileId);

/// Reads one file for one scan.
struct Reader {
    file: FileReader,
    block_metadata: Option<(Arc<ColumnChunkLoader>, OfFile)>,
    names: Option<Arc<ShownNames>>,
    of_parquet: ParquetFileMetrics,
    footers: Count,
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.of_parquet.bytes_scanned.add((range.end - range.start) as usize);
        self.file.get_bytes(range)
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        self.of_parquet.bytes_scanned.add(ranges.iter().map(|r| (r.end - r.start) as usize).sum());
        self.file.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            if let Some((loader, OfFile(file))) = self.block_metadata.clone()
                && let Some(metadata) = loader.metadata(file, self).await?
            {
                return Ok(metadata);
            }
            self.footers.add(1);
            let footer = self.file.get_metadata(options).await?;
            self.names.as_ref().map_or(Ok(Arc::clone(&footer)), |names| names.of_footer(&footer).map(Arc::new))
        }
        .boxed()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.of_parquet.scan_efficiency_ratio.add_part(self.of_parquet.bytes_scanned.value());
        self.of_parquet.scan_efficiency_ratio.set_total(self.file.key().size_bytes as usize);
    }
}
