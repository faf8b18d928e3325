//! Which type is `mood`, where a statement names one? The one that somebody made and called so, as it is when the
//! statement is planned.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast;
use tarn_node::types::Types;
use tarn_query::datafusion;

use crate::catalog_types::type_oid;
use crate::row_fields::field_of;
use crate::user_types::{type_name, undefined_type};

/// The names of types that users made.
#[derive(Debug)]
pub(super) struct NamedTypes(pub Arc<Types>);

impl TypePlanner for NamedTypes {
    fn plan_type_field(&self, named: &ast::DataType) -> Result<Option<FieldRef>> {
        let Some(name) = type_name(named) else { return Ok(None) };
        let label = self.0.get(&name).and_then(|of| of.enumerated());
        Ok(match label {
            Some(of) => Some(Arc::new(of.told(Field::new("", DataType::Utf8, true)))),
            None => match field_of(&name, &self.0)? {
                Some(row) => Some(Arc::new(row)),
                // Those of the catalog are known to others.
                None if type_oid(&name).is_some() || name.contains('.') || name.starts_with("reg") => None,
                None => return Err(undefined_type(&name).into()),
            },
        })
    }
}
