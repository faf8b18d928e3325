//! How large does an expression become when the planner writes it out? `coalesce(x, y)` is to it `CASE WHEN x IS NOT
//! NULL THEN x ELSE y END`, with `x` twice: nested thirty times, 400 bytes of a statement are a thousand million parts.
//! A subquery in there is planned twice, and one of `IN`, `ANY` or `ALL` up to five times where NULL is something else
//! than false (`quantified.rs`).
//!
//! What is written out is counted before the planner begins, and refused beyond [`MAX_REPEATED`].

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, Subquery};
use datafusion::optimizer::AnalyzerRule;

use crate::Error;

/// Parts that a statement may have more than were written.
const MAX_REPEATED: u64 = 50_000;

/// A step of a subquery counts as so many parts of expressions: it is planned, and most are joined.
const PARTS_OF_STEP: u64 = 20;

/// Of a list of so few items, the planner makes comparisons.
const COMPARED_ITEMS: usize = 3;

/// As often is a subquery written whose rows are compared.
const TIMES_COMPARED: u64 = 5;

/// Each argument but the last is written twice.
const FIRST_THAT_IS: [&str; 2] = ["coalesce", "nvl"];

/// The first argument is written twice.
const UNLESS: &str = "nullif";

/// The rule; it runs before all others, and changes nothing.
#[derive(Debug)]
pub(crate) struct ExpansionLimit;

impl AnalyzerRule for ExpansionLimit {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let size = ExpressionSize::of_plan(&plan)?;
        if size.expanded - size.written > MAX_REPEATED {
            let limit = format!(
                "the statement is too large when what it says at several places is written out (subqueries in conditions of NULL, nested calls of coalesce and their kin): the limit is {MAX_REPEATED} parts"
            );
            let remedy = "ask by EXISTS, nest coalesce in its last argument, or compute parts in subqueries of FROM";
            return Err(Error::TooLarge { limit, remedy }.into());
        }
        Ok(plan)
    }

    fn name(&self) -> &str {
        "expanded"
    }
}

/// Parts of an expression or plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ExpressionSize {
    written: u64,
    /// At least `written`.
    expanded: u64,
}

impl ExpressionSize {
    fn of_plan(plan: &LogicalPlan) -> Result<ExpressionSize> {
        let mut size = ExpressionSize { written: 0, expanded: 0 };
        plan.apply(|node| {
            size.grow(ExpressionSize { written: PARTS_OF_STEP, expanded: PARTS_OF_STEP }, 1);
            match node {
                LogicalPlan::Filter(filter) => {
                    size.add_condition(&filter.predicate)?;
                    Ok(TreeNodeRecursion::Continue)
                }
                other => other.apply_expressions(|expr| size.add(expr, 1).map(|()| TreeNodeRecursion::Continue)),
            }
        })?;
        Ok(size)
    }

    /// Of conditions of rows, NULL is false: what is asked there by itself stays as it is.
    fn add_condition(&mut self, expr: &Expr) -> Result<()> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
                self.add_condition(left)?;
                self.add_condition(right)
            }
            Expr::InSubquery(within) => {
                self.grow(ExpressionSize::of_plan(&within.subquery.subquery)?, 1);
                self.add(&within.expr, 1)
            }
            Expr::Not(inner) if matches!(inner.as_ref(), Expr::InSubquery(_)) => self.add_condition(inner),
            other => self.add(other, 1),
        }
    }

    fn of(expr: &Expr) -> Result<ExpressionSize> {
        let mut size = ExpressionSize { written: 1, expanded: 1 };
        match expr {
            Expr::ScalarFunction(call) if FIRST_THAT_IS.contains(&call.func.name()) => {
                for (idx, arg) in call.args.iter().enumerate() {
                    size.add(arg, if idx + 1 < call.args.len() { 2 } else { 1 })?;
                }
            }
            Expr::ScalarFunction(call) if call.func.name() == UNLESS => {
                for (idx, arg) in call.args.iter().enumerate() {
                    size.add(arg, if idx == 0 { 2 } else { 1 })?;
                }
            }
            Expr::Between(between) => {
                size.add(&between.expr, 2)?;
                size.add(&between.low, 1)?;
                size.add(&between.high, 1)?;
            }
            Expr::InList(list) if list.list.len() <= COMPARED_ITEMS => {
                size.add(&list.expr, list.list.len().max(1) as u64)?;
                list.list.iter().try_for_each(|item| size.add(item, 1))?;
            }
            other => {
                if let Some((subquery, times)) = subquery_of(other) {
                    size.grow(ExpressionSize::of_plan(&subquery.subquery)?, times);
                }
                other.apply_children(|child| size.add(child, 1).map(|()| TreeNodeRecursion::Continue))?;
            }
        }
        Ok(size)
    }

    fn add(&mut self, child: &Expr, times: u64) -> Result<()> {
        self.grow(ExpressionSize::of(child)?, times);
        Ok(())
    }

    fn grow(&mut self, part: ExpressionSize, times: u64) {
        self.written = self.written.saturating_add(part.written);
        self.expanded = self.expanded.saturating_add(part.expanded.saturating_mul(times));
    }
}

/// The subquery, and how often it is written.
fn subquery_of(expr: &Expr) -> Option<(&Subquery, u64)> {
    match expr {
        Expr::ScalarSubquery(subquery) => Some((subquery, 1)),
        Expr::Exists(exists) => Some((&exists.subquery, 1)),
        Expr::InSubquery(within) => Some((&within.subquery, TIMES_COMPARED)),
        Expr::SetComparison(compared) => Some((&compared.subquery, TIMES_COMPARED)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::functions::core::expr_fn::{coalesce, nullif};
    use datafusion::logical_expr::{LogicalPlanBuilder, col, in_subquery, lit};

    use super::*;

    #[test]
    fn what_is_written_twice_counts_twice() {
        let size = |expr: &Expr| ExpressionSize::of(expr).unwrap();
        assert_eq!(size(&coalesce(vec![col("a"), lit(1)])), ExpressionSize { written: 3, expanded: 4 });
        assert_eq!(size(&nullif(col("a"), lit(1))), ExpressionSize { written: 3, expanded: 4 });
        let many: Vec<Expr> = (0..100_000).map(lit).collect();
        let long = size(&col("a").in_list(many, false));
        assert_eq!(long.written, long.expanded, "a long list is one");
        let nested = |last: bool| {
            (0..60).fold(col("a"), |inner, _| coalesce(if last { vec![lit(1), inner] } else { vec![inner, lit(1)] }))
        };
        assert_eq!(size(&nested(true)).expanded, 181);
        assert!(size(&nested(false)).expanded > 1 << 60);
        let rows = |expr| Arc::new(LogicalPlanBuilder::empty(true).project([expr]).unwrap().build().unwrap());
        let asked = (0..60).fold(lit(true), |inner, _| coalesce(vec![in_subquery(lit(true), rows(inner)), lit(true)]));
        assert!(size(&asked).expanded > 1 << 60, "what is asked in a subquery is asked twice");
        let between = (0..60).fold(col("a"), |inner, _| inner.between(lit(true), lit(true)));
        assert!(size(&between).expanded > 1 << 60);
    }
}
