//! What does an address say? `postgresql://user:password@host:port/database?sslmode=require`, any part but the scheme
//! left out.

use percent_encoding::percent_decode_str;
use url::Url;

/// The parts of an address that were given.
#[derive(Default, Clone, PartialEq, Eq)]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: Option<String>,
    /// `None`: the one that the console takes by default.
    pub port: Option<u16>,
    /// With its percent signs read.
    pub user: Option<String>,
    /// With its percent signs read.
    pub password: Option<String>,
    /// With its percent signs read.
    pub database: Option<String>,
    /// As it was written: what it asks for is the client's to say.
    pub sslmode: Option<String>,
    /// A file of certificates that are trusted.
    pub sslrootcert: Option<String>,
}

/// Why an address cannot be used. The address itself is not told: there may be a password in it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each says what its fields are")]
pub enum Error {
    /// It is no URL, has another scheme, or is no UTF-8 behind its percent signs.
    #[error("the address is not one: {reason}; postgresql://user@host:5433/database is")]
    NotAnAddress { reason: String },
    /// A parameter behind `?` that nothing acts on.
    #[error(
        "the address asks for {name}; sslmode, sslrootcert, user, password, host, port and dbname can be asked for"
    )]
    UnknownParameter { name: String },
}

/// Whether it is an address, or a name.
pub fn is_address(text: &str) -> bool {
    text.starts_with("postgresql://") || text.starts_with("postgres://")
}

/// Reads an address.
pub fn parse(text: &str) -> Result<Address, Error> {
    let broken = |reason: String| Error::NotAnAddress { reason };
    let url = Url::parse(text).map_err(|error| broken(error.to_string()))?;
    if !is_address(text) {
        return Err(broken(format!("its scheme is {}", url.scheme())));
    }
    let decoded = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8().map_err(|_| broken("it is not UTF-8".into()))?;
        Ok::<_, Error>(Some(decoded.into_owned()).filter(|text| !text.is_empty()))
    };
    let host = url.host_str().unwrap_or_default();
    let mut address = Address {
        host: decoded(host.trim_start_matches('[').trim_end_matches(']'))?,
        port: url.port(),
        user: decoded(url.username())?,
        password: decoded(url.password().unwrap_or_default())?,
        database: decoded(url.path().trim_start_matches('/'))?,
        ..Address::default()
    };
    for (name, value) in url.query_pairs() {
        let value = value.into_owned();
        match name.as_ref() {
            "sslmode" => address.sslmode = Some(value),
            "sslrootcert" => address.sslrootcert = Some(value),
            "user" => address.user = Some(value),
            "password" => address.password = Some(value),
            "host" => address.host = Some(value),
            "dbname" => address.database = Some(value),
            "port" => {
                address.port = Some(value.parse().map_err(|_| broken(format!("{value:?} is not a port")))?);
            }
            _ => return Err(Error::UnknownParameter { name: name.into_owned() }),
        }
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_or_none() {
        let address =
            parse("postgresql://a%40b:p%2Fw@[::1]:5433/my%20db?sslmode=verify-full&sslrootcert=/a/b.pem").unwrap();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!((address.user, address.password), (some("a@b"), some("p/w")));
        assert_eq!((address.host, address.port), (some("::1"), Some(5433)));
        assert_eq!((address.database, address.sslmode), (some("my db"), some("verify-full")));
        assert_eq!(address.sslrootcert, some("/a/b.pem"));
        assert!(parse("postgres://").unwrap() == Address::default());
        assert_eq!(parse("postgresql://h?user=u").unwrap().user, some("u"));
    }

    #[test]
    fn what_cannot_be_used_is_named_without_the_password() {
        assert!(
            matches!(parse("postgresql://h/?connect_timeout=3"), Err(Error::UnknownParameter { name }) if name == "connect_timeout")
        );
        for text in ["postgresql://u:secret@h:port/", "mysql://u:secret@h/"] {
            let error = parse(text).err().unwrap().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
