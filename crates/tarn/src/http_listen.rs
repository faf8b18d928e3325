//! How do connections reach HTTP? In clear or encrypted on the same port: the first byte tells. Handshakes are made
//! side by side, so that a client that is slow, or says nothing, holds up no other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use pgwire::tokio::server::MaybeTls;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

use crate::auth::tls::{Protocol, Tls};
use crate::pg::login::Peer;

/// How long a client may take until it is encrypted.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Handshakes at once; others wait to be accepted.
const MAX_HANDSHAKES: usize = 64;

/// The first byte of a TLS handshake; no HTTP request begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

const HTTPS_ONLY: &[u8] =
    b"HTTP/1.1 426 Upgrade Required\r\nupgrade: TLS/1.2\r\nconnection: close\r\ncontent-length: 45\r\n\r\n\
this server takes encrypted connections only\n";

/// Connections that are ready to be served.
pub struct HttpListener {
    ready: mpsc::Receiver<(MaybeTls, Peer)>,
    local: Peer,
}

impl HttpListener {
    /// Accepts from now on, until this is dropped.
    pub fn start(listener: TcpListener, tls: Option<Arc<Tls>>) -> io::Result<HttpListener> {
        let local = Peer { address: listener.local_addr()?, is_encrypted: false };
        let (sender, ready) = mpsc::channel(1);
        tokio::spawn(accept(listener, tls, sender));
        Ok(HttpListener { ready, local })
    }
}

async fn accept(mut listener: TcpListener, tls: Option<Arc<Tls>>, ready: mpsc::Sender<(MaybeTls, Peer)>) {
    let places = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        // Waits after errors, as when there are no more file descriptors.
        let (socket, address) = tokio::select! {
            () = ready.closed() => return,
            accepted = Listener::accept(&mut listener) => accepted,
        };
        let (tls, ready) = (tls.clone(), ready.clone());
        tokio::spawn(async move {
            let Some(tls) = tls else {
                let _ = ready.send((MaybeTls::Plain(socket), Peer { address, is_encrypted: false })).await;
                return;
            };
            let opened = tokio::time::timeout(HANDSHAKE_TIMEOUT, open(socket, &tls)).await;
            drop(place);
            match opened {
                Ok(Ok(Some(socket))) => {
                    let is_encrypted = matches!(socket, MaybeTls::Tls(_));
                    let _ = ready.send((socket, Peer { address, is_encrypted })).await;
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) => tracing::debug!(%address, %error, "no HTTP connection"),
                Err(_) => tracing::debug!(%address, "no HTTP connection: the handshake took too long"),
            }
        });
    }
}

/// None: it was not let in, and told so.
async fn open(mut socket: TcpStream, tls: &Tls) -> io::Result<Option<MaybeTls>> {
    let mut first = [0; 1];
    if socket.peek(&mut first).await? == 1 && first[0] == TLS_HANDSHAKE {
        return Ok(Some(MaybeTls::Tls(Box::new(tls.acceptor(Protocol::Http).accept(socket).await?))));
    }
    if tls.is_required() {
        socket.write_all(HTTPS_ONLY).await?;
        socket.shutdown().await?;
        return Ok(None);
    }
    Ok(Some(MaybeTls::Plain(socket)))
}

impl Listener for HttpListener {
    type Io = MaybeTls;
    type Addr = Peer;

    async fn accept(&mut self) -> (MaybeTls, Peer) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The runtime ends: there is nothing more to accept.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(self.local)
    }
}

impl Connected<IncomingStream<'_, HttpListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, HttpListener>) -> Peer {
        *stream.remote_addr()
    }
}
