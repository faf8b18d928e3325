//! What did an earlier process leave in the folder? Values are taken over by the names and sizes of their files; what
//! they hold is tested when they are read. What makes no sense is deleted.

use std::fs;
use std::io::{self, Read};
use std::path::Path as FsPath;

use super::cache::{DiskCache, weight};
use super::format;
use super::judge::{FolderContent, GroupValidator};
use super::key::{DiskKey, EntryId};

/// How much of a file is read to learn whose values a folder holds.
const FIRST_READ_BYTES: u64 = 4096;

impl<K: DiskKey> DiskCache<K> {
    /// Lists what an earlier process left. Whole folders that make no sense are deleted; the files' own checksums are
    /// tested when read.
    pub(super) fn recover(&self, judge: &mut impl GroupValidator) -> io::Result<()> {
        for shard in fs::read_dir(&self.root)? {
            let shard = shard?.path();
            let Ok(folders) = fs::read_dir(&shard) else {
                self.delete_foreign(&shard);
                continue;
            };
            for folder in folders {
                let folder = folder?.path();
                match self.recover_group(&folder, judge) {
                    FolderContent::Values { .. } => {}
                    FolderContent::Useless => drop(fs::remove_dir_all(&folder)),
                    FolderContent::Foreign => self.delete_foreign(&folder),
                }
            }
        }
        Ok(())
    }

    fn recover_group(&self, folder: &FsPath, judge: &mut impl GroupValidator) -> FolderContent {
        let group = hex(folder, 32).filter(|group| self.folder(*group) == folder);
        let (Some(group), Ok(files)) = (group, fs::read_dir(folder)) else { return FolderContent::Foreign };
        let mut found = vec![];
        for file in files.filter_map(|file| file.ok()) {
            let (path, len) = (file.path(), file.metadata().ok().filter(|m| m.is_file()).map(|m| m.len()));
            match (hex(&path, K::ITEM_DIGITS), len) {
                (Some(item), Some(len)) => found.push((item, len, path)),
                _ => self.delete_foreign(&path),
            }
        }
        if found.first().is_some_and(|(_, _, path)| is_of_another_version::<K>(path)) {
            return FolderContent::Useless;
        }
        let read_key = || found.iter().find_map(|(_, _, path)| readable_key::<K>(path));
        let left = judge(group, &read_key);
        if let FolderContent::Values { end } = left {
            let mut state = self.state.lock();
            for (item, len, path) in found {
                if item >= end || !state.kept.insert_kept(EntryId { group, item }, weight(len), weight(len)) {
                    let _ = fs::remove_file(path);
                }
            }
        }
        left
    }

    fn delete_foreign(&self, path: &FsPath) {
        let is_temporary = path.extension().is_some_and(|e| e == "tmp");
        if !is_temporary {
            self.state.lock().stats.damaged += 1;
        }
        let _ = fs::remove_dir_all(path).or_else(|_| fs::remove_file(path));
    }
}

/// Whether an older or newer program wrote it, which wrote the others beside it, too.
fn is_of_another_version<K: DiskKey>(path: &FsPath) -> bool {
    let mut magic = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic[..3] == K::MAGIC[..3] && magic[3] != K::MAGIC[3]
}

fn readable_key<K: DiskKey>(path: &FsPath) -> Option<Vec<u8>> {
    let mut start = vec![];
    let mut file = fs::File::open(path).ok()?;
    (&mut file).take(FIRST_READ_BYTES).read_to_end(&mut start).ok()?;
    let missing = format::announced_len(&start)?.saturating_sub(start.len() as u64);
    file.take(missing).read_to_end(&mut start).ok()?;
    format::read_header(K::MAGIC, &start).map(|header| header.key.to_vec())
}

/// The number that a file is named by, if it is written as the cache writes it.
fn hex(path: &FsPath, digits: usize) -> Option<u128> {
    let name = path.file_name()?.to_str()?;
    let number = u128::from_str_radix(name, 16).ok()?;
    (format!("{number:0digits$x}") == name).then_some(number)
}
