//! What does HTTP serve? Probes, metrics, and SQL as JSON.
//!
//! `GET /livez` the process runs; `GET /readyz` it serves statements, or 503 and what does not work; `GET /metrics`
//! Prometheus text; `POST /v1/sql` with `{"sql": "…"}` runs one text and answers `{"columns": […], "rows": [[…]],
//! "command": "SELECT 2"}` per statement.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::BytesMut;
use datafusion::arrow::datatypes::DataType;
use futures::StreamExt;
use parking_lot::Mutex;
use pgwire::api::portal::Format;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::{Result, SqlError, state};
use crate::node::Node;
use crate::pg::rows::{RowWriter, fields};
use crate::session::{Answer, Rows, Session};

/// Rows of one HTTP answer; larger results belong to COPY or the Postgres protocol.
const MAX_ROWS: usize = 100_000;

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, node: Arc<Node>, stop: CancellationToken) {
    let served = axum::serve(listener, router(node)).with_graceful_shutdown(async move { stop.cancelled().await });
    if let Err(error) = served.await {
        tracing::error!(%error, "HTTP ended");
    }
}

/// All routes.
pub fn router(node: Arc<Node>) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/sql", post(sql))
        .with_state(node)
}

async fn readyz(State(node): State<Arc<Node>>) -> Response {
    let reasons = node.not_ready();
    if reasons.is_empty() {
        // It serves, and an operator should look.
        let degraded = node.catalog().stuck().into_iter().map(|(table, stuck)| {
            format!("degraded: table \"{table}\" is not delivered since {}: {}\n", stuck.since(), stuck.reason)
        });
        return std::iter::once("ready\n".to_owned()).chain(degraded).collect::<String>().into_response();
    }
    not_ready(&reasons)
}

/// Answers for a node that is being opened anew, until `stop`: the process lives, and is not ready.
pub(crate) async fn serve_not_ready(listener: TcpListener, reasons: Arc<Mutex<Vec<String>>>, stop: CancellationToken) {
    let answer = move || {
        let reasons = reasons.lock().clone();
        async move { not_ready(&reasons) }
    };
    let routes = Router::new().route("/livez", get(|| async { "ok\n" })).fallback(answer);
    let served = axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned());
    if let Err(error) = served.await {
        tracing::error!(%error, "HTTP ended");
    }
}

/// `503`, one reason a line.
pub(crate) fn not_ready(reasons: &[String]) -> Response {
    let lines: String = reasons.iter().map(|reason| format!("not ready: {}\n", reason.replace('\n', " "))).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let content = [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    (content, node.metrics_text()).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    sql: String,
}

async fn sql(State(node): State<Arc<Node>>, body: Bytes) -> Response {
    match run(node, &body).await {
        Ok(results) => Json(json!({ "results": results })).into_response(),
        Err(error) => {
            let status = match error.state() {
                state::INTERNAL | state::IO_ERROR | state::DATA_CORRUPTED => StatusCode::INTERNAL_SERVER_ERROR,
                state::CANNOT_CONNECT_NOW | state::ADMIN_SHUTDOWN | state::OUT_OF_MEMORY | state::DISK_FULL => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
                state::UNDEFINED_TABLE => StatusCode::NOT_FOUND,
                state::SERIALIZATION_FAILURE => StatusCode::CONFLICT,
                _ => StatusCode::BAD_REQUEST,
            };
            let body = json!({ "error": { "code": error.state(), "message": error.message(), "detail": error.detail(), "hint": error.hint() } });
            (status, Json(body)).into_response()
        }
    }
}

async fn run(node: Arc<Node>, body: &[u8]) -> Result<Vec<Value>> {
    let request: Request = serde_json::from_slice(body).map_err(|error| {
        SqlError::new(state::INVALID_PARAMETER_VALUE, format!("request body: {error}"))
            .with_hint("send {\"sql\": \"SELECT 1\"}")
    })?;
    let session = Session::new(node);
    let mut results = Vec::new();
    for parsed in crate::statement::parse(&request.sql)? {
        session.begin_statement();
        match session.run_one(parsed).await? {
            Answer::Rows(rows) => results.push(session.interrupt().run(collect(rows)).await?),
            Answer::Done(tag) => results.push(json!({ "command": tag.text() })),
            Answer::CopyFrom(copy) => {
                copy.abort().await;
                return Err(no_copy());
            }
            Answer::CopyTo(_) => return Err(no_copy()),
        }
    }
    Ok(results)
}

fn no_copy() -> SqlError {
    SqlError::unsupported("COPY over HTTP", "use the Postgres protocol, `tarn load` or `tarn sql`")
}

async fn collect(mut rows: Rows) -> Result<Value> {
    let fields = fields(&rows.schema, &Format::UnifiedText)?;
    let columns: Vec<Value> = fields.iter().map(|f| json!({ "name": f.name(), "type": f.datatype().name() })).collect();
    let is_json: Vec<bool> = rows.schema.fields().iter().map(|field| is_json_number(field.data_type())).collect();
    let mut out = Vec::new();
    let mut cell = BytesMut::new();
    while let Some(batch) = rows.batches.next().await.transpose()? {
        if out.len() + batch.num_rows() > MAX_ROWS {
            return Err(SqlError::new(state::PROGRAM_LIMIT, format!("the result has more than {MAX_ROWS} rows"))
                .with_hint("add LIMIT, or use COPY (query) TO STDOUT over the Postgres protocol"));
        }
        let writer = RowWriter::new(&batch, &fields)?;
        for row in 0..writer.n_rows() {
            let mut values = Vec::with_capacity(fields.len());
            for (column, is_json) in is_json.iter().enumerate() {
                cell.clear();
                values.push(match writer.text(row, column, &mut cell)? {
                    false => Value::Null,
                    true => json_value(&cell, *is_json),
                });
            }
            out.push(Value::Array(values));
        }
    }
    let command = format!("{} {}", rows.command, out.len());
    Ok(json!({ "columns": columns, "rows": out, "command": command }))
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
