//! An archive in S3: over HTTP, signed, listed a page at a time, with ETags and conditional reads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anyhow::{Result, ensure};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use s3s::auth::SimpleAuth;
use s3s::dto::{ETag, ETagCondition, GetObjectInput, GetObjectOutput, ListObjectsV2Input, ListObjectsV2Output};
use s3s::service::S3ServiceBuilder;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;

use crate::child::Server;
use crate::files::{Archive, number, rows};

/// Objects of one page of a listing.
const PAGE: i32 = 7;

/// A folder as buckets, with the ETags and conditional reads that `s3s-fs` leaves out.
struct Buckets {
    files: FileSystem,
    root: PathBuf,
    reads: Arc<Mutex<Vec<String>>>,
}

impl Buckets {
    fn etag(&self, bucket: &str, key: &str) -> Option<ETag> {
        let found = std::fs::metadata(self.root.join(bucket).join(key)).ok()?;
        let modified = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(ETag::Strong(format!("{:x}-{:x}", modified.as_nanos(), found.len())))
    }
}

#[async_trait::async_trait]
impl S3 for Buckets {
    async fn get_object(&self, mut request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
        self.reads.lock().push(key.clone());
        let etag = self.etag(&bucket, &key);
        if let Some(ETagCondition::ETag(wanted)) = request.input.if_match.take()
            && etag.as_ref() != Some(&wanted)
        {
            return Err(s3_error!(PreconditionFailed));
        }
        let mut answer = self.files.get_object(request).await?;
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
}

/// Serves the folder until the runtime ends. Its URL, and the keys that are read from it.
async fn serve(root: &Path) -> Result<(String, Arc<Mutex<Vec<String>>>)> {
    let reads = Arc::<Mutex<Vec<String>>>::default();
    let files = FileSystem::new(root).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let mut service = S3ServiceBuilder::new(Buckets { files, root: root.to_owned(), reads: reads.clone() });
    service.set_auth(SimpleAuth::from_single("reader", "secret"));
    let service = service.build();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(socket), service.clone()));
        }
    });
    Ok((url, reads))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_in_s3_is_a_table() -> Result<()> {
    let (folder, buckets) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut archive = Archive::new(&buckets.path().join("bucket/app/logs"));
    for n in 0..20 {
        archive.put(&format!("dt=2026-01-01/hr={n:02}/x y.parquet"), n)?;
    }
    let mut other = Archive::new(&buckets.path().join("bucket/app/logs-of-others"));
    other.put("other.parquet", 99)?;
    let (endpoint, reads) = serve(buckets.path()).await?;
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "reader"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "eu-central-1"),
    ];
    let server = Server::start(folder.path(), &[], &variables).await?;
    let client = server.connect().await?;
    let attach = "ATTACH 's3://bucket/app/logs/' AS logs WITH (hour_from = 'dt=…/hr=…', tokens = 'body', bloom = 'n')";
    client.batch_execute(attach).await?;
    archive.check(&client, "logs").await?;
    ensure!(rows(&client, "SELECT url, listed FROM tarn.attachments").await? == [["s3://bucket/app/logs", "20"]]);

    reads.lock().clear();
    ensure!(number(&client, "SELECT count(body) FROM logs WHERE n = 7").await? == 50);
    let read = std::mem::take(&mut *reads.lock());
    ensure!(read.iter().all(|key| key == "app/logs/dt=2026-01-01/hr=07/x y.parquet") && !read.is_empty(), "{read:?}");

    // One is written over, one is new, one is gone.
    archive.put("dt=2026-01-01/hr=03/x y.parquet", 1003)?;
    archive.put("dt=2026-01-02/hr=00/x y.parquet", 20)?;
    archive.remove("dt=2026-01-01/hr=05/x y.parquet")?;
    for gone in [3, 5] {
        let error = client.simple_query(&format!("SELECT count(body) FROM logs WHERE n = {gone}")).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        ensure!(error.code().code() == "55000" && error.message().contains("CALL tarn.attach('logs')"), "{error:?}");
    }
    ensure!(rows(&client, "CALL tarn.attach('logs')").await? == [["logs", "100", "2", "2"]]);
    archive.check(&client, "logs").await?;

    // The server comes back while the store is there, or is not.
    server.kill();
    server.wait();
    let server = Server::start(folder.path(), &[], &variables).await?;
    let client = server.connect().await?;
    archive.check(&client, "logs").await?;
    let error = client.batch_execute("ATTACH 's3://nothing/app' AS x").await.unwrap_err();
    ensure!(error.as_db_error().unwrap().code().code() == "58030", "{error:?}");
    server.kill();
    server.wait();

    // Wrong credentials, and none: whatever the machine we are on says to that.
    for (secret, remedy) in [(Some("wrong"), "the right AWS_ENDPOINT_URL"), (None, "AWS_SKIP_SIGNATURE=true")] {
        let mut variables = variables.to_vec();
        variables.retain(|(name, _)| secret.is_some() || *name == "AWS_ENDPOINT_URL");
        variables.extend(secret.map(|secret| ("AWS_SECRET_ACCESS_KEY", secret)));
        let server = Server::start(folder.path(), &[], &variables).await?;
        let client = server.connect().await?;
        let error = client.batch_execute("CALL tarn.attach('logs')").await.unwrap_err();
        let error = error.as_db_error().unwrap();
        ensure!(error.code().code() == "58030" && error.message().contains("s3://bucket/app/logs"), "{error:?}");
        ensure!(error.hint().is_some_and(|hint| hint.contains(remedy)), "{error:?}");
        ensure!(rows(&client, "SELECT state, files FROM tarn.attachments").await? == [["failed", "20"]]);
        ensure!(number(&client, "SELECT count(*) FROM tarn.files").await? == 20, "what is known is known");
    }
    Ok(())
}
