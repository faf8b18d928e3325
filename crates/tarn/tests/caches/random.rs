//! Random writes, deliveries, compactions, cache drops, restarts, switches and failures of the store: every answer is
//! the model's.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::Client;

use crate::child::ChildServer;
use crate::rows;
use crate::s3::{Buckets, S3Fault};

const STEPS: usize = 60;
const KEYS: i64 = 400;

/// What the table holds: `v` and `s` by key.
type TableModel = BTreeMap<i64, (i64, String)>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_do_not_depend_on_what_is_near() -> Result<()> {
    for seed in 0..3 {
        run(seed).await.map_err(|error| error.context(format!("seed {seed}")))?;
    }
    Ok(())
}

async fn run(seed: u64) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let (folder, root) = (tempfile::tempdir()?, tempfile::tempdir()?);
    std::fs::create_dir(root.path().join("bucket"))?;
    let buckets = Buckets::serve(root.path()).await?;
    // Little room: evictions are part of it.
    let arguments = [
        ["--lake", "s3://bucket/tables"],
        ["--background", "false"],
        ["--cache-page-bytes", "4KiB"],
        ["--cache-pages-ram-bytes", "48KiB"],
        ["--cache-pages-disk-bytes", "256KiB"],
        ["--metastore-cache-bytes", "64KiB"],
    ]
    .concat();
    let start = async || -> Result<(ChildServer, Client)> {
        let server = ChildServer::start(folder.path(), &arguments, &buckets.variables()).await?;
        let client = server.connect().await?;
        Ok((server, client))
    };
    let (mut server, mut client) = start().await?;
    client.batch_execute("CREATE TABLE t (k bigint PRIMARY KEY, v bigint, s text)").await?;
    let mut model = TableModel::new();
    let (mut failures, mut is_broken) = (0, false);
    for step in 0..STEPS {
        match random.random_range(0..20) {
            0..5 => {
                let from = random.random_range(0..KEYS);
                let written: Vec<(i64, i64, String)> = (from..from + random.random_range(1..80))
                    .map(|k| (k, random.random_range(-1000..1000), "x".repeat(random.random_range(0..200))))
                    .collect();
                let values: Vec<String> = written.iter().map(|(k, v, s)| format!("({k}, {v}, '{s}')")).collect();
                let sql = format!("UPSERT INTO t VALUES {}", values.join(", "));
                client.batch_execute(&sql).await?;
                model.extend(written.into_iter().map(|(k, v, s)| (k, (v, s))));
            }
            5..7 => {
                let from = random.random_range(0..KEYS);
                let to = from + random.random_range(1..40);
                // Keys one by one, which need no file.
                let keys: Vec<String> = (from..to).map(|k| format!("DELETE FROM t WHERE k = {k}")).collect();
                client.batch_execute(&keys.join("; ")).await?;
                (from..to).for_each(|k| drop(model.remove(&k)));
            }
            7..10 => failures += usize::from(client.batch_execute("DELIVER TABLE t").await.is_err()),
            10 => failures += usize::from(client.batch_execute("COMPACT TABLE t").await.is_err()),
            11 => {
                let layer = ["", "PAGES", "FRAGMENTS", "FOOTERS", "METADATA", "LISTINGS"][random.random_range(0..6)];
                client.batch_execute(&format!("SYSTEM DROP CACHE {layer}")).await?;
            }
            12 => {
                let layer = ["pages", "fragments", "footers", "metadata"][random.random_range(0..4)];
                let to = ["on", "off"][random.random_range(0..2)];
                client.batch_execute(&format!("SET tarn.cache.{layer} = {to}")).await?;
            }
            13 => {
                buckets.heal();
                is_broken = false;
                drop(client);
                match random.random_bool(0.5) {
                    true => server.stop()?,
                    false => {
                        server.kill();
                        server.wait();
                    }
                }
                (server, client) = start().await?;
            }
            14 => failures += usize::from(client.batch_execute("CACHE TABLE t").await.is_err()),
            15 => {
                is_broken = true;
                // One request in so many fails, some of them after they were done.
                let faults = Arc::new(Mutex::new(StdRng::seed_from_u64(random.random())));
                let share = random.random_range(0.05..0.4);
                buckets.break_by(move || {
                    let mut faults = faults.lock();
                    let kind = [S3Fault::Busy, S3Fault::Lost, S3Fault::Short][faults.random_range(0..3)];
                    faults.random_bool(share).then_some(kind)
                });
            }
            16 => {
                buckets.heal();
                is_broken = false;
            }
            _ => failures += usize::from(!ask(&client, &mut random, &model).await?),
        }
        ensure!(is_broken || failures == 0, "step {step}: the store is well, and {failures} statements failed");
        failures = 0;
    }
    buckets.heal();
    for _ in 0..8 {
        ensure!(ask(&client, &mut random, &model).await?, "the store is well");
    }
    Ok(())
}

/// Asks one question twice. False: the store failed.
async fn ask(client: &Client, random: &mut StdRng, model: &TableModel) -> Result<bool> {
    let from = random.random_range(0..KEYS);
    let to = from + random.random_range(0..KEYS);
    let in_range = || model.range(from..=to);
    let (sql, expected): (String, Vec<Vec<String>>) = match random.random_range(0..3) {
        0 => {
            let sum: i64 = in_range().map(|(_, (v, _))| v).sum();
            let sum = if in_range().next().is_some() { sum.to_string() } else { "∅".to_owned() };
            let n = in_range().count().to_string();
            (format!("SELECT count(*), sum(v) FROM t WHERE k BETWEEN {from} AND {to}"), vec![vec![n, sum]])
        }
        1 => {
            let rows = in_range().filter(|(_, (v, _))| *v > 0);
            let rows = rows.map(|(k, (v, s))| vec![k.to_string(), v.to_string(), s.len().to_string()]).collect();
            let filter = format!("k BETWEEN {from} AND {to} AND v > 0");
            (format!("SELECT k, v, length(s) FROM t WHERE {filter} ORDER BY k"), rows)
        }
        _ => {
            let bytes: usize = model.values().map(|(_, s)| s.len()).sum();
            let bytes = if model.is_empty() { "∅".to_owned() } else { bytes.to_string() };
            ("SELECT sum(length(s)) FROM t".to_owned(), vec![vec![bytes]])
        }
    };
    for path in ["lake", "auto"] {
        client.batch_execute(&format!("SET tarn.access_path = '{path}'")).await?;
        match rows(client, &sql).await {
            Ok(found) => ensure!(found == expected, "{path}: {sql}: {found:?}, not {expected:?}"),
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}
