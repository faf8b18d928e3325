//! Which casts are to rows, which calls ask for a field of one, and which for a text? They become what `convert` and
//! `populate` make of them.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression};

use super::convert::{RowCast, has_rows, type_of};
use super::function::{field, place};
use super::populate;
use crate::postgres::cast_calls::TEXT;
use crate::postgres::row_access::FIELD;

/// The rule.
#[derive(Debug)]
pub(super) struct RowCasts;

impl AnalyzerRule for RowCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, rewritten)
    }

    fn name(&self) -> &str {
        "postgres_row_casts"
    }
}

fn rewritten(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Cast(Cast { expr: of, field }) if has_rows(field.data_type()) => {
            RowCast { schema, is_input: false }.cast(*of, &field).map(Transformed::yes)
        }
        Expr::ScalarFunction(call) if call.func.name() == FIELD => {
            let [row, Expr::Literal(name, _)] = &call.args[..] else {
                return Ok(Transformed::no(Expr::ScalarFunction(call)));
            };
            let Some(name) = name.try_as_str().flatten() else {
                return Ok(Transformed::no(Expr::ScalarFunction(call)));
            };
            let at = place(&type_of(row, schema)?, name)?;
            Ok(Transformed::yes(field(row, at)))
        }
        Expr::ScalarFunction(call) if call.func.name() == TEXT => {
            let of = call.args.into_iter().map(|of| Expr::Cast(Cast::new(Box::new(of), DataType::Utf8)));
            Ok(Transformed::yes(of.last().unwrap_or(Expr::Literal(ScalarValue::Null, None))))
        }
        Expr::ScalarFunction(call) => populate::written_out(call, schema),
        other => Ok(Transformed::no(other)),
    }
}
