//! What a terminal sees of long work.

use std::io::IsTerminal;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// Hidden where nobody looks. `what` comes first, the message last.
pub fn bar(what: &str, length: u64) -> Result<ProgressBar> {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(length) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template(&format!("{what} {{bar:40}} {{percent:>3}} % {{msg}} eta {{eta}}"))?);
    Ok(bar)
}
