//! What can be set, what is it by default, and who set it?
//!
//! Every setting is one row of [`SETTINGS`]: its name, its default, one sentence, and how text becomes a value. Flags
//! win over `TARN_*` variables, these over the TOML file, this over the default: callers apply the layers in that order
//! with [`Layers`], which remembers where each value came from. [`Settings`] itself is plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a server does with a log that lost something acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogRecovery {
    /// Does not start, and changes nothing.
    Refuse,
    /// Starts. Tables that lost something show what is left of them and take no writes.
    Quarantine,
}

/// Which connections are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsMode {
    /// None.
    Off,
    /// Those of clients that ask for it, when there is a certificate.
    On,
    /// All: others are refused.
    Required,
}

/// The settings of one server. Plain data; [`SETTINGS`] documents each field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub data_dir: PathBuf,
    pub lake: Option<String>,
    pub pg_listen: SocketAddr,
    pub http_listen: Option<SocketAddr>,
    pub tls: TlsMode,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub insecure_no_users: bool,
    pub insecure_plain_http: bool,
    pub attach_roots: String,
    pub max_connections: usize,
    pub authentication_timeout_ms: u64,
    pub message_bytes: u64,
    pub prepared_statements_limit: usize,
    pub http_max_connections: usize,
    pub http_timeout_ms: u64,
    pub http_hosts: String,
    pub statement_timeout_ms: u64,
    pub statement_bytes: u64,
    pub idle_in_transaction_timeout_ms: u64,
    pub transaction_bytes: u64,
    pub transactions_bytes: u64,
    pub query_memory_bytes: u64,
    pub query_partitions: usize,
    pub spill_dir: Option<PathBuf>,
    pub rows_memory_bytes: u64,
    pub recent_limit_bytes: u64,
    pub write_wait_ms: u64,
    pub footer_cache_bytes: u64,
    pub metastore: String,
    pub metastore_timeout_ms: u64,
    pub metastore_concurrency: usize,
    pub metastore_hedge_ms: u64,
    pub metastore_cache_bytes: u64,
    pub cache_folder: Option<PathBuf>,
    pub cache_local: bool,
    pub cache_pages: bool,
    pub cache_page_bytes: u64,
    pub cache_pages_ram_bytes: u64,
    pub cache_pages_disk_bytes: u64,
    pub cache_fragments: bool,
    pub cache_fragments_ram_bytes: u64,
    pub cache_fragments_disk_bytes: u64,
    pub cache_ttl_ms: u64,
    pub cache_listings: bool,
    pub cache_listings_bytes: u64,
    pub cache_listings_ttl_ms: u64,
    pub cache_sealed_after_ms: u64,
    pub cache_open: String,
    pub log_segment_bytes: u64,
    pub log_cache_bytes: u64,
    pub log_flush_bytes: u64,
    pub log_recovery: LogRecovery,
    pub abandon_tablets: String,
    pub delivery_interval_ms: u64,
    pub delivery_bytes: u64,
    pub background_interval_ms: u64,
    pub background: bool,
    pub compaction: bool,
    pub lake_target_file_bytes: u64,
    pub lake_row_group_rows: usize,
    pub versions_kept_ms: u64,
    pub scrub_bytes_per_s: u64,
    pub scrub_interval_ms: u64,
    pub copy_batch_rows: usize,
    pub reserve_bytes: u64,
    pub shutdown_ms: u64,
    pub log: String,
}

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Settings {
            data_dir: PathBuf::new(),
            lake: None,
            pg_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            http_listen: None,
            tls: TlsMode::On,
            tls_cert: None,
            tls_key: None,
            insecure_no_users: false,
            insecure_plain_http: false,
            attach_roots: String::new(),
            max_connections: 0,
            authentication_timeout_ms: 0,
            message_bytes: 0,
            prepared_statements_limit: 0,
            http_max_connections: 0,
            http_timeout_ms: 0,
            http_hosts: String::new(),
            statement_timeout_ms: 0,
            statement_bytes: 0,
            idle_in_transaction_timeout_ms: 0,
            transaction_bytes: 0,
            transactions_bytes: 0,
            query_memory_bytes: 0,
            query_partitions: 0,
            spill_dir: None,
            rows_memory_bytes: 0,
            recent_limit_bytes: 0,
            write_wait_ms: 0,
            footer_cache_bytes: 0,
            metastore: String::new(),
            metastore_timeout_ms: 0,
            metastore_concurrency: 0,
            metastore_hedge_ms: 0,
            metastore_cache_bytes: 0,
            cache_folder: None,
            cache_local: false,
            cache_pages: false,
            cache_page_bytes: 0,
            cache_pages_ram_bytes: 0,
            cache_pages_disk_bytes: 0,
            cache_fragments: false,
            cache_fragments_ram_bytes: 0,
            cache_fragments_disk_bytes: 0,
            cache_ttl_ms: 0,
            cache_listings: false,
            cache_listings_bytes: 0,
            cache_listings_ttl_ms: 0,
            cache_sealed_after_ms: 0,
            cache_open: String::new(),
            log_segment_bytes: 0,
            log_cache_bytes: 0,
            log_flush_bytes: 0,
            log_recovery: LogRecovery::Refuse,
            abandon_tablets: String::new(),
            delivery_interval_ms: 0,
            delivery_bytes: 0,
            background_interval_ms: 0,
            background: false,
            compaction: false,
            lake_target_file_bytes: 0,
            lake_row_group_rows: 0,
            versions_kept_ms: 0,
            scrub_bytes_per_s: 0,
            scrub_interval_ms: 0,
            copy_batch_rows: 0,
            reserve_bytes: 0,
            shutdown_ms: 0,
            log: String::new(),
        };
        for setting in SETTINGS {
            settings.set(setting.name, setting.default).expect("the defaults in SETTINGS parse");
        }
        settings
    }
}

/// One documented setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Name in the TOML file; `--name-with-dashes` as a flag, `TARN_NAME` as a variable.
    pub name: &'static str,
    pub default: &'static str,
    /// One sentence for `tarn config` and `--help`.
    pub doc: &'static str,
}

impl Setting {
    /// `data_dir` → `TARN_DATA_DIR`.
    pub fn variable(&self) -> String {
        format!("TARN_{}", self.name.to_ascii_uppercase())
    }

    /// `data_dir` → `--data-dir`.
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }
}

const fn row(name: &'static str, default: &'static str, doc: &'static str) -> Setting {
    Setting { name, default, doc }
}

/// All settings in the order in which `tarn config` prints them.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    row("data_dir", "tarn-data", "folder of the log, the row engine, the metastore and, unless `lake` says otherwise, the lake"),
    row("lake", "", "where lake files live: a folder, s3://bucket/prefix, gs://… or az://… (credentials: docs/archives.md); empty = <data_dir>/lake"),
    row("pg_listen", "127.0.0.1:5433", "address of the Postgres wire protocol; port 0 picks a free one"),
    row("http_listen", "127.0.0.1:8433", "address of HTTP (/livez /readyz /metrics /v1/sql); empty = off"),
    row("tls", "on", "encrypted connections: off = none; on = whoever asks, once tls_cert and tls_key are set; required = plain ones are refused"),
    row("tls_cert", "", "PEM file of the certificate chain, the server's first; read again when it changes"),
    row("tls_key", "", "PEM file of its private key"),
    row("insecure_no_users", "false", "listen beyond loopback though there are no users: everybody is superuser (behind something that has users)"),
    row("insecure_plain_http", "false", "take passwords over HTTP without TLS from beyond loopback (behind something that has TLS)"),
    row("attach_roots", "", "folders and URLs below which ATTACH may look, with commas between them; empty = anywhere without users, nowhere with users"),
    row("max_connections", "200", "Postgres connections served at once; more are refused with 53300"),
    row("authentication_timeout_ms", "10s", "how long a client may take to introduce itself"),
    row("message_bytes", "64MiB", "longest message of a client that is no COPY data; longer ones are refused (54000)"),
    row("prepared_statements_limit", "10000", "prepared statements of one connection; more are refused (53400)"),
    row("http_max_connections", "64", "HTTP requests answered at once; more are refused with 503"),
    row("http_timeout_ms", "30s", "how long an HTTP client may take to send a request, or to read on in an answer"),
    row("http_hosts", "", "names besides localhost by which /v1/sql may be called (Host and Origin), blanks between them"),
    row("statement_timeout_ms", "0", "a statement that runs longer is cancelled (57014); 0 = never; `SET statement_timeout` overrides it"),
    row("statement_bytes", "16MiB", "a longer text of SQL is refused (54000); rows belong into COPY"),
    row("idle_in_transaction_timeout_ms", "0", "a transaction idle for longer loses its connection (25P03); 0 = never"),
    row("transaction_bytes", "64MiB", "how much one BEGIN … COMMIT may hold back before it is refused (54000)"),
    row("transactions_bytes", "512MiB", "how much all transactions together may hold back until COMMIT, and UPDATE and DELETE until they write (53200)"),
    row("query_memory_bytes", "512MiB", "memory of all queries together; what needs more spills to disk or fails with 53200"),
    row("query_partitions", "0", "parallel partitions of a query; 0 = number of cores"),
    row("spill_dir", "", "folder of spilled query state; empty = <data_dir>/spill"),
    row("rows_memory_bytes", "256MiB", "block cache and write buffers of the row engine"),
    row("recent_limit_bytes", "384MiB", "recent (undelivered) rows kept in memory, all tables together; writers wait when it is reached, and those of tables whose delivery fails at half of it"),
    row("write_wait_ms", "60000", "how long a writer waits for that room before it fails with 53400"),
    row("footer_cache_bytes", "64MiB", "parsed Parquet footers kept in memory"),
    row("metastore", "embedded", "where versions, files and blocks are kept: embedded = <data_dir>/meta, or the URL of a database"),
    row("metastore_timeout_ms", "10s", "a database of the metastore that does not answer for so long is taken for unavailable (08006)"),
    row("metastore_concurrency", "64", "requests of one call to it that are on the way at once"),
    row("metastore_hedge_ms", "0", "a read that it has not answered by then is asked of another node too; 0 = never"),
    row("metastore_cache_bytes", "64MiB", "metadata of files, put together from what the metastore says of their columns, kept in memory; 0 = none"),
    row("cache_folder", "", "folder of what is kept near on disk; empty = <data_dir>/cache"),
    row("cache_local", "false", "keep pages and listings of local folders near, too (network file systems)"),
    row("cache_pages", "true", "keep pages of files in object storage near"),
    row("cache_page_bytes", "256KiB", "size of such a page; another size empties the folder at the next start"),
    row("cache_pages_ram_bytes", "256MiB", "memory for pages"),
    row("cache_pages_disk_bytes", "10GiB", "disk for pages; 0 = memory only"),
    row("cache_fragments", "true", "keep what leaves of plans (filter, projection, partial aggregate) gave of a file"),
    row("cache_fragments_ram_bytes", "64MiB", "memory for such results"),
    row("cache_fragments_disk_bytes", "2GiB", "disk for such results; 0 = memory only"),
    row("cache_ttl_ms", "0", "pages and results that are older are fetched or computed anew; 0 = any age, as no answer depends on it"),
    row("cache_listings", "true", "keep listings of an archive's sealed directories"),
    row("cache_listings_bytes", "64MiB", "memory for listings, for each archive"),
    row("cache_listings_ttl_ms", "1d", "a kept listing that is older is made anew"),
    row("cache_sealed_after_ms", "1d", "a directory is sealed when nothing in it is younger"),
    row("cache_open", "", "directories that are always listed: paths with * for any characters of one name, blanks between them"),
    row("log_segment_bytes", "64MiB", "size of one segment file of the log"),
    row("log_cache_bytes", "32MiB", "log entries kept in memory for readers near the head"),
    row("log_flush_bytes", "256MiB", "the row engine is flushed when this much log would have to be replayed"),
    row("log_recovery", "refuse", "a log that lost something acknowledged: refuse = do not start; quarantine = start, and serve the tables concerned read-only"),
    row("abandon_tablets", "", "tablets that log and rows have and no table: given up for good at this start, instead of refusing it; 3,5-8 as that error names them"),
    row("delivery_interval_ms", "2min", "default of a table's delivery interval"),
    row("delivery_bytes", "128MiB", "default of a table's delivery size: recent rows beyond it are delivered at once"),
    row("background_interval_ms", "1s", "how often each table is looked at for delivery, compaction, eviction and log trimming"),
    row("background", "true", "run that background work at all (tests and benches drive it by hand instead)"),
    row("compaction", "true", "merge small lake files in the background"),
    row("lake_target_file_bytes", "256MiB", "size at which a new lake file is begun"),
    row("lake_row_group_rows", "262144", "rows of one block (Parquet row group)"),
    row("versions_kept_ms", "1h", "how long a superseded lake version and its files stay readable (AS OF)"),
    row("scrub_bytes_per_s", "8MiB", "how much of the lake is read in a second in the background, to find damage before somebody asks for the rows; 0 = nothing"),
    row("scrub_interval_ms", "7d", "how long after the begin of one such round over all files the next begins"),
    row("copy_batch_rows", "32768", "rows of one commit of COPY FROM and of INSERT … SELECT"),
    row("reserve_bytes", "64MiB", "room held back in <data_dir>/RESERVE, at most a sixteenth of the disk: it is given back when the disk fills, and writes are refused (53100) until there is room for it again; 0 = none"),
    row("shutdown_ms", "30s", "how long running statements may finish after a stop was asked for"),
    row("log", "info", "what is logged, in the syntax of RUST_LOG"),
];

/// A setting that cannot be applied: names the setting, the value and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("unknown setting `{name}` in {origin}; `tarn config` lists all settings")]
    Unknown { name: String, origin: String },
    #[error("setting `{name}` = `{value}` in {origin}: want {want}")]
    Value { name: String, value: String, origin: String, want: &'static str },
    #[error("read {path}: {message}")]
    File { path: PathBuf, message: String },
}

type Parsed<T> = Result<T, &'static str>;

impl Settings {
    /// Sets one field from text: `64MiB`, `2min`, `true`, `127.0.0.1:5433`.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        self.apply(name, value.trim()).map_err(|want| match want {
            "" => Error::Unknown { name: name.to_owned(), origin: String::new() },
            want => Error::Value { name: name.to_owned(), value: value.to_owned(), origin: String::new(), want },
        })
    }

    fn apply(&mut self, name: &str, value: &str) -> Parsed<()> {
        match name {
            "data_dir" => self.data_dir = PathBuf::from(non_empty(value)?),
            "lake" => self.lake = optional(value).map(str::to_owned),
            "pg_listen" => self.pg_listen = address(value)?,
            "http_listen" => self.http_listen = optional(value).map(address).transpose()?,
            "tls" => {
                self.tls = match value {
                    "off" | "false" => TlsMode::Off,
                    "on" | "true" => TlsMode::On,
                    "required" => TlsMode::Required,
                    _ => return Err("off, on or required"),
                }
            }
            "tls_cert" => self.tls_cert = optional(value).map(PathBuf::from),
            "tls_key" => self.tls_key = optional(value).map(PathBuf::from),
            "insecure_no_users" => self.insecure_no_users = switch(value)?,
            "insecure_plain_http" => self.insecure_plain_http = switch(value)?,
            "attach_roots" => self.attach_roots = value.to_owned(),
            "max_connections" => self.max_connections = count(value)?,
            "authentication_timeout_ms" => self.authentication_timeout_ms = parse_duration_ms(value)?.max(1),
            "message_bytes" => self.message_bytes = parse_bytes(value)?,
            "prepared_statements_limit" => self.prepared_statements_limit = count(value)?,
            "http_max_connections" => self.http_max_connections = count(value)?,
            "http_timeout_ms" => self.http_timeout_ms = parse_duration_ms(value)?.max(1),
            "http_hosts" => self.http_hosts = value.to_owned(),
            "statement_timeout_ms" => self.statement_timeout_ms = parse_duration_ms(value)?,
            "statement_bytes" => self.statement_bytes = parse_bytes(value)?,
            "idle_in_transaction_timeout_ms" => self.idle_in_transaction_timeout_ms = parse_duration_ms(value)?,
            "transaction_bytes" => self.transaction_bytes = parse_bytes(value)?,
            "transactions_bytes" => self.transactions_bytes = parse_bytes(value)?,
            "query_memory_bytes" => self.query_memory_bytes = parse_bytes(value)?,
            "query_partitions" => self.query_partitions = count(value)?,
            "spill_dir" => self.spill_dir = optional(value).map(PathBuf::from),
            "rows_memory_bytes" => self.rows_memory_bytes = parse_bytes(value)?,
            "recent_limit_bytes" => self.recent_limit_bytes = parse_bytes(value)?,
            "write_wait_ms" => self.write_wait_ms = parse_duration_ms(value)?,
            "footer_cache_bytes" => self.footer_cache_bytes = parse_bytes(value)?,
            "metastore" => self.metastore = non_empty(value)?.to_owned(),
            "metastore_timeout_ms" => self.metastore_timeout_ms = parse_duration_ms(value)?.max(1),
            "metastore_concurrency" => self.metastore_concurrency = count(value)?.max(1),
            "metastore_hedge_ms" => self.metastore_hedge_ms = parse_duration_ms(value)?,
            "metastore_cache_bytes" => self.metastore_cache_bytes = parse_bytes(value)?,
            "cache_folder" => self.cache_folder = optional(value).map(PathBuf::from),
            "cache_local" => self.cache_local = switch(value)?,
            "cache_pages" => self.cache_pages = switch(value)?,
            "cache_page_bytes" => self.cache_page_bytes = page_size(value)?,
            "cache_pages_ram_bytes" => self.cache_pages_ram_bytes = parse_bytes(value)?,
            "cache_pages_disk_bytes" => self.cache_pages_disk_bytes = parse_bytes(value)?,
            "cache_fragments" => self.cache_fragments = switch(value)?,
            "cache_fragments_ram_bytes" => self.cache_fragments_ram_bytes = parse_bytes(value)?,
            "cache_fragments_disk_bytes" => self.cache_fragments_disk_bytes = parse_bytes(value)?,
            "cache_ttl_ms" => self.cache_ttl_ms = parse_duration_ms(value)?,
            "cache_listings" => self.cache_listings = switch(value)?,
            "cache_listings_bytes" => self.cache_listings_bytes = parse_bytes(value)?,
            "cache_listings_ttl_ms" => self.cache_listings_ttl_ms = parse_duration_ms(value)?,
            "cache_sealed_after_ms" => self.cache_sealed_after_ms = parse_duration_ms(value)?,
            "cache_open" => self.cache_open = value.to_owned(),
            "log_segment_bytes" => self.log_segment_bytes = parse_bytes(value)?,
            "log_cache_bytes" => self.log_cache_bytes = parse_bytes(value)?,
            "log_flush_bytes" => self.log_flush_bytes = parse_bytes(value)?,
            "log_recovery" => {
                self.log_recovery = match value {
                    "refuse" => LogRecovery::Refuse,
                    "quarantine" => LogRecovery::Quarantine,
                    _ => return Err("refuse or quarantine"),
                }
            }
            "abandon_tablets" => {
                crate::together::tablet_ranges(value).ok_or("numbers of tablets, such as 3,5-8")?;
                self.abandon_tablets = value.to_owned();
            }
            "delivery_interval_ms" => self.delivery_interval_ms = parse_duration_ms(value)?,
            "delivery_bytes" => self.delivery_bytes = parse_bytes(value)?,
            "background_interval_ms" => self.background_interval_ms = parse_duration_ms(value)?.max(1),
            "background" => self.background = switch(value)?,
            "compaction" => self.compaction = switch(value)?,
            "lake_target_file_bytes" => self.lake_target_file_bytes = parse_bytes(value)?,
            "lake_row_group_rows" => self.lake_row_group_rows = count(value)?.max(1),
            "versions_kept_ms" => self.versions_kept_ms = parse_duration_ms(value)?,
            "scrub_bytes_per_s" => self.scrub_bytes_per_s = parse_bytes(value)?,
            "scrub_interval_ms" => self.scrub_interval_ms = parse_duration_ms(value)?,
            "copy_batch_rows" => self.copy_batch_rows = count(value)?.max(1),
            "reserve_bytes" => self.reserve_bytes = parse_bytes(value)?,
            "shutdown_ms" => self.shutdown_ms = parse_duration_ms(value)?,
            "log" => self.log = value.to_owned(),
            _ => return Err(""),
        }
        Ok(())
    }

    /// The folder or URL of the lake, the default filled in.
    pub fn lake_location(&self) -> String {
        self.lake.clone().unwrap_or_else(|| self.data_dir.join("lake").display().to_string())
    }

    /// The folder of caches on disk, the default filled in.
    pub fn cache_location(&self) -> PathBuf {
        self.cache_folder.clone().unwrap_or_else(|| self.data_dir.join("cache"))
    }

    /// The folder of spilled query state, the default filled in.
    pub fn spill_location(&self) -> PathBuf {
        self.spill_dir.clone().unwrap_or_else(|| self.data_dir.join("spill"))
    }
}

/// Where a value came from, weakest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Default,
    File(PathBuf),
    Environment(String),
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
            if let Some(setting) = SETTINGS.iter().find(|s| s.variable() == variable) {
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
        self.settings.set(name, value).map_err(|error| match error {
            Error::Unknown { name, .. } => Error::Unknown { name, origin: origin.to_string() },
            Error::Value { name, value, want, .. } => Error::Value { name, value, want, origin: origin.to_string() },
            other => other,
        })?;
        self.origins.insert(name.to_owned(), origin);
        Ok(())
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where the value of `name` came from.
    pub fn origin(&self, name: &str) -> Origin {
        self.origins.get(name).cloned().unwrap_or(Origin::Default)
    }
}

/// `64MiB`, `1.5GB`, `4096` → bytes. Powers of 1,024 with an `i`, of 1,000 without.
pub fn parse_bytes(text: &str) -> Parsed<u64> {
    const WANT: &str = "a size such as 64MiB, 1GB or 4096";
    let (number, unit) = split_unit(text).ok_or(WANT)?;
    let factor: f64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" | "k" => 1e3,
        "mb" | "m" => 1e6,
        "gb" | "g" => 1e9,
        "tb" | "t" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(WANT),
    };
    Ok((number * factor) as u64)
}

/// `2min`, `30 days`, `500ms`, `1500` → milliseconds.
pub fn parse_duration_ms(text: &str) -> Parsed<u64> {
    const WANT: &str = "a duration such as 500ms, 30s, 2min, 1h, 30 days or a number of milliseconds";
    let (number, unit) = split_unit(text).ok_or(WANT)?;
    let factor: f64 = match unit.to_ascii_lowercase().as_str() {
        "" | "ms" | "millisecond" | "milliseconds" => 1.0,
        "s" | "sec" | "second" | "seconds" => 1e3,
        "m" | "min" | "minute" | "minutes" => 60e3,
        "h" | "hour" | "hours" => 3_600e3,
        "d" | "day" | "days" => 86_400e3,
        _ => return Err(WANT),
    };
    Ok((number * factor) as u64)
}

fn split_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    Some((number, text[end..].trim()))
}

fn non_empty(value: &str) -> Parsed<&str> {
    if value.is_empty() { Err("a path") } else { Ok(value) }
}

fn optional(value: &str) -> Option<&str> {
    (!value.is_empty()).then_some(value)
}

fn address(value: &str) -> Parsed<SocketAddr> {
    value.parse().map_err(|_| "an address such as 127.0.0.1:5433")
}

fn count(value: &str) -> Parsed<usize> {
    value.replace('_', "").parse().map_err(|_| "a whole number")
}

fn page_size(value: &str) -> Parsed<u64> {
    const WANT: &str = "a size from 4KiB to 64MiB";
    let bytes = parse_bytes(value).map_err(|_| WANT)?;
    if (4 << 10..=64 << 20).contains(&bytes) { Ok(bytes) } else { Err(WANT) }
}

fn switch(value: &str) -> Parsed<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err("true or false"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_field_and_its_default_parses() {
        let settings = Settings::default();
        assert_eq!(settings.delivery_interval_ms, 120_000);
        assert_eq!(settings.delivery_bytes, 128 << 20);
        let fields = toml::Table::try_from(&settings).unwrap();
        for name in fields.keys() {
            assert!(SETTINGS.iter().any(|s| s.name == name), "{name} is not documented in SETTINGS");
        }
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
        assert_eq!(layers.settings().data_dir, Path::new("from-env"));
        assert_eq!(layers.settings().max_connections, 7);
        assert_eq!(layers.settings().log, "debug");
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

    #[test]
    fn sizes_and_durations() {
        assert_eq!(parse_bytes("1.5 KiB"), Ok(1536));
        assert_eq!(parse_bytes("1_000"), Ok(1000));
        assert_eq!(parse_duration_ms("30 days"), Ok(2_592_000_000));
        assert!(parse_duration_ms("soon").is_err());
    }
}
