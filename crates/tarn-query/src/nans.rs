//! Is `'Infinity' - 'Infinity'` the NaN that is stored? NaN has many bit patterns, and comparisons, groups and sorts go
//! by the bits: what a processor makes of infinities is another NaN than `'NaN'`, and the least number instead of the
//! greatest.
//!
//! Stored floats have one NaN ([`tarn_types::conform`]). What arithmetic and functions make of floats goes through
//! [`OneNan`].

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use crate::truth::{Unknown, each_condition, map_operands};

/// The rule; it runs when types are known.
#[derive(Debug)]
pub(crate) struct Nans {
    one_nan: Arc<ScalarUDF>,
}

impl Nans {
    pub(crate) fn new() -> Self {
        let signature = Signature::uniform(1, vec![DataType::Float32, DataType::Float64], Volatility::Immutable);
        Nans { one_nan: Arc::new(ScalarUDF::from(OneNan { signature })) }
    }

    /// `covered`: does NaN stay NaN, whatever its bits, in what stands above?
    fn rewrite(&self, expr: Expr, covered: bool, schema: &DFSchema) -> Result<Expr> {
        let makes = makes_floats(&expr) && expr.get_type(schema).is_ok_and(|of| is_float(&of));
        let below = match &expr {
            Expr::AggregateFunction(AggregateFunction { params, .. }) => !params.distinct,
            expr => is_arithmetic(expr) && makes,
        };
        let expr = map_operands(expr, Unknown::Kept, |operand, _| self.rewrite(operand, below, schema))?;
        match makes && !covered {
            true => Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&self.one_nan), vec![expr]))),
            false => Ok(expr),
        }
    }
}

impl AnalyzerRule for Nans {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_condition(plan, makes_floats, |expr, _, _, schema| self.rewrite(expr, false, schema))
    }

    fn name(&self) -> &str {
        "one_nan"
    }
}

fn is_arithmetic(expr: &Expr) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Plus | Minus | Multiply | Divide | Modulo, .. }))
}

/// May it be a float that is no value of its operands?
fn makes_floats(expr: &Expr) -> bool {
    is_arithmetic(expr) || matches!(expr, Expr::Negative(_) | Expr::ScalarFunction(_))
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// The same floats, with one NaN.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OneNan {
    signature: Signature,
}

impl ScalarUDFImpl for OneNan {
    fn name(&self) -> &str {
        "tarn_one_nan"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types[0].clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &args.args[..] {
            [ColumnarValue::Scalar(ScalarValue::Float64(Some(v)))] if v.is_nan() => {
                ColumnarValue::Scalar(ScalarValue::Float64(Some(f64::NAN.abs())))
            }
            [ColumnarValue::Scalar(ScalarValue::Float32(Some(v)))] if v.is_nan() => {
                ColumnarValue::Scalar(ScalarValue::Float32(Some(f32::NAN.abs())))
            }
            [ColumnarValue::Array(array)] => ColumnarValue::Array(match array.data_type() {
                DataType::Float64 => one_nan::<Float64Type>(array, |v| v.is_nan(), f64::NAN.abs()),
                DataType::Float32 => one_nan::<Float32Type>(array, |v| v.is_nan(), f32::NAN.abs()),
                _ => Arc::clone(array),
            }),
            [other] => other.clone(),
            _ => return exec_err!("tarn_one_nan takes one number"),
        })
    }
}

fn one_nan<T: ArrowPrimitiveType>(array: &ArrayRef, is_nan: fn(T::Native) -> bool, nan: T::Native) -> ArrayRef {
    let floats = array.as_primitive::<T>();
    match floats.values().iter().any(|float| is_nan(*float)) {
        false => Arc::clone(array),
        true => Arc::new(floats.unary(|float| if is_nan(float) { nan } else { float }) as PrimitiveArray<T>),
    }
}
