//! Which column does a correlated subquery mean? `EXISTS (SELECT … FROM b JOIN c … WHERE c.n = a.n)` becomes a join
//! with the subquery, and what was `c.n` is there the column `n` of the subquery: where `b` has a column `n`, too,
//! DataFusion took that.
//!
//! So before subqueries become joins, columns that such a condition names get names of their own, if others have the
//! same.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, Projection};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule, before [`BECOME_JOINS`].
#[derive(Debug)]
pub(crate) struct CorrelatedColumnsRule;

/// The first rule of DataFusion that makes joins of subqueries.
pub(crate) const BECOME_JOINS: &str = "decorrelate_predicate_subquery";

impl OptimizerRule for CorrelatedColumnsRule {
    fn name(&self) -> &str {
        "correlated_columns"
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Filter(filter) if filter.predicate.contains_outer() => named_apart(filter, config),
            other => Ok(Transformed::no(other)),
        })
    }
}

fn named_apart(filter: Filter, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
    let columns = filter.input.schema().columns();
    let mut n_called = HashMap::<&str, usize>::new();
    columns.iter().for_each(|column| *n_called.entry(column.name()).or_default() += 1);
    let asked = filter.predicate.column_refs();
    let mut apart: HashMap<Column, Column> = HashMap::new();
    for column in columns.iter().filter(|column| n_called[column.name()] > 1 && asked.contains(column)) {
        let own = Column::from_name(config.alias_generator().next("__apart"));
        apart.insert(column.clone(), own);
    }
    if apart.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let named = columns.iter().map(|column| match apart.get(column) {
        Some(own) => Expr::Column(column.clone()).alias(own.name()),
        None => Expr::Column(column.clone()),
    });
    let named = Projection::try_new(named.collect(), filter.input)?;
    let predicate = filter.predicate.transform(|expr| {
        let own = if let Expr::Column(column) = &expr { apart.get(column).cloned() } else { None };
        Ok(own.map_or_else(|| Transformed::no(expr), |own| Transformed::yes(Expr::Column(own))))
    })?;
    let filtered = Filter::try_new(predicate.data, Arc::new(LogicalPlan::Projection(named)))?;
    // Those around know them by the names that they had.
    let given = columns.iter().map(|column| match apart.get(column) {
        Some(own) => Expr::Column(own.clone()).alias_qualified(column.relation.clone(), column.name()),
        None => Expr::Column(column.clone()),
    });
    let given = Projection::try_new(given.collect(), Arc::new(LogicalPlan::Filter(filtered)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(given)))
}
