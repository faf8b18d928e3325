//! Of which type is `ARRAY[id]`, or `array_agg(id)`, where `id` is a `uuid`? A `uuid[]`. A `uuid` is a text to the planner, with its type beside it,
//! which an array of it forgets: so the array is cast, that of an aggregate in a projection above it.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::{datafusion, each_expression};
use tarn_types::{DataType as Stored, data_type_of};

use super::kept_as_text::cast_function;

/// The rule; it runs before other rules ask for types.
#[derive(Debug)]
pub(super) struct TypedArrays;

impl AnalyzerRule for TypedArrays {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = each_expression(plan, |expr, schema| {
            Ok(match &expr {
                Expr::ScalarFunction(call)
                    if call.func.name() == "make_array" && call.args.iter().any(|arg| is_uuid(arg, schema)) =>
                {
                    Transformed::yes(cast(expr))
                }
                _ => Transformed::no(expr),
            })
        })?;
        let mut is_changed = false;
        let plan = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Aggregate(aggregate) if aggregate.aggr_expr.iter().any(|expr| collects(expr, &aggregate)) => {
                is_changed = true;
                Ok(Transformed::yes(projected(aggregate)?))
            }
            node if is_changed => Ok(Transformed::yes(node.recompute_schema()?)),
            node => Ok(Transformed::no(node)),
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &str {
        "typed_arrays"
    }
}

fn is_uuid(expr: &Expr, schema: &DFSchema) -> bool {
    expr.to_field(schema).is_ok_and(|(_, field)| data_type_of(&field).is_ok_and(|of| of == Stored::Uuid))
}

/// An array of texts that are `uuid`s, as such.
fn cast(expr: Expr) -> Expr {
    cast_function(Stored::Uuid).call(vec![expr])
}

/// Whether it is an array of the `uuid`s of a group.
fn collects(expr: &Expr, aggregate: &Aggregate) -> bool {
    match expr {
        Expr::Alias(alias) => collects(&alias.expr, aggregate),
        Expr::AggregateFunction(call) => {
            call.func.name() == "array_agg"
                && call.params.args.first().is_some_and(|arg| is_uuid(arg, aggregate.input.schema()))
        }
        _ => false,
    }
}

fn projected(aggregate: Aggregate) -> Result<LogicalPlan> {
    let n_groups = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    let columns = aggregate.schema.iter().enumerate().map(|(at, (qualifier, field))| {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        let is_array = at.checked_sub(n_groups).is_some_and(|at| collects(&aggregate.aggr_expr[at], &aggregate));
        match is_array {
            true => cast(column).alias_qualified(qualifier.cloned(), field.name()),
            false => column,
        }
    });
    let columns = columns.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(aggregate)))?))
}
