//! Does anybody still wait for a query? Its tasks are stopped where they pause, and a kernel that tries eight million
//! pairs, or a regular expression over a batch of long texts, pauses when it is done. The planner does not pause at
//! all.
//!
//! So the configuration that a statement is planned and run with carries a flag (`running.rs`), which is set when its
//! stream is dropped. What may be long asks for it in between: the planner at each rule (`while_waited.rs`), conditions
//! of joins at each batch of pairs ([`stoppable`]), functions at each slice of their rows (`bounded.rs`).

use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::utils::JoinFilter;

/// Set when nobody waits any more. One that belongs to no statement is never set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Errors: nobody waits. Nobody sees the error either.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(DataFusionError::Execution("nobody waits for the query any more".to_owned())),
            false => Ok(()),
        }
    }

    /// Sets it when what this returns is dropped.
    pub(crate) fn when_dropped(&self) -> StopWhenDropped {
        StopWhenDropped(self.clone())
    }
}

pub(crate) struct StopWhenDropped(Stop);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// The condition of a join, which is not evaluated once nobody waits.
pub(crate) fn stoppable(filter: &JoinFilter, stop: &Stop) -> JoinFilter {
    let inner = Arc::clone(filter.expression());
    let expression = Arc::new(Stoppable { inner, stop: stop.clone() });
    JoinFilter::new(expression, filter.column_indices().to_vec(), Arc::clone(filter.schema()))
}

#[derive(Debug, Clone)]
struct Stoppable {
    inner: Arc<dyn PhysicalExpr>,
    stop: Stop,
}

impl PartialEq for Stoppable {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for Stoppable {}

impl Hash for Stoppable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl Display for Stoppable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for Stoppable {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.inner.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.stop.check()?;
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        match (children.pop(), children.is_empty()) {
            (Some(inner), true) => Ok(Arc::new(Stoppable { inner, stop: self.stop.clone() })),
            _ => Err(DataFusionError::Internal("the condition of a join is one".to_owned())),
        }
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::BooleanArray;
    use arrow::datatypes::Field;
    use datafusion::common::JoinSide;
    use datafusion::common::config::ConfigOptions;
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_optimizer::PhysicalOptimizerRule;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};

    use super::*;
    use crate::running::StatementContext;
    use crate::while_waited::WhileWaited;

    #[test]
    fn a_condition_is_evaluated_until_nobody_waits() {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Boolean, false)]));
        let batch =
            RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(BooleanArray::from(vec![true, false]))]).unwrap();
        let columns = vec![ColumnIndex { index: 0, side: JoinSide::Left }];
        let filter = JoinFilter::new(col("a", &schema).unwrap(), columns, schema);
        let mut config = ConfigOptions::default();
        config.extensions.insert(StatementContext::default());
        let stop = StatementContext::of(&config).stop;
        let condition = stoppable(&filter, &stop);
        let waits = stop.when_dropped();
        assert!(condition.expression().evaluate(&batch).is_ok());
        drop(waits);
        assert!(StatementContext::of(&config).stop.check().is_err(), "a copy of the configuration has the same flag");
        assert!(
            PhysicalOptimizerRule::optimize(&WhileWaited, Arc::new(EmptyExec::new(Arc::new(Schema::empty()))), &config)
                .is_err()
        );
        assert!(condition.expression().evaluate(&batch).is_err());
        assert!(StatementContext::of(&ConfigOptions::default()).stop.check().is_ok());
    }
}
