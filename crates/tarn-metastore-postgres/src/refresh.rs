//! How does this process learn what others did?
//!
//! One question a table, before every answer that must be current: what is there after the version that I have? Mostly
//! the answer is a row that says: nothing. A table that is not held, or that was restored or expired beyond what is
//! held, is read as a whole, in one snapshot of the store.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::Row;

use tarn_metastore::backend::Table;
use tarn_metastore::{Error, Files, TableVersion};
use tarn_types::{FileId, TableId, TableSchema, Version};

use crate::PostgresInner;
use crate::bytes::decode;
use crate::local_state::{KnownTable, TableSeqs, Tail};
use crate::pool::{Connection, FlightStatement, RequestFailure, ask, col, params};

const TAIL: &str = "SELECT t.oldest, t.definition_seq, t.base_seq, CASE WHEN t.definition_seq <> $3 THEN t.definition END, c.payload
    FROM tables t LEFT JOIN commits c ON c.table_id = t.table_id AND c.version > $2 WHERE t.table_id = $1 ORDER BY c.version";

pub(crate) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

impl PostgresInner {
    /// Brings the table up to what the store has now. `NotFound` when it has none.
    pub async fn refresh(&self, id: TableId) -> Result<(), RequestFailure> {
        let known = self.held.read().known(id);
        if let Some(known) = known {
            let rows = ask!(&self.pool, connection => connection.query(TAIL, tail_params(id, known)))?;
            if self.catch_up(id, known, &rows)? {
                return Ok(());
            }
        }
        let answers = ask!(&self.pool, connection => async {
            let mut steps = vec![FlightStatement::Plain(SNAPSHOT)];
            steps.extend(whole(id));
            steps.push(FlightStatement::Plain("COMMIT"));
            connection.flight(steps).await
        })?;
        self.take_in(id, answers.into_iter().skip(1).take(4)).await
    }

    /// The same inside a transaction that holds the table's row: nothing comes after it. `tail`: the answer to
    /// `tail_step`.
    pub async fn refresh_locked(
        &self,
        connection: &Connection<'_>,
        id: TableId,
        known: Option<KnownTable>,
        tail: &[Row],
    ) -> Result<(), RequestFailure> {
        if let Some(known) = known
            && self.catch_up(id, known, tail)?
        {
            return Ok(());
        }
        let answers = connection.flight(whole(id)).await?;
        self.take_in(id, answers.into_iter()).await
    }

    /// What came after what is known; of a table that is not, whether it is there.
    pub fn tail_step(id: TableId, known: Option<KnownTable>) -> FlightStatement {
        let nothing = KnownTable {
            version: Version(i64::MAX as u64),
            seen: TableSeqs { definition_seq: i64::MAX, base_seq: i64::MAX },
        };
        FlightStatement::Query(TAIL, tail_params(id, known.unwrap_or(nothing)))
    }

    fn catch_up(&self, id: TableId, known: KnownTable, rows: &[Row]) -> Result<bool, RequestFailure> {
        let Some(row) = rows.first() else {
            self.held.write().forget(id);
            return Err(Error::NoTableId { table: id }.into());
        };
        let seen = TableSeqs { definition_seq: col(row, 1)?, base_seq: col(row, 2)? };
        let oldest = Version(col::<i64>(row, 0)? as u64);
        let mut tail = Tail { seen, oldest, schema: None, commits: Vec::new() };
        if seen.base_seq != known.seen.base_seq {
            return self.held.write().catch_up(id, tail);
        }
        if let Some(definition) = col::<Option<&[u8]>>(row, 3)? {
            tail.schema = Some(Arc::new(schema_of(id, definition)?));
        }
        for row in rows {
            if let Some(payload) = col::<Option<&[u8]>>(row, 4)? {
                let commit = decode(payload, || format!("commits of table {id}"), |reader| reader.commit())?;
                tail.commits.push(Arc::new(commit));
            }
        }
        let mut held = self.held.write();
        held.catch_up(id, tail)
    }

    async fn take_in(&self, id: TableId, answers: impl Iterator<Item = Vec<Row>>) -> Result<(), RequestFailure> {
        let answers: Vec<Vec<Row>> = answers.collect();
        if answers[0].is_empty() {
            self.held.write().forget(id);
            return Err(Error::NoTableId { table: id }.into());
        }
        // Fifty thousand files take tens of milliseconds.
        let decoding = tokio::task::spawn_blocking(move || table_of(id, &answers));
        let (table, seen) = decoding.await.map_err(|e| RequestFailure::Lost(Box::new(e)))??;
        self.held.write().take_in(table, seen);
        Ok(())
    }
}

fn tail_params(id: TableId, known: KnownTable) -> Vec<crate::pool::Param> {
    params![i64::from(id.0), known.version.0 as i64, known.seen.definition_seq]
}

/// Questions whose answers make a table.
fn whole(id: TableId) -> Vec<FlightStatement> {
    let of_table = |sql| FlightStatement::Query(sql, params![i64::from(id.0)]);
    vec![
        of_table("SELECT definition, definition_seq, base, base_seq, restoring FROM tables WHERE table_id = $1"),
        of_table("SELECT file_id, file FROM files WHERE table_id = $1 ORDER BY file_id"),
        of_table("SELECT file_id, bits FROM dead_rows WHERE table_id = $1"),
        of_table("SELECT version, payload FROM commits WHERE table_id = $1 ORDER BY version"),
    ]
}

fn table_of(id: TableId, answers: &[Vec<Row>]) -> Result<(Table, TableSeqs), RequestFailure> {
    let damaged = |reason: String| RequestFailure::Damaged { place: format!("table {id}"), reason };
    let [tables, files, dead_rows, commits] = answers else { return Err(damaged("parts are missing".to_owned())) };
    let row = &tables[0];
    let schema = Arc::new(schema_of(id, col(row, 0)?)?);
    let oldest = base_of(id, col(row, 2)?)?;
    let mut whole: Vec<Arc<tarn_metastore::File>> = Vec::with_capacity(files.len());
    for row in files {
        let file: i64 = col(row, 0)?;
        let place = || format!("files, table {id} file {file}");
        whole.push(Arc::new(decode(col(row, 1)?, place, |reader| reader.file())?));
    }
    let mut dead = HashMap::with_capacity(dead_rows.len());
    for row in dead_rows {
        let file: i64 = col(row, 0)?;
        let place = || format!("dead_rows, table {id} file {file}");
        dead.insert(FileId(file as u64), Arc::new(decode(col(row, 1)?, place, |reader| reader.bitmap())?));
    }
    let files: Files = whole.into_iter().collect();
    let mut table = Table::new(schema, TableVersion { files, deletion_vectors: Arc::new(dead), ..oldest });
    table.restoring = col(row, 4)?;
    for row in commits {
        let version: i64 = col(row, 0)?;
        let place = || format!("commits, table {id} version {version}");
        let commit = Arc::new(decode(col(row, 1)?, place, |reader| reader.commit())?);
        table.push(commit, None).map_err(damaged)?;
    }
    table.settle();
    Ok((table, TableSeqs { definition_seq: col(row, 1)?, base_seq: col(row, 3)? }))
}

pub(crate) fn schema_of(id: TableId, sealed: &[u8]) -> Result<TableSchema, RequestFailure> {
    decode(sealed, || format!("tables, definition of table {id}"), |reader| reader.schema())
}

/// A version without its files and dead rows.
pub(crate) fn base_of(id: TableId, sealed: &[u8]) -> Result<TableVersion, RequestFailure> {
    decode(sealed, || format!("tables, base of table {id}"), |reader| reader.version())
}
