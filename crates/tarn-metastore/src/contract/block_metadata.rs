//! What must hold of block metadata, of probes, and of maintenance, which changes neither?

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use proptest::collection::vec;
use proptest::test_runner::TestRunner;

use tarn_types::{ColumnId, FileId, Kind, TableId, Value, Version};

use super::samples::{
    Backend, any_block_metadata, append, commit, draw, sample_block_metadata, sample_file, sample_schema, with_files,
};
use super::script::{Script, describe, everything};
use crate::{
    Block, BlockMetadata, BlockMetadataRequest, BlockRef, BloomBuilder, ColumnChunk, ColumnStats, Commit,
    ExpectedVersion, File, Hash, HourBlocks, MetadataByColumn, MetastoreExt, Probe, VersionSelector, hour_blocks,
    token_hash,
};

/// A file of so many blocks of one row.
fn file_of_blocks(id: FileId, hour: i64, row_groups: impl IntoIterator<Item = u32>) -> File {
    let blocks = (0..).zip(row_groups).map(|(first_row, row_group)| Block {
        row_group,
        first_row,
        n_rows: 1,
        bytes: 1,
        columns: vec![],
    });
    let blocks: Vec<_> = blocks.collect();
    File { hour, n_rows: blocks.len() as u64, blocks, ..sample_file(id, 0) }
}

/// What `wanted` asks for, from the block metadata that was committed.
fn expected_block_metadata(
    committed: &BTreeMap<BlockRef, (i64, BlockMetadata)>,
    wanted: &BlockMetadataRequest,
) -> MetadataByColumn {
    let find =
        |hour, block| committed.get(&block).filter(|(at, _)| *at == hour).map(|(_, block_metadata)| block_metadata);
    MetadataByColumn { bytes_read: 0, ..crate::block_metadata::collect(wanted, find, |_| 0) }
}

/// Bit for bit: NaN is NaN, -0 is not 0.
fn assert_same(got: MetadataByColumn, want: &MetadataByColumn) {
    let got = MetadataByColumn { bytes_read: 0, ..got };
    assert_eq!(format!("{got:?}"), format!("{want:?}"));
}

/// Whatever was committed of blocks is what is read of them, before and behind maintenance, columns in any selection.
pub async fn block_metadata_come_back_bit_for_bit(metastore: Backend) {
    let (table, first) = with_files(&metastore, 12).await;
    let mut runner = TestRunner::deterministic();
    let mut committed = BTreeMap::new();
    let files = vec(proptest::collection::btree_map(0..50u32, any_block_metadata(8), 0..5), 1..4);
    for n in 0..4u64 {
        let mut change = Commit { expected: ExpectedVersion::Latest, ..commit(u128::from(n) + 1, 0) };
        for (at, blocks) in (0..).zip(draw(&mut runner, &files)) {
            let (file, hour) = (FileId(first.0 + n * 3 + at), (n % 2) as i64 - 1);
            change.add.push(file_of_blocks(file, hour, blocks.keys().copied()));
            // Every other block has metadata, so that holes are met.
            let kept = blocks.into_iter().filter(|(row_group, _)| row_group % 2 == 0);
            let block_metadata: Vec<_> =
                kept.map(|(row_group, block_metadata)| BlockMetadata { row_group, ..block_metadata }).collect();
            for of_block in &block_metadata {
                committed.insert(BlockRef { file, row_group: of_block.row_group }, (hour, of_block.clone()));
            }
            change.block_metadata.insert(file, block_metadata);
        }
        metastore.commit(table, change).await.unwrap();
        metastore.maintain(1 << 20).await.unwrap();
    }
    let hours = hour_blocks(&metastore.snapshot(table, VersionSelector::Latest).await.unwrap().files);
    assert_eq!(hours.iter().map(|of_hour| of_hour.hour).collect::<Vec<_>>(), [-1, 0]);
    let all = everything(hours);
    assert_same(
        metastore.block_metadata(table, all.clone()).await.unwrap(),
        &expected_block_metadata(&committed, &all),
    );
    let columns: Vec<_> = committed.values().flat_map(|(_, of)| &of.columns).map(|(stats, _)| stats.column).collect();
    let columns: Vec<_> = columns.into_iter().step_by(3).chain([ColumnId(1 << 30)]).collect();
    for (stats, chunks, blooms) in
        [(true, false, false), (false, true, true), (false, false, true), (true, true, false)]
    {
        let some = BlockMetadataRequest { columns: Some(columns.clone()), stats, chunks, blooms, ..all.clone() };
        let got = metastore.block_metadata(table, some.clone()).await.unwrap();
        assert_same(got.clone(), &expected_block_metadata(&committed, &some));
        assert_eq!(got.columns.len(), if stats || chunks { columns.len() } else { 0 }, "one for each that is wanted");
    }
}

/// Blocks that the store does not know, or not in this hour or table, have no metadata; those beside them have theirs.
pub async fn block_metadata_of_unknown_blocks_are_missing_not_wrong(metastore: Backend) {
    let (table, file) = with_files(&metastore, 2).await;
    let block_metadata = [(file, sample_block_metadata(&["here"]))].into();
    metastore.commit(table, Commit { block_metadata, ..append(1, file) }).await.unwrap();
    let other = metastore.create_table(sample_schema("other")).await.unwrap().id;
    let known = BlockRef { file, row_group: 0 };
    let of = |hour, block| vec![HourBlocks { hour, blocks: vec![block] }];
    let unknown = [
        (table, of(-1, BlockRef { row_group: 1, ..known })),
        (table, of(-1, BlockRef { file: FileId(file.0 + 1), ..known })),
        (table, of(7, known)),
        (other, of(-1, known)),
        (table, vec![]),
    ];
    let clauses = vec![vec![vec![token_hash("nowhere")]]];
    for (at, hours) in unknown {
        let block_metadata = metastore.block_metadata(at, everything(hours.clone())).await.unwrap();
        assert_same(block_metadata, &MetadataByColumn::default());
        let asked: u64 = hours.iter().map(|of_hour| of_hour.blocks.len() as u64).sum();
        let probed = metastore.probe(at, Probe { hours, clauses: clauses.clone() }).await.unwrap();
        assert_eq!((probed.kept.len(), probed.without_bloom), (asked, asked), "what is not known is kept");
    }
    let probed = metastore.probe(table, Probe { hours: of(-1, known), clauses }).await.unwrap();
    assert_eq!((probed.kept.len(), probed.without_bloom), (0, 0));
    let gone = metastore.block_metadata(TableId(99), BlockMetadataRequest::default()).await.unwrap_err();
    assert_eq!(gone.kind(), Kind::NotFound);
    assert_eq!(metastore.probe(TableId(99), Probe::default()).await.unwrap_err().kind(), Kind::NotFound);
}

/// A commit whose block metadata does not fit its files is refused, and nothing of it is there.
pub async fn unlawful_block_metadata_change_nothing(metastore: Backend) {
    let (table, file) = with_files(&metastore, 2).await;
    let before = describe(&*metastore).await;
    let good = sample_block_metadata(&["a"]).remove(0);
    let mut unsorted = good.clone();
    unsorted.columns.swap(0, 1);
    let mut twice = good.clone();
    twice.columns[1] = twice.columns[0].clone();
    let unlawful = [
        ("of a file that is not added", [(FileId(file.0 + 1), vec![good.clone()])].into()),
        ("of no block", [(file, vec![BlockMetadata { row_group: 1, ..good.clone() }])].into()),
        ("of one block twice", [(file, vec![good.clone(), good.clone()])].into()),
        ("columns out of order", [(file, vec![unsorted])].into()),
        ("one column twice", [(file, vec![twice])].into()),
    ];
    for (name, block_metadata) in unlawful {
        let error = metastore.commit(table, Commit { block_metadata, ..append(1, file) }).await.expect_err(name);
        assert_eq!(error.kind(), Kind::Invalid, "{name}: {error}");
    }
    assert_eq!(describe(&*metastore).await, before);
    let block_metadata = [(file, vec![good])].into();
    metastore.commit(table, Commit { block_metadata, ..append(1, file) }).await.unwrap();
}

/// Blocks over some hours, with blooms of different sizes and without, of files that stay and go; and what was put into
/// each.
struct IndexedBlocks {
    table: TableId,
    /// In the order in which they are asked for.
    hours: Vec<HourBlocks>,
    keys: Vec<Option<BTreeSet<Hash>>>,
}

const KEYS: u64 = 24;

fn nth_key(n: u64) -> Hash {
    token_hash(&format!("token{}", n % KEYS))
}

async fn indexed(metastore: &Backend, runner: &mut TestRunner) -> IndexedBlocks {
    let (table, first) = with_files(metastore, 30).await;
    let block = proptest::option::weighted(0.8, (0..8u32, proptest::collection::btree_set(0..KEYS, 0..8)));
    let file = (0..4i64, vec(block, 0..5));
    let mut keys: BTreeMap<(i64, BlockRef), Option<BTreeSet<Hash>>> = BTreeMap::new();
    for n in 0..30u64 {
        let (hour, blocks) = draw(runner, &file);
        let file = FileId(first.0 + n);
        let mut change = Commit { expected: ExpectedVersion::Latest, ..commit(u128::from(n) + 1, 0) };
        change.add.push(file_of_blocks(file, hour, 0..blocks.len() as u32));
        for (row_group, of_block) in (0..).zip(blocks) {
            let of_block = of_block.map(|(log_chunks, keys)| {
                let mut builder = BloomBuilder::new(1 << log_chunks);
                let keys: BTreeSet<_> = keys.into_iter().map(nth_key).collect();
                keys.iter().for_each(|key| builder.insert(*key));
                let bloom = Some(builder.finish());
                change.block_metadata.entry(file).or_default().push(BlockMetadata {
                    row_group,
                    columns: vec![],
                    bloom,
                });
                keys
            });
            keys.insert((hour, BlockRef { file, row_group }), of_block);
        }
        metastore.commit(table, change).await.unwrap();
        if n % 7 == 6 {
            metastore.maintain(1 << 20).await.unwrap();
        }
    }
    // A file that is gone from the latest version is still asked for at older ones.
    let latest = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
    let remove = latest.files.iter().map(|file| file.id).step_by(5).collect();
    metastore.commit(table, Commit { remove, ..commit(1_000, latest.version.0) }).await.unwrap();
    let hours = hour_blocks(&latest.files);
    let asked = hours.iter().flat_map(|of_hour| of_hour.blocks.iter().map(|block| (of_hour.hour, *block)));
    let keys = asked.map(|block| keys[&block].clone()).collect();
    IndexedBlocks { table, hours, keys }
}

/// A probe keeps every block that has all keys of one way of each clause, and each that has no filter.
pub async fn a_probe_never_drops_a_block_that_has_the_keys(metastore: Backend) {
    let mut runner = TestRunner::deterministic();
    let IndexedBlocks { table, hours, keys } = indexed(&metastore, &mut runner).await;
    let clauses = vec(vec(vec(0..KEYS + 4, 0..4), 0..4), 0..3);
    for _ in 0..60 {
        let clauses: Vec<Vec<Vec<Hash>>> = draw(&mut runner, &clauses)
            .into_iter()
            .map(|ways| {
                ways.into_iter()
                    .map(|way| way.into_iter().map(|n| token_hash(&format!("token{n}"))).collect())
                    .collect()
            })
            .collect();
        let probe = Probe { hours: hours.clone(), clauses: clauses.clone() };
        let probed = metastore.probe(table, probe).await.unwrap();
        let mut without_bloom = 0;
        for (at, keys) in (0..).zip(&keys) {
            without_bloom += u64::from(keys.is_none());
            let has_all = |way: &Vec<Hash>| keys.as_ref().is_none_or(|keys| way.iter().all(|key| keys.contains(key)));
            let is_needed = keys.is_none() || clauses.iter().all(|ways| ways.iter().any(has_all));
            assert!(!is_needed || probed.kept.contains(at), "block {at} has the keys of {clauses:?}");
        }
        assert_eq!(probed.without_bloom, without_bloom);
        assert!(probed.kept.max().is_none_or(|last| (last as usize) < keys.len()));
    }
    let nothing = Probe { hours: hours.clone(), clauses: vec![vec![]] };
    let kept = metastore.probe(table, nothing).await.unwrap();
    assert_eq!(kept.kept.len(), kept.without_bloom, "a clause without a way never holds");
    let all = metastore.probe(table, Probe { hours, clauses: vec![] }).await.unwrap();
    assert_eq!(all.kept.len() as usize, keys.len());
}

/// A probe for one token keeps the blocks whose filters Parquet's own reader finds it in, and no others.
#[cfg(test)]
pub async fn a_probe_equals_sbbf(metastore: Backend) {
    let mut runner = TestRunner::deterministic();
    let IndexedBlocks { table, hours, .. } = indexed(&metastore, &mut runner).await;
    let blooms = metastore.block_metadata(table, everything(hours.clone())).await.unwrap().blooms;
    assert!(blooms.len() > 20 && blooms.iter().any(|(_, bloom)| bloom.n_chunks() > 32));
    for n in 0..KEYS + 20 {
        let token = format!("token{n}");
        let clauses = vec![vec![vec![token_hash(&token)]]];
        let probed = metastore.probe(table, Probe { hours: hours.clone(), clauses }).await.unwrap();
        for (at, bloom) in &blooms {
            let theirs = parquet::bloom_filter::Sbbf::new(bloom.bits()).check(token.as_str());
            assert_eq!(probed.kept.contains(*at), theirs, "block {at} and {token}");
        }
        assert_eq!(probed.bytes_read % 32, 0);
    }
}

/// Any step of a metastore's life, maintained with any budget, answers what it answered without.
pub async fn maintenance_changes_no_answer(metastore: Backend) {
    let keys = ["connection", "refused", "a", "b", "z", "nowhere"];
    for step in Script::steps() {
        step.run(&*metastore).await;
        let mut answers = vec![];
        for budget_bytes in [0, 1, 1 << 30] {
            let done = metastore.maintain(budget_bytes).await.unwrap();
            assert!(budget_bytes > 0 || (done.bytes_written, done.packs_made, done.packs_removed) == (0, 0, 0));
            let mut answer = describe(&*metastore).await;
            for table in metastore.tables().await.unwrap() {
                let hours = hour_blocks(&metastore.snapshot(table.id, VersionSelector::Latest).await.unwrap().files);
                for key in &keys {
                    let probe = Probe { hours: hours.clone(), clauses: vec![vec![vec![token_hash(key)]]] };
                    writeln!(answer, "{key} {:?}", metastore.probe(table.id, probe).await.unwrap().kept).unwrap();
                }
            }
            answers.push(answer);
        }
        assert_eq!(answers[0], answers[1]);
        assert_eq!(answers[0], answers[2]);
    }
    let stats = metastore.stats().await.unwrap();
    assert_eq!((stats.tables, stats.files, stats.blocks), (2, 5, 4));
    assert!(stats.bloom_bytes >= 3 * 128 && stats.column_bytes > 0, "{stats:?}");
}

/// Ten of a block's 20,000 columns are read for less than a hundredth of the bytes that all of them take.
pub async fn a_wide_block(metastore: Backend) {
    const COLUMNS: u32 = 20_000;
    let (table, file) = with_files(&metastore, 1).await;
    let (stats, chunk) = sample_block_metadata(&[]).remove(0).columns.remove(0);
    let columns = (1..=COLUMNS).map(|id| {
        let max = Some(Value::Text(format!("value of column {id}")));
        (
            ColumnStats { column: ColumnId(id), max, ..stats.clone() },
            ColumnChunk { data_page_offset: id.into(), ..chunk.clone() },
        )
    });
    let block_metadata = vec![BlockMetadata { row_group: 0, columns: columns.collect(), bloom: None }];
    metastore
        .commit(table, Commit { block_metadata: [(file, block_metadata)].into(), ..append(1, file) })
        .await
        .unwrap();
    metastore.maintain(1 << 30).await.unwrap();
    let hours = vec![HourBlocks { hour: -1, blocks: vec![BlockRef { file, row_group: 0 }] }];
    let ten: Vec<_> = (0..10).map(|n| ColumnId(1 + n * 1_999)).collect();
    let wanted = BlockMetadataRequest {
        hours: hours.clone(),
        columns: Some(ten.clone()),
        stats: true,
        chunks: true,
        blooms: false,
    };
    let got = metastore.block_metadata(table, wanted).await.unwrap();
    for (id, column) in ten.iter().zip(&got.columns) {
        assert_eq!((column.column, &column.blocks[..]), (*id, &[0][..]));
        assert_eq!(column.stats[0].max, Some(Value::Text(format!("value of column {id}"))));
        assert_eq!(column.chunks[0].data_page_offset, u64::from(id.0));
    }
    let all = metastore.block_metadata(table, everything(hours)).await.unwrap();
    assert_eq!(all.columns.len(), COLUMNS as usize);
    assert!(got.bytes_read > 0 && got.bytes_read < all.bytes_read / 100, "{} of {}", got.bytes_read, all.bytes_read);
}

/// Metadata of files that no kept version has is no longer read or counted.
pub async fn expire_frees_block_metadata(metastore: Backend) {
    let (table, first) = with_files(&metastore, 2).await;
    let second = FileId(first.0 + 1);
    let with_block_metadata =
        |id, file| Commit { block_metadata: [(file, sample_block_metadata(&["k"]))].into(), ..append(id, file) };
    metastore.commit(table, with_block_metadata(1, first)).await.unwrap();
    let one = metastore.stats().await.unwrap();
    metastore.commit(table, with_block_metadata(2, second)).await.unwrap();
    metastore.commit(table, Commit { remove: vec![first], ..commit(3, 2) }).await.unwrap();
    let ask = || async {
        let old = vec![HourBlocks { hour: -1, blocks: vec![BlockRef { file: first, row_group: 0 }] }];
        metastore.block_metadata(table, everything(old)).await.unwrap().blooms.len()
    };
    assert_eq!(ask().await, 1, "version 2 is kept, and has it");
    metastore.expire(table, Version(2)).await.unwrap();
    assert_eq!(ask().await, 1);
    metastore.expire(table, Version(3)).await.unwrap();
    assert_eq!(ask().await, 0);
    while metastore.maintain(1 << 30).await.unwrap().more {}
    let stats = metastore.stats().await.unwrap();
    assert_eq!((stats.bloom_bytes, stats.column_bytes), (one.bloom_bytes, one.column_bytes));
    metastore.drop_table("t").await.unwrap();
    while metastore.maintain(1 << 30).await.unwrap().more {}
    let stats = metastore.stats().await.unwrap();
    assert_eq!((stats.bloom_bytes, stats.column_bytes, stats.loose_blocks), (0, 0, 0));
}
