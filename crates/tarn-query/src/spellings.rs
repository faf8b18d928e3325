//! Is `'5F0C…'` the UUID that is stored as `'5f0c…'`, and `'2026-11-01 07:00Z'` a time? A text beside a column is read as that column's type.
//!
//! Postgres takes more spellings than DataFusion's casts: UUIDs in upper case, in braces or without hyphens, times without seconds. So
//! that every access path answers alike, literals are brought into canonical form, by the parser that reads the values that are
//! written, before anything else looks at them.
//!
//! And `0.5` beside a floating-point value is a floating-point number. DataFusion would make decimals of both, which NaN, 1e300 and the
//! sixteenth digit are not.

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_types::{DataType, Value, data_type_of};

use crate::rewrite::each_expression;

/// Rewrites text literals that are compared with columns, or cast, where their type has several spellings.
#[derive(Debug)]
pub(crate) struct CanonicalSpellings;

impl AnalyzerRule for CanonicalSpellings {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| Ok(spelled(expr, schema)))
    }

    fn name(&self) -> &str {
        "canonical_spellings"
    }
}

fn spelled(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let changed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            like(left, right, schema) || like(right, left, schema)
        }
        Expr::Between(between) => {
            like(&between.expr, &mut between.low, schema) | like(&between.expr, &mut between.high, schema)
        }
        Expr::InList(list) => {
            list.list.iter_mut().fold(false, |changed, item| changed | like(&list.expr, item, schema))
        }
        Expr::Cast(cast) => match cast.field.data_type() {
            ArrowType::Timestamp(_, None) => canonical(&mut cast.expr, DataType::Timestamp),
            ArrowType::Timestamp(_, Some(_)) => canonical(&mut cast.expr, DataType::TimestampTz),
            _ => false,
        },
        _ => false,
    };
    if changed { Transformed::yes(expr) } else { Transformed::no(expr) }
}

/// Reads a literal as what it is compared with. Whether that changed it.
fn like(other: &Expr, literal: &mut Expr, schema: &DFSchema) -> bool {
    if !matches!(literal, Expr::Literal(..) | Expr::Negative(_) | Expr::Cast(_)) || matches!(other, Expr::Literal(..)) {
        return false;
    }
    match of_column(other, schema) {
        Some(DataType::Time) => time(literal),
        Some(data_type) => canonical(literal, data_type),
        None => other.get_type(schema).is_ok_and(|of| of.is_floating()) && float(literal),
    }
}

/// Whether it was a time of day, as text or as `TIME '…'`. Columns count microseconds, DataFusion's literals nanoseconds, and it compares
/// the two with nothing.
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

/// The type of a column, where it has several spellings.
fn of_column(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    let Expr::Column(column) = expr else { return None };
    let data_type = data_type_of(schema.field_from_column(column).ok()?).ok()?;
    let several = [DataType::Uuid, DataType::Date, DataType::Time, DataType::Timestamp, DataType::TimestampTz];
    several.contains(&data_type).then_some(data_type)
}

/// Whether the literal was a value in another spelling. A text that is no value stays: DataFusion says what it makes of it.
fn canonical(expr: &mut Expr, data_type: DataType) -> bool {
    let Expr::Literal(
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)),
        _,
    ) = expr
    else {
        return false;
    };
    let Ok(value) = Value::parse(&data_type, text) else { return false };
    let canonical = value.to_display(&data_type);
    // Casts know no years before Christ, in whatever spelling.
    let changed = canonical != *text && !canonical.ends_with(" BC");
    if changed {
        *text = canonical;
    }
    changed
}
