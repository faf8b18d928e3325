//! Who is at the other end of HTTP? A user of SQL, by name and password (Basic); nobody is asked while there are no
//! users.
//!
//! `/livez` and `/readyz` are open to probes. `/metrics` is open to this machine, elsewhere to every user.

use std::sync::Arc;

use axum::Json;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tarn_net::{Peer, is_near};
use tarn_node::auth::password::decode;
use tarn_node::auth::{FAILURE_DELAY, Principal, audit};
use tarn_node::error::ErrorKind;
use tarn_node::node::Node;
use tarn_sql::error::{SqlError, state};

/// Who is asked whether somebody may.
#[derive(Clone)]
pub struct BasicAuth {
    /// Knows its users and who it has.
    pub node: Arc<Node>,
    /// Passwords are taken in clear from other machines too (`insecure_plain_http`).
    pub takes_plain: bool,
}

/// Lets users through, with their [`Principal`] among the request's extensions.
pub async fn users_only(
    State(guard): State<BasicAuth>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    match principal(&guard, peer, request.headers()).await {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(response) => response,
    }
}

/// Lets users through, and whoever is on this machine.
pub async fn users_or_near(state: State<BasicAuth>, peer: ConnectInfo<Peer>, request: Request, next: Next) -> Response {
    match is_near(peer.0.address.ip()) {
        true => next.run(request).await,
        false => users_only(state, peer, request, next).await,
    }
}

async fn principal(guard: &BasicAuth, peer: Peer, headers: &HeaderMap) -> Result<Principal, Response> {
    let users = guard.node.users();
    if users.users().is_empty() {
        return Ok(Principal::Nobody);
    }
    if !peer.is_encrypted && !is_near(peer.address.ip()) && !guard.takes_plain {
        let error = SqlError::new(
            state::INVALID_AUTHORIZATION,
            "passwords are not taken over plain HTTP from other machines",
        )
        .with_hint(
            "use https:// (tls_cert, tls_key); or, behind something that has TLS, set insecure_plain_http = true",
        );
        return Err(refusal(StatusCode::FORBIDDEN, &error));
    }
    let Some((user, password)) = headers.get(header::AUTHORIZATION).and_then(basic) else {
        let error = SqlError::new(state::INVALID_AUTHORIZATION, "this server has users: give a name and a password")
            .with_hint("curl -u name URL asks for the password");
        return Err(challenge(&error));
    };
    match users.check_password(&user, password).await {
        Ok(principal) => Ok(principal),
        Err(error) if error.kind() == ErrorKind::WrongPassword => {
            audit::refused(&user, peer.address, "http", "wrong password, or no such user");
            tokio::time::sleep(FAILURE_DELAY).await;
            Err(challenge(&error.into()))
        }
        Err(error) => Err(refusal(StatusCode::SERVICE_UNAVAILABLE, &error.into())),
    }
}

/// `Basic base64(name:password)`.
fn basic(value: &HeaderValue) -> Option<(String, String)> {
    let (scheme, text) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(decode(text.trim())?).ok()?;
    text.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}

fn challenge(error: &SqlError) -> Response {
    let asked = [(header::WWW_AUTHENTICATE, "Basic realm=\"tarn\", charset=\"UTF-8\"")];
    (asked, refusal(StatusCode::UNAUTHORIZED, error)).into_response()
}

fn refusal(status: StatusCode, error: &SqlError) -> Response {
    let body = json!({ "error": { "code": error.state(), "message": error.message(), "hint": error.hint() } });
    (status, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_password_of_a_header() {
        let of = |text: &str| basic(&HeaderValue::from_str(text).unwrap());
        assert_eq!(of("Basic YTpiOmM="), Some(("a".to_owned(), "b:c".to_owned())));
        assert_eq!(of("basic YTo="), Some(("a".to_owned(), String::new())));
        for wrong in ["Bearer YTpi", "Basic", "Basic YQ==", "Basic !!", "Basic //8="] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
