//! How is every expression of a plan rewritten, so that nothing else of the plan changes?

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::{NamePreserver, SavedName};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::dependent::subquery_of;

/// The plan and its subqueries from the leaves up, each node as `change` makes it. Most statements have no subqueries,
/// and are not searched for them at each node: dozens of rules look at every statement.
pub fn each_node(
    plan: LogicalPlan,
    change: impl FnMut(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<Transformed<LogicalPlan>> {
    match has_subqueries(&plan)? {
        true => plan.transform_up_with_subqueries(change),
        false => plan.transform_up(change),
    }
}

fn has_subqueries(plan: &LogicalPlan) -> Result<bool> {
    let mut has = false;
    let until_found = |has: bool| if has { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue };
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                has |= subquery_of(expr).is_some();
                Ok(until_found(has))
            })
        })?;
        Ok(until_found(has))
    })?;
    Ok(has)
}

/// Applies `rewrite` to all expressions, subqueries included, from the leaves up. It gets the columns that the
/// expression may name.
pub fn each_expression(
    plan: LogicalPlan,
    mut rewrite: impl FnMut(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    // What is above an expression of another type has other columns.
    let mut is_changed = false;
    let rewritten = each_node(plan, |node| {
        let schema = visible(&node);
        // An unnamed column is named by its expression as it was written.
        let (own, first_column) = (Arc::clone(node.schema()), first_column(&node));
        let names = NamePreserver::new(&node);
        let mut at = 0;
        let changed = node.map_expressions(|expr| {
            let column = first_column.map(|first| first + at);
            at += 1;
            let name = column.is_none().then(|| names.save(&expr));
            let rewritten = expr.transform_up(|expr| rewrite(expr, &schema))?;
            if !rewritten.transformed {
                return Ok(rewritten);
            }
            let name = name.unwrap_or_else(|| {
                let (relation, field) = own.qualified_field(column.unwrap_or_default());
                SavedName::Saved { relation: relation.cloned(), name: field.name().clone() }
            });
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })?;
        is_changed |= changed.transformed;
        if is_changed { changed.map_data(LogicalPlan::recompute_schema) } else { Ok(changed) }
    })?;
    Ok(rewritten.data)
}

/// The columns that expressions of a node may name.
#[must_use]
pub fn visible(node: &LogicalPlan) -> DFSchemaRef {
    match (&node.inputs()[..], node) {
        ([], LogicalPlan::TableScan(scan)) => Arc::clone(&scan.projected_schema),
        ([input], _) => Arc::clone(input.schema()),
        (inputs, _) => Arc::new(merge_schema(inputs)),
    }
}

/// Which column of a node its first expression is, where each is one.
fn first_column(node: &LogicalPlan) -> Option<usize> {
    match node {
        LogicalPlan::Projection(_) => Some(0),
        LogicalPlan::Aggregate(aggregate) => {
            let n_expressions = aggregate.group_expr.len() + aggregate.aggr_expr.len();
            (n_expressions == aggregate.schema.fields().len()).then_some(0)
        }
        LogicalPlan::Window(window) => Some(window.input.schema().fields().len()),
        _ => None,
    }
}
