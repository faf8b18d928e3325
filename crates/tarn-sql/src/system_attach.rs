//! What can be seen in SQL of archives and of the metastore? More tables of the schema `tarn`.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use tarn_node::snapshot::OpenTable;
use tarn_query::Error;

use crate::system::{System, SystemCell, SystemRows, failed, int, text};

impl System {
    /// `listed` to `bytes_read` are of the pass that runs, else of the last one; NULL when this server has made none.
    /// `files` and `rows` are what queries read now, and `total_…` what all passes of this server did together.
    pub(crate) async fn attachments(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&[
            "table_name",
            "url",
            "state",
            "listed",
            "known",
            "reading",
            "attached",
            "skipped",
            "removed",
            "rows_attached",
            "bytes_read",
            "started_at",
            "ended_at",
            "last_error",
            "version",
            "files",
            "rows",
            "follow_ms",
            "total_attached",
            "total_removed",
            "total_rows",
            "total_bytes_read",
        ]);
        for external in self.node.catalog().external_tables() {
            let (state, standing, seen) = (external.state(), external.standing(), external.seen());
            let opened = OpenTable::External(Arc::clone(&external), Arc::clone(&seen));
            let version = self.node.lake_of(&opened).await.map_err(failed)?;
            let archive = seen.schema.options.archive.clone().unwrap_or_default();
            let pass = standing.progress.as_ref();
            let of = |count: Option<u64>| count.map_or(SystemCell::Null, int);
            let done = standing.done();
            let at = |ms: Option<i64>| ms.map_or(SystemCell::Null, SystemCell::Time);
            rows.push(vec![
                text(external.name()),
                text(&archive.url),
                text(state),
                of(pass.map(|at| at.listed)),
                of(pass.map(|at| at.known)),
                of(pass.map(|at| at.reading)),
                of(pass.map(|at| at.attached)),
                of(pass.map(|at| at.skipped)),
                of(pass.map(|at| at.removed)),
                of(pass.map(|at| at.rows)),
                of(pass.map(|at| at.bytes_read)),
                at(standing.started_ms),
                at(standing.ended_ms),
                standing.last_error.as_deref().map_or(SystemCell::Null, text),
                int(version.version.0),
                int(version.files.iter().filter(|file| !file.blocks.is_empty()).count() as u64),
                int(version.live_rows()),
                archive.follow_ms.map_or(SystemCell::Null, int),
                int(done.attached),
                int(done.removed),
                int(done.rows),
                int(done.bytes_read),
            ]);
        }
        rows.finish()
    }

    /// Files of which something is not in the table: `is_skipped` tells those of which nothing is.
    pub(crate) async fn attach_errors(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&["table_name", "path", "is_skipped", "reason"]);
        for external in self.node.catalog().external_tables() {
            let seen = external.seen();
            let opened = OpenTable::External(Arc::clone(&external), Arc::clone(&seen));
            let version = self.node.lake_of(&opened).await.map_err(failed)?;
            for file in &version.files {
                let Some(note) = &file.note else { continue };
                let is_skipped = SystemCell::Bool(file.blocks.is_empty());
                rows.push(vec![
                    text(external.name()),
                    text(&file.path),
                    is_skipped,
                    SystemCell::Text(note.to_string()),
                ]);
            }
        }
        rows.finish()
    }

    pub(crate) async fn metastore_stats(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&[
            "backend",
            "tables",
            "files",
            "blocks",
            "commits",
            "log_bytes",
            "checkpoint_bytes",
            "bloom_bytes",
            "column_bytes",
            "packs",
            "loose_blocks",
            "largest_partition_bytes",
        ]);
        let stats = self.node.metastore_stats().await.map_err(failed)?;
        rows.push(vec![
            SystemCell::Text(self.node.metastore_place()),
            int(stats.tables),
            int(stats.files),
            int(stats.blocks),
            int(stats.commits),
            int(stats.log_bytes),
            int(stats.checkpoint_bytes),
            int(stats.bloom_bytes),
            int(stats.column_bytes),
            int(stats.packs),
            int(stats.loose_blocks),
            int(stats.largest_partition_bytes),
        ]);
        rows.finish()
    }
}
