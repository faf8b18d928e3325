//! How long do statements about one key take? Prepared once, of keys that are spread over lineitem.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::report::ms_since;
use crate::server::ServerProcess;

/// A prime: keys that follow on each other lie far apart.
const STRIDE: usize = 7919;

/// A hundredth of the orders of lineitem, by their keys.
pub async fn keys(server: &ServerProcess) -> Result<Vec<i64>> {
    let rows = server.rows("SELECT l_orderkey FROM lineitem WHERE l_linenumber = 1 AND l_orderkey % 101 = 0").await?;
    let keys: Vec<i64> = rows.iter().filter_map(|row| row.first()?.parse().ok()).collect();
    ensure!(!keys.is_empty(), "no keys to look up: --sf is too small");
    Ok(keys)
}

/// Milliseconds of each of `n` statements of run `run`, ascending. `sql` has the order as `$1` and the line as `$2`;
/// each run has other keys.
pub async fn times(server: &ServerProcess, sql: &str, keys: &[i64], run: usize, n: usize) -> Result<Vec<f64>> {
    let statement = server.client.prepare(sql).await?;
    let mut times = Vec::with_capacity(n);
    for idx in run * n..(run + 1) * n {
        let key = keys[idx * STRIDE % keys.len()];
        let started = Instant::now();
        let n_rows = server.client.execute(&statement, &[&key, &1_i32]).await?;
        times.push(ms_since(started));
        ensure!(n_rows == 1, "key {key} has {n_rows} rows");
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}
