//! In which bin is a time? `date_bin('15 minutes', at, timestamp '2001-01-01')` is when it begins: bins are of one
//! length and run from an origin in both directions. DataFusion's knows one length for all rows, and the years from
//! 1677 to 2262.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit, TimestampMicrosecondType};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use tarn_query::datafusion;
use tarn_types::is_infinite_us;

use super::averages::undefined;
use super::calendar::DAY_US;
use super::extract::intervals;
use super::rowwise::ArgumentRows;
use super::times_of_text::out_of_range;
use crate::error::{SqlError, state};

/// 4714-11-24 BC.
const FIRST_US: i64 = -2_440_588 * DAY_US;

/// The function, to be registered over DataFusion's.
pub(super) fn date_bin() -> ScalarUDF {
    DateBin { signature: Signature::user_defined(Volatility::Immutable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateBin {
    signature: Signature,
}

impl ScalarUDFImpl for DateBin {
    fn name(&self) -> &str {
        "date_bin"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The origin of two arguments is 1970, as DataFusion has it.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [stride, times @ ..] = types else { return plan_err!("date_bin takes an interval and a time") };
        let none = || undefined("date_bin", types).with_hint("cast the times to one type");
        let is_stride =
            stride.is_null() || stride.is_string() || matches!(stride, DataType::Interval(_) | DataType::Duration(_));
        let mut zones = times.iter().filter_map(|of| match of {
            DataType::Timestamp(_, zone) => Some(zone.clone()),
            DataType::Date32 | DataType::Date64 => Some(None),
            _ => None,
        });
        let zone = zones.next().flatten();
        let is_one = zones.all(|other| other.is_some() == zone.is_some());
        let is_time = |of: &DataType| of.is_null() || of.is_string() || of.is_temporal();
        if !is_stride || !is_one || !matches!(times.len(), 1 | 2) || !times.iter().all(is_time) {
            return Err(none().into());
        }
        let mut coerced = vec![DataType::Timestamp(TimeUnit::Microsecond, zone); types.len()];
        coerced[0] = DataType::Interval(IntervalUnit::MonthDayNano);
        Ok(coerced)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[1].clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let strides = intervals(&rows.columns[0])?;
        let micros = |idx: usize| -> Result<Option<TimestampMicrosecondArray>> {
            let Some(times) = rows.columns.get(idx) else { return Ok(None) };
            let DataType::Timestamp(_, zone) = times.data_type() else { return plan_err!("date_bin of no time") };
            let micros = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?;
            Ok(Some(micros.as_primitive::<TimestampMicrosecondType>().clone()))
        };
        let (Some(times), origins) = (micros(1)?, micros(2)?) else { return plan_err!("date_bin takes a time") };
        let bin = |row: Option<usize>| {
            let origin = |row: usize| origins.as_ref().map_or(0, |origins| origins.value(row));
            row.map(|row| bin(strides.value(row), times.value(row), origin(row))).transpose()
        };
        let bins = rows.there().map(bin).collect::<Result<TimestampMicrosecondArray, SqlError>>()?;
        let bins: ArrayRef = Arc::new(bins.with_data_type(times.data_type().clone()));
        rows.answer(cast(&bins, args.return_field.data_type())?)
    }
}

fn bin(stride: IntervalMonthDayNano, us: i64, origin_us: i64) -> Result<i64, SqlError> {
    if is_infinite_us(us) {
        return Ok(us);
    }
    if is_infinite_us(origin_us) {
        return Err(SqlError::new(state::DATETIME_OVERFLOW, "origin out of range"));
    }
    if stride.months != 0 {
        let message = "timestamps cannot be binned into intervals containing months or years";
        return Err(SqlError::unsupported(message, "use date_trunc"));
    }
    let stride_us = i64::from(stride.days).checked_mul(DAY_US);
    let stride_us = stride_us.and_then(|us| us.checked_add(stride.nanoseconds / 1_000)).ok_or_else(out_of_range)?;
    if stride_us <= 0 {
        return Err(SqlError::new(state::DATETIME_OVERFLOW, "stride must be greater than zero"));
    }
    let since = us.checked_sub(origin_us).ok_or_else(out_of_range)?;
    let begin = us.checked_sub(since.rem_euclid(stride_us)).filter(|us| *us >= FIRST_US);
    begin.ok_or_else(|| SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_run_from_their_origin_in_both_directions() {
        let hours = |n: i64| IntervalMonthDayNano::new(0, 0, n * 3_600_000_000_000);
        let hour = 3_600_000_000;
        assert_eq!(bin(hours(2), 5 * hour + 1, hour).unwrap(), 5 * hour);
        assert_eq!(bin(hours(2), -1, hour).unwrap(), -hour);
        assert_eq!(bin(hours(2), hour, hour).unwrap(), hour);
        for (stride, us) in [
            (hours(0), 0),
            (hours(-1), 0),
            (IntervalMonthDayNano::new(0, 200_000_000, 0), 0),
            (IntervalMonthDayNano::new(0, 365_000, 0), FIRST_US),
        ] {
            assert_eq!(bin(stride, us, 0).unwrap_err().state(), state::DATETIME_OVERFLOW, "{stride:?}");
        }
        let month = IntervalMonthDayNano::new(1, 0, 0);
        assert_eq!(bin(month, 0, 0).unwrap_err().state(), state::FEATURE_NOT_SUPPORTED);
    }
}
