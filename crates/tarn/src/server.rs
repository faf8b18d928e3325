//! How does a server start, serve and stop?
//!
//! Listeners accept; each connection is a task. Stopping: no new connections, idle ones are told, running statements
//! get `shutdown_ms` to finish, then the node closes (which flushes the row engine and closes the log).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{Result, SqlError, state};
use crate::http;
use crate::node::Node;
use crate::pg::{Shared, serve_connection};
use crate::settings::Settings;

/// Clients that are told at once to come back later; others are not told anything.
const MAX_TURNED_AWAY: usize = 256;

/// Between two tries to open a data folder anew.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// A server that accepts connections. Dropping it stops accepting, without the care of [`Running::stop`].
pub struct Running {
    /// Where Postgres clients connect.
    pub pg: SocketAddr,
    /// Where HTTP is served, if it is.
    pub http: Option<SocketAddr>,
    pub node: Arc<Node>,
    stop: CancellationToken,
    /// End when `stop` is cancelled and their connections have ended.
    tasks: Vec<JoinHandle<()>>,
    /// There until it stops.
    listeners: Option<Listeners>,
}

/// Opens the node and serves it. Ready for clients when this returns.
///
/// Errors: as [`Node::open`]; an address is taken.
pub async fn start(settings: Settings) -> Result<Running> {
    let node = Node::open(settings).await?;
    serve(node).await
}

/// Serves a node that is open.
pub async fn serve(node: Arc<Node>) -> Result<Running> {
    let listeners = Listeners::bind(node.settings()).await?;
    serve_on(node, listeners)
}

fn serve_on(node: Arc<Node>, listeners: Listeners) -> Result<Running> {
    let pg_listener = listening(&listeners.pg)?;
    let http_listener = listeners.http.as_ref().map(listening).transpose()?;
    let local = |listener: &TcpListener| listener.local_addr().map_err(|e| socket_error(&e));
    let mut running = Running {
        pg: local(&pg_listener)?,
        http: http_listener.as_ref().map(local).transpose()?,
        node: Arc::clone(&node),
        stop: CancellationToken::new(),
        tasks: Vec::new(),
        listeners: Some(listeners),
    };
    let shared = Arc::new(Shared::new(Arc::clone(&node)));
    running.tasks.push(tokio::spawn(accept(pg_listener, shared, running.stop.clone())));
    if let Some(listener) = http_listener {
        running.tasks.push(tokio::spawn(http::serve(listener, node, running.stop.clone())));
    }
    Ok(running)
}

/// The sockets. They outlive a node that is opened anew, so that nobody takes its addresses meanwhile.
struct Listeners {
    pg: std::net::TcpListener,
    http: Option<std::net::TcpListener>,
}

impl Listeners {
    async fn bind(settings: &Settings) -> Result<Listeners> {
        Ok(Listeners {
            pg: listen(settings.pg_listen, "pg_listen").await?,
            http: match settings.http_listen {
                Some(address) => Some(listen(address, "http_listen").await?),
                None => None,
            },
        })
    }
}

async fn listen(address: SocketAddr, setting: &str) -> Result<std::net::TcpListener> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        SqlError::new(state::CANNOT_CONNECT_NOW, format!("listen on {address}: {error}"))
            .with_hint(format!("set {setting} to a free address, or to port 0 for any free port"))
    })?;
    listener.into_std().map_err(|e| socket_error(&e))
}

/// To accept from a socket, which stays open when this is dropped.
fn listening(socket: &std::net::TcpListener) -> Result<TcpListener> {
    socket.try_clone().and_then(TcpListener::from_std).map_err(|e| socket_error(&e))
}

fn socket_error(error: &std::io::Error) -> SqlError {
    SqlError::new(state::IO_ERROR, format!("listen: {error}"))
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

/// Tells Postgres clients to come back later, until `stop`. The answer needs nothing of what they say.
async fn turn_away(listener: TcpListener, stop: CancellationToken) {
    let fields =
        [("S", "FATAL"), ("V", "FATAL"), ("C", state::CANNOT_CONNECT_NOW), ("M", "the data folder is being opened")];
    let text: String = fields.iter().map(|(field, value)| format!("{field}{value}\0")).collect();
    let mut answer = vec![b'E'];
    // The length counts itself and the end of the fields.
    answer.extend_from_slice(&(text.len() as u32 + 5).to_be_bytes());
    answer.extend_from_slice(text.as_bytes());
    answer.push(0);
    let mut told = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = told.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        if told.len() >= MAX_TURNED_AWAY {
            continue;
        }
        let Ok((mut socket, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let answer = answer.clone();
        told.spawn(tokio::time::timeout(REOPEN_PAUSE, async move {
            let mut ignored = [0; 1024];
            // What was not read when the socket is closed would take the answer with it.
            let _ = socket.read(&mut ignored).await;
            if socket.write_all(&answer).await.is_ok() && socket.shutdown().await.is_ok() {
                while matches!(socket.read(&mut ignored).await, Ok(1..)) {}
            }
        }));
    }
}

impl Running {
    /// Stops gracefully; the data is flushed when this returns.
    pub async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        drop(self.listeners.take());
        let patience = Duration::from_millis(self.node.settings().shutdown_ms);
        let deadline = Instant::now() + patience;
        for mut task in std::mem::take(&mut self.tasks) {
            if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
                tracing::warn!("statements still run after shutdown_ms: stopping all the same");
                // Takes its connections with it.
                task.abort();
            }
        }
        self.node.close_within(deadline.saturating_duration_since(Instant::now())).await
    }

    /// Opens the data folder anew after a fault that nothing else heals. Connections end, new ones wait. Tries until it
    /// works; meanwhile `/readyz` says why it does not. None: `shutdown` came first.
    async fn reopen(mut self, shutdown: &mut (impl Future<Output = ()> + Unpin)) -> Result<Option<Running>> {
        let settings = self.node.settings().clone();
        let listeners = self.listeners.take().expect("a server that serves has its sockets");
        let reasons = self.node.not_ready();
        tracing::warn!(?reasons, "opening the data folder anew");
        let reasons = Arc::new(Mutex::new(reasons));
        let stop = CancellationToken::new();
        self.stop.cancel();
        let mut answers = JoinSet::new();
        answers.spawn(turn_away(listening(&listeners.pg)?, stop.clone()));
        if let Some(socket) = &listeners.http {
            answers.spawn(http::serve_not_ready(listening(socket)?, Arc::clone(&reasons), stop.clone()));
        }
        let node = Arc::clone(&self.node);
        if let Err(error) = self.stop().await {
            tracing::warn!(%error, "closing it failed");
        }
        // Closing the row engine may take long: not on a thread that others need.
        tokio::task::spawn_blocking(move || drop(node));
        crate::health::forget_pages(&settings.data_dir);
        let node = loop {
            let opened = tokio::select! {
                () = &mut *shutdown => return Ok(None),
                opened = Node::open(settings.clone()) => opened,
            };
            match opened {
                Ok(node) => break node,
                Err(error) => {
                    let reason = vec![format!("opening the data folder: {error}")];
                    if *reasons.lock() != reason {
                        tracing::error!(%error, "cannot open the data folder, will be retried");
                    }
                    *reasons.lock() = reason;
                }
            }
            tokio::select! {
                () = &mut *shutdown => return Ok(None),
                () = tokio::time::sleep(REOPEN_PAUSE) => {}
            }
        };
        stop.cancel();
        answers.shutdown().await;
        tracing::info!("serving again");
        serve_on(node, listeners).map(Some)
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
    on_ready: impl FnOnce(SocketAddr, Option<SocketAddr>),
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let told = |error: SqlError| match error.hint() {
        Some(hint) => anyhow::anyhow!("{error}; {hint}"),
        None => anyhow::Error::new(error),
    };
    let running = start(settings).await.map_err(told)?;
    on_ready(running.pg, running.http);
    let mut running = running;
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let node = Arc::clone(&running.node);
        tokio::select! {
            () = &mut shutdown => return running.stop().await.map_err(told),
            () = node.reopen_asked() => {}
        }
        drop(node);
        let Some(reopened) = running.reopen(&mut shutdown).await.map_err(told)? else { return Ok(()) };
        running = reopened;
    }
}
