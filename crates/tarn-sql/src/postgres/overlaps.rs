//! Have two spans of time an instant in common? `(a, b) OVERLAPS (c, d)`, where each ends at a time or after an
//! interval. The planner knows no pairs of values.
//!
//! So it is written as a call of [`OVERLAPS`], in which a rule of the analyzer makes times of the intervals. A span is
//! from the earlier of its times on and ends before the later, but one of no length is an instant; an end that is not
//! known leaves open what hangs on it (SQL:1999, 8.12).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr as Planned, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::sqlparser::ast::{BinaryOperator, Expr, SelectItem};
use tarn_query::{datafusion, each_expression};

use super::averages::undefined;
use super::calls::{call, take};
use super::rowwise::ArgumentRows;
use crate::error::{Result, SqlError, state};

const OVERLAPS: &str = "overlaps";

/// A column that is one is called so.
pub(super) fn name(item: &mut SelectItem) {
    if let SelectItem::UnnamedExpr(expr @ Expr::BinaryOp { op: BinaryOperator::Overlaps, .. }) = item {
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: OVERLAPS.into() };
    }
}

/// Writes the operator as a call.
///
/// Errors: `42601` for what is no pair.
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    let Expr::BinaryOp { left, op: BinaryOperator::Overlaps, right } = expr else { return Ok(()) };
    let pair = |side: &mut Expr, name: &str| match side {
        Expr::Tuple(pair) => match &mut pair[..] {
            [from, to] => Ok([take(from), take(to)]),
            _ => Err(SqlError::new(
                state::SYNTAX_ERROR,
                format!("wrong number of parameters on {name} side of OVERLAPS expression"),
            )),
        },
        _ => Err(SqlError::new(state::SYNTAX_ERROR, format!("syntax error: no pair on {name} side of OVERLAPS"))),
    };
    let (left, right) = (pair(left, "left")?, pair(right, "right")?);
    *expr = call(OVERLAPS, left.into_iter().chain(right).collect());
    Ok(())
}

/// Makes times of ends that are intervals. It runs before what times and intervals mean together is settled.
#[derive(Debug)]
pub(super) struct OverlapsRule;

impl AnalyzerRule for OverlapsRule {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        each_expression(plan, |expr, schema| {
            let Planned::ScalarFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
            if call.func.name() != OVERLAPS {
                return Ok(Transformed::no(Planned::ScalarFunction(call)));
            }
            let mut is_changed = false;
            for from in [0, 2] {
                let [begin, end] = &mut call.args[from..from + 2] else { continue };
                if matches!(end.get_type(schema)?, DataType::Interval(_)) {
                    let sum = BinaryExpr::new(Box::new(begin.clone()), Operator::Plus, Box::new(end.clone()));
                    *end = Planned::BinaryExpr(sum);
                    is_changed = true;
                }
            }
            let call = Planned::ScalarFunction(call);
            Ok(if is_changed { Transformed::yes(call) } else { Transformed::no(call) })
        })
    }

    fn name(&self) -> &str {
        "overlaps"
    }
}

/// The function.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(Overlaps { signature: Signature::user_defined(Volatility::Immutable) }.into())]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Overlaps {
    signature: Signature,
}

impl ScalarUDFImpl for Overlaps {
    fn name(&self) -> &str {
        OVERLAPS
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// What it does not know is refused by its type.
    fn coerce_types(&self, types: &[DataType]) -> PlanResult<Vec<DataType>> {
        Ok(times(types).unwrap_or_else(|| types.to_vec()))
    }

    fn return_type(&self, types: &[DataType]) -> PlanResult<DataType> {
        match times(types) {
            Some(_) => Ok(DataType::Boolean),
            None => Err(undefined("pg_catalog.overlaps", types).with_hint("cast the times to one type").into()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let times = rows.columns.iter().map(|column| cast(column, &DataType::Int64)).collect::<Result<Vec<_>, _>>()?;
        let value = |at: usize, row: usize| {
            let times = times[at].as_primitive::<Int64Type>();
            times.is_valid(row).then(|| times.value(row))
        };
        let answers = (0..rows.n_rows).map(|row| overlap([0, 1, 2, 3].map(|at| value(at, row))));
        let answers: ArrayRef = Arc::new(answers.collect::<BooleanArray>());
        rows.answer(answers)
    }
}

/// All are times of a day, or all are of days; of those with a zone all are, or none. An end may be an interval until
/// the rule has seen it.
fn times(types: &[DataType]) -> Option<Vec<DataType>> {
    let is_end = |nth: usize| matches!((nth, &types[nth]), (1 | 3, DataType::Interval(_)));
    let is_clock = |of: &DataType| matches!(of, DataType::Time32(_) | DataType::Time64(_));
    let is_local = |of: &DataType| matches!(of, DataType::Date32 | DataType::Timestamp(_, None));
    let is_instant = |of: &DataType| matches!(of, DataType::Timestamp(_, Some(_)));
    let is_open = |of: &DataType| of.is_null() || of.is_string();
    let all = |is: &dyn Fn(&DataType) -> bool| {
        let mut places = types.iter().enumerate();
        types.len() == 4 && types.iter().any(is) && places.all(|(nth, of)| is(of) || is_open(of) || is_end(nth))
    };
    let to = match () {
        () if all(&is_clock) => DataType::Time64(TimeUnit::Microsecond),
        () if all(&is_local) => DataType::Timestamp(TimeUnit::Microsecond, None),
        () if all(&is_instant) => {
            let zone = types.iter().find_map(|of| match of {
                DataType::Timestamp(_, zone) => zone.clone(),
                _ => None,
            });
            DataType::Timestamp(TimeUnit::Microsecond, zone)
        }
        () => return None,
    };
    Some((0..4).map(|nth| if is_end(nth) { types[nth].clone() } else { to.clone() }).collect())
}

/// `None`: it is not known.
fn overlap([from, to, other_from, other_to]: [Option<i64>; 4]) -> Option<bool> {
    // The earlier one, and the later one if both are known.
    let span = |from: Option<i64>, to: Option<i64>| match (from, to) {
        (Some(from), Some(to)) => Some((from.min(to), Some(from.max(to)))),
        (from, to) => from.or(to).map(|begin| (begin, None)),
    };
    let (one, other) = (span(from, to)?, span(other_from, other_to)?);
    let (earlier, later) = if one.0 <= other.0 { (one, other) } else { (other, one) };
    match (earlier.0 == later.0, earlier.1, later.1) {
        (true, Some(_), Some(_)) => Some(true),
        (true, ..) | (false, None, _) => None,
        (false, Some(end), _) if later.0 < end => Some(true),
        (false, Some(_), Some(_)) => Some(false),
        (false, Some(_), None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_meet_or_do_not() {
        let of = |from, to, other_from, other_to| overlap([from, to, other_from, other_to]);
        assert_eq!(of(Some(1), Some(3), Some(2), Some(4)), Some(true));
        // An end is not in it, but an instant is.
        assert_eq!(of(Some(1), Some(2), Some(2), Some(4)), Some(false));
        assert_eq!(of(Some(2), Some(2), Some(2), Some(4)), Some(true));
        assert_eq!(of(Some(4), Some(2), Some(3), Some(1)), Some(true));
        assert_eq!(of(Some(1), None, Some(2), Some(4)), None);
        assert_eq!(of(Some(1), Some(3), Some(2), None), Some(true));
        assert_eq!(of(Some(1), Some(2), Some(3), None), None);
        assert_eq!(of(None, None, Some(2), Some(4)), None);
    }
}
