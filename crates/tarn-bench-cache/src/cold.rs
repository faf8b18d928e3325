//! What does a cold read move, by page size? The columns that TPC-H queries read of lineitem, row group by row group,
//! as a Parquet reader asks for them; and single data pages, as a lookup does.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use arrow::record_batch::RecordBatchReader;
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use serde_json::json;
use tarn_cache::{PageCache, PageOptions, PageStore, Trust};
use tokio::runtime::Handle;
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;

use crate::remote::{Link, Remote};
use crate::report::Report;

/// The lake's.
const ROW_GROUP_ROWS: usize = 1 << 18;
const FILE_ROWS: usize = 8 * ROW_GROUP_ROWS;
/// Row groups that are read at once, as partitions of a scan are.
const READERS: usize = 4;

const QUERIES: [(&str, &[&str]); 6] = [
    ("q1", &["l_quantity", "l_extendedprice", "l_discount", "l_tax", "l_returnflag", "l_linestatus", "l_shipdate"]),
    ("q6", &["l_quantity", "l_extendedprice", "l_discount", "l_shipdate"]),
    ("q12", &["l_orderkey", "l_shipmode", "l_commitdate", "l_receiptdate", "l_shipdate"]),
    ("q14", &["l_partkey", "l_extendedprice", "l_discount", "l_shipdate"]),
    ("q19", &["l_partkey", "l_quantity", "l_extendedprice", "l_discount", "l_shipinstruct", "l_shipmode"]),
    ("flag_alone", &["l_returnflag"]),
];
const PAGES_KIB: [u32; 6] = [64, 128, 256, 512, 1024, 4096];
/// Of which hardly a value comes twice: the lake writes them without a dictionary.
const DISTINCT: [&str; 4] = ["l_orderkey", "l_partkey", "l_extendedprice", "l_comment"];

struct File {
    path: Path,
    metadata: Arc<ParquetMetaData>,
}

/// Adds requests, bytes and seconds of each query and page size.
pub async fn run(sf: f64, link: Link, rounds: usize, report: &mut Report, progress: &impl Fn(&str)) -> Result<()> {
    let near: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    progress("cold: lineitem");
    let (files, file_bytes) = lineitem(near.as_ref(), sf).await?;
    let remote = Arc::new(Remote::new(near, link));
    report.parameter("lineitem_bytes", json!(file_bytes));
    report.parameter("row_groups", json!(files.iter().map(|f| f.metadata.num_row_groups()).sum::<usize>()));
    let mut reads: Vec<(&str, RangeReads)> =
        QUERIES.iter().map(|(query, columns)| (*query, chunks(&files, columns))).collect();
    reads.push(("pages_100", lookups(&files)));
    let all: Vec<&RangeReads> =
        reads.iter().filter(|(name, _)| name.starts_with('q')).map(|(_, reads)| reads).collect();
    for (query, reads) in &reads {
        progress(&format!("cold: {query}, {:.1} MB", asked(reads) as f64 / 1e6));
        one(query, &[reads], &remote, &files, rounds, report).await?;
    }
    progress("cold: the queries one after the other");
    one("all_queries", &all, &remote, &files, rounds, report).await
}

/// The same reads, round by round without a cache and with each size of pages.
async fn one(
    name: &str,
    reads: &[&RangeReads],
    remote: &Arc<Remote>,
    files: &[File],
    rounds: usize,
    report: &mut Report,
) -> Result<()> {
    let n_asked: u64 = reads.iter().map(|reads| asked(reads)).sum();
    report.figure(format!("cold_{name}_asked"), "MB", &[n_asked as f64 / 1e6]);
    let sizes: Vec<Option<u32>> = std::iter::once(None).chain(PAGES_KIB.map(Some)).collect();
    let mut measured = vec![[vec![], vec![], vec![]]; sizes.len()];
    for _ in 0..rounds {
        for (size, [seconds, requests, amplification]) in sizes.iter().zip(&mut measured) {
            let store: Arc<dyn ObjectStore> = match size {
                None => Arc::clone(remote) as Arc<dyn ObjectStore>,
                Some(page_kib) => {
                    let options =
                        PageOptions { page_bytes: page_kib << 10, ram_bytes: 4 << 30, ..PageOptions::default() };
                    let cache = PageCache::open(options, Handle::current())?;
                    let inner = Arc::clone(remote) as Arc<dyn ObjectStore>;
                    let store = PageStore::new(inner, cache, "bench", Trust::WrittenOnce);
                    know(&store, files).await?;
                    Arc::new(store)
                }
            };
            remote.take();
            let t = Instant::now();
            for reads in reads {
                read(store.as_ref(), reads).await?;
            }
            seconds.push(t.elapsed().as_secs_f64());
            let (n_requests, bytes) = remote.take();
            requests.push(n_requests as f64);
            amplification.push(bytes as f64 / n_asked as f64);
            if size.is_some() {
                for reads in reads {
                    read(store.as_ref(), reads).await?;
                }
                ensure!(remote.take().0 == 0, "warm, and it asked");
            }
        }
    }
    for (size, [seconds, requests, amplification]) in sizes.iter().zip(&measured) {
        let at = size.map_or("none".to_owned(), |kib| format!("page{kib}k"));
        report.figure(format!("cold_{name}_{at}_s"), "s", seconds);
        report.figure(format!("cold_{name}_{at}_requests"), "requests", requests);
        report.figure(format!("cold_{name}_{at}_amplification"), "ratio", amplification);
    }
    Ok(())
}

fn asked(reads: &RangeReads) -> u64 {
    reads.iter().flat_map(|(_, ranges)| ranges).map(|range| range.end - range.start).sum()
}

/// As a query knows its files: no HEAD in what is measured.
async fn know(store: &PageStore, files: &[File]) -> Result<()> {
    for file in files {
        store.get_ranges(&file.path, &[]).await?;
    }
    Ok(())
}

async fn lineitem(store: &dyn ObjectStore, sf: f64) -> Result<(Vec<File>, u64)> {
    let mut batches = LineItemArrow::new(LineItemGenerator::new(sf, 1, 1)).with_batch_size(8192);
    let schema = RecordBatchReader::schema(&batches);
    let (mut files, mut total) = (vec![], 0);
    loop {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::LZ4_RAW)
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_data_page_row_count_limit(8192)
            .set_statistics_enabled(EnabledStatistics::Page);
        for column in DISTINCT {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), false);
        }
        let properties = properties.build();
        let mut writer = ArrowWriter::try_new(vec![], Arc::clone(&schema), Some(properties))?;
        let mut n_rows = 0;
        for batch in batches.by_ref().take(FILE_ROWS / 8192) {
            let batch = batch?;
            n_rows += batch.num_rows();
            writer.write(&batch)?;
        }
        if n_rows == 0 {
            return Ok((files, total));
        }
        let metadata = Arc::new(writer.finish()?);
        let bytes = std::mem::take(writer.inner_mut());
        total += bytes.len() as u64;
        let path = Path::from(format!("lineitem/{}", files.len()));
        store.put(&path, bytes.into()).await?;
        files.push(File { path, metadata });
    }
}

type RangeReads = Vec<(Path, Vec<Range<u64>>)>;

/// Of every row group, where the columns lie.
fn chunks(files: &[File], columns: &[&str]) -> RangeReads {
    let mut reads = vec![];
    for file in files {
        for group in file.metadata.row_groups() {
            let of_query = group.columns().iter().filter(|c| columns.contains(&c.column_path().string().as_str()));
            let ranges = of_query.map(|c| c.byte_range()).map(|(start, len)| start..start + len);
            reads.push((file.path.clone(), ranges.collect()));
        }
    }
    reads
}

/// A hundred single data pages, far from each other.
fn lookups(files: &[File]) -> RangeReads {
    let all: Vec<(Path, Range<u64>)> = files
        .iter()
        .flat_map(|file| {
            let index = file.metadata.offset_index().into_iter().flatten().flatten();
            let pages = index.flat_map(|column| column.page_locations());
            pages
                .map(|p| (file.path.clone(), p.offset as u64..p.offset as u64 + p.compressed_page_size as u64))
                .collect::<Vec<_>>()
        })
        .collect();
    let step = (all.len() / 100).max(1) | 1; // odd: not always the same column
    all.into_iter().step_by(step).take(100).map(|(path, range)| (path, vec![range])).collect()
}

async fn read(store: &dyn ObjectStore, reads: &RangeReads) -> Result<()> {
    let reads = reads.iter().map(|(path, ranges)| async move {
        let got = store.get_ranges(path, ranges).await?;
        ensure!(got.iter().zip(ranges).all(|(bytes, range)| bytes.len() as u64 == range.end - range.start), "short");
        Ok(())
    });
    futures::stream::iter(reads).buffer_unordered(READERS).try_collect::<Vec<()>>().await?;
    Ok(())
}
