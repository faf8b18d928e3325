//! Where is a URL? Opens the object stores that a user may name: folders of the server, and buckets (`cloud`).
//!
//! Invariant: an archive ([`StoreLocation::open`]) can be listed and read, and no more.

mod cloud;
mod etags;

use std::fmt;
use std::ops::Range;
use std::path::{self, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::executor::block_on_stream;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions,
};
use url::Url;

pub use self::cloud::Cloud;

use crate::error::{Error, ErrorKind, Result, chain};

const PLACES: &str =
    "name a folder (/data/logs, file:///data/logs), s3://bucket/prefix, gs://bucket/prefix or az://container/prefix";

/// A place that can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// Absolute.
    Folder(PathBuf),
    /// Of a cloud, or of whoever speaks its protocol.
    Bucket {
        /// Whose protocol it is.
        cloud: Cloud,
        /// Azure's word is container.
        bucket: String,
        /// Below which the files lie; empty: in all of the bucket.
        prefix: Path,
    },
}

impl fmt::Display for StoreLocation {
    /// The same place however it was written; [`StoreLocation::parse_for`] gives it again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreLocation::Folder(folder) => write!(f, "{}", folder.display()),
            StoreLocation::Bucket { cloud, bucket, prefix } => {
                let prefix =
                    prefix.as_ref().replace('%', "%25").replace('#', "%23").replace('?', "%3F").replace(' ', "%20");
                write!(f, "{}://{bucket}{}{prefix}", cloud.scheme(), if prefix.is_empty() { "" } else { "/" })
            }
        }
    }
}

impl StoreLocation {
    /// Reads a URL that somebody typed; what has no scheme is a folder, from the server's working folder on.
    ///
    /// Errors: `Invalid`, naming the schemes there are.
    pub fn parse(text: &str) -> Result<StoreLocation> {
        if text.contains('*') {
            let message = format!("cannot attach '{text}': patterns are not known");
            return Err(
                Error::new(ErrorKind::Invalid, message).with_hint("all Parquet files below a folder are attached")
            );
        }
        StoreLocation::parse_for("attach", text)
    }

    /// As [`StoreLocation::parse`], of a place that an error says somebody wanted to `use_it` for; stars are stars.
    pub fn parse_for(use_it: &str, text: &str) -> Result<StoreLocation> {
        let bad =
            |why: &str| Error::new(ErrorKind::Invalid, format!("cannot {use_it} '{text}': {why}")).with_hint(PLACES);
        if text.trim().is_empty() {
            return Err(bad("it names nothing"));
        }
        if !text.contains("://") {
            return path::absolute(text)
                .map(|folder| StoreLocation::Folder(clean(folder)))
                .map_err(|e| bad(&e.to_string()));
        }
        let parsed = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
        match parsed.scheme() {
            "file" => {
                let folder = parsed.to_file_path().map_err(|()| bad("a file URL begins with file:///"))?;
                Ok(StoreLocation::Folder(clean(folder)))
            }
            scheme => {
                let cloud = Cloud::of(scheme).ok_or_else(|| bad(&format!("there is no store for {scheme}://")))?;
                let extra = [parsed.query(), parsed.fragment(), parsed.password()].iter().any(Option::is_some);
                if extra || parsed.port().is_some() || !parsed.username().is_empty() {
                    return Err(bad(
                        "it may have nothing but a bucket and a prefix, in which `#` is %23 and `?` is %3F; \
                                    accounts, keys and hosts are set by the server's environment",
                    ));
                }
                let bucket = parsed.host_str().filter(|bucket| !bucket.is_empty());
                let bucket = bucket.ok_or_else(|| bad("it names no bucket"))?.to_owned();
                let prefix = Path::from_url_path(parsed.path()).map_err(|error| bad(&error.to_string()))?;
                Ok(StoreLocation::Bucket { cloud, bucket, prefix })
            }
        }
    }

    /// Opens it; what is there is not looked at.
    ///
    /// Errors: `Unavailable`, if the environment says nothing that makes sense.
    pub fn open(&self) -> Result<Arc<dyn ObjectStore>> {
        match self {
            StoreLocation::Folder(folder) => {
                let root = Path::from_absolute_path(folder).map_err(|error| self.unavailable(&error.to_string()))?;
                Ok(Arc::new(ReadOnly { store: PrefixStore::new(LocalFileSystem::new(), root), location: self.clone() }))
            }
            StoreLocation::Bucket { .. } => Ok(Arc::new(ReadOnly { store: self.bucket()?, location: self.clone() })),
        }
    }

    /// Opens it to be written, too; what is there is not looked at. `None`: it is a folder.
    ///
    /// Errors: `Unavailable`, if the environment says nothing that makes sense.
    pub fn open_bucket(&self) -> Result<Option<Arc<dyn ObjectStore>>> {
        match self {
            StoreLocation::Folder(_) => Ok(None),
            StoreLocation::Bucket { .. } => Ok(Some(Arc::new(self.bucket()?))),
        }
    }

    fn bucket(&self) -> Result<PrefixStore<Arc<dyn ObjectStore>>> {
        let StoreLocation::Bucket { cloud, bucket, prefix } = self else {
            return Err(self.unavailable("it is no bucket"));
        };
        let store =
            cloud.open(bucket).map_err(|error| self.unavailable(&chain(&error)).with_hint(cloud.credentials()))?;
        Ok(PrefixStore::new(store, prefix.clone()))
    }

    /// Says what is missing before somebody waits for it, or takes a folder that is not mounted for an empty one.
    ///
    /// Errors: `Unavailable`, with the remedy.
    pub async fn check(&self) -> Result<()> {
        match self {
            StoreLocation::Folder(folder) => match tokio::fs::metadata(folder).await {
                Ok(found) if found.is_dir() => Ok(()),
                Ok(_) => Err(self.unavailable("it is a file").with_hint("attach the folder that it is in")),
                Err(error) => {
                    Err(self.unavailable(&error.to_string()).with_hint("the folder is looked for on the server"))
                }
            },
            StoreLocation::Bucket { cloud, .. } if cloud.has_credentials().await => Ok(()),
            StoreLocation::Bucket { cloud, .. } => {
                let why = format!("the server has no credentials for {cloud}");
                Err(self.unavailable(&why).with_hint(cloud.credentials()))
            }
        }
    }

    /// What to look at when it does not answer.
    pub fn remedy(&self) -> &'static str {
        match self {
            StoreLocation::Folder(_) => "see that the server may read the folder and the files below it",
            StoreLocation::Bucket { cloud, .. } => cloud.remedy(),
        }
    }

    pub(crate) fn unavailable(&self, why: &str) -> Error {
        Error::new(ErrorKind::Unavailable, format!("cannot use {self}: {why}"))
    }
}

/// Whether two texts name one place, however they are written.
pub fn same_place(one: &str, other: &str) -> bool {
    let parsed = |text| StoreLocation::parse_for("open", text).ok();
    one == other || parsed(one).is_some_and(|one| Some(one) == parsed(other))
}

/// Without `.`, and without a slash at the end.
fn clean(folder: PathBuf) -> PathBuf {
    folder.components().collect()
}

/// A store that nobody can write to or delete from through this.
#[derive(Debug)]
struct ReadOnly<S> {
    store: S,
    location: StoreLocation,
}

impl<S> fmt::Display for ReadOnly<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.location.fmt(f)
    }
}

fn refused() -> object_store::Error {
    object_store::Error::NotSupported { source: "an archive is only read".into() }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: ObjectStore> ObjectStore for ReadOnly<S> {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> object_store::Result<PutResult> {
        Err(refused())
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        Err(refused())
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> object_store::Result<Vec<Bytes>> {
        self.store.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        stream::once(async { Err(refused()) }).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        match &self.location {
            StoreLocation::Folder(_) => without_loops(&self.store, prefix),
            StoreLocation::Bucket { .. } => self.store.list(prefix),
        }
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.store.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> object_store::Result<()> {
        Err(refused())
    }

    async fn rename_opts(&self, _: &Path, _: &Path, _: RenameOptions) -> object_store::Result<()> {
        Err(refused())
    }
}

/// What a walk says of links to a folder above, and to themselves.
const LOOPS: [&str; 2] = ["File system loop found", "Too many levels of symbolic links"];

/// A folder's files. A link that leads back to where it is, is said in the server's log and not followed; any other
/// error is an error.
fn without_loops<S: ObjectStore>(
    store: &S,
    prefix: Option<&Path>,
) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
    // Within a runtime a walk ends with its first error; outside, it goes on after it, and blocks.
    let walk = std::thread::scope(|scope| scope.spawn(|| store.list(prefix)).join());
    let Ok(walk) = walk else { return store.list(prefix) };
    let walk = move || -> Vec<_> {
        let is_loop = |found: &object_store::Result<ObjectMeta>| match found {
            Err(error) => {
                let said = chain(error);
                let is_loop = LOOPS.iter().any(|text| said.contains(text));
                is_loop.then(|| tracing::warn!("not followed: {said}")).is_some()
            }
            Ok(_) => false,
        };
        block_on_stream(walk).filter(|found| !is_loop(found)).collect()
    };
    let walked = async move {
        match tokio::task::spawn_blocking(walk).await {
            Ok(found) => stream::iter(found).boxed(),
            Err(error) => stream::once(async { Err(error.into()) }).boxed(),
        }
    };
    stream::once(walked).flatten().boxed()
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;

    use super::*;

    #[test]
    fn the_same_place_however_it_is_written() {
        for (text, want) in [
            ("/data/logs", "/data/logs"),
            ("/data/./logs/", "/data/logs"),
            ("file:///data/my%20logs", "/data/my logs"),
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("s3a://bucket/a/b/", "s3://bucket/a/b"),
            ("s3://bucket/dt=2026-01-01/x%20y", "s3://bucket/dt=2026-01-01/x%20y"),
            ("s3://bucket/x%20", "s3://bucket/x%20"),
            ("s3://bucket/100%25/%23a%3F", "s3://bucket/100%25/%23a%3F"),
            ("gs://bucket/a/", "gs://bucket/a"),
            ("az://container/a/b", "az://container/a/b"),
            ("azure://container", "az://container"),
        ] {
            let location = StoreLocation::parse(text).unwrap();
            assert_eq!(location.to_string(), want, "{text}");
            assert_eq!(StoreLocation::parse_for("open", want).unwrap(), location, "{text}");
        }
        assert!(StoreLocation::parse("logs").unwrap().to_string().starts_with('/'));
    }

    #[test]
    fn what_is_no_place_is_told_what_is() {
        for (text, want) in [
            ("abfss://container@account.dfs.core.windows.net/a", "there is no store for abfss://"),
            ("az://account@container/a", "nothing but a bucket and a prefix"),
            ("s3://:pw@bucket/a", "nothing but a bucket and a prefix"),
            ("s3://host:9000/bucket", "nothing but a bucket and a prefix"),
            ("az://container/a?sv=1&sig=x", "nothing but a bucket and a prefix"),
            ("s3://bucket/logs/#1", "nothing but a bucket and a prefix"),
            ("hdfs://host/logs", "there is no store for hdfs://"),
            ("s3:///logs", "it names no bucket"),
            ("file://host/logs", "file:///"),
            ("", "it names nothing"),
            ("s3://bucket/*.parquet", "patterns are not known"),
        ] {
            let error = StoreLocation::parse(text).unwrap_err();
            assert!(error.message().contains(want), "{error}");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(error.hint().is_some(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_folder_is_read_and_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let location = StoreLocation::parse(&dir.path().display().to_string()).unwrap();
        std::fs::write(dir.path().join("a b.parquet"), "bytes").unwrap();
        location.check().await.unwrap();
        let store = location.open().unwrap();
        let listed: Vec<_> = store.list(None).collect().await;
        let found = listed[0].as_ref().unwrap();
        assert_eq!((found.location.as_ref(), found.size), ("a b.parquet", 5));
        assert_eq!(store.get_range(&found.location, 1..3).await.unwrap(), "yt");
        assert!(store.delete(&found.location).await.is_err());
        assert!(store.put(&Path::from("x"), "y".into()).await.is_err());
        assert!(store.copy(&found.location, &Path::from("x")).await.is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

        let file = StoreLocation::parse(&dir.path().join("a b.parquet").display().to_string()).unwrap();
        assert!(file.check().await.unwrap_err().message().contains("it is a file"));
        drop(dir);
        assert_eq!(location.check().await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
}
