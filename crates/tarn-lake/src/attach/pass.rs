//! How does a table come to have what its archive has, and nothing twice?
//!
//! 1. The archive is listed, and held against the table's latest version.
//! 2. New and changed files are read in path order, a few at a time (`read.rs`).
//! 3. Once there are enough for a commit, the table takes in new columns and wider types, and the files become one
//!    version: added, in place of those they changed from, and with the first commit those that are gone leave.
//!
//! What is committed is the progress: a pass that dies loses at most one batch of reading, and the next one goes on. A
//! file that cannot be read is committed as well, without blocks and with the reason: it is known, and not read again
//! until it changes.
//!
//! Invariant: a path is at most once in a version. Commits follow on the version that was looked at, and are rebased by
//! looking again; a store that rebased them would let two passes at once attach a file twice.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::StreamExt;
use object_store::ObjectStore;

use tarn_metastore::{
    BlockMetadata, Bloom, Commit, CommitKind, Definition, ExpectedVersion, File, Metastore, Note, TableVersion,
    VersionSelector,
};
use tarn_types::{Clock, FileId, Kind, TableId, TableSchema, Version};

use super::columns::ForeignFile;
use super::hour::{HourFrom, hour_of};
use super::list::{Difference, Object, difference, is_same, list};
use super::merge::{ColumnLookup, MergedColumns};
use super::read::{Content, ListedObject, content};
use crate::error::store_error;
use crate::lake::{commit, commit_id, failpoint, metastore_error};
use crate::names::MS_PER_HOUR;
use crate::{Error, Result};

/// Files of one commit, at most.
const BATCH_FILES: usize = 64;

/// A commit is made once its metadata takes about so much memory.
const BATCH_BYTES: usize = 16 << 20;

/// How often something is tried again that others got in the way of, or a store did not answer.
const TRIES: usize = 3;

/// Reads an archive into its table. Never writes to the archive, nor deletes there.
#[derive(Clone)]
pub struct Attach {
    /// Whose root is the archive's folder.
    pub store: Arc<dyn ObjectStore>,
    /// Has the table, and gets its versions.
    pub metastore: Arc<dyn Metastore>,
    /// For the times of commits.
    pub clock: Arc<dyn Clock>,
    /// Files read at once. Each takes the memory of its footer, and of the key columns of a row group if the table asks
    /// for blooms.
    pub concurrency: usize,
}

/// How far a pass is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files that the archive has.
    pub listed: u64,
    /// Of which the table had so many already, as they are.
    pub known: u64,
    /// Of which so many were read and are not committed yet.
    pub reading: u64,
    /// Files whose rows came into the table.
    pub attached: u64,
    /// Files that cannot be read or do not fit. Their `note` in the version says why.
    pub skipped: u64,
    /// Files that the archive no longer has.
    pub removed: u64,
    /// Of the files that came in.
    pub rows: u64,
    /// From the archive, by this pass.
    pub bytes_read: u64,
    /// The latest version that this pass made or found.
    pub version: Version,
}

impl Attach {
    /// Lists, reads what is new or changed, commits in batches; what is committed is not read again. Ends when all that
    /// was listed is in the table, or known not to be. `report` hears of each file and each commit, at once and on the
    /// calling task.
    ///
    /// One pass of a table at a time: two do no harm, but read everything twice.
    ///
    /// # Errors
    /// A store that is away ends the pass; what was read until then is committed. Call it again, whatever the error.
    pub async fn pass(&self, table: TableId, report: &(dyn Fn(&Progress) + Sync)) -> Result<Progress> {
        let schema = self.table(table).await?;
        let archive = schema.options.archive.as_ref().ok_or(Error::NotAnArchive { table })?;
        let hour_from = match &archive.hour_from {
            Some(text) => Some(HourFrom::parse(text).ok_or_else(|| Error::HourFrom { text: text.clone() })?),
            None => None,
        };
        let listed = self.list().await?;
        let mut progress = Progress { listed: listed.len() as u64, ..Progress::default() };
        let version = self.latest(table).await?;
        let committed_ms = self.commit_times(table).await?;
        let Difference { known, read, gone } =
            difference(listed, &version, |version| committed_ms.get(&version).copied());
        (progress.known, progress.version) = (known, version.version);
        report(&progress);

        let looks = futures::stream::iter(read).map(|(object, replaces)| self.look(object, replaces, schema.clone()));
        let mut looks = looks.buffered(self.concurrency.max(1));
        let seen = version.version;
        let mut pass = Pass {
            attach: self,
            schema: schema.clone(),
            seen,
            others: false,
            hour_from,
            gone,
            notes: HashMap::new(),
            progress,
        };
        let (mut batch, mut batch_bytes) = (Vec::new(), 0);
        let mut failed = None;
        while let Some(looked) = looks.next().await {
            match looked {
                Ok(looked) => {
                    pass.progress.bytes_read += looked.bytes_read;
                    pass.progress.reading += 1;
                    batch_bytes += looked.size_bytes();
                    batch.push(looked);
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            report(&pass.progress);
            if batch.len() >= BATCH_FILES || batch_bytes >= BATCH_BYTES {
                pass.commit(std::mem::take(&mut batch)).await?;
                batch_bytes = 0;
                report(&pass.progress);
            }
        }
        pass.commit(batch).await?;
        report(&pass.progress);
        match failed {
            Some(error) => Err(error),
            None => Ok(pass.progress),
        }
    }

    /// All Parquet files of the archive.
    pub(super) async fn list(&self) -> Result<Vec<Object>> {
        let mut tries = 0;
        loop {
            tries += 1;
            match list(&*self.store).await {
                Err(object_store::Error::Generic { .. }) if tries < TRIES => {}
                done => return done.map_err(store_error("list", &self.store)),
            }
        }
    }

    async fn table(&self, table: TableId) -> Result<Arc<TableSchema>> {
        let error = || metastore_error("find the definition", table);
        let tables = self.metastore.tables().await.map_err(error())?;
        let found = tables.into_iter().find(|schema| schema.id == table);
        found.ok_or_else(|| error()(tarn_metastore::Error::NoTableId { table }))
    }

    async fn latest(&self, table: TableId) -> Result<Arc<TableVersion>> {
        self.metastore
            .snapshot(table, VersionSelector::Latest)
            .await
            .map_err(metastore_error("read the version", table))
    }

    /// When the versions that are kept were made.
    async fn commit_times(&self, table: TableId) -> Result<HashMap<Version, i64>> {
        let error = || metastore_error("read the commits", table);
        let oldest = self.metastore.snapshot(table, VersionSelector::Oldest).await.map_err(error())?;
        let commits = self.metastore.commits(table, oldest.version).await.map_err(error())?;
        Ok(commits.iter().map(|commit| (commit.version, commit.at_ms)).collect())
    }

    async fn look(&self, object: Object, replaces: Option<FileId>, table: Arc<TableSchema>) -> Result<InspectedFile> {
        let source = ListedObject::new(self.store.clone(), object.clone());
        let content = content(&source, &table).await?;
        Ok(InspectedFile { object, replaces, content, bytes_read: source.bytes_read() })
    }
}

/// A file that was read.
struct InspectedFile {
    object: Object,
    replaces: Option<FileId>,
    content: Content,
    bytes_read: u64,
}

impl InspectedFile {
    fn size_bytes(&self) -> usize {
        match &self.content {
            Content::Rows(file, blooms) => {
                file.bytes + blooms.iter().flatten().map(|bloom| bloom.bits().len()).sum::<usize>()
            }
            _ => 0,
        }
    }
}

/// A file as it will be committed.
struct BuiltFile {
    object: Object,
    replaces: Option<FileId>,
    file: File,
    block_metadata: Vec<BlockMetadata>,
}

/// A pass between two commits.
struct Pass<'a> {
    attach: &'a Attach,
    schema: Arc<TableSchema>,
    /// The latest version that this pass found or made.
    seen: Version,
    /// Somebody else committed since the archive was held against the table: what is new has to be found out again, to
    /// the end of the pass.
    others: bool,
    hour_from: Option<HourFrom>,
    gone: Vec<FileId>,
    /// Most files have the same one.
    notes: HashMap<String, Note>,
    progress: Progress,
}

impl Pass<'_> {
    async fn commit(&mut self, files: Vec<InspectedFile>) -> Result<()> {
        failpoint!("attach::after_read");
        self.progress.reading -= files.len() as u64;
        if files.is_empty() && self.gone.is_empty() {
            return Ok(());
        }
        let refused = self.adapt(&files).await?;
        let table = self.schema.id;
        let first_file = self.attach.metastore.allocate_files(files.len().max(1) as u64).await;
        let first_file = first_file.map_err(metastore_error("allocate files", table))?;
        let mut built = self.build(files, refused, first_file);
        let mut tries = 0;
        loop {
            tries += 1;
            let version = self.attach.latest(table).await?;
            self.rebase(&mut built, &version);
            if built.is_empty() && self.gone.is_empty() {
                return Ok(());
            }
            failpoint!("attach::before_commit");
            match commit(&*self.attach.metastore, table, self.change(&built, first_file, version.version)).await {
                Ok(made) => {
                    failpoint!("attach::after_commit");
                    self.count(&built, made);
                    return Ok(());
                }
                // Nothing happened: somebody else committed after we looked.
                Err(error) if error.kind() == Kind::Conflict && tries < TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets the table take in the columns of the files. Answers why some do not fit, in their order.
    async fn adapt(&mut self, files: &[InspectedFile]) -> Result<Vec<Option<String>>> {
        let table = self.schema.id;
        let mut tries = 0;
        loop {
            tries += 1;
            let mut columns = MergedColumns::of(&self.schema);
            let mut take = |looked: &InspectedFile| match &looked.content {
                Content::Rows(file, _) => columns.take(&file.columns).err(),
                _ => None,
            };
            let refused = files.iter().map(&mut take).collect();
            let Some(changed) = columns.changed(&self.schema) else { return Ok(refused) };
            let change = Definition::Alter { from: self.schema.clone(), to: Box::new(changed) };
            match self.attach.metastore.define(change).await {
                Ok(schema) => {
                    self.schema = schema;
                    return Ok(refused);
                }
                Err(error) if matches!(error.kind(), Kind::Conflict | Kind::Indeterminate) && tries < TRIES => {
                    self.schema = self.attach.table(table).await?;
                }
                Err(error) => return Err(metastore_error("take columns into the definition", table)(error)),
            }
        }
    }

    fn build(&mut self, files: Vec<InspectedFile>, refused: Vec<Option<String>>, first_file: FileId) -> Vec<BuiltFile> {
        let schema = self.schema.clone();
        let places = ColumnLookup::new(&schema);
        let mut built = Vec::with_capacity(files.len());
        for ((id, looked), refused) in (first_file.0..).map(FileId).zip(files).zip(refused) {
            let InspectedFile { object, replaces, content, .. } = looked;
            let mut file = File {
                id,
                path: object.path.to_string(),
                size_bytes: object.size_bytes,
                n_rows: 0,
                hour: 0,
                etag: object.etag.clone(),
                blocks: Vec::new(),
                created_version: Version(0),
                sorted_by_key: false,
                note: None,
                checksums: None,
            };
            let (rows, note) = match (content, refused) {
                (Content::Gone, _) => continue,
                (Content::Rows(..), Some(reason)) => (None, reason),
                (Content::Rows(mut foreign, blooms), None) => {
                    let note = std::mem::take(&mut foreign.note);
                    file.checksums = foreign.checksums.take();
                    (Some((foreign, blooms)), note)
                }
                (Content::Skipped { reason, retry }, _) => {
                    // Without an ETag it is another file to every later pass, which looks again.
                    file.etag = file.etag.filter(|_| !retry);
                    (None, reason)
                }
            };
            let block_metadata = rows.map(|rows| fill(&mut file, rows, &places)).unwrap_or_default();
            file.hour = self.hour(&object, &block_metadata);
            file.note = self.note(note);
            built.push(BuiltFile { object, replaces, file, block_metadata });
        }
        built
    }

    fn hour(&self, object: &Object, block_metadata: &[BlockMetadata]) -> i64 {
        let time_column = self.schema.options.archive.as_ref().and_then(|archive| archive.time_column);
        let earliest = || {
            let of = |block: &BlockMetadata| block.column(time_column?)?.0.min.as_ref().and_then(hour_of);
            block_metadata.iter().filter_map(of).min()
        };
        let by_path = self.hour_from.as_ref().and_then(|from| from.hour(object.path.as_ref()));
        by_path.or_else(earliest).unwrap_or(object.modified_ms.div_euclid(MS_PER_HOUR))
    }

    fn note(&mut self, text: String) -> Option<Note> {
        if text.is_empty() {
            return None;
        }
        Some(self.notes.entry(text).or_insert_with_key(|text| text.as_str().into()).clone())
    }

    /// Fits the change to a version that may be newer than the one it was found in.
    fn rebase(&mut self, built: &mut Vec<BuiltFile>, version: &TableVersion) {
        let is_skipped_as_before = |built: &BuiltFile| {
            let before = built.replaces.and_then(|id| version.file(id));
            let same = |before: &Arc<File>| {
                before.blocks.is_empty() && before.note == built.file.note && before.etag == built.file.etag
            };
            built.file.blocks.is_empty() && before.is_some_and(same)
        };
        self.others |= version.version != self.seen;
        self.seen = version.version;
        if self.others {
            let by_path: HashMap<_, _> = version.files.iter().map(|file| (file.path.as_str(), file)).collect();
            built.retain_mut(|built| {
                let there = by_path.get(built.file.path.as_str());
                built.replaces = there.map(|file| file.id);
                there.is_none_or(|file| !is_same(file, &built.object, |_| None))
            });
            self.gone.retain(|id| version.file(*id).is_some());
        }
        self.progress.skipped += built.iter().filter(|built| is_skipped_as_before(built)).count() as u64;
        built.retain(|built| !is_skipped_as_before(built));
    }

    fn change(&self, built: &[BuiltFile], first_file: FileId, expected: Version) -> Commit {
        let replaced = built.iter().filter_map(|built| built.replaces);
        Commit {
            id: commit_id(&self.schema, first_file),
            expected: ExpectedVersion::At(expected),
            add: built.iter().map(|built| built.file.clone()).collect(),
            block_metadata: built.iter().map(|built| (built.file.id, built.block_metadata.clone())).collect(),
            remove: self.gone.iter().copied().chain(replaced).collect(),
            deletion_vectors: BTreeMap::new(),
            cursor: None,
            kind: CommitKind::Attach,
            at_ms: self.attach.clock.now_ms(),
        }
    }

    fn count(&mut self, built: &[BuiltFile], made: Version) {
        let has_rows = |built: &&BuiltFile| !built.file.blocks.is_empty();
        let attached = built.iter().filter(has_rows).count();
        self.progress.attached += attached as u64;
        self.progress.skipped += (built.len() - attached) as u64;
        self.progress.removed += std::mem::take(&mut self.gone).len() as u64;
        self.progress.rows += built.iter().map(|built| built.file.n_rows).sum::<u64>();
        (self.progress.version, self.seen) = (made, made);
    }
}

fn fill(
    file: &mut File,
    (foreign, blooms): (ForeignFile, Vec<Option<Bloom>>),
    places: &ColumnLookup<'_>,
) -> Vec<BlockMetadata> {
    file.n_rows = foreign.n_rows();
    let (blocks, block_metadata) = places.blocks(foreign, blooms);
    file.blocks = blocks;
    block_metadata
}
