//! What are the rows of `FROM a, LATERAL (SELECT … a.x …) s`? Those of `a`, each with the rows that the query gives for
//! it.
//!
//! The planner makes joins of queries whose only conditions on the other side are `inner = outer`, and knows no others.
//! The others are computed for all values that they ask of the other side together, as subqueries that stand for values
//! are, and joined to the rows:
//!
//! ```text
//! FROM a,                                FROM a JOIN (SELECT … FROM (SELECT …, row_number() OVER (PARTITION BY k ORDER BY z) AS n
//!   LATERAL (SELECT … FROM b                                    FROM (SELECT DISTINCT x AS k FROM a) d, b WHERE b.y < k) WHERE n <= 3) s
//!     WHERE b.y < a.x                      ON s.k IS NOT DISTINCT FROM a.x
//!     ORDER BY z LIMIT 3) s
//! ```
//!
//! It runs before the rules of subqueries: what one asks of `a` that stands inside asks for a column of the domain
//! then.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::{
    BinaryExpr, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Subquery,
};
use datafusion::optimizer::AnalyzerRule;

use super::free::{FreeColumn, asked_again, free, is_of_equality};
use super::push::Domain;
use super::{changes_from_row_to_row, last_given};

/// The rule.
#[derive(Debug)]
pub(crate) struct Laterals;

impl AnalyzerRule for Laterals {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !asks_around(&plan)? {
            return Ok(plan);
        }
        let mut joins = Joins { n_given: last_given(&plan)?, asks: vec![] };
        let joined = joins.of(plan, false)?;
        match joined.transformed {
            true => Ok(joined.data.transform_up_with_subqueries(asked_again)?.data),
            false => Ok(joined.data),
        }
    }

    fn name(&self) -> &str {
        "lateral_joins"
    }
}

/// Whether something asks the rows around it. Most statements have nothing that does.
fn asks_around(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= node.contains_outer_reference();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The joins of one statement, the innermost first.
struct Joins {
    n_given: usize,
    /// What those that were made still ask of rows further around them.
    asks: Vec<Column>,
}

impl Joins {
    /// `is_inside` a subquery that stands for a value or in a condition.
    fn of(&mut self, plan: LogicalPlan, is_inside: bool) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up(|node| {
            let node = node.map_subqueries(|node| {
                let LogicalPlan::Subquery(subquery) = node else { return Ok(Transformed::no(node)) };
                let plan = self.of(Arc::unwrap_or_clone(subquery.subquery), true)?;
                Ok(plan.update_data(|plan| LogicalPlan::Subquery(Subquery { subquery: Arc::new(plan), ..subquery })))
            })?;
            node.transform_data(|node| self.join(node, is_inside))
        })
    }

    fn join(&mut self, node: LogicalPlan, is_inside: bool) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = &node else { return Ok(Transformed::no(node)) };
        let keys = self.asked_of_the_left(join, is_inside)?;
        if keys.is_empty() || is_for_the_planner(&join.right)? || changes_from_row_to_row(&join.left)? {
            return Ok(Transformed::no(node));
        }
        self.n_given += 1;
        let Some(joined) = joined(join, keys, self.n_given)? else { return Ok(Transformed::no(node)) };
        self.asks.extend(free(&joined)?.into_iter().map(|free| free.column));
        Ok(Transformed::yes(joined))
    }

    /// What the right side asks of a row of the left one. Inside a subquery a query that is not LATERAL may ask for a
    /// column of the same name that is further around: there the planner says which one is.
    fn asked_of_the_left(&self, join: &Join, is_inside: bool) -> Result<Vec<FreeColumn>> {
        let mut keys: Vec<FreeColumn> = free(&join.right)?;
        keys.retain(|key| join.left.schema().has_column(&key.column));
        if keys.is_empty() || !is_inside {
            return Ok(keys);
        }
        let mut lateral = self.asks.clone();
        join.right.apply(|node| {
            if let LogicalPlan::Subquery(subquery) = node {
                lateral.extend(free(&subquery.subquery)?.into_iter().map(|free| free.column));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        keys.retain(|key| lateral.contains(&key.column));
        Ok(keys)
    }
}

/// Whether it is a query of which the planner makes one hash join.
fn is_for_the_planner(right: &LogicalPlan) -> Result<bool> {
    match right {
        LogicalPlan::SubqueryAlias(alias) => is_for_the_planner(&alias.input),
        LogicalPlan::Subquery(subquery) => {
            let aggregates = subquery.subquery.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_))))?;
            Ok(!aggregates && is_of_equality(&subquery.subquery)?)
        }
        _ => Ok(false),
    }
}

/// The rows of the left side with those of the right one; the columns are what they were. `None` if these cannot be
/// computed together.
fn joined(join: &Join, keys: Vec<FreeColumn>, number: usize) -> Result<Option<LogicalPlan>> {
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Ok(None);
    }
    let Some(domain) = Domain::of(&join.left, keys, number)? else { return Ok(None) };
    let Some(pushed) = domain.push(&join.right)? else { return Ok(None) };
    let mut columns: Vec<Expr> = join.right.schema().columns().into_iter().map(Expr::Column).collect();
    columns.extend(domain.keys_again());
    let right = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(pushed))?);
    let others = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
    let condition = join.filter.iter().cloned().chain(others).reduce(Expr::and);
    let left = LogicalPlanBuilder::from(join.left.as_ref().clone());
    // NULLs of keys are the same, those of other columns are not, and a hash join knows one of both.
    let rows = match (condition, join.join_type) {
        (Some(condition), JoinType::Left) => {
            let again = domain.again().into_iter().map(Expr::Column);
            let same = domain.keys.iter().zip(again).map(|(key, again)| {
                let left = Box::new(Expr::Column(key.outer.clone()));
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::IsNotDistinctFrom, right: Box::new(again) })
            });
            left.join_on(right, JoinType::Left, same.chain([condition]))?
        }
        (condition, join_type) => {
            let of_rows: Vec<Column> = domain.keys.iter().map(|key| key.outer.clone()).collect();
            let by = (of_rows, domain.again());
            let rows = left.join_detailed(right, join_type, by, None, NullEquality::NullEqualsNull)?;
            match condition {
                Some(condition) => rows.filter(condition)?,
                None => rows,
            }
        }
    };
    rows.project(join.schema.columns().into_iter().map(Expr::Column))?.build().map(Some)
}
