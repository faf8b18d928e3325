//! How is a password asked for?

use std::io::{BufRead, IsTerminal, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Reads one line, which a terminal does not show.
pub fn ask_password(prompt: &str) -> Result<String> {
    let is_terminal = std::io::stdin().is_terminal();
    let echo = |mode: &str| -> Result<()> {
        if !is_terminal {
            return Ok(());
        }
        let done = Command::new("stty").arg(mode).stdin(Stdio::inherit()).status().context("run stty")?;
        ensure!(done.success(), "the terminal would show the password: set TARN_PASSWORD instead");
        Ok(())
    };
    echo("-echo")?;
    if is_terminal {
        eprint!("{prompt}");
        let _ = std::io::stderr().flush();
    }
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    echo("echo")?;
    if is_terminal {
        eprintln!();
    }
    read.context("read the password")?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
