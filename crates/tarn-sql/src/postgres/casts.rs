//! What does a cast give? PostgreSQL rounds where a number becomes an integer, refuses what does not fit with 22003,
//! writes a value as text as it shows it to clients: `2024-01-01 10:00:00`, `1e+20`, `1 day`, and reads texts as times
//! in many forms. Arrow cuts, and has forms of its own.
//!
//! Arrays are cast item by item. The casts that differ become functions, those that the planner added too. They are
//! called as the cast is, which is as what is cast.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, Float64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNano, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::functions::encoding::expr_fn::encode;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression, style_of, zone_of};
use tarn_types::{
    DataType as Stored, Enumerated, INFINITE_DAY, INFINITE_US, MINUS_INFINITE_DAY, MINUS_INFINITE_US, Value, Zone,
    data_type_of, is_infinite_us, is_lost_as_real, midnight_us,
};

use super::calendar::{DAY_US, DAYS};
use super::extract::intervals;
use super::filled::is_filled;
use super::inets::{inets_of_texts, texts_of_inets};
use super::infinite_times::finite;
use super::instants::is_in_calendar;
use super::integers::out_of_range;
use super::json::kept_type;
use super::numeric::numbers;
use super::times_of_text::times_of_text;
use crate::digits::Digits;
use crate::error::{SqlError, state};
use crate::rows::{long_name, pg_type, texts};

/// The rule; it runs when types are known.
#[derive(Debug)]
pub(super) struct Casts;

impl AnalyzerRule for Casts {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let is_utc = zone_of(config) == Zone::utc();
        each_expression(plan, |expr, schema| rewritten(expr, schema, is_utc))
    }

    fn name(&self) -> &str {
        "postgres_casts"
    }
}

/// The text of a `uuid` is none any more. Bytes have a length of their own, and in `concat` a truth is a letter. The
/// rule runs before types are made one, which makes texts of both.
#[derive(Debug)]
pub(super) struct TextCastRule;

impl AnalyzerRule for TextCastRule {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, as_texts)
    }

    fn name(&self) -> &str {
        "postgres_texts"
    }
}

fn as_texts(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if let Expr::Cast(Cast { expr: of, field }) = &expr
        && field.data_type().is_string()
        && Enumerated::of(field).is_none()
        && (of.to_field(schema).is_ok_and(|(_, of)| is_kept_as_text(&of) || is_filled(&of))
            || kept_type(of, schema).is_some())
    {
        return Ok(Transformed::yes(CastFunction::call(field.data_type(), of.as_ref().clone())));
    }
    if let Expr::Cast(Cast { expr: of, field }) = &expr
        && matches!(field.data_type(), DataType::Date32 | DataType::Timestamp(..))
        && let Ok(from) = of.get_type(schema)
        && from.is_numeric()
    {
        let name = |of: &DataType| pg_type(&Field::new("", of.clone(), true));
        let message = format!("cannot cast type {} to {}", name(&from)?, name(field.data_type())?);
        return Err(SqlError::new(state::CANNOT_COERCE, message).with_hint("use to_timestamp").into());
    }
    if let Expr::Cast(Cast { expr: of, field }) = &expr
        && field.data_type().is_list()
        && let Ok(from) = of.get_type(schema)
        && (from.is_numeric() || from.is_temporal() || from.is_binary() || from == DataType::Boolean)
    {
        let name = |of: &DataType| pg_type(&Field::new("", of.clone(), true)).map(|of| long_name(&of));
        let message = format!("cannot cast type {} to {}", name(&from)?, name(field.data_type())?);
        return Err(SqlError::new(state::CANNOT_COERCE, message).with_hint("ARRAY[…] is an array of it").into());
    }
    let Expr::ScalarFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let mut is_changed = false;
    if matches!(call.func.name(), "concat" | "concat_ws") {
        for arg in call.args.iter_mut().filter(|arg| matches!(arg.get_type(schema), Ok(DataType::Boolean))) {
            let of = std::mem::replace(arg, Expr::Literal(ScalarValue::Null, None));
            let is_false = of.clone().is_false();
            *arg = when(of, lit("t")).when(is_false, lit("f")).end()?;
            is_changed = true;
        }
    }
    if call.func.name() == "character_length"
        && let Ok(of) = call.args[0].get_type(schema)
        && (of.is_numeric() || of.is_temporal() || of == DataType::Boolean)
    {
        let message = format!("function length({}) does not exist", long_name(&pg_type(&Field::new("", of, true))?));
        return Err(SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("cast it to text").into());
    }
    if call.func.name() == "character_length" && call.args[0].get_type(schema).is_ok_and(|of| of.is_binary()) {
        // Two digits a byte.
        let digits = encode(call.args.swap_remove(0), lit("hex"));
        let length = Expr::ScalarFunction(ScalarFunction::new_udf(call.func, vec![digits]));
        return Ok(Transformed::yes(length / lit(2_i32)));
    }
    let expr = Expr::ScalarFunction(call);
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

fn rewritten(expr: Expr, schema: &DFSchema, is_utc: bool) -> Result<Transformed<Expr>> {
    let Expr::Cast(Cast { expr: of, field }) = expr else { return Ok(Transformed::no(expr)) };
    let to = field.data_type();
    if let Some(float) = float(&of, to) {
        return Ok(Transformed::yes(float));
    }
    let from = of.get_type(schema)?;
    // A number with digits of its own is written with these.
    let has_digits =
        from.is_decimal() && to.is_string() && of.to_field(schema).is_ok_and(|(_, of)| Digits::of(&of).is_some());
    if is_same(&from, to) && !has_digits {
        return Ok(Transformed::no(Expr::Cast(Cast { expr: of, field })));
    }
    let is_session = |of: &DataType| matches!(of, DataType::Timestamp(_, Some(_)));
    let is_of_times = from.is_temporal() && to.is_temporal();
    // Between times, only a zone with clocks of its own is the session's to say.
    Ok(Transformed::yes(match is_of_times && (is_utc || !(is_session(&from) || is_session(to))) {
        true => CastFunction::between_times(to, *of),
        false => CastFunction::call(to, *of),
    }))
}

/// Whether a text is a `uuid`, `json`, `jsonb` or a label by what stands beside its type, which a cast would leave
/// there.
fn is_kept_as_text(field: &Field) -> bool {
    Enumerated::of(field).is_some()
        || data_type_of(field).is_ok_and(|of| matches!(of, Stored::Uuid | Stored::Json | Stored::Jsonb))
}

/// Does Arrow cast so, too?
fn is_same(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Date32, Decimal128, Duration, Float32, Float64, Int16, Int32, Int64, Interval, LargeBinary, LargeList, List,
        Struct, Time32, Time64, Timestamp,
    };
    match to {
        Int16 => !matches!(from, Int32 | Int64 | Float32 | Float64 | Decimal128(..)),
        Int32 => !matches!(from, Int64 | Float32 | Float64 | Decimal128(..)),
        Int64 => !matches!(from, Float32 | Float64 | Decimal128(..)),
        Float32 => !(matches!(from, Float64 | Decimal128(..) | DataType::Decimal256(..)) || from.is_string()),
        // Arrow reads no exponents.
        Decimal128(..) => !(matches!(from, Float32 | Float64) || from.is_string()),
        // Where clocks are put forward, a time is left out, which Arrow refuses; and it has no infinite times.
        Timestamp(_, Some(_)) => !(from.is_string() || matches!(from, Date32 | Timestamp(_, None))),
        Timestamp(_, None) => !(from.is_string() || matches!(from, Date32)),
        Date32 => !(from.is_string() || matches!(from, Timestamp(TimeUnit::Microsecond, _))),
        Time64(_) => !(from.is_string() || matches!(from, Timestamp(TimeUnit::Microsecond, _) | Interval(_))),
        Interval(_) => !(from.is_string() || matches!(from, Duration(_) | Time32(_) | Time64(_))),
        // Arrow rounds twice where a number has more digits than a float.
        Float64 => !(matches!(from, Decimal128(..) | DataType::Decimal256(..)) || from.is_string()),
        LargeBinary => !from.is_string(),
        // Item by item.
        List(to) => !matches!(from, List(from) if !is_same_item(from.data_type(), to.data_type())),
        to if to.is_string() => !matches!(
            from,
            Float32
                | Float64
                | Date32
                | Time32(_)
                | Time64(_)
                | Timestamp(..)
                | Interval(_)
                | Duration(_)
                | LargeBinary
                | List(_)
                | LargeList(_)
                | Struct(_)
        ),
        _ => true,
    }
}

/// Does Arrow cast items so? Texts that are bytes are read elsewhere, by themselves alone.
fn is_same_item(from: &DataType, to: &DataType) -> bool {
    is_same(from, to) && !(from.is_string() && to.is_binary())
}

/// A number that is written with a point or an exponent is exact until it becomes a float; then it is rounded once, by
/// its digits.
fn float(of: &Expr, to: &DataType) -> Option<Expr> {
    let digits = digits_of(of)?;
    let wide: f64 = digits.parse().ok()?;
    let float = match to {
        DataType::Float64 => ScalarValue::Float64(Some(wide)),
        DataType::Float32 => {
            let narrow: f32 = digits.parse().ok()?;
            // That it is out of range is told when it is computed.
            if is_lost_as_real(wide, narrow) {
                return Some(CastFunction::call(to, Expr::Literal(ScalarValue::Float64(Some(wide)), None)));
            }
            ScalarValue::Float32(Some(narrow))
        }
        _ => return None,
    };
    Some(Expr::Literal(float, None))
}

/// Of a number that is written out, with its sign.
fn digits_of(number: &Expr) -> Option<String> {
    match number {
        Expr::Negative(of) => {
            let digits = digits_of(of)?;
            Some(digits.strip_prefix('-').map_or_else(|| format!("-{digits}"), str::to_owned))
        }
        Expr::Literal(value @ (ScalarValue::Decimal128(Some(_), ..) | ScalarValue::Decimal256(Some(_), ..)), _) => {
            match value.cast_to(&DataType::Utf8) {
                Ok(ScalarValue::Utf8(digits)) => digits,
                _ => None,
            }
        }
        _ => None,
    }
}

/// A value as a text, without what stands beside its type.
pub(super) fn as_text(of: Expr, to: &DataType) -> Expr {
    CastFunction::call(to, of)
}

/// A cast, as a function of one value. What instants are as text is the session's to say, what numbers are is not: so a
/// list of columns with such a cast (`nextval('s')` of an integer) is compiled once.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CastFunction {
    to: DataType,
    signature: Signature,
}

impl CastFunction {
    fn call(to: &DataType, of: Expr) -> Expr {
        let volatility = if to.is_numeric() { Volatility::Immutable } else { Volatility::Stable };
        CastFunction::volatile(to, of, volatility)
    }

    /// From one type of times to another, whatever the session says.
    fn between_times(to: &DataType, of: Expr) -> Expr {
        CastFunction::volatile(to, of, Volatility::Immutable)
    }

    fn volatile(to: &DataType, of: Expr, volatility: Volatility) -> Expr {
        let converted = CastFunction { to: to.clone(), signature: Signature::any(1, volatility) };
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(converted)), vec![of]))
    }
}

impl ScalarUDFImpl for CastFunction {
    fn name(&self) -> &str {
        match self.to {
            DataType::Int16 => "int2",
            DataType::Int32 => "int4",
            DataType::Int64 => "int8",
            DataType::Float32 => "float4",
            DataType::Float64 => "float8",
            DataType::Date32 => "date",
            DataType::Time64(_) => "time",
            DataType::Timestamp(_, None) => "timestamp",
            DataType::Timestamp(_, Some(_)) => "timestamptz",
            DataType::Interval(_) => "interval",
            DataType::Decimal128(..) => "numeric",
            DataType::LargeBinary => "inet",
            _ => "text",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        // An infinite time has no time of day. Whether a text is a number is asked before whether it is there.
        let is_read = self.to.is_decimal() && args.arg_fields[0].data_type().is_string();
        let is_nullable = args.arg_fields[0].is_nullable() || is_read || matches!(self.to, DataType::Time64(_));
        Ok(Arc::new(Field::new(self.name(), self.to.clone(), is_nullable)))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args[0].schema_name().to_string())
    }

    fn is_strict(&self) -> bool {
        true
    }

    /// Which times become a time or a day: so blocks are left out by a condition on what a column is cast to.
    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        let ([of], Some(literal)) = (args, literal.as_literal()) else { return Ok(PreimageResult::None) };
        Ok(match becoming(&info.get_data_type(of)?, &self.to, literal) {
            Some((first, end)) => {
                let interval = Box::new(Interval::try_new(first, end)?);
                PreimageResult::Range { expr: of.clone(), interval }
            }
            None => PreimageResult::None,
        })
    }

    /// As `tarn_query::operator_function` says.
    fn evaluate_bounds(&self, _: &[&Interval]) -> Result<Interval> {
        Interval::make_unbounded(&self.to)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [of] = &args.args[..] else { return exec_err!("a cast is of one value") };
        let (values, is_scalar) = match of {
            ColumnarValue::Array(values) => (Arc::clone(values), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        let converted = converted(&values, &self.to, &args.arg_fields[0], &args.config_options)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&converted, 0)?),
            false => ColumnarValue::Array(converted),
        })
    }
}

/// Values of another type; `field` is what they were.
fn converted(values: &ArrayRef, to: &DataType, field: &Field, config: &Arc<ConfigOptions>) -> Result<ArrayRef> {
    if let (DataType::List(item), Some(lists)) = (to, values.as_list_opt::<i32>()) {
        let DataType::List(of) = values.data_type() else { return exec_err!("a list has items") };
        let ends = lists.value_offsets();
        let (first, last) = (ends[0] as usize, ends[lists.len()] as usize);
        let items = lists.values().slice(first, last - first);
        let items = match is_same_item(of.data_type(), item.data_type()) {
            true => cast(&items, item.data_type())?,
            false => converted(&items, item.data_type(), of, config)?,
        };
        let ends: Vec<i32> = ends.iter().map(|end| end - ends[0]).collect();
        let lists = ListArray::try_new(Arc::clone(item), OffsetBuffer::new(ends.into()), items, lists.nulls().cloned());
        return Ok(Arc::new(lists?));
    }
    let texts = || -> Result<ArrayRef> { Ok(cast(&texts(values, field, &style_of(config))?, to)?) };
    Ok(match to {
        DataType::Int16 => integers::<Int16Type>(values, "smallint")?,
        DataType::Int32 => integers::<Int32Type>(values, "integer")?,
        DataType::Int64 => integers::<Int64Type>(values, "bigint")?,
        DataType::Float32 if !values.data_type().is_string() => reals(floats(values)?.as_primitive())?,
        DataType::Float64 if !values.data_type().is_string() => floats(values)?,
        DataType::Decimal128(..) => numbers(values, to)?,
        to if to.is_floating() => floats_of_text(values, to)?,
        DataType::LargeBinary => inets_of_texts(values)?,
        to if to.is_binary() => bytes_of_text(values, to)?,
        DataType::Timestamp(unit, None) if !values.data_type().is_string() => {
            in_unit(&midnights(values)?, &DataType::Timestamp(*unit, None))?
        }
        DataType::Timestamp(unit, Some(zone)) if !values.data_type().is_string() => {
            instants(values, *unit, zone, &zone_of(config))?
        }
        DataType::Interval(_) if !values.data_type().is_string() => Arc::new(intervals(values)?),
        DataType::Date32 if !values.data_type().is_string() => days(values, &zone_of(config))?,
        // Of an interval, what a clock shows so long after midnight; its months and days change nothing.
        DataType::Time64(TimeUnit::Microsecond) if matches!(values.data_type(), DataType::Interval(_)) => {
            let of = |of: IntervalMonthDayNano| (of.nanoseconds / 1_000).rem_euclid(DAY_US);
            Arc::new(intervals(values)?.unary::<_, Time64MicrosecondType>(of))
        }
        to @ DataType::Time64(_) if !values.data_type().is_string() => cast(&finite(values)?.0, to)?,
        to if to.is_temporal() => times_of_text(values, to, config)?,
        to if *values.data_type() == DataType::LargeBinary => cast(&texts_of_inets(values)?, to)?,
        to if is_filled(field) => cast(values, to)?,
        _ => texts()?,
    })
}

/// Floats are rounded half to even, as processors do; numbers with digits half away from zero.
fn integers<T: ArrowPrimitiveType<Native: TryFrom<i128>>>(values: &ArrayRef, name: &str) -> Result<ArrayRef, SqlError> {
    let fits =
        |value: Option<i128>| value.and_then(|value| T::Native::try_from(value).ok()).ok_or_else(|| out_of_range(name));
    let of_float = |float: f64| {
        let whole = float.round_ties_even();
        // Beyond these, no integer of 64 bits is meant, and 128 hold them.
        fits((whole.abs() <= 1e19).then_some(whole as i128))
    };
    Ok(match values.data_type() {
        DataType::Int32 => Arc::new(values.as_primitive::<Int32Type>().try_unary::<_, T, _>(|v| fits(Some(v.into())))?),
        DataType::Int64 => Arc::new(values.as_primitive::<Int64Type>().try_unary::<_, T, _>(|v| fits(Some(v.into())))?),
        DataType::Float32 => {
            Arc::new(values.as_primitive::<Float32Type>().try_unary::<_, T, _>(|v| of_float(v.into()))?)
        }
        DataType::Float64 => Arc::new(values.as_primitive::<Float64Type>().try_unary::<_, T, _>(of_float)?),
        DataType::Decimal128(_, scale) => {
            let unit = 10_i128.pow(scale.unsigned_abs().into());
            let is_whole = *scale <= 0;
            let numbers = values.as_primitive::<Decimal128Type>();
            Arc::new(
                numbers.try_unary::<_, T, _>(|v| {
                    fits(if is_whole { v.checked_mul(unit) } else { Some(rounded(v, unit)) })
                })?,
            )
        }
        other => return Err(SqlError::unsupported(format!("a cast of {other} to {name}"), "cast it to numeric first")),
    })
}

/// When the session's clocks show these dates and times: of a time that is left out, as if they had not been put
/// forward; of one that comes twice, the second.
fn instants(values: &ArrayRef, unit: TimeUnit, name: &Arc<str>, zone: &Zone) -> Result<ArrayRef> {
    let is_date = *values.data_type() == DataType::Date32;
    let shown = match is_date {
        true => midnights(values)?,
        false => cast(values, &DataType::Timestamp(TimeUnit::Microsecond, None))?,
    };
    let out = || match is_date {
        true => beyond_times(),
        false => SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range"),
    };
    let instants = shown
        .as_primitive::<TimestampMicrosecondType>()
        .try_unary::<_, TimestampMicrosecondType, SqlError>(|us| {
            zone.instant(us).filter(|us| is_infinite_us(*us) || is_in_calendar(*us)).ok_or_else(out)
        })?
        .with_timezone(Arc::clone(name));
    in_unit(&(Arc::new(instants) as ArrayRef), &DataType::Timestamp(unit, Some(Arc::clone(name))))
}

/// Times in another unit. What that does not reach is an error, and not NULL.
fn in_unit(times: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    Ok(cast_with_options(times, to, &CastOptions { safe: false, ..CastOptions::default() })?)
}

/// When days begin.
///
/// Errors: `22008`, a day beyond the years of times.
fn midnights(values: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let us =
        |day: i32| midnight_us(day).filter(|us| is_infinite_us(*us) || is_in_calendar(*us)).ok_or_else(beyond_times);
    Ok(Arc::new(values.as_primitive::<Date32Type>().try_unary::<_, TimestampMicrosecondType, SqlError>(us)?))
}

/// On which days the session's clocks show these times.
fn days(values: &ArrayRef, zone: &Zone) -> Result<ArrayRef> {
    let DataType::Timestamp(_, of_zone) = values.data_type() else {
        return exec_err!("a cast of {} to date", values.data_type());
    };
    let is_instant = of_zone.is_some();
    let times = cast(values, &DataType::Timestamp(TimeUnit::Microsecond, of_zone.clone()))?;
    let day = |us: i64| match us {
        MINUS_INFINITE_US => Ok(MINUS_INFINITE_DAY),
        INFINITE_US => Ok(INFINITE_DAY),
        us => {
            let local = if is_instant { zone.local(us) } else { us };
            // Those of 64 bits fit.
            i32::try_from(local.div_euclid(DAY_US))
                .map_err(|_| SqlError::new(state::DATETIME_OVERFLOW, "date out of range"))
        }
    };
    Ok(Arc::new(times.as_primitive::<TimestampMicrosecondType>().try_unary::<_, Date32Type, SqlError>(day)?))
}

/// The first value that a cast makes one of another type of, and the first behind them. `None`: it cannot be told.
///
/// Where no value becomes this one, both are the first that becomes a later one. Instants are shown by clocks of UTC,
/// which show every time once.
fn becoming(from: &DataType, to: &DataType, value: &ScalarValue) -> Option<(ScalarValue, ScalarValue)> {
    use ScalarValue::{Date32, TimestampMicrosecond};
    const MICROSECONDS: TimeUnit = TimeUnit::Microsecond;
    match (from, to, value) {
        (DataType::Date32, DataType::Timestamp(MICROSECONDS, _), TimestampMicrosecond(Some(us), _)) => {
            let (first, end) = match *us {
                INFINITE_US => return None,
                MINUS_INFINITE_US => (MINUS_INFINITE_DAY, MINUS_INFINITE_DAY + 1),
                us => {
                    let day = i32::try_from(us.div_euclid(DAY_US)).ok()?;
                    (if us.rem_euclid(DAY_US) == 0 { day } else { day + 1 }, day + 1)
                }
            };
            Some((Date32(Some(first)), Date32(Some(end))))
        }
        (DataType::Timestamp(MICROSECONDS, zone), DataType::Date32, Date32(Some(day))) => {
            let (first, end) = match *day {
                INFINITE_DAY => return None,
                MINUS_INFINITE_DAY => (MINUS_INFINITE_US, MINUS_INFINITE_US + 1),
                day => (midnight_us(day)?, midnight_us(day.checked_add(1)?)?),
            };
            let is_there = DAYS.contains(&i64::from(*day)) || *day == MINUS_INFINITE_DAY;
            let at = |us| TimestampMicrosecond(Some(us), zone.clone());
            is_there.then(|| (at(first), at(end)))
        }
        (
            DataType::Timestamp(MICROSECONDS, None),
            DataType::Timestamp(MICROSECONDS, Some(_)),
            TimestampMicrosecond(Some(us), Some(_)),
        ) => {
            let at = |us| TimestampMicrosecond(Some(us), None);
            Some((at(*us), at(us.checked_add(1)?)))
        }
        _ => None,
    }
}

fn beyond_times() -> SqlError {
    SqlError::new(state::DATETIME_OVERFLOW, "date out of range for timestamp")
}

/// Numbers as the floats that are nearest to them: a quotient of two floats is where both are exact, and others are
/// read by their digits.
fn floats(values: &ArrayRef) -> Result<ArrayRef> {
    /// A greater power of ten is no float.
    const MOST_DIGITS: u32 = 22;
    if let DataType::Decimal256(..) = values.data_type() {
        let digits = cast(values, &DataType::Utf8)?;
        return Ok(cast(&digits, &DataType::Float64)?);
    }
    let DataType::Decimal128(_, scale) = *values.data_type() else { return Ok(cast(values, &DataType::Float64)?) };
    let unit = u32::try_from(scale).ok().filter(|digits| *digits <= MOST_DIGITS);
    let unit = unit.map(|digits| 10_i128.pow(digits) as f64);
    let float = |number: i128| match unit {
        Some(unit) if number.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS => number as f64 / unit,
        _ => format!("{number}e{}", -i32::from(scale)).parse().expect("digits and an exponent are a float"),
    };
    Ok(Arc::new(values.as_primitive::<Decimal128Type>().unary::<_, Float64Type>(float)))
}

fn reals(values: &Float64Array) -> Result<ArrayRef, SqlError> {
    let real = |wide: f64| {
        let real = wide as f32;
        if !is_lost_as_real(wide, real) {
            return Ok(real);
        }
        let lost = if real.is_infinite() { "overflow" } else { "underflow" };
        Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, format!("value out of range: {lost}")))
    };
    Ok(Arc::new(values.try_unary::<_, Float32Type, _>(real)?))
}

fn floats_of_text(values: &ArrayRef, to: &DataType) -> Result<ArrayRef, SqlError> {
    let (kind, name) = match to {
        DataType::Float32 => (tarn_types::DataType::Float32, "real"),
        _ => (tarn_types::DataType::Float64, "double precision"),
    };
    let texts = cast(values, &DataType::Utf8)?;
    let float = |text: &str| match Value::parse(&kind, text) {
        Ok(Value::Float32(float)) => Ok(f64::from(float)),
        Ok(Value::Float64(float)) => Ok(float),
        _ if text.trim().parse::<f64>().is_ok() => {
            let message = format!("\"{text}\" is out of range for type {name}");
            Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, message))
        }
        _ => Err(SqlError::new(state::INVALID_TEXT, format!("invalid input syntax for type {name}: \"{text}\""))),
    };
    let floats = texts.as_string::<i32>().iter().map(|text| text.map(float).transpose());
    Ok(cast(&floats.collect::<Result<Float64Array, _>>()?, to)?)
}

fn bytes_of_text(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let texts = cast(values, &DataType::Utf8)?;
    let mut all = BinaryBuilder::new();
    for text in texts.as_string::<i32>() {
        match text.map(|text| Value::parse(&Stored::Bytes, text)).transpose().map_err(SqlError::from)? {
            Some(Value::Bytes(bytes)) => all.append_value(bytes),
            _ => all.append_null(),
        }
    }
    Ok(cast(&all.finish(), to)?)
}

fn rounded(value: i128, unit: i128) -> i128 {
    let (whole, rest) = (value / unit, value % unit);
    let is_up = rest.unsigned_abs() * 2 >= unit.unsigned_abs();
    whole + i128::from(is_up) * value.signum()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Int32Array, Int64Array};

    use super::*;

    #[test]
    fn a_day_becomes_its_midnight_and_times_their_day() {
        let (day, at) = (|day| ScalarValue::Date32(Some(day)), |us| ScalarValue::TimestampMicrosecond(Some(us), None));
        let bare = DataType::Timestamp(TimeUnit::Microsecond, None);
        let of_time = |us| becoming(&DataType::Date32, &bare, &at(us));
        assert_eq!(of_time(DAY_US), Some((day(1), day(2))));
        // No day is 1970-01-01 00:00:00.000001: the first that is later is the next.
        assert_eq!(of_time(1), Some((day(1), day(1))));
        assert_eq!(of_time(-1), Some((day(0), day(0))));
        assert_eq!(of_time(i64::MIN), Some((day(i32::MIN), day(i32::MIN + 1))));
        assert_eq!(of_time(i64::MAX), None);
        let of_day = |of| becoming(&bare, &DataType::Date32, &day(of));
        assert_eq!(of_day(-1), Some((at(-DAY_US), at(0))));
        assert_eq!([of_day(i32::MAX), of_day(i32::MAX - 1)], [None, None]);
    }

    #[test]
    fn integers_are_rounded_and_fit() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![Some(2.5), Some(3.5), Some(-2.5), None]));
        let of = integers::<Int32Type>(&floats, "integer").unwrap();
        assert_eq!(of.as_primitive::<Int32Type>(), &Int32Array::from(vec![Some(2), Some(4), Some(-2), None]));
        let numbers = Decimal128Array::from(vec![250, 349, -250]).with_precision_and_scale(5, 2).unwrap();
        let of = integers::<Int64Type>(&(Arc::new(numbers) as ArrayRef), "bigint").unwrap();
        assert_eq!(of.as_primitive::<Int64Type>(), &Int64Array::from(vec![3, 3, -3]));
        for beyond in [2_147_483_647.5, f64::NAN, f64::INFINITY, -1e300] {
            let beyond: ArrayRef = Arc::new(Float64Array::from(vec![beyond]));
            assert_eq!(integers::<Int32Type>(&beyond, "integer").unwrap_err().state(), state::NUMERIC_OUT_OF_RANGE);
        }
        let long: ArrayRef = Arc::new(Int64Array::from(vec![40_000]));
        assert!(integers::<Int16Type>(&long, "smallint").is_err() && integers::<Int32Type>(&long, "integer").is_ok());
    }
}
