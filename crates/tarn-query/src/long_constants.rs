//! How often is a long constant in a plan? The planner copies expressions, and names columns after them: a text of 5 MB
//! was there up to thirty times at once, and EXPLAIN, which keeps the plan after each rule as a text, took two
//! gigabytes.
//!
//! So a long constant becomes a function without arguments that answers it: its copies share it, and it is shown by its
//! size. The planner must not compute it again, so it says that its values change.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::scalar::ScalarValue;

use crate::rewrite::each_expression;

/// Shorter ones are copied.
const LONG_BYTES: usize = 64 << 10;

/// The rule, of what was written.
#[derive(Debug)]
pub(crate) struct LongConstants;

const NAME: &str = "long_constants";

impl AnalyzerRule for LongConstants {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        // Of lists, the planner makes other conditions first.
        Ok(shared(plan, |value| is_long(value) && !value.data_type().is_nested())?.data)
    }

    fn name(&self) -> &str {
        NAME
    }
}

impl OptimizerRule for LongConstants {
    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        shared(plan, is_long)
    }

    fn name(&self) -> &str {
        NAME
    }
}

fn is_long(value: &ScalarValue) -> bool {
    value.size() >= LONG_BYTES
}

fn shared(plan: LogicalPlan, is_shared: fn(&ScalarValue) -> bool) -> Result<Transformed<LogicalPlan>> {
    let mut is_there = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            is_there |= expr.exists(|part| Ok(matches!(part, Expr::Literal(value, _) if is_shared(value))))?;
            Ok(if is_there { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    if !is_there {
        return Ok(Transformed::no(plan));
    }
    let plan = each_expression(plan, |expr, _| {
        Ok(match expr {
            // What separates the values of `string_agg`, or stands for none of `lag`, has to be written.
            Expr::AggregateFunction(mut aggregate) => {
                aggregate.params.args = literals(aggregate.params.args);
                Transformed::yes(Expr::AggregateFunction(aggregate))
            }
            Expr::WindowFunction(mut window) => {
                window.params.args = literals(window.params.args);
                Transformed::yes(Expr::WindowFunction(window))
            }
            Expr::Literal(value, beside) if is_shared(&value) => Transformed::yes(LongConstant::call(value, beside)),
            other => Transformed::no(other),
        })
    })?;
    Ok(Transformed::yes(plan))
}

fn literals(args: Vec<Expr>) -> Vec<Expr> {
    let literal = |arg: Expr| constant(&arg).map(|value| Expr::Literal(value.clone(), None)).unwrap_or(arg);
    args.into_iter().map(literal).collect()
}

/// What an argument is called in the name of a call: a constant that was just computed is not written out at each level
/// above it.
pub(crate) fn called(arg: &Expr) -> String {
    match arg {
        Expr::Literal(value, _) if is_long(value) => by_size(value),
        arg => arg.schema_name().to_string(),
    }
}

pub(crate) fn is_long_literal(arg: &Expr) -> bool {
    matches!(arg, Expr::Literal(value, _) if is_long(value))
}

fn by_size(value: &ScalarValue) -> String {
    format!("constant of {} bytes", value.size())
}

/// The value that a long constant has become.
pub(crate) fn constant(expr: &Expr) -> Option<&ScalarValue> {
    let Expr::ScalarFunction(call) = expr else { return None };
    long_constant(&call.func)
}

/// The value that a function answers, if it is a long constant.
pub(crate) fn long_constant(function: &ScalarUDF) -> Option<&ScalarValue> {
    function.inner().downcast_ref::<LongConstant>().map(|constant| constant.value.as_ref())
}

#[derive(Debug)]
struct LongConstant {
    value: Arc<ScalarValue>,
    /// What stands beside its type: which of those that are kept as text it is.
    beside: Option<FieldMetadata>,
    signature: Signature,
}

impl LongConstant {
    fn call(value: ScalarValue, beside: Option<FieldMetadata>) -> Expr {
        let signature = Signature::nullary(Volatility::Volatile);
        let func = Arc::new(ScalarUDF::new_from_impl(LongConstant { value: Arc::new(value), beside, signature }));
        Expr::ScalarFunction(ScalarFunction { func, args: vec![] })
    }
}

/// Copies of one are equal.
impl PartialEq for LongConstant {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.value, &other.value)
    }
}

impl Eq for LongConstant {}

impl Hash for LongConstant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.value).hash(state);
    }
}

impl ScalarUDFImpl for LongConstant {
    fn name(&self) -> &str {
        "constant"
    }

    fn schema_name(&self, _: &[Expr]) -> Result<String> {
        Ok(by_size(&self.value))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.value.data_type())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        let field = Field::new(self.name(), self.value.data_type(), false);
        Ok(Arc::new(match &self.beside {
            Some(beside) => beside.add_to_field(field),
            None => field,
        }))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.as_ref().clone()))
    }
}
