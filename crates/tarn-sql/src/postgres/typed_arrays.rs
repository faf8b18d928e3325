//! Of which type is `ARRAY[id]`, or `array_agg(id)`, where `id` is a `uuid`? A `uuid[]`. A `uuid` is a text to the
//! planner, with its type beside it, and so is a label of an enumerated type. An array forgets that of its items: so
//! the array is cast, that of an aggregate in a projection above it.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::{datafusion, each_expression, each_node};
use tarn_types::{DataType as Stored, data_type_of};

use super::enums::{marked_as, tag_of};
use super::kept_as_text::cast_function;

/// The rule; it runs before other rules ask for types.
#[derive(Debug)]
pub(super) struct TypedArrays;

impl AnalyzerRule for TypedArrays {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = each_expression(plan, |expr, schema| {
            let item = match &expr {
                Expr::ScalarFunction(call) if call.func.name() == "make_array" => {
                    call.args.iter().find_map(|arg| ItemType::of(arg, schema))
                }
                _ => None,
            };
            Ok(match item {
                Some(item) => Transformed::yes(item.array(expr)),
                None => Transformed::no(expr),
            })
        })?;
        let mut is_changed = false;
        let plan = each_node(plan, |node| match node {
            LogicalPlan::Aggregate(aggregate)
                if aggregate.aggr_expr.iter().any(|expr| collected(expr, &aggregate).is_some()) =>
            {
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

/// What an array forgets of its items.
enum ItemType {
    Uuid,
    /// An enumerated type, as its fields are tagged.
    Label(String),
}

impl ItemType {
    fn of(expr: &Expr, schema: &DFSchema) -> Option<ItemType> {
        let (_, field) = expr.to_field(schema).ok()?;
        match data_type_of(&field) {
            Ok(Stored::Uuid) => Some(ItemType::Uuid),
            _ => tag_of(expr, schema).map(ItemType::Label),
        }
    }

    /// An array of texts that are such items.
    fn array(&self, expr: Expr) -> Expr {
        match self {
            ItemType::Uuid => cast_function(Stored::Uuid).call(vec![expr]),
            ItemType::Label(tag) => marked_as(expr, tag),
        }
    }
}

/// The items of an array that an aggregate makes, if it forgets something of them.
fn collected(expr: &Expr, aggregate: &Aggregate) -> Option<ItemType> {
    match expr {
        Expr::Alias(alias) => collected(&alias.expr, aggregate),
        Expr::AggregateFunction(call) if call.func.name() == "array_agg" => {
            ItemType::of(call.params.args.first()?, aggregate.input.schema())
        }
        _ => None,
    }
}

fn projected(aggregate: Aggregate) -> Result<LogicalPlan> {
    let n_groups = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    let columns = aggregate.schema.iter().enumerate().map(|(at, (qualifier, field))| {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        let item = at.checked_sub(n_groups).and_then(|at| collected(&aggregate.aggr_expr[at], &aggregate));
        match item {
            Some(item) => item.array(column).alias_qualified(qualifier.cloned(), field.name()),
            None => column,
        }
    });
    let columns = columns.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(aggregate)))?))
}
