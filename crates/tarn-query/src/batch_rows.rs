//! How many rows has a batch beside a long constant? Where a constant is computed with, it is written out for each row:
//! `SELECT repeat('x', 100000)` over a table is one constant for the planner, and 800 MB in a batch of 8,192 rows. No
//! operator counts them. So a statement with long constants (a parameter is one, too) has shorter batches.

use std::sync::Arc;

use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;

use crate::Result;
use crate::long_constants::constant;
use crate::running::StatementContext;

/// Shorter ones are not counted: a list of thousands is compared with, and written out for no row.
const LONG_BYTES: usize = 1 << 10;

/// Of the memory of all queries, what the constants of one batch may take.
const SHARE_OF_MEMORY: usize = 32;

/// The physical plan of a logical one; sets the state's rows of a batch first, by the constants that are left when it
/// is optimized.
pub(crate) async fn physical(state: &mut SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    let StatementContext { constants, plan: memory, stop: _, began_us: _, statement_us: _ } =
        StatementContext::of(state.config_options());
    let optimized = state.optimize(plan);
    constants.check()?;
    let plan = optimized?;
    let long = ConstantBytes::of(&plan)?;
    if let MemoryLimit::Finite(bytes) = state.runtime_env().memory_pool.memory_limit() {
        let options = &mut state.config_mut().options_mut().execution;
        let rows = fitting(options.batch_size.get(), long.row_bytes, bytes / SHARE_OF_MEMORY);
        options.batch_size = ConfigNonZeroUsize::try_new(rows)?;
    }
    let physical = state.query_planner().create_physical_plan(&plan, state).await;
    constants.check()?;
    constants.end(long.all_bytes);
    memory.end();
    Ok(physical?)
}

/// The plan as it is optimized, for whoever computes it without a physical one; what was held for planning is given
/// back.
pub(crate) fn optimized(state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
    let StatementContext { constants, plan: memory, stop: _, began_us: _, statement_us: _ } =
        StatementContext::of(state.config_options());
    let optimized = state.optimize(plan);
    constants.check()?;
    let plan = optimized?;
    constants.end(ConstantBytes::of(&plan)?.all_bytes);
    memory.end();
    Ok(plan)
}

/// Rows of which the constants fit; at least one, and at most `rows`.
fn fitting(rows: usize, row_bytes: usize, budget_bytes: usize) -> usize {
    budget_bytes.checked_div(row_bytes).map_or(rows, |fit| fit.clamp(1, rows.max(1)))
}

/// What the constants of a plan take together, each written out once.
#[derive(Debug, Default)]
struct ConstantBytes {
    /// Of long ones that are written out for each row; the rows of VALUES are written out once, as they are.
    row_bytes: usize,
    /// Of all constants.
    all_bytes: usize,
}

impl ConstantBytes {
    fn of(plan: &LogicalPlan) -> Result<ConstantBytes> {
        let mut long = ConstantBytes::default();
        plan.apply_with_subqueries(|node| {
            let is_written = !matches!(node, LogicalPlan::Values(_));
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    let value = match part {
                        Expr::Literal(value, _) => Some(value),
                        part => constant(part),
                    };
                    if let Some(value) = value {
                        let size = value.size();
                        long.all_bytes = long.all_bytes.saturating_add(size);
                        if is_written && size >= LONG_BYTES {
                            long.row_bytes = long.row_bytes.saturating_add(size);
                        }
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(long)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{LogicalPlanBuilder, lit};

    use super::*;

    #[test]
    fn a_long_constant_makes_batches_shorter_and_a_short_one_does_not() {
        assert_eq!(fitting(8_192, 0, 1 << 20), 8_192);
        assert_eq!(fitting(8_192, 10_000, 16 << 20), 1_677);
        assert_eq!(fitting(8_192, 1 << 30, 16 << 20), 1);
        assert_eq!(fitting(100, 2_000, 16 << 20), 100);
    }

    #[test]
    fn constants_of_subqueries_count_and_short_ones_do_not() {
        let of = |text: &str| LogicalPlanBuilder::empty(true).project([lit(text)]).unwrap().build().unwrap();
        assert_eq!(ConstantBytes::of(&of("short")).unwrap().row_bytes, 0);
        assert!(ConstantBytes::of(&of("short")).unwrap().all_bytes > 0, "it is in the plan all the same");
        let long = "x".repeat(100_000);
        assert!(ConstantBytes::of(&of(&long)).unwrap().row_bytes >= 100_000);
        let subquery = datafusion::logical_expr::scalar_subquery(Arc::new(of(&long)));
        let outer = LogicalPlanBuilder::empty(true).project([subquery]).unwrap().build().unwrap();
        assert!(ConstantBytes::of(&outer).unwrap().row_bytes >= 100_000);
    }
}
