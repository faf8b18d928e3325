//! Is `(a, b) IN (SELECT c, d …)` unknown? Where no row is equal, and one would be but for its NULLs:
//!
//! ```text
//! (a, b) IN (S)   is true where    EXISTS (S: c = a AND d = b)
//!                 is unknown where it is not true, and EXISTS (S: (c = a AND d = b) IS NULL)
//! ```
//!
//! The planner takes subqueries of one column. So both rows are written as values, `ROW(a, b) IN (SELECT ROW(c, d) …)`,
//! and compared column by column here, before types are known. Where NULL counts as false the first is all there is to
//! ask, and it becomes an equality join.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Subquery, lit, not};
use datafusion::optimizer::AnalyzerRule;

use crate::Error;
use crate::balance::balanced;
use crate::quantified::{case, compared, exists_in, negated_if, null, outer};
use crate::row_values::row;
use crate::truth::{Unknown, each_condition, map_operands};

/// The rule; it runs before literals are read as what they are compared with.
#[derive(Debug)]
pub(crate) struct RowInQueries;

impl AnalyzerRule for RowInQueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_condition(plan, is_of_row, |expr, unknown, _, schema| rewrite(expr, unknown, schema))
    }

    fn name(&self) -> &str {
        "row_in_queries"
    }
}

fn is_of_row(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(within) if row(&within.expr).is_some())
}

fn rewrite(expr: Expr, unknown: Unknown, schema: &DFSchema) -> Result<Expr> {
    let expr = map_operands(expr, unknown, |operand, unknown| rewrite(operand, unknown, schema))?;
    match expr {
        Expr::InSubquery(within) if row(&within.expr).is_some() => by_columns(&within, unknown, schema),
        other => Ok(other),
    }
}

fn by_columns(within: &InSubquery, unknown: Unknown, schema: &DFSchema) -> Result<Expr> {
    let InSubquery { expr, subquery, negated } = within;
    let values = row(expr).unwrap_or_default();
    let rows = columns_of(subquery, values.len())?;
    let mut terms = Vec::with_capacity(values.len());
    for (idx, value) in values.iter().enumerate() {
        terms.push(compared(outer(value.clone(), schema)?, Operator::Eq, Expr::Column(column(idx))));
    }
    let equal = balanced(terms, Operator::And).unwrap_or_else(|| lit(true));
    let found = exists_in(rows.clone(), &subquery.spans, Some(equal.clone()))?;
    // What NULL counts as for the plain IN.
    let unknown = if *negated { unknown.negated() } else { unknown };
    if unknown == Unknown::AsFalse {
        return Ok(negated_if(*negated, found));
    }
    let may_be = exists_in(rows, &subquery.spans, Some(equal.is_null()))?;
    Ok(match unknown {
        Unknown::Kept => negated_if(*negated, case([(found, lit(true)), (may_be, null())], lit(false))),
        // Each condition by itself, so that each may be a join.
        _ if *negated => not(found).and(not(may_be)),
        _ => found.or(may_be),
    })
}

fn column(idx: usize) -> Column {
    Column::new_unqualified(format!("__value {idx}"))
}

/// The subquery with the columns of its row as columns.
///
/// Errors: `Unsupported` for rows of something else.
fn columns_of(subquery: &Subquery, n_columns: usize) -> Result<LogicalPlan> {
    let columns = match subquery.subquery.as_ref() {
        LogicalPlan::Projection(Projection { expr, input, .. }) => {
            let columns = expr.first().and_then(row).filter(|columns| columns.len() == n_columns);
            columns.map(|columns| (columns, input))
        }
        _ => None,
    };
    let Some((columns, input)) = columns else {
        let remedy = "EXISTS (SELECT … WHERE …) with a condition for each column";
        return Err(Error::Unsupported { what: "IN of such a row and such a subquery".to_owned(), remedy }.into());
    };
    let named = columns.iter().enumerate().map(|(idx, value)| value.clone().alias(column(idx).name));
    LogicalPlanBuilder::from(Arc::clone(input)).project(named)?.build()
}
