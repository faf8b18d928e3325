//! Where do answers go? To stdout, to the file of `\o`, or through a pager when a terminal's screen is too small.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use terminal_size::{Height, Width, terminal_size};

/// The end to which answers are written.
pub struct AnswerOutput {
    file: Option<ToFile>,
    pager: Option<Child>,
    /// The reader of the pager has seen enough
    is_left: bool,
    is_terminal: bool,
    stdout: BufWriter<io::Stdout>,
    /// Whether a Parquet file is complete here: a second one behind it would make both unreadable
    pub has_parquet: bool,
}

struct ToFile {
    path: String,
    writer: BufWriter<File>,
}

/// Places and lines of the terminal.
pub struct Screen {
    /// In characters.
    pub width: usize,
    /// In lines.
    pub height: usize,
}

impl AnswerOutput {
    /// To stdout.
    pub fn new() -> AnswerOutput {
        let is_terminal = io::stdout().is_terminal();
        let stdout = BufWriter::new(io::stdout());
        AnswerOutput { file: None, pager: None, is_left: false, is_terminal, stdout, has_parquet: false }
    }

    /// The screen that a person looks at; none if no person does.
    pub fn screen(&self) -> Option<Screen> {
        if self.file.is_some() || !self.is_terminal {
            return None;
        }
        let (Width(width), Height(height)) = terminal_size()?;
        (width > 0 && height > 0).then_some(Screen { width: width.into(), height: height.into() })
    }

    /// Whether a terminal gets what is written.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal && self.file.is_none()
    }

    /// Whether nobody reads on.
    pub fn is_left(&self) -> bool {
        self.is_left
    }

    /// From here on answers go into this file, which begins anew; none: to stdout.
    pub fn redirect(&mut self, path: Option<&str>) -> Result<()> {
        if let Some(mut file) = self.file.take() {
            file.writer.flush().with_context(|| format!("write {}", file.path))?;
        }
        self.has_parquet = false;
        if let Some(path) = path {
            let file = File::create(path).with_context(|| format!("create {path}"))?;
            self.file = Some(ToFile { path: path.to_owned(), writer: BufWriter::new(file) });
        }
        Ok(())
    }

    /// Starts the pager: `$PAGER`, else `less -S` if it is there. An empty `$PAGER` is none.
    pub fn start_pager(&mut self) {
        let mut command = match std::env::var("PAGER") {
            Ok(pager) if pager.trim().is_empty() => return,
            Ok(pager) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(pager);
                command
            }
            Err(_) => Command::new("less"),
        };
        if std::env::var_os("LESS").is_none() {
            // Ends at once if all fits, cuts long lines instead of breaking them, leaves the screen as it is.
            command.env("LESS", "-FRSX");
        }
        // Without a pager the answer is written all the same.
        self.pager = command.stdin(Stdio::piped()).spawn().ok();
    }

    /// A pager is open for this answer.
    pub fn has_pager(&self) -> bool {
        self.pager.is_some()
    }

    /// Ends one answer: what is waiting is written, the pager is left.
    pub fn finish(&mut self) -> Result<()> {
        self.flush().context("write the answer")?;
        if let Some(mut pager) = self.pager.take() {
            drop(pager.stdin.take());
            pager.wait().context("wait for the pager")?;
        }
        self.is_left = false;
        Ok(())
    }
}

impl Write for AnswerOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_left {
            return Ok(bytes.len());
        }
        if let Some(file) = &mut self.file {
            return file.writer.write(bytes).map_err(|error| in_file(&file.path, &error));
        }
        let Some(stdin) = self.pager.as_mut().and_then(|pager| pager.stdin.as_mut()) else {
            return self.stdout.write(bytes);
        };
        match stdin.write(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_left = true;
                Ok(bytes.len())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match (&mut self.file, &mut self.pager) {
            (Some(file), _) => file.writer.flush().map_err(|error| in_file(&file.path, &error)),
            (None, Some(_)) => Ok(()),
            (None, None) => self.stdout.flush(),
        }
    }
}

/// An error with the file's name, and of another kind than a closed pipe of ours.
fn in_file(path: &str, error: &io::Error) -> io::Error {
    io::Error::other(format!("write {path}: {error}"))
}
