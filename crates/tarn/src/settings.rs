//! What can be set, and who set it?
//!
//! Each room declares what it can be told ([`tarn_types::settings!`](tarn_types::settings!)); here they become one list
//! of names. Flags win over `TARN_*` variables, these over the TOML file, this over the default: callers apply the
//! layers in that order with [`Layers`], which remembers where each value came from.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tarn_types::settings::{ParseResult, Setting, address, count, optional_address, switch, text};

pub use tarn_net::tls::{TlsMode, TlsSettings};
pub use tarn_node::settings::{LogRecovery, NodeSettings};
pub use tarn_sql::settings::SqlSettings;

tarn_types::settings! {
    /// Where the server is reached, and what it tells of itself.
    pub struct ServerSettings {
        pg_listen: SocketAddr = "127.0.0.1:5433", address, "address of the Postgres wire protocol; port 0 picks a free one";
        http_listen: Option<SocketAddr> = "127.0.0.1:8433", optional_address, "address of HTTP (/livez /readyz /metrics /v1/sql); empty = off";
        insecure_no_users: bool = "false", switch, "listen beyond loopback though there are no users: everybody is superuser (behind something that has users)";
        max_connections: usize = "200", count, "Postgres connections served at once; more are refused with 53300";
        http_max_connections: usize = "64", count, "HTTP requests answered at once; more are refused with 503";
        log: String = "info", text, "what is logged, in the syntax of RUST_LOG";
    }
}

/// The settings of one server, by room.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Of the tables and what they stand on.
    #[serde(flatten)]
    pub node: NodeSettings,
    /// Of the process: its ports and its log.
    #[serde(flatten)]
    pub server: ServerSettings,
    /// Of certificates.
    #[serde(flatten)]
    pub tls: TlsSettings,
    /// Of PostgreSQL's wire.
    #[serde(flatten)]
    pub pg: tarn_pg::settings::PgSettings,
    /// Of HTTP.
    #[serde(flatten)]
    pub http: tarn_http::settings::HttpSettings,
    /// Of statements.
    #[serde(flatten)]
    pub sql: SqlSettings,
}

/// All settings, in the order in which `tarn config` prints them.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    [
        ServerSettings::ALL,
        TlsSettings::ALL,
        tarn_pg::settings::PgSettings::ALL,
        tarn_http::settings::HttpSettings::ALL,
        SqlSettings::ALL,
        NodeSettings::ALL,
    ]
    .into_iter()
    .flatten()
}

/// A setting that cannot be applied: names the setting, the value and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each says what its fields are")]
pub enum Error {
    /// Nothing has this name.
    #[error("unknown setting `{name}` in {origin}; `tarn config` lists all settings")]
    Unknown { name: String, origin: String },
    /// The text is no value of this setting.
    #[error("setting `{name}` = `{value}` in {origin}: want {want}")]
    Value { name: String, value: String, origin: String, want: &'static str },
    /// The file of settings cannot be read, or is no TOML.
    #[error("read {path}: {message}")]
    File { path: PathBuf, message: String },
}

impl Settings {
    /// Sets one by its name from text: `64MiB`, `2min`, `true`, `127.0.0.1:5433`. `None`: there is none of this name.
    fn set(&mut self, name: &str, value: &str) -> Option<ParseResult<()>> {
        let value = value.trim();
        let server = self.server.set(name, value).or_else(|| self.tls.set(name, value));
        let faces = server.or_else(|| self.pg.set(name, value)).or_else(|| self.http.set(name, value));
        faces.or_else(|| self.sql.set(name, value)).or_else(|| self.node.set(name, value))
    }
}

/// Where a value came from, weakest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// This file.
    File(PathBuf),
    /// This variable.
    Environment(String),
    /// This flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Environment(name) => write!(f, "${name}"),
            Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// Settings being assembled. Apply the file first, then the environment, then flags: the last one wins.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    settings: Settings,
    origins: BTreeMap<String, Origin>,
}

impl Layers {
    /// Applies a TOML file of `name = value` lines. Numbers, booleans and text like `"64MiB"` are accepted.
    pub fn file(&mut self, path: &Path) -> Result<(), Error> {
        let fail = |message: String| Error::File { path: path.to_owned(), message };
        let text = std::fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| fail(e.to_string()))?;
        for (name, value) in table {
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(flag) => flag.to_string(),
                other => {
                    return Err(fail(format!("`{name}` is a {}, want text, a number or a boolean", other.type_str())));
                }
            };
            self.set(&name, &text, Origin::File(path.to_owned()))?;
        }
        Ok(())
    }

    /// Applies the `TARN_*` variables that name a setting; others (`TARN_CONFIG`, `TARN_FAILPOINTS`) are left alone.
    pub fn environment(&mut self, variables: impl Iterator<Item = (String, String)>) -> Result<(), Error> {
        for (variable, value) in variables {
            if let Some(setting) = all().find(|s| s.variable() == variable) {
                self.set(setting.name, &value, Origin::Environment(variable))?;
            }
        }
        Ok(())
    }

    /// Applies one flag by its setting's name.
    pub fn flag(&mut self, name: &str, value: &str) -> Result<(), Error> {
        self.set(name, value, Origin::Flag(format!("--{}", name.replace('_', "-"))))
    }

    fn set(&mut self, name: &str, value: &str, origin: Origin) -> Result<(), Error> {
        let named = || (name.to_owned(), origin.to_string());
        match self.settings.set(name, value) {
            Some(Ok(())) => {}
            Some(Err(want)) => {
                let (name, origin) = named();
                return Err(Error::Value { name, value: value.to_owned(), origin, want });
            }
            None => {
                let (name, origin) = named();
                return Err(Error::Unknown { name, origin });
            }
        }
        self.origins.insert(name.to_owned(), origin);
        Ok(())
    }

    /// With every layer applied.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where the value of `name` came from.
    pub fn origin(&self, name: &str) -> Origin {
        self.origins.get(name).cloned().unwrap_or(Origin::Default)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_belongs_to_one_room() {
        let names: BTreeSet<&str> = all().map(|setting| setting.name).collect();
        assert_eq!(names.len(), all().count());
        let fields = toml::Table::try_from(Settings::default()).unwrap();
        assert!(fields.keys().all(|name| names.contains(name.as_str())), "{fields:?}");
    }

    #[test]
    fn flags_win_over_environment_over_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tarn.toml");
        std::fs::write(&path, "data_dir = \"from-file\"\nmax_connections = 7\nlog = \"warn\"\n").unwrap();
        let mut layers = Layers::default();
        layers.file(&path).unwrap();
        layers
            .environment(
                [("TARN_DATA_DIR".to_owned(), "from-env".to_owned()), ("TARN_CONFIG".to_owned(), "x".to_owned())]
                    .into_iter(),
            )
            .unwrap();
        layers.flag("log", "debug").unwrap();
        assert_eq!(layers.settings().node.data_dir, Path::new("from-env"));
        assert_eq!(layers.settings().server.max_connections, 7);
        assert_eq!(layers.settings().server.log, "debug");
        assert_eq!(layers.origin("max_connections"), Origin::File(path));
        assert_eq!(layers.origin("data_dir").to_string(), "$TARN_DATA_DIR");
        assert_eq!(layers.origin("lake"), Origin::Default);
    }

    #[test]
    fn a_bad_value_names_setting_value_place_and_remedy() {
        let mut layers = Layers::default();
        let error = layers.flag("delivery_bytes", "lots").unwrap_err().to_string();
        assert_eq!(
            error,
            "setting `delivery_bytes` = `lots` in --delivery-bytes: want a size such as 64MiB, 1GB or 4096"
        );
        let error = layers.flag("log_recovery", "skip").unwrap_err().to_string();
        assert!(error.ends_with("want refuse or quarantine"), "{error}");
        let error = layers.flag("colour", "red").unwrap_err().to_string();
        assert!(error.starts_with("unknown setting `colour` in --colour"), "{error}");
    }
}
