//! An object store that is far away: a folder served as one S3 bucket, read-only, every request answered after a delay.
//!
//! Enough of S3 for those who read Parquet: listing by prefix, reading whole objects and ranges, sizes. Whom a client says to be is not asked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri, header};
use bytes::Bytes;

pub const BUCKET: &str = "archive";

/// Of all objects: they are not changed while they are served.
const MODIFIED: (&str, &str) = ("Thu, 01 Jan 2026 00:00:00 GMT", "2026-01-01T00:00:00.000Z");

const PAGE: usize = 1_000;

pub struct SlowStore {
    /// `http://127.0.0.1:port`
    pub endpoint: String,
    served: Arc<Served>,
}

struct Served {
    delay: Duration,
    objects: BTreeMap<String, (PathBuf, u64)>,
    asked: Mutex<Asked>,
}

/// What was asked for since it was last looked at.
#[derive(Default)]
pub struct Asked {
    pub requests: u64,
    pub bytes: u64,
    /// Read, wholly or partly.
    pub objects: BTreeSet<String>,
}

impl SlowStore {
    /// Serves the files below `root` as they are now, until the runtime ends.
    pub async fn serve(root: &Path, delay: Duration) -> Result<Self> {
        let mut objects = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let size = path.metadata()?.len();
                objects.insert(path.strip_prefix(root)?.display().to_string(), (path, size));
            }
        }
        let served = Arc::new(Served { delay, objects, asked: Mutex::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(answer).with_state(served.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { endpoint, served })
    }

    pub fn take_asked(&self) -> Asked {
        std::mem::take(&mut *self.served.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

async fn answer(
    State(served): State<Arc<Served>>,
    method: Method,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response<Body> {
    tokio::time::sleep(served.delay).await;
    let path = decoded(uri.path());
    let in_bucket = path.trim_start_matches('/').strip_prefix(BUCKET);
    let Some(key) = in_bucket.map(|key| key.trim_start_matches('/')) else { return status(StatusCode::NOT_FOUND) };
    let mut asked = served.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    asked.requests += 1;
    if key.is_empty() {
        return listing(&served, &query);
    }
    let Some((file, size)) = served.objects.get(key) else { return status(StatusCode::NOT_FOUND) };
    let range = headers.get(header::RANGE).and_then(|range| range_of(range.to_str().ok()?, *size));
    let (from, to) = range.unwrap_or((0, *size));
    let mut response = Response::builder()
        .header(header::LAST_MODIFIED, MODIFIED.0)
        .header(header::ETAG, etag(*size))
        .header(header::ACCEPT_RANGES, "bytes");
    if range.is_some() {
        response = response.status(StatusCode::PARTIAL_CONTENT);
        response = response.header(header::CONTENT_RANGE, format!("bytes {from}-{}/{size}", to - 1));
    }
    if method == Method::HEAD {
        let response = response.header(header::CONTENT_LENGTH, to - from).body(Body::empty());
        return response.unwrap_or_else(|_| status(StatusCode::INTERNAL_SERVER_ERROR));
    }
    let mut bytes = vec![0; (to - from) as usize];
    if std::fs::File::open(file).and_then(|file| file.read_exact_at(&mut bytes, from)).is_err() {
        return status(StatusCode::INTERNAL_SERVER_ERROR);
    }
    asked.bytes += to - from;
    asked.objects.insert(key.to_owned());
    response.body(Body::from(Bytes::from(bytes))).unwrap_or_else(|_| status(StatusCode::INTERNAL_SERVER_ERROR))
}

/// A page in the order of the keys; a token is the last key of the page before.
fn listing(served: &Served, query: &HashMap<String, String>) -> Response<Body> {
    let asked = |name: &str| query.get(name).map_or("", String::as_str);
    let (prefix, after) = (asked("prefix"), asked("continuation-token"));
    let after = if after.is_empty() { asked("start-after") } else { after };
    let from = served.objects.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
    let mut keys = from.filter(|(key, _)| key.as_str() > after).peekable();
    let page: Vec<_> = keys.by_ref().take(PAGE).collect();
    let is_cut = keys.peek().is_some();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>{BUCKET}</Name>\
         <Prefix>{prefix}</Prefix><KeyCount>{}</KeyCount><MaxKeys>{PAGE}</MaxKeys><IsTruncated>{is_cut}</IsTruncated>",
        page.len()
    );
    for (key, (_, size)) in &page {
        let _ = write!(
            xml,
            "<Contents><Key>{key}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>",
            MODIFIED.1,
            etag(*size)
        );
    }
    if let Some((last, _)) = page.last().filter(|_| is_cut) {
        let _ = write!(xml, "<NextContinuationToken>{last}</NextContinuationToken>");
    }
    xml.push_str("</ListBucketResult>");
    let response = Response::builder().header(header::CONTENT_TYPE, "application/xml").body(Body::from(xml));
    response.unwrap_or_else(|_| status(StatusCode::INTERNAL_SERVER_ERROR))
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn etag(size: u64) -> String {
    format!("\"{size:x}\"")
}

/// `bytes=3-7`, `bytes=3-`, `bytes=-5` of so many bytes, half-open.
fn range_of(header: &str, size: u64) -> Option<(u64, u64)> {
    let (from, to) = header.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to) = match (from.parse::<u64>().ok(), to.parse::<u64>().ok()) {
        (Some(from), to) => (from, to.map_or(size, |last| (last + 1).min(size))),
        (None, Some(last)) => (size.saturating_sub(last), size),
        (None, None) => return None,
    };
    (from < to).then_some((from, to))
}

/// `%3D` is `=`.
fn decoded(path: &str) -> String {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, behind @ ..] = rest {
        let hex = behind.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match hex.filter(|_| *first == b'%') {
            Some(byte) => (out.push(byte), rest = &behind[2..]).1,
            None => (out.push(*first), rest = behind).1,
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_names_are_understood() {
        assert_eq!(range_of("bytes=3-7", 100), Some((3, 8)));
        assert_eq!(range_of("bytes=3-", 100), Some((3, 100)));
        assert_eq!(range_of("bytes=90-200", 100), Some((90, 100)));
        assert_eq!(range_of("bytes=-5", 100), Some((95, 100)));
        assert_eq!(range_of("bytes=100-", 100), None);
        assert_eq!(decoded("/a/dt%3D1/%e2%80%a6%"), "/a/dt=1/…%");
    }
}
