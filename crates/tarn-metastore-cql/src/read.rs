//! Which blocks can hold these keys, and what is kept of these blocks?
//!
//! Everything that one call needs is asked for at once, `concurrency` requests at a time; the bits come here to be
//! tested. Beside them comes the head of the table: when it knows a newer layout, or the base moved while rows were
//! missing, all is asked again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use futures::future;

use tarn_metastore::backend::has_bits;
use tarn_metastore::{
    BlockMetadataRequest, BlockRef, Bloom, CHUNK_BYTES, ColumnChunk, ColumnMetadata, ColumnStats, Error, Hash,
    HourBlocks, MetadataByColumn, Probe, ProbeResult, Result,
};
use tarn_types::{ColumnId, FileId, TableId};

use crate::CqlInner;
use crate::layout::{Layout, RowLayout};
use crate::requests::{Request, answers};
use crate::session::Statement;
use crate::tables::COLUMN_LIST;
use crate::wire::{BlockMeta, decode_column, decode_column_list, unsealed};

/// How often an answer is begun anew because the store changed under it.
const TRIES: usize = 4;

/// Rows are asked for by name when no more than one in so many of a partition is wanted, and so many at once.
const SPARSE: u64 = 16;
const NAMED: usize = 100;

/// A block that is asked for and has metadata.
#[derive(Debug, Clone, Copy)]
struct RequestedBlock {
    /// Position among all asked blocks.
    at: u32,
    block: BlockRef,
    meta: BlockMeta,
}

struct AskedHour {
    hour: i64,
    /// Ascending by block.
    blocks: Vec<RequestedBlock>,
    /// How many blocks with metadata the hour has.
    n_there: u64,
}

/// What is asked for, as the cache knows it.
struct ProbePlan {
    n_blocks: u32,
    hours: Vec<AskedHour>,
    layout: Layout,
    oldest_seq: i64,
}

/// What a slot says of the keys that fall into it.
#[derive(Default)]
struct SlotMatches {
    /// Key, and position of a block that may have it.
    holds: Vec<(usize, u32)>,
    bytes_read: u64,
    /// A block had no row: all its bits there are zero, or it is no more.
    is_missing: bool,
}

/// A key that falls into a slot.
struct Test {
    /// In filters of this size.
    n_chunks: u32,
    key: usize,
    /// The first byte of its chunk in the row.
    at: usize,
}

type ColumnMetadataRecord = (ColumnStats, ColumnChunk);

/// A column's records by position, and their bytes.
type ColumnRecords = (ColumnId, Vec<(u32, ColumnMetadataRecord)>, u64);

/// By position.
type SlotRows = Vec<(u32, Vec<u8>)>;

/// Why an answer is not good.
enum ReadFailure {
    Yes,
    Failed(Error),
}

impl From<Error> for ReadFailure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl CqlInner {
    /// Runs `read` on what is known of the blocks, until nothing that it rests on changed meanwhile.
    async fn answered<T, F>(&self, table: TableId, hours: &[HourBlocks], read: impl Fn(ProbePlan) -> F) -> Result<T>
    where
        F: Future<Output = Result<(T, bool)>>,
    {
        for _ in 0..TRIES {
            let located = self.locate(table, hours).await?;
            let (layout, oldest_seq) = (located.layout, located.oldest_seq);
            match self.checked(table, layout, oldest_seq, read(located)).await {
                Ok(answer) => return Ok(answer),
                Err(ReadFailure::Failed(error)) => return Err(error),
                Err(ReadFailure::Yes) => {}
            }
            self.refresh_catalog().await?;
            self.refresh(table).await?;
        }
        Err(self.store.unavailable("it changed under every answer"))
    }

    async fn checked<T>(
        &self,
        table: TableId,
        layout: Layout,
        oldest_seq: i64,
        read: impl Future<Output = Result<(T, bool)>>,
    ) -> Result<T, ReadFailure> {
        let (head, answer) = future::join(self.head_seen(table), read).await;
        let head = head?.filter(|head| !head.dropped).ok_or(Error::NoTableId { table })?;
        if head.epoch > layout.epoch {
            return Err(ReadFailure::Yes);
        }
        match answer {
            Ok((answer, false)) => Ok(answer),
            // Something that should be there was not: it may have been cleared away since.
            Ok((answer, true)) => match self.head_seen(table).await? {
                Some(now) if now.oldest_seq > oldest_seq || now.dropped => Err(ReadFailure::Yes),
                _ => Ok(answer),
            },
            Err(error) => match self.head_seen(table).await? {
                Some(now) if now.oldest_seq > oldest_seq || now.epoch > layout.epoch => Err(ReadFailure::Yes),
                _ => Err(ReadFailure::Failed(error)),
            },
        }
    }

    /// Looks the blocks up; those that are not known are looked for in the store once.
    async fn locate(&self, table: TableId, hours: &[HourBlocks]) -> Result<ProbePlan> {
        let known = |located: &Option<(ProbePlan, bool)>| located.as_ref().is_some_and(|(_, all)| *all);
        let mut located = self.look_up(table, hours);
        if !known(&located) {
            self.refresh(table).await?;
            located = self.look_up(table, hours);
        }
        located.map(|(located, _)| located).ok_or(Error::NoTableId { table })
    }

    /// `None`: the table is not loaded. False: there are files among them that no kept version has.
    fn look_up(&self, table: TableId, hours: &[HourBlocks]) -> Option<(ProbePlan, bool)> {
        let cache = self.cache.read();
        let loaded = cache.loaded.get(&table)?;
        let of_table = cache.state.table(table).ok()?;
        let (mut n_blocks, mut all) = (0, true);
        let mut asked = Vec::with_capacity(hours.len());
        for HourBlocks { hour, blocks } in hours {
            let mut found = Vec::with_capacity(blocks.len());
            for block in blocks {
                match loaded.block(*hour, *block) {
                    Some(meta) => found.push(RequestedBlock { at: n_blocks, block: *block, meta: *meta }),
                    None => all &= of_table.latest().file(block.file).is_some(),
                }
                n_blocks += 1;
            }
            let n_there = loaded.hours.get(hour).copied().unwrap_or(0);
            if !found.is_empty() {
                asked.push(AskedHour { hour: *hour, blocks: found, n_there });
            }
        }
        let (layout, oldest_seq) = (cache.catalog.layout, loaded.oldest_seq);
        Some((ProbePlan { n_blocks, hours: asked, layout, oldest_seq }, all))
    }

    /// Reads the rows of each key and hour, `concurrency` requests at once, and tests their bits here.
    pub async fn probe(&self, table: TableId, probe: Probe) -> Result<ProbeResult> {
        let keys: BTreeSet<Hash> = probe.clauses.iter().flatten().flatten().copied().collect();
        let keys: Vec<Hash> = keys.into_iter().collect();
        let (keys, clauses) = (&keys, &probe.clauses);
        self.answered(table, &probe.hours, |located| self.probe_located(table, located, keys, clauses)).await
    }

    async fn probe_located(
        &self,
        table: TableId,
        mut located: ProbePlan,
        keys: &[Hash],
        clauses: &[Vec<Vec<Hash>>],
    ) -> Result<(ProbeResult, bool)> {
        for of_hour in &mut located.hours {
            of_hour.blocks.retain(|asked| asked.meta.n_chunks > 0);
        }
        let reads = located.layout.reads();
        let hours: Vec<&AskedHour> = located.hours.iter().filter(|of_hour| !of_hour.blocks.is_empty()).collect();
        let mut requests: Vec<Request<'_, u32>> = Vec::new();
        for of_hour in &hours {
            requests.push(Box::pin(self.width_of(table, of_hour.hour, reads)));
        }
        let widths = answers(self.store.concurrency, requests).await?;

        let mut wanted: BTreeMap<(usize, i32), Vec<Test>> = BTreeMap::new();
        for (which, (of_hour, width)) in hours.iter().zip(widths).enumerate() {
            let sizes: BTreeSet<u32> = of_hour.blocks.iter().map(|asked| asked.meta.n_chunks).collect();
            for n_chunks in sizes {
                for (key, hash) in keys.iter().enumerate() {
                    let chunk = hash.chunk(n_chunks);
                    let of_slot = wanted.entry((which, (chunk / width) as i32)).or_default();
                    of_slot.push(Test { n_chunks, key, at: (chunk % width) as usize * CHUNK_BYTES });
                }
            }
        }
        let masks: Vec<[u32; 8]> = keys.iter().map(|key| key.mask()).collect();
        let mut requests: Vec<Request<'_, SlotMatches>> = Vec::with_capacity(wanted.len());
        for ((which, slot), tests) in &wanted {
            requests.push(Box::pin(self.test_slot(table, hours[*which], *slot, reads, tests, &masks)));
        }
        let mut holds = vec![vec![0u64; located.n_blocks.div_ceil(64) as usize]; keys.len()];
        let (mut probed, mut is_missing) = (ProbeResult::default(), false);
        for tested in answers(self.store.concurrency, requests).await? {
            tested.holds.into_iter().for_each(|(key, at)| holds[key][at as usize / 64] |= 1 << (at % 64));
            probed.bytes_read += tested.bytes_read;
            is_missing |= tested.is_missing;
        }
        let mut indexed = vec![0u64; located.n_blocks.div_ceil(64) as usize];
        for asked in located.hours.iter().flat_map(|of_hour| &of_hour.blocks) {
            indexed[asked.at as usize / 64] |= 1 << (asked.at % 64);
        }
        let key_of = |hash: &Hash| keys.binary_search(hash).expect("the keys are those of the clauses");
        for (word, indexed) in indexed.iter().enumerate() {
            let all_of = |way: &Vec<Hash>| way.iter().fold(u64::MAX, |bits, hash| bits & holds[key_of(hash)][word]);
            let any_of = |ways: &Vec<Vec<Hash>>| ways.iter().fold(0, |bits, way| bits | all_of(way));
            let kept = clauses.iter().fold(u64::MAX, |bits, ways| bits & any_of(ways)) | !indexed;
            let here = (word as u32 * 64..located.n_blocks).take(64);
            probed.kept.extend(here.filter(|at| kept & 1 << (at % 64) != 0));
        }
        let n_indexed: u64 = indexed.iter().map(|word| u64::from(word.count_ones())).sum();
        probed.without_bloom = u64::from(located.n_blocks) - n_indexed;
        Ok((probed, is_missing))
    }

    /// In chunks.
    async fn width_of(&self, table: TableId, hour: i64, rows: RowLayout) -> Result<u32> {
        match rows {
            RowLayout::Fixed => Ok(1),
            RowLayout::Wide => Ok(self.width(table, hour).await?.unwrap_or(1)),
        }
    }

    fn chunk_statements(&self, rows: RowLayout) -> (&Statement, &Statement) {
        match rows {
            RowLayout::Fixed => (&self.statements.chunks_1, &self.statements.chunks_1_some),
            RowLayout::Wide => (&self.statements.chunks, &self.statements.chunks_some),
        }
    }

    async fn test_slot(
        &self,
        table: TableId,
        of_hour: &AskedHour,
        slot: i32,
        rows: RowLayout,
        tests: &[Test],
        masks: &[[u32; 8]],
    ) -> Result<SlotMatches> {
        let mut tested = SlotMatches::default();
        let mut n_found = 0;
        self.read_part(table, of_hour, slot, self.chunk_statements(rows), |asked, sealed| {
            let what = || format!("block {:?}, slot {slot}, hour {} of table {table}", asked.block, of_hour.hour);
            let bits = unsealed(sealed).map_err(|e| self.store.damaged(what(), e.0))?;
            tested.bytes_read += bits.len() as u64;
            n_found += 1;
            for test in tests.iter().filter(|test| test.n_chunks == asked.meta.n_chunks) {
                let Some(chunk) = bits.get(test.at..test.at + CHUNK_BYTES) else {
                    return Err(self.store.damaged(what(), "the row is too short"));
                };
                if has_bits(chunk, &masks[test.key]) {
                    tested.holds.push((test.key, asked.at));
                }
            }
            Ok(())
        })
        .await?;
        let sizes: BTreeSet<u32> = tests.iter().map(|test| test.n_chunks).collect();
        let n_wanted = of_hour.blocks.iter().filter(|asked| sizes.contains(&asked.meta.n_chunks)).count();
        tested.is_missing = n_found < n_wanted;
        Ok(tested)
    }

    /// Rows of one partition (an hour's slot, or column) that belong to asked blocks.
    async fn read_part(
        &self,
        table: TableId,
        of_hour: &AskedHour,
        part: i32,
        (whole, some): (&Statement, &Statement),
        mut row: impl FnMut(&RequestedBlock, &[u8]) -> Result<()> + Send,
    ) -> Result<()> {
        let mut page = |rows: &scylla::response::query_result::QueryRowsResult| {
            let failed = |error: &dyn std::fmt::Display| self.store.unavailable(error.to_string());
            let rows = rows.rows::<(i64, i32, &[u8])>().map_err(|error| failed(&error))?;
            let mut at = 0;
            for next in rows {
                let (file, row_group, bytes) = next.map_err(|error| failed(&error))?;
                let key = (file as u64, row_group as u32);
                // Both ascend.
                let of = |asked: &RequestedBlock| (asked.block.file.0, asked.block.row_group);
                while of_hour.blocks.get(at).is_some_and(|asked| of(asked) < key) {
                    at += 1;
                }
                if let Some(asked) = of_hour.blocks.get(at).filter(|asked| of(asked) == key) {
                    row(asked, bytes)?;
                }
            }
            Ok(())
        };
        let id = table.0 as i32;
        if of_hour.blocks.len() as u64 * SPARSE > of_hour.n_there {
            return self.store.read(whole, (id, of_hour.hour, part), &mut page).await;
        }
        for named in of_hour.blocks.chunks(NAMED) {
            let names: Vec<(i64, i32)> =
                named.iter().map(|asked| (asked.block.file.0 as i64, asked.block.row_group as i32)).collect();
            self.store.read(some, (id, of_hour.hour, part, names), &mut page).await?;
        }
        Ok(())
    }

    /// Reads a partition for each hour and column that is wanted.
    pub async fn block_metadata(&self, table: TableId, wanted: BlockMetadataRequest) -> Result<MetadataByColumn> {
        let wanted = &wanted;
        self.answered(table, &wanted.hours, |located| self.block_metadata_located(table, located, wanted)).await
    }

    async fn block_metadata_located(
        &self,
        table: TableId,
        located: ProbePlan,
        wanted: &BlockMetadataRequest,
    ) -> Result<(MetadataByColumn, bool)> {
        let mut block_metadata = MetadataByColumn::default();
        if wanted.blooms {
            for of_hour in &located.hours {
                let blooms = self.read_blooms(table, of_hour, located.layout.reads()).await?;
                block_metadata.bytes_read += blooms.iter().map(|(_, bloom)| bloom.bits().len() as u64).sum::<u64>();
                block_metadata.blooms.extend(blooms);
            }
        }
        if !wanted.stats && !wanted.chunks {
            return Ok((block_metadata, false));
        }
        let hours: Vec<AskedHour> = located
            .hours
            .into_iter()
            .map(|of_hour| AskedHour {
                blocks: of_hour.blocks.into_iter().filter(|asked| asked.meta.n_columns > 0).collect(),
                ..of_hour
            })
            .filter(|of_hour| !of_hour.blocks.is_empty())
            .collect();
        let columns = match &wanted.columns {
            Some(columns) => columns.clone(),
            None => self.columns_of(table, &hours).await?,
        };
        let distinct: BTreeSet<ColumnId> = columns.iter().copied().collect();
        let mut requests: Vec<Request<'_, ColumnRecords>> = Vec::new();
        for column in &distinct {
            for of_hour in &hours {
                requests.push(Box::pin(self.read_column(table, of_hour, *column)));
            }
        }
        let mut found: HashMap<ColumnId, Vec<(u32, ColumnMetadataRecord)>> = HashMap::new();
        for (column, records, bytes_read) in answers(self.store.concurrency, requests).await? {
            found.entry(column).or_default().extend(records);
            block_metadata.bytes_read += bytes_read;
        }
        let n_columns: u64 =
            hours.iter().flat_map(|of_hour| &of_hour.blocks).map(|of| u64::from(of.meta.n_columns)).sum();
        let n_found: u64 = found.values().map(|records| records.len() as u64).sum();
        found.values_mut().for_each(|records| records.sort_unstable_by_key(|(at, _)| *at));
        block_metadata.columns = columns
            .iter()
            .map(|column| {
                let records = found.get(column).map_or(&[][..], |records| &records[..]);
                ColumnMetadata {
                    column: *column,
                    blocks: records.iter().map(|(at, _)| *at).collect(),
                    stats: records.iter().filter(|_| wanted.stats).map(|(_, (stats, _))| stats.clone()).collect(),
                    chunks: records.iter().filter(|_| wanted.chunks).map(|(_, (_, chunk))| chunk.clone()).collect(),
                }
            })
            .filter(|column| wanted.columns.is_some() || !column.blocks.is_empty())
            .collect();
        // When all are wanted, it is known how many there are.
        let is_missing = wanted.columns.is_none() && n_found < n_columns;
        Ok((block_metadata, is_missing))
    }

    /// Answers the column, the records by position, and their bytes.
    async fn read_column(&self, table: TableId, of_hour: &AskedHour, column: ColumnId) -> Result<ColumnRecords> {
        let mut records = Vec::new();
        let mut bytes_read = 0;
        let statements = (&self.statements.column, &self.statements.column_some);
        self.read_part(table, of_hour, column.0 as i32, statements, |asked, bytes| {
            bytes_read += bytes.len() as u64;
            let record = decode_column(bytes).map_err(|e| {
                let (block, hour) = (asked.block, of_hour.hour);
                self.store.damaged(format!("column {column}, block {block:?}, hour {hour} of table {table}"), e.0)
            })?;
            records.push((asked.at, record));
            Ok(())
        })
        .await?;
        Ok((column, records, bytes_read))
    }

    /// The columns that any of the blocks has, ascending.
    async fn columns_of(&self, table: TableId, hours: &[AskedHour]) -> Result<Vec<ColumnId>> {
        let mut columns = BTreeSet::new();
        for of_hour in hours {
            let statements = (&self.statements.column, &self.statements.column_some);
            self.read_part(table, of_hour, COLUMN_LIST, statements, |asked, bytes| {
                let list = decode_column_list(bytes).map_err(|e| {
                    let (block, hour) = (asked.block, of_hour.hour);
                    self.store.damaged(format!("columns of block {block:?}, hour {hour} of table {table}"), e.0)
                })?;
                columns.extend(list);
                Ok(())
            })
            .await?;
        }
        Ok(columns.into_iter().collect())
    }

    /// Whole filters of the blocks of an hour that have one, ascending by position; held against their checksums.
    async fn read_blooms(&self, table: TableId, of_hour: &AskedHour, rows: RowLayout) -> Result<Vec<(u32, Bloom)>> {
        let blocks: Vec<RequestedBlock> =
            of_hour.blocks.iter().filter(|asked| asked.meta.n_chunks > 0).copied().collect();
        let Some(n_chunks) = blocks.iter().map(|asked| asked.meta.n_chunks).max() else { return Ok(Vec::new()) };
        let of_hour = &AskedHour { blocks, ..*of_hour };
        let width = self.width_of(table, of_hour.hour, rows).await?;
        let mut requests: Vec<Request<'_, SlotRows>> = Vec::new();
        for slot in 0..n_chunks.div_ceil(width) {
            requests.push(Box::pin(self.read_slot(table, of_hour, slot as i32, rows)));
        }
        let mut filters: BTreeMap<u32, (RequestedBlock, Vec<u8>)> = BTreeMap::new();
        for asked in &of_hour.blocks {
            filters.insert(asked.at, (*asked, vec![0; asked.meta.n_chunks as usize * CHUNK_BYTES]));
        }
        for (slot, found) in answers(self.store.concurrency, requests).await?.into_iter().enumerate() {
            for (at, bits) in found {
                let from = slot * width as usize * CHUNK_BYTES;
                let to = filters.get_mut(&at).and_then(|(_, filter)| filter.get_mut(from..from + bits.len()));
                if let Some(to) = to {
                    to.copy_from_slice(&bits);
                }
            }
        }
        let mut blooms = Vec::with_capacity(filters.len());
        for (at, (asked, bits)) in filters {
            let is_whole = crc32c::crc32c(&bits) == asked.meta.bloom_crc;
            match Bloom::from_bits(Bytes::from(bits)).filter(|_| is_whole) {
                Some(bloom) => blooms.push((at, bloom)),
                None => {
                    let what = format!("filter of block {:?}, hour {} of table {table}", asked.block, of_hour.hour);
                    return Err(self.store.damaged(what, "rows are missing, or other than they were written"));
                }
            }
        }
        Ok(blooms)
    }

    /// The rows of asked blocks in a slot, by position.
    async fn read_slot(&self, table: TableId, of_hour: &AskedHour, slot: i32, rows: RowLayout) -> Result<SlotRows> {
        let mut found = Vec::new();
        self.read_part(table, of_hour, slot, self.chunk_statements(rows), |asked, sealed| {
            let bits = unsealed(sealed).map_err(|e| {
                let (block, hour) = (asked.block, of_hour.hour);
                self.store.damaged(format!("block {block:?}, slot {slot}, hour {hour} of table {table}"), e.0)
            })?;
            found.push((asked.at, bits.to_vec()));
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// Writes the filters of these blocks anew, from version 1's rows to version 2's. The hour has `n_there` blocks
    /// with metadata.
    pub async fn copy_blooms(
        &self,
        table: TableId,
        hour: i64,
        blocks: &[(BlockRef, BlockMeta)],
        n_there: u64,
    ) -> Result<()> {
        let of_hour = AskedHour { hour, blocks: asked(blocks), n_there };
        let blooms = self.read_blooms(table, &of_hour, RowLayout::Fixed).await?;
        let blooms: Vec<_> = blooms.iter().map(|(at, bloom)| (blocks[*at as usize].0, bloom)).collect();
        self.write_blooms(table, hour, RowLayout::Wide, &blooms).await
    }

    /// The columns of a file's blocks.
    pub async fn columns_of_file(
        &self,
        table: TableId,
        hour: i64,
        file: FileId,
        metas: &[BlockMeta],
    ) -> Result<Vec<ColumnId>> {
        let blocks: Vec<_> = metas.iter().map(|meta| (BlockRef { file, row_group: meta.row_group }, *meta)).collect();
        self.columns_of(table, &[AskedHour { hour, blocks: asked(&blocks), n_there: u64::MAX }]).await
    }
}

fn asked(blocks: &[(BlockRef, BlockMeta)]) -> Vec<RequestedBlock> {
    (0..).zip(blocks).map(|(at, (block, meta))| RequestedBlock { at, block: *block, meta: *meta }).collect()
}
