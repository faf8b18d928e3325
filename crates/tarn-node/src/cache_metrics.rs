//! What do the caches tell of themselves? One line a layer and place for Prometheus, read at each scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::caches::{CacheLayerStatus, Caches};

/// The caches, as a registry reads them.
pub struct CacheMetrics(pub Arc<Caches>);

impl fmt::Debug for CacheMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CacheMetrics")
    }
}

type LayerMetric<T> = fn(&CacheLayerStatus) -> Option<T>;

const COUNTERS: [(&str, &str, LayerMetric<u64>); 6] = [
    ("cache_hits", "Lookups that the layer answered", |at| Some(at.hits)),
    ("cache_misses", "Lookups that went further", |at| Some(at.misses)),
    ("cache_hit_bytes", "Bytes that the layer answered with", |at| at.hit_bytes),
    ("cache_evicted", "Entries that left to make room", |at| Some(at.evicted)),
    (
        "cache_dropped",
        "Entries that were not kept, because too much waited to be written or writing had stopped",
        |at| at.dropped,
    ),
    ("cache_damaged", "Entries whose file was not what had been written, or gone", |at| at.damaged),
];

const GAUGES: [(&str, &str, LayerMetric<i64>); 4] = [
    ("cache_on", "1: the layer is used", |at| Some(i64::from(at.is_on))),
    ("cache_entries", "Entries held", |at| i64::try_from(at.entries).ok()),
    ("cache_bytes", "Bytes held", |at| i64::try_from(at.bytes).ok()),
    ("cache_max_bytes", "Bytes that may be held", |at| i64::try_from(at.max_bytes).ok()),
];

impl Collector for CacheMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let standings = self.0.standings();
        for (name, help, of) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for at in &standings {
                let Some(value) = of(at) else { continue };
                ConstCounter::new(value).encode(family.encode_family(&[("layer", at.layer), ("place", at.place)])?)?;
            }
        }
        for (name, help, of) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for at in &standings {
                let Some(value) = of(at) else { continue };
                ConstGauge::new(value).encode(family.encode_family(&[("layer", at.layer), ("place", at.place)])?)?;
            }
        }
        let stores = self.0.store_stats();
        let mut requests = encoder.encode_descriptor(
            "store_requests",
            "Calls that reached an object store; a multipart upload is one",
            None,
            MetricType::Counter,
        )?;
        for (store, stats) in &stores {
            for (kind, value) in [("read", stats.reads), ("write", stats.writes), ("list", stats.lists)] {
                let labels = [("store", store.as_str()), ("kind", kind)];
                ConstCounter::new(value).encode(requests.encode_family(&labels)?)?;
            }
        }
        let mut bytes = encoder.encode_descriptor(
            "store_read_bytes",
            "Bytes read from an object store",
            None,
            MetricType::Counter,
        )?;
        for (store, stats) in &stores {
            ConstCounter::new(stats.read_bytes).encode(bytes.encode_family(&[("store", store.as_str())])?)?;
        }
        Ok(())
    }
}
