//! Of which type is `round(x, n)` when `n` becomes a constant later? The digits of some numerics hang on the values of
//! arguments that are written out: `round(1.239, 2)` has two behind the point. A plan is typed before its constants
//! are computed, though, and queries become one another's parts: `round(1.239, '2'::int)` would get another type on
//! the way, and what it stands beside would compare a `numeric(4,3)` with a `numeric(4,2)`.
//!
//! So constants that are cast as they are written become literals before anything is typed, and a call whose type may
//! still change has the type that it got when those of its arguments were known; that rule runs behind all others.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, FieldRef};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Documentation, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression};

use super::numeric::{NUMERIC, written};

/// The functions whose type hangs on the values of their arguments.
const BY_VALUE: [&str; 11] =
    ["exp", "ln", "log", "log10", NUMERIC, "power", "round", "sqrt", "to_number", "trim_scale", "trunc"];

/// The rule.
#[derive(Debug)]
pub(super) struct SettledTypes;

impl AnalyzerRule for SettledTypes {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, settled)
    }

    fn name(&self) -> &str {
        "settled_types"
    }
}

/// Makes literals of constants that are cast as they are written.
#[derive(Debug)]
pub(super) struct WrittenArguments;

impl AnalyzerRule for WrittenArguments {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, _| match expr {
            Expr::ScalarFunction(mut call) if call.name() != NUMERIC && BY_VALUE.contains(&call.name()) => {
                let mut is_changed = false;
                for arg in call.args.iter_mut().filter(|arg| !matches!(arg, Expr::Literal(..))) {
                    if let Some(value) = constant(arg) {
                        *arg = Expr::Literal(value, None);
                        is_changed = true;
                    }
                }
                let call = Expr::ScalarFunction(call);
                Ok(if is_changed { Transformed::yes(call) } else { Transformed::no(call) })
            }
            other => Ok(Transformed::no(other)),
        })
    }

    fn name(&self) -> &str {
        "written_arguments"
    }
}

fn settled(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
    let is_written_out = |arg: &Expr| matches!(arg, Expr::Literal(..));
    let may_change = BY_VALUE.contains(&call.func.name()) && !call.args.iter().all(is_written_out);
    if !may_change || call.func.inner().is::<FixedTypeFunction>() {
        return Ok(Transformed::no(expr));
    }
    let (_, field) = expr.to_field(schema)?;
    if !field.data_type().is_decimal() {
        return Ok(Transformed::no(expr));
    }
    let function = ScalarUDF::from(FixedTypeFunction { inner: Arc::clone(&call.func), field });
    let call = ScalarFunction::new_udf(Arc::new(function), call.args.clone());
    Ok(Transformed::yes(Expr::ScalarFunction(call)))
}

/// The value of a constant that is cast as it is written: `'2'::int`, `'1.50'::numeric`. `None`: it is something else,
/// or an error, which it stays until it is computed.
fn constant(arg: &Expr) -> Option<ScalarValue> {
    match arg {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(cast) if cast.field.data_type().is_integer() => {
            let of = constant(&cast.expr)?;
            let is_exact = of.data_type().is_string() || of.data_type().is_integer();
            is_exact.then(|| of.cast_to(cast.field.data_type()).ok()).flatten().filter(|value| !value.is_null())
        }
        // Of whole numbers that are written out.
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let whole = |side: &Expr| {
                let of = constant(side).filter(|of| of.data_type().is_integer())?;
                match of.cast_to(&DataType::Int64).ok()? {
                    ScalarValue::Int64(value) => value,
                    _ => None,
                }
            };
            let (left, right) = (whole(left)?, whole(right)?);
            let value = match op {
                Operator::Plus => left.checked_add(right),
                Operator::Minus => left.checked_sub(right),
                Operator::Multiply => left.checked_mul(right),
                Operator::Divide => left.checked_div(right),
                Operator::Modulo => left.checked_rem(right),
                _ => None,
            };
            value.and_then(|value| i32::try_from(value).ok()).map(|value| ScalarValue::Int32(Some(value)))
        }
        Expr::ScalarFunction(call) if call.name() == NUMERIC => match &call.args[..] {
            [of] => {
                let (number, scale) = written(constant(of)?.try_as_str()??)?;
                Some(ScalarValue::Decimal128(Some(number), DECIMAL128_MAX_PRECISION, scale))
            }
            _ => None,
        },
        _ => None,
    }
}

/// A function whose type is known.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FixedTypeFunction {
    inner: Arc<ScalarUDF>,
    field: FieldRef,
}

impl ScalarUDFImpl for FixedTypeFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}
