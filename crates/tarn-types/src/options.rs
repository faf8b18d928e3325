//! What can be said in `CREATE TABLE … WITH (…)`?
//!
//! Every option is plain data with a default, so an older or newer definition reads back whole. `partition_key` is no
//! option of the table but part of its key ([`crate::TableSchema::n_partition_key`]). Options that name columns are set
//! through [`crate::TableSchema::set_option`], which knows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result, shorten};
use crate::ids::{ColumnId, TableId};
use crate::rules::Rules;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// The most tablets of one table: so many ids are its own, for those it begins with and those that splits make.
pub const MAX_TABLETS: u32 = 4096;

/// How are the keys of a table spread over its tablets?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Partitioning {
    /// In the order of the primary key: neighbours lie together, a scan gives key order. The table begins as one
    /// tablet, which is split.
    #[default]
    Range,
    /// By the token of the partition key: writes spread evenly, and rows of one partition lie together.
    Hash,
}

/// The names [`crate::TableSchema::set_option`] takes.
pub const OPTION_NAMES: [&str; 13] = [
    "append_only",
    "bloom",
    "bloom_chunks",
    "bloom_fpp",
    "delivery",
    "delivery_bytes",
    "feed_retention",
    "hot_retention",
    "partition_by",
    "partitioning",
    "tablets",
    "tokens",
    "ttl",
];

/// The fewest and the most chunks of a block's bloom filter that a table can ask for; a power of two.
pub const BLOOM_CHUNKS: std::ops::RangeInclusive<u32> = 64..=32_768;

/// How a table is kept and moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableOptions {
    /// `partitioning`: by ranges of the key, or by its hash. Fixed at creation. Default range.
    pub partitioning: Partitioning,
    /// `tablets`: how many the table begins with; more than one only where keys are hashed. Default 1.
    pub tablets: u32,
    /// `delivery`: the longest a change waits before it is delivered to the lake. Default 2 minutes.
    pub delivery_interval_ms: u64,
    /// `delivery_bytes`: recent rows of this size are delivered at once. Default 128 MiB.
    pub delivery_bytes: u64,
    /// `append_only`: rows are inserted only; the key is not unique, and no addresses are kept. Default false.
    pub append_only: bool,
    /// `hot_retention`: delivered rows older than this leave the row engine. Default: never.
    pub hot_retention_ms: Option<u64>,
    /// `ttl`: rows older than this are gone. Default: never.
    pub ttl_ms: Option<u64>,
    /// `partition_by`: what lake files are grouped by, as `hour(column)`. Default: the hour of delivery.
    pub partition_by: Option<String>,
    /// `feed_retention`: how long the log is kept for readers of the feed. Default 1 hour.
    pub feed_retention_ms: u64,
    /// What the bloom filters of the table's blocks hold. Default: there are none.
    pub indexing: Indexing,
    /// Set for a table whose files Tarn did not write: it has no key and no tablets, and is only read.
    pub archive: Option<Archive>,
    /// Set for a view: it has no key, no tablets and no rows, but those that its query gives when it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
    /// Set for the entries of an index ([`crate::index_table`]): nobody names it, and what is written to it goes with
    /// the rows of its table.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_index: bool,
    /// The data folder that has the table's log and rows. None: an archive, or a table of a build that did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<Uuid>,
    /// What its folder in the lake is called after: the name that it was made with. None: that is its name still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_as: Option<String>,
    /// What is said of columns beside their types. No option of `WITH`: it stands where the columns are defined.
    #[serde(skip_serializing_if = "Rules::is_empty")]
    pub rules: Rules,
}

/// What the bloom filters of a table's blocks hold, and how large they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Indexing {
    /// `tokens = 'body, message'` or `'all'`: text columns whose tokens are in the bloom.
    pub tokens: TokenColumns,
    /// `bloom = 'trace_id, status'`: columns whose whole values are. Any type but floats, whose equality is not that of
    /// bytes.
    pub bloom: Vec<ColumnId>,
    /// `bloom_chunks`: 32-byte chunks per block, a power of two from 64 to 32,768. 0: chosen from the first blocks.
    /// Default 0.
    pub bloom_chunks: u32,
    /// `bloom_fpp`: the false positives to choose for, of one key and block. Default 0.001.
    pub bloom_fpp: f64,
}

/// Which columns have their tokens in the bloom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenColumns {
    /// None.
    #[default]
    None,
    /// Every text column, also those that come later.
    All,
    /// These.
    Some(Vec<ColumnId>),
}

/// Where the files of an archive are, and what their names and rows say of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Archive {
    /// The folder or bucket prefix that was attached. Paths of files are below it.
    pub url: String,
    /// Parts of a path that say the hour, as `dt=…/hr=…`.
    pub hour_from: Option<String>,
    /// The column that dates the rows.
    pub time_column: Option<ColumnId>,
    /// How often new files are looked for. `None`: when asked to.
    pub follow_ms: Option<u64>,
    /// Files read at once. `None`: as the server likes.
    pub concurrency: Option<u32>,
    /// Each file is read whole when it is attached, and every later read of it is held against the checksums that were
    /// made then.
    pub checksums: bool,
    /// Its files were all looked at once: until then, a server that starts goes on with it.
    pub attached: bool,
}

/// The query of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// As it was written: it is parsed and planned anew whenever the view is read.
    pub query: String,
    /// What the query calls the columns of the view, in their order: the view's own names may be others, and a `*` may
    /// give more by now.
    pub columns: Vec<String>,
    /// The tables and views that the query itself reads, by the names that they had. None of those that a view below
    /// reads.
    pub reads: BTreeMap<String, TableId>,
}

impl std::fmt::Display for Partitioning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Range => "range",
            Self::Hash => "hash",
        })
    }
}

impl Default for Indexing {
    fn default() -> Self {
        Self { tokens: TokenColumns::None, bloom: Vec::new(), bloom_chunks: 0, bloom_fpp: 0.001 }
    }
}

impl Indexing {
    /// Have blocks a bloom at all?
    #[must_use]
    pub fn any(&self) -> bool {
        self.tokens != TokenColumns::None || !self.bloom.is_empty()
    }
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            partitioning: Partitioning::Range,
            tablets: 1,
            delivery_interval_ms: 2 * MINUTE_MS,
            delivery_bytes: 128 << 20,
            append_only: false,
            hot_retention_ms: None,
            ttl_ms: None,
            partition_by: None,
            feed_retention_ms: HOUR_MS,
            indexing: Indexing::default(),
            archive: None,
            view: None,
            is_index: false,
            home: None,
            made_as: None,
            rules: Rules::default(),
        }
    }
}

impl TableOptions {
    /// Sets one option from its text in `WITH (name = 'value')`. Durations are `'2 minutes'`, `'30 days'`, `'500 ms'`;
    /// sizes `'128 MiB'`, `'1GB'` or bytes. `tokens` and `bloom` name columns: [`crate::TableSchema::set_option`] sets
    /// them.
    ///
    /// # Errors
    /// [`Error::UnknownOption`] names those there are; [`Error::BadOption`] says what the option takes.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let bad = |want| Error::BadOption { name: name.to_owned(), value: shorten(value), want };
        let duration = || parse_duration_ms(value).ok_or_else(|| bad("a duration, such as '2 minutes'"));
        match name {
            "partitioning" => {
                self.partitioning = match value.trim() {
                    "range" => Partitioning::Range,
                    "hash" => Partitioning::Hash,
                    _ => return Err(bad("range or hash")),
                };
            }
            "tablets" => {
                let tablets = value.trim().parse().ok().filter(|n| (1..=MAX_TABLETS).contains(n));
                self.tablets = tablets.ok_or_else(|| bad("a number from 1 to 4096"))?;
            }
            "delivery" => self.delivery_interval_ms = duration()?,
            "delivery_bytes" => {
                self.delivery_bytes = parse_size_bytes(value).ok_or_else(|| bad("a size, such as '128 MiB'"))?;
            }
            "append_only" => {
                self.append_only = crate::text::parse_bool(value).ok_or_else(|| bad("true or false"))?;
            }
            "hot_retention" => self.hot_retention_ms = Some(duration()?),
            "ttl" => self.ttl_ms = Some(duration()?),
            "partition_by" => {
                parse_hour_of(value).ok_or_else(|| bad("hour(column)"))?;
                self.partition_by = Some(value.trim().to_owned());
            }
            "feed_retention" => self.feed_retention_ms = duration()?,
            "bloom_chunks" => {
                let is_good = |n: &u32| *n == 0 || BLOOM_CHUNKS.contains(n) && n.is_power_of_two();
                let chunks = value.trim().parse().ok().filter(is_good);
                self.indexing.bloom_chunks = chunks.ok_or_else(|| bad("a power of two from 64 to 32768, or 0"))?;
            }
            "bloom_fpp" => {
                let fpp = value.trim().parse().ok().filter(is_fpp);
                self.indexing.bloom_fpp = fpp.ok_or_else(|| bad("a share above 0 and up to 0.5, such as 0.001"))?;
            }
            _ => {
                return Err(Error::UnknownOption { name: name.to_owned(), known: OPTION_NAMES.join(", ") });
            }
        }
        Ok(())
    }

    /// The column whose hour lake files are grouped by.
    #[must_use]
    pub fn partition_column(&self) -> Option<&str> {
        self.partition_by.as_deref().and_then(parse_hour_of)
    }
}

/// A share of false positives that a filter can be sized for.
pub(crate) fn is_fpp(fpp: &f64) -> bool {
    *fpp > 0.0 && *fpp <= 0.5
}

/// `hour(column)` → `column`
fn parse_hour_of(text: &str) -> Option<&str> {
    let column = text.trim().strip_prefix("hour(")?.strip_suffix(')')?.trim();
    let column = column.strip_prefix('"').and_then(|c| c.strip_suffix('"')).unwrap_or(column);
    (!column.is_empty()).then_some(column)
}

/// A number and a unit: `ms`, `s`, `second(s)`, `min`, `minute(s)`, `h`, `hour(s)`, `d`, `day(s)`.
#[must_use]
pub fn parse_duration_ms(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let unit_ms = match unit.trim_end_matches('s') {
        "m" if unit == "ms" => 1,
        "millisecond" => 1,
        "" if unit == "s" => 1_000,
        "sec" | "second" => 1_000,
        "min" | "minute" => MINUTE_MS,
        "h" | "hour" => HOUR_MS,
        "d" | "day" => 24 * HOUR_MS,
        _ => return None,
    };
    number.checked_mul(unit_ms)
}

/// A number and a unit: none or `b`, `kb`/`mb`/`gb`/`tb` (thousands), `kib`/`mib`/`gib`/`tib` (1024), in any case.
#[must_use]
pub fn parse_size_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let unit_bytes = match unit.as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(unit_bytes)
}

fn split_unit(text: &str) -> Option<(u64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim().to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes() {
        for (text, ms) in [
            ("500ms", 500),
            ("2 s", 2_000),
            ("1 second", 1_000),
            ("2 minutes", 120_000),
            ("30 days", 2_592_000_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse_duration_ms(text), Some(ms), "{text}");
        }
        for text in ["", "5", "5 m", "minutes", "-1 s", "99999999999999999999 s", "18446744073709551615 days"] {
            assert_eq!(parse_duration_ms(text), None, "{text}");
        }
        assert_eq!(parse_size_bytes("128 MiB"), Some(128 << 20));
        assert_eq!(parse_size_bytes("1GB"), Some(1_000_000_000));
        assert_eq!(parse_size_bytes("17"), Some(17));
    }

    #[test]
    fn every_name_is_settable_and_unknown_ones_are_told_the_others() {
        let mut table = crate::test_data::orders();
        let values = [
            "true",
            "customer, note",
            "8192",
            "0.01",
            "2 minutes",
            "1 MiB",
            "1 h",
            "1 day",
            "hour(ts)",
            "hash",
            "4",
            "note",
            "30 days",
        ];
        for (name, value) in OPTION_NAMES.iter().zip(values) {
            table.set_option(name, value).unwrap();
        }
        let mut options = table.options;
        let indexing = &options.indexing;
        assert_eq!((&indexing.tokens, indexing.bloom_chunks), (&TokenColumns::Some(vec![ColumnId(4)]), 8192));
        assert_eq!((&indexing.bloom[..], indexing.bloom_fpp), (&[ColumnId(1), ColumnId(4)][..], 0.01));
        assert_eq!(options.partition_column(), Some("ts"));
        assert!(options.append_only && options.tablets == 4);
        let error = options.set("tablet", "4").unwrap_err().to_string();
        assert!(error.contains("unknown table option tablet") && error.contains("tablets"), "{error}");
        assert!(options.set("tablets", "0").unwrap_err().to_string().contains("want a number from 1"));
        for bad in ["63", "100", "65536", "-1"] {
            assert!(options.set("bloom_chunks", bad).is_err(), "{bad}");
        }
        for bad in ["0", "NaN", "0.6", "-0.1"] {
            assert!(options.set("bloom_fpp", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn missing_fields_take_their_default() {
        let options: TableOptions = serde_json::from_str(r#"{"tablets":3}"#).unwrap();
        assert_eq!(options, TableOptions { tablets: 3, ..TableOptions::default() });
    }
}
