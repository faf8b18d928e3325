//! What does the line editor ask us while a person types? What completes a word, whether Enter runs it, and which words
//! have a colour.

use std::borrow::Cow;

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Result};
use tarn_console::complete::{Completion, complete};
use tarn_console::highlight::highlight;
use tarn_console::script::is_complete;
use tokio::runtime::Handle;

use super::known::CatalogCache;
use crate::cli::client::Target;

/// What the line editor asks while a person types.
pub struct LineHelper {
    /// The names that the server has.
    pub known: CatalogCache,
    /// On which they are fetched.
    pub runtime: Handle,
    /// The server that is asked.
    pub target: Target,
    /// Completes names of files.
    pub files: FilenameCompleter,
    pub has_colours: bool,
}

impl Helper for LineHelper {}

impl Completer for LineHelper {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> Result<(usize, Vec<Pair>)> {
        self.known.ask(&self.runtime, &self.target);
        match complete(line, pos, &self.known.catalog()) {
            Completion::File => self.files.complete_path(line, pos),
            Completion::Words { from, words } => {
                let pairs = words.into_iter().map(|word| Pair { display: word.clone(), replacement: word });
                Ok((from, pairs.collect()))
            }
        }
    }
}

impl Hinter for LineHelper {
    type Hint = String;
}

impl Highlighter for LineHelper {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        if self.has_colours { highlight(line) } else { Cow::Borrowed(line) }
    }

    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        self.has_colours && kind != CmdKind::MoveCursor
    }
}

impl Validator for LineHelper {
    /// Enter runs what is complete, and begins a new line in what is not.
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        let is_complete = is_complete(context.input());
        Ok(if is_complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}
