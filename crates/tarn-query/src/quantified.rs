//! Is `x NOT IN (SELECT y …)` unknown when one `y` is NULL? Subqueries with `IN`, `ANY` and `ALL` become joins that
//! know.
//!
//! The planner makes joins of subqueries. Only an uncorrelated `x NOT IN (…)` that stands alone, with columns in `x`,
//! becomes one that knows of NULLs. The others are put together here, of `EXISTS`, which has no NULLs:
//!
//! ```text
//! x NOT IN (S)   is true where   NOT EXISTS (S: y = x) AND NOT EXISTS (S: y IS NULL)
//!                                AND (x IS NOT NULL OR NOT EXISTS (S))
//! x op ANY (S)   is true where   EXISTS (S: x op y); it is not false where EXISTS (S: (x op y) IS NOT FALSE)
//! x op ALL (S)   is true where   NOT EXISTS (S: (x op y) IS NOT TRUE)
//! ```
//!
//! Each is an equality join or an empty one: no row is held against every other because of NULLs.
//!
//! A correlated subquery that always has one row, an aggregate without groups, is a value: `x NOT IN (S)` is `x <>
//! (S)`. Where the planner makes no joins, in a select list for one, and where it would pull conditions out of a
//! subquery although that changes its rows, or from two queries below, `EXISTS (S)` becomes the value `(SELECT count(*)
//! FROM S) > 0`, for `dependent.rs` to compute. What is left of the latter is refused.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Spans};
use datafusion::error::Result;
use datafusion::functions_aggregate::count::count_all;
use datafusion::logical_expr::expr::{Case, Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Subquery, lit,
    not,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::dependent::is_asked_through;
use crate::truth::{Unknown, each_condition, is_logic, map_operands};

/// The column of a subquery's values.
const VALUE: &str = "__value";

/// The column of how many rows a subquery has.
const COUNT: &str = "__count";

/// The rule; it runs when types are known.
#[derive(Debug)]
pub(crate) struct QuantifiedSubqueryRule;

impl AnalyzerRule for QuantifiedSubqueryRule {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_condition(plan, is_subquery, |expr, unknown, node, schema| match node {
            LogicalPlan::Filter(_) => counted(rewrite(expr, unknown, true, true, schema)?, is_no_join),
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner => rewrite(expr, unknown, true, true, schema),
            // The planner has no joins for them, and says so.
            LogicalPlan::Join(_) => rewrite(expr, unknown, false, false, schema),
            _ => counted(rewrite(expr, unknown, true, false, schema)?, |_| true),
        })
    }

    fn name(&self) -> &str {
        "quantified_subqueries"
    }
}

/// The rule of what the planner would do otherwise than it is meant; it runs when others have taken what they can.
#[derive(Debug)]
pub(crate) struct UnsupportedSubqueryRule;

impl AnalyzerRule for UnsupportedSubqueryRule {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    match expr {
                        Expr::Exists(Exists { subquery, .. })
                        | Expr::InSubquery(InSubquery { subquery, .. })
                        | Expr::SetComparison(SetComparison { subquery, .. }) => refuse_changed_rows(subquery, true)?,
                        Expr::ScalarSubquery(subquery) => refuse_changed_rows(subquery, false)?,
                        _ => {}
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        refuse_laterals(&plan)?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        "refused_subqueries"
    }
}

/// Whether the planner would make a join of other rows of it, or none: it pulls conditions out of one query, not of
/// two.
fn is_no_join(subquery: &Subquery) -> bool {
    refuse_changed_rows(subquery, true).is_err() || is_asked_through(&subquery.subquery).unwrap_or(false)
}

/// The `EXISTS` of subqueries that are `wanted`, as comparisons of values.
fn counted(expr: Expr, wanted: impl Fn(&Subquery) -> bool) -> Result<Expr> {
    let counted = expr.transform_up(|expr| match expr {
        Expr::Exists(Exists { subquery, negated }) if wanted(&subquery) => {
            let rows = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
            let plan = rows.aggregate(Vec::<Expr>::new(), vec![count_all().alias(COUNT)])?.build()?;
            let count = Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery });
            let op = if negated { Operator::Eq } else { Operator::Gt };
            Ok(Transformed::yes(compared(count, op, lit(0_i64))))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(counted.data)
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) | Expr::ScalarSubquery(_))
}

/// `filter`: may it become `EXISTS`? `alone`: is it one of the conditions that `AND` joins to a filter?
fn rewrite(expr: Expr, unknown: Unknown, filter: bool, alone: bool, schema: &DFSchema) -> Result<Expr> {
    let still_alone = match &expr {
        Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) => alone,
        Expr::Not(inner) => alone && !is_logic(inner),
        _ => false,
    };
    let expr = map_operands(expr, unknown, |operand, unknown| rewrite(operand, unknown, filter, still_alone, schema))?;
    match expr {
        Expr::Exists(exists) => {
            if always_one_row(&exists.subquery) {
                return Ok(lit(!exists.negated));
            }
            Ok(Expr::Exists(exists))
        }
        Expr::InSubquery(list) => {
            let InSubquery { expr, subquery, negated } = list;
            if always_one_row(&subquery) {
                let op = if negated { Operator::NotEq } else { Operator::Eq };
                return Ok(compared(*expr, op, Expr::ScalarSubquery(subquery)));
            }
            in_subquery(*expr, subquery, negated, unknown, filter, alone, schema)
        }
        Expr::SetComparison(comparison) => {
            let SetComparison { expr, subquery, op, quantifier } = comparison;
            if always_one_row(&subquery) {
                return Ok(compared(*expr, op, Expr::ScalarSubquery(subquery)));
            }
            match (op, &quantifier) {
                (Operator::Eq, SetQuantifier::Any) => {
                    in_subquery(*expr, subquery, false, unknown, filter, alone, schema)
                }
                (Operator::NotEq, SetQuantifier::All) => {
                    in_subquery(*expr, subquery, true, unknown, filter, alone, schema)
                }
                _ if !filter => Err(unsupported("ANY or ALL of a subquery outside of WHERE", "use it in WHERE")),
                _ => set_comparison(*expr, &subquery, op, &quantifier, unknown, schema),
            }
        }
        other => Ok(other),
    }
}

fn in_subquery(
    expr: Expr,
    subquery: Subquery,
    negated: bool,
    unknown: Unknown,
    filter: bool,
    alone: bool,
    schema: &DFSchema,
) -> Result<Expr> {
    // What NULL counts as for the plain IN.
    let unknown = if negated { unknown.negated() } else { unknown };
    let correlated = !subquery.outer_ref_columns.is_empty();
    // A semi join drops unknowns. An anti join of one key that is alone knows of them.
    let as_it_is = match unknown {
        Unknown::AsFalse => alone || expr.contains_outer(),
        Unknown::AsTrue => alone && !correlated && expr.any_column_refs() && !expr.contains_outer(),
        Unknown::Kept => false,
    };
    if !filter || (as_it_is && !is_no_join(&subquery)) {
        return Ok(Expr::InSubquery(InSubquery { expr: Box::new(expr), subquery, negated }));
    }
    let outer = outer(expr.clone(), schema)?;
    let equal = exists(&subquery, Some(compared(outer, Operator::Eq, value())))?;
    if unknown == Unknown::AsFalse {
        return Ok(negated_if(negated, equal));
    }
    let mut unknowns = vec![];
    if subquery.subquery.schema().field(0).is_nullable() {
        unknowns.push(exists(&subquery, Some(value().is_null()))?);
    }
    if expr.nullable(schema)? {
        unknowns.push(expr.is_null().and(exists(&subquery, None)?));
    }
    Ok(match unknown {
        Unknown::Kept => {
            let unknown = unknowns.into_iter().reduce(Expr::or).map(|unknown| (unknown, null()));
            let branches = [(equal, lit(true))].into_iter().chain(unknown);
            negated_if(negated, case(branches, lit(false)))
        }
        // Each condition by itself, so that each may be a join.
        _ if negated => unknowns.into_iter().map(negation).fold(not(equal), Expr::and),
        _ => unknowns.into_iter().fold(equal, Expr::or),
    })
}

fn set_comparison(
    expr: Expr,
    subquery: &Subquery,
    op: Operator,
    quantifier: &SetQuantifier,
    unknown: Unknown,
    schema: &DFSchema,
) -> Result<Expr> {
    let held = compared(outer(expr, schema)?, op, value());
    let exists = |condition: Expr| exists(subquery, Some(condition));
    Ok(match (quantifier, unknown) {
        (SetQuantifier::Any, Unknown::AsFalse) => exists(held.is_true())?,
        (SetQuantifier::Any, Unknown::AsTrue) => exists(held.is_not_false())?,
        (SetQuantifier::Any, Unknown::Kept) => {
            case([(exists(held.clone().is_true())?, lit(true)), (exists(held.is_null())?, null())], lit(false))
        }
        (SetQuantifier::All, Unknown::AsFalse) => not(exists(held.is_not_true())?),
        (SetQuantifier::All, Unknown::AsTrue) => not(exists(held.is_false())?),
        (SetQuantifier::All, Unknown::Kept) => {
            case([(exists(held.clone().is_false())?, lit(false)), (exists(held.is_null())?, null())], lit(true))
        }
    })
}

pub(crate) fn compared(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) })
}

pub(crate) fn null() -> Expr {
    Expr::Literal(ScalarValue::Boolean(None), None)
}

fn value() -> Expr {
    Expr::Column(Column::new_unqualified(VALUE))
}

pub(crate) fn case(branches: impl IntoIterator<Item = (Expr, Expr)>, otherwise: Expr) -> Expr {
    let branches = branches.into_iter().map(|(when, then)| (Box::new(when), Box::new(then)));
    Expr::Case(Case { expr: None, when_then_expr: branches.collect(), else_expr: Some(Box::new(otherwise)) })
}

pub(crate) fn negated_if(negated: bool, expr: Expr) -> Expr {
    if negated { not(expr) } else { expr }
}

/// `NOT`, pushed down to what is no `AND`.
fn negation(expr: Expr) -> Expr {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => negation(*left).or(negation(*right)),
        Expr::IsNull(inner) => Expr::IsNotNull(inner),
        other => not(other),
    }
}

/// `EXISTS (SELECT … WHERE condition)` over a subquery's [`VALUE`]s.
fn exists(subquery: &Subquery, condition: Option<Expr>) -> Result<Expr> {
    // In place of the subquery's own list: a cast of a column is called as the column is, which a correlated condition
    // may need beside it.
    let (input, first) = match subquery.subquery.as_ref() {
        LogicalPlan::Projection(Projection { expr, input, .. }) if expr.len() == 1 => (input, expr[0].clone()),
        other => (&subquery.subquery, Expr::Column(Column::from(other.schema().qualified_field(0)))),
    };
    let values = LogicalPlanBuilder::from(input.as_ref().clone()).project([first.alias(VALUE)])?.build()?;
    exists_in(values, &subquery.spans, condition)
}

/// `EXISTS (SELECT … WHERE condition)` over these rows.
pub(crate) fn exists_in(rows: LogicalPlan, spans: &Spans, condition: Option<Expr>) -> Result<Expr> {
    let mut plan = rows;
    if let Some(condition) = condition {
        plan = LogicalPlanBuilder::from(plan).filter(condition)?.build()?;
    }
    if plan.all_out_ref_exprs().is_empty() {
        // It is the same for every row: one row tells.
        plan = LogicalPlanBuilder::from(plan).limit(0, Some(1))?.build()?;
    }
    let outer_ref_columns = plan.all_out_ref_exprs();
    let subquery = Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: spans.clone() };
    Ok(Expr::Exists(Exists { subquery, negated: false }))
}

/// The expression as a subquery below names it. What is further around has the same name there.
pub(crate) fn outer(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let named = expr.transform_up(|expr| match expr {
        Expr::Column(column) => {
            let field = Arc::clone(schema.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(named.data)
}

/// Is it a correlated aggregate without groups, and nothing that drops its row?
fn always_one_row(subquery: &Subquery) -> bool {
    fn one(plan: &LogicalPlan) -> bool {
        match plan {
            LogicalPlan::Projection(projection) => one(&projection.input),
            LogicalPlan::SubqueryAlias(alias) => one(&alias.input),
            LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
            _ => false,
        }
    }
    !subquery.outer_ref_columns.is_empty() && one(&subquery.subquery)
}

/// The planner pulls correlated conditions out of a subquery, above whatever stands there. That is refused where it
/// changes the rows.
///
/// `of_rows`: is the subquery asked for rows, not for one value?
fn refuse_changed_rows(subquery: &Subquery, of_rows: bool) -> Result<()> {
    match subquery.outer_ref_columns.is_empty() {
        true => Ok(()),
        false => refuse_above(&subquery.subquery, of_rows, None),
    }
}

/// Subqueries in `FROM` that name columns of what stands beside them.
fn refuse_laterals(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Join(join) = node {
            for side in [&join.left, &join.right] {
                if let LogicalPlan::Subquery(subquery) = side.as_ref() {
                    refuse_changed_rows(subquery, false)?;
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn refuse_above(plan: &LogicalPlan, of_rows: bool, above: Option<&'static str>) -> Result<()> {
    if let Some(above) = above.filter(|_| plan.contains_outer_reference()) {
        return Err(unsupported(
            format!("a correlated condition below {above} of its subquery"),
            "move the condition out of it, or write the query as a join",
        ));
    }
    let here = match plan {
        LogicalPlan::Window(_) => Some("a window function"),
        LogicalPlan::Distinct(datafusion::logical_expr::Distinct::On(_)) => Some("DISTINCT ON"),
        LogicalPlan::Limit(limit) if limit.skip.is_some() => Some("OFFSET"),
        LogicalPlan::Aggregate(aggregate) if of_rows && aggregate.group_expr.is_empty() => {
            Some("an aggregate without GROUP BY")
        }
        _ => None,
    };
    if let LogicalPlan::Join(join) = plan {
        let outer = Some("the side of an outer join that may have no row");
        let (left, right) = match join.join_type {
            JoinType::Inner => (None, None),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => (None, outer),
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => (outer, None),
            JoinType::Full => (outer, outer),
        };
        refuse_above(&join.left, of_rows, above.or(left))?;
        return refuse_above(&join.right, of_rows, above.or(right));
    }
    for input in plan.inputs() {
        refuse_above(input, of_rows, above.or(here))?;
    }
    Ok(())
}

fn unsupported(what: impl Into<String>, remedy: &'static str) -> datafusion::error::DataFusionError {
    Error::Unsupported { what: what.into(), remedy }.into()
}
