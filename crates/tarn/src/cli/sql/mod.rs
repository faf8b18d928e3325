//! `tarn sql`, in reading order. What is text in and text out is in `tarn-console`; here are the connection, the
//! terminal and the files.
//!
//! `options` (the command line, exit codes) → `prompt` (a terminal) or a script → `steps` (statements and commands, one
//! by one) → `commands`, `describe` → `session` (one connection and what was set) → `answer`, `transfer` → `out`
//! (stdout, a pager, a file).

mod answer;
mod commands;
mod describe;
mod edit;
mod helper;
mod known;
mod options;
mod out;
mod prompt;
mod session;
mod settings;
mod steps;
mod transfer;

pub use options::Sql;
