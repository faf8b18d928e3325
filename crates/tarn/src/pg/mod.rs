//! How does a Postgres client talk to Tarn?
//!
//! One task a connection: [`serve_connection`] reads messages and hands them to [`connection::Connection`], which turns
//! them into statements of a [`crate::session::Session`] and answers into messages. While a statement runs, the socket is
//! read ahead, so that a client that vanishes does not leave its statement running. Reading order of the rooms: `places`
//! (who may come in), `frames` (what is a message), `text` and `rows` (values out), `params` (values in), `copy_format`,
//! `send`, `startup`, `login`, `connection`, `errors`.

pub mod connection;
pub mod copy_format;
pub mod errors;
pub mod frames;
pub mod login;
pub mod params;
pub mod places;
pub mod rows;
pub mod send;
pub mod startup;
pub mod text;

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
use pgwire::messages::response::ReadyForQuery;
use pgwire::messages::startup::{SecretKey, Startup};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::server::{PgWireMessageServerCodec, process_message};
use pgwire::tokio::tokio_rustls::server::TlsStream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, WriteHalf};
use tokio::net::TcpStream;
use tokio_util::codec::Framed;
use tokio_util::sync::CancellationToken;

use self::connection::{Connection, Prepared};
use self::frames::{Frame, Frames, Opening, Phase};
use self::places::{Guest, Places};
use crate::auth::tls::{Protocol, Tls};
use crate::budget::Budget;
use crate::error::{SqlError, state};
use crate::node::Node;
use crate::session::Interrupt;

/// Answers are written to the socket in pieces of this size.
const WRITE_BUFFER_BYTES: usize = 64 << 10;

/// Unfinished messages of all clients together may be so many times the longest one.
const MESSAGES_AT_ONCE: u64 = 4;

/// What all connections of a server share.
pub struct Shared {
    pub node: Arc<Node>,
    /// None: plain connections only.
    pub tls: Option<Arc<Tls>>,
    /// Running statements by the key that a cancel request must know.
    interrupts: Mutex<HashMap<i32, (SecretKey, Arc<Interrupt>)>>,
    keys: RandomPidSecretKeyGenerator,
    pub places: Arc<Places>,
    /// Memory of messages that are not whole yet.
    messages: Arc<Budget>,
}

impl Shared {
    pub fn new(node: Arc<Node>, tls: Option<Arc<Tls>>, places: Arc<Places>) -> Shared {
        let messages = Budget::new(node.settings().message_bytes.saturating_mul(MESSAGES_AT_ONCE));
        Shared {
            node,
            tls,
            interrupts: Mutex::default(),
            keys: RandomPidSecretKeyGenerator::default(),
            places,
            messages,
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

/// A connection in the books; dropped with it.
struct Entry<'a> {
    shared: &'a Shared,
    guest: Option<Guest>,
    connection: Arc<Connection>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        drop(self.guest.take());
        self.shared.node.metrics().connections.set(self.shared.places.n_seated() as i64);
        if let Some(pid) = self.connection.pid() {
            self.shared.interrupts.lock().remove(&pid);
        }
    }
}

/// Where answers go. What comes is read elsewhere, beside the statement that runs.
struct Outgoing<S>(WriteHalf<S>);

impl<S> AsyncRead for Outgoing<S> {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

impl<S: AsyncWrite> AsyncWrite for Outgoing<S> {
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

type Socket<S> = Framed<Outgoing<S>, PgWireMessageServerCodec<Arc<Prepared>>>;

/// Serves one connection to its end. `stop` ends it: at once when idle, else after the running statement.
pub async fn serve_connection(
    shared: Arc<Shared>,
    guest: Guest,
    mut socket: TcpStream,
    stop: CancellationToken,
) -> io::Result<()> {
    let peer = socket.peer_addr()?;
    socket.set_nodelay(true)?;
    // Whoever is gone without a word, its machine too, is noticed some day.
    socket2::SockRef::from(&socket).set_keepalive(true)?;
    let mut frames = Frames::new(shared.node.settings().message_bytes, &shared.messages);
    let deadline = tokio::time::sleep(Duration::from_millis(shared.node.settings().authentication_timeout_ms));
    tokio::pin!(deadline);
    let opening = async {
        match open(&shared, &mut socket, &mut frames, shared.tls.is_some()).await? {
            Opened::Encrypt => {}
            opened => return Ok((Stream::Plain(socket), opened)),
        }
        let Some(tls) = &shared.tls else { return Ok((Stream::Plain(socket), Opened::Done)) };
        let mut socket = tls.acceptor(Protocol::Postgres).accept(socket).await?;
        let opened = open(&shared, &mut socket, &mut frames, false).await?;
        io::Result::Ok((Stream::Tls(Box::new(socket)), opened))
    };
    let (stream, opened) = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = guest.shown_out() => return Ok(()),
        () = &mut deadline => return Ok(()),
        opened = opening => opened?,
    };
    let Opened::Startup(startup) = opened else { return Ok(()) };
    let is_secure = matches!(stream, Stream::Tls(_));
    let talk = Talk { peer, is_secure, guest, frames, startup };
    match stream {
        Stream::Plain(socket) => talk.serve(&shared, socket, stop, deadline).await,
        Stream::Tls(socket) => talk.serve(&shared, *socket, stop, deadline).await,
    }
}

/// A connection, as it was negotiated.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What the packets before the conversation came to.
enum Opened {
    Startup(Startup),
    /// The client was told that encryption begins now.
    Encrypt,
    /// It asked for something else, which was done.
    Done,
}

/// Reads the packets before the startup, and that.
async fn open<S>(shared: &Shared, socket: &mut S, frames: &mut Frames, can_encrypt: bool) -> io::Result<Opened>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // Each kind of encryption is asked for once at most.
    for _ in 0..3 {
        match frames.opening(socket).await {
            Ok(None) => return Ok(Opened::Done),
            Ok(Some(Opening::Ssl)) if can_encrypt => {
                if frames.has_more() {
                    // It came in clear, behind the request for encryption: somebody on the way may have put it there.
                    return Ok(Opened::Done);
                }
                socket.write_all(b"S").await?;
                return Ok(Opened::Encrypt);
            }
            Ok(Some(Opening::Ssl | Opening::Gss)) => socket.write_all(b"N").await?,
            Ok(Some(Opening::Cancel(request))) => {
                shared.cancel(request.pid, &request.secret_key);
                return Ok(Opened::Done);
            }
            Ok(Some(Opening::Startup(startup))) => return Ok(Opened::Startup(startup)),
            Err(error) => {
                socket.write_all(&errors::encoded(&error)).await?;
                return Ok(Opened::Done);
            }
        }
    }
    Ok(Opened::Done)
}

/// A connection that has introduced itself, on a stream that is what it will be.
struct Talk {
    peer: SocketAddr,
    is_secure: bool,
    guest: Guest,
    frames: Frames,
    startup: Startup,
}

impl Talk {
    async fn serve<S>(
        self,
        shared: &Arc<Shared>,
        stream: S,
        stop: CancellationToken,
        mut deadline: Pin<&mut tokio::time::Sleep>,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
    {
        let Talk { peer, is_secure, guest, mut frames, startup } = self;
        let (mut incoming, outgoing) = tokio::io::split(stream);
        let codec = PgWireMessageServerCodec::new(DefaultClient::new(peer, is_secure));
        let mut socket: Socket<S> = Framed::new(Outgoing(outgoing), codec);
        socket.set_backpressure_boundary(WRITE_BUFFER_BYTES);
        socket.set_state(PgWireConnectionState::AwaitingStartup);
        if !guest.sit() {
            let limit = shared.places.max_seated();
            let error =
                SqlError::new(state::TOO_MANY_CONNECTIONS, format!("too many connections, the limit is {limit}"))
                    .with_hint("raise max_connections (and the limit of open files), or close idle connections")
                    .fatal();
            tell(&mut socket, &error).await;
            return Ok(());
        }
        shared.node.metrics().connections.set(shared.places.n_seated() as i64);
        let connection = Arc::new(Connection::new(Arc::clone(shared)));
        let _entry = Entry { shared, guest: Some(guest), connection: Arc::clone(&connection) };

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
            let frame = match startup.take() {
                Some(startup) => Ok(Some(Frame::Message(startup))),
                None => tokio::select! {
                    biased;
                    () = stop.cancelled() => Err(SqlError::new(state::ADMIN_SHUTDOWN, "terminating connection: the server stops").fatal()),
                    () = &mut deadline, if starting => break,
                    () = sleep_or_forever(idle_limit) => Err(SqlError::new(
                        state::IDLE_TRANSACTION_TIMEOUT,
                        "terminating connection due to idle-in-transaction timeout",
                    ).fatal()),
                    // A COPY that waits for its client is stopped where it waits.
                    reason = connection.interrupt().triggered(), if copying.is_some() => {
                        let is_extended = copying.unwrap_or_default();
                        Ok(Some(Frame::Bad { error: connection.abort_copy(reason).await, is_extended }))
                    }
                    frame = frames.next(&mut incoming, phase) => frame,
                    // The client may wait for the error with its data all sent.
                    error = connection.copy_failed(), if copying.is_some() => {
                        Ok(Some(Frame::Bad { error, is_extended: copying.unwrap_or_default() }))
                    }
                },
            };
            let done = match frame {
                Ok(None) | Ok(Some(Frame::Message(PgWireFrontendMessage::Terminate(_)))) => break,
                Ok(Some(Frame::Message(message))) => {
                    let is_extended = copying.unwrap_or_else(|| message.is_extended_query());
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
                    Err((error.into(), copying.unwrap_or(is_extended)))
                }
                Err(error) => {
                    tell(&mut socket, &error).await;
                    break;
                }
            };
            let Err((mut error, is_extended)) = done else { continue };
            connection.failed().await;
            errors::sharpen(&mut error);
            shared.node.metrics().errors.inc();
            let mut info = ErrorInfo::from(error);
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
async fn answer_error<S>(
    socket: &mut Socket<S>,
    connection: &Connection,
    info: ErrorInfo,
    wait_for_sync: bool,
) -> io::Result<bool>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
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
async fn tell<S>(socket: &mut Socket<S>, error: &SqlError)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let _ = socket.send(PgWireBackendMessage::ErrorResponse(errors::error_info(error).into())).await;
    let _ = socket.close().await;
}

/// The session of a statement that panicked is not to be trusted.
fn panicked() -> PgWireError {
    SqlError::new(state::INTERNAL, "the statement panicked; see the server's log").fatal().into()
}

async fn sleep_or_forever(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}
