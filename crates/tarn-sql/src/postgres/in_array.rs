//! Is `4 = ANY ('{3,NULL}')` false? Unknown: one of the items may be 4. DataFusion's `array_has` says false, and of
//! NULL in an empty array that it is unknown. And it knows no type of a `numeric(3,2)` and a `numeric(10,2)[]`
//! together.
//!
//! So the function that stands for `= ANY` of an array is one of ours around it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::error::Result;
use datafusion::functions_nested::array_has::array_has_udf;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use crate::error::{SqlError, state};
use crate::planner_messages::NO_ARRAY;
use crate::rows::{long_name, pg_type};

/// What stands for `= ANY` to the planner.
pub(super) const NAME: &str = "array_has";

/// The function.
pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(InArray { inner: array_has_udf(), signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct InArray {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for InArray {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if let [array, value] = types
            && let Some(types) = of_one_type(array, value)
        {
            return Ok(types.to_vec());
        }
        let fields: Vec<FieldRef> = types.iter().map(|of| Arc::new(Field::new("", of.clone(), true))).collect();
        match (fields_with_udf(&fields, self.inner.as_ref()), types) {
            (Ok(coerced), _) => Ok(coerced.iter().map(|field| field.data_type().clone()).collect()),
            (Err(_), [array, value]) => Err(no_operator("=", array, value).into()),
            (Err(error), _) => Err(error),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), DataType::Boolean, true)))
    }

    /// An array that is written out becomes a list, which knows of NULL.
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (n_rows, is_scalar) =
            (args.number_rows, args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_))));
        let columns = ColumnarValue::values_to_arrays(&args.args)?;
        let found = self.inner.invoke_with_args(args)?.into_array(if is_scalar { 1 } else { n_rows })?;
        let known = known(found.as_boolean(), &columns[0], &columns[1])?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&known, 0)?),
            false => ColumnarValue::Array(Arc::new(known)),
        })
    }
}

/// What is known of rows, of which `found` says whether an item is the same.
fn known(found: &BooleanArray, arrays: &ArrayRef, values: &ArrayRef) -> Result<BooleanArray> {
    if arrays.data_type() == &DataType::Null {
        return Ok(BooleanArray::new_null(found.len()));
    }
    let item = match arrays.data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => Arc::clone(item),
        _ => return Ok(found.clone()),
    };
    let lists = cast(arrays, &DataType::LargeList(item))?;
    let lists = lists.as_list::<i64>();
    let of_row = |row: usize| {
        if lists.is_null(row) {
            return None;
        }
        let items = lists.value(row);
        match items.is_empty() {
            true => Some(false),
            false if values.is_null(row) => None,
            false if found.is_valid(row) && found.value(row) => Some(true),
            false => (items.logical_null_count() == 0).then_some(false),
        }
    };
    Ok((0..found.len()).map(of_row).collect())
}

/// The types of an array and of a value, as its items are compared with it. `None`: nothing is known of them here.
pub(super) fn of_one_type(array: &DataType, value: &DataType) -> Option<[DataType; 2]> {
    use DataType::{Date32, Timestamp};
    let DataType::List(field) = array else { return None };
    let item = field.data_type();
    let to = match (item, value) {
        (item, value) if item.is_null() && value.is_null() => DataType::Int32,
        (item, value) if item == value || item.is_null() => value.clone(),
        (item, value) if value.is_null() => item.clone(),
        (item, value) if item.is_numeric() && value.is_numeric() => match item.is_floating() || value.is_floating() {
            true => DataType::Float64,
            false => comparison_coercion(item, value)?,
        },
        (item, value) if item.is_string() && value.is_string() => comparison_coercion(item, value)?,
        (item, value) if item.is_binary() && value.is_binary() => comparison_coercion(item, value)?,
        // Of a `numeric` it would be rounded to the digits of the items.
        (item, value) if value.is_string() && !item.is_nested() && !item.is_decimal() => item.clone(),
        (Date32, Timestamp(_, None)) | (Timestamp(_, None), Date32) => Timestamp(TimeUnit::Microsecond, None),
        (item @ Timestamp(_, Some(_)), Timestamp(..) | Date32) => item.clone(),
        _ => return None,
    };
    Some([DataType::List(Arc::new(field.as_ref().clone().with_data_type(to.clone()))), to])
}

/// Of a value that is compared with the items of such an array.
pub(super) fn no_operator(op: &str, array: &DataType, value: &DataType) -> SqlError {
    let name =
        |of: &DataType| pg_type(&Field::new("", of.clone(), true)).map_or_else(|_| of.to_string(), |of| long_name(&of));
    let message = match array {
        DataType::List(item) => format!("operator does not exist: {} {op} {}", name(value), name(item.data_type())),
        _ => return SqlError::new(state::WRONG_OBJECT_TYPE, NO_ARRAY),
    };
    SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("cast one of them")
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, ListArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn a_null_beside_it_makes_it_unknown() {
        let arrays = [Some(vec![Some(3), None]), Some(vec![Some(3), None]), Some(vec![]), Some(vec![Some(1)]), None];
        let arrays: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(arrays));
        let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(3), Some(4), None, None, Some(1)]));
        let found = BooleanArray::from(vec![Some(true), Some(false), None, None, None]);
        let expected = BooleanArray::from(vec![Some(true), None, Some(false), None, None]);
        assert_eq!(known(&found, &arrays, &values).unwrap(), expected);
    }
}
