//! An archive in S3: over HTTP, signed, listed a page at a time, with ETags and conditional reads.

use anyhow::{Result, ensure};

use crate::child::ChildServer;
use crate::files::{Archive, number, rows};
use crate::s3::Buckets;

/// The keys that were read from `bucket`.
fn read(buckets: &Buckets) -> Vec<String> {
    let asked = buckets.take().into_iter().filter(|(method, _)| *method == hyper::Method::GET);
    let paths =
        asked.map(|(_, path)| path.split('?').next().unwrap_or_default().replace("%20", " ").replace("%3D", "="));
    paths.filter_map(|path| path.strip_prefix("/bucket/").map(str::to_owned)).filter(|key| !key.is_empty()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_in_s3_is_a_table() -> Result<()> {
    let (folder, root) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut archive = Archive::new(&root.path().join("bucket/app/logs"));
    for n in 0..20 {
        archive.put(&format!("dt=2026-01-01/hr={n:02}/x y.parquet"), n)?;
    }
    let mut other = Archive::new(&root.path().join("bucket/app/logs-of-others"));
    other.put("other.parquet", 99)?;
    let buckets = Buckets::serve(root.path()).await?;
    let variables = buckets.variables();
    let server = ChildServer::start(folder.path(), &[], &variables).await?;
    let client = server.connect().await?;
    let attach = "ATTACH 's3://bucket/app/logs/' AS logs WITH (hour_from = 'dt=…/hr=…', tokens = 'body', bloom = 'n')";
    client.batch_execute(attach).await?;
    archive.check(&client, "logs").await?;
    ensure!(rows(&client, "SELECT url, listed FROM tarn.attachments").await? == [["s3://bucket/app/logs", "20"]]);

    client.batch_execute("SYSTEM DROP CACHE").await?;
    buckets.take();
    ensure!(number(&client, "SELECT count(body) FROM logs WHERE n = 7").await? == 50);
    let read = read(&buckets);
    ensure!(read.iter().all(|key| key == "app/logs/dt=2026-01-01/hr=07/x y.parquet") && !read.is_empty(), "{read:?}");

    // One is written over, one is new, one is gone.
    archive.put("dt=2026-01-01/hr=03/x y.parquet", 1003)?;
    archive.put("dt=2026-01-02/hr=00/x y.parquet", 20)?;
    archive.remove("dt=2026-01-01/hr=05/x y.parquet")?;
    client.batch_execute("SYSTEM DROP CACHE").await?;
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
    let server = ChildServer::start(folder.path(), &[], &variables).await?;
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
        let server = ChildServer::start(folder.path(), &[], &variables).await?;
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
