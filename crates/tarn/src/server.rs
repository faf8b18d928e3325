//! How does a server start, serve and stop?
//!
//! Listeners accept; each connection is a task. Stopping: no new connections, idle ones are told, running statements get
//! `shutdown_ms` to finish, then the node closes (which flushes the row engine and closes the log).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::auth::tls::Tls;
use crate::auth::{listen, roots};
use crate::error::{Result, SqlError, state};
use crate::http;
use crate::http_listen::HttpListener;
use crate::node::Node;
use crate::pg::{Shared, serve_connection};
use crate::settings::Settings;

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
    let shared = Arc::new(Shared::new(Arc::clone(&node), tls.clone()));
    running.listeners.push(tokio::spawn(accept(pg_listener, shared, running.stop.clone())));
    if let Some(listener) = http_listener {
        let listener = HttpListener::start(listener, tls).map_err(|e| SqlError::new(state::IO_ERROR, e.to_string()))?;
        running.listeners.push(tokio::spawn(http::serve(listener, node, running.stop.clone())));
    }
    Ok(running)
}

async fn bind(address: SocketAddr, setting: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        SqlError::new(state::CANNOT_CONNECT_NOW, format!("listen on {address}: {error}"))
            .with_hint(format!("set {setting} to a free address, or to port 0 for any free port"))
    })
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                let (shared, stop) = (Arc::clone(&shared), stop.clone());
                connections.spawn(async move {
                    if let Err(error) = serve_connection(shared, socket, stop).await {
                        tracing::debug!(%peer, %error, "connection ended");
                    }
                });
            }
            Err(error) => {
                // Out of file descriptors, most likely: wait for some to come back.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    while connections.join_next().await.is_some() {}
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
    let running = start_with(settings, first_password).await.map_err(told)?;
    on_ready(running.pg, running.http);
    shutdown.await;
    running.stop().await.map_err(told)
}
