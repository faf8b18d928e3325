//! Does `9223372036854775807 + 1` overflow? In PostgreSQL it is an error; DataFusion's operators wrap round, and what
//! wrapped is stored.
//!
//! `+`, `-` and `*` of two integers of one type, and the sign of one, become functions that look. They compute a whole
//! column and look at the end: as fast as what wraps, and rows are looked at one by one only where something
//! overflowed, which may have been a NULL.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::{BinaryKernel, each_expression, operator_function};

use crate::error::{SqlError, state};

/// The rule; it runs when types are known.
#[derive(Debug)]
pub(super) struct CheckedIntegers {
    plus: Arc<ScalarUDF>,
    minus: Arc<ScalarUDF>,
    times: Arc<ScalarUDF>,
    negated: Arc<ScalarUDF>,
}

impl CheckedIntegers {
    pub(super) fn new() -> CheckedIntegers {
        let function = |operation| Arc::new(operator_function(operation));
        CheckedIntegers {
            plus: function(IntegerOperation::Plus),
            minus: function(IntegerOperation::Minus),
            times: function(IntegerOperation::Times),
            negated: function(IntegerOperation::Negated),
        }
    }

    fn checked(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let (function, left, right) = match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_integer(&left, schema) => match op {
                Operator::Plus => (&self.plus, *left, *right),
                Operator::Minus => (&self.minus, *left, *right),
                Operator::Multiply => (&self.times, *left, *right),
                op => return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
            },
            // The sign of a number that is written is the number's: the least of them has no positive one.
            Expr::Negative(inner) if !matches!(*inner, Expr::Literal(..)) && is_integer(&inner, schema) => {
                let zero = ScalarValue::new_zero(&inner.get_type(schema)?)?;
                (&self.negated, Expr::Literal(zero, None), *inner)
            }
            other => return Ok(Transformed::no(other)),
        };
        Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![left, right]))))
    }
}

impl AnalyzerRule for CheckedIntegers {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| self.checked(expr, schema))
    }

    fn name(&self) -> &str {
        "checked_integers"
    }
}

/// By the first operand, without asking what is below: chains of operators are long. Sides have one type by now, unless
/// one is a date.
fn is_integer(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::ScalarFunction(call) if IntegerOperation::of(&call.func).is_some() => is_integer(&call.args[0], schema),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide | Operator::Modulo, .. }) => is_integer(left, schema),
        expr => matches!(expr.get_type(schema), Ok(DataType::Int16 | DataType::Int32 | DataType::Int64)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IntegerOperation {
    Plus,
    Minus,
    Times,
    /// The right side; the left one is 0.
    Negated,
}

impl IntegerOperation {
    fn of(function: &ScalarUDF) -> Option<IntegerOperation> {
        [IntegerOperation::Plus, IntegerOperation::Minus, IntegerOperation::Times]
            .into_iter()
            .find(|one| one.symbol() == function.name())
    }
}

impl BinaryKernel for IntegerOperation {
    fn symbol(&self) -> &'static str {
        match self {
            IntegerOperation::Plus => "+",
            IntegerOperation::Minus | IntegerOperation::Negated => "-",
            IntegerOperation::Times => "*",
        }
    }

    fn called(&self, left: &str, right: &str) -> String {
        match self {
            IntegerOperation::Negated => format!("(- {right})"),
            _ => format!("{left} {} {right}", self.symbol()),
        }
    }

    fn result(&self, left: &DataType, _: &DataType) -> Result<DataType> {
        Ok(left.clone())
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        macro_rules! of {
            ($type:ty, $native:ty, $name:literal) => {
                Ok(Arc::new(match self {
                    IntegerOperation::Plus => checked::<$type>(left, right, <$native>::overflowing_add, $name)?,
                    IntegerOperation::Minus | IntegerOperation::Negated => {
                        checked::<$type>(left, right, <$native>::overflowing_sub, $name)?
                    }
                    IntegerOperation::Times => checked::<$type>(left, right, <$native>::overflowing_mul, $name)?,
                }))
            };
        }
        match left.get().0.data_type() {
            DataType::Int16 => of!(Int16Type, i16, "smallint"),
            DataType::Int32 => of!(Int32Type, i32, "integer"),
            DataType::Int64 => of!(Int64Type, i64, "bigint"),
            other => exec_err!("{} of {other}", self.symbol()),
        }
    }
}

/// Of each row; `compute` also says whether that overflows.
pub(super) fn checked<T: ArrowPrimitiveType>(
    left: &dyn Datum,
    right: &dyn Datum,
    compute: impl Fn(T::Native, T::Native) -> (T::Native, bool),
    name: &str,
) -> Result<PrimitiveArray<T>> {
    let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
    let (left, right) = (left.as_primitive::<T>(), right.as_primitive::<T>());
    let mut overflows = false;
    let mut look = |(value, overflowed): (T::Native, bool)| {
        overflows |= overflowed;
        value
    };
    let (values, nulls): (Vec<T::Native>, _) = match (left_is_one, right_is_one) {
        (true, _) | (_, true) if (left_is_one && left.is_null(0)) || (right_is_one && right.is_null(0)) => {
            let n_rows = if left_is_one { right.len() } else { left.len() };
            return Ok(PrimitiveArray::new_null(n_rows));
        }
        (true, _) => {
            let one = left.value(0);
            (right.values().iter().map(|value| look(compute(one, *value))).collect(), right.nulls().cloned())
        }
        (_, true) => {
            let one = right.value(0);
            (left.values().iter().map(|value| look(compute(*value, one))).collect(), left.nulls().cloned())
        }
        _ => {
            let pairs = left.values().iter().zip(right.values());
            let nulls = NullBuffer::union(left.nulls(), right.nulls());
            (pairs.map(|(left, right)| look(compute(*left, *right))).collect(), nulls)
        }
    };
    if overflows {
        let at = |array: &PrimitiveArray<T>, is_one: bool, row: usize| array.value(if is_one { 0 } else { row });
        let is_there = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let overflowed = |row: usize| compute(at(left, left_is_one, row), at(right, right_is_one, row)).1;
        if (0..values.len()).any(|row| is_there(row) && overflowed(row)) {
            return Err(out_of_range(name).into());
        }
    }
    Ok(PrimitiveArray::new(values.into(), nulls))
}

/// As PostgreSQL says it of a type of numbers.
pub(super) fn out_of_range(name: &str) -> SqlError {
    SqlError::new(state::NUMERIC_OUT_OF_RANGE, format!("{name} out of range"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array, Scalar};

    use super::*;

    fn of(operation: IntegerOperation, left: &dyn Datum, right: &dyn Datum) -> std::result::Result<ArrayRef, String> {
        operation.compute(left, right).map_err(|error| SqlError::from(error).to_string())
    }

    #[test]
    fn what_overflows_is_refused_and_null_does_not() {
        let numbers = Int64Array::from(vec![Some(1), Some(i64::MAX), None]);
        let ones = Int64Array::from(vec![Some(1), None, Some(1)]);
        let sums = of(IntegerOperation::Plus, &numbers, &ones).unwrap();
        assert_eq!(sums.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(2), None, None]));
        let one = Scalar::new(Int64Array::from(vec![1]));
        assert!(of(IntegerOperation::Plus, &numbers, &one).unwrap_err().contains("bigint out of range"));
        assert!(of(IntegerOperation::Plus, &one, &numbers).unwrap_err().contains("bigint out of range"));
        let least = of(IntegerOperation::Minus, &numbers, &one).unwrap();
        assert_eq!(least.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(0), Some(i64::MAX - 1), None]));
        let null = Scalar::new(Int64Array::from(vec![None::<i64>]));
        assert_eq!(of(IntegerOperation::Times, &numbers, &null).unwrap().null_count(), 3);
        let halves = Int32Array::from(vec![i32::MAX / 2 + 1]);
        let two = Scalar::new(Int32Array::from(vec![2]));
        assert!(of(IntegerOperation::Times, &halves, &two).unwrap_err().contains("integer out of range"));
    }

    /// What a NULL hides is any number.
    #[test]
    fn what_lies_below_a_null_is_not_looked_at() {
        let hidden = Int64Array::new(vec![i64::MAX, 1].into(), Some(NullBuffer::from(vec![false, true])));
        let one = Scalar::new(Int64Array::from(vec![1]));
        let sums = of(IntegerOperation::Plus, &hidden, &one).unwrap();
        assert_eq!(sums.as_primitive::<Int64Type>(), &Int64Array::from(vec![None, Some(2)]));
    }
}
