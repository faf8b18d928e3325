//! Which bytes is a float? `float4send` and `float8send` are what the wire sends in binary: the bits of IEEE 754, the
//! highest first.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use tarn_query::datafusion;

use super::rowwise::ArgumentRows;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let of = |name, of: DataType| {
        let signature = Signature::exact(vec![of], Volatility::Immutable);
        Arc::new(ScalarUDF::from(FloatSendFunction { name, signature }))
    };
    vec![of("float4send", DataType::Float32), of("float8send", DataType::Float64)]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FloatSendFunction {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for FloatSendFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let column = &rows.columns[0];
        let bytes = |row: usize| match column.as_primitive_opt::<Float32Type>() {
            Some(floats) => floats.value(row).to_be_bytes().to_vec(),
            None => column.as_primitive::<Float64Type>().value(row).to_be_bytes().to_vec(),
        };
        let answer: BinaryArray = rows.there().map(|row| row.map(bytes)).collect();
        rows.answer(Arc::new(answer) as ArrayRef)
    }
}
