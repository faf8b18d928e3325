//! Is `1e308 * 10` infinite? In PostgreSQL it is an error, as are a division by zero and a product too small to be told
//! from zero. Only what is infinite already stays so.
//!
//! As with integers, a whole column is computed first, and looked at row by row only where a value is infinite or zero.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Datum};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::{BinaryKernel, each_expression, operator_function};

use crate::error::{SqlError, state};

/// `real` beside a number of another type: both are `double precision`, as in PostgreSQL. The rule runs before types
/// are made one, which DataFusion does by losing digits of the other.
#[derive(Debug)]
pub(super) struct WideFloats;

impl AnalyzerRule for WideFloats {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, widened)
    }

    fn name(&self) -> &str {
        "wide_floats"
    }
}

fn widened(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let double = |of: Expr| Expr::Cast(Cast::new(Box::new(of), DataType::Float64));
    let (left, op, right) = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => (left, op, right),
        // What lies between two of them is a `double precision`.
        Expr::AggregateFunction(mut call)
            if call.func.name() == "percentile_cont"
                && matches!(call.params.args.first().map(|of| of.get_type(schema)), Some(Ok(DataType::Float32))) =>
        {
            let places = call.params.order_by.iter_mut().map(|by| &mut by.expr);
            for of in call.params.args.iter_mut().take(1).chain(places) {
                *of = double(std::mem::replace(of, Expr::Literal(ScalarValue::Null, None)));
            }
            return Ok(Transformed::yes(Expr::AggregateFunction(call)));
        }
        other => return Ok(Transformed::no(other)),
    };
    let is_wide = |of: &DataType| of.is_decimal() || matches!(of, DataType::Int32 | DataType::Int64);
    let is_changed = match (left.get_type(schema), right.get_type(schema)) {
        (Ok(DataType::Float32), Ok(other)) | (Ok(other), Ok(DataType::Float32)) => is_wide(&other),
        _ => false,
    };
    if !is_changed {
        return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
    }
    let (left, right) = (Box::new(double(*left)), Box::new(double(*right)));
    Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
}

/// The rule; it runs when types are known.
#[derive(Debug)]
pub(super) struct CheckedFloats([(Operator, Arc<ScalarUDF>); 4]);

impl CheckedFloats {
    pub(super) fn new() -> CheckedFloats {
        let all = [Operation::Plus, Operation::Minus, Operation::Times, Operation::Divided];
        CheckedFloats(all.map(|one| (one.operator(), Arc::new(operator_function(one)))))
    }

    fn checked(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return Ok(Transformed::no(expr)) };
        let function = self.0.iter().find(|(operator, _)| *operator == op).map(|(_, function)| function);
        Ok(match function.filter(|_| is_float(&left, schema)) {
            Some(function) => {
                let call = ScalarFunction::new_udf(Arc::clone(function), vec![*left, *right]);
                Transformed::yes(Expr::ScalarFunction(call))
            }
            None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
        })
    }
}

impl AnalyzerRule for CheckedFloats {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| self.checked(expr, schema))
    }

    fn name(&self) -> &str {
        "checked_floats"
    }
}

/// By the first operand, as that of integers.
fn is_float(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::ScalarFunction(call) if Operation::of(&call.func) => is_float(&call.args[0], schema),
        expr => matches!(expr.get_type(schema), Ok(DataType::Float32 | DataType::Float64)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Plus,
    Minus,
    Times,
    Divided,
}

impl Operation {
    fn of(function: &ScalarUDF) -> bool {
        ["+", "-", "*", "/"].contains(&function.name())
    }

    fn operator(self) -> Operator {
        match self {
            Operation::Plus => Operator::Plus,
            Operation::Minus => Operator::Minus,
            Operation::Times => Operator::Multiply,
            Operation::Divided => Operator::Divide,
        }
    }

    /// Of one row, where the value is infinite, zero or no number.
    fn check(self, left: f64, right: f64, value: f64) -> Result<(), SqlError> {
        let out = |how: &str| Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, format!("value out of range: {how}")));
        match self {
            Operation::Divided if right == 0.0 && !left.is_nan() => {
                Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero"))
            }
            _ if value.is_infinite() && !left.is_infinite() && !right.is_infinite() => out("overflow"),
            Operation::Times if value == 0.0 && left != 0.0 && right != 0.0 => out("underflow"),
            Operation::Divided if value == 0.0 && left != 0.0 && !right.is_infinite() => out("underflow"),
            _ => Ok(()),
        }
    }
}

impl BinaryKernel for Operation {
    fn symbol(&self) -> &'static str {
        match self {
            Operation::Plus => "+",
            Operation::Minus => "-",
            Operation::Times => "*",
            Operation::Divided => "/",
        }
    }

    fn result(&self, left: &DataType, _: &DataType) -> Result<DataType> {
        Ok(left.clone())
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        let values = match self {
            Operation::Plus => numeric::add(left, right)?,
            Operation::Minus => numeric::sub(left, right)?,
            Operation::Times => numeric::mul(left, right)?,
            Operation::Divided => numeric::div(left, right)?,
        };
        match values.data_type() {
            DataType::Float32 => check::<Float32Type>(*self, left, right, &values)?,
            DataType::Float64 => check::<Float64Type>(*self, left, right, &values)?,
            other => return exec_err!("{} of {other}", self.symbol()),
        }
        Ok(values)
    }
}

fn check<T>(operation: Operation, left: &dyn Datum, right: &dyn Datum, values: &ArrayRef) -> Result<()>
where
    T: ArrowPrimitiveType<Native: Into<f64>>,
{
    let values = values.as_primitive::<T>();
    let is_special = |value: &T::Native| {
        let value: f64 = (*value).into();
        value == 0.0 || !value.is_finite()
    };
    // Without a branch for each value, so that it is as fast as the arithmetic.
    if !values.values().iter().fold(false, |any, value| any | is_special(value)) {
        return Ok(());
    }
    let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
    let (left, right) = (left.as_primitive::<T>(), right.as_primitive::<T>());
    for (row, value) in
        values.values().iter().enumerate().filter(|(row, value)| is_special(value) && values.is_valid(*row))
    {
        let (left, right) =
            (left.value(if left_is_one { 0 } else { row }), right.value(if right_is_one { 0 } else { row }));
        operation.check(left.into(), right.into(), (*value).into())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_infinite_is() {
        use Operation::{Divided, Minus, Plus, Times};
        let refused = |operation: Operation, left: f64, right: f64, value: f64| {
            operation.check(left, right, value).err().map(|error| error.state())
        };
        let (inf, range, zero) = (f64::INFINITY, Some(state::NUMERIC_OUT_OF_RANGE), Some(state::DIVISION_BY_ZERO));
        assert_eq!(refused(Plus, f64::MAX, f64::MAX, inf), range);
        assert_eq!(refused(Minus, inf, 1.0, inf), None);
        assert_eq!(refused(Times, 1e-300, 1e-300, 0.0), range);
        assert_eq!(refused(Times, 0.0, 1e-300, 0.0), None);
        assert_eq!(refused(Divided, 1.0, 0.0, inf), zero);
        assert_eq!(refused(Divided, inf, 0.0, inf), zero);
        assert_eq!(refused(Divided, f64::NAN, 0.0, f64::NAN), None);
        assert_eq!(refused(Divided, 1.0, inf, 0.0), None);
        assert_eq!(refused(Divided, 1e-300, 1e300, 0.0), range);
    }
}
