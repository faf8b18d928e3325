//! Of which type is a value? `pg_typeof` answers with the name that clients are told, as PostgreSQL writes it.

use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use crate::rows::{long_name, pg_type};

/// The function.
pub(super) fn type_of() -> ScalarUDF {
    TypeOf { signature: Signature::any(1, Volatility::Stable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeOf {
    signature: Signature,
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &str {
        "pg_typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = long_name(&pg_type(&args.arg_fields[0])?);
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))))
    }
}
