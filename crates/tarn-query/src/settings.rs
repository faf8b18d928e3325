//! What may a session set? `SET tarn.access_path = 'lake'`, `SET tarn.as_of_version = 17`.

use std::any::Any;
use std::fmt;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::error::DataFusionError;
use tarn_types::Version;

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
}

impl fmt::Display for AccessPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessPath::Auto => "auto",
            AccessPath::Rows => "rows",
            AccessPath::Lake => "lake",
        })
    }
}

/// Settings with the prefix `tarn.`, each with its default.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// `auto` | `rows` | `lake`; default `auto`.
    pub access_path: AccessPath,
    /// Read the lake alone at this version; default none: the newest state of everything.
    pub as_of_version: Option<Version>,
}

impl ConfigExtension for Settings {
    const PREFIX: &'static str = "tarn";
}

const NAMES: &str = "access_path, as_of_version";

impl ExtensionOptions for Settings {
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
                    _ => return bad("auto, rows or lake"),
                };
            }
            "as_of_version" => {
                self.as_of_version = match value.to_ascii_lowercase().as_str() {
                    "" | "none" | "latest" | "default" => None,
                    number => match number.parse() {
                        Ok(version) => Some(Version(version)),
                        Err(_) => return bad("a version number or 'latest'"),
                    },
                };
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
                description: "how tables are read: auto, rows (row engine) or lake (files and recent rows)",
            },
            ConfigEntry {
                key: format!("{}.as_of_version", Self::PREFIX),
                value: self.as_of_version.map(|v| v.0.to_string()),
                description: "read the lake alone at this version of each table",
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_and_named() {
        let mut settings = Settings::default();
        settings.set("access_path", "LAKE").unwrap();
        settings.set("as_of_version", "17").unwrap();
        assert_eq!((settings.access_path, settings.as_of_version), (AccessPath::Lake, Some(Version(17))));
        settings.set("as_of_version", "latest").unwrap();
        assert_eq!(settings.as_of_version, None);
        assert!(settings.set("access_path", "fast").unwrap_err().to_string().contains("auto, rows or lake"));
        assert!(settings.set("as_of_version", "-1").unwrap_err().to_string().contains("version number"));
        assert!(settings.set("speed", "1").unwrap_err().to_string().contains("access_path, as_of_version"));
    }
}
