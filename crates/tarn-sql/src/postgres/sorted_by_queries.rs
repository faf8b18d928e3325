//! `SELECT a FROM t ORDER BY (SELECT count(*) FROM u WHERE u.k = t.k)`: DataFusion joins what a subquery asks of each
//! row to the rows of a projection, a condition or an aggregate, not to those of a sort. So the projection below has
//! it as one more column, which is left out above:
//!
//! ```text
//! Sort (subquery)             Projection a
//!   Projection a       ──>      Sort "tarn_sorted_by 0"
//!     rows                        Projection a, (subquery) AS "tarn_sorted_by 0"
//!                                   rows
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Sort, Subquery};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::datafusion;

/// The rule, which runs when a statement is planned.
#[derive(Debug)]
pub(super) struct SortedByQueries;

impl AnalyzerRule for SortedByQueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(computed_below)?.data)
    }

    fn name(&self) -> &str {
        "sorted_by_queries"
    }
}

fn computed_below(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Sort(sort) = node else { return Ok(Transformed::no(node)) };
    let LogicalPlan::Projection(shown) = sort.input.as_ref() else {
        return Ok(Transformed::no(LogicalPlan::Sort(sort)));
    };
    let Sort { mut expr, input: _, fetch } = sort.clone();
    let mut computed = vec![];
    for key in &mut expr {
        if asks_of_row(&key.expr, shown.input.schema())? {
            let name = format!("tarn_sorted_by {}", computed.len());
            let by_name = Expr::Column(Column::new_unqualified(&name));
            computed.push(std::mem::replace(&mut key.expr, by_name).alias(name));
        }
    }
    if computed.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Sort(sort)));
    }
    let columns = shown.schema.columns().into_iter().map(Expr::Column).collect();
    let below = shown.expr.iter().cloned().chain(computed).collect();
    let below = LogicalPlan::Projection(Projection::try_new(below, Arc::clone(&shown.input))?);
    let sort = LogicalPlan::Sort(Sort { expr, input: Arc::new(below), fetch });
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(sort))?)))
}

/// Whether it has a subquery that names columns of these rows, and needs no others.
fn asks_of_row(expr: &Expr, rows: &DFSchema) -> Result<bool> {
    let is_there = |column: &Column| rows.maybe_index_of_column(column).is_some();
    let mut asks = false;
    expr.apply(|part| {
        if let Some(query) = query_of(part) {
            let outside = query.outer_ref_columns.iter();
            asks |= outside.clone().any(|of| matches!(of, Expr::OuterReferenceColumn(_, of) if is_there(of)));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(asks && expr.column_refs().into_iter().all(is_there))
}

fn query_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(query) => Some(query),
        Expr::Exists(Exists { subquery, .. }) | Expr::InSubquery(InSubquery { subquery, .. }) => Some(subquery),
        _ => None,
    }
}
