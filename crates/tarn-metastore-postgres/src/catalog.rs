//! How do tables come, change and go, and how do files get their ids?
//!
//! A change of the catalog locks the one row of `meta`, so there is one at a time; it is checked against the
//! definitions as they are then. Each leaves its own id and answer in `definitions`: whoever lost the answer finds it
//! there.

use std::sync::Arc;

use uuid::Uuid;

use tarn_metastore::backend::{State, StateRecord, Table, put_schema, put_version};
use tarn_metastore::{Definition, Result, TableVersion};
use tarn_types::{Cursor, FileId, TableId, TableSchema, TabletId, Version};

use crate::PostgresInner;
use crate::bytes::{decode, seal};
use crate::layout::Meta;
use crate::pool::{FlightStatement, RequestFailure, ask, change, col, params};
use crate::refresh::{base_of, schema_of};

/// File ids that a process takes at once.
const RESERVED_FILES: u64 = 1024;

/// Changes of the catalog whose answers are kept.
const KEPT_ANSWERS: i64 = 1000;

impl PostgresInner {
    /// Definitions that are known here are not fetched again.
    pub async fn tables(&self) -> Result<Vec<Arc<TableSchema>>, RequestFailure> {
        let list = "SELECT table_id, definition_seq FROM tables ORDER BY table_id";
        let rows = ask!(&self.pool, connection => connection.query(list, vec![]))?;
        let mut schemas: Vec<(TableId, Option<Arc<TableSchema>>)> = Vec::with_capacity(rows.len());
        {
            let held = self.held.read();
            for row in &rows {
                let id = id_of(col(row, 0)?);
                schemas.push((id, held.schema(id, col(row, 1)?)));
            }
        }
        let unknown: Vec<i64> =
            schemas.iter().filter(|(_, schema)| schema.is_none()).map(|(id, _)| i64::from(id.0)).collect();
        if !unknown.is_empty() {
            let read = "SELECT table_id, definition_seq, definition FROM tables WHERE table_id = ANY($1)";
            let rows = ask!(&self.pool, connection => connection.query(read, params![unknown.clone()]))?;
            let mut held = self.held.write();
            for row in &rows {
                let id = id_of(col(row, 0)?);
                let schema = Arc::new(schema_of(id, col(row, 2)?)?);
                held.note_schema(id, col(row, 1)?, &schema);
                for (_, place) in schemas.iter_mut().filter(|(of, _)| *of == id) {
                    *place = Some(schema.clone());
                }
            }
        }
        // What went between the two questions is gone.
        Ok(schemas.into_iter().filter_map(|(_, schema)| schema).collect())
    }

    /// One transaction. After a lost answer it is looked up by its attempt before it is tried again.
    pub async fn define(&self, definition: Definition) -> Result<Arc<TableSchema>> {
        let attempt = Uuid::new_v4();
        change!(&self.pool, doubt => self.try_define(attempt, definition.clone(), &mut doubt))
    }

    async fn try_define(
        &self,
        attempt: Uuid,
        definition: Definition,
        doubt: &mut bool,
    ) -> Result<Arc<TableSchema>, RequestFailure> {
        let connection = self.pool.take_for_change(*doubt).await?;
        let answers = connection
            .flight(vec![
                FlightStatement::Plain("BEGIN"),
                FlightStatement::Query("SELECT next_table, next_tablet FROM meta FOR UPDATE", vec![]),
                FlightStatement::Query(Meta::QUERY, vec![]),
                FlightStatement::Query("SELECT answer FROM definitions WHERE id = $1", params![attempt]),
                FlightStatement::Query("SELECT table_id, definition, base, restoring FROM tables", vec![]),
            ])
            .await?;
        let (schema, record) = match self.check_define(&answers, definition) {
            Ok((schema, Some(record))) => (schema, record),
            settled => {
                connection.roll_back().await;
                return settled.map(|(schema, _)| schema);
            }
        };
        let mut answer = Vec::new();
        put_schema(&mut answer, &schema);
        let forget = "DELETE FROM definitions WHERE seq <= (SELECT max(seq) FROM definitions) - $1";
        let mut steps = vec![
            FlightStatement::Query(
                "INSERT INTO definitions (id, answer) VALUES ($1, $2)",
                params![attempt, seal(answer)],
            ),
            FlightStatement::Query(forget, params![KEPT_ANSWERS]),
        ];
        let dropped = if let StateRecord::Drop { table } = &record { Some(*table) } else { None };
        record_steps(record, &mut steps);
        connection.commit(steps, doubt).await?;
        if let Some(table) = dropped {
            self.held.write().forget(table);
        }
        Ok(schema)
    }

    fn check_define(
        &self,
        answers: &[Vec<tokio_postgres::Row>],
        definition: Definition,
    ) -> Result<(Arc<TableSchema>, Option<StateRecord>), RequestFailure> {
        Meta::of(&answers[2])?.layout(self.knows, self.pool.address())?;
        if let Some(row) = answers[3].first() {
            let schema = decode(col(row, 0)?, || "definitions".to_owned(), |reader| reader.schema())?;
            return Ok((Arc::new(schema), None));
        }
        // Definitions and where tables begin are all that is checked.
        let (next_table, next_tablet) = (id_of(col(&answers[1][0], 0)?), col::<i64>(&answers[1][0], 1)?);
        let mut state = State { next_table, next_tablet: TabletId(next_tablet as u32), ..State::default() };
        for row in &answers[4] {
            let id = id_of(col(row, 0)?);
            let mut table = Table::new(Arc::new(schema_of(id, col(row, 1)?)?), base_of(id, col(row, 2)?)?);
            table.restoring = col(row, 3)?;
            state.tables.insert(id, table);
        }
        Ok(state.check_definition(definition, self.clock.now_ms())?)
    }

    /// The first of `n` ids. What was reserved and not used is lost with the process.
    pub async fn allocate_files(&self, n: u64) -> Result<FileId> {
        let mut reserved = self.files.lock().await;
        if reserved.end - reserved.start >= n {
            let first = reserved.start;
            reserved.start += n;
            return Ok(FileId(first));
        }
        let more = n.max(RESERVED_FILES);
        let reserve = "UPDATE meta SET next_file = next_file + $1 RETURNING next_file";
        // Ids that were given out to a lost answer are used by nobody.
        let asked: Result<_, RequestFailure> =
            async { ask!(&self.pool, connection => connection.query(reserve, params![more as i64])) }.await;
        let end = asked.and_then(|rows| col::<i64>(&rows[0], 0)).map_err(|failure| self.pool.error(failure))? as u64;
        let first = end - more;
        // Also when nothing is left over: the ids that a process gives out ascend.
        *reserved = first + n..end;
        Ok(FileId(first))
    }
}

/// What makes a record durable.
fn record_steps(record: StateRecord, steps: &mut Vec<FlightStatement>) {
    let mut create = |schema: &TableSchema, base: TableVersion, restoring: bool| {
        let next_tablet = i64::from(schema.tablet_ids().end.0);
        let ids = "UPDATE meta SET next_table = greatest(next_table, $1), next_tablet = greatest(next_tablet, $2)";
        steps.push(FlightStatement::Query(ids, params![i64::from(schema.id.0) + 1, next_tablet]));
        let insert = "INSERT INTO tables (table_id, name, definition, definition_seq, version, oldest, base, base_seq, restoring)
            VALUES ($1, $2, $3, 1, $4, $4, $5, 1, $6)";
        let (id, name, version) = (i64::from(schema.id.0), schema.name.clone(), base.version.0 as i64);
        steps.push(FlightStatement::Query(
            insert,
            params![id, name, definition(schema), version, sealed_base(&base), restoring],
        ));
    };
    match record {
        StateRecord::Create { schema, at_ms } => {
            create(&schema, TableVersion { committed_ms: at_ms, ..TableVersion::default() }, false);
        }
        StateRecord::Restore { schema, version, cursor, at_ms } => {
            create(&schema, TableVersion { version, cursor, committed_ms: at_ms, ..TableVersion::default() }, true);
        }
        StateRecord::Drop { table } => {
            let id = || params![i64::from(table.0)];
            // The row first: a commit may hold it.
            for sql in [
                "DELETE FROM tables WHERE table_id = $1",
                "INSERT INTO dropped VALUES ($1)",
                "DELETE FROM files WHERE table_id = $1",
                "DELETE FROM dead_rows WHERE table_id = $1",
                "DELETE FROM commits WHERE table_id = $1",
            ] {
                steps.push(FlightStatement::Query(sql, id()));
            }
        }
        StateRecord::Alter { schema } => alter(&[schema], steps),
        StateRecord::AlterAll { schemas } => alter(&schemas, steps),
        StateRecord::Restored { table } => {
            let end = "UPDATE tables SET restoring = false, base_seq = base_seq + 1 WHERE table_id = $1";
            steps.push(FlightStatement::Query(end, params![i64::from(table.0)]));
        }
        // None of these is made by a definition.
        StateRecord::Reserve { .. } | StateRecord::Commit { .. } | StateRecord::Expire { .. } => {}
    }
}

fn alter(schemas: &[Arc<TableSchema>], steps: &mut Vec<FlightStatement>) {
    // A name may be another's until that is altered, too: each is given up before any is taken.
    if schemas.len() > 1 {
        let give_up = "UPDATE tables SET name = $2 WHERE table_id = $1";
        for schema in schemas {
            let id = i64::from(schema.id.0);
            steps.push(FlightStatement::Query(give_up, params![id, format!("altered://{id}")]));
        }
    }
    let alter = "UPDATE tables SET name = $2, definition = $3, definition_seq = definition_seq + 1 WHERE table_id = $1";
    for schema in schemas {
        steps.push(FlightStatement::Query(
            alter,
            params![i64::from(schema.id.0), schema.name.clone(), definition(schema)],
        ));
    }
}

fn definition(schema: &TableSchema) -> Vec<u8> {
    let mut out = Vec::new();
    put_schema(&mut out, schema);
    seal(out)
}

/// Version, cursor and time; files and dead rows are in tables of their own.
pub(crate) fn sealed_base(version: &TableVersion) -> Vec<u8> {
    let (number, cursor, committed_ms): (Version, Cursor, i64) =
        (version.version, version.cursor.clone(), version.committed_ms);
    let mut out = Vec::new();
    put_version(&mut out, &TableVersion { version: number, cursor, committed_ms, ..TableVersion::default() });
    seal(out)
}

fn id_of(id: i64) -> TableId {
    TableId(id as u32)
}
