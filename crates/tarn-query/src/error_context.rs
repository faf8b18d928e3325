//! Error context: of which file is the error of a scan, and what is wrong with it? The scan's [`FileSource`], which
//! adds table and path to every error.
//!
//! A reader of Parquet says what it met, not where. Errors of a file get its path and its table here; of a file of an
//! archive it is looked up once whether it is still the one that was attached: what was written anew is not damaged,
//! and what is gone is neither.
//!
//! A source is planned without readers, and gets them when its scan is opened.
//!
//! Invariant: errors of the statement itself (a division by zero in a filter) and of the metastore are no file's, and
//! stay as they are.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpener, FileScanConfig, FileSource, ParquetSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::{ObjectMeta, ObjectStore};
use parquet::errors::ParquetError;
use tarn_types::Kind;

use crate::Error;
use crate::reader::Readers;

/// A source whose errors name the table and the file.
pub(crate) struct ContextSource {
    inner: Arc<dyn FileSource>,
    table: Arc<str>,
    /// Of the scan that was opened.
    readers: Option<Arc<Readers>>,
}

#[derive(Clone)]
struct ScanContext {
    readers: Arc<Readers>,
    table: Arc<str>,
}

impl ContextSource {
    /// Of a scan that is planned.
    pub(crate) fn new(inner: ParquetSource, table: &str) -> Self {
        ContextSource { inner: Arc::new(inner), table: table.into(), readers: None }
    }

    /// The same, to read with.
    pub(crate) fn opened(&self, readers: &Arc<Readers>) -> Result<ContextSource> {
        let Some(source) = self.inner().downcast_ref::<ParquetSource>() else {
            return internal_err!("a scan of {} reads no Parquet", self.table);
        };
        let inner = source.clone().with_parquet_file_reader_factory(Arc::clone(readers) as _);
        Ok(ContextSource { inner: Arc::new(inner), table: Arc::clone(&self.table), readers: Some(Arc::clone(readers)) })
    }

    pub(crate) fn inner(&self) -> &dyn FileSource {
        self.inner.as_ref()
    }

    /// `source`, which is the one inside, with another predicate.
    pub(crate) fn with_predicate(&self, source: &ParquetSource, predicate: Arc<dyn PhysicalExpr>) -> ContextSource {
        self.with_inner(Arc::new(source.with_predicate(predicate)))
    }

    fn with_inner(&self, inner: Arc<dyn FileSource>) -> ContextSource {
        ContextSource { inner, table: Arc::clone(&self.table), readers: self.readers.clone() }
    }

    fn over(&self, inner: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(self.with_inner(inner))
    }

    fn scan_context(&self) -> Result<ScanContext> {
        match &self.readers {
            Some(readers) => Ok(ScanContext { readers: Arc::clone(readers), table: Arc::clone(&self.table) }),
            None => internal_err!("a scan of {} is read before it is opened", self.table),
        }
    }
}

impl FileSource for ContextSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        self.scan_context()?;
        self.inner.create_file_opener(store, config, partition)
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let scan = self.scan_context()?;
        let inner = self.inner.create_morselizer(store, config, partition)?;
        Ok(Box::new(ContextMorselizer { inner, scan }))
    }

    fn table_schema(&self) -> &TableSchema {
        self.inner.table_schema()
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        self.over(self.inner.with_batch_size(batch_size))
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.inner.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.inner.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.inner.metrics()
    }

    fn file_type(&self) -> &str {
        self.inner.file_type()
    }

    fn fmt_extra(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_extra(format, f)
    }

    fn supports_repartitioning(&self) -> bool {
        self.inner.supports_repartitioning()
    }

    fn repartitioned(
        &self,
        partitions: usize,
        min_size: usize,
        ordering: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        self.inner.repartitioned(partitions, min_size, ordering, config)
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let pushed = self.inner.try_pushdown_filters(filters, config)?;
        let updated_node = pushed.updated_node.map(|inner| self.over(inner));
        Ok(FilterPushdownPropagation { filters: pushed.filters, updated_node })
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        Ok(self.inner.try_pushdown_sort(order, properties)?.map(|inner| self.over(inner)))
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.inner.reorder_files(files)
    }

    fn try_pushdown_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn FileSource>>> {
        Ok(self.inner.try_pushdown_projection(projection)?.map(|inner| self.over(inner)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }
}

struct ContextMorselizer {
    inner: Box<dyn Morselizer>,
    scan: ScanContext,
}

impl fmt::Debug for ContextMorselizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Morselizer for ContextMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let context = Arc::new(FileContext { scan: self.scan.clone(), file: file.object_meta.clone() });
        match self.inner.plan_file(file) {
            Ok(inner) => Ok(Box::new(ContextPlanner { inner, context })),
            Err(error) => Err(error),
        }
    }
}

/// A file that is read.
struct FileContext {
    scan: ScanContext,
    /// As it was attached or written.
    file: ObjectMeta,
}

impl FileContext {
    async fn explain(&self, error: DataFusionError) -> DataFusionError {
        let error = Error::from(error);
        let Some((kind, what)) = of_file(&error) else { return error.into() };
        let ScanContext { readers, table } = &self.scan;
        match readers.lost(&self.file).await {
            Some(lost) => lost.into(),
            None => {
                let (table, path) = (table.to_string(), self.file.location.to_string());
                Error::Read { table, path, kind, what }.into()
            }
        }
    }
}

/// Kind and text of an error that the bytes of a file caused; none for others.
fn of_file(error: &Error) -> Option<(Kind, String)> {
    let source = match error {
        Error::Sql { source } => source,
        Error::Reader { source: tarn_cache::Error::Footer { source, .. } } => return of_parquet(source),
        _ => return None,
    };
    match source.find_root() {
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            // What a decoder met, as text.
            ArrowError::ParquetError(what) => Some((Kind::Corrupt, what.clone())),
            _ => None,
        },
        DataFusionError::ParquetError(inner) => of_parquet(inner),
        DataFusionError::ObjectStore(inner) => Some((Kind::Unavailable, inner.to_string())),
        _ => None,
    }
}

fn of_parquet(error: &ParquetError) -> Option<(Kind, String)> {
    let ParquetError::External(inner) = error else { return Some((Kind::Corrupt, error.to_string())) };
    if let Some(tarn_cache::Error::Footer { source, .. }) = inner.downcast_ref() {
        of_parquet(source)
    } else if inner.is::<tarn_cache::Error>()
        || inner.is::<Error>()
        || inner.is::<ArrowError>()
        || inner.is::<DataFusionError>()
    {
        None
    } else if inner.is::<object_store::Error>() || inner.is::<std::io::Error>() {
        Some((Kind::Unavailable, inner.to_string()))
    } else {
        Some((Kind::Corrupt, inner.to_string()))
    }
}

struct ContextPlanner {
    inner: Box<dyn MorselPlanner>,
    context: Arc<FileContext>,
}

impl fmt::Debug for ContextPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl MorselPlanner for ContextPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let ContextPlanner { inner, context } = *self;
        match inner.plan() {
            Ok(plan) => Ok(plan.map(|plan| with_context(plan, &context))),
            // It takes IO to say what is wrong.
            Err(error) => {
                Ok(Some(MorselPlan::new().with_pending_planner(async move { Err(context.explain(error).await) })))
            }
        }
    }
}

fn with_context(mut plan: MorselPlan, context: &Arc<FileContext>) -> MorselPlan {
    let morsel = |inner| Box::new(ContextMorsel { inner, context: Arc::clone(context) }) as Box<dyn Morsel>;
    let planner = |inner| Box::new(ContextPlanner { inner, context: Arc::clone(context) }) as Box<dyn MorselPlanner>;
    let morsels = plan.take_morsels().into_iter().map(morsel).collect();
    let planners = plan.take_ready_planners().into_iter().map(planner).collect();
    let pending = plan.take_pending_planner();
    let mut plan = MorselPlan::new().with_morsels(morsels).with_planners(planners);
    if let Some(pending) = pending {
        let context = Arc::clone(context);
        plan.set_pending_planner(async move {
            match pending.await {
                Ok(inner) => Ok(Box::new(ContextPlanner { inner, context }) as Box<dyn MorselPlanner>),
                Err(error) => Err(context.explain(error).await),
            }
        });
    }
    plan
}

struct ContextMorsel {
    inner: Box<dyn Morsel>,
    context: Arc<FileContext>,
}

impl fmt::Debug for ContextMorsel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Morsel for ContextMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let ContextMorsel { inner, context } = *self;
        let explained = move |batch: Result<RecordBatch>| {
            let context = Arc::clone(&context);
            async move {
                match batch {
                    Ok(batch) => Ok(batch),
                    Err(error) => Err(context.explain(error).await),
                }
            }
        };
        inner.into_stream().then(explained).boxed()
    }
}
