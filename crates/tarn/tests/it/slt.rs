//! The SQL surface as scripts: every `tests/slt/*.slt` on a server of its own.

use std::path::Path;

use async_trait::async_trait;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::harness::Server;

struct Database(Client);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct SltFailure(String);

#[async_trait]
impl AsyncDB for Database {
    type Error = SltFailure;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, SltFailure> {
        let messages = self.0.simple_query(sql).await.map_err(|error| {
            let text = error.as_db_error().map(|db| {
                let parts = [Some(db.message()), db.detail(), db.hint()];
                format!("{}: {}", db.code().code(), parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
            });
            SltFailure(text.unwrap_or_else(|| error.to_string()))
        })?;
        let (mut rows, mut n_columns, mut affected) = (Vec::new(), None, 0);
        for message in messages {
            match message {
                SimpleQueryMessage::RowDescription(columns) => n_columns = Some(columns.len()),
                SimpleQueryMessage::Row(row) => rows.push((0..row.len()).map(|idx| shown(row.get(idx))).collect()),
                SimpleQueryMessage::CommandComplete(n) => affected = n,
                _ => {}
            }
        }
        Ok(match n_columns {
            Some(n) => DBOutput::Rows { types: vec![DefaultColumnType::Any; n], rows },
            None => DBOutput::StatementComplete(affected),
        })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "tarn"
    }
}

fn shown(cell: Option<&str>) -> String {
    match cell {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) => text.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut scripts: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "slt"))
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty());
    let mut failures = Vec::new();
    for script in scripts {
        let server = Server::start().await;
        let client_of = || async { Ok(Database(server.client().await)) };
        let mut runner = Runner::new(client_of);
        if let Err(error) = runner.run_file_async(&script).await {
            failures.push(format!("{}: {error}", script.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
