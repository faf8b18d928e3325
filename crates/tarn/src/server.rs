//! How does a server start, serve and stop?
//!
//! Listeners accept; each connection is a task with a place. Descriptors are shared out at the start, so that
//! connections never take those that the engine needs. Stopping: no new connections, idle ones are told, running
//! statements get `shutdown_ms` to finish, then the node closes (which flushes the row engine and closes the log).
//!
//! A data folder that is opened anew is closed as at a stop, behind `Doors` that stay: encryption, places and time
//! limits hold meanwhile for those who are told to come back.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tarn_http::HttpBackend;
use tarn_net::descriptors;
use tarn_net::places::ConnectionSlots;
use tarn_net::tls::Tls;
use tarn_node::auth::roots;
use tarn_node::node::Node;
use tarn_sql::error::{Result, SqlError, state};
use tarn_sql::service::Sql;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::listen;
use crate::settings::Settings;

/// Who is made of a password in the environment.
const FIRST_SUPERUSER: &str = "tarn";

/// Between two tries to open a data folder anew.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// A server that accepts connections. Dropping it ends them, without the care of [`RunningServer::stop`].
pub struct RunningServer {
    /// Where Postgres clients connect.
    pub pg: SocketAddr,
    /// Where HTTP is served, if it is.
    pub http: Option<SocketAddr>,
    /// The tables.
    pub node: Arc<Node>,
    /// What both faces hand statements to.
    pub sql: Arc<Sql>,
    /// As it was started with them.
    pub settings: Settings,
    doors: Doors,
}

/// Opens the node and serves it. Ready for clients when this returns.
///
/// Errors: as [`Node::open`]; an address is taken, or would let everybody in; the certificate cannot be used; a root of
/// archives is no place.
pub fn start(settings: Settings) -> BoxFuture<'static, Result<RunningServer>> {
    start_with(settings, None)
}

/// As [`start`]; while there are no users, the superuser `tarn` is made first, if there is a password for it.
pub fn start_with(settings: Settings, first_password: Option<String>) -> BoxFuture<'static, Result<RunningServer>> {
    open_doors(settings, first_password).boxed()
}

async fn open_doors(settings: Settings, first_password: Option<String>) -> Result<RunningServer> {
    let (node, sql) = open(&settings, first_password).await?;
    let opened = async {
        roots::roots(&settings.node)?;
        Doors::open(&settings, &sql).await
    };
    match opened.await {
        Ok((pg, http, doors)) => Ok(RunningServer { pg, http, node, sql, settings, doors }),
        Err(error) => {
            let _ = node.close().await;
            Err(error)
        }
    }
}

/// Opens the node, unless it would let everybody in.
async fn open(settings: &Settings, first_password: Option<String>) -> Result<(Arc<Node>, Arc<Sql>)> {
    let node = Node::open(settings.node.clone()).await?;
    let first = first_password.filter(|_| node.users().users().is_empty());
    let guarded = async {
        if let Some(password) = first {
            node.users().make_superuser(FIRST_SUPERUSER, &password).await?;
            tracing::info!(target: "tarn::audit", user = FIRST_SUPERUSER, "the first superuser was made");
        }
        listen::check(&settings.server, !node.users().users().is_empty())?;
        Sql::open(Arc::clone(&node), settings.sql.clone())
    };
    match guarded.await {
        Ok(sql) => Ok((node, sql)),
        Err(error) => {
            let _ = node.close().await;
            Err(error)
        }
    }
}

/// The ports, with their places, certificate and limits. They outlive a node that is opened anew: nobody takes its
/// addresses meanwhile, and who connects finds what is always there, with nothing behind it. Dropped: all connections
/// end.
struct Doors {
    pg: Arc<tarn_pg::Door>,
    http: Option<Arc<tarn_http::Door>>,
    /// Who answers now.
    shift: Arc<Mutex<Shift>>,
    /// One task for each port.
    accepting: JoinSet<()>,
}

impl Doors {
    /// Binds the addresses and begins to accept. Also answers where.
    async fn open(settings: &Settings, sql: &Arc<Sql>) -> Result<(SocketAddr, Option<SocketAddr>, Doors)> {
        let tls = Tls::open(&settings.tls).map_err(|error| {
            SqlError::new(state::CONFIG_FILE_ERROR, error.to_string())
                .with_hint("set tls_cert and tls_key to PEM files of a certificate chain and its key, or tls = off")
        })?;
        let pg_listener = bind(settings.server.pg_listen, "pg_listen").await?;
        let http_listener = match settings.server.http_listen {
            Some(address) => Some(bind(address, "http_listen").await?),
            None => None,
        };
        let local = |listener: &TcpListener| listener.local_addr().map_err(|e| socket_error(&e));
        let (pg_address, http_address) = (local(&pg_listener)?, http_listener.as_ref().map(local).transpose()?);
        let seats = descriptors::seats(settings.server.max_connections, settings.server.http_max_connections);
        let pg = tarn_pg::Door::new(&settings.pg, tls.clone(), ConnectionSlots::new(seats.pg, seats.pg_waiting));
        let http = http_address.map(|address| {
            tarn_http::Door::new(&settings.http, tls, address, ConnectionSlots::new(seats.http, seats.http))
        });
        let shift = Shift::new(&pg, http.as_ref(), HttpBackend::Sql(Arc::clone(sql)));
        let shift = Arc::new(Mutex::new(shift));
        let mut accepting = JoinSet::new();
        let refusal =
            SqlError::new(state::TOO_MANY_CONNECTIONS, "too many connections: the server is out of open files");
        let refusal =
            tarn_pg::errors::encoded(&refusal.with_hint("raise the limit of open files (ulimit -n)").fatal()).freeze();
        accepting.spawn(accept(pg_listener, Arc::clone(&shift), Shift::serve_pg, refusal));
        if let Some(listener) = http_listener {
            accepting.spawn(accept(listener, Arc::clone(&shift), Shift::serve_http, tarn_http::REFUSAL.into()));
        }
        Ok((pg_address, http_address, Doors { pg, http, shift, accepting }))
    }

    /// From now on connections are answered by what is `behind`. Those that are there already stay with whom they have.
    fn change(&self, behind: HttpBackend) -> Shift {
        let next = Shift::new(&self.pg, self.http.as_ref(), behind);
        std::mem::replace(&mut *self.shift.lock(), next)
    }
}

/// Who answers connections, from one opening of the data folder to its end, or between two; and those connections.
struct Shift {
    pg: Arc<tarn_pg::Door>,
    /// None: clients are told to come back later.
    pg_shared: Option<Arc<tarn_pg::ServerState>>,
    http: Option<Arc<tarn_http::HttpServer>>,
    stop: CancellationToken,
    connections: JoinSet<()>,
}

impl Shift {
    fn new(pg: &Arc<tarn_pg::Door>, http: Option<&Arc<tarn_http::Door>>, behind: HttpBackend) -> Shift {
        let pg_shared = match &behind {
            HttpBackend::Sql(sql) => Some(Arc::new(tarn_pg::ServerState::new(Arc::clone(sql), Arc::clone(pg)))),
            HttpBackend::Nothing(_) => None,
        };
        Shift {
            pg: Arc::clone(pg),
            pg_shared,
            http: http.map(|door| tarn_http::HttpServer::new(Arc::clone(door), behind)),
            stop: CancellationToken::new(),
            connections: JoinSet::new(),
        }
    }

    /// Takes a place for the connection now, not when its task first runs: they come in that order.
    fn serve_pg(&mut self, socket: TcpStream, peer: SocketAddr) {
        let (guest, stop) = (self.pg.places.admit(), self.stop.clone());
        self.spawn(peer, tarn_pg::serve_connection(Arc::clone(&self.pg), self.pg_shared.clone(), guest, socket, stop));
    }

    /// As [`Shift::serve_pg`].
    fn serve_http(&mut self, socket: TcpStream, peer: SocketAddr) {
        let Some(face) = self.http.clone() else { return };
        let (guest, stop) = (face.places().admit(), self.stop.clone());
        self.spawn(peer, face.serve_connection(guest, socket, stop));
    }

    fn spawn(&mut self, peer: SocketAddr, serving: impl Future<Output = io::Result<()>> + Send + 'static) {
        while self.connections.try_join_next().is_some() {}
        self.connections.spawn(async move {
            if let Err(error) = serving.await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }

    /// Ends its connections: idle ones at once, the others when their statement is answered, all at the deadline.
    async fn end(mut self, deadline: Instant) {
        self.stop.cancel();
        let ended = async { while self.connections.join_next().await.is_some() {} };
        if tokio::time::timeout_at(deadline, ended).await.is_err() {
            tracing::warn!("statements still run after shutdown_ms: stopping all the same");
        }
        self.connections.shutdown().await;
    }
}

async fn bind(address: SocketAddr, setting: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        SqlError::new(state::CANNOT_CONNECT_NOW, format!("listen on {address}: {error}"))
            .with_hint(format!("set {setting} to a free address, or to port 0 for any free port"))
    })
}

fn socket_error(error: &io::Error) -> SqlError {
    SqlError::new(state::IO_ERROR, format!("listen: {error}"))
}

/// Accepts for ever. `refusal` is what one hears for which there is no descriptor.
async fn accept(
    listener: TcpListener,
    shift: Arc<Mutex<Shift>>,
    serve: fn(&mut Shift, TcpStream, SocketAddr),
    refusal: Bytes,
) {
    let mut spare = spare_descriptor();
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => serve(&mut shift.lock(), socket, peer),
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
}

/// A descriptor that is kept for refusing.
fn spare_descriptor() -> Option<File> {
    File::open("/dev/null").ok()
}

impl RunningServer {
    /// Stops gracefully; the data is flushed when this returns.
    pub fn stop(self) -> BoxFuture<'static, Result<()>> {
        let RunningServer { node, mut doors, .. } = self;
        let stopping = async move {
            doors.accepting.shutdown().await;
            let last = doors.change(HttpBackend::Nothing(Arc::default()));
            close(&node, last).await
        };
        stopping.boxed()
    }

    /// Opens the data folder anew after a fault that nothing else heals. Connections end, new ones are told to come
    /// back. Tries until it works; meanwhile `/readyz` says why it does not. None: `shutdown` came first.
    async fn reopen(self, shutdown: &mut BoxFuture<'_, ()>) -> Option<RunningServer> {
        let RunningServer { pg, http, node, sql, settings, doors } = self;
        let reasons = node.not_ready();
        tracing::warn!(?reasons, "opening the data folder anew");
        let reasons = Arc::new(Mutex::new(reasons));
        let before = doors.change(HttpBackend::Nothing(Arc::clone(&reasons)));
        if let Err(error) = close(&node, before).await {
            tracing::warn!(%error, "closing it failed");
        }
        // Closing the row engine may take long: not on a thread that others need.
        tokio::task::spawn_blocking(move || drop((sql, node)));
        tarn_node::heal::forget_pages(&settings.node.data_dir);
        let (node, sql) = loop {
            let opened = tokio::select! {
                () = &mut *shutdown => return None,
                opened = open(&settings, None) => opened,
            };
            match opened {
                Ok(opened) => break opened,
                Err(error) => {
                    let reason = vec![format!("opening the data folder: {error}")];
                    if *reasons.lock() != reason {
                        tracing::error!(%error, "cannot open the data folder, will be retried");
                    }
                    *reasons.lock() = reason;
                }
            }
            tokio::select! {
                () = &mut *shutdown => return None,
                () = tokio::time::sleep(REOPEN_PAUSE) => {}
            }
        };
        let between = doors.change(HttpBackend::Sql(Arc::clone(&sql)));
        // Nobody waits for who is still being told to come back.
        tokio::spawn(between.end(Instant::now() + Duration::from_millis(settings.node.shutdown_ms)));
        tracing::info!("serving again");
        Some(RunningServer { pg, http, node, sql, settings, doors })
    }
}

/// Ends the connections, then closes the node; both together within `shutdown_ms`.
async fn close(node: &Node, shift: Shift) -> Result<()> {
    let deadline = Instant::now() + Duration::from_millis(node.settings().shutdown_ms);
    shift.end(deadline).await;
    Ok(node.close_within(deadline.saturating_duration_since(Instant::now())).await?)
}

/// Who wants to know where Postgres' protocol and HTTP are served.
pub type OnReady = Box<dyn FnOnce(SocketAddr, Option<SocketAddr>) + Send>;

/// Serves until `shutdown` is ready, then stops gracefully. `on_ready` learns the bound addresses. The error's text has
/// the remedy.
pub fn run(
    settings: Settings,
    first_password: Option<String>,
    on_ready: OnReady,
    shutdown: BoxFuture<'static, ()>,
) -> BoxFuture<'static, anyhow::Result<()>> {
    serve(settings, first_password, on_ready, shutdown).boxed()
}

async fn serve(
    settings: Settings,
    first_password: Option<String>,
    on_ready: OnReady,
    mut shutdown: BoxFuture<'static, ()>,
) -> anyhow::Result<()> {
    let told = |error: SqlError| match error.hint() {
        Some(hint) => anyhow::anyhow!("{error}; {hint}"),
        None => anyhow::Error::new(error),
    };
    descriptors::raise();
    let running = start_with(settings, first_password).await.map_err(told)?;
    on_ready(running.pg, running.http);
    let mut running = running;
    loop {
        let node = Arc::clone(&running.node);
        tokio::select! {
            () = &mut shutdown => return running.stop().await.map_err(told),
            () = node.reopen_asked() => {}
        }
        drop(node);
        let Some(reopened) = running.reopen(&mut shutdown).await else { return Ok(()) };
        running = reopened;
    }
}
