//! When is it a day later? When the session's clocks show the same hour, a month later at the same day: `timestamptz
//! '2024-03-09 02:30' + interval '1 day'` is 03:30 where clocks are put forward in that night. Arrow takes a time that
//! clocks do not show, or show twice, for an error.
//!
//! An infinite time stays so whatever is added to it, and there is no interval between it and another.
//!
//! Where the session is in UTC, its clocks show every time once, and the sum stays Arrow's.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Datum, TimestampMicrosecondArray, UInt32Array};
use arrow::compute::kernels::numeric;
use arrow::compute::kernels::zip::zip;
use arrow::compute::{cast, nullif, take};
use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit, TimestampMicrosecondType};
use chrono::Months;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::{BinaryKernel, datafusion, each_expression, operator_function, zone_of};
use tarn_types::{Zone, is_infinite_us};

use super::calendar::{DAY_US, DAYS, date, days_of};
use super::extract::intervals;
use super::infinite_times::infinite;
use super::times_of_text::out_of_range;
use crate::error::{SqlError, state};

/// The rule; it runs when types are known.
#[derive(Debug)]
pub(super) struct LaterInstants;

impl AnalyzerRule for LaterInstants {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let zone = zone_of(config);
        each_expression(plan, |expr, schema| rewritten(expr, schema, &zone))
    }

    fn name(&self) -> &str {
        "later_instants"
    }
}

fn rewritten(expr: Expr, schema: &DFSchema, zone: &Zone) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) = expr else {
        return Ok(Transformed::no(expr));
    };
    let (is_swapped, is_instant) = match (left.get_type(schema)?, right.get_type(schema)?) {
        (DataType::Timestamp(_, zone), DataType::Interval(_)) => (false, zone.is_some()),
        (DataType::Interval(_), DataType::Timestamp(_, zone)) if op == Operator::Plus => (true, zone.is_some()),
        (DataType::Date32, DataType::Interval(_)) => (false, false),
        (DataType::Interval(_), DataType::Date32) if op == Operator::Plus => (true, false),
        (DataType::Timestamp(unit, _), DataType::Timestamp(other, _)) if op == Operator::Minus && unit == other => {
            let call = ScalarFunction::new_udf(Arc::new(operator_function(TimestampDifference)), vec![*left, *right]);
            return Ok(Transformed::yes(Expr::ScalarFunction(call)));
        }
        _ => return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
    };
    let is_earlier = op == Operator::Minus;
    let function = match is_instant && *zone != Zone::utc() {
        true => operator_function(ZonedShift { is_earlier, is_swapped, zone: zone.name().into() }),
        false => operator_function(PlainShift { is_earlier, is_swapped }),
    };
    let call = ScalarFunction::new_udf(Arc::new(function), vec![*left, *right]);
    Ok(Transformed::yes(Expr::ScalarFunction(call)))
}

/// Whether PostgreSQL's calendar has the time: it begins at 4714-11-24 BC, and ends behind the last one of 64 bits.
/// What is infinite is not in it.
pub(super) fn is_in_calendar(us: i64) -> bool {
    us >= DAYS.start * DAY_US && !is_infinite_us(us)
}

fn beyond() -> SqlError {
    SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range")
}

/// Where no clock changes: what Arrow computes, if the calendar has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PlainShift {
    is_earlier: bool,
    /// The interval stands first.
    is_swapped: bool,
}

impl BinaryKernel for PlainShift {
    fn symbol(&self) -> &'static str {
        if self.is_earlier { "-" } else { "+" }
    }

    fn result(&self, left: &DataType, right: &DataType) -> Result<DataType> {
        Ok(if self.is_swapped { right.clone() } else { left.clone() })
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        let (times, by) = if self.is_swapped { (right, left) } else { (left, right) };
        let (column, is_one) = times.get();
        if infinite(column).is_none() {
            return self.of_finite(times, by);
        }
        let (by_column, by_is_one) = by.get();
        let column = match is_one {
            true => take(column, &UInt32Array::from(vec![0; by_column.len()]), None)?,
            false => column.slice(0, column.len()),
        };
        let Some(infinite) = infinite(&column) else { return self.of_finite(&column, by) };
        let is_by = |row: usize| by_column.is_valid(if by_is_one { 0 } else { row });
        let stays: BooleanArray = (0..column.len()).map(|row| Some(infinite.value(row) && is_by(row))).collect();
        let later = self.of_finite(&nullif(&column, &infinite)?, by)?;
        Ok(zip(&stays, &column, &later)?)
    }
}

impl PlainShift {
    /// What Arrow computes, of times that are finite.
    fn of_finite(&self, times: &dyn Datum, by: &dyn Datum) -> Result<ArrayRef> {
        let is_date = *times.get().0.data_type() == DataType::Date32;
        let times = if self.is_earlier { numeric::sub(times, by) } else { numeric::add(times, by) };
        let times = times.map_err(|_| match is_date {
            true => SqlError::new(state::DATETIME_OVERFLOW, "date out of range"),
            false => beyond(),
        })?;
        // Of nanoseconds, all are in the calendar.
        if let Some(micros) = times.as_primitive_opt::<TimestampMicrosecondType>()
            && micros.iter().flatten().any(|us| !is_in_calendar(us))
        {
            return Err(beyond().into());
        }
        Ok(times)
    }
}

/// Between two times.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TimestampDifference;

impl BinaryKernel for TimestampDifference {
    fn symbol(&self) -> &'static str {
        "-"
    }

    fn result(&self, left: &DataType, _: &DataType) -> Result<DataType> {
        match left {
            DataType::Timestamp(unit, _) => Ok(DataType::Duration(*unit)),
            other => exec_err!("{} of {other}", self.symbol()),
        }
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        let ((from, from_is_one), (to, to_is_one)) = (right.get(), left.get());
        let (infinite_from, infinite_to) = (infinite(from), infinite(to));
        if infinite_from.is_some() || infinite_to.is_some() {
            let is = |infinite: &Option<BooleanArray>, row| infinite.as_ref().is_some_and(|all| all.value(row));
            let is_refused = |row: usize| {
                let (at_from, at_to) = (if from_is_one { 0 } else { row }, if to_is_one { 0 } else { row });
                let is_there = from.is_valid(at_from) && to.is_valid(at_to);
                is_there && (is(&infinite_from, at_from) || is(&infinite_to, at_to))
            };
            if (0..from.len().max(to.len())).any(is_refused) {
                let message = "cannot subtract infinite timestamps";
                return Err(SqlError::new(state::DATETIME_OVERFLOW, message).into());
            }
        }
        Ok(numeric::sub(left, right).map_err(|_| out_of_range())?)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ZonedShift {
    is_earlier: bool,
    /// The interval stands first.
    is_swapped: bool,
    /// The name of the session's.
    zone: Arc<str>,
}

impl BinaryKernel for ZonedShift {
    fn symbol(&self) -> &'static str {
        if self.is_earlier { "-" } else { "+" }
    }

    fn result(&self, left: &DataType, right: &DataType) -> Result<DataType> {
        Ok(if self.is_swapped { right.clone() } else { left.clone() })
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        let (instants, by) = if self.is_swapped { (right, left) } else { (left, right) };
        let ((instants, is_one), (by, by_is_one)) = (instants.get(), by.get());
        let DataType::Timestamp(_, zone_of_type) = instants.data_type() else {
            return exec_err!("{} of {}", self.symbol(), instants.data_type());
        };
        let Some(zone) = Zone::parse(&self.zone) else { return exec_err!("the zone {}", self.zone) };
        let micros = cast(instants, &DataType::Timestamp(TimeUnit::Microsecond, zone_of_type.clone()))?;
        let micros = micros.as_primitive::<TimestampMicrosecondType>();
        let by = intervals(&by.slice(0, by.len()))?;
        let n_rows = if is_one { by.len() } else { micros.len() };
        let of = |row: usize| {
            let (at, by_at) = (if is_one { 0 } else { row }, if by_is_one { 0 } else { row });
            let is_there = micros.is_valid(at) && by.is_valid(by_at);
            is_there.then(|| self.later(micros.value(at), by.value(by_at), &zone)).transpose()
        };
        let later = (0..n_rows).map(of).collect::<Result<TimestampMicrosecondArray, SqlError>>()?;
        Ok(cast(&later.with_data_type(micros.data_type().clone()), instants.data_type())?)
    }
}

impl ZonedShift {
    fn later(&self, us: i64, by: IntervalMonthDayNano, zone: &Zone) -> Result<i64, SqlError> {
        if is_infinite_us(us) {
            return Ok(us);
        }
        let by = match self.is_earlier {
            false => Some(by),
            true => {
                let (months, days) = (by.months.checked_neg(), by.days.checked_neg());
                let rest = by.nanoseconds.checked_neg();
                months.zip(days).zip(rest).map(|((months, days), rest)| IntervalMonthDayNano::new(months, days, rest))
            }
        };
        by.and_then(|by| later(us, by, zone)).filter(|us| is_in_calendar(*us)).ok_or_else(beyond)
    }
}

/// First months, of which each has its last day, then days, as the clocks show them; then what is counted. `None`:
/// beyond the calendar.
pub(super) fn later(us: i64, by: IntervalMonthDayNano, zone: &Zone) -> Option<i64> {
    let mut us = us;
    if by.months != 0 {
        let local = zone.local(us);
        let day = date(local.div_euclid(DAY_US))?;
        let months = Months::new(by.months.unsigned_abs());
        let day = if by.months > 0 { day.checked_add_months(months)? } else { day.checked_sub_months(months)? };
        us = zone.instant(days_of(day).checked_mul(DAY_US)?.checked_add(local.rem_euclid(DAY_US))?)?;
    }
    if by.days != 0 {
        us = zone.instant(zone.local(us).checked_add(i64::from(by.days).checked_mul(DAY_US)?)?)?;
    }
    us.checked_add(by.nanoseconds / 1_000)
}

#[cfg(test)]
mod tests {
    use tarn_types::{DataType as Stored, Value};

    use super::*;

    fn us(text: &str) -> i64 {
        match Value::parse(&Stored::TimestampTz, text).unwrap() {
            Value::Timestamp(us) => us,
            other => panic!("{other:?}"),
        }
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn days_are_those_of_the_clocks() {
        let zone = Zone::parse("America/Los_Angeles").unwrap();
        let of = |text: &str, months, days, hours: i64| {
            later(us(text), IntervalMonthDayNano::new(months, days, hours * 3_600_000_000_000), &zone).unwrap()
        };
        assert_eq!(of("2024-03-09 02:30-08", 0, 1, 0), us("2024-03-10 03:30-07"));
        assert_eq!(of("2024-11-02 01:30-07", 0, 1, 0), us("2024-11-03 01:30-08"));
        assert_eq!(of("2024-03-09 12:00-08", 0, 1, 0), us("2024-03-10 12:00-07"));
        assert_eq!(of("2024-03-09 12:00-08", 0, 0, 24), us("2024-03-10 13:00-07"));
        assert_eq!(of("2024-01-31 12:00-08", 1, 0, 0), us("2024-02-29 12:00-08"));
        assert_eq!(of("2024-11-03 01:30-08", 12, -1, 0), us("2025-11-02 01:30-08"));
        assert_eq!(of("2024-03-31 12:00-07", -1, 0, 0), us("2024-02-29 12:00-08"));
    }
}
