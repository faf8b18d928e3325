//! What do intervals come to? `sum` and `avg` add up months, days and hours each for itself, and an average is divided
//! as `/` divides; `min` and `max` go by how long they are, with months of 30 days, and of equally long ones take the
//! last. DataFusion adds none, and compares months alone.
//!
//! What lies between two times is an interval, too: so are its sums, and those of times of day.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, UInt64Type,
};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Cast, Expr, ExprSchemable, LogicalPlan, ReversedUDAF, Signature,
    Volatility, WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression};

use super::extract::intervals;
use super::frames::OfFrame;
use super::interval_operators::scaled;
use super::times::length;
use super::times_of_text::{out_of_range, too_many_hours};
use crate::error::SqlError;

/// The type of their values.
pub(super) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Puts these functions into the place of those of other values. The rule runs before types are made one.
#[derive(Debug)]
pub(super) struct IntervalAggregates(Vec<Arc<AggregateUDF>>);

impl IntervalAggregates {
    pub(super) fn new() -> IntervalAggregates {
        let all = [
            ("min", IntervalAggregate::Least),
            ("max", IntervalAggregate::Greatest),
            ("sum", IntervalAggregate::Sum),
            ("avg", IntervalAggregate::Mean),
        ];
        let function = |(name, what)| {
            let signature = Signature::user_defined(Volatility::Immutable);
            Arc::new(AggregateUDF::from(OfIntervals { name, what, signature }))
        };
        IntervalAggregates(all.into_iter().map(function).collect())
    }

    fn of(&self, function: &AggregateUDF, args: &mut [Expr], schema: &DFSchema) -> Option<Arc<AggregateUDF>> {
        let own = self.0.iter().find(|own| own.name() == function.name() && own.as_ref() != function)?;
        let [of] = args else { return None };
        match of.get_type(schema) {
            Ok(DataType::Interval(_)) => {}
            Ok(DataType::Duration(_)) => {
                let between = std::mem::replace(of, Expr::Literal(ScalarValue::Null, None));
                *of = Expr::Cast(Cast::new(Box::new(between), INTERVAL));
            }
            Ok(DataType::Time32(_) | DataType::Time64(_)) if matches!(function.name(), "sum" | "avg") => {
                let time = std::mem::replace(of, Expr::Literal(ScalarValue::Null, None));
                *of = Expr::Cast(Cast::new(Box::new(time), INTERVAL));
            }
            _ => return None,
        }
        Some(Arc::clone(own))
    }

    fn rewritten(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::AggregateFunction(mut call) => match self.of(&call.func, &mut call.params.args, schema) {
                Some(own) => {
                    call.func = own;
                    Transformed::yes(Expr::AggregateFunction(call))
                }
                None => Transformed::no(Expr::AggregateFunction(call)),
            },
            Expr::WindowFunction(mut call) => {
                let WindowFunctionDefinition::AggregateUDF(function) = &call.fun else {
                    return Ok(Transformed::no(Expr::WindowFunction(call)));
                };
                match self.of(&Arc::clone(function), &mut call.params.args, schema) {
                    Some(own) => {
                        call.fun = WindowFunctionDefinition::AggregateUDF(own);
                        Transformed::yes(Expr::WindowFunction(call))
                    }
                    None => Transformed::no(Expr::WindowFunction(call)),
                }
            }
            other => Transformed::no(other),
        })
    }
}

impl AnalyzerRule for IntervalAggregates {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| self.rewritten(expr, schema))
    }

    fn name(&self) -> &str {
        "interval_aggregates"
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IntervalAggregate {
    Least,
    Greatest,
    Sum,
    Mean,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfIntervals {
    name: &'static str,
    what: IntervalAggregate,
    signature: Signature,
}

impl AggregateUDFImpl for OfIntervals {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(vec![INTERVAL; types.len()])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![
            Arc::new(Field::new(format_state_name(args.name, "value"), INTERVAL, true)),
            Arc::new(Field::new(format_state_name(args.name, "count"), DataType::UInt64, false)),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        // Of the least and the greatest, equal ones count once anyway.
        if args.is_distinct && matches!(self.what, IntervalAggregate::Sum | IntervalAggregate::Mean) {
            let message = format!("{}(DISTINCT …) of intervals is not supported", self.name);
            return Err(SqlError::unsupported(message, "SELECT DISTINCT them in a subquery").into());
        }
        Ok(Box::new(IntervalAccumulator { what: self.what, kept: IntervalState::default() }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.accumulator(args)?;
        let what = self.what;
        Ok(Box::new(OfFrame::of(intervals, move |values| {
            let mut kept = IntervalState::default();
            for value in values {
                kept.add(what, value, 1)?;
            }
            kept.finish(what)
        })))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// What is kept of the values of a group.
#[derive(Debug, Clone, Copy, Default)]
struct IntervalState {
    value: Option<IntervalMonthDayNano>,
    n: u64,
}

impl IntervalState {
    fn add(&mut self, what: IntervalAggregate, value: IntervalMonthDayNano, n: u64) -> Result<(), SqlError> {
        self.n += n;
        self.value = Some(match (what, self.value) {
            (_, None) => value,
            (IntervalAggregate::Least, Some(own)) if length(own) < length(value) => own,
            (IntervalAggregate::Greatest, Some(own)) if length(own) > length(value) => own,
            (IntervalAggregate::Least | IntervalAggregate::Greatest, Some(_)) => value,
            (IntervalAggregate::Sum | IntervalAggregate::Mean, Some(own)) => {
                let (months, days) = (own.months.checked_add(value.months), own.days.checked_add(value.days));
                let (months, days) = months.zip(days).ok_or_else(out_of_range)?;
                let rest = own.nanoseconds.checked_add(value.nanoseconds).ok_or_else(too_many_hours)?;
                IntervalMonthDayNano::new(months, days, rest)
            }
        });
        Ok(())
    }

    fn finish(self, what: IntervalAggregate) -> Result<ScalarValue> {
        let value = match (what, self.value) {
            (IntervalAggregate::Mean, Some(sum)) => Some(scaled(sum, |part| part / self.n as f64)?),
            (_, value) => value,
        };
        Ok(ScalarValue::IntervalMonthDayNano(value))
    }
}

#[derive(Debug)]
struct IntervalAccumulator {
    what: IntervalAggregate,
    kept: IntervalState,
}

impl Accumulator for IntervalAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = intervals(&values[0])?;
        for value in values.iter().flatten() {
            self.kept.add(self.what, value, 1)?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.kept.finish(self.what)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::IntervalMonthDayNano(self.kept.value), ScalarValue::UInt64(Some(self.kept.n))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let values = states[0].as_primitive::<IntervalMonthDayNanoType>();
        let counts = states[1].as_primitive::<UInt64Type>();
        for (row, value) in values.iter().enumerate() {
            if let Some(value) = value {
                self.kept.add(self.what, value, counts.value(row))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn intervals_come_to_what_they_do() {
        let of = |months, days, hours: i64| IntervalMonthDayNano::new(months, days, hours * 3_600_000_000_000);
        let come = |what: IntervalAggregate| {
            let mut kept = IntervalState::default();
            for value in [of(1, 0, 0), of(0, 31, 0), of(0, 29, 24)] {
                kept.add(what, value, 1).unwrap();
            }
            kept.finish(what).unwrap()
        };
        let is = |value| ScalarValue::IntervalMonthDayNano(Some(value));
        assert_eq!(
            [come(IntervalAggregate::Least), come(IntervalAggregate::Greatest)],
            [is(of(0, 29, 24)), is(of(0, 31, 0))]
        );
        assert_eq!(
            [come(IntervalAggregate::Sum), come(IntervalAggregate::Mean)],
            [is(of(1, 60, 24)), is(of(0, 30, 8))]
        );
        let mut kept = IntervalState::default();
        kept.add(IntervalAggregate::Sum, of(i32::MAX, 0, 0), 1).unwrap();
        assert!(kept.add(IntervalAggregate::Sum, of(1, 0, 0), 1).is_err());
        assert_eq!(
            IntervalState::default().finish(IntervalAggregate::Mean).unwrap(),
            ScalarValue::IntervalMonthDayNano(None)
        );
    }
}
