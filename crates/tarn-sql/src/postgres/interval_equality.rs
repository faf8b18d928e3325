//! Is a month thirty days? Wherever values are held against each other: in lists and ranges, in the rows of a subquery,
//! as items of arrays, in groups, windows, DISTINCT and joins. DataFusion compares the parts of intervals there. What
//! stands beside `<` and `=` is in `times`.
//!
//! What is compared is replaced by how long it is. A group shows the interval of one of its rows, as in PostgreSQL.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, not_impl_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Case, GroupingSet, InList, InSubquery, SetComparison};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    Aggregate, Between, Cast, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Subquery, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression, each_node};

use super::interval_aggregates::INTERVAL;
use super::times::{holds_intervals, length_of_interval};

/// Functions that look for their second argument in their first, an array.
const SEARCHING: [&str; 5] = ["array_has", "array_has_all", "array_has_any", "array_position", "array_positions"];

/// Aggregates whose answer is the same with DISTINCT as without.
const OF_ANY_NUMBER: [&str; 2] = ["min", "max"];

/// Within expressions; the rule runs before types are made one.
#[derive(Debug)]
pub(super) struct ComparedIntervals;

impl AnalyzerRule for ComparedIntervals {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, compared)
    }

    fn name(&self) -> &str {
        "compared_intervals"
    }
}

/// Between rows; the rule runs when types are known.
#[derive(Debug)]
pub(super) struct GroupedIntervals;

impl AnalyzerRule for GroupedIntervals {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        // What is above a node whose columns may be NULL now has other columns.
        let mut is_changed = false;
        let rewritten = each_node(plan, |node| {
            let changed = grouped(node)?;
            is_changed |= changed.transformed;
            if is_changed { changed.map_data(LogicalPlan::recompute_schema) } else { Ok(changed) }
        })?;
        each_expression(rewritten.data, distinct)
    }

    fn name(&self) -> &str {
        "grouped_intervals"
    }
}

fn compared(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_changed = match &mut expr {
        Expr::Between(Between { expr, low, high, .. }) => {
            measure(vec![expr.as_mut(), low.as_mut(), high.as_mut()], schema)
        }
        Expr::InList(InList { expr, list, .. }) => {
            measure(std::iter::once(expr.as_mut()).chain(list).collect(), schema)
        }
        Expr::Case(Case { expr: Some(of), when_then_expr, .. }) => {
            let whens = when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
            measure(std::iter::once(of.as_mut()).chain(whens).collect(), schema)
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            let is_changed = is_of_intervals(subquery) && measure(vec![expr.as_mut()], schema);
            if is_changed {
                *subquery = measured(subquery)?;
            }
            is_changed
        }
        Expr::ScalarFunction(call) if SEARCHING.contains(&call.func.name()) => {
            measure(call.args.iter_mut().take(2).collect(), schema)
        }
        Expr::ScalarFunction(call) if call.func.name() == "nullif" => {
            let [of, other] = &call.args[..] else { return Ok(Transformed::no(expr)) };
            let (mut left, mut right) = (of.clone(), other.clone());
            if !measure(vec![&mut left, &mut right], schema) {
                return Ok(Transformed::no(expr));
            }
            expr = when(left.eq(right), Expr::Literal(ScalarValue::Null, None)).otherwise(of.clone())?;
            true
        }
        Expr::WindowFunction(call) => {
            let by = call.params.partition_by.iter_mut();
            by.fold(false, |is_changed, by| measure(vec![by], schema) | is_changed)
        }
        _ => false,
    };
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// Of several distinct intervals, how many there are; what else is made of them sees which of equal ones is left.
fn distinct(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::AggregateFunction(call) = &mut expr else { return Ok(Transformed::no(expr)) };
    let concerns = |of: &Expr| of.get_type(schema).is_ok_and(|of| holds_intervals(&of));
    if !call.params.distinct || !call.params.args.iter().any(concerns) || OF_ANY_NUMBER.contains(&call.func.name()) {
        return Ok(Transformed::no(expr));
    }
    if call.func.name() != "count" {
        return not_impl_err!("{}(DISTINCT …) of intervals; SELECT DISTINCT in a subquery", call.func.name());
    }
    for of in &mut call.params.args {
        measure(vec![of], schema);
    }
    Ok(Transformed::yes(expr))
}

/// Replaces intervals, and arrays of them, by how long they are, and times of day and texts that are written out beside
/// them. Whether all of them are such.
fn measure(all: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let types: Vec<_> = all.iter().map(|of| of.get_type(schema).ok()).collect();
    let is_unknown = |of: &Expr| match of {
        Expr::Literal(value, _) => value.is_null() || value.try_as_str().is_some(),
        _ => false,
    };
    let is_ours = |of: &Option<DataType>| of.as_ref().is_some_and(holds_intervals);
    // Beside an interval, a time of day is one.
    let is_time = |of: &Option<DataType>| matches!(of, Some(DataType::Time32(_) | DataType::Time64(_)));
    let mut each = types.iter().zip(&all);
    if !types.iter().any(is_ours) || !each.all(|(of, expr)| is_ours(of) || is_time(of) || is_unknown(expr)) {
        return false;
    }
    for (expr, of) in all.into_iter().zip(&types) {
        let mut value = std::mem::replace(expr, Expr::Literal(ScalarValue::Null, None));
        if !is_ours(of) {
            value = Expr::Cast(Cast::new(Box::new(value), INTERVAL));
        }
        *expr = length_of_interval().call(vec![value]);
    }
    true
}

fn is_of_intervals(subquery: &Subquery) -> bool {
    matches!(subquery.subquery.schema().fields()[..], [ref field] if holds_intervals(field.data_type()))
}

/// The same rows, by their lengths.
fn measured(subquery: &Subquery) -> Result<Subquery> {
    let rows = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery));
    let columns = subquery.subquery.schema().columns().into_iter();
    let lengths = columns.map(|column| {
        let name = column.name.clone();
        length_of_interval().call(vec![Expr::Column(column)]).alias(name)
    });
    Ok(subquery.with_plan(Arc::new(rows.project(lengths)?.build()?)))
}

fn grouped(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    Ok(match node {
        LogicalPlan::Distinct(Distinct::All(rows)) if has_intervals(rows.schema()) => {
            let columns = rows.schema().columns().into_iter().map(Expr::Column).collect();
            Transformed::yes(by_lengths(Aggregate::try_new(rows, columns, vec![])?)?)
        }
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            let schema = Arc::clone(on.input.schema());
            let sorts = on.sort_expr.iter_mut().flatten().map(|by| &mut by.expr);
            let all = on.on_expr.iter_mut().chain(sorts);
            let is_changed = all.fold(false, |is_changed, of| measure(vec![of], &schema) | is_changed);
            Transformed::new_transformed(LogicalPlan::Distinct(Distinct::On(on)), is_changed)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let groups = grouping_set_to_exprlist(&aggregate.group_expr)?;
            let mut types = groups.into_iter().map(|by| by.get_type(aggregate.input.schema()));
            match types.any(|of| of.is_ok_and(|of| holds_intervals(&of))) {
                true => Transformed::yes(by_lengths(aggregate)?),
                false => Transformed::no(LogicalPlan::Aggregate(aggregate)),
            }
        }
        LogicalPlan::Join(mut join) => {
            let (left, right) = (Arc::clone(join.left.schema()), Arc::clone(join.right.schema()));
            let is_changed = join.on.iter_mut().fold(false, |is_changed, (one, other)| {
                let is_ours = |of: &Expr, schema| of.get_type(schema).is_ok_and(|of| holds_intervals(&of));
                let both = is_ours(one, left.as_ref()) && is_ours(other, right.as_ref());
                both && measure(vec![one], &left) && measure(vec![other], &right) || is_changed
            });
            Transformed::new_transformed(LogicalPlan::Join(join), is_changed)
        }
        node => Transformed::no(node),
    })
}

fn has_intervals(schema: &DFSchema) -> bool {
    schema.fields().iter().any(|field| holds_intervals(field.data_type()))
}

/// The same groups, each with an interval of one of its rows.
fn by_lengths(aggregate: Aggregate) -> Result<LogicalPlan> {
    let schema = Arc::clone(aggregate.input.schema());
    let Aggregate { input, mut group_expr, mut aggr_expr, schema: shown, .. } = aggregate;
    let columns: Vec<Expr> = grouping_set_to_exprlist(&group_expr)?.into_iter().cloned().collect();
    // Of each group, how long it is called, and what shows it.
    let mut lengths = vec![];
    for (nth, mut by) in columns.into_iter().enumerate() {
        let of = by.clone();
        if measure(vec![&mut by], &schema) {
            let first = AggregateFunction::new_udf(first_value_udaf(), vec![of], false, None, vec![], None);
            let name = format!("__interval_{nth}");
            aggr_expr.push(Expr::AggregateFunction(first).alias(&name));
            lengths.push((nth, by.schema_name().to_string(), name));
        }
    }
    let each: Vec<&mut Expr> = match &mut group_expr[..] {
        [Expr::GroupingSet(GroupingSet::Cube(all) | GroupingSet::Rollup(all))] => all.iter_mut().collect(),
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter_mut().flatten().collect(),
        groups => groups.iter_mut().collect(),
    };
    for by in each {
        measure(vec![by], &schema);
    }
    let grouped = LogicalPlan::Aggregate(Aggregate::try_new(input, group_expr, aggr_expr)?);
    let column = |name: &str| Expr::Column(Column::new_unqualified(name));
    let mut columns = vec![];
    for (nth, (relation, field)) in shown.iter().enumerate() {
        columns.push(match lengths.iter().find(|(of, ..)| *of == nth) {
            // In a set without it, it is NULL.
            Some((_, length, first)) => when(column(length).is_not_null(), column(first))
                .end()?
                .alias_qualified(relation.cloned(), field.name()),
            None => Expr::Column(Column::new(relation.cloned(), field.name())),
        });
    }
    LogicalPlanBuilder::from(grouped).project(columns)?.build()
}
