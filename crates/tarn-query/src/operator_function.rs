//! Which function stands for an operator? What DataFusion's operator does not do — bound its memory, find an overflow —
//! a function of ours does in its place.
//!
//! It is called as the operator is, and may be NULL only where a side is: plans were made with the operator, and find
//! columns and grouping sets by these names.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{ArrayRef, Datum};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::long_constants::called;

/// What an operator does with two columns, or a column and a constant.
pub trait BinaryKernel: Debug + Clone + PartialEq + Eq + Hash + Send + Sync + 'static {
    /// As it is written.
    fn symbol(&self) -> &'static str;

    /// What a column of it is called, by what its sides are called: as that of the operator.
    fn called(&self, left: &str, right: &str) -> String {
        format!("{left} {} {right}", self.symbol())
    }

    /// The types that it takes the sides as, where they are not what it computes with.
    ///
    /// Errors: there is no such operator for them.
    fn coerced(&self, left: &DataType, right: &DataType) -> Result<(DataType, DataType)> {
        Ok((left.clone(), right.clone()))
    }

    /// The type of its values, of sides that are coerced.
    fn result(&self, left: &DataType, right: &DataType) -> Result<DataType>;

    /// The column of its values, where more is said of it than its type.
    fn marked(&self, column: Field, _sides: &[FieldRef]) -> Field {
        column
    }

    /// The values: as many as rows of the longer side. NULL where a side is.
    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef>;

    /// The same, for what looks at more than the types of its sides.
    fn compute_columns(&self, left: &dyn Datum, right: &dyn Datum, _sides: &[FieldRef]) -> Result<ArrayRef> {
        self.compute(left, right)
    }
}

/// The function that stands for an operator.
pub fn operator_function(kernel: impl BinaryKernel) -> ScalarUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    OperatorFunction { kernel, signature }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OperatorFunction<K> {
    kernel: K,
    signature: Signature,
}

impl<K: BinaryKernel> ScalarUDFImpl for OperatorFunction<K> {
    fn name(&self) -> &str {
        self.kernel.symbol()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [left, right] = types else { return exec_err!("{} has two sides", self.kernel.symbol()) };
        let (left, right) = self.kernel.coerced(left, right)?;
        Ok(vec![left, right])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [left, right] = types else { return exec_err!("{} has two sides", self.kernel.symbol()) };
        self.kernel.result(left, right)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let column = Field::new(self.name(), self.return_type(&types)?, is_nullable);
        Ok(Arc::new(self.kernel.marked(column, args.arg_fields)))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [left, right] = args else { return exec_err!("{} has two sides", self.kernel.symbol()) };
        Ok(self.kernel.called(&called(left), &called(right)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    /// Any value of its type: of bounds without a type nothing can be told, not even that rows are in the order in
    /// which they were sorted.
    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        let types: Vec<DataType> = inputs.iter().map(|bounds| bounds.data_type()).collect();
        Interval::make_unbounded(&self.return_type(&types).unwrap_or(DataType::Null))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = &args.args[..] else { return exec_err!("{} has two sides", self.kernel.symbol()) };
        // The planner asks what an expression is of NULLs, which are of no type then.
        if left.data_type().is_null() || right.data_type().is_null() {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(args.return_field.data_type())?));
        }
        let compute = |left: &dyn Datum, right: &dyn Datum| self.kernel.compute_columns(left, right, &args.arg_fields);
        Ok(match (left, right) {
            (ColumnarValue::Array(left), ColumnarValue::Array(right)) => ColumnarValue::Array(compute(left, right)?),
            (ColumnarValue::Array(left), ColumnarValue::Scalar(right)) => {
                ColumnarValue::Array(compute(left, &right.to_scalar()?)?)
            }
            (ColumnarValue::Scalar(left), ColumnarValue::Array(right)) => {
                ColumnarValue::Array(compute(&left.to_scalar()?, right)?)
            }
            (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) => {
                let values = compute(&left.to_scalar()?, &right.to_scalar()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)
            }
        })
    }
}
