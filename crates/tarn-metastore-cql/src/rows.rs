//! How does the metadata of blocks become rows?
//!
//! ```text
//! filter   [chunk 0][chunk 1] … [chunk n-1]     8,192 × 32 B
//! slot 0   chunks 0 … w-1     one row a block in the partition (table, hour, slot 0)       w = 1, 2, 4 or 8
//! slot 1   chunks w … 2w-1    one row a block in the partition (table, hour, slot 1)
//! ```
//!
//! A search reads for each key one row of each block, so a narrow row is less to read; a block is as many rows to write
//! as it has slots with a bit set, so a wide row is less to write. The width is that of the hour, and its first filter
//! chooses: the narrowest with which it takes no more than 1,024 rows. Rows without a bit are not written: a block that
//! has a filter and no such row does not have the key.

use std::collections::HashMap;

use tarn_metastore::{BlockMetadata, BlockRef, Bloom, CHUNK_BYTES, Result};
use tarn_types::TableId;

use crate::CqlInner;
use crate::layout::RowLayout;
use crate::remote::MAX_ROW_CHUNKS;
use crate::requests::{Request, done};
use crate::session::{Cas, Statement};
use crate::tables::COLUMN_LIST;
use crate::wire::{column_list, column_record, sealed};

/// A block's filter takes no more rows, if there is a width that makes it so.
const MAX_ROWS: usize = 1024;

/// Rows of one partition that go in one message: Cassandra takes 50 KiB by default, and does not count where all is one
/// partition.
const MESSAGE_BYTES: usize = 32 << 10;

/// Rows of several partitions that go in one message: beyond ten partitions or 5 KiB Cassandra warns its operator.
const MIXED_PARTITIONS: usize = 10;
const MIXED_BYTES: usize = 4 << 10;

/// What the server keeps beside the bits of a row, about: file, row group, lengths, time.
pub(crate) const ROW_OVERHEAD: u64 = 24;

/// The bytes of the key's last part (slot or column), file, row group, and the row itself.
type MetadataRow = (i32, i64, i32, Vec<u8>);

/// The narrowest row, in chunks, that keeps the rows of this filter few.
pub(crate) fn row_chunks(bloom: &Bloom) -> u32 {
    let mut n_chunks = 1;
    while n_chunks < MAX_ROW_CHUNKS && rows_of(bloom, n_chunks).count() > MAX_ROWS {
        n_chunks *= 2;
    }
    n_chunks
}

/// Those with a bit set, with their slots.
fn rows_of(bloom: &Bloom, row_chunks: u32) -> impl Iterator<Item = (i32, &[u8])> {
    let rows = bloom.bits().chunks(row_chunks as usize * CHUNK_BYTES);
    (0..).zip(rows).filter(|(_, bits)| bits.iter().any(|byte| *byte != 0))
}

impl CqlInner {
    /// All metadata of these blocks of one hour. Nothing of it counts before the commit does.
    pub async fn write_block_metadata(
        &self,
        table: TableId,
        hour: i64,
        layouts: &[RowLayout],
        blocks: &[(BlockRef, &BlockMetadata)],
    ) -> Result<()> {
        let blooms: Vec<_> = blocks.iter().filter_map(|(block, of)| Some((*block, of.bloom.as_ref()?))).collect();
        for rows in layouts {
            self.write_blooms(table, hour, *rows, &blooms).await?;
        }
        let records = blocks.iter().filter(|(_, of)| !of.columns.is_empty()).flat_map(|(block, of)| {
            let key = (block.file.0 as i64, block.row_group as i32);
            let list = (COLUMN_LIST, key.0, key.1, column_list(of.columns.iter().map(|(stats, _)| stats.column)));
            let of_column = move |column: &(tarn_metastore::ColumnStats, _)| {
                (column.0.column.0 as i32, key.0, key.1, column_record(column))
            };
            std::iter::once(list).chain(of.columns.iter().map(of_column))
        });
        let mut records: Vec<MetadataRow> = records.collect();
        records.sort_unstable_by_key(|(column, file, row_group, _)| (*column, *file, *row_group));
        self.write_rows(&self.statements.column_put, table, hour, records).await
    }

    /// Writes filters in one of the two layouts, many rows in a message. Nothing refers to them before the commit is
    /// in.
    pub async fn write_blooms(
        &self,
        table: TableId,
        hour: i64,
        rows: RowLayout,
        blooms: &[(BlockRef, &Bloom)],
    ) -> Result<()> {
        let Some((_, first)) = blooms.first() else { return Ok(()) };
        let (statement, width) = match rows {
            RowLayout::Fixed => (&self.statements.chunk_1_put, 1),
            RowLayout::Wide => (&self.statements.chunk_put, self.choose_width(table, hour, first).await?),
        };
        let of_blocks = blooms.iter().flat_map(|(block, bloom)| {
            let key = (block.file.0 as i64, block.row_group as i32);
            rows_of(bloom, width).map(move |(slot, bits)| (slot, key.0, key.1, sealed(bits.to_vec())))
        });
        let mut of_blocks: Vec<MetadataRow> = of_blocks.collect();
        of_blocks.sort_unstable_by_key(|(slot, file, row_group, _)| (*slot, *file, *row_group));
        self.write_rows(statement, table, hour, of_blocks).await
    }

    /// Sorted by partition.
    async fn write_rows(&self, statement: &Statement, table: TableId, hour: i64, rows: Vec<MetadataRow>) -> Result<()> {
        let id = table.0 as i32;
        let mut requests: Vec<Request<'_, ()>> = Vec::new();
        for rows in messages(rows) {
            let rows: Vec<_> = rows
                .into_iter()
                .map(|(part, file, row_group, bytes)| (id, hour, part, file, row_group, bytes))
                .collect();
            requests.push(Box::pin(self.store.write_rows(statement, rows)));
        }
        done(self.store.concurrency, requests).await
    }

    /// The width of an hour, in chunks; chosen now if nobody has.
    async fn choose_width(&self, table: TableId, hour: i64, bloom: &Bloom) -> Result<u32> {
        if let Some(width) = self.widths.lock().get(&(table, hour)) {
            return Ok(*width);
        }
        let wanted = self.row_chunks.unwrap_or_else(|| row_chunks(bloom));
        let bytes = (wanted * CHUNK_BYTES as u32) as i32;
        let values = (bytes, table.0 as i32, hour);
        match self.store.compare_and_set(&self.statements.hour_width_put, values).await {
            Cas::Applied | Cas::Refused => {}
            Cas::Unsent(error) | Cas::Unknown(error) => return Err(self.store.unavailable(error)),
        }
        let here = (table.0 as i32, hour);
        let row: Option<(Option<i32>,)> = self.store.read_row(&self.statements.hour_width_seen, here).await?;
        self.learn_width(table, hour, row)?.ok_or_else(|| {
            self.store.damaged(format!("hour {hour} of table {table} in hours"), "its width was set and is not there")
        })
    }

    /// The width of an hour; `None`: it has no filters.
    pub async fn width(&self, table: TableId, hour: i64) -> Result<Option<u32>> {
        if let Some(width) = self.widths.lock().get(&(table, hour)) {
            return Ok(Some(*width));
        }
        let row = self.store.read_row(&self.statements.hour_width, (table.0 as i32, hour)).await?;
        self.learn_width(table, hour, row)
    }

    fn learn_width(&self, table: TableId, hour: i64, row: Option<(Option<i32>,)>) -> Result<Option<u32>> {
        let Some((Some(bytes),)) = row else { return Ok(None) };
        let width = u32::try_from(bytes).unwrap_or(0) / CHUNK_BYTES as u32;
        if !width.is_power_of_two() || width > MAX_ROW_CHUNKS {
            let what = format!("hour {hour} of table {table} in hours");
            return Err(self.store.damaged(what, format!("rows of {bytes} bytes")));
        }
        self.widths.lock().insert((table, hour), width);
        Ok(Some(width))
    }
}

/// Which rows go together.
fn messages(rows: Vec<MetadataRow>) -> Vec<Vec<MetadataRow>> {
    let mut of_part: HashMap<i32, usize> = HashMap::new();
    rows.iter().for_each(|row| *of_part.entry(row.0).or_default() += 1);
    let mut messages: Vec<Vec<MetadataRow>> = Vec::new();
    // The last message, if more may come: its bytes, and whether it is of one partition.
    let mut open: Option<(usize, bool)> = None;
    for row in rows {
        let is_alone = of_part[&row.0] == 1;
        let last = messages.last_mut().zip(open).filter(|(last, (n_bytes, is_one))| match (is_one, is_alone) {
            (true, false) => last[0].0 == row.0 && n_bytes + row.3.len() <= MESSAGE_BYTES,
            (false, true) => last.len() < MIXED_PARTITIONS && n_bytes + row.3.len() <= MIXED_BYTES,
            _ => false,
        });
        let n_bytes = row.3.len() + ROW_OVERHEAD as usize;
        match last {
            Some((last, (before, is_one))) => {
                last.push(row);
                open = Some((before + n_bytes, is_one));
            }
            None => {
                messages.push(vec![row]);
                open = Some((n_bytes, !is_alone));
            }
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use tarn_metastore::{BloomBuilder, token_hash};

    use super::*;

    fn bloom(n_chunks: u32, n_keys: u32) -> Bloom {
        let mut builder = BloomBuilder::new(n_chunks);
        (0..n_keys).for_each(|n| builder.insert(token_hash(&format!("key{n}"))));
        builder.finish()
    }

    #[test]
    fn full_filters_get_wide_rows_and_sparse_ones_narrow() {
        for (n_chunks, n_keys, width) in [
            (8192, 100_000, 8),
            (8192, 10, 1),
            (1024, 100_000, 1),
            (2048, 9_000, 2),
            (4096, 50_000, 4),
            (32_768, 300_000, 8),
        ] {
            assert_eq!(row_chunks(&bloom(n_chunks, n_keys)), width, "{n_chunks} chunks, {n_keys} keys");
        }
        let sparse = bloom(8192, 10);
        assert!(rows_of(&sparse, 8).all(|(_, bits)| bits.len() == 256) && rows_of(&sparse, 8).count() <= 10);
        let whole: Vec<u8> = rows_of(&bloom(64, 5_000), 4).flat_map(|(_, bits)| bits.to_vec()).collect();
        assert_eq!(whole, **bloom(64, 5_000).bits());
        assert_eq!(rows_of(&bloom(2, 100), 8).map(|(slot, bits)| (slot, bits.len())).collect::<Vec<_>>(), [(0, 64)]);
    }

    #[test]
    fn messages_stay_below_what_servers_complain_of() {
        let row = |part, file, n_bytes| (part, file, 0, vec![1; n_bytes]);
        let alone: Vec<_> = (0..100).map(|part| row(part, 1, 260)).collect();
        let of_alone = messages(alone);
        assert_eq!(of_alone.iter().map(Vec::len).sum::<usize>(), 100);
        assert!(of_alone.iter().all(|rows| rows.len() == 10), "ten partitions each");
        let large = messages((0..10).map(|part| row(part, 1, 3_000)).collect());
        assert!(large.iter().all(|rows| rows.len() == 1));
        let together = messages((0..2).flat_map(|part| (0..300).map(move |file| row(part, file, 260))).collect());
        assert!(together.iter().all(|rows| rows.iter().all(|of| of.0 == rows[0].0)), "one partition each");
        let n_bytes = |rows: &Vec<MetadataRow>| rows.iter().map(|row| row.3.len()).sum::<usize>();
        assert!(together.iter().all(|rows| n_bytes(rows) <= MESSAGE_BYTES) && together.len() < 8);
    }
}
