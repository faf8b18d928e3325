//! Of which type is `1`? An `integer` in PostgreSQL, if it fits one, else a `bigint`; DataFusion reads every whole number as a `bigint`. So `SELECT 1` was told as
//! `int8`, which some clients show as a text, `2147483647 + 1` did not overflow, and `CREATE TABLE … AS SELECT 1` made a `bigint` column.
//!
//! It runs once, when a statement is planned: a parameter that is bound later is of the type that it was declared with. Left as they are:
//! LIMIT and OFFSET, which want a `bigint`; what is counted, where `1` stands for a row; grouping sets; and plans whose parts have agreed upon types already, which are
//! recursive queries and correlated subqueries. Columns of a UNION stay what they were planned as.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Values};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::each_whole_expression;

/// The rule.
#[derive(Debug)]
pub(super) struct IntegerLiterals;

impl AnalyzerRule for IntegerLiterals {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if has_agreed_types(&plan)? {
            return Ok(plan);
        }
        let plan = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Values(values) => rows(values).map(|values| values.update_data(LogicalPlan::Values)),
            node => Ok(Transformed::no(node)),
        })?;
        let may_change = |node: &LogicalPlan| !matches!(node, LogicalPlan::Limit(_) | LogicalPlan::Values(_));
        each_whole_expression(plan.data, may_change, narrowed)
    }

    fn name(&self) -> &str {
        "integer_literals"
    }
}

/// Whether a part of the plan keeps types of another part, which would not change with it.
fn has_agreed_types(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::RecursiveQuery(_));
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                found |= matches!(expr, Expr::OuterReferenceColumn(..));
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The expression with literals that fit.
fn narrowed(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_down(|expr| {
        Ok(match expr {
            Expr::Literal(ScalarValue::Int64(Some(value)), metadata) => match i32::try_from(value) {
                Ok(value) => Transformed::yes(Expr::Literal(ScalarValue::Int32(Some(value)), metadata)),
                Err(_) => Transformed::no(Expr::Literal(ScalarValue::Int64(Some(value)), metadata)),
            },
            kept if is_kept(&kept) => Transformed::new(kept, false, TreeNodeRecursion::Jump),
            other => Transformed::no(other),
        })
    })
}

/// What is counted, and grouping sets, whose expressions are columns of that name above.
fn is_kept(expr: &Expr) -> bool {
    match expr {
        Expr::GroupingSet(_) => true,
        Expr::AggregateFunction(AggregateFunction { func, .. }) => func.name() == "count",
        Expr::WindowFunction(window) => {
            let WindowFunction { fun, .. } = window.as_ref();
            matches!(fun, WindowFunctionDefinition::AggregateUDF(func) if func.name() == "count")
        }
        _ => false,
    }
}

/// A NULL that was written, which VALUES casts to the type of its column.
fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => is_null(&cast.expr),
        _ => false,
    }
}

/// VALUES say what types their columns have: a column becomes one of integers if all of its values do.
fn rows(values: Values) -> Result<Transformed<Values>> {
    let nothing = DFSchema::empty();
    let mut fields: Vec<_> = values.schema.iter().map(|(of, field)| (of.cloned(), Arc::clone(field))).collect();
    let mut rows = values.values.clone();
    let mut is_changed = false;
    for (column, (_, field)) in fields.iter_mut().enumerate() {
        if field.data_type() != &DataType::Int64 {
            continue;
        }
        let of_column = values.values.iter().map(|row| match &row[column] {
            value if is_null(value) => Ok(Expr::Literal(ScalarValue::Int32(None), None)),
            value => narrowed(value.clone()).map(|value| value.data),
        });
        let of_column = of_column.collect::<Result<Vec<_>>>()?;
        let fits = of_column.iter().try_for_each(|expr| match expr.get_type(&nothing) {
            Ok(DataType::Int32) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        if fits.is_break() {
            continue;
        }
        for (row, expr) in rows.iter_mut().zip(of_column) {
            row[column] = expr;
        }
        *field = Arc::new(Field::new(field.name(), DataType::Int32, field.is_nullable()));
        is_changed = true;
    }
    let schema: DFSchemaRef = match is_changed {
        true => Arc::new(DFSchema::new_with_metadata(fields, values.schema.metadata().clone())?),
        false => values.schema,
    };
    let values = Values { schema, values: rows };
    Ok(if is_changed { Transformed::yes(values) } else { Transformed::no(values) })
}
