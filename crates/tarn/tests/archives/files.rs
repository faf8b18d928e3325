//! The files of an archive, and what is known of them.

#![allow(dead_code)] // not all of it by every test binary

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use tokio_postgres::{Client, SimpleQueryMessage};

/// Rows of one file.
pub const ROWS: i64 = 50;

/// A folder, and of each file the number that all its rows have.
pub struct Archive {
    pub root: PathBuf,
    pub files: BTreeMap<String, i64>,
}

impl Archive {
    pub fn new(root: &Path) -> Archive {
        Archive { root: root.to_owned(), files: BTreeMap::new() }
    }

    /// Writes a file, or writes over it.
    pub fn put(&mut self, path: &str, n: i64) -> Result<()> {
        let bodies = (0..ROWS).map(|row| format!("file n{n} has row r{row} of path {path}"));
        let batch = RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from(vec![n; ROWS as usize])) as ArrayRef),
            ("body", Arc::new(StringArray::from_iter_values(bodies))),
        ])?;
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None)?;
        writer.write(&batch)?;
        let (target, scratch) = (self.root.join(path), self.root.join("_scratch"));
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&scratch, writer.into_inner()?)?;
        std::fs::rename(scratch, target)?;
        self.files.insert(path.to_owned(), n);
        Ok(())
    }

    pub fn remove(&mut self, path: &str) -> Result<()> {
        self.files.remove(path);
        Ok(std::fs::remove_file(self.root.join(path))?)
    }

    /// Is the table what the archive is: each file, once, with its rows?
    pub async fn check(&self, client: &Client, table: &str) -> Result<()> {
        let listed =
            rows(client, &format!("SELECT path FROM tarn.files WHERE table_name = '{table}' ORDER BY path")).await?;
        let listed: Vec<&str> = listed.iter().map(|row| row[0].as_str()).collect();
        ensure!(listed.iter().copied().eq(self.files.keys().map(String::as_str)), "files are {listed:?}");
        let counted =
            rows(client, &format!("SELECT n, count(*), count(body) FROM {table} GROUP BY n ORDER BY n")).await?;
        let mut want = BTreeMap::<i64, i64>::new();
        self.files.values().for_each(|n| *want.entry(*n).or_default() += ROWS);
        let want: Vec<Vec<String>> =
            want.iter().map(|(n, rows)| vec![n.to_string(), rows.to_string(), rows.to_string()]).collect();
        ensure!(counted == want, "rows are {counted:?}, want {want:?}");
        for (path, n) in self.files.iter().step_by(37) {
            let found =
                rows(client, &format!("SELECT count(*) FROM {table} WHERE matches(body, 'n{n} r7 {path}')")).await?;
            ensure!(found == [["1"]], "rows of {path} by its words: {found:?}");
        }
        ensure!(!self.root.join("_scratch").exists(), "the archive was written to");
        Ok(())
    }
}

/// All rows of the last statement as text; NULL is `∅`.
pub async fn rows(client: &Client, sql: &str) -> Result<Vec<Vec<String>>> {
    let messages = client.simple_query(sql).await?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|idx| row.get(idx).unwrap_or("∅").to_owned()).collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}

/// The first number of the first row; 0 when there is none.
pub async fn number(client: &Client, sql: &str) -> Result<u64> {
    let rows = rows(client, sql).await?;
    Ok(rows.first().and_then(|row| row.first()).and_then(|text| text.parse().ok()).unwrap_or(0))
}
