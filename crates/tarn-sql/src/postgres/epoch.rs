//! Which instant is so many seconds after 1970? `to_timestamp(1284352323.5)` is one of microseconds, and what is no
//! instant is an error: not a number, or beyond what a `timestamptz` holds; an infinite number is an infinite time.
//! DataFusion counts nanoseconds, and stops at the last it has.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Float64Type, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use tarn_query::datafusion;
use tarn_types::{INFINITE_US, MINUS_INFINITE_US, Zone};

use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};

/// What `to_timestamp` of one argument is written as.
pub(super) const TO_INSTANT: &str = "tarn_to_instant";

/// What an `i64` holds, which ends some thirty years before PostgreSQL's last instant; and midnight of 24 November 4714
/// BC.
const END_US: f64 = i64::MAX as f64;
const FIRST_US: f64 = -210_866_803_200_000_000.0;

/// The function.
pub(super) fn to_instant() -> ScalarUDF {
    ToInstant { signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToInstant {
    signature: Signature,
}

impl ScalarUDFImpl for ToInstant {
    fn name(&self) -> &str {
        TO_INSTANT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(Zone::utc().arrow_name()))))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let seconds = rows.columns[0].as_primitive::<Float64Type>();
        let all = rows.there().map(|row| row.map(|row| instant(seconds.value(row))).transpose());
        let all = all.collect::<Result<TimestampMicrosecondArray, SqlError>>()?;
        let instants: ArrayRef = Arc::new(all.with_data_type(args.return_field.data_type().clone()));
        rows.answer(instants)
    }
}

fn instant(seconds: f64) -> Result<i64, SqlError> {
    if seconds.is_nan() {
        return Err(SqlError::new(state::DATETIME_OVERFLOW, "timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(if seconds > 0.0 { INFINITE_US } else { MINUS_INFINITE_US });
    }
    let us = (seconds * 1e6).round_ties_even();
    match (FIRST_US..END_US).contains(&us) {
        true => Ok(us as i64),
        false => Err(SqlError::new(state::DATETIME_OVERFLOW, format!("timestamp out of range: \"{seconds}\""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_and_reach_so_far() {
        assert_eq!(instant(1.5).unwrap(), 1_500_000);
        assert_eq!(instant(-0.000_000_4).unwrap(), 0);
        assert_eq!([instant(f64::INFINITY).unwrap(), instant(f64::NEG_INFINITY).unwrap()], [i64::MAX, i64::MIN]);
        for none in [f64::NAN, 1e13, 9.224e12, -1e12] {
            assert_eq!(instant(none).unwrap_err().state(), state::DATETIME_OVERFLOW, "{none}");
        }
    }
}
