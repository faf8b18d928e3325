//! Of which type is a column of a UNION? Of that which both sides have together in PostgreSQL: a text that is written out, `SELECT 1 UNION SELECT '2'`,
//! is of the type of the other side, a `numeric` beside a `double precision` is one, and a `char(n)` beside another text loses its blanks.
//! DataFusion makes texts of numbers, and numerics of floats. What has no type together is refused, as there (42804).

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan, Projection, Union};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_types::{DataType as Stored, Length, data_type_of};

use super::kept_as_text::cast_function;
use super::numeric::numeric;
use crate::error::{SqlError, state};
use crate::rows::{long_name, pg_type};

/// The rule; it runs before other rules ask for types.
#[derive(Debug)]
pub(super) struct Unions;

impl AnalyzerRule for Unions {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut is_changed = false;
        let plan = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Union(union) => {
                let casts = casts_of(&union)?;
                if casts.iter().flatten().all(Option::is_none) && !is_changed {
                    return Ok(Transformed::no(LogicalPlan::Union(union)));
                }
                is_changed = true;
                let inputs = union.inputs.into_iter().zip(casts).map(|(input, casts)| with_casts(input, casts));
                let inputs = inputs.collect::<Result<Vec<_>>>()?;
                Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
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

/// What becomes of the value of a side.
#[derive(Debug, Clone)]
enum Change {
    To(DataType),
    /// A number, of as many digits as the text has.
    ToNumeric,
    ToKeptAsText(Stored),
}

/// Types that become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Text,
    Truth,
    Moment,
    TimeOfDay,
    Interval,
    Bytes,
    /// Of no other.
    KeptAsText(Stored),
}

impl Kind {
    fn of(field: &Field) -> Option<Kind> {
        Some(match field.data_type() {
            of if of.is_numeric() => Kind::Number,
            of if of.is_string() => match data_type_of(field).ok()? {
                of @ (Stored::Uuid | Stored::Json | Stored::Jsonb) => Kind::KeptAsText(of),
                _ => Kind::Text,
            },
            DataType::Boolean => Kind::Truth,
            DataType::Date32 | DataType::Timestamp(..) => Kind::Moment,
            DataType::Time32(_) | DataType::Time64(_) => Kind::TimeOfDay,
            DataType::Interval(_) | DataType::Duration(_) => Kind::Interval,
            of if of.is_binary() => Kind::Bytes,
            _ => return None,
        })
    }
}

/// For each side, for each of its columns, what it becomes.
fn casts_of(union: &Union) -> Result<Vec<Vec<Option<Change>>>> {
    let n_columns = union.inputs.iter().map(|input| input.schema().fields().len()).min().unwrap_or(0);
    let mut casts = vec![vec![None; n_columns]; union.inputs.len()];
    for at in 0..n_columns {
        let known = union.inputs.iter().filter(|input| !is_unknown(input, at));
        let known: Vec<&Field> = known.map(|input| input.schema().field(at).as_ref()).collect();
        let Some(to) = together(&known)? else { continue };
        // A column of texts of one length has that, too.
        let all_filled = known.iter().all(|field| is_filled(field) && Length::of(field) == Length::of(to));
        for (input, casts) in union.inputs.iter().zip(&mut casts) {
            casts[at] = change(input, at, to, all_filled);
        }
    }
    Ok(casts)
}

/// The field whose type all have; of texts and what this file knows nothing of, the first.
fn together<'a>(known: &[&'a Field]) -> Result<Option<&'a Field>> {
    let Some((first, others)) = known.split_first() else { return Ok(None) };
    let mut to = *first;
    for other in others {
        let (Some(left), Some(right)) = (Kind::of(to), Kind::of(other)) else { return Ok(None) };
        if left != right {
            let name = |field: &Field| pg_type(field).map(|of| long_name(&of));
            let message = format!("UNION types {} and {} cannot be matched", name(to)?, name(other)?);
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message).with_hint("cast one of them").into());
        }
        if left == Kind::Number && rank(other.data_type()) > rank(to.data_type()) {
            to = other;
        }
    }
    Ok(Some(to))
}

/// Which number becomes which other one.
fn rank(of: &DataType) -> u8 {
    match of {
        DataType::Float64 => 3,
        DataType::Float32 | DataType::Float16 => 2,
        of if of.is_decimal() => 1,
        _ => 0,
    }
}

fn change(input: &LogicalPlan, at: usize, to: &Field, all_filled: bool) -> Option<Change> {
    let own = input.schema().field(at);
    if is_unknown(input, at) {
        return match Kind::of(to)? {
            _ if own.data_type().is_null() => None,
            Kind::Text => None,
            Kind::KeptAsText(of) => Some(Change::ToKeptAsText(of)),
            _ if to.data_type().is_decimal() => Some(Change::ToNumeric),
            _ => Some(Change::To(to.data_type().clone())),
        };
    }
    match Kind::of(to)? {
        Kind::Number if to.data_type().is_floating() && own.data_type() != to.data_type() => {
            Some(Change::To(to.data_type().clone()))
        }
        Kind::Text if is_filled(own) && !all_filled => Some(Change::To(DataType::Utf8)),
        _ => None,
    }
}

fn is_filled(field: &Field) -> bool {
    matches!(Length::of(field), Some(Length::Fixed(_)))
}

/// Whether a column of a side is a text or a NULL that is written out, which is of no type yet.
fn is_unknown(input: &LogicalPlan, at: usize) -> bool {
    let LogicalPlan::Projection(projection) = input else { return false };
    projection.expr.get(at).is_some_and(is_written)
}

fn is_written(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_written(&alias.expr),
        Expr::Literal(ScalarValue::Null | ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_)), None) => true,
        _ => false,
    }
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
            let changed = match change {
                Change::To(to) => Expr::Cast(Cast::new(Box::new(of), to)),
                Change::ToNumeric => numeric().call(vec![of]),
                Change::ToKeptAsText(to) => cast_function(to).call(vec![of]),
            };
            changed.alias_qualified(qualifier, name)
        }
    });
    Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs.collect(), input)?)))
}
