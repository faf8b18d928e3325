//! What time is it while a statement runs? `now()` is the time at which its transaction began, in microseconds, as
//! `'now'` is: DataFusion's has nanoseconds, and is no time that a column can keep; so has `current_time`.
//! `statement_timestamp()` is when the statement began, and `clock_timestamp()` is another for every row.

use std::sync::Arc;

use arrow::array::TimestampMicrosecondArray;
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use chrono::Utc;
use datafusion::common::config::ConfigOptions;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::functions::datetime::current_time;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, now_of, statement_of, zone_of};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let clock = Clock { signature: Signature::nullary(Volatility::Volatile) };
    let time = TimeOfDay { inner: current_time() };
    let of = |start| Arc::new(NowFunction::new(start, &ConfigOptions::default()).into());
    vec![Arc::new(clock.into()), of(Start::Transaction), of(Start::Statement), Arc::new(time.into())]
}

/// `current_time`, in microseconds.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeOfDay {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for TimeOfDay {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Time64(TimeUnit::Microsecond))
    }

    /// A constant of the statement.
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.inner.simplify(args, info)? {
            ExprSimplifyResult::Simplified(Expr::Literal(time, metadata)) => {
                let time = time.cast_to(&DataType::Time64(TimeUnit::Microsecond))?;
                ExprSimplifyResult::Simplified(Expr::Literal(time, metadata))
            }
            other => other,
        })
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("current_time is of a statement that runs")
    }
}

/// Whose beginning is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Start {
    Transaction,
    Statement,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NowFunction {
    start: Start,
    signature: Signature,
    aliases: Vec<String>,
    /// Of the session.
    zone: Arc<str>,
}

impl NowFunction {
    fn new(start: Start, config: &ConfigOptions) -> NowFunction {
        let aliases: &[&str] = match start {
            Start::Transaction => &["current_timestamp", "transaction_timestamp"],
            Start::Statement => &[],
        };
        NowFunction {
            start,
            signature: Signature::nullary(Volatility::Stable),
            aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
            zone: Arc::clone(zone_of(config).arrow_name()),
        }
    }

    fn at(&self, us: i64) -> ScalarValue {
        ScalarValue::TimestampMicrosecond(Some(us), Some(Arc::clone(&self.zone)))
    }
}

impl ScalarUDFImpl for NowFunction {
    fn name(&self) -> &str {
        match self.start {
            Start::Transaction => "now",
            Start::Statement => "statement_timestamp",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        Some(NowFunction::new(self.start, config).into())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(&self.zone))))
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), self.return_type(&[])?, false)))
    }

    /// A constant of the statement.
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match (self.start, info.query_execution_start_time()) {
            (Start::Transaction, Some(began)) => {
                ExprSimplifyResult::Simplified(Expr::Literal(self.at(began.timestamp_micros()), None))
            }
            _ => ExprSimplifyResult::Original(args),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let us = match self.start {
            Start::Transaction => now_of(&args.config_options),
            Start::Statement => statement_of(&args.config_options),
        };
        match us {
            Some(us) => Ok(ColumnarValue::Scalar(self.at(us))),
            None => exec_err!("{}() is of a statement that runs", self.name()),
        }
    }
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
