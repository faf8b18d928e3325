//! Where is the store, and how is it to be asked?
//!
//! `cql://[user:password@]host[:port][,host[:port]…]/keyspace[?setting=value&…]`, with the settings
//!
//! | setting | | default |
//! |---|---|---|
//! | `datacenter` | the nearest: its nodes are asked first, and the keyspace is made in it alone | any |
//! | `replication` | copies of a row, when the keyspace is made | 1 |
//! | `consistency` | `quorum` or `local_quorum`: what reads and writes wait for. `local_quorum` is refused where several datacenters have copies: each would decide for itself | `quorum` |
//! | `chunk_row_bytes` | bytes of a filter in one row: 32, 64, 128, 256 | `auto` |

use scylla::statement::{Consistency, SerialConsistency};

use tarn_metastore::{CHUNK_BYTES, Error, Remote, Result};

/// The port of Cassandra's and ScyllaDB's clients.
const PORT: u16 = 9042;

/// The widest row of a filter: 8 chunks.
pub(crate) const MAX_ROW_CHUNKS: u32 = 8;

/// What the URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// With their ports.
    pub nodes: Vec<String>,
    /// Name and password.
    pub user: Option<(String, String)>,
    /// Made by the first process that connects.
    pub keyspace: String,
    /// In which replicas are to be, and which is asked first.
    pub datacenter: Option<String>,
    /// Replicas of each row, 1 to 9, when the keyspace is made.
    pub replication: u32,
    /// Of reads and writes: a quorum, of all or of this data centre.
    pub consistency: Consistency,
    /// `None`: chosen by the first filter of an hour.
    pub row_chunks: Option<u32>,
}

impl Target {
    /// Reads `cql://user:password@node:port,…/keyspace?…`; errors show the URL without its password.
    pub fn parse(remote: &Remote) -> Result<Self> {
        let wrong = |reason: &str| Error::Address { reason: format!("{}: {reason}", remote.shown()) };
        let rest = remote.url.strip_prefix("cql://").ok_or_else(|| wrong("it does not begin with cql://"))?;
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, keyspace) = rest.split_once('/').ok_or_else(|| wrong("it names no keyspace"))?;
        let is_name = |name: &str| {
            name.starts_with(|first: char| first.is_ascii_alphabetic())
                && name.len() <= 48
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        if !is_name(keyspace) {
            return Err(wrong("a keyspace is up to 48 lower-case letters, digits and _, a letter first"));
        }
        let (user, hosts) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((user, hosts)) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                let plain = |text| percent_decoded(text).ok_or_else(|| wrong("the user has a broken % escape"));
                (Some((plain(name)?, plain(password)?)), hosts)
            }
        };
        let mut nodes = Vec::new();
        for host in hosts.split(',') {
            let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
                !name.is_empty() && (!name.contains(':') || name.ends_with(']')) && port.parse::<u16>().is_ok()
            });
            if host.is_empty() {
                return Err(wrong("a host is missing"));
            }
            nodes.push(if has_port { host.to_owned() } else { format!("{host}:{PORT}") });
        }
        let (mut datacenter, mut replication, mut consistency, mut row_chunks) = (None, 1, None, None);
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            match name {
                "datacenter" if !value.is_empty() && !value.contains('\'') => datacenter = Some(value.to_owned()),
                "replication" => match value.parse() {
                    Ok(n @ 1..=9) => replication = n,
                    _ => return Err(wrong("replication is a number from 1 to 9")),
                },
                "consistency" => {
                    consistency = Some(match value {
                        "quorum" => Consistency::Quorum,
                        "local_quorum" => Consistency::LocalQuorum,
                        _ => return Err(wrong("consistency is quorum or local_quorum: less would lose commits")),
                    });
                }
                "chunk_row_bytes" if value == "auto" => row_chunks = None,
                "chunk_row_bytes" => match value.parse::<u32>() {
                    Ok(bytes @ (32 | 64 | 128 | 256)) => row_chunks = Some(bytes / CHUNK_BYTES as u32),
                    _ => return Err(wrong("chunk_row_bytes is auto, 32, 64, 128 or 256")),
                },
                _ => return Err(wrong(&format!("setting {name} is not known, or has no value"))),
            }
        }
        let consistency = consistency.unwrap_or(Consistency::Quorum);
        Ok(Self { nodes, user, keyspace: keyspace.to_owned(), datacenter, replication, consistency, row_chunks })
    }

    /// For messages: without user and settings.
    pub fn address(&self) -> String {
        format!("cql://{}/{}", self.nodes.join(","), self.keyspace)
    }

    /// Consistency of conditional statements, and of the read that is to see them.
    pub fn serial(&self) -> (Consistency, SerialConsistency) {
        match self.consistency {
            Consistency::LocalQuorum => (Consistency::LocalSerial, SerialConsistency::LocalSerial),
            _ => (Consistency::Serial, SerialConsistency::Serial),
        }
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Target> {
        Target::parse(&Remote::new(url))
    }

    #[test]
    fn a_url_says_where_and_how() {
        let plain = parse("cql://one/tarn").unwrap();
        assert_eq!((&plain.nodes[..], &plain.keyspace[..]), (&["one:9042".to_owned()][..], "tarn"));
        assert_eq!((plain.consistency, plain.replication, plain.row_chunks), (Consistency::Quorum, 1, None));
        let full = "cql://me:p%40ss@a:1,b,[::1]:3/t_1?datacenter=eu&replication=3&chunk_row_bytes=256&consistency=local_quorum";
        let full = parse(full).unwrap();
        assert_eq!(full.nodes, ["a:1", "b:9042", "[::1]:3"]);
        assert_eq!(full.user, Some(("me".to_owned(), "p@ss".to_owned())));
        assert_eq!((full.datacenter.as_deref(), full.replication, full.row_chunks), (Some("eu"), 3, Some(8)));
        assert_eq!(full.serial().0, Consistency::LocalSerial);
        assert_eq!(full.address(), "cql://a:1,b:9042,[::1]:3/t_1");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "postgres://x/y",
            "cql://host",
            "cql://host/",
            "cql://host/Upper",
            "cql://host/x;y",
            "cql://,b/tarn",
            "cql://me:secret@host/tarn?consistency=one",
            "cql://me:secret@host/tarn?replication=0",
            "cql://me:secret@host/tarn?chunk_row_bytes=33",
            "cql://me:sec%ret@host/tarn",
            "cql://me:secret@host/tarn?what=ever",
        ] {
            let text = parse(url).unwrap_err().to_string();
            assert!(text.starts_with("setting `metastore`: ") && !text.contains("sec"), "{url}: {text}");
        }
    }
}
