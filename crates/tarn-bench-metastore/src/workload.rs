//! Which blocks are put in, and what is asked of them?
//!
//! Hours of 2,000 one-block files under paths as archives have them. Filters are half full, as filters of the right
//! size are: their bits are random. Four tokens are in every block and a fifth in three of them, because a store that
//! stops at the first token that no block has would otherwise look at one row instead of five.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tarn_metastore::{
    Block, BlockMetadata, Bloom, CHUNK_BYTES, ColumnChunk, ColumnStats, Commit, CommitKind, ExpectedVersion, File,
    Hash, token_hash,
};
use tarn_types::{
    Column, ColumnId, DataType, FileId, KeyPart, TableId, TableOptions, TableSchema, TabletId, Value, Version,
};
use uuid::Uuid;

/// Of the blocks, since the Unix epoch.
pub const FIRST_HOUR: i64 = 490_000;
const COMMON: [&str; 4] = ["connection", "refused", "timeout", "retry"];
const RARE: &str = "deadbeef";
/// Blocks that have the rare token, of each hour the last three.
const RARE_BLOCKS: u64 = 3;

/// Columns whose metadata is asked for.
pub const ASKED_COLUMNS: u32 = 10;

/// Slots of filters that are filled when not all are.
const SLOTS: u64 = 64;

/// How much.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadSize {
    pub blocks: u64,
    pub hour_blocks: u64,
    pub columns: u32,
    pub chunks: u32,
}

/// How much of a block is put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of its filter and all its columns.
    Whole,
    /// A filter of the same size with 64 chunks that are not empty, those that are asked for among them, and the
    /// columns that are asked for. A search reads the same; the store holds less.
    Slots,
    /// The same for stores that keep empty chunks: a filter of 64 chunks.
    Small,
    /// All columns, no filter.
    Columns,
}

impl WorkloadSize {
    /// That have blocks.
    pub fn hours(&self) -> u64 {
        self.blocks.div_ceil(self.hour_blocks)
    }

    /// Of the block with this number.
    pub fn hour(&self, block: u64) -> i64 {
        FIRST_HOUR + (block / self.hour_blocks) as i64
    }
}

/// Numbers that look random and come again (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Two columns, a time, which is the key, and a text; the others of a block are known by their ids alone.
pub fn schema(name: &str) -> TableSchema {
    let column = |name: &str, data_type| Column {
        id: ColumnId(0),
        name: name.to_owned(),
        data_type,
        nullable: false,
        default: None,
    };
    TableSchema {
        id: TableId(0),
        name: name.to_owned(),
        columns: vec![column("ts", DataType::Int64), column("body", DataType::Text)],
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(0),
        options: TableOptions::default(),
    }
}

/// One file of one block, with the bounds of its time in memory.
pub fn file(id: FileId, hour: i64, number: u64) -> File {
    let ts = hour * 3_600_000 + (number % 3_600_000) as i64;
    let stats = ColumnStats {
        column: ColumnId(1),
        min: Some(Value::Int64(ts)),
        max: Some(Value::Int64(ts + 60_000)),
        exact: true,
        null_count: 0,
        bytes: 80_000,
    };
    let block = Block { row_group: 0, first_row: 0, n_rows: 100_000, bytes: 20 << 20, columns: vec![stats] };
    let (day, hour_of_day) = (hour / 24, hour % 24);
    let name = Uuid::from_u128(u128::from(Random(number).next()) << 64 | u128::from(number));
    File {
        id,
        path: format!("logs/team=payments/dt={day}/hr={hour_of_day:02}/part-{number:05}-{name}-c000.zstd.parquet"),
        size_bytes: 20 << 20,
        n_rows: 100_000,
        hour,
        etag: Some(format!("{:016x}", Random(number).next())),
        blocks: vec![block],
        created_version: Version(0),
        sorted_by_key: true,
        note: None,
        checksums: None,
    }
}

/// Ten, spread over all.
pub fn asked_columns(of: u32) -> Vec<ColumnId> {
    (0..ASKED_COLUMNS).map(|n| ColumnId(1 + n * (of / ASKED_COLUMNS))).collect()
}

/// Of the block with this number: the same in every run.
pub fn block_metadata(number: u64, size: &WorkloadSize, extent: Extent) -> BlockMetadata {
    let asked = asked_columns(size.columns);
    let is_kept = |id: u32| matches!(extent, Extent::Whole | Extent::Columns) || asked.contains(&ColumnId(id));
    let mut random = Random(number << 20);
    let shapes: [Arc<str>; 3] =
        ["required int64 c", "optional byte_array c (STRING)", "optional double c"].map(Arc::from);
    let mut offset = 4;
    let columns = (1..=size.columns).map(|id| {
        let bytes = 50_000 + random.next() % 100_000;
        let low = (random.next() >> 20) as i64;
        let (min, max) = match id % 3 {
            1 => (Value::Text(format!("value {low}")), Value::Text(format!("value {}", low + 9))),
            _ => (Value::Int64(low), Value::Int64(low + 1_000)),
        };
        let stats =
            ColumnStats { column: ColumnId(id), min: Some(min), max: Some(max), exact: true, null_count: 7, bytes };
        let chunk = ColumnChunk {
            shape: shapes[id as usize % 3].clone(),
            data_page_offset: offset + 2_000,
            dictionary_page_offset: offset,
            compressed_bytes: bytes,
            uncompressed_bytes: bytes * 4,
            n_values: 100_000,
            codec: 6,
            encodings: 0b1001_1000,
            offset_index: (offset + (20 << 20), 100),
            column_index: (offset + (21 << 20), 200),
        };
        offset += bytes;
        (stats, chunk)
    });
    let columns = columns.filter(|(stats, _)| is_kept(stats.column.0)).collect();
    let bloom = match extent {
        Extent::Whole => Some(bloom(number, size, size.chunks, &[])),
        Extent::Slots => Some(bloom(number, size, size.chunks, &slots(size.chunks))),
        Extent::Small => Some(bloom(number, size, SLOTS as u32, &[])),
        Extent::Columns => None,
    };
    BlockMetadata { row_group: 0, columns, bloom }
}

/// The chunks that are asked for, and others.
fn slots(n_chunks: u32) -> Vec<u32> {
    let mut random = Random(7);
    let asked = COMMON.iter().chain(&[RARE]).map(|token| token_hash(token).chunk(n_chunks));
    let mut slots: BTreeSet<u32> = asked.collect();
    while (slots.len() as u64) < SLOTS.min(n_chunks.into()) {
        slots.insert((random.next() % u64::from(n_chunks)) as u32);
    }
    slots.into_iter().collect()
}

/// `filled`: the chunks that are not empty; none stands for all.
fn bloom(number: u64, size: &WorkloadSize, n_chunks: u32, filled: &[u32]) -> Bloom {
    let mut random = Random(!number);
    let mut bits = vec![0; n_chunks as usize * CHUNK_BYTES];
    let mut fill = |bits: &mut [u8]| {
        bits.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
    };
    match filled {
        [] => fill(&mut bits),
        some => some.iter().for_each(|chunk| fill(&mut bits[*chunk as usize * CHUNK_BYTES..][..CHUNK_BYTES])),
    }
    let is_rare = number % size.hour_blocks >= size.hour_blocks - RARE_BLOCKS;
    let tokens = COMMON.iter().chain(is_rare.then_some(&RARE));
    for key in tokens.map(|token| token_hash(token)) {
        let at = key.chunk(n_chunks) as usize * CHUNK_BYTES;
        for (word, mask) in bits[at..at + CHUNK_BYTES].chunks_exact_mut(4).zip(key.mask()) {
            word.iter_mut().zip(mask.to_le_bytes()).for_each(|(byte, mask)| *byte |= mask);
        }
    }
    Bloom::from_bits(Bytes::from(bits)).expect("a power of two of chunks")
}

/// All five tokens.
pub fn clauses() -> Vec<Vec<Vec<Hash>>> {
    vec![vec![COMMON.iter().chain(&[RARE]).map(|token| token_hash(token)).collect()]]
}

/// Files with what is kept of their only blocks.
pub fn append(files: Vec<(File, Option<BlockMetadata>)>) -> Commit {
    let id = files.first().map_or(0, |(file, _)| file.id.0);
    let (add, block_metadata): (Vec<File>, Vec<_>) = files.into_iter().unzip();
    let of_files = add.iter().map(|file| file.id).zip(block_metadata);
    Commit {
        id: Uuid::from_u128(u128::from(id)),
        expected: ExpectedVersion::Latest,
        block_metadata: of_files.filter_map(|(id, block_metadata)| Some((id, vec![block_metadata?]))).collect(),
        add,
        remove: vec![],
        deletion_vectors: BTreeMap::new(),
        cursor: None,
        kind: CommitKind::Attach,
        at_ms: 0,
    }
}

/// The commit of blocks `number ..` under ids `id ..`.
pub fn blocks(number: u64, id: FileId, n: u64, size: &WorkloadSize, extent: Option<Extent>) -> Commit {
    let block = |at: u64| {
        let number = number + at;
        let file = file(FileId(id.0 + at), size.hour(number), number);
        (file, extent.map(|extent| block_metadata(number, size, extent)))
    };
    append((0..n).map(block).collect())
}
