//! Of which type is a column of a UNION? Of that which both sides have together (`common_types`), and a `char(n)`
//! beside another text loses its blanks. DataFusion makes texts of numbers, numerics of floats, and of an instant
//! beside a date a `timestamp` that ends in 2262, also in VALUES.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Projection, Union, Values};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_node};
use tarn_types::Length;

use super::common_types::{Common, TypeClass, TypeCoercion, is_written, together};
use super::filled::is_filled;

/// The rule; it runs before other rules ask for types.
#[derive(Debug)]
pub(super) struct Unions;

impl AnalyzerRule for Unions {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let (mut is_changed, common) = (false, Common::of(&plan, config)?);
        let plan = each_node(plan, |node| match node {
            LogicalPlan::Union(union) => {
                let inputs = with_types_together("UNION", union.inputs, &common)?;
                if !inputs.transformed && !is_changed {
                    return Ok(Transformed::no(LogicalPlan::Union(Union {
                        inputs: inputs.data,
                        schema: union.schema,
                    })));
                }
                is_changed = true;
                Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs.data)?)))
            }
            LogicalPlan::Values(values) => {
                let values = with_times_together(values, &common)?;
                is_changed |= values.transformed;
                Ok(values.update_data(LogicalPlan::Values))
            }
            node if is_changed => Ok(Transformed::yes(node.recompute_schema()?)),
            node => Ok(Transformed::no(node)),
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &str {
        "postgres_unions"
    }
}

/// The sides of a set operation, with columns cast to what they are together; some numbers are left to be made one.
///
/// Errors: `42804`, a column has no type together.
pub(super) fn with_types_together(
    operation: &str,
    sides: Vec<Arc<LogicalPlan>>,
    common: &Common,
) -> Result<Transformed<Vec<Arc<LogicalPlan>>>> {
    let casts = casts_of(operation, &sides, common)?;
    if casts.iter().flatten().all(Option::is_none) {
        return Ok(Transformed::no(sides));
    }
    let sides = sides.into_iter().zip(casts).map(|(side, casts)| with_casts(side, casts));
    Ok(Transformed::yes(sides.collect::<Result<_>>()?))
}

/// The rows of VALUES, of which columns that DataFusion counts in nanoseconds are of the type that their times have
/// together: it has made a `timestamp` of an instant beside a date.
fn with_times_together(values: Values, common: &Common) -> Result<Transformed<Values>> {
    let is_made = |of: &DataType| matches!(of, DataType::Timestamp(TimeUnit::Nanosecond, _));
    if !values.schema.fields().iter().any(|field| is_made(field.data_type())) {
        return Ok(Transformed::no(values));
    }
    let nothing = DFSchema::empty();
    let Values { schema, values: mut rows } = values;
    let mut fields: Vec<_> = schema.iter().map(|(of, field)| (of.cloned(), Arc::clone(field))).collect();
    for (at, (_, field)) in fields.iter_mut().enumerate().filter(|(_, (_, field))| is_made(field.data_type())) {
        for value in rows.iter_mut().map(|row| &mut row[at]) {
            if let Expr::Cast(cast) = value
                && is_made(cast.field.data_type())
            {
                *value = std::mem::take(cast.expr.as_mut());
            }
        }
        let known = rows.iter().map(|row| &row[at]).filter(|value| !is_written(value) && !is_null(value));
        let known = known.map(|value| value.to_field(&nothing).map(|(_, own)| own)).collect::<Result<Vec<_>>>()?;
        let known: Vec<&Field> = known.iter().map(AsRef::as_ref).collect();
        let Some(to) = together("VALUES", &known, common)? else { continue };
        let mut of_column = None;
        for value in rows.iter_mut().map(|row| &mut row[at]).filter(|value| !is_null(value)) {
            let own = (!is_written(value)).then(|| value.to_field(&nothing)).transpose()?.map(|(_, own)| own);
            if let Some(change) = TypeCoercion::of(own.as_deref(), value, to, common)? {
                *value = change.applied(std::mem::take(value));
            }
            of_column = Some(value.get_type(&nothing)?);
        }
        let Some(of_column) = of_column else { continue };
        for value in rows.iter_mut().map(|row| &mut row[at]).filter(|value| is_null(value)) {
            *value = Expr::Literal(ScalarValue::try_from(&of_column)?, None);
        }
        *field = Arc::new(Field::new(field.name(), of_column, field.is_nullable()));
    }
    let schema = Arc::new(DFSchema::new_with_metadata(fields, schema.metadata().clone())?);
    Ok(Transformed::yes(Values { schema, values: rows }))
}

fn is_null(value: &Expr) -> bool {
    matches!(value, Expr::Literal(value, _) if value.is_null())
}

/// For each side, for each of its columns, what it becomes.
fn casts_of(operation: &str, sides: &[Arc<LogicalPlan>], common: &Common) -> Result<Vec<Vec<Option<TypeCoercion>>>> {
    let n_columns = sides.iter().map(|side| side.schema().fields().len()).min().unwrap_or(0);
    let mut casts = vec![vec![None; n_columns]; sides.len()];
    for at in 0..n_columns {
        let known = sides.iter().filter(|side| written(side, at).is_none());
        let known: Vec<&Field> = known.map(|side| side.schema().field(at).as_ref()).collect();
        let Some(to) = together(operation, &known, common)? else { continue };
        // A column of texts of one length has that, too.
        let all_filled = known.iter().all(|field| is_filled(field) && Length::of(field) == Length::of(to));
        for (side, casts) in sides.iter().zip(&mut casts) {
            casts[at] = change(side, at, to, all_filled, common)?;
        }
    }
    Ok(casts)
}

/// A text or a NULL that is written out has no type yet; a `char(n)` beside another text loses its blanks.
fn change(
    input: &LogicalPlan,
    at: usize,
    to: &Field,
    all_filled: bool,
    common: &Common,
) -> Result<Option<TypeCoercion>> {
    let own = input.schema().field(at);
    if let Some(written) = written(input, at) {
        let is_number = TypeClass::of(to) == Some(TypeClass::Number);
        // A client is told the type of the first side.
        return match is_null(&written.clone().unalias()) && is_number {
            true if to.data_type().is_decimal() => Ok(Some(TypeCoercion::ToNumeric)),
            true => Ok(Some(TypeCoercion::To(to.data_type().clone()))),
            false => TypeCoercion::of(None, written, to, common),
        };
    }
    if TypeClass::of(to) == Some(TypeClass::Text) && is_filled(own) && !all_filled {
        return Ok(Some(TypeCoercion::To(DataType::Utf8)));
    }
    TypeCoercion::of(Some(own), &Expr::Literal(ScalarValue::Null, None), to, common)
}

/// What is written out as a column of a side.
fn written(input: &LogicalPlan, at: usize) -> Option<&Expr> {
    let LogicalPlan::Projection(projection) = input else { return None };
    projection.expr.get(at).filter(|expr| is_written(expr))
}

fn with_casts(input: Arc<LogicalPlan>, casts: Vec<Option<TypeCoercion>>) -> Result<Arc<LogicalPlan>> {
    if casts.iter().all(Option::is_none) {
        return Ok(input);
    }
    // What is written out is read where it stands: so its digits are known.
    let (exprs, input) = match Arc::unwrap_or_clone(input) {
        LogicalPlan::Projection(projection) => (projection.expr, projection.input),
        other => (other.schema().columns().into_iter().map(Expr::Column).collect(), Arc::new(other)),
    };
    let exprs = exprs.into_iter().zip(casts).map(|(expr, change)| match change {
        None => expr,
        Some(change) => {
            let (qualifier, name) = expr.qualified_name();
            let of = expr.unalias();
            let changed = change.applied(of);
            changed.alias_qualified(qualifier, name)
        }
    });
    Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs.collect(), input)?)))
}
