//! `tarn sql`: ask a server. A prompt with history on a terminal, otherwise statements from `-c`, `-f` or stdin.

use std::borrow::Cow;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use tokio::runtime::Runtime;

use super::Interrupted;
use super::client::{Connection, Target, describe, runtime};
use super::output::{self, Format};
use super::split::{is_blank, statements};

/// Ask a server: a prompt, or statements from -c, -f or stdin
#[derive(Args)]
#[command(after_help = "\
Examples:
  tarn sql                                                   a prompt; \\? lists its commands
  tarn sql -c 'SELECT count(*) FROM trips'                   one statement
  tarn sql -c 'SELECT * FROM trips' --output parquet > t.parquet
  tarn sql -f report.sql --output csv                        a script; stops at the first error
  tarn sql -c 'EXPLAIN SELECT * FROM trips'                  which access path, and why

Ctrl-C cancels the running statement on the server; it does not end the session.")]
pub struct Sql {
    #[command(flatten)]
    target: Target,
    /// Run these statements and exit (may be given several times)
    #[arg(long, short, value_name = "SQL")]
    command: Vec<String>,
    /// Run the statements of this file and exit; - is stdin
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How results look on stdout
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,
    /// Print how long each statement took, on stderr
    #[arg(long)]
    timing: bool,
}

impl Sql {
    pub fn run(self) -> Result<()> {
        let runtime = runtime()?;
        let connection = runtime.block_on(self.target.connect())?;
        let mut session =
            Session { target: self.target.clone(), connection, runtime, output: self.output, timing: self.timing };
        let script = self.script()?;
        match script {
            Some(script) => session.script(&script),
            None => session.prompt(),
        }
    }

    /// The statements to run without a prompt, if any.
    fn script(&self) -> Result<Option<String>> {
        let mut script = self.command.join(";\n");
        match &self.file {
            Some(path) if path.as_os_str() != "-" => {
                let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
                script = format!("{script};\n{text}");
            }
            None if !self.command.is_empty() || std::io::stdin().is_terminal() => {}
            _ => {
                std::io::stdin().read_to_string(&mut script).context("read stdin")?;
            }
        }
        let interactive = self.command.is_empty() && self.file.is_none() && std::io::stdin().is_terminal();
        Ok((!interactive).then_some(script))
    }
}

struct Session {
    target: Target,
    connection: Connection,
    runtime: Runtime,
    output: Format,
    timing: bool,
}

impl Session {
    /// Runs every statement of `text`; the first error ends it.
    fn script(&mut self, text: &str) -> Result<()> {
        let (complete, rest) = statements(text);
        for statement in complete.into_iter().chain((!is_blank(rest)).then_some(rest)) {
            self.piece(statement)?;
        }
        Ok(())
    }

    /// A statement of a script, which may be preceded by lines with backslash commands.
    fn piece(&mut self, text: &str) -> Result<()> {
        let mut rest = text.trim();
        while rest.starts_with('\\') {
            let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
            if !self.backslash(line)? {
                return Ok(());
            }
            rest = after.trim();
        }
        if is_blank(rest) { Ok(()) } else { self.statement(rest) }
    }

    fn statement(&mut self, sql: &str) -> Result<()> {
        let started = Instant::now();
        let outcome =
            self.runtime.block_on(self.connection.cancellable(output::run(&self.connection, sql, self.output)));
        if self.timing {
            eprintln!("Time: {:.3} ms", started.elapsed().as_secs_f64() * 1e3);
        }
        outcome.map(drop)
    }

    /// Reads statements from the terminal until \q or Ctrl-D.
    fn prompt(&mut self) -> Result<()> {
        let mut editor = rustyline::Editor::<(), FileHistory>::new().context("open the terminal")?;
        let history = history_path();
        if let Some(path) = &history {
            // A first run has no history yet.
            let _ = editor.load_history(path);
        }
        let version = self.runtime.block_on(self.connection.value("SELECT version()")).unwrap_or_default();
        eprintln!(
            "tarn {} on {}:{} {version}\n\\? for help, \\q to leave",
            env!("CARGO_PKG_VERSION"),
            self.target.host,
            self.target.port
        );
        let mut waiting = String::new();
        loop {
            match editor.readline(if waiting.is_empty() { "tarn=> " } else { "tarn-> " }) {
                Ok(line) => {
                    if !line.trim().is_empty() {
                        // What has a password in it is not kept.
                        if !line.to_lowercase().contains("password") {
                            let _ = editor.add_history_entry(&line);
                        }
                    }
                    if !self.line(&line, &mut waiting) {
                        break;
                    }
                }
                Err(ReadlineError::Interrupted) => waiting.clear(),
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(error).context("read the terminal"),
            }
        }
        if let Some(path) = &history {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).ok();
            }
            editor.save_history(path).with_context(|| format!("save {}", path.display()))?;
        }
        Ok(())
    }

    /// Takes one line of the prompt. Errors are told and the session goes on. Returns false when the user leaves.
    fn line(&mut self, line: &str, waiting: &mut String) -> bool {
        let outcome = if waiting.is_empty() && line.trim_start().starts_with('\\') {
            self.backslash(line.trim())
        } else if waiting.is_empty() && matches!(line.trim(), "quit" | "exit") {
            return false;
        } else {
            waiting.push_str(line);
            waiting.push('\n');
            self.waiting(waiting).map(|()| true)
        };
        let goes_on = outcome.unwrap_or_else(|error| {
            if !error.is::<Interrupted>() {
                eprintln!("{}", describe(&error));
            }
            true
        });
        if self.connection.client.is_closed() {
            self.reconnect();
        }
        goes_on
    }

    /// Runs what is complete in `waiting`, keeps the rest there.
    fn waiting(&mut self, waiting: &mut String) -> Result<()> {
        let text = std::mem::take(waiting);
        let (complete, rest) = statements(&text);
        if !is_blank(rest) {
            *waiting = rest.to_owned();
        }
        complete.into_iter().try_for_each(|statement| self.statement(statement.trim()))
    }

    fn reconnect(&mut self) {
        match self.runtime.block_on(self.target.connect()) {
            Ok(connection) => {
                self.connection = connection;
                eprintln!("the connection was lost; connected again");
            }
            Err(error) => eprintln!("the connection was lost: {}", describe(&error)),
        }
    }

    /// Runs a backslash command. Returns false for \q.
    fn backslash(&mut self, line: &str) -> Result<bool> {
        let mut words = line.trim_end_matches(';').split_whitespace();
        let command = words.next().unwrap_or_default();
        let argument = words.next().unwrap_or_default();
        match command {
            "\\q" => return Ok(false),
            "\\?" | "\\h" => eprintln!("{HELP}"),
            "\\timing" => {
                self.timing = !self.timing;
                eprintln!("timing is {}", if self.timing { "on" } else { "off" });
            }
            "\\o" | "\\output" => match clap::ValueEnum::from_str(argument, true) {
                Ok(format) => self.output = format,
                Err(_) => eprintln!("\\output table|json|csv|parquet"),
            },
            "\\i" => {
                let text = std::fs::read_to_string(argument).with_context(|| format!("read {argument}"))?;
                self.script(&text)?;
            }
            "\\l" => self.show("SELECT datname AS database FROM pg_catalog.pg_database")?,
            "\\dt" | "\\d" if argument.is_empty() => self.show("SELECT * FROM tarn.tables")?,
            "\\d" | "\\dt" => self.describe_table(argument)?,
            "\\df" => self.show(&format!("SELECT * FROM tarn.files WHERE {}", name_filter(argument)))?,
            _ => eprintln!("unknown command {command}; \\? lists them"),
        }
        Ok(true)
    }

    fn show(&mut self, sql: &str) -> Result<()> {
        let format = self.output;
        if format == Format::Parquet {
            self.output = Format::Table;
        }
        let outcome = self.statement(sql);
        self.output = format;
        outcome
    }

    fn describe_table(&mut self, name: &str) -> Result<()> {
        let quoted = name.trim_matches('"').replace('\'', "''");
        let exists = format!("SELECT 1 FROM information_schema.tables WHERE table_name = '{quoted}'");
        if self.runtime.block_on(self.connection.rows(&exists))?.is_empty() {
            eprintln!("there is no table \"{name}\"; \\dt lists the tables");
            return Ok(());
        }
        self.show(&format!(
            "SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_name = '{quoted}' ORDER BY ordinal_position"
        ))?;
        self.show(&format!("SELECT * FROM tarn.tables WHERE {}", name_filter(name)))
    }
}

/// A condition on the name of a table in the system tables.
fn name_filter(name: &str) -> Cow<'static, str> {
    if name.is_empty() {
        return "true".into();
    }
    format!("table_name = '{}'", name.trim_matches('"').replace('\'', "''")).into()
}

fn history_path() -> Option<PathBuf> {
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    Some(data.or_else(home)?.join("tarn/history"))
}

const HELP: &str = "\
  \\dt              tables             \\d NAME      columns, key and options of a table
  \\df [NAME]       lake files         \\l           databases
  \\timing          time on or off     \\output F    table, json, csv or parquet
  \\i FILE          run a script       \\q           leave (Ctrl-D too)
  A statement ends with a semicolon and may span lines. Ctrl-C cancels it on the server.
  EXPLAIN names the access path; SET tarn.access_path = 'rows'|'lake'|'auto' forces one.
  CALL tarn.deliver('NAME') delivers now; tarn.files, tarn.blocks, tarn.tablets, tarn.deliveries, tarn.log_segments,
  tarn.log_blockers show the inside. ATTACH 'URL' AS NAME makes a table of Parquet files that others write, DETACH TABLE NAME
  forgets it; tarn.attachments, tarn.attach_errors show how far it is and what is not in it.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_in_filters() {
        assert_eq!(name_filter("o'x"), "table_name = 'o''x'");
        assert_eq!(name_filter(""), "true");
    }
}
