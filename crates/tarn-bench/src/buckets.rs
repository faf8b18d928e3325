//! A folder as S3 buckets: what `s3s-fs` does, with ETags and conditions where it has none, and reads in pieces of a
//! size that a bench can bear.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anyhow::{Result, anyhow};
use bytes::Bytes;
use futures::stream::{self, Stream};
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use s3s_fs::FileSystem;

/// Bytes that are read from the disk at once.
const PIECE: u64 = 256 << 10;

/// Folders as buckets, for `s3s`.
pub struct Buckets {
    files: FileSystem,
    root: PathBuf,
}

impl Buckets {
    /// Each folder in `root` is a bucket.
    pub fn new(root: &Path) -> Result<Self> {
        let files = FileSystem::new(root).map_err(|error| anyhow!("{}: {error:?}", root.display()))?;
        Ok(Self { files, root: root.to_owned() })
    }

    /// Of a file as it is now: it changes when the file does.
    fn etag(&self, bucket: &str, key: &str) -> Option<ETag> {
        etag(&std::fs::metadata(self.root.join(bucket).join(key)).ok()?)
    }
}

fn etag(found: &std::fs::Metadata) -> Option<ETag> {
    let modified = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(ETag::Strong(format!("{:x}-{:x}", modified.as_nanos(), found.len())))
}

/// The bytes `from..to`.
fn pieces(file: File, from: u64, to: u64) -> impl Stream<Item = io::Result<Bytes>> {
    let file = Arc::new(file);
    stream::unfold(from, move |at| {
        let (file, end) = (file.clone(), (at + PIECE).min(to));
        async move {
            if at >= end {
                return None;
            }
            let read = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; (end - at) as usize];
                file.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece))
            });
            Some((read.await.unwrap_or_else(|error| Err(io::Error::other(error))), end))
        }
    })
}

#[async_trait::async_trait]
impl S3 for Buckets {
    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let GetObjectInput { bucket, key, range, if_match, .. } = request.input;
        let path = self.root.join(bucket).join(key);
        let file = File::open(path).map_err(|error| s3_error!(error, NoSuchKey))?;
        let found = file.metadata().map_err(|error| s3_error!(error, InternalError))?;
        let (size, e_tag) = (found.len(), etag(&found));
        if let Some(ETagCondition::ETag(wanted)) = if_match
            && e_tag.as_ref() != Some(&wanted)
        {
            return Err(s3_error!(PreconditionFailed));
        }
        let range = range.map(|range| range.check(size)).transpose()?;
        let content_range = range.as_ref().map(|range| format!("bytes {}-{}/{size}", range.start, range.end - 1));
        let range = range.unwrap_or(0..size);
        let last_modified = found.modified().ok().map(Timestamp::from);
        let body = StreamingBlob::wrap(pieces(file, range.start, range.end));
        Ok(S3Response::new(GetObjectOutput {
            body: Some(body),
            content_length: Some((range.end - range.start) as i64),
            content_range,
            last_modified,
            e_tag,
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let HeadObjectInput { bucket, key, .. } = request.input;
        let found = std::fs::metadata(self.root.join(bucket).join(key)).map_err(|error| s3_error!(error, NoSuchKey))?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(found.len() as i64),
            last_modified: found.modified().ok().map(Timestamp::from),
            e_tag: etag(&found),
            ..HeadObjectOutput::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let bucket = request.input.bucket.clone();
        let mut answer = self.files.list_objects_v2(request).await?;
        for object in answer.output.contents.iter_mut().flatten() {
            object.e_tag = object.key.as_deref().and_then(|key| self.etag(&bucket, key));
        }
        Ok(answer)
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
        let mut answer = self.files.put_object(request).await?;
        answer.output.e_tag = self.etag(&bucket, &key);
        Ok(answer)
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        self.files.create_multipart_upload(request).await
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        self.files.upload_part(request).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
        let answer = self.files.complete_multipart_upload(request).await?;
        Ok(answer.map_output(|_| {
            let e_tag = self.etag(&bucket, &key);
            CompleteMultipartUploadOutput { bucket: Some(bucket), key: Some(key), e_tag, ..Default::default() }
        }))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        self.files.abort_multipart_upload(request).await
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.files.delete_object(request).await
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        self.files.delete_objects(request).await
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        self.files.head_bucket(request).await
    }
}
