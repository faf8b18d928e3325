//! A server in a temporary folder, and clients to it.

use std::path::Path;

use tarn::server::{RunningServer, start};
use tarn::settings::{NodeSettings, Settings};
use tempfile::TempDir;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

pub struct Server {
    pub running: RunningServer,
    pub dir: TempDir,
}

/// Settings of a small server that does nothing in the background.
pub fn settings(dir: &Path) -> Settings {
    settings_with(dir, |_| {})
}

/// As [`settings`], changed.
pub fn settings_with(dir: &Path, change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings {
        node: NodeSettings {
            data_dir: dir.to_owned(),
            background: false,
            rows_memory_bytes: 16 << 20,
            log_segment_bytes: 4 << 20,
            shutdown_ms: 5_000,
            ..NodeSettings::default()
        },
        ..Settings::default()
    };
    settings.server.pg_listen = ([127, 0, 0, 1], 0).into();
    settings.server.http_listen = Some(([127, 0, 0, 1], 0).into());
    settings.sql.query_memory_bytes = 128 << 20;
    change(&mut settings);
    settings
}

impl Server {
    pub async fn start() -> Server {
        let dir = tempfile::tempdir().unwrap();
        let running = start(settings(dir.path())).await.unwrap();
        Server { running, dir }
    }

    pub async fn start_with(change: impl FnOnce(&mut Settings)) -> Server {
        let dir = tempfile::tempdir().unwrap();
        Server { running: start(settings_with(dir.path(), change)).await.unwrap(), dir }
    }

    pub async fn client(&self) -> Client {
        let config = format!("host=127.0.0.1 port={} user=tester dbname=tarn", self.running.pg.port());
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// As somebody who has a password.
    pub async fn client_as(&self, user: &str, password: &str) -> Result<Client, Error> {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.running.pg.port()).user(user).password(password).dbname("tarn");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Stops and starts on the same folder.
    pub async fn restart(self) -> Server {
        let Server { running, dir } = self;
        running.stop().await.unwrap();
        let running = start(settings(dir.path())).await.unwrap();
        Server { running, dir }
    }
}

/// All rows of the last statement as text; NULL is `∅`.
pub async fn rows(client: &Client, sql: &str) -> Vec<Vec<String>> {
    let messages = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|idx| row.get(idx).unwrap_or("∅").to_owned()).collect())
            }
            _ => None,
        })
        .collect()
}

/// The only cell of a result.
pub async fn cell(client: &Client, sql: &str) -> String {
    let rows = rows(client, sql).await;
    assert_eq!((rows.len(), rows.first().map(Vec::len)), (1, Some(1)), "{sql}: {rows:?}");
    rows[0][0].clone()
}

/// The SQLSTATE and message of a statement that must fail.
pub fn failure<T>(result: Result<T, Error>) -> (String, String) {
    match result {
        Ok(_) => panic!("it did not fail"),
        Err(error) => {
            let db = error.as_db_error().unwrap_or_else(|| panic!("no server error: {error:?}"));
            (
                db.code().code().to_owned(),
                [db.message(), db.detail().unwrap_or(""), db.hint().unwrap_or(""), db.where_().unwrap_or("")]
                    .join(" | "),
            )
        }
    }
}
