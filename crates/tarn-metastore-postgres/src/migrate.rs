//! How does a store go from schema 1 to 2 while others use it?
//!
//! Step by step (`layout.rs`), each a transaction: whoever dies in one has not made it, and the next one goes on where
//! it ended. Blocks that came before are copied some at a time, hour by hour; a block is copied when it is in schema 1
//! and not in 2, so nothing needs to be remembered. Nothing is packed before schema 1 is gone.

use std::collections::{BTreeSet, HashMap};

use tokio::runtime::Handle;

use tarn_metastore::{BlockMetadata, BlockRef, Remote, Result};
use tarn_types::TableId;

use crate::Postgres;
use crate::block_metadata::columns_of;
use crate::bytes::{bloom_of, damaged, unseal};
use crate::directory::block_of;
use crate::layout::{Meta, Phase, SchemaRange};
use crate::maintenance::WAIT;
use crate::pool::{Connection, FlightStatement, Pool, RequestFailure, col, params};
use crate::remote::Target;
use crate::schema::{DROP_FIRST, NEWEST, SECOND};
use crate::write::{NewBlock, loose_step};

/// Blocks that are copied in one transaction: 16 MiB of full filters.
const BLOCKS_AT_ONCE: i64 = 64;

impl Postgres {
    /// Brings the store to the schema that this build works with, while servers go on: those of a build that knows both
    /// schemas without an error, those of an older build until the second step, which tells them so. May be stopped at
    /// any time and begun again. `report` is told of each step when it is about to become durable. Answers the schema's
    /// version. Needs a runtime with timer and IO.
    pub async fn migrate(remote: &Remote, runtime: &Handle, report: &(dyn Fn(&str) + Sync)) -> Result<u32> {
        let pool = Pool::new(Target::parse(remote)?, runtime.clone());
        let migrated = async {
            let connection = pool.take().await?;
            while step(&connection, pool.address(), report).await? {}
            connection.give_back();
            Ok(NEWEST)
        };
        migrated.await.map_err(|failure: RequestFailure| pool.error(failure))
    }
}

/// The next one. False: there is none.
async fn step(
    connection: &Connection<'_>,
    address: &str,
    report: &(dyn Fn(&str) + Sync),
) -> Result<bool, RequestFailure> {
    let meta = Meta::of(&connection.query(Meta::QUERY, vec![]).await?)?;
    // Newer ones are left alone.
    meta.layout(SchemaRange { oldest: 1, newest: NEWEST }, address)?;
    if meta.version == NEWEST {
        return Ok(false);
    }
    if meta.phase == Phase::Backfill && backfill(connection, report).await? {
        return Ok(true);
    }
    let lock = "LOCK TABLE meta IN ACCESS EXCLUSIVE MODE";
    let answers = connection
        .flight(vec![
            FlightStatement::Plain("BEGIN"),
            FlightStatement::Plain(lock),
            FlightStatement::Query(Meta::QUERY, vec![]),
        ])
        .await?;
    if Meta::of(&answers[2])? != meta {
        connection.plain("ROLLBACK").await?;
        return Ok(true);
    }
    let enter = |phase: Phase, epochs: i64| {
        FlightStatement::Query(
            "UPDATE meta SET phase = $1, epoch = epoch + $2",
            params![phase.name().to_owned(), epochs],
        )
    };
    let steps = match meta.phase {
        Phase::Settled => {
            connection.script(SECOND).await?;
            report("expand: the new tables are there");
            vec![enter(Phase::Expand, 0)]
        }
        Phase::Expand => {
            report("both: new blocks are written to the old and the new tables; older builds stop here");
            vec![enter(Phase::Both, 1)]
        }
        Phase::Both => {
            report("backfill: blocks that came before are copied");
            vec![enter(Phase::Backfill, 0)]
        }
        Phase::Backfill => {
            report("switch: the new tables are read");
            vec![enter(Phase::Switch, 0)]
        }
        Phase::Switch => {
            connection.script(DROP_FIRST).await?;
            report("contract: the old tables are gone");
            let settle = "UPDATE meta SET schema_version = $1";
            vec![FlightStatement::Query(settle, params![i64::from(NEWEST)]), enter(Phase::Settled, 1)]
        }
    };
    connection.flight(steps).await?;
    connection.plain("COMMIT").await?;
    Ok(true)
}

/// Copies some blocks of an hour. False: all are there.
async fn backfill(connection: &Connection<'_>, report: &(dyn Fn(&str) + Sync)) -> Result<bool, RequestFailure> {
    // Maintenance deletes what this would bring back.
    connection
        .flight(vec![
            FlightStatement::Plain("BEGIN"),
            FlightStatement::Query(WAIT, vec![]),
            FlightStatement::Query(Meta::QUERY, vec![]),
        ])
        .await?;
    let hour = "SELECT d.table_id, d.hour FROM block_details d WHERE NOT EXISTS (SELECT FROM loose l WHERE l.table_id = d.table_id
        AND l.hour = d.hour AND l.file_id = d.file_id AND l.row_group = d.row_group) ORDER BY d.table_id, d.hour LIMIT 1";
    let rows = connection.query(hour, vec![]).await?;
    let Some(row) = rows.first() else {
        connection.plain("COMMIT").await?;
        return Ok(false);
    };
    let (table, hour): (i64, i64) = (col(row, 0)?, col(row, 1)?);
    let missing = "SELECT d.file_id, d.row_group, d.n_chunks FROM block_details d WHERE d.table_id = $1 AND d.hour = $2
        AND NOT EXISTS (SELECT FROM loose l WHERE l.table_id = d.table_id AND l.hour = d.hour AND l.file_id = d.file_id AND l.row_group = d.row_group)
        ORDER BY d.file_id, d.row_group LIMIT $3";
    let blocks = connection.query(missing, params![table, hour, BLOCKS_AT_ONCE]).await?;
    let (mut files, mut row_groups): (Vec<i64>, BTreeSet<i64>) = (Vec::with_capacity(blocks.len()), BTreeSet::new());
    for row in &blocks {
        files.push(col(row, 0)?);
        row_groups.insert(col(row, 1)?);
    }
    files.dedup();
    // Blocks are taken in order, so only the first and the last file can have others with these numbers, and no more
    // than are taken.
    let row_groups: Vec<i64> = row_groups.into_iter().collect();
    let read = |sql| FlightStatement::Query(sql, params![table, hour, files.clone(), row_groups.clone()]);
    let answers = connection
        .flight(vec![
            read(
                "SELECT file_id, row_group, chunk, bits FROM bloom_chunks WHERE table_id = $1 AND hour = $2
                AND file_id = ANY($3) AND row_group = ANY($4) ORDER BY file_id, row_group, chunk",
            ),
            read(
                "SELECT file_id, row_group, record FROM block_columns WHERE table_id = $1 AND hour = $2
                AND file_id = ANY($3) AND row_group = ANY($4) ORDER BY file_id, row_group, column_id",
            ),
        ])
        .await?;
    let mut bits: HashMap<BlockRef, Vec<u8>> = HashMap::new();
    for row in &answers[0] {
        let (block, chunk) = (block_of(row, 0)?, col::<i32>(row, 2)?);
        let of_chunk = unseal(col(row, 3)?, || format!("bloom_chunks, block {block:?} chunk {chunk}"))?;
        bits.entry(block).or_default().extend_from_slice(of_chunk);
    }
    let mut columns: HashMap<BlockRef, Vec<_>> = HashMap::new();
    for row in &answers[1] {
        let block = block_of(row, 0)?;
        let of_block = columns_of(col(row, 2)?, || format!("block_columns, block {block:?}"))?;
        columns.entry(block).or_default().extend(of_block.columns);
    }
    let mut copied = Vec::with_capacity(blocks.len());
    for row in &blocks {
        let (block, n_chunks) = (block_of(row, 0)?, col::<i32>(row, 2)? as u32);
        let place = || format!("bloom_chunks, block {block:?}");
        let bloom = match bits.remove(&block) {
            _ if n_chunks == 0 => None,
            Some(bits) => Some(bloom_of(bits.into(), place)?),
            None => None,
        };
        if bloom.as_ref().map_or(0, tarn_metastore::Bloom::n_chunks) != n_chunks {
            return Err(damaged(place(), format!("rows of its filter's {n_chunks} chunks are missing")));
        }
        let columns = columns.remove(&block).unwrap_or_default();
        let block_metadata = BlockMetadata { row_group: block.row_group, columns, bloom };
        copied.push(NewBlock { hour, file: block.file, block_metadata });
    }
    connection.flight(vec![loose_step(TableId(table as u32), &copied)]).await?;
    report(&format!("backfill: {} blocks of table {table}, hour {hour}", copied.len()));
    connection.plain("COMMIT").await?;
    Ok(true)
}
