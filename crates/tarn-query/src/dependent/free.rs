//! What does a subquery ask of the row around it?

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::{merge_schema, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Distinct, Expr, ExprSchemable, JoinType, LogicalPlan, Operator, Subquery};

/// A column that the plan names and that is none of its own.
#[derive(Debug, Clone)]
pub(super) struct FreeColumn {
    pub(super) column: Column,
    pub(super) field: FieldRef,
}

/// Each of them once, in the order in which they are met. Those of subqueries inside are there if no node between has
/// such a column.
pub(super) fn free(plan: &LogicalPlan) -> Result<Vec<FreeColumn>> {
    let mut found: Vec<FreeColumn> = vec![];
    let mut add = |free: FreeColumn| {
        if !found.iter().any(|known| known.column == free.column) {
            found.push(free);
        }
    };
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::OuterReferenceColumn(field, column) = expr {
                    add(FreeColumn { column: column.clone(), field: field.clone() });
                }
                if let Some(subquery) = subquery_of(expr) {
                    let own = merge_schema(&node.inputs());
                    free(&subquery.subquery)?
                        .into_iter()
                        .filter(|free| !own.has_column(&free.column))
                        .for_each(&mut add);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        if let LogicalPlan::Subquery(subquery) = node {
            free(&subquery.subquery)?.into_iter().for_each(&mut add);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Whether a subquery in the plan asks for a column that the plan has not: for one two queries above it.
pub(crate) fn is_asked_through(plan: &LogicalPlan) -> Result<bool> {
    let mut asks = false;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Some(subquery) = subquery_of(expr) {
                    let own = merge_schema(&node.inputs());
                    asks |= free(&subquery.subquery)?.iter().any(|free| !own.has_column(&free.column));
                }
                Ok(if asks { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })
    })?;
    Ok(asks)
}

/// The subquery that the expression itself is.
pub(crate) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// The expression, of which the subquery that it itself is is another.
pub(crate) fn each_subquery(
    expr: Expr,
    change: impl FnOnce(Subquery) -> Result<Subquery>,
) -> Result<Transformed<Expr>> {
    Ok(Transformed::yes(match expr {
        Expr::ScalarSubquery(subquery) => Expr::ScalarSubquery(change(subquery)?),
        Expr::Exists(exists) => Expr::Exists(Exists { subquery: change(exists.subquery)?, ..exists }),
        Expr::InSubquery(within) => Expr::InSubquery(InSubquery { subquery: change(within.subquery)?, ..within }),
        Expr::SetComparison(compared) => {
            Expr::SetComparison(SetComparison { subquery: change(compared.subquery)?, ..compared })
        }
        expr => return Ok(Transformed::no(expr)),
    }))
}

/// Subqueries say anew which columns around them they ask; what is beside others and asks none is no subquery any more.
pub(crate) fn asked_again(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let again = |subquery: Subquery| {
        let outer_ref_columns = subquery.subquery.all_out_ref_exprs();
        Ok(Subquery { outer_ref_columns, ..subquery })
    };
    if let LogicalPlan::Subquery(subquery) = node {
        return Ok(Transformed::yes(LogicalPlan::Subquery(again(subquery)?)));
    }
    let node = node.map_children(|child| match child {
        LogicalPlan::Subquery(subquery) if subquery.outer_ref_columns.is_empty() => {
            Ok(Transformed::yes(Arc::unwrap_or_clone(subquery.subquery)))
        }
        child => Ok(Transformed::no(child)),
    })?;
    node.transform_data(|node| node.map_expressions(|expr| expr.transform_up(|part| each_subquery(part, again))))
}

/// Does it ask by conditions `inner = outer` alone, where the planner pulls them out of it? Then the planner makes the
/// join, of one hash table.
///
/// Below an aggregate `inner` is a column, which the planner groups by, too.
pub(super) fn is_of_equality(plan: &LogicalPlan) -> Result<bool> {
    let is_grouped = plan.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_))))?;
    let mut is_of_equality = true;
    plan.apply(|node| {
        let asks = match node {
            LogicalPlan::Filter(filter) => {
                let of_groups = is_grouped.then(|| filter.input.schema());
                split_conjunction(&filter.predicate).into_iter().any(|of| asks_otherwise(of, of_groups))
            }
            _ => {
                let mut asks = false;
                node.apply_expressions(|expr| {
                    asks |= asks_outside(expr)?;
                    Ok(TreeNodeRecursion::Continue)
                })?;
                asks
            }
        };
        let stands_between = match node {
            LogicalPlan::Window(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::Unnest(_)
            | LogicalPlan::Distinct(Distinct::On(_)) => true,
            LogicalPlan::Aggregate(aggregate) => !aggregate.group_expr.is_empty(),
            LogicalPlan::Join(join) => join.join_type != JoinType::Inner,
            _ => false,
        };
        is_of_equality &= !asks && (!stands_between || free(node)?.is_empty());
        Ok(if is_of_equality { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_of_equality)
}

/// Whether the condition is of the row around it, and no equality of a value of each. Below an aggregate that inside is
/// one `of_groups`.
fn asks_otherwise(condition: &Expr, of_groups: Option<&DFSchemaRef>) -> bool {
    if !asks_outside(condition).unwrap_or(true) {
        return false;
    }
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return true };
    let is_inside = |expr: &Expr| match of_groups {
        Some(columns) => has_groups(expr, columns),
        None => !asks_outside(expr).unwrap_or(true) && !expr.column_refs().is_empty(),
    };
    // The planner pulls out no value of a subquery that asks itself.
    let is_outside = |expr: &Expr| {
        let has_subquery = expr.exists(|part| Ok(subquery_of(part).is_some())).unwrap_or(true);
        asks_outside(expr).unwrap_or(false) && expr.column_refs().is_empty() && !has_subquery
    };
    !((is_inside(left) && is_outside(right)) || (is_outside(left) && is_inside(right)))
}

/// Whether rows of one value are those of one group of the column: it is the column, or each of its values is cast to
/// another one.
fn has_groups(expr: &Expr, columns: &DFSchema) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Cast(Cast { expr, field }) if matches!(expr.as_ref(), Expr::Column(_)) => {
            let text = |of: &DataType| matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
            expr.get_type(columns).is_ok_and(|from| match (&from, field.data_type()) {
                (from, to) if from == to || (text(from) && text(to)) => true,
                (DataType::Dictionary(_, values), to) => text(values) && text(to),
                (DataType::Int16, DataType::Int32 | DataType::Int64 | DataType::Float64) => true,
                (DataType::Int32, DataType::Int64 | DataType::Float64) => true,
                (DataType::Float32, DataType::Float64) => true,
                (DataType::Date32, DataType::Timestamp(..)) => true,
                (from, DataType::Decimal128(_, scale)) if from.is_integer() => *scale >= 0,
                (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => to >= from,
                _ => false,
            })
        }
        _ => false,
    }
}

fn asks_outside(expr: &Expr) -> Result<bool> {
    expr.exists(|expr| {
        Ok(match subquery_of(expr) {
            Some(subquery) => !free(&subquery.subquery)?.is_empty(),
            None => matches!(expr, Expr::OuterReferenceColumn(..)),
        })
    })
}
