//! How do tables come, change and go, and how does nobody get an id twice?
//!
//! All of it is one partition, and every change of it one conditional batch on its `seq`, so that names and ids are
//! decided in one place. What follows outside of it (the head of a new table, the fence of a dropped one) anybody can
//! do who finds it undone.

use std::sync::Arc;

use scylla::errors::ExecutionError;
use scylla::value::CqlValue;
use uuid::Uuid;

use tarn_metastore::backend::{StateRecord, put_cursor};
use tarn_metastore::{Definition, Error, Result, TableVersion};
use tarn_types::{FileId, TableId, TableSchema};

use crate::CqlInner;
use crate::cache::CatalogTable;
use crate::patience::RetryBudget;
use crate::session::Cas;
use crate::tables::{CATALOG, PART_BYTES};
use crate::wire::sealed;

/// File ids are taken this many at a time; those that a process does not use are skipped.
const RESERVED_FILES: u64 = 1024;

/// How often others may come first.
const LOSSES: usize = 1_000;

/// Whether a change of the catalog is in.
enum CasResult {
    Yes,
    /// Others came first.
    No,
}

impl CqlInner {
    /// One conditional statement on the catalog, decided upon what it says just before; tried again, within bounds,
    /// where another process was first.
    pub async fn define(&self, definition: Definition, now_ms: i64) -> Result<Arc<TableSchema>> {
        for _ in 0..LOSSES {
            self.refresh_catalog().await?;
            // Whether a table is being restored, and how far it is, its log says.
            let restored = match &definition {
                Definition::Restore { schema, .. } => Some(schema.id),
                Definition::Restored { table } => Some(*table),
                _ => None,
            };
            if let Some(id) = restored.filter(|id| self.cache.read().state.tables.contains_key(id)) {
                self.refresh(id).await?;
            }
            let (checked, seq, layout) = {
                let cache = self.cache.read();
                let checked = cache.state.check_definition(definition.clone(), now_ms);
                (checked, cache.catalog.seq.unwrap_or_default(), cache.catalog.layout)
            };
            let (schema, record) = checked?;
            let Some(record) = record else { return Ok(schema) };
            layout.check_writes(self.known, &self.store.address)?;
            let changed = match record {
                StateRecord::Create { schema, at_ms } => {
                    let first = TableVersion { committed_ms: at_ms, ..TableVersion::default() };
                    self.create(&schema, &first, false, seq).await?
                }
                StateRecord::Restore { schema, version, cursor, at_ms } => {
                    let first = TableVersion { version, cursor, committed_ms: at_ms, ..TableVersion::default() };
                    self.create(&schema, &first, true, seq).await?
                }
                StateRecord::Alter { schema } => self.alter(&[schema], seq).await?,
                StateRecord::AlterAll { schemas } => self.alter(&schemas, seq).await?,
                StateRecord::Drop { table } => self.drop_table(table, seq).await?,
                StateRecord::Restored { table } => self.restored(table).await?,
                StateRecord::Reserve { .. } | StateRecord::Commit { .. } | StateRecord::Expire { .. } => CasResult::Yes,
            };
            if matches!(changed, CasResult::Yes) {
                return Ok(schema);
            }
        }
        Err(self.store.unavailable("others always came first"))
    }

    async fn put_schema(&self, schema: &TableSchema) -> Result<Uuid> {
        let revision = self.new_revision().await?;
        let json = sealed(serde_json::to_vec(schema).map_err(|error| self.store.unavailable(error))?);
        for (part, bytes) in (0..).zip(json.chunks(PART_BYTES)) {
            let row = (schema.id.0 as i32, revision, part, bytes);
            self.store.write(&self.statements.schema_put, row).await?;
        }
        Ok(revision)
    }

    async fn create(
        &self,
        schema: &Arc<TableSchema>,
        first: &TableVersion,
        restoring: bool,
        seq: i64,
    ) -> Result<CasResult> {
        let revision = self.put_schema(schema).await?;
        let next_table = schema.id.0 + 1;
        let next_tablet = schema.tablet_ids().end.0.max(self.cache.read().state.next_tablet.0);
        let mut cursor = Vec::new();
        put_cursor(&mut cursor, &first.cursor);
        let table = CatalogTable {
            revision,
            first_version: first.version,
            first_cursor: first.cursor.clone(),
            created_ms: first.committed_ms,
            restoring,
        };
        let id = schema.id;
        let statements = [&self.statements.catalog_next, &self.statements.catalog_table];
        let values = (
            (seq + 1, next_table as i32, next_tablet as i32, CATALOG, seq),
            (
                CATALOG,
                id.0 as i32,
                &schema.name[..],
                revision,
                first.version.0 as i64,
                sealed(cursor),
                first.committed_ms,
                restoring,
            ),
        );
        let send = || self.store.compare_and_set_all(&statements, &values);
        let is_in = |inner: &Self| inner.cache.read().catalog.tables.get(&id) == Some(&table);
        let changed = self.change(seq, send, is_in).await?;
        if matches!(changed, CasResult::Yes) && self.refresh_catalog().await.is_ok() {
            // It is in. Whoever asks for it first makes its head, if this does not.
            let _ = self.make_head(id).await;
        }
        Ok(changed)
    }

    async fn alter(&self, schemas: &[Arc<TableSchema>], seq: i64) -> Result<CasResult> {
        let (next_table, next_tablet) = self.next_ids();
        let catalog = || CqlValue::Text(CATALOG.to_owned());
        let mut statements = vec![&self.statements.catalog_next];
        let mut values = vec![vec![
            CqlValue::BigInt(seq + 1),
            CqlValue::Int(next_table),
            CqlValue::Int(next_tablet),
            catalog(),
            CqlValue::BigInt(seq),
        ]];
        let mut revisions = vec![];
        for schema in schemas {
            let revision = self.put_schema(schema).await?;
            let (name, id) = (CqlValue::Text(schema.name.clone()), CqlValue::Int(schema.id.0 as i32));
            statements.push(&self.statements.catalog_revision);
            values.push(vec![name, CqlValue::Uuid(revision), catalog(), id]);
            revisions.push((schema.id, revision));
        }
        let send = || self.store.compare_and_set_all(&statements, &values);
        let is_in = |inner: &Self| {
            let tables = &inner.cache.read().catalog.tables;
            revisions.iter().all(|(id, revision)| tables.get(id).is_some_and(|of| of.revision == *revision))
        };
        let changed = self.change(seq, send, is_in).await?;
        if matches!(changed, CasResult::Yes) {
            // It is in; who asks for the table looks again.
            let _ = self.refresh_catalog().await;
        }
        Ok(changed)
    }

    async fn drop_table(&self, table: TableId, seq: i64) -> Result<CasResult> {
        let statements = [&self.statements.catalog_next, &self.statements.catalog_drop];
        let (next_table, next_tablet) = self.next_ids();
        let values = ((seq + 1, next_table, next_tablet, CATALOG, seq), (CATALOG, table.0 as i32));
        let send = || self.store.compare_and_set_all(&statements, &values);
        let is_in = |inner: &Self| !inner.cache.read().catalog.tables.contains_key(&table);
        // Nobody may commit to it any more: the head must be there to say so.
        self.make_head(table).await?;
        let changed = self.change(seq, send, is_in).await?;
        if matches!(changed, CasResult::Yes) {
            self.fence(table).await?;
            let _ = self.refresh_catalog().await;
        }
        Ok(changed)
    }

    /// Ends the log of a dropped table.
    pub async fn fence(&self, table: TableId) -> Result<()> {
        match self.store.compare_and_set(&self.statements.head_drop, (table.0 as i32,)).await {
            Cas::Applied | Cas::Refused => Ok(()),
            Cas::Unsent(error) | Cas::Unknown(error) => Err(self.unknown("drop a table of", error)),
        }
    }

    fn next_ids(&self) -> (i32, i32) {
        let cache = self.cache.read();
        (cache.state.next_table.0 as i32, cache.state.next_tablet.0 as i32)
    }

    async fn restored(&self, table: TableId) -> Result<CasResult> {
        let (seq, tip) = {
            let cache = self.cache.read();
            let loaded = cache.loaded.get(&table).ok_or(Error::NoTableId { table })?;
            (loaded.seq, loaded.tip)
        };
        let mut patience = RetryBudget::new(self.store.timeout);
        let mut lost_answer = None;
        loop {
            match self.store.compare_and_set(&self.statements.head_restored, (table.0 as i32, seq, tip)).await {
                Cas::Applied => {
                    let _ = self.refresh(table).await;
                    return Ok(CasResult::Yes);
                }
                // By another, or by ours before: the next look tells.
                Cas::Refused => return Ok(CasResult::No),
                Cas::Unsent(error) if lost_answer.is_none() => return Err(self.store.unavailable(error)),
                Cas::Unsent(error) | Cas::Unknown(error) => {
                    lost_answer = Some(error.clone());
                    if !patience.again(self.head(table).await.is_ok()).await {
                        return Err(self.unknown("change a table of", error));
                    }
                }
            }
        }
    }

    /// Sends a change that follows on `seq` until its outcome is known. Only one change can follow, so a change that is
    /// sent twice is made once.
    async fn change<F: Future<Output = Cas>>(
        &self,
        seq: i64,
        send: impl Fn() -> F,
        is_in: impl Fn(&Self) -> bool,
    ) -> Result<CasResult> {
        let mut patience = RetryBudget::new(self.store.timeout);
        let mut lost_answer = None;
        loop {
            let error = match send().await {
                Cas::Applied => return Ok(CasResult::Yes),
                Cas::Refused if lost_answer.is_none() => return Ok(CasResult::No),
                Cas::Refused => None,
                Cas::Unsent(error) if lost_answer.is_none() => return Err(self.store.unavailable(error)),
                Cas::Unsent(error) | Cas::Unknown(error) => Some(error),
            };
            lost_answer = error.or(lost_answer);
            let was_reached = self.refresh_catalog().await.is_ok();
            let now = self.cache.read().catalog.seq.filter(|now| was_reached && *now > seq);
            match now {
                Some(_) if is_in(self) => return Ok(CasResult::Yes),
                // One change was made since, and it is another's.
                Some(now) if now == seq + 1 => return Ok(CasResult::No),
                // Ours may have been made and changed again by others.
                Some(_) => {
                    let error = lost_answer.unwrap_or(ExecutionError::EmptyPlan);
                    return Err(self.unknown("change the catalog of", error));
                }
                None => {}
            }
            if !patience.again(was_reached).await {
                let error = lost_answer.unwrap_or(ExecutionError::EmptyPlan);
                return Err(self.unknown("change the catalog of", error));
            }
        }
    }

    /// The first of so many file ids that nobody has had.
    pub async fn allocate_files(&self, n: u64) -> Result<FileId> {
        if let Some(first) = self.reserved_files(n) {
            return Ok(first);
        }
        let _turn = self.reserving.lock().await;
        if let Some(first) = self.reserved_files(n) {
            return Ok(first);
        }
        let reserved = n.max(RESERVED_FILES);
        let first = self.reserve_files(reserved).await?;
        let mut files = self.files.lock();
        *files = first.0 + n..first.0 + reserved;
        Ok(first)
    }

    fn reserved_files(&self, n: u64) -> Option<FileId> {
        let mut files = self.files.lock();
        (files.end - files.start >= n).then(|| {
            files.start += n;
            FileId(files.start - n)
        })
    }

    /// In the store. A lost answer costs ids, and nothing else.
    pub async fn reserve_files(&self, n: u64) -> Result<FileId> {
        let mut patience = RetryBudget::new(self.store.timeout);
        for _ in 0..LOSSES {
            let first = self.cache.read().state.next_file;
            let end = FileId(first.0 + n);
            match self
                .store
                .compare_and_set(&self.statements.catalog_files, (end.0 as i64, CATALOG, first.0 as i64))
                .await
            {
                Cas::Applied => {
                    let mut cache = self.cache.write();
                    cache.state.next_file = cache.state.next_file.max(end);
                    return Ok(first);
                }
                Cas::Refused => self.refresh_catalog().await?,
                Cas::Unsent(error) => return Err(self.store.unavailable(error)),
                Cas::Unknown(error) => {
                    let was_reached = self.refresh_catalog().await.is_ok();
                    if !was_reached && !patience.again(false).await {
                        return Err(self.store.unavailable(error));
                    }
                }
            }
        }
        Err(self.store.unavailable("others always came first"))
    }
}
