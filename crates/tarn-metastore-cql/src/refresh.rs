//! How does this process learn what others did?
//!
//! ```text
//! head (serial) ──> seq, tip     the log from where we were, backwards along `prev`      what is not on the way was never committed
//! ```
//!
//! A serial read sees every conditional write that was answered before, so what is answered from the cache after one is
//! current. Callers that wait together share a read that began after they came.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use roaring::RoaringBitmap;
use uuid::Uuid;

use tarn_metastore::backend::{FORMAT, RecordReader, Table};
use tarn_metastore::{Error, Result, TableVersion};
use tarn_types::{FileId, TableId, TableSchema, TabletId, Version};

use crate::CqlInner;
use crate::cache::{Catalog, CatalogTable, FileMeta, Garbage, LogHead, LogPosition, LoggedCommit, NO_TIP};
use crate::layout::{Layout, Phase};
use crate::maintenance::extent;
use crate::requests::{Request, answers};
use crate::session::Cas;
use crate::tables::{BUCKET, CATALOG, FILE_ROW};
use crate::wire::{decode_commit, decode_file, unsealed};

/// How often something is read anew because it changed meanwhile.
const TRIES: usize = 16;

/// Lets those who wait for the same thing share one read.
#[derive(Default)]
pub(crate) struct Gate {
    started: AtomicU64,
    /// The last that was completed.
    done: tokio::sync::Mutex<u64>,
}

impl Gate {
    /// Runs `read`, unless a run of another caller that began after this call has ended well.
    async fn pass<F: Future<Output = Result<()>>>(&self, read: impl FnOnce() -> F) -> Result<()> {
        let before = self.started.load(Ordering::SeqCst);
        let mut done = self.done.lock().await;
        if *done > before {
            return Ok(());
        }
        let run = self.started.fetch_add(1, Ordering::SeqCst) + 1;
        read().await?;
        *done = run;
        Ok(())
    }
}

/// Rows of the log that belong together.
struct Attempt {
    prev: Uuid,
    n_parts: i32,
    parts: Vec<(i32, Vec<u8>)>,
}

/// What the base has of one hour.
struct Hour {
    files: Vec<(tarn_metastore::File, FileMeta)>,
    dead: HashMap<FileId, Arc<RoaringBitmap>>,
    gone: Vec<Garbage>,
}

type HeadRow = (i64, i64, Uuid, i64, i64, bool, bool, i32);

fn head_of(row: HeadRow) -> LogHead {
    let (seq, version, tip, oldest, oldest_seq, restoring, dropped, epoch) = row;
    let (version, oldest) = (Version(version as u64), Version(oldest as u64));
    LogHead { seq, version, tip, oldest, oldest_seq, restoring, dropped, epoch }
}

type CatalogHead =
    (Option<i64>, Option<i32>, Option<i32>, Option<i64>, Option<i32>, Option<i32>, Option<String>, Option<i32>);
type CatalogRow =
    (Option<i32>, Option<String>, Option<Uuid>, Option<bool>, Option<i64>, Option<Vec<u8>>, Option<i64>, Option<bool>);

impl CqlInner {
    /// The catalog as of now.
    pub async fn refresh_catalog(&self) -> Result<()> {
        self.catalog_gate.pass(|| self.read_catalog()).await
    }

    async fn read_catalog(&self) -> Result<()> {
        let store = &self.store;
        let row: Option<CatalogHead> = store.read_row(&self.statements.catalog_head, (CATALOG,)).await?;
        let Some((Some(seq), Some(next_table), Some(next_tablet), next_file, schema, target, phase, epoch)) = row
        else {
            return Err(store.damaged("the catalog", "its head is missing"));
        };
        let phase = phase.unwrap_or_default();
        let phase = Phase::named(&phase).ok_or_else(|| store.damaged("the catalog", format!("phase {phase:?}")))?;
        let schema = schema.unwrap_or_default() as u32;
        let target = target.map_or(schema, |target| target as u32);
        let layout = Layout { schema, target, phase, epoch: epoch.unwrap_or_default() };
        layout.check_reads(self.known, &store.address)?;
        let next_file = FileId(next_file.unwrap_or(1) as u64);
        let known: HashMap<TableId, Uuid> = {
            let mut cache = self.cache.write();
            cache.state.next_file = cache.state.next_file.max(next_file);
            if cache.catalog.seq == Some(seq) {
                return Ok(());
            }
            cache.catalog.tables.iter().map(|(id, table)| (*id, table.revision)).collect()
        };
        let (tables, dropped) = self.read_tables().await?;
        let mut requests: Vec<Request<'_, _>> = Vec::new();
        for (id, table) in &tables {
            if known.get(id) != Some(&table.revision) {
                requests.push(Box::pin(self.read_schema(*id, table.revision)));
            }
        }
        let schemas = answers(store.concurrency, requests).await?;
        let catalog = Catalog { seq: Some(seq), layout, tables, dropped };
        let next = (TableId(next_table as u32), TabletId(next_tablet as u32));
        let set = self.cache.write().set_catalog(catalog, schemas, next);
        set.map_err(|reason| store.damaged("the catalog", reason))
    }

    async fn read_tables(&self) -> Result<(BTreeMap<TableId, CatalogTable>, Vec<TableId>)> {
        let store = &self.store;
        let rows: Vec<CatalogRow> = store.read_rows(&self.statements.catalog, (CATALOG,)).await?;
        let (mut tables, mut dropped) = (BTreeMap::new(), Vec::new());
        for row in rows {
            let (Some(id), _, Some(revision), is_dropped, first, cursor, created_ms, restoring) = row else { continue };
            let id = TableId(id as u32);
            if is_dropped == Some(true) {
                dropped.push(id);
                continue;
            }
            let what = || format!("the catalog's row of table {id}");
            let cursor = cursor.unwrap_or_default();
            let bytes = unsealed(&cursor).map_err(|e| store.damaged(what(), e.0))?;
            let first_cursor =
                RecordReader { bytes, format: FORMAT }.cursor().map_err(|e| store.damaged(what(), e.0))?;
            let first_version = Version(first.unwrap_or_default() as u64);
            let (created_ms, restoring) = (created_ms.unwrap_or_default(), restoring.unwrap_or_default());
            tables.insert(id, CatalogTable { revision, first_version, first_cursor, created_ms, restoring });
        }
        Ok((tables, dropped))
    }

    async fn read_schema(&self, table: TableId, revision: Uuid) -> Result<Arc<TableSchema>> {
        let store = &self.store;
        let parts: Vec<(Vec<u8>,)> = store.read_rows(&self.statements.schema, (table.0 as i32, revision)).await?;
        let sealed: Vec<u8> = parts.into_iter().flat_map(|(part,)| part).collect();
        let damaged =
            |reason: String| store.damaged(format!("revision {revision} of table {table} in schemas"), reason);
        let json = unsealed(&sealed).map_err(|e| damaged(e.0))?;
        serde_json::from_slice(json).map(Arc::new).map_err(|e| damaged(e.to_string()))
    }

    fn gate(&self, table: TableId) -> Arc<Gate> {
        self.gates.lock().entry(table).or_default().clone()
    }

    /// The table as of now.
    pub async fn refresh(&self, table: TableId) -> Result<()> {
        if !self.cache.read().state.tables.contains_key(&table) {
            self.refresh_catalog().await?;
            self.cache.read().state.table(table)?;
        }
        self.gate(table).pass(|| self.read_table(table)).await?;
        self.cache.read().state.table(table).map(drop)
    }

    /// The end of a table's log, after all that was answered before.
    pub async fn head(&self, table: TableId) -> Result<Option<LogHead>> {
        let row: Option<HeadRow> = self.store.read_row(&self.statements.head, (table.0 as i32,)).await?;
        Ok(row.map(head_of))
    }

    /// As `head`, but what others do at the same time may be missing.
    pub async fn head_seen(&self, table: TableId) -> Result<Option<LogHead>> {
        let row: Option<HeadRow> = self.store.read_row(&self.statements.head_seen, (table.0 as i32,)).await?;
        Ok(row.map(head_of))
    }

    async fn read_table(&self, table: TableId) -> Result<()> {
        for _ in 0..TRIES {
            let Some(head) = self.head(table).await? else {
                // Whoever made the table has not come so far, or never will.
                self.refresh_catalog().await?;
                self.cache.read().state.table(table)?;
                self.make_head(table).await?;
                continue;
            };
            if head.dropped {
                self.catalog_gate.pass(|| self.read_catalog()).await?;
                self.cache.write().state.tables.remove(&table);
                return Err(Error::NoTableId { table });
            }
            if head.epoch > self.cache.read().catalog.layout.epoch {
                self.refresh_catalog().await?;
            }
            if self.follow(table, &head).await? {
                return Ok(());
            }
        }
        Err(self.store.damaged(format!("the log of table {table}"), "does not lead to its head"))
    }

    /// Brings the table to `head`. False: the log changed meanwhile.
    async fn follow(&self, table: TableId, head: &LogHead) -> Result<bool> {
        let store = &self.store;
        let damaged = |reason| store.damaged(format!("the log of table {table}"), reason);
        let here = self.cache.read().loaded.get(&table).map(|loaded| (loaded.seq, loaded.tip));
        match here {
            Some((seq, tip)) if seq >= head.oldest_seq && (seq != head.seq || tip == head.tip) => {
                let commits = if seq < head.seq {
                    self.read_log(table, (seq, Some(tip)), (head.seq, head.tip)).await?
                } else {
                    Some(Vec::new())
                };
                let Some(commits) = commits else { return Ok(false) };
                let mut cache = self.cache.write();
                cache.append(table, commits).map_err(damaged)?;
                cache.state.settle();
                cache.follow(table, head).map_err(damaged)?;
                Ok(true)
            }
            _ => {
                let Some((base, loaded)) = self.read_base(table, head).await? else { return Ok(false) };
                let from = (head.oldest_seq, None);
                let Some(commits) = self.read_log(table, from, (head.seq, head.tip)).await? else { return Ok(false) };
                let mut cache = self.cache.write();
                let Some(of) = cache.catalog.tables.get(&table) else { return Ok(false) };
                let restoring = of.restoring && head.oldest_seq == 0;
                let schema = cache.state.table(table)?.schema.clone();
                let mut whole = Table::new(schema, base);
                whole.restoring = restoring;
                cache.state.tables.insert(table, whole);
                cache.loaded.insert(table, loaded);
                cache.append(table, commits).map_err(damaged)?;
                cache.state.settle();
                cache.follow(table, head).map_err(damaged)?;
                Ok(true)
            }
        }
    }

    /// The commits behind `from` up to `to`, which is on the chain. `None`: some are not there any more.
    pub async fn read_log(
        &self,
        table: TableId,
        from: (i64, Option<Uuid>),
        to: (i64, Uuid),
    ) -> Result<Option<Vec<LoggedCommit>>> {
        let store = &self.store;
        let (first, (last, tip)) = (from.0 + 1, to);
        if first > last {
            return Ok(Some(Vec::new()));
        }
        type Row = (i64, Uuid, i32, i32, Uuid, Vec<u8>);
        let mut requests: Vec<Request<'_, Vec<Row>>> = Vec::new();
        for bucket in first.div_euclid(BUCKET)..=last.div_euclid(BUCKET) {
            let values = (table.0 as i32, bucket, from.0, last);
            requests.push(Box::pin(store.read_rows(&self.statements.log, values)));
        }
        let buckets = answers(store.concurrency, requests).await?;
        let mut rows: HashMap<(i64, Uuid), Attempt> = HashMap::new();
        for (seq, attempt, part, n_parts, prev, payload) in buckets.into_iter().flatten() {
            let row = rows.entry((seq, attempt)).or_insert_with(|| Attempt { prev, n_parts, parts: Vec::new() });
            row.parts.push((part, payload));
        }
        let mut commits = Vec::with_capacity((last - from.0) as usize);
        let mut attempt = tip;
        for seq in (first..=last).rev() {
            let Some(Attempt { prev, n_parts, mut parts }) = rows.remove(&(seq, attempt)) else { return Ok(None) };
            parts.sort_unstable_by_key(|(part, _)| *part);
            let what = || format!("commit {seq} of table {table} in commit_log");
            if parts.len() != n_parts as usize {
                return Err(store.damaged(what(), format!("{} of {n_parts} parts are there", parts.len())));
            }
            let payload: Vec<u8> = parts.into_iter().flat_map(|(_, bytes)| bytes).collect();
            let (info, metas) = decode_commit(&payload).map_err(|e| store.damaged(what(), e.0))?;
            commits.push(LoggedCommit { seq, attempt, info, metas, next: None });
            attempt = prev;
        }
        if from.1.is_some_and(|tip| tip != attempt) {
            let what = format!("commit {first} of table {table} in commit_log");
            return Err(store.damaged(what, "does not follow on the one before"));
        }
        commits.reverse();
        Ok(Some(commits))
    }

    /// The oldest kept version. `None`: it moved on meanwhile.
    pub async fn read_base(&self, table: TableId, head: &LogHead) -> Result<Option<(TableVersion, LogPosition)>> {
        let store = &self.store;
        let mut loaded = LogPosition::new(head);
        let id = table.0 as i32;
        if head.oldest_seq == 0 {
            loaded.tip = NO_TIP;
            let first = self.cache.read().catalog.tables.get(&table).map(CatalogTable::first);
            return Ok(first.map(|first| (first, loaded)));
        }
        let oldest = head.oldest.0 as i64;
        let row: Option<(Vec<u8>, i64, i64, i64)> = store.read_row(&self.statements.base, (id, oldest)).await?;
        let Some((cursor, committed_ms, n_files, id_sum)) = row else { return Ok(None) };
        let what = || format!("version {oldest} of table {table} in bases");
        let bytes = unsealed(&cursor).map_err(|e| store.damaged(what(), e.0))?;
        let cursor = RecordReader { bytes, format: FORMAT }.cursor().map_err(|e| store.damaged(what(), e.0))?;
        let hours: Vec<(i64,)> = store.read_rows(&self.statements.hours, (id,)).await?;
        let mut requests: Vec<Request<'_, Hour>> = Vec::new();
        for (hour,) in hours {
            requests.push(Box::pin(self.read_hour(table, hour, oldest)));
        }
        let read = answers(store.concurrency, requests).await?;
        let (mut files, mut dead) = (Vec::new(), HashMap::new());
        let mut gone = Vec::new();
        for of_hour in read {
            for (file, meta) in of_hour.files {
                loaded.add(file.id, meta);
                files.push(Arc::new(file));
            }
            dead.extend(of_hour.dead);
            gone.extend(of_hour.gone);
        }
        // What was read is whole only if nobody moved the base, and cleared away behind it, meanwhile.
        if self.head_seen(table).await?.is_none_or(|now| now.oldest_seq != head.oldest_seq) {
            return Ok(None);
        }
        if extent(files.iter().map(|file: &Arc<tarn_metastore::File>| file.id)) != (n_files, id_sum) {
            return Err(store.damaged(what(), format!("{} of its {n_files} files are in blocks", files.len())));
        }
        self.cache.write().garbage.extend(gone);
        let base = TableVersion {
            version: head.oldest,
            cursor,
            files: files.into_iter().collect(),
            deletion_vectors: Arc::new(dead),
            committed_ms,
        };
        Ok(Some((base, loaded)))
    }

    async fn read_hour(&self, table: TableId, hour: i64, oldest: i64) -> Result<Hour> {
        let store = &self.store;
        type Row = (i64, i32, Option<i64>, Option<i64>, Option<Vec<u8>>, Option<Vec<u8>>);
        let of_hour = (table.0 as i32, hour);
        let rows: Vec<Row> = store.read_rows(&self.statements.blocks, of_hour).await?;
        let mut files: Vec<(tarn_metastore::File, FileMeta)> = Vec::new();
        let mut gone = HashSet::new();
        for (id, row_group, added, removed, file, block) in rows {
            let id = FileId(id as u64);
            let what = || format!("file {id}, row group {row_group}, hour {hour} of table {table} in blocks");
            if added.is_none_or(|added| added > oldest) {
                continue;
            }
            let bytes = if row_group == FILE_ROW { file } else { block };
            let (decoded, metas) = decode_file(&bytes.unwrap_or_default()).map_err(|e| store.damaged(what(), e.0))?;
            if row_group == FILE_ROW {
                if removed.is_some_and(|removed| removed <= oldest) {
                    gone.insert(id);
                }
                files.push((decoded, FileMeta { hour, seq: 0, blocks: metas }));
                continue;
            }
            if let Some((file, meta)) = files.last_mut().filter(|(file, _)| file.id == id) {
                file.blocks.extend(decoded.blocks);
                meta.blocks.extend(metas);
            }
        }
        for (file, _) in &files {
            let n_rows: u64 = file.blocks.iter().map(|block| block.n_rows).sum();
            if n_rows != file.n_rows {
                let what = format!("file {}, hour {hour} of table {table} in blocks", file.id);
                return Err(store.damaged(what, format!("its blocks have {n_rows} of {} rows", file.n_rows)));
            }
        }
        let (there, gone): (Vec<_>, Vec<_>) = files.into_iter().partition(|(file, _)| !gone.contains(&file.id));
        // Somebody stopped before it was cleared away.
        let gone = gone.into_iter().map(|(file, meta)| Garbage { table, file: file.id, meta });
        let rows: Vec<(i64, i64, Vec<u8>)> = store.read_rows(&self.statements.dead, of_hour).await?;
        let mut dead = HashMap::new();
        // Ascending by version: the last one counts.
        for (id, version, bits) in rows.into_iter().filter(|(_, version, _)| *version <= oldest) {
            let id = FileId(id as u64);
            let what = || format!("file {id}, version {version}, hour {hour} of table {table} in dead_rows");
            let bytes = unsealed(&bits).map_err(|e| store.damaged(what(), e.0))?;
            let rows = RecordReader { bytes, format: FORMAT }.bitmap().map_err(|e| store.damaged(what(), e.0))?;
            dead.insert(id, Arc::new(rows));
        }
        dead.retain(|file, rows| !rows.is_empty() && there.iter().any(|(of, _)| of.id == *file));
        Ok(Hour { files: there, dead, gone: gone.collect() })
    }

    /// Begins a table's log, if nobody has.
    pub async fn make_head(&self, table: TableId) -> Result<()> {
        let (first, restoring, epoch) = {
            let cache = self.cache.read();
            let Some(of) = cache.catalog.tables.get(&table) else { return Err(Error::NoTableId { table }) };
            (of.first_version.0 as i64, of.restoring, cache.catalog.layout.epoch)
        };
        let values = (table.0 as i32, first, NO_TIP, first, restoring, epoch);
        match self.store.compare_and_set(&self.statements.head_new, values).await {
            Cas::Applied | Cas::Refused => Ok(()),
            Cas::Unsent(error) | Cas::Unknown(error) => Err(self.store.unavailable(error)),
        }
    }
}
