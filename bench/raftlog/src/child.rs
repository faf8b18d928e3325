//! How is one measurement run? In a process of its own: this program again, or Badger's.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::job::{EngineName, Job, JobOutput};

/// After this long a measurement is given up.
const PATIENCE: Duration = Duration::from_secs(600);

/// The programs that measure.
pub struct Children {
    this: PathBuf,
    badger: Option<PathBuf>,
}

impl Children {
    /// `badger` is the Go program, if it was built.
    pub fn new(badger: Option<PathBuf>) -> Result<Children> {
        Ok(Children { this: std::env::current_exe()?, badger })
    }

    /// Runs a job and returns its answer. An engine that fails or panics is an error with the last line it wrote.
    pub fn run(&self, job: &Job) -> Result<JobOutput> {
        let mut command = match (job.engine, &self.badger) {
            (EngineName::Badger, Some(badger)) => Command::new(badger),
            (EngineName::Badger, None) => bail!("the program of Badger was not built"),
            _ => Command::new(&self.this),
        };
        if job.engine != EngineName::Badger {
            command.arg("job");
        }
        command.arg(serde_json::to_string(job)?);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let errors = child.stderr.take().context("stderr of the child")?;
        let errors = std::thread::spawn(move || last_line(errors));
        let output = child.stdout.take().context("stdout of the child")?;
        let output = std::thread::spawn(move || last_line(output));
        let status = wait(&mut child)?;
        let said = |handle: std::thread::JoinHandle<String>| handle.join().unwrap_or_default();
        ensure!(status.success(), "{status}: {}", said(errors));
        let answer = said(output);
        serde_json::from_str(&answer).with_context(|| format!("answer {answer:?}"))
    }
}

fn wait(child: &mut Child) -> Result<std::process::ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            bail!("no answer after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn last_line(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    // What was read before a failure is still worth telling.
    let _ = from.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    text.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with("note:")).unwrap_or_default().to_owned()
}
