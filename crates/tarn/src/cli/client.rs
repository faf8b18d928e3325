//! How does the command line reach a server? As any Postgres client does, over the wire.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{ArgAction, Args, ValueEnum};
use futures::StreamExt;
use tarn_console::address::{self, Address};
use tokio_postgres::{AsyncMessage, CancelToken, Client};

use super::Interrupted;
use super::prompt::ask_password;
use super::tls::{Connector, SslMode};

/// Where the server is. `-h` is its host, as for psql, so that help is `--help` alone.
#[derive(Args, Clone)]
#[command(disable_help_flag = true)]
pub struct Target {
    /// Host of the server
    #[arg(long, short = 'h', short_alias = 'H', env = "TARN_HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// Port of the Postgres wire protocol
    #[arg(long, short, env = "TARN_PORT", default_value_t = 5433)]
    pub port: u16,
    /// User of the server; TARN_PASSWORD or PGPASSWORD is the password, else it is asked for
    #[arg(long, short = 'U', env = "TARN_USER", default_value = "tarn")]
    pub user: String,
    /// Whether the connection is encrypted
    #[arg(long, env = "TARN_SSLMODE", value_enum, default_value_t = SslMode::Prefer)]
    pub sslmode: SslMode,
    /// PEM file of the certificates from which the server's must come
    #[arg(long, env = "TARN_SSLROOTCERT", value_name = "FILE")]
    pub sslrootcert: Option<PathBuf>,
    /// Print help
    #[arg(long, short = '?', action = ArgAction::Help)]
    help: Option<bool>,
    /// What the database is called; a server has one, whatever it is called
    #[arg(skip = "tarn")]
    pub database: String,
    /// The password that an address had in it
    #[arg(skip)]
    pub password: Option<String>,
}

impl Target {
    /// A server of this machine, without users and encryption.
    pub fn local(port: u16) -> Target {
        Target {
            host: "127.0.0.1".into(),
            port,
            user: "tarn".into(),
            sslmode: SslMode::Disable,
            sslrootcert: None,
            help: None,
            database: "tarn".into(),
            password: None,
        }
    }

    /// What the address says wins over the flags, as in psql.
    pub fn take(&mut self, address: &str) -> Result<()> {
        let Address { host, port, user, password, database, sslmode, sslrootcert } = address::parse(address)?;
        self.host = host.unwrap_or_else(|| std::mem::take(&mut self.host));
        self.port = port.unwrap_or(self.port);
        self.user = user.unwrap_or_else(|| std::mem::take(&mut self.user));
        self.database = database.unwrap_or_else(|| std::mem::take(&mut self.database));
        self.password = password.or_else(|| self.password.take());
        self.sslrootcert = sslrootcert.map(PathBuf::from).or_else(|| self.sslrootcert.take());
        if let Some(mode) = sslmode {
            self.sslmode =
                SslMode::from_str(&mode, false).map_err(|error| anyhow!("sslmode of the address: {error}"))?;
        }
        Ok(())
    }

    /// Connects. Notices of the server go to stderr for as long as the connection lives.
    pub async fn connect(&self) -> Result<Connection> {
        let mut config = tokio_postgres::Config::new();
        config.host(&self.host).port(self.port).user(&self.user).dbname(&self.database).application_name("tarn");
        config.connect_timeout(Duration::from_secs(10)).ssl_mode(self.sslmode.wanted());
        if let Some(password) = self.password.clone().or_else(password) {
            config.password(password);
        }
        let tls = Connector::new(self.sslmode, self.sslrootcert.as_deref())?;
        let connected = match config.connect(tls.clone()).await {
            Err(error) if is_password_missing(&error) && std::io::stdin().is_terminal() => {
                let asked = ASKED.get_or_init(|| ask_password(&format!("Password for {}: ", self.user)).ok());
                config.password(asked.as_deref().unwrap_or_default()).connect(tls.clone()).await
            }
            connected => connected,
        };
        let place = || NotConnected { host: self.host.clone(), port: self.port, user: self.user.clone() };
        let (client, mut connection) = connected.with_context(place)?;
        let driver = tokio::spawn(async move {
            let mut messages = futures::stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notice(notice) = message {
                    eprintln!("{}: {}", notice.severity(), notice.message());
                }
            }
        });
        Ok(Connection { cancel: client.cancel_token(), client, tls, driver })
    }
}

/// There is no session with the server.
#[derive(Debug, thiserror::Error)]
#[error("connect to {host}:{port} as {user} (is `tarn serve` running there?)")]
pub struct NotConnected {
    host: String,
    port: u16,
    user: String,
}

/// What was typed: several connections of one command ask once.
static ASKED: OnceLock<Option<String>> = OnceLock::new();

fn password() -> Option<String> {
    let given = ["TARN_PASSWORD", "PGPASSWORD"].into_iter().find_map(|name| std::env::var(name).ok());
    given.or_else(|| ASKED.get().cloned().flatten())
}

/// The driver has no kind for it.
fn is_password_missing(error: &tokio_postgres::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.to_string().contains("password missing") {
            return true;
        }
        source = cause.source();
    }
    false
}

/// One session. Dropping it closes the session on the server.
pub struct Connection {
    /// The driver, for whatever this file has no function for.
    pub client: Client,
    cancel: CancelToken,
    tls: Connector,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Waits for `work`; on Ctrl-C asks the server to cancel it, and waits for the server's word on that. A second
    /// Ctrl-C waits no longer: [`Interrupted`].
    pub async fn cancellable<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::pin!(work);
        tokio::select! {
            done = &mut work => return done,
            _ = tokio::signal::ctrl_c() => {}
        }
        eprintln!("cancelling on the server … (Ctrl-C again leaves)");
        let cancelled = async {
            self.cancel().await?;
            work.await
        };
        tokio::select! {
            done = cancelled => done,
            _ = tokio::signal::ctrl_c() => Err(Interrupted.into()),
        }
    }

    /// Whether nobody between can read it.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_used()
    }

    /// Asks the server to cancel what runs. It may be over before the server hears of it.
    pub async fn cancel(&self) -> Result<()> {
        self.cancel.cancel_query(self.tls.clone()).await.context("send the cancel request")
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
    describe_at(error, None)
}

/// As [`describe`], with the lines that show where in the statement it is.
pub fn describe_at(error: &anyhow::Error, place: Option<&str>) -> String {
    let server = error.chain().find_map(|cause| cause.downcast_ref::<tokio_postgres::Error>()?.as_db_error());
    let Some(server) = server else { return format!("error: {error:#}") };
    let mut text = String::new();
    // Of the error itself: what it was wrapped in is told first.
    if error.chain().next().is_none_or(|first| !first.is::<tokio_postgres::Error>()) {
        let _ = writeln!(text, "error: {error}");
    }
    let _ = write!(text, "{} {}: {}", server.severity(), server.code().code(), server.message());
    if let Some(place) = place {
        let _ = write!(text, "\n{place}");
    }
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
