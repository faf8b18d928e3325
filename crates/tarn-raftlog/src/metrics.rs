//! What has the log done since it was opened, and what does it hold now?

use std::fmt;

/// Counters since open, and gauges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Batches submitted.
    pub batches: u64,
    /// Group commits: one write each, and one flush unless the device wrote it through.
    pub frames: u64,
    /// Entries appended by the host; copies of garbage collection are in `rewritten_bytes`.
    pub entries: u64,
    /// Their payloads, as the host gave them.
    pub entry_bytes: u64,
    /// Of `entry_bytes`, what LZ4 saved on disk.
    pub saved_bytes: u64,
    /// Frames with their padding, and seals.
    pub written_bytes: u64,
    /// Zeros written ahead to new files.
    pub filled_bytes: u64,
    /// Files made new, not those used again.
    pub segments_created: u64,
    /// Segments in which nothing lived any more: their files were renewed or removed.
    pub segments_deleted: u64,
    /// Payloads copied by garbage collection, so that segments become free.
    pub rewritten_bytes: u64,
    /// Entries read from memory.
    pub cache_hits: u64,
    /// Entries read from the disk.
    pub cache_misses: u64,
    /// Groups that are there now.
    pub n_groups: u64,
    /// With frames, or taking them.
    pub n_segments: u64,
    /// Empty files ready for use.
    pub n_free: u64,
    /// Of all files.
    pub disk_bytes: u64,
    /// Payloads and records that live in all segments.
    pub live_bytes: u64,
    /// Memory of the index of live entries.
    pub index_bytes: u64,
    /// Payloads in memory: the newest, within [`crate::Options::cache_bytes`], and those not yet durable.
    pub cached_bytes: u64,
    /// Submitted, and not durable yet.
    pub pending_bytes: u64,
    /// A write failed: nothing is written until the log is opened anew.
    pub poisoned: bool,
    /// How long a frame's write and flush took, in ns; empty without [`crate::Options::clock`].
    pub write_ns: Histogram,
    /// How many batches shared a frame.
    pub frame_batches: Histogram,
    /// How long opening took, in ns; 0 without a clock.
    pub recovery_ns: u64,
}

/// One segment as [`crate::RaftLog::segments`] shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number: higher ones are newer.
    pub seq: u64,
    /// Its file, which is used again under the same name.
    pub path: std::path::PathBuf,
    /// Of the file, unused room included.
    pub size_bytes: u64,
    /// Whether it is finished; one that is not takes frames, or is empty.
    pub sealed: bool,
    /// Payload and record bytes put in it that still live, and that are dead.
    pub live_bytes: u64,
    /// As `live_bytes`: what collection would not have to copy.
    pub dead_bytes: u64,
    /// Entries and group records that live in it.
    pub live_items: u64,
}

/// Counts of values, four buckets to each power of two: quantiles are right within a quarter.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    n: u64,
    sum: u64,
    max: u64,
}

/// The two bits below the highest choose among four buckets of an octave.
fn bucket(value: u64) -> usize {
    if value < 4 {
        return value as usize;
    }
    let octave = value.ilog2() as usize;
    (octave - 1) * 4 + (value >> (octave - 2) & 3) as usize
}

fn upper_bound(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let octave = bucket / 4 + 1;
    let start = 1u128 << octave;
    ((start + (start / 4) * (bucket as u128 % 4 + 1)) - 1).min(u128::from(u64::MAX)) as u64
}

impl Histogram {
    pub(crate) fn add(&mut self, value: u64) {
        let bucket = bucket(value);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.n += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.n
    }

    /// Their sum: with [`Histogram::count`], the mean.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value that `share` (0 to 1) of all values do not exceed, at most a quarter too high; 0 if there is none.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (self.n as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_bound(at).min(self.max);
            }
        }
        self.max
    }

    /// (upper bound, count) of all buckets in use, ascending: for exporters.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, &count)| (upper_bound(at), count))
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values, p50 {}, p99 {}, max {}", self.n, self.quantile(0.5), self.quantile(0.99), self.max)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_right_within_a_quarter(mut values in prop::collection::vec(any::<u64>().prop_map(|v| v >> (v % 64)), 1..200), share in 0.0f64..1.0) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.add(value));
            values.sort_unstable();
            let rank = ((values.len() as f64 * share).ceil().max(1.0) as usize - 1).min(values.len() - 1);
            let (exact, got) = (values[rank], histogram.quantile(share));
            prop_assert!(got >= exact && got - exact <= exact / 4, "{} for {}", got, exact);
            prop_assert_eq!(histogram.buckets().map(|b| b.1).sum::<u64>(), values.len() as u64);
        }
    }
}
