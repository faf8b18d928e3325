//! How is a generated column computed? `GENERATED ALWAYS AS (a * 2) STORED`
//!
//! Of the other columns of its row, whenever that is written; nobody else gives it a value. What it is computed from
//! must say the same of a row in every session and at every time: what hangs on the clock, on chance or on the
//! session's time zone is refused.

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Volatility};
use tarn_query::CompiledExprs;
use tarn_types::{DataType, TableSchema};

use super::Session;
use super::defaults::check_type;
use crate::error::{Result, SqlError, state};
use crate::expressions::ExpressionContext;

/// Functions of instants that do not hang on the session's time zone.
const OF_INSTANTS: [&str; 2] = ["timezone", "date_bin"];

impl Session {
    /// A column for each that is generated, in their order; of most tables there are none.
    pub(super) async fn compiled_generated(&self, table: &TableSchema) -> Result<Option<CompiledExprs>> {
        let columns = table.columns.iter().enumerate();
        let exprs = columns.filter_map(|(at, column)| Some((column, &table.generated(at)?.expr)));
        let exprs: Vec<String> = exprs
            .map(|(column, expr)| match column.data_type {
                // A cast to a length would cut what is too long.
                DataType::Text => format!("({expr})::text"),
                of => format!("({expr})::{of}"),
            })
            .collect();
        match exprs.is_empty() {
            true => Ok(None),
            false => Ok(Some(self.compiled_of(table, &exprs).await?)),
        }
    }

    /// Whether the generated columns of a table that is to be made can be computed, and are of the right types.
    ///
    /// Errors: `42P17` for what is not the same in every session; `42804`; of planning.
    pub(super) async fn plan_generated(&self, table: &TableSchema) -> Result<()> {
        for (at, column) in table.shown().iter().enumerate() {
            let Some(generated) = table.generated(at) else { continue };
            let plan = self.plan_of_rows(table, &generated.expr, ExpressionContext::Generated).await?;
            if !is_immutable(&plan)? {
                return Err(SqlError::new(state::INVALID_OBJECT_DEFINITION, "generation expression is not immutable")
                    .with_hint("the clock, chance and the session's time zone may not be asked: ts AT TIME ZONE 'UTC' names a zone"));
            }
            check_type(column, plan.schema().field(0))?;
        }
        Ok(())
    }
}

fn is_immutable(plan: &LogicalPlan) -> Result<bool> {
    let mut is_it = true;
    plan.apply_with_subqueries(|node| {
        let inputs = node.inputs();
        let Some(read) = inputs.first().map(|input| input.schema()) else { return Ok(TreeNodeRecursion::Continue) };
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                is_it &= !hangs_on_session(expr, read)?;
                Ok(if is_it { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })
    })?;
    Ok(is_it)
}

fn hangs_on_session(expr: &Expr, read: &DFSchema) -> datafusion::error::Result<bool> {
    let is_instant = |of: &ArrowType| matches!(of, ArrowType::Timestamp(_, Some(_)));
    Ok(match expr {
        Expr::ScalarFunction(called) => {
            let args = called.args.iter().map(|arg| arg.get_type(read)).collect::<Result<Vec<_>, _>>()?;
            called.func.signature().volatility != Volatility::Immutable
                || !OF_INSTANTS.contains(&called.func.name()) && args.iter().any(is_instant)
        }
        Expr::Cast(cast) => {
            let (from, to) = (cast.expr.get_type(read)?, cast.field.data_type());
            !from.is_null() && is_instant(&from) != is_instant(to)
        }
        Expr::BinaryExpr(binary) => {
            let sides = [binary.left.get_type(read)?, binary.right.get_type(read)?];
            let is_span = |of: &ArrowType| matches!(of, ArrowType::Interval(_) | ArrowType::Duration(_));
            sides.iter().any(is_instant) && sides.iter().any(is_span)
        }
        _ => false,
    })
}
