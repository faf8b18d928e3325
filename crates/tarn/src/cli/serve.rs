//! `tarn serve`: run a server until it is asked to stop.
//!
//! When it can be used, one line is printed on stdout: `ready postgres=ADDRESS http=ADDRESS|off`; programs that start a
//! server wait for it. A person, who has a terminal there, is told how to connect, too. The log goes to stderr. SIGINT
//! and SIGTERM stop it cleanly; a second one ends it at once, which is safe too: what was acknowledged is on stable
//! storage.

use std::io::{IsTerminal, Read, Write};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use futures::FutureExt;
use nix::sys::stat::{Mode, umask};
use tarn_query::parser::CONNECTION_STACK_BYTES;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use super::config::SettingFlags;

/// Run a server: Postgres wire protocol and HTTP, one data folder
#[derive(Args)]
#[command(after_help = "\
Examples:
  tarn serve                                        everything under ./tarn-data
  tarn serve --data-dir /data --pg-listen 0.0.0.0:5433
  tarn serve --config tarn.toml                     `tarn config --output toml` writes a file to begin with
  TARN_LOG=debug tarn serve                         any setting as TARN_NAME

Without users everybody is superuser, and only loopback is listened on: docs/security.md. TARN_SUPERUSER_PASSWORD=… makes the
superuser `tarn` at the first start; `tarn user create NAME --superuser` does so while the server is stopped.")]
pub struct Serve {
    #[command(flatten)]
    flags: SettingFlags,
    /// Stop when stdin is closed: for a server that must not outlive the program that started it
    #[arg(long, hide = true)]
    stop_when_stdin_closes: bool,
}

impl Serve {
    /// Serves until it is asked to stop, by a signal or, where that was wanted, by the end of stdin.
    pub fn run(self) -> Result<()> {
        // What it writes is for this user alone, wherever it is.
        umask(Mode::S_IRWXG | Mode::S_IRWXO);
        let settings = self.flags.layers()?.settings().clone();
        let filter =
            filter(&settings.server.log).with_context(|| format!("setting `log` = `{}`", settings.server.log))?;
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .init();
        abort_at_failpoint()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_stack_size(CONNECTION_STACK_BYTES)
            .enable_all()
            .build()
            .context("start the runtime")?;
        let data_dir = settings.node.data_dir.clone();
        let ready = Box::new(move |postgres, http| ready(&data_dir, postgres, http));
        let stdin_closed = self.stop_when_stdin_closes.then(stdin_closed);
        let stop = stop_asked(stdin_closed).boxed();
        let stopped = runtime.block_on(tarn::server::run(settings, first_password(), ready, stop));
        // The node is closed. A query that is deep in a kernel must not keep the process.
        runtime.shutdown_background();
        stopped
    }
}

/// What the first superuser's password is, if the environment has one.
fn first_password() -> Option<String> {
    std::env::var("TARN_SUPERUSER_PASSWORD").ok().filter(|password| !password.is_empty())
}

/// What is logged. Libraries that write statements at their level `debug` are left at `info` there: a literal may be a
/// secret. `trace`, or a directive that names the library, has them.
fn filter(log: &str) -> Result<EnvFilter> {
    const TELLTALES: [&str; 7] =
        ["arrow_pg", "datafusion", "pgwire", "postgres", "scylla", "sqlparser", "tokio_postgres"];
    let mut filter = EnvFilter::try_new(log)?;
    let directives = || log.split(',').map(str::trim);
    // A directive without a target is for all that are not named.
    if directives().any(|directive| directive.eq_ignore_ascii_case("debug")) {
        let is_named = |library: &str| directives().any(|directive| directive.split('=').next() == Some(library));
        for library in TELLTALES.into_iter().filter(|library| !is_named(library)) {
            filter = filter.add_directive(format!("{library}=info").parse()?);
        }
    }
    Ok(filter)
}

fn ready(data_dir: &Path, postgres: SocketAddr, http: Option<SocketAddr>) {
    let mut out = std::io::stdout().lock();
    let welcome = if out.is_terminal() { welcome(data_dir, postgres, http) } else { String::new() };
    let http = http.map_or_else(|| "off".to_owned(), |address| address.to_string());
    // Nobody has to listen.
    let _ = writeln!(out, "{welcome}ready postgres={postgres} http={http}").and_then(|()| out.flush());
}

/// How to connect, for a person at a terminal.
fn welcome(data_dir: &Path, postgres: SocketAddr, http: Option<SocketAddr>) -> String {
    let (port, host) = (postgres.port(), reachable(postgres));
    let flags = match (host.as_str(), port) {
        ("127.0.0.1", 5433) => String::new(),
        ("127.0.0.1", _) => format!(" -p {port}"),
        _ => format!(" -h {host} -p {port}"),
    };
    let mut lines = vec![
        ("console", format!("tarn sql{flags}")),
        ("psql", format!("psql -h {host} -p {port} -U tarn")),
        ("JDBC", format!("jdbc:postgresql://{}:{port}/tarn?user=tarn", bracketed(&host))),
    ];
    if let Some(http) = http {
        lines.push(("HTTP", format!("http://{}:{}/metrics", bracketed(&reachable(http)), http.port())));
    }
    lines.push(("data", std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned()).display().to_string()));
    lines.push(("stop", "Ctrl-C".to_owned()));
    let lines: String = lines.iter().map(|(what, text)| format!("  {what:<8} {text}\n")).collect();
    format!("\nTarn {} is ready\n{lines}\n", env!("CARGO_PKG_VERSION"))
}

/// Where a client of this machine finds what listens there: one that listens everywhere is also here.
fn reachable(address: SocketAddr) -> String {
    match address.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        ip => ip.to_string(),
    }
}

/// As it stands in a URL.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Ends when the server should stop. A second signal ends the process.
async fn stop_asked(stdin_closed: Option<oneshot::Receiver<()>>) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    let stdin_closed = async move {
        match stdin_closed {
            Some(closed) => drop(closed.await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = stdin_closed => {}
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::warn!("asked to stop twice: stopping at once");
        std::process::exit(1);
    });
}

/// Reads stdin to its end on a thread of its own.
fn stdin_closed() -> oneshot::Receiver<()> {
    let (closed, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let mut ignored = [0; 64];
        while matches!(std::io::stdin().read(&mut ignored), Ok(length) if length > 0) {}
        // The server may have stopped on its own.
        let _ = closed.send(());
    });
    receiver
}

/// In builds with failpoints, `TARN_ABORT_AT=lake::after_commit:2` ends the process, as kill -9 would, when that place
/// is reached for the second time. The kill -9 harness uses it.
fn abort_at_failpoint() -> Result<()> {
    let Ok(place) = std::env::var("TARN_ABORT_AT") else { return Ok(()) };
    if !fail::has_failpoints() {
        anyhow::bail!("TARN_ABORT_AT is set, but this program was built without failpoints");
    }
    let (name, count) =
        place.rsplit_once(':').filter(|(_, count)| count.parse::<u64>().is_ok()).unwrap_or((&place, "1"));
    let reached = std::sync::atomic::AtomicU64::new(0);
    let at: u64 = count.parse()?;
    let abort = move || {
        if reached.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 == at {
            std::process::abort();
        }
    };
    fail::cfg_callback(name, abort).map_err(|error| anyhow::anyhow!("failpoint {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_told_how_to_connect() {
        let told = welcome(Path::new("/data"), "0.0.0.0:5433".parse().unwrap(), Some("[::1]:8433".parse().unwrap()));
        for line in
            ["tarn sql\n", "psql -h 127.0.0.1 -p 5433 -U tarn\n", "http://[::1]:8433/metrics\n", "  data     /data\n"]
        {
            assert!(told.contains(line), "{told}");
        }
        let told = welcome(Path::new("/data"), "[::1]:6000".parse().unwrap(), None);
        assert!(told.contains("tarn sql -h ::1 -p 6000\n") && !told.contains("HTTP"), "{told}");
    }

    #[test]
    fn debug_has_no_statements_of_libraries() {
        let debug = filter("debug").unwrap().to_string();
        assert!(debug.contains("datafusion=info") && debug.contains("sqlparser=info"), "{debug}");
        for log in ["trace", "info", "warn,tarn=info"] {
            assert!(!filter(log).unwrap().to_string().contains("datafusion"), "{log}");
        }
        assert!(!filter("info,datafusion=debug").unwrap().to_string().contains("datafusion=info"));
    }
}
