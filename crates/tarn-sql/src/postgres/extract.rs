//! What is `extract(century FROM …)`? A `numeric` of as many digits as PostgreSQL's field has: `extract(year …)` none,
//! `extract(second …)` six. `date_part('century', …)` is the same as a `double precision`. The year before 1 is -1,
//! seconds have a fraction, an interval's epoch has years of 365.25 days. Of an infinite time, years are infinite,
//! which no `numeric` here is, and days are NULL.
//!
//! DataFusion plans both as `date_part`, of integers. Here the planner makes two functions of it ([`Extracts`]), and a
//! rule gives them their fields when the type of the time is known ([`extracted`]). A condition on the year of a date
//! stays a range of dates, so that blocks are left out by it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DurationMicrosecondType, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, zone_of};

use super::calendar::{CalendarField, DAY_US, HOUR_US, field_of_interval, field_of_time};
use super::infinite_times::finite;
use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};
use crate::rows::days_and_rest;

/// What a Julian day with its time is told with.
const JULIAN_DIGITS: i8 = 20;

/// `date_part`, to be registered over DataFusion's.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![unknown(ExtractForm::Part)]
}

/// Plans `extract(field FROM time)` as a function of its own.
#[derive(Debug)]
pub(super) struct Extracts;

impl ExprPlanner for Extracts {
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        let call = ScalarFunction::new_udf(unknown(ExtractForm::Extract), args);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

/// Before the type of the time is known.
fn unknown(form: ExtractForm) -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Stable);
    // As DataFusion's is called, too.
    let aliases = if form == ExtractForm::Part { vec!["datepart".to_owned()] } else { vec![] };
    Arc::new(ScalarUDF::from(Field { form, unit: None, kind: None, aliases, signature }))
}

/// The call of a field, when the types of its arguments are known.
///
/// Errors: `42883` for what is no time; of `extract`, `0A000` and `22023` for a field that the type does not have, or
/// that is none.
pub(super) fn extracted(call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    let (Some(form), [part, of]) = (ExtractForm::of(call.func.name()), &call.args[..]) else { return Ok(None) };
    let Ok(of_type) = of.get_type(schema) else { return Ok(None) };
    // A NULL, or a text that no one cast: times are what most fields are of.
    let bare = DataType::Timestamp(TimeUnit::Microsecond, None);
    let (of, kind) = match TimeKind::of(&of_type) {
        // In PostgreSQL, `date_part` of a date is that of its midnight.
        Some(TimeKind::Date) if form == ExtractForm::Part => {
            (Expr::Cast(Cast::new(Box::new(of.clone()), bare)), TimeKind::Timestamp)
        }
        Some(kind) => (of.clone(), kind),
        None if of_type.is_null() || of_type.is_string() => {
            (Expr::Cast(Cast::new(Box::new(of.clone()), bare)), TimeKind::Timestamp)
        }
        None => {
            let message = format!("function {}(unknown, {of_type}) does not exist", form.name());
            let error = SqlError::new(state::UNDEFINED_FUNCTION, message);
            return Err(error.with_hint("fields are of dates, times, timestamps and intervals").into());
        }
    };
    let name = part.as_literal().and_then(|part| part.try_as_str().flatten());
    let unit = match (form, name) {
        (ExtractForm::Extract, Some(name)) => Some(kind.unit(name)?),
        // A field that is none may stand beside a NULL.
        (_, name) => name.and_then(|name| kind.unit(name).ok()),
    };
    let part =
        if part.get_type(schema).is_ok_and(|of| of.is_null()) { lit(ScalarValue::Utf8(None)) } else { part.clone() };
    // Of an instant, what the session's clocks show.
    let volatility = if kind == TimeKind::Instant { Volatility::Stable } else { Volatility::Immutable };
    let signature = Signature::any(2, volatility);
    let function = Field { form, unit, kind: Some(kind), aliases: vec![], signature };
    let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), vec![part, of]);
    Ok(Some(Expr::ScalarFunction(call)))
}

/// How a field is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ExtractForm {
    /// `extract(field FROM time)`: a `numeric`.
    Extract,
    /// `date_part('field', time)`: a `double precision`.
    Part,
}

impl ExtractForm {
    fn of(name: &str) -> Option<ExtractForm> {
        [ExtractForm::Extract, ExtractForm::Part].into_iter().find(|form| form.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            ExtractForm::Extract => "extract",
            ExtractForm::Part => "date_part",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TimeKind {
    Date,
    Time,
    Timestamp,
    Instant,
    Interval,
}

impl TimeKind {
    fn of(data_type: &DataType) -> Option<TimeKind> {
        Some(match data_type {
            DataType::Date32 | DataType::Date64 => TimeKind::Date,
            DataType::Time32(_) | DataType::Time64(_) => TimeKind::Time,
            DataType::Timestamp(_, None) => TimeKind::Timestamp,
            DataType::Timestamp(_, Some(_)) => TimeKind::Instant,
            DataType::Interval(_) | DataType::Duration(_) => TimeKind::Interval,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            TimeKind::Date => "date",
            TimeKind::Time => "time without time zone",
            TimeKind::Timestamp => "timestamp without time zone",
            TimeKind::Instant => "timestamp with time zone",
            TimeKind::Interval => "interval",
        }
    }

    /// The field of this name. Errors: `0A000` and `22023`.
    fn unit(self, name: &str) -> Result<CalendarField, SqlError> {
        let Some(unit) = CalendarField::of(name) else {
            let message = format!("unit \"{name}\" not recognized for type {}", self.name());
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
        };
        if !self.has(unit) {
            let message = format!("unit \"{name}\" not supported for type {}", self.name());
            return Err(SqlError::unsupported(message, "cast it to a type that has such a field"));
        }
        Ok(unit)
    }

    fn has(self, unit: CalendarField) -> bool {
        let is_time = matches!(
            unit,
            CalendarField::Microseconds
                | CalendarField::Milliseconds
                | CalendarField::Second
                | CalendarField::Minute
                | CalendarField::Hour
        );
        let is_zone = matches!(unit, CalendarField::Zone | CalendarField::ZoneHour | CalendarField::ZoneMinute);
        match self {
            TimeKind::Date => !is_time && !is_zone,
            TimeKind::Time => is_time || unit == CalendarField::Epoch,
            TimeKind::Timestamp => !is_zone,
            TimeKind::Instant => true,
            TimeKind::Interval => field_of_interval(unit, 0, 0, 0).is_some(),
        }
    }
}

/// A field of the second argument; the first is its name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Field {
    form: ExtractForm,
    /// `None`: of the first argument of each row.
    unit: Option<CalendarField>,
    /// `None`: the rule has not seen it yet.
    kind: Option<TimeKind>,
    aliases: Vec<String>,
    signature: Signature,
}

impl ScalarUDFImpl for Field {
    fn name(&self) -> &str {
        self.form.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match (self.form, self.unit, self.kind) {
            (ExtractForm::Part, ..) => DataType::Float64,
            (ExtractForm::Extract, Some(unit), Some(kind)) => kind.numeric(unit),
            (ExtractForm::Extract, ..) => DataType::Decimal128(20, 0),
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    /// The years of dates and of times without a zone, as a range of these.
    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        let year = match literal.as_literal() {
            Some(ScalarValue::Decimal128(Some(year), _, 0)) => i32::try_from(*year).ok(),
            Some(ScalarValue::Float64(Some(year))) if year.fract() == 0.0 && year.abs() < 1e9 => Some(*year as i32),
            _ => None,
        };
        match (self.unit, self.kind, year) {
            // The year after the one that is looked for is one more.
            (Some(CalendarField::Year), Some(TimeKind::Date | TimeKind::Timestamp), Some(year @ 1..)) => {
                let args = [lit("year"), args[1].clone()];
                datetime::date_part().preimage(&args, &lit(year), info)
            }
            _ => Ok(PreimageResult::None),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(kind) = self.kind.or_else(|| TimeKind::of(args.arg_fields[1].data_type())) else {
            return exec_err!("a field of {}", args.arg_fields[1].data_type());
        };
        let rows = ArgumentRows::of(&args)?;
        let values = &rows.columns[1];
        let answer: ArrayRef = match (self.unit, self.form) {
            (Some(unit), ExtractForm::Extract) => {
                let (values, infinite) = finite(values)?;
                if infinite.is_some() && unit.grows() {
                    let hint = "date_part is a double precision, which may be infinite";
                    return Err(SqlError::unsupported("an infinite numeric", hint).into());
                }
                let fields = kind.fields(unit, &values, &args.config_options)?;
                let DataType::Decimal128(precision, scale) = args.return_field.data_type() else {
                    return exec_err!("a field is a number");
                };
                // What is told in microseconds has as many digits.
                Arc::new(fields.with_precision_and_scale(*precision, *scale)?)
            }
            (Some(unit), ExtractForm::Part) => Arc::new(kind.floats(unit, values, &args.config_options)?),
            (None, _) => {
                let names = cast(&rows.columns[0], &DataType::Utf8)?;
                let names = names.as_string::<i32>();
                let field = |row: usize| {
                    let unit = kind.unit(names.value(row))?;
                    let field = kind.floats(unit, &values.slice(row, 1), &args.config_options)?;
                    Ok(field.is_valid(0).then(|| field.value(0)))
                };
                let fields = rows.there().map(|row| row.map_or(Ok(None), field));
                Arc::new(fields.collect::<Result<Float64Array>>()?)
            }
        };
        rows.answer(answer)
    }
}

impl TimeKind {
    /// Of a field as `extract` gives it.
    fn numeric(self, unit: CalendarField) -> DataType {
        match unit {
            CalendarField::Epoch if self == TimeKind::Date => DataType::Decimal128(20, 0),
            CalendarField::Julian if self != TimeKind::Date => DataType::Decimal128(30, JULIAN_DIGITS),
            CalendarField::Epoch => DataType::Decimal128(26, 6),
            unit if unit.digits() > 0 => DataType::Decimal128(8, unit.digits()),
            // As an `integer` is one.
            _ => DataType::Decimal128(10, 0),
        }
    }

    /// The same as floats.
    fn floats(self, unit: CalendarField, values: &ArrayRef, config: &ConfigOptions) -> Result<Float64Array> {
        let scale = match self.numeric(unit) {
            DataType::Decimal128(_, scale) => 10_f64.powi(scale.into()),
            _ => 1.0,
        };
        let (finite, infinite) = finite(values)?;
        let fields = self.fields(unit, &finite, config)?.unary(|field| field as f64 / scale);
        let Some(infinite) = infinite.filter(|_| unit.grows()) else { return Ok(fields) };
        let of = |row: usize| match infinite.value(row) {
            true if is_before_all(values, row) => Some(f64::NEG_INFINITY),
            true => Some(f64::INFINITY),
            false => fields.is_valid(row).then(|| fields.value(row)),
        };
        Ok((0..values.len()).map(of).collect())
    }

    /// Without their points.
    fn fields(self, unit: CalendarField, values: &ArrayRef, config: &ConfigOptions) -> Result<Decimal128Array> {
        let out = || SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range");
        let zone = zone_of(config);
        Ok(match self {
            TimeKind::Interval => intervals(values)?.try_unary::<_, Decimal128Type, SqlError>(|of| {
                field_of_interval(unit, of.months, of.days, of.nanoseconds / 1_000).ok_or_else(out)
            })?,
            TimeKind::Time => {
                let times = cast(values, &DataType::Time64(TimeUnit::Microsecond))?;
                times.as_primitive::<Time64MicrosecondType>().try_unary::<_, Decimal128Type, SqlError>(|us| {
                    field_of_time(unit, us).map(i128::from).ok_or_else(out)
                })?
            }
            TimeKind::Date => {
                let days = cast(values, &DataType::Date32)?;
                days.as_primitive::<Date32Type>().try_unary::<_, Decimal128Type, SqlError>(|day| match unit {
                    CalendarField::Epoch => Ok(i128::from(day) * 86_400),
                    _ => {
                        let midnight = i64::from(day).checked_mul(DAY_US).ok_or_else(out)?;
                        field_of_time(unit, midnight).map(i128::from).ok_or_else(out)
                    }
                })?
            }
            TimeKind::Timestamp | TimeKind::Instant => {
                let to = match values.data_type() {
                    DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
                    other => return exec_err!("a field of {other}"),
                };
                let times = cast(values, &to)?;
                times.as_primitive::<TimestampMicrosecondType>().try_unary::<_, Decimal128Type, SqlError>(|us| {
                    let is_instant = self == TimeKind::Instant;
                    let east = if is_instant { i64::from(zone.offset_at(us)) } else { 0 };
                    let local = if is_instant { zone.local(us) } else { us };
                    Ok(match unit {
                        CalendarField::Epoch => us.into(),
                        CalendarField::Zone => east.into(),
                        CalendarField::ZoneHour => (east / 3_600).into(),
                        CalendarField::ZoneMinute => (east / 60 % 60).into(),
                        CalendarField::Julian => {
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
        })
    }
}

/// Which end of time an infinite value is.
fn is_before_all(values: &ArrayRef, row: usize) -> bool {
    match values.data_type() {
        DataType::Date32 => values.as_primitive::<Date32Type>().value(row) < 0,
        _ => values.as_primitive_opt::<TimestampMicrosecondType>().is_some_and(|times| times.value(row) < 0),
    }
}

/// What lies between two times is days and hours, and a time of day so long after midnight.
pub(super) fn intervals(values: &ArrayRef) -> Result<arrow::array::IntervalMonthDayNanoArray> {
    if let DataType::Duration(_) = values.data_type() {
        let us = cast(values, &DataType::Duration(TimeUnit::Microsecond))?;
        return Ok(us.as_primitive::<DurationMicrosecondType>().unary::<_, IntervalMonthDayNanoType>(|us| {
            let (days, us) = days_and_rest(us);
            IntervalMonthDayNano::new(0, days, us * 1_000)
        }));
    }
    if let DataType::Time32(_) | DataType::Time64(_) = values.data_type() {
        let us = cast(values, &DataType::Time64(TimeUnit::Microsecond))?;
        let of = |us: i64| IntervalMonthDayNano::new(0, 0, us * 1_000);
        return Ok(us.as_primitive::<Time64MicrosecondType>().unary::<_, IntervalMonthDayNanoType>(of));
    }
    let intervals = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    Ok(intervals.as_primitive::<IntervalMonthDayNanoType>().clone())
}
