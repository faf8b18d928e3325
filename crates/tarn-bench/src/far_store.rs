//! An object store that is far away: folders served over S3's protocol by this process, behind a line with a delay and
//! a bandwidth.
//!
//! The delay is that of each request, the bandwidth is shared by all answers. Both can be changed while it runs. What
//! was asked is counted by kind, on this side of the line, so that failed requests and repeated ones count too.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Request, State};
use axum::http::{Method, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures::stream::{Stream, StreamExt};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};

use crate::buckets::Buckets;

/// Whom it lets in: name and secret.
pub const CREDENTIALS: (&str, &str) = ("reader", "secret");
/// That it says it is in.
pub const REGION: &str = "us-east-1";

/// How much the line may be ahead after it was idle: timers are this inexact.
const SLACK: Duration = Duration::from_millis(5);

/// What lies between a client and the store.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Line {
    /// Before each answer.
    pub latency: Duration,
    /// Of all answers together; 0 has no limit.
    pub bytes_per_s: u64,
}

/// A store that is served by this process, and counts what it is asked.
pub struct FarStore {
    /// `http://127.0.0.1:port`
    pub endpoint: String,
    served: Arc<StoreServer>,
}

struct StoreServer {
    service: S3Service,
    /// Held only to look and to count, never while waiting.
    state: Mutex<LinkState>,
}

struct LinkState {
    line: Line,
    /// When the last byte that was promised to somebody has passed.
    free_at: Instant,
    asked: RequestCounts,
}

/// What was asked for since it was last looked at.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct RequestCounts {
    pub gets: u64,
    pub heads: u64,
    pub lists: u64,
    /// Uploads and their parts.
    pub puts: u64,
    pub deletes: u64,
    /// Sent in answers: objects, ranges and listings.
    pub bytes: u64,
    /// Keys read, wholly or partly.
    pub objects: BTreeSet<String>,
}

impl RequestCounts {
    /// Of every kind.
    pub fn requests(&self) -> u64 {
        self.gets + self.heads + self.lists + self.puts + self.deletes
    }
}

impl FarStore {
    /// Serves each folder in `root` as a bucket until the runtime ends.
    pub async fn serve(root: &Path, line: Line) -> Result<Self> {
        let mut service = S3ServiceBuilder::new(Buckets::new(root)?);
        service.set_auth(SimpleAuth::from_single(CREDENTIALS.0, CREDENTIALS.1));
        let state = Mutex::new(LinkState { line, free_at: Instant::now(), asked: RequestCounts::default() });
        let served = Arc::new(StoreServer { service: service.build(), state });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(answer).with_state(served.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { endpoint, served })
    }

    /// What a client of it has in its environment.
    pub fn variables(&self) -> [(&str, &str); 5] {
        [
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_ACCESS_KEY_ID", CREDENTIALS.0),
            ("AWS_SECRET_ACCESS_KEY", CREDENTIALS.1),
            ("AWS_REGION", REGION),
            ("AWS_ALLOW_HTTP", "true"),
        ]
    }

    /// From the next request on.
    pub fn set_line(&self, line: Line) {
        self.served.state().line = line;
    }

    /// What was asked since the last call.
    pub fn take_asked(&self) -> RequestCounts {
        std::mem::take(&mut self.served.state().asked)
    }
}

impl StoreServer {
    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `n_bytes` more have passed the line, behind those of others.
    async fn pass(&self, n_bytes: u64) {
        let wait = self.state().pass(Instant::now(), n_bytes);
        if wait > Duration::from_millis(1) {
            tokio::time::sleep(wait).await;
        }
    }
}

impl LinkState {
    /// How long it takes from `now` until `n_bytes` more have passed.
    fn pass(&mut self, now: Instant, n_bytes: u64) -> Duration {
        self.asked.bytes += n_bytes;
        if self.line.bytes_per_s == 0 {
            return Duration::ZERO;
        }
        let from = self.free_at.max(now.checked_sub(SLACK).unwrap_or(now));
        self.free_at = from + Duration::from_secs_f64(n_bytes as f64 / self.line.bytes_per_s as f64);
        self.free_at.saturating_duration_since(now)
    }

    fn count(&mut self, method: &Method, path: &str, query: &str) {
        let asked = &mut self.asked;
        // `/bucket` or `/bucket/` is the bucket itself.
        let key = path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
        match *method {
            Method::GET if key.is_empty() || query.contains("list-type=") => asked.lists += 1,
            Method::GET => {
                asked.gets += 1;
                asked.objects.insert(key.to_owned());
            }
            Method::HEAD => asked.heads += 1,
            // Many objects are deleted by a POST of their names.
            Method::DELETE => asked.deletes += 1,
            Method::POST if query.starts_with("delete") => asked.deletes += 1,
            _ => asked.puts += 1,
        }
    }
}

async fn answer(State(served): State<Arc<StoreServer>>, request: Request) -> Response<Body> {
    let latency = {
        let mut state = served.state();
        state.count(request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
        state.line.latency
    };
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    match served.service.call(request.map(s3s::Body::http_body_unsync)).await {
        Ok(response) => {
            response.map(|body| Body::from_stream(paced(served.clone(), Body::new(body).into_data_stream())))
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}")).into_response(),
    }
}

fn paced(served: Arc<StoreServer>, body: BodyDataStream) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    body.then(move |piece| {
        let served = served.clone();
        async move {
            if let Ok(piece) = &piece {
                served.pass(piece.len() as u64).await;
            }
            piece
        }
    })
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use object_store::aws::AmazonS3Builder;
    use object_store::path::Path as Key;
    use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload, WriteMultipart};

    use super::*;

    async fn store() -> (tempfile::TempDir, FarStore, impl ObjectStore) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("bucket")).unwrap();
        let far = FarStore::serve(root.path(), Line::default()).await.unwrap();
        let client = AmazonS3Builder::new()
            .with_endpoint(&far.endpoint)
            .with_allow_http(true)
            .with_region(REGION)
            .with_bucket_name("bucket")
            .with_access_key_id(CREDENTIALS.0)
            .with_secret_access_key(CREDENTIALS.1)
            .build()
            .unwrap();
        (root, far, client)
    }

    #[tokio::test]
    async fn objects_are_written_once_listed_and_read_in_ranges() {
        let (_root, far, client) = store().await;
        let key = Key::from("lake/hr=2026-01-01-00/x y.parquet");
        let create = || client.put_opts(&key, PutPayload::from_static(b"0123456789"), PutMode::Create.into());
        let written = create().await.unwrap();
        assert!(matches!(create().await, Err(object_store::Error::AlreadyExists { .. })));
        let head = client.head(&key).await.unwrap();
        assert_eq!((head.size, &head.e_tag), (10, &written.e_tag));
        assert_eq!(client.get_range(&key, 2..5).await.unwrap(), Bytes::from_static(b"234"));
        let listed: Vec<_> = client.list(Some(&Key::from("lake"))).try_collect().await.unwrap();
        assert_eq!(
            listed.iter().map(|found| (&found.location, &found.e_tag)).collect::<Vec<_>>(),
            [(&key, &head.e_tag)]
        );

        client.put(&key, PutPayload::from_static(b"others")).await.unwrap();
        let of_before = GetOptions { if_match: head.e_tag, ..GetOptions::default() };
        assert!(matches!(client.get_opts(&key, of_before).await, Err(object_store::Error::Precondition { .. })));
        client.delete(&key).await.unwrap();
        assert!(matches!(client.head(&key).await, Err(object_store::Error::NotFound { .. })));

        let asked = far.take_asked();
        assert_eq!((asked.gets, asked.heads, asked.lists, asked.puts, asked.deletes), (2, 2, 1, 3, 1));
        assert_eq!(asked.requests(), 9);
        assert!(asked.bytes > 3, "{asked:?}");
        assert_eq!(far.take_asked(), RequestCounts::default());
    }

    #[tokio::test]
    async fn parts_become_an_object_and_a_wrong_secret_opens_nothing() {
        let (_root, far, client) = store().await;
        let (key, bytes) = (Key::from("large"), vec![7; 6 << 20]);
        let mut writer = WriteMultipart::new(client.put_multipart(&key).await.unwrap());
        writer.write(&bytes);
        let written = writer.finish().await.unwrap();
        let read = client.get(&key).await.unwrap();
        assert_eq!(read.meta.e_tag, written.e_tag);
        assert!(read.bytes().await.unwrap() == bytes);
        assert_eq!(far.take_asked().bytes >> 20, 6);
        let stranger = AmazonS3Builder::new().with_endpoint(&far.endpoint).with_allow_http(true).with_region(REGION);
        let stranger = stranger.with_bucket_name("bucket").with_access_key_id("reader").with_secret_access_key("guess");
        assert!(stranger.build().unwrap().head(&key).await.is_err());
    }

    #[test]
    fn answers_share_the_bandwidth() {
        let now = Instant::now();
        let line = Line { latency: Duration::ZERO, bytes_per_s: 10 << 20 };
        let mut shared = LinkState { line, free_at: now, asked: RequestCounts::default() };
        // A megabyte each: one behind the other, and the second client waits for both.
        assert_eq!(shared.pass(now, 1 << 20), Duration::from_millis(100));
        assert_eq!(shared.pass(now, 1 << 20), Duration::from_millis(200));
        // After a pause nothing has been saved up but the slack.
        let later = now + Duration::from_secs(60);
        assert_eq!(shared.pass(later, 1 << 20), Duration::from_millis(100) - SLACK);
        shared.line = Line::default();
        assert_eq!(shared.pass(later, 1 << 40), Duration::ZERO);
    }
}
