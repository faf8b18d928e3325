//! How do old versions go, and what becomes of what they leave behind?
//!
//! ```text
//! expire   1 commits up to the new oldest version are folded into `blocks`, `dead_rows`, `bases`     again and again, if need be
//!          2 head: oldest, oldest_seq                                                                from here on they are forgotten
//! maintain 3 block metadata and rows of files that are gone, and the log up to oldest_seq, are deleted
//! ```
//!
//! Whoever stops between the steps leaves what the next one finds: rows of versions that are not in yet count for
//! nobody, and files that are gone stand in `blocks` until all else of them is deleted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use scylla::errors::ExecutionError;

use tarn_metastore::backend::{StateRecord, put_bitmap, put_cursor};
use tarn_metastore::{Block, CHUNK_BYTES, CommitInfo, Error, File, MaintenanceReport, Result, Stats, VersionSelector};
use tarn_types::{FileId, TableId, Version};

use crate::CqlInner;
use crate::cache::{FileMeta, Garbage, LogHead};
use crate::layout::RowLayout;
use crate::patience::RetryBudget;
use crate::requests::{Request, done};
use crate::rows::ROW_OVERHEAD;
use crate::session::{Cas, Statement};
use crate::tables::{BUCKET, CATALOG, COLUMN_LIST, FILE_ROW};
use crate::wire::{BlockMeta, encode_file, sealed};

/// How often others may move the base first.
const LOSSES: usize = 16;

/// What a deletion costs, about.
const MARK_BYTES: u64 = 50;

impl CqlInner {
    /// Moves the base of a table's log, by one conditional statement, and answers the files that no version needs any
    /// more. Their metadata is deleted by later maintenance.
    pub async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
        for _ in 0..LOSSES {
            self.refresh(table).await?;
            let checked = self.cache.read().state.check_expire(table, keep)?;
            let Some((gone, StateRecord::Expire { .. })) = checked else { return Ok(Vec::new()) };
            let (oldest, oldest_seq, epoch, layout) = {
                let cache = self.cache.read();
                let loaded = cache.loaded.get(&table).ok_or(Error::NoTableId { table })?;
                let oldest = cache.state.table(table)?.oldest.version;
                (oldest, loaded.oldest_seq, loaded.epoch, cache.catalog.layout)
            };
            layout.check_writes(self.known, &self.store.address)?;
            let keep_seq = self.fold(table, keep).await?;
            if self.move_base(table, (oldest, oldest_seq), (keep, keep_seq)).await? {
                let seen = LogHead {
                    seq: 0,
                    version: keep,
                    tip: crate::cache::NO_TIP,
                    oldest: keep,
                    oldest_seq: keep_seq,
                    restoring: false,
                    dropped: false,
                    epoch,
                };
                let followed = self.cache.write().follow(table, &seen);
                followed.map_err(|reason| self.store.damaged(format!("table {table}"), reason))?;
                return Ok(gone);
            }
        }
        Err(self.store.unavailable("others always came first"))
    }

    /// Step 1. Answers the place of `keep` in the log.
    pub async fn fold(&self, table: TableId, keep: Version) -> Result<i64> {
        let (base, commits, mut files, seq) = {
            let cache = self.cache.read();
            let of = cache.state.table(table)?;
            let loaded = cache.loaded.get(&table).ok_or(Error::NoTableId { table })?;
            let base = of.snapshot(VersionSelector::Version(keep))?;
            let commits: Vec<_> = of.commits.iter().take_while(|info| info.version <= keep).cloned().collect();
            // Each version is one commit of the log, but for those that restored the first one.
            let seq = loaded.seq - (of.latest().version.0 - keep.0) as i64;
            let added = commits.iter().flat_map(|info| &info.added);
            let mut files: HashMap<FileId, i64> = added.map(|file| (file.id, file.hour)).collect();
            let touched = commits.iter().flat_map(|info| info.removed.iter().chain(info.deletion_vectors.keys()));
            let before = touched.filter_map(|file| of.oldest.file(*file)).map(|file| (file.id, file.hour));
            files.extend(before.collect::<Vec<_>>());
            (base, commits, files, seq)
        };
        let restored = self.restored_files(table).await?;
        files.extend(restored.iter().flat_map(|info| &info.added).map(|file| (file.id, file.hour)));
        let mut hours: HashSet<i64> = commits.iter().flat_map(|info| &info.added).map(|file| file.hour).collect();
        hours.extend(restored.iter().flat_map(|info| &info.added).map(|file| file.hour));
        for hour in hours {
            match self.store.compare_and_set(&self.statements.hour_put, (table.0 as i32, hour)).await {
                Cas::Applied | Cas::Refused => {}
                Cas::Unsent(error) | Cas::Unknown(error) => return Err(self.store.unavailable(error)),
            }
        }
        let mut requests: Vec<Request<'_, ()>> = Vec::new();
        for info in restored.iter().chain(&commits) {
            requests.push(Box::pin(self.fold_commit(table, info, &files)));
        }
        done(self.store.concurrency, requests).await?;
        let mut cursor = Vec::new();
        put_cursor(&mut cursor, &base.cursor);
        let (n_files, id_sum) = extent(base.files.iter().map(|file| file.id));
        let row = (table.0 as i32, keep.0 as i64, sealed(cursor), base.committed_ms, n_files, id_sum);
        self.store.write(&self.statements.base_put, row).await?;
        Ok(seq)
    }

    /// The commits that made the first version of a copied table, while they are not in the base: the state does not
    /// keep them.
    async fn restored_files(&self, table: TableId) -> Result<Vec<Arc<CommitInfo>>> {
        let (n_restored, tip) = {
            let cache = self.cache.read();
            let loaded = cache.loaded.get(&table).ok_or(Error::NoTableId { table })?;
            let of = cache.state.table(table)?;
            (loaded.seq - of.commits.len() as i64, (loaded.seq, loaded.tip))
        };
        let is_copy = self.cache.read().catalog.tables.get(&table).is_some_and(|of| of.restoring);
        let from = self.cache.read().loaded.get(&table).map_or(0, |loaded| loaded.oldest_seq);
        if !is_copy || from > 0 || n_restored == 0 {
            return Ok(Vec::new());
        }
        let Some(commits) = self.read_log(table, (0, None), tip).await? else {
            return Err(self.store.damaged(format!("the log of table {table}"), "does not lead to its head"));
        };
        Ok(commits.into_iter().take(n_restored as usize).map(|of| of.info).collect())
    }

    async fn fold_commit(&self, table: TableId, info: &CommitInfo, hours: &HashMap<FileId, i64>) -> Result<()> {
        let (id, version) = (table.0 as i32, info.version.0 as i64);
        for file in &info.added {
            let metas = {
                let cache = self.cache.read();
                let meta = cache.loaded.get(&table).and_then(|loaded| loaded.files.get(&file.id));
                meta.map_or(Vec::new(), |meta| meta.blocks.clone())
            };
            let whole = File { blocks: Vec::new(), ..(**file).clone() };
            let row = (id, file.hour, file.id.0 as i64, FILE_ROW, version, encode_file(&whole, &[]));
            self.store.write(&self.statements.file_put, row).await?;
            for block in &file.blocks {
                let of_block: Vec<BlockMeta> =
                    metas.iter().filter(|meta| meta.row_group == block.row_group).copied().collect();
                let row = encode_file(&block_file(file, block), &of_block);
                let row = (id, file.hour, file.id.0 as i64, block.row_group as i32, version, row);
                self.store.write(&self.statements.block_put, row).await?;
            }
        }
        for file in &info.removed {
            let hour = self.hour_of(table, *file, hours)?;
            let row = (version, id, hour, file.0 as i64, FILE_ROW);
            self.store.write(&self.statements.file_removed, row).await?;
        }
        for (file, dead) in &info.deletion_vectors {
            let hour = self.hour_of(table, *file, hours)?;
            let mut bits = Vec::new();
            put_bitmap(&mut bits, dead);
            let row = (id, hour, file.0 as i64, version, sealed(bits));
            self.store.write(&self.statements.dead_put, row).await?;
        }
        Ok(())
    }

    fn hour_of(&self, table: TableId, file: FileId, hours: &HashMap<FileId, i64>) -> Result<i64> {
        let missing = || self.store.damaged(format!("the log of table {table}"), format!("file {file} is not in it"));
        hours.get(&file).copied().ok_or_else(missing)
    }

    /// Step 2. False: another moved it first.
    async fn move_base(&self, table: TableId, from: (Version, i64), to: (Version, i64)) -> Result<bool> {
        let ((oldest, oldest_seq), (keep, keep_seq)) = (from, to);
        let values = (keep.0 as i64, keep_seq, table.0 as i32, oldest.0 as i64, oldest_seq);
        let mut patience = RetryBudget::new(self.store.timeout);
        let mut lost_answer = None;
        loop {
            match self.store.compare_and_set(&self.statements.head_oldest, values).await {
                Cas::Applied => return Ok(true),
                Cas::Refused if lost_answer.is_none() => return Ok(false),
                Cas::Unsent(error) if lost_answer.is_none() => return Err(self.store.unavailable(error)),
                Cas::Unsent(error) | Cas::Unknown(error) => lost_answer = Some(error),
                Cas::Refused => {}
            }
            let head = self.head(table).await;
            match &head {
                // To the same place: by ours, or by one that is as good.
                Ok(Some(head)) if head.oldest == keep && !head.dropped => return Ok(true),
                Ok(Some(head)) if head.oldest != oldest || head.dropped => return Ok(false),
                _ => {}
            }
            if !patience.again(head.is_ok()).await {
                let error = lost_answer.unwrap_or(ExecutionError::EmptyPlan);
                return Err(self.unknown("expire versions of", error));
            }
        }
    }

    /// Deletes metadata of blocks that no kept version has, and parts of logs that are in their tables' bases, within
    /// the budget; then counts what there is.
    pub async fn maintain(&self, budget_bytes: u64) -> Result<MaintenanceReport> {
        self.refresh_catalog().await?;
        let tables: Vec<TableId> = self.cache.read().state.tables.keys().copied().collect();
        for table in &tables {
            match self.refresh(*table).await {
                // Dropped just now.
                Err(Error::NoTableId { .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        let mut done = MaintenanceReport::default();
        if budget_bytes > 0 {
            self.find_dropped().await?;
            while done.bytes_written < budget_bytes
                && let Some(garbage) = self.next_garbage()
            {
                match self.clear(&garbage).await {
                    Ok(bytes) => done.bytes_written += bytes,
                    Err(error) => {
                        self.cache.write().garbage.push(garbage);
                        return Err(error);
                    }
                }
            }
            done.more = !self.cache.read().garbage.is_empty();
            if !done.more {
                for table in tables {
                    done.bytes_written += self.trim_log(table).await?;
                }
                self.forget_dropped().await?;
            }
        }
        done.stats = self.stats();
        Ok(done)
    }

    fn next_garbage(&self) -> Option<Garbage> {
        self.cache.write().garbage.pop()
    }

    /// Step 3 for one file; its row in `blocks` goes last.
    async fn clear(&self, garbage: &Garbage) -> Result<u64> {
        let Garbage { table, file, meta } = garbage;
        let FileMeta { hour, blocks, .. } = meta;
        let (id, of_file) = (table.0 as i32, file.0 as i64);
        let n_chunks = blocks.iter().map(|block| block.n_chunks).max().unwrap_or(0);
        let layout = self.cache.read().catalog.layout;
        let mut bytes = 3 * MARK_BYTES;
        for rows in layout.writes() {
            let (statement, width) = match rows {
                RowLayout::Fixed => (&self.statements.chunks_1_forget, 1),
                RowLayout::Wide => (&self.statements.chunks_forget, self.width(*table, *hour).await?.unwrap_or(1)),
            };
            let parts: Vec<i32> = (0..n_chunks.div_ceil(width)).map(|slot| slot as i32).collect();
            bytes += parts.len() as u64 * MARK_BYTES;
            self.forget_parts(statement, id, *hour, of_file, parts).await?;
        }
        if blocks.iter().any(|block| block.n_columns > 0) {
            let columns = self.columns_of_file(*table, *hour, *file, blocks).await?;
            let mut parts: Vec<i32> = columns.iter().map(|column| column.0 as i32).collect();
            bytes += parts.len() as u64 * MARK_BYTES;
            self.forget_parts(&self.statements.column_forget, id, *hour, of_file, std::mem::take(&mut parts)).await?;
            self.forget_parts(&self.statements.column_forget, id, *hour, of_file, vec![COLUMN_LIST]).await?;
        }
        self.store.write(&self.statements.dead_forget, (id, *hour, of_file)).await?;
        self.store.write(&self.statements.file_forget, (id, *hour, of_file)).await?;
        Ok(bytes)
    }

    async fn forget_parts(&self, statement: &Statement, id: i32, hour: i64, file: i64, parts: Vec<i32>) -> Result<()> {
        let mut requests: Vec<Request<'_, ()>> = Vec::new();
        for parts in parts.chunks(10) {
            let rows: Vec<_> = parts.iter().map(|part| (id, hour, *part, file)).collect();
            requests.push(Box::pin(self.store.write_rows(statement, rows)));
        }
        done(self.store.concurrency, requests).await
    }

    /// Commits that are in the base, with the attempts that came to nothing beside them.
    async fn trim_log(&self, table: TableId) -> Result<u64> {
        let Some(upto) = self.cache.read().loaded.get(&table).map(|loaded| loaded.oldest_seq) else { return Ok(0) };
        let from = self.trimmed.lock().get(&table).copied().unwrap_or(0);
        if upto <= from {
            return Ok(0);
        }
        let Some(oldest) = self.cache.read().state.table(table).ok().map(|of| of.oldest.version) else { return Ok(0) };
        let mut bytes = 0;
        for bucket in from.div_euclid(BUCKET)..=upto.div_euclid(BUCKET) {
            self.store.write(&self.statements.log_forget, (table.0 as i32, bucket, upto)).await?;
            bytes += MARK_BYTES;
        }
        self.store.write(&self.statements.bases_forget, (table.0 as i32, oldest.0 as i64)).await?;
        self.trimmed.lock().insert(table, upto);
        Ok(bytes + MARK_BYTES)
    }

    /// What dropped tables had is garbage.
    async fn find_dropped(&self) -> Result<()> {
        let dropped = self.cache.read().catalog.dropped.clone();
        for table in dropped.into_iter().filter(|table| !self.dropped.lock().contains(table)) {
            self.fence(table).await?;
            let Some(head) = self.head(table).await? else { continue };
            let mut files: Vec<(FileId, FileMeta)> = Vec::new();
            if head.oldest_seq > 0
                && let Some((_, loaded)) = self.read_base(table, &head).await?
            {
                files.extend(loaded.files);
            }
            // Without its log, somebody has cleared its metadata already.
            for of in self.read_log(table, (head.oldest_seq, None), (head.seq, head.tip)).await?.unwrap_or_default() {
                let hours: HashMap<FileId, i64> = of.info.added.iter().map(|file| (file.id, file.hour)).collect();
                files.extend(of.metas.into_iter().filter_map(|(file, blocks)| {
                    Some((file, FileMeta { hour: *hours.get(&file)?, seq: of.seq, blocks }))
                }));
            }
            let garbage = files.into_iter().map(|(file, meta)| Garbage { table, file, meta });
            self.cache.write().garbage.extend(garbage);
            self.dropped.lock().insert(table);
        }
        Ok(())
    }

    /// Tables leave the catalog when nothing is left of them. Their heads stay, so that they stay dropped for who does
    /// not know.
    async fn forget_dropped(&self) -> Result<()> {
        let dropped: Vec<TableId> = self.dropped.lock().drain().collect();
        for table in dropped {
            let Some(head) = self.head(table).await? else { continue };
            let id = table.0 as i32;
            let hours: Vec<(i64,)> = self.store.read_rows(&self.statements.hours, (id,)).await?;
            for (hour,) in hours {
                self.store.write(&self.statements.blocks_forget, (id, hour)).await?;
                self.store.write(&self.statements.dead_all_forget, (id, hour)).await?;
            }
            for bucket in 0..=head.seq.div_euclid(BUCKET) {
                self.store.write(&self.statements.log_forget, (id, bucket, i64::MAX)).await?;
            }
            self.store.write(&self.statements.bases_forget, (id, i64::MAX)).await?;
            self.store.write(&self.statements.schema_forget, (id,)).await?;
            self.forget_catalog_row(table).await?;
        }
        Ok(())
    }

    /// If another does it first, so be it.
    async fn forget_catalog_row(&self, table: TableId) -> Result<()> {
        let (seq, next_table, next_tablet) = {
            let cache = self.cache.read();
            let seq = cache.catalog.seq.unwrap_or_default();
            (seq, cache.state.next_table.0 as i32, cache.state.next_tablet.0 as i32)
        };
        let statements = [&self.statements.catalog_next, &self.statements.catalog_forget];
        let values = ((seq + 1, next_table, next_tablet, CATALOG, seq), (CATALOG, table.0 as i32));
        match self.store.compare_and_set_all(&statements, &values).await {
            Cas::Applied | Cas::Refused | Cas::Unknown(_) => self.refresh_catalog().await,
            Cas::Unsent(error) => Err(self.store.unavailable(error)),
        }
    }

    /// From memory: nothing is asked.
    pub fn stats(&self) -> Stats {
        let cache = self.cache.read();
        let mut stats = cache.state.stats();
        let widths = self.widths.lock();
        let mut log_bytes: HashMap<(TableId, i64), u64> = HashMap::new();
        for (table, loaded) in &cache.loaded {
            let mut of_hour: HashMap<i64, [u64; 3]> = HashMap::new();
            for (file, meta) in &loaded.files {
                let path_bytes =
                    cache.state.table(*table).ok().and_then(|of| of.latest().file(*file).map(|of| of.path.len()));
                for block in &meta.blocks {
                    let bloom_bytes = u64::from(block.n_chunks) * CHUNK_BYTES as u64;
                    stats.bloom_bytes += bloom_bytes;
                    stats.column_bytes += block.column_bytes;
                    stats.loose_blocks += u64::from(meta.seq > loaded.oldest_seq);
                    let width = widths.get(&(*table, meta.hour)).copied().unwrap_or(crate::remote::MAX_ROW_CHUNKS);
                    let row = u64::from(width.min(block.n_chunks)) * CHUNK_BYTES as u64;
                    let sizes = of_hour.entry(meta.hour).or_default();
                    sizes[0] += if row > 0 { row + ROW_OVERHEAD } else { 0 };
                    sizes[1] += block.column_bytes / u64::from(block.n_columns.max(1)) + ROW_OVERHEAD;
                    sizes[2] += 100 + path_bytes.unwrap_or(0) as u64 + ROW_OVERHEAD;
                }
            }
            let largest = of_hour.values().flatten().copied().max().unwrap_or(0);
            stats.largest_partition_bytes = stats.largest_partition_bytes.max(largest);
            let of_table = cache.state.table(*table).ok();
            for (n, info) in (0..).zip(of_table.iter().flat_map(|of| of.commits.iter())) {
                let bytes: usize = info.added.iter().map(|file| 100 + file.path.len() + 60 * file.blocks.len()).sum();
                *log_bytes.entry((*table, (loaded.oldest_seq + n) / BUCKET)).or_default() += 80 + bytes as u64;
            }
        }
        stats.log_bytes = log_bytes.values().sum();
        let bucket = log_bytes.into_values().max().unwrap_or(0);
        stats.largest_partition_bytes = stats.largest_partition_bytes.max(bucket);
        stats
    }
}

/// How many files there are, and the sum of their ids: one that is missing is noticed.
pub(crate) fn extent(files: impl Iterator<Item = FileId>) -> (i64, i64) {
    files.fold((0, 0), |(n, sum), file| (n + 1, sum.wrapping_add(file.0 as i64)))
}

/// One block in the form of a file, without what the file's own row has.
fn block_file(file: &File, block: &Block) -> File {
    File {
        path: String::new(),
        etag: None,
        note: None,
        checksums: None,
        blocks: vec![block.clone()],
        n_rows: block.n_rows,
        ..file.clone()
    }
}
