//! A server that speaks S3 over a folder: signed, with ETags and conditions, listed a page at a time; and what goes
//! wrong with such servers.

#![allow(dead_code)] // not all of it by every test binary

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use s3s::auth::SimpleAuth;
use s3s::dto::*;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;

/// Objects of one page of a listing.
const PAGE: i32 = 7;

/// What the server does to a request before or after it does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum S3Fault {
    /// 503, and nothing done.
    Busy,
    /// Done, but the answer is lost with the connection.
    Lost,
    /// The answer ends half-way, with the connection.
    Short,
}

/// A running server. It ends with its runtime.
#[derive(Clone)]
pub struct Buckets {
    pub url: String,
    shared: Arc<StubState>,
}

#[derive(Default)]
struct StubState {
    /// Method and path with query of each request.
    seen: Mutex<Vec<(Method, String)>>,
    /// Asked for each request; takes its number.
    fault: Mutex<Option<FaultSource>>,
}

type FaultSource = Box<dyn FnMut() -> Option<S3Fault> + Send>;

impl Buckets {
    /// Serves the folders in `root` as buckets.
    pub async fn serve(root: &Path) -> Result<Buckets> {
        let files = FileSystem::new(root).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let mut service = S3ServiceBuilder::new(Files { files, root: root.to_owned() });
        service.set_auth(SimpleAuth::from_single("reader", "secret"));
        let service = service.build();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::<StubState>::default();
        let buckets = Buckets { url, shared: Arc::clone(&shared) };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (service, shared) = (service.clone(), Arc::clone(&shared));
                let answer = service_fn(move |request: Request<Incoming>| {
                    let (service, shared) = (service.clone(), Arc::clone(&shared));
                    async move { shared.answer(request, &service).await }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(socket), answer));
            }
        });
        Ok(buckets)
    }

    /// The environment of a server that uses it.
    pub fn variables(&self) -> [(&str, &str); 4] {
        [
            ("AWS_ENDPOINT_URL", &self.url),
            ("AWS_ACCESS_KEY_ID", "reader"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "eu-central-1"),
        ]
    }

    /// From now on, `fault` says of each request what goes wrong with it.
    pub fn break_by(&self, fault: impl FnMut() -> Option<S3Fault> + Send + 'static) {
        *self.shared.fault.lock() = Some(Box::new(fault));
    }

    /// From now on all is well.
    pub fn heal(&self) {
        *self.shared.fault.lock() = None;
    }

    /// What was asked since the last call.
    pub fn take(&self) -> Vec<(Method, String)> {
        std::mem::take(&mut *self.shared.seen.lock())
    }
}

impl StubState {
    async fn answer(
        &self,
        request: Request<Incoming>,
        service: &S3Service,
    ) -> Result<Response<Body>, BrokenConnection> {
        let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
        self.seen.lock().push((request.method().clone(), path));
        let fault = self.fault.lock().as_mut().and_then(|fault| fault());
        if fault == Some(S3Fault::Busy) {
            let mut busy = Response::new(Body::empty());
            *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return Ok(busy);
        }
        let answer = service.call(request.map(Body::from)).await.map_err(|_| BrokenConnection)?;
        match fault {
            Some(S3Fault::Lost) => Err(BrokenConnection),
            Some(S3Fault::Short) => {
                let (parts, body) = answer.into_parts();
                let bytes = body.collect().await.map_err(|_| BrokenConnection)?.to_bytes();
                let half = Ok(Frame::data(bytes.slice(..bytes.len() / 2)));
                let body = StreamBody::new(stream::iter([half, Err(std::io::Error::other("cut"))]));
                Ok(Response::from_parts(parts, Body::http_body_unsync(body)))
            }
            _ => Ok(answer),
        }
    }
}

/// Ends the connection.
#[derive(Debug)]
struct BrokenConnection;

impl std::fmt::Display for BrokenConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection is cut")
    }
}

impl std::error::Error for BrokenConnection {}

/// A folder as buckets, with the ETags and conditions that `s3s-fs` leaves out.
struct Files {
    files: FileSystem,
    root: PathBuf,
}

impl Files {
    fn etag(&self, bucket: &str, key: &str) -> Option<ETag> {
        let found = std::fs::metadata(self.root.join(bucket).join(key)).ok()?;
        let modified = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(ETag::Strong(format!("{:x}-{:x}", modified.as_nanos(), found.len())))
    }

    fn check(&self, bucket: &str, key: &str, wanted: Option<ETagCondition>) -> S3Result<Option<ETag>> {
        let etag = self.etag(bucket, key);
        match wanted {
            Some(ETagCondition::ETag(wanted)) if etag.as_ref() != Some(&wanted) => Err(s3_error!(PreconditionFailed)),
            _ => Ok(etag),
        }
    }
}

#[async_trait::async_trait]
impl S3 for Files {
    async fn get_object(&self, mut request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let etag = self.check(&request.input.bucket, &request.input.key, request.input.if_match.take())?;
        let mut answer = self.files.get_object(request).await?;
        answer.output.e_tag = etag;
        Ok(answer)
    }

    async fn head_object(&self, mut request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let etag = self.check(&request.input.bucket, &request.input.key, request.input.if_match.take())?;
        let mut answer = self.files.head_object(request).await?;
        answer.output.e_tag = etag;
        Ok(answer)
    }

    async fn list_objects_v2(
        &self,
        mut request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let bucket = request.input.bucket.clone();
        request.input.max_keys = Some(PAGE);
        let mut answer = self.files.list_objects_v2(request).await?;
        for object in answer.output.contents.iter_mut().flatten() {
            object.e_tag = object.key.as_deref().and_then(|key| self.etag(&bucket, key));
        }
        Ok(answer)
    }

    async fn put_object(&self, mut request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
        if request.input.if_none_match.take().is_some() && self.etag(&bucket, &key).is_some() {
            return Err(s3_error!(PreconditionFailed));
        }
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
        let mut answer = self.files.complete_multipart_upload(request).await?;
        answer.output.e_tag = self.etag(&bucket, &key);
        Ok(answer)
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
}
