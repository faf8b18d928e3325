//! May a filter go below an aggregate? `SELECT count(*) FROM t` has a row where `t` has none, so what is asked of that
//! row may not be asked of the rows of `t`: `HAVING (SELECT …) > 100` would give 0 where it gives no row. DataFusion
//! leaves filters above such an aggregate for the columns that they name, and pushes those that name none. Filters
//! whose value changes (`random()`) ask each group once, too.
//!
//! So while filters are pushed a limit of no rows stands above such aggregates: filters do not pass limits.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Aggregate, Expr, GroupingSet, Limit, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Two rules, before and behind the one that pushes filters.
#[derive(Debug)]
pub(crate) enum AlwaysARow {
    Kept,
    Free,
}

impl OptimizerRule for AlwaysARow {
    fn name(&self) -> &str {
        match self {
            AlwaysARow::Kept => "filters_above_aggregates",
            AlwaysARow::Free => "filters_were_above_aggregates",
        }
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match self {
            AlwaysARow::Kept => {
                let keeps_all = asks_each(&plan)?;
                plan.transform_up_with_subqueries(|node| Ok(kept(node, keeps_all)))
            }
            AlwaysARow::Free => plan.transform_down_with_subqueries(|node| Ok(free(node))),
        }
    }
}

/// Whether a filter's value changes from row to row, whatever they are.
fn asks_each(plan: &LogicalPlan) -> Result<bool> {
    let mut asks_each = false;
    plan.apply_with_subqueries(|node| {
        asks_each |= matches!(node, LogicalPlan::Filter(filter) if filter.predicate.is_volatile());
        Ok(if asks_each { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(asks_each)
}

fn kept(node: LogicalPlan, keeps_all: bool) -> Transformed<LogicalPlan> {
    let keeps = match &node {
        LogicalPlan::Aggregate(aggregate) => keeps_all || has_always_a_row(aggregate),
        LogicalPlan::Window(_) => keeps_all,
        _ => false,
    };
    match keeps {
        true => Transformed::yes(LogicalPlan::Limit(Limit { skip: None, fetch: None, input: Arc::new(node) })),
        false => Transformed::no(node),
    }
}

fn has_always_a_row(aggregate: &Aggregate) -> bool {
    let of_all_rows = |expr: &Expr| match expr {
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_)) => true,
        _ => false,
    };
    aggregate.group_expr.is_empty() || aggregate.group_expr.iter().any(of_all_rows)
}

fn free(mut node: LogicalPlan) -> Transformed<LogicalPlan> {
    let mut is_changed = false;
    while let LogicalPlan::Limit(Limit { skip: None, fetch: None, input }) = node {
        node = Arc::unwrap_or_clone(input);
        is_changed = true;
    }
    Transformed::new(node, is_changed, TreeNodeRecursion::Continue)
}
