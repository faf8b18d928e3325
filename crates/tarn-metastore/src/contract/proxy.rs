//! What does a network do to a backend, on command?
//!
//! ```text
//! backend ──> proxy ──> server      the request: passed on, held, or lost with its connection
//!         <──       <──             the answer: passed on, or swallowed after the server has made it
//! ```
//!
//! A proxy passes bytes both ways until it is told otherwise. A fault is armed for the first request that a test
//! recognises, is met once, and says so (`reached`); so tests wait for what happens, not for time to pass.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// So much of what came before is looked at together with what comes: a pattern may be cut by a read.
const WINDOW_BYTES: usize = 4 << 10;

/// What happens to a request, or to its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkFault {
    /// The server never gets it; the connection breaks.
    CutBefore,
    /// The server answers it; the answer is lost, and the connection breaks.
    CutAfter,
    /// The server answers it; neither this answer nor a later one comes through. The connection stays.
    Swallow,
    /// It waits until [`Proxy::release`], then goes on.
    Hold,
}

/// Bytes that a test recognises.
type ByteMatcher = Box<dyn Fn(&[u8]) -> bool + Send>;

struct ArmedFault {
    fault: NetworkFault,
    request: ByteMatcher,
    answered: ByteMatcher,
}

struct ProxyState {
    upstream: SocketAddr,
    armed: Mutex<Option<ArmedFault>>,
    /// Connections end when it changes; new ones end at once while it is true.
    refusing: watch::Sender<bool>,
    /// Faults met so far.
    reached: watch::Sender<u64>,
    holding: watch::Sender<bool>,
}

/// Between a backend and its server. Ends with all its connections when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<ProxyState>,
    listening: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of the loopback interface. Runs on the runtime that calls.
    pub async fn start(upstream: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(ProxyState {
            upstream,
            armed: Mutex::default(),
            refusing: watch::Sender::new(false),
            reached: watch::Sender::new(0),
            holding: watch::Sender::new(false),
        });
        let of_listener = shared.clone();
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !*of_listener.refusing.borrow() {
                    tokio::spawn(serve(client, of_listener.clone()));
                }
            }
        });
        Ok(Self { address, shared, listening })
    }

    /// Where the backend is to connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Does this to the next request that `request` recognises; `answered` recognises the server's answer to it. Both
    /// see what has come since in their direction, of one connection.
    pub fn arm(
        &self,
        fault: NetworkFault,
        request: impl Fn(&[u8]) -> bool + Send + 'static,
        answered: impl Fn(&[u8]) -> bool + Send + 'static,
    ) {
        self.shared.holding.send_replace(fault == NetworkFault::Hold);
        *self.shared.armed.lock() =
            Some(ArmedFault { fault, request: Box::new(request), answered: Box::new(answered) });
    }

    /// Whether a fault that was armed has not been met.
    pub fn is_armed(&self) -> bool {
        self.shared.armed.lock().is_some()
    }

    /// Waits until so many faults were met since the start.
    pub async fn reached(&self, n_faults: u64) {
        let mut reached = self.shared.reached.subscribe();
        reached.wait_for(|n| *n >= n_faults).await.expect("the proxy holds the sender");
    }

    /// Lets go what is held.
    pub fn release(&self) {
        self.shared.holding.send_replace(false);
    }

    /// Breaks all connections, and those that come until [`Proxy::accept`].
    pub fn refuse(&self) {
        self.shared.refusing.send_replace(true);
    }

    /// Ends what [`Proxy::refuse`] began.
    pub fn accept(&self) {
        self.shared.refusing.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
        self.shared.refusing.send_replace(true);
    }
}

/// Whether the bytes are somewhere in what was seen.
pub fn has(seen: &[u8], bytes: &[u8]) -> bool {
    seen.windows(bytes.len()).any(|window| window == bytes)
}

/// What becomes of the answers of a connection.
enum ResponseFate {
    Passed,
    /// Until the one that is recognised; then the connection breaks, or nothing comes any more.
    Swallowed {
        answered: ByteMatcher,
        cut: bool,
    },
    Silent,
}

async fn serve(client: TcpStream, shared: Arc<ProxyState>) {
    let mut refusing = shared.refusing.subscribe();
    let Ok(server) = TcpStream::connect(shared.upstream).await else { return };
    let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let answers = Mutex::new(ResponseFate::Passed);
    tokio::select! {
        () = pass_requests(from_client, to_server, &shared, &answers) => {}
        () = pass_answers(from_server, to_client, &shared, &answers) => {}
        _ = refusing.wait_for(|refusing| *refusing) => {}
    }
}

async fn pass_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &ProxyState,
    answers: &Mutex<ResponseFate>,
) {
    let (mut buf, mut seen) = (vec![0; 64 << 10], Vec::new());
    loop {
        let Ok(n @ 1..) = from.read(&mut buf).await else { return };
        let met = {
            let mut armed = shared.armed.lock();
            // What came before it was armed is not meant.
            if armed.is_none() {
                seen.clear();
            } else {
                remember(&mut seen, &buf[..n]);
            }
            armed.take_if(|armed| (armed.request)(&seen))
        };
        if let Some(ArmedFault { fault, answered, .. }) = met {
            seen.clear();
            match fault {
                NetworkFault::CutBefore => return reached(shared),
                NetworkFault::CutAfter | NetworkFault::Swallow => {
                    *answers.lock() = ResponseFate::Swallowed { answered, cut: fault == NetworkFault::CutAfter };
                }
                NetworkFault::Hold => {
                    reached(shared);
                    let mut holding = shared.holding.subscribe();
                    if holding.wait_for(|holding| !holding).await.is_err() {
                        return;
                    }
                }
            }
        }
        if to.write_all(&buf[..n]).await.is_err() {
            return;
        }
    }
}

async fn pass_answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &ProxyState,
    answers: &Mutex<ResponseFate>,
) {
    let (mut buf, mut seen) = (vec![0; 64 << 10], Vec::new());
    loop {
        let Ok(n @ 1..) = from.read(&mut buf).await else { return };
        {
            let mut answers = answers.lock();
            match &*answers {
                ResponseFate::Passed => seen.clear(),
                ResponseFate::Silent => continue,
                ResponseFate::Swallowed { answered, cut } => {
                    remember(&mut seen, &buf[..n]);
                    if answered(&seen) {
                        reached(shared);
                        if *cut {
                            return;
                        }
                        *answers = ResponseFate::Silent;
                    }
                    continue;
                }
            }
        }
        if to.write_all(&buf[..n]).await.is_err() {
            return;
        }
    }
}

fn reached(shared: &ProxyState) {
    shared.reached.send_modify(|n| *n += 1);
}

fn remember(seen: &mut Vec<u8>, bytes: &[u8]) {
    let old = seen.len().saturating_sub(WINDOW_BYTES);
    seen.drain(..old);
    seen.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every line with itself.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut buf = [0; 64];
                    while let Ok(n @ 1..) = client.read(&mut buf).await {
                        client.write_all(&buf[..n]).await.unwrap();
                    }
                });
            }
        });
        address
    }

    async fn ask(stream: &mut TcpStream, text: &str) -> Option<String> {
        stream.write_all(text.as_bytes()).await.ok()?;
        let mut buf = [0; 64];
        let n = stream.read(&mut buf).await.ok().filter(|n| *n > 0)?;
        Some(String::from_utf8(buf[..n].to_vec()).unwrap())
    }

    #[tokio::test]
    async fn faults_meet_the_request_that_is_recognised_and_no_other() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let connect = || TcpStream::connect(proxy.address());
        let mut stream = connect().await.unwrap();
        assert_eq!(ask(&mut stream, "one").await.as_deref(), Some("one"));
        for (n, fault) in [(1, NetworkFault::CutBefore), (2, NetworkFault::CutAfter)] {
            proxy.arm(fault, |seen| has(seen, b"two"), |seen| has(seen, b"two"));
            let mut stream = connect().await.unwrap();
            assert_eq!(ask(&mut stream, "one").await.as_deref(), Some("one"));
            assert!(proxy.is_armed());
            assert_eq!(ask(&mut stream, "two").await, None, "{fault:?}");
            proxy.reached(n).await;
        }
        proxy.arm(NetworkFault::Hold, |seen| has(seen, b"two"), |_| false);
        let asked = tokio::spawn(async move { ask(&mut stream, "two").await });
        proxy.reached(3).await;
        assert!(!asked.is_finished());
        proxy.release();
        assert_eq!(asked.await.unwrap().as_deref(), Some("two"));
        let mut stream = connect().await.unwrap();
        assert_eq!(ask(&mut stream, "one").await.as_deref(), Some("one"));
        proxy.refuse();
        assert_eq!(ask(&mut stream, "one").await, None);
        assert_eq!(ask(&mut connect().await.unwrap(), "one").await, None);
        proxy.accept();
        assert_eq!(ask(&mut connect().await.unwrap(), "one").await.as_deref(), Some("one"));
    }
}
