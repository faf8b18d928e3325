//! Of which type are the numbers of `FROM generate_series(1, 3)`? Integers; DataFusion counts long ones. They are made
//! integers where they are counted: a projection above would be computed in parts, and they would come in any order.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::internal_err;
use datafusion::datasource::{TableType, provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableSource};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::memory::{LazyBatchGenerator, LazyMemoryExec};
use parking_lot::RwLock;
use tarn_query::datafusion;

/// The integers of a series of long numbers, which are none too large for them.
pub(super) fn of(long: &Arc<dyn TableSource>) -> Result<Arc<dyn TableSource>> {
    let long = source_as_provider(long)?;
    let fields: Vec<Field> =
        long.schema().fields().iter().map(|field| field.as_ref().clone().with_data_type(DataType::Int32)).collect();
    Ok(provider_as_source(Arc::new(IntegerSeries { long, schema: Arc::new(Schema::new(fields)) })))
}

#[derive(Debug)]
struct IntegerSeries {
    long: Arc<dyn TableProvider>,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for IntegerSeries {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        self.long.table_type()
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let long = self.long.scan(state, None, &[], None).await?;
        let Some(counted) = long.downcast_ref::<LazyMemoryExec>() else {
            return internal_err!("a series that is not counted as it is read");
        };
        let integers = counted.generators().iter().map(|long| {
            let integers = Integers { long: Arc::clone(long), schema: Arc::clone(&self.schema) };
            Arc::new(RwLock::new(integers)) as _
        });
        let mut integers =
            LazyMemoryExec::try_new(self.schema(), integers.collect())?.with_projection(projection.cloned());
        // Its only column is called and ordered as before.
        if projection.is_none_or(|columns| !columns.is_empty())
            && let Some(order) = counted.properties().output_ordering()
        {
            integers.add_ordering(order.iter().cloned());
        }
        Ok(Arc::new(integers))
    }
}

/// Long numbers as integers.
#[derive(Debug)]
struct Integers {
    long: Arc<RwLock<dyn LazyBatchGenerator>>,
    schema: SchemaRef,
}

impl LazyBatchGenerator for Integers {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn generate_next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let Some(long) = self.long.write().generate_next_batch()? else { return Ok(None) };
        let columns = long.columns().iter().map(|numbers| cast(numbers, &DataType::Int32));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.schema), columns)?))
    }

    fn reset_state(&self) -> Arc<RwLock<dyn LazyBatchGenerator>> {
        let long = self.long.read().reset_state();
        Arc::new(RwLock::new(Integers { long, schema: Arc::clone(&self.schema) }))
    }
}

impl fmt::Display for Integers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "integers of {}", self.long.read())
    }
}
