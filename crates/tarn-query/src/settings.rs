//! What may a session set? `SET tarn.access_path = 'lake'`, `SET tarn.as_of_version = 17`,
//! `SET tarn.as_of_time = '2026-11-21 12:00:00Z'`,
//! `SET tarn.pruning = 'off'`, `SET tarn.cache.pages = 'off'`.

use std::any::Any;
use std::fmt;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::error::DataFusionError;
use tarn_types::{DataType, Value, Version};

/// How tables are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessPath {
    /// The planner chooses, and says why in `EXPLAIN`.
    #[default]
    Auto,
    /// From the row engine.
    Rows,
    /// From lake files and recent rows.
    Lake,
    /// By an index wherever one can be asked, else as the planner chooses.
    Index,
}

impl fmt::Display for AccessPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessPath::Auto => "auto",
            AccessPath::Rows => "rows",
            AccessPath::Lake => "lake",
            AccessPath::Index => "index",
        })
    }
}

/// Settings with the prefix `tarn.`, each with its default.
#[derive(Debug, Clone)]
pub struct QuerySettings {
    /// `auto` | `rows` | `lake` | `index`; default `auto`.
    pub access_path: AccessPath,
    /// Read the lake alone at a place in its past; default none: the newest state of everything. Set by `as_of_version`
    /// or `as_of_time`; setting one unsets the other.
    pub as_of: Option<AsOf>,
    /// `on` | `off`; default `on`. Off: every block with a live row is read, by the file's own footer. The answer is
    /// the same.
    pub pruning: bool,
    /// `cache.…` = `on` | `off`; default `on`, each. Off: this session's reads go past the layer. The answer is the
    /// same.
    pub caches: CacheSettings,
}

/// Which layers of caches a session's reads go through. One that the server has switched off stays off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSettings {
    /// Metadata of files' columns.
    pub metadata: bool,
    /// Parquet footers.
    pub footers: bool,
    /// Pages of files.
    pub pages: bool,
    /// What leaves of plans gave of files.
    pub fragments: bool,
}

impl Default for CacheSettings {
    fn default() -> Self {
        CacheSettings { metadata: true, footers: true, pages: true, fragments: true }
    }
}

impl Default for QuerySettings {
    fn default() -> Self {
        QuerySettings { access_path: AccessPath::Auto, as_of: None, pruning: true, caches: CacheSettings::default() }
    }
}

/// A place in the past of every table's lake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsOf {
    /// Version of each table that is read.
    Version(Version),
    /// Milliseconds since the Unix epoch: the newest version committed by then.
    Time(i64),
}

impl ConfigExtension for QuerySettings {
    const PREFIX: &'static str = "tarn";
}

const NAMES: &str = "access_path, as_of_version, as_of_time, pruning, cache.metadata, cache.footers, cache.pages, \
                     cache.fragments";

/// `on` or `off`; `None`: something else.
fn switch(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "default" | "" => Some(true),
        "off" | "false" => Some(false),
        _ => None,
    }
}

fn switched(on: bool) -> Option<String> {
    Some(if on { "on" } else { "off" }.to_owned())
}

impl ExtensionOptions for QuerySettings {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> datafusion::error::Result<()> {
        let bad = |want| Err(DataFusionError::Configuration(format!("tarn.{key} = {value:?}: want {want}")));
        match key {
            "access_path" => {
                self.access_path = match value.to_ascii_lowercase().as_str() {
                    "auto" | "default" | "" => AccessPath::Auto,
                    "rows" => AccessPath::Rows,
                    "lake" => AccessPath::Lake,
                    "index" => AccessPath::Index,
                    _ => return bad("auto, rows, lake or index"),
                };
            }
            "as_of_version" | "as_of_time"
                if matches!(value.to_ascii_lowercase().as_str(), "" | "none" | "latest" | "default") =>
            {
                self.as_of = None;
            }
            "as_of_version" => match value.parse() {
                Ok(version) => self.as_of = Some(AsOf::Version(Version(version))),
                Err(_) => return bad("a version number or 'latest'"),
            },
            "as_of_time" => match Value::parse(&DataType::TimestampTz, value) {
                Ok(Value::Timestamp(micros)) => self.as_of = Some(AsOf::Time(micros.div_euclid(1000))),
                _ => return bad("a timestamp, UTC unless it has a zone, or 'latest'"),
            },
            "pruning" | "cache.metadata" | "cache.footers" | "cache.pages" | "cache.fragments" => {
                let Some(on) = switch(value) else { return bad("on or off") };
                match key {
                    "pruning" => self.pruning = on,
                    "cache.metadata" => self.caches.metadata = on,
                    "cache.footers" => self.caches.footers = on,
                    "cache.pages" => self.caches.pages = on,
                    _ => self.caches.fragments = on,
                }
            }
            _ => return Err(DataFusionError::Configuration(format!("unknown setting tarn.{key}, known are: {NAMES}"))),
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        vec![
            ConfigEntry {
                key: format!("{}.access_path", Self::PREFIX),
                value: Some(self.access_path.to_string()),
                description: "how tables are read: auto, rows (row engine), lake (files and recent rows), index",
            },
            ConfigEntry {
                key: format!("{}.as_of_version", Self::PREFIX),
                value: match self.as_of {
                    Some(AsOf::Version(version)) => Some(version.0.to_string()),
                    _ => None,
                },
                description: "read the lake alone at this version of each table",
            },
            ConfigEntry {
                key: format!("{}.as_of_time", Self::PREFIX),
                value: match self.as_of {
                    Some(AsOf::Time(ms)) => Some(Value::Timestamp(ms * 1000).to_display(&DataType::TimestampTz)),
                    _ => None,
                },
                description: "read the lake alone as it was at this time",
            },
            ConfigEntry {
                key: format!("{}.pruning", Self::PREFIX),
                value: switched(self.pruning),
                description: "whether blocks are left out by time, bounds and blooms",
            },
            ConfigEntry {
                key: format!("{}.cache.metadata", Self::PREFIX),
                value: switched(self.caches.metadata),
                description: "whether metadata of files that is in memory is used",
            },
            ConfigEntry {
                key: format!("{}.cache.footers", Self::PREFIX),
                value: switched(self.caches.footers),
                description: "whether Parquet footers that are in memory are used",
            },
            ConfigEntry {
                key: format!("{}.cache.pages", Self::PREFIX),
                value: switched(self.caches.pages),
                description: "whether pages of files that are near are used",
            },
            ConfigEntry {
                key: format!("{}.cache.fragments", Self::PREFIX),
                value: switched(self.caches.fragments),
                description: "whether what leaves of plans gave of files is used and kept",
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_and_named() {
        let mut settings = QuerySettings::default();
        settings.set("access_path", "LAKE").unwrap();
        settings.set("as_of_version", "17").unwrap();
        assert_eq!((settings.access_path, settings.as_of), (AccessPath::Lake, Some(AsOf::Version(Version(17)))));
        settings.set("as_of_time", "1970-01-01 00:00:01.5+00").unwrap();
        assert_eq!(settings.as_of, Some(AsOf::Time(1500)));
        settings.set("as_of_version", "latest").unwrap();
        assert_eq!(settings.as_of, None);
        settings.set("pruning", "OFF").unwrap();
        assert!(!settings.pruning && QuerySettings::default().pruning);
        settings.set("cache.pages", "off").unwrap();
        assert_eq!(settings.caches, CacheSettings { pages: false, ..CacheSettings::default() });
        assert!(settings.set("cache.footers", "2").unwrap_err().to_string().contains("on or off"));
        settings.set("cache.fragments", "off").unwrap();
        assert!(!settings.caches.fragments && CacheSettings::default().fragments);
        assert!(settings.set("pruning", "2").unwrap_err().to_string().contains("on or off"));
        assert!(settings.set("access_path", "fast").unwrap_err().to_string().contains("auto, rows, lake or index"));
        assert!(settings.set("as_of_version", "-1").unwrap_err().to_string().contains("version number"));
        assert!(settings.set("speed", "1").unwrap_err().to_string().contains(NAMES));
    }
}
