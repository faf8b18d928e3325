//! To how many rows does a window give a value? Where its frame is the whole partition, an aggregate is asked once, and
//! told of the rows that its FILTER leaves: one of a million, it may be, and the million get the value.
//!
//! `collected.rs` counts what it is told of. So such a frame becomes one that ends so many rows on that no partition
//! has them: the value is asked for row by row.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::scalar::ScalarValue;

use crate::in_windows::is_small;
use crate::rewrite::each_expression;

/// More rows than a partition in memory has.
const ALL_ROWS: u64 = u32::MAX as u64;

/// The rule; it runs when all that look at frames have.
#[derive(Debug)]
pub(crate) struct FilteredWindows;

impl OptimizerRule for FilteredWindows {
    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let is_filtered = |expr: &Expr| {
            expr.exists(|part| Ok(matches!(part, Expr::WindowFunction(call) if call.params.filter.is_some())))
        };
        let is_there = plan.exists(|node| {
            let LogicalPlan::Window(window) = node else { return Ok(false) };
            Ok(window.window_expr.iter().map(is_filtered).collect::<Result<Vec<_>>>()?.contains(&true))
        })?;
        if !is_there {
            return Ok(Transformed::no(plan));
        }
        let plan = each_expression(plan, |expr, schema| match expr {
            Expr::WindowFunction(mut call) if is_asked_once(&call, schema) => {
                let begin = WindowFrameBound::Preceding(ScalarValue::UInt64(None));
                let end = WindowFrameBound::Following(ScalarValue::UInt64(Some(ALL_ROWS)));
                call.params.window_frame = WindowFrame::new_bounds(WindowFrameUnits::Rows, begin, end);
                Ok(Transformed::yes(Expr::WindowFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(Transformed::yes(plan))
    }

    fn name(&self) -> &str {
        "tarn_filtered_windows"
    }
}

/// Whether it is an aggregate of a whole partition with a FILTER, and of values that may be large.
fn is_asked_once(call: &WindowFunction, schema: &DFSchema) -> bool {
    let params = &call.params;
    let frame = &params.window_frame;
    let is_all = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => frame.units == WindowFrameUnits::Range && params.order_by.is_empty(),
        bound => bound.is_unbounded(),
    };
    params.filter.is_some()
        && matches!(call.fun, WindowFunctionDefinition::AggregateUDF(_))
        && is_all(&frame.start_bound)
        && is_all(&frame.end_bound)
        && !Expr::from(call.clone()).get_type(schema).is_ok_and(|data_type| is_small(&data_type))
}
