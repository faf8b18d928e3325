//! What do the bytes of a connection come through? In clear or encrypted: who serves it need not tell them apart.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::tls::{Protocol, Tls};

/// A connection, as it was negotiated.
pub enum Stream {
    /// Everybody on the way can read it.
    Plain(TcpStream),
    /// The handshake is over.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Makes the server's part of the handshake. The caller bounds the time.
    pub async fn encrypt(socket: TcpStream, tls: &Tls, protocol: Protocol) -> io::Result<Stream> {
        Ok(Stream::Tls(Box::new(tls.acceptor(protocol).accept(socket).await?)))
    }

    /// Whether it is TLS.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_read(context, room),
            Stream::Tls(socket) => Pin::new(socket).poll_read(context, room),
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Stream::Tls(socket) => Pin::new(socket).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_write_vectored(context, parts),
            Stream::Tls(socket) => Pin::new(socket).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(socket) => socket.is_write_vectored(),
            Stream::Tls(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_flush(context),
            Stream::Tls(socket) => Pin::new(socket).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Stream::Tls(socket) => Pin::new(socket).poll_shutdown(context),
        }
    }
}
