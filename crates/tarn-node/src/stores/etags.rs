//! Is this the same ETag? Azure, and some servers that speak other clouds' protocols, list them without the quotes that
//! they answer reads with: here they always have them.

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

/// A store whose listings have ETags as its reads have them.
#[derive(Debug)]
pub(super) struct QuotedEtags<S>(pub S);

impl<S: fmt::Display> fmt::Display for QuotedEtags<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn quoted(mut listed: ObjectMeta) -> ObjectMeta {
    listed.e_tag = listed.e_tag.map(|etag| match etag.starts_with(['"', 'W']) {
        true => etag,
        false => format!("\"{etag}\""),
    });
    listed
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: ObjectStore> ObjectStore for QuotedEtags<S> {
    async fn put_opts(&self, to: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put_opts(to, payload, options).await
    }

    async fn put_multipart_opts(&self, to: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(to, options).await
    }

    async fn get_opts(&self, of: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(of, options).await
    }

    async fn get_ranges(&self, of: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.0.get_ranges(of, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix).map_ok(quoted).boxed()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list_with_offset(prefix, offset).map_ok(quoted).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut listed = self.0.list_with_delimiter(prefix).await?;
        listed.objects = listed.objects.into_iter().map(quoted).collect();
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.0.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    /// Its ETags are numbers without quotes.
    #[tokio::test]
    async fn listed_etags_are_quoted() {
        let store = QuotedEtags(InMemory::new());
        store.put(&Path::from("a/b"), "x".into()).await.unwrap();
        let bare = store.0.head(&Path::from("a/b")).await.unwrap().e_tag.unwrap();
        let want = Some(format!("\"{bare}\""));
        let listed: Vec<ObjectMeta> = store.list(None).try_collect().await.unwrap();
        assert_eq!(listed[0].e_tag, want);
        let listed: Vec<ObjectMeta> = store.list_with_offset(None, &Path::from("a")).try_collect().await.unwrap();
        assert_eq!(listed[0].e_tag, want);
        assert_eq!(store.list_with_delimiter(Some(&Path::from("a"))).await.unwrap().objects[0].e_tag, want);
        assert_eq!(quoted(listed[0].clone()), listed[0], "once is enough");
    }
}
