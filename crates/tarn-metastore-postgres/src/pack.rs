//! How does a pack come to be, from loose blocks or from packs?
//!
//! As on the disk of the embedded backend (docs/formats/pack.md), with the database for a file: a row of filters is a
//! row of `pack_rows`, a slab one of `pack_slabs`. Inside a transaction of the caller; rows go over a window at a time,
//! so memory stays small.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tarn_metastore::backend::encode_slab;
use tarn_metastore::{BlockMetadata, BlockRef, CHUNK_BYTES};
use tarn_types::{ColumnId, TableId};

use crate::block_metadata::{ColumnMetadataRecord, read_rows, slab_of};
use crate::bytes::{encode_slots, seal};
use crate::pool::{Connection, FlightStatement, RequestFailure, col, params};

/// More blocks than this are kept in several packs: a row stays at 2 MiB.
pub(crate) const MAX_SLOTS: usize = 65_536;

/// Packs with more bytes of filters are not made of smaller ones: a pack is one transaction. 4,096 full filters.
const MAX_MERGED_BYTES: usize = 1 << 30;

/// Rows of filters that are put together at once; columns likewise.
const WINDOW_BYTES: usize = 1 << 20;
const WINDOW_COLUMNS: usize = 64;

/// Rows that one statement deletes.
const DELETED_BYTES: usize = 64 << 20;

/// Blocks of a pack that is made of others.
pub(crate) fn max_merged_slots(n_chunks: u32) -> usize {
    MAX_SLOTS.min(MAX_MERGED_BYTES / (n_chunks.max(1) as usize * CHUNK_BYTES))
}

/// Where the block metadata of a new pack comes from. All blocks have filters of the same number of chunks.
pub(crate) enum PackInput {
    Loose(Vec<(BlockRef, BlockMetadata)>),
    Packed { pack: i64, slots: Arc<Vec<BlockRef>> },
}

impl PackInput {
    fn blocks(&self) -> Box<dyn Iterator<Item = BlockRef> + Send + '_> {
        match self {
            PackInput::Loose(blocks) => Box::new(blocks.iter().map(|(block, _)| *block)),
            PackInput::Packed { slots, .. } => Box::new(slots.iter().copied()),
        }
    }
}

/// A block of the new pack, and where it comes from: source and slot.
struct BlockSource {
    block: BlockRef,
    source: usize,
    slot: usize,
}

/// Writes a pack of those blocks that are kept; of a block in several sources the first counts. Answers the bytes
/// written, and whether there is a pack at all.
pub(crate) async fn write(
    connection: &Connection<'_>,
    table: TableId,
    hour: i64,
    n_chunks: u32,
    sources: &[PackInput],
    is_kept: impl Fn(BlockRef) -> bool,
) -> Result<Option<u64>, RequestFailure> {
    let mut from: Vec<BlockSource> = Vec::new();
    for (source, of) in sources.iter().enumerate() {
        let blocks = of.blocks().enumerate().filter(|(_, block)| is_kept(*block));
        from.extend(blocks.map(|(slot, block)| BlockSource { block, source, slot }));
    }
    from.sort_by_key(|from| (from.block, from.source));
    from.dedup_by_key(|from| from.block);
    assert!(from.len() <= MAX_SLOTS, "{} blocks for one pack", from.len());
    if from.is_empty() {
        return Ok(None);
    }
    let slots: Vec<BlockRef> = from.iter().map(|from| from.block).collect();
    let insert = "INSERT INTO packs (table_id, hour, n_slots, n_chunks, slots, column_bytes) VALUES ($1, $2, $3, $4, $5, 0) RETURNING pack_id";
    let row = params![i64::from(table.0), hour, slots.len() as i64, n_chunks as i32, encode_slots(&slots)];
    let pack: i64 = col(&connection.query(insert, row).await?[0], 0)?;
    let bloom_bytes = write_rows(connection, pack, n_chunks, sources, &from).await?;
    let (slab_bytes, column_bytes) = write_slabs(connection, pack, sources, &from).await?;
    let update = "UPDATE packs SET column_bytes = $2 WHERE pack_id = $1";
    connection.query(update, params![pack, column_bytes as i64]).await?;
    Ok(Some(bloom_bytes + slab_bytes))
}

async fn write_rows(
    connection: &Connection<'_>,
    pack: i64,
    n_chunks: u32,
    sources: &[PackInput],
    from: &[BlockSource],
) -> Result<u64, RequestFailure> {
    let widest = sources.iter().map(|source| source.blocks().count()).max().unwrap_or(0).max(from.len());
    let per_window = (WINDOW_BYTES / (widest * CHUNK_BYTES)).max(1) as u32;
    let mut written = 0;
    for first in (0..n_chunks).step_by(per_window as usize) {
        let n = per_window.min(n_chunks - first);
        let mut windows: Vec<Vec<Vec<u8>>> = Vec::with_capacity(sources.len());
        for source in sources {
            windows.push(match source {
                PackInput::Loose(_) => Vec::new(),
                PackInput::Packed { pack, slots } => read_rows(connection, *pack, slots.len(), first, n).await?,
            });
        }
        let mut rows: Vec<Vec<u8>> = Vec::with_capacity(n as usize);
        for chunk in 0..n {
            let mut row = Vec::with_capacity(from.len() * CHUNK_BYTES + 4);
            for BlockSource { source, slot, .. } in from {
                match &sources[*source] {
                    PackInput::Loose(blocks) => {
                        let bloom = blocks[*slot].1.bloom.as_ref();
                        row.extend_from_slice(bloom.expect("all of the pack have filters").chunk(first + chunk));
                    }
                    PackInput::Packed { .. } => {
                        row.extend_from_slice(&windows[*source][chunk as usize][slot * CHUNK_BYTES..][..CHUNK_BYTES]);
                    }
                }
            }
            rows.push(seal(row));
        }
        written += rows.iter().map(|row| row.len() as u64).sum::<u64>();
        let chunks: Vec<i32> = (first..first + n).map(|chunk| chunk as i32).collect();
        let insert = "INSERT INTO pack_rows (pack_id, chunk, bits) SELECT $1, * FROM unnest($2::int4[], $3::bytea[])";
        connection.query(insert, params![pack, chunks, rows]).await?;
    }
    Ok(written)
}

/// Answers bytes written, and those of them that are records.
async fn write_slabs(
    connection: &Connection<'_>,
    pack: i64,
    sources: &[PackInput],
    from: &[BlockSource],
) -> Result<(u64, u64), RequestFailure> {
    let packs: Vec<i64> = sources
        .iter()
        .filter_map(|of| if let PackInput::Packed { pack, .. } = of { Some(*pack) } else { None })
        .collect();
    let mut ids: BTreeSet<i64> = BTreeSet::new();
    let list = "SELECT DISTINCT column_id FROM pack_slabs WHERE pack_id = ANY($1)";
    for row in connection.query(list, params![packs.clone()]).await? {
        ids.insert(col(&row, 0)?);
    }
    for source in sources {
        if let PackInput::Loose(blocks) = source {
            ids.extend(blocks.iter().flat_map(|(_, of)| &of.columns).map(|(stats, _)| i64::from(stats.column.0)));
        }
    }
    let ids: Vec<i64> = ids.into_iter().collect();
    let (mut slab_bytes, mut record_bytes) = (0, 0);
    for ids in ids.chunks(WINDOW_COLUMNS) {
        let mut packed: HashMap<(i64, i64), HashMap<u32, ColumnMetadataRecord>> = HashMap::new();
        let read = "SELECT s.pack_id, s.column_id, s.slab FROM unnest($1::int8[]) AS p (pack_id) CROSS JOIN unnest($2::int8[]) AS c (column_id)
            JOIN pack_slabs s ON s.pack_id = p.pack_id AND s.column_id = c.column_id";
        for row in connection.query(read, params![packs.clone(), ids.to_vec()]).await? {
            let (of, column): (i64, i64) = (col(&row, 0)?, col(&row, 1)?);
            let n_slots = sources.iter().find_map(|source| match source {
                PackInput::Packed { pack, slots } if *pack == of => Some(slots.len()),
                _ => None,
            });
            let records = slab_of(col(&row, 2)?, of, column, n_slots.unwrap_or(0), |_| true)?;
            packed.insert((of, column), records.into_iter().collect());
        }
        let (mut columns, mut slabs) = (Vec::new(), Vec::new());
        for id in ids {
            let record = |of: &BlockSource| match &sources[of.source] {
                PackInput::Loose(blocks) => blocks[of.slot].1.column(ColumnId(*id as u32)),
                PackInput::Packed { pack, .. } => packed.get(&(*pack, *id))?.get(&(of.slot as u32)),
            };
            let records: Vec<(u32, &ColumnMetadataRecord)> =
                (0..).zip(from).filter_map(|(slot, of)| Some((slot, record(of)?))).collect();
            if !records.is_empty() {
                let (slab, n_bytes) = encode_slab(from.len() as u32, &records);
                record_bytes += n_bytes;
                columns.push(*id);
                slabs.push(seal(slab));
            }
        }
        slab_bytes += slabs.iter().map(|slab| slab.len() as u64).sum::<u64>();
        let insert =
            "INSERT INTO pack_slabs (pack_id, column_id, slab) SELECT $1, * FROM unnest($2::int8[], $3::bytea[])";
        connection.query(insert, params![pack, columns, slabs]).await?;
    }
    Ok((slab_bytes, record_bytes))
}

/// Takes packs away, some rows at a time: no statement may take longer than others wait.
pub(crate) async fn delete(connection: &Connection<'_>, packs: &[i64]) -> Result<(), RequestFailure> {
    let sizes = "SELECT pack_id, n_slots, n_chunks FROM packs WHERE pack_id = ANY($1)";
    for row in connection.query(sizes, params![packs.to_vec()]).await? {
        let (pack, n_slots, n_chunks): (i64, i64, i32) = (col(&row, 0)?, col(&row, 1)?, col(&row, 2)?);
        let n_rows = (DELETED_BYTES / (n_slots.max(1) as usize * CHUNK_BYTES)).max(1);
        for first in (0..n_chunks).step_by(n_rows) {
            let some = "DELETE FROM pack_rows WHERE pack_id = $1 AND chunk >= $2 AND chunk < $3";
            connection.query(some, params![pack, first, first.saturating_add(n_rows as i32)]).await?;
        }
    }
    let of_packs = |sql| FlightStatement::Query(sql, params![packs.to_vec()]);
    let rest = vec![
        of_packs("DELETE FROM pack_slabs WHERE pack_id = ANY($1)"),
        of_packs("DELETE FROM packs WHERE pack_id = ANY($1)"),
    ];
    connection.flight(rest).await.map(drop)
}
