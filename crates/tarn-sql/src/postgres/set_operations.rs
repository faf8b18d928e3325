//! What are the rows of `EXCEPT ALL` and `INTERSECT ALL`, and of which type are those of EXCEPT and INTERSECT? A row
//! that one side has twice and the other once is there once in `EXCEPT ALL`. The planner joins the sides, and takes
//! each row of the left as often as it is there, or not at all; and its columns are of the left side's types, where
//! PostgreSQL's are of one that both fit in.
//!
//! So the copies of each row are numbered, on both sides, and the numbers are compared with the columns: of three
//! copies against one, the second and the third have none beside them. Types are made one before, as those of a UNION
//! are (`unions`).

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{Distinct, Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::datafusion;

use super::common_types::Common;
use super::unions::with_types_together;

/// Which copy of its row one is.
const COPY: &str = "__copy";

/// The rule, which runs when a statement is planned.
#[derive(Debug)]
pub(super) struct SetOperations;

impl AnalyzerRule for SetOperations {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let (mut is_changed, common) = (false, Common::of(&plan, config)?);
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let changed = rewritten(node, &common)?;
            is_changed |= changed.transformed;
            if is_changed { changed.map_data(LogicalPlan::recompute_schema) } else { Ok(changed) }
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &str {
        "set_operations"
    }
}

fn rewritten(node: LogicalPlan, common: &Common) -> Result<Transformed<LogicalPlan>> {
    // Nothing else is joined so when a statement was just planned: NULLs are equal, and the left side's rows alone
    // stay.
    let is_set_operation = matches!(
        &node,
        LogicalPlan::Join(Join {
            join_type: JoinType::LeftSemi | JoinType::LeftAnti,
            null_equality: NullEquality::NullEqualsNull,
            filter: None,
            ..
        })
    );
    let join = match node {
        LogicalPlan::Join(join) if is_set_operation && !is_done(&join) => join,
        node => return Ok(Transformed::no(node)),
    };
    let operation = if join.join_type == JoinType::LeftSemi { "INTERSECT" } else { "EXCEPT" };
    let (left, is_all) = match join.left.as_ref() {
        LogicalPlan::Distinct(Distinct::All(rows)) => (Arc::clone(rows), false),
        _ => (Arc::clone(&join.left), true),
    };
    let sides = with_types_together(operation, vec![left, Arc::clone(&join.right)], common)?;
    let [left, right] = <[_; 2]>::try_from(sides.data).expect("as many as went in");
    let types = common_types(left.schema(), right.schema());
    if !is_all && !sides.transformed && types.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let (left, right) = (typed(&left, &types)?, typed(&right, &types)?);
    let columns: Vec<Expr> = left.schema().columns().into_iter().map(Expr::Column).collect();
    let (left, right) = match is_all {
        true => (numbered(left)?, numbered(right)?),
        false => (LogicalPlanBuilder::from(left).distinct()?.build()?, right),
    };
    let keys = (left.schema().columns(), right.schema().columns());
    let joined = LogicalPlanBuilder::from(left).join_detailed(
        right,
        join.join_type,
        keys,
        None,
        NullEquality::NullEqualsNull,
    )?;
    Ok(Transformed::yes(joined.project(columns)?.build()?))
}

/// Whether its rows are numbered already, or there is nothing in them.
fn is_done(join: &Join) -> bool {
    let fields = join.left.schema().fields();
    fields.last().is_none_or(|field| field.name() == COPY) || fields.len() != join.right.schema().fields().len()
}

/// Of each column, the type that both sides become. `None`: they stay.
fn common_types(left: &DFSchema, right: &DFSchema) -> Vec<Option<DataType>> {
    let columns = left.fields().iter().zip(right.fields().iter());
    columns.map(|(left, right)| common_type(left.data_type(), right.data_type())).collect()
}

/// That of two numbers; of two moments, of which a date is a `timestamp` beside one, and both are instants beside one,
/// where they are not cast already.
fn common_type(left: &DataType, right: &DataType) -> Option<DataType> {
    match (left, right) {
        (left, right) if left == right => None,
        (left, right) if left.is_numeric() && right.is_numeric() => type_union_coercion(left, right),
        (DataType::Date32 | DataType::Timestamp(_, None), moment @ DataType::Timestamp(..))
        | (moment @ DataType::Timestamp(..), DataType::Date32 | DataType::Timestamp(_, None)) => Some(moment.clone()),
        _ => None,
    }
}

fn typed(rows: &Arc<LogicalPlan>, types: &[Option<DataType>]) -> Result<LogicalPlan> {
    let is_other = |(field, of): (&Arc<arrow::datatypes::Field>, &Option<DataType>)| {
        of.as_ref().is_some_and(|of| of != field.data_type())
    };
    if !rows.schema().fields().iter().zip(types).any(is_other) {
        return Ok(rows.as_ref().clone());
    }
    let columns = rows.schema().columns().into_iter().zip(types).map(|(column, of)| match of {
        Some(of) => {
            let (relation, name) = (column.relation.clone(), column.name.clone());
            cast(Expr::Column(column), of.clone()).alias_qualified(relation, name)
        }
        None => Expr::Column(column),
    });
    LogicalPlanBuilder::from(Arc::clone(rows)).project(columns)?.build()
}

/// The rows, and of each which copy it is.
fn numbered(rows: LogicalPlan) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = rows.schema().columns().into_iter().map(Expr::Column).collect();
    let number = row_number().partition_by(columns.clone()).build()?;
    let called = Expr::Column(Column::from_name(number.schema_name().to_string()));
    let columns = columns.into_iter().chain([called.alias(COPY)]);
    LogicalPlanBuilder::from(rows).window([number])?.project(columns)?.build()
}
