//! Which date, time, instant or interval is a text, when a statement casts it? What columns are written with reads it,
//! so that `'today'`, `'Jan 8 1999'` and `'1 day 02:00'` mean the same everywhere. Arrow knows ISO 8601.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Date32Array, IntervalMonthDayNanoArray, StringViewArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType as ArrowType, IntervalMonthDayNano};
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use tarn_query::{datafusion, now_of, style_of};
use tarn_types::{DataType, Error, ParseContext, Span, SpanFields, Value, Zone, parse_span};

use crate::error::{SqlError, state};

/// Texts as a type of times. What has no zone is what the session's clocks show.
pub(super) fn times_of_text(values: &ArrayRef, to: &ArrowType, config: &ConfigOptions) -> Result<ArrayRef> {
    let texts = cast(values, &ArrowType::Utf8View)?;
    let (texts, style) = (texts.as_string_view(), style_of(config));
    let here = ParseContext { zone: Some(&style.zone), order: style.forms.order, now_us: now_of(config) };
    let instant = |data_type| {
        read(texts, &data_type, here, |value| match value {
            Value::Timestamp(us) => Some(us),
            _ => None,
        })
        .map(|instants| instants.into_iter().collect::<TimestampMicrosecondArray>())
    };
    let times: ArrayRef = match to {
        ArrowType::Date32 | ArrowType::Date64 => {
            Arc::new(Date32Array::from(read(texts, &DataType::Date, here, |value| match value {
                Value::Date(days) => Some(days),
                _ => None,
            })?))
        }
        ArrowType::Time32(_) | ArrowType::Time64(_) => {
            Arc::new(Time64MicrosecondArray::from(read(texts, &DataType::Time, here, |value| match value {
                Value::Time(us) => Some(us),
                _ => None,
            })?))
        }
        ArrowType::Timestamp(_, None) => Arc::new(instant(DataType::Timestamp)?),
        ArrowType::Timestamp(_, Some(_)) => {
            Arc::new(instant(DataType::TimestampTz)?.with_timezone(Arc::clone(Zone::utc().arrow_name())))
        }
        _ => {
            let spans = texts.iter().map(|text| text.map(|text| interval_of(text, None, None)).transpose());
            Arc::new(spans.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?)
        }
    };
    // What a type of nanoseconds does not reach is an error.
    Ok(cast_with_options(&times, to, &CastOptions { safe: false, ..CastOptions::default() })?)
}

fn read<T>(
    texts: &StringViewArray,
    data_type: &DataType,
    here: ParseContext<'_>,
    value: impl Fn(Value) -> Option<T>,
) -> Result<Vec<Option<T>>, SqlError> {
    texts
        .iter()
        .map(|text| match text {
            None => Ok(None),
            Some(text) => Ok(value(Value::parse_at(data_type, text, here)?)),
        })
        .collect()
}

/// An interval by its text, of a type with these fields and so many digits of seconds.
pub(super) fn interval_of(
    text: &str,
    fields: Option<SpanFields>,
    digits: Option<u8>,
) -> Result<IntervalMonthDayNano, SqlError> {
    let span = parse_span(text, fields).map(|span| span.limited(fields, digits)).map_err(|fault| {
        let value = text.chars().take(100).collect();
        Error::Time { value, data_type: "interval".to_owned(), fault }
    })?;
    arrow_of(span)
}

/// Nanoseconds are what Arrow counts.
///
/// Errors: `0A000` for 292 years of hours, which PostgreSQL has room for.
pub(super) fn arrow_of(span: Span) -> Result<IntervalMonthDayNano, SqlError> {
    let nanoseconds = span.us.checked_mul(1_000).ok_or_else(too_many_hours)?;
    Ok(IntervalMonthDayNano::new(span.months, span.days, nanoseconds))
}

pub(super) fn too_many_hours() -> SqlError {
    SqlError::unsupported(
        "an interval of more than 2562047 hours, minutes and seconds is not supported",
        "count them in days, months or years",
    )
}

/// An interval as it was before Arrow.
pub(super) fn span_of(interval: IntervalMonthDayNano) -> Span {
    Span { months: interval.months, days: interval.days, us: interval.nanoseconds / 1_000 }
}

/// `22008`: more than an interval of ours can be.
pub(super) fn out_of_range() -> SqlError {
    SqlError::new(state::DATETIME_OVERFLOW, "interval out of range")
}
