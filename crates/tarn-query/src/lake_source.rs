//! How are files of a lake a source of DataFusion's without a handle in the plan? [`LakeSource`] is the configuration
//! of a file scan with the [`ScanSpec`] that it belongs to. It is planned as any file scan is; when it runs it finds
//! the readers by the spec.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use datafusion::common::config::{ConfigOptions, TableParquetOptions};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::{DataSource, DataSourceExec, OpenArgs};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::SchedulingType;
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan, Partitioning, SortOrderPushdownResult};

use crate::error_context::ContextSource;
use crate::failing::may_fail;
use crate::lake::lake_url;
use crate::missing::MissingValues;
use crate::opening::{OpenScan, Opener};
use crate::spec::ScanSpec;

/// Files of one scan.
#[derive(Debug)]
pub(crate) struct LakeSource {
    config: Arc<FileScanConfig>,
    spec: Arc<ScanSpec>,
    /// What runs; made by the partition that is opened first.
    opened: OnceLock<FileScanConfig>,
}

impl LakeSource {
    /// The node that reads `config`.
    pub(crate) fn exec(config: FileScanConfig, spec: &Arc<ScanSpec>) -> DataSourceExec {
        DataSourceExec::new(Arc::new(LakeSource::new(Arc::new(config), spec)))
    }

    fn new(config: Arc<FileScanConfig>, spec: &Arc<ScanSpec>) -> Self {
        LakeSource { config, spec: Arc::clone(spec), opened: OnceLock::new() }
    }

    /// What a node reads, if it reads files of a lake.
    pub(crate) fn of(plan: &dyn ExecutionPlan) -> Option<&LakeSource> {
        plan.downcast_ref::<DataSourceExec>()?.data_source().downcast_ref()
    }

    pub(crate) fn config(&self) -> &FileScanConfig {
        &self.config
    }

    /// What DataFusion made of the configuration is one of the same scan.
    fn over(&self, made: Arc<dyn DataSource>) -> Result<Arc<dyn DataSource>> {
        let made: Arc<dyn Any + Send + Sync> = made;
        match made.downcast::<FileScanConfig>() {
            Ok(config) => Ok(Arc::new(LakeSource::new(config, &self.spec))),
            Err(_) => internal_err!("a scan of {} became no scan of files", self.spec.table.name),
        }
    }
}

/// A scan of these pieces of the table's files, not opened yet. `full` is the SQL schema of all columns.
pub(crate) fn files_config(
    spec: &ScanSpec,
    full: &SchemaRef,
    groups: Vec<FileGroup>,
    statistics: Option<Statistics>,
    late_materialization: bool,
) -> crate::Result<FileScanConfig> {
    let mut options = TableParquetOptions::default();
    options.global.pruning = spec.pruning;
    let source = ParquetSource::new(Arc::clone(full))
        .with_table_parquet_options(options)
        .with_pushdown_filters(late_materialization)
        .with_bloom_filter_on_read(spec.pruning)
        .with_enable_page_index(spec.pruning);
    let source = ContextSource::new(source, &spec.table.name);
    let mut config = FileScanConfigBuilder::new(lake_url()?, Arc::new(source))
        .with_file_groups(groups)
        .with_projection_indices(Some(spec.projection.clone()))?
        .with_limit(spec.limit)
        .with_expr_adapter(MissingValues::of(&spec.table)?);
    if let Some(statistics) = statistics {
        config = config.with_statistics(statistics);
    }
    Ok(config.build())
}

/// The same scan, to be run.
pub(crate) fn opened(config: &FileScanConfig, open: &OpenScan) -> Result<FileScanConfig> {
    let Some(named) = config.file_source.downcast_ref::<ContextSource>() else {
        return internal_err!("a scan of files of no table");
    };
    let mut opened = config.clone();
    opened.file_source = Arc::new(named.opened(&open.readers)?);
    Ok(opened)
}

#[deny(clippy::missing_trait_methods)]
impl DataSource for LakeSource {
    fn open(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.open_with_args(OpenArgs::new(partition, context))
    }

    fn open_with_args(&self, args: OpenArgs) -> Result<SendableRecordBatchStream> {
        let config = match self.opened.get() {
            Some(config) => config,
            None => {
                let open = Opener::of(&args.context)?.open(&self.spec)?;
                let config = opened(&self.config, &open)?;
                self.opened.get_or_init(|| config)
            }
        };
        config.open_with_args(args)
    }

    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt_as(format, f)
    }

    fn repartitioned(
        &self,
        partitions: usize,
        min_size: usize,
        ordering: Option<LexOrdering>,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        let made = self.config.repartitioned(partitions, min_size, ordering)?;
        made.map(|made| self.over(made)).transpose()
    }

    fn output_partitioning(&self) -> Partitioning {
        self.config.output_partitioning()
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        self.config.eq_properties()
    }

    fn scheduling_type(&self) -> SchedulingType {
        self.config.scheduling_type()
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        self.config.partition_statistics(partition)
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn DataSource>> {
        self.over(self.config.with_fetch(limit)?).ok()
    }

    fn fetch(&self) -> Option<usize> {
        self.config.fetch()
    }

    fn metrics(&self) -> ExecutionPlanMetricsSet {
        self.config.metrics()
    }

    fn try_swapping_with_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn DataSource>>> {
        let made = self.config.try_swapping_with_projection(projection)?;
        made.map(|made| self.over(made)).transpose()
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn DataSource>>> {
        let stays: Vec<bool> = filters.iter().map(may_fail).collect();
        let asked = filters.into_iter().zip(&stays).filter(|(_, stays)| !**stays).map(|(filter, _)| filter).collect();
        let FilterPushdownPropagation { filters, updated_node } = self.config.try_pushdown_filters(asked, config)?;
        let mut told = filters.into_iter();
        let filters = stays.into_iter().map(|stays| if stays { None } else { told.next() });
        let filters = filters.map(|told| told.unwrap_or(PushedDown::No)).collect();
        let updated_node = updated_node.map(|made| self.over(made)).transpose()?;
        Ok(FilterPushdownPropagation { filters, updated_node })
    }

    fn try_pushdown_sort(&self, order: &[PhysicalSortExpr]) -> Result<SortOrderPushdownResult<Arc<dyn DataSource>>> {
        self.config.try_pushdown_sort(order)?.try_map(|made| self.over(made))
    }

    fn with_preserve_order(&self, preserve_order: bool) -> Option<Arc<dyn DataSource>> {
        self.over(self.config.with_preserve_order(preserve_order)?).ok()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.config.apply_expressions(f)
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn DataSource>> {
        self.over(self.config.with_new_state(state)?).ok()
    }

    fn create_sibling_state(&self, config: &ConfigOptions) -> Option<Arc<dyn Any + Send + Sync>> {
        self.config.create_sibling_state(config)
    }
}
