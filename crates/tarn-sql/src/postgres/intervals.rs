//! `age`, `justify_days`, `justify_hours`, `justify_interval`: how long is it in months, days and hours?
//!
//! Source: PostgreSQL 16, "Date/Time Functions and Operators", and what its server answers for the ends of months: the
//! days of the month of the earlier time are lent.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use chrono::{Datelike, NaiveDate};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, zone_of};
use tarn_types::{Span, is_infinite_us};

use super::calendar::DAY_US;
use super::extract::intervals;
use super::times_of_text::arrow_of;
use crate::error::{SqlError, state};

const DAYS_OF_MONTH: i64 = 30;

/// All of them.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let all = [
        IntervalFunction::Age,
        IntervalFunction::JustifyDays,
        IntervalFunction::JustifyHours,
        IntervalFunction::Justify,
    ];
    let of = |what| OfInterval { what, signature: Signature::user_defined(Volatility::Stable) };
    all.into_iter().map(|what| Arc::new(ScalarUDF::from(of(what)))).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IntervalFunction {
    Age,
    JustifyDays,
    JustifyHours,
    Justify,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfInterval {
    what: IntervalFunction,
    signature: Signature,
}

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

impl ScalarUDFImpl for OfInterval {
    fn name(&self) -> &str {
        match self.what {
            IntervalFunction::Age => "age",
            IntervalFunction::JustifyDays => "justify_days",
            IntervalFunction::JustifyHours => "justify_hours",
            IntervalFunction::Justify => "justify_interval",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let time = |of: &DataType| match of {
            DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            _ => DataType::Timestamp(TimeUnit::Microsecond, None),
        };
        match (self.what, types) {
            (IntervalFunction::Age, [later, earlier]) => Ok(vec![time(later), time(earlier)]),
            (IntervalFunction::Age, _) => plan_err!("age takes two times; age(t) is age(current_date, t)"),
            // What lies between two times is days and hours, and becomes so below.
            (_, [of @ DataType::Duration(_)]) => Ok(vec![of.clone()]),
            (_, [_]) => Ok(vec![INTERVAL]),
            _ => plan_err!("{} takes an interval", self.name()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let n_rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| arg.to_array(n_rows)).collect::<Result<Vec<_>>>()?;
        let zone = zone_of(&args.config_options);
        let answer: IntervalMonthDayNanoArray = match &columns[..] {
            [later, earlier] => {
                // What the clocks show.
                let local = |of: &ArrayRef, row: usize| {
                    let us = of.as_primitive::<TimestampMicrosecondType>().value(row);
                    match of.data_type() {
                        DataType::Timestamp(_, Some(_)) => zone.local(us),
                        _ => us,
                    }
                };
                let is_there = |row: &usize| later.is_valid(*row) && earlier.is_valid(*row);
                let of = |row: usize| {
                    Some(row).filter(is_there).map(|row| age(local(later, row), local(earlier, row))).transpose()
                };
                (0..n_rows).map(of).collect::<Result<_, SqlError>>()?
            }
            _ => {
                let justify = |of: IntervalMonthDayNano| {
                    let (months, days, us) = (of.months.into(), of.days.into(), of.nanoseconds / 1_000);
                    match self.what {
                        IntervalFunction::JustifyDays => days_to_months(months, days, us),
                        IntervalFunction::JustifyHours => hours_to_days(months, days, us),
                        _ => justified(months, days, us),
                    }
                };
                intervals(&columns[0])?.try_unary::<_, IntervalMonthDayNanoType, SqlError>(justify)?
            }
        };
        let answer: ArrayRef = Arc::new(answer);
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&answer, 0)?),
            false => ColumnarValue::Array(answer),
        })
    }
}

fn interval(months: i64, days: i64, us: i64) -> Result<IntervalMonthDayNano, SqlError> {
    let out = || SqlError::new(state::DATETIME_OVERFLOW, "interval out of range");
    let (months, days) = (i32::try_from(months).map_err(|_| out())?, i32::try_from(days).map_err(|_| out())?);
    arrow_of(Span { months, days, us })
}

fn days_to_months(months: i64, days: i64, us: i64) -> Result<IntervalMonthDayNano, SqlError> {
    let (mut months, mut days) = (months + days / DAYS_OF_MONTH, days % DAYS_OF_MONTH);
    one_sign(&mut months, &mut days, DAYS_OF_MONTH);
    interval(months, days, us)
}

fn hours_to_days(months: i64, days: i64, us: i64) -> Result<IntervalMonthDayNano, SqlError> {
    let (mut days, mut us) = (days + us / DAY_US, us % DAY_US);
    one_sign(&mut days, &mut us, DAY_US);
    interval(months, days, us)
}

fn justified(months: i64, days: i64, us: i64) -> Result<IntervalMonthDayNano, SqlError> {
    let (mut days, mut us) = (days + us / DAY_US, us % DAY_US);
    let mut months = months + days / DAYS_OF_MONTH;
    days %= DAYS_OF_MONTH;
    if months > 0 && (days < 0 || (days == 0 && us < 0)) {
        (months, days) = (months - 1, days + DAYS_OF_MONTH);
    } else if months < 0 && (days > 0 || (days == 0 && us > 0)) {
        (months, days) = (months + 1, days - DAYS_OF_MONTH);
    }
    one_sign(&mut days, &mut us, DAY_US);
    interval(months, days, us)
}

/// Both of one sign, where the greater unit is so many of the smaller.
fn one_sign(greater: &mut i64, smaller: &mut i64, unit: i64) {
    if *greater > 0 && *smaller < 0 {
        (*greater, *smaller) = (*greater - 1, *smaller + unit);
    } else if *greater < 0 && *smaller > 0 {
        (*greater, *smaller) = (*greater + 1, *smaller - unit);
    }
}

/// Between two times, in microseconds since 1970, by the calendar.
fn age(later: i64, earlier: i64) -> Result<IntervalMonthDayNano, SqlError> {
    if is_infinite_us(later) || is_infinite_us(earlier) {
        return Err(SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range"));
    }
    if later < earlier {
        let positive = age_of(earlier, later)?;
        return Ok(IntervalMonthDayNano::new(-positive.months, -positive.days, -positive.nanoseconds));
    }
    age_of(later, earlier)
}

/// A month that is lent is as long as that of the earlier time.
fn age_of(later: i64, earlier: i64) -> Result<IntervalMonthDayNano, SqlError> {
    let date =
        |us: i64| NaiveDate::from_num_days_from_ce_opt((us.div_euclid(DAY_US) + 719_163) as i32).unwrap_or_default();
    let (to, from) = (date(later), date(earlier));
    let mut us = later.rem_euclid(DAY_US) - earlier.rem_euclid(DAY_US);
    let mut days = i64::from(to.day()) - i64::from(from.day());
    let mut months =
        (i64::from(to.year()) - i64::from(from.year())) * 12 + i64::from(to.month()) - i64::from(from.month());
    if us < 0 {
        (us, days) = (us + DAY_US, days - 1);
    }
    while days < 0 {
        (days, months) = (days + i64::from(from.num_days_in_month()), months - 1);
    }
    interval(months, days, us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(year: i32, month: u32, day: u32) -> i64 {
        let date = NaiveDate::from_ymd_opt(year, month, day).unwrap();
        (i64::from(date.num_days_from_ce()) - 719_163) * DAY_US
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn ages_are_of_the_calendar() {
        assert_eq!(age(us(2024, 3, 1), us(2023, 1, 31)).unwrap(), interval(13, 1, 0).unwrap());
        assert_eq!(age(us(2001, 4, 10), us(1957, 6, 13)).unwrap(), interval(43 * 12 + 9, 27, 0).unwrap());
        assert_eq!(age(us(2024, 1, 1), us(2024, 1, 1) + 1).unwrap(), interval(0, 0, -1).unwrap());
        assert_eq!(age(us(1999, 12, 31), us(2090, 6, 14)).unwrap(), interval(-(90 * 12 + 5), -14, 0).unwrap());
        assert_eq!(age(us(2024, 3, 1), us(2024, 2, 28) + DAY_US / 2).unwrap(), interval(0, 1, DAY_US / 2).unwrap());
    }

    #[test]
    fn intervals_are_justified() {
        assert_eq!(days_to_months(0, 35, 5).unwrap(), interval(1, 5, 5).unwrap());
        assert_eq!(hours_to_days(0, 0, 27 * 3_600_000_000).unwrap(), interval(0, 1, 3 * 3_600_000_000).unwrap());
        assert_eq!(justified(1, 0, -3_600_000_000).unwrap(), interval(0, 29, 23 * 3_600_000_000).unwrap());
        assert_eq!(days_to_months(1, -5, 0).unwrap(), interval(0, 25, 0).unwrap());
        assert!(days_to_months(i32::MAX.into(), 30, 0).is_err());
    }
}
