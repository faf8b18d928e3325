//! What is `extract(century FROM …)`? Fields that DataFusion does not know, has for some types only, or counts otherwise: the year before 1 is
//! -1, seconds have a fraction, an interval's epoch has years of 365.25 days.
//!
//! Fields that it has of dates and instants alike stay its own, so that a condition on a year leaves out blocks.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DurationMicrosecondType, Int32Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, zone_of};

use super::calendar::{DAY_US, HOUR_US, Unit, field_of_interval, field_of_time};
use crate::error::{SqlError, state};
use crate::rows::days_and_rest;

/// The function of DataFusion that stands for `extract`, too.
const DATE_PART: &str = "date_part";

/// What a Julian day with its time is told with.
const JULIAN_DIGITS: i8 = 20;

/// The call of a field, where it is not DataFusion's.
///
/// Errors: `0A000` and `22023` for a field that the type does not have, or that is none.
pub(super) fn extracted(call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    let ([part, of], DATE_PART) = (&call.args[..], call.func.name()) else { return Ok(None) };
    let Some(name) = part.as_literal().and_then(|part| part.try_as_str().flatten()) else { return Ok(None) };
    let Ok(of_type) = of.get_type(schema) else { return Ok(None) };
    let Some(kind) = Kind::of(&of_type) else { return Ok(None) };
    let Some(unit) = Unit::of(name) else {
        let message = format!("unit \"{name}\" not recognized for type {}", kind.name());
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).into());
    };
    if !kind.has(unit) {
        let message = format!("unit \"{name}\" not supported for type {}", kind.name());
        return Err(SqlError::unsupported(message, "cast it to a type that has such a field").into());
    }
    let signature = Signature::any(2, Volatility::Stable);
    let function = match (kind, unit) {
        (Kind::Date | Kind::Timestamp | Kind::Instant, Unit::Year) => {
            ScalarUDF::from(Year { inner: datetime::date_part(), signature })
        }
        (
            Kind::Date | Kind::Timestamp | Kind::Instant,
            Unit::Minute
            | Unit::Hour
            | Unit::Day
            | Unit::Week
            | Unit::Month
            | Unit::Quarter
            | Unit::DayOfWeek
            | Unit::IsoDayOfWeek
            | Unit::DayOfYear,
        ) => return Ok(None),
        _ => ScalarUDF::from(Field { unit, kind, signature }),
    };
    Ok(Some(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), call.args.clone()))))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Date,
    Time,
    Timestamp,
    Instant,
    Interval,
}

impl Kind {
    fn of(data_type: &DataType) -> Option<Kind> {
        Some(match data_type {
            DataType::Date32 | DataType::Date64 => Kind::Date,
            DataType::Time32(_) | DataType::Time64(_) => Kind::Time,
            DataType::Timestamp(_, None) => Kind::Timestamp,
            DataType::Timestamp(_, Some(_)) => Kind::Instant,
            DataType::Interval(_) | DataType::Duration(_) => Kind::Interval,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Date => "date",
            Kind::Time => "time without time zone",
            Kind::Timestamp => "timestamp without time zone",
            Kind::Instant => "timestamp with time zone",
            Kind::Interval => "interval",
        }
    }

    fn has(self, unit: Unit) -> bool {
        let is_time =
            matches!(unit, Unit::Microseconds | Unit::Milliseconds | Unit::Second | Unit::Minute | Unit::Hour);
        let is_zone = matches!(unit, Unit::Zone | Unit::ZoneHour | Unit::ZoneMinute);
        match self {
            Kind::Date => !is_time && !is_zone,
            Kind::Time => is_time || unit == Unit::Epoch,
            Kind::Timestamp => !is_zone,
            Kind::Instant => true,
            Kind::Interval => field_of_interval(unit, 0, 0, 0).is_some(),
        }
    }
}

/// The year as it is shown. DataFusion's has a year 0.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Year {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for Year {
    fn name(&self) -> &str {
        DATE_PART
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn is_strict(&self) -> bool {
        true
    }

    /// As a range of times, by which blocks are left out.
    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        match literal.as_literal() {
            // The year after the one that is looked for is one more.
            Some(ScalarValue::Int32(Some(1..))) => self.inner.preimage(args, literal, info),
            _ => Ok(PreimageResult::None),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let shown = |years: &ArrayRef| -> Result<ArrayRef> {
            let years = cast(years, &DataType::Int32)?;
            let shown: Int32Array =
                years.as_primitive::<Int32Type>().unary(|year| if year > 0 { year } else { year - 1 });
            Ok(Arc::new(shown))
        };
        Ok(match self.inner.invoke_with_args(args)? {
            ColumnarValue::Array(years) => ColumnarValue::Array(shown(&years)?),
            ColumnarValue::Scalar(year) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&shown(&year.to_array()?)?, 0)?)
            }
        })
    }
}

/// Any other field: of the second argument, the first is its name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Field {
    unit: Unit,
    kind: Kind,
    signature: Signature,
}

impl Field {
    fn is_part_of_day(&self) -> bool {
        self.unit == Unit::Julian && self.kind != Kind::Date
    }
}

impl ScalarUDFImpl for Field {
    fn name(&self) -> &str {
        DATE_PART
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.unit {
            Unit::Epoch if self.kind == Kind::Date => DataType::Decimal128(20, 0),
            _ if self.is_part_of_day() => DataType::Decimal128(30, JULIAN_DIGITS),
            Unit::Second => DataType::Decimal128(8, 6),
            unit => DataType::Decimal128(20 + unit.digits().unsigned_abs(), unit.digits()),
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [_, of] = &args.args[..] else { return exec_err!("a field is of one value") };
        let (values, is_scalar) = match of {
            ColumnarValue::Array(values) => (Arc::clone(values), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        let out = || SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range");
        let (unit, zone) = (self.unit, zone_of(&args.config_options));
        let fields: Decimal128Array = match self.kind {
            Kind::Interval => intervals(&values)?.try_unary::<_, Decimal128Type, SqlError>(|of| {
                field_of_interval(unit, of.months, of.days, of.nanoseconds / 1_000).ok_or_else(out)
            })?,
            Kind::Time => {
                let times = cast(&values, &DataType::Time64(TimeUnit::Microsecond))?;
                times.as_primitive::<Time64MicrosecondType>().try_unary::<_, Decimal128Type, SqlError>(|us| {
                    field_of_time(unit, us).map(i128::from).ok_or_else(out)
                })?
            }
            Kind::Date => {
                let days = cast(&values, &DataType::Date32)?;
                days.as_primitive::<Date32Type>().try_unary::<_, Decimal128Type, SqlError>(|day| match unit {
                    Unit::Epoch => Ok(i128::from(day) * 86_400),
                    _ => {
                        let midnight = i64::from(day).checked_mul(DAY_US).ok_or_else(out)?;
                        field_of_time(unit, midnight).map(i128::from).ok_or_else(out)
                    }
                })?
            }
            Kind::Timestamp | Kind::Instant => {
                let to = match values.data_type() {
                    DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
                    other => return exec_err!("a field of {other}"),
                };
                let times = cast(&values, &to)?;
                times.as_primitive::<TimestampMicrosecondType>().try_unary::<_, Decimal128Type, SqlError>(|us| {
                    let is_instant = self.kind == Kind::Instant;
                    let east = if is_instant { i64::from(zone.offset_at(us)) } else { 0 };
                    let local = if is_instant { zone.local(us) } else { us };
                    Ok(match unit {
                        Unit::Epoch => us.into(),
                        Unit::Zone => east.into(),
                        Unit::ZoneHour => (east / 3_600).into(),
                        Unit::ZoneMinute => (east / 60 % 60).into(),
                        Unit::Julian => {
                            let whole = i128::from(field_of_time(unit, local).ok_or_else(out)?);
                            let unit = 10_i128.pow(JULIAN_DIGITS.unsigned_abs().into());
                            let part = i128::from(local.rem_euclid(DAY_US)) * unit;
                            let day = i128::from(24 * HOUR_US);
                            whole * unit + (part + day / 2) / day
                        }
                        unit => field_of_time(unit, local).ok_or_else(out)?.into(),
                    })
                })?
            }
        };
        let DataType::Decimal128(precision, scale) = args.return_field.data_type() else {
            return exec_err!("a field is a number");
        };
        // What is told in microseconds has as many digits.
        let fields: ArrayRef = Arc::new(fields.with_precision_and_scale(*precision, *scale)?);
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&fields, 0)?),
            false => ColumnarValue::Array(fields),
        })
    }
}

/// What lies between two times is days and hours.
pub(super) fn intervals(values: &ArrayRef) -> Result<arrow::array::IntervalMonthDayNanoArray> {
    if let DataType::Duration(_) = values.data_type() {
        let us = cast(values, &DataType::Duration(TimeUnit::Microsecond))?;
        return Ok(us.as_primitive::<DurationMicrosecondType>().unary::<_, IntervalMonthDayNanoType>(|us| {
            let (days, us) = days_and_rest(us);
            IntervalMonthDayNano::new(0, days, us * 1_000)
        }));
    }
    let intervals = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    Ok(intervals.as_primitive::<IntervalMonthDayNanoType>().clone())
}
