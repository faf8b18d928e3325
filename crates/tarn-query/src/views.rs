//! What does a query read that reads a view? The view's own query, in its place.
//!
//! ```text
//! scan of view v ──> SubqueryAlias v ──> Filter tarn_view() ──> Projection: columns of v, by name ──> what the text of v is planned to
//! ```
//!
//! A text is planned as a statement of its own, so that no name around it means anything in it: neither those of WITH
//! nor those of the user. Then it is part of the statement's plan, and everything that is asked of a plan is asked of
//! it: which tables it reads, all at one moment; how large it is; what its columns are. `view_table.rs` says how who
//! asks is told through which view a table is read.
//!
//! Bounds: views in views are so deep as [`MAX_DEPTH`], each view is planned once for a statement, and a plan has so
//! many steps at most (`plan_size.rs`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, SchemaRef};
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::Column;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, TableScan};
use datafusion::sql::sqlparser::ast::Statement;
use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_types::style::hangs_on_order;
use tarn_types::{DataType, DateOrder, TableId, TableSchema, data_type_of};

use crate::hot::HotCatalog;
use crate::inlined::{Bodies, Inlining};
use crate::meaning::{Rule, ViewTexts};
use crate::own_tables::of_views;
use crate::plan_size::PlanSize;
use crate::user_functions::{ResolvedFunction, UserFunctions};
use crate::view_table::{ViewTable, mark};
use crate::{Error, Result, called, function_calls, group_keys, inlined, plan_size, stars, style, whole_rows, zones};

/// The rule of the front end that gives literals their types.
const OF_LITERALS: &str = "integer_literals";

/// How deep views may be in views, and functions in functions.
pub const MAX_DEPTH: usize = 32;

/// The logical plan of a statement, or of the query of a view that one reads.
pub(crate) async fn planned(views: &mut Views<'_>, state: &SessionState, statement: Statement) -> Result<LogicalPlan> {
    let (mut plan, has_calls) = as_written(views, state, statement).await?;
    if has_calls {
        plan = with_functions(views, state, plan).await?;
    }
    PlanSize::of(&plan)?;
    // Whoever is told its columns is told the types that the rows will have. What hangs on parameters is for the
    // analyzer.
    analyzed(views.rules, state, plan)
}

fn analyzed(rules: &[Rule], state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let options = state.config_options();
    Ok(rules.iter().try_fold(plan, |plan, rule| rule.analyze(plan, options))?)
}

/// The plan of a statement with views in their places, before rules; and whether it calls functions that users wrote.
async fn as_written(
    views: &mut Views<'_>,
    state: &SessionState,
    mut statement: Statement,
) -> Result<(LogicalPlan, bool)> {
    zones::name_functions(&mut statement);
    called::by_own_names(&mut statement, state);
    stars::with_schemas(&mut statement);
    group_keys::write_out(&mut statement, state).await?;
    let calls = match &views.functions {
        Some(functions) => function_calls::prepare(&mut statement, state, functions, views.texts)?,
        None => None,
    };
    let planner = calls.as_ref().unwrap_or(state);
    let _planning = plan_size::reserve_columns(planner, &statement).await?;
    let plan = whole_rows::planned(planner, views.texts, statement).await?;
    Ok((views.replaced(plan).await?, calls.is_some()))
}

/// The plan with the queries of functions in the places of their calls.
///
/// Errors: as of [`Inlining`] and [`Bodies`].
async fn with_functions(views: &mut Views<'_>, state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let Some(functions) = views.functions.clone() else { return Ok(plan) };
    let inlining = Inlining { state, functions: &functions, texts: views.texts };
    // Literals have the types by which functions are told apart.
    let plan = analyzed(views.rules, state, plan)?;
    let mut bodies = Bodies::new();
    for chosen in inlining.called(&plan)? {
        plan_body(views, &inlining, &mut bodies, &mut vec![], chosen).await?;
    }
    inlining.inlined(plan, &bodies)
}

/// Plans the query of a function, with the queries of those that it calls. `around` are those whose queries are being
/// planned.
///
/// Errors: it calls itself; functions are too deep in functions; its query cannot be planned by now.
fn plan_body<'a>(
    views: &'a mut Views<'_>,
    inlining: &'a Inlining<'_>,
    bodies: &'a mut Bodies,
    around: &'a mut Vec<u32>,
    chosen: ResolvedFunction,
) -> BoxFuture<'a, Result<()>> {
    let planning = async move {
        if bodies.contains_key(&chosen) {
            return Ok(());
        }
        let (id, name) = (chosen.function.id, &chosen.function.name);
        if around.contains(&id) {
            let what = format!("the function {name}, which calls itself,");
            return Err(Error::Unsupported { what, remedy: "WITH RECURSIVE is for what repeats" });
        }
        if around.len() >= MAX_DEPTH {
            return Err(Error::TooLarge {
                limit: format!("function {name} is called more than {MAX_DEPTH} functions deep"),
                remedy: "say what one of them says in the text of another",
            });
        }
        let body = bare_body(views, inlining, &chosen).await?;
        around.push(id);
        for called in inlining.called(&body)? {
            plan_body(views, inlining, bodies, around, called).await?;
        }
        around.pop();
        let body = inlining.inlined(body, bodies)?;
        PlanSize::of(&body)?;
        bodies.insert(chosen, body);
        Ok(())
    };
    planning.boxed()
}

/// The query of a function, before what it calls is in its place. Parameters are columns of a query around it, which
/// other rules would not understand.
async fn bare_body(views: &mut Views<'_>, inlining: &Inlining<'_>, chosen: &ResolvedFunction) -> Result<LogicalPlan> {
    let around = inlining.body(chosen)?;
    let (plan, _) = as_written(views, inlining.state, around).await?;
    let body = inlined::body_of(&plan);
    let body = body.ok_or_else(|| Error::NoFunction { function: chosen.function.name.clone() })?;
    let options = inlining.state.config_options();
    let mut of_literals = views.rules.iter().filter(|rule| rule.name() == OF_LITERALS);
    Ok(of_literals.try_fold(body, |plan, rule| rule.analyze(plan, options))?)
}

/// The columns that the query of a function gives, for parameters of its types, as it is now.
pub(crate) async fn columns_of_function(
    views: &mut Views<'_>,
    state: &SessionState,
    chosen: &ResolvedFunction,
) -> Result<SchemaRef> {
    let Some(functions) = views.functions.clone() else {
        return Err(Error::NoFunction { function: chosen.function.name.clone() });
    };
    let inlining = Inlining { state, functions: &functions, texts: views.texts };
    let mut bodies = Bodies::new();
    plan_body(views, &inlining, &mut bodies, &mut vec![], chosen.clone()).await?;
    let Some(body) = bodies.remove(chosen) else {
        return Err(Error::NoFunction { function: chosen.function.name.clone() });
    };
    let plan = analyzed(views.rules, state, inlining.of_nulls(chosen, body)?)?;
    let columns = SchemaRef::clone(plan.schema().inner());
    // An operator that there is not for its types is known when types are.
    state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?;
    Ok(columns)
}

/// Whether tables that a session has to itself hide others of their names, which views may read.
#[derive(Clone, Copy)]
pub(crate) enum TableShadowing {
    None,
    Some,
}

/// What views are replaced with, while one statement is planned.
pub(crate) struct Views<'a> {
    state: &'a SessionState,
    rules: &'a [Rule],
    texts: ViewTexts,
    hot: &'a dyn HotCatalog,
    hides: TableShadowing,
    /// That users wrote.
    functions: Option<Arc<dyn UserFunctions>>,
    /// What is being planned, the outermost first.
    around: Vec<Arc<TableSchema>>,
    /// Queries of views that were planned already.
    known: HashMap<TableId, LogicalPlan>,
}

impl<'a> Views<'a> {
    pub(crate) fn new(
        state: &'a SessionState,
        rules: &'a [Rule],
        texts: ViewTexts,
        hot: &'a dyn HotCatalog,
        hides: TableShadowing,
        functions: Option<Arc<dyn UserFunctions>>,
    ) -> Views<'a> {
        Views { state, rules, texts, hot, hides, functions, around: vec![], known: HashMap::new() }
    }

    /// The plan with the query of each view in its place.
    ///
    /// Errors: [`Error::View`] for one that cannot be read as it was made any more; `TooLarge` for views that are too
    /// deep.
    fn replaced(&mut self, plan: LogicalPlan) -> BoxFuture<'_, Result<LogicalPlan>> {
        self.replace(plan).boxed()
    }

    async fn replace(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let mut named = vec![];
        plan.apply_with_subqueries(|step| {
            if let LogicalPlan::TableScan(scan) = step {
                with_view(scan, |view| named.push((Arc::clone(&view.view), Arc::clone(&view.schema))));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if named.is_empty() {
            return Ok(plan);
        }
        let mut queries: HashMap<TableId, LogicalPlan> = HashMap::new();
        for (view, schema) in named {
            if let Entry::Vacant(first) = queries.entry(view.id) {
                first.insert(self.query(&view, &schema).await?);
            }
        }
        let replace = |step: LogicalPlan| {
            let LogicalPlan::TableScan(scan) = &step else { return Ok(Transformed::yes(step.recompute_schema()?)) };
            let mut query = None;
            with_view(scan, |view| query = queries.get(&view.view.id).cloned());
            let Some(query) = query else { return Ok(Transformed::no(step)) };
            let replaced = LogicalPlanBuilder::from(query).alias(scan.table_name.clone())?.build()?;
            Ok(Transformed::yes(replaced))
        };
        Ok(plan.transform_up_with_subqueries(replace)?.data)
    }

    /// What is read in the place of a view: its columns, as they were when it was made.
    async fn query(&mut self, view: &Arc<TableSchema>, schema: &SchemaRef) -> Result<LogicalPlan> {
        if let Some(known) = self.known.get(&view.id) {
            return Ok(known.clone());
        }
        if self.around.len() >= MAX_DEPTH {
            return Err(Error::TooLarge {
                limit: format!("view {} is more than {MAX_DEPTH} views deep", view.name),
                remedy: "make a table of what one of them gives, or say what it says in the query",
            });
        }
        self.around.push(Arc::clone(view));
        let planned = self.planned(view).await;
        self.around.pop();
        let query = columns_of(view, schema, planned.map_err(|error| broken(view, error))?, self.texts)?;
        self.known.insert(view.id, query.clone());
        Ok(query)
    }

    async fn planned(&mut self, view: &TableSchema) -> Result<LogicalPlan> {
        let Some(definition) = &view.options.view else { return Err(Error::NoSuchTable { name: view.name.clone() }) };
        // What is called so now may be another than when the view was made.
        // What is the session's own goes with the view.
        for (name, id) in definition.reads.iter().filter(|(_, id)| !id.is_temporary()) {
            let there = self.hot.table(name).map(|source| source.schema().id);
            let there = there.or_else(|| self.hot.view(name).map(|view| view.id));
            if there.is_none_or(|there| there != *id) {
                let reason = format!("\"{name}\", which it reads, was dropped");
                return Err(Error::View { view: view.name.clone(), reason });
            }
        }
        let order = style::of_config(self.state.config_options()).forms.order;
        if order != DateOrder::Mdy && hangs_on_order(&definition.query) {
            let reason = "it has a date that the session's DateStyle may turn round: SET DateStyle = 'MDY'".to_owned();
            return Err(Error::View { view: view.name.clone(), reason });
        }
        let statement: Statement = (self.texts.query)(&definition.query)?;
        let state = self.state;
        match self.hides {
            TableShadowing::None => planned(self, state, statement).await,
            TableShadowing::Some => planned(self, &of_views(state), statement).await,
        }
    }
}

fn with_view(scan: &TableScan, see: impl FnOnce(&ViewTable)) {
    if let Ok(provider) = source_as_provider(&scan.source)
        && let Some(view) = provider.downcast_ref::<ViewTable>()
    {
        see(view);
    }
}

/// An error about a view, said so.
fn broken(view: &TableSchema, error: Error) -> Error {
    match error {
        // It is about the statement, or a view below.
        error @ (Error::TooLarge { .. } | Error::View { .. }) => error,
        // Or about the memory of all.
        Error::Sql { source } if matches!(source.find_root(), DataFusionError::ResourcesExhausted(_)) => {
            Error::Sql { source }
        }
        error => Error::View { view: view.name.clone(), reason: error.to_string() },
    }
}

/// The columns of a view from what its text gives by now.
fn columns_of(
    view: &Arc<TableSchema>,
    schema: &SchemaRef,
    query: LogicalPlan,
    texts: ViewTexts,
) -> Result<LogicalPlan> {
    let changed = |reason: String| Error::View { view: view.name.clone(), reason };
    let names = view.options.view.as_ref().map_or(&[][..], |definition| &definition.columns);
    let mut columns = Vec::with_capacity(view.columns.len());
    for (at, (column, wanted)) in view.columns.iter().zip(schema.fields()).enumerate() {
        let Some(name) = names.get(at) else {
            return Err(changed(format!("column \"{}\" is none of its query's", column.name)));
        };
        // Several may be called alike where the view has names of its own; but not more than there were.
        let is_alike = |other: &&String| *other == name;
        let (n_before, n_alike) = (names[..at].iter().filter(is_alike).count(), names.iter().filter(is_alike).count());
        let called = query.schema().iter().filter(|(_, field)| (texts.shown_name)(field.name()) == name);
        let called: Vec<_> = called.collect();
        let Some((qualifier, field)) = called.get(n_before).filter(|_| called.len() == n_alike).copied() else {
            let n_now = called.len();
            return Err(changed(format!("its query gives {n_now} columns \"{name}\" by now, and gave {n_alike}")));
        };
        let is_same = match (data_type_of(field), column.data_type) {
            (Ok(DataType::Decimal { .. }), DataType::Decimal { .. }) => true,
            (Ok(now), before) => now == before,
            // A NULL without a type, and what lies between two times.
            (Err(_), before) => {
                (field.data_type().is_null() && before == DataType::Text)
                    || (matches!(field.data_type(), ArrowType::Duration(_)) && before == DataType::Interval)
            }
        };
        if !is_same {
            let now = data_type_of(field).map_or_else(|_| field.data_type().to_string(), |now| now.to_string());
            return Err(changed(format!("column \"{name}\" is {now} by now, and was {}", column.data_type)));
        }
        let given = Expr::Column(Column::from((qualifier, field)));
        let given = if field.data_type() == wanted.data_type() {
            given
        } else {
            given.cast_to(wanted.data_type(), query.schema().as_ref())?
        };
        // A cast keeps nothing of what a text is, as JSON.
        columns.push(given.alias_with_metadata(&column.name, Some(FieldMetadata::from(wanted.as_ref()))));
    }
    Ok(LogicalPlanBuilder::from(query).project(columns)?.filter(mark(view))?.build()?)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType as ArrowType, Field, Schema};
    use datafusion::logical_expr::table_scan;
    use tarn_types::{Column as Defined, ColumnId, TableOptions, TabletId, View};

    use super::*;
    use crate::values::sql_schema;

    /// A view of columns of these names, called otherwise in its query, all integers.
    fn view(names: &[(&str, &str)]) -> Arc<TableSchema> {
        let column = |(at, (name, _)): (usize, &(&str, &str))| {
            let (id, name, data_type) = (ColumnId(at as u32 + 1), (*name).to_owned(), DataType::Int32);
            Defined { id, name, data_type, nullable: true, default: None }
        };
        let columns = names.iter().map(|(_, called)| (*called).to_owned()).collect();
        let view = View { query: "SELECT".into(), columns, ..View::default() };
        Arc::new(TableSchema {
            id: TableId(1),
            name: "v".into(),
            columns: names.iter().enumerate().map(column).collect(),
            key: vec![],
            n_partition_key: 0,
            first_tablet: TabletId(0),
            options: TableOptions { tablets: 0, view: Some(view), ..TableOptions::default() },
        })
    }

    fn query(columns: &[(&str, ArrowType)]) -> LogicalPlan {
        let fields: Vec<Field> = columns.iter().map(|(name, of)| Field::new(*name, of.clone(), true)).collect();
        table_scan(Some("t"), &Schema::new(fields), None).unwrap().build().unwrap()
    }

    #[test]
    fn a_view_gives_its_columns_whatever_its_query_gives_beside_them() {
        let v = view(&[("x", "a"), ("y", "b")]);
        let of = |columns: &[(&str, ArrowType)]| {
            let given = columns_of(&v, &sql_schema(&v, false), query(columns), ViewTexts::default())?;
            Ok::<_, Error>(given.schema().field_names())
        };
        let (int, long) = (ArrowType::Int32, ArrowType::Int64);
        let more = [("b", int.clone()), ("c", int.clone()), ("a", int.clone())];
        assert_eq!(of(&more).unwrap().len(), 2);
        let refused = |columns: &[(&str, ArrowType)]| of(columns).unwrap_err().to_string();
        let wider = refused(&[("a", long), ("b", int.clone())]);
        assert_eq!(wider, "view \"v\" cannot be read as it was made: column \"a\" is BIGINT by now, and was INTEGER");
        let fewer = refused(&[("a", int)]);
        assert!(fewer.ends_with("its query gives 0 columns \"b\" by now, and gave 1"), "{fewer}");
    }

    #[test]
    fn a_mark_is_found_and_goes() {
        let v = view(&[("x", "a")]);
        let of = columns_of(&v, &sql_schema(&v, false), query(&[("a", ArrowType::Int32)]), ViewTexts::default());
        let of = of.unwrap();
        assert_eq!(crate::view_table::marked(&of).map(|view| view.id), Some(v.id));
        let plain = crate::view_table::unmarked(of.clone()).unwrap();
        assert!(crate::view_table::marked(&plain).is_none());
        assert_eq!(plain.schema(), of.schema());
    }
}
