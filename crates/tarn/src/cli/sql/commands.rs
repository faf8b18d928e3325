//! What does a backslash command do? All but those that run statements: these are in `steps`.

use std::io::Write;

use anyhow::{Result, bail};
use tarn_console::address::is_address;
use tarn_console::command::Command;
use tarn_console::syntax;
use tarn_console::transfer::{self, Direction, File};

use super::describe;
use super::session::Session;
use super::settings::{ConsoleSettings, expanded, format, name_of_expanded, on_off, switch};
use super::transfer::Source;

/// Runs a command. `data` are the lines that follow it in a script.
pub fn run(session: &mut Session, command: &Command<'_>, data: impl FnOnce() -> Option<String>) -> Result<()> {
    let first = command.word(0);
    let pattern = first.unwrap_or_default();
    check_words(command)?;
    match command.name {
        "?" => page(session, HELP)?,
        "h" | "help" if command.rest.is_empty() => page(session, &statements())?,
        "h" | "help" => {
            let shape = syntax::of(command.rest.trim_end_matches(';'));
            if shape.is_empty() {
                bail!("there is no statement {}: \\h lists those there are", command.rest.to_uppercase());
            }
            page(session, &shape)?;
        }
        "d" | "d+" if first.is_some() => describe::table(session, pattern, command.name == "d+")?,
        "d" | "dt" => describe::tables(session, pattern, false)?,
        "d+" | "dt+" => describe::tables(session, pattern, true)?,
        "dv" => describe::views(session, pattern)?,
        "di" => describe::indexes(session, pattern)?,
        "df" => describe::functions(session, pattern)?,
        "du" => describe::users(session, pattern)?,
        "dn" => describe::schemas(session, pattern)?,
        "files" => describe::files(session, pattern)?,
        "l" => describe::databases(session)?,
        "x" => {
            session.settings.expanded = expanded(first, session.settings.expanded)?;
            tell(session, &format!("expanded is {}", name_of_expanded(session.settings.expanded)));
        }
        "t" => {
            session.settings.has_only_rows = switch(first, session.settings.has_only_rows)?;
            tell(session, &format!("rows alone: {}", on_off(session.settings.has_only_rows)));
        }
        "timing" => {
            session.settings.has_timing = switch(first, session.settings.has_timing)?;
            tell(session, &format!("timing is {}", on_off(session.settings.has_timing)));
        }
        "output" => {
            session.settings.format = format(pattern)?;
            session.out.has_parquet = false;
        }
        "pset" => match first {
            None => tell(session, &session.settings.all()),
            Some(name) => {
                let told = session.settings.set(name, command.word(1))?;
                tell(session, &told);
            }
        },
        "o" => session.out.redirect(first)?,
        "set" => set(&mut session.settings, command)?,
        "unset" => {
            if !session.settings.variables.unset(pattern) {
                bail!("\\unset: {pattern:?} is not set; \\set lists what is");
            }
        }
        "echo" => {
            writeln!(session.out, "{}", command.words.join(" "))?;
            session.out.finish()?;
        }
        "warn" => eprintln!("{}", command.words.join(" ")),
        "copy" => copy(session, command, data)?,
        "c" => connect(session, command)?,
        "conninfo" => conninfo(session)?,
        "p" => eprintln!("{}", session.last),
        name => bail!("there is no command \\{name}; \\? lists those there are"),
    }
    Ok(())
}

/// A word too many is a mistake, which is told.
fn check_words(command: &Command<'_>) -> Result<()> {
    let most = match command.name {
        "h" | "help" | "set" | "echo" | "warn" | "copy" => return Ok(()),
        "c" => 4,
        "pset" => 2,
        "?" | "l" | "conninfo" | "p" => 0,
        _ => 1,
    };
    match command.word(most) {
        Some(word) => bail!("\\{}: {word:?} is a word too many", command.name),
        None => Ok(()),
    }
}

fn set(settings: &mut ConsoleSettings, command: &Command<'_>) -> Result<()> {
    let Some(name) = command.word(0) else {
        for (name, value) in settings.variables.all() {
            say!("{name} = '{}'", value.replace('\'', "''"))?;
        }
        return Ok(());
    };
    Ok(settings.variables.set(name, &command.words[1..].concat())?)
}

fn copy(session: &mut Session, command: &Command<'_>, data: impl FnOnce() -> Option<String>) -> Result<()> {
    let transfer = transfer::parse(&session.settings.variables.substitute(command.rest))?;
    session.reconnect_before_change()?;
    match (transfer.direction, transfer.file) {
        (Direction::In, File::Path(path)) => {
            let source = session.runtime.block_on(Source::file(&path))?;
            session.send(&transfer.sql, source)
        }
        (Direction::In, File::Standard) => {
            let data = data();
            let source = data.as_deref().map_or_else(Source::stdin, Source::text);
            session.send(&transfer.sql, source)
        }
        (Direction::Out, File::Standard) => session.receive(&transfer.sql, None),
        (Direction::Out, File::Path(path)) => {
            session.receive(&transfer.sql, Some(&path))?;
            tell(session, &format!("written: {path}"));
            Ok(())
        }
    }
}

/// `\c [DATABASE [USER [HOST [PORT]]]]`, `-` for as it is, or an address.
fn connect(session: &mut Session, command: &Command<'_>) -> Result<()> {
    let mut target = session.target.clone();
    let word = |idx: usize| command.word(idx).filter(|word| *word != "-");
    match word(0) {
        Some(address) if is_address(address) => target.take(address)?,
        Some(database) => target.database = database.to_owned(),
        None => {}
    }
    if let Some(user) = word(1) {
        target.user = user.to_owned();
    }
    if let Some(host) = word(2) {
        target.host = host.to_owned();
    }
    if let Some(port) = word(3) {
        target.port = port.parse().map_err(|_| anyhow::anyhow!("\\c: {port:?} is not a port"))?;
    }
    session.connect(target)?;
    conninfo(session)
}

fn conninfo(session: &mut Session) -> Result<()> {
    let target = &session.target;
    let encrypted = if session.connection.is_encrypted() { ", encrypted" } else { "" };
    let text = format!(
        "connected to database {} on {}:{} as {}{encrypted}",
        target.database, target.host, target.port, target.user
    );
    writeln!(session.out, "{text}")?;
    session.out.finish()
}

/// What a person is told of a setting; scripts do not ask.
fn tell(session: &Session, text: &str) {
    if session.is_interactive {
        eprintln!("{text}");
    }
}

/// A text of many lines, by the pager where it is longer than the screen.
fn page(session: &mut Session, text: &str) -> Result<()> {
    let is_long = session.out.screen().is_some_and(|screen| text.lines().count() >= screen.height);
    if is_long && session.settings.has_pager {
        session.out.start_pager();
    }
    writeln!(session.out, "{}", text.trim_end())?;
    session.out.finish()
}

fn statements() -> String {
    let names: Vec<&str> = syntax::names().collect();
    let rows = names.chunks(4).map(|row| row.iter().map(|name| format!("  {name:<20}")).collect::<String>());
    let rows = rows.map(|row| row.trim_end().to_owned()).collect::<Vec<_>>().join("\n");
    format!("\\h STATEMENT shows how it is written; docs/sql.md has all of them with their limits.\n{rows}")
}

const HELP: &str = "\
Statements end with a semicolon and may span lines. Tab completes; Ctrl-C cancels on the server, twice leaves.

What is there
  \\d [NAME]  \\d+       tables; columns, key and options of one; + what it takes
  \\dt  \\dv  \\di  \\df   tables, views, indexes, functions; each takes a PATTERN with * and ?
  \\du  \\dn  \\l         users, schemas, databases
  \\files [TABLE]       Parquet files of the lake
  \\h [STATEMENT]       how a statement is written
Answers
  \\x [on|off|auto]     a record for each row; auto: when a table is too wide
  \\pset [NAME VALUE]   null, format, expanded, tuples_only, pager, limit (rows that are shown)
  \\output FORMAT       table, unaligned, json, csv or parquet
  \\t  \\timing          rows alone; how long each statement took
  \\o [FILE]            answers go to a file; without one back to the terminal
Statements
  \\g  \\gx              run what is typed, as ; does; with records
  \\watch [SECONDS]     run it again and again, until Ctrl-C
  \\e [FILE]            edit the last statement, or a file
  \\p  \\r               show the last statement; drop what is typed
Files
  \\i FILE  \\ir FILE    run a script; ir: beside the script that asks
  \\copy TABLE FROM 'FILE' [WITH (…)]     rows of this machine's file; TO writes one
  \\set [NAME VALUE]  \\unset NAME         :NAME, :'NAME' and :\"NAME\" in statements stand for it
  \\echo TEXT  \\warn TEXT
Session
  \\conninfo            whom we talk to
  \\c [DATABASE [USER [HOST [PORT]]]]     another connection; - leaves as it is
  \\q                   leave (Ctrl-D, quit and exit too)

EXPLAIN names the access path; SET tarn.access_path = 'rows' | 'lake' | 'index' | 'auto' forces one. CALL tarn.deliver('t') delivers
now. The inside: \\dv lists tarn.files, tarn.tablets, tarn.deliveries, tarn.queries and more.";
