//! What has the server done so far? Counters and gauges in Prometheus' text format.

use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tarn_raftlog::RaftLog;

use crate::cache_metrics::CacheMetrics;
use crate::caches::Caches;
use crate::log_metrics::LogMetrics;

/// All metrics of a node. Cheap to update from anywhere.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub statements: Counter,
    pub keyed_statements: Counter,
    pub errors: Counter,
    pub rows_written: Counter,
    pub write_waits: Counter,
    pub deliveries: Counter,
    pub delivered_rows: Counter,
    pub compactions: Counter,
    pub background_failures: Counter,
    pub evicted_rows: Counter,
    pub heals: Counter,
    pub attach_passes: Counter,
    pub attached_files: Counter,
    pub attach_failures: Counter,
    pub scrub_bytes: Counter,
    pub scrub_files: Counter,
    pub scrub_rounds: Counter,
    pub scrub_damaged_files: Gauge,
    pub connections: Gauge,
    pub tables: Gauge,
    pub recent_bytes: Gauge,
    pub query_memory_bytes: Gauge,
    /// By table, those alone whose last delivery failed.
    delivery_failing: Family<[(&'static str, String); 1], Gauge>,
    pub engine_faulty: Gauge,
    pub engine_errors: Gauge,
    pub metastore_faulty: Gauge,
    pub disk_low: Gauge,
}

impl Metrics {
    /// All at zero; what `log` and `caches` count by themselves is read when it is asked for.
    pub fn new(log: Arc<RaftLog>, caches: Arc<Caches>) -> Self {
        let mut registry = Registry::with_prefix("tarn");
        registry.register_collector(Box::new(LogMetrics(log)));
        registry.register_collector(Box::new(CacheMetrics(caches)));
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let statements = counter("statements", "Statements executed");
        let keyed_statements = counter("keyed_statements", "Statements answered by key, without a plan");
        let errors = counter("errors", "Statements that failed");
        let rows_written = counter("rows_written", "Rows put, inserted, updated or deleted");
        let write_waits = counter("write_waits", "Writes that waited for delivery to make room");
        let deliveries = counter("deliveries", "Deliveries to the lake");
        let delivered_rows = counter("delivered_rows", "Rows delivered to the lake");
        let compactions = counter("compactions", "Compactions of lake files");
        let background_failures = counter("background_failures", "Background steps that failed and will be retried");
        let evicted_rows = counter("evicted_rows", "Rows that left the row engine for the lake alone");
        let heals =
            counter("heals", "Faults of the row engine's or the metastore's disk that were over, and writes went on");
        let attach_passes = counter("attach_passes", "Passes over archives that came to their end");
        let attached_files = counter("attached_files", "Files of archives that were attached");
        let attach_failures = counter("attach_failures", "Passes over archives that failed");
        let scrub_bytes = counter("scrub_bytes", "Bytes of lake files that the scrub held against their checksums");
        let scrub_files = counter("scrub_files", "Lake files that it read to their end");
        let scrub_rounds = counter("scrub_rounds", "Rounds over all lake files that it came to the end of");
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let scrub_damaged_files = gauge("scrub_damaged_files", "Lake files that are known to be damaged");
        let connections = gauge("connections", "Open Postgres connections");
        let tables = gauge("tables", "Tables");
        let recent_bytes = gauge("recent_bytes", "Memory of rows that are not delivered yet");
        let query_memory_bytes = gauge("query_memory_bytes", "Memory of running queries");
        let engine_faulty = gauge("engine_faulty", "1: a flush of the row engine failed, and writes are refused");
        let engine_errors = gauge("engine_errors", "Errors the row engine met in the background since the start");
        let metastore_faulty = gauge("metastore_faulty", "1: the metastore takes no commits");
        let disk_low = gauge("disk_low", "1: the disk is nearly full, and writes are refused");
        let delivery_failing = Family::default();
        registry.register(
            "delivery_failing",
            "1 for each table whose last delivery to the lake failed",
            delivery_failing.clone(),
        );
        Metrics {
            registry,
            statements,
            keyed_statements,
            errors,
            rows_written,
            write_waits,
            deliveries,
            delivered_rows,
            compactions,
            background_failures,
            evicted_rows,
            heals,
            attach_passes,
            attached_files,
            attach_failures,
            scrub_bytes,
            scrub_files,
            scrub_rounds,
            scrub_damaged_files,
            connections,
            tables,
            recent_bytes,
            query_memory_bytes,
            delivery_failing,
            engine_faulty,
            engine_errors,
            metastore_faulty,
            disk_low,
        }
    }

    /// How the last delivery of a table went.
    pub fn set_delivery_failing(&self, table: &str, is_failing: bool) {
        let label = [("table", table.to_owned())];
        if is_failing {
            self.delivery_failing.get_or_create(&label).set(1);
        } else {
            self.delivery_failing.remove(&label);
        }
    }

    /// The text of `/metrics`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
