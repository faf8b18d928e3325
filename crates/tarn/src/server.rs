//! How does a server start, serve and stop?
//!
//! Listeners accept; each connection is a task with a place. Descriptors are shared out at the start, so that connections
//! never take those that the engine needs. Stopping: no new connections, idle ones are told, running statements get
//! `shutdown_ms` to finish, then the node closes (which flushes the row engine and closes the log).

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::auth::tls::Tls;
use crate::auth::{listen, roots};
use crate::error::{Result, SqlError, state};
use crate::node::Node;
use crate::pg::places::Places;
use crate::pg::{Shared, errors, serve_connection};
use crate::settings::Settings;
use crate::{descriptors, http};

/// Who is made of a password in the environment.
const FIRST_SUPERUSER: &str = "tarn";

/// A server that accepts connections. Dropping it stops accepting, without the care of [`Running::stop`].
pub struct Running {
    /// Where Postgres clients connect.
    pub pg: SocketAddr,
    /// Where HTTP is served, if it is.
    pub http: Option<SocketAddr>,
    pub node: Arc<Node>,
    stop: CancellationToken,
    /// End when `stop` is cancelled and their connections have ended.
    listeners: Vec<JoinHandle<()>>,
}

/// Opens the node and serves it. Ready for clients when this returns.
///
/// Errors: as [`Node::open`] and [`serve`].
pub async fn start(settings: Settings) -> Result<Running> {
    start_with(settings, None).await
}

/// As [`start`]; while there are no users, the superuser `tarn` is made first, if there is a password for it.
pub async fn start_with(settings: Settings, first_password: Option<String>) -> Result<Running> {
    let node = Node::open(settings).await?;
    let first = first_password.filter(|_| node.users().users().is_empty());
    let served = async {
        if let Some(password) = first {
            node.users().make_superuser(FIRST_SUPERUSER, &password).await?;
            tracing::info!(target: "tarn::audit", user = FIRST_SUPERUSER, "the first superuser was made");
        }
        serve(Arc::clone(&node)).await
    };
    match served.await {
        Ok(running) => Ok(running),
        Err(error) => {
            let _ = node.close().await;
            Err(error)
        }
    }
}

/// Serves a node that is open.
///
/// Errors: an address is taken, or would let everybody in; the certificate cannot be used; a root of archives is no place.
pub async fn serve(node: Arc<Node>) -> Result<Running> {
    let settings = node.settings();
    let tls = Tls::open(settings)?;
    listen::check(settings, !node.users().users().is_empty())?;
    roots::roots(settings)?;
    let pg_listener = bind(settings.pg_listen, "pg_listen").await?;
    let http_listener = match settings.http_listen {
        Some(address) => Some(bind(address, "http_listen").await?),
        None => None,
    };
    let local =
        |listener: &TcpListener| listener.local_addr().map_err(|e| SqlError::new(state::IO_ERROR, e.to_string()));
    let mut running = Running {
        pg: local(&pg_listener)?,
        http: http_listener.as_ref().map(local).transpose()?,
        node: Arc::clone(&node),
        stop: CancellationToken::new(),
        listeners: Vec::new(),
    };
    let seats = descriptors::seats(settings.max_connections, settings.http_max_connections);
    let places = Places::new(seats.pg, seats.pg_waiting);
    let shared = Arc::new(Shared::new(Arc::clone(&node), tls.clone(), places));
    let refusal = SqlError::new(state::TOO_MANY_CONNECTIONS, "too many connections: the server is out of open files");
    let refusal = errors::encoded(&refusal.with_hint("raise the limit of open files (ulimit -n)").fatal()).freeze();
    // A place is taken when a connection is accepted, not when its task first runs: they come in that order.
    let serve = move |socket, stop| serve_connection(Arc::clone(&shared), shared.places.admit(), socket, stop);
    running.listeners.push(tokio::spawn(accept(pg_listener, serve, refusal, running.stop.clone())));
    if let Some(listener) = http_listener {
        let face = http::Face::new(node, tls, listener.local_addr().ok(), Places::new(seats.http, seats.http));
        let serve = move |socket, stop| Arc::clone(&face).serve_connection(face.places.admit(), socket, stop);
        running.listeners.push(tokio::spawn(accept(listener, serve, http::REFUSAL.into(), running.stop.clone())));
    }
    Ok(running)
}

async fn bind(address: SocketAddr, setting: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        SqlError::new(state::CANNOT_CONNECT_NOW, format!("listen on {address}: {error}"))
            .with_hint(format!("set {setting} to a free address, or to port 0 for any free port"))
    })
}

/// Accepts until `stop`, then waits for the connections. `refusal` is what one hears for which there is no descriptor.
async fn accept<F>(
    listener: TcpListener,
    serve: impl Fn(TcpStream, CancellationToken) -> F,
    refusal: Bytes,
    stop: CancellationToken,
) where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut spare = spare_descriptor();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                let serving = serve(socket, stop.clone());
                connections.spawn(async move {
                    if let Err(error) = serving.await {
                        tracing::debug!(%peer, %error, "connection ended");
                    }
                });
            }
            Err(error) => {
                // Out of descriptors, most likely. With the spare one, who knocks is told so instead of left waiting.
                tracing::warn!(%error, "accept failed");
                drop(spare.take());
                if let Some(Ok((socket, _))) = listener.accept().now_or_never() {
                    let _ = socket.try_write(&refusal);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        if spare.is_none() {
            spare = spare_descriptor();
        }
    }
    while connections.join_next().await.is_some() {}
}

/// A descriptor that is kept for refusing.
fn spare_descriptor() -> Option<File> {
    File::open("/dev/null").ok()
}

impl Running {
    /// Stops gracefully; the data is flushed when this returns.
    pub async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        let patience = Duration::from_millis(self.node.settings().shutdown_ms);
        let deadline = tokio::time::Instant::now() + patience;
        for mut listener in std::mem::take(&mut self.listeners) {
            if tokio::time::timeout_at(deadline, &mut listener).await.is_err() {
                tracing::warn!("statements still run after shutdown_ms: stopping all the same");
                // Takes its connections with it.
                listener.abort();
            }
        }
        self.node.close().await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves until `shutdown` is ready, then stops gracefully. `on_ready` learns the bound addresses. The error's text has
/// the remedy.
pub async fn run(
    settings: Settings,
    first_password: Option<String>,
    on_ready: impl FnOnce(SocketAddr, Option<SocketAddr>),
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let told = |error: SqlError| match error.hint() {
        Some(hint) => anyhow::anyhow!("{error}; {hint}"),
        None => anyhow::Error::new(error),
    };
    descriptors::raise();
    let running = start_with(settings, first_password).await.map_err(told)?;
    on_ready(running.pg, running.http);
    shutdown.await;
    running.stop().await.map_err(told)
}
