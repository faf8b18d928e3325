//! How does a person talk to a server? A prompt on a terminal, with history, until `\q`, Ctrl-D, or Ctrl-C twice.

use std::path::PathBuf;

use anyhow::{Context, Result};
use rustyline::completion::FilenameCompleter;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{ColorMode, CompletionType, Config, Editor};
use tarn_console::script::{is_cry_for_help, is_farewell};
use tarn_console::transaction::Transaction;

use super::helper::LineHelper;
use super::session::Session;
use super::steps::{self, Origin, ScriptError, ScriptOutcome};

/// Statements that are remembered.
const HISTORY: usize = 10_000;

/// Candidates of Tab that are listed without a question.
const LISTED: usize = 100;

/// Reads and runs statements until the user leaves. True: by Ctrl-C.
pub fn run(session: &mut Session) -> Result<bool> {
    let mut editor = editor(session)?;
    let history = history_path();
    if let Some(path) = &history {
        // A first run has no history yet.
        let _ = editor.load_history(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).ok();
        }
    }
    greet(session);
    let runtime = session.runtime.handle().clone();
    session.known.ask(&runtime, &session.target);
    let mut waiting = String::new();
    let mut n_interrupts = 0;
    loop {
        let prompt = prompt(session.transaction);
        let typed = editor.readline_with_initial(prompt, (&std::mem::take(&mut waiting), ""));
        n_interrupts = if matches!(typed, Err(ReadlineError::Interrupted)) { n_interrupts + 1 } else { 0 };
        let text = match typed {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) if n_interrupts > 1 => return Ok(true),
            Err(ReadlineError::Interrupted) => {
                eprintln!("Ctrl-C again leaves, as Ctrl-D and \\q do");
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(false),
            Err(error) => return Err(error).context("read the terminal"),
        };
        if text.trim().is_empty() {
            continue;
        }
        remember(&mut editor, text.trim_end(), history.as_ref());
        if is_farewell(&text) {
            return Ok(false);
        }
        let text = if is_cry_for_help(&text) { "\\?".to_owned() } else { text };
        match steps::run(session, &text, &Origin::Typed) {
            Ok(ScriptOutcome::More) => {}
            Ok(ScriptOutcome::Leave) => return Ok(false),
            Ok(ScriptOutcome::Edit(text)) => waiting = text,
            Err(ScriptError { is_interrupted: true, .. }) => return Ok(true),
            Err(ScriptError { .. }) => {}
        }
        // It may be another server now, or another catalog.
        if let Some(helper) = editor.helper_mut() {
            helper.target.clone_from(&session.target);
        }
        session.known.ask(&runtime, &session.target);
    }
}

fn editor(session: &Session) -> Result<Editor<LineHelper, FileHistory>> {
    let config = Config::builder()
        .max_history_size(HISTORY)
        .and_then(|config| config.history_ignore_dups(true))
        .context("set the editor up")?
        .completion_type(CompletionType::List)
        .completion_prompt_limit(LISTED)
        .build();
    let has_colours = config.color_mode() != ColorMode::Disabled
        && std::env::var_os("NO_COLOR").is_none()
        && std::env::var("TERM").is_ok_and(|term| term != "dumb");
    let mut editor = Editor::with_config(config).context("open the terminal")?;
    editor.set_helper(Some(LineHelper {
        known: session.known.clone(),
        runtime: session.runtime.handle().clone(),
        target: session.target.clone(),
        files: FilenameCompleter::new(),
        has_colours,
    }));
    Ok(editor)
}

/// Who talks to whom; both versions only if they differ.
fn greet(session: &Session) {
    let ours = env!("CARGO_PKG_VERSION");
    let target = &session.target;
    let encrypted = if session.connection.is_encrypted() { ", encrypted" } else { "" };
    let server = session.runtime.block_on(session.connection.value("SELECT version()")).unwrap_or_default();
    let theirs = if server.contains(&format!("Tarn {ours}")) { String::new() } else { format!(" ({server})") };
    eprintln!("tarn {ours} on {}:{}{theirs} as {}{encrypted}", target.host, target.port, target.user);
    eprintln!("\\? lists commands, \\h statements; Tab completes; \\q leaves");
}

fn prompt(transaction: Transaction) -> &'static str {
    match transaction {
        Transaction::None => "tarn=> ",
        Transaction::Open => "tarn=*> ",
        Transaction::Failed => "tarn=!> ",
    }
}

/// Keeps a whole statement, at once: a session that dies leaves its history. What has a password in it, or an address,
/// is not kept.
fn remember(editor: &mut Editor<LineHelper, FileHistory>, text: &str, path: Option<&PathBuf>) {
    if text.to_lowercase().contains("password") || text.contains("postgresql://") || text.contains("postgres://") {
        return;
    }
    let is_new = editor.add_history_entry(text).unwrap_or(false);
    if let Some(path) = path.filter(|_| is_new) {
        // A history that cannot be written stops no statement.
        let _ = editor.append_history(path);
    }
}

fn history_path() -> Option<PathBuf> {
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    Some(data.or_else(home)?.join("tarn/history"))
}
