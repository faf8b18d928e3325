//! Of which type is `1`? An `integer` in PostgreSQL, if it fits one, else a `bigint`; DataFusion reads every whole
//! number as a `bigint`. So `SELECT 1` was told as `int8`, which some clients show as a text, `2147483647 + 1` did not
//! overflow, and `CREATE TABLE … AS SELECT 1` made a `bigint` column.
//!
//! It runs once, when a statement is planned: a parameter that is bound later is of the type that it was declared with.
//! What names a column below, or of a query around, gets the type that it has by then. Left as they are: LIMIT and
//! OFFSET, which want a `bigint`; what is counted, where `1` stands for a row; and recursive queries, whose parts have
//! agreed upon types already.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{
    AggregateFunction, Exists, InSubquery, SetComparison, WindowFunction, WindowFunctionDefinition,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, GroupingSet, LogicalPlan, Projection, Subquery, Union, Values,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

/// The rule.
#[derive(Debug)]
pub(super) struct IntegerLiterals;

impl AnalyzerRule for IntegerLiterals {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let is_recursive = plan.exists(|node| Ok(matches!(node, LogicalPlan::RecursiveQuery(_))))?;
        if is_recursive && asks_outside(&plan)? {
            return Ok(plan);
        }
        Ok(retyped(plan, &[])?.data)
    }

    fn name(&self) -> &str {
        "integer_literals"
    }
}

/// Whether a subquery names a column of a query around it.
fn asks_outside(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                found |= matches!(expr, Expr::OuterReferenceColumn(..));
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The plan with literals that fit, and `around` it, the innermost last, the columns of the queries that it is a
/// subquery of.
fn retyped(plan: LogicalPlan, around: &[DFSchemaRef]) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::RecursiveQuery(_) => return Ok(Transformed::no(plan)),
        LogicalPlan::Values(values) => return Ok(rows(values)?.update_data(LogicalPlan::Values)),
        _ => {}
    }
    // What is LATERAL names columns of the inputs before it.
    let mut beside = around.to_vec();
    let plan = plan.map_children(|child| {
        let sees = if is_lateral(&child) { &beside[..] } else { around };
        let child = retyped(child, sees)?;
        beside.push(Arc::clone(child.data.schema()));
        Ok(child)
    })?;
    let plan = plan.transform_data(|plan| match plan {
        LogicalPlan::Aggregate(aggregate) => Ok(sets_of_columns(aggregate)?.update_data(LogicalPlan::Aggregate)),
        other => Ok(Transformed::no(other)),
    })?;
    let is_input_changed = plan.transformed;
    let mut own = merge_schema(&plan.data.inputs());
    if let LogicalPlan::TableScan(scan) = &plan.data {
        own.merge(&scan.projected_schema);
    }
    let mut inside = around.to_vec();
    inside.push(Arc::new(own));
    let is_limit = matches!(plan.data, LogicalPlan::Limit(_));
    let names = NamePreserver::new(&plan.data);
    let plan = plan.data.map_expressions(|expr| {
        let name = names.save(&expr);
        let expr = expr.transform_up(|expr| of_subqueries(expr, &inside))?;
        let expr = expr.transform_data(|expr| if is_limit { Ok(Transformed::no(expr)) } else { narrowed(expr) })?;
        Ok(expr.update_data(|expr| name.restore(expr)))
    })?;
    if !is_input_changed && !plan.transformed {
        return Ok(plan);
    }
    // Which type several inputs have together is found when types are made one.
    Ok(Transformed::yes(match plan.data {
        LogicalPlan::Union(union) => LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?),
        other => other.recompute_schema()?,
    }))
}

/// What names columns of the inputs before it, under the name that it may have.
pub(super) fn is_lateral(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_lateral(&alias.input),
        _ => false,
    }
}

/// A column of a query around, and subqueries, if that is what the expression is. `around` ends with the columns that
/// it may name.
fn of_subqueries(expr: Expr, around: &[DFSchemaRef]) -> Result<Transformed<Expr>> {
    let inner = |subquery: Subquery| -> Result<Transformed<Subquery>> {
        let plan = retyped(Arc::unwrap_or_clone(subquery.subquery), around)?;
        let mut is_changed = plan.transformed;
        let mut outside = vec![];
        for expr in subquery.outer_ref_columns {
            let expr = of_subqueries(expr, around)?;
            is_changed |= expr.transformed;
            outside.push(expr.data);
        }
        let subquery = Subquery { subquery: Arc::new(plan.data), outer_ref_columns: outside, spans: subquery.spans };
        Ok(Transformed::new(subquery, is_changed, TreeNodeRecursion::Continue))
    };
    Ok(match expr {
        Expr::OuterReferenceColumn(field, column) => {
            let now = around.iter().rev().find_map(|columns| columns.qualified_field_from_column(&column).ok());
            match now {
                Some((_, now)) if now.data_type() != field.data_type() => {
                    Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(now), column))
                }
                _ => Transformed::no(Expr::OuterReferenceColumn(field, column)),
            }
        }
        Expr::ScalarSubquery(subquery) => inner(subquery)?.update_data(Expr::ScalarSubquery),
        Expr::Exists(Exists { subquery, negated }) => {
            inner(subquery)?.update_data(|subquery| Expr::Exists(Exists { subquery, negated }))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            inner(subquery)?.update_data(|subquery| Expr::InSubquery(InSubquery { expr, subquery, negated }))
        }
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => inner(subquery)?
            .update_data(|subquery| Expr::SetComparison(SetComparison { expr, subquery, op, quantifier })),
        other => Transformed::no(other),
    })
}

/// Grouping sets are of columns that are called as their expressions are: what would get another name is computed
/// below, under the name that it has. So are keys that `grouping(…)` asks for, which finds them by how they look.
fn sets_of_columns(aggregate: Aggregate) -> Result<Transformed<Aggregate>> {
    let sets: Vec<&Expr> = match &aggregate.group_expr[..] {
        [Expr::GroupingSet(GroupingSet::Rollup(exprs) | GroupingSet::Cube(exprs))] => exprs.iter().collect(),
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().flatten().collect(),
        keys if has_grouping(&aggregate.aggr_expr)? => keys.iter().collect(),
        _ => return Ok(Transformed::no(aggregate)),
    };
    let mut computed: Vec<(Expr, String)> = vec![];
    for expr in sets {
        if narrowed(expr.clone())?.transformed && !computed.iter().any(|(known, _)| known == expr) {
            computed.push((expr.clone(), expr.schema_name().to_string()));
        }
    }
    if computed.is_empty() {
        return Ok(Transformed::no(aggregate));
    }
    let mut columns: Vec<Expr> = aggregate.input.schema().columns().into_iter().map(Expr::Column).collect();
    for (expr, name) in &computed {
        columns.push(narrowed(expr.clone())?.data.alias(name));
    }
    let input = Projection::try_new(columns, aggregate.input)?;
    let by_column = |expr: Expr| {
        expr.transform_down(|expr| {
            let name = computed.iter().find(|(known, _)| *known == expr).map(|(_, name)| name);
            Ok(match name {
                Some(name) => {
                    let column = Expr::Column(Column::new_unqualified(name));
                    Transformed::new(column, true, TreeNodeRecursion::Jump)
                }
                None => Transformed::no(expr),
            })
        })
    };
    let by = aggregate.group_expr.into_iter().map(|expr| Ok(by_column(expr)?.data)).collect::<Result<_>>()?;
    let asked_by_column = |expr: Expr| -> Result<Expr> {
        let name = NamePreserver::new_for_projection().save(&expr);
        let asked = expr.transform_down(|expr| match expr {
            Expr::AggregateFunction(mut function) if function.func.name() == GROUPING => {
                let keys = function.params.args.into_iter().map(|key| Ok(by_column(key)?.data));
                function.params.args = keys.collect::<Result<_>>()?;
                Ok(Transformed::new(Expr::AggregateFunction(function), true, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(asked.data))
    };
    let aggregates = aggregate.aggr_expr.into_iter().map(asked_by_column).collect::<Result<_>>()?;
    Ok(Transformed::yes(Aggregate::try_new(Arc::new(LogicalPlan::Projection(input)), by, aggregates)?))
}

/// Which keys a row is not grouped by.
const GROUPING: &str = "grouping";

fn has_grouping(aggregates: &[Expr]) -> Result<bool> {
    let mut found = false;
    for expr in aggregates {
        found |= expr
            .exists(|expr| Ok(matches!(expr, Expr::AggregateFunction(function) if function.func.name() == GROUPING)))?;
    }
    Ok(found)
}

/// The expression with literals that fit.
fn narrowed(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_down(|expr| {
        Ok(match expr {
            Expr::Literal(ScalarValue::Int64(Some(value)), metadata) => match i32::try_from(value) {
                Ok(value) => Transformed::yes(Expr::Literal(ScalarValue::Int32(Some(value)), metadata)),
                Err(_) => Transformed::no(Expr::Literal(ScalarValue::Int64(Some(value)), metadata)),
            },
            Expr::Negative(of) => match signed(&of) {
                Some(value) => Transformed::new(literal(-value), true, TreeNodeRecursion::Jump),
                None => Transformed::no(Expr::Negative(of)),
            },
            kept if is_kept(&kept) => Transformed::new(kept, false, TreeNodeRecursion::Jump),
            other => Transformed::no(other),
        })
    })
}

/// A whole number with the signs before it: `- -2147483648` is 2147483648, a `bigint`.
fn signed(expr: &Expr) -> Option<i128> {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => Some((*value).into()),
        Expr::Negative(of) => signed(of).map(|value| -value),
        _ => None,
    }
}

/// Of the least type that has it.
fn literal(value: i128) -> Expr {
    let narrow = i32::try_from(value).map(|value| ScalarValue::Int32(Some(value)));
    let wide = || i64::try_from(value).map(|value| ScalarValue::Int64(Some(value)));
    // Only of the least `bigint`, which has no positive one.
    let numeric = ScalarValue::Decimal128(Some(value), 19, 0);
    Expr::Literal(narrow.or_else(|_| wide()).unwrap_or(numeric), None)
}

/// What is counted, and grouping sets, which are of columns by now.
fn is_kept(expr: &Expr) -> bool {
    match expr {
        Expr::GroupingSet(_) => true,
        Expr::AggregateFunction(AggregateFunction { func, .. }) => func.name() == "count",
        Expr::WindowFunction(window) => {
            let WindowFunction { fun, .. } = window.as_ref();
            matches!(fun, WindowFunctionDefinition::AggregateUDF(func) if func.name() == "count")
        }
        _ => false,
    }
}

/// A NULL that was written, which VALUES casts to the type of its column.
fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => is_null(&cast.expr),
        _ => false,
    }
}

/// VALUES say what types their columns have: a column becomes one of integers if all of its values do.
fn rows(values: Values) -> Result<Transformed<Values>> {
    let nothing = DFSchema::empty();
    let mut fields: Vec<_> = values.schema.iter().map(|(of, field)| (of.cloned(), Arc::clone(field))).collect();
    let mut rows = values.values.clone();
    let mut is_changed = false;
    for (column, (_, field)) in fields.iter_mut().enumerate() {
        if field.data_type() != &DataType::Int64 {
            continue;
        }
        let of_column = values.values.iter().map(|row| match &row[column] {
            value if is_null(value) => Ok(Expr::Literal(ScalarValue::Int32(None), None)),
            value => narrowed(value.clone()).map(|value| value.data),
        });
        let of_column = of_column.collect::<Result<Vec<_>>>()?;
        let fits = of_column.iter().try_for_each(|expr| match expr.get_type(&nothing) {
            Ok(DataType::Int32) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        if fits.is_break() {
            continue;
        }
        for (row, expr) in rows.iter_mut().zip(of_column) {
            row[column] = expr;
        }
        *field = Arc::new(Field::new(field.name(), DataType::Int32, field.is_nullable()));
        is_changed = true;
    }
    let schema: DFSchemaRef = match is_changed {
        true => Arc::new(DFSchema::new_with_metadata(fields, values.schema.metadata().clone())?),
        false => values.schema,
    };
    let values = Values { schema, values: rows };
    Ok(if is_changed { Transformed::yes(values) } else { Transformed::no(values) })
}
