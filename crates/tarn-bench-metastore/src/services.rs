//! Where are the servers? Somebody's, or started for this run with the scripts of the tests, on folders that go when it
//! ends.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A server and how it is reached; stopped when this is dropped, if it was started here.
pub struct Service {
    pub url: String,
    /// `None`: somebody else's.
    pub dir: Option<PathBuf>,
    script: PathBuf,
}

impl Service {
    /// `name` is that of a script in `scripts/services`.
    pub fn start(name: &str, url: Option<&str>, scratch: &Path) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services").join(name);
        if let Some(url) = url {
            return Ok(Self { url: url.to_owned(), dir: None, script });
        }
        // Postgres runs as a user of its own, and has to get there.
        fs::set_permissions(scratch, Permissions::from_mode(0o755))?;
        let dir = scratch.join(name);
        let start = || Command::new(&script).arg("start").arg(&dir).stderr(Stdio::inherit()).output();
        let out = start().with_context(|| format!("start {}", script.display()))?;
        ensure!(out.status.success(), "{name} did not start");
        let url = String::from_utf8(out.stdout)?.trim().to_owned();
        Ok(Self { url, dir: Some(dir), script })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let Some(dir) = &self.dir else { return };
        let _ = Command::new(&self.script).arg("stop").arg(dir).stdout(Stdio::null()).status();
        let _ = fs::remove_dir_all(dir);
    }
}
