//! Is `'5F0C…'` the UUID that is stored as `'5f0c…'`? Compared with a UUID column, a text is read as a UUID.
//!
//! UUIDs are kept as canonical text. Postgres takes other spellings (upper case, braces, no hyphens) in a comparison; so that every
//! access path answers alike, literals are brought into canonical form before anything else looks at them.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_types::{DataType, Value, data_type_of};

use crate::rewrite::each_expression;

/// Rewrites text literals that are compared with UUID columns.
#[derive(Debug)]
pub(crate) struct CanonicalUuids;

impl AnalyzerRule for CanonicalUuids {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| Ok(comparison(expr, schema)))
    }

    fn name(&self) -> &str {
        "canonical_uuids"
    }
}

fn comparison(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let changed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            (is_uuid(left, schema) && canonical(right)) || (is_uuid(right, schema) && canonical(left))
        }
        Expr::Between(between) if is_uuid(&between.expr, schema) => {
            canonical(&mut between.low) | canonical(&mut between.high)
        }
        Expr::InList(list) if is_uuid(&list.expr, schema) => {
            list.list.iter_mut().fold(false, |changed, item| changed | canonical(item))
        }
        _ => false,
    };
    if changed { Transformed::yes(expr) } else { Transformed::no(expr) }
}

fn is_uuid(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Column(column) => {
            schema.field_from_column(column).is_ok_and(|field| matches!(data_type_of(field), Ok(DataType::Uuid)))
        }
        _ => false,
    }
}

/// Whether the literal was a UUID in another spelling. A text that is no UUID stays: it equals none.
fn canonical(expr: &mut Expr) -> bool {
    let Expr::Literal(
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)),
        _,
    ) = expr
    else {
        return false;
    };
    match Value::parse(&DataType::Uuid, text) {
        Ok(Value::Uuid(canonical)) if canonical != *text => {
            *text = canonical;
            true
        }
        _ => false,
    }
}
