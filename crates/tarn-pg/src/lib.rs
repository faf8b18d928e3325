//! How does a Postgres client talk to Tarn?
//!
//! One task a connection: [`serve_connection`] reads messages and hands them to `connection::Connection`, which turns
//! them into statements of a [`tarn_sql::session::Session`] and answers into messages. While a statement runs, the
//! socket is read ahead, so that a client that vanishes does not leave its statement running. Reading order: `frames`
//! (what is a message), `params` (values in), `send` (answers out), `startup`, `login`, `connection`, `errors`. How
//! values are written is `tarn-sql`'s, which COPY and HTTP share.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod connection;
pub mod errors;
pub mod frames;
mod login;
pub mod params;
mod send;
pub mod settings;
mod startup;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{FutureExt, SinkExt};
use parking_lot::Mutex;
use pgwire::api::{ClientInfo, DefaultClient, PgWireConnectionState, RandomPidSecretKeyGenerator};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::response::{ReadyForQuery, TransactionStatus};
use pgwire::messages::startup::{SecretKey, Startup};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::server::{PgWireMessageServerCodec, process_message};
use tarn_net::places::{ConnectionSlots, Guest};
use tarn_net::stream::Stream;
use tarn_net::tls::{Protocol, Tls};
use tarn_sql::budget::Budget;
use tarn_sql::error::{SqlError, being_opened, state};
use tarn_sql::service::Sql;
use tarn_sql::session::Interrupt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, WriteHalf};
use tokio::net::TcpStream;
use tokio_util::codec::Framed;
use tokio_util::sync::CancellationToken;

use self::connection::{Connection, PreparedStatement};
use self::errors::on_wire;
use self::frames::{FirstPacket, Frame, Frames, Phase};
use crate::settings::PgSettings;

/// Answers are written to the socket in pieces of this size.
const WRITE_BUFFER_BYTES: usize = 64 << 10;

/// Unfinished messages of all clients together may be so many times the longest one.
const MESSAGES_AT_ONCE: u64 = 4;

/// What the port has, whether there is a node behind it or not.
pub struct Door {
    /// None: plain connections only.
    tls: Option<Arc<Tls>>,
    /// Where connections are counted.
    pub places: Arc<ConnectionSlots>,
    message_bytes: u64,
    /// How long a client may take to prove who it is.
    authentication_timeout: Duration,
    /// Memory of messages that are not whole yet.
    messages: Arc<Budget>,
}

impl Door {
    /// What all connections to one address share, whatever is behind it.
    pub fn new(settings: &PgSettings, tls: Option<Arc<Tls>>, places: Arc<ConnectionSlots>) -> Arc<Door> {
        Arc::new(Door {
            tls,
            places,
            message_bytes: settings.message_bytes,
            authentication_timeout: Duration::from_millis(settings.authentication_timeout_ms),
            messages: Budget::new(settings.message_bytes.saturating_mul(MESSAGES_AT_ONCE)),
        })
    }
}

/// What all connections to a node share.
pub struct ServerState {
    /// What statements are handed to.
    pub sql: Arc<Sql>,
    door: Arc<Door>,
    /// Running statements by the key that a cancel request must know.
    interrupts: Mutex<HashMap<i32, (SecretKey, Arc<Interrupt>)>>,
    keys: RandomPidSecretKeyGenerator,
}

impl ServerState {
    /// Behind this door.
    pub fn new(sql: Arc<Sql>, door: Arc<Door>) -> ServerState {
        ServerState { sql, door, interrupts: Mutex::default(), keys: RandomPidSecretKeyGenerator::default() }
    }

    fn register(&self, pid: i32, key: SecretKey, interrupt: Arc<Interrupt>) {
        self.interrupts.lock().insert(pid, (key, interrupt));
    }

    /// After one came or went.
    fn count_connections(&self) {
        self.sql.node().metrics().connections.set(self.door.places.n_seated() as i64);
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

/// A connection in the books; dropped with it.
struct ConnectionEntry<'a> {
    shared: &'a ServerState,
    connection: Arc<Connection>,
}

impl Drop for ConnectionEntry<'_> {
    fn drop(&mut self) {
        self.connection.guest().leave();
        self.shared.count_connections();
        if let Some(pid) = self.connection.pid() {
            self.shared.interrupts.lock().remove(&pid);
        }
    }
}

/// Where answers go. What comes is read elsewhere, beside the statement that runs.
struct OutputStream(WriteHalf<Stream>);

impl AsyncRead for OutputStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

impl AsyncWrite for OutputStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

type Socket = Framed<OutputStream, PgWireMessageServerCodec<Arc<PreparedStatement>>>;

/// Serves one connection to its end. `stop` ends it: at once when idle, else after the running statement. Without
/// `shared` there is no node: the client is told so when it has introduced itself.
pub async fn serve_connection(
    door: Arc<Door>,
    shared: Option<Arc<ServerState>>,
    guest: Guest,
    mut socket: TcpStream,
    stop: CancellationToken,
) -> io::Result<()> {
    let peer = socket.peer_addr()?;
    socket.set_nodelay(true)?;
    // Whoever is gone without a word, its machine too, is noticed some day.
    socket2::SockRef::from(&socket).set_keepalive(true)?;
    let mut frames = Frames::new(door.message_bytes, &door.messages);
    let deadline = tokio::time::sleep(door.authentication_timeout);
    tokio::pin!(deadline);
    let opening = async {
        match open(shared.as_deref(), &mut socket, &mut frames, door.tls.is_some()).await? {
            StartupOutcome::Encrypt => {}
            opened => return Ok((Stream::Plain(socket), opened)),
        }
        let Some(tls) = &door.tls else { return Ok((Stream::Plain(socket), StartupOutcome::Done)) };
        let mut stream = Stream::encrypt(socket, tls, Protocol::Postgres).await?;
        let opened = open(shared.as_deref(), &mut stream, &mut frames, false).await?;
        io::Result::Ok((stream, opened))
    };
    let (stream, opened) = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = guest.shown_out() => return Ok(()),
        () = &mut deadline => return Ok(()),
        opened = opening => opened?,
    };
    let StartupOutcome::Startup(startup) = opened else { return Ok(()) };
    let is_secure = stream.is_encrypted();
    let is_refused = door.tls.as_ref().is_some_and(|tls| tls.is_required()) && !is_secure;
    let shared = match shared {
        Some(shared) if !is_refused => shared,
        _ => {
            let error = if is_refused { encrypted_only() } else { being_opened() };
            return tokio::select! {
                () = stop.cancelled() => Ok(()),
                () = guest.shown_out() => Ok(()),
                () = &mut deadline => Ok(()),
                refused = refuse(stream, &error) => refused,
            };
        }
    };
    OpenConnection { peer, is_secure, guest, frames, startup }.serve(&shared, stream, stop, deadline).await
}

fn encrypted_only() -> SqlError {
    SqlError::new(state::INVALID_AUTHORIZATION, "this server takes encrypted connections only")
        .with_hint("connect with sslmode=require")
}

/// Says why, and waits until the client has heard it: what was not read when a socket is closed would take the answer
/// with it.
async fn refuse(mut stream: Stream, error: &SqlError) -> io::Result<()> {
    stream.write_all(&errors::encoded(&error.clone().fatal())).await?;
    stream.shutdown().await?;
    let mut ignored = [0; 1024];
    while matches!(stream.read(&mut ignored).await, Ok(1..)) {}
    Ok(())
}

/// What the packets before the conversation came to.
enum StartupOutcome {
    Startup(Startup),
    /// The client was told that encryption begins now.
    Encrypt,
    /// It asked for something else, which was done.
    Done,
}

/// Reads the packets before the startup, and that.
async fn open<S>(
    shared: Option<&ServerState>,
    socket: &mut S,
    frames: &mut Frames,
    can_encrypt: bool,
) -> io::Result<StartupOutcome>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // Each kind of encryption is asked for once at most.
    for _ in 0..3 {
        match frames.opening(socket).await {
            Ok(None) => return Ok(StartupOutcome::Done),
            Ok(Some(FirstPacket::Ssl)) if can_encrypt => {
                if frames.has_more() {
                    // It came in clear, behind the request for encryption: somebody on the way may have put it there.
                    return Ok(StartupOutcome::Done);
                }
                socket.write_all(b"S").await?;
                return Ok(StartupOutcome::Encrypt);
            }
            Ok(Some(FirstPacket::Ssl | FirstPacket::Gss)) => socket.write_all(b"N").await?,
            Ok(Some(FirstPacket::Cancel(request))) => {
                if let Some(shared) = shared {
                    shared.cancel(request.pid, &request.secret_key);
                }
                return Ok(StartupOutcome::Done);
            }
            Ok(Some(FirstPacket::Startup(startup))) => return Ok(StartupOutcome::Startup(startup)),
            Err(error) => {
                socket.write_all(&errors::encoded(&error)).await?;
                return Ok(StartupOutcome::Done);
            }
        }
    }
    Ok(StartupOutcome::Done)
}

/// A connection that has introduced itself, on a stream that is what it will be.
struct OpenConnection {
    peer: SocketAddr,
    is_secure: bool,
    guest: Guest,
    frames: Frames,
    startup: Startup,
}

impl OpenConnection {
    async fn serve(
        self,
        shared: &Arc<ServerState>,
        stream: Stream,
        stop: CancellationToken,
        mut deadline: Pin<&mut tokio::time::Sleep>,
    ) -> io::Result<()> {
        let OpenConnection { peer, is_secure, guest, mut frames, startup } = self;
        let (mut incoming, outgoing) = tokio::io::split(stream);
        let codec = PgWireMessageServerCodec::new(DefaultClient::new(peer, is_secure));
        let mut socket: Socket = Framed::new(OutputStream(outgoing), codec);
        socket.set_backpressure_boundary(WRITE_BUFFER_BYTES);
        socket.set_state(PgWireConnectionState::AwaitingStartup);
        let connection = Arc::new(Connection::new(Arc::clone(shared), guest));
        let _entry = ConnectionEntry { shared, connection: Arc::clone(&connection) };
        // One for all messages: to begin and to end such a wait costs more than to read a message does.
        let ended = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    SqlError::new(state::ADMIN_SHUTDOWN, "terminating connection: the server stops").fatal()
                }
                ended = connection.terminated() => ended,
            }
        };
        tokio::pin!(ended);

        let mut startup = Some(PgWireFrontendMessage::Startup(startup));
        loop {
            let state = socket.state();
            let starting = matches!(
                state,
                PgWireConnectionState::AwaitingStartup | PgWireConnectionState::AuthenticationInProgress
            );
            let copying = match state {
                PgWireConnectionState::CopyInProgress(extended) => Some(extended),
                _ => None,
            };
            let phase = if starting { Phase::Authentication } else { Phase::Ready };
            let idle_limit = connection.idle_limit().filter(|_| copying.is_none());
            let hears = matches!(state, PgWireConnectionState::ReadyForQuery)
                && matches!(connection.transaction_status(), TransactionStatus::Idle);
            let frame = match startup.take() {
                Some(startup) => Ok(Some(Frame::Message(startup))),
                // Whoever always has a message there is ended all the same.
                None if stop.is_cancelled() || connection.is_terminated() => Err(ended.as_mut().await),
                None => tokio::select! {
                    biased;
                    () = &mut deadline, if starting => break,
                    () = connection.guest().shown_out(), if starting => break,
                    // A COPY that waits for its client is stopped where it waits.
                    reason = connection.interrupt().triggered(), if copying.is_some() => {
                        let is_extended = copying.unwrap_or_default();
                        Ok(Some(Frame::Bad { error: connection.abort_copy(reason).await, is_extended }))
                    }
                    // What is there already is taken without a look at the waits that follow.
                    frame = frames.next(&mut incoming, phase) => frame,
                    ended = &mut ended => Err(ended),
                    () = sleep_or_forever(idle_limit) => Err(SqlError::new(
                        state::IDLE_TRANSACTION_TIMEOUT,
                        "terminating connection due to idle-in-transaction timeout",
                    ).fatal()),
                    () = connection.notified(), if hears => {
                        let told = connection.tell_notifications(&mut socket).await;
                        if told.is_err() || socket.flush().await.is_err() {
                            break;
                        }
                        continue;
                    }
                    // The client may wait for the error with its data all sent.
                    error = connection.copy_failed(), if copying.is_some() => {
                        Ok(Some(Frame::Bad { error, is_extended: copying.unwrap_or_default() }))
                    }
                },
            };
            let done = match frame {
                Ok(None) | Ok(Some(Frame::Message(PgWireFrontendMessage::Terminate(_)))) => break,
                Ok(Some(Frame::Message(message))) => {
                    let is_sync = matches!(message, PgWireFrontendMessage::Sync(_));
                    // Sync ends what it fails: nothing is skipped behind it.
                    let is_extended = copying.unwrap_or_else(|| message.is_extended_query() && !is_sync);
                    if matches!(message, PgWireFrontendMessage::Execute(_)) {
                        let next = match frames.kind_behind() {
                            Some(kind) => Some(kind),
                            // No answer goes out before Flush or Sync, so a client has no reason to wait for one.
                            None => tokio::select! {
                                kind = frames.next_kind(&mut incoming) => kind,
                                () = stop.cancelled() => None,
                                _ = connection.terminated() => None,
                            },
                        };
                        connection.tell_next(next == Some(b'S'));
                    }
                    let process = process_message(
                        message,
                        &mut socket,
                        Arc::clone(&connection),
                        Arc::clone(&connection),
                        Arc::clone(&connection),
                        Arc::clone(&connection),
                        Arc::clone(&connection),
                    );
                    let process = AssertUnwindSafe(process).catch_unwind();
                    tokio::pin!(process);
                    let done = tokio::select! {
                        biased;
                        done = &mut process => done,
                        // It has no seat yet: also while it waits to hear that its password was wrong.
                        () = connection.guest().shown_out(), if starting => break,
                        () = frames.gone(&mut incoming) => {
                            connection.interrupt().cancel(SqlError::canceled());
                            process.await
                        }
                    };
                    match done {
                        Ok(done) => done.map_err(|error| (error, is_extended)),
                        Err(_) => Err((panicked(), is_extended)),
                    }
                }
                // Skipped with all else until Sync.
                Ok(Some(Frame::Bad { .. })) if matches!(state, PgWireConnectionState::AwaitingSync) => Ok(()),
                Ok(Some(Frame::Bad { error, is_extended })) => {
                    let error = connection.abort_copy(error).await;
                    Err((on_wire(error), copying.unwrap_or(is_extended)))
                }
                Err(error) => {
                    tell(&mut socket, &error).await;
                    break;
                }
            };
            let Err((mut error, is_extended)) = done else {
                if !matches!(socket.state(), PgWireConnectionState::CopyInProgress(_)) {
                    connection.answered(None);
                }
                continue;
            };
            connection.failed().await;
            errors::sharpen(&mut error);
            shared.sql.node().metrics().errors.inc();
            let mut info = ErrorInfo::from(error);
            connection.answered(Some(&info.code));
            if starting {
                // Nothing was begun that could go on.
                info.severity = "FATAL".to_owned();
                info.severity_nonlocalized = Some("FATAL".to_owned());
            }
            if !answer_error(&mut socket, &connection, info, is_extended).await? {
                break;
            }
        }
        let _ = socket.close().await;
        Ok(())
    }
}

/// Answers an error as the state now is: what failed may have ended the transaction, or begun it. False: the connection
/// ends with it.
async fn answer_error(
    socket: &mut Socket,
    connection: &Connection,
    info: ErrorInfo,
    wait_for_sync: bool,
) -> io::Result<bool> {
    let is_fatal = info.is_fatal();
    let status = connection.transaction_status();
    socket.feed(PgWireBackendMessage::ErrorResponse(info.into())).await?;
    socket.set_transaction_status(status);
    if wait_for_sync && !is_fatal {
        socket.set_state(PgWireConnectionState::AwaitingSync);
    } else if !is_fatal {
        socket.set_state(PgWireConnectionState::ReadyForQuery);
        socket.feed(PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(status))).await?;
    }
    socket.flush().await?;
    Ok(!is_fatal)
}

/// The last word of a connection; nobody may be there to hear it.
async fn tell(socket: &mut Socket, error: &SqlError) {
    let _ = socket.send(PgWireBackendMessage::ErrorResponse(errors::error_info(error).into())).await;
    let _ = socket.close().await;
}

/// The session of a statement that panicked is not to be trusted.
fn panicked() -> PgWireError {
    on_wire(SqlError::new(state::INTERNAL, "the statement panicked; see the server's log").fatal())
}

async fn sleep_or_forever(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}
