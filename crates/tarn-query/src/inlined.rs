//! What stands in the place of a function's call? The query of the function, with the arguments in the place of its
//! parameters.
//!
//! ```text
//! SELECT f(t.a + 1)            f is SELECT $1 * 2                    SELECT CAST(t.a + 1 AS int) * 2
//! SELECT f(t.a)                f is SELECT x FROM u WHERE y = $1     SELECT (SELECT x FROM u WHERE y = t.a LIMIT 1)
//! FROM f(1)                    f gives rows                          FROM (SELECT … )
//! ```
//!
//! A query is planned as that of a subquery, around which there are two tables, whose columns are the parameters: by
//! their names, with the name of the function as the table's, and by their places. So a column of the query's own is
//! meant before a parameter of its name, as in PostgreSQL. What is planned so names the parameters as columns of the
//! query around it, and for these the arguments are put in.
//!
//! The tables of a query are called so that no column of an argument is theirs ([`own_aliases`]).
//!
//! Bounds: functions are as deep in functions as views in views, which ends recursion, too; [`MAX_CALLS`] calls stand
//! in a statement at once; and what arguments come to that are put in several times is [`MAX_PARTS`] parts of
//! expressions.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::{Exists, Placeholder};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    EmptyRelation, Expr, ExprSchemable, Filter, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, Subquery, lit,
    when,
};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    self, Ident, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement,
    TableAlias, TableFactor, Value, VisitorMut,
};
use tarn_types::full_name;

use crate::dependent::{asked_again, each_subquery, subquery_of};
use crate::function_calls::{FunctionCall, argument, expression, quoted, type_field};
use crate::meaning::ViewTexts;
use crate::parser::{call, fold, statements};
use crate::user_functions::{Argument, ResolvedFunction, ResultShape, UserFunctions};
use crate::walk::walk_mut;
use crate::{Error, Result};

/// Calls in a statement at once.
const MAX_CALLS: usize = 1_000;

/// Parts of expressions that arguments may come to.
const MAX_PARTS: usize = 50_000;

/// Qualifies parameters by their places.
const PLACES: &str = "$";

/// What is cast, in the text of a cast.
const VALUE: &str = "tarn_value";

/// Puts the queries of functions in the places of their calls.
pub(crate) struct Inlining<'a> {
    /// Of the statement's session: plans the functions' queries.
    pub state: &'a SessionState,
    /// Which functions there are.
    pub functions: &'a Arc<dyn UserFunctions>,
    /// Makes queries and expressions of their texts.
    pub texts: ViewTexts,
}

/// Queries by what is called.
pub(crate) type Bodies = HashMap<ResolvedFunction, LogicalPlan>;

impl Inlining<'_> {
    /// What a plan calls, each once.
    ///
    /// Errors: a call that no function, or several, would take; too many calls.
    pub fn called(&self, plan: &LogicalPlan) -> Result<Vec<ResolvedFunction>> {
        let (mut found, mut n_calls) = (vec![], 0);
        plan.apply_with_subqueries(|node| {
            let schema = schema_below(node);
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    if let Some((called, args)) = FunctionCall::of(expr) {
                        n_calls += 1;
                        let chosen = self.chosen(called, args, &schema)?;
                        if !found.contains(&chosen) {
                            found.push(chosen);
                        }
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        if n_calls > MAX_CALLS {
            return Err(Error::TooLarge {
                limit: format!(
                    "more than {MAX_CALLS} calls of functions at once, which users wrote: one may call itself"
                ),
                remedy: "say what the function says in the query; WITH RECURSIVE is for what repeats",
            });
        }
        Ok(found)
    }

    fn chosen(&self, called: &FunctionCall, args: &[Expr], schema: &DFSchema) -> PlanResult<ResolvedFunction> {
        let arguments = args.iter().map(|arg| {
            let field = match arg {
                Expr::ScalarSubquery(query) => Arc::clone(&query.subquery.schema().fields()[0]),
                arg => arg.to_field(schema)?.1,
            };
            let scalar = match arg {
                Expr::Literal(scalar, _) => Some(scalar),
                _ => None,
            };
            Ok(match arg {
                // A parameter of the statement becomes what is wanted.
                Expr::Placeholder(parameter) if parameter.field.is_none() => Argument { field, is_unknown: true },
                _ => argument(&field, scalar),
            })
        });
        self.functions.choose(&called.function, &arguments.collect::<PlanResult<Vec<_>>>()?)
    }

    /// The statement that plans the query of a function ([`body_of`]).
    ///
    /// Errors: its text cannot be read; `NoParameter`.
    pub fn body(&self, chosen: &ResolvedFunction) -> Result<Statement> {
        let function = &chosen.function;
        let mut body = (self.texts.query)(&function.query)?;
        let mut places = ParameterRewriter { n_parameters: function.parameters.len() };
        if let ControlFlow::Break(error) = walk_mut(&mut body, &mut places) {
            return Err(error);
        }
        own_aliases(&mut body, function.id);
        let null = |data_type: &String, name: &str| format!("CAST(NULL AS {data_type}) AS {}", quoted(name));
        let types = || function.parameters.iter().zip(&chosen.parameter_types);
        let by_place = types().enumerate().map(|(at, (_, data_type))| null(data_type, &format!("${}", at + 1)));
        let by_name = types().filter_map(|(parameter, data_type)| Some(null(data_type, parameter.name.as_deref()?)));
        let (by_place, by_name) = (by_place.collect::<Vec<_>>(), by_name.collect::<Vec<_>>());
        let mut tables = vec![];
        for (table, columns) in [(full_name::bare(&function.name), by_name), (PLACES, by_place)] {
            if !columns.is_empty() {
                tables.push(format!("(SELECT {}) AS {}", columns.join(", "), quoted(table)));
            }
        }
        let from = if tables.is_empty() { String::new() } else { format!(" FROM {}", tables.join(", ")) };
        let mut around = (self.texts.query)(&format!("SELECT 1{from}"))?;
        if let (Statement::Query(around), Statement::Query(subquery)) = (&mut around, body)
            && let SetExpr::Select(select) = around.body.as_mut()
        {
            select.selection = Some(ast::Expr::Exists { subquery, negated: false });
        }
        Ok(around)
    }

    /// The plan with the queries of functions in the places of calls, but not of those that are in these queries.
    ///
    /// Errors: what cannot be computed as it has to be, by name.
    pub fn inlined(&self, plan: LogicalPlan, bodies: &Bodies) -> Result<LogicalPlan> {
        let (mut is_changed, mut n_parts) = (false, 0);
        let plan = plan.transform_up_with_subqueries(|node| {
            let schema = schema_below(&node);
            if let LogicalPlan::Filter(filter) = &node
                && let Some((called, args)) = FunctionCall::of(&filter.predicate)
                && called.gives_rows
            {
                is_changed = true;
                return Ok(Transformed::yes(self.rows(filter, called, args, &schema, bodies)?));
            }
            if !calls(&node)? {
                return if is_changed {
                    Ok(Transformed::yes(node.recompute_schema()?))
                } else {
                    Ok(Transformed::no(node))
                };
            }
            is_changed = true;
            let (is_one_row, is_values) = (gives_one_row(&node), matches!(node, LogicalPlan::Values(_)));
            let names = NamePreserver::new(&node);
            let node = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = expr.transform_up(|expr| {
                    let Some((called, args)) = FunctionCall::of(&expr) else { return Ok(Transformed::no(expr)) };
                    let chosen = self.chosen(called, args, &schema)?;
                    let Some(body) = bodies.get(&chosen) else { return Ok(Transformed::no(expr)) };
                    if is_values && plain_value(body).is_none() {
                        let what = format!("calling {}, which reads tables, in VALUES", chosen.function.name);
                        return Err(unsupported(what, "SELECT it: INSERT INTO t SELECT 1, f(2)"));
                    }
                    let value = self.value(&chosen, body, args, &schema, is_one_row)?;
                    n_parts += parts(&value)?;
                    match n_parts <= MAX_PARTS {
                        true => Ok(Transformed::yes(value)),
                        false => Err(outside(Error::TooLarge {
                            limit: format!("calls of functions come to more than {MAX_PARTS} parts of expressions"),
                            remedy: "compute arguments that are used several times in a subquery first",
                        })),
                    }
                })?;
                Ok(expr.update_data(|expr| name.restore(expr)))
            })?;
            Ok(Transformed::yes(node.data.recompute_schema()?))
        })?;
        Ok(plan.data.transform_up_with_subqueries(asked_again)?.data)
    }

    /// The query of a function with NULLs for all parameters: its columns are what a call gives.
    pub fn of_nulls(&self, chosen: &ResolvedFunction, body: LogicalPlan) -> Result<LogicalPlan> {
        let schema = DFSchema::empty();
        let null = |data_type: &String| self.cast(Expr::Literal(ScalarValue::Null, None), data_type, &schema);
        let arguments = chosen.parameter_types.iter().map(null).collect::<PlanResult<Vec<_>>>()?;
        let given = CallArguments { chosen, arguments: &arguments, beside: &schema };
        Ok(given.put_in_plan(body)?.transform_up_with_subqueries(asked_again)?.data)
    }

    /// The arguments of a call, of the types of its parameters, those that are not said included.
    fn arguments(&self, chosen: &ResolvedFunction, args: &[Expr], schema: &DFSchema) -> PlanResult<Vec<Expr>> {
        let mut all = Vec::with_capacity(chosen.parameter_types.len());
        for (at, data_type) in chosen.parameter_types.iter().enumerate() {
            let said = match (args.get(at), chosen.function.parameters.get(at).and_then(|of| of.default.as_deref())) {
                (Some(said), _) => said.clone(),
                (None, Some(default)) => {
                    expression(self.state, self.texts, default, &DFSchema::empty()).map_err(outside)?
                }
                (None, None) => Expr::Literal(ScalarValue::Null, None),
            };
            all.push(self.cast(said, data_type, schema)?);
        }
        Ok(all)
    }

    /// An expression as a value of a type. What is of it already stays as it is.
    fn cast(&self, expr: Expr, data_type: &str, schema: &DFSchema) -> PlanResult<Expr> {
        let field = match &expr {
            Expr::ScalarSubquery(query) => Arc::clone(&query.subquery.schema().fields()[0]),
            Expr::Placeholder(parameter) if parameter.field.is_none() => {
                let field = type_field(self.state, self.texts, data_type).map_err(outside)?;
                return Ok(Expr::Placeholder(Placeholder { field: Some(field), ..parameter.clone() }));
            }
            expr => expr.to_field(schema)?.1,
        };
        // A constant without a type is read as one of that type.
        if let Expr::Literal(scalar, _) = &expr
            && argument(&field, Some(scalar)).is_unknown
        {
            let text = match scalar.try_as_str().flatten() {
                Some(text) => format!("'{}'", text.replace('\'', "''")),
                None => "NULL".to_owned(),
            };
            let cast = format!("CAST({text} AS {data_type})");
            return expression(self.state, self.texts, &cast, &DFSchema::empty()).map_err(outside);
        }
        if self.functions.type_name(&field).as_deref() == Some(data_type) {
            return Ok(expr);
        }
        let of = DFSchema::try_from(arrow::datatypes::Schema::new(vec![field.as_ref().clone().with_name(VALUE)]))?;
        let text = format!("CAST({VALUE} AS {data_type})");
        let cast = expression(self.state, self.texts, &text, &of).map_err(outside)?;
        let put = cast.transform_up(|part| match &part {
            Expr::Column(column) if column.name == VALUE => Ok(Transformed::yes(expr.clone())),
            _ => Ok(Transformed::no(part)),
        })?;
        Ok(put.data)
    }

    /// What a call gives, as a value.
    fn value(
        &self,
        chosen: &ResolvedFunction,
        body: &LogicalPlan,
        args: &[Expr],
        schema: &DFSchema,
        is_one_row: bool,
    ) -> PlanResult<Expr> {
        let function = &chosen.function;
        let (name, [data_type]) = (&function.name, &chosen.column_types[..]) else {
            return Err(unsupported(
                format!("a value of {}, which gives rows of several columns", function.name),
                "call it in FROM, and name its columns",
            ));
        };
        if function.gives != ResultShape::Value {
            return Err(unsupported(
                format!("calling {name}, which gives rows, here"),
                "call it in FROM: FROM t, f(t.x) AS r",
            ));
        }
        let arguments = self.arguments(chosen, args, schema)?;
        let given = CallArguments { chosen, arguments: &arguments, beside: schema };
        let value = match plain_value(body) {
            Some(value) => {
                let uses =
                    |at: usize| -> PlanResult<usize> { Ok(given.uses(value, at)? + usize::from(function.is_strict)) };
                for (at, argument) in arguments.iter().enumerate() {
                    if changes(argument)? && uses(at)? != 1 {
                        return Err(unsupported(
                            format!("an argument of {name} that changes with every reading, and is not read just once"),
                            "compute it in a subquery first, or have the function name it once",
                        ));
                    }
                }
                given.put(value.clone(), false)?
            }
            None => {
                let mut asks = false;
                for argument in &arguments {
                    asks |= !argument.column_refs().is_empty();
                    if !changes(argument)? {
                        continue;
                    }
                    return Err(unsupported(
                        format!("an argument of {name}, which reads tables, that changes with every reading"),
                        "compute it in a subquery first",
                    ));
                }
                if (asks || !is_one_row) && is_volatile(body)? {
                    return Err(unsupported(
                        format!("calling {name} for each row, whose query changes with every reading"),
                        "call it in FROM, once",
                    ));
                }
                let query = given.put_in_plan(body.clone())?;
                let first = Expr::Column(query.schema().columns().swap_remove(0));
                let first = self.cast(first, data_type, query.schema())?;
                let mut query = LogicalPlanBuilder::from(query).project(vec![first])?;
                if !gives_at_most_one(body) {
                    query = query.limit(0, Some(1))?;
                }
                let subquery = query.build()?;
                let outer_ref_columns = subquery.all_out_ref_exprs();
                Expr::ScalarSubquery(Subquery {
                    subquery: Arc::new(subquery),
                    outer_ref_columns,
                    spans: datafusion::common::Spans::new(),
                })
            }
        };
        let value = self.cast(value, data_type, schema)?;
        match arguments.into_iter().map(Expr::is_null).reduce(Expr::or) {
            Some(any_is_null) if function.is_strict => {
                let null = self.cast(Expr::Literal(ScalarValue::Null, None), data_type, schema)?;
                when(any_is_null, null).otherwise(value)
            }
            _ => Ok(value),
        }
    }

    /// What a call gives, as rows. What the condition stands on has its columns.
    fn rows(
        &self,
        filter: &Filter,
        called: &FunctionCall,
        args: &[Expr],
        schema: &DFSchema,
        bodies: &Bodies,
    ) -> PlanResult<LogicalPlan> {
        let chosen = self.chosen(called, args, schema)?;
        let function = &chosen.function;
        let whole = LogicalPlan::Filter(filter.clone());
        let Some(body) = bodies.get(&chosen) else { return Ok(whole) };
        let arguments = self.arguments(&chosen, args, schema)?;
        let asks = |argument: &Expr| {
            argument.exists(|part| Ok(matches!(part, Expr::OuterReferenceColumn(..) | Expr::Column(_))))
        };
        for argument in &arguments {
            if changes(argument)? || (asks(argument)? && is_volatile(body)?) {
                return Err(unsupported(
                    format!("calling {} in FROM for each row, with what changes with every reading", function.name),
                    "write the rows into a table first",
                ));
            }
        }
        let given = CallArguments { chosen: &chosen, arguments: &arguments, beside: schema };
        let mut rows = LogicalPlanBuilder::from(given.put_in_plan(body.clone())?);
        let is_row = function.gives == ResultShape::Row;
        if is_row && !gives_at_most_one(body) {
            rows = rows.limit(0, Some(1))?;
        }
        let mut condition = None;
        if function.is_strict {
            condition = arguments.into_iter().map(Expr::is_not_null).reduce(Expr::and);
        }
        if let Some(condition) = &condition {
            rows = rows.filter(condition.clone())?;
        }
        let rows = rows.build()?;
        let shown = filter.input.schema();
        let mut columns = Vec::with_capacity(chosen.column_types.len());
        for ((at, data_type), (qualifier, field)) in chosen.column_types.iter().enumerate().zip(shown.iter()) {
            let Some(column) = rows.schema().columns().into_iter().nth(at) else { return Ok(whole) };
            let given = self.cast(Expr::Column(column), data_type, rows.schema())?;
            columns.push(given.alias_qualified(qualifier.cloned(), field.name()));
        }
        let rows = LogicalPlanBuilder::from(rows).project(columns)?.build()?;
        // There is a row of it, whatever its query gives.
        if is_row && (condition.is_some() || plain_row(body).is_none()) {
            let one = LogicalPlanBuilder::empty(true).project(vec![lit(1).alias("$one")])?;
            let columns = rows.schema().columns().into_iter().map(Expr::Column).collect::<Vec<_>>();
            return one.join_on(rows, JoinType::Left, vec![lit(true)])?.project(columns)?.build();
        }
        Ok(rows)
    }
}

/// The query of a function, in the plan of the statement around it.
pub(crate) fn body_of(plan: &LogicalPlan) -> Option<LogicalPlan> {
    let mut found = None;
    let _ = plan.apply(|node| {
        if let LogicalPlan::Filter(filter) = node
            && let Expr::Exists(Exists { subquery, .. }) = &filter.predicate
        {
            found = Some(subquery.subquery.as_ref().clone());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// The arguments of a call, for its query.
struct CallArguments<'a> {
    chosen: &'a ResolvedFunction,
    arguments: &'a [Expr],
    /// Where the arguments are computed.
    beside: &'a DFSchema,
}

impl CallArguments<'_> {
    /// The place of the parameter that a column of the query around is.
    fn place(&self, column: &Column) -> Option<usize> {
        let parameters = &self.chosen.function.parameters;
        let at = match column.relation.as_ref()?.table() {
            PLACES => column.name.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1),
            table if table == full_name::bare(&self.chosen.function.name) => {
                parameters.iter().position(|parameter| parameter.name.as_deref() == Some(&column.name))
            }
            _ => None,
        };
        at.filter(|at| *at < parameters.len())
    }

    /// How often a parameter is read, as far as it matters: in a subquery it is read again and again.
    fn uses(&self, expr: &Expr, at: usize) -> PlanResult<usize> {
        let mut n_uses = 0;
        expr.apply(|part| {
            match part {
                Expr::OuterReferenceColumn(_, column) if self.place(column) == Some(at) => n_uses += 1,
                part => {
                    if let Some(subquery) = subquery_of(part) {
                        subquery.subquery.apply_with_subqueries(|node| {
                            node.apply_expressions(|expr| {
                                n_uses += 2 * self.uses(expr, at)?;
                                Ok(TreeNodeRecursion::Continue)
                            })
                        })?;
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(n_uses)
    }

    /// An expression with the arguments in the place of parameters; `is_inside` a subquery of where they are computed.
    fn put(&self, expr: Expr, is_inside: bool) -> PlanResult<Expr> {
        let put = expr.transform_up(|part| match part {
            Expr::OuterReferenceColumn(field, column) => match self.place(&column) {
                Some(at) if is_inside => Ok(Transformed::yes(self.outside(self.arguments[at].clone())?)),
                Some(at) => Ok(Transformed::yes(self.arguments[at].clone())),
                None => Ok(Transformed::no(Expr::OuterReferenceColumn(field, column))),
            },
            part => each_subquery(part, |subquery| {
                let plan = self.put_in_plan(Arc::unwrap_or_clone(subquery.subquery))?;
                Ok(Subquery { subquery: Arc::new(plan), ..subquery })
            }),
        })?;
        Ok(put.data)
    }

    fn put_in_plan(&self, plan: LogicalPlan) -> PlanResult<LogicalPlan> {
        let put = plan.transform_up(|node| {
            let names = NamePreserver::new(&node);
            let node = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let put = self.put(expr, true)?;
                Ok(Transformed::yes(name.restore(put)))
            })?;
            Ok(Transformed::yes(node.data.recompute_schema()?))
        })?;
        Ok(put.data)
    }

    /// An argument, as a subquery of where it is computed names its columns.
    fn outside(&self, argument: Expr) -> PlanResult<Expr> {
        let named = argument.transform_up(|part| match part {
            Expr::Column(column) => {
                let field = self.beside.field_from_column(&column)?;
                Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column)))
            }
            part => Ok(Transformed::no(part)),
        })?;
        Ok(named.data)
    }
}

/// The one expression of a query that reads nothing.
fn plain_value(body: &LogicalPlan) -> Option<&Expr> {
    match plain_row(body)? {
        [value] => match value {
            Expr::Alias(alias) => Some(&alias.expr),
            value => Some(value),
        },
        _ => None,
    }
}

fn plain_row(body: &LogicalPlan) -> Option<&[Expr]> {
    let LogicalPlan::Projection(Projection { expr, input, .. }) = body else { return None };
    matches!(input.as_ref(), LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. })).then_some(expr)
}

fn gives_one_row(node: &LogicalPlan) -> bool {
    plain_row(node).is_some()
}

fn gives_at_most_one(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(node) => gives_at_most_one(&node.input),
        LogicalPlan::SubqueryAlias(node) => gives_at_most_one(&node.input),
        LogicalPlan::Filter(node) => gives_at_most_one(&node.input),
        LogicalPlan::Sort(node) => gives_at_most_one(&node.input),
        LogicalPlan::Aggregate(node) => node.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(_) => true,
        _ => false,
    }
}

/// Whether an expression gives something else each time, its subqueries included.
fn changes(expr: &Expr) -> PlanResult<bool> {
    let mut found = expr.is_volatile();
    expr.apply(|part| {
        if let Some(subquery) = subquery_of(part) {
            found |= is_volatile(&subquery.subquery)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn is_volatile(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

fn calls(node: &LogicalPlan) -> PlanResult<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found |= expr.exists(|part| Ok(FunctionCall::of(part).is_some()))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn parts(expr: &Expr) -> PlanResult<usize> {
    let mut n_parts = 0;
    expr.apply(|_| {
        n_parts += 1;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(n_parts)
}

/// What the expressions of a node are computed of.
fn schema_below(node: &LogicalPlan) -> DFSchema {
    merge_schema(&node.inputs())
}

fn unsupported(what: String, remedy: &'static str) -> DataFusionError {
    outside(Error::Unsupported { what, remedy })
}

/// It comes out of the planner as it went in.
fn outside(error: Error) -> DataFusionError {
    match error {
        Error::Sql { source } => source,
        error => DataFusionError::External(Box::new(error)),
    }
}

/// `$1` becomes the column of its place, and `ARRAY[$1]` the call of a function: the planner knows no columns around it
/// in the other.
struct ParameterRewriter {
    n_parameters: usize,
}

impl VisitorMut for ParameterRewriter {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<Error> {
        let ast::Expr::Value(value) = expr else { return ControlFlow::Continue(()) };
        let Value::Placeholder(name) = &value.value else { return ControlFlow::Continue(()) };
        let place = name.strip_prefix('$').and_then(|place| place.parse::<usize>().ok());
        match place {
            Some(place) if (1..=self.n_parameters).contains(&place) => {
                let column = [PLACES, name.as_str()].map(|part| Ident::with_quote('"', part));
                *expr = ast::Expr::CompoundIdentifier(column.to_vec());
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(Error::NoParameter { name: name.clone() }),
        }
    }

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<Error> {
        if let ast::Expr::Array(array) = expr
            && !array.elem.is_empty()
        {
            *expr = call("make_array", std::mem::take(&mut array.elem));
        }
        ControlFlow::Continue(())
    }
}

/// Tables of a function's query are called otherwise than any of another query, and so are those that its columns are
/// named with.
fn own_aliases(body: &mut Statement, id: u32) {
    let mut aliases = Aliases { id, known: HashSet::new(), names: false };
    let _ = walk_mut(body, &mut aliases);
    aliases.names = true;
    let _ = walk_mut(body, &mut aliases);
}

struct Aliases {
    id: u32,
    known: HashSet<String>,
    /// Whether tables have their other names.
    names: bool,
}

impl Aliases {
    fn own(&self, name: &str) -> Ident {
        Ident::with_quote('"', format!("{name} of function {}", self.id))
    }

    fn renamed(&self, parts: &[Ident]) -> Option<Ident> {
        let table = parts.last().map(fold)?;
        // With its schema, too.
        (parts.len() <= 2 && self.known.contains(&table)).then(|| self.own(&table))
    }
}

impl VisitorMut for Aliases {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if self.names {
            return ControlFlow::Continue(());
        }
        let (of_table, is_call) = match factor {
            TableFactor::Table { name, args, .. } => {
                (name.0.last().and_then(|part| part.as_ident()).map(fold), args.is_some())
            }
            TableFactor::Function { name, .. } => (name.0.last().and_then(|part| part.as_ident()).map(fold), true),
            TableFactor::UNNEST { .. } => (None, true),
            _ => (None, false),
        };
        let alias = match factor {
            TableFactor::Table { alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::NestedJoin { alias, .. } => alias,
            _ => return ControlFlow::Continue(()),
        };
        let Some(name) = alias.as_ref().map(|alias| fold(&alias.name)).or(of_table) else {
            return ControlFlow::Continue(());
        };
        let own = self.own(&name);
        self.known.insert(name);
        // The only column of what is called has its alias as a name.
        if is_call && alias.as_ref().is_none_or(|alias| alias.columns.is_empty()) {
            let Some(mut subquery) = query_of_all() else { return ControlFlow::Continue(()) };
            let SetExpr::Select(select) = subquery.body.as_mut() else { return ControlFlow::Continue(()) };
            let Some(from) = select.from.first_mut() else { return ControlFlow::Continue(()) };
            std::mem::swap(&mut from.relation, factor);
            let alias = Some(TableAlias { explicit: true, name: own, columns: vec![], at: None });
            *factor = TableFactor::Derived { lateral: true, subquery, alias, sample: None };
            return ControlFlow::Continue(());
        }
        match alias {
            Some(alias) => alias.name = own,
            None => *alias = Some(TableAlias { explicit: true, name: own, columns: vec![], at: None }),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if self.names {
            for item in &mut select.projection {
                if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item {
                    let parts: Option<Vec<Ident>> = name.0.iter().map(|part| part.as_ident().cloned()).collect();
                    if let Some(own) = parts.and_then(|parts| self.renamed(&parts)) {
                        *name = ObjectName::from(vec![own]);
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if self.names
            && let ast::Expr::CompoundIdentifier(parts) = expr
            && let [table @ .., column] = &parts[..]
            && let Some(own) = self.renamed(table)
        {
            *parts = vec![own, column.clone()];
        }
        ControlFlow::Continue(())
    }
}

/// `SELECT * FROM` something, which is still to be said.
fn query_of_all() -> Option<Box<Query>> {
    match statements("SELECT * FROM something").ok()?.pop() {
        Some(Statement::Query(query)) => Some(query),
        _ => None,
    }
}
