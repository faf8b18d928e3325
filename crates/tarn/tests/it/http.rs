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
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    answer(&mut socket)
}

/// Status and body of what the server sends until it closes the connection.
fn answer(socket: &mut TcpStream) -> (u16, String) {
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let body = if head.contains("chunked") { unchunked(body) } else { body.to_owned() };
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
}

fn unchunked(mut text: &str) -> String {
    let mut body = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        body.push_str(&rest[..length]);
        text = &rest[length + 2..];
    }
    body
}

/// A request for SQL with these headers besides Host.
pub async fn asked(server: &Server, headers: &str, body: &str) -> (u16, Value) {
    let (address, body) = (server.running.http.unwrap(), body.to_owned());
    let head = format!("POST /v1/sql HTTP/1.1\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    let asked = tokio::task::spawn_blocking(move || {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all((head + &body).as_bytes()).unwrap();
        answer(&mut socket)
    });
    let (status, body) = asked.await.unwrap();
    (status, serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}")))
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
        "# TYPE tarn_engine_memtable_waits counter",
        "tarn_engine_memtable_waits_total 0",
        "tarn_engine_slowdowns_total 0",
        "tarn_engine_stops_total 0",
        "tarn_engine_stopped 0",
        "tarn_engine_slowed_to_bytes_per_second 0",
    ] {
        assert!(text.contains(name), "{name} is missing:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_another_origin_cannot_ask_for_sql() {
    let server = Server::start_with(|settings| settings.http.http_hosts = "db.example other.example".to_owned()).await;
    let body = json!({ "sql": "CREATE TABLE t (k int PRIMARY KEY)" }).to_string();
    let json_type = "content-type: application/json\r\n";
    let refused = [
        ("host: localhost\r\ncontent-type: text/plain\r\n".to_owned(), 415),
        ("host: localhost\r\n".to_owned(), 415),
        (format!("host: evil.example\r\n{json_type}"), 403),
        (format!("host: evil.example:8433\r\n{json_type}"), 403),
        (format!("host: localhost\r\norigin: http://evil.example\r\n{json_type}"), 403),
        (format!("host: localhost:8433\r\norigin: http://localhost:3000\r\n{json_type}"), 403),
        (format!("host: localhost\r\norigin: null\r\n{json_type}"), 403),
    ];
    for (headers, want) in &refused {
        let (status, answer) = asked(&server, headers, &body).await;
        assert_eq!(status, *want, "{headers}: {answer}");
        assert!(answer["error"]["hint"].is_string(), "{answer}");
    }
    let body = json!({ "sql": "SELECT count(*) FROM tarn.tables" }).to_string();
    for headers in [
        "host: localhost:8433\r\norigin: http://localhost:8433\r\n",
        "host: 127.0.0.1\r\n",
        "host: [::1]:8433\r\n",
        "host: db.example:80\r\norigin: https://other.example\r\n",
    ] {
        let (status, answer) =
            asked(&server, &format!("{headers}content-type: application/json; charset=utf-8\r\n"), &body).await;
        assert_eq!((status, &answer["results"][0]["rows"]), (200, &json!([[0]])), "{headers}: {answer}");
    }
    let nul = json!({ "sql": "SELECT 'a\0b'" }).to_string();
    let (status, answer) = asked(&server, &format!("host: localhost\r\n{json_type}"), &nul).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("22021")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_go_out_as_they_are_made() {
    let server = Server::start().await;
    let (status, answer) =
        sql(&server, "SELECT 1; SELECT value, repeat('x', 1000) FROM generate_series(1, 20000) AS s(value); SELECT 2")
            .await;
    assert_eq!(status, 200);
    assert_eq!(answer["results"][1]["rows"].as_array().unwrap().len(), 20_000);
    assert_eq!(answer["results"][1]["command"], "SELECT 20000");
    assert_eq!(answer["results"][2]["rows"], json!([[2]]));
    // What fails later is told beside what was sent.
    let late = "SELECT repeat('x', 1000), 1 / (150000 - value) FROM generate_series(1, 200000) AS s(value)";
    let (status, answer) = sql(&server, late).await;
    assert_eq!((status, &answer["error"]["code"]), (200, &json!("22012")));
    assert!(!answer["results"][0]["rows"].as_array().unwrap().is_empty());
    let (status, answer) = sql(&server, "SELECT 1/0").await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("22012")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_http_clients_are_shown_out() {
    let server = Server::start_with(|settings| {
        settings.http.http_timeout_ms = 100;
        settings.server.http_max_connections = 2;
    })
    .await;
    let address = server.running.http.unwrap();
    let slow = tokio::task::spawn_blocking(move || {
        let mut sockets: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
        for socket in &mut sockets {
            // Those that came first are shown out already.
            let _ = socket.write_all(b"GET /livez HTTP/1.1\r\nhost: ");
        }
        assert_eq!(request(address, "GET", "/livez", "").0, 200, "they keep nobody out");
        let mut body = TcpStream::connect(address).unwrap();
        let head =
            "POST /v1/sql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n";
        body.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = body.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        for mut socket in sockets {
            // Closed by the server, properly or not.
            let _ = socket.read_to_end(&mut Vec::new());
        }
    });
    slow.await.unwrap();
}
