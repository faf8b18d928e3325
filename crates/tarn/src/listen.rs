//! Where may a server be reached? Without users everybody is superuser: then only from its own machine, unless the
//! operator said otherwise by name.

use tarn_net::is_near;
use tarn_node::error::{Error, ErrorKind, Result};

use crate::settings::ServerSettings;

/// Asked before an address is bound.
///
/// Errors: `WrongState`, with the remedies.
pub fn check(settings: &ServerSettings, has_users: bool) -> Result<()> {
    let addresses = [("pg_listen", Some(settings.pg_listen)), ("http_listen", settings.http_listen)];
    let open = addresses.into_iter().find_map(|(name, address)| Some((name, address.filter(|a| !is_near(a.ip()))?)));
    let Some((setting, address)) = open.filter(|_| !has_users) else { return Ok(()) };
    if settings.insecure_no_users {
        tracing::warn!(%address, "there are no users: whoever reaches the server is superuser (insecure_no_users)");
        return Ok(());
    }
    let message = format!(
        "{setting} = {address} can be reached from other machines, and there are no users: everybody would be superuser"
    );
    Err(Error::new(ErrorKind::WrongState, message).with_hint(
        "make the first one with `tarn user create NAME --superuser`, or set TARN_SUPERUSER_PASSWORD; \
         or listen on 127.0.0.1; or, behind something that has users of its own, set insecure_no_users = true",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_loopback_only_with_users_or_by_name() {
        let at = |pg: &str, http: Option<&str>| ServerSettings {
            pg_listen: pg.parse().unwrap(),
            http_listen: http.map(|http| http.parse().unwrap()),
            ..ServerSettings::default()
        };
        for near in [at("127.0.0.1:1", None), at("[::1]:1", Some("127.9.9.9:2")), at("[::ffff:127.0.0.1]:1", None)] {
            assert!(check(&near, false).is_ok());
        }
        for far in
            [at("0.0.0.0:1", None), at("[::]:1", None), at("10.0.0.1:1", None), at("127.0.0.1:1", Some("0.0.0.0:2"))]
        {
            let refused = check(&far, false).unwrap_err();
            assert!(refused.hint().unwrap().contains("tarn user create"), "{refused}");
            assert!(check(&far, true).is_ok());
            assert!(check(&ServerSettings { insecure_no_users: true, ..far }, false).is_ok());
        }
    }
}
