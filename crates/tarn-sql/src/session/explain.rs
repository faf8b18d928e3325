//! What does `EXPLAIN (FORMAT JSON)` answer? One row with the plan as PostgreSQL writes it
//! (`tarn_query::explain_json`); with ANALYZE the query runs, and its rows go nowhere.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ParamValues;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Expr, UtilityOption, Value as Literal};
use tarn_query::explain_json::{ExplainOptions, json};
use tarn_types::{DataType, Value, arrow_field};

use super::{Answer, Session};
use crate::error::Result;

/// A query whose plan is asked for.
#[derive(Debug)]
pub(super) struct ExplainStatement {
    /// Of the query, which may still be optimized.
    pub plan: LogicalPlan,
    /// Whether it runs.
    pub analyze: bool,
    /// What is said beside the nodes.
    pub shown: ExplainOptions,
}

/// What the parser left of the options.
pub(super) fn shown(options: &[UtilityOption], verbose: bool) -> ExplainOptions {
    let is_on = |name: &str| {
        let given = options.iter().find(|option| option.name.value == name).and_then(|option| option.arg.as_ref());
        matches!(given, Some(Expr::Value(value)) if value.value == Literal::Boolean(true))
    };
    ExplainOptions { verbose, timing: is_on("timing"), summary: is_on("summary") }
}

/// The only column, of type `json`.
pub(super) fn columns() -> SchemaRef {
    Arc::new(Schema::new(vec![arrow_field("QUERY PLAN", &DataType::Json, false)]))
}

impl Session {
    pub(super) async fn explain(&self, asked: &ExplainStatement, parameters: Option<ParamValues>) -> Result<Answer> {
        let plan = self.permitted(asked.plan.clone())?;
        let node = Arc::clone(&self.node);
        let now_us = move || node.clock().monotonic_us();
        let measured = self.query.measured(plan, parameters, asked.analyze, now_us).await?;
        let text = Value::Text(json(&measured, asked.shown)).to_array(&DataType::Json, 1)?;
        Ok(Answer::batch(RecordBatch::try_new(columns(), vec![text])?, "EXPLAIN"))
    }
}
