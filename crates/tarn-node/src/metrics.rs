//! What has the server done so far, and how long did it take? Counters, gauges and histograms in Prometheus' text
//! format.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tarn_types::full_name;

/// How long something took, each time: in buckets of powers of two. Cheap to clone: all count together.
#[derive(Debug, Clone)]
pub struct Seconds(Histogram);

impl Seconds {
    fn from(least: f64, n_buckets: u16) -> Seconds {
        Seconds(Histogram::new(exponential_buckets(least, 2.0, n_buckets)))
    }

    /// Once more, so many microseconds.
    pub fn observe_us(&self, took_us: u64) {
        self.0.observe(took_us as f64 / 1e6);
    }
}

/// A name and its value.
type Label = [(&'static str, &'static str); 1];

/// 0.1 ms to 210 s.
fn of_statement() -> Histogram {
    Seconds::from(1e-4, 22).0
}

/// All metrics of a node. Cheap to update from anywhere.
#[derive(Debug)]
#[expect(missing_docs, reason = "their texts in the registry, below, say what they count")]
pub struct Metrics {
    registry: Registry,
    pub statements: Counter,
    pub keyed_statements: Counter,
    pub errors: Counter,
    /// By the way in which they were answered.
    statement_seconds: Family<Label, Histogram, fn() -> Histogram>,
    pub rows_written: Counter,
    pub commit_seconds: Seconds,
    pub write_waits: Counter,
    pub write_wait_seconds: Seconds,
    pub deliveries: Counter,
    pub tablet_splits: Counter,
    pub delivery_seconds: Seconds,
    pub delivered_rows: Counter,
    pub compactions: Counter,
    pub compaction_seconds: Seconds,
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
    /// All at zero; what the `others` count by themselves is read when it is asked for.
    pub(crate) fn new(others: Vec<Box<dyn Collector>>) -> Self {
        let mut registry = Registry::with_prefix("tarn");
        others.into_iter().for_each(|other| registry.register_collector(other));
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
        let tablet_splits = counter("tablet_splits", "Tablets that were split because they grew");
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
        let mut seconds = |name: &str, help: &str, least: f64, n_buckets: u16| {
            let seconds = Seconds::from(least, n_buckets);
            registry.register(name, help, seconds.0.clone());
            seconds
        };
        let commit_seconds =
            seconds("commit_seconds", "Time of a write from its submission until it is durable and visible", 1e-4, 18);
        let write_wait_seconds =
            seconds("write_wait_seconds", "Time that a write waited for delivery to make room", 1e-3, 18);
        let delivery_seconds = seconds("delivery_seconds", "Time of a delivery to the lake", 1e-2, 16);
        let compaction_seconds = seconds("compaction_seconds", "Time of a compaction of lake files", 1e-2, 18);
        let statement_seconds = Family::new_with_constructor(of_statement as fn() -> Histogram);
        registry.register(
            "statement_seconds",
            "Time from a statement's message to the end of its answer, by the way in which it was answered",
            statement_seconds.clone(),
        );
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
            statement_seconds,
            rows_written,
            commit_seconds,
            write_waits,
            write_wait_seconds,
            deliveries,
            tablet_splits,
            delivery_seconds,
            delivered_rows,
            compactions,
            compaction_seconds,
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

    /// Of statements that are answered in this way.
    pub fn statement_seconds(&self, way: &'static str) -> Seconds {
        Seconds(self.statement_seconds.get_or_create_owned(&[("way", way)]))
    }

    /// How the last delivery of a table went.
    pub fn set_delivery_failing(&self, table: &str, is_failing: bool) {
        let label = [("table", full_name::dotted(table).into_owned())];
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
