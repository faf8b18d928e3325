//! How does text run? Statement by statement, command by command; the first error ends it, unless `\set ON_ERROR_STOP
//! off` says otherwise.

use std::io::{BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tarn_console::command::{self, Command};
use tarn_console::complete::remedy_within;
use tarn_console::layout::ExpandedMode;
use tarn_console::script::{Script, ScriptItem};
use tarn_console::transfer::{Direction, direction};
use tokio::signal::unix::{SignalKind, signal};

use super::commands;
use super::session::{Session, SessionReplaced, StatementFailure};
use crate::cli::Interrupted;

/// How deep scripts may run scripts: one that runs itself ends there.
const MAX_DEPTH: usize = 16;

/// A script that is larger is data, not statements.
const MAX_SCRIPT_BYTES: u64 = 64 << 20;

/// Seconds between two runs of `\watch`, unless it says otherwise.
const WATCH_SECONDS: f64 = 2.0;

/// Where text comes from.
#[derive(Clone)]
pub enum Origin {
    /// The prompt
    Typed,
    /// `-c`
    Argument,
    /// A file, or `stdin`; rows of `COPY … FROM STDIN` are the lines that follow
    Script(PathBuf),
}

/// What comes after the text.
#[derive(Debug, PartialEq, Eq)]
pub enum ScriptOutcome {
    /// The next text
    More,
    /// The user asked to leave
    Leave,
    /// The prompt, with this text to go on with
    Edit(String),
}

/// Whether an error ended it, or was passed by. What went wrong was told.
#[derive(Debug, Clone, Copy)]
pub struct ScriptError {
    /// The user pressed Ctrl-C twice
    pub is_interrupted: bool,
    /// The reader of our answers is gone: no error
    pub is_closed_pipe: bool,
}

/// Reads a script; `-` is stdin.
pub fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = || format!("read {}", path.display());
    let bounded = |reader: &mut dyn Read, text: &mut String| reader.take(MAX_SCRIPT_BYTES + 1).read_to_string(text);
    if path.as_os_str() == "-" {
        bounded(&mut std::io::stdin().lock(), &mut text).context("read stdin")?;
    } else {
        bounded(&mut std::fs::File::open(path).with_context(read)?, &mut text).with_context(read)?;
    }
    ensure!(
        text.len() as u64 <= MAX_SCRIPT_BYTES,
        "{} is larger than a script may be ({MAX_SCRIPT_BYTES} bytes): \\copy and `tarn load` take data of any size",
        path.display()
    );
    // What editors of other systems put before the text.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Runs all of `text`. Whatever went wrong was told on stderr when it returns.
pub fn run(session: &mut Session, text: &str, origin: &Origin) -> Result<ScriptOutcome, ScriptError> {
    run_at(session, text, origin, 0)
}

fn run_at(session: &mut Session, text: &str, origin: &Origin, depth: usize) -> Result<ScriptOutcome, ScriptError> {
    let mut script = Script::new(text);
    let mut passed_by = None;
    while let Some(step) = script.next() {
        let line = step.line;
        let asked = match step.kind {
            ScriptItem::Statement(sql) | ScriptItem::Unended(sql) => format!("{sql};"),
            ScriptItem::Command { line, .. } => line.to_owned(),
        };
        let outcome = match step.kind {
            ScriptItem::Statement(sql) | ScriptItem::Unended(sql) => statement(session, sql, origin, &mut script),
            ScriptItem::Command { line, within } => {
                match backslash(session, line, within, origin, &mut script, depth) {
                    Ok(ScriptOutcome::More) => Ok(()),
                    Ok(next) => return Ok(next),
                    Err(failure) => Err(failure),
                }
            }
        };
        let Err(failure) = outcome else { continue };
        // A script within told it already.
        let failed = match failure.error.downcast_ref::<ReportedError>() {
            Some(ReportedError(failed)) => *failed,
            None => tell(&failure, origin, line),
        };
        if failure.error.is::<SessionReplaced>() && matches!(origin, Origin::Typed) {
            // It stands at the prompt again, to be run by Enter.
            return Ok(ScriptOutcome::Edit(format!("{asked}{}", script.rest().trim_end())));
        }
        let is_over = failed.is_interrupted || failed.is_closed_pipe || lost(session);
        if is_over || !matches!(origin, Origin::Script(_)) || session.settings.stops_at_errors() {
            return Err(failed);
        }
        passed_by = Some(failed);
    }
    passed_by.map_or(Ok(ScriptOutcome::More), Err)
}

/// The connection is gone and nobody makes it anew.
fn lost(session: &Session) -> bool {
    session.connection.client.is_closed() && !session.is_interactive
}

fn tell(failure: &StatementFailure, origin: &Origin, line: usize) -> ScriptError {
    let is_interrupted = failure.error.is::<Interrupted>();
    let is_closed_pipe = crate::cli::is_closed_pipe(&failure.error);
    if !is_interrupted && !is_closed_pipe {
        let name = match origin {
            Origin::Script(path) if path.as_os_str() == "-" => Some("stdin".to_owned()),
            Origin::Script(path) => Some(path.display().to_string()),
            Origin::Typed | Origin::Argument => None,
        };
        eprintln!("{}", failure.show(name.as_deref().map(|name| (name, line))));
    }
    ScriptError { is_interrupted, is_closed_pipe }
}

/// An error of a script within, which was told where it was.
#[derive(Debug, thiserror::Error)]
#[error("a script failed")]
struct ReportedError(ScriptError);

fn statement(
    session: &mut Session,
    sql: &str,
    origin: &Origin,
    script: &mut Script<'_>,
) -> Result<(), StatementFailure> {
    if direction(&session.settings.variables.substitute(sql)) != Some(Direction::In) {
        return session.statement(sql, None);
    }
    let data = rows(origin, script)?;
    session.statement(sql, data.as_deref())
}

/// The rows that a `COPY … FROM STDIN` reads: none are those of stdin itself.
fn rows(origin: &Origin, script: &mut Script<'_>) -> Result<Option<String>> {
    match origin {
        Origin::Script(_) => Ok(Some(script.data().to_owned())),
        Origin::Argument => Ok(None),
        Origin::Typed => {
            eprintln!("rows, a line each; a line of \\. ends them");
            typed_rows().map(Some)
        }
    }
}

/// Lines of the terminal up to `\.`, or its end.
fn typed_rows() -> Result<String> {
    let mut rows = String::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.context("read rows")?;
        if line.trim_end() == "\\." {
            break;
        }
        rows.push_str(&line);
        rows.push('\n');
    }
    Ok(rows)
}

fn backslash(
    session: &mut Session,
    line: &str,
    within: &str,
    origin: &Origin,
    script: &mut Script<'_>,
    depth: usize,
) -> Result<ScriptOutcome, StatementFailure> {
    let command = command::parse(line, &session.settings.variables).map_err(anyhow::Error::from)?;
    if let Some(remedy) = remedy_within(command.name, within) {
        if matches!(origin, Origin::Typed) {
            eprintln!("{remedy}");
            return Ok(ScriptOutcome::Edit(within.to_owned()));
        }
        return Err(anyhow::anyhow!(remedy).into());
    }
    let text = if within.is_empty() { session.last.clone() } else { within.to_owned() };
    match command.name {
        "q" => Ok(ScriptOutcome::Leave),
        "r" => Ok(ScriptOutcome::More),
        "g" | "gx" => {
            no_words(&command)?;
            again(&text)?;
            let expanded = session.settings.expanded;
            if command.name == "gx" {
                session.settings.expanded = ExpandedMode::On;
            }
            let outcome = statement(session, &text, origin, script);
            session.settings.expanded = expanded;
            outcome.map(|()| ScriptOutcome::More)
        }
        "watch" => watch(session, &text, &command).map(|()| ScriptOutcome::More),
        "e" => edit(session, &text, &command, origin).map_err(StatementFailure::from),
        "p" if !within.is_empty() => {
            eprintln!("{within}");
            Ok(ScriptOutcome::Edit(within.to_owned()))
        }
        "i" | "ir" => {
            let path = script_path(&command, origin)?;
            if depth == MAX_DEPTH {
                return Err(anyhow::anyhow!(
                    "scripts within scripts are {MAX_DEPTH} deep: {} is not run",
                    path.display()
                )
                .into());
            }
            let text = read(&path)?;
            // What a script says of leaving is said of the script.
            match run_at(session, &text, &Origin::Script(path), depth + 1) {
                Ok(ScriptOutcome::Edit(_) | ScriptOutcome::More | ScriptOutcome::Leave) => Ok(ScriptOutcome::More),
                Err(failed) => Err(anyhow::Error::from(ReportedError(failed)).into()),
            }
        }
        _ => {
            let mut data = Ok(None);
            let asked = || match rows(origin, script) {
                Ok(rows) => rows,
                Err(error) => {
                    data = Err(error);
                    Some(String::new())
                }
            };
            let outcome = commands::run(session, &command, asked);
            outcome.and(data.map(|_: Option<()>| ScriptOutcome::More)).map_err(StatementFailure::from)
        }
    }
}

fn no_words(command: &Command<'_>) -> Result<()> {
    ensure!(command.rest.is_empty(), "\\{} takes no words: \\o FILE sends answers to a file", command.name);
    Ok(())
}

fn again(text: &str) -> Result<()> {
    ensure!(!text.is_empty(), "there is no statement yet");
    Ok(())
}

fn script_path(command: &Command<'_>, origin: &Origin) -> Result<PathBuf> {
    let [name] = command.words.as_slice() else { bail!("\\{} wants one file", command.name) };
    let beside = match origin {
        Origin::Script(path) if command.name == "ir" => path.parent(),
        _ => None,
    };
    Ok(beside.map_or_else(|| PathBuf::from(name), |folder| folder.join(name)))
}

/// Runs a statement again and again, until Ctrl-C or an error.
fn watch(session: &mut Session, text: &str, command: &Command<'_>) -> Result<(), StatementFailure> {
    again(text)?;
    let seconds = match command.words.as_slice() {
        [] => WATCH_SECONDS,
        [seconds] => seconds
            .parse()
            .ok()
            .filter(|seconds| (0.1..=86_400.0).contains(seconds))
            .with_context(|| format!("\\watch wants seconds, from 0.1 to 86400: {seconds:?}"))?,
        _ => return Err(anyhow::anyhow!("\\watch takes a number of seconds").into()),
    };
    let has_pager = std::mem::replace(&mut session.settings.has_pager, false);
    let outcome = repeat(session, text, seconds);
    session.settings.has_pager = has_pager;
    outcome
}

fn repeat(session: &mut Session, text: &str, seconds: f64) -> Result<(), StatementFailure> {
    // It listens from the first statement on: a Ctrl-C that is typed while rows are printed counts, too.
    let mut interrupt = session.runtime.block_on(async { signal(SignalKind::interrupt()) }).context("hear Ctrl-C")?;
    loop {
        if session.is_interactive {
            let time = session.rows("SELECT date_trunc('second', now())::text")?.into_iter().flatten().flatten().next();
            eprintln!("{} (every {seconds} s, Ctrl-C ends)", time.unwrap_or_default());
        }
        session.statement(text, None)?;
        let is_over = session.runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs_f64(seconds)) => false,
                _ = interrupt.recv() => true,
            }
        });
        if is_over {
            return Ok(());
        }
    }
}

fn edit(session: &mut Session, text: &str, command: &Command<'_>, origin: &Origin) -> Result<ScriptOutcome> {
    ensure!(
        matches!(origin, Origin::Typed) && std::io::stdin().is_terminal(),
        "\\e is for a prompt: a script has no editor"
    );
    let edited = match command.words.as_slice() {
        [] => super::edit::edit(text)?,
        [path] => super::edit::edit_file(path)?,
        _ => bail!("\\e takes one file"),
    };
    session.last = edited.trim_end().trim_end_matches(';').to_owned();
    Ok(ScriptOutcome::Edit(edited.trim_end().to_owned()))
}
