//! The shipped binary as a child process that can be killed.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use tokio_postgres::{Client, NoTls};

/// A running server. Dropping it kills it.
pub struct ChildServer {
    child: parking_lot::Mutex<Child>,
    pub port: u16,
    /// Where HTTP is, if `arguments` asked for it.
    #[allow(dead_code)] // not by every test binary
    pub http: Option<SocketAddr>,
}

impl ChildServer {
    /// Waits until it is ready; an error if it ends before. Its data and its log are in `folder`. S3 is what
    /// `variables` say.
    pub async fn start(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result<ChildServer> {
        let log = std::fs::File::options().create(true).append(true).open(folder.join("server.log"))?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tarn"));
        command.arg("serve").arg("--stop-when-stdin-closes").arg("--data-dir").arg(folder.join("data"));
        command.args(["--pg-listen", "127.0.0.1:0"]).args(arguments);
        if !arguments.contains(&"--http-listen") {
            command.args(["--http-listen", ""]);
        }
        std::env::vars().filter(|(name, _)| name.starts_with("AWS_")).for_each(|(name, _)| {
            command.env_remove(name);
        });
        command.envs(variables.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let stdout = child.stdout.take().context("stdout of the server")?;
        let ready = tokio::task::spawn_blocking(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).find_map(|line| ready(&line))
        })
        .await?;
        let (port, http) = ready.unwrap_or_default();
        let server = ChildServer { child: parking_lot::Mutex::new(child), port, http };
        if ready.is_none() {
            server.wait();
            bail!("the server ended before it was ready: {}", last_lines(&folder.join("server.log")));
        }
        Ok(server)
    }

    pub async fn connect(&self) -> Result<Client> {
        let (client, connection) =
            tokio_postgres::connect(&format!("host=127.0.0.1 port={} user=tarn dbname=tarn", self.port), NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// As an operator would: it ends by itself.
    #[allow(dead_code)] // not by every test binary
    pub fn stop(&self) -> Result<()> {
        drop(self.child.lock().stdin.take());
        let status = self.child.lock().wait()?;
        if !status.success() {
            bail!("the server ended with {status}");
        }
        Ok(())
    }

    /// As an operator would; does not wait.
    #[allow(dead_code)] // not by every test binary
    pub fn ask_to_stop(&self) {
        drop(self.child.lock().stdin.take());
    }

    /// SIGKILL.
    pub fn kill(&self) {
        let _ = self.child.lock().kill();
    }

    /// Has the process ended, by itself or not?
    #[allow(dead_code)] // not by every test binary
    pub fn has_ended(&self) -> bool {
        !matches!(self.child.lock().try_wait(), Ok(None))
    }

    pub fn wait(&self) {
        let _ = self.child.lock().wait();
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        self.kill();
        self.wait();
    }
}

fn ready(line: &str) -> Option<(u16, Option<SocketAddr>)> {
    let mut words = line.strip_prefix("ready postgres=")?.split_whitespace();
    let port = words.next()?.rsplit(':').next()?.parse().ok()?;
    Some((port, words.next()?.strip_prefix("http=")?.parse().ok()))
}

fn last_lines(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}
