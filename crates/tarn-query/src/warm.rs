//! How are a table's files brought near before they are asked for? Read as a query would read them, and nothing made of
//! the bytes.

use std::ops::Range;
use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::stream::{self, BoxStream, StreamExt};

use crate::engine::Session;
use crate::lake_source::LakeSource;
use crate::opening::Opener;
use crate::reader::Readers;
use crate::scan::TarnScan;
use crate::settings::{AccessPath, QuerySettings};
use crate::{Error, Result};

/// Files that are read at once.
const FILES_AT_ONCE: usize = 4;

/// Bytes of one file that are asked for at once.
const PIECE_BYTES: u64 = 16 << 20;

/// The files of one plan, which are read as the stream is polled. Dropping it stops the reading.
pub struct Warm {
    /// Pieces of files that will be read.
    pub n_pieces: u64,
    /// Why nothing can be kept of them but their metadata.
    pub not_used: Option<&'static str>,
    /// An item for each piece that was read, in any order.
    pub stream: BoxStream<'static, Result<WarmedPart>>,
}

/// One piece of a file: some of its blocks, all columns of the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WarmedPart {
    /// Its blocks.
    pub blocks: u64,
    /// Bytes of its columns.
    pub bytes: u64,
    /// Bytes that all pieces together have fetched from the store until now.
    pub fetched_bytes: u64,
}

impl Session {
    /// Reads what `plan` would read of files: metadata, and all pages of its columns in the blocks that its filters
    /// leave. Nothing is read before the stream is polled.
    pub async fn warm(&self, plan: &LogicalPlan) -> Result<Warm> {
        let (mut state, plan) = self.statement_state(plan)?;
        if let Some(settings) = state.config_mut().options_mut().extensions.get_mut::<QuerySettings>() {
            // What is kept of a file is no reason not to read the file.
            settings.caches.fragments = false;
            settings.access_path = AccessPath::Lake;
        }
        let physical = state.create_physical_plan(&plan).await?;
        let mut pieces = vec![];
        gather(&physical, Opener::in_config(state.config())?.as_ref(), None, &mut pieces)?;
        let not_used = pieces.iter().find_map(|(readers, _)| readers.pages_not_used());
        let n_pieces = pieces.len() as u64;
        let read = pieces.into_iter().map(|(readers, file)| read(readers, file));
        Ok(Warm { n_pieces, not_used, stream: stream::iter(read).buffer_unordered(FILES_AT_ONCE).boxed() })
    }
}

fn gather(
    plan: &Arc<dyn ExecutionPlan>,
    opener: &Opener,
    readers: Option<&Arc<Readers>>,
    pieces: &mut Vec<(Arc<Readers>, PartitionedFile)>,
) -> Result<()> {
    let of_scan = plan.downcast_ref::<TarnScan>().map(|scan| opener.open(&scan.access().spec)).transpose()?;
    let readers = of_scan.as_ref().map(|open| &open.readers).or(readers);
    if let (Some(files), Some(readers)) = (LakeSource::of(plan.as_ref()), readers) {
        let files = files.config().file_groups.iter().flat_map(|group| group.iter());
        pieces.extend(files.map(|file| (Arc::clone(readers), file.clone())));
    }
    plan.children().into_iter().try_for_each(|child| gather(child, opener, readers, pieces))
}

async fn read(readers: Arc<Readers>, file: PartitionedFile) -> Result<WarmedPart> {
    let path = file.object_meta.location.to_string();
    let failed = |source| Error::of_file(&path, source);
    let access = file.extensions.get::<ParquetAccessPlan>().cloned();
    let mut reader = readers.create_reader(0, file, None, &ExecutionPlanMetricsSet::new())?;
    let metadata = reader.get_metadata(None).await.map_err(failed)?;
    let mut warmed = WarmedPart::default();
    for (row_group, about) in metadata.row_groups().iter().enumerate() {
        if access.as_ref().is_some_and(|access| !access.should_scan(row_group)) {
            continue;
        }
        warmed.blocks += 1;
        let columns = about.columns().iter().map(|column| column.byte_range());
        let ranges: Vec<Range<u64>> = columns.map(|(start, bytes)| start..start + bytes).collect();
        for piece in pieces(&ranges) {
            warmed.bytes += piece.iter().map(|range| range.end - range.start).sum::<u64>();
            drop(reader.get_byte_ranges(piece).await.map_err(failed)?);
        }
    }
    warmed.fetched_bytes = readers.usage().stats().remote_bytes;
    Ok(warmed)
}

/// The ranges in runs of about [`PIECE_BYTES`]; a long range is cut.
fn pieces(ranges: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
    let mut pieces: Vec<Vec<Range<u64>>> = vec![vec![]];
    let mut room = PIECE_BYTES;
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + room);
            if let Some(piece) = pieces.last_mut() {
                piece.push(start..end);
            }
            room -= end - start;
            start = end;
            if room == 0 {
                pieces.push(vec![]);
                room = PIECE_BYTES;
            }
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_hold_every_byte_once_and_are_bounded() {
        let ranges = [0..10, 10..10, 100..100 + 2 * PIECE_BYTES, 7..9];
        let pieces = pieces(&ranges);
        let bytes = |piece: &[Range<u64>]| piece.iter().map(|range| range.end - range.start).sum::<u64>();
        assert!(pieces.iter().all(|piece| bytes(piece) <= PIECE_BYTES && bytes(piece) > 0));
        let together: Vec<Range<u64>> = pieces.concat();
        let total: u64 = together.iter().map(|range| range.end - range.start).sum();
        assert_eq!(total, 12 + 2 * PIECE_BYTES);
        assert_eq!(together.first(), Some(&(0..10)));
        assert_eq!(together.last(), Some(&(7..9)));
    }
}
