//! How deep is a condition of thousands of terms? The parser makes balanced trees of `AND` and `OR`. The planner takes
//! conditions apart and joins them again one by one, which makes them as deep as they are long; and where it asks at
//! each level for what is below, for a type or whether a term is there already, its time grows with the square.
//!
//! So deep chains are balanced again. The terms keep their order, and both operators are associative, of NULLs too.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::{PhysicalExpr, expressions, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};

use crate::rewrite::each_node;
use crate::truth::{Unknown, is_logic, map_operands};

/// A chain may be as deep as a balanced one of so many times its terms: short ones stay as they are.
const SLACK_LEVELS: u32 = 16;

/// The rule, of logical and of physical plans.
#[derive(Debug)]
pub(crate) struct Balance;

impl OptimizerRule for Balance {
    fn name(&self) -> &str {
        "balanced_conditions"
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        each_node(plan, |node| {
            // Elsewhere an expression is named by how it looks.
            match node {
                LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::TableScan(_) => {
                    node.map_expressions(rebalanced)
                }
                node => Ok(Transformed::no(node)),
            }
        })
    }
}

impl PhysicalOptimizerRule for Balance {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_up(flat_filter)?.data)
    }

    fn name(&self) -> &str {
        "tarn_balanced_conditions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What was not pushed below a filter was joined one by one.
fn flat_filter(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
    let terms = split_conjunction(filter.predicate());
    if terms.len() <= SLACK_LEVELS as usize {
        return Ok(Transformed::no(node));
    }
    let flat = conjunction(&terms);
    Ok(Transformed::yes(Arc::new(FilterExecBuilder::from(filter).with_predicate(flat).build()?)))
}

/// All terms, as a balanced tree.
pub(crate) fn conjunction(terms: &[&Arc<dyn PhysicalExpr>]) -> Arc<dyn PhysicalExpr> {
    match terms {
        [] => expressions::lit(true),
        [term] => Arc::clone(term),
        terms => {
            let (left, right) = terms.split_at(terms.len() / 2);
            Arc::new(expressions::BinaryExpr::new(conjunction(left), Operator::And, conjunction(right)))
        }
    }
}

fn rebalanced(expr: Expr) -> Result<Transformed<Expr>> {
    match is_deep(&expr) {
        true => Ok(Transformed::yes(rebuilt(expr)?)),
        false => Ok(Transformed::no(expr)),
    }
}

/// The operands of `AND` or `OR`.
fn sides(expr: &Expr, of: Option<Operator>) -> Option<(&Expr, Operator, &Expr)> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right })
            if of.is_none_or(|of| of == *op) =>
        {
            Some((left, *op, right))
        }
        _ => None,
    }
}

/// Is one of its chains much deeper than a balanced one would be?
fn is_deep(expr: &Expr) -> bool {
    let mut chains = vec![expr];
    while let Some(chain) = chains.pop() {
        let mut inner = chain;
        while let Expr::Not(negated) = inner {
            inner = negated;
        }
        let Some((_, op, _)) = sides(inner, None) else { continue };
        let (mut n_terms, mut deepest) = (0_usize, 0_u32);
        let mut waiting = vec![(inner, 0_u32)];
        while let Some((part, depth)) = waiting.pop() {
            match sides(part, Some(op)) {
                Some((left, _, right)) => waiting.extend([(right, depth + 1), (left, depth + 1)]),
                None => {
                    n_terms += 1;
                    deepest = deepest.max(depth);
                    chains.extend(is_logic(part).then_some(part));
                }
            }
        }
        if deepest > n_terms.ilog2() + SLACK_LEVELS {
            return true;
        }
    }
    false
}

fn rebuilt(expr: Expr) -> Result<Expr> {
    let Some((_, op, _)) = sides(&expr, None) else {
        return match is_logic(&expr) {
            true => map_operands(expr, Unknown::Kept, |operand, _| rebuilt(operand)),
            false => Ok(expr),
        };
    };
    let (mut terms, mut waiting) = (vec![], vec![expr]);
    while let Some(part) = waiting.pop() {
        match part {
            Expr::BinaryExpr(BinaryExpr { left, op: same, right }) if same == op => waiting.extend([*right, *left]),
            term => terms.push(rebuilt(term)?),
        }
    }
    Ok(balanced(terms, op).unwrap_or_default())
}

/// One expression of many terms, as flat as can be.
pub(crate) fn balanced(mut terms: Vec<Expr>, op: Operator) -> Option<Expr> {
    if terms.len() <= 1 {
        return terms.pop();
    }
    let right = terms.split_off(terms.len() / 2);
    let (left, right) = (balanced(terms, op)?, balanced(right, op)?);
    Some(Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) }))
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn depth(expr: &Expr) -> usize {
        match expr {
            Expr::Not(inner) => 1 + depth(inner),
            expr => sides(expr, None).map_or(0, |(left, _, right)| 1 + depth(left).max(depth(right))),
        }
    }

    fn terms<'a>(expr: &'a Expr, found: &mut Vec<&'a Expr>) {
        match (expr, sides(expr, None)) {
            (_, Some((left, _, right))) => {
                terms(left, found);
                terms(right, found);
            }
            (Expr::Not(inner), _) => terms(inner, found),
            (term, _) => found.push(term),
        }
    }

    #[test]
    fn deep_chains_become_flat_and_keep_their_terms_in_order() {
        let all = |from: i64| (from..from + 100).map(|n| col("a").eq(lit(n)));
        let inner = all(0).reduce(Expr::or).unwrap();
        let outer = all(100).chain([!inner.clone()]).chain(all(200)).reduce(Expr::and).unwrap();
        for deep in [inner, outer] {
            let flat = rebalanced(deep.clone()).unwrap();
            assert!(flat.transformed && depth(&flat.data) < 30, "{}", depth(&flat.data));
            let (mut before, mut after) = (vec![], vec![]);
            terms(&deep, &mut before);
            terms(&flat.data, &mut after);
            assert_eq!(before, after);
            assert!(!rebalanced(flat.data).unwrap().transformed);
        }
        let short = (0..10).map(|n| col("a").eq(lit(n))).reduce(Expr::and).unwrap();
        assert!(!rebalanced(short).unwrap().transformed);
    }
}
