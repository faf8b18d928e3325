//! A server of one's own: `tarn serve` as a child process on free loopback ports, with a data folder that it owns.
//!
//! The child stops when its stdin closes, so that it does not outlive its parent, however that ends.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::client::Target;

/// The child process; it is killed when this is dropped.
pub struct ServerProcess {
    child: Child,
    /// Where it listens for PostgreSQL's clients.
    pub pg_port: u16,
}

impl ServerProcess {
    /// Starts a server on `data_dir` and waits until it is ready. Its log goes to `<data_dir>/server.log`.
    pub fn start(data_dir: &Path, settings: &[(&str, &str)]) -> Result<ServerProcess> {
        std::fs::create_dir_all(data_dir).with_context(|| format!("create {}", data_dir.display()))?;
        let log_path = data_dir.join("server.log");
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log_path)
            .with_context(|| format!("open {}", log_path.display()))?;
        let program = std::env::current_exe().context("find this program")?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--stop-when-stdin-closes").arg("--data-dir").arg(data_dir);
        command.args(["--pg-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
        for (name, value) in settings {
            command.arg(format!("--{}", name.replace('_', "-"))).arg(value);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().context("start tarn serve")?;
        let stdout = child.stdout.take().context("the server's stdout")?;
        let mut server = ServerProcess { child, pg_port: 0 };
        for line in BufReader::new(stdout).lines() {
            if let Some(port) = postgres_port(&line?) {
                server.pg_port = port;
                return Ok(server);
            }
        }
        let log = std::fs::read_to_string(&log_path).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        bail!("the server did not start: {}", last.into_iter().rev().collect::<Vec<_>>().join(" / "))
    }

    /// How to connect to it.
    pub fn target(&self) -> Target {
        Target::local(self.pg_port)
    }

    /// Asks it to stop, waits, and kills it when it takes longer than `patience`.
    pub fn stop(&mut self, patience: Duration) {
        drop(self.child.stdin.take());
        let started = Instant::now();
        while started.elapsed() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The port in the line `ready postgres=127.0.0.1:40123 http=…`.
fn postgres_port(line: &str) -> Option<u16> {
    let address = line.strip_prefix("ready postgres=")?.split_whitespace().next()?;
    address.rsplit(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_ready_line_names_the_port() {
        assert_eq!(super::postgres_port("ready postgres=127.0.0.1:40123 http=off"), Some(40123));
        assert_eq!(super::postgres_port("starting"), None);
    }
}
