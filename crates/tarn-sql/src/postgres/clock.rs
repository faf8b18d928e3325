//! What time is it while a statement runs? `now()` is the time at which it began; `clock_timestamp()` is another for every row.

use std::sync::Arc;

use arrow::array::TimestampMicrosecondArray;
use arrow::datatypes::{DataType, TimeUnit};
use chrono::Utc;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use tarn_query::datafusion;

/// The function.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(Clock { signature: Signature::nullary(Volatility::Volatile) }.into())]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Clock {
    signature: Signature,
}

impl ScalarUDFImpl for Clock {
    fn name(&self) -> &str {
        "clock_timestamp"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let times = (0..args.number_rows).map(|_| Utc::now().timestamp_micros());
        let times = TimestampMicrosecondArray::from_iter_values(times);
        Ok(ColumnarValue::Array(Arc::new(times.with_data_type(args.return_field.data_type().clone()))))
    }
}
