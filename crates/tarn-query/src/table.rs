//! Which way to this table's rows? One [`TarnTable`] per table and statement: it takes the view, chooses the path and builds the scan.
//!
//! | path | when | reads |
//! |---|---|---|
//! | `point` | every key column has one value | the row engine; an evicted row from its file, by address |
//! | `range` | every partition-key column has one value, and no row was evicted | the row engine, one key prefix |
//! | `rows` | forced | the row engine, all of it |
//! | `lake` | else, or forced | files at the view's version without dead and hidden rows, and recent rows |
//!
//! Law 4: every path that can serve a statement gives the same answer. The filters are applied to the rows whatever the path.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::TableParquetOptions;
use datafusion::common::{Constraints, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::union::UnionExec;
use tarn_cache::ProjectedCache;
use tarn_metastore::prune::Predicate;
use tarn_metastore::{At, Metastore, TableVersion};
use tarn_types::{
    DataType, RowDecoder, SEQNO_COLUMN, SEQNO_ID, TableSchema, Value, Version, encode_key, encode_partition_prefix,
};

use crate::chunks::{ChunkLoader, Columns};
use crate::clauses::clauses;
use crate::culprit::NamedSource;
use crate::files::{Counts, Cut, Hidden, lake_files, single_row};
use crate::fragments::LakeSide;
use crate::hot::{FileStore, HotLookup, HotSource, HotView};
use crate::hot_exec::{RecentExec, RowsExec};
use crate::late::{self, Shape};
use crate::predicate::{equalities, predicates};
use crate::projected::Named;
use crate::reader::Readers;
use crate::scan::{Access, TarnScan};
use crate::settings::{AccessPath, AsOf, CacheSettings, Settings};
use crate::snapshot::{Snapshots, lake_at};
use crate::survivors::{Question, survivors};
use crate::totals::{Patience, Totals, Wish};
use crate::values::{SqlSchemas, to_scalar};
use crate::{Error, Result};

/// The store under which the lake is registered with DataFusion.
pub(crate) const LAKE_URL: &str = "tarn-lake://lake";

/// What every table of an engine reads with.
pub(crate) struct Lake {
    pub metastore: Arc<dyn Metastore>,
    pub readers: Arc<Readers>,
    /// Metadata of files as scans need it.
    pub projected: Arc<ProjectedCache>,
    /// What is known of columns whose bounds are not in memory.
    pub totals: Arc<Totals>,
    pub url: ObjectStoreUrl,
    pub schemas: SqlSchemas,
}

/// So many files of an archive are read at once: its store may be far.
const ARCHIVE_PARTITIONS: usize = 16;

/// One table as SQL sees it.
pub(crate) struct TarnTable {
    lake: Arc<Lake>,
    source: Arc<dyn HotSource>,
    table: Arc<TableSchema>,
    /// With `__seqno` last, if the table was asked for with it.
    schema: SchemaRef,
    constraints: Constraints,
    defaults: BTreeMap<String, Expr>,
}

impl TarnTable {
    pub(crate) fn new(lake: Arc<Lake>, source: Arc<dyn HotSource>, with_seqno: bool) -> Self {
        let table = source.schema();
        let schema = lake.schemas.of(&table, with_seqno);
        let default = |column: &tarn_types::Column| {
            let scalar = to_scalar(column.default.as_ref()?, &column.data_type)?;
            Some((column.name.clone(), lit(scalar)))
        };
        let defaults = table.columns.iter().filter_map(default).collect();
        TarnTable { lake, source, table, schema, constraints: Constraints::default(), defaults }
    }

    pub(crate) fn table_schema(&self) -> &Arc<TableSchema> {
        &self.table
    }

    pub(crate) fn source(&self) -> &Arc<dyn HotSource> {
        &self.source
    }

    fn view(&self, state: &dyn Session) -> Result<Arc<dyn HotView>> {
        let snapshots = state.config().get_extension::<Snapshots>();
        let outside =
            || Error::Corrupt { what: format!("table {} is scanned outside of a statement", self.table.name) };
        snapshots.ok_or_else(outside)?.view(&self.table)
    }

    async fn lake(&self, at: At) -> Result<Arc<TableVersion>> {
        lake_at(self.lake.metastore.as_ref(), &self.table, at).await
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
        let settings = state.config_options().extensions.get::<Settings>().cloned().unwrap_or_default();
        let scan = Scan {
            table: self,
            projection: projection.cloned(),
            schema: match projection {
                Some(projection) => Arc::new(self.schema.project(projection)?),
                None => Arc::clone(&self.schema),
            },
            predicates: predicates(filters, &self.table),
            filters,
            shape: state.config().get_extension(),
            limit,
            partitions: state.config().target_partitions().max(1),
            pruning: settings.pruning,
            caches: settings.caches,
        };
        Ok(scan.plan(state, &settings).await?)
    }
}

/// One scan while it is planned.
struct Scan<'a> {
    table: &'a TarnTable,
    projection: Option<Vec<usize>>,
    /// Projected, of SQL types.
    schema: SchemaRef,
    filters: &'a [Expr],
    /// What they say about single columns.
    predicates: Vec<Predicate>,
    /// Of the statement.
    shape: Option<Arc<Shape>>,
    limit: Option<usize>,
    partitions: usize,
    /// Whether blocks may be left out.
    pruning: bool,
    caches: CacheSettings,
}

impl Scan<'_> {
    async fn plan(&self, state: &dyn Session, settings: &Settings) -> Result<Arc<dyn ExecutionPlan>> {
        let table = &self.table.table;
        if let Some(as_of) = settings.as_of {
            let (at, why) = match as_of {
                AsOf::Version(version) => (At::Version(version), "forced by tarn.as_of_version"),
                AsOf::Time(ms) => (At::Time(ms), "forced by tarn.as_of_time"),
            };
            // Nothing is read there, but the files stay for as long as it lives.
            self.table.view(state)?;
            return self.lake(&*self.table.lake(at).await?, None, why.to_owned()).await;
        }
        let view = self.table.view(state)?;
        let forced = settings.access_path;
        if forced != AccessPath::Lake && !table.options.append_only {
            let equal = equalities(&self.predicates, table);
            if let Some(key) = self.full_key(&equal) {
                return self.point(view.as_ref(), &key).await;
            }
            if view.rows_complete()
                && let Some(prefix) = self.partition_prefix(&equal)
            {
                let why = "one partition key, no row evicted".to_owned();
                return Ok(self.rows(&view, "range", why, vec![Some(prefix)]));
            }
        }
        match forced {
            AccessPath::Rows => {
                self.rows_can_serve(view.as_ref())?;
                Ok(self.rows(&view, "rows", "forced by tarn.access_path".to_owned(), vec![None]))
            }
            AccessPath::Lake | AccessPath::Auto => {
                let lake = self.table.lake(At::Version(view.version())).await?;
                let why = match forced {
                    AccessPath::Lake => "forced by tarn.access_path".to_owned(),
                    _ => self.why_lake(view.as_ref()),
                };
                self.lake(&lake, Some(view.as_ref()), why).await
            }
        }
    }

    fn why_lake(&self, view: &dyn HotView) -> String {
        let table = &self.table.table;
        let partition_key = || {
            table
                .key
                .iter()
                .take(table.n_partition_key)
                .map(|p| table.columns[p.column_idx].name.as_str())
                .collect::<Vec<_>>()
        };
        if table.options.append_only || table.key.is_empty() {
            "the table has no rows by key".to_owned()
        } else if self.partition_prefix(&equalities(&self.predicates, table)).is_some() && !view.rows_complete() {
            "one partition key, but rows were evicted".to_owned()
        } else {
            format!("no equality on {}: columns cost less than rows", partition_key().join(", "))
        }
    }

    fn rows_can_serve(&self, view: &dyn HotView) -> Result<()> {
        let table = &self.table.table;
        let refuse = |why, remedy| Err(Error::AccessPath { path: "rows", table: table.name.clone(), why, remedy });
        if table.options.append_only {
            return refuse("append-only tables are not kept by key", "SET tarn.access_path = 'auto'");
        }
        if !view.rows_complete() {
            return refuse("some of its rows are only in the lake", "SET tarn.access_path = 'auto', or 'lake'");
        }
        Ok(())
    }

    /// The engine key, when every key column has one value.
    fn full_key(&self, equal: &BTreeMap<usize, Value>) -> Option<Vec<u8>> {
        let table = &self.table.table;
        let values: Vec<Value> =
            table.key.iter().map(|part| equal.get(&part.column_idx).cloned()).collect::<Option<_>>()?;
        encode_key(table, &values).ok().filter(|_| !values.is_empty())
    }

    /// The engine prefix, when every partition-key column has one value; clustering columns narrow it as far as they go.
    fn partition_prefix(&self, equal: &BTreeMap<usize, Value>) -> Option<Vec<u8>> {
        let table = &self.table.table;
        let values: Vec<Value> = table.key.iter().map_while(|part| equal.get(&part.column_idx).cloned()).collect();
        if table.n_partition_key == 0 || values.len() < table.n_partition_key {
            return None;
        }
        encode_partition_prefix(table, &values).ok()
    }

    /// Positions of the table's own columns, without `__seqno`; and whether that was asked for.
    fn hot_projection(&self) -> (Vec<usize>, bool) {
        let n_columns = self.table.table.columns.len();
        let all = (0..self.table.schema.fields().len()).collect();
        let wanted: Vec<usize> = self.projection.clone().unwrap_or(all);
        (wanted.iter().copied().filter(|idx| *idx < n_columns).collect(), wanted.contains(&n_columns))
    }

    /// Hot batches have `__seqno` last: put the columns where the projection has them.
    fn arrange(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let n_columns = self.table.table.columns.len();
        let (Some(wanted), (_, true)) = (&self.projection, self.hot_projection()) else { return Ok(batch) };
        let last = batch.num_columns() - 1;
        let mut next = 0;
        let order: Vec<usize> = wanted
            .iter()
            .map(|idx| {
                if *idx == n_columns {
                    last
                } else {
                    next += 1;
                    next - 1
                }
            })
            .collect();
        batch.project(&order).map_err(|e| Error::from(DataFusionError::from(e)))
    }

    async fn point(&self, view: &dyn HotView, key: &[u8]) -> Result<Arc<dyn ExecutionPlan>> {
        let table = &self.table.table;
        let (projection, with_seqno) = self.hot_projection();
        let access = |why: &str| self.access("point", why.to_owned(), view.version());
        match view.get(key)? {
            HotLookup::InLake(address) => {
                let lake = self.table.lake(At::Version(view.version())).await?;
                let file = lake.file(address.file).ok_or_else(|| Error::Corrupt {
                    what: format!(
                        "address of a row of {} names file {}, which version {} does not have",
                        table.name, address.file, lake.version
                    ),
                })?;
                let group = single_row(file, address.row)?.ok_or_else(|| Error::Corrupt {
                    what: format!(
                        "address of a row of {} names row {} of {}, which has {}",
                        table.name, address.row, file.path, file.n_rows
                    ),
                })?;
                let scan =
                    self.parquet(Arc::new(self.table.lake.readers.of_scan(&self.caches)), vec![group], None, false)?;
                Ok(Arc::new(TarnScan::new(scan, access("full key, evicted row read from the lake by its address"))))
            }
            found => {
                let mut decoder = RowDecoder::new(table, Some(&projection), with_seqno);
                if let HotLookup::Row { cells, seqno } = found {
                    decoder.push(key, &cells, seqno).map_err(Error::types(&table.name))?;
                }
                let batch = self.arrange(decoder.finish().map_err(Error::types(&table.name))?)?;
                let scan = RecentExec::new(vec![batch], Arc::clone(&self.schema), 1);
                Ok(Arc::new(TarnScan::new(Arc::new(scan), access("full key"))))
            }
        }
    }

    fn rows(
        &self,
        view: &Arc<dyn HotView>,
        path: &'static str,
        why: String,
        prefixes: Vec<Option<Vec<u8>>>,
    ) -> Arc<dyn ExecutionPlan> {
        let (projection, with_seqno) = self.hot_projection();
        // `__seqno` is the last column of the schema, and DataFusion keeps projections in order: no rearranging here.
        let scan = RowsExec::new(
            Arc::clone(view),
            prefixes,
            Some(projection),
            with_seqno,
            self.limit,
            Arc::clone(&self.schema),
        );
        Arc::new(TarnScan::new(Arc::new(scan), self.access(path, why, view.version())))
    }

    /// The exact union; without a view the lake alone.
    async fn lake(
        &self,
        lake: &TableVersion,
        view: Option<&dyn HotView>,
        why: String,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let TarnTable { table, schema, .. } = self.table;
        let metastore = &self.table.lake.metastore;
        let hidden = view.map_or_else(|| Ok(Arc::new(Hidden::new())), HotView::hidden)?;
        let question = match self.pruning {
            true => Question { predicates: self.predicates.clone(), clauses: clauses(self.filters, table) },
            false => Question::default(),
        };
        let mut survivors = survivors(metastore.as_ref(), table, lake, &question).await?;
        let columns = self.columns_read();
        let (given, with_seqno) = self.hot_projection();
        let wish = Wish { table, version: lake, files: &survivors.files, columns: &columns, patience: self.patience() };
        let totals = match self.caches.metadata {
            true => Arc::clone(&self.table.lake.totals),
            false => Arc::default(),
        };
        let (known, bytes_read) = totals.known(metastore.as_ref(), &wish).await?;
        survivors.counts.metastore_bytes += bytes_read;
        let readers = self.table.lake.readers.of_scan(&self.caches);
        let (readers, partitions) = match self.table.source.files() {
            FileStore::Lake => (readers, self.partitions),
            FileStore::Archive { store, id } => (
                readers.of_archive(store, id, &table.name),
                self.partitions.max(survivors.files.len().min(ARCHIVE_PARTITIONS)),
            ),
        };
        let readers = Arc::new(readers);
        let projected = match self.caches.metadata {
            true => Arc::clone(&self.table.lake.projected),
            false => Arc::new(ProjectedCache::new(0)),
        };
        let loader = (self.pruning && !survivors.files.is_empty()).then(|| {
            let skips = |id| lake.deletion_vectors.contains_key(&id) || hidden.contains_key(&id);
            // What is not read whole is read by pages.
            let indexed =
                !self.filters.is_empty() || self.is_limited() || survivors.files.iter().any(|kept| skips(kept.file.id));
            Arc::new(ChunkLoader::new(
                Arc::clone(metastore),
                projected,
                Arc::clone(table),
                self.named(&columns, with_seqno),
                &survivors.files,
                indexed.then_some(readers.page_index_bytes),
            ))
        });
        let cut = Cut {
            table,
            schema,
            columns: &columns,
            given: &given,
            known: &known,
            partitions,
            bounded: self.pruning,
            loader: loader.as_ref(),
        };
        let files = lake_files(&cut, lake, &hidden, &survivors)?;
        let recent_rows = view.map_or(0, HotView::recent_rows);
        let sorted_by = match lake.files.iter().all(|file| file.sorted_by_key) {
            true => self.key_order(),
            false => vec![],
        };
        let asked_bloom = !question.clauses.is_empty();
        // What was asked of blooms is rare: in most blocks that are left there are few such rows, in some none.
        let late = asked_bloom
            || late::pays(self.shape.as_deref(), self.filters, self.projection.as_deref(), table, &files.statistics);
        let lake_side = LakeSide {
            table: Arc::clone(table),
            vectors: Arc::clone(&lake.deletion_vectors),
            hidden: Arc::clone(&hidden),
            columns: columns.clone(),
            loader: loader.clone(),
            files: survivors.files,
        };
        let access = Access {
            lake: Some(Arc::new(lake_side)),
            counts: files.counts,
            recent_rows,
            sorted_by,
            late,
            asked_bloom,
            loader,
            readers: Some(Arc::clone(&readers)),
            ..self.access("lake", why, lake.version)
        };

        let mut inputs: Vec<Arc<dyn ExecutionPlan>> = vec![];
        if !files.groups.is_empty() {
            inputs.push(self.parquet(readers, files.groups, Some(files.statistics), late)?);
        }
        if let Some(view) = view.filter(|view| view.recent_rows() > 0) {
            let (projection, with_seqno) = self.hot_projection();
            let recent = view.recent(Some(&projection), with_seqno)?;
            let recent = recent.into_iter().map(|batch| self.arrange(batch)).collect::<Result<Vec<_>>>()?;
            inputs.push(Arc::new(RecentExec::new(recent, Arc::clone(&self.schema), self.partitions)));
        }
        if inputs.is_empty() {
            inputs.push(Arc::new(RecentExec::new(vec![], Arc::clone(&self.schema), 1)));
        }
        Ok(Arc::new(TarnScan::new(UnionExec::try_new(inputs)?, access)))
    }

    /// Positions of the table's columns that the scan gives or filters by, ascending.
    fn columns_read(&self) -> Vec<usize> {
        let (mut columns, _) = self.hot_projection();
        columns.extend(self.filter_columns());
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    fn filter_columns(&self) -> BTreeSet<usize> {
        let columns = self.filters.iter().flat_map(Expr::column_refs);
        columns.filter_map(|column| self.table.table.column(&column.name).map(|(idx, _)| idx)).collect()
    }

    /// Whether perhaps only the first rows of a file are read: a limit may come down to the files later, too.
    fn is_limited(&self) -> bool {
        self.limit.is_some() || self.shape.as_ref().is_some_and(|shape| shape.has_top_k())
    }

    /// How long planning may ask for what is known of the columns.
    fn patience(&self) -> Patience {
        match self.shape.as_ref() {
            Some(shape) if shape.reads_several() => Patience::Joins,
            _ if self.filters.is_empty() && !self.is_limited() => Patience::Everything,
            _ => Patience::Some,
        }
    }

    /// What is asked of each file: these columns, or of none the first one, which says where row groups are; and the change of a row.
    fn named(&self, columns: &[usize], with_seqno: bool) -> Columns {
        let in_filter = self.filter_columns();
        let columns = if columns.is_empty() && !with_seqno { &[0] } else { columns };
        let named = columns.iter().map(|idx| {
            let column = &self.table.table.columns[*idx];
            Named { id: column.id, name: column.name.as_str().into(), data_type: column.data_type }
        });
        let change = with_seqno.then(|| Named { id: SEQNO_ID, name: SEQNO_COLUMN.into(), data_type: DataType::Int64 });
        let mut in_filter: Vec<bool> = columns.iter().map(|idx| in_filter.contains(idx)).collect();
        in_filter.extend(change.iter().map(|_| false));
        Columns { named: named.chain(change).collect(), in_filter }
    }

    fn key_order(&self) -> Vec<(String, bool)> {
        let table = &self.table.table;
        table.key.iter().map(|part| (table.columns[part.column_idx].name.clone(), part.descending)).collect()
    }

    fn parquet(
        &self,
        readers: Arc<Readers>,
        groups: Vec<FileGroup>,
        statistics: Option<Statistics>,
        late: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut options = TableParquetOptions::default();
        options.global.pruning = self.pruning;
        let source = ParquetSource::new(Arc::clone(&self.table.schema))
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(Arc::clone(&readers) as _)
            .with_pushdown_filters(late)
            .with_bloom_filter_on_read(self.pruning)
            .with_enable_page_index(self.pruning);
        let source = NamedSource::new(Arc::new(source), readers, &self.table.table.name);
        let mut config = FileScanConfigBuilder::new(self.table.lake.url.clone(), Arc::new(source))
            .with_file_groups(groups)
            .with_projection_indices(self.projection.clone())?
            .with_limit(self.limit);
        if let Some(statistics) = statistics {
            config = config.with_statistics(statistics);
        }
        Ok(DataSourceExec::from_data_source(config.build()))
    }

    fn access(&self, path: &'static str, why: String, version: Version) -> Access {
        Access {
            table: self.table.table.name.clone(),
            path,
            why,
            version: version.0,
            counts: Counts::default(),
            recent_rows: 0,
            sorted_by: vec![],
            late: false,
            asked_bloom: false,
            loader: None,
            readers: None,
            lake: None,
            no_fragments: Arc::new(OnceLock::new()),
        }
    }
}
