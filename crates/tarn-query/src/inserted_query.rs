//! Which rows does `INSERT INTO t SELECT … FROM (VALUES …)` write?
//!
//! The planner takes all `VALUES` below an `INSERT` for rows of its table, those of its subqueries too, and gives them
//! that table's columns and types. So a query with such `VALUES` is planned by itself, as if nobody inserted its rows,
//! and the list of the table's columns is put above it, as the planner does.
//!
//! Rows of `VALUES` are computed one by one when they are read, and have no subqueries. So `VALUES (1, (SELECT …))` is
//! planned as `SELECT 1, (SELECT …)`.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Expr as Written, Insert, Query, SelectItem, SetExpr, SetOperator, SetQuantifier, Statement, Value as Literal,
    Values, Visitor,
};
use tarn_types::TableSchema;

use crate::engine::Session;
use crate::parser::{fold, select_of};
use crate::values::{sql_schema, to_scalar};
use crate::walk::{has_query, walk};
use crate::{Error, Result};

/// Whether an INSERT's query is planned by itself.
pub(crate) fn is_by_itself(query: &Query) -> bool {
    let asks = |values: &Values| values.rows.iter().flat_map(|row| &row.content).any(has_query);
    matches!(&*query.body, SetExpr::Values(values) if asks(values)) || has_values_within(query)
}

/// Whether a query has VALUES that are not the query itself.
fn has_values_within(query: &Query) -> bool {
    struct Bodies {
        is_outermost: bool,
    }

    impl Visitor for Bodies {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let is_all = std::mem::take(&mut self.is_outermost) && matches!(*query.body, SetExpr::Values(_));
            match !is_all && is_of_values(&query.body) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }

    walk(query, &mut Bodies { is_outermost: true }).is_break()
}

fn is_of_values(body: &SetExpr) -> bool {
    match body {
        SetExpr::Values(_) => true,
        SetExpr::SetOperation { left, right, .. } => is_of_values(left) || is_of_values(right),
        _ => false,
    }
}

impl Session {
    /// The rows of an INSERT, whose query is planned by itself: the table's columns, of the types that SQL has them in.
    ///
    /// Errors: what DataFusion says of the query; a column that is not there, or twice; more or fewer columns than the
    /// query has.
    pub(crate) async fn inserted_query(
        &self,
        insert: &Insert,
        query: &Query,
        table: &TableSchema,
    ) -> Result<LogicalPlan> {
        let (mut query, mut n_rows) = (query.clone(), 0);
        if let SetExpr::Values(values) = &mut *query.body {
            n_rows = values.rows.len();
            let rows = std::mem::take(&mut values.rows).into_iter().map(|row| row.content);
            query.body = selects(rows).map_or(query.body, Box::new);
        }
        let mut query = self.plan_unchecked(Statement::Query(Box::new(query))).await?;
        let to = sql_schema(table, false);
        let mut n_given = query.schema().fields().len();
        if n_rows > 1 {
            // They are written in the order in which they are given.
            n_given -= 1;
            let place = Expr::Column(Column::from(query.schema().qualified_field(n_given)));
            query = LogicalPlanBuilder::from(query).sort([place.sort(true, false)])?.build()?;
        }
        let places = places_of(insert, table, n_given)?;
        check_count(n_given, if insert.columns.is_empty() { to.fields().len().min(n_given) } else { places.len() })?;
        let given: Vec<FieldRef> = places.iter().map(|place| Arc::clone(&to.fields()[*place])).collect();
        let query = with_types(query, &given)?;
        let columns = to.fields().iter().enumerate().map(|(at, field)| {
            let value = match places.iter().position(|place| *place == at) {
                Some(given) => Expr::Column(Column::from(query.schema().qualified_field(given))),
                None => default_of(table, at),
            };
            Ok(value.cast_to(field.data_type(), query.schema())?.alias(field.name()))
        });
        let columns = columns.collect::<Result<Vec<Expr>>>()?;
        Ok(LogicalPlanBuilder::from(query).project(columns)?.build()?)
    }
}

/// Whether an `INSERT` gives as many values as there are columns that they are for.
///
/// Errors: it gives more, or fewer.
pub fn check_count(n_given: usize, n_columns: usize) -> Result<()> {
    let message = match n_given.cmp(&n_columns) {
        Ordering::Equal => return Ok(()),
        Ordering::Greater => "INSERT has more expressions than target columns",
        Ordering::Less => "INSERT has more target columns than expressions",
    };
    Err(DataFusionError::Plan(message.to_owned()).into())
}

/// `SELECT … UNION ALL SELECT …`, of these rows; of several, each with its place behind.
fn selects(rows: impl ExactSizeIterator<Item = Vec<Written>>) -> Option<SetExpr> {
    let are_several = rows.len() > 1;
    let select = |(place, mut row): (usize, Vec<Written>)| {
        if are_several {
            row.push(Written::Value(Literal::Number(place.to_string(), false).into()));
        }
        let items = row.into_iter().map(SelectItem::UnnamedExpr).collect();
        SetExpr::Select(Box::new(select_of(items, vec![], None)))
    };
    rows.enumerate().map(select).reduce(|left, right| SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier: SetQuantifier::All,
        left: Box::new(left),
        right: Box::new(right),
    })
}

/// Parameters that are values themselves have the types of their columns.
pub(crate) fn with_types(plan: LogicalPlan, fields: &[FieldRef]) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(list) = plan else { return Ok(plan) };
    let typed = list.expr.into_iter().zip(fields).map(|(mut expr, field)| {
        let value = match &mut expr {
            Expr::Alias(alias) => alias.expr.as_mut(),
            value => value,
        };
        if let Expr::Placeholder(of) = value
            && of.field.is_none()
        {
            of.field = Some(Arc::clone(field));
        }
        expr
    });
    Ok(LogicalPlanBuilder::from(list.input).project(typed.collect::<Vec<_>>())?.build()?)
}

/// The columns that values are given for: those that are named, or the first ones.
pub(crate) fn places_of(insert: &Insert, table: &TableSchema, n_given: usize) -> Result<Vec<usize>> {
    if insert.columns.is_empty() {
        return Ok((0..n_given).collect());
    }
    let mut places = Vec::with_capacity(insert.columns.len());
    for name in &insert.columns {
        let column = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
        let Some(place) = table.shown().iter().position(|other| other.name == column) else {
            let table_name = table.name.clone();
            return Err(Error::types(&table.name)(tarn_types::Error::UnknownColumn { table: table_name, column }));
        };
        if places.contains(&place) {
            let twice = SchemaError::DuplicateUnqualifiedField { name: column };
            return Err(DataFusionError::SchemaError(Box::new(twice), Box::new(None)).into());
        }
        places.push(place);
    }
    Ok(places)
}

/// The constant that a column has without being given one.
fn default_of(table: &TableSchema, at: usize) -> Expr {
    let column = &table.columns[at];
    let default = column.default.as_ref().and_then(|value| to_scalar(value, &column.data_type));
    lit(default.unwrap_or(ScalarValue::Null))
}
