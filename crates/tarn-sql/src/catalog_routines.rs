//! Which functions are there? `information_schema.routines`: the engine's as DataFusion lists them, and those that
//! users wrote behind them.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::{ExecutionPlan, collect};
use tarn_node::node::Node;

use crate::catalog_functions::routines;
use crate::names::DATABASE;

/// What it is called.
pub(crate) const ROUTINES: &str = "routines";

/// Functions of the engine, and those that users wrote behind them.
pub(crate) struct Routines {
    /// The engine's own table of them.
    pub theirs: Arc<dyn TableProvider>,
    /// Knows those that users wrote.
    pub node: Arc<Node>,
}

impl fmt::Debug for Routines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ROUTINES)
    }
}

#[async_trait]
impl TableProvider for Routines {
    fn schema(&self) -> SchemaRef {
        self.theirs.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let mut rows = collect(self.theirs.scan(state, None, &[], None).await?, state.task_ctx()).await?;
        let own = routines(&self.node);
        if !own.is_empty() {
            let column = |field: &FieldRef| {
                let text = |row: &Vec<(&'static str, String)>| {
                    let said = row.iter().find(|(name, _)| name == field.name()).map(|(_, text)| text.clone());
                    said.or_else(|| match field.name().as_str() {
                        "specific_catalog" | "routine_catalog" => Some(DATABASE.to_owned()),
                        "routine_type" => Some("FUNCTION".to_owned()),
                        _ => None,
                    })
                };
                cast(&own.iter().map(text).collect::<StringArray>(), field.data_type())
            };
            let columns = schema.fields().iter().map(column).collect::<std::result::Result<Vec<_>, ArrowError>>()?;
            rows.push(RecordBatch::try_new(Arc::clone(&schema), columns)?);
        }
        MemTable::try_new(schema, vec![rows])?.scan(state, projection, filters, limit).await
    }
}
