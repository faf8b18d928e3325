//! Which type is `mood`, where a statement names one? The one that somebody made and called so, as it is when the statement is planned.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast;
use tarn_node::types::Types;
use tarn_query::datafusion;
use tarn_types::Enumerated;

use crate::user_types::type_name;

/// The names of types that users made.
#[derive(Debug)]
pub(super) struct NamedTypes(pub Arc<Types>);

impl TypePlanner for NamedTypes {
    fn plan_type_field(&self, named: &ast::DataType) -> Result<Option<FieldRef>> {
        let Some(found) = type_name(named).and_then(|name| self.0.get(&name)) else { return Ok(None) };
        let field = |of: Enumerated| Arc::new(of.told(Field::new("", DataType::Utf8, true)));
        Ok(found.enumerated().map(field))
    }
}
