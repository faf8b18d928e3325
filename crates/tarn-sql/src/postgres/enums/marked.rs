//! Of which type is `coalesce(m, 'ok')`? Of that of `m`, if that is an enumerated one: a text that is written out
//! beside it is one of its labels, or refused. DataFusion forgets the type of what CASE and its kin give, and of the
//! items of an array, and a UNION has that of all sides alone.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Union, Unnest};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression};
use tarn_types::Enumerated;

use super::function::{as_label, marked_as};
use super::{EnumTypes, above, each_node, field_of};
use crate::error::SqlError;
use crate::postgres::json::{is_untyped, values_of};

/// The rule.
#[derive(Debug)]
pub(super) struct MarkedEnums(pub EnumTypes);

impl AnalyzerRule for MarkedEnums {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if self.0.is_empty() {
            return Ok(plan);
        }
        let plan = each_node(plan, |node| match node {
            LogicalPlan::Unnest(unnest) => self.in_unnest(unnest),
            other => Ok(Transformed::no(other)),
        })?;
        let plan = each_expression(plan, |expr, schema| self.in_expression(expr, schema))?;
        each_node(plan, |node| match node {
            LogicalPlan::Union(union) => self.in_union(union),
            other => Ok(Transformed::no(other)),
        })
    }

    fn name(&self) -> &str {
        "postgres_enums_marked"
    }
}

impl MarkedEnums {
    fn in_expression(&self, mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        if let Expr::ScalarSubquery(_) = &expr {
            return Ok(match self.0.of(&expr, schema) {
                Some(of) => Transformed::yes(marked_as(expr, &of.tag())),
                None => Transformed::no(expr),
            });
        }
        let is_array = matches!(&expr, Expr::ScalarFunction(call) if call.name() == "make_array");
        let of = match &expr {
            Expr::Alias(_) => None,
            Expr::ScalarFunction(call) if is_array => call.args.iter().find_map(|arg| self.0.of(arg, schema)),
            expr => values_of(expr).and_then(|all| all.into_iter().find_map(|value| self.0.of(value, schema))),
        };
        let Some(of) = of else { return Ok(Transformed::no(expr)) };
        match &mut expr {
            Expr::Case(case) => {
                case.when_then_expr.iter_mut().try_for_each(|(_, then)| read(then, &of))?;
                case.else_expr.iter_mut().try_for_each(|value| read(value, &of))?;
            }
            Expr::ScalarFunction(call) => call.args.iter_mut().try_for_each(|arg| read(arg, &of))?,
            _ => {}
        }
        // What is greatest is told by the order, and of which type an array is by its own rule.
        let is_by_order = matches!(&expr, Expr::ScalarFunction(call) if matches!(call.name(), "greatest" | "least"));
        Ok(Transformed::yes(if is_by_order || is_array { expr } else { marked_as(expr, &of.tag()) }))
    }

    /// The items of an array are of the type that it says.
    fn in_unnest(&self, unnest: Unnest) -> Result<Transformed<LogicalPlan>> {
        let mut marks = vec![];
        for (at, list) in &unnest.list_type_columns {
            let Some(of) = self.0.of_items(unnest.input.schema().field(*at)) else { continue };
            let place = unnest.schema.index_of_column(&list.output_column)?;
            if unnest.schema.field(place).data_type().is_string() {
                marks.push((place, move |column: Expr| marked_as(column, &of.tag())));
            }
        }
        if marks.is_empty() {
            return Ok(Transformed::no(LogicalPlan::Unnest(unnest)));
        }
        let marks: Vec<(usize, &dyn Fn(Expr) -> Expr)> =
            marks.iter().map(|(at, mark)| (*at, mark as &dyn Fn(Expr) -> Expr)).collect();
        Ok(Transformed::yes(above(LogicalPlan::Unnest(unnest), &marks)?))
    }

    /// What is written out on one side is read as what stands in its column on another.
    fn in_union(&self, union: Union) -> Result<Transformed<LogicalPlan>> {
        let n_columns = union.inputs.iter().map(|input| input.schema().fields().len()).min().unwrap_or(0);
        let of = |at: usize| union.inputs.iter().find_map(|input| self.0.of_field(input.schema().field(at)));
        let types: Vec<(usize, Enumerated)> = (0..n_columns).filter_map(|at| Some((at, of(at)?))).collect();
        let is_read =
            |input: &LogicalPlan| types.iter().all(|(at, _)| self.0.of_field(input.schema().field(*at)).is_some());
        if union.inputs.iter().all(|input| is_read(input)) {
            return Ok(Transformed::no(LogicalPlan::Union(union)));
        }
        let mut inputs = vec![];
        for input in union.inputs {
            inputs.push(match Arc::unwrap_or_clone(input) {
                LogicalPlan::Projection(Projection { mut expr, input, .. }) => {
                    for (at, of) in &types {
                        let (qualifier, name) = expr[*at].qualified_name();
                        let mut value = expr[*at].clone().unalias();
                        if is_untyped(&value) {
                            read(&mut value, of)?;
                            expr[*at] = marked_as(value, &of.tag()).alias_qualified(qualifier, name);
                        }
                    }
                    Arc::new(LogicalPlan::Projection(Projection::try_new(expr, input)?))
                }
                other => Arc::new(other),
            });
        }
        Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
    }
}

/// A text that is written out, or a parameter, is read as a label.
///
/// Errors: `22P02`.
pub(super) fn read(value: &mut Expr, of: &Enumerated) -> Result<()> {
    if !is_untyped(value) {
        return Ok(());
    }
    match value {
        Expr::Literal(text, _) => {
            let Some(Some(text)) = text.try_as_str() else { return Ok(()) };
            of.place(text).map_err(SqlError::from)?;
        }
        Expr::Placeholder(parameter) => {
            let field = of.told(arrow::datatypes::Field::new("", arrow::datatypes::DataType::Utf8, true));
            parameter.field = Some(Arc::new(field));
        }
        _ => return Ok(()),
    }
    let text = std::mem::replace(value, Expr::Literal(ScalarValue::Null, None));
    *value = as_label(text, of);
    Ok(())
}

/// Whether it is a text, a parameter or NULL whose type is told by what stands beside it.
pub(super) fn is_open(value: &Expr, schema: &DFSchema) -> bool {
    is_untyped(value) || field_of(value, schema).is_some_and(|field| field.data_type().is_null())
}
