//! Are `sum(x)` and `sum(x::numeric)` one column? Two. The planner names a cast by what is below it, and wants a name
//! of its own for each aggregate, window and key of GROUP BY: it refuses a statement in which two of them have one, or
//! lets the optimizer do so.
//!
//! ```text
//! SELECT sum(x), sum(x::numeric) FROM t        SELECT sum(x), sum(tarn_named(x::numeric)) FROM t
//! ```
//!
//! So such a statement with casts is planned once more, with a mark around each of them: a function that is called by
//! its type, too, and gives what it is given. The optimizer takes it away when all columns are named; until then it
//! keeps its name, whatever rules make of the cast. What is wrong about a statement that cannot be planned so either is
//! told as it was at first.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, exec_err};
use datafusion::error::Result as PlanResult;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast;

use crate::parser::{call, fold};
use crate::rewrite::each_expression;
use crate::walk::{each_expr, walk_mut};

/// The mark around a cast: a function that gives its argument.
pub const NAMED_CAST: &str = "tarn_named";

/// The function that marks casts.
pub(crate) fn function() -> ScalarUDF {
    named(None)
}

fn named(called: Option<String>) -> ScalarUDF {
    Named { signature: Signature::any(1, Volatility::Immutable), called }.into()
}

/// The plan of a statement, whatever its casts are called.
pub(crate) async fn planned(state: &SessionState, statement: ast::Statement) -> PlanResult<LogicalPlan> {
    let plan = |statement| state.statement_to_plan(Parsed::Statement(Box::new(statement)));
    let has_casts = each_expr(&statement, |expr| match is_cast(expr, state) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    if has_casts.is_continue() {
        return plan(statement).await;
    }
    let first = plan(statement.clone()).await;
    if let Ok(planned) = &first
        && !calls_alike(planned)?
    {
        return first;
    }
    match plan(marked(statement, state)).await {
        Ok(planned) => with_kept_names(planned),
        Err(_) => first,
    }
}

/// Whether two keys, aggregates or windows in one place of a plan have one name: what the planner took, the optimizer
/// may refuse.
fn calls_alike(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut are_alike = false;
    plan.apply_with_subqueries(|node| {
        let exprs: Vec<&Expr> = match node {
            LogicalPlan::Aggregate(aggregate) => {
                let keys = grouping_set_to_exprlist(&aggregate.group_expr)?;
                keys.into_iter().chain(&aggregate.aggr_expr).collect()
            }
            LogicalPlan::Window(window) => window.window_expr.iter().collect(),
            _ => vec![],
        };
        let mut named: HashMap<String, &Expr> = HashMap::with_capacity(exprs.len());
        for expr in exprs {
            are_alike |= named.insert(expr.schema_name().to_string(), expr).is_some_and(|other| other != expr);
        }
        Ok(if are_alike { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(are_alike)
}

/// The plan with marks that are called as they are now.
fn with_kept_names(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    each_expression(plan, |expr, _| {
        Ok(match expr {
            Expr::ScalarFunction(mark) if mark.name() == NAMED_CAST => {
                let called = mark.func.schema_name(&mark.args)?;
                Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(named(Some(called)).into(), mark.args)))
            }
            other => Transformed::no(other),
        })
    })
}

fn marked(mut statement: ast::Statement, state: &SessionState) -> ast::Statement {
    struct Casts<'a>(&'a SessionState);
    impl ast::VisitorMut for Casts<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
            if is_cast(expr, self.0) {
                let cast = std::mem::replace(expr, ast::Expr::Value(ast::Value::Null.with_empty_span()));
                *expr = call(NAMED_CAST, vec![cast]);
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(&mut statement, &mut Casts(state));
    statement
}

/// A cast of something that is no constant, or a function that is one, and called as one.
fn is_cast(expr: &ast::Expr, state: &SessionState) -> bool {
    match expr {
        ast::Expr::Cast { expr: of, .. } => !is_constant(of),
        ast::Expr::Function(function) => {
            let [ast::ObjectNamePart::Identifier(name)] = &function.name.0[..] else { return false };
            let ast::FunctionArguments::List(list) = &function.args else { return false };
            let is_named_by_first = |function: &ScalarUDF| {
                let column = |idx: usize| Expr::Column(Column::new_unqualified(format!("c{idx}")));
                let columns: Vec<Expr> = (0..list.args.len()).map(column).collect();
                function.schema_name(&columns).is_ok_and(|name| name == "c0")
            };
            let first_is_constant = list.args.first().is_none_or(|arg| match arg {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(of)) => is_constant(of),
                _ => true,
            });
            let function = || state.scalar_functions().get(&fold(name));
            !first_is_constant && function().is_some_and(|function| is_named_by_first(function))
        }
        _ => false,
    }
}

/// What the planner may look at as it is written.
fn is_constant(expr: &ast::Expr) -> bool {
    match expr {
        ast::Expr::Value(_) | ast::Expr::TypedString(_) | ast::Expr::Interval(_) => true,
        ast::Expr::Cast { expr, .. } | ast::Expr::Nested(expr) | ast::Expr::UnaryOp { expr, .. } => is_constant(expr),
        _ => false,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Named {
    signature: Signature,
    /// As soon as it is planned.
    called: Option<String>,
}

impl ScalarUDFImpl for Named {
    fn name(&self) -> &str {
        NAMED_CAST
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[ArrowType]) -> PlanResult<ArrowType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        if let Some(called) = &self.called {
            return Ok(called.clone());
        }
        let [cast] = args else { return exec_err!("{NAMED_CAST} is of one value") };
        let mut cast = cast;
        // A function that is called by another of its names is called so.
        while let Expr::Alias(alias) = cast {
            cast = &alias.expr;
        }
        Ok(match cast {
            Expr::Cast(cast) => format!("CAST({} AS {})", cast.expr.schema_name(), cast.field.data_type()),
            Expr::ScalarFunction(function) => {
                let names: Vec<String> = function.args.iter().map(|arg| arg.schema_name().to_string()).collect();
                format!("{}({})", function.name(), names.join(","))
            }
            other => other.schema_name().to_string(),
        })
    }

    fn simplify(&self, mut args: Vec<Expr>, _: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        Ok(match args.pop() {
            Some(cast) if args.is_empty() => ExprSimplifyResult::Simplified(cast),
            last => ExprSimplifyResult::Original(args.into_iter().chain(last).collect()),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        match <[ColumnarValue; 1]>::try_from(args.args) {
            Ok([value]) => Ok(value),
            Err(_) => exec_err!("{NAMED_CAST} is of one value"),
        }
    }
}
