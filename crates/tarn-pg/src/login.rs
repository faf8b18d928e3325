//! How does a Postgres client prove who it is? Nothing is asked while there are no users; then SCRAM-SHA-256 and
//! nothing else: a password in clear, or hashed with md5, is never asked for.
//!
//! ```text
//! client            server
//! Startup ────────> SASL: SCRAM-SHA-256       [`Login::begin`]
//! SASLInitial ────> SASLContinue              [`Login::step`]
//! SASLResponse ───> SASLFinal, then welcome
//! ```

use pgwire::messages::startup::{Authentication, PasswordMessageFamily};
use tarn_net::Peer;
use tarn_node::auth::scram::{Exchange, MECHANISM, ScramFailure};
use tarn_node::auth::{Directory, Principal, audit, wrong_password};
use tarn_sql::error::{Result, SqlError, state};

/// How far one connection is.
#[derive(Default)]
pub enum Login {
    /// Nothing came yet.
    #[default]
    Unasked,
    /// The client named itself, and was asked to prove it.
    Asked { user: String },
    /// The client began the exchange.
    Proving {
        /// Named at startup.
        user: String,
        /// How far SCRAM is.
        exchange: Box<Exchange>,
    },
    /// Nothing more is taken: in, or out for good.
    Over,
}

/// What is sent next.
pub enum LoginStep {
    /// A question; the client's answer comes next.
    Ask(Authentication),
    /// The client is in. The last message of the exchange, if there was one.
    Welcome(Principal, Option<Authentication>),
}

impl Login {
    /// After the startup message.
    ///
    /// Errors: `28000` when it names no user, and there are users.
    pub fn begin(&mut self, users: &Directory, user: Option<&str>) -> Result<LoginStep> {
        if users.users().is_empty() {
            *self = Login::Over;
            return Ok(LoginStep::Welcome(Principal::Nobody, None));
        }
        let Some(user) = user.filter(|user| !user.is_empty()) else {
            *self = Login::Over;
            return Err(SqlError::new(state::INVALID_AUTHORIZATION, "no user name specified in startup packet").fatal());
        };
        *self = Login::Asked { user: user.to_owned() };
        Ok(LoginStep::Ask(Authentication::SASL(vec![MECHANISM.to_owned()])))
    }

    /// After a message of the exchange. After an error the connection must be closed, [`FAILURE_DELAY`] later.
    pub fn step(&mut self, users: &Directory, message: PasswordMessageFamily, peer: Peer) -> Result<LoginStep> {
        // Whatever fails, it is over.
        match std::mem::replace(self, Login::Over) {
            Login::Asked { user } => {
                let initial = message.into_sasl_initial_response().map_err(|_| malformed("no SASL message"))?;
                if initial.auth_method != MECHANISM {
                    return Err(malformed("only SCRAM-SHA-256 was offered"));
                }
                let first = initial.data.as_deref().ok_or_else(|| malformed("the first SASL message is empty"))?;
                let begun = Exchange::begin(users.verifier(&user), first);
                let (exchange, reply) = begun.map_err(|failure| refused(failure, &user, peer))?;
                *self = Login::Proving { user, exchange: Box::new(exchange) };
                Ok(LoginStep::Ask(Authentication::SASLContinue(reply.into())))
            }
            Login::Proving { user, exchange } => {
                let last = message.into_sasl_response().map_err(|_| malformed("no SASL message"))?;
                let reply = exchange.finish(&last.data).map_err(|failure| refused(failure, &user, peer))?;
                let principal = users.admit(&user)?;
                audit::login(&user, peer.address, "postgres", peer.is_encrypted);
                Ok(LoginStep::Welcome(principal, Some(Authentication::SASLFinal(reply.into()))))
            }
            Login::Unasked | Login::Over => Err(malformed("a password that nobody asked for")),
        }
    }
}

fn refused(failure: ScramFailure, user: &str, peer: Peer) -> SqlError {
    match failure {
        ScramFailure::Malformed(why) => {
            audit::refused(user, peer.address, "postgres", why);
            malformed(why)
        }
        ScramFailure::WrongPassword => {
            audit::refused(user, peer.address, "postgres", "wrong password, or no such user");
            SqlError::from(wrong_password(user)).fatal()
        }
    }
}

fn malformed(why: &str) -> SqlError {
    SqlError::new(state::PROTOCOL_VIOLATION, format!("authentication: {why}")).fatal()
}
