//! What is written down of logins and of changes to tables, users and rights?
//!
//! Events of target `tarn::audit`: who, from where, what, on which objects. Names only: no literals, no passwords.

use std::net::SocketAddr;

use super::authorize::Principal;

/// Of a target of its own, so that it can be kept apart: `log = "warn,tarn::audit=info"`.
const TARGET: &str = "tarn::audit";

/// Somebody logged in.
pub fn login(user: &str, peer: SocketAddr, face: &str, encrypted: bool) {
    tracing::info!(target: TARGET, user = %user.escape_debug(), %peer, face, encrypted, "login");
}

/// Somebody was not let in.
pub fn refused(user: &str, peer: SocketAddr, face: &str, why: &str) {
    tracing::warn!(target: TARGET, user = %user.escape_debug(), %peer, face, why, "login refused");
}

/// Tables, users or rights were changed, or it failed.
pub fn change(who: &Principal, statement: &str, objects: &str, failed: Option<&str>) {
    let (user, objects) = (who.name().unwrap_or("(nobody)").escape_debug(), objects.escape_debug());
    match failed {
        None => tracing::info!(target: TARGET, %user, statement, %objects, "done"),
        Some(state) => tracing::warn!(target: TARGET, %user, statement, %objects, state, "failed"),
    }
}
