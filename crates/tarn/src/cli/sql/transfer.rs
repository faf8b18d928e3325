//! How do the rows of a `COPY` go through the connection? From a file, from stdin or from the lines of a script to the
//! server, and from the server to a file or to where answers go. Piece by piece: nothing is held whole.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::{SinkExt, TryStreamExt};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::out::AnswerOutput;
use crate::cli::Interrupted;
use crate::cli::client::Connection;

/// Bytes of one piece.
const PIECE_BYTES: usize = 64 << 10;

/// Where rows for the server come from.
pub struct Source<'a> {
    /// Read to its end.
    pub reader: Box<dyn AsyncRead + Unpin + Send + 'a>,
    /// Bytes in it, if that is known
    pub size_bytes: Option<u64>,
}

impl<'a> Source<'a> {
    /// Of unknown length.
    pub fn stdin() -> Source<'a> {
        Source { reader: Box::new(tokio::io::stdin()), size_bytes: None }
    }

    /// The lines of a script.
    pub fn text(text: &'a str) -> Source<'a> {
        Source { reader: Box::new(text.as_bytes()), size_bytes: Some(text.len() as u64) }
    }

    /// Errors: it cannot be opened.
    pub async fn file(path: &str) -> Result<Source<'a>> {
        let read = || format!("read {path}");
        let file = tokio::fs::File::open(path).await.with_context(read)?;
        let size_bytes = file.metadata().await.with_context(read)?.len();
        Ok(Source { reader: Box::new(file), size_bytes: Some(size_bytes) })
    }
}

/// Sends rows to the server; returns how many it took. Ctrl-C ends it ([`Interrupted`]): the server drops what it has
/// not committed.
pub async fn send(connection: &Connection, sql: &str, mut source: Source<'_>) -> Result<u64> {
    let sink = connection.client.copy_in::<_, Bytes>(sql).await?;
    tokio::pin!(sink);
    let bar = bar(source.size_bytes);
    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(interrupt);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let step = async {
            let length = source.reader.read(&mut piece).await.context("read rows")?;
            if length > 0 {
                sink.send(Bytes::copy_from_slice(&piece[..length])).await?;
            }
            Ok::<_, anyhow::Error>(length)
        };
        let length = tokio::select! {
            biased;
            // Without its end the server undoes the statement.
            _ = &mut interrupt => return Err(Interrupted.into()),
            length = step => length?,
        };
        if length == 0 {
            break;
        }
        bar.inc(length as u64);
    }
    let rows = sink.finish().await?;
    bar.finish_and_clear();
    Ok(rows)
}

/// Writes what the server sends to where answers go, or into `file`.
pub async fn receive(connection: &Connection, sql: &str, file: Option<&str>, out: &mut AnswerOutput) -> Result<()> {
    let stream = connection.client.copy_out(sql).await?;
    tokio::pin!(stream);
    let mut to_file = match file {
        Some(path) => {
            Some(std::io::BufWriter::new(std::fs::File::create(path).with_context(|| format!("create {path}"))?))
        }
        None => None,
    };
    let bar = if file.is_some() { bar(None) } else { ProgressBar::hidden() };
    while let Some(bytes) = stream.try_next().await? {
        match &mut to_file {
            Some(writer) => writer.write_all(&bytes).with_context(|| format!("write {}", file.unwrap_or_default()))?,
            None => out.write_all(&bytes)?,
        }
        bar.inc(bytes.len() as u64);
    }
    match &mut to_file {
        Some(writer) => writer.flush().with_context(|| format!("write {}", file.unwrap_or_default()))?,
        None => out.finish()?,
    }
    bar.finish_and_clear();
    Ok(())
}

/// A bar on a terminal, nothing elsewhere.
fn bar(size_bytes: Option<u64>) -> ProgressBar {
    let bar = match size_bytes {
        Some(size_bytes) => ProgressBar::new(size_bytes),
        None => ProgressBar::no_length(),
    };
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        return bar;
    }
    let mut shape = "{bytes}".to_owned();
    if size_bytes.is_some() {
        let _ = write!(shape, " of {{total_bytes}} {{wide_bar}} {{percent}} %");
    }
    let style = ProgressStyle::with_template(&format!("{shape} {{bytes_per_sec}}"));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
