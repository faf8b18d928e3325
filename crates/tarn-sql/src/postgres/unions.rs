//! Of which type is a column of a UNION? Of that which both sides have together (`common_types`), and a `char(n)`
//! beside another text loses its blanks. DataFusion makes texts of numbers, and numerics of floats.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Union};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_node};
use tarn_types::Length;

use super::common_types::{Change, Kind, Strictness, is_written, together};
use super::filled::is_filled;

/// The rule; it runs before other rules ask for types.
#[derive(Debug)]
pub(super) struct Unions;

impl AnalyzerRule for Unions {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let (mut is_changed, strictness) = (false, Strictness::of(&plan)?);
        let plan = each_node(plan, |node| match node {
            LogicalPlan::Union(union) => {
                let inputs = with_types_together("UNION", union.inputs, strictness)?;
                if !inputs.transformed && !is_changed {
                    return Ok(Transformed::no(LogicalPlan::Union(Union {
                        inputs: inputs.data,
                        schema: union.schema,
                    })));
                }
                is_changed = true;
                Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs.data)?)))
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

/// The sides of a set operation, with columns cast to what they are together; numbers and moments are left to be made
/// one.
///
/// Errors: `42804`, a column has no type together.
pub(super) fn with_types_together(
    operation: &str,
    sides: Vec<Arc<LogicalPlan>>,
    strictness: Strictness,
) -> Result<Transformed<Vec<Arc<LogicalPlan>>>> {
    let casts = casts_of(operation, &sides, strictness)?;
    if casts.iter().flatten().all(Option::is_none) {
        return Ok(Transformed::no(sides));
    }
    let sides = sides.into_iter().zip(casts).map(|(side, casts)| with_casts(side, casts));
    Ok(Transformed::yes(sides.collect::<Result<_>>()?))
}

/// For each side, for each of its columns, what it becomes.
fn casts_of(operation: &str, sides: &[Arc<LogicalPlan>], strictness: Strictness) -> Result<Vec<Vec<Option<Change>>>> {
    let n_columns = sides.iter().map(|side| side.schema().fields().len()).min().unwrap_or(0);
    let mut casts = vec![vec![None; n_columns]; sides.len()];
    for at in 0..n_columns {
        let known = sides.iter().filter(|side| written(side, at).is_none());
        let known: Vec<&Field> = known.map(|side| side.schema().field(at).as_ref()).collect();
        let Some(to) = together(operation, &known, strictness)? else { continue };
        // A column of texts of one length has that, too.
        let all_filled = known.iter().all(|field| is_filled(field) && Length::of(field) == Length::of(to));
        for (side, casts) in sides.iter().zip(&mut casts) {
            casts[at] = change(side, at, to, all_filled)?;
        }
    }
    Ok(casts)
}

/// A text or a NULL that is written out has no type yet; a `char(n)` beside another text loses its blanks.
fn change(input: &LogicalPlan, at: usize, to: &Field, all_filled: bool) -> Result<Option<Change>> {
    let own = input.schema().field(at);
    if let Some(written) = written(input, at) {
        return Change::of(None, written, to);
    }
    if Kind::of(to) == Some(Kind::Text) && is_filled(own) && !all_filled {
        return Ok(Some(Change::To(DataType::Utf8)));
    }
    Change::of(Some(own), &Expr::Literal(ScalarValue::Null, None), to)
}

/// What is written out as a column of a side.
fn written(input: &LogicalPlan, at: usize) -> Option<&Expr> {
    let LogicalPlan::Projection(projection) = input else { return None };
    projection.expr.get(at).filter(|expr| is_written(expr))
}

fn with_casts(input: Arc<LogicalPlan>, casts: Vec<Option<Change>>) -> Result<Arc<LogicalPlan>> {
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
