//! How does the command line reach a server? As any Postgres client does, over the wire.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use futures::StreamExt;
use tokio_postgres::{AsyncMessage, CancelToken, Client, NoTls};

/// Where the server is.
#[derive(Args, Debug, Clone)]
pub struct Target {
    /// Host of the server
    #[arg(long, short = 'H', env = "TARN_HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// Port of the Postgres wire protocol
    #[arg(long, short, env = "TARN_PORT", default_value_t = 5433)]
    pub port: u16,
}

impl Target {
    pub fn local(port: u16) -> Target {
        Target { host: "127.0.0.1".into(), port }
    }

    /// Connects. Notices of the server go to stderr for as long as the connection lives.
    pub async fn connect(&self) -> Result<Connection> {
        let mut config = tokio_postgres::Config::new();
        config.host(&self.host).port(self.port).user("tarn").dbname("tarn").application_name("tarn");
        config.connect_timeout(Duration::from_secs(10));
        let (client, mut connection) = config
            .connect(NoTls)
            .await
            .with_context(|| format!("connect to {}:{} (is `tarn serve` running there?)", self.host, self.port))?;
        let driver = tokio::spawn(async move {
            let mut messages = futures::stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notice(notice) = message {
                    eprintln!("{}: {}", notice.severity(), notice.message());
                }
            }
        });
        Ok(Connection { cancel: client.cancel_token(), client, driver })
    }
}

/// One session. Dropping it closes the session on the server.
pub struct Connection {
    pub client: Client,
    pub cancel: CancelToken,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Waits for `work`; on Ctrl-C asks the server to cancel it, and waits for the server's word on that.
    pub async fn cancellable<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::pin!(work);
        tokio::select! {
            done = &mut work => return done,
            _ = tokio::signal::ctrl_c() => {}
        }
        eprintln!("cancelling on the server …");
        self.cancel.cancel_query(NoTls).await.context("send the cancel request")?;
        work.await
    }

    /// All rows of a small result as text, NULL as `None`.
    pub async fn rows(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        let messages = self.client.simple_query(sql).await?;
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|idx| row.get(idx).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The first column of the first row.
    pub async fn value(&self, sql: &str) -> Result<String> {
        let rows = self.rows(sql).await?;
        rows.into_iter()
            .next()
            .and_then(|row| row.into_iter().next().flatten())
            .with_context(|| format!("no value from: {sql}"))
    }

    /// Runs a statement for its effect; returns the rows that it changed.
    pub async fn execute(&self, sql: &str) -> Result<u64> {
        let messages = self.client.simple_query(sql).await?;
        Ok(messages.iter().fold(0, |sum, message| match message {
            tokio_postgres::SimpleQueryMessage::CommandComplete(rows) => sum + rows,
            _ => sum,
        }))
    }
}

/// An error as a person reads it: a server's error with its SQLSTATE, detail and hint, otherwise the chain of causes.
pub fn describe(error: &anyhow::Error) -> String {
    let server = error.chain().find_map(|cause| cause.downcast_ref::<tokio_postgres::Error>()?.as_db_error());
    let Some(server) = server else { return format!("error: {error:#}") };
    let mut text = String::new();
    if error.downcast_ref::<tokio_postgres::Error>().is_none() {
        let _ = writeln!(text, "error: {error}");
    }
    let _ = write!(text, "{} {}: {}", server.severity(), server.code().code(), server.message());
    for (title, part) in [("DETAIL", server.detail()), ("HINT", server.hint()), ("CONTEXT", server.where_())] {
        if let Some(part) = part {
            let _ = write!(text, "\n{title}: {part}");
        }
    }
    text
}

/// The runtime of a client command.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")
}
