//! One byte of a log changes while nobody looks. Who says so?
//!
//! A small log is written, every commit acknowledged as durable, and its process ends without closing. For each try the
//! folder is copied, one bit is flipped in the newest file (the one that holds the last entry), in a byte between its
//! first entry and its last that is not zero (padding carries nothing), and the copy is opened and compared. *Silent*
//! is a try in which acknowledged entries are gone though opening said nothing, or other bytes come back.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::child::Children;
use crate::job::{Job, JobOutput, Task};
use crate::measure::for_each_file;
use crate::payload::checked_payload;

/// Files of engines are mostly holes after this.
const SEARCHED_BYTES: u64 = 64 << 20;

/// Answers `silent`, `refused` and `reported` tries (of `tries`), and `lost_entries`, those of the silent tries.
pub fn run(children: &Children, job: &Job, scratch: &Path, n_tries: u64) -> Result<JobOutput> {
    let whole = scratch.join("whole");
    children.run(&Job { dir: whole.clone(), ..job.clone() })?;
    let (file, offsets) = newest(&whole, job)?;
    let mut totals = [0.0; 4];
    for at in 0..n_tries {
        let copy = scratch.join("copy");
        copy_folder(&whole, &copy)?;
        let offset = offsets[offsets.len() * (2 * at as usize + 1) / (2 * n_tries as usize)];
        flip(&copy.join(&file), offset, at)?;
        let outcome = children.run(&Job { dir: copy.clone(), task: Task::Check, ..job.clone() });
        fs::remove_dir_all(&copy)?;
        let Ok(found) = outcome else {
            totals[1] += 1.0; // it refused to open
            continue;
        };
        let [lost, wrong, refused, reported] = ["lost", "wrong", "refused", "reported"].map(|name| found.figures[name]);
        if wrong > 0.0 || (lost > 0.0 && reported == 0.0) {
            totals[0] += 1.0;
            totals[3] += lost + wrong;
        } else if refused > 0.0 {
            totals[1] += 1.0;
        } else if reported > 0.0 {
            totals[2] += 1.0;
        }
    }
    let mut answer = JobOutput::default();
    answer.set("tries", n_tries as f64);
    for (name, total) in ["silent", "refused", "reported", "lost_entries"].into_iter().zip(totals) {
        answer.set(name, total);
    }
    Ok(answer)
}

/// The file, relative to the folder, that holds the last entry, and its bytes from the first entry in it to the end of
/// the last, those that are not zero.
fn newest(dir: &Path, job: &Job) -> Result<(PathBuf, Vec<u64>)> {
    let mut found = None;
    let last = checked_payload(job.groups, job.entries, job.entry_bytes);
    for_each_file(dir, &mut |path| {
        let mut bytes = Vec::new();
        File::open(path)?.take(SEARCHED_BYTES).read_to_end(&mut bytes)?;
        let Some(end) = find(&bytes, &last) else { return Ok(()) };
        let entries = (1..=job.entries).flat_map(|index| (1..=job.groups).map(move |group| (group, index)));
        let first = entries.into_iter().find_map(|(g, i)| find(&bytes, &checked_payload(g, i, job.entry_bytes)));
        let start = first.context("the first entry")?;
        let offsets = (start..end + last.len()).filter(|&at| bytes[at] != 0).map(|at| at as u64);
        found = Some((path.strip_prefix(dir)?.to_owned(), offsets.collect::<Vec<u64>>()));
        Ok(())
    })?;
    let (file, offsets) = found.context("no file holds the last entry as it was written")?;
    ensure!(!offsets.is_empty(), "the last entry of {} lies before its first", file.display());
    Ok((file, offsets))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|&byte| byte == first).map(|at| from + at) {
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    // cp keeps holes: the files of some engines are gigabytes of them.
    let done =
        Command::new("cp").args(["-a", "--sparse=always"]).arg(from.join(".")).arg(to).status().context("run cp")?;
    ensure!(done.success(), "cp: {done}");
    Ok(())
}

fn flip(path: &Path, offset: u64, at: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    file.write_all_at(&[byte[0] ^ 1 << (at % 8)], offset)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn finding() {
        assert_eq!(super::find(b"abcabd", b"abd"), Some(3));
        assert_eq!(super::find(b"abc", b"abd"), None);
        assert_eq!(super::find(b"ab", b"abd"), None);
    }
}
