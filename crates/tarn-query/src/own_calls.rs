//! How often does a function run that is called twice? Twice: `SELECT pg_advisory_unlock(1), pg_advisory_unlock(1)` is
//! `t` and `f`.
//!
//! DataFusion computes equal calls of functions that wait once, and shows what came of it in all their places, also
//! where each call changes something. So calls that are there several times are made unequal: each is of a function
//! that has a number.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use async_trait::async_trait;
use datafusion::common::config::ConfigOptions;
use datafusion::common::exec_err;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::rewrite::each_expression;

/// The rule; it runs when types are known.
#[derive(Debug)]
pub(crate) struct OwnCalls;

impl AnalyzerRule for OwnCalls {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let (mut seen, mut has_equal) = (HashSet::new(), false);
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    if let Expr::ScalarFunction(call) = expr
                        && is_each_its_own(call)
                    {
                        has_equal |= !seen.insert(call.clone());
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        if !has_equal {
            return Ok(plan);
        }
        let seen: RefCell<HashSet<ScalarFunction>> = RefCell::default();
        each_expression(plan, |expr, _| {
            Ok(match expr {
                Expr::ScalarFunction(call) if is_each_its_own(&call) => {
                    let mut seen = seen.borrow_mut();
                    let nth = seen.len();
                    match seen.insert(call.clone()) {
                        true => Transformed::no(Expr::ScalarFunction(call)),
                        false => {
                            let own = numbered(call, nth);
                            seen.insert(own.clone());
                            Transformed::yes(Expr::ScalarFunction(own))
                        }
                    }
                }
                other => Transformed::no(other),
            })
        })
    }

    fn name(&self) -> &str {
        "own_calls"
    }
}

fn is_each_its_own(call: &ScalarFunction) -> bool {
    call.func.signature().volatility == Volatility::Volatile
        && call.func.inner().downcast_ref::<AsyncScalarUDF>().is_some()
}

fn numbered(call: ScalarFunction, nth: usize) -> ScalarFunction {
    let function = AsyncScalarUDF::new(Arc::new(NumberedCall { inner: call.func, nth })).into_scalar_udf();
    ScalarFunction::new_udf(Arc::new(function), call.args)
}

/// A function, as one call has it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NumberedCall {
    inner: Arc<ScalarUDF>,
    nth: usize,
}

impl ScalarUDFImpl for NumberedCall {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for NumberedCall {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.inner.inner().downcast_ref::<AsyncScalarUDF>() {
            Some(inner) => inner.invoke_async_with_args(args).await,
            None => exec_err!("{} does not wait", self.inner.name()),
        }
    }
}
