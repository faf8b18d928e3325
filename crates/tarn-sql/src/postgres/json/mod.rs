//! What can be done with JSON?
//!
//! A `json` is kept as it came, a `jsonb` in its normal form (`tarn_types::json`): both are texts to the planner, with
//! the name of the type beside them. So is what is taken out of one, which is a piece of its text.
//!
//! - `walk`: what is in a text that is JSON
//! - `key`: the bytes by which `jsonb` are compared; `compare` puts them into plans
//! - `function`: functions of JSON and other values, of which are `get`, `contain`, `change`, `describe`, `list` and
//!   `cast`
//! - `operators`: which function stands for `->`, `@>`, `||`, …
//! - `assigned`: what an assignment to a part makes
//! - `path`: what a `jsonpath` finds
//! - `build`: JSON of other values
//! - `marked`: what `coalesce` and CASE give of JSON
//! - `written`: calls that are read as others: aggregates and sets; `set_lax`, `record_sets` and `to_record`: some of
//!   them; `populate`: one that a session knows the columns of

mod assigned;
mod build;
mod cast;
mod change;
mod compare;
mod contain;
mod describe;
mod function;
mod get;
mod key;
mod list;
mod marked;
mod operators;
mod path;
pub(super) mod populate;
pub(super) mod record_sets;
mod set_lax;
pub(super) mod to_record;
mod walk;
pub(super) mod written;

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::planner::ExprPlanner;
use tarn_query::{Rule, datafusion};

pub(super) use self::build::{BUILD_ARRAY_OF, BUILD_OBJECT_OF};
pub(super) use self::compare::OF_TEXTS;
pub(super) use self::get::check_escapes;
pub(super) use self::marked::{is_untyped, kept_type, values_of};
pub(super) use self::to_record::JSON_AS;
pub(super) use self::walk::{Json, JsonKind};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [
        build::functions(),
        vec![assigned::assigned()],
        change::functions(),
        contain::functions(),
        describe::functions(),
        get::functions(),
        list::functions(),
        marked::functions(),
        path::functions(),
    ]
    .concat()
}

/// Of expressions as they are written.
pub(super) fn rules() -> Vec<Rule> {
    vec![
        Arc::new(marked::JsonMarkRule),
        Arc::new(cast::JsonCasts),
        Arc::new(compare::JsonComparisonRule),
        Arc::new(function::JsonCheckRule),
    ]
}

/// Of operators.
pub(super) fn planner() -> Arc<dyn ExprPlanner> {
    Arc::new(operators::JsonOperators)
}
