//! How long is `INTERVAL '1 2:03' DAY TO SECOND`? An interval that is written out is read here, by its fields, and
//! written as the planner reads it: `INTERVAL '0 months 1 days 7380000000 microseconds'`. PostgreSQL reads that as the
//! same interval: parts of a statement (RETURNING) are written as text and read once more. What is cast to a type with
//! fields or digits is a call of [`LIMITED`].

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::{
    self, CastKind, DateTimeField, Expr, Interval, IntervalFields, TimezoneInfo, UnaryOperator,
};
use tarn_types::{SpanField, SpanFields, is_infinite_us};

use super::calls::{call, number, take};
use super::times_of_text::{arrow_of, interval_of, span_of};
use crate::error::{SqlError, state};

/// `tarn_limited(value, first field, last field, digits)`: fields count from the year, and -1 is none.
const LIMITED: &str = "tarn_limited";

/// The function.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(Limited { signature: Signature::any(4, Volatility::Immutable) }.into())]
}

/// Reads intervals that are written out, and writes casts to types with fields or digits as calls.
///
/// Errors: as reading an interval; `0A000` for fields that are none of an interval.
pub(super) fn rewrite(expr: &mut Expr) -> Result<(), SqlError> {
    match expr {
        Expr::Interval(interval) => written_out(interval),
        Expr::TypedString(typed) => match &typed.data_type {
            ast::DataType::Interval { fields, precision } => {
                let (fields, digits) = (fields.as_ref().map(fields_of_type), precision.map(clamped));
                if let ast::Value::SingleQuotedString(text) = &typed.value.value {
                    *expr = literal(text, fields, digits)?;
                }
                Ok(())
            }
            ast::DataType::Timestamp(Some(digits), zone) | ast::DataType::Time(Some(digits), zone) => {
                let (digits, zone) = (clamped(*digits), *zone);
                let data_type = plain(&typed.data_type, zone);
                let text = Expr::Value(typed.value.clone());
                *expr = limited(cast_to(text, data_type), None, Some(digits));
                Ok(())
            }
            _ => Ok(()),
        },
        Expr::Cast { expr: of, data_type, .. } => match data_type {
            ast::DataType::Interval { fields, precision } => {
                let (fields, digits) = (fields.as_ref().map(fields_of_type), precision.map(clamped));
                if let Expr::Value(value) = of.as_ref()
                    && let ast::Value::SingleQuotedString(text) = &value.value
                {
                    *expr = literal(text, fields, digits)?;
                } else if fields.is_some() || digits.is_some() {
                    let of = take(of);
                    let plain = ast::DataType::Interval { fields: None, precision: None };
                    *expr = limited(cast_to(of, plain), fields, digits);
                }
                Ok(())
            }
            ast::DataType::Timestamp(Some(digits), zone) | ast::DataType::Time(Some(digits), zone) => {
                let (digits, zone) = (clamped(*digits), *zone);
                let data_type = plain(data_type, zone);
                let of = take(of);
                *expr = limited(cast_to(of, data_type), None, Some(digits));
                Ok(())
            }
            _ => Ok(()),
        },
        // `- INTERVAL '…'`: the planner would put the sign before the first number, or lose it.
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: of } if is_interval(of) => {
            let of = take(of);
            *expr = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(Expr::Nested(Box::new(of))) };
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether it is one that is written out, or becomes one here.
fn is_interval(of: &Expr) -> bool {
    match of {
        Expr::Interval(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, ast::DataType::Interval { .. }),
        Expr::TypedString(typed) => matches!(typed.data_type, ast::DataType::Interval { .. }),
        _ => false,
    }
}

/// More digits than six are six, as in PostgreSQL.
fn clamped(digits: u64) -> u8 {
    u8::try_from(digits.min(6)).unwrap_or(6)
}

fn plain(data_type: &ast::DataType, zone: TimezoneInfo) -> ast::DataType {
    match data_type {
        ast::DataType::Time(..) => ast::DataType::Time(None, zone),
        _ => ast::DataType::Timestamp(None, zone),
    }
}

fn cast_to(of: Expr, data_type: ast::DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(of), data_type, array: false, format: None }
}

fn limited(of: Expr, fields: Option<SpanFields>, digits: Option<u8>) -> Expr {
    let minus_one = || Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number(1)) };
    let field = |field: Option<SpanField>| field.map_or_else(minus_one, |field| number(field as u64));
    let digits = digits.map_or_else(minus_one, |digits| number(digits.into()));
    let (first, last) = (field(fields.map(|fields| fields.first)), field(fields.map(|fields| fields.last)));
    call(LIMITED, vec![of, first, last, digits])
}

fn written_out(interval: &mut Interval) -> Result<(), SqlError> {
    let fields = match (&interval.leading_field, &interval.last_field) {
        (None, _) => None,
        (Some(first), None) => Some(one(field(first)?)),
        (Some(first), Some(last)) => Some(SpanFields { first: field(first)?, last: field(last)? }),
    };
    let digits = match (interval.leading_precision, interval.fractional_seconds_precision) {
        (None, digits) => digits,
        // Behind `INTERVAL` itself, or behind the seconds.
        (digits, None) if matches!(interval.leading_field, None | Some(DateTimeField::Second)) => digits,
        _ => return Err(SqlError::new(state::SYNTAX_ERROR, "syntax error: only seconds have a precision")),
    };
    let digits = digits.map(clamped);
    let text = match interval.value.as_ref() {
        Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => text,
            other => return Err(not_text(other)),
        },
        other => return Err(not_text(other)),
    };
    if let Expr::Interval(read) = literal(text, fields, digits)? {
        *interval = read;
    }
    Ok(())
}

fn not_text(found: &dyn std::fmt::Display) -> SqlError {
    let message = format!("syntax error: INTERVAL {found}");
    SqlError::new(state::SYNTAX_ERROR, message).with_hint("an interval is written as INTERVAL '1 day'")
}

/// As the planner reads it.
fn literal(text: &str, fields: Option<SpanFields>, digits: Option<u8>) -> Result<Expr, SqlError> {
    let read = interval_of(text, fields, digits)?;
    let text = format!("{} months {} days {} microseconds", read.months, read.days, read.nanoseconds / 1_000);
    Ok(Expr::Interval(Interval {
        value: Box::new(Expr::Value(ast::Value::SingleQuotedString(text).with_empty_span())),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    }))
}

fn one(field: SpanField) -> SpanFields {
    SpanFields { first: field, last: field }
}

fn field(field: &DateTimeField) -> Result<SpanField, SqlError> {
    Ok(match field {
        DateTimeField::Year => SpanField::Year,
        DateTimeField::Month => SpanField::Month,
        DateTimeField::Day => SpanField::Day,
        DateTimeField::Hour => SpanField::Hour,
        DateTimeField::Minute => SpanField::Minute,
        DateTimeField::Second => SpanField::Second,
        other => {
            let message = format!("syntax error: {other} is no field of an interval");
            return Err(
                SqlError::new(state::SYNTAX_ERROR, message).with_hint("write it into the text: INTERVAL '1 week'")
            );
        }
    })
}

fn fields_of_type(fields: &IntervalFields) -> SpanFields {
    use SpanField::{Day, Hour, Minute, Month, Second, Year};
    let between = |first, last| SpanFields { first, last };
    match fields {
        IntervalFields::Year => one(Year),
        IntervalFields::Month => one(Month),
        IntervalFields::Day => one(Day),
        IntervalFields::Hour => one(Hour),
        IntervalFields::Minute => one(Minute),
        IntervalFields::Second => one(Second),
        IntervalFields::YearToMonth => between(Year, Month),
        IntervalFields::DayToHour => between(Day, Hour),
        IntervalFields::DayToMinute => between(Day, Minute),
        IntervalFields::DayToSecond => between(Day, Second),
        IntervalFields::HourToMinute => between(Hour, Minute),
        IntervalFields::HourToSecond => between(Hour, Second),
        IntervalFields::MinuteToSecond => between(Minute, Second),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Limited {
    signature: Signature,
}

impl ScalarUDFImpl for Limited {
    fn name(&self) -> &str {
        LIMITED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match &types[0] {
            DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
            _ => DataType::Interval(IntervalUnit::MonthDayNano),
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    /// As the cast is.
    fn schema_name(&self, args: &[datafusion::logical_expr::Expr]) -> Result<String> {
        Ok(args[0].schema_name().to_string())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [of, rest @ ..] = &args.args[..] else { return exec_err!("{LIMITED} is of a value") };
        let small = |arg: &ColumnarValue| match arg {
            ColumnarValue::Scalar(ScalarValue::Int64(Some(number))) => u8::try_from(*number).ok(),
            ColumnarValue::Scalar(ScalarValue::Int32(Some(number))) => u8::try_from(*number).ok(),
            _ => None,
        };
        let [first, last, digits] = [0, 1, 2].map(|idx| rest.get(idx).and_then(small));
        let fields = first.and_then(nth).zip(last.and_then(nth)).map(|(first, last)| SpanFields { first, last });
        let (values, is_scalar) = match of {
            ColumnarValue::Array(values) => (Arc::clone(values), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        let values = cast(&values, args.return_field.data_type())?;
        let unit = 10_i64.pow(6 - u32::from(digits.unwrap_or(6).min(6)));
        let answer: ArrayRef = match values.data_type() {
            DataType::Timestamp(..) => Arc::new(rounded(values.as_primitive(), unit)),
            DataType::Time64(_) => {
                let rounded = values
                    .as_primitive::<Time64MicrosecondType>()
                    .unary::<_, Time64MicrosecondType>(|us| us.saturating_add(unit / 2).div_euclid(unit) * unit);
                Arc::new(rounded)
            }
            _ => {
                let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
                Arc::new(intervals.try_unary::<_, IntervalMonthDayNanoType, SqlError>(|interval| {
                    arrow_of(span_of(interval).limited(fields, digits))
                })?)
            }
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&answer, 0)?),
            false => ColumnarValue::Array(answer),
        })
    }
}

/// To the nearest unit, and of two to the one farther from 2000-01-01, from which PostgreSQL counts.
fn rounded(values: &TimestampMicrosecondArray, unit: i64) -> TimestampMicrosecondArray {
    const EPOCH_US: i64 = 946_684_800_000_000;
    let round = |us: i64| match us.checked_sub(EPOCH_US) {
        _ if is_infinite_us(us) => us,
        Some(since) if since >= 0 => since.saturating_add(unit / 2) / unit * unit + EPOCH_US,
        Some(since) => -((unit / 2).saturating_sub(since) / unit * unit) + EPOCH_US,
        None => us,
    };
    values.unary::<_, TimestampMicrosecondType>(round).with_data_type(values.data_type().clone())
}

fn nth(field: u8) -> Option<SpanField> {
    use SpanField::{Day, Hour, Minute, Month, Second, Year};
    [Year, Month, Day, Hour, Minute, Second].get(usize::from(field)).copied()
}
