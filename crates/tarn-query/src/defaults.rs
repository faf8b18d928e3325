//! What has a row that is inserted without a value for a column, if that is computed?
//!
//! Constants are DataFusion's business, which asks the table for them. An expression is the front end's: it plans it,
//! and here it takes the place of the NULL that DataFusion has put there. It is computed for each row, in the list of
//! columns above the rows' source.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection};

use crate::dml::{Dml, DmlKind};
use crate::values::sql_schema;
use crate::{Error, Result};

impl Dml {
    /// The columns that an INSERT says nothing of, by place. Of other statements none.
    pub fn left_out(&self) -> Vec<usize> {
        let (DmlKind::Insert { .. }, LogicalPlan::Projection(list)) = (self.kind, &self.source) else { return vec![] };
        // A column that is given is one of the source, whatever it is cast to.
        let is_constant = |(place, expr): (usize, &Expr)| expr.column_refs().is_empty().then_some(place);
        list.expr.iter().enumerate().filter_map(is_constant).collect()
    }

    /// As it is, with these expressions in the place of columns that were left out. They name no columns, and are cast
    /// to the column's type.
    ///
    /// Errors: an expression that can never be of that type.
    pub fn with_defaults(self, defaults: Vec<(usize, Expr)>) -> Result<Dml> {
        if defaults.is_empty() {
            return Ok(self);
        }
        let LogicalPlan::Projection(list) = self.source else {
            return Err(Error::Unsupported {
                what: "a default that is computed, in this INSERT".to_owned(),
                remedy: "give the value in the INSERT",
            });
        };
        let schema = sql_schema(&self.table, false);
        let mut columns = list.expr;
        for (place, default) in defaults {
            let field = schema.field(place);
            columns[place] = default.cast_to(field.data_type(), &DFSchema::empty())?.alias(field.name());
        }
        let source = LogicalPlan::Projection(Projection::try_new(columns, list.input)?);
        Ok(Dml { source, ..self })
    }
}

/// The only expression of `SELECT expression`, as it was planned.
///
/// Errors: it is no such query, because the expression makes rows, or is computed over rows.
pub fn only_expression(plan: LogicalPlan) -> Option<Expr> {
    let LogicalPlan::Projection(list) = plan else { return None };
    let LogicalPlan::EmptyRelation(_) = list.input.as_ref() else { return None };
    let [expr] = <[Expr; 1]>::try_from(list.expr).ok()?;
    Some(expr.unalias())
}

/// A query of one row and one column: an expression that names no columns, as a value of `field`'s type, as an INSERT
/// would put it there.
///
/// Errors: an expression that can never be of that type.
pub fn computing(expr: Expr, field: &arrow::datatypes::Field) -> Result<LogicalPlan> {
    let column = expr.cast_to(field.data_type(), &DFSchema::empty())?.alias(field.name());
    Ok(LogicalPlanBuilder::empty(true).project([column])?.build()?)
}

/// The type that an expression without columns has.
///
/// Errors: as of planning it.
pub fn type_of(expr: &Expr) -> Result<Arc<arrow::datatypes::Field>> {
    Ok(expr.to_field(&DFSchema::empty())?.1)
}
