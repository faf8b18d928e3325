//! How are bytes of a file read so that they are those that were written, or an error says where they are not?
//!
//! Nothing that comes from a store is handed on before it matches its checksums, which the file's record in the
//! metastore has. A read that does not is made once more, because what was damaged may have been its way here and not
//! the file.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, MetadataFetch};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use tarn_metastore::{Checksums, Damage, File};

use crate::error::store_error;
use crate::{Error, Result};

/// Bytes fetched at the end of a file in the hope that they hold the whole footer.
const FOOTER_BYTES: u64 = 64 << 10;

/// How often bytes are read before they are taken for damaged.
const TRIES: usize = 2;

/// Ranged reads of one object.
#[derive(Clone)]
pub(crate) struct CheckedReader {
    store: Arc<dyn ObjectStore>,
    path: Path,
    size_bytes: u64,
    /// `None`: nobody knows what was written.
    checksums: Option<Arc<Checksums>>,
}

impl CheckedReader {
    /// Of a file as its version has it. A path that no store can have is an error.
    pub fn new(store: Arc<dyn ObjectStore>, file: &File) -> Result<Self> {
        let path = Path::parse(&file.path).map_err(|e| store_error("read", &file.path)(e.into()))?;
        Ok(Self { store, path, size_bytes: file.size_bytes, checksums: file.checksums.clone() })
    }

    /// What was written at `ranges`. The error is a [`Damage`], or the store's.
    pub async fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, ParquetError> {
        let Some(checksums) = &self.checksums else {
            return self.store.get_ranges(&self.path, ranges).map_err(external).await;
        };
        let plan = checksums.plan(ranges);
        let mut tries = 0;
        loop {
            tries += 1;
            let read = match self.store.get_ranges(&self.path, plan.runs()).await {
                Ok(read) => read,
                Err(error) => return Err(self.cut_short(error).await),
            };
            match plan.take(&read) {
                Ok(bytes) => return Ok(bytes),
                Err(damage) if tries == TRIES => return Err(external(damage)),
                Err(_) => {}
            }
        }
    }

    /// A store does not say that a file is too short, but only that it could not be read.
    async fn cut_short(&self, error: object_store::Error) -> ParquetError {
        match self.store.head(&self.path).await {
            Ok(found) if found.size < self.size_bytes => external(Damage { range: found.size..self.size_bytes }),
            _ => external(error),
        }
    }

    /// As [`CheckedReader::read`], with the path, the block and the columns in the error.
    async fn read_named(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, ParquetError> {
        let error = match self.read(ranges).await {
            Ok(bytes) => return Ok(bytes),
            Err(error) => error,
        };
        match Damage::of(&error).cloned() {
            Some(damage) => Err(external(self.damaged(damage).await)),
            None => Err(error),
        }
    }

    /// What lies there. Reads the footer.
    pub async fn damaged(&self, damage: Damage) -> Error {
        let tail_start = self.checksums.as_ref().map_or(0, |checksums| checksums.tail_start());
        let place = match damage.range.start >= tail_start && tail_start > 0 {
            true => "its footer".to_owned(),
            false => match self.footer(ParquetMetaDataReader::new()).await {
                Ok(footer) => damage.place(columns(&footer)),
                Err(_) => "which block it is cannot be told: its footer is damaged, too".to_owned(),
            },
        };
        Error::Damaged { path: self.path.to_string(), place, damage }
    }

    async fn footer(&self, reader: ParquetMetaDataReader) -> Result<ParquetMetaData, ParquetError> {
        // No more than the footer, where it is known to begin: what is wrong with a block is none of its business.
        let tail_start = self.checksums.as_ref().map_or(0, |checksums| checksums.tail_start());
        let hint = FOOTER_BYTES.min(self.size_bytes - tail_start.min(self.size_bytes));
        reader.with_prefetch_hint(Some(hint as usize)).load_and_finish(FooterReader(self), self.size_bytes).await
    }
}

/// Reads of a footer, whose damage is named by who asked for it.
struct FooterReader<'a>(&'a CheckedReader);

impl MetadataFetch for FooterReader<'_> {
    fn fetch(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        async move { Ok(self.0.read(&[range]).await?.pop().unwrap_or_default()) }.boxed()
    }
}

impl AsyncFileReader for CheckedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        async move { Ok(self.read_named(&[range]).await?.pop().unwrap_or_default()) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        async move { self.read_named(&ranges).await }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        async move {
            match self.footer(ParquetMetaDataReader::new().with_arrow_reader_options(options)).await {
                Ok(footer) => Ok(Arc::new(footer)),
                Err(error) => match Damage::of(&error).cloned() {
                    Some(damage) => Err(external(self.damaged(damage).await)),
                    None => Err(error),
                },
            }
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

fn external(error: impl std::error::Error + Send + Sync + 'static) -> ParquetError {
    ParquetError::External(Box::new(error))
}
