//! Literal coercion: is `'5F0C…'` the UUID that is stored as `'5f0c…'`, and `'2026-11-01 07:00Z'` a time? A text beside
//! a column is read as that column's type.
//!
//! Postgres takes more forms of a literal than DataFusion's casts: UUIDs in upper case, in braces or without hyphens,
//! times without seconds. So that every access path answers alike, literals are brought into canonical form, by the
//! parser that reads the values that are written, before anything else looks at them.
//!
//! And `0.5` beside a floating-point value is a floating-point number. DataFusion would make decimals of both, which
//! NaN, 1e300 and the sixteenth digit are not.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_types::{DataType, Style, Value, data_type_of};

use crate::rewrite::each_expression;
use crate::style;
use crate::values::to_scalar;

/// Rewrites text literals that are compared with columns, or cast, where values of their type can be written in several
/// ways.
#[derive(Debug)]
pub(crate) struct LiteralCoercion;

impl AnalyzerRule for LiteralCoercion {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let style = style::of_config(config);
        each_expression(plan, |expr, schema| Ok(coerced(expr, schema, &style)))
    }

    fn name(&self) -> &str {
        "canonical_spellings"
    }
}

fn coerced(mut expr: Expr, schema: &DFSchema, style: &Style) -> Transformed<Expr> {
    if let Some(instant) = instant(&expr, style) {
        return Transformed::yes(instant);
    }
    let changed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            like(left, right, schema, style) || like(right, left, schema, style)
        }
        Expr::Between(between) => {
            like(&between.expr, &mut between.low, schema, style) | like(&between.expr, &mut between.high, schema, style)
        }
        Expr::InList(list) => {
            list.list.iter_mut().fold(false, |changed, item| changed | like(&list.expr, item, schema, style))
        }
        Expr::Cast(cast) => match cast.field.data_type() {
            ArrowType::Timestamp(_, None) => canonical(&mut cast.expr, DataType::Timestamp, style),
            _ => false,
        },
        _ => false,
    };
    if changed { Transformed::yes(expr) } else { Transformed::no(expr) }
}

/// `TIMESTAMPTZ '…'` as the instant that it is. Of texts without an offset, what the session's clocks show.
fn instant(expr: &Expr, style: &Style) -> Option<Expr> {
    let Expr::Cast(cast) = expr else { return None };
    let ArrowType::Timestamp(unit, Some(shown)) = cast.field.data_type() else { return None };
    let Expr::Literal(text, _) = cast.expr.as_ref() else { return None };
    let Ok(Value::Timestamp(us)) = Value::parse_in(&DataType::TimestampTz, text.try_as_str()??, style) else {
        return None;
    };
    let instant = Expr::Literal(ScalarValue::TimestampMicrosecond(Some(us), Some(Arc::clone(shown))), None);
    match unit {
        // Microseconds are all that tables keep, and reach farther.
        TimeUnit::Microsecond | TimeUnit::Nanosecond => Some(instant),
        TimeUnit::Second | TimeUnit::Millisecond => {
            Some(Expr::Cast(Cast { expr: Box::new(instant), field: Arc::clone(&cast.field) }))
        }
    }
}

/// Reads a literal as what it is compared with. Whether that changed it.
fn like(other: &Expr, literal: &mut Expr, schema: &DFSchema, style: &Style) -> bool {
    if !matches!(literal, Expr::Literal(..) | Expr::Negative(_) | Expr::Cast(_)) || matches!(other, Expr::Literal(..)) {
        return false;
    }
    match of_column(other, schema) {
        Some(DataType::Time) => time(literal),
        Some(data_type) => canonical(literal, data_type, style),
        None => other.get_type(schema).is_ok_and(|of| of.is_floating()) && float(literal),
    }
}

/// Whether it was a time of day, as text or as `TIME '…'`. Columns count microseconds, DataFusion's literals
/// nanoseconds, and it compares the two with nothing.
fn time(literal: &mut Expr) -> bool {
    let text = match &*literal {
        Expr::Cast(cast) if matches!(cast.field.data_type(), ArrowType::Time64(_)) => &cast.expr,
        plain => plain,
    };
    let Expr::Literal(scalar, _) = text else { return false };
    let Some(Value::Time(us)) = scalar.try_as_str().flatten().and_then(|text| Value::parse(&DataType::Time, text).ok())
    else {
        return false;
    };
    *literal = Expr::Literal(ScalarValue::Time64Microsecond(Some(us)), None);
    true
}

/// Whether it was a decimal.
fn float(literal: &mut Expr) -> bool {
    match literal {
        Expr::Negative(inner) => float(inner),
        Expr::Literal(scalar, _) if scalar.data_type().is_decimal() => {
            // By its digits: they are rounded once.
            let Ok(ScalarValue::Utf8(Some(digits))) = scalar.cast_to(&ArrowType::Utf8) else { return false };
            let Ok(float) = digits.parse() else { return false };
            *scalar = ScalarValue::Float64(Some(float));
            true
        }
        _ => false,
    }
}

/// The type of a column, where its values can be written in several ways.
fn of_column(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    let Expr::Column(column) = expr else { return None };
    let data_type = data_type_of(schema.field_from_column(column).ok()?).ok()?;
    let several = [DataType::Uuid, DataType::Date, DataType::Time, DataType::Timestamp, DataType::TimestampTz];
    several.contains(&data_type).then_some(data_type)
}

/// Whether the literal was a value, written in another way than the canonical one. A text that is no value stays:
/// DataFusion says what it makes of it.
fn canonical(expr: &mut Expr, data_type: DataType, style: &Style) -> bool {
    let Expr::Literal(
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)),
        _,
    ) = expr
    else {
        return false;
    };
    let Ok(value) = Value::parse_in(&data_type, text, style) else { return false };
    if data_type == DataType::TimestampTz
        && let Some(literal) = to_scalar(&value, &data_type)
    {
        *expr = Expr::Literal(literal, None);
        return true;
    }
    let canonical = value.to_display(&data_type);
    // Casts know no years before Christ, however they are written.
    let changed = canonical != *text && !canonical.ends_with(" BC");
    if changed {
        *text = canonical;
    }
    changed
}
