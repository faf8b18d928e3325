//! Which metadata of which blocks? Slabs of packs and whole records of loose blocks, read in one snapshot of the store,
//! put together column by column.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio_postgres::Row;

use tarn_metastore::backend::{Malformed, decode_slab};
use tarn_metastore::{
    BlockMetadata, BlockMetadataRequest, CHUNK_BYTES, ColumnChunk, ColumnMetadata, ColumnStats, Error, MetadataByColumn,
};
use tarn_types::{ColumnId, TableId};

use crate::PostgresInner;
use crate::bytes::{bloom_of, damaged, decode, decode_bloom, unseal};
use crate::directory::{BlockLocations, Directory, directory_steps};
use crate::pool::{Connection, FlightStatement, RequestFailure, ask, col, params};
use crate::refresh::SNAPSHOT;
use crate::search::{AskedLoose, AskedPack};

/// Packs whose slabs are read at once, when few columns are asked for.
const PACKS_AT_ONCE: usize = 8;
const FEW_COLUMNS: usize = 64;

/// Bytes of rows that are read at once for whole filters.
const WINDOW_BYTES: usize = 4 << 20;

/// A column's metadata in one block.
pub(crate) type ColumnMetadataRecord = (ColumnStats, ColumnChunk);

/// Block metadata as it is found, in any order.
#[derive(Default)]
pub(crate) struct MetadataParts {
    columns: BTreeMap<ColumnId, Vec<(u32, ColumnMetadataRecord)>>,
    blooms: BTreeMap<u32, Bytes>,
    /// From the server, for all of it.
    pub bytes_read: u64,
}

impl MetadataParts {
    /// The record of one column of the block at this position.
    pub fn add_column(&mut self, position: u32, record: ColumnMetadataRecord) {
        self.columns.entry(record.0.column).or_default().push((position, record));
    }

    /// The whole filter of the block at this position.
    pub fn add_bloom(&mut self, position: u32, bits: Bytes) {
        self.bytes_read += bits.len() as u64;
        self.blooms.insert(position, bits);
    }

    /// Puts columns in the order that was wanted, and blocks of each in theirs. Filters that are none are damage.
    pub fn finish(mut self, wanted: &BlockMetadataRequest) -> Result<MetadataByColumn, RequestFailure> {
        let mut block_metadata = MetadataByColumn { bytes_read: self.bytes_read, ..MetadataByColumn::default() };
        let ids: Vec<ColumnId> = match &wanted.columns {
            _ if !wanted.stats && !wanted.chunks => Vec::new(),
            Some(ids) => ids.clone(),
            None => self.columns.keys().copied().collect(),
        };
        for column in ids {
            let mut of_column = ColumnMetadata { column, ..ColumnMetadata::default() };
            let mut records = self.columns.remove(&column).unwrap_or_default();
            records.sort_unstable_by_key(|(position, _)| *position);
            for (position, (stats, chunk)) in records {
                of_column.blocks.push(position);
                of_column.stats.extend(wanted.stats.then_some(stats));
                of_column.chunks.extend(wanted.chunks.then_some(chunk));
            }
            block_metadata.columns.push(of_column);
        }
        for (position, bits) in self.blooms {
            block_metadata.blooms.push((position, bloom_of(bits, || format!("the filter of asked block {position}"))?));
        }
        Ok(block_metadata)
    }
}

impl PostgresInner {
    /// Reads in one snapshot of the database; asks once more when the store moved to another schema meanwhile.
    pub async fn block_metadata(
        &self,
        table: TableId,
        wanted: BlockMetadataRequest,
    ) -> Result<MetadataByColumn, RequestFailure> {
        for _ in 0..2 {
            let layout = *self.layout.lock();
            let gathered = if layout.reads_second {
                ask!(&self.pool, connection => self.block_metadata_second(&connection, table, &wanted))
            } else {
                ask!(&self.pool, connection => self.block_metadata_first(&connection, table, &wanted))
            };
            match gathered {
                Err(failure) if failure.is_undefined() => self.look_again().await?,
                Ok(gathered) => return gathered.finish(&wanted),
                Err(failure) => return Err(failure),
            }
        }
        Err(RequestFailure::Lost("the tables are being migrated".into()))
    }

    async fn block_metadata_second(
        &self,
        connection: &Connection<'_>,
        table: TableId,
        wanted: &BlockMetadataRequest,
    ) -> Result<MetadataParts, RequestFailure> {
        let mut steps = vec![FlightStatement::Plain(SNAPSHOT)];
        steps.extend(directory_steps(table, &wanted.hours));
        let answers = connection.flight(steps).await?;
        if answers[1].is_empty() {
            connection.plain("COMMIT").await?;
            return Err(Error::NoTableId { table }.into());
        }
        let directory = Directory::of(&answers[2..])?;
        let BlockLocations { packs, loose, .. } = self.find(connection, &directory, &wanted.hours).await?;
        let mut gathered = MetadataParts::default();
        if wanted.stats || wanted.chunks {
            read_loose_columns(connection, table, &loose, wanted, &mut gathered).await?;
            gathered = read_slabs(connection, &packs, wanted, gathered).await?;
        }
        if wanted.blooms {
            read_loose_blooms(connection, table, &loose, &mut gathered).await?;
            for pack in packs.iter().filter(|pack| pack.n_chunks > 0) {
                read_blooms(connection, pack, &mut gathered).await?;
            }
        }
        connection.plain("COMMIT").await?;
        Ok(gathered)
    }
}

/// `sql` asks for a loose block's column, and gets the blocks as `$2` to `$5`.
async fn read_loose(
    connection: &Connection<'_>,
    table: TableId,
    loose: &[AskedLoose],
    sql: &'static str,
) -> Result<Vec<Row>, RequestFailure> {
    if loose.is_empty() {
        return Ok(Vec::new());
    }
    let (mut hours, mut files, mut row_groups, mut places) = (vec![], vec![], vec![], vec![]);
    for (idx, of) in (0i64..).zip(loose) {
        hours.push(of.hour);
        files.push(of.block.file.0 as i64);
        row_groups.push(i64::from(of.block.row_group));
        places.push(idx);
    }
    connection.query(sql, params![i64::from(table.0), hours, files, row_groups, places]).await
}

async fn read_loose_columns(
    connection: &Connection<'_>,
    table: TableId,
    loose: &[AskedLoose],
    wanted: &BlockMetadataRequest,
    gathered: &mut MetadataParts,
) -> Result<(), RequestFailure> {
    let sql = "SELECT a.idx, l.columns FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[]) AS a (hour, file_id, row_group, idx)
        JOIN loose l ON l.table_id = $1 AND l.hour = a.hour AND l.file_id = a.file_id AND l.row_group = a.row_group";
    for row in read_loose(connection, table, loose, sql).await? {
        let of = &loose[col::<i64>(&row, 0)? as usize];
        let sealed: &[u8] = col(&row, 1)?;
        gathered.bytes_read += sealed.len() as u64;
        let block_metadata = columns_of(sealed, || format!("loose, columns of block {:?}", of.block))?;
        for record in block_metadata.columns {
            if wanted.columns.as_ref().is_none_or(|ids| ids.contains(&record.0.column)) {
                gathered.add_column(of.position, record);
            }
        }
    }
    Ok(())
}

async fn read_loose_blooms(
    connection: &Connection<'_>,
    table: TableId,
    loose: &[AskedLoose],
    gathered: &mut MetadataParts,
) -> Result<(), RequestFailure> {
    let sql = "SELECT a.idx, l.bloom FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[]) AS a (hour, file_id, row_group, idx)
        JOIN loose l ON l.table_id = $1 AND l.hour = a.hour AND l.file_id = a.file_id AND l.row_group = a.row_group
        WHERE l.n_chunks > 0";
    for row in read_loose(connection, table, loose, sql).await? {
        let of = &loose[col::<i64>(&row, 0)? as usize];
        let place = || format!("loose, filter of block {:?}", of.block);
        gathered.add_bloom(of.position, decode_bloom(col(&row, 1)?, of.n_chunks, place)?);
    }
    Ok(())
}

async fn read_slabs(
    connection: &Connection<'_>,
    packs: &[AskedPack],
    wanted: &BlockMetadataRequest,
    mut gathered: MetadataParts,
) -> Result<MetadataParts, RequestFailure> {
    let few = wanted.columns.as_ref().is_some_and(|ids| ids.len() <= FEW_COLUMNS);
    let ids: Option<Vec<i64>> = wanted.columns.as_ref().map(|ids| ids.iter().map(|id| i64::from(id.0)).collect());
    for packs in packs.chunks(if few { PACKS_AT_ONCE } else { 1 }) {
        let which: Vec<i64> = packs.iter().map(|pack| pack.pack).collect();
        let rows = match &ids {
            None => {
                let all = "SELECT pack_id, column_id, slab FROM pack_slabs WHERE pack_id = ANY($1)";
                connection.query(all, params![which]).await?
            }
            Some(ids) => {
                let some = "SELECT s.pack_id, s.column_id, s.slab FROM unnest($1::int8[]) AS p (pack_id) CROSS JOIN unnest($2::int8[]) AS c (column_id)
                    JOIN pack_slabs s ON s.pack_id = p.pack_id AND s.column_id = c.column_id";
                connection.query(some, params![which, ids.clone()]).await?
            }
        };
        // Records are decoded by the hundred thousand.
        let packs = packs.to_vec();
        let decoding = tokio::task::spawn_blocking(move || {
            for row in &rows {
                add_slab(&packs, row, &mut gathered)?;
            }
            Ok::<_, RequestFailure>(gathered)
        });
        gathered = decoding.await.map_err(|e| RequestFailure::Lost(Box::new(e)))??;
    }
    Ok(gathered)
}

fn add_slab(packs: &[AskedPack], row: &Row, gathered: &mut MetadataParts) -> Result<(), RequestFailure> {
    let (id, column): (i64, i64) = (col(row, 0)?, col(row, 1)?);
    let Some(pack) = packs.iter().find(|pack| pack.pack == id) else { return Ok(()) };
    let sealed: &[u8] = col(row, 2)?;
    gathered.bytes_read += sealed.len() as u64;
    let of_slot = |slot| pack.places.binary_search_by_key(&slot, |(_, slot)| *slot).map(|at| pack.places[at].0);
    for (slot, record) in slab_of(sealed, id, column, pack.n_slots, |slot| of_slot(slot).is_ok())? {
        if let Ok(position) = of_slot(slot) {
            gathered.add_column(position, record);
        }
    }
    Ok(())
}

/// The records of a stored slab, of the slots that are wanted.
pub(crate) fn slab_of(
    sealed: &[u8],
    pack: i64,
    column: i64,
    n_slots: usize,
    wanted: impl Fn(u32) -> bool,
) -> Result<Vec<(u32, ColumnMetadataRecord)>, RequestFailure> {
    let place = || format!("pack_slabs, pack {pack} column {column}");
    let bytes = unseal(sealed, place)?;
    decode_slab(bytes, n_slots as u32, wanted).map_err(|Malformed(reason)| damaged(place(), reason))
}

/// All rows of the pack, some at a time.
async fn read_blooms(
    connection: &Connection<'_>,
    pack: &AskedPack,
    gathered: &mut MetadataParts,
) -> Result<(), RequestFailure> {
    let mut bits: Vec<Vec<u8>> =
        pack.places.iter().map(|_| Vec::with_capacity(pack.n_chunks as usize * CHUNK_BYTES)).collect();
    let per_window = (WINDOW_BYTES / (pack.n_slots * CHUNK_BYTES).max(1)).max(1) as u32;
    for first in (0..pack.n_chunks).step_by(per_window as usize) {
        let n = per_window.min(pack.n_chunks - first);
        for row in read_rows(connection, pack.pack, pack.n_slots, first, n).await? {
            for (bits, (_, slot)) in bits.iter_mut().zip(&pack.places) {
                bits.extend_from_slice(&row[*slot as usize * CHUNK_BYTES..][..CHUNK_BYTES]);
            }
        }
    }
    for ((position, _), bits) in pack.places.iter().zip(bits) {
        gathered.add_bloom(*position, Bytes::from(bits));
    }
    Ok(())
}

/// Rows `first ..` of a pack, without their checksums.
pub(crate) async fn read_rows(
    connection: &Connection<'_>,
    pack: i64,
    n_slots: usize,
    first: u32,
    n: u32,
) -> Result<Vec<Vec<u8>>, RequestFailure> {
    let read = "SELECT chunk, bits FROM pack_rows WHERE pack_id = $1 AND chunk >= $2 AND chunk < $3 ORDER BY chunk";
    let rows = connection.query(read, params![pack, first as i32, (first + n) as i32]).await?;
    let mut bits = Vec::with_capacity(rows.len());
    for (chunk, row) in (first as i32..).zip(&rows) {
        let place = || format!("pack_rows, pack {pack} chunk {chunk}");
        let row_bits = unseal(col(row, 1)?, place)?;
        if col::<i32>(row, 0)? != chunk || row_bits.len() != n_slots * CHUNK_BYTES {
            return Err(damaged(place(), "the row is missing, or not of this pack"));
        }
        bits.push(row_bits.to_vec());
    }
    if bits.len() != n as usize {
        return Err(damaged(
            format!("pack_rows, pack {pack}"),
            format!("{} rows of {n} from chunk {first}", bits.len()),
        ));
    }
    Ok(bits)
}

/// Columns of `write::encode_columns`.
pub(crate) fn columns_of(sealed: &[u8], place: impl Fn() -> String) -> Result<BlockMetadata, RequestFailure> {
    decode(sealed, place, |reader| reader.block_metadata())
}
