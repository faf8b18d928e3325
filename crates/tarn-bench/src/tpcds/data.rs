//! Which files are read, and what is asked?
//!
//! ```text
//! DIR/tpcds.json          scale factor, rows of each table, the queries; written last
//! DIR/TABLE/0.parquet     one file a table, as DuckDB writes it
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::options::TpcdsOptions;
use crate::python::PythonEngine;

const N_QUERIES: usize = 99;

/// The Parquet files, and the queries.
pub struct Data {
    folder: PathBuf,
    made: DataManifest,
}

#[derive(Serialize, Deserialize)]
struct DataManifest {
    sf: f64,
    duckdb: String,
    rows: BTreeMap<String, u64>,
    /// In DuckDB's words, by number.
    queries: BTreeMap<u8, String>,
}

impl Data {
    /// What lies in `folder`, or else is made there: about 15 s and 320 MB for each unit of the scale factor.
    pub fn open(options: &TpcdsOptions, folder: &Path) -> Result<Data> {
        let mark = folder.join("tpcds.json");
        if mark.exists() {
            let made: DataManifest = serde_json::from_slice(&std::fs::read(&mark)?)?;
            ensure!(made.sf == options.sf, "{} has scale factor {}; say --sf {1}", folder.display(), made.sf);
            return Ok(Data { folder: folder.to_owned(), made });
        }
        eprintln!("making the data …");
        let mut generator = PythonEngine::tpcds(&options.python_tpcds)?;
        generator.time(&format!("CALL dsdgen(sf = {})", options.sf))?;
        let mut made = DataManifest {
            sf: options.sf,
            duckdb: generator.version.clone(),
            rows: BTreeMap::new(),
            queries: BTreeMap::new(),
        };
        for table in generator.cells("SELECT table_name FROM duckdb_tables()")? {
            let name = table[0].as_str().context("a table without a name")?;
            let of_table = folder.join(name);
            std::fs::create_dir_all(&of_table)?;
            let file = quoted(&of_table.join("0.parquet"));
            generator.time(&format!("COPY {name} TO {file} (FORMAT parquet)"))?;
            let counted = generator.cells(&format!("SELECT count(*) FROM {name}"))?;
            made.rows.insert(name.to_owned(), counted[0][0].as_str().context("a count")?.parse()?);
        }
        for query in generator.cells("SELECT query_nr, query FROM tpcds_queries()")? {
            let [Some(number), Some(sql)] = [query[0].as_str(), query[1].as_str()] else { continue };
            made.queries.insert(number.parse()?, sql.trim().trim_end_matches(';').to_owned());
        }
        ensure!(made.queries.len() == N_QUERIES, "the generator has {} queries", made.queries.len());
        std::fs::write(mark, serde_json::to_vec_pretty(&made)?)?;
        Ok(Data { folder: folder.to_owned(), made })
    }

    /// Of each table.
    pub fn rows(&self) -> &BTreeMap<String, u64> {
        &self.made.rows
    }

    /// Which DuckDB made it.
    pub fn made_by(&self) -> &str {
        &self.made.duckdb
    }

    /// Each table's name and folder.
    pub fn tables(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        self.made.rows.keys().map(|name| (name.as_str(), self.folder.join(name)))
    }

    /// By number.
    pub fn queries(&self) -> impl Iterator<Item = (u8, &str)> {
        self.made.queries.iter().map(|(number, sql)| (*number, sql.as_str()))
    }
}

/// A path as a literal of SQL.
pub fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "''"))
}
