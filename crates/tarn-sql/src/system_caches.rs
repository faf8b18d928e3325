//! What can be seen in SQL of the caches? The table `tarn.caches`.

use datafusion::arrow::array::RecordBatch;
use tarn_node::caches::CacheLayerStatus;
use tarn_query::Error;

use crate::system::{System, SystemCell, SystemRows, int, text};

impl System {
    /// A row for each layer and place. NULL where the layer has no such thing.
    pub(crate) fn caches(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&[
            "layer",
            "place",
            "is_on",
            "entries",
            "bytes",
            "max_bytes",
            "hits",
            "misses",
            "hit_bytes",
            "evicted",
            "dropped",
            "damaged",
            "reason",
        ]);
        for standing in self.node.caches().standings() {
            let CacheLayerStatus { layer, place, is_on, entries, bytes, max_bytes, hits, misses, .. } = standing;
            let known = |count: Option<u64>| count.map_or(SystemCell::Null, int);
            rows.push(vec![
                text(layer),
                text(place),
                SystemCell::Bool(is_on),
                int(entries),
                int(bytes),
                int(max_bytes),
                int(hits),
                int(misses),
                known(standing.hit_bytes),
                int(standing.evicted),
                known(standing.dropped),
                known(standing.damaged),
                standing.reason.as_deref().map_or(SystemCell::Null, text),
            ]);
        }
        rows.finish()
    }
}
