//! What does the log tell of itself? Its counters, gauges and histograms for Prometheus, read at each scrape.
//!
//! Histograms come in buckets of powers of two, the same at every scrape whatever was seen.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tarn_raftlog::{Histogram, RaftLog};

/// 16 µs to 4.3 s, in ns.
const WRITE_NS: RangeInclusive<u32> = 14..=32;
/// 1 to 1,023 batches.
const FRAME_BATCHES: RangeInclusive<u32> = 1..=10;

const NS_PER_SECOND: f64 = 1e9;

/// The log, as a registry reads it.
pub struct LogMetrics(pub Arc<RaftLog>);

impl fmt::Debug for LogMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogMetrics")
    }
}

impl Collector for LogMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let log = self.0.metrics();
        let dead_bytes: u64 = self.0.segments().iter().map(|segment| segment.dead_bytes).sum();
        let counters = [
            ("log_batches", "Batches submitted, each all or nothing", log.batches),
            (
                "log_commits",
                "Group commits: one write each, and one flush unless the device wrote it through",
                log.frames,
            ),
            ("log_entries", "Entries appended", log.entries),
            ("log_entry_bytes", "Payload bytes appended", log.entry_bytes),
            ("log_saved_bytes", "Payload bytes that LZ4 saved on disk", log.saved_bytes),
            ("log_written_bytes", "Bytes written: frames with their padding, and seals", log.written_bytes),
            ("log_filled_bytes", "Zeros written ahead to new segment files", log.filled_bytes),
            ("log_segments_created", "Segment files made", log.segments_created),
            (
                "log_segments_dropped",
                "Segments in which nothing lived any more: used again or removed",
                log.segments_deleted,
            ),
            ("log_moved_bytes", "Living bytes that garbage collection copied to the end", log.rewritten_bytes),
            ("log_cache_hits", "Entries read from memory", log.cache_hits),
            ("log_cache_misses", "Entries read from disk", log.cache_misses),
        ];
        for (name, help, value) in counters {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let gauges = [
            ("log_bytes", "Disk taken by the log, files made ahead included", log.disk_bytes),
            ("log_live_bytes", "Payload and record bytes that live", log.live_bytes),
            ("log_dead_bytes", "Payload and record bytes that are dead, in segments not yet dropped", dead_bytes),
            ("log_index_bytes", "Memory of the index of live entries", log.index_bytes),
            ("log_cached_bytes", "Memory of entries kept for readers", log.cached_bytes),
            ("log_pending_bytes", "Bytes submitted and not durable", log.pending_bytes),
            ("log_groups", "Groups: one a tablet", log.n_groups),
            ("log_segments", "Segments with entries, or taking them", log.n_segments),
            ("log_free_segments", "Empty segment files ready for use", log.n_free),
            (
                "log_poisoned",
                "1: a write failed, and nothing more is written until the log is opened anew",
                u64::from(log.poisoned),
            ),
        ];
        for (name, help, value) in gauges {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let recovery = ConstGauge::new(log.recovery_ns as f64 / NS_PER_SECOND);
        let help = "How long opening the log took at start";
        recovery.encode(encoder.encode_descriptor("log_recovery_seconds", help, None, MetricType::Gauge)?)?;
        let histograms = [
            ("log_write_seconds", "Write and flush of a group commit", &log.write_ns, WRITE_NS, NS_PER_SECOND),
            ("log_commit_batches", "Batches that shared a group commit", &log.frame_batches, FRAME_BATCHES, 1.0),
        ];
        for (name, help, histogram, octaves, per_unit) in histograms {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            let (sum, buckets) = (histogram.sum() as f64 / per_unit, buckets(histogram, octaves, per_unit));
            metric.encode_histogram::<NoLabelSet>(sum, histogram.count(), &buckets, None)?;
        }
        Ok(())
    }
}

/// (upper bound, count) for each power of two, less one: there a bucket of the log's own ends. The last has no bound.
fn buckets(histogram: &Histogram, octaves: RangeInclusive<u32>, per_unit: f64) -> Vec<(f64, u64)> {
    let mut own = histogram.buckets().peekable();
    let mut buckets = Vec::new();
    for octave in octaves {
        let bound = (1u64 << octave) - 1;
        let mut n = 0;
        while let Some((_, count)) = own.next_if(|(upper, _)| *upper <= bound) {
            n += count;
        }
        buckets.push((bound as f64 / per_unit, n));
    }
    buckets.push((f64::INFINITY, own.map(|(_, count)| count).sum()));
    buckets
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use tarn_raftlog::{GroupId, Index, MemoryDisk, Options, Term};

    use super::*;

    /// 100 µs pass from each look to the next.
    fn clock() -> u64 {
        static NOW: AtomicU64 = AtomicU64::new(0);
        NOW.fetch_add(100_000, Ordering::Relaxed)
    }

    #[test]
    fn counters_gauges_and_histograms_are_in_prometheus_form() {
        let options = Options { segment_bytes: 1 << 20, clock: Some(clock), ..Options::new("/log") };
        let (log, _) = RaftLog::open_on(Arc::new(MemoryDisk::new(1)), options).unwrap();
        for index in 1..=3 {
            let mut batch = log.batch();
            batch.append(GroupId(1), Term(1), Index(index), [&b"entry"[..]]);
            log.commit(batch).unwrap();
        }
        let mut registry = Registry::with_prefix("tarn");
        registry.register_collector(Box::new(LogMetrics(Arc::new(log))));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "# TYPE tarn_log_commits counter",
            "tarn_log_commits_total 3",
            "tarn_log_entry_bytes_total 15",
            "tarn_log_live_bytes 15",
            "tarn_log_poisoned 0",
            "tarn_log_recovery_seconds 0.0001",
            "# TYPE tarn_log_write_seconds histogram",
            "tarn_log_write_seconds_count 3",
            "tarn_log_write_seconds_bucket{le=\"0.000065535\"} 0",
            "tarn_log_write_seconds_bucket{le=\"0.000131071\"} 3",
            "tarn_log_write_seconds_bucket{le=\"+Inf\"} 3",
            "tarn_log_commit_batches_sum 3.0",
            "tarn_log_commit_batches_bucket{le=\"1.0\"} 3",
            "tarn_log_commit_batches_bucket{le=\"1023.0\"} 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing:\n{text}");
        }
    }
}
