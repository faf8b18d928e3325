//! Where may a server be reached? Without users everybody is superuser: then only from its own machine, unless the
//! operator said otherwise by name.

use std::net::{IpAddr, SocketAddr};

use crate::error::{Result, SqlError, state};
use crate::settings::Settings;

/// Asked before an address is bound.
///
/// Errors: `55000`, with the remedies.
pub fn check(settings: &Settings, has_users: bool) -> Result<()> {
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
    Err(SqlError::new(state::NOT_IN_PREREQUISITE_STATE, message).with_hint(
        "make the first one with `tarn user create NAME --superuser`, or set TARN_SUPERUSER_PASSWORD; \
         or listen on 127.0.0.1; or, behind something that has users of its own, set insecure_no_users = true",
    ))
}

/// Whether only this machine can be at the other end.
pub fn is_near(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Whether a password may be sent in clear over a connection.
pub fn may_send_password(settings: &Settings, peer: SocketAddr, encrypted: bool) -> bool {
    encrypted || is_near(peer.ip()) || settings.insecure_plain_http
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_loopback_only_with_users_or_by_name() {
        let at = |pg: &str, http: Option<&str>| Settings {
            pg_listen: pg.parse().unwrap(),
            http_listen: http.map(|http| http.parse().unwrap()),
            ..Settings::default()
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
            assert!(check(&Settings { insecure_no_users: true, ..far }, false).is_ok());
        }
    }
}
