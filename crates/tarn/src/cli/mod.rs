//! What can be typed after `tarn`? Reads the command line and hands each command to its file.
//!
//! Results go to stdout, progress and notices to stderr. Exit codes: 0 done, 1 it failed (the reason is on stderr), 2
//! the command line was wrong, 130 interrupted; `tarn sql` has psql's (`sql/options.rs`).

/// Prints a line on stdout; an error if nobody reads it, which ends the command quietly.
macro_rules! say {
    ($($text:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout().lock(), format_args!("{}\n", format_args!($($text)*)))
    };
}

mod attach;
mod check;
mod check_lake;
mod child;
mod client;
mod config;
mod copy;
mod demo;
mod load;
mod metastore;
mod output;
mod parse;
mod prompt;
mod serve;
mod sql;
mod tls;
mod user;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A table store with a lake under it: rows by key, Parquet behind, one SQL over both.
#[derive(Parser)]
#[command(name = "tarn", version, max_term_width = 110, after_help = GETTING_STARTED)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const GETTING_STARTED: &str = "\
Getting started:
  tarn demo                          the whole job on 6 million rows, in minutes, in its own folder
  tarn serve --data-dir ./data       a server: Postgres on 127.0.0.1:5433, HTTP on 127.0.0.1:8433
  tarn sql                           talk to it; psql -h 127.0.0.1 -p 5433 works as well
  tarn load trips.csv --table trips  bring rows in
  tarn attach /data/logs --table l   make a table of Parquet files that others write
  tarn config                        every setting, its value and where it came from

Settings are taken from flags, then TARN_* variables, then a TOML file (--config), then defaults.";

#[derive(Subcommand)]
enum Command {
    Serve(serve::Serve),
    Sql(sql::Sql),
    Load(load::Load),
    Attach(attach::Attach),
    Detach(attach::Detach),
    Config(config::Config),
    /// Read every stored byte and name what is damaged; changes nothing
    Check(check::CheckArgs),
    Metastore(metastore::MetastoreCommand),
    User(user::User),
    Demo(demo::Demo),
}

/// The whole program: reads the command line, runs one command, says what went wrong.
pub fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => {
            // Nobody may read it.
            let _ = error.print();
            let is_sql = std::env::args_os().nth(1).is_some_and(|command| command == "sql");
            return if is_sql && error.use_stderr() {
                ExitCode::FAILURE
            } else {
                ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
            };
        }
    };
    let outcome = match command {
        Command::Serve(command) => command.run(),
        // Its exit codes are psql's.
        Command::Sql(command) => return command.run(),
        Command::Load(command) => command.run(),
        Command::Attach(command) => command.run(),
        Command::Detach(command) => command.run(),
        Command::Config(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Metastore(command) => command.run(),
        Command::User(command) => command.run(),
        Command::Demo(command) => command.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => ExitCode::from(130),
        Err(error) => {
            eprintln!("{}", client::describe(&error));
            ExitCode::FAILURE
        }
    }
}

/// The user pressed Ctrl-C, and was told what came of it.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

/// `tarn sql … | head` ends when head has seen enough: no error.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
