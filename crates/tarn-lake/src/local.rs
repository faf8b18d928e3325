//! A lake on the local file system whose objects survive a power cut.
//!
//! `object_store`'s file system leaves what it writes to the kernel, which writes it back within half a minute. The log
//! of rows that are committed to the lake may be trimmed at once, so a file must be on stable storage before its
//! commit: each object, and each folder that was made for it, is synced before the write is answered.

use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

/// Objects as files below a folder. Made folders stay when they are empty.
#[derive(Debug, Clone)]
pub struct LocalStore {
    inner: Arc<LocalFileSystem>,
    root: PathBuf,
}

impl LocalStore {
    /// Makes the folder if it is not there.
    pub fn open(root: impl AsRef<FsPath>) -> Result<Self> {
        let failed = |source: std::io::Error| object_store::Error::Generic { store: "local", source: source.into() };
        fs::create_dir_all(root.as_ref()).map_err(failed)?;
        let root = root.as_ref().canonicalize().map_err(failed)?;
        Ok(Self { inner: Arc::new(LocalFileSystem::new_with_prefix(&root)?), root })
    }

    async fn sync(&self, location: &Path) -> Result<()> {
        let (path, root) = (self.inner.path_to_filesystem(location)?, self.root.clone());
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| object_store::Error::Generic {
            store: "local",
            source: error,
        };
        let synced = tokio::task::spawn_blocking(move || sync(&path, &root)).await;
        synced.map_err(|e| failed(e.into()))?.map_err(|e| failed(e.into()))
    }
}

/// The file, and the folders above it up to the root.
fn sync(path: &FsPath, root: &FsPath) -> std::io::Result<()> {
    fs::File::open(path)?.sync_all()?;
    for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(root)) {
        fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}

impl fmt::Display for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalStore({})", self.root.display())
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for LocalStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let put = self.inner.put_opts(location, payload, options).await?;
        self.sync(location).await?;
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(Upload { inner, store: self.clone(), location: location.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await?;
        self.sync(to).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await?;
        self.sync(to).await
    }
}

#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    store: LocalStore,
    location: Path,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let put = self.inner.complete().await?;
        self.store.sync(&self.location).await?;
        Ok(put)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::buffered::BufWriter;
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn small_and_large_objects_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(LocalStore::open(dir.path().join("lake")).unwrap());
        for size in [10, 1000] {
            let path = Path::from(format!("a/b/{size}"));
            let mut writer = BufWriter::with_capacity(store.clone(), path.clone(), 100);
            writer.put(vec![7; size].into()).await.unwrap();
            writer.shutdown().await.unwrap();
            assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap().len(), size);
            store.delete(&path).await.unwrap();
            assert!(matches!(store.head(&path).await, Err(object_store::Error::NotFound { .. })));
        }
    }
}
