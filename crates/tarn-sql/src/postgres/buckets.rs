//! Between which thresholds is a value? `width_bucket(x, ARRAY[1, 3, 5])` says how many of them it has reached, whatever type they are of. They ascend.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, make_comparator};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::binary::comparison_coercion;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::{Expr, Function, FunctionArguments, Ident, ObjectName};

use super::averages::undefined;
use super::calls::is_named;
use super::rowwise::Rows;
use crate::error::{SqlError, state};

const BUCKET: &str = "tarn_bucket";

/// `width_bucket` of two arguments is this one.
pub(super) fn rewrite(expr: &mut Expr) {
    if let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr
        && list.args.len() == 2
        && is_named(name, "width_bucket")
    {
        *name = ObjectName::from(vec![Ident::new(BUCKET)]);
    }
}

/// The function.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(Bucket { signature: Signature::user_defined(Volatility::Immutable) }.into())]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bucket {
    signature: Signature,
}

/// The type that the value and the thresholds are compared as.
fn compared(types: &[DataType]) -> Option<DataType> {
    let [of, DataType::List(item)] = types else { return None };
    let item = item.data_type();
    let is_comparable = !item.is_list() && of.is_string() == item.is_string();
    comparison_coercion(of, item).filter(|_| is_comparable)
}

impl ScalarUDFImpl for Bucket {
    fn name(&self) -> &str {
        BUCKET
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// What it does not know is refused by its type.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(match compared(types) {
            Some(to) => vec![to.clone(), DataType::List(Arc::new(Field::new_list_field(to, true)))],
            None => types.to_vec(),
        })
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match compared(types) {
            Some(_) => Ok(DataType::Int32),
            None => Err(undefined("width_bucket", types).into()),
        }
    }

    fn schema_name(&self, args: &[datafusion::logical_expr::Expr]) -> Result<String> {
        let args = args.iter().map(|arg| arg.schema_name().to_string()).collect::<Vec<_>>();
        Ok(format!("width_bucket({})", args.join(",")))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = Rows::of(&args)?;
        let lists = rows.columns[1].as_list::<i32>();
        let thresholds = lists.values();
        let compare = make_comparator(&rows.columns[0], thresholds, SortOptions::default())?;
        let of = |row: Option<usize>| {
            let Some(row) = row else { return Ok(None) };
            let (from, to) = (lists.value_offsets()[row] as usize, lists.value_offsets()[row + 1] as usize);
            if (from..to).any(|at| thresholds.is_null(at)) {
                return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, "thresholds array must not contain NULLs"));
            }
            let (mut low, mut high) = (from, to);
            while low < high {
                let middle = low + (high - low) / 2;
                match compare(row, middle).is_lt() {
                    true => high = middle,
                    false => low = middle + 1,
                }
            }
            Ok(Some((low - from) as i32))
        };
        let buckets: ArrayRef = Arc::new(rows.there().map(of).collect::<Result<Int32Array, SqlError>>()?);
        rows.answer(buckets)
    }
}
