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
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
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
    /// The certificate in use, also when the data folder is opened anew while its files are being changed.
    tls: Option<Arc<Tls>>,
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

/// Opens the node, unless it would let everybody in.
async fn open_guarded(settings: &Settings) -> Result<Arc<Node>> {
    let node = Node::open(settings.clone()).await?;
    match listen::check(settings, !node.users().users().is_empty()) {
        Ok(()) => Ok(node),
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
    listen::check(settings, !node.users().users().is_empty())?;
    roots::roots(settings)?;
    let tls = Tls::open(settings)?;
    let listeners = Listeners::bind(settings).await?;
    serve_on(node, listeners, tls)
}

fn serve_on(node: Arc<Node>, listeners: Listeners, tls: Option<Arc<Tls>>) -> Result<Running> {
    let settings = node.settings();
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
        tls: tls.clone(),
    };
    let seats = descriptors::seats(settings.max_connections, settings.http_max_connections);
    let places = Places::new(seats.pg, seats.pg_waiting);
    let shared = Arc::new(Shared::new(Arc::clone(&node), tls.clone(), places));
    let refusal = SqlError::new(state::TOO_MANY_CONNECTIONS, "too many connections: the server is out of open files");
    let refusal = errors::encoded(&refusal.with_hint("raise the limit of open files (ulimit -n)").fatal()).freeze();
    // A place is taken when a connection is accepted, not when its task first runs: they come in that order.
    let serve = move |socket, stop| serve_connection(Arc::clone(&shared), shared.places.admit(), socket, stop);
    running.tasks.push(tokio::spawn(accept(pg_listener, serve, refusal, running.stop.clone())));
    if let Some(listener) = http_listener {
        let face = http::Face::new(node, tls, listener.local_addr().ok(), Places::new(seats.http, seats.http));
        let serve = move |socket, stop| Arc::clone(&face).serve_connection(face.places.admit(), socket, stop);
        running.tasks.push(tokio::spawn(accept(listener, serve, http::REFUSAL.into(), running.stop.clone())));
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
            pg: bind(settings.pg_listen, "pg_listen").await?,
            http: match settings.http_listen {
                Some(address) => Some(bind(address, "http_listen").await?),
                None => None,
            },
        })
    }
}

async fn bind(address: SocketAddr, setting: &str) -> Result<std::net::TcpListener> {
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

fn socket_error(error: &io::Error) -> SqlError {
    SqlError::new(state::IO_ERROR, format!("listen: {error}"))
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

/// Tells Postgres clients to come back later, until `stop`. The answer needs nothing of what they say.
async fn turn_away(listener: TcpListener, stop: CancellationToken) {
    let error = SqlError::new(state::CANNOT_CONNECT_NOW, "the data folder is being opened").fatal();
    let answer = errors::encoded(&error).freeze();
    let mut told = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = told.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((mut socket, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if told.len() >= MAX_TURNED_AWAY {
            continue;
        }
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
        let tls = self.tls.clone();
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
                opened = open_guarded(&settings) => opened,
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
        serve_on(node, listeners, tls).map(Some)
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
