//! Of which type is `1::smallint << 2`? A `smallint`: PostgreSQL's shifts are of the type of their left side, by an
//! `integer`, and what is shifted out is gone. DataFusion makes both sides one type first. Of `a # a` it says 0, also
//! where `a` is NULL.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type};
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, ScalarUDF};
use tarn_query::datafusion;
use tarn_query::{BinaryKernel, operator_function};

use super::integers::checked;

/// The functions that stand for `<<`, `>>` and `#`.
#[derive(Debug)]
pub(super) struct OfBits {
    left: Arc<ScalarUDF>,
    right: Arc<ScalarUDF>,
    exclusive: Arc<ScalarUDF>,
}

impl OfBits {
    pub(super) fn new() -> OfBits {
        OfBits {
            left: Arc::new(operator_function(Shift::Left)),
            right: Arc::new(operator_function(Shift::Right)),
            exclusive: Arc::new(operator_function(ExclusiveOr)),
        }
    }

    /// That of an operator between these two, if it is between integers.
    pub(super) fn of(&self, op: Operator, left: &Expr, right: &Expr, schema: &DFSchema) -> Option<&Arc<ScalarUDF>> {
        let function = match op {
            Operator::BitwiseShiftLeft => &self.left,
            Operator::BitwiseShiftRight => &self.right,
            Operator::BitwiseXor => &self.exclusive,
            _ => return None,
        };
        let is_integer =
            |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Int16 | DataType::Int32 | DataType::Int64));
        (is_integer(left) && is_integer(right)).then_some(function)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Shift {
    Left,
    Right,
}

impl BinaryKernel for Shift {
    fn symbol(&self) -> &'static str {
        match self {
            Shift::Left => "<<",
            Shift::Right => ">>",
        }
    }

    fn coerced(&self, left: &DataType, _: &DataType) -> Result<(DataType, DataType)> {
        Ok((left.clone(), DataType::Int32))
    }

    fn result(&self, left: &DataType, _: &DataType) -> Result<DataType> {
        Ok(left.clone())
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        // Processors take the count by the width of the type, a smallint's by that of an integer.
        Ok(match left.get().0.data_type() {
            DataType::Int16 => Arc::new(shifted::<Int16Type>(left, right, |value, by| match self {
                Shift::Left => i32::from(value).wrapping_shl(by) as i16,
                Shift::Right => i32::from(value).wrapping_shr(by) as i16,
            })),
            DataType::Int32 => Arc::new(shifted::<Int32Type>(left, right, |value, by| match self {
                Shift::Left => value.wrapping_shl(by),
                Shift::Right => value.wrapping_shr(by),
            })),
            DataType::Int64 => Arc::new(shifted::<Int64Type>(left, right, |value, by| match self {
                Shift::Left => value.wrapping_shl(by),
                Shift::Right => value.wrapping_shr(by),
            })),
            other => return exec_err!("{} of {other}", self.symbol()),
        })
    }
}

/// `a # b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ExclusiveOr;

impl BinaryKernel for ExclusiveOr {
    fn symbol(&self) -> &'static str {
        "#"
    }

    fn coerced(&self, left: &DataType, right: &DataType) -> Result<(DataType, DataType)> {
        let widest = [DataType::Int64, DataType::Int32].into_iter().find(|of| left == of || right == of);
        let widest = widest.unwrap_or(DataType::Int16);
        Ok((widest.clone(), widest))
    }

    fn result(&self, left: &DataType, _: &DataType) -> Result<DataType> {
        Ok(left.clone())
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        macro_rules! of {
            ($type:ty, $name:literal) => {
                Ok(Arc::new(checked::<$type>(left, right, |left, right| (left ^ right, false), $name)?))
            };
        }
        match left.get().0.data_type() {
            DataType::Int16 => of!(Int16Type, "smallint"),
            DataType::Int32 => of!(Int32Type, "integer"),
            DataType::Int64 => of!(Int64Type, "bigint"),
            other => exec_err!("# of {other}"),
        }
    }
}

fn shifted<T: ArrowPrimitiveType>(
    left: &dyn Datum,
    right: &dyn Datum,
    shift: impl Fn(T::Native, u32) -> T::Native,
) -> PrimitiveArray<T> {
    let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
    let (left, right) = (left.as_primitive::<T>(), right.as_primitive::<Int32Type>());
    let n_rows = if left_is_one { right.len() } else { left.len() };
    let is_null = (left_is_one && left.is_null(0)) || (right_is_one && right.is_null(0));
    if n_rows == 0 || is_null {
        return PrimitiveArray::new_null(n_rows);
    }
    let value = |row: usize| left.value(if left_is_one { 0 } else { row });
    let by = |row: usize| right.value(if right_is_one { 0 } else { row }) as u32;
    let own = |is_one: bool, nulls: Option<&NullBuffer>| if is_one { None } else { nulls.cloned() };
    let nulls = NullBuffer::union(own(left_is_one, left.nulls()).as_ref(), own(right_is_one, right.nulls()).as_ref());
    PrimitiveArray::new((0..n_rows).map(|row| shift(value(row), by(row))).collect(), nulls)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int16Array, Int32Array, Scalar};

    use super::*;

    #[test]
    fn null_beside_itself_is_null() {
        let values = Int16Array::from(vec![Some(5), None]);
        let none = ExclusiveOr.compute(&values, &values).unwrap();
        assert_eq!(none.as_primitive::<Int16Type>(), &Int16Array::from(vec![Some(0), None]));
        let one = Scalar::new(Int16Array::from(vec![1]));
        let one = ExclusiveOr.compute(&one, &values).unwrap();
        assert_eq!(one.as_primitive::<Int16Type>(), &Int16Array::from(vec![Some(4), None]));
    }

    #[test]
    fn what_is_shifted_out_is_gone() {
        let values = Int16Array::from(vec![Some(1), Some(-1), None, Some(-32768)]);
        let by = Scalar::new(Int32Array::from(vec![2]));
        let left = Shift::Left.compute(&values, &by).unwrap();
        assert_eq!(left.as_primitive::<Int16Type>(), &Int16Array::from(vec![Some(4), Some(-4), None, Some(0)]));
        // By 33 is by 1.
        let by = Int32Array::from(vec![33, -1]);
        let one = Scalar::new(Int32Array::from(vec![4]));
        let right = Shift::Right.compute(&one, &by).unwrap();
        assert_eq!(right.as_primitive::<Int32Type>(), &Int32Array::from(vec![2, 0]));
        assert_eq!(right.null_count(), 0);
    }
}
