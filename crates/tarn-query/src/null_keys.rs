//! Does NULL equal NULL where a join asks `a.k IS NOT DISTINCT FROM b.k` and WHERE asks `a.v = b.v`? Of `k` it does, of
//! `v` it does not. The planner makes keys of both, one after the other, and a join takes NULLs for equal in all of its
//! keys or in none: rows came back for which both `v` are NULL. Correlated subqueries become such joins (`dependent`).
//!
//! So what is equal beside such keys is asked to be there, too: `a.v = b.v AND a.v IS NOT NULL`. The rule runs before
//! the one that makes keys of equalities.

use datafusion::common::NullEquality;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Join, LogicalPlan, Operator};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule.
#[derive(Debug)]
pub(crate) struct NullKeys;

impl OptimizerRule for NullKeys {
    fn name(&self) -> &str {
        "null_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
        let Some(filter) = &join.filter else { return Ok(Transformed::no(LogicalPlan::Join(join))) };
        if join.null_equality != NullEquality::NullEqualsNull || join.on.is_empty() {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let conditions = split_conjunction(filter);
        let mut more: Vec<Expr> = vec![];
        for condition in &conditions {
            if let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, .. }) = condition {
                let is_there = left.as_ref().clone().is_not_null();
                if !conditions.contains(&&is_there) && !more.contains(&is_there) {
                    more.push(is_there);
                }
            }
        }
        if more.is_empty() {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let filter = conjunction(conditions.into_iter().cloned().chain(more));
        Ok(Transformed::yes(LogicalPlan::Join(Join { filter, ..join })))
    }
}
