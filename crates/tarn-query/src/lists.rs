//! Does `x NOT IN (1, NULL)` stay unknown, however the planner merges lists? It intersects lists of one value and
//! forgets that the value, or an item, may be NULL: `a NOT IN (1) OR a NOT IN (2)` becomes true for a row where `a` is
//! NULL.
//!
//! Two steps, after types are known and before anything is simplified:
//! 1. A list keeps literals alone. NULLs, columns and subqueries among the items become comparisons of their own beside
//!    it, for the planner compares items as text: it takes `x IN (1) AND x IN (y)` for false.
//! 2. Where lists of one nullable value meet so that merging them tells, each is guarded by `x IS NOT NULL`. Under that
//!    guard there is no NULL, and merging is right.

use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InList, InSubquery};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use crate::balance::balanced;
use crate::rewrite::each_expression;
use crate::truth::{Unknown, each_condition, is_logic, map_operands};

/// The rule, at two places of the analysis.
#[derive(Debug)]
pub(crate) enum Lists {
    /// As they were written: `x IN ((SELECT …))` asks the subquery's rows.
    Written,
    /// With types: the two steps.
    Coerced,
}

impl AnalyzerRule for Lists {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        match self {
            Lists::Written => each_expression(plan, |expr, _| Ok(of_subquery(expr))),
            Lists::Coerced => each_condition(
                plan,
                |part| matches!(part, Expr::InList(_)),
                |expr, unknown, _, schema| {
                    let expr = split_lists(expr, unknown)?;
                    guard(expr, unknown, false, schema)
                },
            ),
        }
    }

    fn name(&self) -> &str {
        match self {
            Lists::Written => "lists_of_subqueries",
            Lists::Coerced => "lists_with_nulls",
        }
    }
}

fn of_subquery(expr: Expr) -> Transformed<Expr> {
    let Expr::InList(mut list) = expr else { return Transformed::no(expr) };
    match (list.list.pop(), list.list.is_empty()) {
        (Some(Expr::ScalarSubquery(subquery)), true) => {
            Transformed::yes(Expr::InSubquery(InSubquery::new(list.expr, subquery, list.negated)))
        }
        (last, _) => {
            list.list.extend(last);
            Transformed::no(Expr::InList(list))
        }
    }
}

fn split_lists(expr: Expr, unknown: Unknown) -> Result<Expr> {
    let expr = map_operands(expr, unknown, split_lists)?;
    Ok(match expr {
        Expr::InList(list) => split(list, unknown),
        other => other,
    })
}

/// An item of a list, by what is known of it before it is computed.
enum Item {
    Literal(Expr),
    Null,
    Computed(Expr),
}

fn split(list: InList, unknown: Unknown) -> Expr {
    let InList { expr, list, negated } = list;
    // It would be computed again for each comparison.
    let whole = expr.is_volatile();
    let (mut literals, mut computed, mut has_null) = (vec![], vec![], false);
    for item in list {
        match item_of(item) {
            Item::Literal(item) => literals.push(item),
            Item::Null => has_null = true,
            Item::Computed(item) if whole => literals.push(item),
            Item::Computed(item) => computed.push(item),
        }
    }
    let op = if negated { Operator::NotEq } else { Operator::Eq };
    let mut terms = vec![];
    if !literals.is_empty() {
        terms.push(Expr::InList(InList { expr: expr.clone(), list: literals, negated }));
    }
    let compared = |item| Expr::BinaryExpr(BinaryExpr { left: expr.clone(), op, right: Box::new(item) });
    terms.extend(computed.into_iter().map(compared));
    if has_null {
        match (unknown, negated) {
            // NULL decides nothing: what it would make unknown already counts so.
            (Unknown::AsFalse, false) | (Unknown::AsTrue, true) => {}
            (Unknown::AsFalse, true) => return lit(false),
            (Unknown::AsTrue, false) => return lit(true),
            (Unknown::Kept, _) => terms.push(null()),
        }
    }
    let join = if negated { Operator::And } else { Operator::Or };
    balanced(terms, join).unwrap_or_else(|| lit(negated))
}

fn null() -> Expr {
    Expr::Literal(ScalarValue::Boolean(None), None)
}

fn item_of(item: Expr) -> Item {
    match item {
        Expr::Literal(scalar, _) if scalar.is_null() => Item::Null,
        Expr::Literal(scalar, metadata) => Item::Literal(Expr::Literal(one_zero(scalar), metadata)),
        Expr::Cast(mut cast) => match item_of(*cast.expr) {
            Item::Null => Item::Null,
            Item::Literal(inner) => {
                cast.expr = Box::new(inner);
                Item::Literal(Expr::Cast(cast))
            }
            Item::Computed(inner) => {
                cast.expr = Box::new(inner);
                Item::Computed(Expr::Cast(cast))
            }
        },
        Expr::Negative(inner) => match item_of(*inner) {
            Item::Null => Item::Null,
            Item::Literal(inner) => Item::Literal(Expr::Negative(Box::new(inner))),
            Item::Computed(inner) => Item::Computed(Expr::Negative(Box::new(inner))),
        },
        other => Item::Computed(other),
    }
}

/// -0.0 is 0.0: lists are merged by what their items look like.
fn one_zero(scalar: ScalarValue) -> ScalarValue {
    match scalar {
        ScalarValue::Float64(Some(float)) => ScalarValue::Float64(Some(float + 0.0)),
        ScalarValue::Float32(Some(float)) => ScalarValue::Float32(Some(float + 0.0)),
        other => other,
    }
}

/// Guards the lists of each tree of `AND`, `OR` and `NOT`. `inside`: the tree that `expr` is of was looked at.
fn guard(expr: Expr, unknown: Unknown, inside: bool, schema: &DFSchema) -> Result<Expr> {
    let logic = is_logic(&expr);
    let expr = if logic && !inside { guard_tree(expr, unknown, schema)? } else { expr };
    map_operands(expr, unknown, |operand, unknown| guard(operand, unknown, logic, schema))
}

fn guard_tree(expr: Expr, unknown: Unknown, schema: &DFSchema) -> Result<Expr> {
    let mut values: Vec<Expr> = vec![];
    collect(&expr, &mut |value, _| {
        if !values.contains(value) {
            values.push(value.clone());
        }
    });
    let mut unsafe_values = vec![];
    for value in values {
        if value.nullable(schema)? && !value.is_volatile() && merging_tells(&expr, &value, unknown) {
            unsafe_values.push(value);
        }
    }
    if unsafe_values.is_empty() { Ok(expr) } else { guard_leaves(expr, unknown, &unsafe_values) }
}

/// The value that a leaf holds against literals, and whether it asks for none of them. A comparison is a list of one:
/// the planner makes lists of them.
fn list_of(expr: &Expr) -> Option<(&Expr, bool)> {
    match expr {
        Expr::InList(list) => Some((&list.expr, list.negated)),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Eq | Operator::NotEq), right }) => {
            let negated = *op == Operator::NotEq;
            match (left.as_ref(), right.as_ref()) {
                (Expr::Column(_), Expr::Literal(..) | Expr::Cast(_)) => Some((left, negated)),
                (Expr::Literal(..) | Expr::Cast(_), Expr::Column(_)) => Some((right, negated)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn collect<'a>(expr: &'a Expr, found: &mut impl FnMut(&'a Expr, bool)) {
    match expr {
        Expr::Not(inner) => collect(inner, found),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            collect(left, found);
            collect(right, found);
        }
        leaf => {
            if let Some((value, negated)) = list_of(leaf) {
                found(value, negated);
            }
        }
    }
}

/// Would the answer for a NULL `value` change if lists of it were merged as if there were no NULL?
fn merging_tells(expr: &Expr, value: &Expr, unknown: Unknown) -> bool {
    match unknown {
        Unknown::AsFalse => meet(expr, value, false).1,
        Unknown::AsTrue => meet(expr, value, true).1,
        Unknown::Kept => {
            let (mut lists, mut plain) = (0, true);
            collect(expr, &mut |of, negated| {
                if of == value {
                    lists += 1;
                    plain &= !negated;
                }
            });
            lists > 1 && !(plain && only_ors(expr))
        }
    }
}

fn only_ors(expr: &Expr) -> bool {
    match expr {
        Expr::Not(_) | Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) => false,
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => only_ors(left) && only_ors(right),
        _ => true,
    }
}

/// How many lists of `value` there are and how many of them ask for none of their items, by what is asked when all
/// `NOT`s are pushed down to them.
#[derive(Default, Clone, Copy)]
struct ListCounts {
    lists: usize,
    negated: usize,
}

/// Also: do two of them meet below an `OR`, one of them negated? Rows pass an `AND` only if each side is true, so false
/// for NULL does no harm there; below an `OR`, true for NULL does.
fn meet(expr: &Expr, value: &Expr, below_not: bool) -> (ListCounts, bool) {
    match expr {
        Expr::Not(inner) => meet(inner, value, !below_not),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let ((left, tells_left), (right, tells_right)) =
                (meet(left, value, below_not), meet(right, value, below_not));
            let met = ListCounts { lists: left.lists + right.lists, negated: left.negated + right.negated };
            let is_or = (*op == Operator::Or) != below_not;
            let here = is_or && left.lists > 0 && right.lists > 0 && met.negated > 0;
            (met, tells_left || tells_right || here)
        }
        leaf => match list_of(leaf) {
            Some((of, negated)) if of == value => {
                (ListCounts { lists: 1, negated: usize::from(negated != below_not) }, false)
            }
            _ => (ListCounts::default(), false),
        },
    }
}

fn guard_leaves(expr: Expr, unknown: Unknown, values: &[Expr]) -> Result<Expr> {
    if is_logic(&expr) {
        return map_operands(expr, unknown, |operand, unknown| guard_leaves(operand, unknown, values));
    }
    let Some((value, _)) = list_of(&expr).filter(|(value, _)| values.contains(value)) else { return Ok(expr) };
    let value = value.clone();
    Ok(match unknown {
        Unknown::AsFalse => value.is_not_null().and(expr),
        Unknown::AsTrue => value.is_null().or(expr),
        Unknown::Kept => value.clone().is_not_null().and(expr).or(value.is_null().and(null())),
    })
}
