//! How is a computed key of a join called? `a JOIN b ON a.n = b.m::int`: the planner computes such a key beside the
//! columns of its side, under the name of the expression. A cast that is a function is called as what it casts, as a
//! column is already, and the plan was refused.
//!
//! So a key that is called as a column gets a name of its own.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::rewrite::each_node;

/// The rule; it runs last.
#[derive(Debug)]
pub(crate) struct JoinKeys;

impl OptimizerRule for JoinKeys {
    fn name(&self) -> &str {
        "named_join_keys"
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        each_node(plan, |node| {
            let LogicalPlan::Join(mut join) = node else { return Ok(Transformed::no(node)) };
            let mut is_changed = false;
            for (left, right) in &mut join.on {
                is_changed |= name(left, join.left.schema()) | name(right, join.right.schema());
            }
            let join = LogicalPlan::Join(join);
            Ok(if is_changed { Transformed::yes(join) } else { Transformed::no(join) })
        })
    }
}

/// Whether the key got a name.
fn name(key: &mut Expr, columns: &DFSchema) -> bool {
    // The planner knows of casts.
    if !matches!(key, Expr::ScalarFunction(_)) || !is_called_as_a_column(key, columns) {
        return false;
    }
    let called = format!("{key}");
    *key = std::mem::take(key).alias(called);
    true
}

fn is_called_as_a_column(key: &Expr, columns: &DFSchema) -> bool {
    let called = key.schema_name().to_string();
    columns.iter().any(|(relation, field)| {
        field.name() == &called || Column::new(relation.cloned(), field.name()).flat_name() == called
    })
}
