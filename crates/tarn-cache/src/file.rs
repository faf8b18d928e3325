//! How are the bytes of a file read so that they are what was written? A footer from the cache, pages that are near,
//! the store.
//!
//! Invariant: of a file whose checksums are known, nothing is handed on, and nothing kept near, that is not what was
//! written. What is not is read once more, past everything that is near: then it is the file's damage, and no longer
//! that of a copy or of the way here.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{GetOptions, OBJECT_STORE_COALESCE_DEFAULT, ObjectMeta, ObjectStoreExt, coalesce_ranges};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, MetadataFetch};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;
use tarn_metastore::{Checksums, Damage};

use crate::{Error, FooterCache, FooterKey, ObjectState, PageUsage, ReadRequest, ReadStore};

/// What is kept of a footer that somebody else wrote.
pub type Prepare = fn(ParquetMetaData) -> Result<ParquetMetaData>;

/// Makes readers of the files of one store, with shared footers. Cheap to clone.
#[derive(Clone)]
pub struct FileReaders {
    store: ReadStore,
    /// Somebody else writes there.
    foreign: Option<ExternalFooters>,
    footers: Arc<FooterCache>,
    /// Go past the pages.
    past_pages: bool,
    usage: PageUsage,
}

/// Whose the files are, and what is kept of their footers.
#[derive(Clone)]
struct ExternalFooters {
    table: Arc<str>,
    prepare: Prepare,
}

impl FileReaders {
    /// Of the lake's own store: nobody else writes there, and names are never used again.
    pub fn of_lake(store: ReadStore, footers: Arc<FooterCache>) -> Self {
        FileReaders { store, foreign: None, footers, past_pages: false, usage: PageUsage::default() }
    }

    /// Of the store of an archive, behind `table`, with the footers of these; each is kept as `prepare` makes it.
    #[must_use]
    pub fn of_external_table(&self, store: ReadStore, table: &str, prepare: Prepare) -> Self {
        FileReaders { store, foreign: Some(ExternalFooters { table: table.into(), prepare }), ..self.clone() }
    }

    /// The same with a count of its own of what pages gave; without the footers or pages that are not wanted.
    #[must_use]
    pub fn by(&self, footers: bool, pages: bool) -> Self {
        let footers = match footers {
            true => Arc::clone(&self.footers),
            false => Arc::new(FooterCache::new(0)),
        };
        FileReaders { footers, past_pages: !pages, usage: PageUsage::default(), ..self.clone() }
    }

    /// What came from pages so far.
    pub fn usage(&self) -> &PageUsage {
        &self.usage
    }

    /// Why pages are not used.
    pub fn pages_not_used(&self) -> Option<&'static str> {
        match self.past_pages {
            true => Some("tarn.cache.pages is off"),
            false => self.store.not_used(),
        }
    }

    /// Why a file of an archive cannot be read as it was attached: it is gone, or another one is there. `None`: it is
    /// the same, of the lake, or nobody can say. One request.
    pub async fn lost(&self, file: &ObjectMeta) -> Option<Error> {
        let table = self.foreign.as_ref()?.table.to_string();
        let path = file.location.to_string();
        match self.store.store().head(&file.location).await {
            Err(object_store::Error::NotFound { .. }) => Some(Error::Gone { table, path }),
            Ok(now) if now.size != file.size || file.e_tag.is_some() && now.e_tag != file.e_tag => {
                Some(Error::Changed { table, path })
            }
            _ => None,
        }
    }

    /// A reader of one file. Without checksums nobody knows what was written.
    pub fn open(&self, key: FooterKey, checksums: Option<Arc<Checksums>>) -> FileReader {
        FileReader { of: self.clone(), key, checksums }
    }
}

impl fmt::Debug for FileReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileReaders({})", self.store)
    }
}

/// Reads one file. Its errors are of this crate, however deep in a [`ParquetError::External`], where it knows more than
/// the store said.
pub struct FileReader {
    of: FileReaders,
    key: FooterKey,
    checksums: Option<Arc<Checksums>>,
}

impl FileReader {
    /// Which file it is.
    pub fn key(&self) -> &FooterKey {
        &self.key
    }

    /// What was written at `ranges`. The error is a [`Damage`], however deep, when that is not there any more.
    async fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.read_once(ranges, self.of.past_pages).await {
            Err(error) if Damage::of(&error).is_some() => self.read_once(ranges, true).await,
            answer => answer,
        }
    }

    /// From pages, else from the store; of an archive's file only as it was when it was attached.
    async fn read_once(&self, ranges: &[Range<u64>], past_pages: bool) -> Result<Vec<Bytes>> {
        // Names in the lake are never used again: a bucket that was restored or copied, and has other ETags, is the
        // same lake.
        let etag = self.key.etag.clone().filter(|_| self.of.foreign.is_some());
        let ask = || ReadRequest {
            state: Some(ObjectState { size_bytes: self.key.size_bytes, etag, modified_ns: None }),
            bypass: past_pages,
            usage: Some(self.of.usage.clone()),
            checksums: self.checksums.clone(),
        };
        if let Some(paged) = self.of.store.read_pages(&self.key.path, ranges, ask).await {
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
        if self.of.foreign.is_none() {
            return self.of.store.store().get_ranges(&self.key.path, ranges).await.map_err(external);
        }
        let fetch = |range| self.get_unchanged(range);
        coalesce_ranges(ranges, fetch, OBJECT_STORE_COALESCE_DEFAULT).await
    }

    /// As [`FileReader::read`]; an error of damage names path, block and columns.
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
            None if self.checksums.is_some() => match self.of.store.store().head(&self.key.path).await {
                Ok(found) if found.size < self.key.size_bytes => Damage { range: found.size..self.key.size_bytes },
                _ => return error,
            },
            None => return error,
        };
        let tail_start = self.tail_start();
        let place = match damage.range.start >= tail_start && tail_start > 0 {
            true => "its footer".to_owned(),
            false => match self.footer().await {
                Ok(footer) => damage.place(columns(&footer)),
                Err(_) => "which block it is cannot be told: its footer is damaged, too".to_owned(),
            },
        };
        external(Error::Damaged { path: self.key.path.to_string(), place, damage })
    }

    /// Where the footer begins, at the earliest.
    fn tail_start(&self) -> u64 {
        self.checksums.as_ref().map_or(0, |checksums| checksums.tail_start())
    }

    async fn footer(&self) -> crate::Result<Arc<ParquetMetaData>> {
        let prepare = self.of.foreign.as_ref().map_or(Ok as Prepare, |foreign| foreign.prepare);
        self.of.footers.get_by(&self.key, Footer(self), prepare).await
    }

    /// Of a file that somebody else may have written anew.
    async fn get_unchanged(&self, range: Range<u64>) -> Result<Bytes> {
        let n_bytes = range.end - range.start;
        let options =
            GetOptions { range: Some(range.into()), if_match: self.key.etag.clone(), ..GetOptions::default() };
        let got = self.of.store.store().get_opts(&self.key.path, options).await;
        let bytes = got.map_err(|error| self.failed(error))?.bytes().await.map_err(external)?;
        match bytes.len() as u64 == n_bytes {
            true => Ok(bytes),
            false => Err(external(self.changed())),
        }
    }

    /// What a file that is not the one that was meant means.
    fn failed(&self, error: object_store::Error) -> ParquetError {
        match (error, &self.of.foreign) {
            (object_store::Error::Precondition { .. }, _) => external(self.changed()),
            (object_store::Error::NotFound { .. }, Some(ExternalFooters { table, .. })) => {
                external(Error::Gone { table: table.to_string(), path: self.key.path.to_string() })
            }
            (error, _) => external(error),
        }
    }

    fn changed(&self) -> Error {
        let path = self.key.path.to_string();
        match &self.of.foreign {
            Some(ExternalFooters { table, .. }) => Error::Changed { table: table.to_string(), path },
            None => Error::Length { path, committed_bytes: self.key.size_bytes },
        }
    }
}

/// A footer, read as the rest of the file is. Who reads it asks for more than it takes, and is given zeros where it is
/// known not to be: what is wrong with a block is none of its business.
struct Footer<'a>(&'a FileReader);

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

/// What [`Damage::place`] wants to know of a file: the columns of its blocks.
fn columns(footer: &ParquetMetaData) -> impl Iterator<Item = impl Iterator<Item = (String, Range<u64>)>> {
    footer.row_groups().iter().map(|group| {
        group.columns().iter().map(|column| {
            let (start, bytes) = column.byte_range();
            (column.column_path().string(), start..start + bytes)
        })
    })
}

impl AsyncFileReader for FileReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move { Ok(self.read_named(&[range]).await?.pop().unwrap_or_default()) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        async move { self.read_named(&ranges).await }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            match self.footer().await {
                Ok(footer) => Ok(footer),
                // Said by who read the bytes, with more than is known of a footer.
                Err(Error::Footer { source: ParquetError::External(inner), .. }) if inner.is::<Error>() => {
                    Err(ParquetError::External(inner))
                }
                Err(error) => Err(self.named(external(error)).await),
            }
        }
        .boxed()
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> ParquetError {
    ParquetError::External(Box::new(error))
}
