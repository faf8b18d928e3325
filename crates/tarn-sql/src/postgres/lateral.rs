//! Which rows has `FROM t, jsonb_array_elements(t.doc)`? Those of `t`, each with every item of its own list. The
//! planner has a place for the list as a query beside `t` that asks its columns, and no way to run that: it becomes the
//! rows of `t`, with the list beside them, unnested. So it is with one row that is computed of them, `FROM t, f(t.a) AS
//! r`.
//!
//! ```text
//! Join                              Projection: t's columns, e.value
//!   t                                 Unnest
//!   e: Subquery              ───>       Projection: t's columns, the list
//!     Projection                          t
//!       Unnest
//!         Projection: the list of t.doc
//!           (one row)
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, NullHandling, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::{
    EmptyRelation, Expr, Filter, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, Subquery, SubqueryAlias, Unnest,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_node};

use crate::error::SqlError;

/// What the columns of the query are qualified by that have no table: no column of the other side is meant then.
const BESIDE: &str = "tarn_beside";

/// What the planner calls a list that is unnested above.
const UNNESTED: &str = "__unnest_placeholder";

/// The rule; it runs before others look at what is in a list.
#[derive(Debug)]
pub(super) struct LateralLists;

impl AnalyzerRule for LateralLists {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(each_node(plan, beside)?.data)
    }

    fn name(&self) -> &str {
        "postgres_lateral_lists"
    }
}

/// Refuses lists of rows around that nothing made a join of.
#[derive(Debug)]
pub(super) struct ListsAround;

impl AnalyzerRule for ListsAround {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| match node {
            LogicalPlan::Unnest(unnest) if !unnest.input.all_out_ref_exprs().is_empty() => Err(SqlError::unsupported(
                "rows of a list of the query around it are not supported here",
                "join them in FROM: FROM t, jsonb_array_elements(t.doc) AS e",
            )
            .into()),
            _ => Ok(TreeNodeRecursion::Continue),
        })?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        "postgres_lists_around"
    }
}

fn beside(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = &node else { return Ok(Transformed::no(node)) };
    let keeps_all = join.join_type == JoinType::Left;
    let is_true = join.filter.as_ref().is_none_or(|on| *on == Expr::Literal(ScalarValue::Boolean(Some(true)), None));
    let is_known = join.join_type == JoinType::Inner || (keeps_all && is_true);
    let is_moved = asks_beside(&join.right) && (is_row(&join.right) || unnests(&join.right)?);
    if !is_known || !join.on.is_empty() || !is_moved {
        return Ok(Transformed::no(node));
    }
    let Some(together) = over(&join.right, &join.left, keeps_all)? else { return Ok(Transformed::no(node)) };
    let filtered = match &join.filter {
        Some(condition) if !is_true => LogicalPlan::Filter(Filter::try_new(condition.clone(), Arc::new(together))?),
        _ => together,
    };
    let columns = join.schema.columns().into_iter().map(Expr::Column).collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(filtered))?)))
}

/// Whether it is a query that asks columns of the other side.
fn asks_beside(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(Subquery { outer_ref_columns, .. }) => !outer_ref_columns.is_empty(),
        LogicalPlan::SubqueryAlias(alias) => asks_beside(&alias.input),
        LogicalPlan::Projection(projection) => asks_beside(&projection.input),
        _ => false,
    }
}

/// Whether it is one row of what is computed of the other side, and nothing else: `FROM t, f(t.a) AS r` of a function
/// that is an expression.
fn is_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(query) => is_row(&query.subquery),
        LogicalPlan::SubqueryAlias(alias) => is_row(&alias.input),
        LogicalPlan::Projection(projection) => is_row(&projection.input),
        LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row, .. }) => *produce_one_row,
        _ => false,
    }
}

/// Other queries that ask are the planner's to move.
fn unnests(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        Ok(match node {
            LogicalPlan::Unnest(_) => true,
            LogicalPlan::Subquery(query) => unnests(&query.subquery)?,
            _ => false,
        })
    })
}

/// The same plan over the rows of `left`, whose columns stay before its own. Where it keeps all, one whose list is
/// empty has NULL there. `None`: it has parts that may not be moved.
fn over(plan: &LogicalPlan, left: &Arc<LogicalPlan>, keeps_all: bool) -> Result<Option<LogicalPlan>> {
    let n_left = left.schema().fields().len();
    Ok(Some(match plan {
        LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }) => left.as_ref().clone(),
        LogicalPlan::Subquery(of) => return over(&of.subquery, left, keeps_all),
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => {
            let Some(below) = over(input, left, keeps_all)? else { return Ok(None) };
            projected(below, n_left, |at, column| {
                let name = input.schema().field(at).name().clone();
                Expr::Column(column).alias_qualified(Some(alias.clone()), name)
            })?
        }
        LogicalPlan::Projection(projection) => {
            let is_above = !matches!(projection.input.as_ref(), LogicalPlan::EmptyRelation(_));
            if keeps_all && is_above && !projection.expr.iter().all(is_null_of_null) {
                return Ok(None);
            }
            let Some(below) = over(&projection.input, left, keeps_all)? else { return Ok(None) };
            let own = projection.expr.iter().zip(projection.schema.iter()).map(|(expr, (qualifier, field))| {
                let qualifier = match qualifier {
                    None if !field.name().starts_with(UNNESTED) => Some(TableReference::bare(BESIDE)),
                    qualifier => qualifier.cloned(),
                };
                Ok(moved(expr.clone(), below.schema())?.alias_qualified(qualifier, field.name()))
            });
            let lefts = columns(&below).into_iter().take(n_left).map(Expr::Column).map(Ok);
            let all = lefts.chain(own).collect::<Result<Vec<_>>>()?;
            LogicalPlan::Projection(Projection::try_new(all, Arc::new(below))?)
        }
        LogicalPlan::Unnest(Unnest { input, exec_columns, options, .. }) => {
            let Some(below) = over(input, left, keeps_all)? else { return Ok(None) };
            let options = match keeps_all {
                true => options.clone().with_null_handling(NullHandling::PreserveAndExpandEmpty),
                false => options.clone(),
            };
            LogicalPlanBuilder::from(below).unnest_columns_with_options(exec_columns.clone(), options)?.build()?
        }
        _ => return Ok(None),
    }))
}

/// A column of the list, as it is: no list, no value.
fn is_null_of_null(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Alias(alias) => is_null_of_null(&alias.expr),
        Expr::ScalarFunction(call) => call.func.is_strict() && call.args.iter().all(is_null_of_null),
        _ => false,
    }
}

fn columns(plan: &LogicalPlan) -> Vec<Column> {
    plan.schema().columns()
}

/// The columns of `left` as they are, the others as `own` says, counted from 0.
fn projected(below: LogicalPlan, n_left: usize, own: impl Fn(usize, Column) -> Expr) -> Result<LogicalPlan> {
    let all = columns(&below).into_iter().enumerate().map(|(at, column)| match at.checked_sub(n_left) {
        None => Expr::Column(column),
        Some(at) => own(at, column),
    });
    Ok(LogicalPlan::Projection(Projection::try_new(all.collect(), Arc::new(below))?))
}

/// An expression of the query, where the columns of the other side are at hand.
fn moved(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let moved = expr.transform(|expr| match expr {
        // Others are of rows further around.
        Expr::OuterReferenceColumn(_, column) if schema.has_column(&column) => {
            Ok(Transformed::yes(Expr::Column(column)))
        }
        Expr::Column(Column { relation: None, name, .. }) if !is_unqualified(schema, &name) => {
            Ok(Transformed::yes(Expr::Column(Column::new(Some(BESIDE), name))))
        }
        expr => Ok(Transformed::no(expr)),
    })?;
    Ok(moved.data)
}

fn is_unqualified(schema: &DFSchema, name: &str) -> bool {
    schema.iter().any(|(qualifier, field)| qualifier.is_none() && field.name() == name)
}
