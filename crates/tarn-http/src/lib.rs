//! What does HTTP serve? Probes, metrics, and SQL as JSON.
//!
//! `GET /livez` the process runs; `GET /readyz` it serves statements, or 503 and what does not work; `GET /metrics`
//! Prometheus text; `POST /v1/sql` with `{"sql": "…"}` runs one text and answers `{"columns": […], "rows": [[…]],
//! "command": "SELECT 2"}` per statement.
//!
//! - *Who may ask.* A browser sends what any page asks it to. So SQL wants `application/json`, which a page of another
//!   origin cannot send unasked; a known `Host`, which a name that was bound to this address anew is not; and no
//!   foreign `Origin`.
//! - *How much.* Answers go out as they are made, in pieces; nothing is gathered. What fails before the first piece has
//!   its status; what fails later ends the answer with an `error` beside `results`.
//! - *How long.* A client must send its request, and read on, within `http_timeout_ms`.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod login;
pub mod settings;
mod tls;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::DataType;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router, middleware};
use bytes::BytesMut;
use futures::{StreamExt, stream};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use pgwire::api::portal::Format;
use serde::Deserialize;
use serde_json::{Value, json};
use tarn_net::Peer;
use tarn_net::places::{ConnectionSlots, Guest};
use tarn_net::stream::Stream;
use tarn_net::tls::Tls;
use tarn_node::auth::Principal;
use tarn_sql::encoding;
use tarn_sql::error::{SqlError, being_opened, state};
use tarn_sql::rows::{RowWriter, fields};
use tarn_sql::service::Sql;
use tarn_sql::session::{Answer, ResultSet, Session};
use tarn_types::full_name;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::login::BasicAuth;
use crate::settings::HttpSettings;

/// An answer goes out in pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that wait for the client.
const QUEUE: usize = 4;

/// The longest body of a request; longer data belongs to COPY.
const MAX_BODY_BYTES: usize = 16 << 20;

/// What a connection hears for which there is no descriptor.
pub const REFUSAL: &str = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// What the port has, whoever answers.
pub struct Door {
    /// None: plain connections only.
    tls: Option<Arc<Tls>>,
    /// Hosts by which SQL may be asked for, besides addresses and localhost.
    hosts: Vec<String>,
    places: Arc<ConnectionSlots>,
    timeout: Duration,
    takes_plain: bool,
}

/// Who answers.
pub enum HttpBackend {
    /// The node serves: probes, metrics and statements.
    Sql(Arc<Sql>),
    /// The data folder is being opened anew: why.
    Nothing(Arc<Mutex<Vec<String>>>),
}

/// What all requests share.
pub struct HttpServer {
    door: Arc<Door>,
    behind: HttpBackend,
}

/// A connection that sits while a request is answered.
struct Seat(Arc<Guest>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.rise();
    }
}

impl Door {
    /// What all connections to one address share, whatever is behind it.
    pub fn new(
        settings: &HttpSettings,
        tls: Option<Arc<Tls>>,
        address: SocketAddr,
        places: Arc<ConnectionSlots>,
    ) -> Arc<Door> {
        let names = settings.http_hosts.split_whitespace().map(str::to_ascii_lowercase);
        let hosts = names.chain([address.ip().to_string()]).collect();
        let (timeout, takes_plain) = (Duration::from_millis(settings.http_timeout_ms), settings.insecure_plain_http);
        Arc::new(Door { tls, hosts, places, timeout, takes_plain })
    }
}

impl HttpServer {
    /// What connections meet until something else is behind the door.
    pub fn new(door: Arc<Door>, behind: HttpBackend) -> Arc<HttpServer> {
        Arc::new(HttpServer { door, behind })
    }

    /// Where connections are counted.
    pub fn places(&self) -> &Arc<ConnectionSlots> {
        &self.door.places
    }

    /// Serves one connection to its end, or until it is idle after `stop`.
    pub async fn serve_connection(
        self: Arc<Self>,
        guest: Guest,
        socket: TcpStream,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let address = socket.peer_addr()?;
        let opened = tokio::select! {
            opened = tokio::time::timeout(self.door.timeout, tls::open(socket, self.door.tls.as_deref())) => opened,
            () = guest.shown_out() => return Ok(()),
            () = stop.cancelled() => return Ok(()),
        };
        let Ok(opened) = opened else { return Ok(()) };
        let Some(stream) = opened? else { return Ok(()) };
        let peer = Peer { address, is_encrypted: stream.is_encrypted() };
        self.serve_stream(peer, guest, stream, stop).await
    }

    async fn serve_stream(
        self: Arc<Self>,
        peer: Peer,
        guest: Guest,
        stream: Stream,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let guest = Arc::new(guest);
        let timeout = self.door.timeout;
        let service = TowerToHyperService::new(router(self, Arc::clone(&guest), peer));
        let mut http = hyper::server::conn::http1::Builder::new();
        // Between requests too: an idle connection is closed.
        http.timer(TokioTimer::new()).header_read_timeout(timeout);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let served = tokio::select! {
            served = &mut connection => served,
            () = guest.shown_out() => return Ok(()),
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        served.map_err(io::Error::other)
    }
}

/// All routes, for one connection.
fn router(face: Arc<HttpServer>, guest: Arc<Guest>, peer: Peer) -> Router {
    let routes = match &face.behind {
        HttpBackend::Sql(sql) => of_sql(sql, &face.door),
        HttpBackend::Nothing(reasons) => of_nothing(reasons, &face.door),
    };
    routes
        .route("/livez", get(|| async { "ok\n" }))
        .layer(Extension(ConnectInfo(peer)))
        .layer(middleware::from_fn_with_state(guest, seated))
        .with_state(Arc::clone(&face.door))
}

fn of_sql(service: &Arc<Sql>, door: &Door) -> Router<Arc<Door>> {
    let guard = BasicAuth { node: Arc::clone(service.node()), takes_plain: door.takes_plain };
    let users_only = middleware::from_fn_with_state(guard.clone(), login::users_only);
    let users_or_near = middleware::from_fn_with_state(guard, login::users_or_near);
    Router::new()
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics).layer(users_or_near))
        .route("/v1/sql", post(sql).layer(users_only))
        .layer(Extension(Arc::clone(service)))
}

/// While a node is opened anew the process lives, and is not ready.
fn of_nothing(reasons: &Arc<Mutex<Vec<String>>>, door: &Arc<Door>) -> Router<Arc<Door>> {
    let reasons = Arc::clone(reasons);
    let door = Arc::clone(door);
    let come_back = move |request: Request| {
        let refusal = door.check_headers(request.headers()).err();
        async move {
            let (status, error) = refusal.unwrap_or_else(|| (StatusCode::SERVICE_UNAVAILABLE, being_opened()));
            refused(status, &error)
        }
    };
    let answer = move || {
        let reasons = reasons.lock().clone();
        async move { not_ready(&reasons) }
    };
    Router::new().route("/v1/sql", post(come_back)).fallback(answer)
}

/// Answers a request when there is a seat, which the request keeps until it is answered.
async fn seated(State(guest): State<Arc<Guest>>, mut request: Request, next: Next) -> Response {
    if !guest.sit() {
        let text = "too many requests at once: try again, or raise http_max_connections\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    request.extensions_mut().insert(Arc::new(Seat(guest)));
    next.run(request).await
}

async fn readyz(Extension(service): Extension<Arc<Sql>>) -> Response {
    let node = service.node();
    let reasons = node.not_ready();
    if reasons.is_empty() {
        // It serves, and an operator should look.
        let degraded = node.catalog().stuck().into_iter().map(|(table, stuck)| {
            let table = full_name::dotted(&table);
            format!("degraded: table \"{table}\" is not delivered since {}: {}\n", stuck.since(), stuck.reason)
        });
        return std::iter::once("ready\n".to_owned()).chain(degraded).collect::<String>().into_response();
    }
    not_ready(&reasons)
}

/// `503`, one reason a line.
fn not_ready(reasons: &[String]) -> Response {
    let lines: String = reasons.iter().map(|reason| format!("not ready: {}\n", reason.replace('\n', " "))).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn metrics(Extension(service): Extension<Arc<Sql>>) -> Response {
    let content = [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    (content, service.metrics_text()).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SqlRequest {
    sql: String,
}

async fn sql(
    State(door): State<Arc<Door>>,
    Extension(service): Extension<Arc<Sql>>,
    Extension(principal): Extension<Principal>,
    Extension(ConnectInfo(peer)): Extension<ConnectInfo<Peer>>,
    request: Request,
) -> Response {
    if let Err((status, error)) = door.check_headers(request.headers()) {
        return refused(status, &error);
    }
    let key = match key_of(request.headers()) {
        Ok(key) => key,
        Err(error) => return refused(StatusCode::BAD_REQUEST, &error),
    };
    let seat = request.extensions().get::<Arc<Seat>>().cloned();
    let body = match tokio::time::timeout(door.timeout, to_bytes(request.into_body(), MAX_BODY_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let error = SqlError::new(state::PROGRAM_LIMIT, format!("the body is longer than {MAX_BODY_BYTES} bytes"))
                .with_hint("load data with COPY over the Postgres protocol, or with `tarn load`");
            return refused(StatusCode::PAYLOAD_TOO_LARGE, &error);
        }
        Err(_) => {
            let error = SqlError::new(state::CONNECTION_FAILURE, "the body did not come in time")
                .with_hint("send it at once, or raise http_timeout_ms");
            return refused(StatusCode::REQUEST_TIMEOUT, &error);
        }
    };
    let (pieces, mut made) = mpsc::channel(QUEUE);
    let timeout = door.timeout;
    tokio::spawn(async move {
        let gone = pieces.clone();
        let mut out =
            ResponseWriter { text: Vec::new(), is_begun: false, in_rows: false, n_results: 0, pieces, timeout };
        // The client that goes away takes its statement along.
        tokio::select! {
            () = gone.closed() => {}
            () = out.answer(service, principal, peer, StatementRequest { body: &body, key: key.as_deref() }) => {}
        }
        drop(seat);
    });
    let content = [(header::CONTENT_TYPE, "application/json")];
    match made.recv().await {
        Some(BodyPart::Whole(body)) => (content, body).into_response(),
        Some(BodyPart::Part(first)) => {
            let rest = stream::poll_fn(move |context| made.poll_recv(context)).map(|piece| match piece {
                BodyPart::Part(bytes) | BodyPart::Whole(bytes) => bytes,
                BodyPart::Failed(_) => Bytes::new(),
            });
            let body = stream::once(async { first }).chain(rest).map(Ok::<_, Infallible>);
            (content, Body::from_stream(body)).into_response()
        }
        Some(BodyPart::Failed(error)) => refused(status_of(&error), &error),
        None => {
            let error = SqlError::new(state::INTERNAL, "the statement panicked; see the server's log");
            refused(StatusCode::INTERNAL_SERVER_ERROR, &error)
        }
    }
}

impl Door {
    /// Whether the request may ask for SQL.
    fn check_headers(&self, headers: &HeaderMap) -> Result<(), (StatusCode, SqlError)> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let forbidden = |message: String, hint: &str| {
            Err((StatusCode::FORBIDDEN, SqlError::new(state::INVALID_AUTHORIZATION, message).with_hint(hint)))
        };
        let host = text(header::HOST).unwrap_or_default();
        if !self.is_known(host) {
            return forbidden(
                format!("this server is not asked for SQL as host {host:?}"),
                "call it by address or localhost, or add the name to the setting http_hosts",
            );
        }
        if let Some(origin) = text(header::ORIGIN) {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            let is_listed = authority.is_some_and(|authority| self.hosts.iter().any(|host| host == name_of(authority)));
            if authority != Some(host) && !is_listed {
                return forbidden(
                    format!("a page of {origin:?} may not ask for SQL"),
                    "add its host to the setting http_hosts if it is yours",
                );
            }
        }
        let content = text(header::CONTENT_TYPE).unwrap_or_default();
        let essence = content.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            let error = SqlError::new(state::INVALID_PARAMETER_VALUE, format!("the body's type is {content:?}"))
                .with_hint("send the header Content-Type: application/json");
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
        }
        Ok(())
    }

    /// Addresses are known: what a name is bound to can be changed by its owner, an address cannot.
    fn is_known(&self, host: &str) -> bool {
        let name = name_of(host).to_ascii_lowercase();
        name == "localhost"
            || name.ends_with(".localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.hosts.contains(&name)
    }
}

/// The host of `host:port` or `[address]:port`.
fn name_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

/// What the client calls its request: the header `Idempotency-Key`, with or without quotes around it.
///
/// Errors: `22023` for an empty one, for several, and for one that is no text.
fn key_of(headers: &HeaderMap) -> Result<Option<String>, SqlError> {
    let mut all = headers.get_all("idempotency-key").iter();
    let Some(value) = all.next() else { return Ok(None) };
    let text = value.to_str().ok().map(str::trim);
    let bare = text.map(|text| text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text));
    match bare.filter(|key| !key.is_empty() && all.next().is_none()) {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "the header Idempotency-Key is not one key")
            .with_hint("send one text that is not empty, such as a UUID")),
    }
}

fn status_of(error: &SqlError) -> StatusCode {
    match error.state() {
        state::INTERNAL | state::IO_ERROR | state::DATA_CORRUPTED => StatusCode::INTERNAL_SERVER_ERROR,
        state::CANNOT_CONNECT_NOW | state::ADMIN_SHUTDOWN | state::OUT_OF_MEMORY | state::DISK_FULL => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        state::INSUFFICIENT_PRIVILEGE | state::INVALID_AUTHORIZATION => StatusCode::FORBIDDEN,
        state::UNDEFINED_TABLE => StatusCode::NOT_FOUND,
        state::SERIALIZATION_FAILURE => StatusCode::CONFLICT,
        _ => StatusCode::BAD_REQUEST,
    }
}

fn refused(status: StatusCode, error: &SqlError) -> Response {
    (status, Json(json!({ "error": described(error) }))).into_response()
}

fn described(error: &SqlError) -> Value {
    json!({ "code": error.state(), "message": error.message(), "detail": error.detail(), "hint": error.hint() })
}

/// What a client sent.
struct StatementRequest<'a> {
    body: &'a [u8],
    key: Option<&'a str>,
}

/// What the statements make of an answer.
enum BodyPart {
    /// All of it.
    Whole(Bytes),
    Part(Bytes),
    /// It failed before anything of it was sent.
    Failed(SqlError),
}

/// Why an answer ends early.
enum StreamEnd {
    /// The client does not read on.
    Gone,
    Failed(SqlError),
}

impl<E: Into<SqlError>> From<E> for StreamEnd {
    fn from(error: E) -> StreamEnd {
        StreamEnd::Failed(error.into())
    }
}

/// An answer on its way.
struct ResponseWriter {
    text: Vec<u8>,
    /// A part of it was sent: the status is told.
    is_begun: bool,
    /// `text` ends inside the rows of a result.
    in_rows: bool,
    n_results: usize,
    pieces: mpsc::Sender<BodyPart>,
    timeout: Duration,
}

impl ResponseWriter {
    async fn answer(&mut self, service: Arc<Sql>, principal: Principal, peer: Peer, wanted: StatementRequest<'_>) {
        let last = match self.run(service, principal, peer, wanted).await {
            Err(StreamEnd::Gone) => return,
            Err(StreamEnd::Failed(error)) if !self.is_begun => BodyPart::Failed(error),
            Err(StreamEnd::Failed(error)) => {
                self.push(if self.in_rows { "]}]," } else { "]," });
                self.push(&format!("\"error\":{}}}", described(&error)));
                BodyPart::Part(std::mem::take(&mut self.text).into())
            }
            Ok(()) => {
                self.push("]}");
                let text = std::mem::take(&mut self.text).into();
                if self.is_begun { BodyPart::Part(text) } else { BodyPart::Whole(text) }
            }
        };
        let _ = self.send(last).await;
    }

    async fn run(
        &mut self,
        service: Arc<Sql>,
        principal: Principal,
        peer: Peer,
        wanted: StatementRequest<'_>,
    ) -> Result<(), StreamEnd> {
        let request: SqlRequest = serde_json::from_slice(wanted.body).map_err(|error| {
            SqlError::new(state::INVALID_PARAMETER_VALUE, format!("request body: {error}"))
                .with_hint("send {\"sql\": \"SELECT 1\"}")
        })?;
        encoding::check(&request.sql)?;
        let session = Session::new(service);
        if let Some(name) = principal.name() {
            session.call_me(name);
        }
        session.log_in(principal, peer.address);
        let done = self.statements(&session, &request.sql, wanted.key).await;
        session.end_statement(match &done {
            Ok(()) => None,
            Err(StreamEnd::Failed(error)) => Some(error.state()),
            Err(StreamEnd::Gone) => Some(state::CONNECTION_DOES_NOT_EXIST),
        });
        done
    }

    async fn statements(&mut self, session: &Session, sql: &str, key: Option<&str>) -> Result<(), StreamEnd> {
        self.push("{\"results\":[");
        session.begin_statement();
        let statements = session.parse(sql).await?;
        if let Some(key) = key {
            session.name_request(key, &statements)?;
        }
        for parsed in statements {
            session.limit_statement();
            match session.run_one(parsed).await? {
                Answer::Rows(rows) => self.rows(rows, session).await?,
                Answer::Done(tag) if tag.command == "LISTEN" => return Err(no_listening().into()),
                Answer::Done(tag) => {
                    self.begin_result();
                    self.push(&json!({ "command": tag.text() }).to_string());
                }
                Answer::CopyFrom(_) | Answer::CopyTo(_) => return Err(no_copy().into()),
            }
            // It is said now, whatever becomes of the next one; nobody here listens.
            session.hear();
        }
        Ok(())
    }

    async fn rows(&mut self, mut rows: ResultSet, session: &Session) -> Result<(), StreamEnd> {
        let fields = fields(&rows.schema, &Format::UnifiedText)?;
        let style = session.style();
        let columns: Vec<Value> =
            fields.iter().map(|f| json!({ "name": f.name(), "type": f.datatype().name() })).collect();
        let is_json: Vec<bool> = rows.schema.fields().iter().map(|field| is_json_number(field.data_type())).collect();
        self.begin_result();
        self.push(&format!("{{\"columns\":{},\"rows\":[", Value::Array(columns)));
        self.in_rows = true;
        let mut cell = BytesMut::new();
        let mut n_rows = 0_u64;
        loop {
            let batch = tokio::select! {
                biased;
                error = session.interrupt().triggered() => return Err(error.into()),
                batch = rows.batches.next() => batch.transpose()?,
            };
            let Some(batch) = batch else { break };
            let writer = RowWriter::new(&batch, &fields, &style)?;
            for row in 0..writer.n_rows() {
                let mut values = Vec::with_capacity(fields.len());
                for (column, is_json) in is_json.iter().enumerate() {
                    cell.clear();
                    values.push(match writer.text(row, column, &mut cell)? {
                        false => Value::Null,
                        true => json_value(&cell, *is_json),
                    });
                }
                if n_rows > 0 {
                    self.push(",");
                }
                n_rows += 1;
                self.push(&Value::Array(values).to_string());
                if self.text.len() >= PIECE_BYTES {
                    let part = BodyPart::Part(std::mem::take(&mut self.text).into());
                    self.is_begun = true;
                    self.send(part).await?;
                }
            }
        }
        self.in_rows = false;
        self.push(&format!("],\"command\":{}}}", json!(format!("{} {n_rows}", rows.command))));
        Ok(())
    }

    fn begin_result(&mut self) {
        if self.n_results > 0 {
            self.push(",");
        }
        self.n_results += 1;
    }

    fn push(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    /// Waits until the client reads on, but not for ever.
    async fn send(&self, piece: BodyPart) -> Result<(), StreamEnd> {
        match tokio::time::timeout(self.timeout, self.pieces.send(piece)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(StreamEnd::Gone),
        }
    }
}

fn no_listening() -> SqlError {
    SqlError::unsupported("LISTEN over HTTP", "listen by the Postgres protocol: a request is a session of its own")
}

fn no_copy() -> SqlError {
    SqlError::unsupported("COPY over HTTP", "use the Postgres protocol, `tarn load` or `tarn sql`")
}

/// Numbers that every JSON reader keeps exactly, and booleans; the rest travels as Postgres' text.
fn is_json_number(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::Float32
            | DataType::Float64
    )
}

fn json_value(text: &[u8], is_json: bool) -> Value {
    let text = String::from_utf8_lossy(text);
    match (is_json, text.as_ref()) {
        (true, "t") => Value::Bool(true),
        (true, "f") => Value::Bool(false),
        // NaN and infinity stay text.
        (true, number) => serde_json::from_str(number).unwrap_or_else(|_| Value::String(number.to_owned())),
        _ => Value::String(text.into_owned()),
    }
}
