//! Is the answer right?
//!
//! Many queries end with the first hundred rows of an order that does not say which of equal rows come first. Where the
//! hundred differ, they must be equal in what they are ordered by, be among all rows of the answer, and all rows of
//! both sides must be the same.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::order::{ordered_by, unlimited};
use crate::answers::{same, same_order};
use crate::python::PythonEngine;
use crate::server::ServerProcess;

/// `Err`: how it differs.
pub async fn judge(
    server: &ServerProcess,
    judge: &mut PythonEngine,
    sql: &str,
    ours: &[Vec<String>],
    theirs: &[Vec<Value>],
) -> Result<()> {
    let columns = judge.cells(&format!("DESCRIBE {sql}"))?;
    let columns: Vec<String> = columns.iter().filter_map(|column| Some(column.first()?.as_str()?.to_owned())).collect();
    let order = ordered_by(sql, &columns);
    let Err(differ) = same(ours, theirs, &order) else { return Ok(()) };
    same_order(ours, theirs, &order)?;
    let Some(whole) = unlimited(sql) else { return Err(differ) };
    let (all_ours, all_theirs) = (server.rows(whole).await.context("without LIMIT")?, judge.cells(whole)?);
    same(&all_ours, &all_theirs, &order).context("without LIMIT")?;
    let mut left: HashMap<&Vec<String>, usize> = HashMap::new();
    all_ours.iter().for_each(|row| *left.entry(row).or_default() += 1);
    for row in ours {
        let n = left.get_mut(row).filter(|n| **n > 0).with_context(|| format!("{row:?} is not among all rows"))?;
        *n -= 1;
    }
    ensure!(ours.len() <= all_ours.len(), "more rows than without LIMIT");
    Ok(())
}
