//! Who runs a query? The [`Engine`] holds what all connections share; a [`Session`] is one connection with its
//! settings.
//!
//! Memory of all queries together is bounded: sorts, joins and aggregates spill to disk when their share is used up.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::common::ParamValues;
use datafusion::common::config::{ConfigOptions, Dialect};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use parking_lot::Mutex;
use tarn_cache::{FooterCache, FragmentCache, ProjectedCache, ReadStore};
use tarn_metastore::Metastore;
use tarn_types::{Style, Zone};
use tokio::runtime::Handle;

use crate::always_a_row::AlwaysARow;
use crate::array_text::ArrayTexts;
use crate::backwards::{Backwards, PUSHES_SORTS};
use crate::balance::Balance;
use crate::batch_rows;
use crate::bounded::{Lengths, bounded};
use crate::bytea::Bytea;
use crate::catalog::{PublicSchema, SystemSchema, SystemTables};
use crate::collected::counted;
use crate::concatenation::Concatenation;
use crate::constants::Constants;
use crate::correlated::{BECOME_JOINS, CorrelatedColumnsRule};
use crate::cross_joins::bounded_order;
use crate::dependent::{Dependent, Laterals};
use crate::distinct_sums::same_sums;
use crate::equated::{CHOOSES_SIDES, EqualityOrderRule};
use crate::expanded::ExpansionLimit;
use crate::explain_json::ExplainedPlan;
use crate::extrema::extrema;
use crate::filtered_windows::FilteredWindows;
use crate::forgets::NullableOrderRule;
use crate::fragments::{Fragments, UseFragments};
use crate::function_calls;
use crate::functions;
use crate::hot::{HotCatalog, HotReader};
use crate::in_windows::InWindows;
use crate::join_keys::JoinKeys;
use crate::key_claims::without_claims;
use crate::lake::{Lake, lake_url};
use crate::late_materialization::StatementShape;
use crate::limited_groups::LimitedGroups;
use crate::lists::Lists;
use crate::literal_coercion::LiteralCoercion;
use crate::long_constants::LongConstants;
use crate::meaning::{Rule, SqlDialect, ViewTexts};
use crate::nans::Nans;
use crate::null_keys::NullKeys;
use crate::opening::Opener;
use crate::own_calls::OwnCalls;
use crate::own_tables::{PUBLIC, SEARCH_PATH, Schemas};
use crate::owned::OwnedBatchesRule;
use crate::pause::JoinsPause;
use crate::plan_size::PlanMemory;
use crate::quantified::{QuantifiedSubqueryRule, UnsupportedSubqueryRule};
use crate::reader::Readers;
use crate::reading;
use crate::reads::{ScannedTables, tables};
use crate::row_in_queries::RowInQueries;
use crate::row_values::RowValues;
use crate::rule_order::{before_each, insert_before, insert_behind};
use crate::running::StatementContext;
use crate::scan;
use crate::seal::sealed_rules;
use crate::settings::QuerySettings;
use crate::snapshot::Snapshots;
use crate::spec::ScanSpec;
use crate::stop::Stop;
use crate::style;
use crate::threads::Threads;
use crate::user_functions::{ResolvedFunction, UserFunctions};
use crate::values::SqlSchemas;
use crate::view_table::unmarked;
use crate::views::{TableShadowing, Views, columns_of_function, planned};
use crate::while_waited::WhileWaited;
use crate::written_types::WrittenTypes;
use crate::zeros::Zeros;
use crate::zones::{self, SessionZone, TimeZone};
use crate::{Error, Result, named_casts, whole_rows};

/// The rule of DataFusion that computes constants, and makes lists of comparisons.
const SIMPLIFIES: &str = "simplify_expressions";

const PUSHES_FILTERS: &str = "push_down_filter";

/// Keys of joins, of what is equal.
const MAKES_KEYS: &str = "extract_equijoin_predicate";

/// How many memory consumers an out-of-memory message names.
const NAMED_CONSUMERS: NonZero<usize> = NonZero::new(5).expect("5 is not 0");

/// Limits and names of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// Memory of all running queries together; above it they spill.
    pub memory_bytes: usize,
    /// Threads' worth of parallelism per query; usually the cores.
    pub target_partitions: usize,
    /// Where queries spill; it must exist. `None`: they fail instead.
    pub spill_dir: Option<PathBuf>,
    /// The catalog, which Postgres clients see as the database.
    pub catalog: String,
    /// Where queries are planned and computed. `None`: where they are asked for.
    pub threads: Option<Handle>,
    /// A file of which a scan reads fewer bytes than this is read without its page index: asking which pages to read
    /// would cost as much as reading them.
    pub page_index_bytes: u64,
    /// The metadata of files, put together from what the metastore says of their columns, for later scans.
    pub metadata: Arc<ProjectedCache>,
    /// What leaves of plans gave of files. `None`: nothing of it is kept.
    pub fragments: Option<FragmentCache>,
    /// What statements mean beside what DataFusion says.
    pub meaning: SqlDialect,
    /// Whether DataFusion's schema of this name is there; without it the front end may have one of its own.
    pub information_schema: bool,
}

impl Default for Options {
    /// 1 GiB, 2 partitions, no spilling, catalog `tarn`, the caller's threads, page indexes from 1 MiB, 64 MiB of
    /// metadata, no fragments.
    fn default() -> Self {
        Options {
            memory_bytes: 1 << 30,
            target_partitions: 2,
            spill_dir: None,
            catalog: "tarn".to_owned(),
            threads: None,
            page_index_bytes: 1 << 20,
            metadata: Arc::new(ProjectedCache::new(64 << 20)),
            fragments: None,
            meaning: SqlDialect::default(),
            information_schema: true,
        }
    }
}

/// What all connections share.
pub struct Engine {
    config: SessionConfig,
    runtime: Arc<RuntimeEnv>,
    public: Arc<PublicSchema>,
    system: Arc<SystemSchema>,
    catalog: String,
    threads: Threads,
    fragments: Option<Arc<UseFragments>>,
    lengths: Arc<Lengths>,
    meaning: SqlDialect,
}

impl Engine {
    /// An engine over a metastore, the store of its files, and the hot side. No IO.
    ///
    /// Errors: the spill directory cannot be used.
    pub fn new(
        options: Options,
        metastore: Arc<dyn Metastore>,
        store: ReadStore,
        footers: Arc<FooterCache>,
        hot: Arc<dyn HotCatalog>,
        system: Arc<dyn SystemTables>,
    ) -> Result<Engine> {
        let url = lake_url()?;
        let spill = match &options.spill_dir {
            Some(dir) => DiskManagerMode::Directories(vec![dir.clone()]),
            None => DiskManagerMode::Disabled,
        };
        let pool = TrackConsumersPool::new(FairSpillPool::new(options.memory_bytes), NAMED_CONSUMERS);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(spill))
            .build_arc()?;
        runtime.register_object_store(url.as_ref(), Arc::clone(store.store()));
        let readers = Arc::new(Readers::of_lake(store, footers, options.page_index_bytes));
        let projected = Arc::clone(&options.metadata);
        let (totals, schemas) = (Arc::default(), SqlSchemas::default());
        let lake = Arc::new(Lake { metastore, readers, projected, totals, schemas });
        let fragments = options.fragments.clone().map(|cache| Arc::new(UseFragments(Arc::new(Fragments::new(cache)))));
        let lengths = Arc::new(Lengths::new(Arc::clone(&runtime.memory_pool), options.memory_bytes));
        Ok(Engine {
            config: config(&options),
            runtime,
            lengths,
            public: Arc::new(PublicSchema { lake: Arc::clone(&lake), hot }),
            system: Arc::new(SystemSchema::new(system)),
            catalog: options.catalog,
            meaning: options.meaning,
            threads: Threads { handle: options.threads },
            fragments,
        })
    }

    /// A new connection with default settings, for `reader`.
    pub fn session(&self, reader: Arc<dyn HotReader>) -> Session {
        // A catalog of its own: what a session registers (pg_catalog) is its own.
        let public = Arc::clone(&self.public);
        self.session_over(reader, public, Arc::new(MemoryCatalogProvider::new()), PUBLIC)
    }

    /// As [`Engine::session`], beside tables that are the session's own: they hide those of their names, and are in the
    /// schemas `pg_temp` and `schema`. `public` is what the session sees of everybody's. Both may have others at any
    /// time.
    pub fn session_beside(
        &self,
        reader: Arc<dyn HotReader>,
        public: Arc<dyn HotCatalog>,
        own: Arc<dyn HotCatalog>,
        schema: &str,
    ) -> Session {
        let of = |hot: &Arc<dyn HotCatalog>| {
            Arc::new(PublicSchema { lake: Arc::clone(&self.public.lake), hot: Arc::clone(hot) })
        };
        let public = of(&public);
        let schemas = Schemas::new(&public, of(&own), schema);
        Session { own: Some(own), ..self.session_over(reader, public, Arc::new(schemas), SEARCH_PATH) }
    }

    fn session_over(
        &self,
        reader: Arc<dyn HotReader>,
        public: Arc<PublicSchema>,
        catalog: Arc<dyn CatalogProvider>,
        default_schema: &str,
    ) -> Session {
        // Type coercion is among DataFusion's own.
        let mut analyzers: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![
            Arc::new(ExpansionLimit),
            Arc::new(RowInQueries),
            Arc::new(RowValues),
            Arc::new(ArrayTexts),
            Arc::new(LiteralCoercion),
            Arc::new(SessionZone),
            Arc::new(Bytea::Written),
            Arc::new(Lists::Written),
        ];
        analyzers.extend(self.meaning.written.iter().cloned());
        analyzers.extend(Analyzer::new().rules);
        analyzers.push(Arc::new(Bytea::Coerced));
        analyzers.push(Arc::new(Concatenation::new(&self.lengths)));
        analyzers.push(Arc::new(Laterals));
        analyzers.push(Arc::new(Dependent::Compared));
        analyzers.push(Arc::new(QuantifiedSubqueryRule));
        analyzers.push(Arc::new(Dependent::Values));
        analyzers.push(Arc::new(UnsupportedSubqueryRule));
        analyzers.push(Arc::new(Lists::Coerced));
        analyzers.push(Arc::new(Nans::new()));
        analyzers.push(Arc::new(Zeros::Coerced));
        analyzers.extend(self.meaning.coerced.iter().cloned());
        analyzers.push(Arc::new(OwnCalls));
        analyzers.push(Arc::new(LongConstants));
        let mut logical = same_sums(bounded_order(Optimizer::new().rules));
        insert_behind(&mut logical, SIMPLIFIES, Arc::new(Zeros::Simplified));
        insert_behind(&mut logical, SIMPLIFIES, Arc::new(LongConstants));
        insert_before(&mut logical, BECOME_JOINS, Arc::new(CorrelatedColumnsRule));
        // It joins conditions one by one.
        insert_before(&mut logical, MAKES_KEYS, Arc::new(NullKeys));
        insert_behind(&mut logical, PUSHES_FILTERS, Arc::new(Balance));
        insert_before(&mut logical, PUSHES_FILTERS, Arc::new(AlwaysARow::Kept));
        insert_behind(&mut logical, PUSHES_FILTERS, Arc::new(AlwaysARow::Free));
        logical.push(Arc::new(Zeros::Optimized));
        logical.push(Arc::new(JoinKeys));
        logical.push(Arc::new(FilteredWindows));
        let logical = without_claims(logical);
        let mut physical = sealed_rules();
        physical.insert(0, Arc::new(NullableOrderRule));
        insert_behind(&mut physical, CHOOSES_SIDES, Arc::new(EqualityOrderRule));
        insert_before(&mut physical, PUSHES_SORTS, Arc::new(Backwards));
        physical.push(Arc::new(LimitedGroups));
        physical.extend(self.fragments.as_ref().map(|fragments| Arc::clone(fragments) as _));
        physical.extend([
            Arc::new(InWindows) as _,
            Arc::new(Balance) as _,
            Arc::new(OwnedBatchesRule) as _,
            Arc::new(JoinsPause) as _,
            Arc::new(LimitedGroups) as _,
        ]);
        let mut builder = SessionStateBuilder::new().with_default_features();
        builder.expr_planners().get_or_insert_default().splice(0..0, self.meaning.operators.iter().cloned());
        let state = builder
            .with_config(self.config.clone().with_default_catalog_and_schema(&self.catalog, default_schema))
            .with_runtime_env(Arc::clone(&self.runtime))
            .with_type_planner(Arc::new(WrittenTypes { more: self.meaning.types.clone() }))
            .with_relation_planners(self.meaning.relations.clone())
            .with_analyzer_rules(analyzers)
            .with_optimizer_rules(before_each(logical, &(Arc::new(WhileWaited) as _)))
            .with_physical_optimizer_rules(before_each(physical, &(Arc::new(WhileWaited) as _)))
            .build();
        let context = SessionContext::new_with_state(state);
        extrema().into_iter().for_each(|function| context.register_udaf(function));
        OF_FILES.iter().for_each(|name| context.deregister_udf(name));
        let SqlDialect { functions: own, aggregates, windows, .. } = &self.meaning;
        for function in own {
            // With its other names: a state that is made of this one registers functions in any order, by all of their
            // names.
            context.deregister_udf(function.name());
            context.register_udf(function.as_ref().clone());
        }
        aggregates.iter().for_each(|function| context.register_udaf(function.as_ref().clone()));
        windows.iter().for_each(|function| context.register_udwf(function.as_ref().clone()));
        bounded(&context, &self.lengths);
        counted(&context);
        functions::all().into_iter().for_each(|function| context.register_udf(function));
        context.register_udf(whole_rows::function());
        context.register_udf(named_casts::function());
        let of_row = whole_rows::written_row();
        context.deregister_udf(of_row.name());
        context.register_udf(of_row);
        context.register_udf(TimeZone::new(self.config.options()).into());
        let registered = catalog
            .register_schema(PUBLIC, Arc::clone(&public) as _)
            .and_then(|_| catalog.register_schema("tarn", Arc::clone(&self.system) as _));
        registered.expect("a memory catalog takes any schema");
        context.register_catalog(&self.catalog, catalog);
        let planned = self.meaning.planned.iter().chain(&self.meaning.written).cloned().collect();
        let views = self.meaning.views;
        let threads = self.threads.clone();
        let user_functions = self.meaning.user_functions.clone();
        let began = Mutex::default();
        Session { context, public, own: None, reader, threads, planned, views, user_functions, began }
    }

    /// Bytes that running queries hold now.
    pub fn memory_used_bytes(&self) -> usize {
        self.runtime.memory_pool.reserved()
    }
}

/// Functions of DataFusion's about the file that a row is from. Rows that are not delivered yet are from none, and a
/// table's scans do not answer them.
const OF_FILES: [&str; 2] = ["file_row_index", "input_file_name"];

/// Of the memory of all queries, what a merge of sorted scans reads ahead of each.
const READ_AHEAD_SHARE: usize = 32;

fn config(options: &Options) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(options.target_partitions)
        .with_information_schema(options.information_schema)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(&options.catalog, PUBLIC);
    let set = config.options_mut();
    set.sql_parser.dialect = Dialect::PostgreSQL;
    // TIMESTAMPTZ is a type with a zone only if the session has one.
    set.execution.time_zone = Some("UTC".to_owned());
    // As in Postgres: 12.34 is exact, so that it meets a DECIMAL column without a detour through floating point.
    set.sql_parser.parse_float_as_decimal = true;
    // It fails where the planner has proved of a column that it is never NULL, and its own physical expression is more
    // careful.
    set.execution.skip_physical_aggregate_schema_check = true;
    // Each scan decides (late_materialization.rs); switched on, every scan materializes late.
    set.execution.parquet.pushdown_filters = false;
    // It skips files by the bounds of some of the aggregates, although others need their rows: `min(a), min(b + 1)`.
    set.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // What is read ahead of a merge would take all memory that others leave: a window above it had none.
    set.execution.sort_pushdown_buffer_capacity = (options.memory_bytes / READ_AHEAD_SHARE).max(1 << 20);
    set.extensions.insert(QuerySettings::default());
    config
}

/// One connection: its settings, and statements one after another.
pub struct Session {
    context: SessionContext,
    public: Arc<PublicSchema>,
    /// Tables that it has to itself.
    own: Option<Arc<dyn HotCatalog>>,
    reader: Arc<dyn HotReader>,
    threads: Threads,
    /// Of the front end: what says other types than DataFusion.
    planned: Arc<[Rule]>,
    views: ViewTexts,
    user_functions: Option<Arc<dyn UserFunctions>>,
    /// When the transaction began, if there is one. The lock is held for moments.
    began: Mutex<Option<ExecutionProps>>,
}

/// While a statement of several steps runs.
#[must_use = "it ends when this is dropped"]
pub struct StatementGuard<'a> {
    session: Option<&'a Session>,
}

impl Drop for StatementGuard<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            session.end();
        }
    }
}

impl Session {
    /// A transaction begins: `now()` is this moment for all its statements.
    pub fn begin(&self) {
        let mut began = ExecutionProps::new();
        began.mark_start_execution(Arc::clone(self.context.state_ref().read().config_options()));
        *self.began.lock() = Some(began);
    }

    /// It has ended: `now()` is when a statement begins.
    pub fn end(&self) {
        *self.began.lock() = None;
    }

    /// The session's state for a statement that begins now, and when that is.
    fn state(&self) -> (SessionState, Option<i64>) {
        let mut state = self.context.state();
        let statement_us = began_us(&state);
        if let Some(began) = &*self.began.lock() {
            state.execution_props_mut().query_execution_start_time = began.query_execution_start_time;
        }
        (state, statement_us)
    }

    /// A statement of several steps begins: until the answer is dropped `now()` is this moment, if there is no
    /// transaction that began before.
    pub fn begin_statement(&self) -> StatementGuard<'_> {
        if self.began.lock().is_some() {
            return StatementGuard { session: None };
        }
        self.begin();
        StatementGuard { session: Some(self) }
    }

    /// When a statement that begins now, or its transaction, began, and by which clocks.
    pub(crate) fn moment(&self) -> SimplifyContext {
        let config = Arc::clone(self.context.state_ref().read().config_options());
        moment(config, self.began.lock().clone())
    }

    /// The DataFusion session, for what registers with it (pg_catalog) and for its settings. A statement run through it
    /// directly takes no snapshot, and reads no table: use [`Session::stream`].
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// The settings as they are now.
    pub fn settings(&self) -> QuerySettings {
        self.context.state_ref().read().config_options().extensions.get::<QuerySettings>().cloned().unwrap_or_default()
    }

    /// The time zone: of texts without an offset, of `now()`, of the days that `date_trunc` finds.
    pub fn zone(&self) -> Zone {
        zones::of_config(self.context.state_ref().read().config_options())
    }

    /// Sets how values are shown, and by which clocks. Plans that were made before keep what they were made with.
    pub fn set_style(&self, style: &Style) -> Result<()> {
        Ok(style::set(&mut self.context.state_ref().write(), style)?)
    }

    /// Every setting is again as in a new session.
    pub fn reset_settings(&self, fresh: &Session) -> Result<()> {
        let options = fresh.context.state_ref().read().config_options().as_ref().clone();
        let state = self.context.state_ref();
        let mut state = state.write();
        *state.config_mut().options_mut() = options;
        Ok(zones::renew_functions(&mut state)?)
    }

    /// Parses one statement.
    ///
    /// Errors: it does not parse, or it is more or less than one.
    pub fn parse(&self, sql: &str) -> Result<ast::Statement> {
        (ViewTexts::default().query)(sql)
    }

    /// The logical plan of a statement, with `$n` unbound. Refuses what would write or define through DataFusion.
    pub async fn plan(&self, statement: &ast::Statement) -> Result<LogicalPlan> {
        let statement = statement.clone();
        let (state, rules, views) = (self.state().0, Arc::clone(&self.planned), self.views);
        let (public, hides, functions) = (Arc::clone(&self.public), self.hides(), self.user_functions.clone());
        self.compute(async move {
            let mut views = Views::new(&state, &rules, views, public.hot.as_ref(), hides, functions);
            let plan = planned(&mut views, &state, statement).await?;
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).verify_plan(&plan)?;
            Ok(plan)
        })
        .await
    }

    /// As [`Session::plan`], whatever the statement does: for the plans below a change of rows, and for those of
    /// parameters' types.
    pub async fn plan_unchecked(&self, statement: ast::Statement) -> Result<LogicalPlan> {
        let (state, rules, views) = (self.state().0, Arc::clone(&self.planned), self.views);
        let (public, hides, functions) = (Arc::clone(&self.public), self.hides(), self.user_functions.clone());
        let planning = async move {
            let mut views = Views::new(&state, &rules, views, public.hot.as_ref(), hides, functions);
            planned(&mut views, &state, statement).await
        };
        self.compute(planning).await
    }

    /// The columns of a plan as its rows will have them: where a CASE or a UNION is of several types, that of all. A
    /// plan has those of their first until it runs. Computes on this thread.
    ///
    /// Errors: as those of running it, for what has no common type.
    pub fn coerced_columns(&self, plan: LogicalPlan) -> Result<SchemaRef> {
        let state = self.state().0;
        let coerced = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?;
        Ok(SchemaRef::clone(coerced.schema().inner()))
    }

    /// The columns that the query of a function gives, whether the function is kept already or not.
    ///
    /// Errors: the query cannot be planned with parameters of these types.
    pub async fn function_columns(&self, chosen: ResolvedFunction) -> Result<SchemaRef> {
        let (state, rules, views) = (self.state().0, Arc::clone(&self.planned), self.views);
        let (public, hides, functions) = (Arc::clone(&self.public), self.hides(), self.user_functions.clone());
        let planning = async move {
            let mut views = Views::new(&state, &rules, views, public.hot.as_ref(), hides, functions);
            columns_of_function(&mut views, &state, &chosen).await
        };
        self.compute(planning).await
    }

    /// The type of an expression without columns, or of a cast to a type.
    ///
    /// Errors: it cannot be planned.
    pub fn type_of(&self, data_type: &str) -> Result<FieldRef> {
        function_calls::type_field(&self.context.state(), self.views, data_type)
    }

    /// Whether the engine has a function of this name itself.
    pub fn has_function(&self, name: &str) -> bool {
        function_calls::is_of_engine(&self.context.state(), name)
    }

    /// What its own tables do to those of others.
    fn hides(&self) -> TableShadowing {
        match self.own.as_ref().is_some_and(|own| !own.tables().is_empty()) {
            true => TableShadowing::Some,
            false => TableShadowing::None,
        }
    }

    /// Runs what may take its time on the engine's threads. Dropping the future gives it up: nobody waits for what it
    /// still does.
    pub fn compute<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send {
        self.threads.run(work)
    }

    /// Runs a plan at the newest position (or the session's `AS OF`), all its tables at one snapshot each. A plan may
    /// run many times.
    ///
    /// Dropping the stream cancels the query. Settings (`SET`) take effect when this returns.
    pub async fn stream(
        &self,
        plan: LogicalPlan,
        parameters: Option<ParamValues>,
    ) -> Result<SendableRecordBatchStream> {
        if matches!(plan, LogicalPlan::Statement(_) | LogicalPlan::DescribeTable(_)) {
            let plan = match parameters {
                Some(parameters) => plan.with_param_values(parameters)?,
                None => plan,
            };
            return Ok(self.context.execute_logical_plan(plan).await?.execute_stream().await?);
        }
        let ((state, statement_us), reader, stop) = (self.state(), Arc::clone(&self.reader), Stop::default());
        let lake = Arc::clone(&self.public.lake);
        let waits = stop.when_dropped();
        let planned = async move {
            let plan = match parameters {
                Some(parameters) => plan.with_param_values(parameters)?,
                None => plan,
            };
            let (mut state, plan) = for_statement(state, statement_us, lake, reader.as_ref(), plan, stop)?;
            Ok((batch_rows::physical(&mut state, &plan).await?, state.task_ctx()))
        };
        self.threads.stream(planned, waits).await
    }

    /// Plans a query as [`Session::stream`] does and, with `runs`, reads all it answers. `now_us` is a clock.
    ///
    /// Dropping the future cancels the query.
    pub async fn measured(
        &self,
        plan: LogicalPlan,
        parameters: Option<ParamValues>,
        runs: bool,
        now_us: impl Fn() -> u64 + Send + 'static,
    ) -> Result<ExplainedPlan> {
        let ((state, statement_us), reader, stop) = (self.state(), Arc::clone(&self.reader), Stop::default());
        let lake = Arc::clone(&self.public.lake);
        let _waits = stop.when_dropped();
        let measuring = async move {
            let began_us = now_us();
            let plan = match parameters {
                Some(parameters) => plan.with_param_values(parameters)?,
                None => plan,
            };
            let (mut state, plan) = for_statement(state, statement_us, lake, reader.as_ref(), plan, stop)?;
            let plan = batch_rows::physical(&mut state, &plan).await?;
            let planned_us = now_us();
            let mut execution_us = None;
            if runs {
                let mut batches = execute_stream(Arc::clone(&plan), state.task_ctx())?;
                while batches.try_next().await?.is_some() {}
                execution_us = Some(now_us().saturating_sub(planned_us));
            }
            Ok(ExplainedPlan { plan, planning_us: planned_us.saturating_sub(began_us), execution_us })
        };
        self.threads.run(measuring).await
    }

    /// Parses, plans and runs one statement.
    pub async fn sql(&self, sql: &str) -> Result<SendableRecordBatchStream> {
        let plan = self.plan(&self.parse(sql)?).await?;
        self.stream(plan, None).await
    }

    /// [`Session::sql`], with all batches in memory.
    pub async fn collect(&self, sql: &str) -> Result<Vec<arrow::array::RecordBatch>> {
        let stream = self.sql(sql).await?;
        Ok(datafusion::physical_plan::common::collect(stream).await?)
    }

    /// The physical plan that [`Session::stream`] would run, and the state to run it with.
    pub async fn physical(&self, plan: &LogicalPlan) -> Result<(Arc<dyn ExecutionPlan>, SessionState)> {
        let (mut state, plan) = self.statement_state(plan)?;
        let physical = batch_rows::physical(&mut state, &plan).await?;
        Ok((physical, state))
    }

    /// What the scans of a physical plan read.
    pub fn specs(&self, plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<ScanSpec>> {
        scan::specs(plan)
    }

    /// Reads what a spec says, at the position that it says: in this process or another one than it was planned in.
    ///
    /// Errors: `Moved` when the table's hot side shows another position by now; `Corrupt` for a spec that lost dead
    /// rows.
    pub async fn scan(&self, spec: ScanSpec) -> Result<SendableRecordBatchStream> {
        let (mut state, stop) = (self.context.state(), Stop::default());
        let waits = stop.when_dropped();
        let source = self.public.hot.table(&spec.table.name).filter(|source| source.schema().id == spec.table.id);
        let source = source.ok_or_else(|| Error::NoSuchTable { name: spec.table.name.clone() })?;
        let tables = Snapshots::of(vec![source], self.reader.as_ref())?;
        let opener = Arc::new(Opener::new(Arc::clone(&self.public.lake), tables));
        state.config_mut().set_extension(Arc::clone(&opener));
        let planned = async move { Ok((reading::plan(spec, None, None, &opener)?, state.task_ctx())) };
        self.threads.stream(planned, waits).await
    }

    /// The session's state with fresh snapshots: one statement's. And its plan, as the planner takes it.
    pub(crate) fn statement_state(&self, plan: &LogicalPlan) -> Result<(SessionState, LogicalPlan)> {
        let (lake, plan) = (Arc::clone(&self.public.lake), plan.clone());
        let (state, statement_us) = self.state();
        for_statement(state, statement_us, lake, self.reader.as_ref(), plan, Stop::default())
    }
}

/// By what functions are computed that tell when a statement began: then, or now.
pub(crate) fn moment(config: Arc<ConfigOptions>, began: Option<ExecutionProps>) -> SimplifyContext {
    let began = began.unwrap_or_else(|| {
        let mut now = ExecutionProps::new();
        now.mark_start_execution(Arc::clone(&config));
        now
    });
    SimplifyContext::builder()
        .with_config_options(config)
        .with_query_execution_start_time(began.query_execution_start_time)
        .build()
}

/// What `now()` is with a state.
fn began_us(state: &SessionState) -> Option<i64> {
    state.execution_props().query_execution_start_time.map(|began| began.timestamp_micros())
}

fn for_statement(
    mut state: SessionState,
    statement_us: Option<i64>,
    lake: Arc<Lake>,
    reader: &dyn HotReader,
    plan: LogicalPlan,
    stop: Stop,
) -> Result<(SessionState, LogicalPlan)> {
    let memory = &state.runtime_env().memory_pool;
    let (constants, plan_memory, began_us) = (Constants::new(memory), PlanMemory::of(&plan, memory)?, began_us(&state));
    let running = StatementContext { stop, constants, plan: plan_memory, began_us, statement_us };
    state.config_mut().options_mut().extensions.insert(running);
    // Functions are called with the options that these properties have.
    let options = Arc::clone(state.config_options());
    state.execution_props_mut().config_options = Some(options);
    let ScannedTables { sources, has_views } = tables(&plan)?;
    state.config_mut().set_extension(Arc::new(Opener::new(lake, Snapshots::of(sources, reader)?)));
    let plan = if has_views { unmarked(plan)? } else { plan };
    state.config_mut().set_extension(Arc::new(StatementShape::of(&plan)?));
    Ok((state, plan))
}
