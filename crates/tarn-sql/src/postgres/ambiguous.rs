//! Which column is `a` of `(SELECT 1 AS a, 2 AS a) s`? None: the name is ambiguous (42702). The planner needs another
//! name for the second one, so that `a` is the first.
//!
//! A `*` names both of them, and is what it was.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::datafusion;

use crate::error::{SqlError, state};
use crate::shown::OTHER_NAME;

/// The rule; it runs once, over what was written.
#[derive(Debug)]
pub(super) struct AmbiguousNames;

impl AnalyzerRule for AmbiguousNames {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            // What rows are ordered by may be a place in the list.
            if !matches!(node, LogicalPlan::SubqueryAlias(_) | LogicalPlan::Sort(_)) {
                check(node)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        "ambiguous_names"
    }
}

fn check(node: &LogicalPlan) -> Result<()> {
    let inputs = merge_schema(&node.inputs());
    // Nearly all statements have no such columns.
    if !inputs.fields().iter().any(|field| field.name().contains([':', OTHER_NAME])) {
        return Ok(());
    }
    let mut named: Vec<Column> = vec![];
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            if let Expr::Column(column) = expr {
                named.push(column.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    for column in &named {
        let Some(second) = second(column, &inputs) else { continue };
        // Who names both of them did not name them.
        if !named.contains(&second) {
            let message = format!("column reference \"{}\" is ambiguous", column.name);
            return Err(SqlError::new(state::AMBIGUOUS_COLUMN, message)
                .with_hint("give the columns of the subquery or join names of their own")
                .into());
        }
    }
    Ok(())
}

/// The second column of the name, if the planner, or a statement before it is planned, has given it another one.
fn second(column: &Column, inputs: &DFSchema) -> Option<Column> {
    // One that stands by itself, as that of a table, is called so by whoever made it.
    column.relation.as_ref()?;
    let is_second = |other: &Column| {
        let rest = other.name.strip_prefix(&column.name).filter(|_| other.relation == column.relation);
        let nth = rest.and_then(|rest| rest.strip_prefix([':', OTHER_NAME]));
        nth.is_some_and(|nth| !nth.is_empty() && nth.bytes().all(|digit| digit.is_ascii_digit()))
    };
    inputs.columns().into_iter().find(is_second)
}
