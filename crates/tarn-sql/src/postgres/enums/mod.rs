//! What is an enumerated type, `CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')`, to a statement?
//!
//! A label is a text to the planner, with the type beside it in the field's metadata (`tarn_types::Enumerated`), as a
//! `uuid` is. Equal labels are equal texts: so what is compared for equality, grouped and joined stays as it is, and
//! blocks of files are left out by it. The order is that of the declaration: wherever values are ordered, their places
//! in it are.
//!
//! - `named`: which type is meant by a name
//! - `function`: functions of labels and their places, which plans call
//! - `cast`: `'ok'::mood`, `enum_range` and its kin
//! - `marked`: what CASE, `coalesce` and UNION give
//! - `compare`: comparisons, orders, `min` and `max`, and what a label is not: a text

mod cast;
mod compare;
mod function;
mod marked;
mod named;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Projection, ScalarUDF};
use tarn_node::types::Types;
use tarn_query::{Rule, datafusion};
use tarn_types::Enumerated;

pub(super) use self::function::marked_as;

/// The functions that statements name.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    cast::functions()
}

/// Of expressions as they are written. They run before other rules ask for types.
pub(super) fn rules(types: &Arc<Types>) -> Vec<Rule> {
    let types = EnumTypes(Arc::clone(types));
    vec![
        Arc::new(cast::EnumCasts(types.clone())),
        Arc::new(marked::MarkedEnums(types.clone())),
        Arc::new(compare::ComparedEnums(types)),
    ]
}

/// What the names of types mean.
pub(super) fn names(types: &Arc<Types>) -> Arc<dyn TypePlanner> {
    Arc::new(named::NamedTypes(Arc::clone(types)))
}

/// The types of a node, as rules ask for them.
#[derive(Debug, Clone)]
struct EnumTypes(Arc<Types>);

impl EnumTypes {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The type that a field tells.
    fn of_field(&self, field: &Field) -> Option<Enumerated> {
        self.0.by_id(Enumerated::of(field)?.0)?.enumerated()
    }

    /// The type of the items of an array.
    fn of_items(&self, field: &Field) -> Option<Enumerated> {
        match field.data_type() {
            DataType::List(item) | DataType::LargeList(item) => self.of_field(item).or_else(|| self.of_items(item)),
            _ => None,
        }
    }

    /// The type of an expression.
    fn of(&self, expr: &Expr, schema: &DFSchema) -> Option<Enumerated> {
        let field = field_of(expr, schema)?;
        self.of_field(&field)
    }
}

/// Of what is no value, such as a list in parentheses, there is none.
fn field_of(expr: &Expr, schema: &DFSchema) -> Option<FieldRef> {
    match expr {
        // It is planned, and is what its only column is.
        Expr::ScalarSubquery(query) => query.subquery.schema().fields().first().cloned(),
        expr => expr.to_field(schema).ok().map(|(_, field)| field),
    }
}

/// The tag of the type of an array's items, or of a value itself, for an array that is made of it.
pub(super) fn tag_of(expr: &Expr, schema: &DFSchema) -> Option<String> {
    let field = field_of(expr, schema)?;
    let (id, name) = Enumerated::of(&field)?;
    Some(format!("{id} {name}"))
}

/// A node with some of its columns made others, which keep their names.
fn above(node: LogicalPlan, made: &[(usize, &dyn Fn(Expr) -> Expr)]) -> Result<LogicalPlan> {
    let columns = node.schema().iter().enumerate().map(|(at, (qualifier, field))| {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        match made.iter().find(|(place, _)| *place == at) {
            Some((_, make)) => make(column).alias_qualified(qualifier.cloned(), field.name()),
            None => column,
        }
    });
    let columns = columns.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(node))?))
}

/// Changes the nodes of a plan from below, those of subqueries, too; what is above a node that is changed has other
/// columns.
fn each_node(
    plan: LogicalPlan,
    change: impl Fn(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<LogicalPlan> {
    let mut is_changed = false;
    let plan = tarn_query::each_node(plan, |node| {
        let changed = change(node)?;
        is_changed |= changed.transformed;
        if is_changed { changed.map_data(LogicalPlan::recompute_schema) } else { Ok(changed) }
    })?;
    Ok(plan.data)
}
