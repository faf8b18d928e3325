//! How is a scan of this table planned? One [`TarnTable`] per table and statement: it says which paths can serve the
//! scan (`paths.rs` takes one), and makes the scan's spec.
//!
//! Planning reads metadata, never rows: the versions of the lake, what prunes their blocks and what is known of their
//! columns, and where the rows are that recent changes supersede. Bounds of recent rows are looked at when the
//! statement has a use for them: they may answer it. Of an index the entries that the filters leave are read, a bounded
//! number of them: they say how many rows there are, and which.
//!
//! Law 4: every path that can serve a statement gives the same answer. The filters are applied to the rows whatever the
//! path.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{ColumnStatistics, Constraints};
use datafusion::datasource::TableType;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, lit};
use datafusion::physical_plan::ExecutionPlan;
use tarn_metastore::prune::{Predicate, prune};
use tarn_metastore::{TableVersion, VersionSelector};
use tarn_types::{Cursor, KeyPart, TableSchema, Version, table_prefix};

use crate::clauses::clauses;
use crate::files::{BlockCutter, Counts, lake_files};
use crate::hot::{FileStore, HotSource, HotView, IndexLookup, KeyRange};
use crate::hot_exec::{arranged, recent_statistics};
use crate::indexed::{IndexRequest, asked};
use crate::key_ranges::{KeySet, MAX_KEYS, Ranges, key_set};
use crate::lake::Lake;
use crate::late_materialization::{self, StatementShape};
use crate::opening::Opener;
use crate::paths::{self, ByIndex, Facts, Path};
use crate::predicate::predicates;
use crate::pruning::{Question, prune_blocks};
use crate::reading;
use crate::rows_exec::is_in_planner_order;
use crate::settings::{AccessPath, AsOf, QuerySettings};
use crate::spec::{LakeRead, PathChoice, RangeRead, ScanKind, ScanSpec};
use crate::totals::{Patience, TotalsRequest};
use crate::values::to_scalar;
use crate::{Error, Result};

/// So many files of an archive are read at once: its store may be far.
const EXTERNAL_PARTITIONS: usize = 16;

/// Rows of the row engine that are read at once.
const SCAN_BATCH_ROWS: usize = 8_192;

/// The same, when the first rows may be enough.
const FIRST_BATCH_ROWS: usize = 256;

/// One table as SQL sees it.
pub(crate) struct TarnTable {
    source: Arc<dyn HotSource>,
    table: Arc<TableSchema>,
    /// With `__seqno` last, if the table was asked for with it.
    schema: SchemaRef,
    constraints: Constraints,
    defaults: BTreeMap<String, Expr>,
}

impl TarnTable {
    pub(crate) fn new(lake: &Lake, source: Arc<dyn HotSource>, with_seqno: bool) -> Self {
        let table = source.schema();
        let schema = lake.schemas.of(&table, with_seqno);
        let default = |column: &tarn_types::Column| {
            let scalar = to_scalar(column.default.as_ref()?, &column.data_type)?;
            Some((column.name.clone(), lit(scalar)))
        };
        let defaults = table.columns.iter().filter_map(default).collect();
        TarnTable { source, table, schema, constraints: Constraints::default(), defaults }
    }

    pub(crate) fn table_schema(&self) -> &Arc<TableSchema> {
        &self.table
    }

    pub(crate) fn source(&self) -> &Arc<dyn HotSource> {
        &self.source
    }
}

impl fmt::Debug for TarnTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TarnTable({})", self.table.name)
    }
}

#[async_trait]
impl TableProvider for TarnTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> datafusion::error::Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        let settings = state.config_options().extensions.get::<QuerySettings>().cloned().unwrap_or_default();
        let all = || (0..self.schema.fields().len()).collect();
        let scan = Scan {
            table: self,
            projection: projection.cloned().unwrap_or_else(all),
            predicates: predicates(filters, &self.table),
            filters,
            shape: state.config().get_extension(),
            limit,
            partitions: state.config().target_partitions().max(1),
            opener: Opener::in_config(state.config())?,
            settings,
        };
        Ok(scan.plan().await?)
    }
}

/// What the choice of a path depends on, and what was read to know it.
struct PathInputs {
    facts: Facts,
    /// The lake's version, if it was asked for.
    lake: Option<Arc<TableVersion>>,
    /// The keys of rows that an index has.
    by_index: Vec<Vec<u8>>,
}

/// One scan while it is planned.
struct Scan<'a> {
    table: &'a TarnTable,
    /// Positions in the full schema.
    projection: Vec<usize>,
    filters: &'a [Expr],
    /// What they say about single columns.
    predicates: Vec<Predicate>,
    /// Of the statement.
    shape: Option<Arc<StatementShape>>,
    limit: Option<usize>,
    partitions: usize,
    opener: Arc<Opener>,
    settings: QuerySettings,
}

impl Scan<'_> {
    async fn plan(&self) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(as_of) = self.settings.as_of {
            let (at, why) = match as_of {
                AsOf::Version(version) => (VersionSelector::Version(version), "forced by tarn.as_of_version"),
                AsOf::Time(ms) => (VersionSelector::Time(ms), "forced by tarn.as_of_time"),
            };
            let chosen = PathChoice { path: "lake".to_owned(), why: why.to_owned(), ..PathChoice::default() };
            return self.lake(&*self.opener.version(&self.table.table, at).await?, None, chosen).await;
        }
        let view = self.opener.now(&self.table.table)?;
        let set = self.key_set();
        let PathInputs { facts, lake, by_index } = self.facts(&set, &view).await?;
        let choice = paths::choose(&facts).map_err(|why| self.refusal(why))?;
        let chosen = PathChoice {
            path: facts.name(choice.path).to_owned(),
            why: choice.why,
            cost_us: choice.cost_us,
            not_taken: choice.not_taken,
        };
        let how = match choice.path {
            Path::Lake => {
                let lake = match lake {
                    Some(lake) => lake,
                    None => self.version_of(view.as_ref()).await?,
                };
                return self.lake(&lake, Some(view.as_ref()), chosen).await;
            }
            Path::Keys => ScanKind::Keys(set.keys.unwrap_or_default()),
            Path::Index => ScanKind::Keys(by_index),
            Path::Ranges => ScanKind::Ranges(self.range_read(set.ranges, choice.rows)),
            Path::Rows => ScanKind::Ranges(self.range_read(None, choice.rows)),
        };
        let spec = self.spec(view.version(), Some(view.position().clone()), chosen, how);
        reading::plan(spec, None, None, &self.opener)
    }

    fn key_set(&self) -> KeySet {
        match self.has_rows_by_key() {
            true => key_set(&self.predicates, &self.table.table),
            false => KeySet::default(),
        }
    }

    fn has_rows_by_key(&self) -> bool {
        let table = &self.table.table;
        !table.options.append_only && !table.key.is_empty()
    }

    async fn version_of(&self, view: &dyn HotView) -> Result<Arc<TableVersion>> {
        self.opener.version(&self.table.table, VersionSelector::Version(view.version())).await
    }

    /// What the paths cost depends on.
    async fn facts(&self, set: &KeySet, view: &Arc<dyn HotView>) -> Result<PathInputs> {
        let table = &self.table.table;
        let names = table.key.iter().take(table.n_partition_key);
        let names: Vec<&str> = names.map(|part| table.columns[part.column_idx].name.as_str()).collect();
        let mut facts = Facts {
            forced: self.settings.access_path,
            has_rows_by_key: self.has_rows_by_key(),
            is_append_only: table.options.append_only,
            n_keys: set.keys.as_ref().map(Vec::len),
            n_ranges: set.ranges.as_ref().map(|ranges| ranges.ranges.len()),
            by_index: None,
            is_evicted: !view.rows_complete(),
            evicted_blocks: 0,
            first_rows: set
                .ranges
                .as_ref()
                .filter(|_| self.asks_keys_alone())
                .and_then(|ranges| self.first_rows(ranges))
                .map(|n| n as u64),
            recent_rows: view.recent_rows()?,
            lake_rows: None,
            partition_key: names.join(", "),
        };
        let mut lake = None;
        let by_index = self.by_index(&mut facts, &mut lake, view).await?;
        let may_be_evicted = facts.is_evicted && set.ranges.is_some();
        if !may_be_evicted && facts.is_cheap_by_key() {
            return Ok(PathInputs { facts, lake, by_index });
        }
        let version = match lake {
            Some(version) => version,
            None => self.version_of(view.as_ref()).await?,
        };
        if may_be_evicted {
            // An evicted row is in the lake: where no block can hold its key, there is none.
            facts.evicted_blocks = prune(&version, &self.of_key()).counts.blocks_kept;
        }
        facts.lake_rows = Some(version.live_rows());
        Ok(PathInputs { facts, lake: Some(version), by_index })
    }

    /// The keys of rows that an index has, the one that has fewest; what it says is among the facts.
    async fn by_index(
        &self,
        facts: &mut Facts,
        lake: &mut Option<Arc<TableVersion>>,
        view: &Arc<dyn HotView>,
    ) -> Result<Vec<Vec<u8>>> {
        let table = &self.table.table;
        // Where nobody would take it, nobody asks.
        if !table.has_indexes() || !facts.has_rows_by_key || facts.forced == AccessPath::Lake {
            facts.by_index = table.has_indexes().then(|| Err("it is not asked".to_owned()));
            return Ok(vec![]);
        }
        if facts.n_keys.is_some() {
            facts.by_index = Some(Err("the keys are known".to_owned()));
            return Ok(vec![]);
        }
        facts.by_index = Some(Err("nothing is said of the first column of one".to_owned()));
        let (mut keys, mut found) = (vec![], None);
        for IndexRequest { index, name, ranges, .. } in asked(&self.predicates, table) {
            if lake.is_none() && !facts.may_ask_index(ranges.len()) {
                let version = self.version_of(view.as_ref()).await?;
                facts.lake_rows = Some(version.live_rows());
                *lake = Some(version);
            }
            if !facts.may_ask_index(ranges.len()) {
                facts.by_index = found.clone().or(Some(Err("columns cost less than so many values".to_owned())));
                continue;
            }
            let max = if found.is_some() { keys.len() } else { MAX_KEYS };
            // It may wait for the disk.
            let view = Arc::clone(view);
            let told = SpawnedTask::spawn_blocking(move || view.indexed(index, &ranges, max)).join_unwind().await;
            let why = match told.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?? {
                IndexLookup::Rows(rows) => {
                    found = Some(Ok(ByIndex { name, n_rows: rows.len() }));
                    keys = rows;
                    if keys.len() <= 1 {
                        break;
                    }
                    continue;
                }
                IndexLookup::TooMany => format!("{name} has entries of more than {max} rows"),
                IndexLookup::Unknown(why) => format!("{name}: {why}"),
            };
            if found.is_none() {
                facts.by_index = Some(Err(why));
            }
        }
        if found.is_some() {
            facts.by_index = found;
        }
        Ok(keys)
    }

    /// What the filters say of the key's columns, if blocks may be left out by it.
    fn of_key(&self) -> Vec<Predicate> {
        if !self.settings.pruning {
            return vec![];
        }
        let table = &self.table.table;
        let is_of_key = |of: &&Predicate| table.key.iter().any(|part| table.columns[part.column_idx].id == of.column);
        self.predicates.iter().filter(is_of_key).cloned().collect()
    }

    fn refusal(&self, why: &'static str) -> Error {
        let remedy = match self.table.table.options.append_only {
            true => "SET tarn.access_path = 'auto'",
            false => "SET tarn.access_path = 'auto', or 'lake'",
        };
        Error::AccessPath { path: "rows", table: self.table.table.name.clone(), why, remedy }
    }

    fn everything(&self) -> Ranges {
        let table = &self.table.table;
        let whole = KeyRange::of_prefix(table_prefix(table.id).to_vec());
        Ranges { ranges: whole.into_iter().collect(), n_fixed: table.key.len() }
    }

    /// Of the whole table, when there are no ranges.
    fn range_read(&self, ranges: Option<Ranges>, rows: u64) -> RangeRead {
        let enough = ranges.as_ref().map_or(self.limit, |ranges| self.first_rows(ranges));
        let some = if self.is_limited() { FIRST_BATCH_ROWS } else { SCAN_BATCH_ROWS };
        let batch_rows = enough.map_or(some, |n| n.clamp(1, SCAN_BATCH_ROWS));
        let Ranges { ranges, n_fixed } = ranges.unwrap_or_else(|| self.everything());
        RangeRead { ranges, n_fixed, batch_rows, rows }
    }

    /// Whether no filter looks at another column than those of the key.
    fn asks_keys_alone(&self) -> bool {
        let table = &self.table.table;
        self.filter_columns().iter().all(|column| table.key.iter().any(|part| part.column_idx == *column))
    }

    /// How many rows from the beginning of a range, or from its end, are enough, were there no other filters: all the
    /// statement wants are the first ones in the order of the key, or in the opposite one.
    fn first_rows(&self, ranges: &Ranges) -> Option<usize> {
        if self.limit.is_some() {
            return self.limit;
        }
        let table = &self.table.table;
        let top_k = self.shape.as_ref()?.top_k()?;
        let (fixed, free) = table.key.split_at(ranges.n_fixed);
        let name = |part: &KeyPart| table.columns[part.column_idx].name.as_str();
        let mut by = top_k
            .order
            .as_ref()?
            .iter()
            .filter(|(column, _)| !fixed.iter().any(|part| name(part) == column))
            .peekable();
        let is_backwards = match (by.peek(), free.first()) {
            (Some((_, descending)), Some(part)) => *descending != part.descending,
            _ => false,
        };
        let mut free = free.iter();
        let is_of_key = |(column, descending): &(String, bool)| {
            free.next().is_some_and(|part| {
                let is_along = (*descending != part.descending) == is_backwards;
                name(part) == column && is_along && is_in_planner_order(table, part)
            })
        };
        let is_ordered = by.all(is_of_key);
        top_k.n_rows.filter(|_| is_ordered)
    }

    fn spec(&self, version: Version, position: Option<Cursor>, chosen: PathChoice, how: ScanKind) -> ScanSpec {
        ScanSpec {
            table: Arc::clone(&self.table.table),
            version,
            position,
            with_seqno: self.table.schema.fields().len() > self.table.table.columns.len(),
            projection: self.projection.clone(),
            limit: self.limit,
            partitions: self.partitions,
            pruning: self.settings.pruning,
            caches: self.settings.caches,
            chosen,
            how,
        }
    }

    /// The exact union; without a view the lake alone.
    async fn lake(
        &self,
        version: &TableVersion,
        view: Option<&dyn HotView>,
        chosen: PathChoice,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let table = &self.table.table;
        let question = match self.settings.pruning {
            true => Question { predicates: self.predicates.clone(), clauses: clauses(self.filters, table) },
            false => Question::default(),
        };
        let metastore = self.opener.lake().metastore.as_ref();
        let mut pruned = prune_blocks(metastore, table, version, &question).await?;
        let columns = self.columns_read();
        let wish = TotalsRequest { table, version, files: &pruned.files, columns: &columns, patience: self.patience() };
        let totals = match self.settings.caches.metadata {
            true => Arc::clone(&self.opener.lake().totals),
            false => Arc::default(),
        };
        let (known, bytes_read) = totals.known(metastore, &wish).await?;
        pruned.counts.metastore_bytes += bytes_read;
        let hidden = view.map_or_else(|| Ok(Arc::default()), HotView::hidden)?;
        let partitions = match self.table.source.files() {
            FileStore::Lake => self.partitions,
            FileStore::External { .. } => self.partitions.max(pruned.files.len().min(EXTERNAL_PARTITIONS)),
        };
        // What is not read whole is read by pages.
        let skips = |id| version.deletion_vectors.contains_key(&id) || hidden.contains_key(&id);
        let by_pages =
            !self.filters.is_empty() || self.is_limited() || pruned.files.iter().any(|kept| skips(kept.file.id));
        let asked_bloom = !question.clauses.is_empty();
        let mut lake = LakeRead {
            pruned,
            vectors: Arc::clone(&version.deletion_vectors),
            hidden,
            counts: Counts::default(),
            recent_rows: view.map_or(Ok(0), HotView::recent_rows)?,
            columns,
            in_filter: self.filter_columns().into_iter().collect(),
            by_pages,
            late_materialization: false,
            asked_bloom,
            sorted_by_key: version.files.iter().all(|file| file.sorted_by_key),
        };
        let position = view.map(|view| view.position().clone());
        let spec = |lake| ScanSpec { partitions, ..self.spec(version.version, position, chosen, ScanKind::Lake(lake)) };
        let given: Vec<usize> = self.columns_given().collect();
        let cut = BlockCutter {
            table,
            schema: &self.table.schema,
            columns: &lake.columns,
            given: &given,
            known: &known,
            partitions,
            bounded: self.settings.pruning,
        };
        let pieces = lake_files(&cut, &lake.vectors, &lake.hidden, &lake.pruned)?;
        lake.counts = pieces.counts;
        // What was asked of blooms is rare: in most blocks that are left there are few such rows, in some none.
        lake.late_materialization = asked_bloom
            || late_materialization::pays(
                self.shape.as_deref(),
                self.filters,
                &self.projection,
                table,
                &pieces.statistics,
            );
        let spec = spec(lake);
        let recent = view.map(|view| self.recent_statistics(&spec, view)).transpose()?.flatten();
        reading::plan(spec, Some(pieces), recent, &self.opener)
    }

    /// Bounds of recent rows, which lie in memory, when the statement may be answered by them, or joins by them.
    fn recent_statistics(&self, spec: &ScanSpec, view: &dyn HotView) -> Result<Option<Vec<ColumnStatistics>>> {
        if view.recent_rows()? == 0 || !self.shape.as_ref().is_none_or(|shape| shape.uses_bounds()) {
            return Ok(None);
        }
        let (projection, with_seqno) = spec.hot_projection();
        let batches = view.recent(Some(&projection), with_seqno)?;
        let batches = batches.into_iter().map(|batch| arranged(spec, batch)).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(recent_statistics(&batches, spec.projection.len())))
    }

    /// Positions of the table's columns that the scan gives, ascending.
    fn columns_given(&self) -> impl Iterator<Item = usize> {
        let n_columns = self.table.table.columns.len();
        self.projection.iter().copied().filter(move |at| *at < n_columns)
    }

    /// Positions of the table's columns that the scan gives or filters by, ascending.
    fn columns_read(&self) -> Vec<usize> {
        self.columns_given().chain(self.filter_columns()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn filter_columns(&self) -> BTreeSet<usize> {
        let columns = self.filters.iter().flat_map(Expr::column_refs);
        columns.filter_map(|column| self.table.table.column(&column.name).map(|(idx, _)| idx)).collect()
    }

    /// How long planning may ask for what is known of the columns.
    fn patience(&self) -> Patience {
        match self.shape.as_ref() {
            Some(shape) if shape.joins() => Patience::Joins,
            _ if self.filters.is_empty() && !self.is_limited() => Patience::Everything,
            _ => Patience::Some,
        }
    }

    /// Whether perhaps only the first rows of a file are read: a limit may come down to the files later, too.
    fn is_limited(&self) -> bool {
        self.limit.is_some() || self.shape.as_ref().is_some_and(|shape| shape.top_k().is_some())
    }
}
