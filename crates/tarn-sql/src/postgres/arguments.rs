//! What does a function make of the types of its arguments, where DataFusion makes something else of them? `nullif(1,
//! 2::bigint)` is an `integer`, as the first of the two, and `nullif(1, 2::real)` a `double precision`; functions of
//! times are NULL of NULL, before anything else is wrong with an argument.
//!
//! One rule looks at all of them.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, lit, when};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression};

/// Functions that look at their arguments before they look for NULL.
const STRICT: [&str; 4] = ["date_bin", "date_trunc", "timezone", "to_local_time"];

/// The rule; it runs before types are made one.
#[derive(Debug)]
pub(super) struct Arguments;

impl AnalyzerRule for Arguments {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, rewritten)
    }

    fn name(&self) -> &str {
        "postgres_arguments"
    }
}

fn rewritten(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
    if STRICT.contains(&call.name()) && call.args.iter().any(is_null) {
        // Asked of NULL first, as all that is strict: what else is wrong with it is nobody's concern.
        return Ok(match expr.get_type(schema) {
            Ok(of) => Transformed::yes(lit(ScalarValue::try_from(&of)?)),
            Err(_) => Transformed::no(expr),
        });
    }
    match (call.name(), &call.args[..]) {
        ("nullif", [value, other]) => {
            let (Ok(of), Ok(by)) = (value.get_type(schema), other.get_type(schema)) else {
                return Ok(Transformed::no(expr));
            };
            let is_number = |of: &DataType| of.is_integer() || of.is_decimal();
            let double = |of: &Expr| Expr::Cast(Cast::new(Box::new(of.clone()), DataType::Float64));
            // Beside a float it is compared as `double precision`, which only what is a float already does not become.
            let (value, same) = match (&of, &by) {
                _ if value.is_volatile() => return Ok(Transformed::no(expr)),
                (of, by) if of.is_integer() && by.is_integer() && of != by => {
                    (value.clone(), value.clone().eq(other.clone()))
                }
                (of, by) if is_number(of) && by.is_floating() => (double(value), double(value).eq(double(other))),
                (of, by) if of.is_floating() && by.is_numeric() && of != by => {
                    (value.clone(), double(value).eq(double(other)))
                }
                _ => return Ok(Transformed::no(expr)),
            };
            let of = value.get_type(schema)?;
            Ok(Transformed::yes(when(same, lit(ScalarValue::try_from(&of)?)).otherwise(value)?))
        }
        _ => Ok(Transformed::no(expr)),
    }
}

/// A NULL that is written out.
fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => is_null(&cast.expr),
        _ => false,
    }
}
