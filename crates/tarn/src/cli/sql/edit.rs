//! How is a statement edited in an editor? `\e`: in a file of its own, by `$VISUAL`, `$EDITOR` or vi.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Opens the editor on `text` and returns what was written.
pub fn edit(text: &str) -> Result<String> {
    let file = tempfile::Builder::new().prefix("tarn-").suffix(".sql").tempfile().context("make a file to edit")?;
    std::fs::write(file.path(), format!("{}\n", text.trim_end())).context("write the file to edit")?;
    let editor =
        ["VISUAL", "EDITOR"].into_iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    // The variable may have flags in it, as for git.
    let done = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file.path()).status();
    ensure!(done.context("run the editor")?.success(), "{editor} did not end well: set EDITOR");
    std::fs::read_to_string(file.path()).context("read what was edited")
}

/// Opens the editor on a file that the user has, and returns what is in it then.
pub fn edit_file(path: &str) -> Result<String> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("read {path}"))?,
    };
    let text = edit(&text)?;
    std::fs::write(path, &text).with_context(|| format!("write {path}"))?;
    Ok(text)
}
