//! When did the century begin, or the day in Sydney? `date_trunc` of fields, of intervals and of zones that
//! DataFusion's does not know.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array, new_empty_array};
use arrow::compute::{cast, interleave, take};
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::functions::datetime;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, zone_of};
use tarn_types::Zone;

use super::calendar::{CalendarField, truncated, truncated_interval};
use super::extract::intervals;
use super::infinite_times::{infinite, of_finite};
use super::times_of_text::out_of_range;
use crate::error::{SqlError, state};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The function, to be registered over DataFusion's.
pub(super) fn date_trunc() -> ScalarUDF {
    DateTrunc { inner: datetime::date_trunc(), signature: Signature::user_defined(Volatility::Stable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTrunc {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [_, of, zone @ ..] = types else { return plan_err!("date_trunc takes a field and a time") };
        let of = match of {
            DataType::Interval(_) | DataType::Duration(_) if zone.is_empty() => INTERVAL,
            DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => of.clone(),
            DataType::Date32 | DataType::Date64 | DataType::Null => DataType::Timestamp(TimeUnit::Microsecond, None),
            of if of.is_string() => DataType::Timestamp(TimeUnit::Microsecond, None),
            of => {
                let message = format!("function date_trunc(text, {of}) does not exist");
                return Err(SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("cast it to timestamp").into());
            }
        };
        match zone {
            [] => Ok(vec![DataType::Utf8, of]),
            [_] if matches!(of, DataType::Timestamp(_, Some(_))) => Ok(vec![DataType::Utf8, of, DataType::Utf8]),
            _ => plan_err!("date_trunc with a zone takes a timestamp with time zone"),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[1].clone())
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        match inputs {
            [_, _] => self.inner.output_ordering(inputs),
            _ => Ok(SortProperties::Unordered),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [unit, of, zone @ ..] = &args.args[..] else { return plan_err!("date_trunc takes a field and a time") };
        let ColumnarValue::Scalar(name) = unit else { return self.by_field(&args) };
        let name = name.try_as_str().flatten();
        let zone_name = match zone {
            [] => None,
            [ColumnarValue::Scalar(zone)] => Some(zone.try_as_str().flatten()),
            _ => {
                let message = "date_trunc with another zone for each row is not supported";
                return Err(SqlError::unsupported(message, "use AT TIME ZONE").into());
            }
        };
        let is_null = match of {
            ColumnarValue::Array(values) => values.null_count() == values.len(),
            ColumnarValue::Scalar(value) => value.is_null(),
        };
        // Before anything else is wrong with an argument.
        let (Some(name), false) = (name, is_null || zone_name == Some(None)) else {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(args.return_type())?));
        };
        let of_type = of.data_type();
        let type_name = match &of_type {
            DataType::Interval(_) => "interval",
            DataType::Timestamp(_, Some(_)) => "timestamp with time zone",
            _ => "timestamp without time zone",
        };
        let Some(unit) = CalendarField::of(name) else {
            let message = format!("unit \"{name}\" not recognized for type {type_name}");
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).into());
        };
        let refused = || {
            let message = format!("unit \"{name}\" not supported for type {type_name}");
            SqlError::unsupported(message, "a field from microseconds to millennium")
        };
        let is_none = match of_type {
            DataType::Interval(_) => truncated_interval(unit, 0, 0, 0).is_none(),
            _ => truncated(unit, 0).is_none(),
        };
        if is_none {
            return Err(refused().into());
        }
        let (values, is_scalar) = match of {
            ColumnarValue::Array(values) => (Arc::clone(values), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        if infinite(&values).is_some() {
            let began = of_finite(&values, |finite| {
                let mut of_finite = args.clone();
                of_finite.number_rows = finite.len();
                of_finite.args[1] = ColumnarValue::Array(Arc::clone(finite));
                self.invoke_with_args(of_finite)?.to_array(finite.len())
            })?;
            return Ok(match is_scalar {
                true => ColumnarValue::Scalar(ScalarValue::try_from_array(&began, 0)?),
                false => ColumnarValue::Array(began),
            });
        }
        let is_long = matches!(unit, CalendarField::Decade | CalendarField::Century | CalendarField::Millennium);
        if !is_long && zone_name.is_none() && !matches!(of_type, DataType::Interval(_)) && !is_far(&values)? {
            let mut args = args;
            // DataFusion's knows one name of each.
            args.args[0] = ColumnarValue::Scalar(ScalarValue::from(plain_name(unit)));
            return self.inner.invoke_with_args(args);
        }
        let answer: ArrayRef = match &of_type {
            DataType::Interval(_) => {
                Arc::new(intervals(&values)?.try_unary::<_, IntervalMonthDayNanoType, SqlError>(|of| {
                    let us = of.nanoseconds / 1_000;
                    let (months, days, us) = truncated_interval(unit, of.months, of.days, us).ok_or_else(refused)?;
                    let nanoseconds = us.checked_mul(1_000).ok_or_else(out_of_range)?;
                    Ok(IntervalMonthDayNano::new(months, days, nanoseconds))
                })?)
            }
            DataType::Timestamp(_, of_zone) => {
                let zone = match (zone_name.flatten(), of_zone) {
                    (Some(name), _) => Some(Zone::at(name).ok_or_else(|| {
                        let message = format!("time zone \"{name}\" not recognized");
                        SqlError::new(state::INVALID_PARAMETER_VALUE, message)
                    })?),
                    (None, Some(_)) => Some(zone_of(&args.config_options)),
                    (None, None) => None,
                };
                let times = cast(&values, &DataType::Timestamp(TimeUnit::Microsecond, of_zone.clone()))?;
                let times = times.as_primitive::<TimestampMicrosecondType>();
                let out = || SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range");
                let began = times.try_unary::<_, TimestampMicrosecondType, SqlError>(|us| {
                    let began = match &zone {
                        Some(zone) => truncated(unit, zone.local(us)).and_then(|local| zone.instant(local)),
                        None => truncated(unit, us),
                    };
                    began.ok_or_else(out)
                })?;
                cast(&began.with_data_type(times.data_type().clone()), &of_type)?
            }
            _ => return Err(refused().into()),
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&answer, 0)?),
            false => ColumnarValue::Array(answer),
        })
    }
}

/// Whether a time is none in nanoseconds, which DataFusion's counts: before 1677, or behind 2262.
fn is_far(values: &ArrayRef) -> Result<bool> {
    let DataType::Timestamp(_, zone) = values.data_type() else { return Ok(false) };
    let times = cast(values, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?;
    // A year of room for what is rounded.
    const NEAR_US: u64 = (i64::MAX / 1_000).unsigned_abs() - 366 * 86_400_000_000;
    Ok(times.as_primitive::<TimestampMicrosecondType>().iter().flatten().any(|us| us.unsigned_abs() > NEAR_US))
}

impl DateTrunc {
    /// Where each row names a field: the rows of each field by themselves.
    fn by_field(&self, args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = args.args.iter().map(|arg| arg.to_array(args.number_rows)).collect::<Result<Vec<_>>>()?;
        let names = cast(&columns[0], &DataType::Utf8)?;
        let names = names.as_string::<i32>();
        let mut rows_of: BTreeMap<Option<&str>, Vec<u64>> = BTreeMap::new();
        for (row, name) in names.iter().enumerate() {
            rows_of.entry(name).or_default().push(row as u64);
        }
        let mut places = vec![(0, 0); args.number_rows];
        let mut answers = Vec::with_capacity(rows_of.len());
        for (name, rows) in rows_of {
            for (nth, row) in rows.iter().enumerate() {
                places[*row as usize] = (answers.len(), nth);
            }
            let number_rows = rows.len();
            let rows = UInt64Array::from(rows);
            let mut of_field = args.clone();
            of_field.number_rows = number_rows;
            of_field.args = vec![ColumnarValue::Scalar(ScalarValue::Utf8(name.map(str::to_owned)))];
            of_field.args.push(ColumnarValue::Array(take(&columns[1], &rows, None)?));
            // The zone is one for all.
            of_field.args.extend(args.args[2..].iter().cloned());
            answers.push(self.invoke_with_args(of_field)?.to_array(number_rows)?);
        }
        let answers: Vec<&dyn Array> = answers.iter().map(AsRef::as_ref).collect();
        match answers.is_empty() {
            true => Ok(ColumnarValue::Array(new_empty_array(args.return_type()))),
            false => Ok(ColumnarValue::Array(interleave(&answers, &places)?)),
        }
    }
}

fn plain_name(unit: CalendarField) -> &'static str {
    match unit {
        CalendarField::Microseconds => "microsecond",
        CalendarField::Milliseconds => "millisecond",
        CalendarField::Second => "second",
        CalendarField::Minute => "minute",
        CalendarField::Hour => "hour",
        CalendarField::Day => "day",
        CalendarField::Week => "week",
        CalendarField::Month => "month",
        CalendarField::Quarter => "quarter",
        _ => "year",
    }
}
