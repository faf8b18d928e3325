//! How often does the planner ask whether something may be NULL? Of `CASE WHEN x THEN y …` it looks whether `y` may be
//! NULL where `x` is true: so it asks that of `x`, of its parts, of theirs, and so on. A CASE deep in the condition of
//! a CASE is asked by each part of it that stands around: thirty in each other, 500 bytes of text, are a thousand
//! million times, at each step of planning.
//!
//! What is asked is counted, and refused beyond [`MAX_LOOKS`](super::MAX_LOOKS).

use crate::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

/// What the planner asks of the expressions around the place where a visitor is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NullAsks {
    /// Of expressions that are done, and of which the expression around is not.
    done: Vec<NullabilityCost>,
    /// For each expression around, where its parts begin in there.
    parts_from: Vec<usize>,
}

/// Looks at an expression and its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NullabilityCost {
    /// Until it is known whether it may be NULL.
    once: usize,
    /// Until that is known of it and of each of its parts, as a condition of CASE needs it.
    each: usize,
}

impl NullAsks {
    pub(super) fn begin(&mut self) {
        self.parts_from.push(self.done.len());
    }

    /// Looks that the conditions of this CASE need, 0 for other expressions. Its parts are what came since its
    /// [`begin`](Self::begin).
    pub(super) fn end(&mut self, expr: &Expr) -> usize {
        let from = self.parts_from.pop().unwrap_or(0);
        let (asked, of_case) = NullabilityCost::of(expr, &self.done[from..]);
        self.done.truncate(from);
        self.done.push(asked);
        if self.parts_from.is_empty() {
            self.done.clear();
        }
        of_case
    }
}

impl NullabilityCost {
    fn of(expr: &Expr, parts: &[NullabilityCost]) -> (NullabilityCost, usize) {
        let sum = |parts: &[NullabilityCost], looks: fn(&NullabilityCost) -> usize| {
            parts.iter().map(looks).fold(1, usize::saturating_add)
        };
        match expr {
            // Its query has a schema of its own.
            Expr::Subquery(_) | Expr::Exists { .. } => (NullabilityCost { once: 1, each: 1 }, 0),
            Expr::InSubquery { .. } => {
                let once = sum(&parts[..parts.len().min(1)], |operand| operand.once);
                (NullabilityCost { once, each: once }, 0)
            }
            Expr::Case { operand: None, conditions, .. } => {
                let (branches, otherwise) = parts.split_at(parts.len().min(conditions.len() * 2));
                let mut once = sum(otherwise, |part| part.once);
                let mut of_conditions = 0_usize;
                for (branch, parts) in conditions.iter().zip(branches.chunks(2)) {
                    let &[condition, result] = parts else { continue };
                    once = once.saturating_add(result.once);
                    if !is_never_null(&branch.result) {
                        of_conditions = of_conditions.saturating_add(condition.each);
                    }
                }
                let once = once.saturating_add(of_conditions);
                (NullabilityCost { once, each: once }, of_conditions)
            }
            Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. }
            | Expr::UnaryOp { op: UnaryOperator::Not, .. }
            | Expr::Nested(_) => {
                (NullabilityCost { once: sum(parts, |part| part.once), each: sum(parts, |part| part.each) }, 0)
            }
            _ => {
                let once = sum(parts, |part| part.once);
                (NullabilityCost { once, each: sum(parts, |part| part.each).saturating_add(once) }, 0)
            }
        }
    }
}

fn is_never_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if !matches!(value.value, Value::Null | Value::Placeholder(_)))
}
