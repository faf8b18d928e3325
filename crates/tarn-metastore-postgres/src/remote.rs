//! What does the URL say? `postgres://user:password@host:port/database?schema=tarn_metastore`, and what else a Postgres
//! URL may have.
//!
//! Settings that answers depend on are made part of every connection, so that none is forgotten after a reconnect.

use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;

use tarn_metastore::{Error, Remote, Result};

/// The schema that has the tables, unless the URL names another.
const DEFAULT_SCHEMA: &str = "tarn_metastore";

/// What must hold on every connection. Commits are on the disk when they are answered, whatever the server's default; a
/// client that vanished holds no lock for longer than the time-out. Our statements find their rows by index: without
/// statistics, the planner would not know.
const SESSION: &str = "-c synchronous_commit=on -c default_transaction_isolation=read\\ committed -c jit=off -c enable_seqscan=off \
     -c enable_hashjoin=off -c enable_mergejoin=off -c plan_cache_mode=force_generic_plan -c bytea_output=hex \
     -c client_min_messages=warning -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3";

pub(crate) struct Target {
    /// What the driver needs, time-outs included.
    pub config: Config,
    /// Of the database, made if absent.
    pub schema: String,
    /// For errors.
    pub address: String,
    /// A database that does not answer for so long is away.
    pub timeout: Duration,
}

impl Target {
    /// Refuses what is no Postgres URL, and names of schemas that would have to be quoted.
    pub fn parse(remote: &Remote) -> Result<Self> {
        let invalid = |reason: String| Error::Address { reason };
        let (base, query) = remote.url.split_once('?').unwrap_or((&remote.url, ""));
        if !base.starts_with("postgres://") && !base.starts_with("postgresql://") {
            return Err(invalid(format!("{} is no Postgres URL", remote.shown())));
        }
        let (ours, theirs): (Vec<_>, Vec<_>) =
            query.split('&').filter(|part| !part.is_empty()).partition(|part| part.starts_with("schema="));
        let schema = ours.last().map_or(DEFAULT_SCHEMA, |part| &part["schema=".len()..]).to_owned();
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if schema.is_empty()
            || schema.len() > 63
            || schema.starts_with(|c: char| c.is_ascii_digit())
            || !schema.chars().all(is_plain)
        {
            return Err(invalid(format!(
                "schema={schema}: a schema's name is made of a-z, 0-9 and _, and is no longer than 63"
            )));
        }
        let url = if theirs.is_empty() { base.to_owned() } else { format!("{base}?{}", theirs.join("&")) };
        let mut config = Config::from_str(&url).map_err(|e| invalid(format!("{}: {}", remote.shown(), chain(&e))))?;
        let timeout_ms = remote.timeout_ms.max(1);
        let options = format!(
            "{} -c search_path={schema} {SESSION} -c statement_timeout={timeout_ms} -c idle_in_transaction_session_timeout={timeout_ms}",
            config.get_options().unwrap_or_default()
        );
        let timeout = Duration::from_millis(timeout_ms);
        config.options(options.trim_start()).connect_timeout(timeout).tcp_user_timeout(timeout);
        // A standby may be behind: what it does not have yet would count as gone. Whatever the URL says, and with one
        // host too, whose name may stand for several.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("tarn");
        }
        Ok(Self { config, schema, address: remote.shown(), timeout })
    }
}

/// An error and what is behind it, for reasons that are texts.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_schema_and_what_is_wrong_with_it() {
        let parse = |url: &str| Target::parse(&Remote::new(url));
        let target = parse("postgres://me:pw@db:5433/x?connect_timeout=3&schema=t_1").unwrap();
        assert_eq!(
            (&target.schema[..], &target.address[..]),
            ("t_1", "postgres://me@db:5433/x?connect_timeout=3&schema=t_1")
        );
        assert!(target.config.get_options().unwrap().starts_with("-c search_path=t_1 "));
        assert_eq!(parse("postgres://db").unwrap().schema, DEFAULT_SCHEMA);
        for url in ["postgres://db", "postgres://db,db2/x?target_session_attrs=any"] {
            assert_eq!(parse(url).unwrap().config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite, "{url}");
        }
        for bad in ["cql://db", "postgres://db?schema=a;b", "postgres://db?schema=", "postgres://db?nonsense=1"] {
            let error = parse(bad).err().unwrap();
            assert_eq!(error.kind(), tarn_types::Kind::Invalid, "{bad}");
            assert!(error.to_string().contains("setting `metastore`"), "{error}");
        }
    }
}
