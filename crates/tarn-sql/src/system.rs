//! What can be seen of the system in SQL? The tables of schema `tarn`, made when they are asked for.
//!
//! | table | one row for each |
//! |---|---|
//! | `tarn.tables` | table: where its rows are |
//! | `tarn.tablets` | tablet: how far it is applied, flushed and delivered |
//! | `tarn.files` | lake file of the installed version |
//! | `tarn.blocks` | block (row group) of such a file |
//! | `tarn.keys` | column of a primary key, in key order |
//! | `tarn.log_segments` | segment of the log: what in it lives |
//! | `tarn.log_blockers` | tablet that keeps the oldest segment, the largest first: who to ask when the log does not shrink |
//! | `tarn.deliveries` | commit to the lake that is still kept: deliveries, compactions, and what was attached |
//! | `tarn.attachments` | archive: where it is, how far its running or last pass is (`system_attach.rs`) |
//! | `tarn.attach_errors` | file of an archive that is not, or not whole, in the table, and why |
//! | `tarn.caches` | layer of caches and place: what it holds and how it does (`system_caches.rs`) |
//! | `tarn.queries` | statement that runs: whose it is, since when, and what it gave so far (`system_activity.rs`) |
//! | `tarn.metastore` | the metastore: what it keeps, and how much that takes |

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{Field, Schema};
use tarn_node::node::Node;
use tarn_query::{Error, SystemTables};
use tarn_types::{Value, full_name};

use crate::activity::Activity;
use crate::definition::{create_statement, key_text};
use crate::error_from::in_query;

pub(crate) const NAMES: [&str; 13] = [
    "attach_errors",
    "attachments",
    "blocks",
    "caches",
    "deliveries",
    "files",
    "keys",
    "log_blockers",
    "log_segments",
    "metastore",
    "queries",
    "tables",
    "tablets",
];

/// Fills the schema `tarn`.
pub struct System {
    pub(crate) node: Arc<Node>,
    pub(crate) activity: Arc<Activity>,
}

impl System {
    /// Tables are made when they are read.
    pub fn new(node: Arc<Node>, activity: Arc<Activity>) -> System {
        System { node, activity }
    }

    async fn tables(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&[
            "table_name",
            "table_id",
            "tablets",
            "primary_key",
            "append_only",
            "version",
            "recent_rows",
            "recent_bytes",
            "lake_rows",
            "dead_rows",
            "lake_files",
            "lake_bytes",
            "damage",
            "definition",
        ]);
        let tables = self.node.catalog().schemas();
        for (schema, lake) in self.node.lakes().await.map_err(failed)? {
            let handle = self.node.catalog().get(&schema.name);
            let pending = handle.as_ref().map(|handle| handle.pending()).unwrap_or_default();
            let dead: u64 = lake.files.iter().map(|file| lake.dead_rows(file.id)).sum();
            rows.push(vec![
                text(&schema.name),
                SystemCell::Int(schema.id.0.into()),
                SystemCell::Int(schema.options.tablets.into()),
                SystemCell::Text(key_text(&schema)),
                SystemCell::Bool(schema.options.append_only),
                int(lake.version.0),
                int(pending.rows),
                int(pending.bytes),
                int(lake.live_rows()),
                int(dead),
                int(lake.files.len() as u64),
                int(lake.size_bytes()),
                handle.as_ref().and_then(|handle| handle.damage()).map_or(SystemCell::Null, text),
                SystemCell::Text(create_statement(&schema, &tables)),
            ]);
        }
        rows.finish()
    }

    async fn tablets(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&[
            "table_name",
            "tablet_id",
            "applied_seqno",
            "durable_seqno",
            "delivered_seqno",
            "log_first_seqno",
            "log_bytes",
        ]);
        for standing in self.node.tablets() {
            rows.push(vec![
                text(&standing.table),
                SystemCell::Int(standing.tablet.0.into()),
                int(standing.applied.0),
                int(standing.durable.0),
                int(standing.delivered.0),
                int(standing.log_first.0),
                int(standing.log_bytes),
            ]);
        }
        rows.finish()
    }

    fn log_segments(&self) -> Result<RecordBatch, Error> {
        let mut rows =
            SystemRows::new(&["segment", "path", "size_bytes", "sealed", "live_bytes", "dead_bytes", "live_items"]);
        for segment in self.node.log_segments() {
            rows.push(vec![
                int(segment.seq),
                SystemCell::Text(segment.path.display().to_string()),
                int(segment.size_bytes),
                SystemCell::Bool(segment.sealed),
                int(segment.live_bytes),
                int(segment.dead_bytes),
                int(segment.live_items),
            ]);
        }
        rows.finish()
    }

    fn log_blockers(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&["table_name", "tablet_id", "first_seqno", "log_bytes", "oldest_segment"]);
        for blocker in self.node.log_blockers() {
            rows.push(vec![
                blocker.table.as_deref().map_or(SystemCell::Null, text),
                int(blocker.tablet),
                int(blocker.first.0),
                int(blocker.log_bytes),
                int(blocker.oldest_segment),
            ]);
        }
        rows.finish()
    }

    async fn files(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&[
            "table_name",
            "file_id",
            "path",
            "hour",
            "n_rows",
            "dead_rows",
            "size_bytes",
            "n_blocks",
            "created_version",
            "sorted_by_key",
            "checksums",
            "damage",
        ]);
        for (schema, lake) in self.node.lakes().await.map_err(failed)? {
            for file in &lake.files {
                rows.push(vec![
                    text(&schema.name),
                    int(file.id.0),
                    text(&file.path),
                    SystemCell::Time(file.hour.saturating_mul(3_600_000)),
                    int(file.n_rows),
                    int(lake.dead_rows(file.id)),
                    int(file.size_bytes),
                    int(file.blocks.len() as u64),
                    int(file.created_version.0),
                    SystemCell::Bool(file.sorted_by_key),
                    SystemCell::Bool(file.checksums.is_some()),
                    self.node
                        .lake_flaws()
                        .of(schema.id, file.id)
                        .map_or(SystemCell::Null, |flaw| SystemCell::Text(flaw.what)),
                ]);
            }
        }
        rows.finish()
    }

    async fn blocks(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&[
            "table_name",
            "file_id",
            "row_group",
            "first_row",
            "n_rows",
            "size_bytes",
            "key_min",
            "key_max",
        ]);
        for (schema, lake) in self.node.lakes().await.map_err(failed)? {
            let key = schema.key_columns().next();
            for (file, block) in lake.files.iter().flat_map(|file| file.blocks.iter().map(move |block| (file, block))) {
                let stats = key.and_then(|column| block.column(column.id));
                let bound = |value: Option<&Value>| match (value, key) {
                    (Some(value), Some(column)) => SystemCell::Text(value.to_display(&column.data_type)),
                    _ => SystemCell::Null,
                };
                rows.push(vec![
                    text(&schema.name),
                    int(file.id.0),
                    SystemCell::Int(block.row_group.into()),
                    int(block.first_row),
                    int(block.n_rows),
                    int(block.bytes),
                    bound(stats.and_then(|stats| stats.min.as_ref())),
                    bound(stats.and_then(|stats| stats.max.as_ref())),
                ]);
            }
        }
        rows.finish()
    }

    async fn deliveries(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&[
            "table_name",
            "version",
            "kind",
            "committed_at",
            "files_added",
            "rows_added",
            "bytes_added",
            "files_removed",
            "cursor",
        ]);
        for schema in self.node.catalog().schemas() {
            for commit in self.node.commits(&schema).await.map_err(failed)? {
                rows.push(vec![
                    text(&schema.name),
                    int(commit.version.0),
                    text(commit.kind.name()),
                    SystemCell::Time(commit.at_ms),
                    int(commit.added.len() as u64),
                    int(commit.added.iter().map(|file| file.n_rows).sum()),
                    int(commit.added.iter().map(|file| file.size_bytes).sum()),
                    int(commit.removed.len() as u64),
                    commit.cursor.as_ref().map_or(SystemCell::Null, |cursor| SystemCell::Text(cursor.to_string())),
                ]);
            }
        }
        rows.finish()
    }

    fn keys(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&["table_name", "column_name", "position", "descending", "partition_key"]);
        for handle in self.node.catalog().all() {
            let schema = handle.schema();
            if schema.is_keyless() || schema.options.is_index {
                continue;
            }
            for (idx, part) in schema.key.iter().enumerate() {
                rows.push(vec![
                    text(&schema.name),
                    text(&schema.columns[part.column_idx].name),
                    SystemCell::Int(idx as i64 + 1),
                    SystemCell::Bool(part.descending),
                    SystemCell::Bool(idx < schema.n_partition_key),
                ]);
            }
        }
        rows.finish()
    }
}

#[async_trait]
impl SystemTables for System {
    fn names(&self) -> Vec<String> {
        NAMES.iter().map(|name| (*name).to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<RecordBatch, Error> {
        match name {
            "tables" => self.tables().await,
            "tablets" => self.tablets().await,
            "files" => self.files().await,
            "keys" => self.keys(),
            "blocks" => self.blocks().await,
            "caches" => self.caches(),
            "log_segments" => self.log_segments(),
            "log_blockers" => self.log_blockers(),
            "deliveries" => self.deliveries().await,
            "attachments" => self.attachments().await,
            "attach_errors" => self.attach_errors().await,
            "queries" => self.queries(),
            "metastore" => self.metastore_stats().await,
            other => Err(Error::NoSuchTable { name: format!("tarn.{other}") }),
        }
    }
}

/// What the node said when a system table was made.
pub(crate) fn failed(error: tarn_node::error::Error) -> Error {
    in_query("tarn", error)
}

pub(crate) enum SystemCell {
    Int(i64),
    Text(String),
    Bool(bool),
    /// Milliseconds since 1970-01-01 UTC.
    Time(i64),
    Null,
}

/// A text; a full name in it with a dot behind the schema.
pub(crate) fn text(value: &str) -> SystemCell {
    SystemCell::Text(full_name::dotted(value).into_owned())
}

pub(crate) fn int(value: u64) -> SystemCell {
    SystemCell::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Rows gathered cell by cell; a column's type is that of its cells, and known by name when there are none.
pub(crate) struct SystemRows {
    names: &'static [&'static str],
    columns: Vec<Vec<SystemCell>>,
}

impl SystemRows {
    pub(crate) fn new(names: &'static [&'static str]) -> SystemRows {
        SystemRows { names, columns: names.iter().map(|_| Vec::new()).collect() }
    }

    pub(crate) fn push(&mut self, row: Vec<SystemCell>) {
        debug_assert_eq!(row.len(), self.names.len());
        self.columns.iter_mut().zip(row).for_each(|(column, cell)| column.push(cell));
    }

    pub(crate) fn finish(self) -> Result<RecordBatch, Error> {
        let arrays: Vec<ArrayRef> =
            self.names.iter().zip(&self.columns).map(|(name, cells)| array(name, cells)).collect();
        let fields: Vec<Field> = self
            .names
            .iter()
            .zip(&arrays)
            .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
            .collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(|e| Error::Sql { source: e.into() })
    }
}

fn array(name: &str, cells: &[SystemCell]) -> ArrayRef {
    let as_int = |cell: &SystemCell| if let SystemCell::Int(value) = cell { Some(*value) } else { None };
    match name {
        "table_name" | "primary_key" | "definition" | "path" | "kind" | "cursor" | "key_min" | "key_max"
        | "column_name" | "damage" | "url" | "state" | "last_error" | "reason" | "backend" | "layer" | "place"
        | "user_name" | "application_name" | "client" | "way" | "query" | "datname" | "usename" | "client_addr"
        | "client_hostname" | "wait_event_type" | "wait_event" | "backend_type" | "schemaname" | "sequencename"
        | "sequenceowner" | "data_type" | "tablename" | "indexname" | "tablespace" | "indexdef" => Arc::new(
            cells
                .iter()
                .map(|cell| if let SystemCell::Text(text) = cell { Some(text.as_str()) } else { None })
                .collect::<StringArray>(),
        ),
        "append_only" | "sealed" | "sorted_by_key" | "descending" | "partition_key" | "is_skipped" | "is_on"
        | "checksums" | "cycle" => Arc::new(
            cells
                .iter()
                .map(|cell| if let SystemCell::Bool(flag) = cell { Some(*flag) } else { None })
                .collect::<BooleanArray>(),
        ),
        "hour" | "committed_at" | "started_at" | "ended_at" | "backend_start" | "xact_start" | "query_start"
        | "state_change" => {
            let micros = cells
                .iter()
                .map(|cell| if let SystemCell::Time(ms) = cell { Some(ms.saturating_mul(1000)) } else { None });
            Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
        }
        "table_id" | "tablets" | "tablet_id" | "row_group" | "position" | "pid" | "leader_pid" | "datid"
        | "usesysid" | "client_port" => Arc::new(
            cells.iter().map(|cell| as_int(cell).and_then(|value| i32::try_from(value).ok())).collect::<Int32Array>(),
        ),
        _ => Arc::new(cells.iter().map(as_int).collect::<Int64Array>()),
    }
}
