//! Is a plan still being made that nobody waits for? Between any two of the planner's rules the statement's flag is
//! asked (`stop.rs`).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::running::StatementContext;

/// A rule that changes nothing, and ends the planning of what nobody waits for.
#[derive(Debug)]
pub(crate) struct WhileWaited;

impl OptimizerRule for WhileWaited {
    fn name(&self) -> &str {
        "while_waited"
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        StatementContext::of(&config.options()).stop.check()?;
        Ok(Transformed::no(plan))
    }
}

impl PhysicalOptimizerRule for WhileWaited {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        StatementContext::of(config).stop.check()?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        "tarn_while_waited"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
