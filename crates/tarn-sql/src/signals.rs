//! How does one session stop another? `pg_cancel_backend`, `pg_terminate_backend`, and `pg_backend_pid`, which tells a
//! client its own number.
//!
//! Whoever is superuser may stop all, others those of the same user; that is asked of [`authorize`], and written down
//! when it is about somebody else.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarUDF, Signature, SimpleScalarUDF, TypeSignature, Volatility, create_udf,
};
use parking_lot::Mutex;
use tarn_node::auth::{AuthAction, Principal, audit, authorize};
use tarn_node::node::Node;

use crate::activity::{Activity, Backend};
use crate::error::{Result, SqlError};

/// Who stops, and whom there is.
#[derive(Clone)]
pub(crate) struct Signals {
    /// Knows who may stop whom.
    pub node: Arc<Node>,
    /// Knows the sessions.
    pub activity: Arc<Activity>,
    /// The one who asks.
    pub who: Arc<Mutex<Principal>>,
}

impl Signals {
    /// The functions, for the session that has this number.
    pub(crate) fn functions(&self, pid: i32) -> [ScalarUDF; 3] {
        let own = move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::Int32(Some(pid))));
        [
            self.function("pg_cancel_backend", Backend::cancel),
            self.function("pg_terminate_backend", Backend::terminate),
            create_udf("pg_backend_pid", vec![], DataType::Int32, Volatility::Stable, Arc::new(own)),
        ]
    }

    fn function(&self, name: &'static str, stop: fn(&Backend)) -> ScalarUDF {
        let signals = self.clone();
        let stop_all = move |arguments: &[ColumnarValue]| {
            let [pids] = arguments else {
                return Err(DataFusionError::Internal(format!("{name} takes one number")));
            };
            let answer = |pids: &ColumnarValue| -> Result<BooleanArray> {
                let pids = cast(&pids.to_array(1)?, &DataType::Int64)?;
                pids.as_primitive::<Int64Type>().iter().map(|pid| signals.signal(name, pid, stop)).collect()
            };
            let answers = answer(pids).map_err(|error| DataFusionError::External(Box::new(error)))?;
            match pids {
                ColumnarValue::Scalar(_) => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?)),
                ColumnarValue::Array(_) => Ok(ColumnarValue::Array(Arc::new(answers))),
            }
        };
        // A number that is written out is a long one, and becomes no shorter by itself.
        let numbers = [DataType::Int32, DataType::Int64].map(|number| TypeSignature::Exact(vec![number]));
        let signature = Signature::one_of(numbers.to_vec(), Volatility::Volatile);
        ScalarUDF::from(SimpleScalarUDF::new_with_signature(name, signature, DataType::Boolean, Arc::new(stop_all)))
    }

    /// Whether there is such a session. Not whether it ran anything: it may have ended meanwhile.
    fn signal(&self, name: &str, pid: Option<i64>, stop: fn(&Backend)) -> Result<Option<bool>> {
        let Some(pid) = pid else { return Ok(None) };
        let backend = i32::try_from(pid).ok().and_then(|pid| self.activity.find(pid));
        let Some(backend) = backend else { return Ok(Some(false)) };
        let (who, of) = (self.who.lock().clone(), backend.who());
        let may = authorize(&self.node.users().users(), &who, &AuthAction::Signal { of: &of }).map_err(SqlError::from);
        if of != who {
            let whose = format!("{pid} of {}", of.name().unwrap_or("(nobody)"));
            audit::change(&who, name, &whose, may.as_ref().err().map(SqlError::state));
        }
        may?;
        stop(&backend);
        Ok(Some(true))
    }
}
