//! The lake in S3, with what is kept near of it: the same answers as without, whatever goes wrong. The shipped binary
//! as a child process.

#![allow(clippy::unwrap_used)]

mod archive;
#[path = "../child/mod.rs"]
mod child;
#[path = "../archives/files.rs"]
mod files;
mod lake;
mod random;
#[path = "../s3/mod.rs"]
mod s3;

use anyhow::{Context, Result, ensure};
use hyper::Method;
use tokio_postgres::{Client, SimpleQueryMessage};

/// All rows as text; NULL is `∅`.
pub async fn rows(client: &Client, sql: &str) -> Result<Vec<Vec<String>>> {
    let messages = client.simple_query(sql).await.with_context(|| sql.to_owned())?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|at| row.get(at).unwrap_or("∅").to_owned()).collect()),
        _ => None,
    });
    Ok(rows.collect())
}

/// A figure of `tarn.caches`.
pub async fn figure(client: &Client, name: &str, layer: &str, place: &str) -> Result<i64> {
    let sql = format!("SELECT {name} FROM tarn.caches WHERE layer = '{layer}' AND place = '{place}'");
    let rows = rows(client, &sql).await?;
    ensure!(rows.len() == 1, "{sql}: {rows:?}");
    rows[0][0].parse().with_context(|| format!("{sql}: {rows:?}"))
}

/// How many of the requests read objects, and how many list.
pub fn reads_and_lists(seen: &[(Method, String)]) -> (usize, usize) {
    let gets = || seen.iter().filter(|(method, _)| *method == Method::GET || *method == Method::HEAD);
    let lists = gets().filter(|(_, path)| path.contains("list-type=2")).count();
    (gets().count() - lists, lists)
}
