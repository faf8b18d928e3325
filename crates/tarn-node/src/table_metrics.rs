//! What do tables and the row engine tell of themselves? How far the lake is behind, and what waits in the engine, read
//! at each scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tarn_rows::{Engine, EngineStats, RocksEngine};
use tarn_types::{Clock, full_name};

use crate::catalog::Catalog;

const MS_PER_SECOND: f64 = 1000.0;

/// Tables that are written here, and their engine, as a registry reads them.
pub(crate) struct TableMetrics {
    pub catalog: Arc<Catalog>,
    pub engine: Arc<RocksEngine>,
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for TableMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableMetrics")
    }
}

type EngineMetric = fn(&EngineStats) -> u64;

const ENGINE: [(&str, &str, EngineMetric); 6] = [
    ("engine_disk_bytes", "Files of the row engine", |at| at.disk_bytes),
    ("engine_memtable_bytes", "Memory of the row engine that a flush would write", |at| at.memtable_bytes),
    ("engine_cache_bytes", "Memory of the row engine's blocks that are kept near", |at| at.cache_bytes),
    (
        "engine_compaction_pending_bytes",
        "Bytes that the row engine has to compact: it slows writes down when they become too many",
        |at| at.compaction_pending_bytes,
    ),
    ("engine_stopped", "1: the row engine takes no writes before a compaction is done", |at| u64::from(at.is_stopped)),
    (
        "engine_slowed_to_bytes_per_second",
        "What the row engine slows writes down to, for it has much to compact; 0: it does not",
        |at| at.slowed_to_bytes_per_s,
    ),
];

const ENGINE_STALLS: [(&str, &str, EngineMetric); 3] = [
    (
        "engine_memtable_waits",
        "Writes that waited because the row engine's memtables were not flushed as fast as they were filled",
        |at| at.n_memtable_waits,
    ),
    ("engine_slowdowns", "How often the row engine began to slow writes down", |at| at.n_slowdowns),
    ("engine_stops", "How often the row engine stopped writes before a compaction", |at| at.n_stops),
];

impl Collector for TableMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Age of the oldest change of a table that is not in the lake; 0: all are";
        let mut family = encoder.encode_descriptor("delivery_lag_seconds", help, None, MetricType::Gauge)?;
        let now_ms = self.clock.now_ms();
        for handle in self.catalog.all() {
            let lag_ms = handle.pending().oldest_ms.map_or(0, |oldest_ms| now_ms.saturating_sub(oldest_ms).max(0));
            let name = full_name::dotted(&handle.schema().name);
            let labels = [("table", &*name)];
            ConstGauge::new(lag_ms as f64 / MS_PER_SECOND).encode(family.encode_family(&labels)?)?;
        }
        // An engine that cannot tell says so when it is written to.
        let Ok(stats) = self.engine.stats() else { return Ok(()) };
        for (name, help, of) in ENGINE {
            let metric = ConstGauge::new(i64::try_from(of(&stats)).unwrap_or(i64::MAX));
            metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        for (name, help, of) in ENGINE_STALLS {
            let metric = ConstCounter::new(of(&stats));
            metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}
