//! What does a subtree of a plan ask of each file? A [`FragmentLeaf`]: conditions, outputs, and the nodes to run over
//! one file.
//!
//! ```text
//! AggregateExec Partial  ┐
//! ProjectionExec         │ from the top down to the files; what only moves rows is not in a leaf
//! FilterExec             │
//! TarnScan               │
//! DataSourceExec         ┘
//! ```
//!
//! Conditions are taken from wherever they are: filters above the scan, and the scan's own predicate if it is applied
//! row by row. A predicate that only prunes says nothing of the rows.
//!
//! Invariant: what a leaf gives of a file is determined by its conditions, its outputs and the file's live rows. A
//! filter that changes while the query runs (of a join, of a top-k) is no condition, and is not in the nodes that run
//! over one file.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, PlanProperties, replace_children_if_necessary};
use tarn_types::TableSchema;

use super::aggregate::{self, Output};
use super::canonical::{self, Canonical, Encoder, FORMAT, Reason, Term, table_column, unknown};
use super::prove::ColumnClaim;
use crate::error_context::ContextSource;
use crate::lake_source::LakeSource;
use crate::scan::{Access, TarnScan};
use crate::spec::ScanSpec;

/// A node on the way down, and which of its children is the next one.
#[derive(Debug, Clone)]
pub(crate) struct ChainStep {
    /// As it stands in the plan.
    pub node: Arc<dyn ExecutionPlan>,
    child: usize,
}

impl ChainStep {
    /// The node over another plan.
    pub(crate) fn with(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut children: Vec<Arc<dyn ExecutionPlan>> = self.node.children().into_iter().cloned().collect();
        children[self.child] = plan;
        replace_children_if_necessary(Arc::clone(&self.node), children)
    }
}

/// From the top of a subtree to the files of one scan.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    /// From the top.
    pub steps: Vec<ChainStep>,
    files: Arc<dyn ExecutionPlan>,
    /// How the scan reads its table.
    pub access: Arc<Access>,
}

impl Chain {
    /// `None`: it is not made of what leaves are made of.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Chain> {
        let mut steps = vec![];
        let (files, access) = descend(plan, None, &mut steps)?;
        Some(Chain { steps, files, access })
    }

    /// The chain without its first `n` steps.
    pub(crate) fn below(&self, n: usize) -> Chain {
        Chain { steps: self.steps[n..].to_vec(), ..self.clone() }
    }

    pub(crate) fn root(&self) -> &Arc<dyn ExecutionPlan> {
        self.steps.first().map_or(&self.files, |step| &step.node)
    }

    fn config(&self) -> Option<&FileScanConfig> {
        LakeSource::of(self.files.as_ref()).map(LakeSource::config)
    }

    /// The same plan with other pieces of files, in as many groups.
    pub(crate) fn with_pieces(&self, pieces: Vec<PartitionedFile>) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(config) = self.config() else { return Ok(Arc::clone(self.root())) };
        let mut groups: Vec<Vec<PartitionedFile>> = vec![vec![]; config.file_groups.len()];
        let n_groups = groups.len().max(1);
        pieces.into_iter().enumerate().for_each(|(at, piece)| groups[at % n_groups].push(piece));
        let groups = groups.into_iter().map(FileGroup::new).collect();
        let config = FileScanConfigBuilder::from(config.clone()).with_file_groups(groups).build();
        let files: Arc<dyn ExecutionPlan> = Arc::new(LakeSource::exec(config, &self.access.spec));
        self.steps.iter().rev().try_fold(files, |plan, step| step.with(plan))
    }
}

type ChainBottom = (Arc<dyn ExecutionPlan>, Arc<Access>);

fn descend(
    plan: &Arc<dyn ExecutionPlan>,
    access: Option<&Arc<Access>>,
    steps: &mut Vec<ChainStep>,
) -> Option<ChainBottom> {
    if LakeSource::of(plan.as_ref()).is_some() {
        return Some((Arc::clone(plan), Arc::clone(access?)));
    }
    let of_scan = plan.downcast_ref::<TarnScan>().map(TarnScan::access);
    let passes = match plan.downcast_ref::<UnionExec>() {
        // Files and recent rows of one table.
        Some(_) => access.is_some(),
        None => of_scan.is_some() || is_of_leaves(plan),
    };
    if !passes {
        return None;
    }
    for (child, input) in plan.children().into_iter().enumerate() {
        steps.push(ChainStep { node: Arc::clone(plan), child });
        if let Some(found) = descend(input, of_scan.or(access), steps) {
            return Some(found);
        }
        steps.pop();
    }
    None
}

fn is_of_leaves(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::Single);
    }
    if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
        return matches!(repartition.partitioning(), Partitioning::RoundRobinBatch(_)) && !repartition.preserve_order();
    }
    plan.is::<FilterExec>() || plan.is::<ProjectionExec>() || plan.is::<CooperativeExec>()
}

/// One of the conditions that a row must meet.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    /// The condition itself.
    pub term: Term,
    /// What bounds may prove of it.
    pub claim: Option<ColumnClaim>,
}

/// What is asked of every file, and how.
#[derive(Debug)]
pub(crate) struct FragmentLeaf {
    /// From the leaf's top.
    pub chain: Chain,
    /// All must be true of a row.
    pub conditions: Vec<Condition>,
    /// Everything of the key besides conditions and file.
    pub head: Vec<u8>,
    /// Of what the leaf gives.
    pub schema: SchemaRef,
    /// The columns of `schema` in the order in which they are kept.
    pub order: Vec<usize>,
    /// A filter that changes while the query runs was left out.
    pub is_dynamic: bool,
    /// It gives partial states instead of rows.
    pub has_aggregate: bool,
    /// The aggregate at the top is of one partition, with its final part: it is to be taken apart.
    pub is_single: bool,
    /// Makes the nodes that run over one file.
    pub template: Template,
}

/// The nodes of a leaf, to be put over a file.
#[derive(Debug)]
pub(crate) struct Template {
    config: FileScanConfig,
    /// From below.
    nodes: Vec<Arc<dyn ExecutionPlan>>,
}

impl Template {
    /// Of the leaf where it stood in the plan.
    pub(crate) fn properties(&self, chain: &Chain) -> Arc<PlanProperties> {
        Arc::clone(self.nodes.last().unwrap_or(chain.root()).properties())
    }

    /// The leaf over one piece of a file of the scan: one partition.
    pub(crate) fn over(&self, piece: PartitionedFile, spec: &Arc<ScanSpec>) -> Result<Arc<dyn ExecutionPlan>> {
        let config = FileScanConfigBuilder::from(self.config.clone());
        let config = config.with_file_groups(vec![FileGroup::new(vec![piece])]).build();
        let files: Arc<dyn ExecutionPlan> = Arc::new(LakeSource::exec(config, spec));
        self.nodes.iter().try_fold(files, |plan, node| replace_children_if_necessary(Arc::clone(node), vec![plan]))
    }
}

/// What the source filters by, without what changes.
struct Predicate {
    fixed: Vec<Arc<dyn PhysicalExpr>>,
    /// Of each, when it only leaves out blocks: what it says, if that can be said.
    prunes: Vec<Option<Term>>,
    is_dynamic: bool,
}

impl Predicate {
    /// The scan of a leaf with these conditions, without files. It leaves out blocks by these conditions only: a node
    /// above the leaf may have pushed down what no row of the leaf has to meet.
    fn config(self, files: &FileScanConfig, conditions: &[Condition]) -> FileScanConfig {
        let n_fixed = self.fixed.len();
        let is_met = |term: &Option<Term>| {
            term.as_ref().is_some_and(|term| conditions.iter().any(|condition| condition.term.bytes == term.bytes))
        };
        let kept: Vec<Arc<dyn PhysicalExpr>> = match self.prunes.is_empty() {
            true => self.fixed,
            false => {
                self.fixed.into_iter().zip(&self.prunes).filter(|(_, term)| is_met(term)).map(|(e, _)| e).collect()
            }
        };
        let is_whole = kept.len() == n_fixed && !self.is_dynamic;
        let mut builder = FileScanConfigBuilder::from(files.clone()).with_file_groups(vec![]);
        if let Some(named) = files.file_source.downcast_ref::<ContextSource>() {
            let stored = named.table_schema().table_schema();
            builder = builder.with_statistics(Statistics::new_unknown(stored));
            if let (false, Some(source)) = (is_whole, named.inner().downcast_ref::<ParquetSource>()) {
                builder = builder.with_source(Arc::new(named.with_predicate(source, conjunction(kept))));
            }
        }
        builder.build()
    }
}

/// While a chain is walked from below.
struct ChainBuilder<'a> {
    table: &'a TableSchema,
    columns: Vec<Term>,
    conditions: Vec<Condition>,
    is_dynamic: bool,
    nodes: Vec<Arc<dyn ExecutionPlan>>,
}

/// What a leaf that ends here is.
struct Level {
    n_nodes: usize,
    n_conditions: usize,
    outputs: Vec<Output>,
    has_aggregate: bool,
    /// Position of its top in the chain.
    top: usize,
}

impl FragmentLeaf {
    /// The largest leaf of a chain that can be a fragment.
    ///
    /// Errors: the reason why there is none.
    pub(crate) fn of(chain: &Chain, table: &TableSchema) -> Result<FragmentLeaf, Reason> {
        let files = chain.config().ok_or("no files")?;
        let (mut climb, scan) = ChainBuilder::from_files(files, table)?;
        let scan_at = chain.steps.iter().position(|step| step.node.is::<TarnScan>()).unwrap_or(0);
        let mut level = None;
        let mut stopped = None;
        let mut stopped_at = 0;
        let mut schema = chain.files.schema();
        for (top, ChainStep { node, .. }) in chain.steps.iter().enumerate().rev() {
            match climb.node(node, &schema) {
                Ok(None) => {}
                Ok(Some((outputs, has_aggregate))) => {
                    let n_nodes = climb.nodes.len();
                    level = Some(Level { n_nodes, n_conditions: climb.conditions.len(), outputs, has_aggregate, top });
                    if has_aggregate {
                        break;
                    }
                }
                Err(reason) => {
                    stopped = Some(reason);
                    stopped_at = top;
                    break;
                }
            }
            schema = node.schema();
        }
        // Rows that a filter in the scan left are a leaf without any node, unless a node below the scan's makes
        // something else of them.
        let is_filtered = !climb.conditions.is_empty() && (stopped.is_none() || stopped_at < scan_at);
        let level = level.or_else(|| is_filtered.then(|| climb.of_scan(scan_at)));
        let Some(level) = level.filter(|level| level.n_conditions > 0 || level.has_aggregate) else {
            return Err(stopped.unwrap_or_else(|| "nothing is left out".to_owned()));
        };
        climb.nodes.truncate(level.n_nodes);
        climb.conditions.truncate(level.n_conditions);
        let config = scan.config(files, &climb.conditions);
        let is_single = climb.take_apart()?;
        let chain = chain.below(level.top);
        let schema = match climb.nodes.last() {
            Some(top) => top.schema(),
            None => chain.files.schema(),
        };
        let (head, order) = head(&level.outputs, &schema)?;
        Ok(FragmentLeaf {
            conditions: climb.conditions,
            head,
            schema,
            order,
            is_dynamic: climb.is_dynamic,
            has_aggregate: level.has_aggregate,
            is_single,
            template: Template { config, nodes: climb.nodes },
            chain,
        })
    }
}

impl<'a> ChainBuilder<'a> {
    fn from_files(config: &FileScanConfig, table: &'a TableSchema) -> Result<(ChainBuilder<'a>, Predicate), Reason> {
        if config.limit.is_some() {
            return Err("a limit".to_owned());
        }
        if config.preserve_order || !config.output_ordering.is_empty() {
            return Err("files are read in order".to_owned());
        }
        let named = config.file_source.downcast_ref::<ContextSource>().ok_or("an unknown source")?;
        let source = named.inner().downcast_ref::<ParquetSource>().ok_or("an unknown source")?;
        let stored = named.table_schema().table_schema();
        let predicate = source.filter();
        let parts: Vec<Arc<dyn PhysicalExpr>> = predicate.iter().flat_map(split_conjunction).map(Arc::clone).collect();
        let (dynamic, fixed): (Vec<_>, Vec<_>) = parts.into_iter().partition(changes);
        let is_dynamic = !dynamic.is_empty();

        let projection = named.projection().ok_or("a scan without a projection")?;
        let mut used: Vec<usize> = projection.column_indices();
        used.extend(fixed.iter().flat_map(collect_columns).map(|column| column.index()));
        let none = Encoder::default().finish();
        let mut of_table = vec![none; stored.fields().len()];
        for position in used {
            *of_table.get_mut(position).ok_or("an unknown column")? = table_column(table, position)?;
        }
        let canonical = Canonical { columns: &of_table, schema: stored };
        let columns = projection.iter().map(|of| canonical.term(&of.expr)).collect::<Result<Vec<_>, _>>()?;
        let is_applied = source.table_parquet_options().global.pushdown_filters;
        let condition = |expr: &Arc<dyn PhysicalExpr>| {
            Ok(Condition { term: canonical.term(expr)?, claim: ColumnClaim::of(expr.as_ref(), &of_table, table) })
        };
        let (conditions, prunes) = match is_applied {
            true => (fixed.iter().map(condition).collect::<Result<Vec<_>, Reason>>()?, vec![]),
            false => (vec![], fixed.iter().map(|expr| canonical.term(expr).ok()).collect()),
        };
        let climb = ChainBuilder { table, columns, conditions, is_dynamic, nodes: vec![] };
        Ok((climb, Predicate { fixed, prunes, is_dynamic }))
    }

    /// One node further up, over rows of `schema`. Answers what a leaf gives that ends here, when it is worth to end
    /// here.
    fn node(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        schema: &SchemaRef,
    ) -> Result<Option<(Vec<Output>, bool)>, Reason> {
        let canonical = Canonical { columns: &self.columns, schema };
        if let Some(filter) = node.downcast_ref::<FilterExec>() {
            if filter.fetch().is_some() {
                return Err("a limit".to_owned());
            }
            // What can fail was evaluated of rows that this filter drops.
            let evaluated = self
                .columns
                .iter()
                .filter(|term| term.fallible)
                .map(|term| Condition { term: Encoder::new(b"evaluated").term(term).finish(), claim: None });
            let mut conditions: Vec<Condition> = evaluated.collect();
            for expr in split_conjunction(filter.predicate()) {
                let claim = ColumnClaim::of(expr.as_ref(), &self.columns, self.table);
                conditions.push(Condition { term: canonical.term(expr)?, claim });
            }
            if let Some(projection) = filter.projection().as_ref() {
                self.columns = projection.iter().map(|at| self.columns[*at].clone()).collect();
            }
            self.conditions.append(&mut conditions);
        } else if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let columns: Result<Vec<Term>, Reason> =
                projection.expr().iter().map(|of| canonical.term(&of.expr)).collect();
            self.columns = columns?;
        } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            let outputs = aggregate::outputs(aggregate, &canonical)?;
            self.nodes.push(Arc::clone(node));
            return Ok(Some((outputs, true)));
        } else {
            return Ok(None);
        }
        self.nodes.push(Arc::clone(node));
        Ok(Some((self.rows(), false)))
    }

    fn rows(&self) -> Vec<Output> {
        self.columns.iter().map(|term| Output { bytes: Arc::clone(&term.bytes), n_columns: 1 }).collect()
    }

    fn of_scan(&self, top: usize) -> Level {
        Level { n_nodes: 0, n_conditions: self.conditions.len(), outputs: self.rows(), has_aggregate: false, top }
    }

    /// An aggregate of one partition at the top becomes its partial part.
    fn take_apart(&mut self) -> Result<bool, Reason> {
        let Some(top) = self.nodes.last_mut() else { return Ok(false) };
        let Some(single) = top.downcast_ref::<AggregateExec>() else { return Ok(false) };
        if *single.mode() != AggregateMode::Single {
            return Ok(false);
        }
        *top = partial(single, single.input()).map_err(|error| unknown(&error))?;
        Ok(true)
    }
}

/// The partial part of an aggregate, over `input`.
pub(crate) fn partial(single: &AggregateExec, input: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(Arc::new(AggregateExec::try_new(
        AggregateMode::Partial,
        single.group_expr().clone(),
        single.aggr_expr().to_vec(),
        single.filter_expr().to_vec(),
        Arc::clone(input),
        single.input_schema(),
    )?))
}

/// What makes of its partial parts what `single` gives.
pub(crate) fn last(single: &AggregateExec, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(Arc::new(AggregateExec::try_new(
        AggregateMode::Final,
        single.group_expr().as_final(),
        single.aggr_expr().to_vec(),
        vec![None; single.aggr_expr().len()],
        input,
        single.input_schema(),
    )?))
}

/// Whether a filter is another one later.
fn changes(filter: &Arc<dyn PhysicalExpr>) -> bool {
    DynamicFilterTracking::classify(filter).contains_dynamic_filter()
}

/// The key's part that all files share, and in which order the columns of `schema` are kept.
fn head(outputs: &[Output], schema: &SchemaRef) -> Result<(Vec<u8>, Vec<usize>), Reason> {
    let mut starts = vec![];
    let mut n_columns = 0;
    for output in outputs {
        starts.push(n_columns);
        n_columns += output.n_columns;
    }
    if n_columns != schema.fields().len() {
        return Err("columns that are not accounted for".to_owned());
    }
    let mut sorted: Vec<usize> = (0..outputs.len()).collect();
    sorted.sort_by(|a, b| outputs[*a].bytes.cmp(&outputs[*b].bytes));
    let order: Vec<usize> = sorted.iter().flat_map(|at| starts[*at]..starts[*at] + outputs[*at].n_columns).collect();
    let mut encoder = Encoder::new(b"fragment");
    encoder.number(u64::from(FORMAT));
    // States of aggregates may change from version to version, and so may functions.
    encoder.put(datafusion::DATAFUSION_VERSION.as_bytes()).put(env!("CARGO_PKG_VERSION").as_bytes());
    encoder.number(outputs.len() as u64);
    for at in &sorted {
        encoder.put(&outputs[*at].bytes);
    }
    canonical::fields(&mut encoder, order.iter().map(|at| &schema.fields()[*at]))?;
    Ok((encoder.into_bytes(), order))
}
