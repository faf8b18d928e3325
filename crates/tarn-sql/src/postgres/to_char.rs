//! `to_char`: times, intervals and numbers in a form that is asked for, as PostgreSQL's templates say. DataFusion's
//! takes those of `strftime` and gives others back as they are.
//!
//! Source: PostgreSQL 16, "Data Type Formatting Functions". What of a template is not here is refused, and never
//! written out.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, zone_of};
use tarn_types::{Zone, is_infinite_us};

use super::date_template::{DateTemplate, TimeFields};
use super::extract::intervals;
use super::number_template::NumberTemplate;
use crate::error::{SqlError, state};

/// `to_char`, to be registered over DataFusion's.
pub(super) fn to_char() -> ScalarUDF {
    // Instants are written as the session's clocks show them.
    ToChar { signature: Signature::user_defined(Volatility::Stable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    signature: Signature,
}

const MICROSECONDS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &str {
        "to_char"
    }

    fn aliases(&self) -> &[String] {
        &[]
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [of, template] = types else { return plan_err!("to_char takes a value and a template") };
        let of = match of {
            DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            DataType::Date32 | DataType::Date64 | DataType::Null => MICROSECONDS,
            DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
            // The planner knows no cast of it to an interval.
            DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
            DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
            DataType::Decimal128(precision, scale) => DataType::Decimal128(*precision, *scale),
            of if of.is_integer() => DataType::Decimal128(20, 0),
            of => {
                let message = format!("function to_char({of}, {template}) does not exist");
                return Err(SqlError::new(state::UNDEFINED_FUNCTION, message)
                    .with_hint("cast the first argument to a time, an interval or a number")
                    .into());
            }
        };
        Ok(vec![of, DataType::Utf8View])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [of, template] = &args.args[..] else { return plan_err!("to_char takes a value and a template") };
        let is_scalar = matches!((of, template), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let n_rows = if is_scalar { 1 } else { args.number_rows };
        let values: ArrayRef = match of.data_type() {
            DataType::Time64(_) => Arc::new(intervals(&of.to_array(n_rows)?)?),
            _ => of.to_array(n_rows)?,
        };
        let zone = zone_of(&args.config_options);
        let texts = match template {
            ColumnarValue::Scalar(template) => {
                let template = template.try_as_str().flatten();
                written(&values, &zone, template.map(Templates::one))?
            }
            ColumnarValue::Array(templates) => {
                let options = CastOptions { safe: false, ..CastOptions::default() };
                let templates = cast_with_options(templates, &DataType::Utf8View, &options)?;
                let templates = templates.as_string_view();
                written(&values, &zone, Some(Templates::Each(templates.iter().collect())))?
            }
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?),
            false => ColumnarValue::Array(texts),
        })
    }
}

/// The templates of the rows.
enum Templates<'a> {
    One(&'a str),
    Each(Vec<Option<&'a str>>),
}

impl<'a> Templates<'a> {
    fn one(template: &'a str) -> Templates<'a> {
        Templates::One(template)
    }

    fn of(&self, row: usize) -> Option<&'a str> {
        match self {
            Templates::One(template) => Some(template),
            Templates::Each(all) => all[row],
        }
    }
}

/// `None`: there is no template, and no text of anything.
fn written(values: &ArrayRef, zone: &Zone, templates: Option<Templates<'_>>) -> Result<ArrayRef> {
    let mut texts = StringViewBuilder::with_capacity(values.len());
    let mut dates = TemplateCache::<DateTemplate>::default();
    let mut numbers = TemplateCache::<NumberTemplate>::default();
    let mut text = String::new();
    for row in 0..values.len() {
        let template = templates.as_ref().and_then(|templates| templates.of(row));
        // Of a number, an empty template is an empty text.
        let is_number = values.data_type().is_numeric();
        let Some(template) = template.filter(|of| values.is_valid(row) && (is_number || !of.is_empty())) else {
            texts.append_null();
            continue;
        };
        text.clear();
        match values.data_type() {
            DataType::Timestamp(_, of_zone) => {
                let us = values.as_primitive::<TimestampMicrosecondType>().value(row);
                if is_infinite_us(us) {
                    texts.append_null();
                    continue;
                }
                let zone = of_zone.as_ref().map(|_| zone);
                dates.of(template, DateTemplate::parse)?.write(&TimeFields::of_time(us, zone), &mut text)?;
            }
            DataType::Interval(_) => {
                let interval = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
                let us = interval.nanoseconds / 1_000;
                let moment = TimeFields::of_interval(interval.months, interval.days, us);
                dates.of(template, DateTemplate::parse)?.write(&moment, &mut text)?;
            }
            DataType::Decimal128(_, scale) => {
                let value = values.as_primitive::<Decimal128Type>().value(row);
                numbers.of(template, NumberTemplate::parse)?.write_decimal(value, *scale, &mut text);
            }
            _ => {
                let value = values.as_primitive::<Float64Type>().value(row);
                numbers.of(template, NumberTemplate::parse)?.write_float(value, &mut text);
            }
        }
        texts.append_value(&text);
    }
    Ok(Arc::new(texts.finish()))
}

/// The template that was read last: that of the next row is usually the same.
struct TemplateCache<T>(Option<(String, T)>);

impl<T> Default for TemplateCache<T> {
    fn default() -> Self {
        TemplateCache(None)
    }
}

impl<T> TemplateCache<T> {
    fn of(&mut self, text: &str, parse: impl FnOnce(&str) -> Result<T, SqlError>) -> Result<&T, SqlError> {
        if self.0.as_ref().is_none_or(|(last, _)| last != text) {
            self.0 = None;
            let parsed = parse(text)?;
            return Ok(&self.0.insert((text.to_owned(), parsed)).1);
        }
        match &self.0 {
            Some((_, parsed)) => Ok(parsed),
            None => Err(SqlError::new(state::INTERNAL, "no template was read")),
        }
    }
}
