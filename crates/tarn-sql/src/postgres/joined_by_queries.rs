//! `a JOIN b ON EXISTS (SELECT … WHERE x = a.x)`: DataFusion makes joins of the subqueries of WHERE, not of those of
//! ON. What an inner join asks may be asked behind it. An outer one has rows that its condition does not hold for, so
//! what it asks of one side is computed there before, as one more column:
//!
//! ```text
//! Join left ON (subquery of a)       Projection a, b
//!   a                           ──>    Join left ON "tarn_joined_by 0"
//!   b                                    Projection a, (subquery) AS "tarn_joined_by 0"
//!                                          a
//!                                        b
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, Join, JoinType, LogicalPlan, Projection, Subquery};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::datafusion;

use super::integer_literals::is_lateral;
use crate::error::SqlError;

/// The rule, which runs when a statement is planned.
#[derive(Debug)]
pub(super) struct JoinedByQueries;

impl AnalyzerRule for JoinedByQueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(asked_elsewhere)?.data)
    }

    fn name(&self) -> &str {
        "joined_by_queries"
    }
}

fn asked_elsewhere(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = node else { return Ok(Transformed::no(node)) };
    let asks = |filter: &Expr| filter.exists(|part| Ok(query_of(part).is_some())).unwrap_or(false);
    let Some(filter) = join.filter.clone().filter(asks) else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    // The rows of what is LATERAL are others for each row beside it.
    if is_lateral(&join.left) || is_lateral(&join.right) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    match join.join_type {
        JoinType::Inner => behind(join, filter).map(Transformed::yes),
        JoinType::Left | JoinType::Right | JoinType::Full => before(join, filter).map(Transformed::yes),
        _ => Ok(Transformed::no(LogicalPlan::Join(join))),
    }
}

/// A subquery that has no value by itself.
fn query_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty() => Some(subquery),
        _ => None,
    }
}

/// The conditions that ask subqueries, asked of what is joined by the others.
fn behind(join: Join, filter: Expr) -> Result<LogicalPlan> {
    let mut kept = vec![];
    let mut asked = vec![];
    for condition in split_conjunction_owned(filter) {
        let asks = condition.exists(|part| Ok(query_of(part).is_some()))?;
        if asks { asked.push(condition) } else { kept.push(condition) }
    }
    let joined = LogicalPlan::Join(Join { filter: conjunction(kept), ..join });
    Ok(match conjunction(asked) {
        Some(asked) => LogicalPlan::Filter(Filter::try_new(asked, Arc::new(joined))?),
        None => joined,
    })
}

/// Each subquery computed on the side that it asks of.
fn before(join: Join, filter: Expr) -> Result<LogicalPlan> {
    let Join { left, right, on, join_type, join_constraint, schema, null_equality, null_aware, .. } = join;
    let mut computed: [Vec<Expr>; 2] = Default::default();
    let filter = filter.transform_down(|part| {
        if query_of(&part).is_none() {
            return Ok(Transformed::no(part));
        }
        let side = side_of(&part, left.schema(), right.schema())?;
        let name = format!("tarn_joined_by {}", computed[0].len() + computed[1].len());
        let by_name = Expr::Column(Column::new_unqualified(&name));
        computed[side].push(part.alias(name));
        Ok(Transformed::new(by_name, true, TreeNodeRecursion::Jump))
    })?;
    let [of_left, of_right] = computed;
    let (left, right) = (with(left, of_left)?, with(right, of_right)?);
    let columns = schema.columns().into_iter().map(Expr::Column).collect();
    let joined =
        Join::try_new(left, right, on, Some(filter.data), join_type, join_constraint, null_equality, null_aware)?;
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(LogicalPlan::Join(joined)))?))
}

/// 0 for the left one, 1 for the right one.
///
/// Errors: `0A000` for what asks of both.
fn side_of(expr: &Expr, left: &DFSchema, right: &DFSchema) -> Result<usize> {
    let mut asked: Vec<Column> = expr.column_refs().into_iter().cloned().collect();
    if let Some(query) = query_of(expr) {
        asked.extend(query.outer_ref_columns.iter().filter_map(|of| match of {
            Expr::OuterReferenceColumn(_, column) => Some(column.clone()),
            _ => None,
        }));
    }
    let has_all = |side: &DFSchema| asked.iter().all(|column| side.maybe_index_of_column(column).is_some());
    match (has_all(left), has_all(right)) {
        (true, _) => Ok(0),
        (_, true) => Ok(1),
        _ => Err(SqlError::unsupported(
            "a subquery in the ON of an outer join that asks of both of its sides is not supported",
            "ask it of one side, or in WHERE",
        )
        .into()),
    }
}

fn with(side: Arc<LogicalPlan>, computed: Vec<Expr>) -> Result<Arc<LogicalPlan>> {
    if computed.is_empty() {
        return Ok(side);
    }
    let columns = side.schema().columns().into_iter().map(Expr::Column).chain(computed).collect();
    Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, side)?)))
}
