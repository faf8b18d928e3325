//! `tarn check`: is what is on disk what was written? Reads every byte, changes nothing, names each damage by file and
//! offset.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use tarn_node::metastores::MetastoreLocation;
use tarn_raftlog::{Damage, LostEntries, RaftLog, VerifyReport};

use super::check_lake::CheckLake;
use super::client::runtime;
use super::metastore;
use super::output::grouped;

/// Read every stored byte and name what is damaged; changes nothing
#[derive(Args)]
#[command(after_help = "\
Examples:
  tarn check log ./tarn-data/log
  tarn check metastore ./tarn-data/meta
  tarn check lake --data-dir ./tarn-data

Stop the server first: what it is writing at the moment may look torn. Exit code 0: sound; 1: damaged, or not readable.")]
pub struct CheckArgs {
    #[command(subcommand)]
    what: CheckCommand,
}

#[derive(Subcommand)]
enum CheckCommand {
    /// The log: every segment, frame, record and checksum
    #[command(after_help = "\
Prints one line for each damage: file, byte, what is wrong, and the groups and entries that were there, as far as that \
can be told. A group is a tablet: `SELECT table_name, tablet_id FROM tarn.tablets`. The layout of the files is in \
docs/formats/raftlog.md.

A write that was under way when the process died is no damage: the next start cuts it off. On any other damage a server \
refuses to start. `tarn serve --log-recovery quarantine` starts all the same: tables that lost something are read-only; \
copy out what is left of them, drop them, and load them again.")]
    Log {
        /// Folder of the log: `log` in the server's data folder
        dir: PathBuf,
    },
    /// The metastore, as `tarn metastore check` does
    Metastore {
        /// Folder of the metastore: `meta` in the server's data folder
        dir: PathBuf,
    },
    Lake(Box<CheckLake>),
}

impl CheckArgs {
    /// Fails when anything is damaged, after all of it was named.
    pub fn run(self) -> Result<()> {
        match self.what {
            CheckCommand::Log { dir } => check_log(&dir),
            CheckCommand::Lake(lake) => lake.run(),
            CheckCommand::Metastore { dir } => runtime()?.block_on(metastore::check(&MetastoreLocation::Folder(dir))),
        }
    }
}

fn must_be_folder(dir: &Path) -> Result<()> {
    ensure!(dir.is_dir(), "{} is not a folder", dir.display());
    Ok(())
}

fn check_log(dir: &Path) -> Result<()> {
    must_be_folder(dir)?;
    let holds_log = |dir: &Path| dir.join("FORMAT").is_file();
    if !holds_log(dir) && holds_log(&dir.join("log")) {
        bail!("{} is the data folder: check {}", dir.display(), dir.join("log").display());
    }
    let report = RaftLog::verify(dir)?;
    ensure!(report.bytes_read > 0 || holds_log(dir), "there is no log in {}", dir.display());
    for line in describe(dir, &report) {
        say!("{line}")?;
    }
    if !report.is_sound() {
        let n_groups = report.lost.iter().map(|lost| lost.group).chain(report.damaged.iter().map(|(group, _)| *group));
        bail!(
            "{} damaged places, {} groups known to have lost entries; `tarn check log --help` says what can be done",
            report.damages.len(),
            n_groups.collect::<BTreeSet<_>>().len()
        );
    }
    say!("sound")?;
    Ok(())
}

/// One line for what was read, and one for each thing found.
fn describe(dir: &Path, report: &VerifyReport) -> Vec<String> {
    let [segments, batches, entries, bytes] =
        [report.n_segments, report.n_batches, report.n_entries, report.bytes_read].map(grouped);
    let mut lines = vec![format!(
        "{}: {segments} segments, {batches} batches, {entries} entries, {bytes} bytes read",
        dir.display()
    )];
    if let Some((path, offset)) = &report.torn_tail {
        let path = path.display();
        lines.push(format!(
            "{path}: ends at byte {offset} in a write that was never acknowledged; the next start cuts it off"
        ));
    }
    let place = |damage: &Damage| format!("{}, byte {}: {}", damage.path.display(), damage.offset, damage.what);
    lines.extend(report.mendable.iter().map(|damage| format!("{}; the next start makes it whole", place(damage))));
    lines.extend(report.damages.iter().map(place));
    lines.extend(report.lost.iter().map(|LostEntries { group, from, to }| match from == to {
        true => format!("group {group} lost entry {from}"),
        false => format!("group {group} lost entries {from}..={to}"),
    }));
    lines.extend(report.damaged.iter().map(|(group, from)| {
        format!("group {group} lost what was acknowledged, from entry {from} on: noted when it was opened all the same")
    }));
    lines
}

#[cfg(test)]
mod tests {
    use tarn_raftlog::{GroupId, Index, Options, Term};

    use super::*;

    fn flip(path: &Path, at: usize) {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn damage_is_named_by_file_offset_and_group() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_log(dir.path()).unwrap_err().to_string().starts_with("there is no log in "));
        let log_dir = dir.path().join("log");
        let options = Options { segment_bytes: 64 << 10, ..Options::new(&log_dir) };
        let (log, _) = RaftLog::open(options).unwrap();
        for index in 1..=3 {
            let mut batch = log.batch();
            batch.append(GroupId(7), Term(1), Index(index), [&b"entry"[..]]);
            log.commit(batch).unwrap();
        }
        log.close().unwrap();
        drop(log);
        check_log(&log_dir).unwrap();
        let misplaced = check_log(dir.path()).unwrap_err().to_string();
        assert!(misplaced.ends_with(&format!("is the data folder: check {}", log_dir.display())), "{misplaced}");

        let path = log_dir.join("0000000000000001.seg");
        flip(&path, 8192 + 4096 + 80);
        let report = RaftLog::verify(&log_dir).unwrap();
        let lines = describe(&log_dir, &report);
        let path = path.display();
        let want = format!("{path}, byte 12288: damaged frame in a sealed segment; it held entries 2..=2 of group 7");
        assert_eq!((lines.len(), &lines[1]), (2, &want), "{lines:?}");
        let failed = check_log(&log_dir).unwrap_err().to_string();
        assert!(failed.starts_with("1 damaged places, 0 groups known to have lost entries"), "{failed}");
    }
}
