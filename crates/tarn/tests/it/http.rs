//! Probes, metrics and SQL as JSON.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::harness::Server;

/// One request on a connection of its own: status and body.
fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nhost: tarn\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn sql(server: &Server, text: &str) -> (u16, Value) {
    let (address, body) = (server.running.http.unwrap(), json!({ "sql": text }).to_string());
    let (status, body) = tokio::task::spawn_blocking(move || request(address, "POST", "/v1/sql", &body)).await.unwrap();
    (status, serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_as_json() {
    let server = Server::start().await;
    let (status, answer) = sql(&server, "CREATE TABLE t (k int PRIMARY KEY, n numeric(10,2), t text); INSERT INTO t VALUES (1, 2.5, 'x'), (2, NULL, NULL)").await;
    assert_eq!((status, &answer["results"][1]["command"]), (200, &json!("INSERT 0 2")));
    let (_, answer) = sql(&server, "SELECT k, n, t, k > 1 AS b FROM t ORDER BY k").await;
    assert_eq!(answer["results"][0]["rows"], json!([[1, "2.50", "x", false], [2, null, null, true]]));
    assert_eq!(answer["results"][0]["columns"][1], json!({"name": "n", "type": "numeric"}));
    let (status, answer) = sql(&server, "SELECT * FROM nowhere").await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("42P01")));
    let (status, answer) = sql(&server, "SELEC").await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("42601")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_and_metrics() {
    let server = Server::start().await;
    let address = server.running.http.unwrap();
    let get = async |path: &'static str| {
        tokio::task::spawn_blocking(move || request(address, "GET", path, "")).await.unwrap()
    };
    assert_eq!(get("/livez").await.0, 200);
    assert_eq!(get("/readyz").await.0, 200);
    assert_eq!(get("/nowhere").await.0, 404);
    let (status, text) = get("/metrics").await;
    assert_eq!(status, 200);
    for name in [
        "tarn_statements_total",
        "tarn_recent_bytes",
        "tarn_connections",
        "tarn_log_commits_total",
        "tarn_log_write_seconds_bucket{le=\"+Inf\"}",
        "tarn_log_commit_batches_count",
    ] {
        assert!(text.contains(name), "{name} is missing:\n{text}");
    }
}
