//! What becomes of NULL where a condition stands? `WHERE` takes it for false; `NOT` turns that round; a select list
//! shows it.
//!
//! Rules that rewrite conditions ask, so that what they make of `NOT IN` is as short as the place allows, and never
//! wrong.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};

use crate::rewrite::{each_node, visible};

/// What NULL counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// A condition that rows must pass.
    AsFalse,
    /// The negation of such a condition.
    AsTrue,
    /// Whoever reads the value tells NULL from false.
    Kept,
}

impl Unknown {
    /// Below a `NOT`.
    pub(crate) fn negated(self) -> Unknown {
        match self {
            Unknown::AsFalse => Unknown::AsTrue,
            Unknown::AsTrue => Unknown::AsFalse,
            Unknown::Kept => Unknown::Kept,
        }
    }
}

/// Is it `AND`, `OR` or `NOT`?
pub(crate) fn is_logic(expr: &Expr) -> bool {
    matches!(expr, Expr::Not(_) | Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }))
}

/// Rewrites the expressions of all nodes for which `concerns` holds, subqueries' included, from the leaves of the plan
/// up. `rewrite` gets a whole expression, what NULL counts as where it stands, and the columns that it may name.
pub(crate) fn each_condition(
    plan: LogicalPlan,
    concerns: impl Fn(&Expr) -> bool,
    rewrite: impl Fn(Expr, Unknown, &LogicalPlan, &DFSchema) -> Result<Expr>,
) -> Result<LogicalPlan> {
    let rewritten = each_node(plan, |node| {
        let mut found = false;
        for expr in node.expressions() {
            found |= expr.exists(|part| Ok(concerns(part)))?;
        }
        if !found {
            return Ok(Transformed::no(node));
        }
        let schema = visible(&node);
        let unknown = match &node {
            LogicalPlan::Filter(_) | LogicalPlan::Join(_) => Unknown::AsFalse,
            _ => Unknown::Kept,
        };
        let names = NamePreserver::new(&node);
        let above = node.clone();
        let changed = node.map_expressions(|expr| {
            if !expr.exists(|part| Ok(concerns(part)))? {
                return Ok(Transformed::no(expr));
            }
            let name = names.save(&expr);
            Ok(Transformed::yes(name.restore(rewrite(expr, unknown, &above, &schema)?)))
        })?;
        if changed.transformed { changed.map_data(LogicalPlan::recompute_schema) } else { Ok(changed) }
    })?;
    Ok(rewritten.data)
}

/// Maps the operands of an expression; `map` is told what NULL counts as for each.
pub(crate) fn map_operands(
    expr: Expr,
    unknown: Unknown,
    mut map: impl FnMut(Expr, Unknown) -> Result<Expr>,
) -> Result<Expr> {
    let mut boxed = |expr: Box<Expr>, unknown| map(*expr, unknown).map(Box::new);
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            Expr::BinaryExpr(BinaryExpr { left: boxed(left, unknown)?, op, right: boxed(right, unknown)? })
        }
        Expr::Not(inner) => Expr::Not(boxed(inner, unknown.negated())?),
        Expr::IsTrue(inner) => Expr::IsTrue(boxed(inner, Unknown::AsFalse)?),
        Expr::IsNotTrue(inner) => Expr::IsNotTrue(boxed(inner, Unknown::AsFalse)?),
        Expr::IsFalse(inner) => Expr::IsFalse(boxed(inner, Unknown::AsTrue)?),
        Expr::IsNotFalse(inner) => Expr::IsNotFalse(boxed(inner, Unknown::AsTrue)?),
        Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
            let branches = when_then_expr
                .into_iter()
                .map(|(when, then)| Ok((boxed(when, Unknown::AsFalse)?, boxed(then, unknown)?)))
                .collect::<Result<Vec<_>>>()?;
            let otherwise = else_expr.map(|otherwise| boxed(otherwise, unknown)).transpose()?;
            Expr::Case(Case { expr: None, when_then_expr: branches, else_expr: otherwise })
        }
        other => other.map_children(|child| map(child, Unknown::Kept).map(Transformed::yes))?.data,
    })
}
