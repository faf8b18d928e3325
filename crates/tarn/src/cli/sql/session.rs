//! What does one session keep? Its connection, what was set, where answers go, whether a transaction is open, and what
//! went wrong.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tarn_console::caret::{self, ErrorLocation};
use tarn_console::script::first_words;
use tarn_console::transaction::Transaction;
use tarn_console::transfer::{Direction, direction};
use tokio::runtime::Runtime;
use tokio_postgres::error::ErrorPosition;

use super::answer;
use super::known::CatalogCache;
use super::out::AnswerOutput;
use super::settings::{ConsoleSettings, Format};
use super::transfer::{self, Source};
use crate::cli::Interrupted;
use crate::cli::client::{Connection, Target, describe, describe_at};
use crate::cli::output::WRAPPED;

/// How long a prompt waits for a server that is restarted.
const PATIENCE: Duration = Duration::from_secs(10);

/// One session of the console.
pub struct Session {
    /// How a lost connection is made anew.
    pub target: Target,
    /// On which statements run.
    pub connection: Connection,
    /// The connection's.
    pub runtime: Runtime,
    /// How answers are shown.
    pub settings: ConsoleSettings,
    /// Where answers go.
    pub out: AnswerOutput,
    /// What completion goes by; it is fetched beside the session
    pub known: CatalogCache,
    /// The last statement that was run
    pub last: String,
    /// As far as the statements that were run tell.
    pub transaction: Transaction,
    /// Whether a person types: a lost connection is made anew
    pub is_interactive: bool,
}

/// The session is another one than that for which a statement was typed.
#[derive(Debug, thiserror::Error)]
#[error("this was not run; run it again if it is meant for the new session")]
pub struct SessionReplaced;

/// Why a statement did not work, and where.
pub struct StatementFailure {
    /// What is said of it.
    pub error: anyhow::Error,
    place: Option<ErrorLocation>,
}

impl From<anyhow::Error> for StatementFailure {
    fn from(error: anyhow::Error) -> StatementFailure {
        StatementFailure { error, place: None }
    }
}

impl StatementFailure {
    /// For stderr. `origin` is the file and the line in which the statement begins.
    pub fn show(&self, origin: Option<(&str, usize)>) -> String {
        let first_line = origin.map_or(1, |(_, line)| line);
        let place = self.place.as_ref().map(|place| place.show(first_line));
        let text = describe_at(&self.error, place.as_deref());
        match origin {
            Some((file, line)) => {
                let line = self.place.as_ref().map_or(line, |place| line + place.line - 1);
                format!("{file}:{line}: {text}")
            }
            None => text,
        }
    }
}

impl Session {
    /// Runs one statement and writes its answer. `data` are the rows that follow a `COPY … FROM STDIN` in a script;
    /// without them they come from stdin.
    pub fn statement(&mut self, sql: &str, data: Option<&str>) -> Result<(), StatementFailure> {
        let sql = self.settings.variables.substitute(sql).into_owned();
        self.last.clone_from(&sql);
        self.reconnect_before_change()?;
        let started = Instant::now();
        let outcome = match direction(&sql) {
            None => self.ask(&sql),
            Some(Direction::In) => {
                let source = data.map_or_else(Source::stdin, Source::text);
                self.send(&sql, source)
            }
            Some(Direction::Out) => self.receive(&sql, None),
        };
        if self.settings.has_timing {
            eprintln!("Time: {:.3} ms", started.elapsed().as_secs_f64() * 1e3);
        }
        // What was laid out before an error is shown, and the pager left.
        let finished = self.out.finish();
        self.follow(&sql, outcome.is_ok());
        outcome.and(finished).map_err(|error| self.failure(error, &sql))
    }

    /// Shows the answer to a question of our own: no Parquet, no time, and it is not the last statement.
    pub fn show(&mut self, sql: &str) -> Result<()> {
        self.reconnect()?;
        let format = self.settings.format;
        if format == Format::Parquet {
            self.settings.format = Format::Table;
        }
        let outcome = self.ask(sql);
        self.settings.format = format;
        let finished = self.out.finish();
        self.follow(sql, outcome.is_ok());
        outcome.and(finished)
    }

    /// Sends rows to the server. At a prompt Ctrl-C ends this alone, not the session.
    pub fn send(&mut self, sql: &str, source: Source<'_>) -> Result<()> {
        let rows = match self.runtime.block_on(transfer::send(&self.connection, sql, source)) {
            Err(error) if self.is_interactive && error.is::<Interrupted>() => {
                bail!("cancelled: a large COPY commits in batches, and those that were committed stay")
            }
            sent => sent?,
        };
        if self.out.is_terminal() {
            say!("COPY {rows}")?;
        } else {
            eprintln!("COPY {rows}");
        }
        Ok(())
    }

    /// Writes rows of the server where answers go, or into a file.
    pub fn receive(&mut self, sql: &str, file: Option<&str>) -> Result<()> {
        let work = transfer::receive(&self.connection, sql, file, &mut self.out);
        self.runtime.block_on(self.connection.cancellable(work))
    }

    /// The text of a few rows, for our own questions.
    pub fn rows(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        self.runtime.block_on(self.connection.rows(sql))
    }

    /// As [`Session::reconnect`]; what was to be run is not: it was typed for a session that is gone.
    pub fn reconnect_before_change(&mut self) -> Result<()> {
        if self.reconnect()? { Err(SessionReplaced.into()) } else { Ok(()) }
    }

    /// Connects again if the connection is lost and a person waits for it. True: it is another session.
    pub fn reconnect(&mut self) -> Result<bool> {
        if !self.connection.client.is_closed() || !self.is_interactive {
            return Ok(false);
        }
        eprintln!("the connection was lost; connecting again …");
        let deadline = Instant::now() + PATIENCE;
        let target = self.target.clone();
        let connected = self.runtime.block_on(async {
            loop {
                match target.connect().await {
                    Err(_) if Instant::now() < deadline => tokio::select! {
                        () = tokio::time::sleep(Duration::from_millis(250)) => {}
                        _ = tokio::signal::ctrl_c() => return Err(anyhow::anyhow!("not connected")),
                    },
                    connected => return connected,
                }
            }
        });
        self.connection = connected.context("not connected, the next statement tries again")?;
        let lost = if self.transaction == Transaction::None { "" } else { ", and the open transaction is rolled back" };
        self.transaction = Transaction::None;
        eprintln!("connected again: what SET had set is as at the beginning{lost}");
        Ok(true)
    }

    /// Ends the session with one server and begins one with another.
    pub fn connect(&mut self, target: Target) -> Result<()> {
        self.connection = self.runtime.block_on(target.connect())?;
        self.target = target;
        self.transaction = Transaction::None;
        self.known.forget();
        Ok(())
    }

    /// Tells a person what went wrong.
    pub fn complain(&self, error: &anyhow::Error) {
        eprintln!("{}", describe(error));
    }

    fn ask(&mut self, sql: &str) -> Result<()> {
        let ends_early = self.transaction == Transaction::None;
        let work = answer::run(&self.connection, sql, &self.settings, &mut self.out, ends_early);
        self.runtime.block_on(self.connection.cancellable(work))
    }

    /// Where in what was typed the error is: the server counts in what was sent.
    fn failure(&self, error: anyhow::Error, sql: &str) -> StatementFailure {
        let server = error.chain().find_map(|cause| cause.downcast_ref::<tokio_postgres::Error>()?.as_db_error());
        let position = match server.and_then(|server| server.position()) {
            Some(ErrorPosition::Original(position)) => Some(*position as usize),
            _ => None,
        };
        let before = if answer::is_wrapped(self.settings.format, sql) { WRAPPED.len() } else { 0 };
        let place = position.and_then(|position| caret::place(sql, position.checked_sub(before)?));
        StatementFailure { error, place }
    }

    /// What a statement means for those that follow.
    fn follow(&mut self, sql: &str, is_done: bool) {
        let is_lost = self.connection.client.is_closed();
        self.transaction = if is_lost { Transaction::None } else { self.transaction.after(sql, is_done) };
        let verb = first_words(sql, 1);
        if matches!(verb.as_str(), "CREATE" | "DROP" | "ALTER" | "ATTACH" | "DETACH" | "COMMIT" | "END") && is_done {
            self.known.is_outdated();
        }
    }
}
