//! How long may the planner look for the order of joins? DataFusion makes joins of what is written as
//! `FROM a, b WHERE a.id = b.id`: for each table it goes through the others, for each of them through all conditions,
//! and through the columns of all tables for each. A hundred tables take it a third of a second, two hundred five
//! seconds, a thousand most of an hour.
//!
//! More than [`MAX_JOINS`] stay in the order in which they are written. Conditions are pushed down to their joins all
//! the same, by other rules.
//!
//! Two more kinds of joins stay as they are written, for DataFusion joins others than these: those where NULL is NULL
//! (`IS NOT DISTINCT FROM`), which it then has for all joins or for none, and those with a key of several tables (`a.id
//! = b.id + c.id`), which it forgets.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Join, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::rule_order::wrapped;

/// Joins of a statement of which an order is looked for.
const MAX_JOINS: usize = 100;

const LOOKS_FOR_ORDER: &str = "eliminate_cross_join";

/// The rules, of which the one that looks for an order leaves alone what is too long for it.
pub(crate) fn bounded_order(
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    wrapped(rules, LOOKS_FOR_ORDER, |inner| Arc::new(BoundedOrder { inner }))
}

#[derive(Debug)]
struct BoundedOrder {
    inner: Arc<dyn OptimizerRule + Send + Sync>,
}

impl OptimizerRule for BoundedOrder {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match stays(&plan)? {
            true => Ok(Transformed::no(plan)),
            false => self.inner.rewrite(plan, config),
        }
    }
}

fn stays(plan: &LogicalPlan) -> Result<bool> {
    let mut n_joins = 0;
    let mut is_other = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Join(join) = node {
            n_joins += 1;
            is_other |= join.null_equality == NullEquality::NullEqualsNull || has_key_of_several(join);
        }
        Ok(if is_other || n_joins > MAX_JOINS { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_other || n_joins > MAX_JOINS)
}

/// Whether a side of a key has columns of several of the inputs that would be put in order.
fn has_key_of_several(join: &Join) -> bool {
    let of_one = |key: &Expr, side: &LogicalPlan| {
        let columns = key.column_refs();
        columns.len() < 2
            || inputs(side).iter().any(|input| columns.iter().all(|column| input.schema().has_column(column)))
    };
    !join.on.iter().all(|(left, right)| of_one(left, &join.left) && of_one(right, &join.right))
}

fn inputs(plan: &LogicalPlan) -> Vec<&LogicalPlan> {
    match plan {
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            let mut found = inputs(&join.left);
            found.extend(inputs(&join.right));
            found
        }
        other => vec![other],
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::optimizer::optimizer::Optimizer;
    use datafusion::prelude::SessionContext;

    use super::*;

    /// Joins of tables `t0`, `t1` … of one row each, whose conditions are in WHERE.
    async fn planned(n_tables: usize) -> LogicalPlan {
        let state = SessionStateBuilder::new().with_default_features();
        let state = state.with_optimizer_rules(bounded_order(Optimizer::new().rules)).build();
        let context = SessionContext::new_with_state(state);
        let tables: Vec<String> = (0..n_tables).map(|idx| format!("(VALUES (1)) AS t{idx} (id)")).collect();
        let conditions: Vec<String> = (1..n_tables).map(|idx| format!("t{idx}.id = t{}.id", idx - 1)).collect();
        let sql = format!("SELECT 1 FROM {} WHERE {}", tables.join(", "), conditions.join(" AND "));
        context.sql(&sql).await.unwrap().into_optimized_plan().unwrap()
    }

    fn joins(plan: &LogicalPlan, counts: impl Fn(&Join) -> bool) -> usize {
        let mut found = 0;
        plan.apply_with_subqueries(|node| {
            found += usize::from(matches!(node, LogicalPlan::Join(join) if counts(join)));
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
        found
    }

    #[test]
    fn joins_have_their_keys_however_many_there_are() {
        let deep = std::thread::Builder::new().stack_size(64 << 20).spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                for n_tables in [3, MAX_JOINS + 20] {
                    let plan = planned(n_tables).await;
                    assert_eq!(joins(&plan, |_| true), n_tables - 1);
                    assert_eq!(joins(&plan, |join| join.on.is_empty()), 0, "{n_tables} tables");
                }
            });
        });
        deep.unwrap().join().unwrap();
    }
}
