//! Is this HTTP connection in clear or encrypted? Both come on the same port: the first byte tells.

use std::io;

use tarn_net::stream::Stream;
use tarn_net::tls::{Protocol, Tls};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The first byte of a TLS handshake; no HTTP request begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

const HTTPS_ONLY: &[u8] =
    b"HTTP/1.1 426 Upgrade Required\r\nupgrade: TLS/1.2\r\nconnection: close\r\ncontent-length: 45\r\n\r\n\
this server takes encrypted connections only\n";

/// Makes the handshake, if the client begins one. None: it was not let in, and told so. The caller bounds the time.
pub async fn open(mut socket: TcpStream, tls: Option<&Tls>) -> io::Result<Option<Stream>> {
    let Some(tls) = tls else { return Ok(Some(Stream::Plain(socket))) };
    let mut first = [0; 1];
    if socket.peek(&mut first).await? == 1 && first[0] == TLS_HANDSHAKE {
        return Stream::encrypt(socket, tls, Protocol::Http).await.map(Some);
    }
    if tls.is_required() {
        socket.write_all(HTTPS_ONLY).await?;
        socket.shutdown().await?;
        return Ok(None);
    }
    Ok(Some(Stream::Plain(socket)))
}
