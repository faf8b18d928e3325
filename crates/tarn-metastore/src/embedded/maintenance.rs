//! What keeps the store small and quick, while others commit and read?
//!
//! ```text
//! loose ──64 blocks or 16 MiB, or an hour that is over──> pack
//! packs ──32 alike, or an hour that is over──> one pack           half of an hour's slots gone ──> packs without them
//! log   ──larger than the last checkpoint──> checkpoint, next log;  what nothing names any more is deleted
//! ```
//!
//! One job at a time: it is planned on what is held now, written without any lock, and comes to be by one record.
//! Answers do not change: before the record block metadata is read where it was, after it where it is.
//!
//! Invariants: a pack is durable before the record that names it, and what the record leaves behind is deleted only
//! when nobody who began before still reads it. A crash at any point leaves files that nothing names: the first
//! maintenance after opening deletes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use tarn_types::TableId;

use super::inner::{CrashPoint, Limits, LogWriter, StopReason, StoreInner};
use super::journal::{Image, JournalChange};
use super::places::{self, Hour, LooseMetadata, PackChange, PackFile};
use crate::checkpoint;
use crate::error::io_error;
use crate::log::{self, Log, LogFile, UnnumberedLog};
use crate::pack::{self, MAX_SLOTS, Pack, PackInput};
use crate::{BlockMetadata, BlockRef, MaintenanceReport, Result, Stats, codec};

/// Blocks with column metadata of more bytes do not stay loose: there, one column is read with all others.
const WIDE_BYTES: u32 = 256 << 10;

/// What there is to do for one hour.
struct HourJob {
    table: TableId,
    hour: i64,
    of_hour: Arc<Hour>,
    packs: Vec<Arc<PackFile>>,
    loose: Vec<(BlockRef, Arc<LooseMetadata>)>,
}

/// A log that gave way to the next.
struct RotatedLog {
    /// Its last write.
    seq: u64,
    /// The state after that.
    image: Image,
    /// Dropping it gives space back, which is better done when nobody waits.
    before: Log,
}

/// Block metadata with filters of one size.
#[derive(Default)]
struct SameSizeBlocks {
    loose: Vec<(BlockRef, BlockMetadata)>,
    /// From the newest.
    packs: Vec<Arc<Pack>>,
}

impl StoreInner {
    pub(super) fn maintain(&self, budget_bytes: u64) -> Result<MaintenanceReport> {
        let mut done = MaintenanceReport::default();
        if budget_bytes > 0 {
            // One at a time.
            let mut doomed = self.chores.lock();
            self.mend()?;
            // Before a pack is made: it may get the name of one of these.
            self.delete_unnamed_packs()?;
            let is_stopped = || self.writer.lock().stopped.is_some();
            while done.bytes_written < budget_bytes && !is_stopped() {
                let Some(job) = self.next_job() else { break };
                self.run(job, &mut done)?;
            }
            if self.is_checkpoint_due() && !is_stopped() {
                done.bytes_written += self.checkpoint()?;
            }
            doomed.append(&mut self.doomed.lock());
            self.delete_packs(&mut doomed, &mut done)?;
            self.delete_logs()?;
            done.more = !is_stopped() && (self.next_job().is_some() || self.is_checkpoint_due());
        }
        done.stats = self.stats();
        Ok(done)
    }

    fn stats(&self) -> Stats {
        let (log_bytes, checkpoint_bytes) = {
            let writer = self.writer.lock();
            (writer.log.size_bytes(), writer.checkpoint_bytes)
        };
        let held = self.held.read();
        let block_metadata = held.places.stats();
        let Stats { bloom_bytes, column_bytes, packs, loose_blocks, .. } = block_metadata;
        let versions = held.state.stats();
        Stats { log_bytes, checkpoint_bytes, bloom_bytes, column_bytes, packs, loose_blocks, ..versions }
    }

    /// The first thing that is due. Cost: looks at every hour.
    fn next_job(&self) -> Option<HourJob> {
        let held = self.held.read();
        for (table, hours) in held.places.tables() {
            let newest = hours.last_key_value().map(|(hour, _)| *hour);
            for (hour, of_hour) in hours {
                let is_over = Some(*hour) != newest;
                let job = |packs, loose| HourJob { table, hour: *hour, of_hour: of_hour.clone(), packs, loose };
                if let Some(loose) = self.due_loose(of_hour, is_over) {
                    return Some(job(Vec::new(), loose));
                } else if of_hour.n_gone() > 0 && of_hour.n_gone() * 2 >= of_hour.n_slots() {
                    return Some(job(of_hour.packs.clone(), Vec::new()));
                } else if let Some(packs) = self.due_packs(of_hour, is_over) {
                    return Some(job(packs, Vec::new()));
                }
            }
        }
        None
    }

    /// Blocks for a pack: no more than are read into memory at once.
    fn due_loose(&self, of_hour: &Hour, is_over: bool) -> Option<Vec<(BlockRef, Arc<LooseMetadata>)>> {
        let limits = &self.limits;
        let bytes = |loose: &LooseMetadata| u64::from(loose.payload_bytes);
        let n_bytes: u64 = of_hour.loose.values().map(|loose| bytes(loose)).sum();
        let is_wide = of_hour.loose.values().any(|loose| loose.column_bytes >= WIDE_BYTES);
        let is_many = of_hour.loose.len() >= limits.loose_blocks || n_bytes >= limits.loose_bytes;
        let is_due = is_over || is_many || is_wide;
        if of_hour.loose.is_empty() || !is_due {
            return None;
        }
        let mut taken = Vec::new();
        let mut n_bytes = 0;
        for (block, loose) in of_hour.loose.iter().take(MAX_SLOTS) {
            if !taken.is_empty() && n_bytes + bytes(loose) > 2 * limits.loose_bytes {
                break;
            }
            n_bytes += bytes(loose);
            taken.push((*block, loose.clone()));
        }
        Some(taken)
    }

    /// Packs to be made one.
    fn due_packs(&self, of_hour: &Hour, is_over: bool) -> Option<Vec<Arc<PackFile>>> {
        let mut by_size: BTreeMap<u32, Vec<&Arc<PackFile>>> = BTreeMap::new();
        for pack in &of_hour.packs {
            by_size.entry(pack.n_chunks).or_default().push(pack);
        }
        let due = by_size.into_values().find_map(|mut packs| {
            packs.sort_by_key(|pack| (pack.n_slots, pack.number));
            if is_over { run_of_similar(&packs) } else { full_tier(&packs, &self.limits) }
        });
        due.map(|packs| packs.into_iter().cloned().collect())
    }

    fn run(&self, job: HourJob, done: &mut MaintenanceReport) -> Result<()> {
        self.reached(CrashPoint::Planned)?;
        let HourJob { table, hour, of_hour, packs, loose } = job;
        let add = self.write_packs(table, hour, &of_hour, &packs, &loose)?;
        done.bytes_written += add.iter().map(|pack| pack.size_bytes).sum::<u64>();
        done.packs_made += add.len() as u64;
        let paths: Vec<_> = add.iter().map(|pack| pack.path(&self.dir)).collect();
        let packed = PackChange {
            table,
            hour,
            add,
            remove: packs.iter().map(|pack| pack.number).collect(),
            loose: loose.iter().map(|(block, _)| *block).collect(),
            gone: of_hour.gone.keys().copied().collect(),
        };
        self.reached(CrashPoint::PackWritten)?;
        let mut writer = self.writer.lock();
        // A table that was dropped meanwhile needs no packs; nobody else changes which there are.
        if self.held.read().places.hours_of(table).is_none() {
            drop(writer);
            return paths.iter().try_for_each(|path| fs::remove_file(path).map_err(io_error("delete", path)));
        }
        self.write(&mut writer, JournalChange::Packed(packed))?;
        drop(writer);
        self.reached(CrashPoint::PacksNamed)
    }

    /// One pack for each size of filters. They are durable; nothing names them yet.
    fn write_packs(
        &self,
        table: TableId,
        hour: i64,
        of_hour: &Hour,
        packs: &[Arc<PackFile>],
        loose: &[(BlockRef, Arc<LooseMetadata>)],
    ) -> Result<Vec<PackFile>> {
        let mut by_size: BTreeMap<u32, SameSizeBlocks> = BTreeMap::new();
        for (block, loose) in loose {
            let payload = loose.payload()?;
            let record = codec::decode_block_metadata(&payload, codec::FORMAT);
            let record = record.map_err(|malformed| loose.corrupt(malformed.0))?;
            if (record.table, record.hour, record.file) != (table, hour, block.file) {
                return Err(loose.corrupt(format!("the details are not those of file {}", block.file)));
            }
            by_size.entry(loose.n_chunks).or_default().loose.push((*block, record.block_metadata));
        }
        for file in packs.iter().rev() {
            by_size.entry(file.n_chunks).or_default().packs.push(self.open.open(file)?);
        }
        let mut number = self.held.read().places.next_pack();
        let mut written = Vec::new();
        for SameSizeBlocks { loose, packs } in by_size.into_values() {
            let mut sources = vec![PackInput::Loose(&loose)];
            sources.extend(packs.iter().map(|pack| PackInput::Packed(pack)));
            let is_kept = |block: BlockRef| !of_hour.gone.contains_key(&block.file);
            let n_slots = sources.iter().flat_map(PackInput::blocks).filter(|block| is_kept(*block)).count();
            // Rewriting an hour of more blocks than a pack may have: ranges of them.
            for bounds in ranges(&sources, is_kept, n_slots) {
                let file = PackFile { table, hour, number, n_slots: 0, n_chunks: 0, size_bytes: 0, column_bytes: 0 };
                let path = file.path(&self.dir);
                self.make_folder(table)?;
                let is_here = |block| is_kept(block) && bounds.contains(&block);
                let pack::PackSummary { n_slots, n_chunks, size_bytes, column_bytes } =
                    pack::write(&path, table, hour, &sources, is_here)?;
                written.push(PackFile { n_slots, n_chunks, size_bytes, column_bytes, ..file });
                number += 1;
            }
        }
        Ok(written)
    }

    fn make_folder(&self, table: TableId) -> Result<()> {
        let folder = places::folder(&self.dir, table);
        if folder.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(&folder).map_err(io_error("create", &folder))?;
        log::sync_dir(&self.dir.join("packs"))?;
        log::sync_dir(&self.dir)
    }

    /// The size from which on the log is folded: rewriting then costs no more than appending did.
    fn is_due(&self, writer: &LogWriter, factor: u64) -> bool {
        let records = self.limits.log_bytes.max(writer.checkpoint_bytes);
        let block_metadata = self.limits.block_metadata_bytes.max(4 * writer.checkpoint_bytes);
        writer.log.record_bytes() > records * factor || writer.log.size_bytes() > block_metadata * factor
    }

    fn is_checkpoint_due(&self) -> bool {
        self.is_due(&self.writer.lock(), 1)
    }

    /// After a change: a store that nobody drives folds its log by itself, long after it was due.
    pub(super) fn bound_log(&self, writer: &mut LogWriter) {
        if writer.stopped.is_some() || !self.is_due(writer, self.limits.patience) {
            return;
        }
        // The change is durable whether this works or not; if not, the log grows on and the next change tries again.
        let _ = self.fold(writer);
    }

    /// Folds the log while nobody else writes.
    pub(super) fn fold(&self, writer: &mut LogWriter) -> Result<()> {
        let RotatedLog { seq, image, .. } = self.turn_log(writer, UnnumberedLog::create(&self.dir, "commit")?)?;
        writer.checkpoint_bytes = self.write_checkpoint(seq, &image)?;
        writer.checkpoint_seq = seq;
        checkpoint::remove_before(&self.dir, seq)?;
        delete_logs(&writer.covered_logs())
    }

    /// Folds the log while others write. Answers the bytes of the checkpoint.
    ///
    /// Each step leaves a folder that opens to the same state: first there is a new log behind the old one, then the
    /// checkpoint beside both, then what it covers is deleted.
    fn checkpoint(&self) -> Result<u64> {
        let prepared = UnnumberedLog::create(&self.dir, "upkeep")?;
        self.reached(CrashPoint::LogPrepared)?;
        let RotatedLog { seq, image, before } = {
            let mut writer = self.writer.lock();
            self.turn_log(&mut writer, prepared)?
        };
        drop(before);
        self.reached(CrashPoint::LogTurned)?;
        let n_bytes = self.write_checkpoint(seq, &image)?;
        self.reached(CrashPoint::CheckpointWritten)?;
        let checkpoint_seq = {
            let mut writer = self.writer.lock();
            if seq >= writer.checkpoint_seq {
                (writer.checkpoint_seq, writer.checkpoint_bytes) = (seq, n_bytes);
            }
            writer.checkpoint_seq
        };
        checkpoint::remove_before(&self.dir, checkpoint_seq)?;
        Ok(n_bytes)
    }

    fn write_checkpoint(&self, seq: u64, image: &Image) -> Result<u64> {
        let mut writer = checkpoint::CheckpointWriter::create(&self.dir, seq)?;
        let mut rest = image.encode(|encoded| writer.offer(encoded))?;
        writer.finish(&mut rest)
    }

    /// Lets the next log begin.
    fn turn_log(&self, writer: &mut LogWriter, next: UnnumberedLog) -> Result<RotatedLog> {
        writer.log.finish()?;
        let seq = writer.log.last_seq();
        // If it is there but not for good, the log must not go on beside it.
        let next = next.install(seq + 1).inspect_err(|_| writer.stopped = Some(StopReason::Unsynced))?;
        let before = std::mem::replace(&mut writer.log, next);
        // An empty log gave its name to the next one.
        if before.file().first_seq <= seq {
            writer.older.push(before.file().clone());
        }
        let held = self.held.read();
        Ok(RotatedLog { seq, image: Image::of(&held.state, &held.places), before })
    }

    fn delete_packs(&self, doomed: &mut Vec<Arc<PackFile>>, done: &mut MaintenanceReport) -> Result<()> {
        let mut kept = Vec::new();
        for pack in doomed.drain(..) {
            // Whoever reads an hour holds its packs.
            if Arc::strong_count(&pack) > 1 {
                kept.push(pack);
                continue;
            }
            self.open.close(pack.number);
            let path = pack.path(&self.dir);
            match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io_error("delete", &path)(e)),
                _ => done.packs_removed += 1,
            }
            self.reached(CrashPoint::PackDeleted)?;
        }
        *doomed = kept;
        Ok(())
    }

    pub(super) fn delete_unnamed_packs(&self) -> Result<()> {
        let unnamed = std::mem::take(&mut *self.unnamed_packs.lock());
        unnamed.iter().try_for_each(|path| match fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(io_error("delete", path)(e)),
            _ => Ok(()),
        })
    }

    fn delete_logs(&self) -> Result<()> {
        let covered = self.writer.lock().covered_logs();
        delete_logs(&covered)?;
        self.reached(CrashPoint::OldDeleted)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests stop here")]
    fn reached(&self, _step: CrashPoint) -> Result<()> {
        Ok(())
    }

    #[cfg(test)]
    fn reached(&self, step: CrashPoint) -> Result<()> {
        let mut stop_at = self.stop_at.lock();
        match &mut *stop_at {
            Some((at, 0)) if *at == step => Err(io_error("stop at", &self.dir)(std::io::Error::other("a test"))),
            Some((at, n)) if *at == step => {
                *n -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl LogWriter {
    /// Takes out the logs that the checkpoint covers and that no block metadata is read from. A log that is not deleted
    /// then, because that failed, is seen again when the store is opened.
    fn covered_logs(&mut self) -> Vec<Arc<LogFile>> {
        let next: Vec<u64> = self.older.iter().skip(1).chain([self.log.file()]).map(|log| log.first_seq).collect();
        let checkpoint_seq = self.checkpoint_seq;
        // Loose block metadata holds the log that they are in.
        let is_covered = |log: &Arc<LogFile>, next: u64| next <= checkpoint_seq + 1 && Arc::strong_count(log) == 1;
        let logs = std::mem::take(&mut self.older).into_iter().zip(next);
        let (covered, kept): (Vec<_>, Vec<_>) = logs.partition(|(log, next)| is_covered(log, *next));
        self.older = kept.into_iter().map(|(log, _)| log).collect();
        covered.into_iter().map(|(log, _)| log).collect()
    }
}

fn delete_logs(logs: &[Arc<LogFile>]) -> Result<()> {
    for log in logs {
        match fs::remove_file(log.path()) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io_error("delete", log.path())(e)),
            _ => {}
        }
    }
    Ok(())
}

/// Of packs from small to large, those to be made one in an hour that is over: each no larger than twice those before
/// it together. So one late block never rewrites a full hour.
fn run_of_similar<'a>(packs: &[&'a Arc<PackFile>]) -> Option<Vec<&'a Arc<PackFile>>> {
    (0..packs.len()).find_map(|start| {
        let mut sum = u64::from(packs[start].n_slots);
        let similar = packs[start + 1..].iter().take_while(|pack| {
            let (fits, larger) = (u64::from(pack.n_slots) <= 2 * sum, sum + u64::from(pack.n_slots));
            sum = larger;
            fits && larger <= MAX_SLOTS as u64
        });
        let n_similar = similar.count();
        (n_similar > 0).then(|| packs[start..=start + n_similar].to_vec())
    })
}

/// The same while the hour goes on: enough packs of about one size. Each block is rewritten once for every such size.
fn full_tier<'a>(packs: &[&'a Arc<PackFile>], limits: &Limits) -> Option<Vec<&'a Arc<PackFile>>> {
    let mut tiers: BTreeMap<u32, Vec<&Arc<PackFile>>> = BTreeMap::new();
    for pack in packs {
        let tier = (u64::from(pack.n_slots) / limits.loose_blocks as u64).max(1).ilog(limits.merged_packs as u64);
        tiers.entry(tier).or_default().push(pack);
    }
    tiers.into_values().find_map(|mut tier| {
        tier.truncate(limits.merged_packs);
        let n_slots: usize = tier.iter().map(|pack| pack.n_slots as usize).sum();
        (tier.len() == limits.merged_packs && n_slots <= MAX_SLOTS).then_some(tier)
    })
}

/// All kept blocks of the sources in ranges of no more than a pack may have; none when there are none.
fn ranges(
    sources: &[PackInput<'_>],
    is_kept: impl Fn(BlockRef) -> bool,
    n_slots: usize,
) -> Vec<std::ops::RangeInclusive<BlockRef>> {
    if n_slots == 0 {
        return Vec::new();
    }
    let blocks: BTreeSet<BlockRef> =
        sources.iter().flat_map(PackInput::blocks).filter(|block| is_kept(*block)).collect();
    let blocks: Vec<BlockRef> = blocks.into_iter().collect();
    blocks.chunks(MAX_SLOTS).map(|range| range[0]..=range[range.len() - 1]).collect()
}
