//! What may stand behind `tarn sql`, in which order is it done, and what does the exit code say?

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches};
use tarn_console::address::is_address;
use tarn_console::layout::ExpandedMode;
use tarn_console::transaction::Transaction;
use tarn_console::variables::Variables;

use super::known::CatalogCache;
use super::out::AnswerOutput;
use super::prompt;
use super::session::Session;
use super::settings::{ConsoleSettings, Format, LIMIT_ROWS};
use super::steps::{self, Origin, ScriptError, ScriptOutcome};
use crate::cli::client::{NotConnected, Target, describe, runtime};

/// Ask a server: a prompt, or statements from -c, -f or stdin
#[derive(Args)]
#[command(after_help = "\
Examples:
  tarn sql                                                   a prompt; \\? lists its commands
  tarn sql postgresql://ada@db:5433/tarn?sslmode=require     another server; -h db -p 5433 -U ada says the same
  tarn sql -c 'SELECT count(*) FROM trips'                   one statement
  tarn sql -At -c 'SELECT count(*) FROM trips'               its value alone, for a shell
  tarn sql -c 'SELECT * FROM trips' --output parquet > t.parquet
  tarn sql -v day=2026-11-01 -f report.sql --output csv      a script; stops at the first error
  tarn sql -c \"COPY trips FROM STDIN (FORMAT csv)\" < t.csv   rows
  tarn sql -c 'EXPLAIN SELECT * FROM trips'                  which access path, and why

Exit codes, as psql's: 0 all was done; 1 a -c failed, or the command line or a file is wrong; 2 no connection, or it was lost;
3 a statement of a script failed (-f, stdin); 130 Ctrl-C. With -v ON_ERROR_STOP=off a script goes on, and ends with 3 all the same.

Ctrl-C cancels the running statement on the server; a second one leaves. docs/console.md tells the rest.")]
pub struct Sql {
    #[command(flatten)]
    target: Target,
    /// The server's address, postgresql://user@host:port/database?sslmode=…, or the name of the database
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
    /// Name of the database, or an address; a server has one, whatever it is called
    #[arg(long, short = 'd', value_name = "NAME", conflicts_with = "address")]
    dbname: Option<String>,
    #[command(flatten)]
    texts: InputTexts,
    /// Set a variable: :NAME, :'NAME' and :"NAME" in statements stand for it
    #[arg(long, short = 'v', value_name = "NAME=VALUE")]
    variable: Vec<String>,
    /// How results look on stdout
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,
    /// Values with | between them, as --output unaligned
    #[arg(long, short = 'A', conflicts_with = "output")]
    no_align: bool,
    /// Rows alone: no names of columns, no number of rows
    #[arg(long, short = 't')]
    tuples_only: bool,
    /// A record for each row
    #[arg(long, short = 'x')]
    expanded: bool,
    /// Print how long each statement took, on stderr
    #[arg(long)]
    timing: bool,
}

/// What `-c` and `-f` gave, in the order of the command line.
struct InputTexts(Vec<Text>);

enum Text {
    Command(String),
    File(PathBuf),
}

impl Args for InputTexts {
    fn augment_args(command: clap::Command) -> clap::Command {
        let run = Arg::new("command").long("command").short('c').value_name("SQL").action(ArgAction::Append);
        let file = Arg::new("file").long("file").short('f').value_name("FILE").action(ArgAction::Append);
        command
            .arg(
                run.help(
                    "Run these statements, or one backslash command, and exit; may be given several times, with -f",
                ),
            )
            .arg(
                file.value_parser(clap::value_parser!(PathBuf))
                    .help("Run the statements of this file and exit; - is stdin"),
            )
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        InputTexts::augment_args(command)
    }
}

impl FromArgMatches for InputTexts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<InputTexts, clap::Error> {
        let places = |name: &str| matches.indices_of(name).into_iter().flatten().collect::<Vec<_>>();
        let commands = matches.get_many::<String>("command").into_iter().flatten().cloned().map(Text::Command);
        let files = matches.get_many::<PathBuf>("file").into_iter().flatten().cloned().map(Text::File);
        let mut texts: Vec<(usize, Text)> = places("command").into_iter().zip(commands).collect();
        texts.extend(places("file").into_iter().zip(files));
        texts.sort_by_key(|(place, _)| *place);
        Ok(InputTexts(texts.into_iter().map(|(_, text)| text).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = InputTexts::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Exit codes, as psql's.
mod exit {
    /// What was asked for cannot be begun, or a `-c` failed
    pub const FAILED: u8 = 1;
    /// The server was not reached, or the connection was lost.
    pub const NO_CONNECTION: u8 = 2;
    /// A script ended at a statement that failed.
    pub const SCRIPT_FAILED: u8 = 3;
    /// By a signal, as shells count it.
    pub const INTERRUPTED: u8 = 130;
}

impl Sql {
    /// Runs what was given, or talks with a person.
    pub fn run(self) -> ExitCode {
        match self.session() {
            Ok((mut session, texts)) => {
                let code = talk(&mut session, texts);
                // A read of stdin may be under way, for which nobody waits.
                let Session { runtime, connection, .. } = session;
                drop(connection);
                runtime.shutdown_background();
                ExitCode::from(code)
            }
            Err(error) => {
                eprintln!("{}", describe(&error));
                ExitCode::from(if error.is::<NotConnected>() { exit::NO_CONNECTION } else { exit::FAILED })
            }
        }
    }

    fn session(self) -> Result<(Session, Vec<Text>)> {
        let mut target = self.target;
        match self.address.or(self.dbname) {
            Some(address) if is_address(&address) => target.take(&address)?,
            Some(database) => target.database = database,
            None => {}
        }
        let mut variables = Variables::default();
        for assignment in &self.variable {
            let (name, value) =
                assignment.split_once('=').ok_or_else(|| anyhow!("-v {assignment}: wants NAME=VALUE"))?;
            variables.set(name, value)?;
        }
        let mut texts = self.texts.0;
        let is_interactive = texts.is_empty() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        if texts.is_empty() && !is_interactive {
            texts.push(Text::File("-".into()));
        }
        let expanded = match (self.expanded, is_interactive) {
            (true, _) => ExpandedMode::On,
            (false, true) => ExpandedMode::Auto,
            (false, false) => ExpandedMode::Off,
        };
        let settings = ConsoleSettings {
            format: if self.no_align { Format::Unaligned } else { self.output },
            expanded,
            has_only_rows: self.tuples_only,
            null: None,
            has_timing: self.timing,
            has_pager: is_interactive,
            limit_rows: if is_interactive { LIMIT_ROWS } else { 0 },
            variables,
        };
        let runtime = runtime()?;
        let connection = runtime.block_on(target.connect())?;
        let session = Session {
            target,
            connection,
            runtime,
            settings,
            out: AnswerOutput::new(),
            known: CatalogCache::new(),
            last: String::new(),
            transaction: Transaction::None,
            is_interactive,
        };
        Ok((session, texts))
    }
}

/// Runs what was given, or a prompt; returns the exit code.
fn talk(session: &mut Session, texts: Vec<Text>) -> u8 {
    if texts.is_empty() {
        return match prompt::run(session) {
            Ok(true) => exit::INTERRUPTED,
            Ok(false) => 0,
            Err(error) => {
                session.complain(&error);
                exit::FAILED
            }
        };
    }
    for text in texts {
        let (read, origin, failed) = match text {
            Text::Command(text) => (Ok(text), Origin::Argument, exit::FAILED),
            Text::File(path) => (steps::read(&path), Origin::Script(path), exit::SCRIPT_FAILED),
        };
        let outcome = match read {
            Ok(text) => steps::run(session, &text, &origin),
            Err(error) => {
                session.complain(&error);
                return exit::FAILED;
            }
        };
        match outcome {
            Ok(ScriptOutcome::Leave) => return 0,
            Ok(ScriptOutcome::More | ScriptOutcome::Edit(_)) => {}
            Err(ScriptError { is_closed_pipe: true, .. }) => return 0,
            Err(ScriptError { is_interrupted: true, .. }) => return exit::INTERRUPTED,
            Err(_) if session.connection.client.is_closed() => return exit::NO_CONNECTION,
            Err(_) => return failed,
        }
    }
    match session.out.redirect(None) {
        Ok(()) => 0,
        Err(error) => {
            session.complain(&error);
            exit::FAILED
        }
    }
}
