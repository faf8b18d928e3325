//! What do the catalogs say of sequences? `pg_class` (kind `S`), `pg_sequence` and `pg_sequences`; those of
//! `information_schema` are beside its other relations.

use datafusion::arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use tarn_node::node::Node;
use tarn_node::sequences::{Sequence, Width};
use tarn_query::Error;
use tarn_types::full_name;

use crate::error::SqlError;
use crate::system::{SystemCell, SystemRows, text};
use crate::system_activity::PgTables;

/// Numbers of sequences: that of the name behind. Those of tables are smaller, those of constraints larger.
const SEQUENCES: u32 = 1_200_000_000;
const N_NUMBERS: u32 = 200_000_000;

/// A row, by names of columns.
type SequenceRow = Vec<(&'static str, ScalarValue)>;

/// All sequences, as they are now.
pub(crate) async fn all(node: &Node) -> Result<Vec<(String, Sequence)>, SqlError> {
    Ok(node.sequences().all().await?)
}

/// The number that `pg_class` has of it. Of the name, as sequences have no number of their own: the same on every
/// server and at every start.
pub(crate) fn number(name: &str) -> i32 {
    // FNV-1a: it spreads short names well.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    i32::try_from(SEQUENCES + hash % N_NUMBERS).expect("both together are less than two thousand millions")
}

/// Its row of `pg_class`.
pub(crate) fn class(name: &str, namespace: i32) -> SequenceRow {
    vec![
        ("oid", ScalarValue::from(number(name))),
        ("relname", ScalarValue::from(full_name::bare(name))),
        ("relnamespace", ScalarValue::from(namespace)),
        ("relfilenode", ScalarValue::from(number(name))),
        ("relpersistence", ScalarValue::from("p")),
        ("relkind", ScalarValue::from("S")),
        ("relnatts", ScalarValue::from(3_i16)),
        ("relispopulated", ScalarValue::from(true)),
        ("relreplident", ScalarValue::from("n")),
    ]
}

/// Its row of `pg_sequence`.
pub(crate) fn sequence(name: &str, of: &Sequence) -> SequenceRow {
    let data_type = match of.width {
        Width::Smallint => 21,
        Width::Integer => 23,
        Width::Bigint => 20,
    };
    vec![
        ("seqrelid", ScalarValue::from(number(name))),
        ("seqtypid", ScalarValue::from(data_type)),
        ("seqstart", ScalarValue::from(of.start)),
        ("seqincrement", ScalarValue::from(of.increment)),
        ("seqmax", ScalarValue::from(of.max)),
        ("seqmin", ScalarValue::from(of.min)),
        ("seqcache", ScalarValue::from(of.cache)),
        ("seqcycle", ScalarValue::from(of.cycle)),
    ]
}

impl PgTables {
    /// `pg_sequences`. The last value is the last that a server took: those that were given may be fewer.
    pub(crate) async fn sequences(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&[
            "schemaname",
            "sequencename",
            "sequenceowner",
            "data_type",
            "start_value",
            "min_value",
            "max_value",
            "increment_by",
            "cycle",
            "cache_size",
            "last_value",
        ]);
        let all = all(&self.node).await.map_err(|error| Error::Sql { source: error.into() })?;
        for (name, of) in all {
            rows.push(vec![
                text(full_name::schema_of(&name)),
                text(full_name::bare(&name)),
                of.maker.as_deref().map_or(SystemCell::Null, text),
                text(of.width.name()),
                SystemCell::Int(of.start),
                SystemCell::Int(of.min),
                SystemCell::Int(of.max),
                SystemCell::Int(of.increment),
                SystemCell::Bool(of.cycle),
                SystemCell::Int(of.cache),
                if of.is_called { SystemCell::Int(of.last) } else { SystemCell::Null },
            ]);
        }
        rows.finish()
    }
}
