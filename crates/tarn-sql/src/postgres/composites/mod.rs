//! What is a value of a row type, `ROW(1, 'x')::pair`, to a statement? A struct of the planner's that says of which
//! type it is (`row_type`), and has the fields that columns of a table would be (`row_fields`). `(v).a` is a function
//! of it (`postgres/row_access`).
//!
//! - `text`: what a text says that is a row, `(1,"a b",)`
//! - `function`: functions of rows, which plans call
//! - `convert`: how a value becomes a row; `cast`: what is cast to one, and fields that are asked for
//! - `compare`: comparisons, and what is NULL
//! - `populate`: rows that are read out of JSON

mod cast;
mod compare;
mod convert;
mod function;
mod populate;
mod text;

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::planner::ExprPlanner;
use tarn_query::{Rule, datafusion};

/// The functions that statements name.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![function::field_by_name(), function::text(), populate::json_as()]
        .into_iter()
        .chain(populate::functions())
        .collect()
}

/// Of expressions as they are written. They run before rules of single types.
pub(super) fn rules() -> Vec<Rule> {
    vec![Arc::new(cast::RowCasts), Arc::new(compare::ComparedRows)]
}

/// Of operators.
pub(super) fn planner() -> Arc<dyn ExprPlanner> {
    Arc::new(compare::RowOperators)
}
