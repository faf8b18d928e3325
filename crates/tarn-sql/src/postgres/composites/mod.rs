//! What is a value of a row type, `ROW(1, 'x')::pair`, to a statement? A struct of the planner's, whose first field says in its metadata of which type it is:
//! so what goes through CASE, UNION and subqueries is of the type still. The rows of a table are of a type that is called as the table is, and
//! has no number of its own.
//!
//! - `text`: what a text says that is a row, `(1,"a b",)`
//! - `function`: functions of rows, which plans call
//! - `cast`: what becomes a row, and fields that are asked for
//! - `compare`: comparisons, and what is NULL
//! - `populate`: rows that are read out of JSON

mod cast;
mod compare;
mod function;
mod populate;
mod text;

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::planner::ExprPlanner;
use tarn_query::{Rule, datafusion};

/// The functions that statements name.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![function::field_by_name(), populate::json_as()].into_iter().chain(populate::functions()).collect()
}

/// Of expressions as they are written. They run before rules of single types.
pub(super) fn rules() -> Vec<Rule> {
    vec![Arc::new(cast::RowCasts), Arc::new(compare::ComparedRows)]
}

/// Of operators.
pub(super) fn planner() -> Arc<dyn ExprPlanner> {
    Arc::new(compare::RowOperators)
}
