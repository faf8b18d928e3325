//! How does a Postgres client talk to Tarn?
//!
//! One task a connection: [`serve_connection`] reads messages and hands them to [`connection::Connection`], which turns
//! them into statements of a [`crate::session::Session`] and answers into messages. Reading order of the rooms: `text` and
//! `rows` (values out), `params` (values in), `copy_format`, `send`, `login`, `connection`, `errors`.

pub mod connection;
pub mod copy_format;
pub mod errors;
pub mod login;
pub mod params;
pub mod rows;
pub mod send;
pub mod text;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use pgwire::api::{ClientInfo, PgWireConnectionState, RandomPidSecretKeyGenerator};
use pgwire::error::ErrorInfo;
use pgwire::messages::startup::SecretKey;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::server::{negotiate_tls, process_error, process_message};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use self::connection::{Connection, Prepared};
use crate::auth::tls::{Protocol, Tls};
use crate::error::{SqlError, state};
use crate::node::Node;
use crate::session::Interrupt;

/// How long a client may take to introduce itself.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers are written to the socket in pieces of this size.
const WRITE_BUFFER_BYTES: usize = 64 << 10;

/// What all connections of a server share.
pub struct Shared {
    pub node: Arc<Node>,
    /// None: plain connections only.
    pub tls: Option<Arc<Tls>>,
    /// Running statements by the key that a cancel request must know.
    interrupts: Mutex<HashMap<i32, (SecretKey, Arc<Interrupt>)>>,
    keys: RandomPidSecretKeyGenerator,
    n_connections: AtomicUsize,
}

impl Shared {
    pub fn new(node: Arc<Node>, tls: Option<Arc<Tls>>) -> Shared {
        Shared {
            node,
            tls,
            interrupts: Mutex::default(),
            keys: RandomPidSecretKeyGenerator::default(),
            n_connections: AtomicUsize::new(0),
        }
    }

    fn register(&self, pid: i32, key: SecretKey, interrupt: Arc<Interrupt>) {
        self.interrupts.lock().insert(pid, (key, interrupt));
    }

    /// Cancels the running statement of a connection, if the key is right.
    fn cancel(&self, pid: i32, key: &SecretKey) {
        let found =
            self.interrupts.lock().get(&pid).filter(|(known, _)| known.eq_value(key)).map(|(_, i)| Arc::clone(i));
        if let Some(interrupt) = found {
            interrupt.cancel(SqlError::canceled());
        }
    }
}

/// A connection's place in the books; dropped with it.
struct Place<'a> {
    shared: &'a Shared,
    connection: Arc<Connection>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let n = self.shared.n_connections.fetch_sub(1, Ordering::Relaxed) - 1;
        self.shared.node.metrics().connections.set(n as i64);
        if let Some(pid) = self.connection.pid() {
            self.shared.interrupts.lock().remove(&pid);
        }
    }
}

/// Serves one connection to its end. `stop` ends it: at once when idle, else after the running statement.
pub async fn serve_connection(shared: Arc<Shared>, socket: TcpStream, stop: CancellationToken) -> io::Result<()> {
    let deadline = tokio::time::sleep(STARTUP_TIMEOUT);
    tokio::pin!(deadline);
    let acceptor = shared.tls.as_ref().map(|tls| tls.acceptor(Protocol::Postgres));
    let negotiated = tokio::select! {
        () = &mut deadline => return Ok(()),
        socket = negotiate_tls::<Arc<Prepared>>(socket, acceptor) => socket?,
    };
    let Some(mut socket) = negotiated else { return Ok(()) };
    if socket.is_secure() && !socket.read_buffer().is_empty() {
        // It came in clear, behind the request for encryption: somebody on the way may have put it there.
        return Ok(());
    }
    socket.set_backpressure_boundary(WRITE_BUFFER_BYTES);

    let n = shared.n_connections.fetch_add(1, Ordering::Relaxed) + 1;
    shared.node.metrics().connections.set(n as i64);
    let connection = Arc::new(Connection::new(Arc::clone(&shared)));
    let place = Place { shared: &shared, connection: Arc::clone(&connection) };
    let limit = shared.node.settings().max_connections;

    loop {
        let starting = matches!(
            socket.state(),
            PgWireConnectionState::AwaitingStartup | PgWireConnectionState::AuthenticationInProgress
        );
        let idle_limit = connection.idle_limit();
        let message = tokio::select! {
            biased;
            () = stop.cancelled() => {
                let error = SqlError::new(state::ADMIN_SHUTDOWN, "terminating connection: the server stops").fatal();
                let _ = socket.send(PgWireBackendMessage::ErrorResponse(errors::error_info(&error).into())).await;
                break;
            }
            () = &mut deadline, if starting => break,
            () = sleep_or_forever(idle_limit) => {
                let error = SqlError::new(state::IDLE_TRANSACTION_TIMEOUT, "terminating connection due to idle-in-transaction timeout").fatal();
                let _ = socket.send(PgWireBackendMessage::ErrorResponse(errors::error_info(&error).into())).await;
                break;
            }
            message = socket.next() => message,
        };
        let message = match message {
            Some(Ok(PgWireFrontendMessage::Terminate(_))) | None => break,
            Some(Ok(message)) => message,
            Some(Err(mut error)) => {
                // The stream cannot be trusted after a message that does not parse.
                errors::sharpen(&mut error);
                let _ = process_error(&mut socket, error, false).await;
                break;
            }
        };
        if matches!(message, PgWireFrontendMessage::Startup(_)) && n > limit {
            let error =
                SqlError::new(state::TOO_MANY_CONNECTIONS, format!("too many connections, the limit is {limit}"))
                    .with_hint("raise max_connections, or close idle connections")
                    .fatal();
            let _ = socket.send(PgWireBackendMessage::ErrorResponse(errors::error_info(&error).into())).await;
            break;
        }
        let extended = match socket.state() {
            PgWireConnectionState::CopyInProgress(extended) => extended,
            _ => message.is_extended_query(),
        };
        let handler = &connection;
        let done = process_message(
            message,
            &mut socket,
            Arc::clone(handler),
            Arc::clone(handler),
            Arc::clone(handler),
            Arc::clone(handler),
            Arc::clone(handler),
        );
        if let Err(mut error) = done.await {
            connection.failed();
            errors::sharpen(&mut error);
            shared.node.metrics().errors.inc();
            if starting {
                // Nobody is let in by an error: what follows is not read.
                let error: ErrorInfo = error.into();
                let _ = socket.send(PgWireBackendMessage::ErrorResponse(error.into())).await;
                break;
            }
            process_error(&mut socket, error, extended).await?;
        }
    }
    drop(place);
    let _ = socket.close().await;
    Ok(())
}

async fn sleep_or_forever(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}
