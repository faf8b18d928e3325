//! A client that says what no driver says.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::Server;

#[path = "../../../tarn-pg/tests/messages/mod.rs"]
mod messages;

pub use messages::{bind, execute, message, parse, query, sync};

pub struct RawClient {
    pub socket: TcpStream,
}

/// One message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: char,
    pub body: Vec<u8>,
}

impl Message {
    /// A field of an error: `C` is its SQLSTATE, `M` its message, `S` its severity.
    pub fn field(&self, field: u8) -> String {
        let mut fields = self.body.split(|b| *b == 0);
        let found = fields.find(|text| text.first() == Some(&field)).unwrap_or_default();
        String::from_utf8_lossy(found.get(1..).unwrap_or_default()).into_owned()
    }

    /// As tests name it: the kind, and what matters of it: `E22012`, `ZI`, `CINSERT 0 1`.
    pub fn short(&self) -> String {
        let rest = match self.kind {
            'E' => self.field(b'C'),
            'Z' | 'C' => String::from_utf8_lossy(&self.body).trim_end_matches('\0').to_owned(),
            _ => String::new(),
        };
        format!("{}{rest}", self.kind)
    }
}

impl RawClient {
    /// Says nothing yet.
    pub async fn silent(server: &Server) -> RawClient {
        RawClient { socket: TcpStream::connect(server.running.pg).await.unwrap() }
    }

    pub async fn connect(server: &Server) -> RawClient {
        let mut raw = RawClient::silent(server).await;
        let mut packet = 0_u32.to_be_bytes().to_vec();
        packet.extend_from_slice(&196_608_u32.to_be_bytes());
        packet.extend_from_slice(b"user\0tester\0database\0tarn\0\0");
        let length = packet.len() as u32;
        packet[..4].copy_from_slice(&length.to_be_bytes());
        raw.send(&packet).await;
        raw.until_ready().await;
        raw
    }

    /// The answers to a startup message with these parameters.
    pub async fn introduced(server: &Server, parameters: &[(&str, &str)]) -> Vec<Message> {
        let mut raw = RawClient::silent(server).await;
        let mut packet = 0_u32.to_be_bytes().to_vec();
        packet.extend_from_slice(&196_608_u32.to_be_bytes());
        for (name, value) in [("user", "tester"), ("database", "tarn")].iter().chain(parameters) {
            packet.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
        }
        packet.push(0);
        let length = packet.len() as u32;
        packet[..4].copy_from_slice(&length.to_be_bytes());
        raw.send(&packet).await;
        raw.until_ready().await
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// The next message; `None` when the server closed the connection.
    pub async fn next(&mut self) -> Option<Message> {
        let mut header = [0; 5];
        self.socket.read_exact(&mut header).await.ok()?;
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let mut body = vec![0; length - 4];
        self.socket.read_exact(&mut body).await.ok()?;
        Some(Message { kind: header[0] as char, body })
    }

    /// Everything up to ReadyForQuery, or to the end of the connection.
    pub async fn until_ready(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            let is_ready = message.kind == 'Z';
            messages.push(message);
            if is_ready {
                break;
            }
        }
        messages
    }

    /// Sends, and names the answers up to ReadyForQuery.
    pub async fn ask(&mut self, bytes: &[u8]) -> Vec<String> {
        self.send(bytes).await;
        self.until_ready().await.iter().map(Message::short).collect()
    }
}
