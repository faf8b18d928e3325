//! How is a metastore on a server reached? What the backends behind a network share of their settings.

/// Settings of a backend behind a network.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// `postgres://user:password@host:port/database?schema=tarn_metastore`, or
    /// `cql://host[:port][,host…]/keyspace?datacenter=…&replication=1&consistency=local_quorum&chunk_row_bytes=auto`.
    pub url: String,
    /// A request that takes longer is given up; the error names the setting.
    pub timeout_ms: u64,
    /// Requests of one call on the way at once.
    pub concurrency: usize,
    /// A read that has not answered by then is asked of another node too; 0: never.
    pub hedge_ms: u64,
}

impl Remote {
    /// With the settings' defaults.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), timeout_ms: 10_000, concurrency: 64, hedge_ms: 0 }
    }

    /// The URL as it may be shown: without a password, wherever it stands. Of a URL that cannot be taken apart the
    /// scheme alone.
    pub fn shown(&self) -> String {
        let Some((scheme, rest)) = self.url.split_once("://") else { return "(not a URL)".to_owned() };
        let (place, parameters) = rest.split_once('?').map_or((rest, None), |(place, after)| (place, Some(after)));
        if !place.contains('@') && parameters.is_some_and(|parameters| parameters.contains('@')) {
            // A `?` in a password, which should have been written as %3F.
            return format!("{scheme}://…");
        }
        let mut shown = match place.rsplit_once('@') {
            Some((user, host)) => {
                let user = user.split_once(':').map_or(user, |(user, _)| user);
                format!("{scheme}://{user}@{host}")
            }
            None => format!("{scheme}://{place}"),
        };
        let is_secret =
            |part: &&str| part.split('=').next().is_some_and(|name| name.to_lowercase().contains("password"));
        let kept: Vec<&str> =
            parameters.into_iter().flat_map(|of| of.split('&')).filter(|part| !is_secret(part)).collect();
        if !kept.is_empty() {
            shown.push('?');
            shown.push_str(&kept.join("&"));
        }
        shown
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url: _, timeout_ms, concurrency, hedge_ms } = self;
        f.debug_struct("Remote")
            .field("url", &self.shown())
            .field("timeout_ms", timeout_ms)
            .field("concurrency", concurrency)
            .field("hedge_ms", hedge_ms)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let shown = |url: &str| Remote::new(url).shown();
        assert_eq!(shown("postgres://me:secret@h:1/db?a=b"), "postgres://me@h:1/db?a=b");
        for odd in ["se@cret", "se/cret", "se:cret"] {
            assert_eq!(shown(&format!("postgres://me:{odd}@h/db")), "postgres://me@h/db");
        }
        assert_eq!(shown("cql://a:9042,b/k"), "cql://a:9042,b/k");
        assert_eq!(shown("postgres://h/db?user=me&password=secret&a=b"), "postgres://h/db?user=me&a=b");
        assert_eq!(shown("postgres://h/db?sslPassword=secret"), "postgres://h/db");
        assert_eq!(shown("postgres://me:pa?ss@h/db"), "postgres://…");
        assert_eq!(shown("secret"), "(not a URL)");
        assert!(!format!("{:?}", Remote::new("postgres://me:secret@h/db")).contains("secret"));
    }
}
