//! Which time is it when its parts are given as numbers? `make_date`, `make_time`, `make_timestamp`, `make_timestamptz`
//! and `make_interval`. The year before 1 is -1.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, IntervalMonthDayNanoArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, IntervalUnit, TimeUnit};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use tarn_query::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr};
use tarn_query::{datafusion, zone_of};
use tarn_types::{Span, Zone, is_infinite_us};

use super::calendar::{DAY_US, HOUR_US, MINUTE_US, day_of};
use super::calls::{number, take};
use super::times_of_text::{arrow_of, out_of_range};
use crate::error::{SqlError, state};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let all = [
        TimeConstructor::Date,
        TimeConstructor::Time,
        TimeConstructor::Timestamp,
        TimeConstructor::Instant,
        TimeConstructor::Interval,
    ];
    // An instant is what the session's clocks show.
    let of = |what| MakeTimeFunction { what, signature: Signature::user_defined(Volatility::Stable) };
    all.into_iter().map(|what| Arc::new(ScalarUDF::from(of(what)))).collect()
}

/// What `make_interval` takes, by name or by place.
const PARTS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// Writes the arguments of a `make_interval` in their order; what is not given is zero.
///
/// Errors: `42883` for a name that it does not have, or that is given twice.
pub(super) fn in_order(args: &mut Vec<FunctionArg>) -> Result<(), SqlError> {
    let mut parts: [Option<Expr>; PARTS.len()] = [const { None }; PARTS.len()];
    for (idx, arg) in args.iter_mut().enumerate() {
        let (at, value) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (Some(idx), value),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                let name = crate::names::fold(name);
                (PARTS.iter().position(|part| *part == name), value)
            }
            _ => return Err(no_such("make_interval")),
        };
        match at.and_then(|at| parts.get_mut(at)) {
            Some(part @ None) => *part = Some(take(value)),
            _ => return Err(no_such("make_interval")),
        }
    }
    let in_order = parts.into_iter().map(|part| part.unwrap_or_else(|| number(0)));
    *args = in_order.map(|part| FunctionArg::Unnamed(FunctionArgExpr::Expr(part))).collect();
    Ok(())
}

fn no_such(name: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_FUNCTION, format!("function {name} with these arguments does not exist"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TimeConstructor {
    Date,
    Time,
    Timestamp,
    Instant,
    Interval,
}

impl TimeConstructor {
    /// How many numbers it takes; the last is of seconds, but that of a date.
    fn n_parts(self) -> usize {
        match self {
            TimeConstructor::Date | TimeConstructor::Time => 3,
            TimeConstructor::Timestamp | TimeConstructor::Instant => 6,
            TimeConstructor::Interval => PARTS.len(),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MakeTimeFunction {
    what: TimeConstructor,
    signature: Signature,
}

impl ScalarUDFImpl for MakeTimeFunction {
    fn name(&self) -> &str {
        match self.what {
            TimeConstructor::Date => "make_date",
            TimeConstructor::Time => "make_time",
            TimeConstructor::Timestamp => "make_timestamp",
            TimeConstructor::Instant => "make_timestamptz",
            TimeConstructor::Interval => "make_interval",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let n_parts = self.what.n_parts();
        let has_zone = self.what == TimeConstructor::Instant && types.len() == n_parts + 1;
        if types.len() != n_parts && !has_zone {
            return Err(no_such(self.name()).into());
        }
        let n_integers = if self.what == TimeConstructor::Date { n_parts } else { n_parts - 1 };
        let mut coerced = vec![DataType::Int64; n_integers];
        coerced.resize(n_parts, DataType::Float64);
        if types[..n_integers].iter().any(|of| !of.is_integer() && !of.is_null()) {
            return Err(no_such(self.name()).with_hint("all but seconds are integers").into());
        }
        if has_zone {
            coerced.push(DataType::Utf8);
        }
        Ok(coerced)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.what {
            TimeConstructor::Date => DataType::Date32,
            TimeConstructor::Time => DataType::Time64(TimeUnit::Microsecond),
            TimeConstructor::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            TimeConstructor::Instant => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(Zone::utc().arrow_name())))
            }
            TimeConstructor::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let n_parts = self.what.n_parts();
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let n_rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| arg.to_array(n_rows)).collect::<Result<Vec<_>>>()?;
        let parts = columns.get(..n_parts).unwrap_or(&columns);
        let Some(seconds) = parts.last() else { return plan_err!("{} takes numbers", self.name()) };
        let zones = columns.get(n_parts).map(|zones| cast(zones, &DataType::Utf8)).transpose()?;
        let here = zone_of(&args.config_options);
        let is_there = |row: &usize| columns.iter().all(|column| column.is_valid(*row));
        let rows = || (0..n_rows).map(|row| Some(row).filter(is_there));
        let part = |idx: usize, row: usize| parts[idx].as_primitive::<Int64Type>().value(row);
        let second = |row: usize| seconds.as_primitive::<Float64Type>().value(row);
        let days = |row: usize| {
            let (year, month, day) = (part(0, row), part(1, row), part(2, row));
            day_of(year, month, day).ok_or_else(|| {
                let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
                SqlError::new(state::DATETIME_OVERFLOW, message)
            })
        };
        let timestamp = |row: usize| {
            let days = days(row)?;
            let us = time(part(3, row), part(4, row), second(row))?;
            let all = days.checked_mul(DAY_US).and_then(|midnight| midnight.checked_add(us));
            all.filter(|us| !is_infinite_us(*us))
                .ok_or_else(|| SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range"))
        };
        let answer: ArrayRef = match self.what {
            TimeConstructor::Date => {
                // Days of the calendar fit.
                let all = rows().map(|row| row.map(|row| days(row).map(|days| days as i32)).transpose());
                Arc::new(all.collect::<Result<Date32Array, SqlError>>()?)
            }
            TimeConstructor::Time => {
                let of = |row: usize| time(part(0, row), part(1, row), second(row));
                Arc::new(rows().map(|row| row.map(of).transpose()).collect::<Result<Time64MicrosecondArray, _>>()?)
            }
            TimeConstructor::Timestamp => {
                let all = rows().map(|row| row.map(timestamp).transpose());
                Arc::new(all.collect::<Result<TimestampMicrosecondArray, SqlError>>()?)
            }
            TimeConstructor::Instant => {
                let instant = |row: usize| {
                    let shown = timestamp(row)?;
                    let instant = match &zones {
                        Some(zones) => zone(zones.as_string::<i32>().value(row))?.instant(shown),
                        None => here.instant(shown),
                    };
                    instant.ok_or_else(|| SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range"))
                };
                let all = rows().map(|row| row.map(instant).transpose());
                let all = all.collect::<Result<TimestampMicrosecondArray, SqlError>>()?;
                Arc::new(all.with_data_type(args.return_field.data_type().clone()))
            }
            TimeConstructor::Interval => {
                let of = |row: usize| interval([0, 1, 2, 3, 4, 5].map(|idx| part(idx, row)), second(row));
                let all = rows().map(|row| row.map(of).transpose());
                Arc::new(all.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?)
            }
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&answer, 0)?),
            false => ColumnarValue::Array(answer),
        })
    }
}

/// Microseconds since midnight, up to and including 24:00.
fn time(hour: i64, minute: i64, second: f64) -> Result<i64, SqlError> {
    let out = || {
        let message = format!("time field value out of range: {hour}:{minute:02}:{second}");
        SqlError::new(state::DATETIME_OVERFLOW, message)
    };
    if !(0..=24).contains(&hour) || !(0..=59).contains(&minute) || !(0.0..=60.0).contains(&second) {
        return Err(out());
    }
    let us = hour * HOUR_US + minute * MINUTE_US + (second * 1e6).round_ties_even() as i64;
    if us <= DAY_US { Ok(us) } else { Err(out()) }
}

/// By its name, or hours and minutes east of Greenwich.
fn zone(name: &str) -> Result<Zone, SqlError> {
    let zone = match name.as_bytes().first() {
        Some(b'+' | b'-') => {
            let (sign, rest) = name.split_at(1);
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            Zone::offset(&format!("{sign}{}{rest}", if digits == 1 { "0" } else { "" }))
        }
        Some(b'0'..=b'9') => {
            let message = format!("invalid input syntax for type numeric time zone: \"{name}\"");
            let error = SqlError::new(state::INVALID_PARAMETER_VALUE, message);
            return Err(error.with_hint("numeric time zones have \"-\" or \"+\" as their first character"));
        }
        _ => Zone::abbreviated(name).or_else(|| Zone::parse(name)),
    };
    zone.ok_or_else(|| SqlError::new(state::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized")))
}

fn interval(
    [years, months, weeks, days, hours, minutes]: [i64; 6],
    seconds: f64,
) -> Result<arrow::datatypes::IntervalMonthDayNano, SqlError> {
    let months = years.checked_mul(12).and_then(|of_years| of_years.checked_add(months));
    let days = weeks.checked_mul(7).and_then(|of_weeks| of_weeks.checked_add(days));
    let seconds_us = (seconds * 1e6).round_ties_even();
    let fits = seconds_us.is_finite() && seconds_us.abs() < 9.2e18;
    let us = hours.checked_mul(HOUR_US).and_then(|us| us.checked_add(minutes.checked_mul(MINUTE_US)?));
    let us = us.filter(|_| fits).and_then(|us| us.checked_add(seconds_us as i64));
    let span = months.zip(days).zip(us).and_then(|((months, days), us)| {
        Some(Span { months: i32::try_from(months).ok()?, days: i32::try_from(days).ok()?, us })
    });
    span.ok_or_else(out_of_range).and_then(arrow_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_made_of_numbers() {
        assert_eq!(time(8, 15, 23.5).unwrap(), 29_723_500_000);
        assert_eq!(time(24, 0, 0.0).unwrap(), DAY_US);
        for (hour, minute, second) in [(24, 0, 2.1), (10, 60, 0.0), (10, 0, -0.1), (10, 0, f64::NAN), (-1, 0, 0.0)] {
            assert!(time(hour, minute, second).is_err(), "{hour}:{minute}:{second}");
        }
        let made = interval([1, 2, 3, 4, 5, 6], 7.5).unwrap();
        assert_eq!((made.months, made.days, made.nanoseconds), (14, 25, 18_367_500_000_000));
        assert!(interval([i64::MAX, 0, 0, 0, 0, 0], 0.0).is_err());
        assert_eq!(zone("+2").unwrap(), zone("+02:00").unwrap());
        assert!(zone("2").is_err() && zone("Nehwon/Lankhmar").is_err());
    }
}
