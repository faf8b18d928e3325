//! How far does a window's frame reach? `RANGE BETWEEN '1 year'::interval PRECEDING AND '1 month' FOLLOWING`, `RANGE
//! 1.5::numeric PRECEDING`, `ROWS '2' PRECEDING`. The planner knows numbers and intervals that are written out, and
//! asks nothing of their types.
//!
//! So the types that offsets are written with stand before them when a statement is planned (`interval 12 months 0 days
//! …`), and where types are known the rule here makes values of the column's of them. As in PostgreSQL, the type of an
//! offset is one that the column's type is counted in, and no offset is negative.
//!
//! DataFusion knows ranges of few types. A time of day is ordered by its microseconds; of bytes and rows, where there
//! are no offsets, ranges are groups.
//!
//! Refused is what DataFusion would count otherwise: an infinite offset, hours of dates, digits that a numeric column
//! has not, and days of instants where the session is in no zone of days of 24 hours.

use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Cast, Expr as Planned, ExprSchemable, LogicalPlan, WindowFrameBound as Bound, WindowFrameUnits as Units,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::sqlparser::ast::{
    self, Expr, Function, NamedWindowExpr, OrderBy, Select, UnaryOperator, Value, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowSpec, WindowType,
};
use tarn_query::{datafusion, each_expression, zone_of};
use tarn_types::Zone;

use super::calls::each_outside_queries;
use super::interval_types;
use super::times_of_text::interval_of;
use crate::error::{Result, SqlError, state};
use crate::rows::{long_name, pg_type};

const DAY_NS: i64 = 86_400_000_000_000;

/// Of which type an offset is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OffsetType {
    Unknown,
    Integer,
    Numeric,
    Float,
    Interval,
}

impl OffsetType {
    const ALL: [OffsetType; 5] =
        [OffsetType::Unknown, OffsetType::Integer, OffsetType::Numeric, OffsetType::Float, OffsetType::Interval];

    fn name(self) -> &'static str {
        match self {
            OffsetType::Unknown => "unknown",
            OffsetType::Integer => "integer",
            OffsetType::Numeric => "numeric",
            OffsetType::Float => "double precision",
            OffsetType::Interval => "interval",
        }
    }

    fn of(data_type: &ast::DataType) -> Option<OffsetType> {
        use ast::DataType as Of;
        Some(match data_type {
            Of::SmallInt(None) | Of::Int2(None) | Of::Int(None) | Of::Integer(None) | Of::Int4(None) => {
                OffsetType::Integer
            }
            Of::BigInt(None) | Of::Int8(None) => OffsetType::Integer,
            Of::Numeric(ast::ExactNumberInfo::None) | Of::Decimal(ast::ExactNumberInfo::None) => OffsetType::Numeric,
            Of::Float8 | Of::DoublePrecision | Of::Float4 | Of::Real => OffsetType::Float,
            Of::Interval { .. } => OffsetType::Interval,
            _ => return None,
        })
    }
}

/// Writes the offsets of one SELECT's frames, and of its WINDOW, as the planner reads them. Copies are written out
/// before.
///
/// Errors: `42P20` for a frame that its window has not the order for; `22013` for a negative number of rows; as reading
/// an interval.
pub(super) fn write_out(select: &mut Select, order_by: Option<&mut OrderBy>) -> Result<()> {
    for window in &mut select.named_window {
        if let NamedWindowExpr::WindowSpec(spec) = &mut window.1 {
            write(spec)?;
        }
    }
    let mut written = Ok(());
    let mut each = |expr: &mut Expr| {
        if let Expr::Function(Function { over: Some(WindowType::WindowSpec(spec)), .. }) = expr
            && written.is_ok()
        {
            written = write(spec);
        }
    };
    each_outside_queries(&mut select.projection, &mut each);
    if let Some(order_by) = order_by {
        each_outside_queries(order_by, &mut each);
    }
    written
}

fn write(spec: &mut WindowSpec) -> Result<()> {
    let Some(WindowFrame { units, start_bound, end_bound }) = &mut spec.window_frame else { return Ok(()) };
    let mut offsets = [Some(start_bound), end_bound.as_mut()].into_iter().flatten().filter_map(|bound| match bound {
        WindowFrameBound::Preceding(Some(offset)) | WindowFrameBound::Following(Some(offset)) => Some(offset.as_mut()),
        _ => None,
    });
    match units {
        // A window that is copied has its order by now.
        WindowFrameUnits::Groups if spec.order_by.is_empty() => {
            Err(SqlError::new(state::WINDOWING, "GROUPS mode requires an ORDER BY clause"))
        }
        WindowFrameUnits::Rows | WindowFrameUnits::Groups => offsets.try_for_each(rows),
        WindowFrameUnits::Range => {
            let mut n_offsets = 0;
            for offset in offsets {
                range(offset)?;
                n_offsets += 1;
            }
            match n_offsets > 0 && spec.order_by.len() != 1 {
                true => {
                    let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
                    Err(SqlError::new(state::WINDOWING, message))
                }
                false => Ok(()),
            }
        }
    }
}

/// A number of rows or groups.
fn rows(offset: &mut Expr) -> Result<()> {
    let Some((OffsetType::Unknown | OffsetType::Integer, text)) = constant(offset) else { return Ok(()) };
    if text.trim_start().starts_with('-') {
        return Err(SqlError::new(state::INVALID_FRAME_OFFSET, "frame offset must not be negative"));
    }
    *offset = number(text);
    Ok(())
}

fn range(offset: &mut Expr) -> Result<()> {
    if let Some((of, text)) = constant(offset) {
        *offset = number(format!("{} {text}", of.name()));
        return Ok(());
    }
    let mut inner = std::mem::replace(offset, Expr::Value(Value::Null.with_empty_span()));
    while let Expr::Nested(nested) = inner {
        inner = *nested;
    }
    interval_types::rewrite(&mut inner)?;
    if let Expr::Interval(interval) = &inner
        && let Expr::Value(value) = interval.value.as_ref()
        && let Value::SingleQuotedString(text) = &value.value
    {
        inner = number(format!("{} {text}", OffsetType::Interval.name()));
    }
    *offset = inner;
    Ok(())
}

/// The type and the text of an offset that is written out; those of intervals are read by their fields elsewhere.
fn constant(offset: &Expr) -> Option<(OffsetType, String)> {
    let of_number = |digits: &str| match digits.contains(['.', 'e', 'E']) {
        true => OffsetType::Numeric,
        false => OffsetType::Integer,
    };
    match offset {
        Expr::Nested(inner) => constant(inner),
        Expr::Value(value) => match &value.value {
            // It may have been written out already.
            Value::Number(digits, false) if !digits.contains(' ') => Some((of_number(digits), digits.clone())),
            Value::SingleQuotedString(text) => Some((OffsetType::Unknown, text.clone())),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match constant(expr)? {
            (of @ (OffsetType::Integer | OffsetType::Numeric), digits) => Some((of, format!("-{digits}"))),
            _ => None,
        },
        Expr::Cast { expr, data_type, .. } => {
            let to = OffsetType::of(data_type).filter(|to| *to != OffsetType::Interval)?;
            match constant(expr)? {
                (OffsetType::Unknown, text) => Some((to, text)),
                (from, text) if from == to || from == OffsetType::Integer => Some((to, text)),
                (OffsetType::Numeric, text) if to == OffsetType::Float => Some((to, text)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn number(text: String) -> Expr {
    Expr::Value(Value::Number(text, false).with_empty_span())
}

/// Makes values of the offsets of `RANGE`. It runs before types are made one.
#[derive(Debug)]
pub(super) struct FrameOffsets;

impl AnalyzerRule for FrameOffsets {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> PlanResult<LogicalPlan> {
        let has_even_days = zone_of(config) == Zone::utc();
        each_expression(plan, |expr, schema| match expr {
            Planned::WindowFunction(mut call) => match values(&mut call, schema, has_even_days)? {
                true => Ok(Transformed::yes(Planned::WindowFunction(call))),
                false => Ok(Transformed::no(Planned::WindowFunction(call))),
            },
            other => Ok(Transformed::no(other)),
        })
    }

    fn name(&self) -> &str {
        "frame_offsets"
    }
}

/// Whether there was one, or a range is another.
fn values(call: &mut WindowFunction, schema: &DFSchema, has_even_days: bool) -> PlanResult<bool> {
    let params = &mut call.params;
    let frame = &mut params.window_frame;
    let Some(key) = params.order_by.first_mut().filter(|_| frame.units == Units::Range) else { return Ok(false) };
    let column = key.expr.get_type(schema)?;
    let (mut is_changed, mut has_offsets) = (false, false);
    for bound in [&mut frame.start_bound, &mut frame.end_bound] {
        let (Bound::Preceding(offset) | Bound::Following(offset)) = bound else { continue };
        has_offsets |= !offset.is_null();
        if let ScalarValue::Utf8(Some(text)) = &*offset {
            *offset = value(text, &column, has_even_days)?;
            is_changed = true;
        }
    }
    match column {
        DataType::Time64(TimeUnit::Microsecond) => {
            let time = std::mem::replace(&mut key.expr, Planned::Literal(ScalarValue::Null, None));
            key.expr = Planned::Cast(Cast::new(Box::new(time), DataType::Int64));
            is_changed = true;
        }
        of if !has_offsets && (of.is_binary() || matches!(of, DataType::Struct(_))) => {
            frame.units = Units::Groups;
            is_changed = true;
        }
        _ => {}
    }
    Ok(is_changed)
}

fn value(text: &str, column: &DataType, has_even_days: bool) -> Result<ScalarValue> {
    let said = OffsetType::ALL.iter().find_map(|of| Some((*of, text.strip_prefix(of.name())?.strip_prefix(' ')?)));
    let (of, text) = said.unwrap_or((OffsetType::Unknown, text));
    let invalid =
        || SqlError::new(state::INVALID_FRAME_OFFSET, "invalid preceding or following size in window function");
    let refused = |what: &str, remedy: &str| {
        Err(SqlError::unsupported(format!("{what} as an offset of a window's frame is not supported"), remedy))
    };
    let beyond = || refused("a number that the column's type has not", "a cast of the column to bigint");
    // A number is read by the planner, when it knows the type that the column has in the end.
    let plain = |digits: &str| ScalarValue::Utf8(Some(digits.trim().to_owned()));
    let no_text = |data_type: &str| {
        let message = format!("invalid input syntax for type {data_type}: \"{text}\"");
        SqlError::new(state::INVALID_TEXT, message)
    };
    match (column, of) {
        (DataType::Int16 | DataType::Int32 | DataType::Int64, OffsetType::Integer | OffsetType::Unknown) => {
            let offset: i64 = text.trim().parse().map_err(|_| no_text("bigint"))?;
            if offset < 0 {
                return Err(invalid());
            }
            match column {
                DataType::Int16 if offset > i64::from(i16::MAX) => beyond(),
                DataType::Int32 if offset > i64::from(i32::MAX) => beyond(),
                _ => Ok(plain(text)),
            }
        }
        (DataType::Float32 | DataType::Float64, OffsetType::Interval) => Err(none(column, of)),
        (DataType::Float32 | DataType::Float64, _) => {
            let offset: f64 = text.trim().parse().map_err(|_| no_text("double precision"))?;
            match offset {
                offset if offset.is_nan() || offset < 0.0 => Err(invalid()),
                offset if offset.is_infinite() => refused("infinity", "UNBOUNDED PRECEDING or UNBOUNDED FOLLOWING"),
                _ => Ok(plain(text)),
            }
        }
        (DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale), _)
            if !matches!(of, OffsetType::Float | OffsetType::Interval) =>
        {
            let digits = text.trim();
            let is_number = digits.parse::<f64>();
            match is_number {
                Ok(number) if number.is_nan() || number < 0.0 => return Err(invalid()),
                Ok(number) if number.is_infinite() => {
                    return refused("infinity", "UNBOUNDED PRECEDING or UNBOUNDED FOLLOWING");
                }
                Ok(_) => {}
                Err(_) => return Err(no_text("numeric")),
            }
            let n_digits = digits.split_once('.').map_or(0, |(_, fraction)| fraction.trim_end_matches('0').len());
            if digits.contains(['e', 'E']) || n_digits as i64 > i64::from(*scale) {
                return refused(
                    "a number of more digits than the column has",
                    "a cast of the column to double precision",
                );
            }
            Ok(plain(if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }))
        }
        (DataType::Date32 | DataType::Timestamp(..), OffsetType::Interval | OffsetType::Unknown) => {
            let offset = match of {
                OffsetType::Interval => read(text).ok_or_else(|| no_text("interval"))?,
                _ => interval_of(text, None, None)?,
            };
            if sign(&offset) < 0 {
                return Err(invalid());
            }
            if column == &DataType::Date32 && offset.nanoseconds % DAY_NS != 0 {
                return refused("an interval of hours with dates", "a cast of the column to timestamp");
            }
            let of_days = offset.months != 0 || offset.days != 0;
            if matches!(column, DataType::Timestamp(_, Some(_))) && of_days && !has_even_days {
                return refused(
                    "an interval of days with times that have a zone, in a session that is not in UTC,",
                    "an interval of hours",
                );
            }
            Ok(ScalarValue::IntervalMonthDayNano(Some(offset)))
        }
        // Of its parts, hours alone are counted.
        (DataType::Time64(TimeUnit::Microsecond), OffsetType::Interval | OffsetType::Unknown) => {
            let offset = match of {
                OffsetType::Interval => read(text).ok_or_else(|| no_text("interval"))?,
                _ => interval_of(text, None, None)?,
            };
            match offset.nanoseconds {
                ..0 => Err(invalid()),
                ns => Ok(plain(&(ns / 1_000).to_string())),
            }
        }
        _ => Err(none(column, of)),
    }
}

/// There is no such offset.
fn none(column: &DataType, of: OffsetType) -> SqlError {
    let beside = match of {
        OffsetType::Unknown => String::new(),
        of => format!(" and offset type {}", of.name()),
    };
    let field = Field::new("", column.clone(), true);
    let column = pg_type(&field).map_or_else(|_| column.to_string(), |of| long_name(&of));
    let message = format!("RANGE with offset PRECEDING/FOLLOWING is not supported for column type {column}{beside}");
    SqlError::new(state::FEATURE_NOT_SUPPORTED, message).with_hint("cast the offset value to an appropriate type")
}

/// An interval as `interval_types` writes it: `12 months 0 days 0 microseconds`.
fn read(text: &str) -> Option<IntervalMonthDayNano> {
    let mut words = text.split(' ').step_by(2);
    let (months, days, us) = (words.next()?, words.next()?, words.next()?);
    let nanoseconds = us.parse::<i64>().ok()?.checked_mul(1_000)?;
    Some(IntervalMonthDayNano::new(months.parse().ok()?, days.parse().ok()?, nanoseconds))
}

/// Of months of 30 days.
fn sign(of: &IntervalMonthDayNano) -> i128 {
    let days = i128::from(of.months) * 30 + i128::from(of.days);
    (days * i128::from(DAY_NS) + i128::from(of.nanoseconds)).signum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_of_types_that_columns_are_counted_in() {
        let at = DataType::Timestamp(TimeUnit::Microsecond, None);
        let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let code = |text: &str, column: &DataType| value(text, column, false).err().map(|error| error.state());
        for (text, column) in [
            ("integer 2", &DataType::Int32),
            ("unknown 2", &DataType::Int16),
            ("numeric 1.5", &DataType::Float64),
            ("double precision 1.1", &DataType::Float32),
            ("numeric 1.10", &DataType::Decimal128(10, 1)),
            ("interval 12 months 0 days 0 microseconds", &DataType::Date32),
            ("unknown 70 min", &at),
            ("unknown 70 min", &DataType::Time64(TimeUnit::Microsecond)),
            ("unknown 70 min", &instant),
        ] {
            assert_eq!(code(text, column), None, "{text}");
        }
        for (text, column, expected) in [
            ("numeric 1.5", &DataType::Int32, state::FEATURE_NOT_SUPPORTED),
            ("integer 1", &DataType::Date32, state::FEATURE_NOT_SUPPORTED),
            ("double precision 1", &DataType::Decimal128(10, 1), state::FEATURE_NOT_SUPPORTED),
            ("numeric 1.15", &DataType::Decimal128(10, 1), state::FEATURE_NOT_SUPPORTED),
            ("unknown inf", &DataType::Float64, state::FEATURE_NOT_SUPPORTED),
            ("unknown NaN", &DataType::Float64, state::INVALID_FRAME_OFFSET),
            ("integer -1", &DataType::Int64, state::INVALID_FRAME_OFFSET),
            ("unknown -2 years", &at, state::INVALID_FRAME_OFFSET),
            ("unknown 1 hour", &DataType::Date32, state::FEATURE_NOT_SUPPORTED),
            ("unknown 1 day", &instant, state::FEATURE_NOT_SUPPORTED),
            ("unknown x", &DataType::Int64, state::INVALID_TEXT),
            ("integer 1", &DataType::Utf8, state::FEATURE_NOT_SUPPORTED),
            ("integer 70000", &DataType::Int16, state::FEATURE_NOT_SUPPORTED),
        ] {
            assert_eq!(code(text, column), Some(expected), "{text}");
        }
        assert_eq!(value("integer 2", &DataType::Int16, false).unwrap(), ScalarValue::from("2"));
        assert_eq!(value("numeric 1.10", &DataType::Decimal128(10, 1), false).unwrap(), ScalarValue::from("1.1"));
    }
}
