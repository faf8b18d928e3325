//! When are two `json` equal? PostgreSQL has no answer for them, and for `jsonb` one that the texts, which are what is kept here, do not give:
//! `{"a": 1}` is `{"a":1}`. So they are not compared, sorted or made one of: who means the texts casts to `text`.

use arrow::datatypes::Field;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::datafusion;
use tarn_types::{DataType, data_type_of};

use crate::error::{SqlError, state};

/// The rule; it changes nothing.
#[derive(Debug)]
pub(super) struct NoJsonEquality;

impl AnalyzerRule for NoJsonEquality {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            check(node)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        "postgres_json_equality"
    }
}

fn check(node: &LogicalPlan) -> Result<()> {
    let inputs = node.inputs();
    if !inputs.iter().any(|input| input.schema().fields().iter().any(|field| is_json_field(field))) {
        return Ok(());
    }
    let mut schema = DFSchema::empty();
    inputs.iter().for_each(|input| schema.merge(input.schema()));
    let is_json = |expr: &Expr| expr.to_field(&schema).is_ok_and(|(_, field)| is_json_field(&field));
    let refuse = |what: &str| Err(refused(what).into());
    match node {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.iter().any(is_json) => return refuse("GROUP BY"),
        LogicalPlan::Distinct(Distinct::On(on)) if !on.on_expr.iter().any(is_json) => {}
        LogicalPlan::Distinct(_) => return refuse("DISTINCT or UNION"),
        LogicalPlan::Sort(sort) if sort.expr.iter().any(|by| is_json(&by.expr)) => return refuse("ORDER BY"),
        LogicalPlan::Join(join) if join.on.iter().any(|(left, right)| is_json(left) || is_json(right)) => {
            return refuse("a join");
        }
        _ => {}
    }
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            let is_compared = match expr {
                Expr::BinaryExpr(of) => {
                    (of.op.supports_propagation()
                        || matches!(of.op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom))
                        && (is_json(&of.left) || is_json(&of.right))
                }
                Expr::InList(of) => is_json(&of.expr),
                Expr::Between(of) => is_json(&of.expr),
                Expr::AggregateFunction(of) => {
                    (of.params.distinct || matches!(of.func.name(), "min" | "max"))
                        && of.params.args.iter().any(is_json)
                }
                _ => false,
            };
            if is_compared {
                return Err(refused("a comparison").into());
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(())
}

fn is_json_field(field: &Field) -> bool {
    data_type_of(field).is_ok_and(|of| of == DataType::Json)
}

fn refused(what: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_FUNCTION, format!("json in {what}: values of type json cannot be compared"))
        .with_hint("cast it to text to compare what was written: doc::text")
}
