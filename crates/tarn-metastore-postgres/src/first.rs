//! How is block metadata read in schema 1, where every chunk and every column of a block is a row?
//!
//! Only while a store is migrated: the published model, and the reason for the second. A token over 2,000 blocks is
//! 2,000 rows here.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

use tarn_metastore::backend::has_bits;
use tarn_metastore::{BlockMetadataRequest, BlockRef, CHUNK_BYTES, Error, Hash, HourBlocks, Probe, ProbeResult};
use tarn_types::TableId;

use crate::PostgresInner;
use crate::block_metadata::{MetadataParts, columns_of};
use crate::bytes::{damaged, unseal};
use crate::directory::{block_of, gone_of};
use crate::pool::{Connection, FlightStatement, RequestFailure, col, params};
use crate::refresh::SNAPSHOT;

/// The blocks that have block metadata, with the chunks of their filters.
type BlockFilterChunks = HashMap<(i64, BlockRef), u32>;

impl PostgresInner {
    /// In a snapshot that the caller ends.
    async fn known_first(
        &self,
        connection: &Connection<'_>,
        table: TableId,
        hours: &[HourBlocks],
    ) -> Result<BlockFilterChunks, RequestFailure> {
        let id = i64::from(table.0);
        let of_hours: Vec<i64> = hours.iter().map(|of_hour| of_hour.hour).collect();
        let blocks =
            "SELECT hour, file_id, row_group, n_chunks FROM block_details WHERE table_id = $1 AND hour = ANY($2)";
        let gone = "SELECT hour, file_id FROM gone WHERE table_id = $1 AND hour = ANY($2)";
        let answers = connection
            .flight(vec![
                FlightStatement::Plain(SNAPSHOT),
                FlightStatement::Query("SELECT 1 FROM tables WHERE table_id = $1", params![id]),
                FlightStatement::Query(blocks, params![id, of_hours.clone()]),
                FlightStatement::Query(gone, params![id, of_hours]),
            ])
            .await?;
        if answers[1].is_empty() {
            return Err(Error::NoTableId { table }.into());
        }
        let gone = gone_of(&answers[3])?;
        let mut known = BlockFilterChunks::new();
        for row in &answers[2] {
            let (hour, block): (i64, _) = (col(row, 0)?, block_of(row, 1)?);
            if !gone.contains(&(hour, block.file)) {
                known.insert((hour, block), col::<i32>(row, 3)? as u32);
            }
        }
        Ok(known)
    }

    /// As the second schema's probe, with a row for each chunk of each block.
    pub async fn probe_first(
        &self,
        connection: &Connection<'_>,
        table: TableId,
        probe: &Probe,
    ) -> Result<ProbeResult, RequestFailure> {
        let known = self.known_first(connection, table, &probe.hours).await?;
        let sizes: BTreeSet<u32> = known.values().copied().filter(|n_chunks| *n_chunks > 0).collect();
        let keys: BTreeSet<Hash> = probe.clauses.iter().flatten().flatten().copied().collect();
        let chunks: BTreeSet<i32> =
            sizes.iter().flat_map(|n_chunks| keys.iter().map(|key| key.chunk(*n_chunks) as i32)).collect();
        let hours: Vec<i64> = probe.hours.iter().map(|of_hour| of_hour.hour).collect();
        let read = "SELECT hour, file_id, row_group, chunk, bits FROM bloom_chunks WHERE table_id = $1 AND hour = ANY($2) AND chunk = ANY($3)";
        let chunks: Vec<i32> = chunks.into_iter().collect();
        let rows = connection.query(read, params![i64::from(table.0), hours, chunks]).await?;
        connection.plain("COMMIT").await?;
        let mut bits: HashMap<(i64, BlockRef, u32), &[u8]> = HashMap::with_capacity(rows.len());
        for row in &rows {
            let (hour, block, chunk): (i64, _, i32) = (col(row, 0)?, block_of(row, 1)?, col(row, 3)?);
            let of_chunk = unseal(col(row, 4)?, || format!("bloom_chunks, block {block:?} chunk {chunk}"))?;
            bits.insert((hour, block, chunk as u32), of_chunk);
        }
        let mut probed = ProbeResult::default();
        let asked = probe.hours.iter().flat_map(|of_hour| of_hour.blocks.iter().map(|block| (of_hour.hour, *block)));
        for (position, (hour, block)) in (0..).zip(asked) {
            let Some(n_chunks) = known.get(&(hour, block)).copied().filter(|n_chunks| *n_chunks > 0) else {
                probed.without_bloom += 1;
                probed.kept.insert(position);
                continue;
            };
            let mut missing = None;
            let mut has = |key: &Hash| {
                probed.bytes_read += CHUNK_BYTES as u64;
                match bits.get(&(hour, block, key.chunk(n_chunks))) {
                    Some(bits) => has_bits(bits, &key.mask()),
                    None => {
                        missing = Some(key.chunk(n_chunks));
                        true
                    }
                }
            };
            if probe.clauses.iter().all(|ways| ways.iter().any(|keys| keys.iter().all(&mut has))) {
                probed.kept.insert(position);
            }
            if let Some(chunk) = missing {
                return Err(damaged(format!("bloom_chunks, block {block:?} chunk {chunk}"), "the row is missing"));
            }
        }
        Ok(probed)
    }

    /// As the second schema's, with a row for each column of each block.
    pub async fn block_metadata_first(
        &self,
        connection: &Connection<'_>,
        table: TableId,
        wanted: &BlockMetadataRequest,
    ) -> Result<MetadataParts, RequestFailure> {
        let known = self.known_first(connection, table, &wanted.hours).await?;
        let asked = wanted.hours.iter().flat_map(|of_hour| of_hour.blocks.iter().map(|block| (of_hour.hour, *block)));
        let positions: HashMap<(i64, BlockRef), u32> =
            asked.zip(0..).filter(|(block, _)| known.contains_key(block)).collect();
        let (id, mut gathered) = (i64::from(table.0), MetadataParts::default());
        for of_hour in &wanted.hours {
            let position = |block: BlockRef| positions.get(&(of_hour.hour, block)).copied();
            if wanted.stats || wanted.chunks {
                let rows = match &wanted.columns {
                    None => {
                        let all =
                            "SELECT file_id, row_group, record FROM block_columns WHERE table_id = $1 AND hour = $2";
                        connection.query(all, params![id, of_hour.hour]).await?
                    }
                    Some(ids) => {
                        let ids: Vec<i64> = ids.iter().map(|id| i64::from(id.0)).collect();
                        let some = "SELECT file_id, row_group, record FROM block_columns WHERE table_id = $1 AND hour = $2 AND column_id = ANY($3)";
                        connection.query(some, params![id, of_hour.hour, ids]).await?
                    }
                };
                for row in &rows {
                    let block = block_of(row, 0)?;
                    let Some(position) = position(block) else { continue };
                    let sealed: &[u8] = col(row, 2)?;
                    gathered.bytes_read += sealed.len() as u64;
                    for record in columns_of(sealed, || format!("block_columns, block {block:?}"))?.columns {
                        gathered.add_column(position, record);
                    }
                }
            }
            if wanted.blooms {
                for (block, bits) in self.blooms_first(connection, id, of_hour.hour).await? {
                    if let Some(position) = position(block) {
                        gathered.add_bloom(position, bits);
                    }
                }
            }
        }
        connection.plain("COMMIT").await?;
        Ok(gathered)
    }

    async fn blooms_first(
        &self,
        connection: &Connection<'_>,
        table: i64,
        hour: i64,
    ) -> Result<HashMap<BlockRef, Bytes>, RequestFailure> {
        let read = "SELECT file_id, row_group, chunk, bits FROM bloom_chunks WHERE table_id = $1 AND hour = $2 ORDER BY file_id, row_group, chunk";
        let mut blooms: HashMap<BlockRef, Vec<u8>> = HashMap::new();
        for row in connection.query(read, params![table, hour]).await? {
            let block = block_of(&row, 0)?;
            let bits = unseal(col(&row, 3)?, || format!("bloom_chunks, block {block:?}"))?;
            blooms.entry(block).or_default().extend_from_slice(bits);
        }
        Ok(blooms.into_iter().map(|(block, bits)| (block, Bytes::from(bits))).collect())
    }
}
