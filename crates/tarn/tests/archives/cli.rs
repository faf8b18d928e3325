//! `tarn attach` and `tarn detach` as somebody types them.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use crate::child::ChildServer;
use crate::files::{Archive, rows};

async fn tarn(server: &ChildServer, folder: &Path, arguments: &[&str]) -> Result<(Output, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarn"));
    command.args(arguments).current_dir(folder).env("TARN_PORT", server.port.to_string());
    let output = tokio::task::spawn_blocking(move || command.output()).await?.context("run tarn")?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output, told))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_is_attached_and_detached_from_the_command_line() -> Result<()> {
    let (folder, archive_folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut archive = Archive::new(&archive_folder.path().join("my logs"));
    for n in 0..5 {
        archive.put(&format!("dt=2026-01-01/hr=0{n}/x.parquet"), n)?;
    }
    let server = ChildServer::start(folder.path(), &[], &[]).await?;
    let client = server.connect().await?;
    // From where it lies; the server is elsewhere.
    let from = archive_folder.path();
    let attach =
        ["attach", "./my logs/", "--table", "logs", "--hour-from", "dt=…/hr=…", "--tokens", "body", "--bloom", "n"];
    let (output, told) = tarn(&server, from, &[&attach[..], &["--follow", "--concurrency", "2"]].concat()).await?;
    ensure!(output.status.success() && output.stdout.is_empty(), "{told}");
    ensure!(told.starts_with("attached 5 files with 250 rows to logs in "), "{told}");
    archive.check(&client, "logs").await?;
    let created = rows(&client, "SHOW CREATE TABLE logs").await?.remove(0).remove(1);
    let want =
        " AS logs WITH (hour_from = 'dt=…/hr=…', tokens = 'body', bloom = 'n', follow = '60000ms', concurrency = 2)";
    ensure!(created.ends_with(want), "{created}");

    archive.put("dt=2026-01-01/hr=06/x.parquet", 6)?;
    std::fs::write(archive.root.join("bad.parquet"), "bad")?;
    let (output, told) = tarn(&server, from, &attach).await?;
    ensure!(output.status.success(), "{told}");
    for line in [
        "logs is attached already",
        "attached 1 files with 50 rows to logs in ",
        "the table has 6 files with 300 rows",
        "1 files are not in it, of 0 something is not: SELECT * FROM tarn.attach_errors WHERE table_name = 'logs'",
    ] {
        ensure!(told.contains(line), "{line}: {told}");
    }

    let (output, told) = tarn(&server, from, &["attach", "hdfs://bucket/x", "--table", "other"]).await?;
    ensure!(
        output.status.code() == Some(1) && told.contains("there is no store for hdfs://") && told.contains("HINT"),
        "{told}"
    );
    for stray in [["attach", "./my logs/", "--follow", "60s"], ["attach", "--follow", "60s", "./my logs/"]] {
        let (output, told) = tarn(&server, from, &[&stray[..], &["--table", "other"]].concat()).await?;
        ensure!(output.status.code() == Some(1) && told.contains("write --follow=60s"), "{told}");
    }
    let (output, told) = tarn(&server, from, &["detach", "logs"]).await?;
    ensure!(output.status.success() && told.contains("logs is forgotten"), "{told}");
    ensure!(archive.files.keys().all(|path| archive.root.join(path).exists()), "a file is gone");
    let (output, told) = tarn(&server, from, &["detach", "logs"]).await?;
    ensure!(output.status.code() == Some(1) && told.contains("42P01"), "{told}");
    Ok(())
}
