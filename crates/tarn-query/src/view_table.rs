//! What is a view to a plan? A table without rows where a statement names it, and a mark where its query is.
//!
//! Who reads through which view is told by a [`Mark`] above the view's query: a condition that is always true. It goes
//! when all that have to know it have asked ([`unmarked`]), before the planner sees it.

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::TableType;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_plan::ExecutionPlan;
use tarn_types::TableSchema;

use crate::Result;

/// A view as SQL finds it. It is never read itself.
#[derive(Debug)]
pub(crate) struct ViewTable {
    /// Its definition.
    pub view: Arc<TableSchema>,
    /// Its columns as SQL sees them.
    pub schema: SchemaRef,
}

#[async_trait]
impl TableProvider for ViewTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        Err(DataFusionError::Internal(format!("view {} was not replaced by its query", self.view.name)))
    }
}

/// Above the query of a view: what is below is read with the rights of the view's owner.
#[derive(Debug)]
struct Mark {
    view: Arc<TableSchema>,
    signature: Signature,
}

impl PartialEq for Mark {
    fn eq(&self, other: &Mark) -> bool {
        Arc::ptr_eq(&self.view, &other.view)
    }
}

impl Eq for Mark {}

impl Hash for Mark {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.view.id.hash(state);
    }
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        "tarn_view"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[ArrowType]) -> datafusion::error::Result<ArrowType> {
        Ok(ArrowType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> datafusion::error::Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))))
    }
}

/// A condition that is always true, above the query of a view.
pub(crate) fn mark(view: &Arc<TableSchema>) -> Expr {
    let mark = Mark { view: Arc::clone(view), signature: Signature::nullary(Volatility::Immutable) };
    ScalarUDF::new_from_impl(mark).call(vec![])
}

/// The view whose query is below this step.
pub(crate) fn marked(step: &LogicalPlan) -> Option<&Arc<TableSchema>> {
    let LogicalPlan::Filter(filter) = step else { return None };
    let Expr::ScalarFunction(ScalarFunction { func, args }) = &filter.predicate else { return None };
    let inner: &dyn Any = func.inner().as_ref();
    args.is_empty().then(|| inner.downcast_ref::<Mark>()).flatten().map(|mark| &mark.view)
}

/// The plan without marks: nobody asks any more who reads what.
pub(crate) fn unmarked(plan: LogicalPlan) -> Result<LogicalPlan> {
    let unmark = |step: LogicalPlan| match (marked(&step).is_some(), step) {
        (true, LogicalPlan::Filter(filter)) => Ok(Transformed::yes(Arc::unwrap_or_clone(filter.input))),
        (_, step) => Ok(Transformed::no(step)),
    };
    Ok(plan.transform_up_with_subqueries(unmark)?.data)
}
