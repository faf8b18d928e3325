//! How does a scan's spec look as bytes? (docs/formats/scan-spec.md)
//!
//! Numbers, texts, definitions, files and bitmaps are written as the metastore writes them. Decoding never panics, and
//! never allocates more than the input could hold.
//!
//! Invariant: a spec comes back as what reads the same rows. What its counts say of the dead rows and what its bitmaps
//! say is held against each other when it is opened (`reading.rs`): a bitmap that was lost on the way is an error, and
//! no more rows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use roaring::RoaringBitmap;
use tarn_metastore::File;
use tarn_metastore::backend::{
    DecodeResult, FORMAT, Malformed, RecordReader, malformed, put_bitmap, put_bytes, put_cursor, put_file, put_len,
    put_schema, put_u64,
};
use tarn_metastore::prune::PrunedFile;
use tarn_types::{ColumnId, FileId, TableSchema, Version};

use crate::files::Counts;
use crate::hot::KeyRange;
use crate::pruning::{PrunedBlocks, PruningCounts};
use crate::settings::CacheSettings;
use crate::spec::{LakeRead, PathChoice, RangeRead, ScanKind, ScanSpec};
use crate::{Error, Result};

/// Before everything else: what the bytes mean.
const SPEC_FORMAT: u8 = 1;

const KEYS: u8 = 1;
const RANGES: u8 = 2;
const LAKE: u8 = 3;

impl ScanSpec {
    /// The spec as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![SPEC_FORMAT];
        put_schema(&mut out, &self.table);
        put_u64(&mut out, self.version.0);
        out.push(u8::from(self.position.is_some()));
        if let Some(position) = &self.position {
            put_cursor(&mut out, position);
        }
        let CacheSettings { metadata, footers, pages, fragments } = self.caches;
        put_flags(&mut out, &[self.with_seqno, self.pruning, metadata, footers, pages, fragments]);
        put_positions(&mut out, &self.projection);
        put_u64(&mut out, self.limit.map_or(0, |limit| limit as u64 + 1));
        put_len(&mut out, self.partitions);
        let PathChoice { path, why, cost_us, not_taken } = &self.chosen;
        [path, why, not_taken].into_iter().for_each(|text| put_bytes(&mut out, text.as_bytes()));
        put_u64(&mut out, *cost_us);
        match &self.how {
            ScanKind::Keys(keys) => {
                out.push(KEYS);
                put_len(&mut out, keys.len());
                keys.iter().for_each(|key| put_bytes(&mut out, key));
            }
            ScanKind::Ranges(RangeRead { ranges, n_fixed, batch_rows, rows }) => {
                out.push(RANGES);
                put_len(&mut out, ranges.len());
                for KeyRange { start, end } in ranges {
                    put_bytes(&mut out, start);
                    put_bytes(&mut out, end);
                }
                put_len(&mut out, *n_fixed);
                put_len(&mut out, *batch_rows);
                put_u64(&mut out, *rows);
            }
            ScanKind::Lake(lake) => {
                out.push(LAKE);
                put_lake(&mut out, &self.table, lake);
            }
        }
        out
    }

    /// The spec of some bytes.
    ///
    /// Errors: `Corrupt` for bytes that are none.
    pub fn decode(bytes: &[u8]) -> Result<ScanSpec> {
        spec(bytes).map_err(|Malformed(why)| Error::Corrupt { what: format!("scan spec: {why}") })
    }
}

fn put_flags(out: &mut Vec<u8>, flags: &[bool]) {
    out.push(flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag)));
}

fn put_positions(out: &mut Vec<u8>, positions: &[usize]) {
    put_len(out, positions.len());
    positions.iter().for_each(|at| put_len(out, *at));
}

fn put_lake(out: &mut Vec<u8>, table: &TableSchema, lake: &LakeRead) {
    let LakeRead { pruned, vectors, hidden, counts, recent_rows, columns, in_filter, .. } = lake;
    put_flags(out, &[lake.by_pages, lake.late_materialization, lake.asked_bloom, lake.sorted_by_key]);
    put_positions(out, columns);
    put_positions(out, in_filter);
    let Counts { pruning, files_kept, blocks_kept, dead_rows, hidden_rows, delivered_rows } = *counts;
    let PruningCounts { files_total, blocks_total, time, statistics, bloom, metastore_bytes } = pruning;
    let pruning = [files_total, blocks_total, time, statistics, bloom, metastore_bytes];
    let kept = [files_kept, blocks_kept, dead_rows, hidden_rows, delivered_rows, *recent_rows];
    pruning.into_iter().chain(kept).for_each(|count| put_u64(out, count));
    // Bounds are of use for the columns that are read alone.
    let read: BTreeSet<ColumnId> = columns.iter().map(|at| table.columns[*at].id).collect();
    put_len(out, pruned.files.len());
    for PrunedFile { file, row_groups } in &pruned.files {
        let mut file = File::clone(file);
        file.blocks.iter_mut().for_each(|block| block.columns.retain(|stats| read.contains(&stats.column)));
        put_file(out, &file);
        put_len(out, row_groups.len());
        row_groups.iter().for_each(|row_group| put_u64(out, (*row_group).into()));
        let dead = vectors.get(&file.id).map(Arc::as_ref);
        for rows in [dead, hidden.get(&file.id)] {
            put_bitmap(out, rows.unwrap_or(&RoaringBitmap::new()));
        }
    }
}

fn spec(bytes: &[u8]) -> DecodeResult<ScanSpec> {
    let mut reader = RecordReader { bytes, format: FORMAT };
    let format = reader.byte()?;
    if format != SPEC_FORMAT {
        return malformed(format!("its format is {format}, known is {SPEC_FORMAT}"));
    }
    let table = Arc::new(reader.schema()?);
    let version = Version(reader.u64()?);
    let position = if reader.bool()? { Some(reader.cursor()?) } else { None };
    let [with_seqno, pruning, metadata, footers, pages, fragments] = flags(&mut reader)?;
    let n_columns = table.columns.len() + usize::from(with_seqno);
    let projection = positions(&mut reader, n_columns)?;
    let limit = number(&mut reader)?.checked_sub(1);
    let partitions = number(&mut reader)?;
    if partitions == 0 {
        return malformed("it has no partition");
    }
    let (path, why, not_taken) = (reader.text()?, reader.text()?, reader.text()?);
    let chosen = PathChoice { path, why, not_taken, cost_us: reader.u64()? };
    let how = match reader.byte()? {
        KEYS => {
            ScanKind::Keys((0..reader.count()?).map(|_| Ok(reader.bytes()?.to_vec())).collect::<DecodeResult<_>>()?)
        }
        RANGES => ScanKind::Ranges(ranges(&mut reader, &table)?),
        LAKE => ScanKind::Lake(lake(&mut reader, &table)?),
        other => return malformed(format!("it reads in way {other}")),
    };
    reader.end()?;
    let caches = CacheSettings { metadata, footers, pages, fragments };
    Ok(ScanSpec { table, version, position, with_seqno, projection, limit, partitions, pruning, caches, chosen, how })
}

fn ranges(reader: &mut RecordReader<'_>, table: &TableSchema) -> DecodeResult<RangeRead> {
    let mut ranges = vec![];
    for _ in 0..reader.count()? {
        let range = KeyRange { start: reader.bytes()?.to_vec(), end: reader.bytes()?.to_vec() };
        if range.start > range.end {
            return malformed("a range ends before it starts");
        }
        ranges.push(range);
    }
    let n_fixed = number(reader)?;
    if n_fixed > table.key.len() {
        return malformed(format!("{n_fixed} columns of a key of {} are fixed", table.key.len()));
    }
    Ok(RangeRead { ranges, n_fixed, batch_rows: number(reader)?, rows: reader.u64()? })
}

fn lake(reader: &mut RecordReader<'_>, table: &TableSchema) -> DecodeResult<LakeRead> {
    let [by_pages, late_materialization, asked_bloom, sorted_by_key] = flags(reader)?;
    let columns = positions(reader, table.columns.len())?;
    let in_filter = positions(reader, table.columns.len())?;
    let mut count = || reader.u64();
    let pruning = PruningCounts {
        files_total: count()?,
        blocks_total: count()?,
        time: count()?,
        statistics: count()?,
        bloom: count()?,
        metastore_bytes: count()?,
    };
    let counts = Counts {
        pruning,
        files_kept: count()?,
        blocks_kept: count()?,
        dead_rows: count()?,
        hidden_rows: count()?,
        delivered_rows: count()?,
    };
    let recent_rows = count()?;
    let mut files = vec![];
    let (mut vectors, mut hidden) = (HashMap::new(), BTreeMap::new());
    for _ in 0..reader.count()? {
        let file = reader.file()?;
        check_blocks(&file)?;
        let row_groups = (0..reader.count()?).map(|_| reader.u32()).collect::<DecodeResult<Vec<_>>>()?;
        if let Some(beyond) = row_groups.iter().find(|row_group| **row_group as usize >= file.blocks.len()) {
            return malformed(format!("file {} has no row group {beyond}", file.id));
        }
        let (dead, superseded) = (reader.bitmap()?, reader.bitmap()?);
        keep(&mut |id, rows| drop(vectors.insert(id, Arc::new(rows))), file.id, dead);
        keep(&mut |id, rows| drop(hidden.insert(id, rows)), file.id, superseded);
        files.push(PrunedFile { file: Arc::new(file), row_groups });
    }
    Ok(LakeRead {
        pruned: PrunedBlocks { files, counts: pruning },
        vectors: Arc::new(vectors),
        hidden: Arc::new(hidden),
        counts,
        recent_rows,
        columns,
        in_filter,
        by_pages,
        late_materialization,
        asked_bloom,
        sorted_by_key,
    })
}

/// Blocks are found by their place, and their rows have numbers of 32 bits.
fn check_blocks(file: &File) -> DecodeResult<()> {
    for (at, block) in (0..).zip(&file.blocks) {
        let end = block.first_row.checked_add(block.n_rows);
        if block.row_group != at || end.is_none_or(|end| end > u32::MAX.into()) {
            return malformed(format!("file {} has no such block {}", file.id, block.row_group));
        }
    }
    Ok(())
}

/// A file without such rows has no entry.
fn keep(put: &mut dyn FnMut(FileId, RoaringBitmap), id: FileId, rows: RoaringBitmap) {
    if !rows.is_empty() {
        put(id, rows);
    }
}

/// As many flags as asked; the others are not set.
fn flags<const N: usize>(reader: &mut RecordReader<'_>) -> DecodeResult<[bool; N]> {
    let byte = reader.byte()?;
    match u32::from(byte) >> N {
        0 => Ok(std::array::from_fn(|at| byte >> at & 1 == 1)),
        _ => malformed(format!("flags are {byte}")),
    }
}

fn number(reader: &mut RecordReader<'_>) -> DecodeResult<usize> {
    let value = reader.u64()?;
    usize::try_from(value).map_err(|_| Malformed(format!("{value} is no number of things in memory")))
}

/// Positions among `n` columns.
fn positions(reader: &mut RecordReader<'_>, n: usize) -> DecodeResult<Vec<usize>> {
    let found = (0..reader.count()?).map(|_| number(reader)).collect::<DecodeResult<Vec<_>>>()?;
    match found.iter().find(|at| **at >= n) {
        Some(beyond) => malformed(format!("column {beyond} of {n}")),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tarn_types::{Column, Cursor, DataType, KeyPart, SeqNo, TableId, TableOptions, TabletId};

    use super::*;

    fn spec(how: ScanKind) -> ScanSpec {
        let column = Column {
            id: ColumnId(1),
            name: "a".to_owned(),
            data_type: DataType::Int64,
            nullable: false,
            default: None,
        };
        let table = TableSchema {
            id: TableId(1),
            name: "t".to_owned(),
            columns: vec![column],
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        };
        let mut position = Cursor::default();
        position.set(TabletId(1), SeqNo(77));
        ScanSpec {
            table: Arc::new(table),
            version: Version(3),
            position: Some(position),
            with_seqno: true,
            projection: vec![0, 1],
            limit: Some(0),
            partitions: 2,
            pruning: true,
            caches: CacheSettings { pages: false, ..CacheSettings::default() },
            chosen: PathChoice { path: "keys".to_owned(), cost_us: 5, ..PathChoice::default() },
            how,
        }
    }

    #[test]
    fn keys_and_ranges_come_back() {
        let range = KeyRange { start: vec![1, 2], end: vec![1, 3] };
        for how in [
            ScanKind::Keys(vec![vec![1, 2, 3], vec![]]),
            ScanKind::Ranges(RangeRead { ranges: vec![range], n_fixed: 1, batch_rows: 9, rows: 7 }),
        ] {
            let bytes = spec(how).encode();
            let back = ScanSpec::decode(&bytes).unwrap();
            assert_eq!(back.encode(), bytes);
            assert_eq!((back.limit, back.caches.pages, back.projection.len()), (Some(0), false, 2));
        }
    }

    #[test]
    fn bytes_that_end_early_or_late_are_none() {
        let bytes = spec(ScanKind::Keys(vec![vec![1, 2, 3]])).encode();
        for n in 0..bytes.len() {
            assert!(ScanSpec::decode(&bytes[..n]).is_err(), "{n}");
        }
        let error = ScanSpec::decode(&[bytes.as_slice(), &[0]].concat()).unwrap_err();
        assert!(error.to_string().contains("after the record's end"), "{error}");
        let error = ScanSpec::decode(&[[9].as_slice(), &bytes[1..]].concat()).unwrap_err();
        assert!(error.to_string().contains("format is 9"), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0..200_usize, byte in any::<u8>(), tail in proptest::collection::vec(any::<u8>(), 0..40)) {
            let range = RangeRead { ranges: vec![], n_fixed: 1, batch_rows: 9, rows: 7 };
            let mut bytes = spec(ScanKind::Ranges(range)).encode();
            let at = at % bytes.len();
            bytes[at] = byte;
            drop(ScanSpec::decode(&bytes));
            bytes.truncate(at);
            bytes.extend(tail);
            drop(ScanSpec::decode(&bytes));
        }
    }
}
